"""Compare two series of tensors: the result is a series of tensors itself, which is browsed like any other."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.core.errors import UnknownNameError, ViewError
from sightglass.core.values import is_extended

from . import browse, slices
from .statistics import Place, TensorStatistics, difference

Array = npt.NDArray[Any]
Measure = Literal["difference", "relative", "close"]
When = Literal["same", "previous", "first"]

RTOL, ATOL = 1e-5, 1e-8  # as in np.isclose


def compared(
    a: npt.ArrayLike, b: npt.ArrayLike, measure: Measure = "difference", *, rtol: float = RTOL, atol: float = ATOL
) -> Array:
    """Compare two tensors value by value.

    Args:
        a: Any shape; numbers.
        b: The same shape; the reference.
        measure: "difference" is `a - b`, without wrapping around. "relative" is `(a - b) / |b|`; 0 where the difference
            is. "close" is whether `|a - b| <= atol + rtol * |b|`; equal infinities are close, and so are two NaN.
        rtol: The relative tolerance of "close".
        atol: Its absolute tolerance.

    Returns:
        Of the type of `statistics.difference`; floats for "relative", bools for "close".

    Raises:
        ViewError: The shapes differ.
        TypeError: One of them does not hold numbers.

    >>> compared([3.0, 0.0, 2.0], [2.0, 0.0, 0.0], "relative").tolist()
    [0.5, 0.0, inf]
    """
    a, b = np.asarray(a), np.asarray(b)
    apart = difference(a, b)
    if measure == "difference":
        return apart
    with np.errstate(all="ignore"):
        sizes = np.abs(b.astype(apart.dtype if apart.dtype.kind in "fc" else np.float64))
        if measure == "relative":
            return np.where(apart == 0, 0, apart / sizes)
        within = (np.abs(apart.astype(np.result_type(apart, np.float64))) <= atol + rtol * sizes) & np.isfinite(sizes)
        a, b = (x.astype(np.float32) if is_extended(x.dtype) else x for x in (a, b))
        return np.asarray(within | (a == b) | (np.isnan(a) & np.isnan(b)))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The tensors of a series, each compared with one of another series or of the same.

    It is a series of tensors: `table`, `statistics`, `histograms` and `find` are about the comparison.

    Attributes:
        source: The series.
        reference: The one to compare with, possibly of another run.
        when: With which step of the reference: a number; "same", the nearest; "previous", the last one before, or the
            first; "first".
        measure: See `compared`, also for the tolerances.
        rtol: The relative tolerance of "close".
        atol: The absolute one.
    """

    source: browse.TensorSource
    reference: browse.TensorSource
    when: float | When = "same"
    measure: Measure = "difference"
    rtol: float = RTOL
    atol: float = ATOL

    def __post_init__(self) -> None:
        if self.measure not in get_args(Measure):
            raise UnknownNameError("measure", self.measure, get_args(Measure))
        if isinstance(self.when, str) and self.when not in get_args(When):
            raise UnknownNameError("step to compare with", self.when, get_args(When))
        for name in ("rtol", "atol"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"Expected {name} to be a number from 0, got {getattr(self, name)!r}")

    @property
    def tag(self) -> str:
        """The tag of the series."""
        return self.source.tag

    @property
    def steps(self) -> npt.NDArray[Any]:
        """Shape (n,), int64 or float64: those of the series."""
        return self.source.steps

    @property
    def wall_times(self) -> npt.NDArray[np.float64]:
        """Shape (n,), in seconds since the Unix epoch."""
        return self.source.wall_times

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int, /) -> Record:
        """Read and compare one record. Errors as in `at`."""
        record = self.source[i]
        return dataclasses.replace(record, value=self._compared(record.value, record.step, None))

    def at(self, step: float, index: browse.Index | None = None) -> Array:
        """Return the comparison at a step, or a part of it.

        Raises:
            UnknownNameError: Nothing was recorded at one of the steps.
            DamagedError: One of the records is damaged.
            ViewError: The shapes differ.
            QueryError: The tensors do not have this part.
        """
        self.shape_at(step)  # parts of tensors of different shapes may have the same
        return self._compared(self.source.at(step, index), step, index)

    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return the shape at a step. Errors as in `at`."""
        other_step = self.reference_step(step)
        shape, other = self.source.shape_at(step), self.reference.shape_at(other_step)
        if shape != other:
            raise ViewError(
                f"Expected two tensors of one shape, got {shape} at step {step:.15g} and {other} at {other_step:.15g}"
            )
        return shape

    def reference_step(self, step: float) -> float:
        """Return the step of the reference that a step is compared with."""
        if not isinstance(self.when, str):
            return self.when
        steps = self.reference.steps
        if not len(steps):
            raise ViewError(f"Expected a step of {self.reference.tag!r} to compare with, got none")
        if self.when == "same":
            return float(steps[np.abs(steps - step).argmin()])
        before = steps[steps < step] if self.when == "previous" else steps[:0]
        return float(before[-1] if len(before) else steps[0])

    def table(self, step: float, index: browse.Index = "", *, max_cells: int = slices.MAX_CELLS) -> slices.TensorTable:
        """Return a part of the comparison with at most two free dimensions; see `browse.table`."""
        return browse.table(self, step, index, max_cells=max_cells)

    def statistics(self, step: float, index: browse.Index | None = None) -> TensorStatistics:
        """Return statistics of the comparison at a step, or of a part of it."""
        return browse.statistics(self, step, index)

    def histograms(self, **options: Any) -> browse.Histograms:
        """Count its values at all steps in common bins; `browse.histograms` describes the options."""
        return browse.histograms(self, **options)

    def find(self, what: Place) -> browse.Found | None:
        """Search all steps; see `browse.find`. The first "zero" of "close" is the first value that is not close."""
        return browse.find(self, what)

    def _compared(self, value: object, step: float, index: browse.Index | None) -> Array:
        other = self.reference.at(self.reference_step(step), index)
        a, b = browse.array_of(self.tag, value), browse.array_of(self.reference.tag, other)
        return compared(a, b, self.measure, rtol=self.rtol, atol=self.atol)
