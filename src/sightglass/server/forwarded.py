"""Proxies: what the proxies that the user named say of the clients behind them.

Everyone can send the headers X-Forwarded-For, -Proto and -Host. They count from the addresses of these proxies only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from .access import App, Receive, Scope, Send

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """The addresses of the named proxies."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        """Take addresses and networks.

        Raises:
            ValueError: One of them is neither.
        """
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(one, strict=False) for one in addresses)

    def __contains__(self, host: object) -> bool:
        address = _address(str(host)) if self._networks else None
        return address is not None and any(address in network for network in self._networks)

    def client_of(self, forwarded: str) -> str:
        """Return the last address in X-Forwarded-For that is not a proxy's; an empty text if there is none.

        Each proxy appends the address of its client, so what stands before the first stranger is anybody's invention.
        """
        for part in reversed(forwarded.split(",")):
            address = _address(part.strip())
            if address is None:
                return ""
            if str(address) not in self:
                return str(address)
        return ""


class Forwarded:
    """Apply the headers of the named proxies to their requests."""

    def __init__(self, app: App, *, proxies: Proxies, forward: Callable[[Any, str], None]) -> None:
        """Wrap an application; `forward` is told of whose address a connection of a proxy is used for."""
        self._app = app
        self._proxies = proxies
        self._forward = forward

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        client = scope.get("client")
        if client and client[0] in self._proxies:
            self._apply(scope)
        await self._app(scope, receive, send)

    def _apply(self, scope: Scope) -> None:
        given: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value.decode("latin-1"))
        # Several proxies append to a list; the last one is the one that was named.
        last = {name: ",".join(values).rpartition(",")[2].strip() for name, values in given.items()}
        if host := last.get(b"x-forwarded-host"):
            others = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
            scope["headers"] = [*others, (b"host", host.encode("latin-1"))]
        if (scheme := last.get(b"x-forwarded-proto", "").lower()) in ("http", "https"):
            scope["scheme"] = scheme.replace("http", "ws") if scope["type"] == "websocket" else scheme
        self._forward(scope["client"], self._proxies.client_of(",".join(given.get(b"x-forwarded-for", []))))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    host = text[1:].partition("]")[0] if text.startswith("[") else text
    if host.count(":") == 1:  # an IPv4 address with a port
        host = host.partition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
