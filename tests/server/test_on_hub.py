"""The page of a server that looks for live runs on a hub, too."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, Hub, needs_server

import sightglass as sg
from sightglass.client.hub_runs import RunsOnHub
from sightglass.core.errors import TransportError
from sightglass.hub import link, nats_client
from sightglass.server.runs import served_run

from .conftest import Page, wait_until

pytestmark = needs_server
pytest.importorskip("nats")

TRAINING = """
import sys, time
import sightglass as sg

with sg.init("far", dir=sys.argv[1], config={"lr": 0.5}, record=["batch.loss"]) as run:
    rate = run.control("rate", 0.5, thread="any")
    step = 0
    while not run.stopping:
        run.observe("batch", step=step, loss=float(step), rate=rate.value)
        step += 1
        time.sleep(0.002)
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections take their time on a busy machine."""
    for module in (nats_client, link, served_run):
        monkeypatch.setattr(module, "CONNECT_S", PATIENCE_S)


@pytest.fixture
def far(hub: Hub, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training on another machine: it shares nothing but the hub, and a disk."""
    there = {"SIGHTGLASS_RUNTIME_DIR": str(tmp_path / "n1"), "SIGHTGLASS_HUB": str(hub.files["P", "node"])}
    process = subprocess.Popen([sys.executable, "-c", TRAINING, str(tmp_path / "far")], env=os.environ | there)
    yield process
    process.kill()
    process.wait(PATIENCE_S)


def looking(hub: Hub, user: str) -> RunsOnHub:
    """Return the runs of the hub: a machine that is busy connects late."""

    def connected() -> RunsOnHub | None:
        with contextlib.suppress(TransportError):
            return RunsOnHub(hub.files["P", user], by_name=False)
        return None

    return wait_until(connected, "a connection to the hub")  # type: ignore[no-any-return]


def shown(page: Page, name: str, **expected: Any) -> dict[str, Any]:
    """Wait until a run is in the list, and is as expected."""

    def found() -> Any:
        run = page.runs().get(name, {})
        return run if run and all(run[key] == value for key, value in expected.items()) else None

    return wait_until(found)  # type: ignore[no-any-return]


def test_the_runs_of_a_hub_are_shown_asked_and_commanded_with_those_of_this_machine(
    hub: Hub, far: subprocess.Popen[bytes], serve: Callable[..., Page], begin: Callable[..., Any]
) -> None:
    begin("near")
    both = begin("both", hub=hub.files["P", "node"])
    page = serve(hub=looking(hub, "bob"))
    run = shown(
        page, "far", live=True, hub_role="controller", directory="", state="running", project="P", config={"lr": 0.5}
    )
    assert page.json(f"/runs/{run['key']}/tags") == {"tags": [], "charts": []}  # its folder is not read here
    assert shown(page, "near")["hub_role"] == ""
    assert [one["id"] for one in page.json("/runs")["runs"] if one["name"] == "both"] == [both.id]
    assert shown(page, "both")["hub_role"] == ""  # it is reached without the hub
    socket = page.socket()
    socket.send(type="open", id=1, run=run["key"], query="batch.loss")
    socket.hears("data", id=1)
    answer = page.post(f"/runs/{run['key']}/commands", {"kind": "set", "name": "rate", "value": 0.25})
    assert answer.json()["result"] == 0.25, answer.text
    # The hub goes, and comes back.
    socket.send(type="runs")
    hub.server.kill()
    problem = socket.finds(lambda message: message["type"] == "runs" and message["problem"])["problem"]
    assert problem.startswith("The runs of the hub are those of before: ")
    assert page.json("/runs")["problem"]
    assert shown(page, "far", live=True)["key"] == run["key"]
    hub.server.start()
    socket.finds(lambda message: message["type"] == "runs" and not message["problem"])
    socket.kept.clear()
    socket.hears("data", id=1)  # it goes on
    page.post(f"/runs/{run['key']}/commands", {"kind": "stop"})
    assert far.wait(PATIENCE_S) == 0
    wait_until(lambda: "far" not in page.runs())  # its files are on another machine


def test_a_viewer_of_the_hub_sees_that_it_cannot_command(
    hub: Hub, far: subprocess.Popen[bytes], serve: Callable[..., Page]
) -> None:
    page = serve(hub=looking(hub, "ann"))
    key = shown(page, "far", hub_role="viewer", state="running")["key"]
    answer = page.post(f"/runs/{key}/commands", {"kind": "stop"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "RefusedError")
    assert "viewer" in answer.text
    assert far.poll() is None


def test_a_run_that_writes_to_a_shared_folder_is_shown_once(
    hub: Hub, far: subprocess.Popen[bytes], serve: Callable[..., Page], tmp_path: Path
) -> None:
    page = serve(tmp_path / "far", hub=looking(hub, "bob"))
    run = shown(page, "far", live=True, hub_role="controller")
    wait_until(lambda: str(tmp_path / "far") in page.runs()["far"]["directory"])
    assert [one["name"] for one in page.json("/runs")["runs"]] == ["far"]
    far.kill()
    ended = shown(page, "far", live=False)
    assert ended["key"] == run["key"]
    assert sg.runs(tmp_path / "far")[0].id == run["id"]
