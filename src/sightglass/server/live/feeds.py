"""The feeds that viewers share: opened for the first who asks, closed when the last is gone.

Theory of operation
    Equal queries about one run are one feed. A thread waits for records to arrive in this process, and wakes the loop,
    at most every `BEAT_S`, and so seldom that serving takes no more than half of the loop's time; then the feeds of
    live runs are pulled in a thread, and who looks at what changed is served. Recorded runs, which tell nobody when
    they grow, are looked at every `FOLLOW_S`. Connections that were lost are made anew in threads.

    A feed whose last viewer did not leave, but lost its connection, lingers: whoever comes back gets what it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

from sightglass.client.arrivals import arrivals
from sightglass.core.errors import QueryError
from sightglass.core.threads import Background, pool
from sightglass.query.parser import as_query
from sightglass.server.http_errors import tell
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import ServedRun

from .feed import LiveFeed
from .viewer import Panel

BEAT_S: Final = 0.02
FOLLOW_S: Final = 0.5
MAX_REST_S: Final = 0.25
LINGER_S: Final = 30.0
MAX_LINGERING: Final = 256
MAX_CANONICAL: Final = 512


@dataclass(eq=False, slots=True, kw_only=True)
class Shared:
    """A feed, and who looks at it.

    Attributes:
        place: The key of the run, and the query in canonical text.
        feed: The feed.
        opening: Done when it is open, or cannot be opened.
        panels: Who looks.
        lost: Whether its connection is being made anew.
        left_s: When the last viewer lost its connection, on the monotonic clock, while the feed lingers.
    """

    place: tuple[str, str]
    feed: LiveFeed
    opening: asyncio.Future[None]
    panels: set[Panel] = field(default_factory=set)
    lost: bool = False
    left_s: float | None = None


class Feeds:
    """All feeds that are open."""

    def __init__(self, runs: Runs, changed: Callable[[Shared], None]) -> None:
        """Begin with none; `changed` is called on the loop when there is something new in one."""
        self._runs = runs
        self._changed = changed
        self._shared: dict[tuple[str, str], list[Shared]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._woken = asyncio.Event()
        self._closing = False
        self._puller = pool("pull", 1)

    def __iter__(self) -> Iterator[Shared]:
        return iter([shared for several in self._shared.values() for shared in several])

    def __len__(self) -> int:
        return sum(map(len, self._shared.values()))

    async def __aenter__(self) -> Feeds:
        """Begin to work."""
        self._loop = asyncio.get_running_loop()
        self._listener = Background("page", self._listen)
        self.begin(self._pump())
        self.begin(self._follow())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close them all."""
        self._closing = True
        arrivals.notify()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shared in self:
            with contextlib.suppress(Exception):
                await asyncio.to_thread(shared.feed.close)
        self._shared.clear()
        self._puller.shutdown(wait=False, cancel_futures=True)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside; what it raises is told."""
        task = asyncio.create_task(_told_if_failed(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Who looks at what

    async def join(self, panel: Panel, source: ServedRun, query: str, *, key: str, confirm: bool) -> LiveFeed:
        """Let somebody look at a stream, opening it if nobody does yet. Errors as in `LiveFeed.open`."""
        place = (source.key, key)
        known = [one for one in self._shared.get(place, ()) if not one.feed.ended]
        # Who did not confirm shares what is open already: its price is paid.
        shared = next((one for one in known if one.feed.stream is not None or one.feed.confirm == confirm), None)
        if shared is None:
            feed = LiveFeed(source, query, confirm=confirm)
            opening = self._loop.run_in_executor(self._runs.asks if feed.live else self._runs.files, feed.open)
            shared = Shared(place=place, feed=feed, opening=opening)
            self._shared.setdefault(place, []).append(shared)
        shared.left_s = None
        shared.panels.add(panel)
        panel.shared = shared
        await asyncio.shield(shared.opening)
        self._woken.set()
        return shared.feed

    def part(self, panel: Panel, *, broken: bool = False) -> None:
        """Let somebody look no more; the feed is closed when it was the last who did.

        Args:
            panel: Who looked.
            broken: Whether it did not mean to: then the feed lingers for a while.
        """
        shared, panel.shared = panel.shared, None
        if shared is None:
            return
        shared.panels.discard(panel)
        if shared.panels:
            return
        if broken and shared.feed.stream is not None and not shared.feed.ended and len(self) <= MAX_LINGERING:
            shared.left_s = time.monotonic()
        else:
            self._remove(shared)

    def _remove(self, shared: Shared) -> None:
        if shared in self._shared.get(shared.place, ()):
            self._shared[shared.place].remove(shared)
            if not self._shared[shared.place]:
                del self._shared[shared.place]
            self.begin(self._close(shared))

    async def _close(self, shared: Shared) -> None:
        with contextlib.suppress(Exception):
            await shared.opening
        await self._loop.run_in_executor(self._runs.asks, shared.feed.close)

    # What comes

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
            began_s = time.monotonic()
            await self._pull([shared for shared in self if shared.feed.live], self._puller)
            await asyncio.sleep(min(MAX_REST_S, time.monotonic() - began_s))

    async def _follow(self) -> None:
        """Read on in recorded runs; and look after the live ones in any case."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            await self._pull([shared for shared in self if not shared.feed.live], self._runs.files)
            for shared in self:
                if shared.left_s is not None and time.monotonic() - shared.left_s > LINGER_S:
                    self._remove(shared)
                elif shared.feed.lost_s is not None and not shared.lost:
                    shared.lost = True
                    self.begin(self._reconnect(shared))
            self._woken.set()

    async def _reconnect(self, shared: Shared) -> None:
        try:
            if await self._loop.run_in_executor(self._runs.asks, shared.feed.reconnect):
                self._changed(shared)
        finally:
            shared.lost = False

    async def _pull(self, several: list[Shared], threads: Executor) -> None:
        several = [shared for shared in several if shared.feed.stream is not None]
        if not several:
            return
        for shared in await self._loop.run_in_executor(threads, _pull_all, several):
            try:
                self._changed(shared)
            except Exception as error:  # noqa: BLE001  one stream's trouble is not the others'
                tell(error)


@functools.lru_cache(maxsize=MAX_CANONICAL)
def canonical(text: str) -> str:
    """Return the canonical text of a query; the text itself if it is none, but perhaps the tag of a series."""
    try:
        return as_query(text).key
    except QueryError:
        return text


def _pull_all(several: list[Shared]) -> list[Shared]:
    changed = []
    for shared in several:
        try:
            if shared.feed.pull():
                changed.append(shared)
        except Exception as error:  # noqa: BLE001  one stream's trouble is not the others'
            shared.feed.error, shared.feed.ended = error, True
            changed.append(shared)
    return changed


async def _told_if_failed(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  told, so that nobody waits in vain for what died in silence
        tell(error)
