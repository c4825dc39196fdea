"""All sockets of the page: admits them, and sends them the runs that change: in a list, or that grow.

A client sends `hello` with a token, and then what it wants; see `page_socket`. Sockets with equal queries share a
stream; see `shared_stream`. All messages are documented in docs/page.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.server.access import Tokens
from sightglass.server.connections import Connections
from sightglass.server.http_errors import log_error
from sightglass.server.runs.growth import LOOK_S, Growth
from sightglass.server.runs.run_table import Runs, summary_of
from sightglass.server.runs.served_run import RunSummary, ServedRun

from .frame_queue import GOING, TOO_MANY, UNAUTHORIZED
from .page_socket import PageSocket, changed_frame, list_frame
from .shared_stream import SharedStreams

WATCH_S: Final = 1.0
WATCHED_S: Final = 10.0  # the page asks again within seconds, so this long after its last request it is closed
MAX_SOCKETS: Final = 256  # one per tab; a page that reconnects without end must not use up the file descriptors


class Hub:
    """All sockets, and the streams that they share.

    Attributes:
        connections: The connections of the server.
        streams: The streams, while the hub is entered.
        sockets: The sockets of the clients that were welcomed.
    """

    def __init__(self, runs: Runs, tokens: Tokens, connections: Connections) -> None:
        """Start without sockets."""
        self.connections = connections
        self.sockets: set[PageSocket] = set()
        self._runs = runs
        self._tokens = tokens
        self._requested_s = -WATCHED_S
        self._listed: dict[str, RunSummary] = {}
        self._problem = ""
        self._growth = Growth(runs)
        self._works: dict[str, asyncio.Task[None]] = {}

    def note_request(self) -> None:
        """Note that a request came: the live runs are described for `WATCHED_S` from now on."""
        self._requested_s = time.monotonic()

    async def __aenter__(self) -> Hub:
        """Start to watch the runs."""
        self.streams = SharedStreams(self._runs)
        self._watching = [asyncio.create_task(self._repeat(turn)) for turn in (self._look, self._list, self._check)]
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close all sockets and streams."""
        for task in (*self._watching, *self._works.values()):
            task.cancel()
        for socket in list(self.sockets):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(WATCH_S):
                    await socket.close(GOING)
        await self.streams.close()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one client until it leaves."""
        await socket.accept()
        client = PageSocket(socket, self.streams)
        try:
            if not await client.greet(self._tokens):
                return
            self.connections.admit(socket.client)
            if len(self.sockets) >= MAX_SOCKETS:
                await client.close(TOO_MANY, f"Expected at most {MAX_SOCKETS} sockets")
                return
            self.sockets.add(client)
            await client.serve(self.connections.cut)
        except (WebSocketDisconnect, RuntimeError):
            pass  # it left before it said hello
        finally:
            self.sockets.discard(client)

    async def _repeat(self, turn: Callable[[], Awaitable[float]]) -> None:
        """Take turns without end; each returns for how long to rest."""
        rest_s = WATCH_S
        while True:
            await asyncio.sleep(rest_s)
            try:
                rest_s = await turn()
            except Exception as error:  # noqa: BLE001  the next turn may succeed
                log_error(error)

    async def _look(self) -> float:
        """Look at the files of the runs that clients show, and tell those clients which runs grew."""
        watched = {key for client in self.sockets for key in client.watched}
        if not watched:
            return LOOK_S
        loop = asyncio.get_running_loop()
        for run in await loop.run_in_executor(self._runs.look_pool, self._growth.look, watched):
            self._begin(run.key, self._send_details(run, self._send_changed(run)))
        for client in self.sockets:
            # A run may have grown after the client read of it, and before it was looked at for this client.
            first, client.unlooked = client.unlooked & watched, client.unlooked - watched
            if first:
                runs = list(filter(None, map(self._runs.known, first)))
                client.queue.put(changed_frame([self._summary(run) for run in runs]))
                for run in runs:  # a search for runs may have found that it grew, and not read its details
                    self._begin(run.key, self._send_details(run, self._summary(run)))
        return self._growth.rest_s

    async def _send_details(self, run: ServedRun, sent: RunSummary) -> None:
        """Read the details of a run that grew, such as its last step, and send them if they changed."""
        loop = asyncio.get_running_loop()
        pool = self._runs.file_pool
        try:
            while rest_s := await loop.run_in_executor(pool, run.read_details, math.inf):
                if self._summary(run) != sent:  # of a run that always grows, reading never comes to an end
                    sent = self._send_changed(run)
                await asyncio.sleep(rest_s)
        except Exception as error:  # noqa: BLE001  an odd file must not stop the news of others
            run.note_problem(error)
        if self._summary(run) != sent:
            self._send_changed(run)

    def _send_changed(self, run: ServedRun) -> RunSummary:
        """Send a run to the clients that show it, and return its summary."""
        summary = self._summary(run)
        frame = changed_frame([summary])
        for client in self.sockets:
            if run.key in client.watched:
                client.queue.put(frame)
        return summary

    def _summary(self, run: ServedRun) -> RunSummary:
        """Return the summary of a run, with its title in the list."""
        summary = summary_of(run)
        title = self._listed[run.key].title if run.key in self._listed else summary.title
        return msgspec.structs.replace(summary, title=title)

    async def _list(self) -> float:
        """Describe the live runs in use, send the runs that changed, and leave the live runs not in use."""
        loop = asyncio.get_running_loop()
        watched = any(client.wants_runs for client in self.sockets) or time.monotonic() - self._requested_s < WATCHED_S
        for run in self._runs.live():
            if run.connection.holders or watched:
                self._begin(f"describe {run.key}", self._describe(run))
        if watched:
            frame = await loop.run_in_executor(self._runs.file_pool, self._news)
            for client in self.sockets:
                if frame and client.wants_runs:
                    client.queue.put(frame)
        await loop.run_in_executor(self._runs.live_pool, self._runs.release_unused)
        return WATCH_S

    async def _check(self) -> float:
        """Send away the clients that are stuck, and those whose personal links were revoked."""
        for client in self.sockets:
            client.queue.check(time.monotonic())
        links = self._tokens.links
        await asyncio.to_thread(links.refresh)  # a thread of its own: reading runs must not delay this
        for client in list(self.sockets):
            link = client.visitor.link if client.visitor else None
            if link is not None and not links.holds(link):
                client.send_away(UNAUTHORIZED, "This link was revoked")
        return WATCH_S

    def _news(self) -> str:
        """Return the message with what changed in the list of runs, or an empty text."""
        known, self._listed = self._listed, {run.key: run for run in self._runs.summaries()}
        problem, self._problem = self._problem, self._runs.problem
        if list(known) != list(self._listed) or problem != self._problem:
            return list_frame(list(self._listed.values()), self._problem)
        changed = [run for key, run in self._listed.items() if run != known[key]]
        return changed_frame(changed) if changed else ""

    async def _describe(self, run: ServedRun) -> None:
        with contextlib.suppress(Exception):  # the run notes that it is silent
            await asyncio.get_running_loop().run_in_executor(self._runs.describe_pool, run.describe)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin to work for a run, unless the same is going on."""
        if name in self._works:
            work.close()
            return
        self._works[name] = task = asyncio.create_task(work)
        task.add_done_callback(functools.partial(self._done, name))

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        del self._works[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log_error(error)
