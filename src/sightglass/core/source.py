"""What views read from: the records of one series, live or recorded."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .columns import Columns


@runtime_checkable
class Source(Protocol):
    """The records of one series, live or recorded, in the order they were made."""

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
