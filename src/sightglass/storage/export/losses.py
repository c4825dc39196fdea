"""What an export left out or changed, counted by tag and reason."""

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
    """Records that are not in the files, or not as they were.

    Attributes:
        run: Whose.
        tag: Which.
        n: How many.
        why: What happened to them.
        left_out: Whether they are missing; else they were changed.
    """

    run: str
    tag: str
    n: int
    why: str
    left_out: bool = True

    def __str__(self) -> str:
        return f"{'left out' if self.left_out else 'changed'} {self.tag!r} of {self.run}: {count(self.n)}: {self.why}"


class Losses:
    """Counts what is left out or changed, by run, tag and reason."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, bool], int] = {}

    def add(self, run: str, tag: str, why: str, n: int = 1, *, left_out: bool = True) -> None:
        """Count records."""
        place = run, tag, why, left_out
        self._counts[place] = self._counts.get(place, 0) + n

    def not_values(self, run: str, recording: Recording) -> None:
        """Tell what there is beside logged values and the records of queries."""
        told = {"groups": "ends of groups", "commands": "the history of commands", "snapshot": "snapshots of events"}
        for key in recording.keys():  # noqa: SIM118  no mapping
            if key.kind in told:
                self.add(run, key.tag, f"{told[key.kind]} are not exported", recording.series(key).n)

    def told(self) -> list[Loss]:
        """Return what was counted."""
        return [
            Loss(run=run, tag=tag, n=n, why=why, left_out=left_out)
            for (run, tag, why, left_out), n in self._counts.items()
        ]

    def restore(self, counts: Counts) -> None:
        """Forget what was told since `counts` was taken by `save`."""
        self._counts = dict(counts)

    def save(self) -> Counts:
        """Return what `restore` takes."""
        return dict(self._counts)


def blocks(name: str, series: Series, run: str, losses: Losses) -> Iterator[Columns]:
    """Yield the blocks of a series, and tell how many of its records are damaged."""
    n = 0
    for columns in series.blocks():
        n += len(columns)
        yield columns
    if n < series.n:
        losses.add(run, name, "they are damaged; `sightglass check` tells where", series.n - n)
