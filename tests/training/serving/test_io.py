"""The queues of the `io` thread are bounded: they drop records, never replies, and no peer waits for another."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import wait_until

from sightglass.core.columns import of_rows
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.threads import Background
from sightglass.protocol import messages, transport
from sightglass.protocol.transport import MAX_QUEUED, MemoryListener
from sightglass.protocol.zmq import ZmqChannel, ZmqListener
from sightglass.query.parser import parse
from sightglass.training.evaluation.events import RESTING_WAKE_S, WAKE_S
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.serving import client_subscriptions, io_loop
from sightglass.training.serving.client_service import ClientService
from sightglass.training.serving.clients import Publications
from sightglass.training.serving.io_loop import IDLE_S, IoLoop, SendQueue, is_block

from .test_isolation import Still

ROW = (0, 0, 0.0, 1.0, None, 0)
BLOCK = messages.encode_block(7, of_rows([ROW]))
REPLY = messages.encode(messages.Reply(request=1, value=b"\xa5block"))


def test_blocks_differ_from_all_other_messages():
    assert is_block(BLOCK)
    assert is_block(messages.encode_block(2**40, of_rows([(2**40, 0, 0.0, "block", (1, 0, {"epoch": 1.0}), 0)])))
    for message in (
        messages.Reply(request=1, value=b"\xa5block"),
        messages.Ended(stream=1, error="\xa5block", reason="block"),
        messages.Ping(),
        messages.Bye(reason="a block"),
        messages.Refused(request=0, error="block", reason=""),
        messages.Moved(stream=1, to=2),
        messages.Opened(request=1, stream=1, tag="block"),
        messages.Waiting(request=1, note="block"),
        messages.Welcome(version=1, run="block", id="block", may_command=True, lease_s=1.0),
    ):
        assert not is_block(messages.encode(message))


@given(st.lists(st.booleans(), max_size=120))
def test_a_send_queue_drops_the_oldest_records_and_never_replies(kinds):
    limit = 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io_loop, "MAX_OUTBOX_MESSAGES", limit)
        outbox = SendQueue()
        put = []
        for number, is_record in enumerate(kinds):
            frames = [*(BLOCK if is_record else REPLY), b"%d" % number]
            put.append(frames)
            outbox.put(frames)
            n_replies = kinds[: number + 1].count(False)
            assert len(outbox.queue) <= max(limit, n_replies)
    kept = [entry[0] for entry in outbox.queue]
    assert [frames for frames in kept if not is_block(frames)] == [frames for frames in put if not is_block(frames)]
    records = [frames for frames in put if is_block(frames)]
    assert outbox.n_dropped == len(put) - len(kept)
    assert [frames for frames in kept if is_block(frames)] == records[outbox.n_dropped :]
    assert outbox.n_bytes == sum(len(frame) for frames in kept for frame in frames)


def test_an_outbox_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(io_loop, "MAX_OUTBOX_BYTES", 10_000)
    outbox = SendQueue()
    for _ in range(100):
        outbox.put([*BLOCK, bytes(1_000)])
        assert outbox.n_bytes <= 10_000
    assert outbox.n_dropped > 80


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 3_000)), max_size=200))
def test_the_outboxes_of_all_clients_are_bounded_together(puts):
    """Clients that read nothing. What goes to several of them counts once."""
    limit = 10_000
    service = SimpleNamespace(clients=range(5), leave=lambda peer: None, publications=Publications())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io_loop, "MAX_OUTBOXES_BYTES", limit)
        loop = IoLoop(MemoryListener(), service, clock=SystemClock(), worker=lambda *_, **__: Still())
        for peer, shared, n_bytes in puts:
            frames = [*BLOCK, bytes(n_bytes)]
            loop._queue([(each, frames) for each in (range(5) if shared else [peer])])
            loop._shrink()
            held = {id(entry[0]): entry[1] for outbox in loop._outboxes.values() for entry in outbox.queue}
            assert loop._shared.n_bytes == sum(held.values()) <= limit
        loop._outboxes[0].clear() if 0 in loop._outboxes else None
        assert sum(entry[1] for outbox in loop._outboxes.values() for entry in outbox.queue) >= loop._shared.n_bytes


def test_the_client_for_which_most_waits_loses_first(monkeypatch):
    monkeypatch.setattr(io_loop, "MAX_OUTBOXES_BYTES", 100_000)
    service = SimpleNamespace(clients=range(2), leave=lambda peer: None, publications=Publications())
    loop = IoLoop(MemoryListener(), service, clock=SystemClock(), worker=lambda *_, **__: Still())
    for _ in range(50):
        loop._queue([(0, [*BLOCK, bytes(100)]), (1, [*BLOCK, bytes(10_000)])])
        loop._shrink()
    assert loop._outboxes[0].n_dropped == 0
    assert loop._outboxes[1].n_dropped > 30


def test_slow_clients_with_large_rows_do_not_fill_the_run(clock, monkeypatch):
    """Twenty clients read nothing, each of a query of its own, with rows of 200 KB."""
    n_clients, n_events, row = 20, 60, np.ones(25_000)
    for module, name, limit in (
        (io_loop, "MAX_OUTBOXES_BYTES", 2**21), (client_subscriptions, "MAX_BACKLOGS_BYTES", 2**21),
        (transport, "MAX_QUEUED_BYTES", 2**18),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, limit)
    telemetry = Telemetry(clock=clock, budget=None, max_event_s=100.0)  # none is skipped on a slow machine
    listener = MemoryListener()
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={})
    loop = IoLoop(listener, service, clock=clock, worker=lambda *_, **__: Still())
    slow = [begin(listener, messages.Open(request=1, query=f"batch.x * {i}")) for i in range(n_clients)]
    quick = begin(listener, messages.Open(request=1, query="batch.step"))
    loop.round(clock.now_s)
    tracemalloc.start()
    received = []
    for step in range(n_events):
        telemetry.events.observe("batch", {"x": row, "step": step})
        clock.pass_(0.1)
        loop.round(clock.now_s)
        received += [messages.decode_from_run(frames) for frames in quick.receive()]
        held, _ = tracemalloc.get_traced_memory()
        assert held <= 2 * 2**21 + n_clients * (2**18 + row.nbytes) + 2**22, step
    tracemalloc.stop()
    assert n_records(received) == n_events
    assert all(n_records(read(channel, len)) for channel in slow)
    telemetry.close()


@pytest.fixture
def served():
    clock, listener = SystemClock(), MemoryListener()
    telemetry = Telemetry(clock=clock, budget=None)
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={})
    thread = IoLoop(listener, service, clock=clock)
    telemetry.wake = thread.wake
    yield listener, telemetry, thread
    telemetry.close()
    thread.close("the run has ended")


def begin(listener, *hellos):
    channel = listener.connect()
    for message in (messages.Hello(version=messages.VERSION, client="c"), *hellos):
        channel.send(messages.encode(message))
    return channel


def read(channel, enough):
    """Read messages until there are enough."""
    received = []

    def read_more():
        channel.wait(0.1)
        received.extend(messages.decode_from_run(frames) for frames in channel.receive())

    wait_until(lambda: enough(received), received, pause=read_more)
    return received


def n_records(received):
    return sum(message.n for message, _ in received if isinstance(message, messages.Block))


def test_a_peer_that_does_not_read_delays_no_other(served):
    listener, telemetry, thread = served
    ask = messages.Open(request=1, query="batch.loss")
    lazy, eager = begin(listener, ask), begin(listener, ask)
    read(eager, lambda frames: len(frames) >= 2)
    n = MAX_QUEUED + 15
    for i in range(n):
        telemetry.events.observe("batch", {"loss": float(i)})
        thread.wake()
        read(eager, lambda frames: n_records(frames) == 1)
    assert len(lazy._inbox) == MAX_QUEUED
    assert n_records(read(lazy, lambda frames: n_records(frames) == n)) == n


def test_the_last_records_arrive_before_the_end(served):
    listener, telemetry, thread = served
    channel = begin(listener, messages.Open(request=1, query="on('batch').map(lambda e: e.loss).sum()"))
    read(channel, lambda frames: len(frames) >= 2)
    telemetry.events.observe("batch", {"loss": 2.0})
    telemetry.close()
    closing = Background("closing", lambda: thread.close("the run has ended"))
    received = read(channel, lambda frames: frames and isinstance(frames[-1][0], messages.Bye))
    assert [type(message).__name__ for message, _ in received] == ["Block", "Ended", "Bye"]
    channel.send(messages.encode(messages.Bye()))
    closing.close(None)


def test_a_run_ends_only_when_its_clients_have_read_what_the_system_holds(clock, tmp_path):
    """Libzmq drops what a client with full queues has not taken from its socket when the other end closes."""
    telemetry, listener = Telemetry(clock=clock, budget=None), ZmqListener(path=tmp_path / "socket")
    loop = IoLoop(
        listener, ClientService(telemetry, run="job", id="abc", clock=clock, functions={}), clock=clock,
        worker=lambda *_, **__: Still(),
    )  # fmt: skip
    channel, n = ZmqChannel(listener.address), 4 * MAX_QUEUED
    for message in (
        messages.Hello(version=messages.VERSION, client="me"),
        messages.Open(request=1, query="batch.loss"),
    ):
        channel.send(messages.encode(message))
    wait_until(lambda: loop.round(clock.now_s) and telemetry.subscriptions.active)
    for i in range(n):
        telemetry.events.observe("batch", {"loss": float(i)})
        clock.pass_(0.02)
        loop.round(clock.now_s)
    loop.close("the run has ended")
    wait_until(lambda: loop.round(clock.now_s) is None or not any(box.queue for box in loop._outboxes.values()))
    assert loop.round(clock.now_s) is not None
    received = []
    while not (received and isinstance(received[-1][0], messages.Bye)):
        channel.wait(10)
        more = [messages.decode_from_run(frames) for frames in channel.receive()]
        assert more
        received += more
    assert n_records(received) == n
    channel.send(messages.encode(messages.Bye()))
    wait_until(lambda: loop.round(clock.now_s) is None)
    channel.close()


@pytest.mark.parametrize(
    ("pause_s", "gets_all"), [(0.1, True), (io_loop.FINISH_S - 0.1, True), (io_loop.FINISH_S + 0.1, False)]
)
def test_at_its_end_a_run_hands_out_what_waits_also_to_a_client_that_pauses(clock, pause_s, gets_all):
    telemetry, listener = Telemetry(clock=clock, budget=None), MemoryListener()
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={})
    loop = IoLoop(listener, service, clock=clock, worker=lambda *_, **__: Still())
    channel, n = begin(listener, messages.Open(request=1, query="batch.loss")), 3 * MAX_QUEUED
    loop.round(clock.now_s)
    for i in range(n):
        telemetry.events.observe("batch", {"loss": float(i)})
        loop.round(clock.now_s)
        clock.pass_(0.02)
    loop.close("the run has ended")
    began_s, received = clock.now_s, []
    while loop.round(clock.now_s) is not None:
        clock.pass_(0.01)
        if clock.now_s - began_s >= pause_s:
            received += map(messages.decode_from_run, channel.receive())
    received += map(messages.decode_from_run, channel.receive())
    assert (n_records(received) == n) == gets_all
    assert isinstance(received[-1][0], messages.Bye) == gets_all
    assert clock.now_s - began_s <= io_loop.FINISH_S + 0.02


@pytest.mark.parametrize(("paces", "blocks"), [((0.02, 0.05), [3]), ((0.02, 0.0), [1, 1, 1]), ((9.0, 9.0), [])])
def test_records_are_held_back_if_all_clients_allow_it(clock, paces, blocks):
    telemetry, listener = Telemetry(clock=clock, budget=None), MemoryListener()
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={})
    loop = IoLoop(listener, service, clock=clock, worker=lambda *_, **__: Still())
    channels = [listener.connect() for _ in paces]
    for channel, pace_s in zip(channels, paces, strict=True):
        channel.send(messages.encode(messages.Hello(version=messages.VERSION, client="c", pace_s=pace_s)))
        channel.send(messages.encode(messages.Open(request=1, query="batch.loss")))
    loop.round(clock.now_s)
    for i in range(3):
        telemetry.events.observe("batch", {"loss": float(i)})
        assert loop.round(clock.now_s) <= IDLE_S
        clock.pass_(0.005)
    clock.pass_(0.02)
    loop.round(clock.now_s)
    received = [messages.decode_from_run(frames)[0] for frames in channels[0].receive()]
    assert [message.n for message in received if isinstance(message, messages.Block)] == blocks
    telemetry.close()


class Bell(MemoryListener):
    """A listener that counts how often it is woken."""

    n_wakes = 0

    def wake(self):
        self.n_wakes += 1


@pytest.mark.parametrize(
    ("gaps_s", "n_wakes"),
    [
        ([0.5] * 3, 3),
        ([0.003] * 10, 10),
        ([0.0015] * 10, 2),
        ([0.001] * 10, 2),
        ([0.0002] * 10, 2),
        ([0.5, 0.0004, 0.0004, 0.5, 0.0008], 3),
    ],
)
def test_records_are_sent_at_once_and_few_events_wake_the_loop(clock, gaps_s, n_wakes):
    delays_s, listener, _ = announced(clock, gaps_s)
    assert (len(delays_s), listener.n_wakes) == (len(gaps_s), n_wakes)
    assert max(delays_s) < 0.0015


@pytest.mark.parametrize("gap_s", [0.5, 0.0015, 0.001, 0.0004, 0.0002])
def test_while_the_program_rests_each_event_wakes_the_loop(clock, gap_s):
    delays_s, listener, _ = announced(clock, [gap_s] * 10, rests=True)
    assert (len(delays_s), listener.n_wakes) == (10, 10)
    assert max(delays_s) < 0.0002


@pytest.mark.parametrize(("works_s", "rests"), [(0.0001, True), (0.0004, False), (0.001, False)])
def test_a_program_rests_that_mostly_sleeps(clock, works_s, rests):
    telemetry = Telemetry(clock=clock, budget=None)
    for _ in range(100):
        telemetry.events.observe("batch", {"loss": 1.0})
        clock.cpu_s += works_s
        clock.pass_(0.001)
    assert not telemetry.events.rests  # nobody asks: nothing is looked at
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={})
    service._subscriptions.start(parse("batch.loss"))
    for _ in range(100):
        telemetry.events.observe("batch", {"loss": 1.0})
        clock.cpu_s += works_s
        clock.pass_(0.001)
    assert telemetry.events.rests is rests
    telemetry.close()


def test_an_event_that_none_follows_is_looked_after_twice(clock):
    n_events = 20
    _, _, n_rounds = announced(clock, [0.03] * n_events)
    assert n_rounds == 2 * n_events


def announced(clock, gaps_s, *, rests=False):
    """Announce events; return the delays of their records, the listener, and how often the loop looked."""
    telemetry, listener = Telemetry(clock=clock, budget=None), Bell()
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={})
    loop = IoLoop(listener, service, clock=clock, worker=lambda *_, **__: Still(), rests=lambda: rests)
    telemetry.events._wake_s, telemetry.events._look = RESTING_WAKE_S if rests else WAKE_S, lambda now_s: None
    telemetry.wake = loop.wake
    channel = begin(listener, messages.Open(request=1, query="batch.loss"))
    next_s, delays_s, n_rounds = clock.now_s, [], 0

    def pass_until(time_s):
        nonlocal next_s, n_rounds
        while next_s <= time_s:
            clock.now_s = next_s
            n_rounds += 1
            next_s += loop.round(clock.now_s)
            for message, arrays in map(messages.decode_from_run, channel.receive()):
                if isinstance(message, messages.Block):
                    delays_s.extend(clock.wall() - messages.decode_block(message, arrays).wall_times)
        clock.now_s = time_s

    pass_until(clock.now_s + 1.0)
    listener.n_wakes = n_rounds = 0
    for gap_s in gaps_s:
        n_before = listener.n_wakes
        telemetry.events.observe("batch", {"loss": 1.0})
        if listener.n_wakes > n_before:
            next_s = clock.now_s + 0.0001
        pass_until(clock.now_s + gap_s)
    pass_until(clock.now_s + 0.1)
    telemetry.close()
    return delays_s, listener, n_rounds
