"""The buffer between any two parts: what it holds, whatever the portions in which records arrive."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.buffer import LARGE_SHARE, ROW_BYTES, SHARE, Buffer, line_means, retained
from sightglass.core.columns import Columns, of_rows
from sightglass.core.values import Histogram, Tensor

numbers = st.floats(width=16) | st.integers(-3, 3).map(float)


def columns(index, values, **options):
    steps = np.arange(index, index + len(values))
    return Columns(index=index, steps=steps, wall_times=steps * 0.5, values=values, **options)


def filled(values, parts=(), *, index=0, max_rows=40, max_bytes=2**30, as_list=False):
    buffer = Buffer(max_rows=max_rows, max_bytes=max_bytes)
    start = 0
    for part in (*parts, len(values)):
        some = values[start : start + part]
        if len(some):
            buffer.add(columns(index + start, list(some) if as_list else some))
        start += part
    return buffer


def rows(buffer, cursor=0, **options):
    held = buffer.since(cursor, **options)[1]
    return [(record.index, repr(record.value)) for record in held.records(tag="t", run="r")]


parts_of = st.lists(st.integers(1, 50), max_size=30)


@given(st.lists(numbers, max_size=300), parts_of, parts_of, st.integers(0, 1000), st.booleans())
def test_what_is_held_does_not_depend_on_the_portions(values, one, two, index, as_list):
    first, second = (filled(np.array(values), parts, index=index, as_list=as_list) for parts in (one, two))
    assert rows(first) == rows(second)
    assert (first.bits, first.exact_from, first.n_forgotten) == (second.bits, second.exact_from, second.n_forgotten)
    one_areas, two_areas = first.since(0)[1].areas, second.since(0)[1].areas
    assert (one_areas is None) == (two_areas is None)
    if one_areas is not None:
        np.testing.assert_allclose(one_areas, two_areas, atol=1e-9)


@given(st.lists(numbers, max_size=400), parts_of)
def test_records_are_those_that_were_added_in_order(values, parts):
    buffer = filled(np.array(values), parts)
    held = rows(buffer)
    assert [index for index, _ in held] == sorted({index for index, _ in held})
    assert all(value == repr(float(values[index])) for index, value in held)
    assert len(held) == len(buffer) <= 40
    assert len(held) + buffer.n_forgotten == buffer.n == len(values)


@given(st.lists(numbers, min_size=1, max_size=400), parts_of)
def test_each_bucket_has_its_first_last_smallest_and_largest_record(values, parts):
    buffer = filled(np.array(values), parts)
    held = dict(rows(buffer))
    for start in range(0, buffer.exact_from, buffer.bucket):
        of_bucket = range(start, min(start + buffer.bucket, buffer.exact_from))
        finite = [values[i] for i in of_bucket if math.isfinite(values[i])]
        kept = {held[i] for i in of_bucket if i in held}
        assert {of_bucket[0], of_bucket[-1]} <= held.keys()
        assert {repr(extreme(finite)) for extreme in (min, max) if finite} <= {*kept, "-0.0", "0.0"}
        for odd in ("nan", "inf", "-inf"):
            assert (odd in kept) == (odd in {repr(values[i]) for i in of_bucket})
    assert all(i in held for i in range(buffer.exact_from, len(values)))


@given(st.integers(50, 400), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.6]), parts_of, st.integers(0, 4))
def test_means_are_those_of_the_whole_line(n, seed, gaps, parts, more_bits):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < gaps, np.nan, rng.uniform(-10, 10, n))
    buffer = filled(y, parts)
    again = Buffer(max_rows=30, max_bytes=2**30)  # thinned twice, as in the run and in a client
    again.add(buffer.since(0)[1])
    for held in (buffer.since(0)[1], buffer.since(0, bits=buffer.bits + more_bits)[1], again.since(0)[1]):
        if held.areas is None:
            continue
        at, means = held.numbers, line_means(held.numbers, held.values, held.areas)
        assert np.nanmax(np.abs(means), initial=0) <= 10
        for start, end, mean in zip(at, at[1:], means[1:], strict=False):
            line = y[start : end + 1]
            if np.isfinite(line).all() and not math.isnan(mean):
                assert mean == pytest.approx(((line[1:] + line[:-1]) / 2).mean(), abs=1e-9)


def test_areas_are_those_of_thinned_numbers_only():
    buffer = filled(np.sin(np.arange(1_000) / 9), (7,) * 100)
    held = buffer.since(0)[1]
    assert (np.isfinite(held.areas) == (held.numbers < buffer.exact_from)).all()
    assert buffer.since(buffer.exact_from)[1].areas is None
    assert filled(np.array([object()] * 300)).since(0)[1].areas is None


@pytest.mark.parametrize("n_each", [1_000, 7_001, 200_000])
def test_the_resolution_is_even_over_the_whole_stream(n_each):
    n, spikes = 2_000_000, np.arange(50_000, 2_000_000, 100_000)
    values = np.sin(np.arange(n) / 1e4)
    values[spikes] = 50.0
    buffer = Buffer(max_rows=16_384, max_bytes=2**30)
    for start in range(0, n, n_each):
        buffer.add(columns(start, values[start : start + n_each]))
    held = buffer.since(0)[1]
    indexes = held.numbers
    thinned = indexes[indexes < buffer.exact_from]
    counts = np.histogram(thinned, bins=10, range=(0, buffer.exact_from))[0]
    assert counts.max() <= 2 * counts.min()
    assert set(spikes) <= set(indexes)
    assert len(indexes) >= 16_384 // 8


def test_a_reader_that_keeps_up_gets_every_record():
    buffer, cursor, seen = Buffer(max_rows=64, max_bytes=2**20), 0, []
    for index in range(0, 1_000, 10):
        buffer.add(columns(index, np.arange(index, index + 10)))
        cursor, part = buffer.since(cursor)
        seen += part.values.tolist()
    assert seen == list(range(1_000))


def test_gaps_stay_gaps():
    buffer = Buffer(max_rows=64, max_bytes=2**20)
    for index in range(0, 3_000, 30):
        buffer.add(columns(index, np.arange(index, index + 10)))
    assert all(index % 30 < 10 for index, _ in rows(buffer))
    assert (buffer.n, buffer.end) == (1_000, 2_980)


def test_a_reader_may_ask_for_fewer_records():
    values = np.random.default_rng(0).normal(size=1_000)
    buffer = filled(values, max_rows=2_000)
    found = [index for index, _ in rows(buffer, bits=5)]
    assert found == retained(np.arange(1_000), [values], 5).tolist()
    assert len(rows(buffer)) == 1_000


def test_of_other_values_each_bucket_keeps_the_first():
    buffer = filled([f"text {i}" for i in range(500)], (7,) * 70, max_rows=64)
    held = [index for index, _ in rows(buffer) if index < buffer.exact_from]
    assert held == list(range(0, held[-1] + 1, buffer.bucket))
    assert len(buffer) <= 64


@given(st.lists(st.integers(0, 300), max_size=60), parts_of, parts_of)
def test_bytes_are_bounded(sizes, one, two):
    values = [np.zeros(size, np.uint8) for size in sizes]
    first, second = (filled(values, parts, max_bytes=3_000) for parts in (one, two))
    assert rows(first) == rows(second)
    held = first.since(0)[1].values
    assert sum(value.nbytes for value in held) <= 3_000
    if sizes:
        assert held[-1] is not None
        assert len(held[-1]) == sizes[-1]


def test_a_large_value_does_not_cost_the_resolution_of_the_stream():
    limit = 64_000
    values = [np.zeros(limit // LARGE_SHARE if i == 100 else 8, np.uint8) for i in range(2_000)]
    with_large = filled(values, (1,) * 2_000, max_rows=10_000, max_bytes=limit)
    without = filled([value[:8] for value in values], (1,) * 2_000, max_rows=10_000, max_bytes=limit)
    assert with_large.bits <= without.bits + 1
    assert 100 not in dict(rows(with_large))


def test_a_value_larger_than_the_buffer_is_held_while_it_is_the_newest():
    buffer = filled([np.zeros(10), np.zeros(10_000), np.zeros(10)], (1, 1), max_bytes=4_000)
    assert [index for index, _ in rows(buffer)] == [0, 2]
    buffer = filled([np.zeros(10), np.zeros(10_000)], (1, 1), max_bytes=4_000)
    assert [index for index, _ in rows(buffer)] == [0, 1]


def test_kinds_may_change_within_a_stream():
    buffer = Buffer(max_rows=100, max_bytes=2**20)
    buffer.add(columns(0, np.array([0.5, 1.5])))
    buffer.add(columns(2, np.array([3, 4])))
    buffer.add(columns(4, [None, "x", 2**70]))
    buffer.add(columns(7, np.ones((2, 3), np.float32), tracks=[{"epoch": 1.0}, {}], n_events=np.array([1, 4])))
    found = buffer.since(0)[1].records(tag="t", run="r")
    assert [repr(record.value) for record in found[:7]] == ["0.5", "1.5", "3", "4", "None", "'x'", str(2**70)]
    assert found[8].value.tolist() == [1.0] * 3
    assert [(record.n_events, record.steps) for record in found[6:]] == [(1, {}), (1, {"epoch": 1.0}), (4, {})]


def test_numbers_that_are_not_floats_are_thinned_by_value():
    buffer = filled([None if i % 7 else 10**i for i in range(330)], max_rows=64)
    held = dict(rows(buffer))
    assert str(10 ** (7 * (buffer.exact_from // 7))) in held.values() or buffer.exact_from % 7 == 0
    assert len(buffer) <= 64


def test_views_of_a_reader_do_not_change():
    buffer = filled(np.arange(30.0), max_rows=40)
    part = buffer.since(0)[1]
    for index in range(30, 3_000, 30):
        buffer.add(columns(index, -np.ones(30)))
    assert part.values.tolist() == [float(i) for i in range(30)]


def test_forget_and_bound():
    buffer = filled(np.arange(100.0), max_rows=1_000)
    buffer.forget(60)
    assert ([index for index, _ in rows(buffer)], buffer.n_forgotten) == (list(range(60, 100)), 60)
    buffer.bound(max_rows=20, max_bytes=2**20)
    assert len(buffer) <= 20
    assert rows(buffer)[-1] == (99, "99.0")


def test_an_empty_buffer():
    buffer = Buffer(max_rows=10, max_bytes=1_000)
    cursor, part = buffer.since(0)
    assert (cursor, len(part), len(buffer.latest()), buffer.bucket) == (0, 0, 0, 1)


def test_memory_is_what_is_counted():
    import tracemalloc

    tracemalloc.start()
    try:
        buffer = Buffer(max_rows=10**6, max_bytes=10**9)
        for index in range(0, 20_000, 6):
            buffer.add(columns(index, np.arange(index, index + 6) / 2))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken <= 1.3 * ROW_BYTES * 20_000


@pytest.mark.parametrize(
    "value",
    [
        lambda n: {"a": n, "b": -n},
        lambda n: (n, n / 3),
        lambda n: [n, n - 1, n - 2],
        lambda n: np.arange(n, n + 16, dtype=np.float32),
        lambda n: f"event {n}",
        lambda n: {"a": {"b": np.arange(n, n + 4), "c": n}, "d": [n, str(n)]},
        lambda n: Histogram.from_counts(np.arange(64), np.arange(65.0)),
        lambda n: Tensor(np.full((4, 4), float(n))),
    ],
    ids=["mapping", "pair", "list", "array", "text", "nested", "histogram", "tensor"],
)
def test_memory_of_small_objects_is_what_is_counted(value):
    """What bounds the records of a run counts the memory that they take, and not their data alone."""
    import tracemalloc

    tracemalloc.start()
    try:
        buffer = Buffer(max_rows=10**6, max_bytes=10**9)
        for index in range(1_000, 4_000, 6):
            buffer.add(of_rows([(n, n, 0.0, value(n), None, n) for n in range(index, index + 6)]))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.5 * buffer.n_bytes <= taken <= 1.4 * buffer.n_bytes


def test_the_shares():
    buffer = filled(np.random.default_rng(0).normal(size=10_000), (13,) * 700, max_rows=400)
    assert len(buffer) - np.searchsorted(buffer.since(0)[1].numbers, buffer.exact_from) >= 400 // SHARE


def test_what_was_thinned_before_is_known():
    run, client = Buffer(max_rows=64, max_bytes=2**20), Buffer(max_rows=1_000, max_bytes=2**20)
    run.add(columns(0, np.arange(1_000.0)))
    part = run.since(0)[1]
    assert (part.bits, run.since(run.exact_from)[1].bits) == (run.bits, 0)
    client.add(part)
    client.add(columns(1_000, np.arange(10.0)))
    assert (client.bits, client.exact_from) == (run.bits, 1_000)
    assert client.since(0)[1].bits == run.bits
    assert client.since(1_000)[1].bits == 0
