"""What a stream is made of: the producer that fills its buffer, and what producers see of other streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sightglass.core.source import Source

from .record_buffer import RecordBuffer

Counts = Mapping[str, Any]
"""What a producer counts: names of `Statistics`, and their values."""


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

    def statistics(self) -> Counts:
        """Return the counts of the producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The counts of a stream, in the client and in the run.

    Attributes:
        n_records: How many records arrived.
        n_lost: How many records were lost on the way, by the gaps in their index numbers.
        n_thinned: How many older records the run left out when the stream was opened: it holds the others of them.
        n_forgotten: How many of the records that arrived this process has dropped from memory, evenly.
        ended: Whether no more records can arrive.
        n_events: How many events the run evaluated for the query.
        n_skipped: How many events the run's budget skipped.
        n_dropped: How many records the run dropped because the client did not read them in time.
        n_errors: How many events failed.
        last_error: The last failure, or empty.
        stride: The run evaluates only events whose number is a multiple of this.
        spent_s: The time the run has spent on the query, in seconds.
        n_failures: How often a part of the run itself failed in the background, which `describe` names, or this
            client's connection, which a warning names.
        n_unpaired: How many records of the first stream of a `zip` have no partner in the others.
        n_waiting: How many records of the first stream of a `zip` may still get a partner.
    """

    n_records: int
    n_lost: int
    n_thinned: int
    n_forgotten: int
    ended: bool
    n_events: int = 0
    n_skipped: int = 0
    n_dropped: int = 0
    n_errors: int = 0
    last_error: str = ""
    stride: int = 1
    spent_s: float = 0.0
    n_failures: int = 0
    n_unpaired: int = 0
    n_waiting: int = 0


class AnyStream(Source, Protocol):
    """What a derived stream, or a file, needs of the stream it reads."""

    @property
    def query(self) -> str:
        """The canonical text of the query; empty for a derived stream."""

    @property
    def error(self) -> Exception | None:
        """Why the stream failed, or `None`."""

    def end_group(self) -> None:
        """Close the open group."""

    def statistics(self) -> Statistics:
        """Return the counts of the stream."""
