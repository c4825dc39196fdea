"""Run directories on file systems in a network: handles go stale, names and pages come late, locks are refused."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.simulation.disk import Call, Fault, error

import sightglass as sg
from sightglass.core.codec import Buffer
from sightglass.protocol import discovery
from sightglass.storage.file_system import FileStatus, LocalFile, LocalFileSystem
from sightglass.storage.format import index
from sightglass.storage.format.framing import RandomAccessFile, Scan
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.segment_reader import SegmentReader
from sightglass.storage.read.series import Series
from sightglass.storage.write import rotation

from .disk_scenario import Training, n_of, read, start

N = 2_000


class Network(LocalFileSystem):
    """A folder as another machine sees it that mounts it.

    Attributes:
        late_names: Names that are listed, and lead to no file yet.
        late_bytes: How many bytes at the end of each file are not seen yet.
        late_pages: Which bytes of each file are zeros still.
        until_opened: How long files look until they are opened again, by name: NFS asks the server then.
    """

    __setattr__ = object.__setattr__  # that of its class refuses

    def __init__(self) -> None:
        super().__init__()
        self.late_names: set[str] = set()
        self.late_bytes = 0
        self.late_pages = range(0)
        self.until_opened: dict[str, int] = {}

    def open(self, path: Path) -> Any:
        if path.name in self.late_names:
            raise error(errno.ENOENT, path)
        self.until_opened.pop(path.name, None)
        return NetworkFile(self, super().open(path), path)


class NetworkFile:
    """An open file, whose handle is stale when another machine has removed or replaced the file."""

    def __init__(self, network: Network, file: LocalFile, path: Path) -> None:
        self._network, self._file, self._path = network, file, path

    def status(self) -> FileStatus:
        status = self._file.status()
        if not status.n_links:
            raise error(errno.ESTALE, self._path)
        seen = self._network.until_opened.get(self._path.name, status.n_bytes)
        late = status.n_bytes - max(0, min(seen, status.n_bytes - self._network.late_bytes))
        return FileStatus(
            n_bytes=status.n_bytes - late, n_links=status.n_links, changed=status.changed, identity=status.identity
        )

    def read(self, offset: int, n: int) -> bytes:
        n = max(0, min(n, self.status().n_bytes - offset))
        data = bytearray(self._file.read(offset, n))
        for place in self._network.late_pages:
            if offset <= place < offset + len(data):
                data[place - offset] = 0
        return bytes(data)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, buffers: Sequence[Buffer]) -> int:
        return self._file.write(buffers)

    def truncate(self, n_bytes: int) -> None:
        self._file.truncate(n_bytes)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return the directory of a run with several blocks of records."""
    with sg.init("shared", files=sg.Files(into=tmp_path / "run")) as run:
        for step in range(N):
            run.log({"loss": step * 0.5, "tensor": np.full(8, step)}, step=step)
            if step % 200 == 199:
                run.flush()
    return tmp_path / "run"


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def elsewhere(recorded: Path, network: Network) -> Iterator[Recording]:
    """Open the run on another machine."""
    with Recording(recorded, open_part=lambda path: SegmentReader(path, cache=False, files=network)) as recording:
        yield recording


def replace(directory: Path) -> None:
    """Replace each segment by one that reads the same, as compaction does."""
    for path in directory.glob("*.sgr"):
        shutil.copy(path, fresh := path.with_suffix(".new"))
        fresh.replace(path)


READS: list[Callable[[Series], Any]] = [
    lambda series: series.columns().values.tolist(),
    lambda series: [value for part in series.parts() for value in part.values.tolist()],
    lambda series: [value for columns in series.blocks() for value in columns.values.tolist()],
    lambda series: [record.value for record in series],
    lambda series: [series[i].value for i in range(0, N, 97)],
    lambda series: [series.at(step) for step in range(0, N, 97)],
    lambda series: series.steps.tolist(),
]


@pytest.mark.parametrize("look", READS, ids=["columns", "parts", "blocks", "iter", "item", "at", "steps"])
def test_a_reader_goes_on_in_the_file_that_took_the_place_of_its_own(elsewhere: Recording, look: Any) -> None:
    """Another machine has compacted the file: on a local disk, a reader keeps the old one."""
    with Recording(elsewhere.path) as local:
        expected = look(local.series("loss"))
    series = elsewhere.series("loss")
    replace(elsewhere.path)
    assert look(series) == expected
    assert series.damages == []


def test_parts_of_tensors_are_read_from_the_file_that_took_the_place_of_another(elsewhere: Recording) -> None:
    replace(elsewhere.path)
    assert elsewhere.series("tensor").at(7, "[2:4]").tolist() == [7, 7]


def test_a_file_that_is_gone_is_damage_and_is_not_looked_for_at_each_record(elsewhere: Recording) -> None:
    series = elsewhere.series("loss")
    for path in elsewhere.path.glob("*.sgr"):
        path.rename(elsewhere.path.parent / path.name)
        (elsewhere.path.parent / path.name).unlink()
    assert len(series.columns()) == 0
    assert "Stale file handle" in str(series.damages[0])
    assert not elsewhere.reopen()
    with pytest.raises(sg.DamagedError, match="Stale file handle"):
        series[0]


def test_a_file_whose_name_comes_first_is_found_later(elsewhere: Recording, network: Network) -> None:
    """The directory does not change any more when the file can be opened at last."""
    network.late_names.update(path.name for path in elsewhere.path.glob("*.sgr"))
    with Recording(elsewhere.path, open_part=lambda path: SegmentReader(path, files=network)) as recording:
        assert recording.keys() == []
        assert recording.changed()
        network.late_names.clear()
        assert recording.refresh()
        assert recording.series("loss").n == N
        assert not recording.changed()


def test_a_size_that_lags_behind_is_a_file_that_grows(recorded: Path, network: Network) -> None:
    network.late_bytes = 100_000
    with Recording(recorded, open_part=lambda path: SegmentReader(path, cache=False, files=network)) as recording:
        before = recording.series("loss").columns().values.tolist()
        assert before == [0.5 * i for i in range(len(before))]
        assert len(before) < N
        network.late_bytes = 0
        assert recording.refresh()
        assert recording.series("loss").columns().values.tolist() == [0.5 * i for i in range(N)]
        assert recording.damages == []


class Growing:
    """A run of several segments, of which a reader on another machine has seen half of the first."""

    def __init__(self, directory: Path, network: Network) -> None:
        self.network = network
        self.files = {path: path.read_bytes() for path in sorted(directory.glob("*.sgr"))}
        self.first, *later = self.files
        for path in later:
            path.unlink()
        self.half = len(self.files[self.first]) // 2
        self.first.write_bytes(self.files[self.first][: self.half])
        self.reader = Recording(directory, open_part=lambda path: SegmentReader(path, cache=False, files=network))

    def finish(self) -> None:
        """Write the rest; the length of the first file is not seen yet, but the names of the others are."""
        self.network.until_opened[self.first.name] = self.half
        with self.first.open("ab") as file:
            file.write(self.files[self.first][self.half :])
        for path, data in self.files.items():
            if path != self.first:
                path.write_bytes(data)

    def numbers(self) -> list[int]:
        return [record.index for record in self.reader.series("loss")]


@pytest.fixture
def growing(tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[Growing]:
    monkeypatch.setattr(rotation, "SEGMENT_BYTES", 10_000)
    with sg.init("shared", files=sg.Files(into=tmp_path / "run")) as run:
        for step in range(N):
            run.log({"loss": step * 0.5}, step=step)
            if step % 100 == 99:
                run.flush()
    growing = Growing(tmp_path / "run", network)
    assert len(growing.files) > 2
    yield growing
    growing.reader.close()


def test_a_file_is_read_to_its_end_before_the_next_one_of_its_process(growing: Growing) -> None:
    """Lengths are cached for seconds, new names are seen at once: a follower would pass over what lies between."""
    n_before = len(growing.numbers())
    assert 0 < n_before < N
    growing.finish()
    assert growing.reader.refresh()
    assert growing.numbers() == [*range(N)]
    assert growing.reader.generation == 0


def test_records_that_come_late_between_others_end_what_follows(
    growing: Growing, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where opening a file does not help: later records have other numbers from then on."""
    monkeypatch.setattr(RandomAccessFile, "revalidate", lambda self: None)
    n_before = len(growing.numbers())
    growing.finish()
    growing.reader.refresh()
    assert n_before < len(growing.numbers()) < N
    assert growing.reader.generation == 0
    network.until_opened.clear()
    growing.reader.refresh()
    assert growing.numbers() == [*range(N)]
    assert growing.reader.generation == 1


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("header", [False, True])
def test_pages_that_come_late_are_no_lasting_damage(
    recorded: Path, network: Network, cache: bool, header: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MIN_FRAMES", 1)
    [path] = recorded.glob("*.sgr")
    frames = [offset for run in Scan(RandomAccessFile(path)).runs() for offset in run.offsets]
    network.late_pages = range(frames[3] + (0 if header else 12), frames[5])
    with Recording(recorded, open_part=lambda path: SegmentReader(path, cache=cache, files=network)) as recording:
        assert recording.damages
        assert recording.series("loss").n < N
        network.late_pages = range(0)
        for _ in range(3):
            recording.refresh()
        assert recording.damages == []
        assert recording.series("loss").columns().values.tolist() == [0.5 * i for i in range(N)]
    with Recording(recorded) as later:  # with the index that was left
        assert later.damages == []
        assert later.series("loss").n == N


def test_damage_that_stays_is_not_read_again_and_again(recorded: Path) -> None:
    [path] = recorded.glob("*.sgr")
    frames = [offset for run in Scan(RandomAccessFile(path)).runs() for offset in run.offsets]
    data = bytearray(path.read_bytes())
    data[frames[3] : frames[3] + 8] = b"\xff" * 8
    path.write_bytes(data)
    with Recording(recorded) as recording:
        assert len(recording.damages) == 1
        parts = recording.parts
        assert not recording.refresh()
        assert recording.parts == parts
        assert not recording.reopen()


def test_an_error_that_passes_leaves_no_damage(elsewhere: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    real = NetworkFile.read
    monkeypatch.setattr(NetworkFile, "read", lambda *_: (_ for _ in ()).throw(error(errno.EIO, elsewhere.path)))
    series = elsewhere.series("loss")
    assert len(series.columns()) == 0
    assert series.damages
    monkeypatch.setattr(NetworkFile, "read", real)
    assert len(series.columns()) == N
    assert series.damages == []


def failing(training: Training, code: int) -> Callable[[Call], Fault | None]:
    """Return a plan by which the first segment fails for ever, after five seconds."""
    segments: list[Path] = []

    def plan(call: Call) -> Fault | None:
        if call.operation == "create" and call.path.suffix == ".sgr":
            segments.append(call.path)
        stays = call.operation in ("create", "remove", "open", "names", "make_directory", "free_bytes")
        is_broken = segments[:1] == [call.path] and training.clock.now_s > 105.0 and not stays
        return Fault(code=code) if is_broken else None

    return plan


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT])
def test_records_go_to_another_file_if_one_fails_for_ever(code: int) -> None:
    """Another machine has removed it, or the network has forgotten it."""
    training = start()
    training.disk.fault = failing(training, code)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        training.run()
    assert not training.errors
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)
    messages = [str(warning.message) for warning in told]
    assert len(messages) == len(set(messages))
    assert any("another file" in message for message in messages)


def test_a_slow_sync_holds_up_nothing_for_good() -> None:
    training = start(lambda call: Fault(delay_s=20.0) if call.operation == "sync" else None)
    training.run()
    assert not training.errors
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)


def test_without_inodes_records_wait_until_there_are_some() -> None:
    training = start()
    training.disk.fault = lambda call: (
        Fault(code=errno.EDQUOT) if call.operation == "create" and training.clock.now_s < 110.0 else None
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        training.run()
    assert len(told) == 1
    assert "wait in memory" in str(told[0].message)
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)


def test_a_run_needs_few_files(runtime: Path, tmp_path: Path) -> None:
    """Quotas of inodes are small where disks are large; the guide has these numbers."""
    with sg.init("few", listen="tcp://127.0.0.1:0") as run:
        for step in range(100):
            run.log({f"tag{i}": step for i in range(50)}, step=step)
        run.flush()
        names = sorted(path.suffix for path in run.directory.iterdir())
        assert names == [".json", ".json", ".json", ".sgr"]  # two of them are connection files
        assert sorted(path.suffix for path in runtime.iterdir()) == [".json", ".lock", ".sock"]
    (totals,) = run.directory.glob(".sightglass-totals")
    assert sorted(path.suffix for path in {*run.directory.iterdir()} - {totals}) == [".json", ".sgr"]


def test_a_folder_without_locks_is_not_taken_for_live_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    short = Path(os.environ["SIGHTGLASS_RUNTIME_DIR"])
    without, other = short / "without", short / "other"
    real = fcntl.lockf

    def refuse(descriptor: int, how: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(without)):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(without))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
    with pytest.warns(RuntimeWarning, match="other/sightglass"):
        assert discovery.folder() == other / "sightglass"
