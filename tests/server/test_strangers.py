"""Connections without a token: few at a time, for a short time, and nobody with a token waits for them."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from sightglass.server import connections
from sightglass.server.connections import MAX_OF_ADDRESS
from sightglass.server.forwarded import Proxies

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
