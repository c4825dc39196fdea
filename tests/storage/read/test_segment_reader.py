"""Our files: read while they grow, whole or by slices, with and without their index."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, QueryError
from sightglass.core.values import Tensor
from sightglass.storage.format import index
from sightglass.storage.format.block import Key, encode
from sightglass.storage.format.framing import RandomAccessFile, frame
from sightglass.storage.format.protobuf import BYTES, FIXED64, key, varint
from sightglass.storage.read.run_series import Concatenation
from sightglass.storage.read.segment_reader import SegmentReader, name_of
from sightglass.storage.tensors import slices
from sightglass.storage.tensors.slices import resolve

from ..blocks import columns_of  # noqa: TID252  tests are not a package

LOSS, ACC = Key(kind="logged", tag="loss"), Key(kind="logged", tag="acc")
NAME = "1700000000500-rank3-0001.sgr"


def event(version: str = "Sightglass.Event:2", wall_time: float = 12.5) -> bytes:
    told = version.encode()
    return framed(key(1, FIXED64) + struct.pack("<d", wall_time) + key(3, BYTES) + varint(len(told)) + told)


def framed(*parts: Any) -> bytes:
    return b"".join(map(bytes, frame(parts)))


def block(
    start: int = 0,
    n: int = 3,
    *,
    name: Key = LOSS,
    values: Any = None,
    segment: int = 7,
    steps: Any = None,
    **told: Any,
) -> bytes:
    place = np.arange(start, start + n)
    columns = Columns(
        index=start, steps=place * 10 if steps is None else steps, wall_times=place + 0.5,
        values=place * 0.25 if values is None else values, ordinals=place * 2,
    )  # fmt: skip
    return framed(*encode(name, columns, segment=segment, **told))


Make = Callable[..., SegmentReader]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    opened: list[SegmentReader] = []

    def make(*parts: bytes, name: str = NAME, cache: bool = False) -> SegmentReader:
        path = tmp_path / name
        path.write_bytes(b"".join(parts))
        opened.append(SegmentReader(path, cache=cache))
        return opened[-1]

    yield make
    for segment in opened:
        segment.close()


def grow(segment: SegmentReader, *parts: bytes) -> bool:
    with segment.path.open("ab") as file:
        file.write(b"".join(parts))
    return segment.refresh()


def values(segment: SegmentReader, name: Key = LOSS) -> list[Any]:
    found = segment.entries().get(name)
    return [] if found is None else list(columns_of(segment, found).values)


def test_what_was_written_is_found_by_series(make: Make) -> None:
    segment = make(event(), block(0), block(0, name=ACC), block(3, 2))
    assert segment.damages == []
    assert (segment.torn, segment.n_frames, segment.segment) == (0, 3, 7)
    assert [len(found) for found in segment.entries().values()] == [2, 1]
    columns = columns_of(segment, segment.entries()[LOSS])
    assert columns.index == 0
    assert columns.steps.tolist() == [0, 10, 20, 30, 40]
    assert columns.ordinals.tolist() == [0, 2, 4, 6, 8]
    assert columns.values.tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    second = segment.entries()[LOSS][1]
    assert (second.n, second.index, second.ordinal, second.type) == (2, 3, 6, "float")
    assert (second.first_step, second.last_step, second.first_wall) == (30, 40, 3.5)
    assert segment.load(second).values.tolist() == [0.75, 1.0]


def test_a_file_says_by_its_name_who_wrote_it(make: Make) -> None:
    segment = make(event())
    assert (segment.started, segment.rank, segment.number) == (1_700_000_000.5, 3, 1)
    other = make(event(), name="loss.sgr")
    assert (other.started, other.rank, other.number) == (12.5, 0, 0)
    assert name_of(Path("x.sgr")) is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([event("Sightglass.Event:3")], "newer sightglass, format 3; this one reads 2"),
        ([event("Sightglass.Event:1")], "'Sightglass.Event:2', got 'Sightglass.Event:1'"),
        ([event("MindSpore.Event:1")], "'Sightglass.Event:2', got 'MindSpore.Event:1'"),
        ([event("brain.Event:2")], "'Sightglass.Event:2', got 'brain.Event:2'"),
        ([event(""), block()], "'Sightglass.Event:2', got ''"),
        ([block()], "'Sightglass.Event:2', got ''"),
        ([framed(b"\xff" * 9)], "'Sightglass.Event:2', got ''"),
        ([framed(bytes(10_000))], "'Sightglass.Event:2', got ''"),
        ([framed(b"")], "'Sightglass.Event:2', got ''"),
    ],
)
def test_files_that_are_none_of_ours_are_refused(make: Make, parts: list[bytes], message: str) -> None:
    with pytest.raises(DamagedError, match=message):
        make(*parts)


def test_a_file_that_has_only_begun_is_waited_for(make: Make) -> None:
    segment = make()
    assert segment.entries() == {}
    for byte in event() + block(0):
        assert segment.damages == []
        grown = grow(segment, bytes([byte]))
    assert grown
    assert values(segment) == [0, 0.25, 0.5]
    assert segment.torn == 0


def test_growth_is_followed(make: Make) -> None:
    segment = make(event(), block(0))
    found = segment.entries()[LOSS]
    assert not segment.refresh()
    assert grow(segment, block(3), block(0, name=ACC))
    assert not segment.refresh()
    assert len(found) == 2
    assert len(values(segment)) == 6


def test_events_without_a_block_are_passed_over(make: Make) -> None:
    other = key(1, FIXED64) + bytes(8) + key(5, BYTES) + varint(3) + b"abc"
    segment = make(
        event(), framed(other), block(0), framed(b""), framed(key(77, BYTES) + varint(20_000) + bytes(20_000))
    )
    assert segment.damages == []
    assert len(values(segment)) == 3


def test_a_long_head_is_read(make: Make) -> None:
    name = Key(kind="stream", tag="x", query="q" * 20_000)
    segment = make(event(), block(0, name=name), block(3, name=name))
    assert list(segment.entries()) == [name]
    assert len(values(segment, name)) == 6


def test_blocks_may_differ_in_the_types_of_their_values(make: Make) -> None:
    whole, mixed = np.array([1, 2, 3]), [None, "a", {"b": 1.5}]
    segment = make(event(), block(0, values=whole), block(3), block(6, values=mixed))
    assert repr(values(segment)) == repr([1, 2, 3, 0.75, 1.0, 1.25, None, "a", {"b": 1.5}])
    arrays = make(event(), block(0, values=np.ones((3, 2))), block(3, values=np.zeros((3, 4), np.float32)))
    assert [(v.dtype, v.shape) for v in values(arrays)] == [(np.float64, (2,))] * 3 + [(np.float32, (4,))] * 3


def test_lists_of_arrays_outlive_the_reading(make: Make) -> None:
    def ragged(i: int) -> list[Any]:
        return [np.full(2000 + i + j, 10 * i + j) for j in range(3)]

    segment = make(event(), *(block(3 * i, values=ragged(i)) for i in range(5)))
    told = [value for i in range(5) for value in ragged(i)]
    assert all(np.array_equal(a, b) for a, b in zip(values(segment), told, strict=True))


def test_a_damaged_block_is_named_once_and_left_out(make: Make) -> None:
    good = event() + block(0)
    bad = bytearray(block(3))
    bad[-10] ^= 4
    segment = make(good, bytes(bad), block(6))
    assert segment.damages == []
    found = segment.entries()[LOSS]
    for _ in range(2):
        with pytest.raises(DamagedError, match=f"{NAME}, offset {len(good)}, .*'loss', step 30"):
            segment.load(found[1])
    assert len(segment.damages) == 1
    columns = columns_of(segment, found)
    assert columns.steps.tolist() == [0, 10, 20, 60, 70, 80]
    with pytest.raises(DamagedError):
        segment.load_slice(found[1], 0, ())
    assert len(segment.damages) == 1


def test_a_block_that_is_not_the_indexed_one_is_refused(make: Make) -> None:
    segment = make(event(), block(0), block(3))
    entry = segment.entries()[LOSS][0]
    for other in (
        replace(entry, first_step=5.0),
        replace(entry, n=2),
        replace(entry, key=ACC),
        replace(entry, index=9),
    ):
        segment._bad.clear()
        with pytest.raises(DamagedError, match="another block"):
            segment.load(other)
        segment._bad.clear()
        with pytest.raises(DamagedError, match="another block"):
            segment.load_slice(other, 0, ())


def test_steps_that_are_no_numbers_are_no_damage(make: Make) -> None:
    segment = make(event(), block(0, steps=np.array([np.nan, 1.0, np.nan])))
    assert len(values(segment)) == 3
    assert segment.damages == []


def test_a_file_that_is_cut_off_is_no_exception(make: Make) -> None:
    segment = make(event(), block(0), block(3))
    os.truncate(segment.path, len(event()) + 30)
    segment.refresh()
    with pytest.raises(DamagedError):
        segment.load(segment.entries()[LOSS][1])
    assert values(segment) == []


def test_a_file_that_vanishes_can_be_read_on(make: Make) -> None:
    segment = make(event(), block(0))
    segment.path.unlink()
    assert not segment.refresh()
    assert len(values(segment)) == 3


# Slices


shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def sliced(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = draw(shapes)
    entries: list[Any] = []
    for n in shape:
        places = [st.slices(n).filter(lambda cut: abs(cut.step or 1) < 2**63)] + ([st.integers(-n, n - 1)] if n else [])
        entries.append(draw(st.one_of(places)))
    return shape, tuple(entries[: draw(st.integers(0, len(entries)))])


@given(sliced(), st.sampled_from([1, 8, 40, 10**6]), st.sampled_from([1, 8, 40, 10**6]))
@settings(max_examples=examples(300))
def test_slices_are_numpys(
    tmp_path_factory: pytest.TempPathFactory, asked: tuple[Any, Any], piece: int, far: int
) -> None:
    shape, cut = asked
    array = np.arange(int(np.prod(shape)), dtype="<i2").reshape(shape)
    path = tmp_path_factory.mktemp("f") / "x"
    path.write_bytes(b"\xff" * 5 + array.tobytes())
    file = RandomAccessFile(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "PIECE_BYTES", piece)
        patch.setattr(slices, "FAR_BYTES", far)
        found = slices.read(file, 5, array.dtype, shape, resolve(cut, shape))
    file.close()
    assert np.array_equal(found, array[cut])
    assert found.shape == array[cut].shape


@pytest.mark.parametrize("cut", ["", "[1]", "[1, ::-1]", "[:, 2]", "[-1, 1:3]", "..., 0"])
def test_a_part_of_an_array_is_read(make: Make, cut: str) -> None:
    arrays = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    segment = make(event(), block(0, 2, values=arrays), block(2, 1, values=[np.arange(12).reshape(3, 4)]))
    first, second = segment.entries()[LOSS]
    for row in (0, 1, -1):
        told = arrays[row][resolve(cut, (3, 4))]
        assert np.array_equal(segment.load_slice(first, row, cut), told)
    assert segment.load_slice(second, 0, "[2, 1:]").tolist() == [9, 10, 11]
    with pytest.raises(QueryError, match="indices"):
        segment.load_slice(first, 0, "[0, 0, 0]")
    with pytest.raises(IndexError):
        segment.load_slice(first, 2, "[0, 0]")


def test_a_part_of_what_lies_in_a_list_is_read(make: Make) -> None:
    ragged = [np.arange(6).reshape(2, 3), Tensor(np.arange(4.0)), "text"]
    segment = make(event(), block(0, values=ragged), block(3))
    entry, numbers = segment.entries()[LOSS]
    assert segment.load_slice(entry, 0, "[1]").tolist() == [3, 4, 5]
    assert segment.load_slice(entry, 1, "[::-2]").tolist() == [3, 1]
    with pytest.raises(QueryError, match=r"'\[0\]'.*got str"):
        segment.load_slice(entry, 2, "[0]")
    assert segment.load_slice(numbers, 1, ()).tolist() == 1.0
    with pytest.raises(QueryError, match="indices"):
        segment.load_slice(numbers, 1, "[0]")


def test_values_behind_long_columns_are_found(make: Make) -> None:
    n = 3000  # wall times of 24 kB come before the values
    arrays = np.arange(n * 4).reshape(n, 4)
    segment = make(event(), block(0, n, values=arrays))
    assert segment.load_slice(segment.entries()[LOSS][0], 2999, "[1:]").tolist() == [11997, 11998, 11999]


def test_a_shape_that_claims_more_than_there_is_is_damage(make: Make) -> None:
    good = block(0, 1, values=np.zeros((1, 3)))[12:-4]
    segment = make(event(), framed(good.replace((3).to_bytes(8, "little"), (127).to_bytes(8, "little"))))
    with pytest.raises(DamagedError, match="claims"):
        segment.load_slice(segment.entries()[LOSS][0], 0, "[:]")


@pytest.mark.slow
def test_a_slice_takes_memory_for_little_more_than_itself(tmp_path: Path) -> None:
    path = tmp_path / "big.sgr"
    shape = (512, 1024, 256)
    array = np.zeros(shape, np.float32)  # 512 MiB
    array[3, 4, 5], array[511, 1023, 255], array[100, :, 7] = 1, 2, 3
    with path.open("wb") as file:
        file.write(event())
        columns = Columns(index=0, steps=np.arange(1), wall_times=np.zeros(1), values=[array])
        file.writelines(frame(encode(LOSS, columns, segment=7)))
    del array
    child = """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from sightglass.storage.read.segment_reader import SegmentReader
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        base = peak()
        segment = SegmentReader(Path(sys.argv[1]))
        (entry,) = next(iter(segment.entries().values()))
        assert segment.load_slice(entry, 0, "[3, 4, 5]") == 1
        assert segment.load_slice(entry, 0, "[-1, -1, -3:]").tolist() == [0, 0, 2]
        assert segment.load_slice(entry, 0, "[100, :, 7]").sum() == 3 * 1024
        assert segment.load_slice(entry, 0, "[:, 4, 5]").sum() == 1
        assert segment.load_slice(entry, 0, "[::-7, ::9, 7]").shape == (74, 114)
        assert segment.load_slice(entry, 0, "[:, :, 0]").shape == (512, 1024)
        assert segment.load_slice(entry, 0, "[::100, ::-100, ::50]").shape == (6, 11, 6)
        print(peak() - base)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(child), str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 50


# Putting columns together


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)), max_size=6))
def test_pieces_have_no_gaps_and_all_records(told: list[tuple[int, int, int]]) -> None:
    join, parts, place = Concatenation(sum(n for _, n, _ in told), 10**6), [], 0
    for gap, n, kind in told:
        place += gap
        steps = np.arange(place, place + n) if kind != 1 else np.arange(place, place + n) + 0.5
        parts.append(
            Columns(
                index=place, steps=steps, wall_times=steps * 1.0, values=steps * 2 if kind < 2 else steps.tolist(),
                n_events=np.full(n, 3) if kind == 2 else None, flags=np.full(n, 1, np.uint8) if kind == 1 else None,
                tracks=[{"epoch": 1.0}] * n if kind == 3 else None, ordinals=steps.astype(int),
            )
        )  # fmt: skip
        join.add(parts[-1])
        place += n
    records = [part.record(i, tag="x", run="") for part in parts for i in range(len(part))]
    found = [part.record(i, tag="x", run="") for part in join.pieces() for i in range(len(part))]
    assert found == records
    assert len(join.columns()) == len(records)
    gaps = sum(gap > 0 for gap, _, _ in told[1:])
    assert len(join.pieces()) == (gaps + 1 if told else 0)


# The index


@pytest.fixture
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MIN_FRAMES", 2)


def rows(segment: SegmentReader) -> dict[Key, list[Any]]:
    return {name: list(found) for name, found in segment.entries().items()}


@pytest.mark.usefixtures("_eager")
def test_an_index_is_left_and_used(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = b"lost bytes, more than a header"
    first = make(event(), block(0), bad, block(0, name=ACC), block(3), cache=True)
    beside = index.path_of(first.path)
    assert beside.exists()
    assert [p.name for p in first.path.parent.iterdir()] == sorted([NAME, beside.name])[:2]
    monkeypatch.setattr(SegmentReader, "_read_heads", None)  # nothing is scanned
    second = SegmentReader(first.path)
    assert rows(second) == rows(first)
    assert (second.segment, second.damages, second.torn) == (first.segment, first.damages, 0)
    assert values(second) == values(first)
    second.close()


@pytest.mark.usefixtures("_eager")
def test_growth_behind_an_index_is_scanned(make: Make) -> None:
    first = make(event(), block(0), block(3), cache=True)
    with first.path.open("ab") as file:
        file.write(block(6) + block(0, name=ACC))
    second = SegmentReader(first.path)
    assert len(values(second)) == 9
    assert values(second, ACC) == [0, 0.25, 0.5]
    third = SegmentReader(first.path)
    assert third._n_indexed == 4
    second.close()
    third.close()


def test_small_files_leave_no_index(make: Make) -> None:
    segment = make(event(), *(block(3 * i) for i in range(index.MIN_FRAMES - 1)), cache=True)
    assert not index.path_of(segment.path).exists()
    grow(segment, block(3 * index.MIN_FRAMES))
    assert index.path_of(segment.path).exists()


@pytest.mark.usefixtures("_eager")
def test_an_index_that_is_wrong_is_ignored(make: Make, tmp_path: Path) -> None:
    good = make(event(), block(0), block(3), cache=True)
    beside = index.path_of(good.path)
    data = beside.read_bytes()
    told = rows(good)
    variants = [data[:n] for n in range(0, len(data), 7)]
    for place in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        variants.append(bytes(flipped))
    for variant in variants:
        beside.write_bytes(variant)
        assert index.read(good._file) is None
    with Opened(good.path) as again:
        assert rows(again) == told
    assert beside.read_bytes() == data  # written anew


@pytest.mark.usefixtures("_eager")
def test_an_index_of_another_file_shows_nothing_wrong(make: Make, tmp_path: Path) -> None:
    make(event(), block(0, segment=1), block(3, segment=1), cache=True)
    other = make(event(), block(0, segment=2), block(3, n=2, segment=2), name="2-rank0-0000.sgr")
    os.replace(index.path_of(tmp_path / NAME), index.path_of(other.path))
    with Opened(other.path) as again:
        assert again.segment == 2
        assert len(values(again)) == 5


@pytest.mark.usefixtures("_eager")
def test_an_index_of_a_file_that_was_shorter_or_written_anew_is_ignored(make: Make) -> None:
    segment = make(event(), block(0), block(3), cache=True)
    os.truncate(segment.path, len(event() + block(0)))
    with Opened(segment.path) as again:
        assert len(values(again)) == 3
    make(event(), block(0), block(3), cache=True)
    make(event(), block(0, values=np.ones(3)), block(3, values=np.array([7, 8, 9])), block(6))  # other bytes, as long
    with Opened(segment.path) as again:
        shown = values(again)
        assert shown[:3] == [1, 1, 1] or not shown
        assert not set(shown) & {0.25, 0.5}


@pytest.mark.usefixtures("_eager")
def test_a_forged_index_with_a_good_checksum_shows_no_wrong_value(make: Make) -> None:
    segment = make(event(), block(0), block(3), block(0, name=ACC), cache=True)
    found = dict(segment.entries())
    for column, value in (("offset", 1), ("offset", 21), ("length", 5), ("n", 1), ("index", 8), ("first_step", -1.0),
                          ("type", 0), ("ordinal", 5), ("n", 2**40), ("offset", 2**62), ("type", 9)):  # fmt: skip
        forged = {name: type(entries)(name, entries.types, entries.rows.copy()) for name, entries in found.items()}
        forged[LOSS].rows[column][0] = value
        index.write(segment._file, forged, segment=7, position=segment._scan.position, last=segment._last,
                    types=segment._heads.types, damages=[])  # fmt: skip
        with Opened(segment.path) as again:
            shown = values(again)
            assert shown in ([0, 0.25, 0.5, 0.75, 1.0, 1.25], [0.75, 1.0, 1.25])
            assert len(shown) == 6 or again.damages


@pytest.mark.usefixtures("_eager")
def test_a_directory_that_cannot_be_written_is_fine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "replace", refuse)
    segment = make(event(), block(0), block(3), cache=True)
    assert len(values(segment)) == 6
    assert [p.name for p in segment.path.parent.iterdir()] == [NAME]


class Opened:
    def __init__(self, path: Path) -> None:
        self.segment = SegmentReader(path)

    def __enter__(self) -> SegmentReader:
        return self.segment

    def __exit__(self, *_: object) -> None:
        self.segment.close()
