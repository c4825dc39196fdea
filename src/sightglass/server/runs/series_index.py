"""The series of a run as its files' indices know them: fast for thousands of series, since no record is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import BlockEntries
from sightglass.storage.format.series_names import in_order, kind_of
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesInfo:
    """Facts about a series.

    Attributes:
        n: The number of records.
        first_step: The step of the first record; `None` if the series is empty.
        last_step: The step of the last record.
        type: The type of the latest value.
        logged_as: The dtype that arrays had when they were logged, if they are stored as another.
        stored_as: The dtype that all numbers are stored as, whatever they were, or empty.
    """

    n: int
    first_step: float | None
    last_step: float | None
    type: str
    logged_as: str = ""
    stored_as: str = ""


def is_scalar(type: str) -> bool:
    """Return whether a type, as a series names it, is that of a number."""
    return kind_of(type) == "scalar"


def series_infos(recording: Recording) -> dict[Key, SeriesInfo]:
    """Return the facts of all series. The caller holds the recording's lock."""
    if len({part.started for part in recording.parts}) > 1:  # the later process hides rows of the earlier
        keys = recording.keys()
        return {key: _of_series(recording.series(key)) for key in keys}
    found: dict[Key, list[BlockEntries]] = {}
    for part in recording.parts:
        for key, entries in part.entries().items():
            if len(entries):
                found.setdefault(key, []).append(BlockEntries.of(key, entries))
    return {key: _of_entries(found[key]) for key in sorted(found, key=in_order)}


def _of_entries(several: Sequence[BlockEntries]) -> SeriesInfo:
    rows, last = [entries.rows for entries in several], several[-1]
    return SeriesInfo(
        n=sum(int(part["n"].sum()) for part in rows),
        first_step=float(rows[0]["first_step"][0]),
        last_step=float(rows[-1]["last_step"][-1]),
        type=last.types[last.rows["type"][-1]],
        logged_as=last.logged_as,
        stored_as=last.stored_as,
    )


def _of_series(series: Series) -> SeriesInfo:
    first, last = series.span or (None, None)
    return SeriesInfo(n=len(series), first_step=first, last_step=last, type=series.type)
