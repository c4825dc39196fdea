"""The messages between a client and an agent, as bytes.

A message is a list of frames: one msgpack header, then raw buffers that it refers to. Each type is a struct below;
the header is an array that begins with the type's tag. Anything else, or a message that exceeds a limit, is refused
with a reason.

To change a message, add new fields last and give them defaults: older readers skip them, older writers omit them. A
change that an older peer could misread needs a new `VERSION`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from sightglass.core.errors import WireError

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

Buffer = bytes | bytearray | memoryview
EventNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]
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
    """Requests information that needs no event: "describe", "statistics" or "history", or its `last` commands only."""

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


class EndGroup(Message, frozen=True, kw_only=True, array_like=True, tag="end_group"):
    """Closes the open group of a stream now: the client's flag B."""

    request: int
    stream: int


class RunCommand(Message, frozen=True, kw_only=True, array_like=True, tag="command"):
    """A command: "set", "call", "pause", "resume" or "stop"; `value` is encoded.

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


# From the agent


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
    `Opened` it replaces the note of a stream that has no records yet.
    """

    request: int
    note: str
    stuck: bool = False


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
        flags: One byte a record, bit 0 `complete`, bit 1 `closed`; empty if all are both.
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


FromClient = Hello | Ping | Bye | Ask | Open | Close | EndGroup | RunCommand | Publish | RecordQuery | Block
FromAgent = Welcome | Reply | Refused | Opened | Moved | Waiting | Ended | Block | Bye | Ping

Frames = Sequence[Buffer]

_encoder = msgspec.msgpack.Encoder()
_from_client = msgspec.msgpack.Decoder(FromClient)
_from_agent = msgspec.msgpack.Decoder(FromAgent)


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


def decode_from_agent(frames: Frames) -> tuple[FromAgent, Frames]:
    """Decode a message from an agent. Errors as in `decode_from_client`."""
    check(frames, MAX_MESSAGE_BYTES)
    return _decode(_from_agent, frames), frames[1:]


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
