"""What became of what a part was given: one set of counts, each with one meaning wherever it stands.

`Failures` counts what failed in the background, and warns about the first of each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sightglass.core import errors

from .program_values.guarded import message

if TYPE_CHECKING:
    from .description import StreamInfo


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Statistics:
    """The counts of a stream, a record writer, a sink, a plotter or a tap. What does not apply to it is 0.

    Attributes:
        n_events: What came in: events that the run evaluated for the query, logs, calls of a plotter.
        n_records: What came out: records that arrived, were written or delivered; figures drawn, without error cards.
        n_waiting: What came in and is not out yet. In a `zip`: records of the first stream that may get a partner.
        n_dropped: What is given up for lack of room or time, or because it could not be written or delivered.
        n_lost: Records that never arrived, by the gaps in their numbers.
        n_thinned: Older records that the run left out when the stream was opened: it holds the others of them.
        n_forgotten: Records that arrived, and that this process has dropped from memory, evenly.
        n_skipped: Events that the run's budget skipped.
        n_unpaired: What has no partner: records of the first stream of a `zip`, events of a query that joins others.
        n_errors: How often what the user gave failed: the query on an event, a callback, a figure's function.
        last_error: The last failure, or empty.
        n_failures: How often a part of the run itself failed in the background, which `describe` names, or this
            client's connection, which a warning names.
        n_bytes: How many bytes the files have.
        n_files: How many figures' files were written.
        n_here: How many calls of a plotter were drawn in this process instead of a child.
        n_started: How many child processes a plotter started.
        stride: The run evaluates only events whose number is a multiple of this.
        spent_s: The time the run has spent on the query, in seconds.
        ended: Whether no more records can arrive.
    """

    n_events: int = 0
    n_records: int = 0
    n_waiting: int = 0
    n_dropped: int = 0
    n_lost: int = 0
    n_thinned: int = 0
    n_forgotten: int = 0
    n_skipped: int = 0
    n_unpaired: int = 0
    n_errors: int = 0
    last_error: str = ""
    n_failures: int = 0
    n_bytes: int = 0
    n_files: int = 0
    n_here: int = 0
    n_started: int = 0
    stride: int = 1
    spent_s: float = 0.0
    ended: bool = False

    def __repr__(self) -> str:
        """Show the counts that say something."""
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return f"Statistics({', '.join(f'{name}={value!r}' for name, value, default in values if value != default)})"


def statistics_of(stream: StreamInfo) -> Statistics:
    """Return the counts in what a run says about a stream."""
    return Statistics(**{name: getattr(stream, name) for name in Statistics.__slots__ if hasattr(stream, name)})


def total_of(several: Iterable[Statistics]) -> Statistics:
    """Return the counts of several streams together; texts, the stride and the end are not of all, and left out."""
    every = list(several)
    names = [one.name for one in fields(Statistics) if one.name.startswith("n_") or one.name == "spent_s"]
    return Statistics(**{name: sum(getattr(each, name) for each in every) for name in names})


def coverage_of_counts(counts: Statistics, *, reduces: bool) -> tuple[str, int]:
    """Return how much of what happened a stream has, as a sentence, and how many records and events it lacks.

    Args:
        counts: The counts of the stream.
        reduces: Whether its records are windows: then events that are missing make windows incomplete.

    >>> coverage_of_counts(Statistics(n_events=166, n_records=166, n_skipped=1834), reduces=False)
    ('166 of 2,000: 1,834 skipped by the budget', 1834)
    >>> coverage_of_counts(Statistics(n_events=166, n_records=16, n_skipped=1834, n_lost=4), reduces=True)
    ('16 of 20: 4 lost on the way; of 166 of 2,000 events: 1,834 skipped by the budget', 1838)
    >>> coverage_of_counts(Statistics(n_events=20, n_records=20), reduces=False)
    ('all 20', 0)
    """
    records = {
        # What the run drops is mostly a gap in the numbers, too.
        "lost on the way": max(0, counts.n_lost - counts.n_dropped),
        "thinned by the run": counts.n_thinned,
        "thinned here": counts.n_forgotten,
    }
    events = {
        "skipped by the budget": counts.n_skipped,
        "dropped for lack of room": counts.n_dropped,
        "failed": counts.n_errors,
        "without a partner": counts.n_unpaired,
    }
    n_held = counts.n_records - counts.n_forgotten
    if not reduces:
        return _part_of(n_held, {**events, **records}), sum(events.values()) + sum(records.values())
    of_events = f"; of {_part_of(counts.n_events, events, ' events')}" if any(events.values()) else ""
    return _part_of(n_held, records) + of_events, sum(events.values()) + sum(records.values())


def _part_of(n: int, missing: Mapping[str, int], what: str = "") -> str:
    """Return "166 of 2,000: 1,834 skipped by the budget", or "all 20"."""
    why = ", ".join(f"{n_missing:,} {reason}" for reason, n_missing in missing.items() if n_missing)
    return f"{n:,} of {n + sum(missing.values()):,}{what}: {why}" if why else f"all {n:,}{what}"


# Count what failed in the background, and warn about the first of each kind.

MAX_KINDS: Final = 100  # of messages that are remembered, so that errors with ever new texts take no memory


class Failures:
    """The failures of one part of the program that works in the background.

    Attributes:
        where: The name of the part, for warnings.
        n: How many there were.
        last: The newest, as text; empty before the first.
    """

    __slots__ = ("_warned", "last", "n", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.n = 0
        self.last = ""
        self._warned: set[str] = set()

    def add(self, error: BaseException, what: str, *, warn: bool = True) -> None:
        """Count an error, and warn if it is the first with this text.

        Args:
            error: The error.
            what: What it cost, such as "the stream 'batch.loss' is closed".
            warn: Whether to warn; `False` if the user knows already.
        """
        self.n += 1
        self.last = f"{what}: {message(error)}"
        if warn and self.last not in self._warned and len(self._warned) < MAX_KINDS:
            self._warned.add(self.last)
            errors.warn(f"{self.where}: {self.last}")
