"""What takes records: event files, a run of W&B, or a class of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sightglass.core.record import Record


@runtime_checkable
class RecordSink(Protocol):
    """Receives records; all calls come from one thread."""

    def write(self, records: Sequence[Record], /) -> None:
        """Write records, in order; records of the same event or step are consecutive."""

    def flush(self, timeout_s: float, /) -> None:
        """Write everything to its destination."""

    def close(self, timeout_s: float, /) -> None:
        """Write the remaining records and close."""
