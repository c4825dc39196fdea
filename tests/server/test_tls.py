"""TLS: certificates from files and made here, links and sockets over it, and strangers who never finish a handshake."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import json
import os
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from tests.waiting import PATIENCE_S
from websockets.sync.client import connect

from sightglass.cli import main
from sightglass.core.errors import MissingExtraError, TransportError
from sightglass.core.process.certificate import Certificate
from sightglass.server import connections
from sightglass.server.app import Server, make_server
from sightglass.server.connections import MAX_OF_ADDRESS

from .conftest import wait_until


def shown(port: int) -> str:
    """Return the certificate that a server shows, in PEM."""
    return ssl.get_server_certificate(("127.0.0.1", port))


@pytest.fixture
def secure(serve):
    """Return a client of a server with a certificate made here, which trusts that."""
    page = serve(tls=True)
    page.context = ssl.create_default_context(cadata=shown(page.server.port))
    page.http = httpx.Client(base_url=f"https://127.0.0.1:{page.server.port}", verify=page.context, timeout=PATIENCE_S)
    return page


def test_links_pages_requests_and_sockets_are_encrypted(secure):
    port = secure.server.port
    assert secure.server.link().startswith(f"https://127.0.0.1:{port}/#token=")
    assert secure.http.get("/").status_code == 200
    answer = secure.get("/session", headers={"Origin": f"https://127.0.0.1:{port}"})
    assert answer.json()["role"] == "controller"
    # It would turn http into https at all other ports of this host, too.
    assert "strict-transport-security" not in answer.headers
    with connect(f"wss://127.0.0.1:{port}/api/v1/live", ssl=secure.context, open_timeout=PATIENCE_S) as live:
        live.send(json.dumps({"type": "hello", "token": secure.server.tokens.viewer}))
        assert json.loads(live.recv(PATIENCE_S)) == {"type": "welcome", "role": "viewer"}
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/")
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown(port))).hexdigest()
    assert secure.server.certificate.fingerprint.replace(":", "").lower() == digest


def test_no_key_is_shown(secure):
    assert "PRIVATE" not in repr(secure.server)
    assert not list(Path().rglob("*.pem"))


def test_the_certificate_of_a_chosen_port_stays(runtime):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def fingerprint(**options):
        server = make_server([], port=port, tls=True, **options)
        server._socket.close()
        return server.certificate.fingerprint

    first = fingerprint()
    assert fingerprint() == first
    [stored] = runtime.glob("*.pem")
    assert stored.stat().st_mode & 0o777 == 0o600
    other = fingerprint(allowed_hosts=["hub.example.org"])
    assert other != first
    stored.write_text("damaged")
    assert fingerprint(allowed_hosts=["hub.example.org"]) not in (first, other)


@pytest.fixture
def pem(tmp_path):
    """Return a file with a key and a certificate for localhost."""
    path = tmp_path / "both.pem"
    Certificate.make(["localhost"], stored=path)
    return path


def test_certificates_from_files(serve, pem, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    text = pem.read_text()
    start = text.index("-----BEGIN CERT")
    key.write_text(text[:start])
    certificate.write_text(text[start:])
    page = serve(tls=(certificate, key))
    assert not page.server.certificate.self_made
    assert shown(page.server.port).strip() == text[start:].strip()
    for files in ((key, certificate), (certificate, Path("missing.pem")), (Path(__file__), key)):
        with pytest.raises(TransportError, match="certificate"):
            make_server([], tls=files)


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(pem, tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    secret = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    with pytest.raises(TransportError, match="passphrase"):
        make_server([], tls=(pem, locked))


def test_without_cryptography_it_says_what_to_install(monkeypatch, pem):
    usual = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"'sightglass\[tls\]'"):
        make_server([], tls=True)
    make_server([], tls=(pem, pem))._socket.close()


def test_the_command_prints_the_fingerprint(monkeypatch, pem):
    monkeypatch.setattr(Server, "run", lambda self: self._socket.close())
    done = CliRunner().invoke(main, ["ui", "--no-browser", "--tls", "--host", "0.0.0.0", "--expose"])
    assert done.exit_code == 0, done.output
    links = done.stdout.splitlines()
    assert all(f"https://{socket.gethostname()}:" in line for line in links[:2])
    assert len(links[2].split()[-1].split(":")) == 32
    assert ", encrypted: " in done.stderr
    done = CliRunner().invoke(main, ["ui", "--no-browser", "--tls-cert", str(pem)])
    assert len(done.stdout.splitlines()) == 2
    for wrong, code in (["--tls-key", str(pem)], 2), (["--tls-cert", __file__], 1):
        assert CliRunner().invoke(main, ["ui", "--no-browser", *wrong]).exit_code == code


HELLO = bytes.fromhex("16030100c8")  # the head of a handshake of 200 bytes, which do not follow


@pytest.mark.parametrize("sent", [b"", HELLO, b"GET / HTTP/1.1\r\n"])
def test_half_a_handshake_is_a_stranger_s(secure, sent):
    n_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    held = []
    for _ in range(4 * MAX_OF_ADDRESS):
        held.append(socket.create_connection(("127.0.0.1", secure.server.port), 60))
        with contextlib.suppress(OSError):  # it was cut already
            held[-1].sendall(sent)
    assert secure.json("/session")["role"] == "controller"
    assert secure.hub.connections.n_strangers <= MAX_OF_ADDRESS
    for one in held[: 3 * MAX_OF_ADDRESS]:
        one.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            while one.recv(65536):
                pass
    for one in held:
        one.close()
    wait_until(lambda: secure.hub.connections.n_strangers == 0)
    if n_before:
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= n_before + 3)


def test_half_a_handshake_leaves_in_time(secure, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(connections, "STRANGER_S", 0.2)
        with socket.create_connection(("127.0.0.1", secure.server.port), 60) as silent:
            silent.sendall(HELLO)
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(1) == b""
    assert secure.json("/session")
