"""Browse the tensors of a series: tables, statistics, histograms over its steps, searches.

The functions take any object with steps and values (`TensorSource`), such as a series of a recording. They read one
step at a time, and only the part of it that they need.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.core.errors import DamagedError, QueryError
from sightglass.core.values import Histogram, Tensor, is_real, to_host, type_name

from . import histograms as h
from . import slices
from . import statistics as tensor_statistics

Index = slices.Index | slices.Entry | str


class TensorSource(Protocol):
    """A series of tensors."""

    @property
    def tag(self) -> str:
        """The tag."""

    @property
    def steps(self) -> npt.NDArray[Any]:
        """Shape (n,), int64 or float64."""

    @property
    def wall_times(self) -> npt.NDArray[np.float64]:
        """Shape (n,), in seconds since the Unix epoch."""

    def __len__(self) -> int:
        """Return how many records there are."""

    def __getitem__(self, i: int, /) -> Record:
        """Return one record."""

    def at(self, step: float, index: Index | None = None) -> Any:
        """Return the value at a step, or a part of it."""

    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return the shape of the array at a step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histograms:
    """The values of a series at its steps, in common bins.

    Attributes:
        steps: Shape (n_steps,), int64 or float64.
        wall_times: Shape (n_steps,), in seconds since the Unix epoch.
        series: Their counts, edges and percentiles.
    """

    steps: npt.NDArray[Any]
    wall_times: npt.NDArray[np.float64]
    series: h.HistogramSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A value that was found in a series.

    Attributes:
        step: The step.
        wall_time: When it was recorded, in seconds since the Unix epoch.
        index: Its index in the array; empty for a number.
        value: The value.
    """

    step: float
    wall_time: float
    index: tuple[int, ...]
    value: Any


def table(
    source: TensorSource, step: float, index: Index = "", *, max_cells: int = slices.MAX_CELLS
) -> slices.TensorTable:
    """Read a part of a tensor with at most two free dimensions, as a table.

    Args:
        source: The series.
        step: The step.
        index: The part, such as "[0, :, 2:5]".
        max_cells: The largest number of cells.

    Raises:
        UnknownNameError: Nothing was recorded at this step.
        QueryError: The tensor has no such part.
        RefusedQueryError: The part has more than two dimensions, or too many cells.
    """
    shape = source.shape_at(step)
    chosen = slices.cells(index, shape, max_cells=max_cells)
    return slices.make_table(array_of(source.tag, source.at(step, chosen)), chosen, shape)


def statistics(source: TensorSource, step: float, index: Index | None = None) -> tensor_statistics.TensorStatistics:
    """Describe a tensor, or a part of it: shape, extremes, mean, deviation, norm, counts.

    Raises:
        UnknownNameError: Nothing was recorded at this step.
        QueryError: The tensor has no such part, or the value is not an array of numbers.
    """
    return tensor_statistics.statistics(array_of(source.tag, source.at(step, index)))


def histograms(
    source: TensorSource,
    *,
    bins: int | npt.ArrayLike | None = None,
    scale: h.Scale = "linear",
    clip_quantiles: tuple[float, float] | None = None,
    percentiles: Sequence[float] = (),
    max_steps: int | None = None,
) -> Histograms:
    """Count the values at all steps in common bins; arguments as in `histograms.series`.

    Steps whose records are damaged are skipped.

    Args:
        source: The series, of tensors, histograms or numbers.
        bins: The number of bins, or their edges; by default the number follows the number of values.
        scale: "linear" or "symlog".
        clip_quantiles: The two quantiles of all values that the bins span.
        percentiles: Percentiles to return as well, from 0 to 100.
        max_steps: The largest number of steps; they are evenly spaced, with the first and the last among them.
    """
    chosen = _Steps(source, max_steps)
    counted = h.series(chosen, bins=bins, scale=scale, clip_quantiles=clip_quantiles, percentiles=percentiles)
    intact = sorted(chosen.places)
    return Histograms(
        steps=np.array([chosen.places[i][0] for i in intact]),
        wall_times=np.array([chosen.places[i][1] for i in intact], np.float64),
        series=_only(counted, intact),
    )


def find(source: TensorSource, what: tensor_statistics.Place) -> Found | None:
    """Search all steps for the first value that is "nan", "inf", "posinf", "neginf" or "zero", or for an extreme.

    Steps whose records are damaged are skipped.

    Args:
        source: The series.
        what: One of these, or "min", "max", "absmax" for the extreme of all steps.

    Returns:
        `None` if there is no such value.

    Raises:
        UnknownNameError: `what` is unknown.
    """
    best: Found | None = None
    for record in _records(source):
        array = array_of(source.tag, record.value)
        index = tensor_statistics.find(array, what)
        if index is None:
            continue
        found = Found(step=record.step, wall_time=record.wall_time, index=index, value=array[index].item())
        if what not in ("min", "max", "absmax"):
            return found
        if best is None or _rank(found, what) > _rank(best, what):
            best = found
    return best


def _rank(found: Found, what: str) -> Any:
    """Return a number that is largest for the extreme; integers stay exact."""
    value = abs(found.value) if what == "absmax" or isinstance(found.value, complex) else found.value
    return -value if what == "min" else value


def _records(source: TensorSource) -> Iterator[Record]:
    for i in range(len(source)):
        with contextlib.suppress(DamagedError):
            yield source[i]


def array_of(tag: str, value: object, *, texts: bool = False) -> npt.NDArray[Any]:
    """Return a value that was recorded under a tag as an array.

    Args:
        tag: The tag.
        value: The value.
        texts: Whether it may be an array of strings; bytes are decoded.

    Raises:
        QueryError: The value is neither an array nor a number.
    """
    value = to_host(value.value if isinstance(value, Tensor) else value)
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray):
        array = np.asarray(value)
        if is_real(array.dtype) or array.dtype.kind == "c":
            return array
        if texts and array.dtype.kind in "SU":
            return np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    raise QueryError(f"Expected a tensor or a number under {tag!r}, got {type_name(value)}")


def _only(counted: h.HistogramSeries, steps: list[int]) -> h.HistogramSeries:
    """Return the counts of some steps."""
    if len(steps) == len(counted.counts):
        return counted
    parts = {name: getattr(counted, name)[steps] for name in ("counts", "n_nan", "n_posinf", "n_neginf", "percentiles")}
    return dataclasses.replace(counted, **parts)


class _Steps(Sequence[Any]):
    """The values of a series, read on access; a damaged one is empty, and is missing from `places`."""

    def __init__(self, source: TensorSource, max_steps: int | None) -> None:
        self._source = source
        n = len(source)
        if max_steps is None or n <= max_steps:
            self._rows = np.arange(n)
        else:
            self._rows = np.unique(np.linspace(0, n - 1, max(1, max_steps)).round().astype(np.int64))
        self.places: dict[int, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        try:
            record = self._source[int(self._rows[i])]
        except DamagedError:
            return np.empty(0)
        value, self.places[i] = record.value, (record.step, record.wall_time)
        return value if isinstance(value, Histogram) else np.atleast_1d(array_of(self._source.tag, value))
