"""Zips of streams: by step, by index, by wall time; what has no partner is counted; memory is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.test_stream import ManualStream
from tests.core.test_joins import reference, streams_of_keys, tolerances
from tests.profiles import examples

import sightglass as sg
from sightglass.core import joins
from sightglass.core.columns import Columns, Restart

pytestmark = pytest.mark.smoke


def records(stream):
    _, columns = stream.since(0)
    return list(zip(columns.steps.tolist(), columns.values, strict=True))


def counts(stream):
    statistics = stream.statistics()
    return statistics.n_records, statistics.n_unpaired, statistics.n_waiting


def test_a_late_stream_is_paired_by_step():
    a, b = ManualStream(), ManualStream(run="late")
    pairs, differences = a.zip(b), a.zip(b).map(lambda pair: pair[0] - pair[1])
    a.put(*map(float, range(40)))
    b.put(40.0, 41.0, steps=[40, 41])
    a.put(40.0, 41.0, 42.0)
    assert records(pairs) == [(40, (40.0, 40.0)), (41, (41.0, 41.0))]
    assert records(differences) == [(40, 0.0), (41, 0.0)]
    assert counts(pairs) == (2, 40, 1)
    assert b.zip(a).statistics().n_unpaired == 0
    b.over()
    assert [record.step for record in pairs] == [40, 41]
    assert counts(pairs) == (2, 41, 0)
    a.put(43.0)
    assert counts(pairs) == (2, 42, 0)


def test_a_thinned_and_a_lost_record_shift_nothing():
    a, b = ManualStream(), ManualStream()
    pairs = a.zip(b)
    a.put(0.0, 1.0).put(3.0, 4.0, skip=1, steps=[3, 4])
    b.put(0.0, 2.0, 4.0, steps=[0, 2, 4])
    assert records(pairs) == [(0, (0.0, 0.0)), (4, (4.0, 4.0))]
    assert counts(pairs) == (2, 3, 0)  # steps 1 and 3, and the record that was lost


def test_by_index_and_by_wall_time():
    a, b = ManualStream(), ManualStream()
    a.put(1.0, 2.0, steps=[10, 20], at=100.0).put(3.0, steps=[30], at=200.0)
    b.put(4.0, 5.0, 6.0, steps=[7, 8, 9], at=201.5).over()
    a.over()
    assert records(a.zip(b, by="index")) == [(10, (1.0, 4.0)), (20, (2.0, 5.0)), (30, (3.0, 6.0))]
    assert records(a.zip(b, by="wall_time", tolerance="2 s")) == [(30, (3.0, 4.0))]
    assert records(a.zip(b, by="wall_time", tolerance=1)) == []
    wide = records(a.zip(b, by="wall_time", tolerance="2 min"))
    assert wide == [(10, (1.0, 4.0)), (20, (2.0, 4.0)), (30, (3.0, 4.0))]
    assert records(a.zip(b, tolerance=1)) == [(10, (1.0, 6.0))]


@pytest.mark.parametrize("part", [1, 3, 100])
def test_times_that_a_clock_shows_again_belong_to_nothing(part):
    a, b = ManualStream(), ManualStream()
    times = [0, 10, 20, 30, 12, 22, 32, 42]  # set back by 28 s after the fourth
    pairs = a.zip(b, by="wall_time", tolerance=2)
    for step, at in enumerate(times):
        a.put(float(step), at=float(at))
        if step % part == 0:
            records(pairs)
    for step, at in enumerate([1, 11, 21, 31, 41]):
        b.put(float(step), at=float(at))
    b.over()
    a.over()
    assert [pair for _, pair in records(pairs)] == [(0, 0), (1, 1), (2, 2), (3, 3), (6, 3), (7, 4)]
    assert counts(pairs) == (6, 2, 0)
    assert len(records(a.zip(b))) == 5  # by step as ever


def test_an_endless_slow_stream_serves_a_fast_one():
    fast, slow = ManualStream(), ManualStream()
    pairs = fast.zip(slow, tolerance=50)
    for i in range(10):
        fast.put(*np.arange(100.0) + 100 * i)
        slow.put(float(i), steps=[100 * i])
        assert counts(pairs)[2] <= 100
    assert [value[1] for _, value in records(pairs)][:102] == [0.0] * 51 + [1.0] * 51
    slow.over()
    fast.put(1000.0)
    assert counts(pairs) == (951, 50, 0)
    assert pairs.ended


@settings(max_examples=examples(200))
@given(st.lists(streams_of_keys, min_size=2, max_size=3), tolerances, st.integers(1, 4000), st.data())
def test_the_pairs_are_right_for_any_chunks_and_however_little_may_wait(keys, tolerance, max_bytes, data):
    streams = [ManualStream(tag=f"stream {i}") for i in range(len(keys))]
    pairs, done = streams[0].zip(*streams[1:], tolerance=tolerance), [0] * len(keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "MAX_WAITING_BYTES", max_bytes)
        while any(n < len(column) for n, column in zip(done, keys, strict=True)):
            i = data.draw(st.sampled_from([i for i, column in enumerate(keys) if done[i] < len(column)]))
            column = keys[i][done[i] : done[i] + data.draw(st.integers(1, 12))]
            streams[i].put(*np.arange(done[i], done[i] + len(column), dtype=float), steps=column)
            done[i] += len(column)
            if done[i] == len(keys[i]) and data.draw(st.booleans()):
                streams[i].over()
            if data.draw(st.booleans()):
                assert counts(pairs)[0] <= done[0]
        for stream in streams:
            stream.over()
        found = [list(map(int, record.value)) for record in pairs]
    assert found == reference(keys, tolerance)
    assert counts(pairs) == (len(found), len(keys[0]) - len(found), 0)


# A program: how many events each of its runs has, the first step, and how far its clock is off. A stream of it: the run
# in which it was opened, and of each run which event is its first, and how many it leaves out between two.
programs = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from([0, 0, 5, 100]), st.sampled_from([0.0, 0.0, -7.0, 500.0])),
    min_size=1, max_size=4,
)  # fmt: skip
openings = st.tuples(
    st.integers(0, 3), st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1, 1, 2, 7])), min_size=4, max_size=4)
)


@settings(max_examples=examples(300))
@given(programs, openings, openings, st.sampled_from(["step", "step", "index", "wall_time"]), tolerances, st.data())
def test_a_pair_is_of_one_run_however_often_it_was_restarted(program, opening, other, by, tolerance, data):
    tolerance = 3.0 if by == "wall_time" else tolerance
    streams, pairs, made = {}, None, [{}, {}]
    for number, (n_events, step, time_s) in enumerate(program):
        for i, (first, _) in enumerate((opening, other)):
            if i in streams:
                restarts = (*streams[i].restarts, Restart(index=streams[i]._n, run_id=f"run {number}"))
                streams[i]._buffer.restarts = restarts
            elif number == min(first, len(program) - 1):
                streams[i] = ManualStream(tag=f"stream {i}", run_id=f"run {number}", client="one")
        if pairs is None and len(streams) == 2:
            pairs = streams[0].zip(streams[1], by=by, tolerance=tolerance)
        for event in range(n_events):
            for i, (_, parts) in enumerate((opening, other)):
                first, every = parts[number]
                if i in streams and event >= first and not (event - first) % every:
                    streams[i].put((number, event), steps=[step + event], at=10.0 * number + event + time_s)
                    made[i].setdefault(number, []).append(event)
            if pairs is not None and data.draw(st.booleans()):
                pairs.records()
    for stream in streams.values():
        stream.over()
    found = [record.value for record in pairs]
    assert all(one[0] == other[0] for one, other in found)
    assert counts(pairs) == (len(found), streams[0]._n - len(found), 0)
    if by == "step":
        assert found == [
            ((number, events[i]), (number, made[1][number][j]))
            for number, events in made[0].items()
            for i, j in reference([events, made[1].get(number, [])], tolerance)
        ]


def test_a_restart_does_not_matter_to_a_stream_of_another_program():
    a, b, c = (ManualStream(run=name, run_id=name, client=name) for name in "aba")
    two, numbers, three = a.zip(b), a.zip(b, by="index"), a.zip(b, c)
    times = a.zip(b, by="wall_time", tolerance=0)
    for stream in (a, c):
        stream.put(0.0, 1.0)._buffer.restarts = (Restart(index=2, run_id="a again"),)
    a.put(2.0, 3.0).over()
    b.put(0.0, 1.0, 2.0, 3.0).over()
    c.put(2.0, 3.0).over()
    for pairs in (two, numbers, times):
        assert [value for _, value in records(pairs)] == [(i, i) for i in range(4)]
    assert [value for _, value in records(three)] == [(0, 0, 0), (1, 1, 1)]  # those of two streams keep to their runs


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(joins, "MAX_WAITING_BYTES", 100 * joins.WAITING_ROW_BYTES)
    ahead, behind = ManualStream(), ManualStream()
    ahead.bound(max_records=1000, max_bytes=2**30)
    pairs = ahead.zip(behind)
    for _ in range(50):
        ahead.put(*np.arange(100.0))
        assert counts(pairs)[2] <= 200
    behind.put(*np.arange(5000.0)).over()
    ahead.over()
    found = list(pairs)
    n_forgotten = ahead.statistics().n_forgotten
    assert len(found) + pairs.statistics().n_unpaired == 5000
    assert pairs.statistics().n_unpaired >= n_forgotten - 200 > 0
    assert all(record.value[1] == record.step for record in found)


def test_the_tuples_are_complete_if_all_their_records_are():
    a, b = ManualStream(), ManualStream()
    for stream, complete in ((a, [1, 1]), (b, [1, 0])):
        stream._buffer.add(
            Columns(index=0, steps=np.arange(2), wall_times=np.arange(2.0), values=["x", "y"],
                    n_events=np.asarray([2, 3]), flags=np.asarray(complete, np.uint8))
        )  # fmt: skip
    first, second = a.zip(b).wait(2, timeout_s=30)
    assert (first.value, first.n_events, first.complete, first.closed) == (("x", "x"), 4, True, True)
    assert (second.value, second.n_events, second.complete, second.closed) == (("y", "y"), 6, False, True)


def test_the_error_of_a_lost_stream_is_raised_after_the_last_pair():
    a, b = ManualStream().put(1.0, 2.0), ManualStream().put(3.0)
    pairs = a.zip(b)
    b.over(sg.RunLostError("gone"))
    seen = []
    with pytest.raises(sg.RunLostError, match=r"^gone$"):
        seen.extend(record.value for record in pairs)
    assert records(pairs) == [(0, (1.0, 3.0))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "time"}, "'step', 'index', 'wall_time', got 'time'"),
        ({"by": "wall_time"}, "'5 s' with by='wall_time'"),
        ({"by": "wall_time", "tolerance": "5"}, "or '2 h', got '5'"),
        ({"tolerance": "5 s"}, "0 with by='step', got '5 s'"),
        ({"tolerance": -1}, "0 with by='step', got -1"),
    ],
)  # fmt: skip
def test_options_that_are_refused(options, message):
    with pytest.raises(sg.QueryError) as error:
        ManualStream().zip(ManualStream(), **options)
    assert message in str(error.value)
