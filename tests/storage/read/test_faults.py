"""What files go through: cuts, flipped bits, hostile bytes, a writer beside. Never a wrong value, never a crash."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError
from sightglass.storage.format.block import EVEN, Key, encode
from sightglass.storage.format.framing import frame
from sightglass.storage.format.protobuf import BYTES, FIXED64, key, varint
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.segment_reader import SegmentReader

from ..blocks import changed  # noqa: TID252  tests are not a package

NAME = "1000-rank0-0000.sgr"
KEYS = (Key(kind="logged", tag="a"), Key(kind="stream", tag="b", query="batch.b"), Key(kind="logged", tag="m"))
Truth = dict[tuple[str, int], tuple[Any, ...]]


def framed(*parts: Any) -> bytes:
    return b"".join(map(bytes, frame(parts)))


def version(number: int = 2) -> bytes:
    told = f"Sightglass.Event:{number}".encode()
    return framed(key(1, FIXED64) + struct.pack("<d", 1.5) + key(3, BYTES) + varint(len(told)) + told)


def block(name: Key, start: int, values: Any, *, segment: int = 3) -> bytes:
    n = len(values)
    steps = np.arange(start, start + n) * 5
    columns = Columns(
        index=start, steps=steps, wall_times=steps + 0.5, values=values, ordinals=np.arange(start, start + n)
    )
    return framed(*encode(name, columns, segment=segment))


FRAMES = [
    version(),
    block(KEYS[0], 0, np.array([1.5, -2.5])),
    block(KEYS[1], 0, ["x", {"y": 1}]),
    block(KEYS[2], 0, np.arange(6, dtype=np.float32).reshape(1, 2, 3)),
    block(KEYS[0], 2, np.array([7.25])),
]
FILE = b"".join(FRAMES)
STARTS = np.cumsum([0, *map(len, FRAMES)]).tolist()


def shown(segment: SegmentReader) -> Truth:
    """Return every record that a reader shows, by tag and index."""
    found: Truth = {}
    for name, entries in segment.entries().items():
        for columns in segment.loads(entries):
            if columns is not None:
                assert len(columns) in (1, 2)
                for i in range(len(columns)):
                    value = columns.values[i]
                    value = value.tolist() if isinstance(value, np.ndarray) else value
                    place = columns.steps[i].item(), columns.wall_times[i].item(), int(columns.ordinals[i])
                    found[name.tag, columns.index + i] = (*place, repr(value))
    return found


def read(path: Path, data: bytes) -> tuple[Truth, SegmentReader]:
    path.write_bytes(data)
    segment = SegmentReader(path, cache=False)
    try:
        return shown(segment), segment
    finally:
        segment.close()


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    found, segment = read(tmp_path_factory.mktemp("truth") / NAME, FILE)
    assert len(found) == 6
    assert segment.damages == []
    return found


def frame_at(offset: int) -> int:
    return int(np.searchsorted(STARTS, offset, side="right")) - 1


def rows_of(truth: Truth, number: int) -> set[tuple[str, int]]:
    by_frame = {0: [], 1: [("a", 0), ("a", 1)], 2: [("b", 0), ("b", 1)], 3: [("m", 0)], 4: [("a", 2)]}
    return set(by_frame[number])


def test_every_cut_leaves_whole_frames_and_growth_completes_them(tmp_path: Path, truth: Truth) -> None:
    path = tmp_path / NAME
    for cut in range(len(FILE) + 1):
        path.write_bytes(FILE[:cut])
        segment = SegmentReader(path, cache=False)
        n_whole = frame_at(cut) if cut < len(FILE) else len(FRAMES)
        assert set(shown(segment)) == set().union(*(rows_of(truth, i) for i in range(n_whole)))
        assert segment.torn == cut - STARTS[n_whole]
        assert segment.damages == []
        with path.open("ab") as file:
            file.write(FILE[cut:])
        assert segment.refresh() == (n_whole < len(FRAMES) and cut < len(FILE))
        assert shown(segment) == truth
        assert (segment.torn, segment.damages) == (0, [])
        segment.close()


def test_every_flipped_bit_costs_one_frame_and_is_named(tmp_path: Path, truth: Truth) -> None:
    path = tmp_path / NAME
    for place in range(8 * len(FILE)):
        data = bytearray(FILE)
        data[place // 8] ^= 1 << place % 8
        found, segment = read(path, bytes(data))
        number = frame_at(place // 8)
        assert found.items() <= truth.items(), f"a wrong value after bit {place}"
        assert set(truth) - set(found) <= rows_of(truth, number)
        damages = segment.damages
        # A length that became longer than the file looks like a frame that is still being written.
        assert [damage.offset for damage in damages] == [STARTS[number]], f"bit {place}"
        assert damages[0].path == path
        assert damages[0].length == len(FRAMES[number])
        if place // 8 < STARTS[number] + 12 and number:
            assert damages[0].tag == "abma"[number - 1]


def test_zeros_in_place_of_a_frame_are_named(tmp_path: Path, truth: Truth) -> None:
    for number in range(1, 4):
        data = bytearray(FILE)
        data[STARTS[number] : STARTS[number + 1]] = bytes(len(FRAMES[number]))
        found, segment = read(tmp_path / NAME, bytes(data))
        assert set(truth) - set(found) == rows_of(truth, number)
        assert [(d.offset, d.length) for d in segment.damages] == [(STARTS[number], len(FRAMES[number]))]


def test_zeros_at_the_end_are_named_and_records_behind_them_found(tmp_path: Path, truth: Truth) -> None:
    path = tmp_path / NAME
    path.write_bytes(FILE + bytes(5000))
    segment = SegmentReader(path, cache=False)
    assert shown(segment) == truth
    assert segment.torn == 5000
    assert [(d.offset, d.length) for d in segment.damages] == [(len(FILE), 5000)]
    with path.open("ab") as file:
        file.write(block(KEYS[0], 3, np.array([9.0])))
    assert segment.refresh()
    assert len(shown(segment)) == len(truth) + 1
    assert [(d.offset, d.length) for d in segment.damages] == [(len(FILE), 5000)]
    segment.close()


@pytest.mark.parametrize("where", [1, 3])
def test_frames_of_another_file_inside_a_lost_payload_are_not_shown(tmp_path: Path, truth: Truth, where: int) -> None:
    other = version() + block(KEYS[0], 0, np.array([99.0]), segment=4) + block(KEYS[2], 50, np.array([98.0]), segment=4)
    carrier = bytearray(block(Key(kind="logged", tag="files"), 0, [other]))
    carrier[3] ^= 1  # its length
    data = b"".join(FRAMES[:where]) + bytes(carrier) + b"".join(FRAMES[where:])
    found, segment = read(tmp_path / NAME, data)
    assert found == truth
    assert segment.segment == 3
    assert {damage.what for damage in segment.damages} == {
        "the header of a frame is damaged",
        "a block of another file, which lay in bytes that were lost",
    }
    assert min(damage.offset for damage in segment.damages) == STARTS[where]
    assert max(d.offset + d.length for d in segment.damages) == STARTS[where] + len(carrier)


def hostile(shape: Sequence[int], *, n: int = 1, index: int = 0, **fields: Any) -> bytes:
    """Return a block of one array whose head claims another shape, other counts, and other columns."""
    columns = Columns(index=0, steps=np.arange(1), wall_times=np.zeros(1), values=np.zeros((1, 5, 3)))
    payload = b"".join(encode(KEYS[0], columns, segment=3))
    payload = payload.replace(struct.pack("<2q", 5, 3), struct.pack("<2q", *shape))
    return framed(changed(payload, n=n, index=index, **fields))


EVENS = {"steps": EVEN | 5, "values": EVEN | 5}


@pytest.mark.parametrize("shape", [(2**62, 0), (2**55, 2**55), (2**62, 1)])
def test_hostile_files_with_good_checksums_take_no_memory(tmp_path: Path, shape: tuple[int, int]) -> None:
    blocks = [hostile(shape, n=2**20, index=i << 20, **EVENS) for i in range(200)]
    small = [hostile(shape, index=i) for i in range(200)]
    path = tmp_path / NAME
    path.write_bytes(version() + b"".join(blocks + small))
    tracemalloc.start()
    with Recording(tmp_path) as recording:
        series = recording.series("a")
        assert len(series) == 200
        series.columns()
        with pytest.raises((DamagedError, IndexError)):
            series[0]
        with contextlib.suppress(DamagedError):
            assert not series.at(0, "[0]").size
        assert len(recording.damages) >= 200
    report = check(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20
    assert not report.intact


@given(st.data())
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
def test_mutated_files_show_nothing_wrong(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    truth, _ = read(tmp_path_factory.mktemp("f") / NAME, FILE)
    mutated = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(mutated)))
        stop = min(len(mutated), start + data.draw(st.integers(0, 300)))
        other = data.draw(st.one_of(st.binary(max_size=40), st.sampled_from([FILE, *FRAMES, bytes(100)])))
        mutated[start:stop] = other
    path = tmp_path_factory.mktemp("f") / NAME
    try:
        found, segment = read(path, bytes(mutated))
    except DamagedError:
        assert not mutated.startswith(FRAMES[0])
        return
    assert found.items() <= truth.items()
    assert all(0 <= d.offset <= len(mutated) and d.offset + d.length <= len(mutated) for d in segment.damages)
    report = check(path)
    assert str(report)
    assert report.intact == (not segment.damages and not any(file.gaps for file in report.files))


def test_bytes_that_are_no_records_have_none(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(100_000)
    found, segment = read(tmp_path / NAME, data)
    assert found == {}
    assert segment.torn == 100_000
    assert [(d.offset, d.length) for d in segment.damages] == [(0, 100_000)]


# Readers beside a writer, and what vanishes

WRITER = """
    import sys, time
    from pathlib import Path
    import numpy as np
    from sightglass.core.columns import Columns
    from sightglass.storage.format.block import Key
    from sightglass.storage.write.segment import SegmentWriter
    writer = SegmentWriter(Path(sys.argv[1]))
    n = 0
    for i in range(300):
        for tag in ("a", "b"):
            steps = np.arange(n, n + 7)
            columns = Columns(index=n, steps=steps, wall_times=steps * 0.5, values=np.sin(steps), ordinals=steps)
            writer.append(Key(kind="logged", tag=tag), columns)
        n += 7
        writer.flush()
    writer.append(Key(kind="logged", tag="end"), columns)
    writer.flush()
    writer.close()
"""


@pytest.mark.slow
def test_two_readers_follow_a_writer_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(path)]))
        readers = [stack.enter_context(Recording(tmp_path)) for _ in range(2)]
        got: list[list[float]] = [[], []]
        while not all("end" in reader.tags() for reader in readers):
            for reader, values in zip(readers, got, strict=True):
                if reader.changed():
                    reader.refresh()
                if "a" in reader.tags():
                    new = reader.series("a").columns(len(values))
                    assert new.index == len(values)
                    values.extend(new.values)
                assert reader.damages == []
            assert child.poll() in (None, 0)
        for reader, values in zip(readers, got, strict=True):
            reader.refresh()
            values.extend(reader.series("a").columns(len(values)).values)
            assert np.array_equal(values, np.sin(np.arange(2100)))
            assert reader.torn == 0


def test_a_newer_file_beside_ours_is_refused_and_ours_is_read(tmp_path: Path) -> None:
    (tmp_path / "2000-rank0-0000.sgr").write_bytes(version(3))
    with pytest.raises(DamagedError, match=r"format 3.*reads 2"):
        Recording(tmp_path)
    (tmp_path / NAME).write_bytes(FILE)
    with Recording(tmp_path) as recording:
        assert recording.tags() == ["a", "b", "m"]
        assert list(recording.refused) == [tmp_path / "2000-rank0-0000.sgr"]
    report = check(tmp_path)
    assert not report.intact
    assert "not read" in str(report)


def test_files_and_directories_may_vanish(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / NAME).write_bytes(FILE)
    (folder / "1000-rank0-0001.sgr").write_bytes(version() + block(KEYS[0], 3, np.array([1.0])))
    with Recording(folder) as recording:
        assert len(recording.series("a")) == 4
        (folder / "1000-rank0-0001.sgr").unlink()
        assert recording.changed()
        assert not recording.refresh()
        assert recording.vanished == [folder / "1000-rank0-0001.sgr"]
        assert len(recording.series("a").columns()) == 4
        shutil.rmtree(folder)
        assert recording.changed()
        assert not recording.refresh()
        assert len(recording.vanished) == 2
        assert len(recording.series("a").columns()) == 4
        assert not recording.changed()
    assert str(check(folder)) == f"{folder}: no record files"


def test_a_failing_disk_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).write_bytes(FILE)
    with Recording(tmp_path) as recording:

        def fail(*_: Any) -> int:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "preadv", fail)
        assert len(recording.series("a").columns()) == 0
        assert "Input/output error" in recording.damages[0].what
        monkeypatch.setattr(os, "pread", fail)
        recording.refresh()
        assert len(recording.series("a")) == 3


# The report


def test_a_report_says_what_is_intact(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(FILE + FRAMES[1][:50])
    report = check(tmp_path)
    assert report.intact
    (file,) = report.files
    assert (file.dialect, file.n_frames, file.torn) == ("sightglass", 4, 50)
    assert dict(file.n_rows) == {"a": 3, "b": 2, "m": 1}
    assert str(report).splitlines() == [
        f"{tmp_path}: 1 file, intact",
        f"  {NAME}: sightglass, {len(FILE) + 50:,} bytes, 4 frames, 6 records of 3 series",
        "    torn: the last 50 bytes are not a whole frame: the file grows, or its writer was killed",
    ]
    assert not list(tmp_path.glob("*.index"))


def test_a_report_names_damage(tmp_path: Path) -> None:
    data = bytearray(FILE)
    data[STARTS[4] - 6] ^= 1
    (tmp_path / NAME).write_bytes(bytes(data))
    report = check(tmp_path / NAME)
    assert not report.intact
    assert [(d.offset, d.tag, d.step) for d in report.damages] == [(STARTS[3], "m", 0.0)]
    assert str(report).splitlines()[2] == (
        f"    damaged: offset {STARTS[3]}, {len(FRAMES[3])} bytes of 'm' at step 0: the payload is damaged"
    )


def part_of_a_series(start: int, n_missed: int = 0, since: int = 0) -> bytes:
    columns = Columns(index=start, steps=np.arange(2), wall_times=np.zeros(2), values=np.zeros(2))
    return framed(*encode(KEYS[0], columns, segment=3, n_missed=n_missed, since=since))


def test_a_stream_that_is_recorded_again_has_no_gap_and_repeats_nothing(tmp_path: Path) -> None:
    part = part_of_a_series
    # Stopped and recorded again, while a client had the stream open, and while nobody had.
    (tmp_path / NAME).write_bytes(version() + part(0) + part(7, since=7) + part(0, since=20) + part(2, since=20))
    assert check(tmp_path).intact


def test_a_report_tells_of_gaps_that_nothing_explains(tmp_path: Path) -> None:
    part = part_of_a_series
    (tmp_path / NAME).write_bytes(version() + part(0) + part(7) + part(12, 3) + part(13, 3))
    (tmp_path / "1000-rank0-0001.sgr").write_bytes(version() + part(20))
    (tmp_path / "2000-rank0-0000.sgr").write_bytes(version() + part(0))
    gaps = [(gap.index, gap.n) for file in check(tmp_path).files for gap in file.gaps]
    assert gaps == [(2, 5), (14, -1), (15, 5)]
    told = str(check(tmp_path))
    assert "gap: 'a' lacks 5 records from index 2" in told
    assert "gap: 'a' repeats 1 records before index 14" in told
