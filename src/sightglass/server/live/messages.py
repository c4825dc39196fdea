"""The messages that a client sends on the socket, and their limits. docs/page.md documents all messages."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_QUERY: Final = 20_000  # a query of 1,000 nodes, the most that the parser takes, is shorter
MAX_ID: Final = 200  # a client may use the text of a short query as an id
POINTS: Final = 1_000  # about one for each pixel of a chart on a laptop
MAX_WATCHED: Final = 1_000  # more runs than any chart shows, in a message far below the limit
MAX_POINTS: Final = 100_000  # more than any screen has columns, for programs that want the data

UNAUTHORIZED: Final = 4401
TOO_SLOW: Final = 4408
TOO_MANY: Final = 4429
GOING: Final = 1001
LEFT: Final = (1000, 1001)
"""The close codes of clients that leave on purpose, such as a closed tab."""

Id = Annotated[str, msgspec.Meta(max_length=MAX_ID)] | int
Text = Annotated[str, msgspec.Meta(max_length=MAX_QUERY)]


class PageHello(msgspec.Struct, tag_field="type", tag="hello"):
    """The first message."""

    token: Text


class OpenStream(msgspec.Struct, tag_field="type", tag="open"):
    """Open a stream under an id that the client chooses."""

    id: Id
    run: Text
    query: Text
    confirm: bool = False
    points: Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTS)] = POINTS


class CloseStream(msgspec.Struct, tag_field="type", tag="close"):
    """Close a stream."""

    id: Id


class RunsWanted(msgspec.Struct, tag_field="type", tag="runs"):
    """Send the list of runs, now and whenever it changes."""


class WatchRuns(msgspec.Struct, tag_field="type", tag="watch"):
    """Look at the files of these runs often, instead of those of the last such message; answered at once."""

    runs: Annotated[list[Text], msgspec.Meta(max_length=MAX_WATCHED)]


class Ack(msgspec.Struct, tag_field="type", tag="ack"):
    """Acknowledge `n` more binary messages of a stream."""

    id: Id
    n: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 1


Message = PageHello | OpenStream | CloseStream | RunsWanted | WatchRuns | Ack

_decoder = msgspec.json.Decoder(Message)


def read(text: str) -> Message:
    """Decode a message.

    Raises:
        ValueError: The text is not a valid message.
    """
    try:
        message: Message = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"The message cannot be read: {error}"[:500]) from None
    return message
