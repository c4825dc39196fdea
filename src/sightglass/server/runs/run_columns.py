"""What the series of all runs come to, for the columns of the table of runs: read from their totals, kept in memory.

Rule 1: a run is read again when its files have changed, and a run that grows at most every `REST` times as long as it
took, so that many growing runs cost a fraction of the time.
Rule 2: a request reads for a limited time; what is not read by then is counted, and read by later requests.
Rule 3: totals know the step of a best value, but no other series there: that is read from the series, once a version.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sightglass.client.many.table import value_at
from sightglass.core.errors import SightglassError
from sightglass.core.process.unpatched import threading
from sightglass.query.reduce.columns import NAMES, finish
from sightglass.storage import cache_file
from sightglass.storage.format.totals import RunTotals
from sightglass.storage.read import run_totals

from .served_run import ServedRun

_FIRST: Final = ("last", "min", "max", "mean", "std")  # in menus
STATISTICS: Final = (*_FIRST, *(name for name in NAMES if name not in _FIRST))
"""The names of columns after a tag; `argmin` and `argmax` are the steps of the lowest and the highest value."""

MAX_TAGS: Final = 2_000  # of a run: more are no columns of a table
MAX_AT: Final = 1_000_000  # values at bests that are kept
FRESH_S: Final = 1.0
REST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunValues:
    """The values of a run: a row for each tag, a column for each of `STATISTICS`; NaN stands for NaN."""

    version: str
    places: dict[str, int]
    values: npt.NDArray[np.float64]
    due_s: float
    has_totals: bool


class RunColumns:
    """The values of columns for all runs."""

    def __init__(self) -> None:
        self._known: dict[str, _RunValues] = {}
        self._places: dict[tuple[str, ...], dict[str, int]] = {}  # the runs of a sweep have the same tags
        self._at: dict[tuple[str, ...], tuple[str, float | None]] = {}
        self._lock = threading.Lock()

    def read(self, sources: Sequence[ServedRun], *, limit_s: float) -> int:
        """Read the totals of runs that are new or have changed; return how many new ones are left.

        Args:
            sources: All runs.
            limit_s: For how long to read.
        """
        until_s = time.monotonic() + limit_s
        with self._lock:
            keys = {source.key for source in sources}
            self._known = {key: known for key, known in self._known.items() if key in keys}
            waiting = [source for source in sources if self._is_due(source)]
            waiting.sort(key=lambda source: source.key in self._known)  # what is not known at all comes first
            while waiting and time.monotonic() < until_s:
                self._read(waiting.pop(0))
            return sum(source.key not in self._known for source in waiting)

    def column(self, keys: Sequence[str], tag: str, statistic: str) -> list[float | None]:
        """Return a column: the value of each run, `None` if there is none.

        Args:
            keys: The runs.
            tag: The tag of a series.
            statistic: One of `STATISTICS`.
        """
        j = STATISTICS.index(statistic)
        values: list[float | None] = []
        for known in map(self._known.get, keys):
            i = known.places.get(tag) if known is not None else None
            values.append(float(known.values[i, j]) if known is not None and i is not None else None)
        return values

    def at_best(
        self, sources: Sequence[ServedRun], tag: str, best: tuple[str, str], *, limit_s: float
    ) -> tuple[list[float | None], int]:
        """Return a series' value where another series was best, for each run, and how many runs are still to be read.

        Args:
            sources: The runs.
            tag: The tag of the series.
            best: The tag of the other, and `min` or `max`.
            limit_s: For how long to read.
        """
        until_s = time.monotonic() + limit_s
        values: list[float | None] = []
        n_pending = 0
        with self._lock:
            if len(self._at) > MAX_AT:
                self._at.clear()
            for source, step in zip(
                sources, self.column([s.key for s in sources], best[0], f"arg{best[1]}"), strict=True
            ):
                if step is None:
                    values.append(None)
                    continue
                version, place = self._known[source.key].version, (source.key, tag, *best)
                if self._at.get(place, ("",))[0] != version:
                    if time.monotonic() < until_s:
                        self._at[place] = version, _value_at(source, tag, step)
                    else:
                        n_pending += 1
                values.append(self._at[place][1] if place in self._at else None)
        return values, n_pending

    def without(self) -> list[str]:
        """Return the keys of the runs whose series have no totals, so that nobody knows what they come to."""
        return [key for key, known in self._known.items() if not known.has_totals]

    def tags(self) -> list[str]:
        """Return the tags of all series of numbers; those that most runs have come first."""
        runs = Counter(id(known.places) for known in self._known.values())
        counts: Counter[str] = Counter()
        for places in {id(known.places): known.places for known in self._known.values()}.values():
            counts.update(dict.fromkeys(places, runs[id(places)]))
        return sorted(counts, key=lambda tag: (-counts[tag], tag))

    def _is_due(self, source: ServedRun) -> bool:
        recorded, known = source.recorded, self._known.get(source.key)
        if recorded is None or source.gone_s is not None:
            return False
        return known is None or (known.version != recorded.version and time.monotonic() >= known.due_s)

    def _read(self, source: ServedRun) -> None:
        recorded = source.recorded
        assert recorded is not None
        began_s = time.monotonic()
        try:
            totals = _totals(source)
        except (SightglassError, OSError):
            totals = None  # a damaged run has none, and the list of runs says that it is damaged
        tags, values = _values(totals) if totals is not None else ((), np.zeros((0, len(STATISTICS))))
        places = self._places.setdefault(tags, {tag: i for i, tag in enumerate(tags)})
        due_s = time.monotonic() + max(FRESH_S, REST * (time.monotonic() - began_s))
        self._known[source.key] = _RunValues(
            version=recorded.version, places=places, values=values, due_s=due_s, has_totals=totals is not None
        )


def _totals(source: ServedRun) -> RunTotals | None:
    """Return the totals of a run; make them if it has none, or has grown since.

    Raises:
        SightglassError: It cannot be read, or its numbers have no totals.
    """
    path = source.path
    if path is None:
        return None
    totals = run_totals.load(path, cache_file.files_of(path), rank=None)
    if totals is not None:
        return totals
    with source.borrow() as opened:
        return run_totals.of(opened.recording)


def _value_at(source: ServedRun, tag: str, step: float) -> float | None:
    """Return a series' last value up to a step; `None` if it has none there, or no number."""
    try:
        with source.borrow() as opened, opened.recording.lock:
            series = opened.recording.series(tag)
            found = value_at(series, step)
            return None if found is None else float(found)
    except (SightglassError, OSError, TypeError, ValueError):
        return None


def _values(totals: RunTotals) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """Return the tags of a run's series, and what they come to."""
    rows = [
        (key, row)
        for keys, table in totals.tables.values()
        for key, row in zip(keys, np.stack([finish(name, table) for name in STATISTICS], 1), strict=True)
    ]
    rows.sort(key=lambda one: (one[0].tag, one[0].kind))  # a logged series comes before a stream of the same tag
    found: dict[str, Any] = {}
    for key, row in rows:
        found.setdefault(key.tag, row)
    tags = tuple(found)[:MAX_TAGS]
    return tags, np.array([found[tag] for tag in tags], np.float64).reshape(-1, len(STATISTICS))


# Answers that were computed once, and are the same as long as the run's files are.

T = TypeVar("T")


class Remembered(Generic[T]):
    """The answers that were asked for last; any thread may ask."""

    def __init__(self, n: int) -> None:
        """Remember nothing yet.

        Args:
            n: How many answers to remember.
        """
        self._n = n
        self._answers: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the answer to a key, computed without holding up those who ask for others."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        answer = compute()
        with self._lock:
            self._answers[key] = answer
            while len(self._answers) > self._n:
                self._answers.popitem(last=False)
        return answer
