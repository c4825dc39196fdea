"""Asking and acting: is this a query, do that, keep this, which view shows these."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from sightglass.client.run import Acknowledgement, RemoteRun
from sightglass.core.errors import QueryError
from sightglass.query.parser import as_query
from sightglass.server.http_errors import Problem, bad_request
from sightglass.server.runs.served_run import ServedRun
from sightglass.views.choose import CAN_SHOW, Form, Kind, choose

from .request import ApiRequest
from .schema import Request, Route

MAX_QUERY: Final = 20_000
MAX_FORMS: Final = 200
ACT_S: Final = 10.0
"""How long an act may take before it is answered as one that waits; it stays in force."""

QueryText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_QUERY)]


class CheckRequest(Request, frozen=True, kw_only=True):
    """A query, or the tag of a series of a recorded run."""

    query: QueryText


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The query can be read: the tag of its series, and its canonical text."""

    ok: bool
    tag: str
    canonical: str


class CommandRequest(Request, frozen=True, kw_only=True):
    """An act: `set` NAME to VALUE, `call` NAME with the list VALUE, `pause`, `resume`, `stop`; AT names an event.

    A pause holds until somebody resumes, unless `hold` is false: then it ends when the server leaves the run.
    """

    kind: Literal["set", "call", "pause", "resume", "stop"]
    name: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    value: Any = None
    at: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
    hold: bool = True


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an act; where it was not applied yet, `note` tells what it waits for."""

    applied: bool
    event: str
    index: int
    step: float
    wall_time: float
    old: Any
    result: Any
    note: str


class RecordRequest(Request, frozen=True, kw_only=True):
    """A query whose records are to be kept in the run's directory from now on, or not any more."""

    query: QueryText
    keep: bool = True
    confirm: bool = False


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The tag under which they are kept."""

    tag: str
    keep: bool


class FormInfo(Request, frozen=True, kw_only=True):
    """What a stream's values are, as the socket tells in `view`."""

    kind: str
    length: int = 1


class ChooseRequest(Request, frozen=True, kw_only=True):
    """The forms of the streams that are to share a panel; the view that is wished for, if any; their names."""

    forms: Annotated[list[FormInfo], msgspec.Meta(min_length=1, max_length=MAX_FORMS)]
    view: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    names: Annotated[list[str], msgspec.Meta(max_length=MAX_FORMS)] = msgspec.field(default_factory=list)


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The view that they share, and all that could show them."""

    view: str
    kinds: list[str]
    possible: list[str]


async def check_query(call: ApiRequest, query: Request, body: CheckRequest) -> Checked:
    """Tell whether a query can be read; where it cannot, the error's `position` is the place for a caret."""
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


async def act(call: ApiRequest, query: Request, body: CommandRequest) -> Acknowledged:
    """Set a control, call an action, pause, resume or stop a live run."""
    source = await call.read(call.runs.find, call.key)
    done = await call.ask(_act, source, body)
    return Acknowledged(**{name: getattr(done, name) for name in Acknowledged.__struct_fields__})


def _act(source: ServedRun, body: CommandRequest) -> Acknowledgement:
    if body.kind in ("set", "call") and not body.name:
        raise bad_request(f"Expected the name of what to {body.kind}")
    run = source.remote()
    try:
        return _applied(run, body)
    except (TypeError, ValueError) as error:
        raise Problem(400, "CommandError", str(error)) from None


def _applied(run: RemoteRun, body: CommandRequest) -> Acknowledgement:
    match body.kind:
        case "set":
            return run.set(body.name, body.value, at=body.at, timeout_s=ACT_S)
        case "call":
            given = [] if body.value is None else body.value if isinstance(body.value, list) else [body.value]
            return run.call(body.name, *given, at=body.at, timeout_s=ACT_S)
        case "pause":
            return run.pause(at=body.at, hold=body.hold, timeout_s=ACT_S)
        case "resume":
            return run.resume(timeout_s=ACT_S)
        case "stop":
            return run.stop(at=body.at, timeout_s=ACT_S)


async def record(call: ApiRequest, query: Request, body: RecordRequest) -> Recorded:
    """Keep the records of a query in the run's directory from now on, or not any more."""
    source = await call.read(call.runs.find, call.key)
    return await call.ask(_record, source, body)


def _record(source: ServedRun, body: RecordRequest) -> Recorded:
    run = source.remote()
    if not body.keep:
        run.unrecord(body.query)
        return Recorded(tag=as_query(body.query).tag, keep=False)
    return Recorded(tag=run.record(body.query, confirm=body.confirm), keep=True)


async def choose_view(call: ApiRequest, query: Request, body: ChooseRequest) -> Chosen:
    """Choose the view that several streams share, as the notebook and the terminal would."""
    forms = [Form(kind=_kind(form.kind), length=form.length) for form in body.forms]
    if body.names and len(body.names) != len(forms):
        raise bad_request(f"Expected {len(forms)} names, got {len(body.names)}")
    made = choose(forms, view=body.view, names=body.names)
    return Chosen(view=made.view, kinds=list(made.kinds), possible=list(made.possible))


def _kind(name: str) -> Kind:
    for kind in CAN_SHOW:
        if kind == name:
            return kind
    raise bad_request(f"Unknown kind {name!r:.100}. Known: {', '.join(CAN_SHOW)}.")


ROUTES: Final = (
    Route(method="POST", path="/runs/{key}/check", handler=check_query, body=CheckRequest, answer=Checked),
    Route(method="POST", path="/runs/{key}/acts", handler=act, body=CommandRequest, answer=Acknowledged, acts=True),
    Route(method="POST", path="/runs/{key}/record", handler=record, body=RecordRequest, answer=Recorded, acts=True),
    Route(method="POST", path="/view", handler=choose_view, body=ChooseRequest, answer=Chosen),
)
