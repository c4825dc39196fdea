"""Records as arrays: one axis for the records, and object arrays where values differ in shape or type."""

from __future__ import annotations

import numpy as np
import pytest

from sightglass.client.streams.stream import to_arrays
from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns
from sightglass.core.values import Histogram


def columns(index, values, **options):
    steps = np.arange(index, index + len(values))
    return Columns(index=index, steps=steps, wall_times=steps * 0.5, values=values, **options)


def arrays_of(*chunks):
    buffer = Buffer(max_rows=100, max_bytes=2**20)
    for chunk in chunks:
        buffer.add(chunk)
    return to_arrays(buffer.since(0)[1])


def test_no_records_give_empty_arrays():
    arrays = arrays_of()
    assert (arrays.steps.shape, arrays.wall_times.shape, arrays.values.shape, arrays.tracks) == ((0,), (0,), (0,), {})


@pytest.mark.parametrize(
    ("values", "shape", "dtype"),
    [
        (np.arange(3.0), (3,), float),
        (np.arange(3), (3,), int),
        ([1, 2.5, 3], (3,), float),
        ([np.zeros((2, 4), np.float32)] * 3, (3, 2, 4), np.float32),
        ([np.zeros(2), np.zeros(3), np.zeros(2)], (3,), object),
        (["a", "b", "c"], (3,), object),
        ([(1, 2), (3, 4), (5, 6)], (3,), object),
        ([(1, 2, 3), (4, 5, 6), (7, 8, 9)], (3,), object),
        ([[1], [2], [3]], (3,), object),
        ([{"a": 1}, None, 3], (3,), object),
        ([Histogram([1.0])] * 3, (3,), object),
    ],
)
def test_arrays_of_values(values, shape, dtype):
    for chunks in ([columns(0, values)], [columns(0, values[:1]), columns(1, values[1:])]):
        arrays = arrays_of(*chunks)
        assert (arrays.values.shape, arrays.values.dtype) == (shape, np.dtype(dtype))
        assert arrays.steps.tolist() == [0, 1, 2]
        assert arrays.wall_times.tolist() == [0.0, 0.5, 1.0]
    if dtype is object and not isinstance(values[0], np.ndarray | Histogram):
        assert list(arrays.values) == values


def test_step_tracks_are_columns():
    chunks = [columns(0, np.arange(2), tracks=[{"epoch": 1}, {}]), columns(2, np.arange(1))]
    tracks = arrays_of(*chunks).tracks
    assert np.array_equal(tracks["epoch"], [1.0, np.nan, np.nan], equal_nan=True)
