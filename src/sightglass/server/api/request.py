"""The argument of an endpoint, and the reply that is not JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

from sightglass.server.access import Visitor
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage.read.recording import Series

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request.

    Attributes:
        runs: The runs.
        visitor: Who sent it.
        key: The key of the run in the path, or empty.
    """

    runs: Runs
    visitor: Visitor
    key: str = ""

    async def read(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function that reads files, in the pool for that."""
        return await asyncio.get_running_loop().run_in_executor(self.runs.file_pool, work, *arguments)

    async def query(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function that queries a live run, in the pool for that."""
        return await asyncio.get_running_loop().run_in_executor(self.runs.live_pool, work, *arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A reply that is not JSON: its bytes, their media type, and the file name to save it under."""

    data: bytes
    media_type: str
    name: str = ""


@contextmanager
def series_of(source: ServedRun, tag: str, *, like: Series | None = None) -> Iterator[tuple[OpenFiles, Series]]:
    """Open a run's files and find a series, up to date.

    Args:
        source: The run.
        tag: The name of the series.
        like: A series of the kind that is looked for, if the tag has several.

    Raises:
        UnknownNameError: There is no such series, or not of this kind. Others as in `ServedRun.borrow`.
    """
    with source.borrow() as files:
        recording = files.recording
        with recording.lock:
            if recording.changed():
                recording.refresh()
            series = recording.series(tag) if like is None else recording.series_like(tag, like)
        yield files, series
