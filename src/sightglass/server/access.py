"""Who may come in, and what browsers are told about it.

Theory of operation
    * Two tokens: whoever has the controller's may act, whoever has the viewer's may look. They are made anew at each
      start, unless the port was chosen: then they are kept, so that open pages find the server when it starts again.
      They travel in the fragment of the printed link, which browsers keep to themselves, then in the header
      `Authorization` and in the first message of a socket; never in a path, a query or a cookie (cookies are shared by
      all ports of a host, so another user's server on this machine would be sent them). They are compared in constant
      time.
    * A page of another site can make a browser send requests here, and can let its own name lead here (DNS
      rebinding). So the header `Host` must be one of the server's own names. Addresses written as numbers are no names
      that could be made to lead here: they are own names where the server listens on all addresses.
    * `Origin`, when it is sent, must be the server's own; there is no CORS.
    * Every response bears the headers of `HEADERS`: nothing but the server's own scripts runs in the page, and it sends
      nothing to anybody else.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sightglass.views.encoding import encode_json

from .http_errors import Problem, error_reply

Role = Literal["controller", "viewer"]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_BYTES: Final = 32
MAX_TOKEN: Final = 200
MAX_BODY_BYTES: Final = 2**20
MAX_URL_BYTES: Final = 16_384
MAX_DIGITS: Final = 20
HTTP_PORT: Final = 80

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
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


def _token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The two tokens of a server; they are not shown by `repr`."""

    controller: str = field(default_factory=_token, repr=False)
    viewer: str = field(default_factory=_token, repr=False)

    @classmethod
    def stored(cls, path: Path, *, renew: bool = False) -> Tokens:
        """Return the tokens in a file that only this user reads, so that links stay good when a server starts again.

        Args:
            path: Where they are kept, in a folder that nobody else enters; new ones are put there if there are none.
            renew: Whether to make new ones in any case.
        """
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = {} if renew else json.loads(path.read_text())
            one, other = str(stored["controller"]), str(stored["viewer"])
            if one != other and min(len(one), len(other)) >= TOKEN_BYTES:
                return cls(controller=one, viewer=other)
        tokens = cls()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"controller": tokens.controller, "viewer": tokens.viewer}, file)
        return tokens

    def role(self, token: str) -> Role | None:
        """Return what the bearer of a token may do, `None` if it is no token of this server."""
        given = token[: MAX_TOKEN + 1].encode("utf-8", "replace")
        # Both are compared whatever the first gives, so that time tells nothing.
        is_controller = hmac.compare_digest(given, self.controller.encode())
        is_viewer = hmac.compare_digest(given, self.viewer.encode())
        return "controller" if is_controller else "viewer" if is_viewer else None

    def bearer(self, authorization: str) -> Role:
        """Return what the header `Authorization` gives a right to.

        Raises:
            Problem: It gives none.
        """
        scheme, _, token = authorization.partition(" ")
        role = self.role(token.strip()) if scheme.lower() == "bearer" else None
        if role is None:
            given = "none" if not authorization else "one that is not known"
            message = f"Expected the token of the printed link in 'Authorization: Bearer TOKEN', got {given}"
            raise Problem(401, "UnauthorizedError", message)
        return role


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """The names that the server may be called by.

    Attributes:
        port: Its port.
        hosts: Names and addresses, in lower case, without port.
        any_address: Whether every address that is written as a number is its own.
    """

    port: int
    hosts: frozenset[str]
    any_address: bool = False

    @classmethod
    def of(cls, host: str, port: int) -> AllowedHosts:
        """Return the names of a server that listens on a host, an address or all addresses ("0.0.0.0", "::")."""
        names = {host.lower().strip("[]")}
        wide = not is_loopback(host)
        if not wide:
            names |= {"127.0.0.1", "localhost", "::1"}
        else:
            own = socket.gethostname().lower()
            names |= {own, own.partition(".")[0], socket.getfqdn().lower(), "127.0.0.1", "localhost", "::1"}
        return cls(port=port, hosts=frozenset(names - {""}), any_address=wide and is_any(host))

    def own(self, authority: str) -> bool:
        """Tell whether HOST:PORT is the server."""
        host, port = split(authority)
        if port != self.port:
            return False
        return host in self.hosts or (self.any_address and _is_address(host))

    def check(self, host: str | None, origin: str | None) -> None:
        """Refuse a request that is meant for somebody else, or comes from a page of somebody else.

        Raises:
            Problem: It is.
        """
        if host is None or not self.own(host):
            message = f"Expected one of this server's own names as Host, got {host!r:.100}: open the printed link"
            message += "; through a tunnel, with the same port at both ends"
            raise Problem(403, "HostError", message)
        if origin is not None and not (origin.startswith("http://") and self.own(origin.removeprefix("http://"))):
            message = f"Expected a request of this server's own page, got one of {origin!r:.100}"
            raise Problem(403, "OriginError", message)


def split(authority: str) -> tuple[str, int]:
    """Split HOST:PORT; the host in lower case and without brackets, the port 80 where none is told, -1 for nonsense.

    >>> split("[::1]:8080"), split("LocalHost")
    (('::1', 8080), ('localhost', 80))
    """
    text = authority.strip().lower()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", -1
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not port:
        return host, HTTP_PORT
    return (host, int(port)) if port.isascii() and port.isdigit() and len(port) <= 5 else ("", -1)


def is_loopback(host: str) -> bool:
    """Tell whether nobody but this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """Tell whether a host stands for all addresses of the machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Guard:
    """Checks every request before anything looks at it, and puts the headers on every response."""

    def __init__(self, app: App, *, names: AllowedHosts) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
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
        raise Problem(413, "TooLargeError", f"Expected an address of at most {MAX_URL_BYTES:,} bytes, got a longer one")
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
