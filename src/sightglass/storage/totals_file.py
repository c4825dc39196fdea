"""The file of a run's totals: `.sightglass-totals` beside its record files, written by the run and by its readers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from . import cache_file
from .format.totals import RunTotals, decode, encode

NAME: Final = ".sightglass-totals"
MAX_FILE_BYTES: Final = 16 * 2**20


def write(directory: Path, totals: RunTotals, *, rank: int | None) -> None:
    """Keep the totals of a run beside its files.

    Raises:
        OSError: They cannot be written.
        UnicodeEncodeError: A tag has half of a surrogate pair.
    """
    cache_file.write(directory, _name(rank), encode(totals), like=next(iter(totals.files)))


def keep(directory: Path, totals: RunTotals, *, rank: int | None) -> None:
    """Keep the totals of a run beside its files, else in the cache folder; if neither is possible, do nothing."""
    with contextlib.suppress(UnicodeEncodeError):
        cache_file.keep(directory, _name(rank), encode(totals), like=next(iter(totals.files)))


def kept(directory: Path, *, rank: int | None) -> RunTotals | None:
    """Return the totals that are kept, whichever files they are of."""
    data = cache_file.kept(directory, _name(rank), max_bytes=MAX_FILE_BYTES)
    return None if data is None else decode(data)


def _name(rank: int | None) -> str:
    return NAME if rank is None else f"{NAME}-rank{rank}"
