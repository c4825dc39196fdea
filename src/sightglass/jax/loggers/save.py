"""Logs into record files, which `sightglass.open` reads."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from sightglass.core.clock import SystemClock
from sightglass.core.errors import StorageError
from sightglass.core.record import Record
from sightglass.storage.align import moments
from sightglass.storage.file_names import OWN_NAME, SUFFIX
from sightglass.storage.record_sink import RecordSink
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.write.writer import RecordWriter

from .record_sink import SinkLogger


class SaveLogger(SinkLogger):
    """Writes record files into `path`; named lanes have a subdirectory each.

    Args:
        path: A directory, created at the first log.
        overwrite: Whether to remove existing records at the first log. No other files in the directory are touched.

    Raises:
        StorageError: `path` is not a directory, or not empty and `overwrite` is false.
    """

    def __init__(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        self._path = Path(path)
        if self._path.exists() and not self._path.is_dir():
            raise StorageError(f"{str(self._path)!r} is not a directory")
        if not overwrite and self._path.is_dir() and any(self._path.iterdir()):
            raise StorageError(
                f"{str(self._path)!r} is not empty: choose another path, or replace the records in it with "
                "SaveLogger(path, overwrite=True)"
            )
        self._cleared = False
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Open the record files of a lane."""
        if not self._cleared:
            self._cleared = True
            for file in _records_in(self._path):
                file.unlink()
        return _RecordFiles(self._path / name, name)


class _RecordFiles:
    """The record files of one lane."""

    def __init__(self, path: Path, name: str) -> None:
        self._run_file = RunFile(
            name=name or path.resolve().name, started=SystemClock.wall(), host=platform.node(), pid=os.getpid()
        )
        self._directory = RunDirectory(path, shared=True, about=lambda: self._run_file)
        self._writer = RecordWriter(self._directory.open, clock=SystemClock())
        self._n = 0

    def write(self, records: Sequence[Record]) -> None:
        for moment in moments(records):
            self._writer.log(self._n, moment.step, moment.wall_time, moment.values, moment.steps or None)
            self._n += 1

    def flush(self, timeout_s: float) -> None:
        self._writer.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        try:
            self._writer.close(timeout_s)
        finally:
            own = self._run_file
            ended = RunFile(
                name=own.name, started=own.started, host=own.host, pid=own.pid, ended=SystemClock.wall(),
                state="ended", events={"log": self._n},
            )  # fmt: skip
            self._directory.end(lambda: ended)


def _records_in(path: Path) -> Iterator[Path]:
    """Yield the record files and run files of a directory and its subdirectories."""
    folders = [path, *(entry for entry in path.iterdir() if entry.is_dir())] if path.is_dir() else []
    for folder in folders:
        for file in folder.iterdir():
            if file.suffix == SUFFIX or OWN_NAME.fullmatch(file.name):
                yield file
