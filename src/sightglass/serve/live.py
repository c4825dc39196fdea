"""The socket: viewers open streams, and get what comes of them as it comes.

Theory of operation
    A viewer says `hello` with a token, and then what it wants. Equal queries about one run share a `Feed`, which is
    closed when the last viewer that wanted it is gone. A thread waits for records to arrive in this process, and wakes
    the loop, at most every `BEAT_S`; then all feeds are pulled in a thread, and each viewer is sent what is new.

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
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.client.store import arrivals
from sightglass.core.errors import QueryError
from sightglass.core.sink import Background
from sightglass.query.query import as_query

from . import wire
from .access import Role, Tokens
from .feed import Feed
from .problems import bad_request, tell, too_large
from .sources import Run, Runs, Source

HELLO_S: Final = 5.0
BEAT_S: Final = 0.02
WATCH_S: Final = 1.0
FOLLOW_S: Final = 0.5
LOOKED_S: Final = 10.0
"""For how long after a request the live runs go on being asked how they are."""

MAX_UNACKNOWLEDGED: Final = 8
MAX_WAITING: Final = 4_096
MAX_SOCKETS: Final = 256
MAX_STREAMS: Final = 512
MAX_QUERY: Final = 20_000
POINTS: Final = 1_000
MAX_POINTS: Final = 100_000

UNAUTHORIZED: Final = 4401
MALFORMED: Final = 4400
TOO_SLOW: Final = 4408
TOO_MANY: Final = 4429
GOING: Final = 1001

Id = Annotated[str, msgspec.Meta(max_length=200)] | int
Text = Annotated[str, msgspec.Meta(max_length=MAX_QUERY)]


class Hello(msgspec.Struct, tag_field="type", tag="hello"):
    """The first message."""

    token: Text


class Open(msgspec.Struct, tag_field="type", tag="open"):
    """Open a stream, under an id that the viewer chooses."""

    id: Id
    run: Text
    query: Text
    confirm: bool = False
    points: Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTS)] = POINTS


class Close(msgspec.Struct, tag_field="type", tag="close"):
    """Close it."""

    id: Id


class RunsWanted(msgspec.Struct, tag_field="type", tag="runs"):
    """Tell of the runs, now and whenever something changes."""


class Ack(msgspec.Struct, tag_field="type", tag="ack"):
    """So many binary messages of a stream more were taken in."""

    id: Id
    n: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 1


Message = Hello | Open | Close | RunsWanted | Ack

_decoder = msgspec.json.Decoder(Message)


class Panel:
    """One stream as one viewer sees it."""

    def __init__(self, id: Id, feed: Feed, points: int) -> None:
        self.id = id
        self.feed = feed
        self.points = points
        self.cursor = 0
        self.unacknowledged = 0
        self.n_left_out = 0
        self.view: Any = None
        self.told: Any = None


class Viewer:
    """One socket."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.role: Role = "viewer"
        self.panels: dict[Id, Panel | None] = {}
        self.wants_runs = False
        self.gone = False
        self.outbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.opening: set[asyncio.Task[None]] = set()

    def send(self, message: dict[str, Any]) -> None:
        """Send text, as soon as it can be."""
        self.put(wire.encode_json(message).decode())

    def put(self, frame: str | bytes) -> None:
        """Send a frame, as soon as it can be; who lets too many wait is sent away."""
        if self.gone:
            return
        if self.outbox.qsize() >= MAX_WAITING:
            self.gone = True
            self.outbox = asyncio.Queue()
            self.outbox.put_nowait(None)
            return
        self.outbox.put_nowait(frame)


class Hub:
    """All viewers, and the feeds that they share."""

    def __init__(self, runs: Runs, tokens: Tokens) -> None:
        self._runs = runs
        self._tokens = tokens
        self._viewers: set[Viewer] = set()
        self._feeds: dict[tuple[str, str, bool], tuple[Feed, asyncio.Task[None], set[Panel]]] = {}
        self._owners: dict[Panel, Viewer] = {}
        self._looked_s = -LOOKED_S
        self._listed: list[Run] = []
        self._asking: set[str] = set()
        self._lost: set[Feed] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._woken = asyncio.Event()
        self._closing = False
        self._puller = ThreadPoolExecutor(1, thread_name_prefix="sightglass-pull")

    @property
    def n_feeds(self) -> int:
        """How many streams are open."""
        return len(self._feeds)

    def looked(self) -> None:
        """Note that somebody looks."""
        self._looked_s = time.monotonic()

    async def __aenter__(self) -> Hub:
        """Begin to work."""
        self._loop = asyncio.get_running_loop()
        self._listener = Background("page", self._listen)
        for work in (self._pump, self._follow, self._watch):
            self._begin(work())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Send all viewers away."""
        self._closing = True
        arrivals.tell()
        for viewer in list(self._viewers):
            with contextlib.suppress(Exception):
                await viewer.socket.close(GOING)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for feed, *_ in list(self._feeds.values()):
            with contextlib.suppress(Exception):
                await asyncio.to_thread(feed.close)
        self._feeds.clear()
        self._puller.shutdown(wait=False, cancel_futures=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(_told_if_failed(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # What comes from the runs

    def _listen(self) -> None:
        """Wake the loop when records have arrived; the only thread of the page's own."""
        while not self._closing:
            seen = arrivals.n
            arrivals.wait(seen, FOLLOW_S)
            if arrivals.n != seen and not self._closing:
                with contextlib.suppress(RuntimeError):  # the loop is over
                    self._loop.call_soon_threadsafe(self._woken.set)
                time.sleep(BEAT_S)

    async def _pump(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self._pull([feed for feed, *_ in self._feeds.values() if feed.live], self._puller)

    async def _follow(self) -> None:
        """Read on in recorded runs, which tell nobody when they grow; and look after the live ones in any case."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            await self._pull([feed for feed, *_ in self._feeds.values() if not feed.live], self._runs.files)
            for feed, *_ in list(self._feeds.values()):
                if feed.lost_s is not None and feed not in self._lost:
                    self._lost.add(feed)
                    self._begin(self._reconnect(feed))
            self._woken.set()

    async def _reconnect(self, feed: Feed) -> None:
        try:
            changed = await self._loop.run_in_executor(self._runs.asks, feed.reconnect)
        finally:
            self._lost.discard(feed)
        if changed:
            self._serve_feed(feed)

    async def _pull(self, feeds: list[Feed], pool: ThreadPoolExecutor) -> None:
        feeds = [feed for feed in feeds if feed.stream is not None]
        if not feeds:
            return
        changed = await self._loop.run_in_executor(pool, _pull_all, feeds)
        for feed in changed:
            self._serve_feed(feed)

    def _serve_feed(self, changed: Feed) -> None:
        for feed, _, panels in list(self._feeds.values()):
            if feed is changed:
                for panel in list(panels):
                    self._serve_panel(panel)

    def _serve_panel(self, panel: Panel) -> None:
        """Send a viewer what it has not seen of a stream."""
        viewer = self._owners.get(panel)
        if viewer is None:
            return
        feed = panel.feed
        if feed.view is not None and feed.view != panel.view:
            panel.view = feed.view
            viewer.send({"type": "view", "id": panel.id, **feed.view})
        while panel.unacknowledged < MAX_UNACKNOWLEDGED:
            taken = feed.take(panel.cursor, panel.points)
            if taken is None:
                break
            panel.cursor = taken.cursor
            panel.n_left_out += taken.n_left_out
            panel.unacknowledged += 1
            viewer.put(wire.encode_msgpack({"id": panel.id, **taken.message}))
        if feed.ended and panel.cursor >= feed.n:
            self._tell_statistics(panel, feed)
            told = {} if feed.error is None else {"error": type(feed.error).__name__, "reason": str(feed.error)}
            viewer.send({"type": "ended", "id": panel.id, **told})
            self._drop(viewer, panel.id)

    # What is looked after every second

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            watching = any(viewer.wants_runs for viewer in self._viewers)
            looked = time.monotonic() - self._looked_s < LOOKED_S
            if watching or looked:
                await self._list()
            for source in self._runs.live():
                if source.holders or watching or looked:
                    self._ask(source)
            for feed, _, panels in list(self._feeds.values()):
                for panel in list(panels):
                    self._tell_statistics(panel, feed)
            await self._loop.run_in_executor(self._runs.asks, self._runs.sweep)

    def _ask(self, source: Source) -> None:
        """Ask a live run how it is, unless it has not answered yet."""
        if source.key not in self._asking:
            self._asking.add(source.key)
            asked = self._loop.run_in_executor(self._runs.polls, _describe, source)
            asked.add_done_callback(lambda _: self._asking.discard(source.key))

    async def _list(self) -> None:
        listed = await self._loop.run_in_executor(self._runs.files, self._runs.told)
        if listed != self._listed:
            self._listed = listed
            message = wire.encode_json({"type": "runs", "runs": listed}).decode()
            for viewer in self._viewers:
                if viewer.wants_runs:
                    viewer.put(message)

    def _tell_statistics(self, panel: Panel, feed: Feed) -> None:
        viewer = self._owners.get(panel)
        if viewer is None or feed.stream is None:
            return
        told: dict[str, Any] = {"n_records": feed.n, "n_lost": 0, "n_events": 0, "n_skipped": 0, "n_dropped": 0,
                                "n_errors": 0, "last_error": "", "stride": 1, "spent_s": 0.0}  # fmt: skip
        told.update(_counted(feed))
        told |= {"n_unfit": feed.n_unfit, "n_left_out": panel.n_left_out, "n_unacknowledged": panel.unacknowledged,
                 "n_waiting": feed.n - panel.cursor, "ended": feed.ended, "lost": feed.lost_s is not None}  # fmt: skip
        if told != panel.told:
            panel.told = told
            viewer.send({"type": "statistics", "id": panel.id, **told})

    # What comes from viewers

    async def serve(self, socket: WebSocket) -> None:
        """Speak with one viewer until it leaves."""
        await socket.accept()
        viewer = Viewer(socket)
        writer: asyncio.Task[None] | None = None
        try:
            if not await self._greet(viewer):
                return
            self._viewers.add(viewer)
            writer = asyncio.create_task(_write(viewer))
            while not viewer.gone:
                self._take(viewer, await _received(socket))
        except (WebSocketDisconnect, RuntimeError):
            pass  # it left, or was sent away
        except Exception as error:  # noqa: BLE001  one viewer's trouble is not the others'
            tell(error)
        finally:
            self._leave(viewer)
            if writer is not None:
                writer.cancel()

    async def _greet(self, viewer: Viewer) -> bool:
        try:
            text = await asyncio.wait_for(_received(viewer.socket), HELLO_S)
            message = _decoder.decode(text)
        except (TimeoutError, msgspec.MsgspecError, ValueError, RecursionError):
            await viewer.socket.close(UNAUTHORIZED, "Expected a hello")
            return False
        role = self._tokens.role(message.token) if isinstance(message, Hello) else None
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
            message = _decoder.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            _refuse(viewer, None, bad_request(f"The message cannot be read: {error}"[:500]))
            return
        match message:
            case Open():
                self._open(viewer, message)
            case Close(id=id):
                self._drop(viewer, id)
            case Ack(id=id, n=n):
                panel = viewer.panels.get(id)
                if panel is not None:
                    panel.unacknowledged = max(0, panel.unacknowledged - n)
                    self._serve_panel(panel)
            case RunsWanted():
                viewer.wants_runs = True
                self._begin(self._tell_runs(viewer))
            case Hello():
                _refuse(viewer, None, bad_request("Expected one hello, got another"))

    async def _tell_runs(self, viewer: Viewer) -> None:
        listed = await self._loop.run_in_executor(self._runs.files, self._runs.told)
        viewer.send({"type": "runs", "runs": listed})

    def _open(self, viewer: Viewer, message: Open) -> None:
        if message.id in viewer.panels:
            _refuse(viewer, message.id, bad_request(f"Stream {message.id!r} is open already: close it first"))
        elif len(viewer.panels) >= MAX_STREAMS:
            _refuse(viewer, message.id, too_large(f"Expected at most {MAX_STREAMS} streams of a socket, got more"))
        else:
            viewer.panels[message.id] = None
            task = asyncio.create_task(self._opened(viewer, message))
            viewer.opening.add(task)
            task.add_done_callback(viewer.opening.discard)

    async def _opened(self, viewer: Viewer, message: Open) -> None:
        """Open a stream for a viewer, or share the one that another has."""
        panel: Panel | None = None
        try:
            source = await self._loop.run_in_executor(self._runs.files, self._runs.find, message.run)
            key = (source.key, _canonical(message.query), message.confirm)
            held = self._feeds.get(key)
            if held is None or held[0].ended:
                feed = Feed(source, message.query, confirm=message.confirm)
                pool = self._runs.asks if feed.live else self._runs.files
                opening = asyncio.ensure_future(_in_pool(self._loop, pool, feed.open))
                held = self._feeds[key] = (feed, opening, set())
            feed, opening, panels = held
            panel = Panel(message.id, feed, message.points)
            panels.add(panel)
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._forget(panel)
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            self._forget(panel)
            if viewer.panels.get(message.id, panel) is None:
                viewer.panels.pop(message.id, None)
                _refuse(viewer, message.id, error)
            return
        if viewer.gone or message.id not in viewer.panels:  # closed, or left, meanwhile
            self._forget(panel)
            return
        viewer.panels[message.id] = panel
        self._owners[panel] = viewer
        stream = feed.stream
        viewer.send({"type": "opened", "id": message.id, "tag": stream.tag if stream else "",
                     "note": stream.note if stream else "", "query": stream.query if stream else ""})  # fmt: skip
        self._serve_panel(panel)
        self._woken.set()

    def _drop(self, viewer: Viewer, id: Id) -> None:
        self._forget(viewer.panels.pop(id, None))

    def _forget(self, panel: Panel | None) -> None:
        """Close a stream for a viewer, and for the run when it was the last that asked."""
        if panel is None:
            return
        self._owners.pop(panel, None)
        for key, (feed, opening, panels) in list(self._feeds.items()):
            if panel in panels:
                panels.discard(panel)
                if not panels:
                    del self._feeds[key]
                    self._begin(self._closed(feed, opening))

    async def _closed(self, feed: Feed, opening: asyncio.Task[None]) -> None:
        with contextlib.suppress(Exception):
            await opening
            await self._loop.run_in_executor(self._runs.asks, feed.close)

    def _leave(self, viewer: Viewer) -> None:
        viewer.gone = True
        self._viewers.discard(viewer)
        for task in list(viewer.opening):
            task.cancel()
        for id in list(viewer.panels):
            self._drop(viewer, id)


@functools.lru_cache(maxsize=4_096)
def _canonical(text: str) -> str:
    try:
        return as_query(text).key
    except QueryError:
        return text  # perhaps the tag of a series


def _pull_all(feeds: list[Feed]) -> list[Feed]:
    changed = []
    for feed in feeds:
        try:
            if feed.pull():
                changed.append(feed)
        except Exception as error:  # noqa: BLE001  one stream's trouble is not the others'
            feed.error, feed.ended = error, True
            changed.append(feed)
    return changed


def _describe(source: Source) -> None:
    with contextlib.suppress(Exception):  # it is noted in the source
        source.describe()


def _counted(feed: Feed) -> dict[str, Any]:
    """Return what the run counted of a stream, as it last told."""
    told: dict[str, Any] = {}
    if feed.stream is not None:
        told["n_lost"] = feed.stream._store.n_lost
    about = feed.source.description if feed.live else None
    for stream in about.streams if about is not None else ():
        if _canonical(stream.query) == (feed.stream.query if feed.stream is not None else ""):
            names = ("n_events", "n_skipped", "n_dropped", "n_errors", "last_error", "stride", "spent_s")
            return told | {name: getattr(stream, name) for name in names}
    return told


def _refuse(viewer: Viewer, id: Id | None, error: Exception) -> None:
    _, told = tell(error)
    message: dict[str, Any] = {"type": "refused", "id": id, "error": told["type"], "message": told["message"]}
    if "position" in told:
        message["position"] = told["position"]
    viewer.send(message)


async def _received(socket: WebSocket) -> str:
    """Return the next text; what is none is read as one that cannot be."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    return message.get("text") or ""


async def _write(viewer: Viewer) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while (frame := await viewer.outbox.get()) is not None:
            if isinstance(frame, bytes):
                await viewer.socket.send_bytes(frame)
            else:
                await viewer.socket.send_text(frame)
        await viewer.socket.close(TOO_SLOW, "Too many messages were waiting")


async def _in_pool(loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    await loop.run_in_executor(pool, work)


async def _told_if_failed(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  told, so that nobody waits in vain for what died in silence
        tell(error)
