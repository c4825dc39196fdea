"""What views read from: the records of one series, live or recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .record import Record


@runtime_checkable
class Source(Protocol):
    """The records of one series, live or recorded, in the order they were made."""

    @property
    def tag(self) -> str:
        """The name of the series."""

    @property
    def ended(self) -> bool:
        """Whether no further record can arrive."""

    def since(self, cursor: int, /) -> tuple[int, Sequence[Record]]:
        """Return the records after a cursor without waiting, and the cursor for the next call; begin with 0."""
