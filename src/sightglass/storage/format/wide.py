"""Wide blocks: records of many logged series in one block, which share all columns but their values.

A training that logs a number for each of 100,000 parameters would write as many blocks at each step. A wide block has
the names of up to `MAX_SERIES` series in place of one, and a matrix of values: a row for each record, a column for each
series. What its head says (numbers, steps, times) holds for each of them.

Rule 1: series share a block only if their records have the same numbers, steps and times, and one type of number.
Rule 2: a wide block stands on its own: it has the names, so damage to another one costs it nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from sightglass.core.errors import WireError

from .block import Key

MAX_SERIES: Final = 1_024  # what one series is read with: 8 kB a record; 200,000 series are 196 blocks
TALL_ROWS: Final = 64  # so many rows are written series by series: the head of a block is then a fifth of it
MAX_TAG_CHARS: Final = 160  # names of so many series then fit into a mebibyte, however they are escaped


def key_of(tags: Sequence[str]) -> Key:
    """Return what identifies the wide blocks of some series."""
    return Key(kind="wide", tag=json.dumps(tags, ensure_ascii=False, separators=(",", ":")))


def columns_of(key: Key) -> dict[str, int]:
    """Return which column of a wide block each series has.

    Raises:
        WireError: The block does not name its series.
    """
    try:
        tags = json.loads(key.tag)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, list) or not tags or set(map(type, tags)) != {str}:
        raise WireError("Expected the names of the series of a wide block")
    columns = dict(zip(tags, range(len(tags)), strict=True))
    if len(columns) != len(tags):
        raise WireError("Expected different names of the series of a wide block")
    return columns


def outline(key: Key) -> str:
    """Describe a series, or those of a wide block, for a message.

    >>> outline(key_of(["a", "b", "c"]))
    "3 series from 'a' to 'c'"
    """
    if key.kind != "wide":
        return repr(key.tag)
    tags = [*columns_of(key)]
    return f"{len(tags):,} series from {tags[0]!r} to {tags[-1]!r}"
