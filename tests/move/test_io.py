"""The `io` thread's queues: bounded, records dropped and counted, answers never; nobody waits for a full peer."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.clock import SystemClock
from sightglass.emit.observe import Emitter
from sightglass.move import io, wire
from sightglass.move.agent import Agent
from sightglass.move.io import Io, Outbox, is_block
from sightglass.move.transport import MAX_QUEUED, MemoryListener

ROW = (0, 0, 0.0, 1.0, None, 0)
BLOCK = wire.encode_block(7, [ROW])
REPLY = wire.encode(wire.Reply(request=1, value=b"\xa5block"))


def test_blocks_are_told_from_all_other_messages():
    assert is_block(BLOCK)
    assert is_block(wire.encode_block(2**40, [(2**40, 0, 0.0, "block", (1, False, False, {"epoch": 1.0}), 0)]))
    for message in (
        wire.Reply(request=1, value=b"\xa5block"), wire.Ended(stream=1, error="\xa5block", reason="block"), wire.Ping(),
        wire.Bye(reason="a block"), wire.Refused(request=0, error="block", reason=""), wire.Moved(stream=1, to=2),
        wire.Opened(request=1, stream=1, tag="block"), wire.Waiting(request=1, note="block"),
        wire.Welcome(version=1, run="block", id="block", may_act=True, lease_s=1.0),
    ):  # fmt: skip
        assert not is_block(wire.encode(message))


@given(st.lists(st.booleans(), max_size=120))
def test_an_outbox_drops_records_from_the_front_and_answers_never(kinds):
    limit = 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "MAX_OUTBOX_MESSAGES", limit)
        outbox = Outbox()
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
    monkeypatch.setattr(io, "MAX_OUTBOX_BYTES", 10_000)
    outbox = Outbox()
    for _ in range(100):
        outbox.put([*BLOCK, bytes(1_000)])
        assert outbox.n_bytes <= 10_000
    assert outbox.n_dropped > 80


@pytest.fixture
def served():
    clock, listener = SystemClock(), MemoryListener()
    emitter = Emitter(clock=clock, budget=None)
    agent = Agent(emitter, run="job", id="abc", clock=clock, functions={})
    thread = Io(listener, agent, clock=clock)
    emitter.wake = thread.wake
    yield listener, emitter, thread
    emitter.close()
    thread.close("the run has ended")


def begin(listener, *messages):
    channel = listener.connect()
    for message in (wire.Hello(version=wire.VERSION, client="c"), *messages):
        channel.send(wire.encode(message))
    return channel


def read(channel, enough):
    """Read messages until there are enough."""
    messages, deadline_s = [], time.monotonic() + 10.0
    while not enough(messages):
        assert time.monotonic() < deadline_s, messages
        messages.extend(wire.decode_from_agent(frames) for frames in channel.receive(0.1))
    return messages


def n_records(messages):
    return sum(message.n for message, _ in messages if isinstance(message, wire.Block))


def test_a_peer_that_does_not_read_holds_nobody_up(served):
    listener, emitter, thread = served
    ask = wire.Open(request=1, query="batch.loss")
    lazy, eager = begin(listener, ask), begin(listener, ask)
    read(eager, lambda messages: len(messages) >= 2)
    n = MAX_QUEUED + 15
    for i in range(n):
        emitter.observe("batch", {"loss": float(i)})
        thread.wake()
        read(eager, lambda messages: n_records(messages) == 1)
    assert len(lazy._inbox) == MAX_QUEUED
    assert n_records(read(lazy, lambda messages: n_records(messages) == n)) == n


def test_the_end_is_told_and_the_last_records_come_first(served):
    listener, emitter, thread = served
    channel = begin(listener, wire.Open(request=1, query="on('batch').map(lambda e: e.loss).sum()"))
    read(channel, lambda messages: len(messages) >= 2)
    emitter.observe("batch", {"loss": 2.0})
    emitter.close()
    thread.close("the run has ended")
    messages = [
        message for message, _ in read(channel, lambda messages: messages and isinstance(messages[-1][0], wire.Bye))
    ]
    assert [type(message).__name__ for message in messages] == ["Block", "Ended", "Bye"]
