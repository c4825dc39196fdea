"""Frames: what is torn waits, what is damaged is named, and the rest is found."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import DamagedError
from sightglass.storage.format.framing import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Frame,
    RandomAccessFile,
    Scan,
    checksum,
    frame,
    intact,
    masked,
    payload,
)

from ..blocks import whole_frames  # noqa: TID252  tests are not a package

payloads = st.lists(st.binary(max_size=40), max_size=6)


def framed(data: bytes) -> bytes:
    return b"".join(map(bytes, frame([data])))


opened: list[RandomAccessFile] = []


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def written(path: Path, data: bytes) -> RandomAccessFile:
    path.write_bytes(data)
    opened.append(RandomAccessFile(path))
    return opened[-1]


def scanned(scan: Scan) -> list[bytes]:
    return [bytes(body) for _, body in whole_frames(scan._file, scan)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_the_framing_is_tfrecords() -> None:
    # The frame of b"hello", as tensorflow.io.TFRecordWriter writes it: length, its CRC, payload, its CRC.
    crc = google_crc32c.value(b"hello")
    assert framed(b"hello")[-4:] == struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)
    assert framed(b"")[:8] == bytes(8)
    assert checksum(b"he", b"llo") == masked(crc)


@given(payloads)
def test_what_was_framed_is_found(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    file = written(tmp_path_factory.mktemp("f") / "x", b"".join(map(framed, parts)))
    scan = Scan(file)
    assert scanned(scan) == parts
    assert (scan.torn, scan.damages) == (0, [])


@given(payloads, st.data())
def test_a_file_cut_anywhere_goes_on_when_it_grows(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("f") / "x"
    whole = b"".join(map(framed, parts))
    cut = data.draw(st.integers(0, len(whole)))
    scan = Scan(written(path, whole[:cut]))
    first = scanned(scan)
    assert first == parts[: len(first)]
    assert scan.torn == cut - scan.position
    with path.open("ab") as file:
        file.write(whole[cut:])
    assert first + scanned(scan) == parts
    assert (scan.torn, scan.damages) == (0, [])


@pytest.mark.parametrize(
    "junk",
    [bytes(12), bytes(100), b"\xff" * 12, b"\xff" * 1000, b"abc" * 40],
    ids=["header", "zeros", "ones", "many", "text"],
)
def test_lost_bytes_are_named_and_the_next_frame_is_found(path: Path, junk: bytes) -> None:
    data = framed(b"one") + junk + framed(b"two") + framed(b"three")
    scan = Scan(written(path, data))
    assert scanned(scan) == [b"one", b"two", b"three"]
    (damage,) = scan.damages
    assert (damage.offset, damage.length) == (len(framed(b"one")), len(junk))
    assert damage.what == "the header of a frame is damaged"
    assert str(damage) == f"{path}, offset 19, {len(junk)} bytes: the header of a frame is damaged"


def test_a_frame_is_found_across_the_windows_of_the_search(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(HEADER_BYTES, 40):
        monkeypatch.setattr("sightglass.storage.format.framing.CHUNK_BYTES", size)
        scan = Scan(written(path, b"x" * 50 + framed(b"two") + framed(b"three")))
        assert scanned(scan) == [b"two", b"three"]


def test_a_damaged_payload_costs_its_frame(path: Path) -> None:
    data = bytearray(framed(b"one") + framed(b"two") + framed(b"three"))
    data[len(framed(b"one")) + HEADER_BYTES] ^= 1
    scan = Scan(written(path, bytes(data)))
    assert scanned(scan) == [b"one", b"three"]
    assert [(d.offset, d.length, d.what) for d in scan.damages] == [(19, 19, "the payload is damaged")]


def test_a_header_in_lost_bytes_whose_frame_is_damaged_is_no_frame(path: Path) -> None:
    false = bytearray(framed(b"false"))
    false[-1] ^= 1
    scan = Scan(written(path, b"lost" * 5 + bytes(false) + framed(b"true")))
    assert scanned(scan) == [b"true"]
    assert scan.damages[0].length == 20 + len(false)


def test_a_frame_that_is_torn_while_it_is_searched_for_is_found_when_it_is_whole(path: Path) -> None:
    late = framed(b"late" * 3000)
    data = framed(b"one") + b"lost bytes, longer than a header" + late
    for cut in (len(data) - len(late) + HEADER_BYTES, len(data) - 5000, len(data) - 1):
        scan = Scan(written(path, data[:cut]))
        assert scanned(scan) == [b"one"]
        assert scanned(scan) == []
        path.write_bytes(data)
        assert scanned(scan) == [b"late" * 3000]
        assert [(d.offset, d.length) for d in scan.damages] == [(19, 32)]


def test_a_torn_frame_behind_lost_bytes_does_not_hold_up_those_behind_it(path: Path) -> None:
    embedded = framed(bytes(2**20))[:100]  # of a frame that was cut off
    scan = Scan(written(path, b"lost" * 5 + embedded))
    assert scanned(scan) == []
    with path.open("ab") as file:
        file.write(framed(b"next"))
    assert scanned(scan) == [b"next"]


def test_a_scan_can_begin_anywhere(path: Path) -> None:
    file = written(path, framed(b"one") + framed(b"two"))
    scan = Scan(file)
    scan.position = len(framed(b"one"))
    assert scanned(scan) == [b"two"]


def test_only_the_beginnings_of_payloads_are_read(path: Path) -> None:
    data = np.random.default_rng(0).bytes(3_000_000)
    scan = Scan(written(path, framed(data) + framed(b"two")))
    first, second = scan.runs()
    assert (first.offsets, first.lengths) == ([0], [3_000_000])
    assert (second.offsets, second.lengths) == ([3_000_016], [3])
    assert first.n_bytes + second.n_bytes < 1_200_000
    assert data.startswith(first.data[first.starts[0] :])
    assert second.data[second.starts[0] :][:3] == b"two"


@pytest.mark.parametrize("length", [2**63, 2**40, 2**31, 100])
def test_a_length_beyond_the_file_allocates_nothing(path: Path, length: int) -> None:
    told = struct.pack("<Q", length)
    file = written(path, told + struct.pack("<I", checksum(told)) + b"x" * 50)
    scan = Scan(file)
    tracemalloc.start()
    assert scanned(scan) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    assert scan.torn == 62
    with pytest.raises(DamagedError, match=r"offset 0.*100 bytes"):
        payload(file, Frame(0, 100))
    assert not intact(file, Frame(0, length))


def test_the_search_is_bounded_whatever_lost_bytes_look_like(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightglass.storage.format.framing.SEARCH_BYTES", 2**20)
    told = struct.pack("<Q", 150_000)
    header = told + struct.pack("<I", checksum(told))
    scan = Scan(written(path, b"lost" + header * 30_000 + framed(b"true")))  # each could be half the file
    assert scanned(scan) == [b"true"]
    assert 0 < scan._verified < 10 * 2**20


def test_holes_cost_no_trial(path: Path) -> None:
    data = framed(b"one") + bytes(16 * 2**20) + framed(b"two")
    scan = Scan(written(path, data))
    assert scanned(scan) == [b"one", b"two"]
    assert scan._verified < 100  # nothing in the hole is tried as a frame


def test_intact_reads_piece_by_piece(path: Path) -> None:
    data = bytearray(framed(bytes(20 * 2**20)))
    file = written(path, bytes(data))
    found = Frame(0, 20 * 2**20)
    tracemalloc.start()
    assert intact(file, found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    data[10 * 2**20] = 1
    assert not intact(written(path, bytes(data)), found)
    assert not intact(written(path, bytes(data[: -FOOTER_BYTES - 5])), found)


def test_a_file_is_read_as_far_as_it_goes(path: Path) -> None:
    file = written(path, b"0123456789")
    assert bytes(file.read(8, 10)) == b"89"
    assert bytes(file.read(20, 10)) == b""
    assert bytes(file.read(0, 2**33)) == b"0123456789"
    assert file.size() == 10


def test_reading_goes_on_without_preadv(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.preadv")
    monkeypatch.delattr("os.pread")
    assert scanned(Scan(written(path, framed(b"one") + framed(b"two")))) == [b"one", b"two"]
