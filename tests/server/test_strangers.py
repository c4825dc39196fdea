"""Connections without a token: few at a time, for a short time, and nobody with a token waits for them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

import pytest

from sightglass.server import connections
from sightglass.server.connections import MAX_FIELDS, MAX_HELLO_BYTES, MAX_OF_ADDRESS
from sightglass.server.live import page_socket
from sightglass.server.middleware import Proxies

from .conftest import wait_until

HALF = b"GET / HTTP/1.1\r\nX: "


@pytest.fixture
def knock(page):
    """Return a function that opens connections, each with the start of a request."""
    held = []

    def knock(n, sent=HALF):
        for _ in range(n):
            held.append(socket.create_connection(("127.0.0.1", page.server.port), 60))
            with contextlib.suppress(OSError):  # it was cut already
                held[-1].sendall(sent)
        return held

    yield knock
    for one in held:
        one.close()


def is_closed(one):
    """Read what was answered; return whether the server then closes."""
    one.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        while one.recv(65536):
            pass
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF,
        b"POST /api/v1/scalars HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_the_oldest_leave_for_new_ones_and_a_token_is_answered_at_once(page, knock, sent):
    n_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    held = knock(4 * MAX_OF_ADDRESS, sent)
    assert page.json("/session")["role"] == "controller"
    assert all(is_closed(one) for one in held[: 3 * MAX_OF_ADDRESS])
    assert page.hub.connections.n_strangers <= MAX_OF_ADDRESS
    assert page.json("/session")["role"] == "controller"
    for one in held:
        one.close()
    if n_before:
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= n_before + 3)


def test_strangers_leave_in_time_and_others_stay(page, knock, monkeypatch):
    socket = page.socket()
    with monkeypatch.context() as patch:
        patch.setattr(connections, "STRANGER_S", 0.2)
        held = knock(5)
        assert all(is_closed(one) for one in held)
        wait_until(lambda: page.hub.connections.n_strangers == 0)
    socket.send(type="runs")
    assert socket.hears("runs")
    with page.http.stream("GET", "/api/v1/session", headers=page.headers()) as answer:
        assert answer.read()


class Transport:
    """What `Connections` needs of a transport."""

    aborted = False

    def abort(self):
        self.aborted = True


@pytest.mark.asyncio
async def test_one_address_leaves_room_for_others():
    there = connections.Connections()
    first = Transport()
    there.add(("10.0.0.2", 1), first)
    many = [Transport() for _ in range(3 * MAX_OF_ADDRESS)]
    for port, one in enumerate(many):
        there.add(("10.0.0.1", port), one)
    assert not first.aborted
    assert there.n_strangers == 1 + MAX_OF_ADDRESS
    assert [one.aborted for one in many] == [True] * 2 * MAX_OF_ADDRESS + [False] * MAX_OF_ADDRESS
    others = [Transport() for _ in range(2 * connections.MAX_STRANGERS)]
    for i, one in enumerate(others):
        there.add((f"10.1.{i // 256}.{i % 256}", 1), one)
    assert there.n_strangers == connections.MAX_STRANGERS


@pytest.mark.asyncio
async def test_a_proxy_s_connections_count_for_those_behind_it():
    there = connections.Connections(Proxies(["10.0.0.0/24"]))
    many = {("10.0.0.1", port): Transport() for port in range(connections.MAX_STRANGERS)}
    for client, one in many.items():
        there.add(client, one)
    assert not any(one.aborted for one in many.values())
    kept, *rest = many
    there.forward(kept, "192.0.2.9")
    for client in rest:
        there.forward(client, "192.0.2.1")
    assert not many[kept].aborted
    assert sum(one.aborted for one in many.values()) == connections.MAX_STRANGERS - 1 - MAX_OF_ADDRESS
    there.admit(kept)
    there.forward(kept, "192.0.2.1")  # it has shown a token: it counts no more
    assert there.n_strangers == MAX_OF_ADDRESS


def test_a_body_that_does_not_come_is_not_waited_for(page, monkeypatch):
    from sightglass.server import app

    monkeypatch.setattr(app, "BODY_S", 0.2)
    head = f"Host: 127.0.0.1:{page.server.port}\r\nAuthorization: Bearer {page.server.tokens.controller}\r\n"
    with socket.create_connection(("127.0.0.1", page.server.port), 60) as slow:
        slow.sendall(f"POST /api/v1/scalars HTTP/1.1\r\n{head}Content-Length: 9\r\n\r\n{{".encode())
        slow.settimeout(60)
        assert b"408" in slow.recv(2000)


def test_errors_of_the_event_loop_are_printed_once(page, capsys):
    loop = page.hub.streams._loop
    for _ in range(100):
        loop.call_soon_threadsafe(lambda: 1 / 0)
    wait_until(lambda: "ZeroDivisionError" in capsys.readouterr().err)
    assert page.json("/session")
    assert "ZeroDivisionError" not in capsys.readouterr().err


def test_a_token_among_many_that_come_at_once_is_answered(page, knock):
    """All of them wait to be accepted, so that the first one is the oldest stranger when the others come."""
    blocked, go_on = threading.Event(), threading.Event()
    page.hub.streams._loop.call_soon_threadsafe(lambda: (blocked.set(), go_on.wait(60)))
    assert blocked.wait(60)
    request = f"GET /api/v1/session HTTP/1.1\r\n{head(page)}\r\n"
    with socket.create_connection(("127.0.0.1", page.server.port), 60) as holder:
        holder.sendall(request.encode())
        knock(3 * MAX_OF_ADDRESS)
        go_on.set()
        assert holder.recv(2000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", [b"", b"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_head_of_many_fields_is_refused_before_it_is_read(page, first, together):
    few, many = ([b"X: y\r\n"] * n for n in (MAX_FIELDS - 3, MAX_FIELDS - 2))  # and three more
    for fields in few, many:
        request = [f"GET /api/v1/session HTTP/1.1\r\n{head(page)}Connection: close\r\n".encode(), *fields, b"\r\n"]
        with socket.create_connection(("127.0.0.1", page.server.port), 60) as one:
            one.sendall(first)
            for piece in [b"".join(request)] if together else request:
                with contextlib.suppress(OSError):  # refused before its end
                    one.sendall(piece)
            answers = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := one.recv(65536):
                    answers += piece
            assert (b" 200 " in answers) == (fields is few)
            assert fields is few or b" 400 " in answers or not answers  # reset before it was read
    assert page.json("/session")


def test_a_socket_sends_little_before_its_hello_and_then_what_it_wants(page, monkeypatch):
    from websockets.exceptions import ConnectionClosed

    monkeypatch.setattr(page_socket, "HELLO_S", 120.0)
    monkeypatch.setattr(connections, "STRANGER_S", 120.0)
    early = page.socket(greet=False)
    with pytest.raises(ConnectionClosed) as caught:
        send_pings(early, 200_000)  # far more than what the system keeps for a server that does not read
    assert caught.value.rcvd is None  # it was cut: a hello that does not come has a reason
    late = page.socket(greet=False)
    send_pings(late, MAX_HELLO_BYTES // 200)
    late.send(type="hello", token=page.server.tokens.viewer)
    assert late.hears("welcome")
    send_pings(late, MAX_HELLO_BYTES // 50)
    late.send(type="runs")
    assert late.hears("runs")
    assert page.json("/session")


def send_pings(socket, n):
    """Send frames of a bit more than a hundred bytes that ask for an answer."""
    for i in range(n):
        socket.raw.ping(f"{i:0100}")


def head(page):
    """Return the fields of a request that is answered."""
    return f"Host: 127.0.0.1:{page.server.port}\r\nAuthorization: Bearer {page.server.tokens.controller}\r\n"
