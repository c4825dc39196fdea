"""Bytes from the other side of a connection."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from sightglass.core import codec
from sightglass.core.errors import QueryError, UnsendableError, WireError
from sightglass.protocol import messages
from sightglass.query.parser import as_query
from sightglass.server.live import frame_queue as page_messages

from .inputs import split

_json_from_client = msgspec.json.Decoder(messages.FromClient)
_json_from_run = msgspec.json.Decoder(messages.FromRun)


def header(data: bytes) -> bytes:
    """Return the header of a message that may be written as JSON: texts in it can grow, since no length is before them.

    No message begins with the byte of "[", which is a number in msgpack.
    """
    if data.startswith(b"["):
        for decoder in (_json_from_client, _json_from_run):
            with contextlib.suppress(msgspec.MsgspecError, ValueError, OverflowError):
                return msgspec.msgpack.encode(decoder.decode(data))
    return data


def wire(data: bytes) -> None:
    """Read a message, its header and then its buffers, as a run and as a client do."""
    first, *buffers = split(data)
    frames = [header(first), *buffers]
    for decode in (messages.decode_from_client, messages.decode_from_run):
        with contextlib.suppress(WireError):
            message, rest = decode(frames)
            assert decode(messages.encode(message, rest)) == (message, rest)
            _read(message, rest)


def _read(message: Any, buffers: Any) -> None:
    match message:
        case messages.Block():
            columns = messages.decode_block(message, buffers)
            assert len(columns) == message.n
            for i in range(message.n):
                columns.record(i, tag="t", run="r")
        case messages.Reply(value=blob) | messages.RunCommand(value=blob) | messages.Ended(counts=blob) if blob:
            codec.decode(blob, buffers)


def value(data: bytes) -> None:
    """Decode a value, its structure and then its buffers; what was decoded can be encoded again."""
    blob, *buffers = split(data)
    try:
        decoded = codec.decode(blob, buffers)
    except WireError:
        return
    try:
        encoded = codec.encode(decoded)
    except UnsendableError:  # too deep, or characters that a text cannot have
        return
    assert codec.encode(codec.decode(*encoded)) == encoded


def page(data: bytes) -> None:
    """Read a message of the page's socket, and its query."""
    try:
        message = page_messages.read(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return
    if isinstance(message, page_messages.OpenStream):
        with contextlib.suppress(QueryError):
            as_query(message.query)
