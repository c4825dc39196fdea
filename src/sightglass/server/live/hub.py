"""The socket: viewers open streams, and get what comes of them as it comes.

Theory of operation
    A viewer says `hello` with a token, and then what it wants. Equal queries about one run share a feed; see `feeds`.

    No viewer is sent more than `MAX_UNACKNOWLEDGED` messages of a stream that it did not acknowledge: what comes
    meanwhile waits in the feed, and goes as one message, thinned to the points that the viewer can show; how much was
    left out is told in `statistics`. A viewer that reads nothing at all is sent away.

    Messages are documented in docs/page.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.server.access import Tokens
from sightglass.server.http_errors import bad_request, tell, too_large
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import RunSummary, ServedRun
from sightglass.views import encoding

from . import messages
from .feed import LiveFeed
from .feeds import Feeds, Shared, canonical
from .messages import GOING, LEFT, TOO_MANY, UNAUTHORIZED, Ack, CloseStream, OpenStream, PageHello, RunsWanted
from .viewer import Panel, Viewer

HELLO_S: Final = 5.0
WATCH_S: Final = 1.0
LOOKED_S: Final = 10.0
"""For how long after a request the live runs go on being asked how they are."""

MAX_UNACKNOWLEDGED: Final = 8
MAX_SOCKETS: Final = 256
MAX_STREAMS: Final = 512

COUNTED: Final = ("n_events", "n_skipped", "n_dropped", "n_errors", "last_error", "stride", "spent_s")


class Hub:
    """All viewers, and what they are sent."""

    def __init__(self, runs: Runs, tokens: Tokens, *, cut: Callable[[Any], None] = lambda client: None) -> None:
        """Begin with none; `cut` ends the connection of a client, given by its address."""
        self.feeds = Feeds(runs, self._serve_all)
        self._runs = runs
        self._tokens = tokens
        self._cut = cut
        self._viewers: set[Viewer] = set()
        self._looked_s = -LOOKED_S
        self._listed: list[RunSummary] = []
        self._asking: set[str] = set()

    def looked(self) -> None:
        """Note that somebody looks."""
        self._looked_s = time.monotonic()

    async def __aenter__(self) -> Hub:
        """Begin to work."""
        self._loop = asyncio.get_running_loop()
        await self.feeds.__aenter__()
        for turn in (self._watch_runs, self._watch_streams, self._sweep):
            self.feeds.begin(_every(WATCH_S, turn))
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Send all viewers away."""
        for viewer in list(self._viewers):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(WATCH_S):
                    await viewer.socket.close(GOING)
        await self.feeds.__aexit__(*exception)

    # What viewers are sent

    def _serve_all(self, shared: Shared) -> None:
        for panel in list(shared.panels):
            self._serve(panel)

    def _serve(self, panel: Panel) -> None:
        """Send a viewer what it has not seen of a stream."""
        viewer, shared = panel.viewer, panel.shared
        if shared is None or not panel.opened:
            return
        feed = shared.feed
        if feed.view is not None and feed.view != panel.view:
            panel.view = feed.view
            viewer.send({"type": "view", "id": panel.id, **feed.view})
        while panel.unacknowledged < MAX_UNACKNOWLEDGED and not viewer.full:
            taken = feed.backlog.take(panel.cursor, panel.points)
            if taken is None:
                break
            panel.cursor = taken.cursor
            panel.n_left_out += taken.n_left_out
            panel.unacknowledged += 1
            viewer.put(encoding.encode_msgpack({"id": panel.id, **taken.message}))
        if feed.ended and panel.cursor >= feed.backlog.n:
            self._tell_statistics(panel, feed, _counted(feed))
            told = {} if feed.error is None else {"error": type(feed.error).__name__, "reason": str(feed.error)}
            viewer.send({"type": "ended", "id": panel.id, **told})
            self._drop(panel)

    def _tell_statistics(self, panel: Panel, feed: LiveFeed, counted: dict[str, Any]) -> None:
        told = counted | {
            "n_records": feed.backlog.n, "n_unfit": feed.backlog.n_unfit, "n_left_out": panel.n_left_out,
            "n_unacknowledged": panel.unacknowledged, "n_waiting": feed.backlog.n - panel.cursor, "ended": feed.ended,
            "lost": feed.lost_s is not None,
        }  # fmt: skip
        if told != panel.told:
            panel.told = told
            panel.viewer.send({"type": "statistics", "id": panel.id, **told})

    # What is looked after every second

    @property
    def _watched(self) -> bool:
        """Whether anybody looks at the list of runs."""
        return any(viewer.wants_runs for viewer in self._viewers) or time.monotonic() - self._looked_s < LOOKED_S

    async def _watch_runs(self) -> None:
        for source in self._runs.live():
            if (source.holders or self._watched) and source.key not in self._asking:
                self._asking.add(source.key)
                asked = self._loop.run_in_executor(self._runs.polls, _describe, source)
                asked.add_done_callback(functools.partial(self._answered, source.key))
        if not self._watched:
            return
        listed, frame = await self._loop.run_in_executor(self._runs.files, self._list)
        if listed != self._listed:
            self._listed = listed
            for viewer in self._viewers:
                if viewer.wants_runs:
                    viewer.put(frame)

    def _answered(self, key: str, _: asyncio.Future[None]) -> None:
        self._asking.discard(key)

    def _list(self) -> tuple[list[RunSummary], str]:
        listed = self._runs.told()
        return listed, encoding.encode_json({"type": "runs", "runs": listed}).decode()

    async def _watch_streams(self) -> None:
        for shared in self.feeds:
            counted = _counted(shared.feed)
            for panel in list(shared.panels):
                if panel.opened:
                    self._tell_statistics(panel, shared.feed, counted)

    async def _sweep(self) -> None:
        await self._loop.run_in_executor(self._runs.asks, self._runs.sweep)

    # What comes from viewers

    async def serve(self, socket: WebSocket) -> None:
        """Speak with one viewer until it leaves."""
        await socket.accept()
        viewer = Viewer(socket)
        tasks: list[asyncio.Task[None]] = []
        try:
            if not await self._greet(viewer):
                return
            self._viewers.add(viewer)
            viewer.on_room = lambda: self._serve_viewer(viewer)
            tasks = [asyncio.create_task(work) for work in (self._listen(viewer), viewer.write(), viewer.stay())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                await viewer.send_away(self._cut)
        except (WebSocketDisconnect, RuntimeError):
            pass  # it left before it said anything
        finally:
            self._leave(viewer)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, viewer: Viewer) -> None:
        try:
            while not viewer.gone:
                self._take(viewer, await _received(viewer.socket))
        except WebSocketDisconnect as left:
            viewer.broken = left.code not in LEFT
        except RuntimeError:
            viewer.broken = not viewer.gone
        except Exception as error:  # noqa: BLE001  one viewer's trouble is not the others'
            tell(error)

    async def _greet(self, viewer: Viewer) -> bool:
        try:
            async with asyncio.timeout(HELLO_S):
                message = messages.read(await _received(viewer.socket))
        except (TimeoutError, ValueError):
            await viewer.socket.close(UNAUTHORIZED, "Expected a hello")
            return False
        role = self._tokens.role(message.token) if isinstance(message, PageHello) else None
        if role is None:
            await viewer.socket.close(UNAUTHORIZED, "Expected a hello with the token of the printed link")
            return False
        if len(self._viewers) >= MAX_SOCKETS:
            await viewer.socket.close(TOO_MANY, f"Expected at most {MAX_SOCKETS} sockets")
            return False
        viewer.role = role
        viewer.send({"type": "welcome", "role": role})
        return True

    def _take(self, viewer: Viewer, text: str) -> None:
        try:
            message = messages.read(text)
        except ValueError as error:
            viewer.refuse(None, bad_request(str(error)))
            return
        match message:
            case OpenStream():
                self._open(viewer, message)
            case CloseStream(id=id):
                if (panel := viewer.panels.get(id)) is not None:
                    self._drop(panel)
            case Ack(id=id, n=n):
                if (panel := viewer.panels.get(id)) is not None:
                    panel.unacknowledged = max(0, panel.unacknowledged - n)
                    self._serve(panel)
            case RunsWanted():
                viewer.wants_runs = True
                self.feeds.begin(self._tell_runs(viewer))
            case PageHello():
                viewer.refuse(None, bad_request("Expected one hello, got another"))

    async def _tell_runs(self, viewer: Viewer) -> None:
        _, frame = await self._loop.run_in_executor(self._runs.files, self._list)
        viewer.put(frame)

    def _open(self, viewer: Viewer, message: OpenStream) -> None:
        if message.id in viewer.panels:
            viewer.refuse(message.id, bad_request(f"Stream {message.id!r} is open already: close it first"))
        elif len(viewer.panels) >= MAX_STREAMS:
            viewer.refuse(message.id, too_large(f"Expected at most {MAX_STREAMS} streams of a socket, got more"))
        else:
            panel = viewer.panels[message.id] = Panel(viewer, message.id, message.points)
            self.feeds.begin(self._opened(panel, message))

    async def _opened(self, panel: Panel, message: OpenStream) -> None:
        """Open a stream for a viewer, or share the one that another has."""
        viewer = panel.viewer
        try:
            source, key = await self._loop.run_in_executor(self._runs.files, self._meant, message)
            if viewer.panels.get(panel.id) is not panel:
                return  # closed, or left, meanwhile
            feed = await self.feeds.join(panel, source, message.query, key=key, confirm=message.confirm)
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            if viewer.panels.get(panel.id) is panel:
                viewer.refuse(panel.id, error)
                self._drop(panel)
            return
        if viewer.panels.get(panel.id) is not panel:
            return
        panel.opened = True
        stream = feed.stream
        viewer.send({"type": "opened", "id": panel.id, "tag": stream.tag if stream else "",
                     "note": stream.note if stream else "", "query": stream.query if stream else ""})  # fmt: skip
        self._serve(panel)

    def _meant(self, message: OpenStream) -> tuple[ServedRun, str]:
        return self._runs.find(message.run), canonical(message.query)

    def _serve_viewer(self, viewer: Viewer) -> None:
        for panel in list(viewer.panels.values()):
            self._serve(panel)

    def _drop(self, panel: Panel, *, broken: bool = False) -> None:
        if panel.viewer.panels.get(panel.id) is panel:
            del panel.viewer.panels[panel.id]
        self.feeds.part(panel, broken=broken)

    def _leave(self, viewer: Viewer) -> None:
        viewer.gone = True
        self._viewers.discard(viewer)
        for panel in list(viewer.panels.values()):
            self._drop(panel, broken=viewer.broken)


def _describe(source: ServedRun) -> None:
    with contextlib.suppress(Exception):  # it is noted in the source
        source.describe()


def _counted(feed: LiveFeed) -> dict[str, Any]:
    """Return what the run counted of a stream, as it last told."""
    told: dict[str, Any] = dict.fromkeys(("n_lost", *COUNTED), 0) | {"last_error": "", "stride": 1, "spent_s": 0.0}
    if feed.stream is None:
        return told
    told["n_lost"] = feed.stream.n_lost
    about = feed.source.description if feed.live else None
    for stream in about.streams if about is not None else ():
        if canonical(stream.query) == feed.stream.query:
            return told | {name: getattr(stream, name) for name in COUNTED}
    return told


async def _received(socket: WebSocket) -> str:
    """Return the next text; what is none is read as one that cannot be."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    return message.get("text") or ""


async def _every(pause_s: float, turn: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again; a turn that fails is told of, and the next comes all the same."""
    while True:
        await asyncio.sleep(pause_s)
        try:
            await turn()
        except Exception as error:  # noqa: BLE001  see above
            tell(error)
