"""Joins against a slow reference: the same pairs however the records arrive, every one right, the others counted."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.joins import RecordJoin

pytestmark = pytest.mark.smoke


def pairs(*keys, tolerance=None):
    """Join records that are all there; shape (n_pairs, n_streams)."""
    join = RecordJoin(len(keys), tolerance=tolerance)
    for stream, column in enumerate(keys):
        join.add(stream, column)
        join.end(stream)
    return join.take()


def passes(keys: list[float]) -> list[tuple[int, float, int]]:
    """Return the pass, the key and the position of each record that has a key."""
    places, number, last = [], 0, -math.inf
    for position, key in enumerate(keys):
        if math.isfinite(key):
            number += key < last
            places.append((number, key, position))
            last = key
    return places


def equal(lead: list[float], other: list[float]) -> dict[int, int]:
    waiting = defaultdict(list)
    for number, key, position in passes(other):
        waiting[number, key].append(position)
    return {at: waiting[number, key].pop(0) for number, key, at in passes(lead) if waiting[number, key]}


def nearest(lead: list[float], other: list[float], tolerance: float) -> dict[int, int]:
    by_pass = defaultdict(list)
    for number, key, position in passes(other):
        by_pass[number].append((key, position))
    found = {}
    for number, key, at in passes(lead):
        above = bisect.bisect_left(by_pass[number], (key, -1))
        near = [
            (abs(one - key), position)
            for one, position in by_pass[number][max(0, above - 1) : above + 1]
            if abs(one - key) <= tolerance
        ]
        if near:
            found[at] = min(near)[1]
    return found


def reference(streams: list[list[float]], tolerance: float | None) -> list[list[int]]:
    lead, *others = streams
    partners = [equal(lead, one) if tolerance is None else nearest(lead, one, tolerance) for one in others]
    keyed = [at for _, _, at in passes(lead)]
    return [[at, *(one[at] for one in partners)] for at in keyed if all(at in one for one in partners)]


# A run counts up; it repeats steps, leaves some out, starts late, and begins again at a lower step.
advances = st.sampled_from([0, 1, 1, 1, 1, 2, 5, -3, -20, 0.5])
streams_of_keys = st.builds(
    lambda start, steps, odd: [
        math.nan if i in odd else key for i, key in enumerate(np.cumsum([start, *steps]).tolist())
    ],
    st.integers(0, 12),
    st.lists(advances, max_size=40),
    st.frozensets(st.integers(0, 40), max_size=2),
) | st.just([])
tolerances = st.sampled_from([None, None, 0.0, 1.0, 2.5, 100.0])


@settings(max_examples=examples(400))
@given(st.lists(streams_of_keys, min_size=1, max_size=3), tolerances, st.data())
def test_the_pairs_are_those_of_the_reference_however_the_records_arrive(streams, tolerance, data):
    expected = reference(streams, tolerance)
    join, done, found = RecordJoin(len(streams), tolerance=tolerance), [0] * len(streams), []
    while any(n < len(keys) for n, keys in zip(done, streams, strict=True)):
        i = data.draw(st.sampled_from([i for i, keys in enumerate(streams) if done[i] < len(keys)]))
        n = data.draw(st.integers(1, 12))
        join.add(i, streams[i][done[i] : done[i] + n])
        done[i] = min(len(streams[i]), done[i] + n)
        if done[i] == len(streams[i]) and data.draw(st.booleans()):
            join.end(i)
        if data.draw(st.booleans()):
            found += join.take().tolist()
            assert len(found) + join.n_unpaired + join.n_waiting == done[0]
            for stream, at in enumerate(found[-1] if found and tolerance is None else ()):
                assert join.needed_from(stream) > at
    for i in range(len(streams)):
        join.end(i)
    found += join.take().tolist()
    assert found == expected
    assert (len(found) + join.n_unpaired, join.n_waiting) == (len(streams[0]), 0)
    assert pairs(*streams, tolerance=tolerance).tolist() == expected


@given(st.lists(streams_of_keys, min_size=2, max_size=3))
def test_a_pair_is_of_equal_keys(streams):
    for row in pairs(*streams):
        assert len({keys[at] for keys, at in zip(streams, row, strict=True)}) == 1


def test_a_pair_is_certain_as_soon_as_all_its_records_are_there():
    join = RecordJoin(2)
    join.add(0, [0, 1, 2])
    join.add(1, [1])
    assert join.take().tolist() == [[1, 0]]
    assert (join.n_unpaired, join.n_waiting) == (1, 1)
    join.add(1, [3])
    assert (join.take().tolist(), join.n_unpaired, join.n_waiting) == ([], 2, 0)


def test_the_nearest_is_certain_once_the_other_stream_is_past():
    join = RecordJoin(2, tolerance=3)
    join.add(0, [10, 11])
    join.add(1, [9])
    assert join.take().tolist() == []
    join.add(1, [12])
    assert join.take().tolist() == [[0, 0], [1, 1]]


def test_the_lower_of_two_that_are_equally_near():
    assert pairs([1], [0, 2], tolerance=1).tolist() == [[0, 0]]
    assert pairs([1], [0, 0, 2, 2], tolerance=1).tolist() == [[0, 1]]


def test_epochs_that_repeat_their_steps_do_not_mix():
    # The second stream is thinned to every third record, so each epoch has other steps.
    keys = np.tile(np.arange(10), 4)
    found = pairs(keys, keys[::3])
    assert found.tolist() == [[3 * i, i] for i in range(14)]


def test_what_cannot_be_needed_again_is_dropped():
    join = RecordJoin(2)
    for chunk in range(50):
        join.add(0, np.arange(100) + 100 * chunk)
        join.add(1, np.arange(0, 100, 10) + 100 * chunk)
        assert len(join.take()) == 10
        assert join.needed_from(0) == 100 * (chunk + 1) - join.n_waiting
        assert join.n_waiting <= 9
        assert join.needed_from(1) >= 10 * (chunk + 1) - 1
    for tolerance in (None, 5.0):
        join = RecordJoin(2, tolerance=tolerance)
        join.add(0, np.zeros(1))
        for _ in range(50):  # a stream whose step never changes
            join.add(1, np.zeros(100))
            join.take()
        join.add(0, [1.0])
        join.take()
        assert join.needed_from(1) >= 4_999


@pytest.mark.parametrize("streams", [[[0, 1], [math.inf, 1]], [[math.nan, 1], [math.nan, 1]], [[-math.inf, 1], [1]]])
def test_a_key_that_is_not_finite_has_no_partner(streams):
    for tolerance in (None, 10.0):
        found = pairs(*streams, tolerance=tolerance)
        assert all(math.isfinite(keys[at]) for row in found for keys, at in zip(streams, row, strict=True))
        assert len(found)
