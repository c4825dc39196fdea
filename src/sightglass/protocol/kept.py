"""What a hub keeps of a run besides records, for those who ask when it is gone: see `kept_reader`."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from sightglass.core.errors import WireError

RUN: Final = "run"  # under this name stands what a run says of itself, and a head under the number of its stream
RECORDS: Final = ".records"  # behind the number of a stream stand its records, in numbered pieces
VERSION: Final = 1


class KeptStream(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The head of a stream.

    Attributes:
        query: The key of its query.
        stream: Its number.
        tag: The name of its series.
        over: Whether it has ended: it failed, its clients closed it, or the run was closed.
        error: The name of the error that it failed with; empty if it did not.
        reason: Why it failed.
        counts: Its encoded entry of the run's statistics, once it is over; else empty.
    """

    query: str
    stream: int
    tag: str
    over: bool = False
    error: str = ""
    reason: str = ""
    counts: bytes = b""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a run says of itself.

    Attributes:
        version: The version of what is kept.
        description: Its encoded description; its buffers follow.
        buffers: The buffers of the description.
        ended: Why it has ended; empty while it lives.
    """

    version: int
    description: bytes
    buffers: list[bytes]
    ended: str = ""


Content = TypeVar("Content", KeptStream, KeptRun)


def encode(content: KeptStream | KeptRun) -> bytes:
    """Encode what a hub keeps besides records."""
    return msgspec.msgpack.encode(content)


def decode(data: bytes, type: type[Content]) -> Content:
    """Decode it.

    Raises:
        WireError: It is something else.
    """
    try:
        content = msgspec.msgpack.decode(data, type=type)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"Expected what a hub keeps of a run: {error}") from error
    if isinstance(content, KeptRun) and content.version != VERSION:
        raise WireError(f"Expected version {VERSION} of what a hub keeps, got {content.version}")
    return content
