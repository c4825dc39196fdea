"""The files of `deploy/`: what they run is what the hub's commands understand, and what they write starts a server."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, PROGRAM, needs_server

from sightglass.cli import main

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def documents(name: str) -> dict[str, Any]:
    """Return the documents of a file by their kind; a file of one kind has none."""
    return {one.get("kind", ""): one for one in yaml.safe_load_all((DEPLOY / name).read_text())}


def test_the_parts_of_the_manifest_fit_together() -> None:
    found = documents("kubernetes.yaml")
    service, hub = found["Service"]["spec"], found["StatefulSet"]["spec"]
    (container,) = hub["template"]["spec"]["containers"]
    labels, (claim,) = hub["template"]["metadata"]["labels"], hub["volumeClaimTemplates"]
    assert service["selector"] == hub["selector"]["matchLabels"] == labels
    assert hub["serviceName"] == found["Service"]["metadata"]["name"] == "hub"  # the address of the hub
    assert claim["metadata"]["name"] == container["volumeMounts"][0]["name"]
    assert service["ports"][0]["port"] == container["ports"][0]["containerPort"] == 4222
    assert container["readinessProbe"]["tcpSocket"]["port"] == 4222


@needs_server
@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml"])
def test_a_container_runs_a_hub_that_the_server_understands(name: str, tmp_path: Path) -> None:
    found = documents(name)
    if name == "compose.yaml":
        command, host = found[""]["services"]["hub"]["command"], "login.example.org"
        command = [re.sub(r"\$\{HUB_ADDRESS:\?[^}]*\}", host, word) for word in command]
    else:
        (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        command, host = container["command"], "hub"
    assert command[:2] == ["sh", "-c"]
    subprocess.run(["sh", "-n", "-c", command[2]], check=True, timeout=PATIENCE_S)
    words = shlex.split(command[2].partition("exec sightglass ")[2].replace("/data", str(tmp_path)))
    done = CliRunner().invoke(main, [*words, "--config-only"])
    assert done.exit_code == 0, done.output
    assert f'"tls://{host}:4222"' in (tmp_path / "hub" / "run.hub").read_text()
    assert PROGRAM is not None
    checked = subprocess.run(
        [PROGRAM, "-t", "-c", done.stdout.strip()], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert checked.returncode == 0, checked.stderr


def test_the_job_gives_each_training_the_hub(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$SIGHTGLASS_HUB" "$@"\n')
    srun.chmod(0o700)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/me"}
    environment |= {"SLURM_ARRAY_TASK_ID": "3"}
    environment.pop("SIGHTGLASS_HUB", None)
    done = subprocess.run(
        ["bash", str(DEPLOY / "slurm.sh")], check=True, capture_output=True, text=True, env=environment,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout.split() == [
        "/home/me/.local/state/sightglass/hub/run.hub", "python", "train.py", "--seed", "3",
    ]  # fmt: skip
