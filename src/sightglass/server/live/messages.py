"""What viewers say on the socket, and how much of it there may be. All messages are documented in docs/page.md."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_QUERY: Final = 20_000
MAX_ID: Final = 200
POINTS: Final = 1_000
MAX_POINTS: Final = 100_000

UNAUTHORIZED: Final = 4401
TOO_SLOW: Final = 4408
TOO_MANY: Final = 4429
GOING: Final = 1001
LEFT: Final = (1000, 1001)
"""The codes of those who leave because they mean to, as a closed tab does."""

Id = Annotated[str, msgspec.Meta(max_length=MAX_ID)] | int
Text = Annotated[str, msgspec.Meta(max_length=MAX_QUERY)]


class PageHello(msgspec.Struct, tag_field="type", tag="hello"):
    """The first message."""

    token: Text


class OpenStream(msgspec.Struct, tag_field="type", tag="open"):
    """Open a stream, under an id that the viewer chooses."""

    id: Id
    run: Text
    query: Text
    confirm: bool = False
    points: Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTS)] = POINTS


class CloseStream(msgspec.Struct, tag_field="type", tag="close"):
    """Close it."""

    id: Id


class RunsWanted(msgspec.Struct, tag_field="type", tag="runs"):
    """Tell of the runs, now and whenever something changes."""


class Ack(msgspec.Struct, tag_field="type", tag="ack"):
    """So many binary messages of a stream more were taken in."""

    id: Id
    n: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 1


Message = PageHello | OpenStream | CloseStream | RunsWanted | Ack

_decoder = msgspec.json.Decoder(Message)


def read(text: str) -> Message:
    """Read a message.

    Raises:
        ValueError: It is none.
    """
    try:
        message: Message = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"The message cannot be read: {error}"[:500]) from None
    return message
