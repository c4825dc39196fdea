"""Jobs that memory has no room for, in temporary files: nothing of them stays behind, however the program ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sightglass.core.codec import Buffer

from . import pipe
from .messages import DrawFigure

MAX_FILE_BYTES: Final = 64 * 2**20  # a file is freed once all jobs in it are read, so the disk holds little more


class SpillFile:
    """A temporary file, closed and so freed when nothing refers to it any more.

    Attributes:
        raw: The file, without a buffer.
        end: Where the next job begins.
    """

    def __init__(self, folder: bytes) -> None:
        """Make the file.

        Args:
            folder: Where, on whose disk it takes room; empty for the system's temporary folder.

        Raises:
            OSError: No such folder can be made, or no file in it.
        """
        if folder:
            os.makedirs(folder, exist_ok=True)
        self.raw: Any = tempfile.TemporaryFile(buffering=0, dir=os.fsdecode(folder) or None)  # noqa: SIM115
        self.end = 0
        weakref.finalize(self, self.raw.close)


@dataclass(frozen=True, slots=True)
class Spilled:
    """A job in a file: where its frame begins."""

    file: SpillFile
    start: int

    def read(self) -> tuple[DrawFigure, list[memoryview]]:
        """Return the message and the large arrays.

        Raises:
            OSError: The disk fails.
        """
        self.file.raw.seek(self.start)
        message, following = pipe.read(self.file.raw) or (None, bytearray())
        if not isinstance(message, DrawFigure):
            raise OSError("the temporary file of a figure has lost its end")
        return message, pipe.parts(following, [size for _, size in message.spans])


class SpillFiles:
    """Takes jobs, one file after the other; the caller holds a lock."""

    def __init__(self) -> None:
        """Make no file yet."""
        self._file: SpillFile | None = None

    def write(self, message: DrawFigure, buffers: Sequence[Buffer], folder: bytes) -> Spilled:
        """Write a job behind those before.

        Args:
            message: The job; its spans tell the sizes of the large arrays.
            buffers: The large arrays.
            folder: Where to make a new file, see `SpillFile`.

        Raises:
            OSError: There is no room, or no file can be made.
        """
        if self._file is None or self._file.end > MAX_FILE_BYTES:
            self._file = SpillFile(folder)
        file = self._file
        file.raw.seek(file.end)  # what was written of a job that the disk had no room for is written over
        for part in pipe.frame(message, buffers):
            view = memoryview(part).cast("B")
            while len(view):
                view = view[file.raw.write(view) :]
        spilled, file.end = Spilled(file, file.end), file.raw.tell()
        return spilled

    def forget(self) -> None:
        """Begin a new file with the next job."""
        self._file = None
