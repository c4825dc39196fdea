"""Keys and TCP: on this machine, and between two network namespaces as between two hosts."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.protocol import discovery, messages
from sightglass.protocol.address import Address, Keys, read_connection
from sightglass.protocol.zmq import ZmqChannel, new_keys

LISTENING = """
if sys.argv[3:] == ["no ipc"]:
    import zmq
    has = zmq.has
    zmq.has = lambda what: what != "ipc" and has(what)
kwargs = {"listen": sys.argv[1]} if sys.argv[1] else {}
run = sg.init("job", budget=None, dir=sys.argv[2], **kwargs)
run.control("lr", 0.1, min=0.0, max=1.0)
say("ready", run.connection_file, run.viewer_file)
step = 0
while not run.stopping:
    run.observe("batch", step=step, loss=float(step))
    step += 1
    if step % 100 == 0:
        say("step", step)
    time.sleep(0.001)
run.close()
say("left", *os.listdir(run.directory) if run.directory.exists() else [])
"""


@pytest.fixture
def listening(start, tmp_path):
    child = start(LISTENING, "tcp://127.0.0.1:0", str(tmp_path / "runs"))
    child.files = [Path(word) for word in child.hears("ready")]
    return child


def test_a_controller_commands_and_a_viewer_reads(listening):
    controller, viewer = listening.files
    with sg.connect(viewer) as run:
        assert not run.may_command
        assert len(run.stream("batch.loss").wait(10, timeout_s=60)) >= 10
        assert run.describe().controls["lr"].value == 0.1
        for act in (lambda: run.set("lr", 0.5), run.pause, run.resume, run.stop, lambda: run.call("nothing")):
            with pytest.raises(sg.RefusedError, match=r"controller's key.*viewer's key"):
                act()
        assert run.describe().controls["lr"].value == 0.1
        assert run.history == []
    with sg.connect(str(controller)) as run:
        assert run.may_command
        assert run.set("lr", 0.5).applied
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=60)
        run.stop()
        indexes = [record.index for record in stream]  # from 0, unless the viewer's stream is parked and goes on
        assert indexes == list(range(indexes[0], indexes[0] + stream.statistics().n_records))
    assert listening.ends() == 0
    assert listening.hears("left") == ["run.json"]


def test_files_and_command_lines_keep_keys_to_their_user(listening):
    secrets = set()
    for file in listening.files:
        assert file.stat().st_mode & 0o777 == 0o600
        content = json.loads(file.read_text())
        assert content["endpoint"].startswith("tcp://127.0.0.1:")
        secrets |= {content["client_secret"], content["client_public"], content["server_key"]}
        assert not any(key in content["endpoint"] for key in secrets)
    assert len(secrets) == 5
    command = Path(f"/proc/{listening.pid}/cmdline").read_bytes().decode()
    environment = Path(f"/proc/{listening.pid}/environ").read_bytes().decode()
    with sg.connect("job") as run:
        told = repr(run.describe())
    for key in secrets:
        assert key not in command + environment + told
    for entry in Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]).glob("*.json"):
        assert entry.stat().st_mode & 0o777 == 0o600


def test_no_key_no_entrance(listening, until):
    _, _, address = read_connection(listening.files[0])
    stranger = new_keys()
    wrong = [
        Address(endpoint=address.endpoint),
        Address(endpoint=address.endpoint, server=address.server, client=stranger),
        Address(endpoint=address.endpoint, server=stranger.public, client=address.client),
        Address(
            endpoint=address.endpoint,
            server=address.server,
            client=Keys(public=address.client.public, secret=stranger.secret),
        ),
    ]
    channels = [ZmqChannel(place) for place in wrong]
    for channel in channels:
        channel.send(messages.encode(messages.Hello(version=messages.VERSION, client="stranger")))
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        stream.wait(200, timeout_s=60)
        assert run.describe().n_clients == 1
    for channel in channels:
        channel.wait(0.05)
        assert channel.receive() == []
        channel.close()
    host, _, port = address.endpoint.removeprefix("tcp://").rpartition(":")
    hello = bytes(messages.encode(messages.Hello(version=messages.VERSION, client="x"))[0])
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)  # protocol 3 without keys
    ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
    message = b"\0" + bytes([len(hello)]) + hello
    oldest = b"\x01\0" + bytes([len(hello) + 1, 0]) + hello  # protocol 1 has no greeting
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), oldest, greeting + ready + message):
        with socket.create_connection((host, int(port)), timeout=30) as peer:
            peer.sendall(data)
    listening.goes_on()
    with sg.connect("job") as run:
        until(lambda: run.describe().n_clients == 1)  # the last one may still be leaving


def test_loopback_with_keys_where_there_are_no_unix_sockets(start, tmp_path):
    child = start(LISTENING, "", str(tmp_path / "runs"), "no ipc")
    child.hears("ready")
    [entry] = discovery.entries()
    assert entry.endpoint.startswith("tcp://127.0.0.1:")
    assert entry.server_key
    with sg.connect("job") as run:
        assert run.may_command
        run.stream("batch.loss").wait(10, timeout_s=60)
        channel = ZmqChannel(Address(endpoint=entry.endpoint))
        channel.send(messages.encode(messages.Hello(version=messages.VERSION, client="stranger")))
        assert [info.state for info in sg.runs(timeout_s=30)] == ["running"]
        assert run.set("lr", 0.2).applied
        channel.wait(0.2)
        assert channel.receive() == []
        channel.close()
        run.stop()
    assert child.ends() == 0


def test_runs_of_one_name_that_begin_together_do_not_share_their_files(start, tmp_path):
    children = [start(LISTENING, "tcp://127.0.0.1:0", str(tmp_path / "runs")) for _ in range(4)]
    files = [child.hears("ready")[0] for child in children]
    assert len(set(files)) == 4
    for child, file in zip(children, files, strict=True):
        with sg.connect(file) as run:
            assert run.describe().pid == child.pid
            assert run.describe().directory == str(Path(file).parent)


def test_a_connection_file_that_leads_nowhere(tmp_path):
    with pytest.raises(sg.RunNotFoundError, match="No such file"):
        sg.connect(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(sg.RunNotFoundError, match="connection file"):
        sg.connect(tmp_path / "other.json")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    keys = new_keys()
    (tmp_path / "gone.json").write_text(
        json.dumps({"run": "job", "id": "1", "endpoint": endpoint, "server_key": keys.public,
                    "client_public": keys.public, "client_secret": keys.secret})
    )  # fmt: skip
    with pytest.raises(sg.RunLostError, match=f"answer at {endpoint}"):
        sg.connect(tmp_path / "gone.json", timeout_s=0.3)
    [info] = sg.runs(connections=tmp_path, timeout_s=0.3)
    assert (info.name, info.state) == ("job", "out of reach")


def test_another_host(start, other_host, tmp_path, until):
    n = os.getpid() % 250
    runtime = tmp_path / "r"  # the other host has a folder of live runs of its own
    child = start(
        LISTENING, f"tcp://10.213.{n}.2:0", str(tmp_path / "runs"),
        prefix=("ip", "netns", "exec", other_host), SIGHTGLASS_RUNTIME_DIR=str(runtime), TMPDIR="/nonexistent",
    )  # fmt: skip
    child.may_complain = True
    controller, viewer = (Path(word) for word in child.hears("ready"))
    assert not any(info.live for info in sg.runs())
    [info] = sg.runs(connections=tmp_path / "runs", timeout_s=30)
    assert (info.name, info.state, info.pid) == ("job", "running", child.pid)
    with sg.connect(controller) as run, sg.connect(viewer) as looker:
        stream, same = run.stream("batch.loss"), looker.stream("batch.loss")
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


@pytest.mark.slow
def test_another_host_that_dies(start, other_host, tmp_path, monkeypatch):
    import signal

    import sightglass.client.connection as connection

    monkeypatch.setattr(connection, "SILENCE_S", 2.0)
    monkeypatch.setattr(connection, "PING_S", 0.5)
    n = os.getpid() % 250
    child = start(
        LISTENING, f"tcp://10.213.{n}.2:0", str(tmp_path / "runs"),
        prefix=("ip", "netns", "exec", other_host), SIGHTGLASS_RUNTIME_DIR=str(tmp_path / "r"),
    )  # fmt: skip
    child.may_complain = True
    controller = child.hears("ready")[0]
    with sg.connect(controller, on_lost="raise") as run:
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=60)
        child.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError, match="2 s"):
            list(stream)
    [info] = sg.runs(connections=tmp_path / "runs", timeout_s=0.3)
    assert info.state == "out of reach"
