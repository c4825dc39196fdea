"""Compaction: what is read afterwards is what was read before, whatever happens in between."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.simulation.disk import Disk, Fault
from tests.waiting import wait_until

from sightglass.core import codec
from sightglass.core.columns import CLOSED, COMPLETE, Columns, of_rows
from sightglass.core.process.clock import SystemClock
from sightglass.core.values import Histogram, Image, Tensor, Text
from sightglass.storage.file_names import is_record_file
from sightglass.storage.format import index
from sightglass.storage.format.block import HEAD, HEAD_BYTES, Key, decode, decode_alike, encode
from sightglass.storage.format.framing import RandomAccessFile
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.segment_reader import SegmentReader
from sightglass.storage.write import compact, merge, rotation, writer
from sightglass.storage.write.compact import Compactor, pays
from sightglass.storage.write.rotation import Segments
from sightglass.storage.write.segment import Rows, SegmentWriter
from sightglass.storage.write.writer import RecordWriter

from ..blocks import whole_frames  # noqa: TID252  tests are not a package

NAME = "1700000000500-rank0-0000.sgr"
LOSS = Key(kind="logged", tag="loss")
WAIT_S = 60.0


def tag(name: str) -> Key:
    return Key(kind="logged", tag=name)


def columns(n: int, *, index: int = 0, values: Any = None, **others: Any) -> Columns:
    place = np.arange(index, index + n)
    values = place / 8 if values is None else values
    return Columns(index=index, steps=place * 2, wall_times=place + 0.5, values=values, ordinals=place, **others)


def compacted(path: Path) -> bool:
    """Compact a file to the end, and tell whether it was."""
    compactor = Compactor(SystemClock())
    compactor.add(path, path.stat().st_size)
    compactor.work(WAIT_S)
    assert not compactor.busy
    assert [name for name in os.listdir(path.parent) if name.endswith(".new")] == []
    return compactor.n_saved > 0


def rows_of(path: Path) -> dict[Key, list[Any]]:
    """Read all that a file says of each record."""
    opened = SegmentReader(path, cache=False)
    assert not opened.damages
    found: dict[Key, list[Any]] = {}
    for key, entries in opened.entries().items():
        rows = found[key] = []
        for entry in entries:
            one = opened.load(entry)
            for i in range(len(one)):
                value = one.values[i]
                told = type(value), getattr(value, "dtype", None), codec.encode(value)
                flags = [None if column is None else column[i].item() for column in (one.n_events, one.flags)]
                track = None if one.tracks is None else {name: (type(x), x) for name, x in one.tracks[i].items()}
                step = one.steps.dtype, one.steps[i].tobytes()
                place = one.index + i, one.ordinals[i].item(), step, one.wall_times[i].tobytes()
                rows.append((*place, told, *flags, track, entry.since))
    opened.close()
    return found


def frames_of(path: Path) -> list[bytes]:
    file = RandomAccessFile(path)
    frames = [bytes(payload) for _, payload in whole_frames(file)]
    file.close()
    return frames


def scalars(path: Path, n: int = 300, n_tags: int = 3, *, flush: int = 1) -> SegmentWriter:
    """Write a file of a slow run: a block for each tag and step."""
    written = SegmentWriter(path, wall_time=5.0)
    for i in range(n):
        for k in range(n_tags):
            written.append(tag(f"a{k}"), columns(1, index=i, values=np.array([i + k / 8])))
        if i % flush == 0:
            written.flush()
    written.flush()
    written.close()
    return written


# Laws

floats = st.floats().map(float)
kinds = st.sampled_from([
    floats, st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**70), st.booleans(),
    st.text(max_size=9), st.none() | floats, st.floats(width=32).map(np.float32), st.integers(0, 255).map(np.uint8),
    st.complex_numbers().map(np.complex128), st.lists(floats, min_size=2, max_size=2).map(np.array),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(np.array), st.just(Text("t")) | st.none(),
    st.tuples(st.integers(), st.text(max_size=2)), st.dictionaries(st.text(max_size=2), floats, max_size=2),
    st.integers(0, 9).map(lambda n: Histogram.from_counts([n, 1], [0, 1, 2])),
    st.integers(0, 9).map(lambda n: Image(np.full((2, 2), n, np.uint8))),
    st.integers(0, 9).map(lambda n: Tensor(np.full(1_500, n / 2))),
])  # fmt: skip
extras = st.sampled_from([
    None, None, (1, 3, None), (3, 2, None), (1, 1, {"epoch": 2}),
    (1, 3, {"x": 0.5}),
])  # fmt: skip
runs = st.fixed_dictionaries({
    "series": st.integers(0, 2), "kind": kinds, "extra": extras, "n_blocks": st.integers(1, 60), "n": st.integers(1, 4),
    "hole": st.sampled_from([0, 0, 0, 3]), "since": st.sampled_from([0, 0, 7]), "ordinal": st.sampled_from([0, 0, 100]),
    "stride": st.sampled_from([0, 1, 0.5, -3]),
})  # fmt: skip
keys = [LOSS, Key(kind="stream", tag="b.x", query="on('b').map(lambda e: e.x)"), Key(kind="groups", tag="b")]


@settings(max_examples=examples(150))
@given(data=st.data(), plan=st.lists(runs, min_size=1, max_size=6))
def test_what_is_read_afterwards_is_what_was_read_before(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, plan: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("s") / NAME
    written = SegmentWriter(path, wall_time=5.0)
    at: dict[Key, int] = defaultdict(int)
    ordinals: dict[Key, int] = defaultdict(int)
    missed: dict[Key, int] = defaultdict(int)
    turns = [[run] * run["n_blocks"] for run in plan]
    mixed = data.draw(st.booleans())
    order = (
        [run for turn in itertools.zip_longest(*turns) for run in turn if run]
        if mixed
        else list(itertools.chain(*turns))
    )
    for run in order:
        key = keys[run["series"]]
        at[key] += run["hole"]
        missed[key] += run["hole"]
        ordinals[key] += run["ordinal"]
        if run["n_blocks"] < 9:
            values = data.draw(st.lists(run["kind"], min_size=1, max_size=run["n"]))
        else:
            values = [data.draw(run["kind"])] * run["n"]
        rows = [
            (n, n * run["stride"], 1e9 + n, value, run["extra"], ordinals[key] + n)
            for n, value in enumerate(values, at[key])
        ]
        written.append(key, of_rows(rows), since=run["since"], n_missed=missed[key])
        at[key] += len(values)
    written.flush()
    written.close()
    before, gaps = rows_of(path), [str(gap) for file in check(path).files for gap in file.gaps]
    ends = ends_of(path)
    n_frames = len(frames_of(path))
    if compacted(path):
        event("compacted")
        assert len(frames_of(path)) < n_frames
    assert rows_of(path) == before
    assert ends_of(path) == ends
    assert [str(gap) for file in check(path).files for gap in file.gaps] == gaps


def ends_of(path: Path) -> dict[Key, tuple[Any, ...]]:
    """Return what the last blocks say of all before."""
    opened = SegmentReader(path, cache=False)
    ends = {key: (entries[-1].n_missed, entries[-1].since) for key, entries in opened.entries().items()}
    opened.close()
    return ends


@given(
    values=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), min_size=1, max_size=9),
    as_type=st.sampled_from(["i8", "f8", "i1", "u2", "?", "c8"]),
)
def test_blocks_are_decoded_at_once_as_they_are_one_by_one(values: list[list[int]], as_type: str) -> None:
    alike: dict[Any, list[bytes]] = defaultdict(list)
    for i, numbers in enumerate(values):
        column = np.array(numbers).astype(as_type) if as_type != "?" else np.array(numbers) > 0
        one = Columns(
            index=i, steps=np.array(numbers), wall_times=np.array([0.5, i, -0.0]), values=column,
            ordinals=np.arange(3) * i, flags=np.array([1, 3, 3], np.uint8),
        )  # fmt: skip
        payload = b"".join(encode(LOSS, one, segment=1))
        alike[np.frombuffer(payload, HEAD, 1)["codes"].tobytes()].append(payload)
    for payloads in alike.values():
        heads = np.frombuffer(b"".join(payload[:HEAD_BYTES] for payload in payloads), HEAD)
        found = decode_alike([payload[heads["offsets"][0, 0] :] for payload in payloads], heads[0])
        assert found is not None
        for row, payload in enumerate(payloads):
            one = decode(memoryview(payload))
            for name, column in found.items():
                assert column[row].dtype == getattr(one, name).dtype
                assert column[row].tobytes() == getattr(one, name).tobytes()


@given(cut=st.floats(0, 1), flush=st.integers(1, 9))
@settings(max_examples=examples(30))
def test_of_a_file_that_is_cut_off_each_series_has_its_beginning(
    tmp_path_factory: pytest.TempPathFactory, cut: float, flush: int
) -> None:
    path = tmp_path_factory.mktemp("s") / NAME
    scalars(path, 300, flush=flush)
    assert compacted(path)
    whole = rows_of(path)
    data = path.read_bytes()
    path.write_bytes(data[: 100 + int(cut * (len(data) - 100))])
    for key, rows in rows_of(path).items():
        assert rows == whole[key][: len(rows)]


# Sizes


def test_a_slow_run_has_at_most_20_bytes_a_record(tmp_path: Path) -> None:
    segments = Segments(lambda: tmp_path, rank=0, clock=SystemClock(), tell=pytest.fail)
    for i in range(1_000):
        segments.open()
        for k in range(10):
            segments.append(Rows(key=tag(f"metric_{k}"), columns=columns(1, index=i)))
        segments.flush()
    before = segments.n_bytes
    segments.close(compact_s=WAIT_S)
    (path,) = tmp_path.iterdir()
    assert segments.n_bytes == path.stat().st_size < before / 8
    assert segments.n_bytes / segments.n_rows <= 20
    assert [len(entries) for entries in SegmentReader(path).entries().values()] == [1] * 10


def test_blocks_are_no_larger_than_others(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path, merge.MERGED_ROWS * 2 + 10, 1)
    assert compacted(path)
    assert [entry.n for entry in SegmentReader(path).entries()[tag("a0")]] == [4_096, 4_096, 10]


def test_what_is_large_is_copied_byte_by_byte(tmp_path: Path) -> None:
    path = tmp_path / NAME
    written = SegmentWriter(path)
    chance = np.random.default_rng(0)
    for i in range(300):
        written.append(LOSS, columns(1, index=i))
        if i % 100 == 50:  # more than a small block, more than a window, more than a chunk
            for name, n in (("k", 1_000), ("w", 50_000), ("v", 300_000)):
                written.append(tag(name), columns(1, index=i // 100, values=[chance.normal(size=n)]))
    written.flush()
    written.close()
    large = [payload for payload in frames_of(path) if len(payload) > compact.SMALL_BYTES]
    rows = rows_of(path)
    assert compacted(path)
    version, *blocks = frames_of(path)
    assert len(version) > 9
    assert blocks[:-1] == large
    assert len(large) == 9
    assert rows_of(path) == rows


def test_a_series_of_small_and_large_values_stays_in_order(tmp_path: Path) -> None:
    path = tmp_path / NAME
    written = SegmentWriter(path)
    for i in range(600):
        written.append(LOSS, columns(1, index=i, values=[np.full(2_000 if i % 200 == 100 else 2, i)]))
    written.flush()
    written.close()
    rows = rows_of(path)
    assert compacted(path)
    assert rows_of(path) == rows


def test_what_pays() -> None:
    assert pays(n_small=256, n_series=10, n_bytes=50_000)
    assert not pays(n_small=255, n_series=10, n_bytes=50_000)
    assert not pays(n_small=256, n_series=100, n_bytes=50_000)
    assert not pays(n_small=256, n_series=10, n_bytes=2**30)


def test_a_file_that_would_not_become_smaller_stays(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path, 2, 500)
    data = path.read_bytes()
    path.write_bytes(data)
    written = SegmentWriter(tmp_path / "b.sgr")
    for i in range(300):
        written.append(tag(f"a{i}"), columns(1))
    written.flush()
    written.close()
    data = written.path.read_bytes()
    assert not compacted(written.path)
    assert written.path.read_bytes() == data


def test_a_file_is_compacted_once(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path)
    assert compacted(path)
    data = path.read_bytes()
    assert not compacted(path)
    assert path.read_bytes() == data


# Faults


def stays(path: Path, data: bytes) -> bool:
    return not compacted(path) and path.read_bytes() == data


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_not_hidden(tmp_path: Path, seed: int) -> None:
    path = tmp_path / NAME
    chance = random.Random(seed)
    scalars(path)
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    assert stays(path, bytes(data))


@pytest.mark.parametrize("n_cut", [1, 15, 16, 100])
def test_a_torn_tail_stays(tmp_path: Path, n_cut: int) -> None:
    path = tmp_path / NAME
    scalars(path)
    data = path.read_bytes()[:-n_cut]
    path.write_bytes(data)
    assert stays(path, data)


def test_damage_in_what_is_large_is_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / NAME
    written = SegmentWriter(path)
    for i in range(300):
        written.append(LOSS, columns(1, index=i))
    written.append(tag("w"), columns(1, values=[np.zeros(100_000)]))
    written.flush()
    written.close()
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert stays(path, bytes(data))


def test_blocks_of_another_file_stay_where_they_are(tmp_path: Path) -> None:
    path, other = tmp_path / NAME, tmp_path / "other.sgr"
    scalars(path)
    scalars(other)
    data = path.read_bytes() + other.read_bytes()[45:]
    path.write_bytes(data)
    assert stays(path, data)


class Failing:
    """Fails at the n-th call from now on."""

    def __init__(self, call: Callable[..., Any], n: int, code: int = errno.ENOSPC) -> None:
        self.call, self.left, self.code = call, n, code

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.call(*args, **options)


@pytest.mark.parametrize(("name", "n"), [("fsync", 0), ("fsync", 1)])
def test_on_a_full_disk_the_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, n: int) -> None:
    path = tmp_path / NAME
    scalars(path)
    data = path.read_bytes()
    monkeypatch.setattr(compact, "SYNC_BYTES", 1)
    monkeypatch.setattr(os, name, Failing(getattr(os, name), n))
    assert stays(path, data)


def test_where_others_hold_it_the_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / NAME
    scalars(path)
    data = path.read_bytes()
    monkeypatch.setattr(Path, "replace", Failing(Path.replace, 0, errno.EACCES))
    assert stays(path, data)


def test_where_there_is_no_room_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / NAME
    scalars(path)
    data = path.read_bytes()
    told = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: told._replace(free=len(data)))
    assert stays(path, data)


@pytest.mark.parametrize("operation", ["read", "write", "sync", "close"])
def test_what_fails_again_while_the_rest_is_removed_is_not_raised(tmp_path: Path, operation: str) -> None:
    scalars(tmp_path / NAME)
    disk, path = Disk(), Path("/") / NAME
    disk.put(path, (tmp_path / NAME).read_bytes())
    before = disk.contents(Path("/"))
    compactor = Compactor(SystemClock(), disk)
    disk.fault = lambda call: Fault(code=errno.EIO) if call.operation in (operation, "close") else None
    compactor.add(path, len(before[NAME]))
    compactor.work(WAIT_S)
    assert not compactor.busy
    assert disk.contents(Path("/")) == before


def test_what_is_removed_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path)
    compaction = compact._Compaction(path, path.stat().st_size)
    next(compaction.steps)
    path.unlink()
    with pytest.raises((compact._LeftAloneError, FileNotFoundError)):
        list(compaction.steps)
    compaction.discard()
    assert list(tmp_path.iterdir()) == []


def test_what_grows_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path)
    compaction = compact._Compaction(path, path.stat().st_size)
    next(compaction.steps)
    with path.open("ab") as file:
        file.write(b"more")
    data = path.read_bytes()
    with pytest.raises(compact._LeftAloneError):
        list(compaction.steps)
    compaction.discard()
    assert path.read_bytes() == data


def test_what_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path)
    data = path.read_bytes()
    for n in itertools.count():
        compactor = Compactor(SystemClock())
        compactor.add(path, len(data))
        for _ in range(n):
            compactor.work(0.0)
        busy = compactor.busy
        compactor.stop()
        assert [entry.name for entry in tmp_path.iterdir()] == [NAME]
        if not busy:
            break
        assert path.read_bytes() == data
    assert n > 5
    assert path.stat().st_size < len(data) / 5


def test_whatever_fails_the_next_file_is_compacted(tmp_path: Path) -> None:
    compactor = Compactor(SystemClock())
    compactor.add(tmp_path / "none.sgr", 100)
    path = tmp_path / NAME
    scalars(path)
    compactor.add(path, path.stat().st_size)
    compactor.work(WAIT_S)
    assert compactor.n_saved > 0


def test_of_too_many_files_the_first_stay(tmp_path: Path) -> None:
    compactor = Compactor(SystemClock())
    paths = [tmp_path / f"{i}.sgr" for i in range(compact.MAX_WAITING + 2)]
    sizes = []
    for path in paths:
        scalars(path)
        sizes.append(path.stat().st_size)
        compactor.add(path, sizes[-1])
    compactor.work(WAIT_S)
    assert [path.stat().st_size < size for path, size in zip(paths, sizes, strict=True)] == [
        False, False, *[True] * compact.MAX_WAITING
    ]  # fmt: skip


def test_what_a_killed_process_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    now = SystemClock().wall()
    left = [tmp_path / f".{NAME}.{i}.new" for i in range(2)]
    for path, age_s in zip(left, (10.0, compact.OLD_S + 10), strict=True):
        path.write_bytes(b"x")
        os.utime(path, (now - age_s, now - age_s))
        assert not is_record_file(path.name)
    scalars(tmp_path / NAME)
    with Recording(tmp_path) as recording:
        assert (recording.refused, len(recording.parts)) == ({}, 1)
    segments = Segments(lambda: tmp_path, rank=1, clock=SystemClock(), tell=pytest.fail)
    segments.open()
    segments.close()
    assert [path.exists() for path in left] == [True, False]


# Readers


def test_the_index_of_the_file_before_is_stale(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path, 600)
    before = rows_of(path)
    old = SegmentReader(path)
    place = index.path_of(path)
    stale = place.read_bytes()
    assert compacted(path)
    assert not place.exists()
    place.write_bytes(stale)
    file = RandomAccessFile(path)
    assert index.read(file) is None
    file.close()
    assert {key: sum(map(len, old.loads(entries))) for key, entries in old.entries().items()} == dict.fromkeys(
        before, 600
    )
    assert rows_of(path) == before
    place.unlink()
    old._n_indexed = 0
    old._leave_index()  # by whoever goes on reading the old file
    assert not place.exists()
    old.close()


def test_an_index_of_a_beginning_that_stayed_the_same_is_stale_too(tmp_path: Path) -> None:
    path = tmp_path / NAME
    written = SegmentWriter(path)
    for i in range(600):
        written.append(tag("w"), columns(1, index=i, values=[np.full(600, i)]))
    written.flush()
    SegmentReader(path).close()
    stale = index.path_of(path).read_bytes()
    for i in range(20_000):
        written.append(LOSS, columns(1, index=i))
    written.flush()
    written.close()
    before = rows_of(path)
    assert compacted(path)
    index.path_of(path).write_bytes(stale)
    file = RandomAccessFile(path)
    assert index.read(file) is None
    file.close()
    assert rows_of(path) == before


def test_who_has_a_file_open_neither_repeats_nor_loses_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MANY_SMALL", 300)
    segments = Segments(lambda: tmp_path, rank=0, clock=SystemClock(), tell=pytest.fail)
    early: Recording | None = None
    late: list[Recording] = []
    seen: list[float] = []
    for i in range(2_000):
        segments.open()
        segments.append(Rows(key=LOSS, columns=columns(1, index=i)))
        segments.flush()
        if early is None:
            early = Recording(tmp_path)
        if i % 7 == 0:
            segments.compact(0.0)
        if i % 50 == 49:
            assert early.changed()
            early.refresh()
            seen += early.series("loss").columns(len(seen)).values.tolist()
            assert len(seen) == i + 1
            late.append(Recording(tmp_path))
    segments.close(compact_s=WAIT_S)
    assert early is not None
    for recording in (early, *late):
        recording.refresh()
        assert recording.series("loss").columns().values.tolist() == [i / 8 for i in range(2_000)]
        assert (recording.generation, recording.damages, recording.vanished) == (0, [], [])
        recording.close()
    paths = sorted(tmp_path.iterdir())
    assert len(paths) > 3
    assert all(path.stat().st_size < 300 * 30 for path in paths[:-1])
    assert check(tmp_path).intact


# When it is done


def test_a_file_of_many_small_blocks_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MANY_SMALL", 100)
    monkeypatch.setattr(rotation, "SMALL_EACH", 60)
    segments = Segments(lambda: tmp_path, rank=0, clock=SystemClock(), tell=pytest.fail)

    def write(n: int, n_tags: int) -> list[int]:
        for i in range(n):
            segments.open()
            for k in range(n_tags):
                segments.append(Rows(key=tag(f"a{k}"), columns=columns(1, index=i)))
            segments.flush()
        return [SegmentReader(path, cache=False).n_frames for path in sorted(tmp_path.glob("*.sgr"))]

    assert write(250, 1) == [100, 100, 50]
    assert write(60, 3)[2:] == [182, 48]  # 180 for three series
    segments.close()


def test_the_files_of_a_long_run_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MANY_SMALL", 10)
    monkeypatch.setattr(rotation, "SHARE", 2)
    segments = Segments(lambda: tmp_path, rank=0, clock=SystemClock(), tell=pytest.fail)
    monkeypatch.setattr(rotation, "SMALL_EACH", 1)
    for i in range(500):
        segments.open()
        segments.append(Rows(key=LOSS, columns=columns(1, index=i)))
        segments.flush()
    segments.close()
    sizes = [SegmentReader(path, cache=False).n_frames for path in sorted(tmp_path.glob("*.sgr"))]
    assert sizes[:6] == [10, 10, 10, 15, 22, 33]
    assert sum(sizes) == 500


def test_the_keeper_compacts_while_it_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MANY_SMALL", 600)
    keeper = RecordWriter(lambda: tmp_path, clock=SystemClock())
    for i in range(700):
        keeper.log(i, i, 1e9 + i, {"a": i * 0.5}, None)
        keeper.flush(WAIT_S)
    first = min(tmp_path.glob("*.sgr"))
    wait_until(lambda: first.stat().st_size < 600 * 30)  # nothing more is given: the thread goes on by itself
    wait_until(lambda: not keeper._segments.compacting)
    assert keeper._worker.supervised.failures.n == 0
    keeper.close(WAIT_S)
    assert keeper.statistics().n_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.sgr"))
    with Recording(tmp_path) as recording:
        assert recording.series("a").columns().values.tolist() == [i * 0.5 for i in range(700)]


def test_at_the_end_it_is_done_if_it_takes_not_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for name, limit_s in (("a", writer.COMPACT_S), ("b", 0.0)):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(writer, "COMPACT_S", limit_s)
        keeper = RecordWriter(lambda name=name: tmp_path / name, clock=SystemClock())
        for i in range(400):
            keeper.log(i, i, 1e9 + i, {"a": i * 0.5}, None)
            keeper.flush(WAIT_S)
        keeper.close(WAIT_S)
        (path,) = (tmp_path / name).iterdir()
        sizes.append(path.stat().st_size)
        assert len(rows_of(path)[tag("a")]) == 400
    assert sizes[0] < 400 * 20 < sizes[1]


class Slow:
    """A clock by which each look takes a while."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def wall(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        self.now_s += 0.01
        return self.now_s


def test_what_takes_too_long_is_left(tmp_path: Path) -> None:
    segments = Segments(lambda: tmp_path, rank=0, clock=Slow(), tell=pytest.fail)
    for i in range(3_000):
        segments.open()
        segments.append(Rows(key=LOSS, columns=columns(1, index=i)))
        segments.flush()
    size = segments.n_bytes
    segments.close(compact_s=0.05)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == size == segments.n_bytes


def test_columns_that_others_have_not_are_no_reason_to_write_them() -> None:
    usual = columns(2, flags=np.full(2, COMPLETE | CLOSED, np.uint8))
    assert merge._form(merge._Piece(0, LOSS, 7, 0, 0, 0, usual)) != merge._form(
        merge._Piece(0, LOSS, 7, 0, 0, 0, columns(2))
    )


# Readers that follow a run


def test_a_reader_follows_a_file_to_the_compacted_one(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path, 400)
    with Recording(tmp_path) as recording:
        series = recording.series("a1")
        assert recording.parts[0].n_frames == 1_200
        last, blocks = series[-1], series.blocks()
        begun = [next(blocks).values[0]]  # a reader that is half way
        assert compacted(path)
        assert recording.changed()
        assert recording.refresh()
        assert not recording.refresh()
        assert recording.parts[0].n_frames == 3
        assert recording.generation == 0  # rows keep their numbers
        assert recording.series("a1") is series
        assert (series[-1], series[0].value, len(series)) == (last, 1 / 8, 400)
        assert series.columns().values.tolist() == [i + 1 / 8 for i in range(400)]
        assert series.steps.tolist() == list(range(0, 800, 2))
        assert begun + [columns.values[0] for columns in blocks] == [i + 1 / 8 for i in range(400)]


def test_the_compacted_file_takes_no_more_descriptors(tmp_path: Path) -> None:
    path = tmp_path / NAME
    scalars(path, 400)
    with Recording(tmp_path) as recording:
        recording.series("a1").columns()
        n_open = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        assert compacted(path)
        assert recording.refresh()
        assert (len(os.listdir("/proc/self/fd")) if n_open else 0) == n_open


def test_a_file_with_fewer_records_is_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / NAME, tmp_path / "aside"
    scalars(path, 400)
    with Recording(tmp_path) as recording:
        scalars(other, 399)
        other.replace(path)
        assert not recording.refresh()
        assert recording.series("a1").columns().values.tolist() == [i + 1 / 8 for i in range(400)]


def test_the_index_of_a_run_that_is_followed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MANY_SMALL", 1_000)
    segments = Segments(lambda: tmp_path, rank=0, clock=SystemClock(), tell=pytest.fail)
    segments.open().append(tag("a"), columns(1))
    segments.flush()
    with Recording(tmp_path) as recording:
        n_frames = []
        for i in range(1, 8_000):
            segments.open().append(tag("a"), columns(1, index=i))
            segments.flush()
            if i % 500 == 0:
                segments.compact(WAIT_S)
                recording.refresh()
                n_frames.append(sum(part.n_frames for part in recording.parts))
        assert max(n_frames) <= 1_000 + 8  # the file that is being written, and a block or two of each before
        assert recording.series("a").columns().values.tolist() == [i / 8 for i in range(recording.series("a").n)]
    segments.close()
