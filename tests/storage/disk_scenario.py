"""A training that records onto a disk in memory, and what a user then reads from it. Nothing takes time or a thread."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.simulation.disk import Call, Disk, Fault

from sightglass.core.columns import plain
from sightglass.core.errors import StorageError
from sightglass.core.process.threads import Worker
from sightglass.storage.format import index
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.segment_reader import SegmentReader
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.write import compact, rotation
from sightglass.storage.write.writer import RecordWriter

FOLDER = Path("/runs/one")
N_STEPS = 30
CALL_S = 0.0002  # each call of the disk takes this long, so compaction is done in several slices

Rows = dict[str, dict[int, tuple[float, Any]]]
"""By tag and number: the step and the value."""


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return 1e9 + self.now_s

    def sleep(self, s: float) -> None:
        self.now_s += s


class HandWorker(Worker):
    """Runs the rounds of a loop when it is told to, in place of a thread."""

    def __init__(self, clock: HandClock, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.clock = clock

    def wake(self) -> None:
        pass

    def breathe(self) -> None:  # type: ignore[override]
        pass

    def flush(self, timeout_s: float) -> bool:
        self.supervised.round(self.clock.now_s)
        return True

    def close(self, timeout_s: float) -> bool:
        self.supervised.closing = True
        while self.supervised.round(self.clock.now_s) is not None:
            pass
        return True


class Training:
    """A training that records onto a disk.

    Attributes:
        made: The records it made.
        confirmed: Those that a `flush` or `close` confirmed.
        errors: What `flush` and `close` raised.
    """

    def __init__(self, disk: Disk, clock: HandClock, *, into: Path | None = None) -> None:
        """Begin in a directory of its own, or in one that exists."""
        self.disk, self.clock = disk, clock
        self.made: Rows = defaultdict(dict)
        self.confirmed: Rows = {}
        self.errors: list[StorageError] = []
        self.about = RunFile(name="one", id="0" * 12, started=clock.wall())
        self.directory = RunDirectory(into or FOLDER, shared=into is not None, about=lambda: self.about, files=disk)
        worker: Any = partial(HandWorker, clock)
        self.writer = RecordWriter(self.directory.open, clock=clock, worker=worker, files=disk)

    def run(self, n: int = N_STEPS, *, first: int = 0) -> Training:
        for step in range(first, first + n):
            self.step(step)
            if step % 10 == 9:
                self.confirm(self.writer.flush)
        self.confirm(self.writer.close)
        with contextlib.suppress(OSError):
            self.directory.end(lambda: self.about)
        return self

    def step(self, step: int) -> None:
        values: dict[str, Any] = {"loss": 1.0 / (step + 1), "n": step}
        if step % 4 == 0:
            values["text"] = f"step {step}"
        if step % 8 == 0:
            values["tensor"] = np.arange(step, step + 40, dtype=np.float32)
        for tag, value in values.items():
            self.made[tag][len(self.made[tag])] = (step, plain(value))
        self.writer.log(step, step, self.clock.wall(), values, None)
        self.clock.sleep(0.6)
        self.writer.supervised.round(self.clock.now_s)

    def look(self) -> None:
        """Open the files as a reader does, which leaves indexes beside them."""
        for name in self.disk.contents(FOLDER):
            if name.endswith(".sgr"):
                SegmentReader(FOLDER / name, files=self.disk).close()

    def confirm(self, call: Callable[[float], None]) -> None:
        try:
            call(10.0)
            self.confirmed = {tag: dict(rows) for tag, rows in self.made.items()}
        except StorageError as error:
            self.errors.append(error)

    def check(self, rows: Rows, *, confirmed: Rows | None = None) -> None:
        """Check that records are right, and that those that were confirmed are there."""
        for tag, some in rows.items():
            for number, (step, value) in some.items():
                made = self.made[tag][number]
                assert step == made[0], (tag, number)
                assert np.array_equal(np.asarray(value), np.asarray(made[1])), (tag, number, value)
        for tag, some in (self.confirmed if confirmed is None else confirmed).items():
            assert not some.keys() - rows[tag].keys(), (tag, sorted(some.keys() - rows[tag].keys()))

    def check_counts(self, rows: Rows) -> None:
        """Check that each record that was made is there, or counted and raised as lost."""
        told = self.writer.statistics()
        assert n_of(rows) + told.n_dropped == n_of(self.made)
        assert told.n_waiting == 0
        assert self.errors or not told.n_dropped
        assert not self.writer.supervised.failures.n, self.writer.supervised.failures.last


def start(fault: Callable[[Call], Fault | None] = lambda call: None) -> Training:
    """Return a training that has not begun, on an empty disk."""
    clock = HandClock()
    disk = Disk(now=clock.wall, sleep=clock.sleep)
    disk.make_directory(FOLDER.parent)
    disk.n_calls.clear()
    disk.on_call = lambda call: clock.sleep(CALL_S)
    disk.fault = fault
    return Training(disk, clock)


def n_of(rows: Rows) -> int:
    """Return how many records there are."""
    return sum(map(len, rows.values()))


@contextlib.contextmanager
def opened(disk: Disk, directory: Path) -> Iterator[Recording]:
    """Open a directory of the disk as a user does, from a real folder."""
    with tempfile.TemporaryDirectory() as folder:
        disk.write_out(directory, Path(folder))
        with Recording(folder) as recording:
            yield recording


def read(disk: Disk, directory: Path = FOLDER) -> Rows:
    """Read all records in a directory; each number is there once."""
    with opened(disk, directory) as recording:
        return rows_of(recording)


def rows_of(recording: Recording) -> Rows:
    """Read all records; each number is there once."""
    rows: Rows = defaultdict(dict)
    for key in recording.keys():  # noqa: SIM118  it is no mapping
        for record in recording.series(key):
            assert record.index not in rows[key.tag], f"{key.tag} {record.index} is there twice"
            rows[key.tag][record.index] = (record.step, plain(record.value))
    return rows


def calls() -> list[Call]:
    """Return the calls of the scenario without faults."""
    found: list[Call] = []
    start(found.append).run()
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write small files of small blocks, which are compacted in small pieces."""
    monkeypatch.setattr(rotation, "MANY_SMALL", 8)
    monkeypatch.setattr(rotation, "SMALL_EACH", 4)
    monkeypatch.setattr(compact, "MIN_SMALL", 4)
    monkeypatch.setattr(compact, "WRITE_BYTES", 256)
    monkeypatch.setattr(compact, "SYNC_BYTES", 1_000)
    monkeypatch.setattr(compact, "WINDOW_BYTES", 1_024)
    monkeypatch.setattr(index, "MIN_FRAMES", 2)
