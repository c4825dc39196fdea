"""Endpoints that check queries, send commands, record queries, and choose views."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from sightglass.client.run import RemoteRun
from sightglass.core.description import Acknowledgement, call_value
from sightglass.core.errors import QueryError
from sightglass.query.parser import as_query
from sightglass.server.http_errors import Problem, bad_request
from sightglass.server.runs.served_run import ServedRun
from sightglass.views.choose import VIEWS_OF_KIND, Form, Kind, choose

from .schema import ApiRequest, Request, Route

MAX_QUERY: Final = 20_000
MAX_FORMS: Final = 200
COMMAND_S: Final = 10.0  # below the 30 s after which proxies give up; the command stays in force

QueryText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_QUERY)]


class CheckRequest(Request, frozen=True, kw_only=True):
    """A query, or the tag of a series of a recorded run."""

    query: QueryText


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The tag of the query's series, and its canonical text."""

    ok: bool
    tag: str
    canonical: str


class CommandRequest(Request, frozen=True, kw_only=True):
    """A command: `set` NAME to VALUE, `call` NAME with the list VALUE and the KEYWORDS, `pause`, `resume` or `stop`.

    AT names an event.

    A pause lasts until `resume`. If `hold` is false, it also ends when the server disconnects from the run.
    """

    kind: Literal["set", "call", "pause", "resume", "stop"]
    name: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    value: Any = None
    keywords: dict[str, Any] = msgspec.field(default_factory=dict)
    at: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
    hold: bool = True


class RunStacks(msgspec.Struct, frozen=True, kw_only=True):
    """Where the main threads of a run are, in a line; and the stacks of all threads, as text."""

    summary: str
    text: str


class RecordRequest(Request, frozen=True, kw_only=True):
    """A query whose records are to be written to the run's directory from now on, or no longer."""

    query: QueryText
    record: bool = True
    confirm: bool = False


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The tag under which the records are written."""

    tag: str
    record: bool


class FormInfo(Request, frozen=True, kw_only=True):
    """The form of a stream's values, as in the socket's `view` message."""

    kind: str
    length: int = 1


class ChooseRequest(Request, frozen=True, kw_only=True):
    """The forms of the streams that share a panel, the view to use if it is possible, and the names of the streams."""

    forms: Annotated[list[FormInfo], msgspec.Meta(min_length=1, max_length=MAX_FORMS)]
    view: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    names: Annotated[list[str], msgspec.Meta(max_length=MAX_FORMS)] = msgspec.field(default_factory=list)


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The view that the streams share, and all views that can show them."""

    view: str
    kinds: list[str]
    possible: list[str]


async def check_query(call: ApiRequest, query: Request, body: CheckRequest) -> Checked:
    """Check a query. If it cannot be parsed, the error's `position` is the place for a caret."""
    source = await call.read(call.runs.find, call.key)
    return await call.read(_check, source, body.query)


def _check(source: ServedRun, text: str) -> Checked:
    try:
        asked = as_query(text)
    except QueryError:
        if source.path is None:
            raise
        with source.borrow() as files:
            if text not in files.run.tags():
                raise
            return Checked(ok=True, tag=text, canonical=files.run.stream(text).query)
    return Checked(ok=True, tag=asked.tag, canonical=asked.key)


async def send_command(call: ApiRequest, query: Request, body: CommandRequest) -> Acknowledgement:
    """Set a control, call an action, pause, resume or stop a live run."""
    source = await call.read(call.runs.find, call.key)
    return await call.query(_send, source, body, call.visitor.name)


def _send(source: ServedRun, body: CommandRequest, by: str) -> Acknowledgement:
    if body.kind in ("set", "call") and not body.name:
        raise bad_request(f"Expected a name to {body.kind}, got ''")
    run = source.connection.remote().sent_by(by)
    try:
        return _applied(run, body)
    except (TypeError, ValueError) as error:
        raise Problem(400, "CommandError", str(error)) from None


def _applied(run: RemoteRun, body: CommandRequest) -> Acknowledgement:
    match body.kind:
        case "set":
            return run.set(body.name, body.value, at=body.at, timeout_s=COMMAND_S)
        case "call":
            given = [] if body.value is None else body.value if isinstance(body.value, list) else [body.value]
            return run._command("call", body.name, call_value(given, body.keywords), at=body.at, timeout_s=COMMAND_S)
        case "pause":
            return run.pause(at=body.at, hold=body.hold, timeout_s=COMMAND_S)
        case "resume":
            return run.resume(timeout_s=COMMAND_S)
        case "stop":
            return run.stop(at=body.at, timeout_s=COMMAND_S)


async def record(call: ApiRequest, query: Request, body: RecordRequest) -> Recorded:
    """Write the records of a query to the run's directory from now on, or stop doing so."""
    source = await call.read(call.runs.find, call.key)
    return await call.query(_record, source, body)


def _record(source: ServedRun, body: RecordRequest) -> Recorded:
    run = source.connection.remote()
    if not body.record:
        run.unrecord(body.query)
        return Recorded(tag=as_query(body.query).tag, record=False)
    return Recorded(tag=run.record(body.query, confirm=body.confirm), record=True)


async def stacks(call: ApiRequest, query: Request, body: Request) -> RunStacks:
    """Say where all threads of a live run are: what one waits for that is quiet."""
    source = await call.read(call.runs.find, call.key)
    found = await call.query(lambda: source.connection.remote().stacks(timeout_s=COMMAND_S))
    return RunStacks(summary=found.summary(), text=str(found))


async def choose_view(call: ApiRequest, query: Request, body: ChooseRequest) -> Chosen:
    """Choose the view that several streams share, as the notebook and the terminal would."""
    forms = [Form(kind=_kind(form.kind), length=form.length) for form in body.forms]
    if body.names and len(body.names) != len(forms):
        raise bad_request(f"Expected {len(forms)} names, got {len(body.names)}")
    made = choose(forms, view=body.view, names=body.names)
    return Chosen(view=made.view, kinds=list(made.kinds), possible=list(made.possible))


def _kind(name: str) -> Kind:
    for kind in VIEWS_OF_KIND:
        if kind == name:
            return kind
    raise bad_request(f"Unknown kind {name!r:.100}. Known: {', '.join(VIEWS_OF_KIND)}.")


ROUTES: Final = (
    Route(method="POST", path="/runs/{key}/check", handler=check_query, body=CheckRequest, response=Checked),
    Route(method="POST", path="/runs/{key}/commands", handler=send_command, body=CommandRequest,
          response=Acknowledgement, controllers_only=True),
    Route(method="POST", path="/runs/{key}/record", handler=record, body=RecordRequest, response=Recorded,
          controllers_only=True),
    Route(method="POST", path="/runs/{key}/stacks", handler=stacks, body=Request, response=RunStacks,
          controllers_only=True),
    Route(method="POST", path="/view", handler=choose_view, body=ChooseRequest, response=Chosen),
)  # fmt: skip
