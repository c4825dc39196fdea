"""Keys and TCP: on this machine, and between two machines, which are network namespaces."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.machines import Machine, ip

import sightglass as sg
from sightglass.client import connection, reconnect
from sightglass.protocol import discovery, messages
from sightglass.protocol.address import Address, read_connection
from sightglass.protocol.zmq import ZmqChannel, new_keys

from .conftest import Child, wait_until

LISTENING = """
from sightglass.training.serving import clients
clients.LEASE_S = float(sys.argv[3])
run = sg.init("job", budget=None, dir=sys.argv[2], listen=sys.argv[1])
run.control("lr", 0.1, min=0.0, max=1.0)
say("ready", run.connection_file, run.viewer_file)
train(run)
say("left", *os.listdir(run.directory))
"""


def test_keys_stay_with_their_user_and_without_one_there_is_no_entrance(start, tmp_path):
    child = start(LISTENING, "tcp://127.0.0.1:0", str(tmp_path / "runs"), "60")
    files = controller, viewer = [Path(word) for word in child.hears("ready")]
    secrets = set()
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        content = json.loads(file.read_text())
        secrets |= {content["client_secret"], content["client_public"], content["server_key"]}
        assert not any(key in content["endpoint"] for key in secrets)
    assert len(secrets) == 5
    told = Path(f"/proc/{child.pid}/cmdline").read_text() + Path(f"/proc/{child.pid}/environ").read_text()
    _, _, address = read_connection(controller)
    stranger = ZmqChannel(Address(endpoint=address.endpoint, server=address.server, client=new_keys()))
    stranger.send(messages.encode(messages.Hello(version=messages.VERSION, client="stranger")))
    with sg.connect(viewer) as run:
        assert not run.may_command
        assert len(run.stream("batch.n").wait(10, timeout_s=60)) >= 10
        for act in (lambda: run.set("lr", 0.5), run.pause, run.resume, run.stop, lambda: run.call("nothing")):
            with pytest.raises(sg.RefusedError, match="controller's key"):
                act()
        assert (run.describe().controls["lr"].value, run.history) == (0.1, [])
        told += repr(run.describe())
    with sg.connect(str(controller)) as run:
        assert run.may_command
        assert run.set("lr", 0.5).applied
        wait_until(lambda: run.describe().n_clients == 1, "the viewer has left, and no stranger has come")
        stream = run.stream("batch.n")
        stream.wait(10, timeout_s=60)
        run.stop()
        indexes = [record.index for record in stream]  # from 0, unless the viewer's stream is parked and goes on
        assert indexes == list(range(indexes[0], indexes[0] + stream.statistics().n_records))
    assert child.hears("left") == ["run.json"]
    assert child.ends() == 0
    assert stranger.receive() == []
    stranger.close()
    assert not any(key in told for key in secrets)
    assert all(entry.stat().st_mode & 0o777 == 0o600 for entry in Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]).iterdir())


@pytest.fixture
def elsewhere(start, other_host: Machine, tmp_path) -> Callable[..., tuple[Child, Path, Path]]:
    """Return a function that starts a run on another host; gives its process and its connection files."""

    def begin(lease_s: float = 60.0, **environment: str) -> tuple[Child, Path, Path]:
        child = start(
            LISTENING, f"tcp://{other_host.address}:0", str(tmp_path / "runs"), str(lease_s),
            prefix=other_host.prefix, **environment,
        )  # fmt: skip
        controller, viewer = child.hears("ready")
        return child, Path(controller), Path(viewer)

    return begin


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of this process notice soon that nothing comes."""
    monkeypatch.setattr(connection, "PING_S", 0.2)
    monkeypatch.setattr(connection, "SILENCE_S", 3.0)
    monkeypatch.setattr("sightglass.client.connection.SILENCE_S", 3.0)
    monkeypatch.setattr(reconnect, "GREET_S", 0.5)
    monkeypatch.setattr(reconnect, "MAX_REST_S", 0.5)


@pytest.mark.slow
def test_runs_of_another_host_are_listed_asked_and_commanded_and_one_that_dies_is_silent(
    elsewhere, tmp_path, monkeypatch
):
    there: dict[str, Any] = {"SIGHTGLASS_RUNTIME_DIR": str(tmp_path / "r"), "TMPDIR": "/nonexistent"}
    child, controller, viewer = elsewhere(**there)  # it has a folder of live runs of its own
    child.may_complain = True
    assert not any(info.live for info in sg.runs())
    assert discovery.entries() == []
    (info,) = sg.runs(connections=tmp_path / "runs", timeout_s=30)
    assert (info.name, info.state, info.pid) == ("job", "running", child.pid)
    with sg.connect(controller) as run, sg.connect(viewer) as looker:
        stream, same = run.stream("batch.n"), looker.stream("batch.n")
        stream.wait(200, timeout_s=60)
        same.wait(200, timeout_s=60)
        with pytest.raises(sg.RefusedError, match="controller's key"):
            looker.stop()
        assert run.set("lr", 0.3).old == 0.1
        assert run.stop().applied
        values = [record.value for record in stream]
        assert values == [values[0] + i for i in range(len(values))]
        assert stream.statistics().n_lost == 0
        list(same)
    assert child.ends() == 0
    assert not any(info.live for info in sg.runs(connections=tmp_path / "runs"))

    dies, controller, _ = elsewhere(**there)
    dies.may_complain = True
    impatient(monkeypatch)
    with sg.connect(controller, on_lost="raise") as run:
        stream = run.stream("batch.n")
        stream.wait(10, timeout_s=60)
        dies.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError, match="silent for 3 s"):
            list(stream)
    states = [info.state for info in sg.runs(connections=tmp_path / "runs", timeout_s=0.3)]
    assert sorted(states) == ["ended", "out of reach"]


@pytest.mark.slow
def test_a_cable_that_is_pulled_costs_nothing_or_leaves_a_counted_gap(elsewhere, other_host, monkeypatch):
    child, file, _ = elsewhere()
    with sg.connect(file) as run:
        stream = run.stream("batch.n")
        stream.wait(20, timeout_s=60)
        other_host.pull()
        child.goes_on()
        other_host.plug()
        n = int(child.hears("step")[0])
        wait_until(lambda: stream.latest.step > n, "TCP sends again, later and later")
        assert run.n_reconnects == 0
        assert run.stop().applied
        values = [record.value for record in stream]
    assert values == list(range(values[0], int(child.hears("made")[0])))
    assert stream.n_lost == 0

    impatient(monkeypatch)
    child, file, _ = elsewhere(3.0)
    with sg.connect(file) as run:
        stream = run.stream("batch.n")
        for _ in range(2):
            n = stream.statistics().n_records
            stream.wait(n + 20, timeout_s=60)
            other_host.pull()
            wait_until(lambda: run.lost, "it is noticed")
            assert run.lost == "Run 'job' has been silent for 3 s"
            assert not run.ended
            with sg.connect("job") as near:  # through the file system
                wait_until(lambda near=near: not near.describe().streams, "the lease ends")
            child.goes_on()
            other_host.plug()
            wait_until(lambda: not run.lost, "it connects again")
        n = stream.statistics().n_records
        stream.wait(n + 100, timeout_s=60)
        assert run.stop().applied
        records = list(stream)
    made = int(child.hears("made")[0])
    assert [record.value for record in records] == sorted({record.value for record in records})
    assert {record.value - record.index for record in records} == {records[0].value}
    assert run.n_reconnects >= 2
    assert stream.n_lost >= 100  # each time nobody asked meanwhile
    assert len(records) + stream.n_lost == records[-1].index + 1 == made - records[0].value


@pytest.mark.parametrize("listen", ["tcp://[::1]:0", "tcp://[::]:0"])
def test_a_run_listens_on_ipv6(tmp_path, listen):
    with sg.init("six", dir=tmp_path, listen=listen, budget=None) as run:
        with sg.connect(run.connection_file) as client:
            stream = client.stream("batch.n")
            run.observe("batch", n=6)
            assert [record.value for record in stream.wait(1)] == [6]
            assert client.may_command
        with sg.connect(run.viewer_file) as viewer:
            assert not viewer.may_command


def test_a_machine_without_ipv4_is_asked(start, other_host, tmp_path):
    ours, theirs = f"fd00:{os.getpid() % 65536:x}::1", f"fd00:{os.getpid() % 65536:x}::2"
    ip(f"-n {other_host.name} address flush dev {other_host.name}b")
    ip(f"address add {ours}/64 dev {other_host.name}a nodad")
    ip(f"-n {other_host.name} address add {theirs}/64 dev {other_host.name}b nodad")
    ip(f"-n {other_host.name} -6 route add default via {ours}")
    child = start(LISTENING, "tcp://[::]:0", str(tmp_path / "runs"), "60", prefix=other_host.prefix)
    controller, _ = child.hears("ready")
    assert read_connection(Path(controller))[2].endpoint.startswith(f"tcp://[{theirs}]:")
    with sg.connect(controller) as run:
        assert len(run.stream("batch.n").wait(10)) >= 10
        run.stop()
    assert child.hears("left") == ["run.json"]
    assert child.ends() == 0
