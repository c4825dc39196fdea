"""The index of a record file, kept beside it as `NAME.sgr.index` so that the next reader need not scan the file again.

It is a cache and nothing more: whoever has read many frames writes it if they can, and whoever finds it checks that it
is whole, that it is about this file, which begins with the same bytes, and that the file still has the frame that was
its last one. An index that is not, is ignored: a file that was compacted has a number of its own in its first frame.
The frames behind it are scanned, and whatever it says about a frame is checked when the frame is read.

The file is eight bytes of a name, the masked CRC32C of the rest, the length of a msgpack header, that header, and the
rows of all series one after the other, each series' in the order of the file.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from .block import COUNTS, KINDS, MIN_ROW_BYTES, Key
from .block_entries import MAX_COUNT, ROW, BlockEntries
from .framing import FOOTER_BYTES, HEADER_BYTES, Damage, RandomAccessFile, checksum

MAGIC: Final = b"SGINDEX2"
MIN_FRAMES: Final = 512
MIN_GROWTH: Final = 1.25
MAX_INDEX_BYTES: Final = 2**34
BEGINNING_BYTES: Final = 64

_FRONT: Final = struct.Struct("<II")


class SeriesEntry(msgspec.Struct, frozen=True, array_like=True):
    """A series of an index, and how many blocks it has."""

    kind: str
    tag: str
    query: str
    n: int


class DamageEntry(msgspec.Struct, frozen=True, array_like=True):
    """Damage, but for its file."""

    offset: int
    length: int
    what: str
    tag: str
    step: float | None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What an index says before its rows.

    Attributes:
        segment: The number that the file's blocks carry.
        beginning: The file's first bytes.
        position: How far the file was read.
        last: Where its last block's frame begins.
        last_header: That frame's header.
        columns: The names of the rows' columns.
        types: The types of values, by the numbers in the rows.
    """

    segment: int
    beginning: bytes
    position: int
    last: int
    last_header: bytes
    columns: tuple[str, ...]
    types: list[str]
    series: list[SeriesEntry]
    damages: list[DamageEntry]


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that was read and found to be right, as far as can be told without reading the file."""

    header: Header
    entries: dict[Key, BlockEntries]
    damages: list[Damage]


def path_of(path: Path) -> Path:
    """Return where the index of a file is."""
    return path.with_name(f"{path.name}.index")


def read(file: RandomAccessFile) -> Index | None:
    """Read the index of a file; `None` if there is none, or one that cannot be used."""
    try:
        with path_of(file.path).open("rb") as opened:
            if os.fstat(opened.fileno()).st_size > MAX_INDEX_BYTES:
                return None
            data = memoryview(opened.read())
        return _decode(data, file)
    except (OSError, msgspec.MsgspecError, struct.error, ValueError, OverflowError, MemoryError):
        return None


def _decode(data: memoryview, file: RandomAccessFile) -> Index | None:
    if bytes(data[: len(MAGIC)]) != MAGIC:
        return None
    crc, n = _FRONT.unpack_from(data, len(MAGIC))
    start = len(MAGIC) + _FRONT.size
    if crc != checksum(data[len(MAGIC) + 4 :]):
        return None
    header = msgspec.msgpack.decode(data[start : start + n], type=Header)
    rows = np.frombuffer(data[start + n :], ROW)
    fits = header.columns == ROW.names and sum(series.n for series in header.series) == len(rows)
    if not (fits and _is_about(header, file) and _is_sound(rows, header)):
        return None
    entries: dict[Key, BlockEntries] = {}
    place = 0
    for series in header.series:
        if series.kind not in KINDS or series.n < 1:
            return None
        key = Key(kind=series.kind, tag=series.tag, query=series.query)
        entries[key] = BlockEntries(key, (), rows[place : place + series.n])
        place += series.n
    damages = [
        Damage(path=file.path, offset=lost.offset, length=lost.length, what=lost.what, tag=lost.tag, step=lost.step)
        for lost in header.damages
    ]
    return Index(header=header, entries=entries, damages=damages)


def _is_about(header: Header, file: RandomAccessFile) -> bool:
    """Tell whether the file begins as the index's, and has the frame that was its last."""
    return (
        0 < header.last < header.position <= file.size()
        and file.read(0, BEGINNING_BYTES)[: header.position] == header.beginning
        and len(header.last_header) == HEADER_BYTES
        and file.read(header.last, HEADER_BYTES) == header.last_header
    )


def _is_sound(rows: Any, header: Header) -> bool:
    """Tell whether rows can be those of blocks."""
    n, offset, length = rows["n"], rows["offset"], rows["length"]
    return bool(
        (offset > 0).all()
        and (length > 0).all()
        and (length <= header.position).all()
        and (offset + length + HEADER_BYTES + FOOTER_BYTES <= header.position).all()
        and (n > 0).all()
        and (n <= length // MIN_ROW_BYTES).all()
        and (rows["type"] >= 0).all()
        and (rows["type"] < len(header.types)).all()
        and all((rows[name] >= 0).all() and (rows[name] < MAX_COUNT).all() for name in COUNTS)
    )


def write(
    file: RandomAccessFile,
    entries: Mapping[Key, BlockEntries],
    *,
    segment: int,
    position: int,
    last: int,
    types: list[str],
    damages: list[Damage],
) -> None:
    """Leave an index beside a file, if that can be done."""
    header = Header(
        segment=segment, position=position, last=last,
        beginning=bytes(file.read(0, min(position, BEGINNING_BYTES))), last_header=bytes(file.read(last, HEADER_BYTES)),
        columns=ROW.names or (), types=types,
        series=[SeriesEntry(key.kind, key.tag, key.query, len(found)) for key, found in entries.items()],
        damages=[DamageEntry(d.offset, d.length, d.what, d.tag, d.step) for d in damages],
    )  # fmt: skip
    told = msgspec.msgpack.encode(header)
    rows = [found.rows.view(np.uint8).data for found in entries.values()]
    length = struct.pack("<I", len(told))
    target = path_of(file.path)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as opened:
            opened.writelines([MAGIC, struct.pack("<I", checksum(length, told, *rows)), length, told, *rows])
        if file.is_at(file.path):
            fresh.replace(target)
        else:
            fresh.unlink()
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
