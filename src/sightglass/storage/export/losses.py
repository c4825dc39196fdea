"""Counts of the records that an export left out or changed, by tag and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sightglass.core.columns import Columns
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .atomic_file import count

Counts = Mapping[tuple[str, str, str, bool], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that are missing from the files, or changed in them.

    Attributes:
        run: The name of the run.
        tag: The tag.
        n: How many records.
        why: The reason.
        left_out: Whether they are missing; otherwise they were changed.
    """

    run: str
    tag: str
    n: int
    why: str
    left_out: bool = True

    def __str__(self) -> str:
        return f"{'left out' if self.left_out else 'changed'} {self.tag!r} of {self.run}: {count(self.n)}: {self.why}"


class Losses:
    """Counts the records that are left out or changed, by run, tag and reason."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, bool], int] = {}

    def add(self, run: str, tag: str, why: str, n: int = 1, *, left_out: bool = True) -> None:
        """Count records."""
        key = run, tag, why, left_out
        self._counts[key] = self._counts.get(key, 0) + n

    def not_values(self, run: str, recording: Recording) -> None:
        """Count the records that are neither logged values nor records of queries."""
        kinds = {"groups": "ends of groups", "commands": "the history of commands", "snapshot": "snapshots of events"}
        for key in recording.keys():  # noqa: SIM118  not a mapping
            if key.kind in kinds:
                self.add(run, key.tag, f"{kinds[key.kind]} are not exported", recording.series(key).n)
        for part in recording.parts:
            for what, n in part.passed_over.items():
                self.add(run, what, "values of this kind are not read", n)

    def all(self) -> list[Loss]:
        """Return every count."""
        return [
            Loss(run=run, tag=tag, n=n, why=why, left_out=left_out)
            for (run, tag, why, left_out), n in self._counts.items()
        ]

    def restore(self, counts: Counts) -> None:
        """Return to the counts that `save` returned."""
        self._counts = dict(counts)

    def save(self) -> Counts:
        """Return a copy of the counts for `restore`."""
        return dict(self._counts)


def blocks(name: str, series: Series, run: str, losses: Losses) -> Iterator[Columns]:
    """Yield the blocks of a series, and count the records that are damaged."""
    n = 0
    for columns in series.blocks():
        n += len(columns)
        yield columns
    if n < series.n:
        losses.add(run, name, "they are damaged; `sightglass check` shows where", series.n - n)
