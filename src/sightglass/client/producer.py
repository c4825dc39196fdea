"""What a stream is made of: the producer that fills its buffer, and what producers see of other streams."""

from __future__ import annotations

from typing import Protocol

from sightglass.core.counts import Statistics
from sightglass.core.record import Restart
from sightglass.core.source import Source

from .record_buffer import RecordBuffer


class RecordProducer(Protocol):
    """Produces the records of one stream."""

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records to the buffer, without waiting. Only one thread calls this at a time."""

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group.

        Raises:
            QueryError: The stream has no reducer that groups close.
        """

    def close(self) -> None:
        """Stop producing records."""

    def statistics(self) -> Statistics:
        """Return what the producer counts; the stream adds what its buffer counts."""


class AnyStream(Source, Protocol):
    """What a derived stream, or a file, needs of the stream it reads."""

    @property
    def query(self) -> str:
        """The canonical text of the query; empty for a derived stream."""

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where the records of a restarted run begin."""

    @property
    def error(self) -> Exception | None:
        """Why the stream failed, or `None`."""

    def end_group(self) -> None:
        """Close the open group."""

    def statistics(self) -> Statistics:
        """Return the counts of the stream."""
