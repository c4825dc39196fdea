"""The card of a run in a notebook: its events, controls, actions and queries, and buttons that send commands.

Theory of operation
    While a page shows the card, a thread asks the run for its description once a second, and sends it to the pages if
    it changed. Each command runs in a thread of its own, because a run applies it at its next event, which may be long
    after; the reply goes to the page that sent the command.

    Pages draw the card with the components of Sightglass's own page (`frontend/src/run`), so the description has the
    form that the page's server gives it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from sightglass.core.description import Description, HistoryEntry, call_value
from sightglass.core.errors import QueryError, SightglassError
from sightglass.core.process.threads import UNTIL_WOKEN, Background, Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message as message_of
from sightglass.core.values import array_kind, type_name
from sightglass.query.parser import query_of
from sightglass.storage import run_file
from sightglass.views import encoding

from .model import WidgetModel, cells
from .open_pages import EVERYBODY, PACE_S, Message, Page

PURPOSE: Final = "The card of a run"
DESCRIBE_S: Final = 1.0  # what still reads as live, at a cost to the run far below a thousandth
MAX_LISTED: Final = 100  # of anything: what still reads as a card, in messages of some 100 kB
MAX_TEXT: Final = 300
MAX_ERROR: Final = 1_200
MAX_PENDING: Final = 16  # a thread each; more clicks than anyone makes between two events
N_HISTORY: Final = 20
COMMAND_S: Final = 5.0  # most steps end within it; after that the card says what the command waits for
COMMANDS: Final = ("set", "call", "pause", "resume", "stop")
CHANGING: Final = ("running", "quiet", "paused", "stopping", "lost")
"""The states of runs that change; a lost run may come back, or turn out to have ended."""


class CardRun(Protocol):
    """A run, live or recorded. A live one also has `set`, `call`, `pause`, `resume` and `stop`, and `may_command`."""

    @property
    def name(self) -> str:
        """The run's name."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""

    def describe(self) -> Description:
        """Return the run's description."""

    def last_commands(self, n: int) -> list[HistoryEntry]:
        """Return the last `n` commands of the history."""


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
        self._n_pending = 0
        self._describe_s = -1e9
        self._info = info_of(run)
        self._worker = Worker("card", self.round)
        self._widget = WidgetModel("card", self, purpose=PURPOSE, wake=self._worker.wake, requested=self._begin)

    def __repr__(self) -> str:
        return f"<RunCard of {self._run.name!r}>"

    @property
    def widget(self) -> Any:
        """The widget, for example to put into an ipywidgets box."""
        return self._widget.show()

    def bundle(self) -> dict[str, Any]:
        """Return the MIME bundle that a notebook displays."""
        return self._widget.bundle(repr(self._run))

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return self.bundle()

    def update(self, page: Page) -> Message | None:
        """Return the description, if a page does not have it yet."""
        if not self.has_news(page):
            return None
        page.settings = self._info
        return {"info": self._info}, []

    def has_news(self, page: Page) -> bool:
        """Return whether a page has another description, or none."""
        return page.settings is not self._info

    def unknown_page(self) -> Page:
        """Return a page that has no description yet."""
        return Page(name=EVERYBODY)

    def round(self, now_s: float) -> float:
        """Send the pages what is new about the run."""
        pages = self._widget.pages
        if not pages and (pages.heard or not cells.busy):
            self._describe_s = -1e9  # the next page is shown the present
            return UNTIL_WOKEN
        if now_s - self._describe_s >= DESCRIBE_S:
            info = info_of(self._run, before=self._info)
            self._info = self._info if info == self._info else info
            self._describe_s = now_s if self._info["state"] in CHANGING else UNTIL_WOKEN
        behind = self._widget.turn(now_s)
        return PACE_S if behind else max(PACE_S, self._describe_s + DESCRIBE_S - now_s)

    def _begin(self, page: str, message: Mapping[str, Any]) -> None:
        with self._lock:
            full = self._n_pending >= MAX_PENDING
            self._n_pending += not full
        if full:
            self._reply(page, message, error=f"{MAX_PENDING} commands are pending already; try again later")
            return
        try:
            Background("command", lambda: self._command(page, message))
        except RuntimeError as error:  # no thread is left
            self._end(page, message, error=message_of(error))

    def _command(self, page: str, message: Mapping[str, Any]) -> None:
        command = message.get("command")
        try:
            value = send_command(self._run, command if isinstance(command, Mapping) else {})
        except Exception as error:  # noqa: BLE001  any failure is shown on the page that sent the command
            self._end(page, message, error=message_of(error) or type(error).__name__)
        else:
            self._end(page, message, value=value)

    def _end(self, page: str, message: Mapping[str, Any], *, value: object = None, error: str = "") -> None:
        with self._lock:
            self._n_pending -= 1
        self._describe_s = -1e9
        self._worker.wake()
        self._reply(page, message, value=value, error=error)

    def _reply(self, page: str, message: Mapping[str, Any], *, value: object = None, error: str = "") -> None:
        reply = {"type": "reply", "to": page, "request": message.get("request")}
        self._widget.send({**reply, "value": value, "error": error[:MAX_ERROR]}, [])


def send_command(run: Any, command: Mapping[str, Any]) -> Any:
    """Send a page's command to the run, and return the acknowledgement as JSON values.

    Raises:
        SightglassError: The run refuses, is lost, or does not take commands.
    """
    kind, name, value = command.get("kind"), command.get("name"), command.get("value")
    if kind not in COMMANDS or not hasattr(type(run), str(kind)):
        raise SightglassError(f"Expected one of {', '.join(COMMANDS)} and a live run, got {kind!r} and {run!r}")
    at = {"at": command["at"]} if command.get("at") else {}
    match kind:
        case "set":
            done = run.set(name, value, timeout_s=COMMAND_S, **at)
        case "call":
            value = call_value((), command.get("keywords") or {})
            done = run._command("call", name, value, timeout_s=COMMAND_S, **at)
        case "resume":
            done = run.resume(timeout_s=COMMAND_S)
        case _:
            done = getattr(run, str(kind))(timeout_s=COMMAND_S, **at)
    return shown(done)


def info_of(run: Any, *, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a run's description as the page's server gives it, as JSON values, with what a card needs besides.

    Args:
        run: The run.
        before: The description to return, with its state changed, if the run does not respond.

    Raises:
        SightglassError: It does not respond, and there is no description from before.
    """
    lost = getattr(run, "lost", "")
    if lost and before is not None:  # describing it would wait for the connection
        return _gone(run, before, f"{lost}. Connecting again")
    try:
        about, history = run.describe(), run.last_commands(N_HISTORY)
    except SightglassError as error:
        if before is None:
            raise
        return _gone(run, before, str(error))
    live = hasattr(type(run), "set") and not run.ended
    off = "" if getattr(run, "may_command", True) else "You connected as a viewer, who may not send commands"
    listed = list(itertools.islice(about.events.items(), MAX_LISTED))
    queries = {
        name: {key: _query(name, key) for key in itertools.islice(event.observables, MAX_LISTED)}
        for name, event in listed
    }
    return {
        **{name: shown(getattr(about, name)) for name in ("name", "id", "host", "directory", "config", "state")},
        "live": live, "off": off, "problem": "",
        "description": shown(about), "history": shown(history), "streams": shown(about.streams),
        "queries": queries, "n_observables": {name: len(event.observables) for name, event in listed},
    }  # fmt: skip


def shown(value: Any) -> Any:
    """Return a value as JSON values for a card: long texts and lists are cut, arrays are their types."""
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 1]}…"
    if isinstance(value, msgspec.Struct):
        return {name: shown(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {shown(str(key)): shown(item) for key, item in itertools.islice(value.items(), MAX_LISTED)}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value[:MAX_LISTED]]
    return type_name(value) if array_kind(value) else encoding.jsonable(value)


def _gone(run: Any, before: Mapping[str, Any], problem: str) -> dict[str, Any]:
    """Return the last description of a run that does not respond; its own files tell how it ended."""
    files = run_file.read_all(Path(before["directory"])) if run.ended and before["directory"] else []
    state = run_file.together(files).state if files else "ended" if run.ended and before["state"] != "lost" else "lost"
    live = before["live"] and not run.ended
    state = "lost" if state == "running" else state
    return {**before, "state": state, "live": live, "off": problem, "problem": problem}


def _query(event: str, name: str) -> str:
    with suppress(QueryError):  # a name that no query can contain
        query = query_of(event, (name,))
        return query.short or str(query)
    return ""
