"""Endpoints as data: a table of routes, from which requests are read and the OpenAPI document is made.

Requests and replies are msgspec structs; the document takes its texts and schemas from their docstrings and types.
"""

from __future__ import annotations

import asyncio
import html
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, TypeVarTuple, get_args

import msgspec
import numpy as np

from sightglass.server.access import Visitor
from sightglass.server.http_errors import Problem, bad_request
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage.read.recording import Series

Method = Literal["GET", "POST"]

OPENAPI: Final = "3.1.0"
PREFIX: Final = "/api/v1"
ERRORS: Final[Mapping[int, str]] = {
    400: "The request is malformed, or its query cannot be parsed or answered.",
    401: "The token is missing or unknown.",
    403: "The token is read-only, the host or origin is not allowed, or the run refused.",
    404: "Unknown run, tag, step or address.",
    405: "Method not allowed.",
    409: "Not possible in the current state; the message says why.",
    413: "The request asks for too much at once; the message names the limit.",
    422: "The recorded data is damaged, or of another type.",
    503: "Internal error of the server. Its terminal shows the traceback.",
}


OF_TIMES: Final = frozenset({"started", "ended", "changed", "deleted", "wall_time", "wall_times", "seconds", "spent_s"})
NONFINITE: Final = {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}
DIGITS: Final = {"type": "string", "pattern": "^-?[0-9]+$"}
OF_STEPS: Final = frozenset({"step", "steps", "first_step", "last_step", "x", "restarts"})


class Request(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The parameters of an endpoint's URL, or its body."""


class Nothing(Request, frozen=True, kw_only=True):
    """No parameters."""


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error: its type in the library, its message, and, for an error in a query, the position in the text."""

    type: str
    message: str
    position: int | None = None


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request that failed."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One endpoint.

    Attributes:
        method: GET or POST.
        path: The path below `PREFIX`; `{key}` is the key of a run.
        handler: Makes the reply. Its docstring describes the endpoint.
        query: The parameters of the URL.
        body: The body of a POST.
        response: The struct of the JSON reply, a list of it, or the media types of another reply.
        files: The media types of files that it can return instead.
        packed: The struct, or the list of it, that a reply in msgpack holds; columns of numbers are bytes there.
        controllers_only: Whether the endpoint refuses viewers.
        cached: Whether responses of recorded runs have an ETag.
    """

    method: Method
    path: str
    handler: Callable[..., Awaitable[Any]]
    query: type[Request] = Nothing
    body: type[Request] | None = None
    response: Any = None
    files: tuple[str, ...] = ()
    packed: Any = None
    controllers_only: bool = False
    cached: bool = False

    @property
    def id(self) -> str:
        """The name of the operation."""
        return self.handler.__name__


def read_query(pairs: Sequence[tuple[str, str]], kind: type[Request]) -> Any:
    """Decode the parameters of a URL.

    Raises:
        Problem: A parameter is unknown, repeated or invalid.
    """
    given = dict(pairs)
    if len(given) < len(pairs):
        twice = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        raise bad_request(f"Expected each parameter once, got {twice!r:.100} several times")
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name in given:
        if name not in known:
            raise bad_request(f"Unknown parameter {name!r:.100}. Known: {', '.join(known) or 'none'}.")
    return _converted(lambda: msgspec.convert(given, kind, strict=False))


def read_body(data: bytes, kind: type[Request]) -> Any:
    """Decode the body of a request.

    Raises:
        Problem: The body is not valid for the endpoint.
    """
    return _converted(lambda: msgspec.json.decode(data, type=kind))


def _converted(convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise bad_request(f"The request cannot be read: {error}"[:500]) from None


def with_whole_steps(reply: Any) -> Any:
    """Return a reply whose steps, and places on an axis of steps, are integers where they are whole numbers.

    Steps are stored as float64; a program that reads 2069500.0 would have to convert it.
    """
    if isinstance(reply, list):
        return [with_whole_steps(one) for one in reply] if reply and isinstance(reply[0], msgspec.Struct) else reply
    if not isinstance(reply, msgspec.Struct):
        return reply
    values = ((name, getattr(reply, name)) for name in reply.__struct_fields__)
    return {name: _whole(value) if name in OF_STEPS else with_whole_steps(value) for name, value in values}


def _whole(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, int):
        return value
    steps = np.asarray(value, np.float64)
    return steps.astype(np.int64) if np.all(np.abs(steps) < 2**53) and np.all(steps % 1 == 0) else value


def openapi(routes: Sequence[Route], *, version: str) -> dict[str, Any]:
    """Return the API as an OpenAPI document."""
    responses = [kind for route in routes for kind in (route.response, route.packed) if _is_json(kind)]
    bodies = [route.body for route in routes if route.body is not None]
    kinds = list(dict.fromkeys([*responses, *bodies, ErrorReply]))
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas_of = dict(zip(kinds, schemas, strict=True))
    taken = {body.__name__ for body in bodies} | set(_referred(components, [schemas_of[body] for body in bodies]))
    for part in components.values():
        if "description" in part:  # a docstring, which some versions of msgspec and Python give with its indentation
            part["description"] = inspect.cleandoc(part["description"])
    components = {name: part if name in taken else _loosened(part) for name, part in components.items()}
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, schemas_of)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "sightglass",
            "version": version,
            "description": "Ask training runs anything while they run.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _referred(components: Mapping[str, Any], schemas: object) -> list[str]:
    """Return the names of the components that schemas refer to, directly or indirectly."""
    found: list[str] = []
    waiting = [schemas]
    while waiting:
        for name in re.findall(r"#/components/schemas/(\w+)", str(waiting.pop())):
            if name not in found:
                found.append(name)
                waiting.append(components[name])
    return found


def _loosened(schema: object, field: str = "") -> Any:
    """Allow strings for the numbers of a reply: those that JSON lacks, and digits that JavaScript would round.

    Counts and times are neither.
    """
    if isinstance(schema, list):
        return [_loosened(part, field) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("number", "integer"):
        texts = (
            [DIGITS] if field in OF_STEPS else [] if schema["type"] == "integer" or field in OF_TIMES else [NONFINITE]
        )
        kept = {name: part for name, part in schema.items() if name == "default"}
        return {"anyOf": [{"type": schema["type"]}, *texts], **kept} if texts else schema
    if "properties" in schema:
        fields = {name: _loosened(part, name) for name, part in schema["properties"].items()}
        return {**schema, "properties": fields}
    return {name: _loosened(part, field) for name, part in schema.items()}


def _operation(route: Route, schemas_of: Mapping[Any, Any]) -> dict[str, Any]:
    summary, _, rest = (inspect.getdoc(route.handler) or "").partition("\n\n")
    operation: dict[str, Any] = {"operationId": route.id, "summary": " ".join(summary.split()), "responses": {}}
    description = rest.partition("Raises:")[0].partition("Args:")[0].strip()
    if route.controllers_only:
        description = f"{description}\n\nFor controllers only.".strip()
    if description:
        operation["description"] = description
    operation["parameters"] = [*_in_path(route), *_in_query(route)]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas_of[route.body]}},
        }
    operation["responses"]["200"] = {"description": "The reply.", "content": _content(route, schemas_of)}
    if route.cached:
        operation["responses"]["304"] = {"description": "Nothing has changed since the ETag in If-None-Match."}
    for status, text in ERRORS.items():
        content = {"application/json": {"schema": schemas_of[ErrorReply]}}
        operation["responses"][str(status)] = {"description": text, "content": content}
    return operation


def _content(route: Route, schemas_of: Mapping[Any, Any]) -> dict[str, Any]:
    if _is_json(route.response):
        files: dict[str, Any] = {media_type: {"schema": {}} for media_type in route.files}
        return {"application/json": {"schema": schemas_of[route.response]}} | files
    schema = schemas_of.get(route.packed, {})
    return {media_type: {"schema": schema} for media_type in route.response}


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _in_query(route: Route) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(route.query)
    properties = schema["$defs"][route.query.__name__]
    return [
        {"name": name, "in": "query", "required": name in properties.get("required", ()), "schema": part}
        for name, part in properties["properties"].items()
    ]


def _is_json(kind: object) -> bool:
    """Return whether a response is a struct or a list of structs, and not media types."""
    (kind,) = get_args(kind) or (kind,)
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def read_only() -> Problem:
    """Return the problem of a viewer that sends a command."""
    message = "This token is read-only. Open the controller link to send commands."
    return Problem(403, "RefusedError", message)


# The argument of an endpoint, and the reply that is not JSON.

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request.

    Attributes:
        runs: The runs.
        visitor: Who sent it.
        key: The key of the run in the path, or empty.
    """

    runs: Runs
    visitor: Visitor
    key: str = ""

    async def read(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function that reads files, in the pool for that."""
        return await asyncio.get_running_loop().run_in_executor(self.runs.file_pool, work, *arguments)

    async def query(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function that queries a live run, in the pool for that."""
        return await asyncio.get_running_loop().run_in_executor(self.runs.live_pool, work, *arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A reply that is not JSON: its bytes, their media type, and the file name to save it under."""

    data: bytes
    media_type: str
    name: str = ""


@contextmanager
def series_of(source: ServedRun, tag: str, *, like: Series | None = None) -> Iterator[tuple[OpenFiles, Series]]:
    """Open a run's files and find a series, up to date.

    Args:
        source: The run.
        tag: The name of the series.
        like: A series of the kind that is looked for, if the tag has several.

    Raises:
        UnknownNameError: There is no such series, or not of this kind. Others as in `ServedRun.borrow`.
    """
    with source.borrow() as files:
        recording = files.recording
        with recording.lock:
            if recording.changed():
                recording.refresh()
            series = recording.series(tag) if like is None else recording.series_like(tag, like)
        yield files, series


# The reference of the HTTP API as a page: the OpenAPI document, written for people, without scripts.

STYLE: Final = """
:root {
  color-scheme: light dark;
  --line: light-dark(#d8dde3, #313a42);
  --soft: light-dark(#f1f4f6, #1b2126);
  --muted: light-dark(#52606b, #9fadb8);
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem }
code { font: 13px ui-monospace, monospace; background: var(--soft); padding: 1px 4px; border-radius: 4px }
code { overflow-wrap: anywhere }
pre { overflow-x: auto } pre code { overflow-wrap: normal }
section { border: 1px solid var(--line); border-radius: 8px; padding: 0.2rem 1rem 1rem; margin: 1rem 0 }
h2 code, h3 code { font-size: 15px } h3 { margin: 1rem 0 0.3rem; font-size: 15px }
table { border-collapse: collapse; width: 100% }
td { vertical-align: top; padding: 4px 12px 4px 0; border-top: 1px solid var(--line) }
nav ul { columns: 22rem; padding-left: 1.1rem } .muted { color: var(--muted) }
"""
INTRODUCTION: Final = """
<p>Requests carry a link's token: <code>Authorization: Bearer TOKEN</code>. Replies are JSON unless stated otherwise;
numbers that JSON lacks are the strings <code>"NaN"</code>, <code>"Infinity"</code> and <code>"-Infinity"</code>. An
error is <code>{"error": {"type": "…", "message": "…"}}</code>. The same for programs is
<code>/api/v1/openapi.json</code>.</p>
<pre><code>curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:7117/api/v1/runs</code></pre>
"""


def reference_page(document: Mapping[str, Any]) -> bytes:
    """Return an OpenAPI document as a page of HTML."""
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    links = [
        f'<li><a href="#{one["operationId"]}"><code>{method} {_path(path)}</code></a></li>'
        for method, path, one in operations
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HTTP API of sightglass</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body><main>",
        f"<h1>HTTP API of sightglass {_text(document['info']['version'])}</h1>{INTRODUCTION}",
        f'<nav aria-label="Requests"><ul>{"".join(links)}</ul></nav>',
        *(part for operation in operations for part in _section(*operation)),
        "<h2>Types</h2>",
        *(part for name, schema in sorted(schemas.items()) for part in _type(name, schema)),
        "</main></body></html>",
    ]
    return "\n".join(parts).encode()


def _section(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{operation["operationId"]}"><h2><code>{method} {_path(path)}</code></h2>'
    yield f"<p>{_text(operation['summary'])}</p>"
    yield from (f"<p>{_text(part)}</p>" for part in operation.get("description", "").split("\n\n") if part)
    if operation["parameters"]:
        yield "<h3>Parameters</h3><table><tbody>"
        for one in operation["parameters"]:
            needed = "" if one["required"] else ' <span class="muted">optional</span>'
            yield f"<tr><td><code>{_text(one['name'])}</code>{needed}</td><td>{_kind(one['schema'])}</td></tr>"
        yield "</tbody></table>"
    if "requestBody" in operation:
        yield f"<h3>Body</h3><p>{_content_words(operation['requestBody']['content'])}</p>"
    yield f"<h3>Reply</h3><p>{_content_words(operation['responses']['200']['content'])}</p></section>"


def _type(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="type-{name}"><h3><code>{name}</code></h3>'
    yield f"<p>{_text(' '.join(schema.get('description', '').split()))}</p>"
    fields = schema.get("properties", {})
    if fields:
        yield "<table><tbody>"
        yield from (
            f"<tr><td><code>{_text(field)}</code></td><td>{_kind(kind)}</td></tr>" for field, kind in fields.items()
        )
        yield "</tbody></table>"
    else:
        yield f"<p>{_kind(schema)}</p>"
    yield "</section>"


def _content_words(content: Mapping[str, Any]) -> str:
    return "<br>".join(f"<code>{_text(media)}</code> {_kind(one['schema'])}" for media, one in content.items())


def _kind(schema: Mapping[str, Any]) -> str:
    """Return what a schema allows, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#type-{name}"><code>{name}</code></a>'
    if "enum" in schema:
        said = " or ".join(f"<code>{_text(repr(one))}</code>" for one in schema["enum"])
    elif "anyOf" in schema:
        said = " or ".join(_kind(one) for one in schema["anyOf"])
    elif schema.get("type") == "array":
        said = f"list of {_kind(schema.get('items', {})) or 'any'}"
    elif schema.get("contentEncoding"):
        said = "bytes"
    else:
        kinds = schema.get("type", "")
        said = " or ".join(kinds) if isinstance(kinds, list) else _text(kinds)
    bounds = [f"{word} {schema[key]}" for key, word in BOUNDS.items() if key in schema]
    default = [f"default <code>{_text(repr(schema['default']))}</code>"] if schema.get("default") is not None else []
    return ", ".join(filter(None, [said, *bounds, *default]))


BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "maxLength": "characters up to",
    "maxItems": "items up to",
}


def _path(path: str) -> str:
    return re.sub(r"{(\w+)}", r"<i>\1</i>", _text(path))


def _text(text: object) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(str(text), quote=False))
