"""Streams in a client: every consumer gets every record; added stages, windows, zip and union run here."""

from __future__ import annotations

import asyncio
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.client.resumable_stream import RecordBuffer
from sightglass.client.streams.arrivals import arrivals
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Columns, Restart
from sightglass.core.counts import Statistics, statistics_of
from sightglass.core.description import StreamInfo

pytestmark = pytest.mark.smoke


class ManualProducer:
    """A producer whose records the test adds to the buffer."""

    def __init__(self):
        self.closed = False
        self.counts = Statistics()

    def advance(self, buffer):
        pass

    def end_group(self, buffer):
        raise sg.QueryError("no group")

    def close(self):
        self.closed = True

    def statistics(self):
        return self.counts


class ManualStream(Stream):
    """A stream whose records the test adds."""

    def __init__(self, tag="loss", run="job", run_id="", client=None):
        self.producer = ManualProducer()
        super().__init__(self.producer, RecordBuffer(tag=tag, run=run, run_id=run_id, client=client))
        self._n = 0

    def put(self, *values, skip=0, at=None, steps=None):
        index = self._n + skip
        self._n = index + len(values)
        steps = np.arange(index, self._n) if steps is None else np.asarray(steps)
        column = np.asarray(values) if all(isinstance(v, float) for v in values) else list(values)
        self._buffer.add(
            Columns(
                index=index,
                steps=steps,
                wall_times=steps * 1.0 if at is None else np.full(len(steps), at),
                values=column,
            )
        )
        arrivals.notify()
        return self

    def over(self, error=None):
        self._buffer.end(error)
        return self


def values(stream):
    return [record.value for record in stream.records()]


def test_every_consumer_gets_every_record():
    stream = ManualStream().put(1.0, 2.0)
    first, second = iter(stream), iter(stream)
    assert [next(first).value, next(first).value, next(second).value] == [1.0, 2.0, 1.0]
    stream.put(3.0).over()
    assert [r.value for r in first] == [3.0]
    assert [r.value for r in second] == [2.0, 3.0]
    assert [r.value for r in stream] == [1.0, 2.0, 3.0]


def test_iteration_waits_for_records():
    stream, seen, taken = ManualStream(), [], threading.Semaphore(0)

    def consume():
        for record in stream:
            seen.append(record.value)
            taken.release()

    thread = threading.Thread(target=consume)
    thread.start()
    for i in range(5):
        stream.put(float(i))
        assert taken.acquire(timeout=60)
    stream.over()
    thread.join(60)
    assert (thread.is_alive(), seen) == (False, [0.0, 1.0, 2.0, 3.0, 4.0])


def test_async_iteration():
    stream = ManualStream().put(1.0)

    async def consume():
        seen = []
        async for record in stream:
            seen.append(record.value)
            if len(seen) == 1:
                stream.put(2.0).over()
        return seen

    assert asyncio.run(consume()) == [1.0, 2.0]


@pytest.mark.parametrize(
    "error",
    [sg.EvaluationError("Unknown observable"), sg.RunLostError("Run 'job' died: its process ended without closing it")],
)
def test_iteration_raises_after_the_last_record(error):
    stream = ManualStream().put(1.0, 2.0).over(error)
    for one in (stream, stream.map(lambda x: x), stream.union(ManualStream().over())):
        seen = []
        with pytest.raises(type(error)) as caught:
            seen.extend(record.value for record in one)
        assert caught.value is error
        assert values(one) == [1.0, 2.0]
    with pytest.raises(type(error)):
        stream.wait(3, timeout_s=1)


def test_wait():
    stream = ManualStream().put(1.0)
    assert [r.value for r in stream.wait()] == [1.0]
    with pytest.raises(TimeoutError, match=r"5 records.*'loss'.*0.01 s, got 1"):
        stream.wait(5, timeout_s=0.01)
    assert len(stream.over().wait(5)) == 1


def test_stages_run_here_with_any_function():
    counter = iter(range(100))
    stream = ManualStream().put(1.0, 2.0, 3.0)
    derived = stream.map(lambda x: (next(counter), x)).where(lambda pair: pair[1] > 1.5)
    assert values(derived) == [(1, 2.0), (2, 3.0)]
    assert (derived.tag, derived.run, derived.latest.index, derived.latest.step) == ("loss.map.where", "job", 1, 2)
    stream.put(4.0)
    assert values(derived)[-1] == (3, 4.0)
    assert values(stream) == [1.0, 2.0, 3.0, 4.0]


def test_a_stage_that_raises_loses_one_record():
    stream = ManualStream().put(1.0, 0.0, 2.0)
    derived = stream.map(lambda x: 1 if x else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        derived.latest
    assert values(derived) == [1, 1]


def test_a_stage_refuses_what_is_not_callable():
    with pytest.raises(sg.QueryError, match="got int 5"):
        ManualStream().map(5)
    with pytest.raises(sg.QueryError, match="per="):
        ManualStream().mean(per="epoch")


@given(st.lists(st.floats(-10, 10), max_size=40), st.integers(1, 7), st.lists(st.integers(1, 5), max_size=20))
def test_windows_are_the_same_in_any_chunks(numbers, every, sizes):
    whole, parts = ManualStream().put(*numbers), ManualStream()
    expected = [r.value for r in whole.over().sum(every=every)]
    stream = parts.sum(every=every)
    rest = list(numbers)
    for size in sizes:
        parts.put(*rest[:size])
        del rest[:size]
        stream.latest
    parts.put(*rest).over()
    assert [r.value for r in stream] == pytest.approx(expected)
    assert len(expected) == -(-len(numbers) // every)
    assert sum(expected) == pytest.approx(sum(numbers))


def test_windows_by_time_by_condition_and_by_end_group():
    stream = ManualStream().put(1.0, 2.0, 3.0, 4.0, 5.0)
    assert values(stream.sum(every="2 s")) == [3.0, 7.0]
    assert values(stream.sum(when=lambda record: record.value == 3.0)) == [6.0]
    by_hand = stream.sum()
    by_hand.end_group()
    stream.put(6.0, 7.0)
    by_hand.end_group()
    assert values(by_hand) == [15.0, 13.0]
    stream.put(8.0).over()
    last = list(by_hand)[-1]
    assert (last.value, last.closed, last.n_events) == (8.0, False, 1)
    with pytest.raises(sg.QueryError, match=r"^no group$"):
        stream.map(abs).end_group()


def test_a_gap_makes_a_window_incomplete():
    stream = ManualStream().put(1.0, 2.0).put(4.0, 5.0, 6.0, skip=1).over()
    total = stream.sum(every=3)
    assert [(r.value, r.n_events, r.complete) for r in total] == [(3.0, 2, False), (15.0, 3, True)]
    assert (stream.statistics().n_lost, stream.statistics().n_records) == (1, 5)


def late(n=1000, bits=4, exact=100):
    """Return a stream of the numbers up to n as a late client gets it: the newest exactly, of the others one in 16."""
    stream = ManualStream()
    numbers = np.concatenate((np.arange(0, n - exact, 2**bits), np.arange(n - exact, n)))
    columns = Columns(
        index=0, indexes=numbers, steps=numbers, wall_times=numbers * 1.0, values=numbers * 1.0, bits=bits
    )
    stream._buffer.add(columns)
    return stream


@pytest.mark.parametrize("chain", ["", ".map(abs)", ".map(abs).map(abs)", ".where(lambda x: x >= 0)"])
def test_a_reducer_begins_after_what_was_thinned(chain):
    """A mean of some records of a bucket would be another number than that of the bucket."""
    stream = late()
    means = eval(f"stream{chain}", {"stream": stream}).mean(every=10)
    stream.put(*map(float, range(1000, 1010)), skip=1000).over()
    records = means.records()
    assert [r.value for r in records if r.complete] == [x + 4.5 for x in range(900, 1010, 10)]
    assert all(r.value == r.step - (r.n_events - 1) / 2 for r in records)
    assert len(records) <= 12  # none of the thinned part, but one that is cut at either end


def test_a_mapped_stream_has_the_gaps_of_its_own_stream():
    lost = ManualStream().put(1.0, 2.0).put(4.0, skip=1).over()
    assert [record.index for record in lost.map(abs).records()] == [0, 1, 3]
    thinned = late().map(abs)
    _, columns = thinned.since(0)
    assert (columns.bits, list(columns.numbers[:3]), len(columns.exact())) == (4, [0, 16, 32], 100)
    assert [record.index for record in thinned.records()] == [record.index for record in late().records()]


def test_union_names_the_run_of_each_record():
    a, b = ManualStream(run="one"), ManualStream(tag="other", run="two")
    both = a.union(b)
    a.put(1.0, at=1.0).put(3.0, at=3.0)
    b.put(2.0, at=2.0)
    assert [(r.run, r.tag, r.value, r.index) for r in both.records()] == [
        ("one", "loss", 1.0, 0), ("two", "other", 2.0, 1), ("one", "loss", 3.0, 2),
    ]  # fmt: skip
    assert (both.run, both.tag) == ("one, two", "loss, other")
    mapped = both.map(lambda x: -x)
    assert [(r.run, r.value) for r in mapped.records()] == [("one", -1.0), ("two", -2.0), ("one", -3.0)]
    a.over()
    assert not both.ended
    b.put(4.0, at=4.0).over()
    assert [r.value for r in both] == [1.0, 2.0, 3.0, 4.0]
    assert values(both.sum(every=2)) == [3.0, 7.0]


def test_a_union_keeps_the_order_of_each_stream_when_a_clock_is_set_back():
    a, b = ManualStream(), ManualStream(tag="other")
    a.put(1.0, at=10.0).put(2.0, at=4.0).put(3.0, at=12.0)
    b.put(20.0, at=11.0)
    assert values(a.union(b)) == [1.0, 2.0, 20.0, 3.0]


def restarted(stream, run_id="again"):
    """Let the run of a stream be restarted before its next record."""
    stream._buffer.restarts = (*stream.restarts, Restart(index=stream._n, run_id=run_id))
    return stream


def marks(stream):
    return [(restart.index, restart.run_id) for restart in stream.restarts]


@pytest.mark.parametrize("at_once", [True, False])
def test_stages_keep_the_marks_of_a_restart(at_once):
    a, b = ManualStream(), ManualStream(tag="other")
    same, large, means = a.map(abs), a.where(lambda x: x > 2), a.mean(every=2)
    chain, union = a.map(abs).where(lambda x: x > 2).mean(every=1), a.union(b)
    made = (same, large, means, chain, union)
    for part in ((a, 0.0, 1.0, 2.0, 3.0, 4.0), (b, 10.0), (restarted, a), (a, 5.0, 6.0), (restarted, b), (b, 11.0)):
        if part[0] is restarted:
            restarted(part[1])
        else:
            part[0].put(*part[1:])
        for stream in () if at_once else made:
            stream.records()
    assert [values(stream) for stream in (large, means)] == [[3.0, 4.0, 5.0, 6.0], [0.5, 2.5, 4.5]]
    joined = values(union)
    assert sorted(joined[restart.index] for restart in union.restarts) == [5.0, 11.0]
    assert [values(same), marks(same)] == [values(a), [(5, "again")]]
    assert marks(large) == [(2, "again")]
    assert [values(chain), marks(chain)] == [values(large), [(2, "again")]]
    assert marks(means) == [(2, "again")]  # its third value is of both runs


def test_a_pair_is_marked_where_either_stream_was_restarted():
    a, b = ManualStream(), ManualStream()
    pairs = a.zip(b)
    for stream in (a, b):
        restarted(stream.put(0.0, 1.0), run_id="one").put(2.0, 3.0)
    assert (values(pairs), marks(pairs)) == ([(float(i), float(i)) for i in range(4)], [(2, "one")])


def test_of_restarts_without_a_record_in_between_one_mark_stays():
    stream = ManualStream()
    large = stream.where(lambda x: x > 5)
    restarted(restarted(stream.put(9.0), "one").put(1.0), "two").put(8.0)
    assert (values(large), marks(large)) == ([9.0, 8.0], [(1, "two")])


def test_streams_made_of_others_have_their_remarks():
    a, b = ManualStream(), ManualStream(tag="other")
    assert (a.map(abs).note, a.zip(b).note) == ("", "")
    a._note = "connecting again"
    assert a.map(abs).mean(every=2).note == "connecting again"
    assert (a.union(b).note, a.zip(a).note) == ("loss: connecting again", "loss: connecting again")


def test_zip_pairs_the_records():
    a, b = ManualStream(run="one"), ManualStream(tag="other", run="two")
    pairs = a.zip(b)
    a.put(1.0, 2.0, 3.0)
    b.put(10.0, 20.0)
    assert values(pairs) == [(1.0, 10.0), (2.0, 20.0)]
    assert (pairs.run, pairs.tag) == ("one, two", "loss, other")
    assert list(pairs.to_arrays().values) == [(1.0, 10.0), (2.0, 20.0)]
    b.over()
    assert [r.value for r in pairs] == [(1.0, 10.0), (2.0, 20.0)]
    with pytest.raises(TypeError, match="ManualStream, int"):
        a.zip(5)


def test_a_subscribed_function_gets_every_record():
    stream, seen = ManualStream().put(1.0), []
    subscription = stream.subscribe(lambda record: seen.append(record.value))
    stream.put(2.0).over()
    assert subscription.wait(60)
    subscription.close()
    assert (seen, subscription.n_calls, subscription.n_errors) == ([1.0, 2.0], 2, 0)


def called(stream, function):
    """Return a callback that has handled the last record."""
    subscription = stream.subscribe(function)
    assert subscription.wait(60)
    return subscription


def test_an_error_of_a_subscribed_function_is_counted_warned_about_once_and_raised_by_close():
    stream = ManualStream().put(1.0, 2.0, 3.0).over()
    with pytest.warns(RuntimeWarning, match=r"'loss'.*ZeroDivisionError") as warned:
        subscription = called(stream, lambda record: 1 / 0)
    assert (len(warned), subscription.n_calls, subscription.n_errors) == (1, 3, 3)
    with pytest.raises(ZeroDivisionError):
        subscription.close()
    subscription.close()


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_subscribed_function_that_raises_anything_gets_the_next_records(error):
    stream, seen = ManualStream().put(1.0, 2.0, 3.0).over(), []

    def function(record):
        seen.append(record.value)
        if record.value == 2.0:
            raise error

    with pytest.warns(RuntimeWarning, match="raised"):
        subscription = called(stream, function)
    assert (seen, subscription.n_calls, subscription.n_errors) == ([1.0, 2.0, 3.0], 3, 1)
    with pytest.raises(type(error)):
        subscription.close()


def test_warnings_that_are_errors_cost_a_callback_nothing():
    stream, seen = ManualStream().put(1.0, 2.0).over(), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subscription = called(stream, lambda record: seen.append(record.value) or 1 / 0)
    assert seen == [1.0, 2.0]
    with pytest.raises(ZeroDivisionError):
        subscription.close()


def test_an_error_of_a_stage_stops_the_callback_and_is_raised_by_close():
    with pytest.warns(RuntimeWarning, match="'loss.map'.*ZeroDivisionError"):
        subscription = called(ManualStream().put(1.0).map(lambda x: 1 / 0), print)
    with pytest.raises(ZeroDivisionError):
        subscription.close()


def test_closing_a_callback_ends_its_calls():
    stream, called = ManualStream().put(1.0), threading.Event()
    subscription = stream.subscribe(lambda record: called.set())
    assert called.wait(60)
    subscription.close()
    stream.put(2.0)
    assert subscription.n_calls == 1


def test_close_leaves_the_records():
    stream = ManualStream().put(1.0)
    with stream:
        pass
    assert (stream.producer.closed, stream.ended, values(stream), [r.value for r in stream]) == (
        True,
        True,
        [1.0],
        [1.0],
    )
    assert repr(stream) == "<Stream 'loss' of run 'job', 1 records, ended>"


def test_to_polars():
    polars = pytest.importorskip("polars")
    frame = ManualStream().put(1.0, 2.0).to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.columns == ["step", "wall_time", "value"]
    assert frame["value"].to_list() == [1.0, 2.0]
    assert ManualStream().put((1, 2), (3, 4)).to_polars()["value"].to_list() == [[1, 2], [3, 4]]


def test_without_polars_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(sg.MissingExtraError) as caught:
        ManualStream().put(1.0).to_polars()
    assert str(caught.value) == "Stream.to_polars needs 'polars': pip install 'sightglass[export]'"


def test_statistics_join_the_counts_of_client_and_run():
    stream = ManualStream().put(1.0)
    stream.producer.counts = statistics_of(StreamInfo(n_events=7, n_skipped=2, clients=["a"], n_records=99))
    statistics = stream.statistics()
    assert (statistics.n_records, statistics.n_events, statistics.n_skipped, statistics.ended) == (1, 7, 2, False)
    assert stream.map(abs).statistics().n_events == 7


def test_latest_of_an_empty_stream():
    stream = ManualStream()
    assert (stream.latest, stream.ended, values(stream)) == (None, False, [])


def test_a_stream_is_a_source():
    from sightglass.core.source import Source

    assert isinstance(ManualStream(), Source)
