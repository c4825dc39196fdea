"""Streams whose clients were lost: they cost nothing, and a client that comes back goes on with the next number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.core.description import StreamInfo
from sightglass.protocol import messages
from sightglass.query.parser import parse
from sightglass.training.options import Limits
from sightglass.training.serving import client_subscriptions as parking
from sightglass.training.serving.client_subscriptions import ClientSubscriptions, n_missing
from sightglass.training.serving.clients import LEASE_S

pytestmark = pytest.mark.smoke

A, B = b"a", b"b"


class Reader:
    """A client with one stream, whose connections are lost."""

    def __init__(self, bench, query="batch.loss", name="reader"):
        self.bench = bench
        self.stream = ResumableStream(query, RecordBuffer(tag=query, run="job"))
        self.n_peers = 0
        self.name = name
        self.n_read = 0

    def connect(self, run_id="abc"):
        """Connect, with another peer than before, and open the stream or go on with it."""
        self.n_peers += 1
        self.n_read = 0
        self.peer = b"%s %d" % (self.name.encode(), self.n_peers)
        self.bench.hello(self.peer)
        self.bench.say(self.peer, self.stream.request(1, run_id))
        self.read()

    def read(self, *, loses=()):
        """Take in what was sent, except blocks with these places among what was sent."""
        self.bench.flush()
        for place, message in enumerate(self.bench.sent[self.peer][self.n_read :]):
            if isinstance(message, messages.Opened):
                self.stream.opened(message, "abc")
            elif isinstance(message, messages.Ended):
                self.stream.finish(StreamInfo(), None)
            elif hasattr(message, "columns") and place not in loses:
                self.stream.add(message.columns)
        self.n_read = len(self.bench.sent[self.peer])

    def is_lost(self):
        self.bench.service.leave(self.peer)

    @property
    def steps(self):
        return [record.step for record in self.stream.buffer.records()]

    @property
    def n_lost(self):
        return self.stream.buffer.n_lost


@pytest.fixture
def bench(service_bench):
    return service_bench()


def observe(bench, *steps):
    for step in steps:
        bench.observe("batch", step=step, loss=float(step), x=np.full(10_000, step, np.float64))


def test_a_client_whose_lease_ended_goes_on_behind_a_counted_gap(bench, clock):
    reader = Reader(bench)
    reader.connect()
    observe(bench, 0, 1, 2)
    reader.read()
    observe(bench, 3, 4)  # made, and not read in time
    clock.pass_(LEASE_S + 1)
    bench.tick()
    observe(bench, 5, 6, 7)  # nobody asks
    reader.connect()
    observe(bench, 8, 9)
    reader.read()
    assert (reader.steps, reader.n_lost) == ([0, 1, 2, 3, 4, 8, 9], 3)
    assert reader.stream.buffer.restarts == ()
    (described,) = bench.ask(reader.peer, "statistics")
    assert (described["n_records"], described["n_skipped"]) == (10, 3)


@pytest.mark.parametrize("moment", ["release", "start"])
def test_events_while_it_is_parked_or_opened_again_are_counted(bench, monkeypatch, moment):
    """Where nobody asks, events are counted without the lock: while the stream closes, and until it is open again."""
    reader = Reader(bench)
    reader.connect()
    observe(bench, 0, 1)
    reader.read()
    owner, name = (ClientSubscriptions, "_drop") if moment == "release" else (type(bench.telemetry), "open")
    change = getattr(owner, name)

    def changed(self, *arguments, **options):
        if moment == "start":
            observe(bench, 2)
        change(self, *arguments, **options)
        if moment == "release":
            observe(bench, 2)

    with monkeypatch.context() as patch:
        if moment == "release":
            patch.setattr(owner, name, changed)
        reader.is_lost()
        patch.setattr(owner, name, changed)
        if moment == "release":
            patch.undo()
        reader.connect()
    observe(bench, 3, 4)
    reader.read()
    assert (reader.steps, reader.n_lost) == ([0, 1, 3, 4], 1)


def test_a_parked_stream_costs_nothing(service_bench):
    calls = []
    bench = service_bench(functions={"spy": lambda x: calls.append(x) or x})
    reader = Reader(bench, "spy(batch.loss)")
    reader.connect()
    observe(bench, 0)
    reader.is_lost()
    observe(bench, 1)
    assert calls == [0.0]
    assert "batch" in bench.telemetry.subscriptions.idle
    bench.hello(B)
    assert bench.ask(B, "describe")["streams"] == []


def test_nothing_is_missing_where_nothing_happened(bench):
    reader = Reader(bench)
    reader.connect()
    observe(bench, 0, 1)
    reader.is_lost()  # before it has read any of them
    reader.connect()
    observe(bench, 2)
    reader.read()
    assert (reader.steps, reader.n_lost) == ([0, 1, 2], 0)


def test_a_stream_that_others_read_goes_on_without_a_gap(bench):
    reader, other = Reader(bench), Reader(bench, name="other")
    reader.connect()
    other.connect()
    observe(bench, 0, 1)
    reader.read()
    reader.is_lost()
    observe(bench, 2, 3)
    reader.connect()
    observe(bench, 4)
    reader.read()
    assert (reader.steps, reader.n_lost) == ([0, 1, 2, 3, 4], 0)


def test_what_the_backlog_has_forgotten_is_counted(service_bench):
    bench = service_bench(limits=Limits(max_backlog_records=2))
    reader, other = Reader(bench), Reader(bench, name="other")
    reader.connect()
    other.connect()
    observe(bench, 0)
    reader.read()
    reader.is_lost()
    observe(bench, 1, 2, 3, 4, 5)
    bench.flush()
    reader.connect()
    assert (reader.steps, reader.n_lost) == ([0, 5], 4)


def test_after_a_goodbye_a_stream_begins_again(bench):
    reader = Reader(bench)
    reader.connect()
    observe(bench, 0, 1)
    bench.say(reader.peer, messages.Bye())
    observe(bench, 2)
    late = Reader(bench, name="late")
    late.connect()
    observe(bench, 3)
    late.read()
    assert [record.index for record in late.stream.buffer.records()] == [0]


def test_a_late_client_has_no_gap_that_it_never_saw(bench):
    reader = Reader(bench)
    reader.connect()
    observe(bench, 0, 1)
    reader.is_lost()
    observe(bench, 2, 3)
    late = Reader(bench, name="late")
    late.connect()
    observe(bench, 4)
    late.read()
    assert (late.steps, late.n_lost) == ([4], 0)
    reader.connect()
    assert (reader.steps, reader.n_lost) == ([0, 1, 4], 2)


def test_a_window_that_was_open_is_part_of_the_gap(bench):
    reader = Reader(bench, "batch.loss.sum(every=4)")
    reader.connect()
    observe(bench, *range(6))
    reader.read()
    reader.is_lost()
    observe(bench, *range(6, 18))
    reader.connect()
    observe(bench, *range(18, 24))
    reader.read()
    records = reader.stream.buffer.records()
    assert [(r.step, r.value, r.complete) for r in records] == [(3, 6.0, True), (19, 37.0, False), (23, 86.0, True)]
    assert reader.n_lost == 3  # of 4 to 7, 8 to 11, 12 to 15


@pytest.mark.parametrize(
    ("query", "n"),
    [("batch.loss", 40), ("on('batch').where(lambda b: b.loss > 1).map(lambda b: b.loss)", 40),
     ("batch.loss.mean(every=10)", 4), ("batch.loss.mean(every=100)", 0), ("batch.loss.mean(every=30)", 2),
     ("on('batch').map(lambda b: b.loss).mean()", 1),
     ("batch.loss.mean(per='epoch')", 1), ("batch.loss.mean(every=10).max(every=2)", 1)],
)  # fmt: skip
def test_how_many_records_are_missing(query, n):
    """Of the events 25 to 64."""
    assert n_missing(parse(query), 25, 65) == n


def test_a_stream_that_the_run_has_forgotten_goes_on_behind_a_gap_of_unknown_size(bench, monkeypatch):
    monkeypatch.setattr(parking, "MAX_PARKED", 1)
    reader, other = Reader(bench), Reader(bench, "batch.step", name="other")
    reader.connect()
    other.connect()
    observe(bench, 0, 1)
    reader.read()
    reader.is_lost()
    other.is_lost()
    observe(bench, 2, 3)
    another = Reader(bench, name="another")
    another.connect()
    observe(bench, 4)
    bench.flush()
    reader.connect()  # the numbers of another stream begin at 0, and what it holds may have been seen
    observe(bench, 5)
    reader.read()
    records = reader.stream.buffer.records()
    assert [(record.index, record.step) for record in records] == [(0, 0), (1, 1), (3, 5)]
    assert reader.n_lost == 1


def test_the_records_of_parked_streams_are_bounded(bench, monkeypatch):
    monkeypatch.setattr(parking, "MAX_PARKED_BYTES", 1_000_000)
    readers = [Reader(bench, f"on('batch').map(lambda b: b.x + {i})", name=f"r{i}") for i in range(3)]
    for reader in readers:
        reader.connect()
    observe(bench, *range(6))  # 80 kB each
    for reader in readers:
        reader.is_lost()
    kept = list(bench.service._subscriptions._parked._by_key.values())
    assert [stream.backlog and len(stream.backlog.records) for stream in kept] == [None, 6, 6]
    for reader in readers:
        reader.connect()
    assert [(len(reader.steps), reader.n_lost) for reader in readers] == [(0, 6), (6, 0), (6, 0)]
    observe(bench, 6)
    readers[0].read()
    assert (readers[0].steps, readers[0].n_lost) == ([6], 6)


def test_a_snapshot_comes_once(bench):
    def snapshot(step):
        bench.observe("init", step=step, snapshot=True, weight=float(step))

    snapshot(0)
    reader = Reader(bench, "init.weight")
    reader.connect()
    assert reader.steps == [0]
    reader.is_lost()
    reader.connect()
    assert (reader.steps, reader.n_lost) == ([0], 0)
    reader.is_lost()
    snapshot(1)
    snapshot(2)
    reader.connect()
    assert (reader.steps, reader.n_lost) == ([0, 2], 1)


def test_a_stream_that_failed_is_not_kept(bench):
    reader = Reader(bench, "batch.nothing")
    reader.connect()
    observe(bench, *range(5))
    bench.flush()
    reader.is_lost()
    assert not bench.service._subscriptions._parked._by_key


def test_a_client_that_comes_back_with_nonsense_harms_nobody(bench):
    reader = Reader(bench)
    reader.connect()
    observe(bench, 0, 1)
    reader.read()
    for stream, since in ((1, 2**62), (1, -5), (-1, 3), (2**62, 2**62)):
        bench.say(reader.peer, messages.Open(request=9, query="batch.loss", stream=stream, since=since))
    observe(bench, 2)
    reader.read()
    assert reader.steps == [0, 1, 2]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), st.integers(1, 9)), st.tuples(st.just("read"), st.sets(st.integers(0, 3))),
        st.tuples(st.just("flush"), st.none()), st.tuples(st.just("lost"), st.none()),
        st.tuples(st.just("connect"), st.none()), st.tuples(st.just("stride"), st.integers(1, 3)),
        st.tuples(st.just("other"), st.none()),
    ),
    max_size=40,
)  # fmt: skip


@given(actions=ACTIONS, n_held=st.sampled_from([0, 3, 20, 1000]))
def test_every_record_was_made_in_order_and_those_missing_are_counted(make_bench, actions, n_held):
    bench = make_bench(limits=Limits(max_backlog_records=n_held))
    reader, other = Reader(bench), Reader(bench, name="other")
    reader.connect()
    connected, n, n_thinned, stride = True, 0, 0, 1
    for action, argument in actions:
        active = list(bench.telemetry.subscriptions.active.values())
        if action == "observe":
            for step in range(n, n + argument):
                n_thinned += bool(active) and step % active[0].stride > 0
                observe(bench, step)
            n += argument
        elif action == "read" and connected:
            reader.read(loses=argument)
        elif action == "flush":
            bench.flush()
        elif action == "stride" and active:
            stride = argument
            active[0].stride = stride
        elif action == "other":
            other.connect()
        elif action == "lost" and connected:
            reader.is_lost()
            if other.n_peers:
                other.is_lost()
            connected = False
        elif action == "connect" and not connected:
            reader.connect()
            connected = True
    if not connected:
        reader.connect()
    reader.read()
    (described,) = bench.ask(reader.peer, "statistics")
    buffer = reader.stream.buffer
    buffer.expect(described["n_records"])  # as at the end of the run
    records = buffer.records()
    assert [record.value for record in records] == reader.steps == sorted(set(reader.steps))
    assert [record.index for record in records] == sorted({record.index for record in records})
    assert buffer.n + buffer.n_lost + buffer.n_thinned == described["n_records"] == n - n_thinned
