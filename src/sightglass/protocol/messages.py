"""The messages between a client and a run, as bytes.

A message is a list of frames: one msgpack header, then raw buffers that it refers to. Each type is a struct below;
the header is an array that begins with the type's tag. Anything else, or a message that exceeds a limit, is refused
with a reason.

To change a message, add new fields last and give them defaults: older readers skip them, older writers omit them. A
change that an older peer could misread needs a new `VERSION`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from sightglass.core import codec
from sightglass.core.buffer import MAX_BITS
from sightglass.core.codec import Buffer
from sightglass.core.columns import FLOAT64, INT64, Columns
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.values import n_bytes

VERSION: Final = 2
MAX_FRAMES: Final = 4_096  # more than `MAX_BLOCK_ROWS`: each record of a block may have a buffer
MAX_BLOCK_ROWS: Final = 4_000  # large enough that numbers cost nothing, small enough to be decoded in a few ms
MAX_BLOCK_BYTES: Final = (
    4 * 2**20
)  # of several records: a call that encodes texts keeps the interpreter's lock for 2 ms
MAX_HEADER_BYTES: Final = 16 * 2**20  # msgpack decodes a header in one go, into memory
MAX_MESSAGE_BYTES: Final = 256 * 2**20  # a large tensor; clients may be notebooks with little memory
MAX_CLIENT_MESSAGE_BYTES: Final = 64 * 2**20  # a training process must not be filled up by a client
MAX_INDEX: Final = 2**62  # beyond, arithmetic on columns of int64 would overflow
MAX_STRIDE: Final = 2**20  # more processes than any program has
UNREAD: Final = "it did not read its messages"  # the reason of a `Bye` to a client that was disconnected
RESTARTED: Final = "an internal error made the run drop its clients"  # the same, for all clients

EventNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]
ReaderName = Annotated[str, msgspec.Meta(max_length=100)]
Stride = Annotated[int, msgspec.Meta(ge=1, le=MAX_STRIDE)]


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, omit_defaults=False):
    """The root of all messages."""


# From a client


class Hello(Message, frozen=True, kw_only=True, array_like=True, tag="hello"):
    """The first message of a client.

    Attributes:
        version: The version of the protocol.
        client: A name for people.
        pace_s: How long the run may hold records back to send them together, if all of its clients allow it.
    """

    version: int
    client: str
    pace_s: float = 0.0


class Ping(Message, frozen=True, kw_only=True, array_like=True, tag="ping"):
    """Renews the lease.

    Attributes:
        pace_s: How long the run may hold records back from now on; `None` for as long as before.
    """

    pace_s: float | None = None


class Bye(Message, frozen=True, kw_only=True, array_like=True, tag="bye"):
    """Ends the lease: from a client that leaves, or from a run that ends, which the client answers with its own."""

    reason: str = ""


class Ask(Message, frozen=True, kw_only=True, array_like=True, tag="ask"):
    """Requests what needs no event: "describe", "statistics", "stacks", or "history" or only its `last` commands."""

    request: int
    what: str
    last: int = 0


class Open(Message, frozen=True, kw_only=True, array_like=True, tag="open"):
    """Opens a stream, or goes on with one after the connection was lost.

    Attributes:
        request: The number of the request.
        query: The query.
        confirm: Whether to accept the price of its event, if it has one.
        stream: The number that the stream had; 0 for a new one.
        since: The number of the next record that the client expects of it.
        states: The number of the first event and the distance to the next one, if windows are to give the states of
            the reducer instead of its results (`query.states`); a run that does not know this field ignores it.
    """

    request: int
    query: str
    confirm: bool = False
    stream: int = 0
    since: int = 0
    states: tuple[EventNumber, Stride] | None = None


class Close(Message, frozen=True, kw_only=True, array_like=True, tag="close"):
    """Closes a stream."""

    stream: int


class Readers(Message, frozen=True, kw_only=True, array_like=True, tag="readers"):
    """Names those for whom a client reads a stream, where it serves several: each has a share, as clients have."""

    stream: int
    names: tuple[ReaderName, ...] = ()


class EndGroup(Message, frozen=True, kw_only=True, array_like=True, tag="end_group"):
    """Closes the open group of a stream now: the client's flag B."""

    request: int
    stream: int


class RunCommand(Message, frozen=True, kw_only=True, array_like=True, tag="command"):
    """A command: "set", "call", "pause", "resume", "stop" or "alert"; `value` is encoded.

    `by` names who sent it, where several people share a client.
    """

    request: int
    kind: str
    name: str = ""
    value: bytes = b""
    at: str | None = None
    hold: bool = False
    by: str = ""


class RecordQuery(Message, frozen=True, kw_only=True, array_like=True, tag="record"):
    """Starts to record a query, or stops if `record` is not set."""

    request: int
    query: str
    record: bool = True
    confirm: bool = False


class Publish(Message, frozen=True, kw_only=True, array_like=True, tag="publish"):
    """Offers a stream of the client as an event of the run, which replies with a number; blocks of this number follow.

    Attributes:
        request: The number of the request.
        event: The name of the event.
        stream: The number that it had before the connection was lost; 0 for a new one.
    """

    request: int
    event: str
    stream: int = 0


# From the run


class Welcome(Message, frozen=True, kw_only=True, array_like=True, tag="welcome"):
    """Answers `Hello`."""

    version: int
    run: str
    id: str
    may_command: bool
    lease_s: float


class Reply(Message, frozen=True, kw_only=True, array_like=True, tag="reply"):
    """Answers a request with an encoded value."""

    request: int
    value: bytes


class Refused(Message, frozen=True, kw_only=True, array_like=True, tag="refused"):
    """Refuses a request; `error` names the class of the exception that the client raises."""

    request: int
    error: str
    reason: str


class Opened(Message, frozen=True, kw_only=True, array_like=True, tag="opened"):
    """Answers `Open`: blocks of this stream follow.

    Attributes:
        request: The number of the request.
        stream: The stream's number.
        tag: The name of its series.
        note: A remark for the user, such as "Unknown event".
        index: The number of the first record that follows; `None` from a run that does not say. Where `Open` names the
            same stream, the records from its `since` to this one are lost.
        late: Why it begins after its event did, and what can be done about it; empty if it does not.
    """

    request: int
    stream: int
    tag: str
    note: str = ""
    index: int | None = None
    late: str = ""


class Moved(Message, frozen=True, kw_only=True, array_like=True, tag="moved"):
    """Gives a stream another number; its index numbers continue."""

    stream: int
    to: int


class Waiting(Message, frozen=True, kw_only=True, array_like=True, tag="waiting"):
    """Says what a request waits for.

    It accepts a command, which waits for an event, and is sent again with `stuck` if no such event is in sight. After
    `Opened` it replaces the note of a stream that has no records yet, or says, with `thinned`, which events and which
    items of mappings its records leave out; empty if none.
    """

    request: int
    note: str
    stuck: bool = False
    thinned: bool = False


class Ended(Message, frozen=True, kw_only=True, array_like=True, tag="ended"):
    """Ends a stream; `error` as in `Refused`, empty if the run ended. `counts` is its encoded "statistics" entry."""

    stream: int
    error: str = ""
    reason: str = ""
    counts: bytes = b""


# Both ways


class Block(Message, frozen=True, kw_only=True, array_like=True, tag="block"):
    """Consecutive records of one stream.

    Attributes:
        stream: The stream's number.
        index: The first record's number.
        n: The number of records.
        steps: Column of int64 or float64, shape (n,), its type's letter first.
        wall_times: float64 column, shape (n,).
        values: Encoded column: an array of shape (n,), or a list.
        n_events: Column of int64, or empty if all are 1.
        flags: One byte a record, as `Columns.flags`; empty if all are complete, closed and not approximate.
        tracks: Encoded list of further step tracks, or empty.
        indexes: Column of int64: the number of each record, or empty if they are consecutive.
        bits: The records that are missing between them were thinned by the run, in buckets of `2**bits` numbers.
        areas: float64 column: the area under the line of all records since the one before; empty if none were thinned.
    """

    stream: int
    index: int
    n: int
    steps: bytes
    wall_times: bytes
    values: bytes
    n_events: bytes = b""
    flags: bytes = b""
    tracks: bytes = b""
    indexes: bytes = b""
    bits: int = 0
    areas: bytes = b""


FromClient = Hello | Ping | Bye | Ask | Open | Close | Readers | EndGroup | RunCommand | Publish | RecordQuery | Block
FromRun = Welcome | Reply | Refused | Opened | Moved | Waiting | Ended | Block | Bye | Ping

Frames = Sequence[Buffer]

_encoder = msgspec.msgpack.Encoder()
_from_client = msgspec.msgpack.Decoder(FromClient)
_from_run = msgspec.msgpack.Decoder(FromRun)


def encode(message: Message, buffers: Frames = ()) -> list[Buffer]:
    """Encode a message; the buffers follow unchanged, without a copy."""
    return [_encoder.encode(message), *buffers]


def decode_from_client(frames: Frames) -> tuple[FromClient, Frames]:
    """Decode a message from a client, and return it with its buffers.

    Raises:
        WireError: The frames are not a valid message, or exceed a limit.
    """
    check(frames, MAX_CLIENT_MESSAGE_BYTES)
    return _decode(_from_client, frames), frames[1:]


def decode_from_run(frames: Frames) -> tuple[FromRun, Frames]:
    """Decode a message from a run. Errors as in `decode_from_client`."""
    check(frames, MAX_MESSAGE_BYTES)
    return _decode(_from_run, frames), frames[1:]


def check(frames: Frames, limit: int) -> None:
    """Raise `WireError` if frames are not a message, or exceed a limit."""
    if not frames:
        raise WireError("Expected a message, got no frame")
    if len(frames) > MAX_FRAMES:
        raise WireError(f"Expected at most {MAX_FRAMES} frames, got {len(frames)}")
    if len(frames[0]) > MAX_HEADER_BYTES:
        raise WireError(f"Expected a header of at most {MAX_HEADER_BYTES} bytes, got {len(frames[0])}")
    total = sum(len(frame) for frame in frames)
    if total > limit:
        raise WireError(f"Expected a message of at most {limit} bytes, got {total}")


def _decode(decoder: Any, frames: Frames) -> Any:
    try:
        return decoder.decode(frames[0])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"Expected a message of version {VERSION}, got other bytes: {error}") from error


# Records as the columns of a `Block`, and back.
#
# A block carries consecutive records of one stream. Its values are one array if they are numbers of one type, otherwise
# they are encoded one by one (`core.codec`).


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
