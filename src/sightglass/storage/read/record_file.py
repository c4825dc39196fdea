"""The interface of one file of a recording, whichever program wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sightglass.core.columns import Columns
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.index import BlockEntry, SessionStart
from sightglass.storage.tensors.slices import Index


class RecordFile(Protocol):
    """One file of a recording, whichever program wrote it.

    Attributes:
        path: The file.
        dialect: "sightglass", "mindspore", "tensorboard", "wandb", "mlflow" or "trackio".
        rank: The rank of the process that wrote it.
        started: When that process began, in seconds since the Unix epoch.
        number: The position of this file among those of its process.
        stored_as: The dtype that the file stores all numbers as, such as "float32", or empty.
        damages: The damage found so far.
        torn: How many bytes at the end are not a whole frame yet.
        stale: Whether it has to be opened again: the system no longer knows the file, or damage has gone from it.
    """

    path: Path
    dialect: str
    rank: int
    started: float
    number: int
    stored_as: str

    @property
    def torn(self) -> int:
        """How many bytes at the end are not a whole frame yet."""

    @property
    def session_starts(self) -> Sequence[SessionStart]:
        """Where the program says that it starts again."""

    @property
    def told(self) -> Mapping[str, Any]:
        """What the file says of its run, as fields of `run_file.RunFile`; empty where other files say it."""

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many values cannot be shown, by what they are."""

    @property
    def damages(self) -> Sequence[Damage]:
        """The damage found so far."""

    @property
    def stale(self) -> bool:
        """Whether it has to be opened again, from what was read of it so far."""

    @property
    def replaced(self) -> bool:
        """Whether it is stale, or another file has its path now, such as the compacted one."""

    def entries(self) -> Mapping[Key, Sequence[BlockEntry]]:
        """Return the blocks of each series."""

    def blocks(self) -> Mapping[Key, Sequence[BlockEntry]]:
        """Return the blocks as they lie in the file: those of many series under one key."""

    def sources(self, key: Key) -> tuple[Key, ...]:
        """Return under which keys of `blocks` a series lies."""

    def refresh(self) -> bool:
        """Look for growth, and return whether there is any; torn tails and damage do not raise."""

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: The block is not what was written.
        """

    def load_slice(self, entry: BlockEntry, row: int, index: Index | str) -> Any:
        """Read a part of an array, the value of one record of a block.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: The array does not have this part, or the value is not an array.
        """

    def revalidate(self) -> None:
        """Learn how long the file is by now, if its writer has closed it."""

    def close(self) -> None:
        """Close the file."""
