"""Runs that meet their clients on a hub: found, asked and commanded, whatever becomes of the hub."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, TRAINING, Hub, Service, all_counted, listed, needs_server, wait_until

import sightglass as sg
from sightglass.cli import main
from sightglass.client import hub_runs, reconnect
from sightglass.core.errors import (
    RefusedError,
    RunLostError,
    SightglassError,
)
from sightglass.hub.address import hub_address
from sightglass.hub.presence import HubDirectory

from .conftest import Child, Start

pytestmark = [needs_server, pytest.mark.slow]
pytest.importorskip("nats")

Train = Callable[..., Any]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "hub")
    yield service
    if service.process.poll() is None:
        service.end()


@pytest.fixture
def train(start: Start, tmp_path: Path) -> Train:
    """Return a function that starts a training that shares nothing but a hub with us, and waits until it has begun."""
    numbers = iter(range(100))

    def train(file: Path, name: str = "job", *, script: str = TRAINING, **environment: str) -> Child:
        there = {"SIGHTGLASS_HUB": str(file), "SIGHTGLASS_RUNTIME_DIR": str(tmp_path / f"n{next(numbers)}")}
        child = start(script, name, **(there | environment))
        (child.id,) = child.hears("ready")
        return child

    return train


def call(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


def reached(name: str, file: Path, **options: Any) -> Any:
    """Connect; a machine that is busy answers late."""

    def connect() -> Any:
        with contextlib.suppress(SightglassError):
            return sg.connect(name, hub=file, **options)

    return wait_until(connect, f"{name} answers")


def goes_on(stream: Any, child: Child) -> None:
    """Check that a stream has records that its run makes from now on."""
    child.goes_on()
    n = int(child.hears("step")[0])
    wait_until(lambda: stream.latest.step > n, "the stream goes on")


# The hub as people use it


def test_a_hub_from_its_first_start_to_its_second(service: Service, train: Train, tmp_path: Path) -> None:
    assert f"its address is tls://127.0.0.1:{service.port}." in service.output
    assert f"export SIGHTGLASS_HUB={service.file('run')}" in service.output
    controller, viewer = service.file("controller"), service.file("viewer")
    for path in (service.file("run"), viewer, controller):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = service.file("run").read_text()
    child = train(service.file("run"), "far", script=TRAINING.replace("say(", "run.control('lr', 0.5); say(", 1))
    with reached("far", viewer) as watching:
        assert watching.describe().controls["lr"].value == 0.5
        with pytest.raises(SightglassError, match="viewer"):
            watching.set("lr", 0.25)

    on_hub = ("--hub", controller)
    wait_until(lambda: "far" in CliRunner().invoke(main, ["--hub", str(controller), "runs"]).output, "it is listed")
    assert "event 'batch'" in call(*on_hub, "describe", "far")
    assert len(call(*on_hub, "watch", "far", "batch.n", "-n", "3", "--json").splitlines()) == 3
    assert "lr" in call(*on_hub, "set", "far", "lr=0.125")
    (row,) = json.loads(call(*on_hub, "top", "batch.n", "--every", "0.5", "--json"))
    assert row["name"] == "far"
    assert "Expected one of these commands with --hub" in call(*on_hub, "check", "runs", code=2)
    assert "Expected neither DIR nor --connections with --hub" in call(*on_hub, "runs", ".", code=2)

    again = subprocess.run(
        [sys.executable, "-m", "sightglass", "hub", "--dir", tmp_path / "x", "--listen", f"127.0.0.1:{service.port}"],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert again.returncode == 1
    assert "The NATS server ended: " in again.stderr
    assert "address already in use" in again.stderr

    assert service.end() == 0
    service.start()  # as it was started before
    assert service.file("run").read_text() == before
    with reached("far", viewer) as watching:
        assert watching.describe().controls["lr"].value == 0.125
    call(*on_hub, "stop", "far")
    assert child.ends() == 0
    assert service.end(signal.SIGHUP) == 0  # its terminal was closed
    socket.create_server(("127.0.0.1", service.port)).close()  # so has the server


def test_users_come_and_go_while_the_hub_runs(service: Service, train: Train, tmp_path: Path) -> None:
    folder = ("--dir", service.folder)
    node, ann, bob = (tmp_path / f"{name}.hub" for name in ("node", "ann", "bob"))
    for file, role in ((node, "run"), (ann, "viewer"), (bob, "controller")):
        call("hub", "user", "add", file.stem, "--project", "vision", "--role", role, "--out", file, *folder)
    assert stat.S_IMODE(ann.stat().st_mode) == 0o600
    rows = json.loads(call("hub", "user", "list", "--json", *folder))
    assert [(row["project"], row["name"], row["role"]) for row in rows] == [
        *(("default", role, role) for role in ("controller", "run", "viewer")),
        *(("vision", "ann", "viewer"), ("vision", "bob", "controller"), ("vision", "node", "run")),
    ]
    assert not any("key" in row for row in rows)
    child = train(node, "seen", SIGHTGLASS_RUNTIME_DIR=str(tmp_path / "there"))
    with reached("seen", ann) as client, reached("seen", bob) as other:
        stream, kept = client.stream("batch.n"), other.stream("batch.n")
        stream.wait(5, timeout_s=PATIENCE_S)
        call("hub", "user", "revoke", "ann", "--project", "vision", *folder)
        with pytest.raises(RunLostError, match=r"refuses user 'ann'"):
            list(stream)
        wait_until(lambda: "refuses user 'ann': it does not know them" in str(listed(ann)), "it is refused")
        with pytest.raises(RefusedError, match="refuses user 'ann'"):
            sg.runs(hub=ann)
        goes_on(kept, child)
        assert "Unknown user 'anne'" in call("hub", "user", "revoke", "anne", *folder, code=1)

    with pytest.MonkeyPatch.context() as patch:  # on the machine of the training, to which the hub is closed
        patch.setenv("SIGHTGLASS_RUNTIME_DIR", str(tmp_path / "there"))
        with sg.connect("seen") as local:
            call("hub", "user", "revoke", "node", "--project", "vision", *folder)
            wait_until(lambda: "refuses user 'node'" in local.describe().failures.get("The hub", ""), "it is told")
            child.goes_on()
            assert local.stop().applied
    assert child.ends() == 0


# What becomes of the hub, and of the way to it


class Between:
    """What carries the bytes between a machine and a server, and may stall, or cut all connections."""

    def __init__(self, port: int) -> None:
        self._to, self._listener = ("127.0.0.1", port), socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def stall(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        for pair in self._pairs:
            end(*pair)

    def close(self) -> None:
        end(self._listener)
        self.go_on()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for one in (self._listener, *(one for pair in self._pairs for one in pair)):
            one.close()

    def _begin(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                self._join(self._listener.accept()[0])

    def _join(self, here: socket.socket) -> None:
        try:
            there = socket.create_connection(self._to, PATIENCE_S)
        except OSError:  # the server is down
            here.close()
            return
        self._pairs.append((here, there))
        self._begin(self._carry, here, there)
        self._begin(self._carry, there, here)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                self._flows.wait()
                other.sendall(data)
        end(one, other)


def end(*sockets: socket.socket) -> None:
    """End connections without closing the sockets, which others wait for."""
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def between(hub: Hub) -> Iterator[Between]:
    """Put something between the trainings and the hub."""
    between = Between(hub.server.port)
    file = hub.files["P", "node"]
    file.write_text(file.read_text().replace(f":{hub.server.port}", f":{between.port}"))
    yield between
    between.close()


def test_a_connection_that_stalls_is_cut_or_loses_its_hub_leaves_counted_gaps(
    hub: Hub, between: Between, train: Train, runtime: Path
) -> None:
    file, bob = hub.files["P", "node"], hub.files["P", "bob"]
    child = train(file, "calm")
    with reached("calm", bob) as remote:
        stream = remote.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        between.stall()
        child.goes_on()
        between.go_on()
        goes_on(stream, child)
        assert remote.stop().applied
        all_counted(stream, child)
        assert (remote.n_reconnects, stream.statistics().n_lost) == (0, 0)  # a moment costs nothing

    def dies() -> None:
        hub.server.kill()

    faults = {between.cut: between.go_on, between.stall: between.go_on, dies: hub.server.start}
    child = train(file, PING_S="0.5", SIGHTGLASS_RUNTIME_DIR=str(runtime))
    with reached("job", bob) as remote, sg.connect("job") as local:
        stream = remote.stream("batch.n")

        def n_failures() -> int:
            return int(local.describe().failures.get("The hub", "0;").partition(";")[0])

        for fault, repair in faults.items():
            stream.wait(stream.statistics().n_records + 20, timeout_s=PATIENCE_S)
            n_before = n_failures()
            fault()
            wait_until(lambda n=n_before: n_failures() > n, "the run notices")
            child.goes_on()
            repair()
            between.cut()  # what is still in between is gone with its connections
            goes_on(stream, child)
        told = local.describe().failures["The hub"]
        assert re.search("run 'job' continues without it, and connects when it can: ", told)
        assert remote.stop().applied
        all_counted(stream, child)


def test_a_hub_that_stands_still_holds_neither_a_training_nor_its_end(hub: Hub, train: Train, runtime: Path) -> None:
    file, here = hub.files["P", "node"], {"SIGHTGLASS_RUNTIME_DIR": str(runtime)}
    child = train(file, "steady", **here)
    reached("steady", hub.files["P", "ann"]).close()
    hub.server.stop()
    try:
        second = train(file, "second", **here)  # it does not wait for it, either
        for name, one in (("steady", child), ("second", second)):
            with sg.connect(name) as local:
                one.goes_on()
                assert local.describe().name == name
                if name == "second":
                    wait_until(lambda local=local: local.describe().failures, "it is counted")
                assert local.stop().applied
            assert one.ends() == 0
            one.complaints  # that the hub does not answer
    finally:
        hub.server.go_on()


# What becomes of the runs


def test_a_run_that_stands_still_is_gone_and_comes_back_and_one_that_is_killed_does_not(
    service: Service, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_runs, "GONE_AFTER_S", 5.0)  # in this process, as are the next ones
    monkeypatch.setattr("sightglass.client.connection.SILENCE_S", 5.0)
    monkeypatch.setattr(reconnect, "MAX_REST_S", 0.5)
    stuck, killed = (train(service.file("run"), name) for name in ("stuck", "far"))
    directory = HubDirectory(hub_address(service.file("viewer")))

    def names() -> list[str]:
        return sorted(run.entry.name for run in directory.runs())

    with (
        contextlib.closing(directory),
        reached("stuck", service.file("controller")) as remote,
        reached(killed.id, service.file("viewer")) as watched,  # who asks by the id follows no other run of its name
    ):
        stream, lost = remote.stream("batch.n"), watched.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        wait_until(lambda: names() == ["far", "stuck"], names)
        stuck.send(signal.SIGSTOP)
        wait_until(lambda: names() == ["far"], names)
        stuck.send(signal.SIGCONT)
        wait_until(lambda: names() == ["far", "stuck"], names)
        goes_on(stream, stuck)

        lost.wait(200, timeout_s=PATIENCE_S)
        killed.send(signal.SIGKILL)  # while somebody reads
        assert remote.stop().applied
        all_counted(stream, stuck)
        wait_until(lambda: "stuck" not in names(), "it said that it ended")
        wait_until(lambda: names() == [], "the killed one is not heard any more")
        ends_with_a_gap(lost)
        wait_until(lambda: watched.ended, "it is over")
        assert listed(service.file("viewer")) == []


def ends_with_a_gap(stream: Any) -> None:
    """Check that a stream fails with the number from which on its records are missing."""
    values: list[int] = []
    with pytest.raises(RunLostError) as failed:
        values += (int(record.value) for record in stream)
    first = stream.latest.index + 1
    assert f"of 'batch.n', records from number {first:,} on are missing" in str(failed.value)


def test_a_client_that_is_away_while_its_run_ends_learns_which_records_are_missing(
    hub: Hub, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_runs, "GONE_AFTER_S", 1.0)
    monkeypatch.setattr(reconnect, "MAX_REST_S", 0.5)
    child, bob, away = train(hub.files["P", "node"], "far"), hub.files["P", "bob"], tmp_path / "away.hub"
    with contextlib.closing(Between(hub.server.port)) as way:
        away.write_text(bob.read_text().replace(f":{hub.server.port}", f":{way.port}"))
        with reached("far", away) as client, reached("far", bob) as here:
            lost, whole = client.stream("batch.n"), here.stream("batch.n")
            for stream in (lost, whole):
                stream.wait(20, timeout_s=PATIENCE_S)
            way.stall()
            assert here.stop().applied
            all_counted(whole, child)  # who was connected has all of it
            way.cut()
            way.go_on()
            ends_with_a_gap(lost)
            assert lost.latest.index < whole.latest.index


# Groups and fleets

SWEEP = """
run = sg.init(sys.argv[1], config={"lr": float(os.environ["LR"])})
rate = run.control("rate", run.config["lr"], thread="any")
say("ready", run.id)
train(run, lambda step: {"rate": rate.value})
"""


def test_rank_groups_fleets_and_patterns_over_a_hub_and_a_run_that_is_started_again(
    hub: Hub, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightglass.client.connection.SILENCE_S", 5.0)  # in this process; the runs keep theirs
    file, bob = hub.files["P", "node"], hub.files["P", "bob"]
    for rank in "01":
        place = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "node-1", "MASTER_PORT": "29500"}
        train(file, "wide", script=SWEEP, LR="0.0", **place)
    a, _ = (train(file, name, script=SWEEP, LR=lr) for name, lr in (("sweep-a", "0.1"), ("sweep-b", "0.2")))
    wait_until(lambda: listed(bob) == ["sweep-a", "sweep-b", "wide", "wide"], "all run")

    with reached("wide", bob) as group:
        assert (group.name, group.n_ranks) == ("wide", 2)
        wait_until(lambda: sorted(group.ranks) == [0, 1], "both are found")
        stream, each = group.stream("batch.n.count(every='200ms')"), group.stream("batch.n")
        wait_until(lambda: any(record.complete for record in stream.records()), "a window of both")
        wait_until(lambda: {record.rank for record in each.records()} == {0, 1}, "records of both")

    def output(*arguments: str) -> str:
        return CliRunner().invoke(main, ["--hub", str(bob), *arguments]).output

    text = call("--hub", bob, "watch", "sweep-*", "batch.n", "-n", "40", "--json")
    assert {json.loads(line)["run"] for line in text.splitlines()} <= {"sweep-a", "sweep-b"}
    set_rate = ("set", "sweep-*", "rate=0.125")
    wait_until(lambda: {"sweep-a", "sweep-b"} <= set(re.findall("sweep-.", output(*set_rate))), "both are set")
    assert "No live run matches 'swoop-*'" in call("--hub", bob, "stop", "swoop-*", code=3)
    assert "Unknown run 'sweep-*' on this hub" in call("--hub", bob, "describe", "sweep-*", code=3)
    assert "run wide" in call("--hub", bob, "describe", "wide")

    with (
        sg.fleet("sweep-*", hub=bob) as fleet,
        reached("sweep-a", bob) as remote,
        reached(a.id, bob) as by_id,
    ):
        fleet.wait(2, timeout_s=PATIENCE_S)
        assert set(fleet) == {"sweep-a", "sweep-b"}
        low = fleet.where(lambda run: run.config.lr < 0.15)
        assert list(low) == ["sweep-a"]
        together, stream, lone = (one.stream("batch.n") for one in (fleet, remote, by_id))
        wait_until(lambda: {record.run for record in together.records()} == {"sweep-a", "sweep-b"}, "of both")
        assert fleet["sweep-a"].describe().controls["rate"].value == 0.125
        report = wait_until(lambda: low.set("rate", 0.05, timeout_s=PATIENCE_S).applied, "it is applied")
        assert set(report) == {"sweep-a"}
        late = train(file, "sweep-c", script=SWEEP, LR="0.3")
        fleet.wait(3, timeout_s=PATIENCE_S)
        wait_until(lambda: "sweep-c" in {record.run for record in together.records()}, "it is asked, too")
        fleet.where(lambda run: run.config.lr > 0.25).stop(timeout_s=PATIENCE_S)
        assert late.ends() == 0
        wait_until(lambda: len(fleet.left) == 1, "it has left")

        for one in (stream, lone):
            one.wait(5, timeout_s=PATIENCE_S)
        a.send(signal.SIGKILL)
        a.ends()
        again = train(file, "sweep-a", script=SWEEP, LR="0.1")
        (restart,) = wait_until(lambda: stream.restarts, stream.statistics)
        wait_until(lambda: stream.latest.index > restart.index, "records of the new run")
        assert restart.run_id == remote.id == again.id
        wait_until(lambda: "sweep-a" in fleet and fleet["sweep-a"].id == again.id, "the fleet follows it, too")
        assert set(fleet) == {"sweep-a", "sweep-b"}  # one run, not two
        wait_until(lambda: by_id.lost, "it is gone")  # it was asked for by its id
        assert not lone.restarts
