"""What `ask` returns: the values of a query, and what they stand for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sightglass.core.columns import Record
from sightglass.core.counts import coverage_of_counts
from sightglass.core.errors import cut

if TYPE_CHECKING:
    from .stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(Sequence[Any]):
    """The newest values of a query, the oldest first. Returned by `ask`.

    Attributes:
        records: Their records, with the step and the time of each.
        coverage: What they stand for: "all 20", or how much is missing, and why.
        n_missing: How many records and events are missing; 0 if the answer is of all.
    """

    records: Sequence[Record]
    coverage: str
    n_missing: int

    @property
    def value(self) -> Any:
        """The newest value."""
        return self.records[-1].value

    def __getitem__(self, i: Any) -> Any:
        return [record.value for record in self.records[i]] if isinstance(i, slice) else self.records[i].value

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        values = ", ".join(f"{value!r:.200}" for value in self)
        return f"<Answer [{values}] at step {self.records[-1].step}; {self.coverage}>"


def answer_of(stream: Stream, n: int, timeout_s: float) -> Answer:
    """Return the newest records of a stream, once it has so many, or has ended.

    Raises:
        TimeoutError: None came in time, or the stream ended without one; the message says what it waits for.
    """
    until_s = time.monotonic() + timeout_s
    with contextlib.suppress(TimeoutError):
        came = stream.wait(n, timeout_s=timeout_s)
        if came and stream.reduces and not came[0].complete:  # it began in the middle of a window
            stream.wait(n + 1, timeout_s=max(0.0, until_s - time.monotonic()))
    records = stream.records()[-n:]
    if not records:
        when = "before the run ended" if stream.ended else f"within {timeout_s:g} s"
        raise TimeoutError(f"No record of {cut(stream.tag)!r} {when}{stream.note and f': {stream.note}'}")
    coverage, n_missing = coverage_of_counts(stream.statistics(), reduces=stream.reduces)
    if len(records) < n:
        why = "there are no more" if stream.ended else f"the others did not come within {timeout_s:g} s"
        coverage = f"{len(records):,} of {n:,} that were asked for: {why}; {coverage}"
    return Answer(records=records, coverage=coverage, n_missing=n_missing)
