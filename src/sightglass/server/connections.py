"""The connections of the server, and how many of them may come from strangers.

Everyone who reaches the port can connect, and send half a request. A connection is a stranger's until it shows a token.
Strangers share a few places: the oldest of the same address leaves for a new one, and each leaves after `STRANGER_S`.
The page itself is loaded without a token, and takes milliseconds. With TLS, a connection counts from its first byte on,
not from the end of its handshake: strangers can leave that half done, too.

What a stranger sends takes little time of the event loop, which all clients share: heads have few fields, and sockets
send little before their hello.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from typing import Any, Final
from weakref import WeakValueDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .middleware import Proxies

MAX_STRANGERS: Final = 128  # a browser opens six; a process has 1,024 descriptors by default, and needs most for files
MAX_OF_ADDRESS: Final = 64  # so that one address leaves room for others
STRANGER_S: Final = 10.0  # the page is loaded over a slow link by then, or continues on another connection
BACKLOG: Final = 8  # accepted at once: a token is read some turns of the event loop later, and its stranger still there
QUEUE: Final = 1_024  # connections that wait to be accepted; what comes beyond them comes again a second later
MAX_FIELDS: Final = 100  # of a head, as in Apache: a browser sends 20, and 5,000 fit in a head and take 0.1 s to read
MAX_HELLO_BYTES: Final = 4_096  # 20 times a hello; 20,000 pings would fit in one piece of data

Client = tuple[str, int]


class Connections:
    """The connections of a server, by the addresses of their clients.

    Attributes:
        proxies: The addresses of proxies; their connections count for the clients that they forward.
    """

    def __init__(self, proxies: Proxies | None = None) -> None:
        self.proxies = proxies or Proxies()
        self._open: WeakValueDictionary[Client, asyncio.Transport] = WeakValueDictionary()
        self._strangers: dict[Client, tuple[str, asyncio.TimerHandle]] = {}
        self._of_address: Counter[str] = Counter()

    @property
    def n_strangers(self) -> int:
        """How many have shown no token."""
        return len(self._strangers)

    def add(self, client: Client, transport: asyncio.Transport) -> None:
        """Add a connection, in place of the oldest stranger's if there are too many."""
        self.admit(client)
        self._open[client] = transport
        timer = asyncio.get_running_loop().call_later(STRANGER_S, self.cut, client)
        self._count(client, "" if client[0] in self.proxies else client[0], timer)

    def forward(self, client: Client, address: str) -> None:
        """Count a proxy's connection for the address of the client that it forwards, unless it has shown a token."""
        if client in self._strangers:
            _, timer = self._strangers[client]
            self._forget(client)
            self._count(client, address, timer)

    def _count(self, client: Client, address: str, timer: asyncio.TimerHandle) -> None:
        """Count a stranger, and cut the oldest one if there are too many; the address of a proxy is empty."""
        if address and self._of_address[address] >= MAX_OF_ADDRESS:
            self.cut(next(other for other, (of, _) in self._strangers.items() if of == address))
        elif len(self._strangers) >= MAX_STRANGERS:
            self.cut(next(iter(self._strangers)))
        self._strangers[client] = (address, timer)
        self._of_address[address] += 1

    def _forget(self, client: Client) -> None:
        address, _ = self._strangers.pop(client)
        self._of_address -= Counter([address])  # drops what is 0

    def admit(self, client: Any) -> None:
        """Note that a connection has shown a token, or that it is closed."""
        known = tuple(client or ())
        if known in self._strangers:
            self._strangers[known][1].cancel()
            self._forget(known)

    def cut(self, client: Any) -> None:
        """End a connection, without waiting until the client has read what was sent."""
        self.admit(client)
        transport = self._open.get(tuple(client or ()))
        if transport is not None:
            transport.abort()

    def hears(self, client: Any, n_bytes: int) -> bool:
        """Return whether a socket's client may send this much now; a stranger that may not is cut."""
        if n_bytes <= MAX_HELLO_BYTES or tuple(client or ()) not in self._strangers:
            return True
        self.cut(client)
        return False

    def socket_protocol(self) -> type[Any]:
        """Return the protocol of sockets whose connections are added here."""
        connections = self

        class Socket(WebSocketsSansIOProtocol):
            n_before_hello = 0

            def data_received(self, data: bytes) -> None:
                if self.handshake_initiated:  # or it is the head, which was read before
                    self.n_before_hello += len(data)
                    if not connections.hears(self.client, self.n_before_hello):
                        return
                super().data_received(data)

        return Socket

    def protocol(self, context: ssl.SSLContext | None = None) -> type[Any]:
        """Return the protocol whose connections are added here: HTTP, with TLS if there is a context for it."""
        connections = self

        class Plain(_FewFields):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self.client is not None:
                    connections.add(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                connections.admit(self.client)
                super().connection_lost(exc)

        class Encrypted(SSLProtocol):
            """What `create_server(ssl=…)` makes, too, but then a connection is known only after its handshake."""

            def __init__(self, **options: Any) -> None:
                waits: dict[str, Any] = {"ssl_handshake_timeout": STRANGER_S, "ssl_shutdown_timeout": STRANGER_S}
                waiter: Any = None  # nobody waits for the end of the handshake
                assert context is not None
                super().__init__(
                    asyncio.get_running_loop(), _FewFields(**options), context, waiter, server_side=True, **waits
                )
                self._client: Client | None = None

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self._client = get_remote_addr(transport)
                if self._client is not None:
                    connections.add(self._client, transport)
                super().connection_made(transport)

            def connection_lost(self, exc: BaseException | None) -> None:
                connections.admit(self._client)
                super().connection_lost(exc)

        return Plain if context is None else Encrypted


class _FewFields(H11Protocol):
    """HTTP whose heads have at most `MAX_FIELDS` fields, counted before they are read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._n_lines = 0

    def data_received(self, data: bytes) -> None:
        self._n_lines += data.count(b"\n")
        super().data_received(data)

    def handle_events(self) -> None:
        if self._n_lines > MAX_FIELDS and self.conn.their_state is h11.IDLE:
            head, end, _ = self.conn.trailing_data[0].partition(b"\r\n\r\n")
            if head.count(b"\n") - (not end) > MAX_FIELDS:
                self.send_400_response(f"Expected a head of at most {MAX_FIELDS} fields.")
                return
        super().handle_events()
