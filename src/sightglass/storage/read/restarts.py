"""Which rows are hidden when a run was restarted, and how numbers continue.

Rule 1: a process that continues at a lower step hides, in each series, what earlier processes wrote from that step on.
A file of another program may say from which step on: then that holds for all series, also those it did not write.
Rule 2: a process that began while another one still wrote does not restart it, and one may say that it repeats nothing:
neither hides rows of the other. Their rows follow each other, process by process.
Rule 3: numbers of events move by the same amount for all series of one event, so they still fit together: the series
that has the first record of the event in the later process decides by how much.
Rule 4: ends of groups have no steps of their own: they are visible if their events are.
Rule 5: nothing hides the history of commands: they were applied, whether or not their steps are still visible.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from sightglass.core.errors import QueryError
from sightglass.query.parser import as_query
from sightglass.storage.format.block import Key

from .run_series import Group, Overlaps, RunSeries, Source, VisibleRows, make

NONE: Final[Mapping[float, float]] = MappingProxyType({})


def limits_of(
    groups: Sequence[Group], unhidden: Overlaps = frozenset(), retracted: Mapping[float, float] = NONE
) -> list[float]:
    """Return, for each process, the step from which on its rows are hidden by later ones.

    Args:
        groups: What each process wrote to a series.
        unhidden: Pairs of processes of which the later one hides nothing of the earlier, as they began.
        retracted: The steps from which on later processes say so, by when a process began.
    """
    firsts = [_first_step(sources) for _, sources in groups]
    if not unhidden:
        limits = [*accumulate(reversed(firsts[1:]), min, initial=math.inf)][::-1]
    else:
        limits = [
            min((firsts[k] for k in range(j + 1, len(groups)) if (one, groups[k][0]) not in unhidden), default=math.inf)
            for j, (one, _) in enumerate(groups)
        ]
    return [min(limit, retracted.get(began, math.inf)) for limit, (began, _) in zip(limits, groups, strict=True)]


def _first_step(sources: Sequence[Source]) -> float:
    first = next((float(entries.rows["first_step"][0]) for _, entries in sources if len(entries)), math.inf)
    return math.inf if math.isnan(first) else first


def event_of(key: Key) -> str:
    """Return the event that the ordinals of a series count."""
    match key.kind:
        case "logged" | "wide":
            return "log"
        case "groups" | "snapshot":
            return key.tag
        case "stream":
            try:
                return as_query(key.query).event
            except QueryError:
                return f"\0{key.query}"
    return f"\0{key.kind}"


class Restarts:
    """How the processes of one run follow each other: the visible rows of all its series."""

    def __init__(self, series: RunSeries) -> None:
        """Take what each process wrote to each series."""
        self._series = series
        self._blocks: dict[Key, list[Group]] = {}
        self._at_once, self._unhidden = series.overlaps(), series.unhidden()
        self._retracted = series.retracted()
        self._views: dict[Key, VisibleRows] = {}
        self._alike: dict[Hashable, VisibleRows] = {}
        self._counted: dict[str, tuple[list[int], list[float]]] = {}
        self._keys: dict[str, list[Key]] | None = None

    def view(self, key: Key) -> VisibleRows:
        """Return the rows of a series that are visible; found once for those that share all their blocks."""
        view = self._views.get(key)
        if view is None:
            groups, place = self._series[key], self._series.place(key)
            if place not in self._alike:
                self._alike[place] = self._make(key, groups)
            sources = [source for _, several in groups for source in several]
            view = self._views[key] = replace(self._alike[place], sources=sources)
        return view

    def _make(self, key: Key, groups: Sequence[Group]) -> VisibleRows:
        n = len(groups)
        if n == 1 or all(not sources for _, sources in groups[:-1]):
            return make(groups, [math.inf] * n, self._shifts(key)[0] if n > 1 else [0])
        if key.kind == "commands":
            return _counting(groups)
        shifts, cuts = self._shifts(key)
        if key.kind == "groups":
            limits = [min(cuts[k + 1 :], default=math.inf) - shifts[k] + 1 for k in range(n)]
        else:
            limits = limits_of(groups, self._unhidden, self._retracted)
        return make(groups, limits, shifts, self._at_once)

    def _shifts(self, key: Key) -> tuple[list[int], list[float]]:
        """Return how much is added to the ordinals of an event for each process, and where each continues."""
        event = event_of(key)
        if self._keys is None:
            self._keys, self._blocks = {}, self._series.blocks()
            for other in self._blocks:
                if other.kind not in ("groups", "commands"):
                    self._keys.setdefault(event_of(other), []).append(other)
        if event not in self._counted:
            self._counted[event] = self._count(self._keys.get(event, []), len(self._series[key]))
        return self._counted[event]

    def _count(self, keys: Sequence[Key], n: int) -> tuple[list[int], list[float]]:
        groups = {key: self._blocks[key] for key in keys}
        views = {
            key: make(found, limits_of(found, self._unhidden, self._retracted), [0] * n)
            for key, found in groups.items()
        }
        shifts, cuts = [0], [math.inf]
        for k in range(1, n):
            ends = {key: _end(view, k, shifts) for key, view in views.items()}
            firsts = {key: first for key, view in views.items() if (first := _first(view, k)) is not None}
            both = [key for key in firsts if ends[key] is not None]
            if both:
                anchor = min(both, key=lambda key: firsts[key])
                end = ends[anchor]
                shifts.append((end or 0) - firsts[anchor])
                cuts.append(end or 0)
            else:
                end = max((end for end in ends.values() if end is not None), default=0)
                shifts.append(end if firsts else shifts[-1])
                cuts.append(end if firsts else math.inf)
        return shifts, cuts


def _first(view: VisibleRows, group: int) -> int | None:
    """Return the first ordinal that a process has."""
    pieces = view.pieces[view.pieces["group"] == group]
    return int(pieces["ordinal"][0]) if len(pieces) else None


def _end(view: VisibleRows, group: int, shifts: Sequence[int]) -> int | None:
    """Return the ordinal after the last visible one of earlier processes."""
    pieces = view.pieces[view.pieces["group"] < group][-1:]
    if not len(pieces):
        return None
    columns = next(view.read(pieces))
    piece = pieces[0]
    if columns is None or columns.ordinals is None:
        last = int(piece["ordinal"] + piece["high"] - 1)
    else:
        last = int(columns.ordinals[-1])
    return last + shifts[int(piece["group"])] + 1


def _counting(groups: Sequence[Group]) -> VisibleRows:
    """Return all rows of a series whose ordinals are its own."""
    n = len(groups)
    view = make(groups, [math.inf] * n, [0] * n)
    shifts = [0]
    for k in range(1, n):
        shifts.append((_end(view, k, shifts) or 0) - (_first(view, k) or 0))
    return VisibleRows(view.sources, view.pieces, view.ends, shifts)
