"""What a series shows of its tensors: tables, statistics, histograms, comparisons, searches; see `tensors.browse`."""

from __future__ import annotations

from typing import Any

from sightglass.storage.tensors import browse, slices
from sightglass.storage.tensors.compare import ATOL, RTOL, Comparison, Measure, When
from sightglass.storage.tensors.statistics import Place, TensorStatistics


class TensorViews:
    """The part of a series that is about its tensors."""

    __slots__ = ()

    def table(
        self: browse.TensorSource, step: float, index: browse.Index = "", *, max_cells: int = slices.MAX_CELLS
    ) -> slices.TensorTable:
        """Read a part of a tensor with at most two free dimensions, such as "[0, :, 2:5]"; see `browse.table`."""
        return browse.table(self, step, index, max_cells=max_cells)

    def statistics(self: browse.TensorSource, step: float, index: browse.Index | None = None) -> TensorStatistics:
        """Return statistics of a tensor, or of a part of it: shape, extremes, mean, norm, counts of NaN."""
        return browse.statistics(self, step, index)

    def histograms(self: browse.TensorSource, **options: Any) -> browse.Histograms:
        """Count the values at all steps in common bins; `browse.histograms` describes the options."""
        return browse.histograms(self, **options)

    def compare(
        self: browse.TensorSource,
        reference: browse.TensorSource | None = None,
        *,
        when: float | When = "same",
        measure: Measure = "difference",
        rtol: float = RTOL,
        atol: float = ATOL,
    ) -> Comparison:
        """Compare the tensors at all steps with those of another series or of this one.

        Args:
            reference: The other series, possibly of another run; by default this one.
            when: The step of the reference: a number, "same" (the nearest), "previous" or "first".
            measure: "difference", "relative" or "close"; see `tensors.compare.compared`.
            rtol: The relative tolerance of "close".
            atol: Its absolute tolerance.
        """
        return Comparison(self, self if reference is None else reference, when, measure, rtol, atol)

    def difference(
        self: browse.TensorSource,
        step: float,
        other_step: float,
        *,
        other: browse.TensorSource | None = None,
        index: browse.Index = "",
    ) -> Any:
        """Subtract the tensor at another step, of this series or another run's, from the one at a step."""
        reference = self if other is None else other
        return Comparison(self, reference, other_step, "difference", RTOL, ATOL).at(step, index)

    def find(self: browse.TensorSource, what: Place) -> browse.Found | None:
        """Search all steps for the first "nan", "inf", "posinf", "neginf", "zero", or the "min", "max", "absmax"."""
        return browse.find(self, what)
