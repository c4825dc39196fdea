"""Records as the columns of a `Block`, and back.

A block carries consecutive records of one stream. Its values are one array if they are numbers of one type, otherwise
they are encoded one by one (`core.codec`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from sightglass.core import codec
from sightglass.core.buckets import MAX_BITS
from sightglass.core.codec import Buffer
from sightglass.core.columns import FLOAT64, INT64, Columns
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.values import n_bytes

from .messages import (
    MAX_BLOCK_BYTES,
    MAX_BLOCK_ROWS,
    MAX_INDEX,
    MAX_MESSAGE_BYTES,
    Block,
    Frames,
    check,
    encode,
)


def encode_block(stream: int, columns: Columns) -> list[Buffer]:
    """Encode records of a stream, at least one.

    Raises:
        UnsendableError: A value cannot be serialised.
    """
    blob, buffers = codec.encode(columns.values)
    steps = np.asarray(columns.steps)
    message = Block(
        stream=stream,
        index=columns.index,
        n=len(columns),
        steps=(b"d" if steps.dtype == FLOAT64 else b"q") + steps.tobytes(),
        wall_times=columns.wall_times.tobytes(),
        values=blob,
        n_events=b"" if columns.n_events is None else columns.n_events.tobytes(),
        flags=b"" if columns.flags is None else columns.flags.tobytes(),
        tracks=b"" if columns.tracks is None else codec.encode(columns.tracks)[0],
        indexes=b"" if columns.indexes is None else columns.indexes.tobytes(),
        bits=columns.bits,
        areas=b"" if columns.areas is None else columns.areas.tobytes(),
    )
    return encode(message, buffers)


def encode_blocks(stream: int, columns: Columns) -> Iterator[list[Buffer]]:
    """Encode records of a stream in as few blocks as their limits allow.

    Raises:
        UnsendableError: A value cannot be serialised, or is too large for a message.
    """
    for start, stop in itertools.pairwise(_cuts(columns.values)):
        yield from _halves(stream, columns.slice(start, stop))


def _cuts(values: Any) -> list[int]:
    """Return where blocks begin, and the end of the last one."""
    cuts, n_block_bytes = [0], 0
    sizes = map(n_bytes, values) if isinstance(values, list) else itertools.repeat(0, len(values))
    for i, size in enumerate(sizes):
        n_block_bytes += size
        if i - cuts[-1] == MAX_BLOCK_ROWS or (i > cuts[-1] and n_block_bytes > MAX_BLOCK_BYTES):
            cuts.append(i)
            n_block_bytes = size
    return [*cuts, len(values)]


def _halves(stream: int, columns: Columns) -> Iterator[list[Buffer]]:
    frames = encode_block(stream, columns)
    try:
        check(frames, MAX_MESSAGE_BYTES)
        yield frames
    except WireError as error:
        if len(columns) == 1:
            raise UnsendableError(
                f"Expected a value that fits into a message: {error}. Ask for a part of it, or for a statistic"
            ) from None
        half = len(columns) // 2
        yield from _halves(stream, columns.slice(0, half))
        yield from _halves(stream, columns.slice(half))


def decode_block(block: Block, buffers: Frames) -> Columns:
    """Decode the columns of a block.

    Raises:
        WireError: The columns do not fit together.
    """
    try:
        steps = _steps(block.steps)
        wall_times = np.frombuffer(block.wall_times, FLOAT64)
        values = codec.decode(block.values, buffers)
        n_events = np.frombuffer(block.n_events, INT64) if block.n_events else None
        flags = np.frombuffer(block.flags, np.uint8) if block.flags else None
        tracks = codec.decode(block.tracks) if block.tracks else None
        indexes = np.frombuffer(block.indexes, INT64) if block.indexes else None
        areas = np.frombuffer(block.areas, FLOAT64) if block.areas else None
    except (ValueError, TypeError) as error:
        raise WireError(f"Expected the columns of a block: {error}") from error
    if not 0 <= block.index <= MAX_INDEX:
        raise WireError(f"Expected an index number from 0 to {MAX_INDEX}, got {block.index}")
    if not 0 <= block.bits <= MAX_BITS:
        raise WireError(f"Expected bits from 0 to {MAX_BITS}, got {block.bits}")
    for name, column in (("steps", steps), ("wall_times", wall_times), ("values", values), ("n_events", n_events),
                         ("flags", flags), ("tracks", tracks), ("indexes", indexes), ("areas", areas)):  # fmt: skip
        if column is not None and _length(column) != block.n:
            raise WireError(f"Expected {block.n} {name} in a block, got another length")
    if tracks is not None and not all(isinstance(track, dict) for track in tracks):
        raise WireError("Expected a mapping of step tracks for each record")
    if indexes is not None and (indexes[0] != block.index or (np.diff(indexes) <= 0).any()):
        raise WireError("Expected increasing index numbers in a block, from its first on")
    return Columns(index=block.index, steps=steps, wall_times=wall_times, values=values, n_events=n_events,
                   flags=flags, tracks=tracks, indexes=indexes, bits=block.bits, areas=areas)  # fmt: skip


def _length(column: Any) -> int | None:
    return len(column) if isinstance(column, list) or (isinstance(column, np.ndarray) and column.ndim) else None


def _steps(raw: bytes) -> Any:
    kind = raw[:1].decode("ascii", "replace")
    if kind not in "dlq":
        raise WireError(f"Expected a column of int64 or float64, got type {kind!r}")
    return np.frombuffer(raw[1:], FLOAT64 if kind == "d" else INT64)
