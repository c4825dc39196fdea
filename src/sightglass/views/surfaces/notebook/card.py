"""The card of a run in a notebook: its events, controls, actions and queries, and buttons that send commands.

Theory of operation
    While a page shows the card, a thread asks the run for its description once a second, and sends it to the pages if
    it changed. Each command runs in a thread of its own, because a run applies it at its next event, which may be long
    after; the result goes to the page that sent the command.

    A page that is slow, or whose messages do not arrive while a cell is running, is sent less: see `open_pages`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from sightglass.core.errors import QueryError, SightglassError
from sightglass.core.guarded import message as message_of
from sightglass.core.threads import UNTIL_WOKEN, Background, Worker
from sightglass.query.shorthand import query_of
from sightglass.views import encoding

from .cells import cells
from .model import WidgetModel
from .open_pages import MAX_BLIND, WINDOW

PURPOSE: Final = "The card of a run"
DESCRIBE_S: Final = 1.0  # what still reads as live, at a cost to the run far below a thousandth
MAX_FIELDS: Final = 40
MAX_LISTED: Final = 200
MAX_TEXT: Final = 300
MAX_COMMANDS: Final = 16  # a thread each; more clicks than anyone makes between two events
COMMANDS: Final = ("set", "call", "pause", "resume", "stop")


class CardRun(Protocol):
    """A run, live or recorded. One that takes commands also has `set`, `call`, `pause`, `resume` and `stop`."""

    @property
    def name(self) -> str:
        """The run's name."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""

    def describe(self) -> Any:
        """Return a `client.describe.Description`."""


class RunCard:
    """A run's card.

    Args:
        run: The run.

    Raises:
        SightglassError: The run does not describe itself.
        MissingExtraError: anywidget is not installed.
    """

    def __init__(self, run: CardRun) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._pages: dict[str, int] = {}
        self._n_sent = self._n_blind = self._n_commands = 0
        self._concurrent = False
        self._info = info_of(run)
        self._sent: Mapping[str, Any] | None = None
        self._worker = Worker("card", self.round)
        self._widget = WidgetModel("card.js", purpose=PURPOSE, received=self._receive, info=self._info)

    def __repr__(self) -> str:
        return f"<RunCard of {self._run.name!r}>"

    @property
    def widget(self) -> Any:
        """The widget, for example to put into an ipywidgets box."""
        cells.watch()
        return self._widget.widget

    def bundle(self) -> dict[str, Any]:
        """Return the MIME bundle that a notebook displays."""
        cells.watch()
        return self._widget.bundle(repr(self._run))

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return self.bundle()

    def _receive(self, message: Mapping[str, Any]) -> None:
        page, kind = message.get("page"), message.get("type")
        if not isinstance(page, str) or len(page) > 64:
            return
        with self._lock:
            self._concurrent = self._concurrent or cells.busy
            if kind == "ready":
                self._pages[page] = self._n_sent
                self._sent = None
            elif kind == "gone":
                self._pages.pop(page, None)
            elif kind == "ack" and isinstance(message.get("n"), int):
                self._pages[page] = min(message["n"], self._n_sent)
        if kind == "command":
            self._begin(page, message)
        self._worker.wake()

    def round(self, now_s: float) -> float:
        """Send the pages what is new about the run."""
        with self._lock:
            shown = bool(self._pages)
            full = shown and self._n_sent - max(self._pages.values()) >= WINDOW
            deaf = cells.busy and not self._concurrent and self._n_blind < MAX_BLIND
        if not shown or (full and not deaf):
            return UNTIL_WOKEN
        self._info = info_of(self._run, before=self._info)
        if self._info != self._sent:
            self._sent = self._info
            self._n_sent += 1
            self._n_blind += full
            self._widget.send({"type": "info", "n": self._n_sent, "info": self._info}, [])
        return UNTIL_WOKEN if self._info["ended"] else DESCRIBE_S

    def _begin(self, page: str, message: Mapping[str, Any]) -> None:
        with self._lock:
            full = self._n_commands >= MAX_COMMANDS
            self._n_commands += not full
        if full:
            self._reply(page, message, ok=False, text=f"{MAX_COMMANDS} commands are pending already; try again later")
        else:
            try:
                Background("command", lambda: self._command(page, message))
            except RuntimeError as error:  # no thread is left
                self._end_command(page, message, ok=False, text=message_of(error))

    def _command(self, page: str, message: Mapping[str, Any]) -> None:
        try:
            ok, text = True, send_command(self._run, message, self._info)
        except Exception as error:  # noqa: BLE001  any failure is shown on the page that sent the command
            ok, text = False, message_of(error)
        self._end_command(page, message, ok=ok, text=text)

    def _end_command(self, page: str, message: Mapping[str, Any], *, ok: bool, text: str) -> None:
        with self._lock:
            self._n_commands -= 1
        self._reply(page, message, ok=ok, text=text)
        self._worker.wake()

    def _reply(self, page: str, message: Mapping[str, Any], *, ok: bool, text: str) -> None:
        id, text = message.get("command"), text[: 4 * MAX_TEXT]
        self._widget.send({"type": "result", "to": page, "command": id, "ok": ok, "text": text}, [])


def send_command(run: Any, message: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Send a page's command to the run, and return the result as text.

    Raises:
        SightglassError: The run refuses, is lost, or does not take commands.
    """
    kind, name, value = message.get("do"), message.get("name"), message.get("value")
    if kind not in COMMANDS or not hasattr(type(run), str(kind)):
        raise SightglassError(f"Expected one of {', '.join(COMMANDS)} and a live run, got {kind!r} and {run!r}")
    match kind:
        case "set":
            value = _typed(value, next((one for one in info["controls"] if one["name"] == name), {}))
            done = run.set(name, value)
        case "call":
            done = run.call(name)
        case _:
            done = getattr(run, str(kind))()
    if not done.applied:
        return done.note or "Pending until the run's next event"
    when = f"at {done.event} {done.step:,g}" if done.event else "at once"
    match kind:
        case "set":
            return f"{name} = {_short(done.result)} {when}, was {_short(done.old)}"
        case "call":
            returned = "" if done.result is None else f", returned {_short(done.result)}"
            return f"Called {name}() {when}{returned}"
    return {"pause": f"Paused {when}", "resume": "Resumed", "stop": f"Stop requested {when}"}[str(kind)]


def info_of(run: Any, *, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a run's description for its card, as JSON values; if it does not respond, the description from before.

    Raises:
        SightglassError: It does not respond, and there is no earlier description.
    """
    try:
        about = run.describe()
    except SightglassError as error:
        if before is None:
            raise
        ended = bool(run.ended)
        state = "ended" if ended else "silent"
        return {**before, "state": state, "ended": ended, "takes_commands": False, "problem": str(error)}
    takes_commands = all(hasattr(type(run), name) for name in COMMANDS) and getattr(run, "may_command", True)
    info = {
        "name": about.name, "id": about.id, "state": about.state, "host": about.host, "pid": about.pid,
        "age_s": round(max(0.0, about.wall_time - about.started), 1), "directory": about.directory,
        "config": [[_cut(key), _cut(repr(item))] for key, item in list(about.config.items())[:MAX_LISTED]],
        "events": [_event(name, event) for name, event in list(about.events.items())[:MAX_LISTED]],
        "controls": [_control(name, one) for name, one in about.controls.items()],
        "actions": [{"name": name, "doc": one.doc, "where": one.where} for name, one in about.actions.items()],
        "streams": [_stream(one) for one in list(about.streams)[:MAX_LISTED]],
        "n_clients": about.n_clients, "n_pending": about.n_pending_commands,
        "takes_commands": takes_commands and not run.ended, "ended": bool(run.ended), "problem": "",
    }  # fmt: skip
    plain: dict[str, Any] = encoding.jsonable(info)
    return plain


def _event(name: str, event: Any) -> dict[str, Any]:
    listed = list(event.observables.items())[:MAX_LISTED]
    observables = [
        {
            "name": key,
            "type": one.type,
            "example": _cut(one.example),
            "fields": [[path, kind] for path, kind in list(one.fields.items())[:MAX_FIELDS]],
            "n_fields": len(one.fields),
            "query": _query(name, (key,)),
        }
        for key, one in listed
    ]
    n_more = len(event.observables) - len(listed)
    return {"name": name, "origin": event.origin, "n": event.n_events, "snapshot": event.snapshot, "note": event.note,
            "observables": observables, "n_more": n_more}  # fmt: skip


def _control(name: str, one: Any) -> dict[str, Any]:
    choices = None if one.choices is None else list(one.choices)
    return {"name": name, "type": one.type, "value": one.value, "min": one.min, "max": one.max, "choices": choices,
            "where": one.where}  # fmt: skip


def _stream(one: Any) -> dict[str, Any]:
    names = ("n_records", "n_events", "n_skipped", "n_dropped", "n_errors", "last_error", "stride", "spent_s")
    counts = {name: getattr(one, name) for name in names}
    return {"query": _cut(one.tag or one.query), "clients": list(one.clients), "recorded": one.recorded, **counts}


def _query(event: str, path: Sequence[str]) -> str:
    with suppress(QueryError):  # a name that no query can contain
        query = query_of(event, path)
        return query.short or str(query)
    return ""


def _typed(value: Any, control: Mapping[str, Any]) -> Any:
    """Return a page's value as the control's type: JavaScript has one kind of number, and sends a choice by index."""
    if control.get("choices"):
        return control["choices"][value]
    if control.get("type") == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return float(value) if control.get("type") == "float" and isinstance(value, int) else value


def _cut(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…"


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _cut(repr(value))
