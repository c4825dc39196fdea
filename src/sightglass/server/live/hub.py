"""All sockets of the page: admits them, and sends them the list of runs when it changes.

A client sends `hello` with a token, and then what it wants; see `page_socket`. Sockets with equal queries share a
stream; see `shared_stream`. All messages are documented in docs/page.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from sightglass.server.access import Tokens
from sightglass.server.http_errors import log_error
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import RunSummary, ServedRun

from .messages import GOING, TOO_MANY
from .page_socket import PageSocket, list_runs
from .shared_stream import SharedStreams

WATCH_S: Final = 1.0
WATCHED_S: Final = 10.0  # the page asks again within seconds, so this long after its last request it is closed
MAX_SOCKETS: Final = 256  # one per tab; a page that reconnects without end must not use up the file descriptors


class Hub:
    """All sockets, and the streams that they share.

    Attributes:
        streams: The streams, while the hub is entered.
        sockets: The sockets of the clients that were welcomed.
    """

    def __init__(self, runs: Runs, tokens: Tokens, *, cut: Callable[[Any], None] = lambda client: None) -> None:
        """Start without sockets; `cut` ends the connection of a client, given by its address."""
        self.sockets: set[PageSocket] = set()
        self._runs = runs
        self._tokens = tokens
        self._cut = cut
        self._requested_s = -WATCHED_S
        self._listed: list[RunSummary] = []
        self._describing: set[str] = set()

    def note_request(self) -> None:
        """Note that a request came: the live runs are described for `WATCHED_S` from now on."""
        self._requested_s = time.monotonic()

    async def __aenter__(self) -> Hub:
        """Start to watch the runs."""
        self.streams = SharedStreams(self._runs)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close all sockets and streams."""
        self._watching.cancel()
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
            if len(self.sockets) >= MAX_SOCKETS:
                await client.close(TOO_MANY, f"Expected at most {MAX_SOCKETS} sockets")
                return
            self.sockets.add(client)
            await client.serve(self._cut)
        except (WebSocketDisconnect, RuntimeError):
            pass  # it left before it said hello
        finally:
            self.sockets.discard(client)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001  the next turn may succeed
                log_error(error)

    async def _look(self) -> None:
        """Describe the live runs in use, send the list of runs if it changed, and leave the live runs not in use."""
        loop = asyncio.get_running_loop()
        watched = any(client.wants_runs for client in self.sockets) or time.monotonic() - self._requested_s < WATCHED_S
        for run in self._runs.live():
            if (run.holders or watched) and run.key not in self._describing:
                self._describing.add(run.key)
                described = loop.run_in_executor(self._runs.describe_pool, _describe, run)
                described.add_done_callback(functools.partial(self._described, run.key))
        if watched:
            listed, frame = await loop.run_in_executor(self._runs.file_pool, list_runs, self._runs)
            if listed != self._listed:
                self._listed = listed
                for client in self.sockets:
                    if client.wants_runs:
                        client.queue.put(frame)
        await loop.run_in_executor(self._runs.live_pool, self._runs.disconnect_idle)

    def _described(self, key: str, _: asyncio.Future[None]) -> None:
        self._describing.discard(key)


def _describe(run: ServedRun) -> None:
    with contextlib.suppress(Exception):  # the run notes that it is silent
        run.describe()
