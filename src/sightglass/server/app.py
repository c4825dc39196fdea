"""The server: routes, middleware, and the event loop that serves them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, WebSocketRoute
from starlette.routing import Route as Path_
from starlette.types import Receive, Scope, Send

from sightglass import __version__
from sightglass.core.errors import TransportError
from sightglass.core.process.certificate import Certificate
from sightglass.core.process.unpatched import is_patched
from sightglass.protocol import discovery
from sightglass.protocol.address import in_url
from sightglass.views import encoding

from . import page_files
from .access import AllowedHosts, Role, Tokens
from .api import (
    annotate,
    columns,
    commands,
    histograms,
    media,
    moment,
    overview,
    saved,
    scalars,
    schema,
    sheets,
    tensors,
)
from .api import runs as api_runs
from .api.runs import METRICS_TYPE, metrics_text
from .api.schema import ApiRequest, Raw
from .connections import BACKLOG, QUEUE, Connections
from .http_errors import Problem, log_error, too_large
from .live.hub import Hub
from .middleware import JSON, MAX_BODY_BYTES, App, Caught, Forwarded, Guard, Proxies, failed
from .page_file import save
from .runs.run_table import Runs

if TYPE_CHECKING:
    from sightglass.client.hub_runs import RunsOnHub


ROUTES: Final = (
    *api_runs.ROUTES,
    *columns.ROUTES,
    *scalars.ROUTES,
    *tensors.ROUTES,
    *histograms.ROUTES,
    *overview.ROUTES,
    *media.ROUTES,
    *moment.ROUTES,
    *sheets.ROUTES,
    *commands.ROUTES,
    *annotate.ROUTES,
    *saved.ROUTES,
    *save.ROUTES,
)
MAX_MESSAGE_BYTES: Final = 2**16  # the longest query as JSON with every character escaped, and the rest
BODY_S: Final = 30.0  # for a body of `MAX_BODY_BYTES` over a slow link
MAX_HEAD_BYTES: Final = 2**16  # four times the longest URL
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
GZIP: Final = b"\x1f\x8b"  # how compressed data begin, and JSON never does
GZIP_LEVEL: Final = 1  # a list of runs shrinks to a tenth; higher levels take several times as long for a little less
MIN_PACKED_BYTES: Final = 1_000  # less fits one packet
MEDIA_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Another application at an address of the page's server, for those who send a token in `Authorization`.

    Attributes:
        path: Its address, such as "/mcp".
        app: The application.
        running: Entered while the server runs.
        controllers_only: Whether the viewer's token is not enough.
    """

    path: str
    app: App
    running: Callable[[], contextlib.AbstractAsyncContextManager[None]]
    controllers_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that is ready to run.

    Attributes:
        host: The address that it listens on.
        port: Its port.
        tokens: The tokens of the controller and the viewer.
        base_url: The address behind a proxy, or empty.
        certificate: What connections are encrypted with, or `None`.
    """

    host: str
    port: int
    tokens: Tokens
    base_url: str = ""
    certificate: Certificate | None = None
    _socket: socket.socket
    _server: uvicorn.Server

    def link(self, role: Role = "controller", *, place: str = "") -> str:
        """Return the link for a browser, to a place such as "#/charts?smooth=0.5".

        The token is in the fragment, which browsers do not send.
        """
        token = self.tokens.controller if role == "controller" else self.tokens.viewer
        begin = f"{place}{'&' if '?' in place else '?'}" if place else "#"
        return f"{self.address}/{begin}token={token}"

    @property
    def address(self) -> str:
        """The URL without a token, with this machine's name if the server listens on all addresses."""
        if self.base_url:
            return self.base_url.rstrip("/")
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{in_url(host)}:{self.port}"

    def run(self) -> None:
        """Serve until `stop`, or until interrupted."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        """Stop serving. May be called from any thread."""
        self._server.should_exit = True

    @property
    def started(self) -> bool:
        """Whether it serves."""
        return bool(self._server.started)


def make_server(
    directories: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    new_links: bool = False,
    allowed_hosts: Sequence[str] = (),
    base_url: str = "",
    tls: bool | tuple[Path, Path] = False,
    proxies: Sequence[str] = (),
    token_file: Path | None = None,
    hub: RunsOnHub | None = None,
    follow_links: bool = False,
    beside: Beside | None = None,
) -> Server:
    """Open the port, and return a server of the runs in some directories and of this user's live runs.

    Args:
        directories: The directories to search for recorded runs; they need not exist yet.
        host: The address to listen on.
        port: The port, or 0 for any free one. The links of a chosen port stay valid when the server restarts.
        new_links: Make new links even so.
        allowed_hosts: The names under which proxies serve the page; "*" for any, where the proxy checks them.
        base_url: The address of the page behind a proxy, for the links; its name is allowed, too.
        tls: Encrypt, with the files of a certificate and its key, or, if `True`, with a certificate that is made here.
        proxies: The addresses of proxies, whose headers X-Forwarded-For, -Proto and -Host are believed.
        token_file: The file that keeps the tokens, in place of the port's.
        hub: The live runs of a hub, to be served as well, and closed with the server.
        follow_links: Whether to follow links to directories outside of `directories`, too.
        beside: Another application to serve.

    Raises:
        MissingExtraError: A certificate is to be made, and `cryptography` is not installed.
        OSError: This machine lacks the address, or the port is in use.
        TransportError: The certificate cannot be used, or gevent has patched this program.
        ValueError: A proxy's address is not valid.
    """
    if is_patched():
        raise TransportError("Expected a process without gevent's patches for the page: run `sightglass ui` beside it")
    connections = Connections(Proxies(proxies))
    names = AllowedHosts.of(host, [*allowed_hosts, *([urlsplit(base_url).netloc] if base_url else [])])
    certificate = _certificate(tls, names, port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host.strip("[]"), port), family=family, reuse_port=False)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
    token_file = token_file or (_file_of_port(port, "tokens") if port else None)
    tokens = Tokens() if token_file is None else Tokens.stored(token_file, renew=new_links)
    port = listening.getsockname()[1]
    runs = Runs(directories, hub=hub, follow_links=follow_links)
    app = make_app(runs, tokens=tokens, names=names, connections=connections, beside=beside)
    protocol = connections.protocol(certificate.context if certificate else None)
    # No log_config: uvicorn would replace the handlers of the whole process, and close the streams they write to.
    config = uvicorn.Config(
        app, log_config=None, log_level="error", access_log=False, server_header=False, date_header=False,
        proxy_headers=False, http=protocol, h11_max_incomplete_event_size=MAX_HEAD_BYTES, backlog=BACKLOG,
        ws=connections.socket_protocol(), ws_max_size=MAX_MESSAGE_BYTES, ws_per_message_deflate=False,
        timeout_graceful_shutdown=2, lifespan="on",
    )  # fmt: skip
    server = _Uvicorn(config)
    return Server(
        host=host, port=port, tokens=tokens, base_url=base_url, certificate=certificate, _socket=listening,
        _server=server,
    )  # fmt: skip


class _Uvicorn(uvicorn.Server):
    """A server with more room for connections that wait than asyncio gives it, which is what it accepts at once."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUE)


def _certificate(tls: bool | tuple[Path, Path], names: AllowedHosts, port: int) -> Certificate | None:
    if tls is True:
        stored = _file_of_port(port, "pem") if port else None
        return Certificate.make(names.own | names.proxied, stored=stored)
    return Certificate.load(*tls) if tls else None


def _file_of_port(port: int, kind: str) -> Path | None:
    """Return the file of a port in this user's private folder, or `None` if there is no such folder."""
    try:
        return discovery.folder() / f"page-{port}.{kind}"
    except TransportError:
        return None


def make_app(
    runs: Runs, *, tokens: Tokens, names: AllowedHosts, connections: Connections, beside: Beside | None = None
) -> App:
    """Return the application."""
    hub = Hub(runs, tokens, connections)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_log)
        async with hub, beside.running() if beside else contextlib.nullcontext():
            yield
        await asyncio.to_thread(runs.close)

    routes: list[Any] = [
        Path_(schema.PREFIX + "/openapi.json", _document(tokens), methods=["GET"]),
        Path_(schema.PREFIX, _reference, methods=["GET"]),
    ]
    by_path: dict[str, dict[str, schema.Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    for path, methods in by_path.items():
        routes.append(Path_(schema.PREFIX + path, _endpoint(methods, runs, tokens, hub), methods=METHODS))
    routes.append(WebSocketRoute(schema.PREFIX + "/live", hub.serve))
    routes.append(Mount("/api", _Missing(tokens)))
    routes.append(Path_("/metrics", _metrics(runs, tokens, hub), methods=["GET"]))
    routes.extend([Path_(beside.path, _ForTokens(beside, tokens))] if beside else [])
    routes += page_files.routes()
    routes.append(page_files.page())
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_problem, Exception: _unexpected}
    )
    app.router.redirect_slashes = False
    guard = Guard(Caught(app), names=names)
    return Forwarded(guard, proxies=connections.proxies, forward=connections.forward)


def _endpoint(methods: dict[str, schema.Route], runs: Runs, tokens: Tokens, hub: Hub) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            visitor = tokens.bearer(request.headers.get("authorization", ""))
            hub.connections.admit(request.client)
            if route is None:
                message = f"Expected {' or '.join(methods)} at {request.url.path!r:.200}, got {request.method}"
                raise Problem(405, "RequestError", message)
            if route.controllers_only and visitor.role != "controller":
                raise schema.read_only()
            call = ApiRequest(runs=runs, visitor=visitor, key=request.path_params.get("key", ""))
            hub.note_request()
            return await _respond(request, route, call)
        except Exception as error:  # noqa: BLE001  the one place where requests fail: each gets a reply
            return failed(error)

    return respond


async def _respond(request: Request, route: schema.Route, call: ApiRequest) -> Response:
    query = schema.read_query(request.query_params.multi_items(), route.query)
    given = [] if route.body is None else [schema.read_body(await _body(request), route.body)]
    headers = {"cache-control": page_files.REVALIDATE}
    if route.cached:
        stamp = await call.read(_stamp, call.runs, (call.key, getattr(query, "other_run", None)))
        text = f"{__version__}\0{request.url.path}\0{request.url.query}\0{stamp}"
        headers["etag"] = f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if stamp and headers["etag"] in known:
            return Response(status_code=304, headers=headers)
    reply = await route.handler(call, query, *given)
    if isinstance(reply, Raw):
        headers["content-security-policy"] = MEDIA_CSP
        if reply.name:
            headers["content-disposition"] = f'attachment; filename="{reply.name}"'
        return Response(reply.data, media_type=reply.media_type, headers=headers)
    packed = page_files.takes_gzip(request.headers)
    data = await call.read(_encoded, reply, packed)
    headers["vary"] = "accept-encoding"
    if data.startswith(GZIP):
        headers["content-encoding"] = "gzip"
    return Response(data, media_type=JSON, headers=headers)


def _encoded(reply: Any, packed: bool) -> bytes:
    data = encoding.encode_json(schema.with_whole_steps(reply))
    return gzip.compress(data, GZIP_LEVEL, mtime=0) if packed and len(data) >= MIN_PACKED_BYTES else data


def _stamp(runs: Runs, keys: tuple[str | None, ...]) -> str:
    """Return a text that is another one whenever the files of the runs are, or an empty one where that is unknown."""
    stamps = [runs.find(key).stamp() for key in keys if key is not None]
    return " ".join(stamps) if all(stamps) else ""


async def _body(request: Request) -> bytes:
    """Read a body up to the limit, whatever its header says."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    raise too_large(f"Expected a body of at most {MAX_BODY_BYTES:,} bytes, got a larger one")
    except TimeoutError:
        raise Problem(408, "RequestError", f"Expected the body within {BODY_S:.0f} s") from None
    return bytes(data)


def _log(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print an error of the event loop once; by default it prints each, such as that no socket can be opened."""
    log_error(context.get("exception") or RuntimeError(str(context.get("message"))))


def _unexpected(request: Request, error: Exception) -> Response:
    return failed(error)


def _http_problem(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 503
    if status == 405:
        return failed(Problem(405, "RequestError", f"Method not allowed at {request.url.path!r:.200}"))
    return failed(Problem(404 if status == 404 else 400, "RequestError", f"Unknown address {request.url.path!r:.200}"))


def _document(tokens: Tokens) -> Callable[[Request], Any]:
    written = functools.cache(lambda: encoding.encode_json(schema.openapi(ROUTES, version=__version__)))

    async def document(request: Request) -> Response:
        try:
            tokens.bearer(request.headers.get("authorization", ""))
        except Problem as problem:
            return failed(problem)
        return Response(written(), media_type=JSON)

    return document


async def _reference(request: Request) -> Response:
    """Return the reference for people, which says nothing of any run: a browser cannot send a token for it."""
    return Response(await asyncio.to_thread(_reference_page), media_type="text/html; charset=utf-8")


@functools.cache
def _reference_page() -> bytes:
    return schema.reference_page(schema.openapi(ROUTES, version=__version__))


def _metrics(runs: Runs, tokens: Tokens, hub: Hub) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            visitor = tokens.bearer(request.headers.get("authorization", ""))
            hub.connections.admit(request.client)
            hub.note_request()
            call = ApiRequest(runs=runs, visitor=visitor, key="")
            data = await call.read(lambda: metrics_text(runs.summaries()))
            return Response(data, media_type=METRICS_TYPE, headers={"cache-control": "no-store"})
        except Exception as error:  # noqa: BLE001  as in `_endpoint`
            return failed(error)

    return respond


class _ForTokens:
    """Pass requests with a token on to another application; no cookie counts."""

    def __init__(self, beside: Beside, tokens: Tokens) -> None:
        self._beside = beside
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            visitor = self._tokens.bearer(Request(scope).headers.get("authorization", ""))
            if self._beside.controllers_only and visitor.role != "controller":
                raise schema.read_only()
        except Problem as problem:
            await failed(problem)(scope, receive, send)
            return
        await self._beside.app(scope, receive, send)


class _Missing:
    """Answer requests to unknown endpoints; without a token they get 401 like all others."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] == "http":
            try:
                self._tokens.bearer(Request(scope).headers.get("authorization", ""))
                response = failed(Problem(404, "RequestError", f"Unknown endpoint {path!r:.200}"))
            except Problem as problem:
                response = failed(problem)
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 4404})
