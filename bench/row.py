"""One line of the table: a measurement, and whether it meets its target."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A measurement.

    Attributes:
        what: What is measured.
        value: The result.
        unit: Its unit.
        target: The largest value that meets the target; `None` if there is none.
        interval: Between which values the result lies with a probability of 95 %; `None` if that is not estimated.
        by_distance: Whether the interval must be narrower than the distance to the target, as for ratios and
            differences, whose values lie around 1 and 0 whatever the target is.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    interval: tuple[float, float] | None = None
    by_distance: bool = False

    @property
    def verdict(self) -> str:
        """`undecided` if the interval is too wide, `over` if the target is missed, or nothing."""
        if self.target is None:
            return ""
        widest = abs(self.target - self.value) if self.by_distance else self.target
        if self.interval is not None and not self.interval[1] - self.interval[0] <= widest:
            return "undecided"
        return "" if self.value <= self.target else "over"

    def __str__(self) -> str:
        shown = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.3g}"
        limit = "" if self.target is None else f"<= {self.target:g}"
        between = "" if self.interval is None else "  {:.3g} to {:.3g}".format(*self.interval)
        verdict = f"  {self.verdict}" if self.verdict else ""
        return f"{self.what:<54}{shown:>9} {self.unit:<2}{limit:>10}{between}{verdict}"
