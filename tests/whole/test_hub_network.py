"""A hub between hosts: two network namespaces, each a machine of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hub_server import Service, needs_server

pytestmark = needs_server
pytest.importorskip("nats")

HALVING = Path(__file__).parents[2] / "examples" / "hub_halving.py"
HERE, THERE = ("0.0003", "0.001", "0.003", "0.01"), ("0.03", "0.1", "0.3", "1.0", "3.0")


@pytest.mark.slow
def test_a_fleet_is_halved_on_two_hosts(other_host: str, tmp_path: Path) -> None:
    service = Service(tmp_path / "hub", host=f"10.213.{os.getpid() % 250}.1")
    processes = []
    try:
        for rates, prefix in ((HERE, ()), (THERE, ("ip", "netns", "exec", other_host))):
            node = {"SIGHTGLASS_HUB": str(service.file("run")), "SIGHTGLASS_RUNTIME_DIR": str(tmp_path / rates[0])}
            command = [*prefix, sys.executable, str(HALVING), "train", *rates]
            processes.append(subprocess.Popen(command, env=os.environ | node, start_new_session=True))
        command = [sys.executable, str(HALVING), "halve", str(service.file("controller"))]
        halved = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
        assert halved.returncode == 0, halved.stdout + halved.stderr
        assert "after  3 epochs, best of  9: " in halved.stdout
        assert [process.wait(60) for process in processes] == [0, 0]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait(60)
        service.end()
