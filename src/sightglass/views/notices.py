"""What a view tells about itself: how much of a stream it shows, and what is missing or not drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sightglass.core.record import Record

from .choose import KIND_NAMES, ViewName
from .distributions import MAX_COLUMNS, MAX_RIDGES
from .labels import PATHS
from .options import Options
from .series_buffer import SeriesBuffer
from .summaries import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How much of a stream a view shows.

    Attributes:
        n_made: How many records were made, as far as the view knows.
        n_shown: How many of them are drawn.
        every: Of how many records one is drawn, besides extremes; 0 if that differs along the run.
        kept: Which ones: the extremes and one of each `every`, the newest, or some evenly over the run.
    """

    n_made: int
    n_shown: int
    every: int = 0
    kept: Literal["extremes", "newest", "evenly"] = "extremes"

    @property
    def whole(self) -> bool:
        """Whether all records are drawn."""
        return self.n_shown >= self.n_made

    def __str__(self) -> str:
        """Return the sentence that every surface shows; `frontend/src/views/shown.ts` writes the same.

        >>> [str(Shown(n_made=1204, n_shown=1204)), str(Shown(n_made=10_000, n_shown=40, kept="newest"))]
        ['all 1,204', 'last 40 of 10,000']
        >>> str(Shown(n_made=200_000, n_shown=4100, every=64))
        'every 64th of 200,000, extremes kept'
        """
        if self.whole:
            return f"all {self.n_made:,}"
        if self.kept == "newest":
            return f"last {self.n_shown:,} of {self.n_made:,}"
        if self.kept == "evenly":
            return f"{self.n_shown:,} of {self.n_made:,}, evenly over the run"
        part = f"every {_ordinal(self.every)}" if self.every > 1 else f"{self.n_shown:,}"
        return f"{part} of {self.n_made:,}, extremes kept"


def shown_of(buffer: SeriesBuffer, view: ViewName | None, options: Options) -> Shown | None:
    """Return how much of a stream a view shows; `None` for views of its latest value alone."""
    values = buffer.values if options.frames or options.over else []
    if view == "histogram" and options.over in ("ridge", "heat") and values:
        return _shown_distributions(values, options)
    if not buffer.lines or (options.frames and values):
        return None
    if view not in PATHS and view != "line" and not (view == "histogram" and buffer.kind == "number"):
        return None
    points = max(buffer.lines.values(), key=lambda points: points.n_seen)
    n_made, n_held = points.n_seen + buffer.n_missed + buffer.n_thinned, points.columns.shape[1]
    if options.last and options.last < n_held and view != "histogram":
        return Shown(n_made=n_made, n_shown=options.last, kept="newest")
    return Shown(n_made=n_made, n_shown=n_held, every=1 << points.bits)


def _shown_distributions(values: Sequence[Record], options: Options) -> Shown:
    first, last, n_held = values[0].index, values[-1].index, len(values)
    # The records before the first that is held, if any of them could have been held too.
    if first > 0 and last - first + 1 == n_held:
        return Shown(n_made=last + 1, n_shown=n_held, kept="newest")
    n_shown = min(n_held, MAX_RIDGES if options.over == "ridge" else MAX_COLUMNS)
    return Shown(n_made=last + 1, n_shown=n_shown, kept="evenly")


def shown_in_all(buffers: Sequence[SeriesBuffer], view: ViewName | None, options: Options) -> str:
    """Return the sentence about all streams, if nothing of any of them is left out; else ""."""
    found = [shown_of(buffer, view, options) for buffer in buffers]
    known = [shown for shown in found if shown is not None]
    if not known or not all(shown.whole for shown in known):
        return ""
    n = sum(shown.n_made for shown in known)
    return str(Shown(n_made=n, n_shown=n))


def notices_of(buffer: SeriesBuffer, label: str, view: ViewName | None, options: Options) -> list[str]:
    """Return notices of records of a stream that are missing, thinned or not drawn."""
    found = [f"{label}: {one_line(buffer.note)}"] if buffer.note else []
    if buffer.failure:
        found.append(f"{label}: {one_line(buffer.failure)}")
    if buffer.n_unfit:
        values = "1 value" if buffer.n_unfit == 1 else f"{buffer.n_unfit:,} values"
        last = f" (last: {one_line(buffer.unfit)})" if buffer.unfit else ""
        expected = KIND_NAMES[buffer.kind or "other"]
        found.append(f"{label}: {values} not drawn: expected {expected}{last}")
    if buffer.n_missed:
        found.append(f"{label}: {buffer.n_missed:,} record{'s' if buffer.n_missed > 1 else ''} missed")
    shown = shown_of(buffer, view, options)
    if shown is not None and shown.n_shown + buffer.n_missed < shown.n_made:
        found.append(f"{label}: {shown}")
    if buffer.n_lines_left_out and view == "line":
        found.append(f"{label}: only the first {len(buffer.lines)} names are drawn")
    return found


def _ordinal(n: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th") if n % 100 not in (11, 12, 13) else "th"
    return f"{n:,}{ending}"
