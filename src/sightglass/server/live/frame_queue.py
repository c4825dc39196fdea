"""The frames that wait to be sent to one socket.

The queue is bounded twice. Above `ENOUGH_BYTES` records wait in their streams instead, and are thinned. Above
`MAX_WAITING` frames or `MAX_WAITING_BYTES` the client is disconnected, or if one takes longer than `STUCK_S`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.server.http_errors import error_reply, log_error
from sightglass.views import encoding

MAX_WAITING: Final = 4_096  # small messages; a page with 512 streams gets about 1,000 statistics in two seconds
MAX_WAITING_BYTES: Final = 32 * 2**20  # four times `ENOUGH_BYTES`: room for one message of each of a few streams
ENOUGH_BYTES: Final = 8 * 2**20  # one message of the largest size; a second of a slow network
STUCK_S: Final = 60.0  # a laptop that was asleep, or a tab in the debugger, may take this long
NUMBERS: Final = itertools.count(1)


class FrameQueue:
    """The bounded queue of one socket, and the task that sends from it.

    Attributes:
        name: The name of the socket.
        closed: Set when nothing more can be sent: the client left, is stuck, or reads too slowly.
        on_room: Called when records may be added again.
    """

    def __init__(self, socket: WebSocket) -> None:
        self.closed = asyncio.Event()
        self.name = f"tab {next(NUMBERS)}"
        self.on_room: Callable[[], None] = lambda: None
        self._socket = socket
        self._frames: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._n_bytes = 0
        self._began_s = math.inf  # to send the frame that is being sent

    @property
    def full(self) -> bool:
        """Whether records should wait in their streams for now."""
        return self._n_bytes >= ENOUGH_BYTES

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message of text."""
        self.put(encoding.encode_json(message).decode())

    def refuse(self, id: Id | None, error: Exception) -> None:
        """Queue the answer to a message that failed."""
        _, reply = error_reply(error)
        self.send({"type": "refused", "id": id, "error": reply.pop("type"), **reply})

    def put(self, frame: str | bytes) -> None:
        """Queue a frame. If too many frames wait already, close the queue instead."""
        if self.closed.is_set():
            return
        if self._frames.qsize() >= MAX_WAITING or self._n_bytes > MAX_WAITING_BYTES:
            self.closed.set()
            return
        self._n_bytes += len(frame)
        self._frames.put_nowait(frame)

    def check(self, now_s: float) -> None:
        """Close the queue if its client is stuck. One look a second costs less than a timeout of each frame."""
        if now_s - self._began_s > STUCK_S:
            self.closed.set()

    async def write(self) -> None:
        """Send the frames until the client leaves."""
        try:
            while True:
                frame = await self._frames.get()
                self._began_s = time.monotonic()
                if isinstance(frame, bytes):
                    await self._socket.send_bytes(frame)
                else:
                    await self._socket.send_text(frame)
                self._began_s = math.inf
                was_full = self.full
                self._n_bytes -= len(frame)
                if was_full and not self.full:
                    self.on_room()
        except (WebSocketDisconnect, RuntimeError):
            pass
        except Exception as error:  # noqa: BLE001  it ends this socket, and no other
            log_error(error)
        self.closed.set()


# The messages that a client sends on the socket, and their limits. docs/page.md documents all messages.

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
