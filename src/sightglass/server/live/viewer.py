"""One viewer at a socket: what it looks at, and what waits to be sent to it.

Frames wait in an outbox, and a writer sends one after another. No more than `ENOUGH_BYTES` of records wait for a viewer
that reads slowly: what comes meanwhile stays in the feeds, and is thinned. One that reads nothing is sent away, by
cutting the connection where need be, for closing it properly would wait until the other side has read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.server.access import Role
from sightglass.server.http_errors import tell
from sightglass.views import encoding

from .messages import TOO_SLOW, Id

if TYPE_CHECKING:
    from .feeds import Shared

MAX_WAITING: Final = 4_096
MAX_WAITING_BYTES: Final = 32 * 2**20
ENOUGH_BYTES: Final = 8 * 2**20
STUCK_S: Final = 60.0
"""How long a viewer may take to read one frame."""

CLOSE_S: Final = 1.0


class Panel:
    """One stream as one viewer sees it.

    Attributes:
        shared: The feed that it shows, once that is being opened.
        opened: Whether the viewer was told that it is open.
        cursor: Up to where it was sent.
        unacknowledged: How many messages were sent and not acknowledged.
        n_left_out: How many records were thinned away.
        view: What the viewer was told to draw it as.
        told: The statistics that it was told.
    """

    def __init__(self, viewer: Viewer, id: Id, points: int) -> None:
        self.viewer = viewer
        self.id = id
        self.points = points
        self.shared: Shared | None = None
        self.opened = False
        self.cursor = self.unacknowledged = self.n_left_out = 0
        self.view: Any = None
        self.told: Any = None


class Viewer:
    """One socket.

    Attributes:
        panels: What it looks at, by the ids that it chose.
        wants_runs: Whether it wants to be told of the runs.
        gone: Whether it left, or was sent away.
        broken: Whether its connection was lost.
        on_room: Called when there is room again for records that wait.
    """

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.role: Role = "viewer"
        self.panels: dict[Id, Panel] = {}
        self.wants_runs = False
        self.gone = self.broken = False
        self.on_room: Callable[[], None] = lambda: None
        self._outbox: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._n_bytes = 0
        self._away = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether so much waits for it that records had better wait in the feeds."""
        return self._n_bytes >= ENOUGH_BYTES

    def send(self, message: dict[str, Any]) -> None:
        """Send text, as soon as it can be."""
        self.put(encoding.encode_json(message).decode())

    def refuse(self, id: Id | None, error: Exception) -> None:
        """Say that something cannot be done, and why."""
        _, told = tell(error)
        self.send({"type": "refused", "id": id, "error": told.pop("type"), **told})

    def put(self, frame: str | bytes) -> None:
        """Send a frame, as soon as it can be; who lets too many wait is sent away."""
        if self.gone:
            return
        if self._outbox.qsize() >= MAX_WAITING or self._n_bytes > MAX_WAITING_BYTES:
            self.gone = True
            self._away.set()
            return
        self._n_bytes += len(frame)
        self._outbox.put_nowait(frame)

    async def write(self) -> None:
        """Send what waits, until the viewer leaves or is stuck."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            while True:
                frame = await self._outbox.get()
                async with asyncio.timeout(STUCK_S):
                    await (self.socket.send_bytes(frame) if isinstance(frame, bytes) else self.socket.send_text(frame))
                was_full = self.full
                self._n_bytes -= len(frame)
                if was_full and not self.full:
                    self.on_room()
        self._away.set()

    async def stay(self) -> None:
        """Wait until it has to leave."""
        await self._away.wait()

    async def send_away(self, cut: Callable[[Any], None]) -> None:
        """Close the socket; where the viewer does not even read that, cut the connection."""
        self.gone = True
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.socket.close(TOO_SLOW, "Too many messages were waiting")
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            cut(self.socket.scope.get("client"))
