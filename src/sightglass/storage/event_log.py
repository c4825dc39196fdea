"""An event file of another program that grows, event by event."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import IO

from sightglass.core.clock import SystemClock
from sightglass.core.errors import UnsendableError
from sightglass.core.unpatched import threading

from .foreign.event_encoding import Encoded
from .format.framing import frame
from .format.summary import encode_version


class EventLog:
    """Writes events to a file in a folder, which the first events create; from any thread.

    Args:
        folder: The folder.
        version: What the file's first event says that it is.
        name: Returns the n-th name for a file that begins at a time, in seconds since the Unix epoch: the first one
            that is not taken.
    """

    def __init__(self, folder: str | os.PathLike[str], *, version: str, name: Callable[[float, int], str]) -> None:
        self._folder = Path(folder)
        self._version = version
        self._name = name
        self._file: IO[bytes] | None = None
        self._lock = threading.RLock()

    def write(self, events: Iterable[Encoded]) -> None:
        """Write events; each is encoded when its turn has come.

        Raises:
            OSError: The file cannot be written.
            UnsendableError: An event lacks a value, because the format does not support it.
        """
        problems: dict[str, str] = {}
        with self._lock:
            file = self._file or self._open()
            for message, left_out in events:
                problems |= left_out
                if message:
                    file.writelines(frame(message))
            file.flush()
        if problems:
            raise UnsendableError("; ".join(f"{tag!r}: {why}" for tag, why in problems.items()))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        started = SystemClock.wall()
        for n in count():
            try:
                file = (self._folder / self._name(started, n)).open("xb")
                break
            except FileExistsError:
                continue
        self._file = file
        file.writelines(frame(encode_version(self._version, started)))
        return file
