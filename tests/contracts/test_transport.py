"""What every transport promises, tried on each: in memory, ZeroMQ over a Unix socket and over TCP with keys, NATS."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hub_server import HubServer, needs_server
from tests.profiles import examples
from tests.waiting import PATIENCE_S, wait_until

from sightglass.core.errors import TransportError
from sightglass.protocol.transport import MEMORY, Both, MemoryListener
from sightglass.protocol.zmq import ZmqChannel, ZmqListener

pytestmark = pytest.mark.smoke
FOREVER_S = 10 * PATIENCE_S  # of a wait that only a wake ends


class Pair:
    """A listener, and a way to connect to it."""

    def __init__(self, listener, connect):
        self.listener, self._connect, self._open = listener, connect, []
        self.after = lambda: None

    def connect(self):
        self._open.append(self._connect())
        return self._open[-1]

    def heard(self, n=1):
        """Return the next `n` messages that the listener gets."""
        return until(n, self.listener)

    def meet(self):
        """Return a new channel, and the name that the listener knows it by."""
        channel = self.connect()
        assert channel.send([b"hello"]) == "sent"
        (delivery,) = self.heard()
        return channel, delivery.peer

    def close(self):
        for channel in self._open:
            channel.close()
        self.listener.close()
        self.after()


def receive(end, timeout_s):
    """Wait for messages, and return them."""
    end.wait(timeout_s)
    return end.receive()


def until(n, end):
    """Receive until there are `n` messages."""
    messages = []
    wait_until(lambda: messages.extend(receive(end, 0.1)) or len(messages) >= n, messages)
    assert len(messages) == n
    return messages


def contents(messages):
    return [[bytes(frame) for frame in frames] for frames in messages]


def make(kind, runtime):
    match kind:
        case "memory":
            listener = MemoryListener()
            return Pair(listener, listener.connect)
        case "ipc":
            listener = ZmqListener(path=runtime / "a.sock")
            return Pair(listener, lambda: ZmqChannel(listener.address))
        case "tcp":
            listener = ZmqListener(listen="tcp://127.0.0.1:0")
            return Pair(listener, lambda: ZmqChannel(listener.controller))
        case "both, in memory":
            both, memory = beside_memory(ZmqListener(path=runtime / "a.sock"))
            return Pair(both, memory.connect)
        case "both, outside":
            outer = ZmqListener(path=runtime / "a.sock")
            return Pair(beside_memory(outer)[0], lambda: ZmqChannel(outer.address))
        case "nats":
            return on_hub()
        case "both, nats":
            return on_hub(beside_memory(ZmqListener(path=runtime / "a.sock"))[0])


def beside_memory(outer):
    memory = MemoryListener(notify=outer.wake)
    return Both(outer, memory, MEMORY), memory


def on_hub(outer=None):
    from sightglass.hub.address import HubAddress
    from sightglass.hub.nats import PEER, NatsChannel, NatsListener

    server = HubServer()
    address = HubAddress(url=server.url)
    listener = NatsListener(address, "0123456789ab", notify=outer.wake if outer else None)
    listener.link.wait_connected(PATIENCE_S)  # the first attempt may fail on a busy machine
    assert listener.link.connected or listener.link.wait_connected(PATIENCE_S), listener.link.reason
    ends = Both(outer, listener, PEER) if outer else listener
    pair = Pair(ends, lambda: NatsChannel(address, owner="anyone", id="0123456789ab"))
    pair.after = server.close
    return pair


KINDS = [
    *("memory", "ipc", "tcp", "both, in memory", "both, outside"),
    *(pytest.param(kind, marks=needs_server) for kind in ("nats", "both, nats")),
]


@pytest.fixture(params=KINDS)
def pair(request, runtime):
    one = make(request.param, runtime)
    yield one
    one.close()


def test_messages_come_whole_and_in_order(pair):
    channel, peer = pair.meet()
    sent = [[b"%d" % i, b"", bytes([i]) * i] for i in range(50)]
    for frames in sent:
        assert channel.send(frames) == "sent"
    deliveries = pair.heard(50)
    assert contents(d.frames for d in deliveries) == sent
    assert {d.peer for d in deliveries} == {peer}
    for frames in sent:
        assert pair.listener.send(peer, frames) == "sent"
    assert contents(until(50, channel)) == sent


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(st.binary(max_size=100_000), min_size=1, max_size=6))
def test_any_frames_come_through_both_ways(pair, frames):
    channel, peer = pair.meet()
    channel.send(frames)
    assert contents(d.frames for d in pair.heard()) == [frames]
    pair.listener.send(peer, [memoryview(frame) for frame in frames])
    assert contents(until(1, channel)) == [frames]


def test_large_messages_come_through(pair):
    channel, peer = pair.meet()
    big = bytes(8 * 2**20)
    assert pair.listener.send(peer, [b"header", big]) == "sent"
    assert contents(until(1, channel)) == [[b"header", big]]


def test_every_peer_gets_its_own(pair):
    peers = [pair.meet() for _ in range(5)]
    assert len({peer for _, peer in peers}) == 5
    for _, peer in peers:
        assert pair.listener.send(peer, [peer]) == "sent"
    for channel, peer in peers:
        assert contents(until(1, channel)) == [[peer]]


def test_a_full_peer_is_reported_at_once_and_delays_no_other(pair):
    _, lazy = pair.meet()
    eager, peer = pair.meet()
    n, sent = 0, "sent"
    while sent == "sent" and n < 10_000:
        sent = pair.listener.send(lazy, [bytes(60_000)])
        n += 1
    assert (sent, n > 1) == ("full", True)
    assert pair.listener.send(peer, [b"still"]) == "sent"
    assert contents(until(1, eager)) == [[b"still"]]


def test_a_full_peer_gets_all_that_was_taken_when_it_reads(pair):
    channel, peer = pair.meet()
    n = 0
    while pair.listener.send(peer, [b"%d" % n, bytes(60_000)]) == "sent":
        n += 1
    assert [int(bytes(frames[0])) for frames in until(n, channel)] == list(range(n))
    wait_until(lambda: pair.listener.send(peer, [b"more"]) == "sent", pause=lambda: receive(pair.listener, 0.01))
    assert contents(until(1, channel)) == [[b"more"]]


def test_who_has_left_is_gone(pair):
    channel, peer = pair.meet()
    channel.close()
    wait_until(lambda: pair.listener.send(peer, [b"x"]) == "gone", pause=lambda: receive(pair.listener, 0.01))


def test_who_was_never_there_is_gone(pair):
    assert pair.listener.send(b"\0nobody", [b"x"]) == "gone"
    assert pair.listener.send(b"memory-99", [b"x"]) == "gone"


def test_a_wake_ends_a_wait(pair):
    channel, _ = pair.meet()
    for end in (pair.listener, channel):
        woken = threading.Event()

        def wait(end=end, woken=woken):
            receive(end, 60.0)
            woken.set()

        thread = threading.Thread(target=wait)
        thread.start()
        end.wake()
        assert woken.wait(PATIENCE_S)
        thread.join()


def test_a_wake_before_the_wait_counts(pair):
    channel, _ = pair.meet()
    for end in (pair.listener, channel):
        end.wake()
        assert receive(end, FOREVER_S) == []


def test_a_wake_ends_no_wait_after_the_next_receive(pair):
    channel, _ = pair.meet()
    for end in (pair.listener, channel):
        for _ in range(3):
            end.wake()
            assert receive(end, FOREVER_S) == []
        receive(end, 0)
        over = threading.Event()
        waiting = threading.Thread(target=lambda end=end, over=over: (end.wait(FOREVER_S), over.set()))
        waiting.start()
        assert not over.wait(0.2)
        end.wake()
        assert over.wait(PATIENCE_S)
        waiting.join()


def test_receive_waits_no_longer_than_its_timeout(pair):
    channel, _ = pair.meet()
    for end in (pair.listener, channel):
        receive(end, 0)
        assert receive(end, 0.01) == []
        assert receive(end, 0) == []


def test_controllers_may_command(pair):
    channel = pair.connect()
    channel.send([b"hello"])
    assert [d.may_command for d in pair.heard()] == [True]


def test_many_threads_may_wake(pair):
    channel, _ = pair.meet()
    threads = [threading.Thread(target=lambda: [pair.listener.wake() for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        receive(pair.listener, 0.01)
    channel.send([b"after"])
    assert contents(d.frames for d in pair.heard()) == [[b"after"]]


# What only some can promise


def test_a_closed_listener_in_memory_refuses_connections():
    listener = MemoryListener()
    channel = listener.connect()
    listener.close()
    assert channel.send([b"x"]) == "gone"
    with pytest.raises(TransportError, match="listener"):
        listener.connect()


def test_a_viewers_key_may_not_command():
    listener = ZmqListener(listen="tcp://127.0.0.1:0")
    channel = ZmqChannel(listener.viewer)
    channel.send([b"hello"])
    assert [d.may_command for d in until(1, listener)] == [False]
    channel.close()
    listener.close()


def test_an_unknown_key_does_not_get_in():
    from dataclasses import replace

    from sightglass.protocol.zmq import new_keys

    listener = ZmqListener(listen="tcp://127.0.0.1:0")
    stranger = ZmqChannel(replace(listener.viewer, client=new_keys()))
    friend = ZmqChannel(listener.viewer)
    stranger.send([b"let me in"])
    friend.send([b"hello"])
    assert contents(d.frames for d in until(1, listener)) == [[b"hello"]]
    assert receive(listener, 0.2) == []
    stranger.close()
    friend.close()
    listener.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # that it is not closed is the point
def test_a_channel_that_is_dropped_with_unsent_messages_blocks_nobody(runtime):
    listener = ZmqListener(path=runtime / "a.sock")

    def talk():
        channel = ZmqChannel(listener.address)
        channel.send([b"hello"])
        until(1, listener)
        listener.close()
        channel.send([b"to nobody"])

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
