"""What views read from: the records of one series, live or recorded."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .columns import Columns
from .record import Restart


@runtime_checkable
class Source(Protocol):
    """The records of one series, live or recorded, in the order they were made.

    A source may also have `note` and `restarts`, as streams have: views show them.
    """

    @property
    def tag(self) -> str:
        """The name of the series."""

    @property
    def run(self) -> str:
        """The name of the run."""

    @property
    def ended(self) -> bool:
        """Whether no further record can arrive."""

    def since(self, cursor: int, /) -> tuple[int, Columns]:
        """Return the records from a number on, without waiting, and the cursor for the next call; begin with 0."""


def note_of(source: Source) -> str:
    """Return a source's remark, for example what it waits for; "" if it has none."""
    return str(getattr(source, "note", None) or "")


def restarts_of(source: Source) -> tuple[int, ...]:
    """Return the numbers of the first records of runs that began again under the name of a source's run."""
    restarts: tuple[Restart, ...] = getattr(source, "restarts", ())
    return tuple(restart.index for restart in restarts)
