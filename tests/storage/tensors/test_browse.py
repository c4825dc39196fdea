"""Looking into series: whatever the values are, the same as NumPy says; and what is damaged is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from sightglass.core.columns import Record
from sightglass.core.errors import DamagedError, QueryError, UnknownNameError
from sightglass.core.values import Histogram, Tensor
from sightglass.storage.tensors import browse


class Values:
    """A series in memory; what is `None` is damaged."""

    tag = "k"

    def __init__(self, *values: Any) -> None:
        self._values = values
        self.steps = np.arange(len(values)) * 10
        self.wall_times = np.arange(len(values)) + 0.5

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, i: int, /) -> Record:
        if self._values[i] is None:
            raise DamagedError("the payload is damaged")
        return Record(tag="k", run="r", index=i, step=10 * i, wall_time=i + 0.5, value=self._values[i])

    def at(self, step: float, index: Any = None) -> Any:
        value = self[int(step) // 10].value
        return value if index is None or index == "" else np.asarray(value)[index]

    def shape_at(self, step: float) -> tuple[int, ...]:
        return np.shape(self.at(step))


finite = st.floats(-1e6, 1e6)
arrays = st.lists(
    st.none() | hn.arrays(np.float64, (2, 3), elements=finite | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])),
    max_size=6,
)


@given(arrays, st.sampled_from(["nan", "inf", "posinf", "neginf", "zero"]))
def test_the_first_place_is_found(values: list[Any], what: Any) -> None:
    test = {"nan": np.isnan, "inf": np.isinf, "posinf": np.isposinf, "neginf": np.isneginf, "zero": lambda x: x == 0}
    found = browse.find(Values(*values), what)
    expected = [(i, place) for i, x in enumerate(values) if x is not None for place in np.argwhere(test[what](x))]
    if not expected:
        assert found is None
        return
    i, place = expected[0]
    assert found is not None
    assert (found.step, found.wall_time, found.index) == (10 * i, i + 0.5, tuple(place.tolist()))
    assert np.array_equal(found.value, values[i][tuple(place)], equal_nan=True)


@given(arrays, st.sampled_from(["min", "max", "absmax"]))
def test_the_extreme_of_all_steps_is_found(values: list[Any], what: Any) -> None:
    found = browse.find(Values(*values), what)
    every = np.concatenate([x[np.isfinite(x)] for x in values if x is not None] or [np.empty(0)])
    if not every.size:
        assert found is None
        return
    assert found is not None
    assert found.value == {"min": every.min, "max": every.max, "absmax": lambda: every[np.abs(every).argmax()]}[what]()
    assert values[int(found.step) // 10][found.index] == found.value


@pytest.mark.parametrize(("what", "value"), [("max", 2**53 + 1), ("min", -(2**53) - 1), ("absmax", 2**53 + 1)])
def test_integers_are_compared_as_such(what: Any, value: int) -> None:
    near = [np.array([n]) for n in (2**53, -(2**53), 2**53 + 1, -(2**53) - 1)]
    found = browse.find(Values(*near), what)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(("what", "value"), [("max", 3 + 4j), ("min", 1j), ("absmax", 3 + 4j)])
def test_complex_numbers_count_by_their_magnitudes(what: Any, value: complex) -> None:
    found = browse.find(Values(np.array([1j, 2.0]), np.array([3 + 4j]), np.array([2j])), what)
    assert found is not None
    assert found.value == value


def test_unsearchable_values_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="'foo'"):
        browse.find(Values(1.0), "foo")  # type: ignore[arg-type]
    for value in ("text", [1, 2], {"a": 1}, Histogram(np.arange(3.0)), np.array(["2020"], "datetime64[D]")):
        with pytest.raises(QueryError, match="'k'"):
            browse.find(Values(value), "max")
    assert browse.find(Values(), "max") is None


@given(arrays, st.integers(1, 8), st.none() | st.integers(1, 4))
def test_histograms_count_every_finite_value_of_intact_records(
    values: list[Any], bins: int, max_steps: int | None
) -> None:
    if all(x is None for x in values):
        return
    series = Values(*values)
    counted = browse.histograms(series, bins=bins, max_steps=max_steps, percentiles=[50])
    rows = [i for i in range(len(values)) if values[i] is not None]
    if max_steps is not None and len(values) > max_steps:
        assert len(counted.steps) <= max_steps
        rows = [int(step) // 10 for step in counted.steps]
    assert counted.steps.tolist() == [10 * i for i in rows]
    assert counted.wall_times.tolist() == [i + 0.5 for i in rows]
    assert counted.series.counts.shape == (len(rows), bins)
    assert counted.series.counts.sum(axis=1).tolist() == [int(np.isfinite(values[i]).sum()) for i in rows]
    assert counted.series.n_nan.tolist() == [int(np.isnan(values[i]).sum()) for i in rows]
    assert counted.series.percentiles.shape == (len(rows), 1)


def test_histograms_of_nothing_and_of_numbers_and_of_stored_ones() -> None:
    assert browse.histograms(Values(), bins=3).series.counts.shape == (0, 3)
    assert browse.histograms(Values(None, None), bins=3).series.counts.shape == (0, 3)
    assert browse.histograms(Values(1, 2.5, True, Tensor(3.0)), bins=2).series.counts.sum() == 4
    stored = [Histogram(np.arange(n)) for n in (5.0, 9.0)]
    assert browse.histograms(Values(*stored), bins=7).series.counts.sum(axis=1).tolist() == [5, 9]
    with pytest.raises(QueryError, match="'k', got str"):
        browse.histograms(Values("text"))


def test_tables_and_statistics_are_of_the_part() -> None:
    series = Values(np.arange(24.0).reshape(2, 3, 4))
    table = browse.table(series, 0, "[1, ::2, -2:]")
    assert table.values.tolist() == [[14, 15], [22, 23]]
    assert (table.rows.tolist(), table.columns.tolist()) == ([0, 2], [2, 3])
    assert browse.statistics(series, 0, (1, 2)).max == 23
    assert browse.statistics(Values(True), 0).max == 1
    with pytest.raises(QueryError, match="dimensions"):
        browse.table(series, 0, "[:, :, :]")


def test_a_damaged_record_is_skipped_in_a_real_file(tmp_path: Path) -> None:
    import sightglass as sg
    from sightglass.storage.read.segment_reader import SegmentReader

    with sg.init("r", dir=tmp_path) as run:
        for step in range(5):
            run.log({"kernel": np.full((100, 100), step + 0.5)}, step=step)
            run.flush()
    (path,) = run.directory.glob("*.sgr")
    segment = SegmentReader(path, cache=False)
    entry = [entry for entries in segment.entries().values() for entry in entries][2]
    segment.close()
    data = bytearray(path.read_bytes())
    data[entry.offset + entry.length // 2] ^= 1
    path.write_bytes(data)
    with sg.open(run.directory) as old:
        kernel = old.series("kernel")
        assert kernel.histograms(bins=5).steps.tolist() == [0, 1, 3, 4]
        assert kernel.histograms(bins=5).series.counts.sum() == 40_000
        assert kernel.find("max") == browse.Found(step=4, wall_time=kernel[4].wall_time, index=(0, 0), value=4.5)
        assert kernel.find("nan") is None
        assert [record.step for record in old.stream("kernel")] == [0, 1, 3, 4]
        assert [record.index for record in old.stream("kernel")] == [0, 1, 3, 4]
        assert old.stream("kernel").statistics().n_lost == 1
        with pytest.raises(DamagedError, match=r"'kernel'.*step 2"):
            kernel[2]
        with pytest.raises(DamagedError, match=r"step 2"):
            kernel.difference(1, 2)
        assert not old.check().intact
