"""The connections of the server, and how many of them may come from strangers.

Everyone who reaches the port can connect, and send half a request. A connection is a stranger's until it shows a token.
Strangers share a few places: the oldest of the same address leaves for a new one, and each leaves after `STRANGER_S`.
The page itself is loaded without a token, and takes milliseconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final
from weakref import WeakValueDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_STRANGERS: Final = 128  # a browser opens six; a process has 1,024 descriptors by default, and needs most for files
MAX_OF_ADDRESS: Final = 64  # so that one address leaves room for others
STRANGER_S: Final = 10.0  # the page is loaded over a slow link by then, or continues on another connection
BACKLOG: Final = 256  # connections that are accepted at once, before the oldest can leave

Client = tuple[str, int]


class Connections:
    """The connections of a server, by the addresses of their clients."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[Client, asyncio.Transport] = WeakValueDictionary()
        self._strangers: dict[Client, asyncio.TimerHandle] = {}
        self._of_address: Counter[str] = Counter()

    @property
    def n_strangers(self) -> int:
        """How many have shown no token."""
        return len(self._strangers)

    def add(self, client: Client, transport: asyncio.Transport) -> None:
        """Add a connection, in place of the oldest stranger's if there are too many."""
        self.admit(client)
        host = client[0]
        if self._of_address[host] >= MAX_OF_ADDRESS:
            self.cut(next(other for other in self._strangers if other[0] == host))
        elif len(self._strangers) >= MAX_STRANGERS:
            self.cut(next(iter(self._strangers)))
        self._open[client] = transport
        self._of_address[host] += 1
        self._strangers[client] = asyncio.get_running_loop().call_later(STRANGER_S, self.cut, client)

    def admit(self, client: Any) -> None:
        """Note that a connection has shown a token, or that it is closed."""
        timer = self._strangers.pop(tuple(client or ()), None)
        if timer is not None:
            timer.cancel()
            self._of_address -= Counter([client[0]])  # drops what is 0

    def cut(self, client: Any) -> None:
        """End a connection, without waiting until the client has read what was sent."""
        self.admit(client)
        transport = self._open.get(tuple(client or ()))
        if transport is not None:
            transport.abort()

    def protocol(self) -> type[H11Protocol]:
        """Return the HTTP protocol whose connections are added here."""
        connections = self

        class Protocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self.client is not None:
                    connections.add(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                connections.admit(self.client)
                super().connection_lost(exc)

        return Protocol
