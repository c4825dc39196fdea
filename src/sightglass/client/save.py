"""Save a stream into a record file, as it arrives."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from sightglass.core.columns import of_records
from sightglass.core.errors import SightglassError, StorageError
from sightglass.core.record import Record
from sightglass.core.threads import Background
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import SegmentWriter

from .arrivals import arrivals, follow
from .producer import AnyStream

_open: weakref.WeakSet[Saving] = weakref.WeakSet()


class Saving:
    """A stream that is being saved: every record from the oldest in memory, until the stream ends.

    Attributes:
        path: The file; `sightglass.open` opens it.
        n_records: How many records the file holds.
    """

    def __init__(self, stream: AnyStream, path: str | os.PathLike[str]) -> None:
        """Start to save.

        Raises:
            FileExistsError: The file exists already.
            OSError: The file cannot be created.
        """
        self.path = Path(path)
        self.n_records = 0
        self._stream = stream
        self._writer = SegmentWriter(self.path, wall_time=time.time())
        self._n_rows: dict[Key, int] = {}
        self._closed = False
        self._thread = Background("saving", self._run)
        _open.add(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream has ended and the file holds all its records; return whether it does."""
        return self._thread.join(timeout_s)

    def close(self) -> None:
        """Save the records that have arrived, and close the file.

        Raises:
            StorageError: The file could not be written.
            UnsendableError: A value has a type that cannot be saved; the file holds the records before it.
            Exception: An error of the stream's own stages.
        """
        self._closed = True
        arrivals.notify()
        _open.discard(self)
        self._thread.close(timeout_s=None)

    def __enter__(self) -> Saving:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Saving {self._stream.tag!r} into {str(self.path)!r}, {self.n_records} records>"

    def _run(self) -> None:
        try:
            self._save(())  # the file exists from the start, also when no record arrives
            for records in follow(self._stream, stopped=lambda: self._closed):
                self._save(records)
        finally:
            self._writer.close()

    def _save(self, records: Sequence[Record]) -> None:
        for key, part in self._parts(records):
            self._writer.append(key, of_records(part))
        try:
            self._writer.flush()
        except OSError as error:
            raise StorageError(f"Cannot save {self._stream.tag!r} into {str(self.path)!r}: {error}") from error
        self.n_records += len(records)

    def _parts(self, records: Sequence[Record]) -> Iterator[tuple[Key, list[Record]]]:
        """Split records by their series, and where their index numbers have a gap."""
        for (tag, run), group in groupby(records, lambda record: (record.tag, record.run)):
            own = tag == self._stream.tag and run == self._stream.run
            if own:
                query = self._stream.query
                key = Key(kind="stream" if query else "logged", tag=tag, query=query)
                part = list(group)
            else:  # a record of one of the streams that were joined
                key = Key(kind="logged", tag=f"{run}/{tag}")
                part = [replace(record, index=self._n_rows.get(key, 0) + i) for i, record in enumerate(group)]
            self._n_rows[key] = part[-1].index + 1
            for _, consecutive in groupby(enumerate(part), lambda pair: pair[1].index - pair[0]):
                yield key, [record for _, record in consecutive]


def _close_all() -> None:
    for saving in list(_open):
        with contextlib.suppress(SightglassError):  # its thread has warned about it
            saving.close()


atexit.register(_close_all)
