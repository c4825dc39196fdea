"""Messages as chunks, for a transport whose messages are small and may be lost. Pure: bytes in, bytes out.

A `Dialogue` is what one end knows of its messages with the other. It cuts a message into chunks, numbers them, and puts
the chunks of the other end together. A number that is missing means that chunks are lost: then the dialogue is over,
since a transport delivers messages complete and in order, or not at all.

Each end sends only as much as the other has room for: it counts what it has sent, and the other says what it has read.
So a reader that is slow is seen by the sender at once, and fills no queue in between.

A chunk is a head of 9 bytes (`HEAD`: kind, number) and a part of the message's body. The body is the number of frames
and their lengths (uint32, little-endian), then the frames, each at a multiple of `ALIGNMENT`.

What several read is published once: `Cutter` numbers its chunks, and each reader has an `Assembler`. Chunks of the
dialogue say from where to where a reader takes them.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from sightglass.core.errors import WireError
from sightglass.protocol.messages import MAX_FRAMES
from sightglass.protocol.transport import Frames

HEAD: Final = struct.Struct("<BQ")
FIRST: Final = struct.Struct("<Q")
MORE, LAST, READ, LEFT, LISTEN, ENTER, LEAVE = range(1, 8)
"""The kinds of chunks: of a message that goes on, its last one, how many messages were read so far, and goodbye.

The last three are about a stream that is published: listen to it, or I do; what follows there is for you, from this
chunk on; it no longer is.
"""

ALIGNMENT: Final = 16  # an array that begins at any byte is read more slowly, and not by all libraries
COUNT: Final = struct.Struct("<I")
MAX_EXTRA_BYTES: Final = COUNT.size * (MAX_FRAMES + 1) + ALIGNMENT * MAX_FRAMES  # of a body, besides its frames
MAX_CHUNKS: Final = 65_536  # of a message; each costs memory of its own
TELL_AFTER: Final = (
    4  # a quarter of the window was read: seldom enough to cost little, and the sender never waits for it
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may be on its way to a reader. A message larger than `max_bytes` travels alone.

    Attributes:
        max_messages: Messages that the reader has not read.
        max_bytes: Their bytes.
        max_message_bytes: The bytes of one message.
    """

    max_messages: int
    max_bytes: int
    max_message_bytes: int

    def allows(self, n_messages: int, n_bytes: int) -> bool:
        """Return whether another message may be sent while these are on their way."""
        return n_messages < self.max_messages and n_bytes < self.max_bytes


class Dialogue:
    """The messages between this end and another.

    One thread sends, one takes chunks in, and one reads; each has counters of its own, so there is no lock.
    """

    def __init__(self, *, out: Allowance, into: Allowance) -> None:
        """Begin.

        Args:
            out: What may be on its way to the other end.
            into: What may be on its way to this end.
        """
        self._out, self._into = out, into
        self._cutter = Cutter()
        self._sizes: deque[int] = deque()  # of the messages on their way
        self._out_bytes = self._out_read_bytes = self._n_out_read = 0
        self._assembler = Assembler(into.max_message_bytes)
        self._n_in = self._in_bytes = 0
        self._n_read = self._read_bytes = self._n_told = self._told_bytes = 0

    @property
    def part_bytes(self) -> int:
        """The bytes of a message that is not complete."""
        return self._assembler.part_bytes

    # The thread that sends

    def cut(self, frames: Frames, max_chunk_bytes: int) -> list[bytes] | None:
        """Return the chunks of a message, or `None` if the other end has no room for it now."""
        if not self._out.allows(len(self._sizes), self._out_bytes - self._out_read_bytes):
            return None
        chunks = self._cutter.cut(frames, max_chunk_bytes)
        size = sum(map(len, chunks)) - HEAD.size * len(chunks)
        self._sizes.append(size)
        self._out_bytes += size
        return chunks

    # The thread that takes chunks in

    def add(self, chunk: bytes) -> WholeMessage | None:
        """Take a chunk in; return the message that it completes, if it does.

        Raises:
            WireError: Chunks are lost, or the other end sends what it may not. The dialogue is over.
        """
        kind, number = _head(chunk)
        if kind == READ:
            self._was_read(number)
            return None
        if not self._assembler.part_bytes and not self._into.allows(
            self._n_in - self._n_read, self._in_bytes - self._read_bytes
        ):
            raise WireError("Expected no message while so many are unread")
        message = self._assembler.add(chunk)
        self._in_bytes += len(chunk) - HEAD.size
        self._n_in += message is not None
        return message

    # The thread that reads

    def read(self, message: WholeMessage) -> bytes | None:
        """Note that a message of `add` was read; return the chunk to send back, if it is time for one."""
        self._n_read += 1
        self._read_bytes += message.size
        n_messages, n_bytes = self._n_read - self._n_told, self._read_bytes - self._told_bytes
        if n_messages * TELL_AFTER < self._into.max_messages and n_bytes * TELL_AFTER < self._into.max_bytes:
            return None
        self._n_told, self._told_bytes = self._n_read, self._read_bytes
        return HEAD.pack(READ, self._n_read)

    def _was_read(self, n_messages: int) -> None:
        """Forget messages that the other end has read; it cannot have read more than were sent."""
        while self._n_out_read < n_messages and self._sizes:
            self._out_read_bytes += self._sizes.popleft()
            self._n_out_read += 1


class Cutter:
    """Cuts messages into chunks, which it numbers.

    Attributes:
        n_chunks: How many there were.
    """

    def __init__(self) -> None:
        self.n_chunks = 0

    def cut(self, frames: Frames, max_chunk_bytes: int) -> list[bytes]:
        """Return the chunks of a message."""
        body = memoryview(_body(frames))
        size, step = len(body), max_chunk_bytes - HEAD.size
        chunks: list[bytes] = []
        for start in range(0, size, step):
            kind = MORE if start + step < size else LAST
            chunks.append(b"".join((HEAD.pack(kind, self.n_chunks), body[start : start + step])))
            self.n_chunks += 1
        return chunks


class Assembler:
    """Puts the chunks of messages together.

    Attributes:
        part_bytes: The bytes of a message that is not complete.
    """

    def __init__(self, max_message_bytes: int, *, first: int = 0) -> None:
        """Begin with the chunk of this number, the first of a message."""
        self.part_bytes = 0
        self._max_message_bytes = max_message_bytes
        self._next = first
        self._parts: list[memoryview] = []

    def add(self, chunk: bytes) -> WholeMessage | None:
        """Take a chunk in; return the message that it completes, if it does.

        Raises:
            WireError: Chunks are lost, or the message is larger than it may be.
        """
        kind, number = _head(chunk)
        if kind not in (MORE, LAST):
            raise WireError(f"Expected a chunk of a message, got the kind {kind}")
        if number != self._next:
            raise WireError(f"Expected chunk {self._next}, got {number}: what is between them was lost")
        self._next += 1
        part = memoryview(chunk)[HEAD.size :]
        self._parts.append(part)
        self.part_bytes += len(part)
        if self.part_bytes > self._max_message_bytes + MAX_EXTRA_BYTES or len(self._parts) > MAX_CHUNKS:
            raise WireError(f"Expected a message of at most {self._max_message_bytes} bytes, got more")
        if kind == MORE:
            return None
        parts, self._parts = self._parts, []
        size, self.part_bytes = self.part_bytes, 0
        return WholeMessage(_frames(parts[0] if len(parts) == 1 else memoryview(b"".join(parts))), size)


class WholeMessage(list[memoryview]):
    """The frames of a message, with the bytes that it was counted with."""

    __slots__ = ("size",)

    def __init__(self, frames: list[memoryview], size: int) -> None:
        super().__init__(frames)
        self.size = size


def kind_of(chunk: bytes) -> int:
    """Return the kind of a chunk.

    Raises:
        WireError: It is not a chunk.
    """
    return _head(chunk)[0]


def is_first(chunk: bytes) -> bool:
    """Return whether a dialogue may begin with this chunk. Errors as in `kind_of`."""
    kind, number = _head(chunk)
    return kind in (MORE, LAST) and number == 0


def goodbye(*, broken: bool = False) -> bytes:
    """Return the chunk that ends a dialogue: because this end leaves, or because chunks are lost."""
    return HEAD.pack(LEFT, int(broken))


def about(kind: int, stream: int, *, first: int | None = None) -> bytes:
    """Return a chunk about a stream that is published; `first` is the number of the first chunk to take."""
    return HEAD.pack(kind, stream) + (b"" if first is None else FIRST.pack(first))


def stream_of(chunk: bytes) -> tuple[int, int]:
    """Return the stream that a chunk is about, and the number of the first chunk to take. Errors as in `kind_of`."""
    _, stream = _head(chunk)
    return stream, FIRST.unpack_from(chunk, HEAD.size)[0] if len(chunk) >= HEAD.size + FIRST.size else 0


def is_broken(chunk: bytes) -> bool:
    """Return whether a goodbye says that chunks are lost. Errors as in `kind_of`."""
    return bool(_head(chunk)[1])


def _head(chunk: bytes) -> tuple[int, int]:
    if len(chunk) < HEAD.size:
        raise WireError(f"Expected a chunk of at least {HEAD.size} bytes, got {len(chunk)}")
    kind, number = HEAD.unpack_from(chunk)
    return kind, number


def _body(frames: Frames) -> bytes:
    parts: list[bytes | bytearray | memoryview] = [COUNT.pack(len(frames)), *(COUNT.pack(_size(f)) for f in frames)]
    n_bytes = COUNT.size * len(parts)
    for frame in frames:
        gap = -n_bytes % ALIGNMENT
        parts += [bytes(gap), frame]
        n_bytes += gap + _size(frame)
    return b"".join(parts)


def _frames(body: memoryview) -> list[memoryview]:
    """Return the frames of a body.

    Raises:
        WireError: It is not a body.
    """
    n_frames = COUNT.unpack_from(body)[0] if len(body) >= COUNT.size else 0
    if not 0 < n_frames <= MAX_FRAMES or len(body) < (place := COUNT.size * (n_frames + 1)):
        raise WireError(f"Expected a body of 1 to {MAX_FRAMES} frames, got {n_frames} in {len(body)} bytes")
    sizes = struct.unpack_from(f"<{n_frames}I", body, COUNT.size)
    frames: list[memoryview] = []
    for size in sizes:
        place += -place % ALIGNMENT
        frames.append(body[place : place + size])
        place += size
    if place != len(body):
        raise WireError(f"Expected a body of {place} bytes, got {len(body)}")
    return frames


def _size(frame: bytes | bytearray | memoryview) -> int:
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)
