"""What the names of record files say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SEGMENT: Final = re.compile(r"(\d{1,18})-rank(\d{1,9})-(\d{1,9})\.sgr")


def name_of(path: Path) -> tuple[float, int, int] | None:
    """Return when the process of a file began, its rank and the file's number, from the name of the file.

    >>> name_of(Path("1700000000500-rank3-0001.sgr"))
    (1700000000.5, 3, 1)
    """
    match = SEGMENT.fullmatch(path.name)
    return (int(match[1]) / 1000, int(match[2]), int(match[3])) if match else None


def rank_of(path: Path) -> int | None:
    """Return the rank of the process that wrote a file, from its name; `None` if the name does not say."""
    named = name_of(path)
    if named is not None:
        return named[1]
    from .foreign import mindspore  # which a run that writes its own files does without

    found = mindspore.parse_name(path.name)
    return found[1] if found is not None else None
