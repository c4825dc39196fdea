"""One socket: greets a client, reads its messages, and opens the streams that it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.core.errors import RefusedError, RefusedFunctionError
from sightglass.server.access import Tokens, Visitor
from sightglass.server.http_errors import bad_request, log_error, too_large
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import RunSummary, ServedRun
from sightglass.views import encoding

from . import frame_queue
from .frame_queue import (
    LEFT,
    TOO_SLOW,
    UNAUTHORIZED,
    Ack,
    CloseStream,
    FrameQueue,
    Id,
    OpenStream,
    PageHello,
    RunsWanted,
    WatchRuns,
)
from .shared_stream import SharedStreams, StreamCursor, called_functions, canonical

HELLO_S: Final = 5.0  # the page sends its hello at once; sockets without one are not to pile up
CLOSE_S: Final = 1.0  # a client that reads has read its queue by then
MAX_STREAMS: Final = 512  # ten times the panels that a large page shows


class PageSocket:
    """One socket.

    Attributes:
        queue: The frames to be sent.
        cursors: The streams that the client opened, by the ids that it chose.
        wants_runs: Whether the client wants the list of runs when it changes.
        watched: The keys of the runs that the client shows.
        unlooked: Those of them that were not looked at since the client began to show them.
        visitor: Whose token the client has shown; `None` before its hello.
    """

    def __init__(self, socket: WebSocket, streams: SharedStreams) -> None:
        self.queue = FrameQueue(socket)
        self.cursors: dict[Id, StreamCursor] = {}
        self.wants_runs = False
        self.watched: frozenset[str] = frozenset()
        self.unlooked: frozenset[str] = frozenset()
        self.visitor: Visitor | None = None
        self._socket = socket
        self._streams = streams
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken = False
        self._goodbye = (TOO_SLOW, "Too many messages were waiting")

    async def greet(self, tokens: Tokens) -> bool:
        """Read the hello and welcome the client, or close the socket; return whether the client is welcome."""
        try:
            async with asyncio.timeout(HELLO_S):
                message = frame_queue.read(await self._received())
        except (TimeoutError, ValueError):
            await self.close(UNAUTHORIZED, "Expected a hello")
            return False
        given = message.token if isinstance(message, PageHello) else ""
        # A proxy that has authenticated the user may add the token to the request.
        given = given or self._socket.headers.get("authorization", "").partition(" ")[2]
        self.visitor = visitor = tokens.visitor(given) if isinstance(message, PageHello) else None
        if visitor is None:
            await self.close(UNAUTHORIZED, "Expected a hello with the token of the printed link")
            return False
        self.queue.send({"type": "welcome", "role": visitor.role})
        return True

    async def serve(self, cut: Callable[[Any], None]) -> None:
        """Read and send until the client leaves or is sent away; `cut` ends the connection of a client's address."""
        self.queue.on_room = self._send_new
        works: list[Coroutine[Any, Any, object]] = [self._read(), self.queue.write(), self.queue.closed.wait()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                await self._send_away(cut)
        finally:
            self.queue.closed.set()
            for cursor in list(self.cursors.values()):
                cursor.close(broken=self._broken)
            for task in (*tasks, *self._tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)

    async def close(self, code: int, reason: str = "") -> None:
        """Close the socket."""
        await self._socket.close(code, reason)

    def send_away(self, code: int, reason: str) -> None:
        """End the socket, with a reason for the client."""
        self._goodbye = (code, reason)
        self.queue.closed.set()

    async def _send_away(self, cut: Callable[[Any], None]) -> None:
        """Close the socket; if the client does not even read that, cut its connection.

        A socket is closed properly only after the other side has read everything, which a stuck client never does.
        """
        self.queue.closed.set()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.close(*self._goodbye)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            cut(self._socket.scope.get("client"))

    async def _received(self) -> str:
        """Return the next text message; any other message as an empty text, which cannot be read."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        return message.get("text") or ""

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._received())
        except WebSocketDisconnect as left:
            self._broken = left.code not in LEFT
        except RuntimeError:
            self._broken = not self.queue.closed.is_set()
        except Exception as error:  # noqa: BLE001  one client's failure must not reach the others
            log_error(error)

    def _take(self, text: str) -> None:
        try:
            message = frame_queue.read(text)
        except ValueError as error:
            self.queue.refuse(None, bad_request(str(error)))
            return
        try:
            self._dispatch(message)
        except Exception as error:  # noqa: BLE001  whatever it is, the client gets it as its answer
            self.queue.refuse(getattr(message, "id", None), error)

    def _dispatch(self, message: frame_queue.Message) -> None:
        match message:
            case OpenStream():
                self._open(message)
            case CloseStream(id=id):
                if id in self.cursors:
                    self.cursors[id].close()
            case Ack(id=id, n=n):
                if id in self.cursors:
                    self.cursors[id].acknowledge(n)
            case RunsWanted():
                self.wants_runs = True
                self._begin(self._send_runs())
            case WatchRuns(runs=runs):
                self.unlooked = (self.unlooked & frozenset(runs)) | (frozenset(runs) - self.watched)
                self.watched = frozenset(runs)
                self.queue.put(changed_frame([]))
            case PageHello():
                self.queue.refuse(None, bad_request("Expected one hello, got another"))

    def _open(self, message: OpenStream) -> None:
        if message.id in self.cursors:
            self.queue.refuse(message.id, bad_request(f"Stream {message.id!r} is already open: close it first"))
        elif len(self.cursors) >= MAX_STREAMS:
            self.queue.refuse(message.id, too_large(f"Expected at most {MAX_STREAMS} streams of a socket, got more"))
        else:
            cursor = StreamCursor(self.queue, self.cursors, message.id, points=message.points)
            self._begin(self._join(cursor, message))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, cursor: StreamCursor, message: OpenStream) -> None:
        try:
            loop, files = asyncio.get_running_loop(), self._streams.runs.file_pool
            run, key = await loop.run_in_executor(files, self._found, message)
            if not cursor.closed:
                self._streams.join(cursor, run, message.query, key=key, confirm=message.confirm)
        except Exception as error:  # noqa: BLE001  whatever it is, the client gets it as its answer
            if not cursor.closed:
                cursor.refuse(error)

    async def _send_runs(self) -> None:
        runs = self._streams.runs
        try:
            frame = await asyncio.get_running_loop().run_in_executor(runs.file_pool, _list_frame, runs)
        except Exception as error:  # noqa: BLE001  the list is sent when it changes
            log_error(error)
        else:
            self.queue.put(frame)

    def _found(self, message: OpenStream) -> tuple[ServedRun, str]:
        run = self._streams.runs.find(message.run)
        if self.visitor is None or self.visitor.role == "viewer":  # the server's own connection is a controller's
            check_viewer(run, message)
        return run, canonical(message.query)

    def _send_new(self) -> None:
        for cursor in list(self.cursors.values()):
            cursor.send_new()


def _list_frame(runs: Runs) -> str:
    return list_frame(runs.summaries(), runs.problem)


def list_frame(runs: Sequence[RunSummary], problem: str) -> str:
    """Return the message with all runs, and why they may be out of date."""
    return encoding.encode_json({"type": "runs", "runs": runs, "problem": problem}).decode()


def changed_frame(runs: Sequence[RunSummary]) -> str:
    """Return the message with the runs that changed."""
    return encoding.encode_json({"type": "changed", "runs": runs}).decode()


def check_viewer(run: ServedRun, message: OpenStream) -> None:
    """Refuse what a viewer may not ask.

    Raises:
        RefusedError: The viewer accepts a cost to the run.
        RefusedFunctionError: The query calls a function of a live run that is not declared for viewers.
    """
    if message.confirm:
        raise RefusedError("Expected a controller's link to accept a cost with confirm=True; this is a viewer's link")
    called = called_functions(message.query)
    lent = run.connection.remote().describe().lent if called and run.live else {}
    for name in called:
        if name in lent and not lent[name].viewers:
            raise RefusedFunctionError(f"Expected a controller's link to call {name!r}: viewers may not call it")
