"""Servers that refuse, are full, are no hubs or show another certificate: each is named, and the training goes on."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, Hub, HubServer, Trained, needs_server, wait_until

import sightglass as sg
from sightglass.cli import main
from sightglass.core.errors import RefusedError, SightglassError, TransportError
from sightglass.core.process import certificate
from sightglass.hub import presence
from sightglass.hub.address import hub_address
from sightglass.hub.link import MAX_RATE
from sightglass.hub.nats_client import tls

pytestmark = needs_server
pytest.importorskip("nats")


@contextlib.contextmanager
def listener_that(says: bytes, heard: list[bytes]) -> Iterator[str]:
    """Listen on a port of the system's, say this to each that connects, and listen to what it says."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            with contextlib.suppress(OSError):  # it was closed
                while True:
                    connection = stack.enter_context(listener.accept()[0])
                    connection.sendall(says)
                    heard.append(connection.recv(65_536) if says.startswith(b"INFO") else b"")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("config", "says", "message"),
    [
        ("authorization {user: ann, password: secret}", b"", "refuses user 'anyone'"),
        ("max_connections: 1", b"", "is full"),
        (None, b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a hub"),
        pytest.param(None, b"", "within 5 s", marks=pytest.mark.slow),
    ],
    ids=["unknown user", "full", "another program", "silent"],
)
@pytest.mark.filterwarnings("ignore:The hub")
def test_each_fault_is_named_and_the_training_goes_on(config: str | None, says: bytes, message: str) -> None:
    with contextlib.ExitStack() as stack:
        if config is not None:
            server = HubServer(config=config)
            stack.callback(server.close)
            url = server.url
            held = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S))
            assert held.recv(1)  # the one place is taken
        else:
            url = "nats://" + stack.enter_context(listener_that(says, []))
        with sg.init("lone", hub=url) as run, sg.connect(run) as local:
            stream = local.stream("batch.loss")
            run.observe("batch", loss=2.0)
            assert [record.value for record in stream.wait(1, timeout_s=PATIENCE_S)] == [2.0]
            failures = wait_until(lambda: local.describe().failures, "it is counted")
        assert re.search(f"'lone'.*{message}", failures["The hub"])
        error = RefusedError if message.startswith("refuses") else TransportError
        with pytest.raises(error, match=f"{message}|no answer from"):
            sg.runs(hub=url)


@pytest.mark.filterwarnings("ignore:The hub")
@pytest.mark.parametrize(
    ("valid", "message"),
    [
        ((-2, -1), "certificate .* has expired"),
        ((1, 2), "certificate .* not yet valid"),
        ((-1, 1), "another certificate"),
    ],
    ids=["expired", "not yet valid", "another one"],
)
def test_a_wrong_certificate_is_named_and_the_training_goes_on(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, valid: tuple[int, int], message: str
) -> None:
    begin, end = (datetime.timedelta(days=days) for days in valid)
    monkeypatch.setattr(certificate, "EARLIER", -begin)
    pem = certificate.made(["sightglass-hub"], valid=end - begin)
    hub.server.kill()
    Path(json.loads(hub.server.config)["tls"]["cert_file"]).write_bytes(pem)
    hub.server.start()
    if "another" not in message:
        shown = pem.decode()[pem.decode().index("-----BEGIN CERTIFICATE") :]
        for file in hub.files.values():
            file.write_text(json.dumps(json.loads(file.read_text()) | {"certificate": shown}))
    with sg.init("lone", hub=hub.files["P", "node"]) as run, sg.connect(run) as local, Trained(run) as trained:
        failures = wait_until(lambda: local.describe().failures, "it is told")
        assert re.search(f"^1?.*run 'lone' continues without it, .*{message}", failures["The hub"])
        with pytest.raises(TransportError, match=message):
            sg.runs(hub=hub.files["P", "ann"])
        n = trained.n
        wait_until(lambda: trained.n > n + 50, "the training goes on")


def test_nothing_is_said_before_it_is_encrypted(tmp_path: Path) -> None:
    """Somebody in between who answers in plain text, as NATS without TLS does, learns nothing."""
    heard: list[bytes] = []
    info = b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"tls_required":false}\r\n'
    with listener_that(info, heard) as place:
        done = CliRunner().invoke(main, ["hub", "--dir", str(tmp_path / "hub"), "--listen", place, "--config-only"])
        assert done.exit_code == 0, done.output
        viewer = tmp_path / "hub" / "viewer.hub"
        with pytest.raises(TransportError, match=r"(does not speak TLS|does not answer|no answer from)"):
            sg.runs(hub=viewer)
    said = b"".join(heard)
    assert said.startswith(b"\x16\x03")  # a TLS handshake
    assert b"CONNECT" not in said
    assert json.loads(viewer.read_text())["key"].encode() not in said


@pytest.mark.filterwarnings("ignore:The hub")
def test_a_hub_that_comes_late_and_goes_is_told_once_and_counted() -> None:
    server = HubServer()
    server.kill()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with sg.init("patient", hub=server.url) as run, sg.connect(run) as local:  # on this machine, nothing changes
            failures = wait_until(lambda: local.describe().failures, "the hub was not reached")
            assert failures["The hub"].endswith(
                "run 'patient' continues without it, and connects when it can: "
                f"no hub answers at nats://127.0.0.1:{server.port}"
            )
            server.start()

            def found() -> Any:
                with contextlib.suppress(SightglassError):
                    return sg.connect("patient", hub=server.url)

            with wait_until(found, "it is found") as remote:
                assert remote.id == run.id

            def n_failures() -> int:
                return int(local.describe().failures["The hub"].partition(";")[0])

            n = n_failures()
            server.kill()
            wait_until(lambda: n_failures() > n, "it is counted")
    told = [str(one.message) for one in caught if str(one.message).startswith("The hub")]
    assert len(told) == 1, told
    server.close()


@contextlib.contextmanager
def flooding(hub: Hub, user: str, id: str) -> Iterator[list[int]]:
    """Send as fast as the server takes it what a viewer may, until the end of the block; count the messages."""
    address = hub.address(user)
    n_sent, client = [0], "0" * 24
    ask = f"PUB sightglass.ask.{user}.node.{id}.{client} 9\r\n\x02{chr(0) * 8}\r\n"
    block = (ask + f"PUB sightglass.who.{user}.{client} 0\r\n\r\n").encode() * 200
    options = {"user": f"{address.project}.{user}", "pass": address.key, "verbose": False, "protocol": 1}
    with (
        socket.create_connection(("127.0.0.1", hub.server.port), PATIENCE_S) as plain,
        tls(address.certificate).wrap_socket(plain) as connection,
    ):
        connection.sendall(f"CONNECT {json.dumps(options)}\r\n".encode())
        over = threading.Event()

        def send() -> None:
            while not over.is_set():
                connection.sendall(block)
                n_sent[0] += 400

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield n_sent
        finally:
            over.set()
            thread.join(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The hub")
def test_a_user_who_floods_costs_the_training_little_and_is_named(hub: Hub) -> None:
    with sg.init("job", hub=hub.files["P", "node"], budget=None) as run, sg.connect(run) as local:
        with sg.connect("job", hub=hub.files["P", "bob"], wait_s=PATIENCE_S) as remote, Trained(run) as trained:
            stream = remote.stream("batch.loss")
            stream.wait(20, timeout_s=PATIENCE_S)
            with flooding(hub, "ann", run.id) as n_sent:
                told = wait_until(lambda: local.describe().failures, "it is told")
                assert "user 'ann' sends more" in told["The hub"]
                wait_until(lambda: n_sent[0] > 20 * MAX_RATE, "it is a flood")
            n = trained.n
            wait_until(lambda: stream.latest.step > n, "the stream goes on")
        values = [int(record.value) for record in stream.records()]
        assert values == sorted(set(values))


@pytest.mark.slow
def test_a_command_to_a_pattern_reaches_the_runs_that_answer_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(presence.HubAnnouncement, "received", lambda *_: None)  # too busy to answer
    monkeypatch.setattr(presence, "BEAT_EVERY_S", 1.0)
    with contextlib.ExitStack() as stack:
        server = HubServer()
        stack.callback(server.close)
        runs = [stack.enter_context(sg.init(f"busy-{i}", dir=tmp_path, hub=server.url)) for i in range(3)]
        directory = stack.enter_context(contextlib.closing(presence.HubDirectory(hub_address(server.url))))
        wait_until(lambda: len(directory.runs()) == 3, "they are heard of")
        for run in runs:
            stack.enter_context(Trained(run))
        done = CliRunner().invoke(main, ["--hub", server.url, "stop", "busy-*", "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout).keys() == {"busy-0", "busy-1", "busy-2"}
        assert all(run.stopping for run in runs)
