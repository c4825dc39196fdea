"""Messages on the private pipe between a process and its renderer: a head, a struct, and raw bytes behind it.

Both ends are the same release of this package, so what cannot be read is a bug or a torn pipe, and ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import IO, Any, Final

import msgspec

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError

from .messages import DrawFigure, DrawFinished, DrawStarted, StartRenderer, StopRenderer

HEAD: Final = struct.Struct("<4sIQ")
MAGIC: Final = b"SGF1"
MAX_MESSAGE_BYTES: Final = 2**31
CHUNK_BYTES: Final = 2**20

Message = StartRenderer | DrawFigure | StopRenderer | DrawStarted | DrawFinished

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def frame(message: Message, behind: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return a message as parts to be written one behind the other; buffers are not copied."""
    body = _encoder.encode(message)
    return [HEAD.pack(MAGIC, len(body), sum(map(len, behind))) + body, *behind]


def read(file: IO[bytes]) -> tuple[Message, bytearray] | None:
    """Read a message and what comes behind it; `None` at the end of the pipe, even if that tears a message.

    Raises:
        WireError: These are no messages.
    """
    head = _exactly(file, HEAD.size)
    if head is None:
        return None
    magic, n_body, n_behind = HEAD.unpack(head)
    if magic != MAGIC or n_body > MAX_MESSAGE_BYTES:
        raise WireError(f"Expected a message between a process and its renderer, got {bytes(head)!r}")
    body = _exactly(file, n_body)
    behind = _exactly(file, n_behind)
    if body is None or behind is None:
        return None
    try:
        return _decoder.decode(body), behind
    except msgspec.MsgspecError as error:
        raise WireError(f"Expected a message between a process and its renderer: {error}") from error


def parts(data: bytearray, sizes: Sequence[int]) -> list[memoryview]:
    """Cut what came behind a message into pieces of these sizes."""
    view, start, found = memoryview(data), 0, []
    for size in sizes:
        found.append(view[start : start + size])
        start += size
    return found


def _exactly(file: IO[bytes], n_bytes: int) -> bytearray | None:
    data = bytearray(n_bytes)
    view, at = memoryview(data), 0
    while at < n_bytes:
        n_read = _into(file, view[at : at + CHUNK_BYTES])
        if not n_read:
            return None
        at += n_read
    return data


def _into(file: Any, view: memoryview) -> int:
    return file.readinto(view) or 0
