"""The card of a run in a notebook: what it offers, what it is being asked, and how to act on it.

Theory of operation
    A card asks the run to describe itself once a second, in a thread of its own, as long as a page shows the card, and
    sends what it told if that changed. Acts are done in threads of their own, for a run applies them at its next
    event, which may be long after; what became of them is told to the page that asked.

    A page that is slow, or cannot be heard while a cell is running, is sent less: see `audience`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from sightglass.core.errors import QueryError, SightglassError
from sightglass.core.threads import Background, Worker
from sightglass.query.shorthand import query_of
from sightglass.views import encoding

from .cells import cells
from .model import Front
from .open_pages import MAX_BLIND, WINDOW

PURPOSE: Final = "The card of a run"
DESCRIBE_S: Final = 1.0
MAX_FIELDS: Final = 40
MAX_LISTED: Final = 200
MAX_TEXT: Final = 300
MAX_ACTS: Final = 16
ACTS: Final = ("set", "call", "pause", "resume", "stop")


class CardRun(Protocol):
    """A run, live or recorded; one that can be acted on has `set`, `call`, `pause`, `resume` and `stop` besides."""

    @property
    def name(self) -> str:
        """The run's name."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""

    def describe(self) -> Any:
        """Return what it tells of itself: see `client.describe.Description`."""


class RunCard:
    """A run's card.

    Args:
        run: The run.

    Raises:
        SightglassError: The run does not tell anything of itself.
        MissingExtraError: anywidget is not installed.
    """

    def __init__(self, run: CardRun) -> None:
        self._run = run
        self._lock = threading.RLock()
        self._pages: dict[str, int] = {}
        self._n_sent = self._n_blind = self._n_acts = 0
        self._concurrent = False
        self._told = told_of(run)
        self._sent: Mapping[str, Any] | None = None
        self._worker = Worker("card", self._round)
        self._front = Front("card.js", purpose=PURPOSE, heard=self._hear, told=self._told)

    def __repr__(self) -> str:
        return f"<RunCard of {self._run.name!r}>"

    @property
    def widget(self) -> Any:
        """The widget, to be put into a box of ipywidgets."""
        cells.watch()
        return self._front.widget

    def bundle(self) -> dict[str, Any]:
        """Return what a notebook shows."""
        cells.watch()
        return self._front.bundle(repr(self._run))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.bundle()

    def _hear(self, message: Mapping[str, Any]) -> None:
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
        if kind == "act":
            self._begin(page, message)
        self._worker.wake()

    def _round(self) -> float | None:
        with self._lock:
            looking = bool(self._pages)
            waiting = looking and self._n_sent - max(self._pages.values()) >= WINDOW
            deaf = cells.busy and not self._concurrent and self._n_blind < MAX_BLIND
        if not looking or (waiting and not deaf):
            return None
        self._told = told_of(self._run, before=self._told)
        if self._told != self._sent:
            self._sent = self._told
            self._n_sent += 1
            self._n_blind += waiting
            self._front.send({"type": "told", "n": self._n_sent, "told": self._told}, [])
        return None if self._told["over"] else DESCRIBE_S

    def _begin(self, page: str, message: Mapping[str, Any]) -> None:
        with self._lock:
            full = self._n_acts >= MAX_ACTS
            self._n_acts += not full
        if full:
            self._tell(page, message, ok=False, text=f"{MAX_ACTS} acts wait for their events already")
        else:
            Background("act", lambda: self._act(page, message))

    def _act(self, page: str, message: Mapping[str, Any]) -> None:
        try:
            text = act(self._run, message, self._told)
            self._tell(page, message, ok=True, text=text)
        except Exception as error:  # noqa: BLE001  whatever it is: it is told where it was asked
            self._tell(page, message, ok=False, text=str(error) or type(error).__name__)
        finally:
            with self._lock:
                self._n_acts -= 1
            self._worker.wake()

    def _tell(self, page: str, message: Mapping[str, Any], *, ok: bool, text: str) -> None:
        shown = {"type": "done", "to": page, "act": message.get("act"), "ok": ok, "text": text[: 4 * MAX_TEXT]}
        self._front.send(shown, [])


def act(run: Any, message: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """Do what a page asks for, and say what became of it.

    Raises:
        SightglassError: The run refuses, is lost, or cannot be acted on.
    """
    kind, name, value = message.get("do"), message.get("name"), message.get("value")
    if kind not in ACTS or not hasattr(type(run), str(kind)):
        raise SightglassError(f"Expected one of {', '.join(ACTS)}, and a run that lives; got {kind!r}")
    match kind:
        case "set":
            value = _typed(value, next((one for one in told["controls"] if one["name"] == name), {}))
            done = run.set(name, value)
        case "call":
            done = run.call(name)
        case _:
            done = getattr(run, str(kind))()
    if not done.applied:
        return done.note or "It waits for the run's next event"
    place = f"{done.event} {done.step:,g}" if done.event else "once"
    match kind:
        case "set":
            return f"{name} = {_short(done.result)} since {place}, before {_short(done.old)}"
        case "call":
            returned = "" if done.result is None else f", returned {_short(done.result)}"
            return f"{name}() was called at {place}{returned}"
    return {"pause": f"Paused at {place}", "resume": "It goes on", "stop": f"Asked to stop at {place}"}[str(kind)]


def told_of(run: Any, *, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a card shows of a run, as JSON has it; of one that does not answer, what it told before.

    Raises:
        SightglassError: It does not answer, and never did.
    """
    try:
        about = run.describe()
    except SightglassError as error:
        if before is None:
            raise
        state = "ended" if run.ended else "silent"
        return {**before, "state": state, "over": bool(run.ended), "acts": False, "problem": str(error)}
    acts = all(hasattr(type(run), name) for name in ACTS) and getattr(run, "may_act", True) and not run.ended
    told = {
        "name": about.name, "id": about.id, "state": about.state, "host": about.host, "pid": about.pid,
        "age_s": round(max(0.0, about.wall_time - about.started), 1), "directory": about.directory,
        "config": [[_cut(key), _cut(repr(item))] for key, item in list(about.config.items())[:MAX_LISTED]],
        "events": [_event(name, event) for name, event in list(about.events.items())[:MAX_LISTED]],
        "controls": [_control(name, one) for name, one in about.controls.items()],
        "actions": [{"name": name, "doc": one.doc, "where": one.where} for name, one in about.actions.items()],
        "streams": [_stream(one) for one in list(about.streams)[:MAX_LISTED]],
        "n_clients": about.n_clients, "n_waiting": about.n_pending_acts,
        "acts": acts, "over": bool(run.ended), "problem": "",
    }  # fmt: skip
    made: dict[str, Any] = encoding.jsonable(told)
    return made


def _event(name: str, event: Any) -> dict[str, Any]:
    offered = list(event.observables.items())[:MAX_LISTED]
    observables = [
        {
            "name": key,
            "type": one.type,
            "example": _cut(one.example),
            "fields": [[path, kind] for path, kind in list(one.fields.items())[:MAX_FIELDS]],
            "n_fields": len(one.fields),
            "query": _query(name, (key,)),
        }
        for key, one in offered
    ]
    n_more = len(event.observables) - len(offered)
    return {"name": name, "origin": event.origin, "n": event.n_events, "kept": event.kept, "note": event.note,
            "observables": observables, "n_more": n_more}  # fmt: skip


def _control(name: str, one: Any) -> dict[str, Any]:
    choices = None if one.choices is None else list(one.choices)
    return {"name": name, "type": one.type, "value": one.value, "min": one.min, "max": one.max, "choices": choices,
            "where": one.where}  # fmt: skip


def _stream(one: Any) -> dict[str, Any]:
    names = ("n_records", "n_events", "n_skipped", "n_dropped", "n_errors", "last_error", "stride", "spent_s", "kept")
    told = {name: getattr(one, name) for name in names}
    return {"query": _cut(one.tag or one.query), "clients": list(one.clients), **told}


def _query(event: str, path: Sequence[str]) -> str:
    asked = ""
    with suppress(QueryError):  # a name that no query can say
        query = query_of(event, path)
        asked = query.short or str(query)
    return asked


def _typed(value: Any, control: Mapping[str, Any]) -> Any:
    """Return a value as the control's type where JavaScript has only one kind of number, or a place in a list."""
    if control.get("choices"):
        return control["choices"][value]
    if control.get("type") == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return float(value) if control.get("type") == "float" and isinstance(value, int) else value


def _cut(text: Any) -> str:
    shown = str(text)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _cut(repr(value))
