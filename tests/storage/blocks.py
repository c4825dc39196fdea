"""Blocks as tests look at them: what their heads say, and blocks whose heads lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError
from sightglass.storage.format.block import CHECKED, COLUMNS, HEAD, HEAD_BYTES
from sightglass.storage.format.framing import Frame, RandomAccessFile, Scan, checksum, payload
from sightglass.storage.format.index import BlockEntries, BlockEntry, Heads
from sightglass.storage.read.run_series import Concatenation
from sightglass.storage.read.segment_reader import SegmentReader


def entry_of(payload: bytes | bytearray | memoryview, *, offset: int = 0, length: int | None = None) -> BlockEntry:
    """Return what the head of a block says."""
    heads = Heads()
    named, row = heads.read_one(payload, len(payload) if length is None else length, offset)
    return BlockEntries(named.key, heads.types, np.array([row]))[0]


def whole_frames(file: RandomAccessFile, scan: Scan | None = None) -> Iterator[tuple[Frame, memoryview]]:
    """Yield the intact frames of a file with their payloads; the scan notes the others as damaged."""
    scan = scan or Scan(file)
    for run in scan.runs():
        for frame in map(Frame, run.offsets, run.lengths):
            try:
                body = payload(file, frame)
            except DamagedError:
                scan.damage(frame, "the payload is damaged")
                continue
            yield frame, body


def changed(payload: bytes | memoryview, **fields: Any) -> bytes:
    """Return a block whose head says something else, with a checksum that is right.

    Args:
        payload: The block.
        fields: Fields of `HEAD`; the code of a column by its name, its offset by its name and "_offset".
    """
    data = bytearray(payload)
    head = np.frombuffer(data, HEAD, 1)
    for name, value in fields.items():
        if name in COLUMNS:
            head["codes"][0, COLUMNS.index(name)] = value
        elif name.endswith("_offset"):
            head["offsets"][0, COLUMNS.index(name.removesuffix("_offset"))] = value
        else:
            head[name] = value
    head["checksum"] = checksum(data[CHECKED : HEAD_BYTES + int(head["texts"].sum())])
    return bytes(data)


def columns_of(segment: SegmentReader, entries: BlockEntries) -> Columns:
    """Read blocks as one piece; damaged ones are left out."""
    join = Concatenation(int(entries.rows["n"].sum()), int(entries.rows["length"].sum()))
    for columns in segment.loads(entries):
        if columns is not None:
            join.add(columns)
    return join.columns()
