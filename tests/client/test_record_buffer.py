"""The buffer of a stream: a cursor reads every record once; gaps and dropped records are counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sightglass.client.resumable_stream import RecordBuffer
from sightglass.core.columns import Columns, Record


def columns(index, values, **options):
    n = len(values)
    steps = np.arange(index, index + n)
    return Columns(index=index, steps=steps, wall_times=steps * 0.5, values=values, **options)


def record(index, value, **options):
    return Record(tag="t", index=index, step=index, wall_time=0.0, value=value, run="job", **options)


def filled(*parts):
    one = RecordBuffer(tag="t", run="job")
    for part in parts:
        one.add(part)
    return one


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=12), st.lists(st.integers(0, 40), max_size=6))
def test_every_cursor_sees_every_record_once(parts, pauses):
    one, n, cursor, seen = RecordBuffer(tag="t", run="job"), 0, 0, []
    for step, (as_columns, size) in enumerate(parts):
        if as_columns:
            one.add(columns(n, np.arange(n, n + size)))
        else:
            one.extend([record(i, i) for i in range(n, n + size)])
            one._next_index = n + size
        n += size
        if step in pauses:
            cursor, part = one.since(cursor)
            seen.extend(part.records(tag="t", run="job"))
    seen.extend(one.since(cursor)[1].records(tag="t", run="job"))
    assert [r.value for r in seen] == [r.index for r in seen] == list(range(n))
    assert one.records() == seen
    assert one.n_lost == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8))
def test_gaps_are_counted_and_earlier_records_are_left_out(parts):
    one = RecordBuffer(tag="t", run="job")
    expected, following, lost = [], None, 0
    for index, n in parts:
        one.add(columns(index, np.arange(index, index + n)))
        if following is not None and index > following:
            lost += index - following
        fresh = range(index if following is None else max(index, following), index + n)
        expected.extend(fresh)
        following = max(index + n, following if following is not None else index)
    assert [r.index for r in one.records()] == [r.value for r in one.records()] == expected
    assert one.n_lost == lost


def test_a_record_has_all_fields():
    part = columns(
        5,
        np.array([1.5, 2.5]),
        n_events=np.array([3, 4]),
        flags=np.array([3, 0], np.uint8),
        tracks=[{"epoch": 1.0}, {}],
    )
    first, second = filled(part).records()
    assert first == Record(
        tag="t", index=5, step=5, wall_time=2.5, value=1.5, run="job", n_events=3, steps={"epoch": 1.0}
    )
    assert (second.complete, second.closed, second.n_events) == (False, False, 4)
    assert (type(first.step), type(first.value)) == (int, float)


def test_latest():
    one = RecordBuffer(tag="t", run="job")
    assert one.latest() is None
    one.add(columns(0, np.arange(3)))
    assert one.latest().value == 2
    one.extend([record(3, "x")])
    assert one.latest().value == "x"


def test_older_records_are_thinned_and_counted(monkeypatch):
    monkeypatch.setattr("sightglass.client.resumable_stream.MAX_RECORDS", 100)
    one = filled(*(columns(i, np.arange(i, i + 10)) for i in range(0, 300, 10)))
    cursor, part = one.since(0)
    assert (cursor, one.n, len(part) + one.n_forgotten) == (300, 300, 300)
    assert len(part) <= 100
    assert (part.index, part.end) == (0, 300)


def test_bytes_are_bounded(monkeypatch):
    monkeypatch.setattr("sightglass.client.resumable_stream.MAX_BYTES", 100_000)
    one = filled(*(columns(i, [np.zeros(500)]) for i in range(50)))
    assert one.n_forgotten >= 25


def test_records_that_the_run_thinned_are_counted():
    one = filled(columns(3, np.arange(4), indexes=np.array([3, 8, 16, 17]), bits=3), columns(18, np.arange(2)))
    assert (one.n_thinned, one.n_lost, one.n) == (11, 0, 6)
    one.add(columns(15, np.arange(2), indexes=np.array([15, 21])))
    assert (one.n_thinned, one.n_lost, one.n) == (11, 1, 7)


# Memory

values_of = st.sampled_from([
    lambda i, n: np.arange(i, i + n), lambda i, n: np.arange(i, i + n) / 2,
    lambda i, n: np.arange(i, i + n, dtype="f4"), lambda i, n: np.ones((n, 3)) * i,
    lambda i, n: [f"text {k}" for k in range(i, i + n)], lambda i, n: [np.arange(k % 5) for k in range(i, i + n)],
])  # fmt: skip
options_of = st.sampled_from([
    lambda n: {}, lambda n: {"ordinals": np.arange(n)}, lambda n: {"tracks": [{"epoch": float(n)}] * n},
    lambda n: {"n_events": np.full(n, 5), "flags": np.full(n, 1, np.uint8)},
])  # fmt: skip


@given(st.lists(st.tuples(values_of, options_of, st.integers(1, 300), st.booleans()), max_size=12))
def test_records_are_the_same_whether_they_came_together_or_one_by_one(parts):
    one, expected, index = RecordBuffer(tag="t", run="job"), [], 0
    for values, options, n, gap in parts:
        index += gap
        part = columns(index, values(index, n), **options(n))
        expected += [part.record(i, tag="t", run="job") for i in range(n)]
        for i in range(0, n, 7):
            one.add(part.slice(i, i + 7))
        index += n
    found = one.records()
    assert [repr(record) for record in found] == [repr(record) for record in expected]
    assert [type(record.value) for record in found] == [type(record.value) for record in expected]
    middle = found[len(found) // 2].index if found else 0
    later = one.since(middle)[1].records(tag="t", run="job")
    assert [repr(record) for record in later] == [repr(record) for record in found[len(found) // 2 :]]
    assert one.n == len(expected)


def test_what_a_thinned_block_leaves_out_after_what_came_before_is_thinned_and_not_lost():
    """A client that asks a query again gets the records that the run holds, to which its first stream listens, too."""
    held = np.array([0, 8, 16, 17])
    block = Columns(index=0, steps=held, wall_times=held * 0.5, values=held, indexes=held, bits=3)
    one = filled(columns(0, np.arange(1)), block)
    assert (one.n, one.n_lost, one.n_thinned) == (4, 0, 14)
    later = Columns(index=8, steps=held[1:], wall_times=held[1:] * 0.5, values=held[1:], indexes=held[1:], bits=3)
    assert (filled(columns(0, np.arange(1)), later).n_lost, filled(columns(0, np.arange(1)), later).n_thinned) == (7, 7)
