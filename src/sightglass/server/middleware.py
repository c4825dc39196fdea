"""What every request passes: the last resort for errors, the proxies that the user named, and the guard.

Theory of operation
    * Everyone can send the headers X-Forwarded-For, -Proto and -Host. They count from the addresses of the named
      proxies only.
    * The guard checks the host, the origin and the size of a request before the application sees it.
    * Every response carries `HEADERS`: the page runs no script except the server's, and connects to no other host. Of
      this server's documents it may frame one, which draws Plotly's figures; all others refuse to be framed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from starlette.responses import Response

from sightglass.views.encoding import encode_json

from .access import AllowedHosts
from .http_errors import Problem, error_reply, log_error

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_BODY_BYTES: Final = 2**20  # 1,000 requests for scalars with tags of 1,000 characters
MAX_URL_BYTES: Final = 16_384  # a query of two tags of 4,096 characters, each escaped
MAX_DIGITS: Final = 20  # of a content length, before it is made a number
JSON: Final = "application/json"

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "media-src blob:; connect-src 'self'; font-src 'self'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'none'"
)
HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Proxies:
    """The addresses of the named proxies."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        """Take addresses and networks.

        Raises:
            ValueError: One is neither an IP address nor a network.
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


class Guard:
    """Check every request before the application sees it, and add the headers to every response."""

    def __init__(self, app: App, *, names: AllowedHosts) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        lengths = [value for name, value in headers if name == b"content-length"]
        try:
            self._names.check(hosts[0] if len(hosts) == 1 else None, ", ".join(origins) if origins else None)
            _check_size(scope, lengths)
        except Problem as problem:
            await (_refuse_socket if scope["type"] == "websocket" else _refuse)(problem, send)
            return
        await self._app(scope, receive, _with_headers(send))


def _check_size(scope: Scope, lengths: list[bytes]) -> None:
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) > MAX_URL_BYTES:
        raise Problem(413, "TooLargeError", f"Expected a URL of at most {MAX_URL_BYTES:,} bytes, got a longer one")
    if any(not length.isdigit() or len(length) > MAX_DIGITS or int(length) > MAX_BODY_BYTES for length in lengths):
        raise Problem(413, "TooLargeError", f"Expected a body of at most {MAX_BODY_BYTES:,} bytes, got a larger one")


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message["headers"] = [*given, *((name, value) for name, value in HEADERS if name not in names)]
        await send(message)

    return sending


async def _refuse(problem: Problem, send: Send) -> None:
    status, reply = error_reply(problem)
    body = encode_json({"error": reply})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS]})
    await send({"type": "http.response.body", "body": body})


async def _refuse_socket(problem: Problem, send: Send) -> None:
    await send({"type": "websocket.close", "code": 4403, "reason": problem.kind})


def failed(error: BaseException) -> Response:
    """Return the response for an error."""
    status, reply = error_reply(error)
    headers = {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(encode_json({"error": reply}), status_code=status, media_type=JSON, headers=headers)


class Caught:
    """Turn unexpected errors into replies."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer it if that fails."""
        begun = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001  the last resort
            if scope["type"] == "http" and not begun:
                await failed(error)(scope, receive, send)
            else:
                log_error(error)
