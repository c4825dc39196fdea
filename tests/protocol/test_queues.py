"""What a transport holds for a client that reads nothing is bounded in bytes, and flows on when the client reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import HubServer, needs_server
from tests.waiting import wait_until

from sightglass.protocol.transport import MAX_QUEUED, MAX_QUEUED_BYTES, MemoryListener
from sightglass.protocol.zmq import ZmqChannel, ZmqListener


@pytest.fixture(params=["memory", "zmq", pytest.param("nats", marks=needs_server)])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any, bytes]]:
    """A listener, a client's channel, and the client's name."""
    listener: Any
    channel: Any
    with ExitStack() as after:
        match request.param:
            case "memory":
                listener = MemoryListener()
                channel = listener.connect()
            case "zmq":
                listener = ZmqListener(path=tmp_path / "s")
                channel = ZmqChannel(listener.address)
            case _:
                from sightglass.hub.address import HubAddress
                from sightglass.hub.nats import NatsChannel, NatsListener

                server = HubServer()
                after.callback(server.close)
                listener = NatsListener(HubAddress(url=server.url), "0123456789ab")
                listener.link.wait_connected(60.0)
                assert listener.link.connected or listener.link.wait_connected(60.0), listener.link.reason
                channel = NatsChannel(HubAddress(url=server.url), owner="anyone", id="0123456789ab")
        after.callback(listener.close)
        after.callback(channel.close)
        channel.send([b"hello"])
        listener.wait(60.0)
        (delivery,) = listener.receive()
        yield listener, channel, delivery.peer


def fill(listener: Any, peer: bytes, frames: list[bytes]) -> int:
    """Send until the queue is full; return how many messages it took."""
    n = 0
    while listener.send(peer, frames) == "sent":
        n += 1
    return n


def drain(channel: Any, n: int) -> None:
    messages: list[Any] = []
    wait_until(lambda: messages.extend(channel.receive()) or len(messages) >= n, pause=lambda: channel.wait(0.1))


@pytest.mark.parametrize("frames", [[bytes(2**20)], [bytes(30_000)] * 10, [bytes(2**23)], [bytes(100)]])
def test_what_a_client_does_not_read_is_bounded_in_bytes(ends: tuple[Any, Any, bytes], frames: list[bytes]) -> None:
    listener, channel, peer = ends
    size = sum(map(len, frames))
    n = fill(listener, peer, frames)
    system_bytes = 4 * 2**20  # in the buffers of a socket, and in libzmq's own
    if isinstance(channel, ZmqChannel):  # its libzmq takes messages, too, which are then held by the client
        system_bytes += MAX_QUEUED * size
    assert n >= 1
    assert n * size <= MAX_QUEUED_BYTES + size + system_bytes or (size < 2**16 and n >= MAX_QUEUED)
    drain(channel, n)
    sent: list[str] = []
    wait_until(lambda: sent.append(listener.send(peer, frames)) or sent[-1] == "sent")  # libzmq says a moment later
    assert set(sent[:-1]) <= {"full"}  # what has left
