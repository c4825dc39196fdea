"""Live streams that begin with what the run recorded: without a seam, and with a note where that is not possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.test_stream import ManualStream
from tests.profiles import examples

import sightglass as sg
from sightglass.client.recorded.past import Past
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import CLOSED, COMPLETE, Columns
from sightglass.core.counts import Statistics
from sightglass.core.description import StreamInfo
from sightglass.protocol import messages

N = 60
LATE = 37


def observe(run, start, stop):
    for step in range(start, stop):
        run.observe("batch", step=step, loss=float(step))
        run.log({"val/loss": step / 2}, step=step)
        if step % 7 == 6:
            run.end_group("batch")


QUERIES = [
    "batch.loss",
    "batch.loss * 2",
    "batch.loss.mean(every=10)",
    "batch.loss.mean(every=4).max(every=3)",
    "on('batch').map(lambda b: b.loss).sum()",
    "on('log').map(lambda e: e['val/loss'])",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_late_stream_has_the_same_records_as_one_from_the_start(begin, ask, tmp_path, query):
    run = begin(dir=tmp_path, record=["batch.loss"])
    observe(run, 0, LATE)
    late = ask(run).stream(query, since="start")
    observe(run, LATE, N)
    run.close()
    found = list(late)
    with sg.open(run.directory) as old:
        assert [fields(record) for record in found] == [fields(record) for record in old.stream(query)]
    assert len(found) > 3
    assert (late.note, late.statistics().n_lost) == ("", 0)


def fields(record):
    return (record.index, record.step, record.wall_time, record.value, record.complete, record.closed, record.n_events)


def test_the_live_records_come_from_the_run(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    observe(run, 0, LATE)
    run.flush()
    stream = ask(run).stream("batch.loss + 1", since="start")
    with pytest.raises(sg.QueryError, match="recorded"):
        stream.end_group()
    observe(run, LATE, N)
    assert [r.value for r in stream.wait(N, timeout_s=30)] == [step + 1.0 for step in range(N)]
    assert stream._producer._stream.waiting is None
    stream.close()
    assert (stream.ended, stream.statistics().n_records) == (True, N)


def test_a_stream_whose_past_is_not_recorded_begins_now(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    run.observe("batch", step=4119, loss=1.0, lr=0.1)
    run.flush()
    stream = client.stream("batch.lr", since="start")
    assert "run.record(" in stream.note
    run.observe("batch", step=4120, loss=1.0, lr=0.2)
    assert [r.value for r in stream.wait(1, timeout_s=30)] == [0.2]
    assert stream.note.startswith("from step 4,120")
    stream.close()
    client.record("batch.lr")
    run.observe("batch", step=4121, loss=1.0, lr=0.3)
    run.flush()
    late = client.stream("batch.lr", since="start")
    run.observe("batch", step=4122, loss=1.0, lr=0.4)
    assert [r.step for r in late.wait(2, timeout_s=30)] == [4121, 4122]
    assert late.note.startswith("from step 4,121")


def test_a_stream_says_where_it_begins_and_how_to_have_more(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    early = client.stream("batch.lr")
    for step in range(4):
        run.observe("batch", step=step, loss=1.0, lr=0.1)
    run.log({"val/loss": 1.0}, step=3)
    run.observe("only", step=3, size=1.0, snapshot=True)
    run.flush()
    late, recorded, logged = (client.stream(query) for query in ("batch.lr * 2", "batch.loss", "log['val/loss']"))
    only = client.stream("only.size")
    run.observe("batch", step=4120, loss=1.0, lr=0.1)
    run.log({"val/loss": 2.0}, step=4120)
    for stream in (late, recorded, logged, only, early):
        stream.wait(1, timeout_s=30)
    assert late.note.startswith("from step 4,120")
    assert "run.record(" in late.note
    assert late.map(abs).note == late.note
    assert logged.note.startswith("from step 4,120")
    assert "since='start'" in logged.note
    assert (early.note, only.note, recorded.note, recorded.latest.index) == ("", "", "", 4)


def test_a_recorded_stream_that_begins_late_says_so(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    observe(run, 0, 3)
    run.flush()
    ask(run).record("batch.loss * 2")
    observe(run, 3, 5)
    run.close()
    with sg.open(run.directory) as old:
        whole, late = old.stream("batch.loss"), old.stream("batch.loss * 2")
        assert [len(stream.wait(2)) for stream in (whole, late)] == [5, 2]
        assert (whole.note, late.note.partition(";")[0]) == ("", "from step 3")


def test_what_is_recorded_no_more_is_not_continued(begin, ask, tmp_path):
    run = begin(dir=tmp_path)
    client = ask(run)
    client.record("batch.loss")
    observe(run, 0, 10)
    run.flush()
    client.unrecord("batch.loss")
    stream = client.stream("batch.loss", since="start")
    observe(run, 10, 12)
    assert [r.step for r in stream.wait(2, timeout_s=30)] == [10, 11]
    assert stream.note.startswith("from step 10")


def test_groups_that_are_counted_from_when_they_are_asked_for_begin_now(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    observe(run, 0, 10)
    run.flush()
    stream = ask(run).stream("on('batch').map(lambda b: b.loss).sum().mean(every=2)", since="start")
    assert "next event" in stream.note


def test_a_directory_that_is_not_here(begin, ask, tmp_path, monkeypatch):
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    observe(run, 0, 3)
    run.flush()
    (tmp_path / "other").mkdir()
    other = begin("other", dir=tmp_path / "other", record=["batch.loss"])
    observe(other, 0, 3)
    other.flush()
    describe = client.describe()
    for directory, why in ((str(other.directory), "cannot be read"), ("", "does not record")):
        changed = type(describe)(**{**{name: getattr(describe, name) for name in describe.__slots__},
                                    "directory": directory})  # fmt: skip
        monkeypatch.setattr(client, "describe", lambda changed=changed: changed)
        stream = client.stream("batch.loss", since="start")
        assert why in stream.note
    with pytest.raises(sg.QueryError, match=r"since='start'.*'begin'"):
        client.stream("batch.loss", since="begin")


class RecordedManually(ManualStream):
    """What files would give: the records up to where the test has written them."""

    def put_rows(self, rows):
        self._buffer.add(rows)


class FromStart:
    """A stream that begins with what is recorded; the time never comes at which files are complete."""

    def __init__(self, recorded):
        self.live = ResumableStream("loss", RecordBuffer(tag="loss", run="job"), from_start=True)
        self.closed = []
        self.past = Past(recorded, self.live, close=lambda: self.closed.append(True), monotonic=lambda: 0.0)

    def advance(self, buffer):
        if self.live.waiting is not None and self.past.advance():
            self.past.close()

    def statistics(self):
        return self.past.statistics()

    def stream(self):
        return Stream(self, self.live.buffer)


def columns(indexes, *, shift=0, complete=None):
    indexes = np.asarray(indexes, np.int64)
    flags = None if complete is None else np.where(complete, COMPLETE | CLOSED, CLOSED).astype(np.uint8)
    return Columns(index=int(indexes[0]) - shift, steps=indexes, wall_times=indexes * 1.0, values=indexes * 2.0,
                   flags=flags)  # fmt: skip


def test_the_files_have_what_the_live_stream_lost():
    recorded = RecordedManually()
    producer = FromStart(recorded)
    stream = producer.stream()
    producer.live.add(columns(range(2, 4), shift=2))
    producer.live.add(columns(range(5, 7), shift=2))
    recorded.put_rows(columns(range(4)))
    assert stream.statistics().n_records == 4
    recorded.put_rows(columns(range(4, 6)))
    assert [record.step for record in stream.records()] == list(range(7))
    assert stream.n_lost == 0


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_the_clock_of_the_run_is_set_before_and_after_the_query_is_sent(by_s):
    walls = 1e9 + np.arange(12.0)
    for at in range(12):
        set_walls = walls + by_s * (np.arange(12) >= at)
        rows = Columns(index=0, steps=np.arange(12), wall_times=set_walls, values=np.arange(12.0))
        recorded = RecordedManually()
        producer = FromStart(recorded)
        stream = producer.stream()
        recorded.put_rows(rows.slice(0, 4))
        stream.since(0)
        producer.live.add(rows.slice(6, 9).moved(-6))
        recorded.put_rows(rows.slice(4, 8))
        stream.since(0)
        producer.live.add(rows.slice(9, 12).moved(-6))
        producer.live.fail(None)
        assert [record.step for record in stream] == list(range(12))
        assert stream.n_lost == 0


@settings(max_examples=examples(300))
@given(st.data())
def test_no_record_twice_and_none_missing(data):
    n = data.draw(st.integers(1, 30))
    asked = data.draw(st.integers(0, n))
    incomplete = data.draw(st.integers(0, 2))
    lost = data.draw(st.sets(st.integers(asked, n), max_size=2))
    recorded = RecordedManually()
    producer = FromStart(recorded)
    live, stream = producer.live, producer.stream()
    n_recorded, n_live = 0, asked
    while n_recorded < n or n_live < n:
        more = data.draw(st.integers(1, 6))
        if (n_recorded < n_live and data.draw(st.booleans())) or n_live == n:  # files lag behind the run
            stop = min(n_recorded + more, n_live)
            if stop > n_recorded:
                recorded.put_rows(columns(range(n_recorded, stop)))
            n_recorded = stop
        else:
            for index in range(n_live, min(n_live + more, n)):
                if index not in lost:
                    live.add(columns([index], shift=asked, complete=[index >= asked + incomplete]))
            n_live = min(n_live + more, n)
        if data.draw(st.booleans()):
            stream.since(0)
    recorded.over()
    live.finish(StreamInfo(n_records=n - asked), None)
    steps = [record.step for record in stream]
    assert steps == sorted(set(steps))
    assert set(range(n)) - set(steps) <= lost
    assert len(steps) + stream.n_lost == n
    assert producer.closed == [True]


class Resumed(FromStart):
    """A stream of a run whose records are recorded under the same numbers, from some record on."""

    def __init__(self, recorded):
        self.recorded = recorded
        self.live = ResumableStream("loss", RecordBuffer(tag="loss", run="job"))
        self.live.on_hole = self.look
        self.past = None
        self.opened(0)

    def look(self):
        self.past = self.past or Past(self.recorded(), self.live, close=lambda: None, monotonic=lambda: self.now_s)

    def opened(self, index, number=1):
        self.now_s = 0.0
        self.live.opened(messages.Opened(request=1, stream=number, tag="loss", index=index), "run")

    def advance(self, buffer):
        if self.live.waiting is not None and self.past.advance():
            self.past = None

    def statistics(self):
        return Statistics()


@settings(max_examples=examples(300))
@given(st.data())
def test_returned_and_counted_are_what_was_made_through_holes(data):
    """Some records are lost before they are recorded, some are not recorded; holes are lost, or thinned by the run."""
    made, dropped = 0, data.draw(st.sets(st.integers(1, 80), max_size=4))
    recorded_from = data.draw(st.sampled_from([0, 0, 7, 30, 1000]))
    files = []

    def recorded():
        files.append(RecordedManually())
        write(files[-1], 0)
        return files[-1]

    def write(file, start):
        for index in range(max(start, recorded_from), made):
            if index not in dropped:
                file.put_rows(columns([index]))

    producer = Resumed(recorded)
    stream = producer.stream()
    began = False  # nothing says to which record of the files the first one of a hole belongs, if none came before

    def arrive(start, *, every=1):
        kept = [index for index in range(start, made) if index not in dropped]
        kept = sorted({*kept[::every], *kept[-1:]})  # the newest is never thinned
        if every > 1 and len(kept) > 1:
            numbers = np.asarray(kept)
            producer.live.add(replace(columns(numbers), index=kept[0], indexes=numbers, bits=3))
        else:
            for index in kept:
                producer.live.add(columns([index]))

    for _ in range(data.draw(st.integers(1, 4))):
        start, made = made, made + data.draw(st.integers(0, 10))
        arrive(start)
        if data.draw(st.booleans()):
            stream.since(0)
        began = began or (made > 0 and not files)
        start, made = made, made + data.draw(st.integers(0, 12))  # the client is away
        how = data.draw(st.sampled_from(["lost", "thinned", "kept"]))
        producer.opened(made if how == "lost" else start)
        if how != "lost":
            arrive(start, every=3 if how == "thinned" else 1)
        start, made = made, made + data.draw(st.integers(0, 6))
        arrive(start)
        for file in files[-1:]:
            write(file, file._buffer.next_index or 0)
        if data.draw(st.booleans()):
            stream.since(0)
        if data.draw(st.booleans()):  # the time at which all is in the files
            producer.now_s = 60.0
    for file in files:
        file.over()
    producer.live.finish(StreamInfo(n_records=made), None)
    steps = [record.step for record in stream]
    assert steps == sorted(set(steps))
    assert set(steps) <= set(range(made)) - dropped
    assert len(steps) + stream.n_lost + stream.statistics().n_thinned == made
    if recorded_from == 0 and began:
        assert set(steps) == set(range(made)) - dropped


@pytest.mark.parametrize("n_counted", [3, 1, 9])
def test_records_that_the_run_can_only_estimate_are_counted_by_the_files(n_counted):
    """Windows of time, conditions and forgotten streams: the run does not know how many records are missing."""
    recorded = RecordedManually()
    producer = Resumed(lambda: recorded)
    stream = producer.stream()
    producer.live.add(columns(range(5)))
    producer.opened(5 + n_counted)
    producer.live.add(columns(range(8, 10), shift=3 - n_counted))
    assert stream.statistics().n_records == 5
    recorded.put_rows(columns(range(10)))
    assert [record.step for record in stream.records()] == list(range(10))
    assert [record.index for record in stream.records()] == list(range(10))
    producer.live.add(columns(range(10, 12), shift=3 - n_counted))
    assert ([record.index for record in stream.records()], stream.n_lost) == (list(range(12)), 0)
