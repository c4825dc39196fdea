"""Over a hub as on one machine: rank groups, fleets, patterns on the command line, and runs that are started again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, HubServer, listed, needs_server, wait_until

import sightglass as sg
from sightglass.cli import main
from sightglass.core.errors import RunNotFoundError, SightglassError, TransportError
from sightglass.protocol.hub_address import hub_address
from sightglass.protocol.hub_presence import HubDirectory

pytestmark = needs_server
pytest.importorskip("nats")

TRAINING = """
import sys, time
import sightglass as sg

name, lr, runs = sys.argv[1], float(sys.argv[2]), sys.argv[3]
with sg.init(name, dir=runs, config={"lr": lr}) as run:
    rate = run.control("rate", lr, thread="any")
    step = 0
    while not run.stopping:
        run.observe("batch", step=step, loss=float(step), rate=rate.value)
        step += 1
        time.sleep(0.002)
"""

BUSY = """
import contextlib, sys, time
import sightglass as sg
from sightglass.protocol import hub_presence

hub_presence.HubAnnouncement.received = lambda *_: None  # too busy to answer
hub_presence.BEAT_EVERY_S = 1.0
with contextlib.ExitStack() as stack:
    runs = [stack.enter_context(sg.init(f"busy-{i}", dir=sys.argv[1])) for i in range(3)]
    while not all(run.stopping for run in runs):
        for run in runs:
            run.observe("batch", loss=0.0)
        time.sleep(0.002)
"""


class Nodes:
    """Machines that share nothing but a hub: each training has a registry of its own."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.server = HubServer()
        stack.callback(self.server.close)
        self._folder, self._stack, self._n = folder, stack, 0

    def start(self, name: str, lr: float = 0.5, **variables: str) -> subprocess.Popen[bytes]:
        """Start a training on a node of its own."""
        return self.run(TRAINING, name, str(lr), str(self._folder / "runs"), **variables)

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Run a program on a node of its own."""
        self._n += 1
        node = {"SIGHTGLASS_HUB": self.server.url, "SIGHTGLASS_RUNTIME_DIR": str(self._folder / f"n{self._n}")}
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], env=os.environ | node | variables)
        self._stack.callback(process.wait, PATIENCE_S)
        self._stack.callback(process.kill)
        return process

    def connect(self, name: str) -> Any:
        """Connect, or return `None`: a machine that is busy answers late."""
        try:
            return sg.connect(name, hub=self.server.url)
        except SightglassError:
            return None

    def call(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["--hub", self.server.url, *arguments])
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.output


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two ranks of one program, and two runs of a sweep."""
    with contextlib.ExitStack() as stack:
        nodes = Nodes(tmp_path_factory.mktemp("nodes"), stack)
        for rank in "01":
            nodes.start("wide", RANK=rank, WORLD_SIZE="2", MASTER_ADDR="node-1", MASTER_PORT="29500")
        nodes.start("sweep-a", 0.1)
        nodes.start("sweep-b", 0.2)
        names = ["sweep-a", "sweep-b", "wide", "wide"]
        wait_until(lambda: listed(nodes.server.url) == names, "all run")
        yield nodes


def test_the_ranks_of_a_program_on_different_machines_are_one_run(nodes: Nodes) -> None:
    with wait_until(lambda: nodes.connect("wide"), "they answer") as group:
        assert (group.name, group.n_ranks) == ("wide", 2)
        wait_until(lambda: sorted(group.ranks) == [0, 1], "both are found")
        stream = group.stream("batch.loss.count(every='200ms')")
        wait_until(lambda: any(record.complete for record in stream.records()), "a window of both")
        each = group.stream("batch.loss")
        wait_until(lambda: {record.rank for record in each.records()} == {0, 1}, "records of both")


def test_a_fleet_on_a_hub_is_asked_and_commanded_and_later_runs_join(nodes: Nodes) -> None:
    with sg.fleet("sweep-*", hub=nodes.server.url) as fleet:
        fleet.wait(2, timeout_s=PATIENCE_S)
        assert set(fleet) == {"sweep-a", "sweep-b"}
        assert fleet["sweep-b"].describe().config == {"lr": 0.2}
        low = fleet.where(lambda run: run.config.lr < 0.15)
        assert list(low) == ["sweep-a"]
        stream = fleet.stream("batch.loss.mean(every=10)")
        wait_until(lambda: {record.run for record in stream.records()} == {"sweep-a", "sweep-b"}, "records of both")
        report = wait_until(lambda: answered(low.set("rate", 0.05, timeout_s=PATIENCE_S)), "it is applied")
        assert set(report.applied) == {"sweep-a"}
        late = nodes.start("sweep-c", 0.3)
        fleet.wait(3, timeout_s=PATIENCE_S)
        wait_until(lambda: "sweep-c" in {record.run for record in stream.records()}, "it is asked, too")
        late_too = nodes.start("sweep-c", 0.4)  # beside the first: another run
        fleet.wait(4, timeout_s=PATIENCE_S)
        assert sorted(name.split()[0] for name in fleet) == ["sweep-a", "sweep-b", "sweep-c", "sweep-c"]
        fleet.where(lambda run: run.config.lr > 0.25).stop(timeout_s=PATIENCE_S)
        wait_until(lambda: late.poll() == late_too.poll() == 0, "they end")
        wait_until(lambda: len(fleet.left) == 2, "they have left")
        assert set(fleet) == {"sweep-a", "sweep-b"}


def answered(report: Any) -> Any:
    return report if report.applied else None


def test_patterns_on_the_command_line_mean_the_runs_of_the_hub(nodes: Nodes) -> None:
    def output(*arguments: str) -> str:
        return CliRunner().invoke(main, ["--hub", nodes.server.url, *arguments]).output

    text = nodes.call("watch", "sweep-*", "batch.loss", "-n", "40", "--json")
    assert {json.loads(line)["run"] for line in text.splitlines()} <= {"sweep-a", "sweep-b"}
    wait_until(lambda: {"sweep-a", "sweep-b"} <= set(re.findall("sweep-.", output("set", "sweep-*", "rate=0.125"))), "")

    def rates() -> dict[str, Any]:
        rows = json.loads(nodes.call("top", "batch.rate", "--every", "0.5", "--json"))
        return {row["name"]: (row["values"].get("batch.rate") or {}).get("value") for row in rows}

    wait_until(lambda: rates() | {"wide": 0} == {"sweep-a": 0.125, "sweep-b": 0.125, "wide": 0}, "they are shown")
    assert "No live run matches 'swoop-*'" in nodes.call("stop", "swoop-*", code=3)
    assert "Unknown run 'sweep-*' on this hub" in nodes.call("describe", "sweep-*", code=3)
    assert "run wide" in nodes.call("describe", "wide")


def test_a_command_to_a_pattern_reaches_the_runs_that_answer_late(nodes: Nodes, tmp_path: Path) -> None:
    busy = nodes.run(BUSY, str(tmp_path))
    directory = HubDirectory(hub_address(nodes.server.url))
    try:
        wait_until(lambda: sum("busy-" in run.entry.name for run in directory.runs()) == 3, "they are heard of")
    finally:
        directory.close()
    assert json.loads(nodes.call("stop", "busy-*", "--json")).keys() == {"busy-0", "busy-1", "busy-2"}
    assert busy.wait(PATIENCE_S) == 0


def test_without_its_hub_there_is_no_fleet() -> None:
    with pytest.raises(TransportError, match=r"nats://127.0.0.1:9"):
        sg.fleet(hub="nats://127.0.0.1:9")


@pytest.mark.slow
def test_streams_go_on_with_a_run_that_was_started_again(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightglass.client.presence.SILENCE_S", 5.0)  # in this process; the runs keep theirs
    first = nodes.start("phoenix")
    with (
        wait_until(lambda: nodes.connect("phoenix"), "it begins") as remote,
        sg.fleet("phoenix", hub=nodes.server.url) as fleet,
    ):
        fleet.wait(1, timeout_s=PATIENCE_S)
        stream, together = remote.stream("batch.loss"), fleet.stream("batch.loss")
        with wait_until(lambda: nodes.connect(remote.id), "by its id") as same:
            lone = same.stream("batch.loss")
            for one in (stream, together, lone):
                one.wait(5, timeout_s=PATIENCE_S)
            before = remote.id
            first.send_signal(signal.SIGKILL)
            first.wait(PATIENCE_S)
            nodes.start("phoenix")
            (restart,) = wait_until(lambda: stream.restarts, stream.statistics)
            wait_until(lambda: stream.latest.index > restart.index, "records of the new run")
            assert restart.run_id == remote.id != before
            wait_until(lambda: "phoenix" in fleet and fleet["phoenix"].id == remote.id, "the fleet follows it, too")
            n = together.latest.index
            wait_until(lambda: together.latest.index > n, "records of the new run")
            assert list(fleet) == ["phoenix"]  # one run, not two
            wait_until(lambda: same.lost, "it is gone")  # it was asked for by its id
            assert not lone.restarts
    with pytest.raises(RunNotFoundError):
        sg.connect(before, hub=nodes.server.url)
