"""The index of a record file, stored beside it as `NAME.sgr.index` to save the next reader a scan.

It is only a cache. A reader that has scanned many frames writes it, if it can. A reader that finds one checks that it
is whole, that the file begins with the same bytes, and that the file still has the frame that was its last; otherwise
it ignores the index. (A compacted file has a random number in its first frame.) Frames after the indexed ones are
scanned, and what the index says about a frame is checked when the frame is read.

The file is an eight-byte signature, the masked CRC32C of the rest, the length of a msgpack header, that header, and the
rows of all series, series by series, in the order of the file.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError
from sightglass.storage.file_system import written_aside

from .block import COUNTS, KINDS, MIN_ROW_BYTES, Key
from .block_entries import MAX_COUNT, ROW, BlockEntries, IndexRows
from .framing import FOOTER_BYTES, HEADER_BYTES, Damage, RandomAccessFile, checksum
from .wide import columns_of

MAGIC: Final = b"SGINDEX2"
MIN_FRAMES: Final = 512  # fewer are scanned in a millisecond or two
MIN_GROWTH: Final = 1.25  # written again by a reader that follows a file, so all writes together cost little
MAX_INDEX_BYTES: Final = 2**34
BEGINNING_BYTES: Final = 64  # the version record, with the random number of a compacted file

_FRONT: Final = struct.Struct("<II")


class SeriesEntry(msgspec.Struct, frozen=True, array_like=True):
    """A series of an index, and how many blocks it has."""

    kind: str
    tag: str
    query: str
    n: int


class DamageEntry(msgspec.Struct, frozen=True, array_like=True):
    """Damage, without its file."""

    offset: int
    length: int
    what: str
    tag: str
    step: float | None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of an index.

    Attributes:
        segment: The number that the file's blocks carry.
        beginning: The file's first bytes.
        position: How far the file was read.
        last: Where the frame of its last block begins.
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
    """An index that was read and is consistent, as far as that shows without reading the file."""

    header: Header
    entries: dict[Key, BlockEntries]
    damages: list[Damage]


def path_of(path: Path) -> Path:
    """Return where the index of a file is."""
    return path.with_name(f"{path.name}.index")


def read(file: RandomAccessFile) -> Index | None:
    """Read the index of a file; `None` if it does not exist or cannot be used."""
    try:
        found = RandomAccessFile(path_of(file.path), file.files)
        n_bytes = found.size()
        return _decode(found.read(0, n_bytes), file) if n_bytes <= MAX_INDEX_BYTES else None
    except (OSError, msgspec.MsgspecError, WireError, struct.error, ValueError, OverflowError, MemoryError):
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
        if key.kind == "wide":
            columns_of(key)
        entries[key] = BlockEntries(key, (), rows[place : place + series.n])
        place += series.n
    damages = [
        Damage(path=file.path, offset=lost.offset, length=lost.length, what=lost.what, tag=lost.tag, step=lost.step)
        for lost in header.damages
    ]
    return Index(header=header, entries=entries, damages=damages)


def _is_about(header: Header, file: RandomAccessFile) -> bool:
    """Return whether the file begins like the indexed one, and has the frame that was its last."""
    return (
        0 < header.last < header.position <= file.size()
        and file.read(0, BEGINNING_BYTES)[: header.position] == header.beginning
        and len(header.last_header) == HEADER_BYTES
        and file.read(header.last, HEADER_BYTES) == header.last_header
    )


def _is_sound(rows: IndexRows, header: Header) -> bool:
    """Return whether rows can be those of blocks."""
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
    """Write an index beside a file, if possible."""
    header = Header(
        segment=segment, position=position, last=last,
        beginning=bytes(file.read(0, min(position, BEGINNING_BYTES))), last_header=bytes(file.read(last, HEADER_BYTES)),
        columns=ROW.names or (), types=types,
        series=[SeriesEntry(key.kind, key.tag, key.query, len(found)) for key, found in entries.items()],
        damages=[DamageEntry(d.offset, d.length, d.what, d.tag, d.step) for d in damages],
    )  # fmt: skip
    encoded = msgspec.msgpack.encode(header)
    rows = [found.rows.view(np.uint8).data for found in entries.values()]
    length = struct.pack("<I", len(encoded))
    whole: list[Buffer] = [MAGIC, struct.pack("<I", checksum(length, encoded, *rows)), length, encoded, *rows]
    target = path_of(file.path)
    aside = written_aside(file.files, target, whole, sync=False, like=file.path)  # it has the file's tags and queries
    with contextlib.suppress(OSError), aside as path:
        if file.is_at(file.path):
            file.files.replace(path, target)
