"""What reaches the sockets of a run and is no client: it gets nothing, and costs the clients nothing."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from tests.waiting import wait_until

import sightglass as sg
from sightglass.protocol import discovery, messages
from sightglass.protocol.address import Address, Keys, read_connection
from sightglass.protocol.zmq import ZmqChannel, new_keys

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL"  # of protocol 3, without keys
HELLO = messages.Hello(version=messages.VERSION, client="stranger")


class Clients:
    """A client of a run, and what the run makes for it."""

    def __init__(self, run: sg.Run, client: sg.RemoteRun) -> None:
        self._run, self._client, self.stream = run, client, client.stream("batch.loss")

    def go_on(self) -> None:
        """Check that the client gets each record, and that others come in."""
        n = self.stream.statistics().n_records
        for i in range(n, n + 50):
            self._run.observe("batch", step=i, loss=float(i))
        assert [record.value for record in self.stream.wait(n + 50, timeout_s=60)] == list(range(n + 50))
        assert self.stream.statistics().n_lost == 0
        with sg.connect(self._run.id) as other:
            assert other.describe().state == "running"


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[sg.Run]:
    with sg.init("job", budget=None, dir=tmp_path, listen="tcp://127.0.0.1:0") as run:
        run.control("lr", 0.1, thread="any")
        yield run


@pytest.fixture
def clients(listening: sg.Run) -> Iterator[Clients]:
    (entry,) = discovery.entries()
    with sg.connect(entry.id) as client:  # through the socket in the file system
        yield Clients(listening, client)


def test_no_key_no_entrance(listening: sg.Run, clients: Clients) -> None:
    assert listening.connection_file is not None
    _, _, address = read_connection(listening.connection_file)
    assert address.client is not None
    stranger = new_keys()
    channels = [
        ZmqChannel(place)
        for place in (
            Address(endpoint=address.endpoint),
            Address(endpoint=address.endpoint, server=address.server, client=stranger),
            Address(endpoint=address.endpoint, server=stranger.public, client=address.client),
            Address(
                endpoint=address.endpoint, server=address.server,
                client=Keys(public=address.client.public, secret=stranger.secret),
            ),
        )
    ]  # fmt: skip
    for channel in channels:
        channel.send(messages.encode(HELLO))
    host, _, port = address.endpoint.removeprefix("tcp://").rpartition(":")
    hello = bytes(messages.encode(HELLO)[0])
    ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
    oldest = b"\x01\0" + bytes([len(hello) + 1, 0]) + hello  # protocol 1 has no greeting
    message = b"\0" + bytes([len(hello)]) + hello
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), oldest, GREETING + bytes(48) + ready + message):
        with socket.create_connection((host, int(port)), timeout=30) as peer:
            peer.sendall(data)
    clients.go_on()
    with sg.connect(listening.connection_file) as client:  # it came later, and was let in
        assert client.may_command
        wait_until(lambda: client.describe().n_clients == 2, "those with a key alone are clients")
    for channel in channels:
        assert channel.receive() == []
        channel.close()


def test_random_bytes_on_the_socket_itself(clients: Clients) -> None:
    rng = random.Random(1)
    (entry,) = discovery.entries()
    greeting = GREETING + bytes(16) + b"\0" + bytes(31)
    peers = []
    for i in range(200):
        peers.append(socket.socket(socket.AF_UNIX))
        peers[-1].connect(entry.endpoint.removeprefix("ipc://"))
        data = rng.randbytes(rng.randrange(1, 2_000))
        if i % 4 == 1:
            data = greeting[: rng.randrange(len(greeting) + 1)]
        elif i % 4 == 2:
            data = greeting + data
        elif i % 4 == 3:
            data = b"\x01\0" + bytes([len(data) % 200, 0]) + data  # the oldest protocol has no greeting
        try:
            peers[-1].sendall(data)
        except OSError:  # the run has ended the connection
            pass
    clients.go_on()
    for peer in peers:
        peer.close()
    clients.go_on()


def test_an_unfinished_message_delays_no_other_client(listening: sg.Run, clients: Clients) -> None:
    (entry,) = discovery.entries()
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(entry.endpoint)
        raw.send_multipart(messages.encode(HELLO))
        assert raw.poll(30_000)
        for _ in range(1_000):
            raw.send(b"part", zmq.SNDMORE)
        clients.go_on()


def test_loopback_with_keys_where_there_are_no_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    has = zmq.has
    monkeypatch.setattr(zmq, "has", lambda what: what != "ipc" and has(what))
    with sg.init("job", budget=None) as run:
        (entry,) = discovery.entries()
        assert entry.endpoint.startswith("tcp://127.0.0.1:")
        assert entry.server_key
        with sg.connect("job") as client:
            assert client.may_command
            clients = Clients(run, client)
            stranger = ZmqChannel(Address(endpoint=entry.endpoint))
            stranger.send(messages.encode(HELLO))
            assert [info.state for info in sg.runs(timeout_s=30)] == ["running"]
            clients.go_on()
            assert stranger.receive() == []
            stranger.close()
