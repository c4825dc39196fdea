"""What views read from: the records of one series, live or recorded."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .columns import Columns, Restart


@runtime_checkable
class Source(Protocol):
    """The records of one series, live or recorded, in the order they were made.

    A source may also have `note`, `run_id`, `run_ids`, `client` and `restarts`, as streams have.
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


def members_of(source: Source) -> tuple[Source, ...] | None:
    """Return the sources of single runs that a source is made of so far; `None` if it is not made of others."""
    members: tuple[Source, ...] | None = getattr(source, "members", None)
    return members


def restarts_of(source: Source) -> tuple[int, ...]:
    """Return the numbers of the first records of runs that began again under the name of a source's run."""
    return tuple(restart.index for restart in restarts_of_runs(source))


def restarts_of_runs(source: Source) -> tuple[Restart, ...]:
    """Return where runs that began again under the name of a source's run have their first records, and their ids."""
    restarts: tuple[Restart, ...] = getattr(source, "restarts", ())
    return restarts


def runs_of(source: Source) -> list[str]:
    """Return the ids of the runs that make the records of a source, in order, as far as they are known."""
    known: tuple[str, ...] = getattr(source, "run_ids", ())
    return list(dict.fromkeys((*known, *made_by(source))))


def made_by(source: Source) -> list[str]:
    """Return the ids of the runs that made the records of a source so far, in order; "" if the first is not known."""
    first = str(getattr(source, "run_id", ""))
    return [first, *(restart.run_id for restart in restarts_of_runs(source))]


def client_of(source: Source) -> object:
    """Return what all sources of one client of a program have in common; `None` if it is not known."""
    return getattr(source, "client", None)
