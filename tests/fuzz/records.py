"""Our own files: records, their indexes and `run.json`."""

from __future__ import annotations

import contextlib
import functools
import struct
from typing import Any

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, QueryError, WireError
from sightglass.core.values import Figure, Histogram, Tensor, Text
from sightglass.storage import run_file
from sightglass.storage.format import index as index_file
from sightglass.storage.format import summary
from sightglass.storage.format.block import CHECKED, HEAD, HEAD_BYTES, Key, encode, is_block
from sightglass.storage.format.framing import checksum, frame
from sightglass.storage.read.segment_reader import SegmentReader

from .inputs import folder, placed, split

NAME = "1000-rank0-0000.sgr"
EXPECTED = (DamagedError, WireError, QueryError)


def segment(data: bytes) -> None:
    """Read a record file, twice: while it grows, and whole."""
    with placed(NAME, data[: len(data) // 2]) as path:
        try:
            part = SegmentReader(path, cache=False)
        except DamagedError:
            return
        path.write_bytes(data)
        try:
            part.refresh()
            read_all(part)
        except DamagedError:
            pass
        finally:
            part.close()


def blocks(data: bytes) -> None:
    """Read payloads as the frames of a record file, with checksums that are right."""
    segment(version("Sightglass.Event:2") + b"".join(framed(mended(part)) for part in split(data)))


def index(data: bytes) -> None:
    """Open a record file beside which an index lies; only what the file has is ever returned."""
    whole, truth = _indexed_file()
    with placed(NAME, whole) as path, placed(f"{NAME}.index", mended_index(data)):
        part = SegmentReader(path)
        try:
            for key, entries in part.entries().items():
                for entry in entries:
                    with contextlib.suppress(*EXPECTED):
                        assert repr(part.load(entry)) == truth[key, entry.offset]
            read_all(part)
        finally:
            part.close()


def runfile(data: bytes) -> None:
    """Read a `run.json`."""
    with placed("run.json", data) as path:
        told = run_file.read(path)
        assert told is None or (isinstance(told.name, str) and isinstance(told.config, dict))
        run_file.together(run_file.read_all(folder()))


def read_all(part: Any) -> None:
    """Read everything that a file has, whole and in part."""
    for entries in part.entries().values():
        for entry in entries:
            assert entry.n > 0
            with contextlib.suppress(*EXPECTED):
                assert len(part.load(entry)) == entry.n
            for row, text in ((entry.n - 1, "[0]"), (0, "[..., ::2]")):
                with contextlib.suppress(*EXPECTED):
                    part.load_slice(entry, row, text)
    list(map(str, part.damages))


@functools.cache
def _indexed_file() -> tuple[bytes, dict[tuple[Key, int], str]]:
    """Return a record file, and what its blocks have, by series and offset."""
    whole = record_file()
    with placed(NAME, whole) as path:
        part = SegmentReader(path, cache=False)
        truth = {
            (key, entry.offset): repr(part.load(entry)) for key, entries in part.entries().items() for entry in entries
        }
        part.close()
    return whole, truth


# Files and payloads


def framed(payload: bytes) -> bytes:
    """Return a frame."""
    return b"".join(map(bytes, frame([payload])))


def version(text: str) -> bytes:
    """Return the frame that begins a file."""
    return framed(b"".join(map(bytes, summary.encode_version(text, 1.5))))


def mended(payload: bytes) -> bytes:
    """Make the checksum of a block's head right, if there is one."""
    if is_block(payload) and len(payload) >= HEAD_BYTES:
        end = HEAD_BYTES + int(np.frombuffer(payload, HEAD, 1)["texts"].sum())
        return payload[: CHECKED - 4] + struct.pack("<I", checksum(payload[CHECKED:end])) + payload[CHECKED:]
    return payload


def mended_index(data: bytes) -> bytes:
    """Make the checksum of an index right."""
    start = len(index_file.MAGIC) + 4
    return data[: start - 4] + struct.pack("<I", checksum(data[start:])) + data[start:]


def payloads() -> list[bytes]:
    """Return a block of each kind of values."""
    values: list[Any] = [
        np.array([1.5, -2.5]), np.arange(4), ["x", {"y": 1, "z": [1, 2.5, None, True]}],
        np.arange(6, dtype=np.float32).reshape(1, 2, 3), [np.arange(3.0), np.zeros((0, 2))],
        [Histogram(np.arange(10.0)), Tensor(np.eye(2)), Text("t"), Figure(b"\x89PNG", "image/png")],
        [2**70, 1 + 2j, float("nan")], np.array([True, False]),
    ]  # fmt: skip
    made = []
    for i, column in enumerate(values):
        n = len(column)
        columns = Columns(
            index=i, steps=np.arange(n) * 5 if i % 2 else np.array([0.5] * n), wall_times=np.arange(n) + 0.5,
            values=column, ordinals=np.arange(n) * (1 + i % 3), tracks=[{"epoch": 1.5}] * n if i % 2 else None,
            n_events=np.full(n, 3) if i % 3 else None, flags=np.full(n, 1, np.uint8) if i % 3 else None,
        )  # fmt: skip
        kind = ("logged", "stream", "groups", "commands", "snapshot")[i % 5]
        key = Key(kind=kind, tag=f"t{i}", query="batch.b" if kind == "stream" else "")  # type: ignore[arg-type]
        made.append(b"".join(map(bytes, encode(key, columns, segment=3))))
    return made


def record_file() -> bytes:
    """Return a record file with a block of each kind of values."""
    return version("Sightglass.Event:2") + b"".join(map(framed, payloads()))
