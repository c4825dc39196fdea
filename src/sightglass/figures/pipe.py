"""Messages on the private pipe between a process and its renderer: a head, a struct, and the buffers that follow it.

Both ends are the same release of this package, so a message that cannot be read is a bug or a torn pipe.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import IO, Any, Final

import msgspec

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError

from .messages import DrawFigure, DrawFinished, DrawStarted, ForgetFigures, StartRenderer, StopRenderer

HEAD: Final = struct.Struct("<4sIQ")
MAGIC: Final = b"SGF1"
MAX_MESSAGE_BYTES: Final = 2**31  # beyond any real message, so a larger length is a torn head
CHUNK_BYTES: Final = 2**20  # the most that a pipe holds by default on Linux, so one read returns no more

Message = StartRenderer | DrawFigure | ForgetFigures | StopRenderer | DrawStarted | DrawFinished

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def frame(message: Message, buffers: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return a message and its buffers as parts to write in order; buffers are not copied."""
    body = _encoder.encode(message)
    return [HEAD.pack(MAGIC, len(body), sum(map(len, buffers))) + body, *buffers]


def read(file: IO[bytes]) -> tuple[Message, bytearray] | None:
    """Read a message and the bytes that follow it; `None` at the end of the pipe, even within a message.

    Raises:
        WireError: The bytes are not a message.
    """
    head = _exactly(file, HEAD.size)
    if head is None:
        return None
    magic, n_body, n_following = HEAD.unpack(head)
    if magic != MAGIC or n_body > MAX_MESSAGE_BYTES:
        raise WireError(f"Expected a message between a process and its renderer, got {bytes(head)!r}")
    body = _exactly(file, n_body)
    following = _exactly(file, n_following)
    if body is None or following is None:
        return None
    try:
        return _decoder.decode(body), following
    except msgspec.MsgspecError as error:
        raise WireError(f"Expected a message between a process and its renderer: {error}") from error


def parts(data: bytearray, sizes: Sequence[int]) -> list[memoryview]:
    """Cut the bytes that followed a message into buffers of these sizes."""
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
