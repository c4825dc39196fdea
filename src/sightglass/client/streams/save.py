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

from sightglass.client.resumable_stream import AnyStream
from sightglass.core.columns import Record, of_records
from sightglass.core.errors import StorageError, cut, warn
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message as message_of
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import SegmentWriter

from .arrivals import WAIT_S, arrivals

_open: weakref.WeakSet[Saving] = weakref.WeakSet()


class Saving:
    """A stream that is being saved: every record from the oldest in memory, until the stream ends.

    A value that cannot be saved costs its record. While the file cannot be written, for example because the disk is
    full, records wait in the stream.

    Attributes:
        path: The file; `sightglass.open` opens it.
        n_lost: How many records could not be saved.
    """

    def __init__(self, stream: AnyStream, path: str | os.PathLike[str], *, worker: type[Worker] = Worker) -> None:
        """Start to save; `worker` runs the rounds.

        Raises:
            FileExistsError: The file exists already.
            OSError: The file cannot be created.
        """
        self.path = Path(path)
        self.n_lost = 0
        self._stream = stream
        self._writer = SegmentWriter(self.path, wall_time=time.time())
        self._error: BaseException | None = None
        self._problem: StorageError | None = None
        self._n_rows: dict[Key, int] = {}
        self._cursor = self._seen = 0
        self._closed = self._over = False
        self._worker = worker("saving", self.round, wait=self._wait, wake=arrivals.notify)
        self._worker.wake()
        _open.add(self)

    @property
    def n_records(self) -> int:
        """How many records the file holds."""
        return self._writer.n_rows

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream has ended and its records are saved or lost; return whether they are."""
        return self._worker.join(threading.TIMEOUT_MAX if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Save the records that have arrived, and close the file.

        Raises:
            StorageError: The file could not be written.
            UnsendableError: A value has a type that cannot be saved; the file holds the other records.
            Exception: An error of the stream's own stages.
        """
        self._closed = True
        _open.discard(self)
        self._worker.close(threading.TIMEOUT_MAX)
        error = self._error or self._problem
        self._error = self._problem = None
        if error is not None:
            raise error

    def __enter__(self) -> Saving:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Saving {cut(self._stream.tag)!r} into {str(self.path)!r}, {self.n_records} records>"

    def round(self, now_s: float) -> float | None:
        """Save the records that have arrived."""
        self._seen, closed = arrivals.n, self._closed  # before reading: later records are for the next round
        records = () if self._writer.n_waiting else self._read()
        for key, part in self._parts(records):
            self._append(key, part)
        self._flush()
        if records and not self._problem:
            return 0.0
        if not (closed or self._over or self._writer.given_up):
            return WAIT_S
        self.n_lost += self._writer.n_waiting
        self._writer.close()
        return None

    def _wait(self, rest_s: float) -> None:
        arrivals.wait(self._seen, rest_s)

    def _read(self) -> Sequence[Record]:
        """Return the new records of the stream."""
        try:
            over = self._stream.ended
            self._cursor, columns = self._stream.since(self._cursor)
            records = columns.records(tag=self._stream.tag, run=self._stream.run)
        except BaseException as error:  # noqa: BLE001  a stage of the stream may raise anything
            self._fail(error, "ends, because a stage of the stream failed")
            over, records = True, []
        self._over = over
        return records

    def _append(self, key: Key, records: Sequence[Record]) -> None:
        """Queue consecutive records for the file; of those that cannot be saved, each is lost alone."""
        try:
            self._writer.append(key, of_records(records))
        except Exception as error:  # noqa: BLE001  values may be of any type
            if len(records) == 1:
                self.n_lost += 1
                self._fail(error, "lost a record")
            else:
                for record in records:
                    self._append(key, [record])

    def _flush(self) -> None:
        """Write what waits. What cannot be written waits for the next round."""
        try:
            self._writer.flush()
            self._problem = None
        except OSError as error:
            if self._problem is None:
                self._warn(error, "cannot write, and tries again")
            self._problem = StorageError(f"Cannot save {cut(self._stream.tag)!r} into {str(self.path)!r}: {error}")

    def _fail(self, error: BaseException, what: str) -> None:
        """Keep the first error, and warn about it."""
        if self._error is None:
            self._error = error
            self._warn(error, what)

    def _warn(self, error: BaseException, what: str) -> None:
        message = f"Saving {cut(self._stream.tag)!r} {what}: {message_of(error)}"
        warn(message)

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
        with contextlib.suppress(BaseException):  # it has warned of the error
            saving.close()


atexit.register(_close_all)
