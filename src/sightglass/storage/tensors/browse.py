"""Looking into the tensors of a series: tables, statistics, histograms over its steps, differences, searches.

The functions take any object with steps and values (`TensorSource`): a series of ours, or of another program's files.
They read one step at a time, and of it only what is asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import DamagedError, QueryError
from sightglass.core.record import Record
from sightglass.core.values import Histogram, Tensor, is_real, to_host, type_name

from . import histograms as h
from . import slices
from . import statistics as tensor_statistics

Index = slices.Index | slices.Entry | str


class TensorSource(Protocol):
    """What is looked into."""

    @property
    def tag(self) -> str:
        """The tag."""

    @property
    def steps(self) -> Any:
        """Shape (n,)."""

    @property
    def wall_times(self) -> Any:
        """Shape (n,)."""

    def __len__(self) -> int:
        """Return how many records there are."""

    def __getitem__(self, i: int, /) -> Record:
        """Return one of them."""

    def at(self, step: float, index: Index | None = None) -> Any:
        """Return the value at a step, or a part of it."""

    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return the shape of the array at a step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histograms:
    """The values of a series at its steps, in common bins.

    Attributes:
        steps: Shape (n_steps,).
        wall_times: Shape (n_steps,), in seconds since the Unix epoch.
        series: Their counts, edges and percentiles.
    """

    steps: Any
    wall_times: Any
    series: h.HistogramSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A place in a series that was searched for.

    Attributes:
        step: The step.
        wall_time: When it was, in seconds since the Unix epoch.
        index: Where in the array; empty for a number.
        value: What is there.
    """

    step: float
    wall_time: float
    index: tuple[int, ...]
    value: Any


def table(
    kept: TensorSource, step: float, index: Index = "", *, max_cells: int = slices.MAX_CELLS
) -> slices.TensorTable:
    """Read a part of a tensor with at most two free dimensions, to be shown as a table.

    Args:
        kept: The series.
        step: Which step.
        index: Which part, such as "[0, :, 2:5]".
        max_cells: How many cells it may have.

    Raises:
        UnknownNameError: Nothing was kept at this step.
        QueryError: There is no such part; RefusedQueryError, if it is no table or too large for one.
    """
    shape = kept.shape_at(step)
    chosen = slices.cells(index, shape, max_cells=max_cells)
    return slices.make_table(array_of(kept.tag, kept.at(step, chosen)), chosen, shape)


def statistics(kept: TensorSource, step: float, index: Index | None = None) -> tensor_statistics.TensorStatistics:
    """Return what is known of a tensor, or of a part of it: shape, extremes, mean, deviation, norm, counts.

    Raises:
        UnknownNameError: Nothing was kept at this step.
        QueryError: There is no such part, or nothing there that has statistics.
    """
    return tensor_statistics.statistics(array_of(kept.tag, kept.at(step, index)))


def histograms(
    kept: TensorSource,
    *,
    bins: int | npt.ArrayLike = 64,
    scale: h.Scale = "linear",
    clip_quantiles: tuple[float, float] | None = None,
    percentiles: Sequence[float] = (),
    max_steps: int | None = None,
) -> Histograms:
    """Count the values at all steps in common bins; arguments as in `histograms.series`.

    Steps whose records are damaged are passed over.

    Args:
        kept: The series, of tensors, histograms or numbers.
        bins: How many bins, or their edges.
        scale: "linear" or "symlog".
        clip_quantiles: From which quantile of all values to which the bins reach.
        percentiles: Which percentiles to return as well, from 0 to 100.
        max_steps: Only so many steps, evenly spaced, the first and the last among them.
    """
    chosen = _Steps(kept, max_steps)
    counted = h.series(chosen, bins=bins, scale=scale, clip_quantiles=clip_quantiles, percentiles=percentiles)
    intact = sorted(chosen.places)
    return Histograms(
        steps=np.array([chosen.places[i][0] for i in intact]),
        wall_times=np.array([chosen.places[i][1] for i in intact], np.float64),
        series=_only(counted, intact),
    )


def difference(
    kept: TensorSource, step: float, other_step: float, *, other: TensorSource | None = None, index: Index = ""
) -> Any:
    """Subtract the tensor at another step, of this series or another one, from the one at a step.

    Args:
        kept: The series.
        step: Which of its steps.
        other_step: Which step of the other.
        other: The other series, also of another run; by default the same.
        index: Which part.

    Returns:
        An array of a type in which nothing wraps around: see `statistics.difference`.

    Raises:
        UnknownNameError: Nothing was kept at one of the steps.
        ViewError: The shapes differ.
    """
    subtrahend = kept if other is None else other
    return tensor_statistics.difference(
        array_of(kept.tag, kept.at(step, index)), array_of(subtrahend.tag, subtrahend.at(other_step, index))
    )


def find(kept: TensorSource, what: tensor_statistics.Place) -> Found | None:
    """Search all steps for a place: the first that is "nan", "inf", "posinf", "neginf" or "zero", or an extreme.

    Steps whose records are damaged are passed over.

    Args:
        kept: The series.
        what: One of these, or "min", "max", "absmax": then that of all steps.

    Returns:
        `None` if there is no such place.

    Raises:
        UnknownNameError: There is no such thing to search for.
    """
    best: Found | None = None
    for record in _records(kept):
        array = array_of(kept.tag, record.value)
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
    """Return what is largest where the place is; integers stay what they are, for floats are fewer."""
    value = abs(found.value) if what == "absmax" or isinstance(found.value, complex) else found.value
    return -value if what == "min" else value


def _records(kept: TensorSource) -> Iterator[Record]:
    for i in range(len(kept)):
        with contextlib.suppress(DamagedError):
            yield kept[i]


def array_of(tag: str, value: Any) -> Any:
    """Return a value that was kept under a tag as an array.

    Raises:
        QueryError: It is neither an array nor a number.
    """
    value = to_host(value.value if isinstance(value, Tensor) else value)
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray):
        array = np.asarray(value)
        if is_real(array.dtype) or array.dtype.kind == "c":
            return array
    raise QueryError(f"Expected a tensor or a number under {tag!r}, got {type_name(value)}")


def _only(counted: h.HistogramSeries, steps: list[int]) -> h.HistogramSeries:
    """Return the counts of some steps."""
    if len(steps) == len(counted.counts):
        return counted
    parts = {name: getattr(counted, name)[steps] for name in ("counts", "n_nan", "n_posinf", "n_neginf", "percentiles")}
    return dataclasses.replace(counted, **parts)


class _Steps(Sequence[Any]):
    """The values of a series, read when they are looked at; what is damaged is empty, and has no place."""

    def __init__(self, kept: TensorSource, max_steps: int | None) -> None:
        self._kept = kept
        n = len(kept)
        if max_steps is None or n <= max_steps:
            self._rows = np.arange(n)
        else:
            self._rows = np.unique(np.linspace(0, n - 1, max(1, max_steps)).round().astype(np.int64))
        self.places: dict[int, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        try:
            record = self._kept[int(self._rows[i])]
        except DamagedError:
            return np.empty(0)
        value, self.places[i] = record.value, (record.step, record.wall_time)
        return value if isinstance(value, Histogram) else np.atleast_1d(array_of(self._kept.tag, value))
