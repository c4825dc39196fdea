"""What a part of a recording is: one file, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from sightglass.core.columns import Columns
from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import BlockEntry
from sightglass.storage.format.framing import Damage
from sightglass.storage.tensors.slices import Index

FILE_NAME: Final = re.compile(r"(\d{1,18})-rank(\d{1,9})-(\d{1,9})\.sgr")


class RecordFile(Protocol):
    """One file of a recording, whoever wrote it.

    Attributes:
        path: The file.
        dialect: "sightglass", "mindspore" or "tensorboard".
        rank: Which process of the run wrote it.
        started: When that process began, in seconds since the Unix epoch.
        number: Which of its files this is.
        stored_as: The dtype that numbers were stored as whatever they were, such as "float32", or empty.
        damages: What was found to be damaged so far.
        torn: How many bytes at the end are no whole frame yet.
    """

    path: Path
    dialect: str
    rank: int
    started: float
    number: int
    stored_as: str

    @property
    def torn(self) -> int:
        """How many bytes at the end are no whole frame yet."""

    @property
    def damages(self) -> Sequence[Damage]:
        """What was found to be damaged so far."""

    def entries(self) -> Mapping[Key, Sequence[BlockEntry]]:
        """Return the blocks of each series."""

    def refresh(self) -> bool:
        """Look for growth, and tell whether there is any; torn tails and damage are no exceptions."""

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: It is not what was written.
        """

    def load_slice(self, entry: BlockEntry, row: int, index: Index | str) -> Any:
        """Read a part of the array that one record of a block is.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: There is no such part, or the record is no array.
        """

    def close(self) -> None:
        """Close the file."""


def name_of(path: Path) -> tuple[float, int, int] | None:
    """Return when the process of a file began, its rank and the file's number, as the file's name tells.

    >>> name_of(Path("1700000000500-rank3-0001.sgr"))
    (1700000000.5, 3, 1)
    """
    match = FILE_NAME.fullmatch(path.name)
    return (int(match[1]) / 1000, int(match[2]), int(match[3])) if match else None
