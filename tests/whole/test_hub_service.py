"""`sightglass hub` as people use it: started, joined by trainings and clients, and started again."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, HubServer, Service, Trained, listed, needs_server, wait_until

import sightglass as sg
from sightglass.core.errors import RefusedError, RunLostError, SightglassError, TransportError

pytestmark = needs_server
pytest.importorskip("nats")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "hub")
    yield service
    if service.process.poll() is None:
        service.end()


def call(*arguments: object, code: int = 0) -> str:
    from sightglass.cli import main

    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == code, done.output
    return done.output


def reached(name: str, file: Path) -> Any:
    """Connect, or return `None`: a machine that is busy answers late."""
    try:
        return sg.connect(name, hub=file)
    except SightglassError:
        return None


def test_a_hub_from_its_first_start_to_its_second(service: Service) -> None:
    assert f"its address is tls://127.0.0.1:{service.port}." in service.output
    assert f"export SIGHTGLASS_HUB={service.file('run')}" in service.output
    for path in [service.file(role) for role in ("run", "viewer", "controller")]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = service.file("run").read_text()
    with sg.init("trained", hub=service.file("run")) as run:
        lr = run.control("lr", 0.5, thread="any")
        with wait_until(lambda: reached("trained", service.file("viewer")), "it is found") as viewer:
            assert viewer.describe().controls["lr"].value == 0.5
            with pytest.raises(SightglassError, match="viewer"):
                viewer.set("lr", 0.25)
        with (
            wait_until(lambda: reached("trained", service.file("controller")), "it is found") as controller,
            Trained(run),
        ):
            controller.set("lr", 0.25)
        assert lr.value == 0.25
        assert service.end() == 0
        service.start()  # as it was started before
        assert service.file("run").read_text() == before
        wait_until(lambda: reached("trained", service.file("viewer")), "it is back").close()
        assert service.end(signal.SIGHUP) == 0  # its terminal was closed
        socket.create_server(("127.0.0.1", service.port)).close()  # so has the server


def test_users_come_and_go_while_the_hub_runs(service: Service, tmp_path: Path) -> None:
    folder = ("--dir", service.folder)
    node, ann = tmp_path / "node.hub", tmp_path / "ann.hub"
    call("hub", "user", "add", "node", "--project", "vision", "--role", "run", "--out", node, *folder)
    call("hub", "user", "add", "ann", "--project", "vision", "--role", "viewer", "--out", ann, *folder)
    assert stat.S_IMODE(ann.stat().st_mode) == 0o600
    assert "has a user 'ann' already" in call(
        *("hub", "user", "add", "ann", "--project", "vision", "--role", "run", "--out", ann, *folder), code=1
    )
    assert "Cannot write" in call(
        "hub", "user", "add", "x", "--role", "run", "--out", tmp_path / "no" / "x", *folder, code=1
    )
    assert "1 to 64 letters" in call("hub", "user", "add", "a.b", "--role", "run", *folder, code=1)
    rows = json.loads(call("hub", "user", "list", "--json", *folder))
    assert [(row["project"], row["name"], row["role"]) for row in rows] == [
        *(("default", role, role) for role in ("controller", "run", "viewer")),
        ("vision", "ann", "viewer"),
        ("vision", "node", "run"),
    ]
    assert not any("key" in row for row in rows)
    with sg.init("seen", hub=node), wait_until(lambda: reached("seen", ann), "the hub knows both") as client:
        stream = client.stream("batch.loss")
        call("hub", "user", "revoke", "ann", "--project", "vision", *folder)
        with pytest.raises(RunLostError, match="'ann'"):
            list(stream)
        wait_until(lambda: "refuses user 'ann': it does not know them" in str(listed(ann)), "it is refused")
        with pytest.raises(RefusedError, match="'ann'"):
            sg.runs(hub=ann)
        assert "Unknown user 'anne'" in call("hub", "user", "revoke", "anne", *folder, code=1)


@pytest.mark.filterwarnings("ignore:The hub")
def test_a_revoked_training_goes_on_and_says_why(service: Service) -> None:
    with sg.init("lone", hub=service.file("run")) as run, sg.connect(run) as local:
        wait_until(lambda: reached("lone", service.file("viewer")), "it is found").close()
        call("hub", "user", "revoke", "run", "--dir", service.folder)
        wait_until(lambda: "refuses user 'run'" in local.describe().failures.get("The hub", ""), "it is told")
        stream = local.stream("batch.loss")
        run.observe("batch", loss=1.0)
        assert [record.value for record in stream.wait(1, timeout_s=PATIENCE_S)] == [1.0]


def test_a_key_of_one_role_does_nothing_in_another(service: Service, tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="run's"):
        sg.runs(hub=service.file("run"))
    with pytest.warns(RuntimeWarning, match="'lone'.*hub file"):
        sg.init("lone", hub=service.file("viewer")).close()
    forged = tmp_path / "forged.hub"
    forged.write_text(json.dumps(json.loads(service.file("viewer").read_text()) | {"role": "controller"}))
    with sg.init("guarded", hub=service.file("run")):
        wait_until(lambda: reached("guarded", service.file("viewer")), "it is found").close()
        with pytest.raises(SightglassError):  # the server drops what it says
            sg.connect("guarded", hub=forged, timeout_s=2.0)


def test_another_certificate_is_refused(service: Service, tmp_path: Path) -> None:
    other = tmp_path / "other"
    call("hub", "--dir", other, "--listen", f"127.0.0.1:{service.port}", "--config-only")
    viewer = other / "viewer.hub"
    wait_until(lambda: "has another certificate than the hub file names" in str(listed(viewer)), "it is refused")


def test_nothing_is_said_before_it_is_encrypted(tmp_path: Path) -> None:
    """Somebody in between who answers in plain text, as NATS without TLS does, learns nothing."""
    heard: list[bytes] = []
    folder = tmp_path / "hub"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(
                    b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"tls_required":false}\r\n'
                )
                while data := connection.recv(65_536):
                    heard.append(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        call("hub", "--dir", folder, "--listen", f"127.0.0.1:{port}", "--config-only")
        with pytest.raises(TransportError, match=r"TLS|answer"):
            sg.runs(hub=folder / "viewer.hub")
        thread.join(PATIENCE_S)
    said = b"".join(heard)
    assert said.startswith(b"\x16\x03")  # a TLS handshake
    assert b"CONNECT" not in said
    assert json.loads((folder / "viewer.hub").read_text())["key"].encode() not in said


def test_a_hub_that_cannot_start_says_why(service: Service, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sightglass", "hub", "--dir", tmp_path / "more"]
    again = subprocess.run(
        [*command, "--listen", f"127.0.0.1:{service.port}"],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert again.returncode == 1
    assert "The NATS server ended: " in again.stderr
    assert "address already in use" in again.stderr
    (tmp_path / "open").mkdir(mode=0o755)
    assert "Expected a folder that only you can enter" in call("hub", "--dir", tmp_path / "open", code=1)
    assert "Expected these options alone" in call("hub", "--dir", tmp_path / "more", "user", "list", code=2)
    assert "Expected an address and a port" in call("hub", "--dir", tmp_path / "more", "--listen", "here", code=1)
    assert "run `sightglass hub` first" in call("hub", "user", "add", "x", "--role", "run", "--dir", tmp_path, code=1)


def test_the_configuration_alone_is_one_that_a_server_takes(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    path = call("hub", "--dir", folder, "--address", "login.example.org", "--listen", "0.0.0.0:4333", "--config-only")
    content = json.loads(Path(path.strip()).read_text())
    assert content["listen"] == "0.0.0.0:4333"
    assert content["tls"]["handshake_first"] is True
    assert json.loads((folder / "run.hub").read_text())["url"] == "tls://login.example.org:4333"
    for private in (folder, folder / "users"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    for file in (*folder.glob("*.*"), *folder.glob("users/*")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    del content["log_file"], content["listen"]
    HubServer(config=json.dumps(content)).close()
