"""The passes of a line: where its run begins again, or its steps go back.

Theory of operation
    A new pass begins at a restart of the run, and wherever the step goes back, as in a program that counts its steps
    from 0 in each epoch (`core.joins` has the same rule). Lines are not drawn across such a place. What a later pass
    did again is drawn faintly, fading with its age; the rest of an earlier pass stays as it was.

    Steps that go back all the time are those of records that came out of order: such a line is drawn in the order of
    its steps.

    A clock that was set back shows times again, as steps are counted again. Seconds since the first record go on there:
    how long it took since the record before is unknown, and counts as nothing.

    Lines that are read in chunks, such as the page's charts of recorded runs, have the same passes: `Setbacks` finds in
    each chunk where a column goes back, and carries what it has to from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MIN_MEAN_LENGTH: Final = 4  # records of a pass; with fewer, the records came out of order
MAX_PARTS: Final = 64  # as many as lines of a view; more are disorder too
MAX_SETBACKS: Final = 2**12  # of a column that is read in chunks: parts are found among them in a few milliseconds

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePart:
    """A part of a line, drawn by itself.

    Attributes:
        rows: Its points.
        alpha: Its opacity, from 0 to 1.
        number: The number of its pass, counted from 0.
    """

    rows: slice
    alpha: float = 1.0
    number: int = 0


class Setbacks:
    """Where a column goes back, found chunk by chunk.

    Attributes:
        n: How many values there are.
        rows: The rows at which it goes back, increasing; incomplete if there are more than `MAX_SETBACKS`.
        values: The values there.
    """

    __slots__ = ("_by", "_last", "n", "rows", "values")

    def __init__(self) -> None:
        self.n = 0
        self.rows: list[int] = []
        self.values: list[float] = []
        self._by: list[float] = []
        self._last = np.nan

    def extend(self, values: npt.NDArray[Any], row: int) -> None:
        """Add the next values, the first of which has this row."""
        if not len(values):
            return
        column = np.concatenate(([self._last], values))
        if len(self.rows) <= MAX_SETBACKS:
            back = np.flatnonzero(column[1:] < column[:-1])
            self.rows += (row + back).tolist()
            self.values += column[back + 1].tolist()
            self._by += (column[back] - column[back + 1]).tolist()
        self.n += len(values)
        self._last = column[-1]

    @property
    def in_order(self) -> bool:
        """Whether these are the beginnings of passes, and not those of records that came out of order."""
        n = len(self.rows)
        return not n or (n <= MAX_SETBACKS and self.n >= MIN_MEAN_LENGTH * (n + 1))

    def going_on(self, times: Floats, rows: npt.NDArray[Any]) -> Floats:
        """Return the times of some rows without the setbacks; as they are, if the records came out of order."""
        if not self.rows or not self.in_order:
            return times
        shifts = np.cumsum([0.0, *self._by])
        going: Floats = times + shifts[np.searchsorted(self.rows, rows, side="right")]
        return going


def fading(age: int, n: int) -> float:
    """Return the opacity of one of `n` frames or passes: 1 for the newest, a half to an eighth for older ones."""
    return 1.0 if age == 0 else 0.12 + 0.38 * (1 - age / n)


def passes_of(x: Floats, *, restarts: Sequence[int], counts: bool) -> list[slice] | None:
    """Return the rows of each pass, the oldest first; `None` if the records came out of order.

    Args:
        x: Shape (n,), finite.
        restarts: The rows at which a run began again.
        counts: Whether x counts steps or is a time, so that a new pass begins where it goes back.
    """
    n = len(x)
    back = (np.flatnonzero(np.diff(x) < 0) + 1).tolist() if counts else []
    starts = starts_of(n, back=back, restarts=restarts)
    if starts is None:
        return None
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], n], strict=True)]


def starts_of(n: int, *, back: Sequence[int], restarts: Sequence[int]) -> list[int] | None:
    """Return the first row of each pass, the oldest first; `None` if the records came out of order.

    Args:
        n: The number of rows.
        back: The rows at which x goes back.
        restarts: The rows at which a run began again.
    """
    starts = sorted({0, *(row for row in (*back, *restarts) if row < n)})
    return None if back and n < MIN_MEAN_LENGTH * len(starts) else starts


def parts_of(
    x: Floats, passes: Sequence[slice], *, history: int, firsts: Sequence[float] | None = None
) -> list[LinePart] | None:
    """Return the parts of a line, the oldest first, the newest pass last; `None` if there are too many.

    Args:
        x: Shape (n,), increasing within each pass.
        passes: The rows of each pass, at least one. They may be empty if `firsts` is given.
        history: How many earlier passes to show where a later one did the same again.
        firsts: The first x of each pass, if `x` is only a part of the line.
    """
    newest = len(passes) - 1
    if not newest:
        return [LinePart(rows=passes[0])]
    firsts = x[[rows.start for rows in passes]].tolist() if firsts is None else firsts
    full, again = [LinePart(rows=passes[newest], number=newest)], list[LinePart]()
    floor = firsts[newest]
    for number in range(newest - 1, -1, -1):
        start, end = passes[number].start, passes[number].stop
        cut = start + int(np.searchsorted(x[start:end], floor))
        if cut < end and len(again) < history:
            again.append(LinePart(rows=slice(max(start, cut - 1), end), number=number))
        if cut > start:
            full.append(LinePart(rows=slice(start, cut), number=number))
        floor = min(floor, firsts[number])
    if len(full) > MAX_PARTS:
        return None
    faint = [replace(part, alpha=fading(age, len(again) + 1)) for age, part in enumerate(again, 1)]
    return [*reversed(faint), *reversed(full)]


def going_on(times: Floats) -> Floats:
    """Return times that do not go back where a clock was set back; as they are, if the records came out of order."""
    setbacks = Setbacks()
    setbacks.extend(times, 0)
    return setbacks.going_on(times, np.arange(len(times)))


def ordered(columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return columns in the order of the first, shape (n_columns, n)."""
    in_order: npt.NDArray[Any] = columns[:, np.argsort(columns[0], kind="stable")]
    return in_order
