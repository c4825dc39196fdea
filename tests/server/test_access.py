"""Who may come in, and who may not."""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path

import pytest

from sightglass.server.access import AllowedHosts, Tokens, Visitor, host_of, is_loopback
from sightglass.server.app import ROUTES
from sightglass.server.http_errors import Problem, without_folders
from sightglass.server.middleware import CSP, MAX_BODY_BYTES

from .conftest import raises_closed, record, wait_until

PATHS = [re.sub(r"{key}", "none", route.path) for route in ROUTES if route.method == "GET"]


def error(answer):
    return answer.json()["error"]["type"]


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer é".encode(), "bearer" + "x" * 9])
def test_nothing_is_answered_without_a_token(page, header):
    for path in [*PATHS, "/openapi.json"]:
        answer = page.http.get("/api/v1" + path, headers={"Authorization": header} if header else {})
        assert (answer.status_code, error(answer)) == (401, "UnauthorizedError")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_tokens_in_the_url_are_ignored(page):
    answer = page.http.get("/api/v1/session", params={"token": page.server.tokens.controller})
    assert answer.status_code == 401


def test_each_token_gives_its_role(page):
    assert page.json("/session")["role"] == "controller"
    seen = page.get("/session", role="viewer").json()
    assert seen["role"] == "viewer"
    assert not any("/" in folder for folder in seen["directories"])  # the paths of this machine are not theirs
    assert page.server.tokens.controller not in repr(page.server)
    assert page.server.link("viewer").endswith("#token=" + page.server.tokens.viewer)


def test_viewers_are_read_only(page, begin):
    run = begin("job")
    run.control("lr", 0.1)
    key = page.key("job")
    commands = [("commands", {"kind": "stop"}), ("commands", {"kind": "set", "name": "lr", "value": 1.0})]
    for path, body in [*commands, ("record", {"query": "batch.loss"})]:
        answer = page.post(f"/runs/{key}/{path}", body, role="viewer")
        assert (answer.status_code, error(answer)) == (403, "RefusedError")
    assert not run.stopping
    assert page.post(f"/runs/{key}/check", {"query": "batch.loss"}, role="viewer").status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "", "[::1", "127.0.0.1:x", "127.0.0.1.evil.example", "10.0.0.1:{port}"],
)
def test_other_hosts_are_refused(page, host):
    headers = {**page.headers(), "Host": host.format(port=page.server.port)}
    for path in ("/api/v1/session", "/"):
        answer = page.http.get(path, headers=headers)
        assert (answer.status_code, error(answer)) == (403, "HostError")
        assert answer.headers["content-security-policy"] == CSP


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "ws://127.0.0.1:{port}", ""]
)
def test_other_origins_are_refused(page, origin):
    answer = page.get("/session", headers={"Origin": origin.format(port=page.server.port)})
    assert (answer.status_code, error(answer)) == (403, "OriginError")


@pytest.mark.parametrize("port", ["", ":{port}", ":9999"])
def test_the_own_origin_is_let_in_and_no_other_is_invited(page, port):
    """Whatever the port is: a tunnel may have another one."""
    for host in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        authority = host + port.format(port=page.server.port)
        answer = page.get("/session", headers={"Host": authority, "Origin": f"http://{authority}"})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_sockets_are_guarded_too(page):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with pytest.raises(InvalidStatus) as caught:
        connect(f"ws://127.0.0.1:{page.server.port}/api/v1/live", origin="http://evil.example")
    assert caught.value.response.status_code == 403


def test_every_response_bears_the_headers(page):
    record()
    answers = [page.http.get(path) for path in ("/", "/nothing", "/api/v1/session", "/api/none")]
    answers += [page.get("/session"), page.get(f"/runs/{page.key('mnist')}/tags")]
    for answer in answers:
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer.headers
        assert "server" not in answer.headers
    media = page.get(f"/runs/{page.key('mnist')}/media", tag="digits")
    assert "sandbox" in media.headers["content-security-policy"]


TRAVERSALS = ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "....//etc/passwd",
              "/etc/passwd", "%00", "..\\..\\etc", "runs%2fmnist", "."]  # fmt: skip


def raw(page, target, headers=""):
    """Ask for exactly this address, which a well-behaved client would tidy."""
    with socket.create_connection(("127.0.0.1", page.server.port), 60) as plain:
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{page.server.port}\r\nConnection: close\r\n{headers}\r\n"
        plain.sendall(head.encode("latin-1"))
        answer = b""
        while piece := plain.recv(65536):
            answer += piece
    return int(answer.split()[1]), answer


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out(page, path):
    record()
    bearer = f"Authorization: Bearer {page.server.tokens.controller}\r\n"
    for target in (f"/{path}", f"/assets/{path}", f"/api/v1/runs/{path}", f"/api/v1/runs/{path}/tags"):
        status, answer = raw(page, target.replace("//etc", "//etc"), bearer)
        assert status in (400, 404) or b"location: http://127.0.0.1" in answer
        assert b"root:" not in answer


def test_large_requests_are_refused(page):
    body = b"[" + b" " * MAX_BODY_BYTES + b"]"
    answer = page.http.post("/api/v1/scalars", content=body, headers=page.headers())
    assert (answer.status_code, error(answer)) == (413, "TooLargeError")
    answer = page.http.post("/api/v1/scalars", content=iter([body]), headers=page.headers())  # without its length
    assert (answer.status_code, error(answer)) == (413, "TooLargeError")
    answer = page.get("/session", x="y" * 20_000)
    assert (answer.status_code, error(answer)) == (413, "TooLargeError")


def test_a_socket_must_say_hello(page, monkeypatch):
    from sightglass.server.live import page_socket

    monkeypatch.setattr(page_socket, "HELLO_S", 0.1)
    silent = page.socket(greet=False)
    with raises_closed(4401):
        silent.next()
    for first in ({"type": "hello", "token": "wrong"}, {"type": "runs"}, {"type": "hello"}):
        socket = page.socket(greet=False)
        socket.send(**first)
        with raises_closed(4401):
            socket.next()
    binary = page.socket(greet=False)
    binary.raw.send(b"\x00\x01")
    with raises_closed(4401):
        binary.next()


def test_names():
    names = AllowedHosts.of("127.0.0.1")
    for host in ("127.0.0.1", "localhost:80"):
        names.check(host, None)
    everywhere = AllowedHosts.of("0.0.0.0")
    for host in ("192.168.1.2:8080", f"{socket.gethostname()}:8080"):
        everywhere.check(host, None)
    for allowed, host in ((names, "192.168.1.2:80"), (everywhere, "evil.example:8080"), (everywhere, None)):
        with pytest.raises(Problem, match="Host"):
            allowed.check(host, None)
    assert is_loopback("127.9.9.9")
    assert not is_loopback("example.org")
    assert [host_of(text) for text in ("a:b", "[::1]x", "[::1", "a:123456", "a:")] == ["", "", "", "", "a"]


def test_tokens_are_long_and_differ():
    one, other = Tokens(), Tokens()
    assert len({one.controller, one.viewer, other.controller, other.viewer}) == 4
    assert len(one.controller) >= 43
    assert one.visitor(one.viewer) == Visitor(role="viewer")
    assert one.visitor("") is None
    assert "viewer=" not in repr(one)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cannot open '/home/me/my runs/a/1.sgr': [Errno 5]", "Cannot open '1.sgr': [Errno 5]"),
        ("/tmp/x/run.json is not a folder", "run.json is not a folder"),
        ("1/2 of a/b and (a)/b", "1/2 of a/b and (a)/b"),
        ('File "/opt/lib/x.py", line 3', 'File "x.py", line 3'),
        ("at /a/b.py:12", "at b.py:12"),
    ],
)
def test_errors_name_files_without_their_folders(text, shown):
    assert without_folders(text) == shown


def test_no_reply_of_a_run_whose_files_are_gone_names_a_folder(page, tmp_path):
    record("job")
    [key] = [run["key"] for run in page.json("/runs")["runs"]]
    [directory] = Path("runs").iterdir()
    shutil.rmtree(directory)
    for path in (f"/runs/{key}/tags", f"/runs/{key}/series?tag=loss", f"/runs/{key}"):
        text = page.get(path, role="viewer").text
        problem = json.loads(text).get("problem", text)
        assert str(tmp_path) not in problem


PROXIED = [
    ("hub.example.org", "https://hub.example.org", 200),  # nginx that passes the Host on
    ("hub.example.org:8443", "https://hub.example.org:8443", 200),
    ("127.0.0.1:{port}", "https://hub.example.org", 200),  # one that sends its own
    ("hub.example.org", None, 200),
    ("hub.example.org", "https://evil.example", 403),
    ("127.0.0.1:{port}", "https://evil.example", 403),
    ("evil.example", "https://hub.example.org", 403),
]


@pytest.mark.parametrize(("host", "origin", "status"), PROXIED)
def test_behind_a_proxy_its_name_is_let_in(serve, host, origin, status):
    page = serve(allowed_hosts=["Hub.example.org:443"])
    headers = {"Host": host.format(port=page.server.port), **({} if origin is None else {"Origin": origin})}
    assert page.get("/session", headers=headers).status_code == status


def test_links_that_lead_out_of_the_folder_are_not_followed(serve, tmp_path):
    secret, open_run, linked, early = (record(name, n=20) for name in ("secret", "open", "linked", "early"))
    private = tmp_path / "private"
    shutil.move(secret, private)
    [segment], [harmless] = private.glob("*.sgr"), linked.resolve().glob("*.sgr")
    (early / "x.sgr").symlink_to(segment)
    page = serve()
    keys = {name: page.key(name) for name in ("open", "linked")}
    assert page.get(f"/runs/{keys['linked']}/tags").status_code == 200  # its files are open now
    (linked / "x.sgr").symlink_to(segment)
    (open_run / "x.sgr").symlink_to(harmless)  # within the folder
    Path("runs/away").symlink_to(private)
    for path, query in (("tags", {}), ("scalars", {"tag": "batch.loss"}), ("media", {"tag": "digits"})):
        answer = page.get(f"/runs/{keys['linked']}/{path}", role="viewer", **query)
        assert (answer.status_code, error(answer)) == (409, "StorageError")
        assert str(private) not in answer.text
    assert page.get(f"/runs/{keys['open']}/tags").status_code == 200
    wait_until(lambda: "Links out of the folder" in page.runs()["early"]["problem"])
    assert "secret" not in page.runs()


def test_a_run_s_directory_that_becomes_a_link_is_not_followed(page, tmp_path):
    directory = record("job", n=20)
    key = page.key("job")
    private = tmp_path / "private"
    shutil.move(directory, private)
    directory.symlink_to(private)
    assert page.get(f"/runs/{key}/tags").status_code == 409
