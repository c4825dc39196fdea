"""One file being written: whole frames whatever fails, everything in order, nothing twice."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.disk import Call, Disk, Fault

from sightglass.core.columns import Columns
from sightglass.core.errors import UnsendableError
from sightglass.core.process.clock import SystemClock
from sightglass.core.values import Histogram
from sightglass.storage.file_system import LOCAL, FileSystem
from sightglass.storage.format import block
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import RandomAccessFile, Scan
from sightglass.storage.format.index import BlockEntry
from sightglass.storage.format.protobuf import walk
from sightglass.storage.write import compact, rotation, segment
from sightglass.storage.write.rotation import Segments
from sightglass.storage.write.segment import Rows, SegmentWriter, split

from ..blocks import entry_of, whole_frames  # noqa: TID252  tests are not a package

LOSS = Key(kind="logged", tag="loss")


def columns(n: int, *, index: int = 0, values: Any = None) -> Columns:
    return Columns(
        index=index,
        steps=np.arange(index, index + n),
        wall_times=np.arange(index, index + n) * 0.5,
        values=np.arange(index, index + n) / 8 if values is None else values,
        ordinals=np.arange(index, index + n),
    )


def read(path: Path, files: FileSystem = LOCAL) -> tuple[list[tuple[BlockEntry, Columns]], Scan]:
    """Read all whole frames of a file; the first has to be a version."""
    file = RandomAccessFile(path, files)
    scan = Scan(file)
    blocks = []
    for i, (_, payload) in enumerate(whole_frames(file, scan)):
        if i == 0:
            assert bytes({n: v for n, _, v in walk(payload)}[3]) == b"Sightglass.Event:2"
            continue
        blocks.append((entry_of(payload), block.decode(payload)))
    file.close()
    assert not scan.damages
    return blocks, scan


def segments_of(path: Path, files: FileSystem = LOCAL) -> set[int]:
    """Return the numbers that the blocks of a file carry."""
    file, found = RandomAccessFile(path, files), set()
    for _, payload in whole_frames(file):
        if block.is_block(payload):
            found.add(int(np.frombuffer(payload, block.HEAD, 1)["segment"][0]))
    file.close()
    return found


def indexes(path: Path, files: FileSystem = LOCAL) -> list[int]:
    return [head.index + i for head, _ in read(path, files)[0] for i in range(head.n)]


@given(sizes=st.lists(st.integers(1, 9), max_size=12), flushes=st.sets(st.integers(0, 12)))
def test_what_is_appended_comes_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], flushes: set[int]
) -> None:
    path = tmp_path_factory.mktemp("s") / "a.sgr"
    writer = SegmentWriter(path, wall_time=5.0)
    n = 0
    for i, size in enumerate(sizes):
        writer.append(LOSS, columns(size, index=n), since=3, n_missed=i)
        n += size
        if i in flushes:
            writer.flush()
            assert (writer.n_rows, writer.n_waiting, writer.n_waiting_bytes) == (n, 0, 0)
    writer.flush()
    writer.close()
    blocks, scan = read(path)
    assert path.stat().st_size == writer.size == scan.position
    assert [head.index for head, _ in blocks] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert [(head.since, head.n_missed) for head, _ in blocks] == [(3, i) for i in range(len(sizes))]
    assert np.concatenate([c.values for _, c in blocks] or [[]]).tolist() == [i / 8 for i in range(n)]
    assert len(segments_of(path)) <= 1


def unsteady(seed: int, *, fail: float, cut: bool = True) -> Disk:
    """Return a disk that takes bytes in pieces, and fails now and then; `cut` says whether files can be cut off."""
    disk, random_ = Disk(), random.Random(seed)

    def plan(call: Call) -> Fault | None:
        if call.operation == "truncate" and not cut:
            return Fault(code=errno.EIO)
        if call.operation != "write":
            return None
        code = errno.ENOSPC if random_.random() < fail else 0
        return Fault(code=code, n_bytes=random_.randint(1, len(call.data)))

    disk.fault = plan
    return disk


@pytest.mark.parametrize("seed", range(20))
def test_after_a_failure_the_file_ends_with_a_whole_frame_and_nothing_is_lost(seed: int) -> None:
    disk, path = unsteady(seed, fail=0.3), Path("/a.sgr")
    writer = SegmentWriter(path, files=disk)
    n_failures = 0
    for n in range(30):
        writer.append(LOSS, columns(3, index=3 * n))
        try:
            writer.flush()
        except OSError:
            n_failures += 1
        _, scan = read(path, disk)
        assert (scan.torn, scan.position) == (0, writer.size)
        assert writer.n_rows + writer.n_waiting == 3 * (n + 1)
    disk.fault = lambda call: None
    writer.flush()
    assert indexes(path, disk) == list(range(90))
    assert n_failures > 3


@pytest.mark.parametrize("seed", range(10))
def test_a_tail_that_cannot_be_cut_off_is_the_last_thing_in_its_file(seed: int) -> None:
    disk = unsteady(seed, fail=0.2, cut=False)
    told: list[str] = []
    segments = Segments(lambda: Path("/"), rank=2, clock=SystemClock(), tell=told.append, files=disk)
    for n in range(20):
        segments.open()
        segments.append(Rows(key=LOSS, columns=columns(3, index=3 * n), since=1, n_missed=n))
        try:
            segments.flush()
        except OSError:
            assert segments.n_rows + segments.n_waiting == 3 * (n + 1)
    disk.fault = lambda call: None
    segments.flush()
    assert (segments.n_rows, segments.n_waiting, segments.n_waiting_bytes) == (60, 0, 0)
    segments.close()
    paths = [Path("/") / name for name in sorted(disk.contents(Path("/")))]
    assert [i for path in paths for i in indexes(path, disk)] == list(range(60))
    assert len(set().union(*(segments_of(path, disk) for path in paths))) == sum(1 for p in paths if read(p, disk)[0])
    assert told
    assert all("torn: Input/output error. " in t for t in told)
    assert segments.n_bytes <= sum(map(len, disk.contents(Path("/")).values()))


def test_a_file_is_never_opened_twice(tmp_path: Path) -> None:
    SegmentWriter(tmp_path / "a.sgr").flush()
    with pytest.raises(FileExistsError):
        SegmentWriter(tmp_path / "a.sgr")


def test_a_file_with_nothing_in_it_is_removed(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "a.sgr")
    writer.append(LOSS, columns(1))
    writer.close()
    writer.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match=r"a\.sgr"):
        writer.flush()


def test_many_blocks_are_one_system_call_and_large_arrays_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[Any]] = []
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda file, buffers: calls.append(list(buffers)) or writev(file, buffers))
    writer = SegmentWriter(tmp_path / "a.sgr")
    for n in range(200):
        writer.append(LOSS, columns(5, index=5 * n))
    large = np.arange(2**18, dtype=np.float32).reshape(512, 512)
    writer.append(Key(kind="logged", tag="w"), columns(1, values=[large]))
    writer.flush()
    assert len(calls) == 1
    assert any(np.shares_memory(np.frombuffer(buffer, np.uint8), large) for buffer in calls[0])
    blocks, _ = read(tmp_path / "a.sgr")
    assert (blocks[-1][1].values[0] == large).all()


def test_where_there_is_no_writev_files_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "writev")
    writer = SegmentWriter(tmp_path / "a.sgr")
    for n in range(20):
        writer.append(LOSS, columns(5, index=5 * n))
        writer.append(Key(kind="logged", tag="w"), columns(1, values=[np.full((64, 1024), n)]))
    writer.flush()
    assert len(read(tmp_path / "a.sgr")[0]) == 40


@pytest.mark.parametrize("limits", [(1_024, 7), (3, 2**30), (1, 1)])
def test_system_calls_take_only_so_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setattr(segment, "MAX_BUFFERS", limits[0])
    monkeypatch.setattr(segment, "MAX_WRITE_BYTES", limits[1])
    writer = SegmentWriter(tmp_path / "a.sgr")
    for n in range(5):
        writer.append(LOSS, columns(5, index=5 * n))
    writer.flush()
    assert indexes(tmp_path / "a.sgr") == list(range(25))


def test_what_cannot_be_kept_is_refused_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "BLOCK_ROWS", 1)
    writer = SegmentWriter(tmp_path / "a.sgr")
    with pytest.raises(UnsendableError):
        writer.append(LOSS, columns(2, values=[1, {1, 2}]))
    assert writer.n_waiting == 0
    writer.flush()
    assert read(tmp_path / "a.sgr")[0] == []


@given(n=st.integers(1, 60), rows=st.integers(1, 9), size=st.integers(1, 100), kind=st.sampled_from("al"))
def test_splitting_loses_nothing(n: int, rows: int, size: int, kind: str) -> None:
    values: Any = np.arange(n) if kind == "a" else [np.zeros(i % 5) for i in range(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "BLOCK_ROWS", rows)
        patch.setattr(segment, "BLOCK_BYTES", size)
        parts = list(split(columns(n, values=values)))
    assert [part.index + i for part in parts for i in range(len(part))] == list(range(n))
    for part in parts:
        assert len(part) <= rows
        assert len(part) == 1 or sum(value.nbytes for value in part.values) <= size


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.unlink(), "it was removed"),
        (lambda path: os.truncate(path, 50), "it was changed by others: 50 bytes instead of "),
    ],
)
def test_a_file_that_others_change_is_given_up(tmp_path: Path, change: Callable[[Path], None], why: str) -> None:
    told: list[str] = []
    segments = Segments(lambda: tmp_path, rank=0, clock=SystemClock(), tell=told.append)
    segments.open()
    segments.append(Rows(key=LOSS, columns=columns(3)))
    segments.flush()
    (first,) = tmp_path.iterdir()
    change(first)
    segments.append(Rows(key=LOSS, columns=columns(2, index=3)))
    segments.flush()
    segments.close()
    (second,) = set(tmp_path.iterdir()) - {first}
    assert indexes(second) == [3, 4]
    assert len(told) == 1
    assert why in told[0]


def test_segments_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "SEGMENT_BYTES", 1_000)
    segments = Segments(lambda: tmp_path, rank=3, clock=SystemClock(), tell=pytest.fail)
    for n in range(10):
        segments.open()
        segments.append(Rows(key=LOSS, columns=columns(20, index=20 * n)))
        segments.flush()
    segments.close()
    paths = sorted(tmp_path.iterdir())
    assert len({path.name.split("-")[0] for path in paths}) == 1
    assert [path.name.split("-", 1)[1] for path in paths] == [f"rank3-{i:04d}.sgr" for i in range(len(paths))]
    assert len(paths) > 2
    assert [i for path in paths for i in indexes(path)] == list(range(200))
    assert segments.n_bytes == sum(path.stat().st_size for path in paths)


def test_a_name_that_is_taken_is_not_used(tmp_path: Path) -> None:
    class Clock(SystemClock):
        wall = staticmethod(lambda: 1.5)

    for _ in range(3):
        segments = Segments(lambda: tmp_path, rank=0, clock=Clock(), tell=pytest.fail)
        segments.open()
        segments.flush()
        segments.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n}-rank0-0000.sgr" for n in (1500, 1501, 1502)]


def test_the_directory_is_made_when_there_is_something_and_again_when_it_is_gone(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> Path:
        made.append(1)
        if len(made) == 1:
            raise PermissionError(errno.EACCES, "not yet")
        (tmp_path / "run").mkdir()
        return tmp_path / "run"

    told: list[str] = []
    segments = Segments(make, rank=0, clock=SystemClock(), tell=told.append)
    segments.flush()
    assert not made
    with pytest.raises(PermissionError):
        segments.open()
    assert not segments.ready
    segments.open()
    segments.append(Rows(key=LOSS, columns=columns(1)))
    segments.flush()
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    (tmp_path / "run").rmdir()
    segments.append(Rows(key=LOSS, columns=columns(1, index=1)))
    segments.flush()
    assert len(made) == 3
    (path,) = (tmp_path / "run").iterdir()
    assert indexes(path) == [1]


def test_histograms_and_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    values = [Histogram.from_counts([1, 2], [0.0, 1.0, 2.0]), "text", None, 2**80, 1 + 2j]
    writer = SegmentWriter(tmp_path / "a.sgr")
    writer.append(LOSS, columns(5, values=values))
    writer.flush()
    ((_, kept),) = read(tmp_path / "a.sgr")[0]
    assert kept.values == values


def test_a_file_of_which_nothing_can_be_known_is_removed_again() -> None:
    """Where a file system answers nothing for minutes, there is not an empty file for each attempt."""
    disk = Disk()
    disk.fault = lambda call: Fault(code=errno.ESTALE) if call.operation == "status" else None
    with pytest.raises(OSError, match="Stale file handle"):
        SegmentWriter(Path("/a.sgr"), files=disk)
    assert disk.contents(Path("/")) == {}


def test_a_file_that_cannot_be_closed_does_not_keep_compaction_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MANY_SMALL", 10)
    monkeypatch.setattr(rotation, "SMALL_EACH", 10)
    monkeypatch.setattr(compact, "MIN_SMALL", 4)
    disk = Disk()
    segments = Segments(lambda: Path("/"), rank=0, clock=SystemClock(), tell=pytest.fail, files=disk)
    for i in range(11):
        segments.open()
        segments.append(Rows(key=LOSS, columns=columns(1, index=i)))
        segments.flush()
    segments.compact(0.0)
    assert segments.compacting
    assert [name for name in disk.contents(Path("/")) if name.endswith(".new")]
    disk.fault = lambda call: Fault(code=errno.EIO) if call.operation == "close" else None
    with pytest.raises(OSError, match="Input/output error"):
        segments.close()
    assert not segments.compacting
    assert not [name for name in disk.contents(Path("/")) if name.endswith(".new")]


def test_records_are_counted_as_lost_although_the_file_cannot_be_closed() -> None:
    disk = Disk()
    segments = Segments(lambda: Path("/"), rank=0, clock=SystemClock(), tell=pytest.fail, files=disk)
    segments.open()
    segments.append(Rows(key=LOSS, columns=columns(3)))
    disk.fault = lambda call: Fault(code=errno.EIO) if call.operation == "close" else None
    assert segments.restart() == 3
    assert segments.n_waiting == 0
    disk.fault = lambda call: None
    segments.open()
    segments.append(Rows(key=LOSS, columns=columns(2, index=3)))
    segments.flush()
    segments.close()
    (name,) = disk.contents(Path("/"))
    assert indexes(Path("/") / name, disk) == [3, 4]
