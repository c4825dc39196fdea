"""The passes of a line: where its run begins again, or its steps go back.

Theory of operation
    A new pass begins at a restart of the run, and wherever the step goes back, as in a program that counts its steps
    from 0 in each epoch (`core.joins` has the same rule). Lines are not drawn across such a place. What a later pass
    did again is drawn faintly, fading with its age; the rest of an earlier pass stays as it was.

    Steps that go back all the time are those of records that came out of order: such a line is drawn in the order of
    its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MIN_MEAN_LENGTH: Final = 4  # records of a pass; with fewer, the records came out of order
MAX_PARTS: Final = 64  # as many as lines of a view; more are disorder too

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a line, drawn by itself.

    Attributes:
        rows: Its points.
        alpha: Its opacity, from 0 to 1.
    """

    rows: slice
    alpha: float = 1.0


def fading(age: int, n: int) -> float:
    """Return the opacity of one of `n` frames or passes: 1 for the newest, a half to an eighth for older ones."""
    return 1.0 if age == 0 else 0.12 + 0.38 * (1 - age / n)


def passes_of(x: Floats, *, restarts: Sequence[int], counts: bool) -> list[slice] | None:
    """Return the rows of each pass, the oldest first; `None` if the records came out of order.

    Args:
        x: Shape (n,), finite.
        restarts: The rows at which a run began again.
        counts: Whether x counts steps, so that a new pass begins where it goes back.
    """
    n = len(x)
    back = np.flatnonzero(np.diff(x) < 0) + 1 if counts else np.empty(0, np.intp)
    starts = np.unique(np.concatenate(([0], np.asarray(restarts, np.intp), back)).astype(np.intp))
    starts = starts[(starts < n) | (starts == 0)]
    if len(back) and n < MIN_MEAN_LENGTH * len(starts):
        return None
    return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], n], strict=True)]


def parts_of(x: Floats, passes: Sequence[slice], *, history: int) -> list[Part] | None:
    """Return the parts of a line, the oldest first, the newest pass last; `None` if there are too many.

    Args:
        x: Shape (n,), increasing within each pass.
        passes: The rows of each pass, at least one.
        history: How many earlier passes to show where a later one did the same again.
    """
    newest = passes[-1]
    if len(passes) == 1:
        return [Part(rows=newest)]
    full, again = [Part(rows=newest)], list[slice]()
    floor = x[newest.start]
    for rows in reversed(passes[:-1]):
        start, end = rows.start, rows.stop
        cut = start + int(np.searchsorted(x[rows], floor))
        if cut < end and len(again) < history:
            again.append(slice(max(start, cut - 1), end))
        if cut > start:
            full.append(Part(rows=slice(start, cut)))
        floor = min(floor, x[start])
    if len(full) > MAX_PARTS:
        return None
    faint = [Part(rows=rows, alpha=fading(age, len(again) + 1)) for age, rows in enumerate(again, 1)]
    return [*reversed(faint), *reversed(full)]


def ordered(columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return columns in the order of the first, shape (n_columns, n)."""
    in_order: npt.NDArray[Any] = columns[:, np.argsort(columns[0], kind="stable")]
    return in_order
