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
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """`undecided` if the interval is wider than the target, `over` if the target is missed, or nothing."""
        if self.target is None:
            return ""
        if self.interval is not None and not self.interval[1] - self.interval[0] <= self.target:
            return "undecided"
        return "" if self.value <= self.target else "over"

    def __str__(self) -> str:
        shown = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.3g}"
        limit = "" if self.target is None else f"<= {self.target:g}"
        between = "" if self.interval is None else "  {:.3g} to {:.3g}".format(*self.interval)
        verdict = f"  {self.verdict}" if self.verdict else ""
        return f"{self.what:<54}{shown:>9} {self.unit:<2}{limit:>10}{between}{verdict}"
