"""The pages that show a widget, and what to send to each. Pure decisions: callers bring the time and send the messages.

Theory of operation
    A page is one browser tab that shows the widget at least once. It announces itself ("ready"), gets all that is
    stored, then what is new. Messages to it are numbered. It acknowledges the messages it has drawn, and at most
    `WINDOW` are in flight: what is new meanwhile waits with the content, thinned, and goes out as one message. A page
    that misses a number announces itself again. No page gets messages faster than every `PACE_S`.

    A hidden page, or one that no longer shows the widget, says so and is forgotten. A page that vanishes without a
    message keeps a full window, and is forgotten after `SILENT_S`; if it speaks again, it is asked to announce itself.

    Some front ends deliver a page's messages only while no cell is running. During a cell, such pages get a few
    messages without acknowledging them: known pages get what is new every `BLIND_S`, and before any page has announced
    itself, a small version of the whole goes to all pages (`EVERYBODY`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sightglass.core.counts import Failures
from sightglass.core.process.threads import UNTIL_WOKEN, Worker
from sightglass.core.process.unpatched import threading

WINDOW: Final = 4  # enough to hide one round trip to a remote kernel; few enough that a slow page does not fall behind
PACE_S: Final = 0.066  # 15 drawings a second: what still looks continuous
BLIND_S: Final = 1.0  # rare enough for pages that cannot say whether they keep up
SILENT_S: Final = 600.0  # longer than a laptop's short sleep; a page that wakes later announces itself again
MAX_PAGES: Final = 16
MAX_BLIND: Final = 3_600
"""The most messages sent without an acknowledgement: an hour of them."""

POINTS: Final = 32_768  # eight times the pixels of the widest screen, so that zooming in shows more
EVERYBODY: Final = "*"

# What is sent: a JSON object, and binary buffers.
Message = tuple[dict[str, Any], list[bytes]]


@dataclass(slots=True, kw_only=True)
class Page:
    """One page that shows the widget.

    Attributes:
        name: The name it chose.
        points: How many pixels a line may have.
        n_sent: How many messages were sent to it.
        n_acknowledged: How many of them it has drawn.
        cursors: Its position in each stream.
        settings: The settings, or the description of a run, that it was sent last.
        sent_s: When it was sent a message last.
        heard_s: When it sent a message last.
    """

    name: str
    points: int = POINTS
    n_sent: int = 0
    n_acknowledged: int = 0
    cursors: dict[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] | None = None
    sent_s: float = -1e9
    heard_s: float = 0.0

    @property
    def full(self) -> bool:
        """Whether its window is full."""
        return self.n_sent - self.n_acknowledged >= WINDOW


class Content(Protocol):
    """What pages show: it knows what a page does not have yet."""

    def update(self, page: Page) -> Message | None:
        """Return what a page does not have yet, and note in `page` that it has it now; `None` if nothing is new."""

    def has_news(self, page: Page) -> bool:
        """Return whether there is something that a page does not have."""

    def unknown_page(self) -> Page:
        """Return a page named `EVERYBODY` that has nothing yet, and gets little."""


class OpenPages:
    """The pages that show a widget.

    Attributes:
        concurrent: Whether a page's message ever arrived while a cell was running.
        heard: Whether a page's message ever arrived.
        n_sent: How many messages were sent to all of them.
    """

    def __init__(self) -> None:
        self.concurrent = False
        self.n_sent = self._n_blind = 0
        self._pages: dict[str, Page] = {}
        self._shown = False
        self.heard = False
        self._blind_s = -1e9

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self._pages)

    def expect(self, now_s: float) -> None:
        """Note that the widget is shown from now on, so that a page is about to announce itself."""
        if not self._shown:
            self._shown, self._blind_s = True, now_s

    def receive(self, message: Mapping[str, Any], *, now_s: float, busy: bool) -> list[Message]:
        """Handle a page's message.

        Args:
            message: The message; a malformed one is ignored.
            now_s: The time.
            busy: Whether a cell is running.

        Returns:
            The messages to send back at once.
        """
        kind, name = message.get("type"), message.get("page")
        if not isinstance(name, str) or not 0 < len(name) <= 64 or name == EVERYBODY:
            return []
        self.heard, self.concurrent = True, self.concurrent or busy
        if kind == "ready":
            self._pages.pop(name, None)
            while len(self._pages) >= MAX_PAGES:
                self._pages.pop(min(self._pages.values(), key=lambda page: page.heard_s).name)
            self._pages[name] = Page(name=name, heard_s=now_s)
        elif kind == "gone":
            self._pages.pop(name, None)
        elif kind == "ack" and (page := self._pages.get(name)) is not None:
            n = message.get("n")
            if isinstance(n, int) and n <= page.n_sent:
                page.n_acknowledged = max(page.n_acknowledged, n)
            page.heard_s = now_s
        elif kind == "ack":
            return [({"type": "who", "to": name}, [])]
        return []

    def turn(self, content: Content, *, now_s: float, busy: bool) -> list[Message]:
        """Return the messages to send now."""
        deaf = busy and not self.concurrent and self._n_blind < MAX_BLIND
        sent = []
        for page in list(self._pages.values()):
            if page.full and now_s - page.heard_s > SILENT_S and not busy:
                del self._pages[page.name]
                continue
            if now_s - page.sent_s < (BLIND_S if page.full else PACE_S) or (page.full and not deaf):
                continue
            self._n_blind += page.full
            sent += _update(page, content, now_s)
        if deaf and self._shown and not self.heard and now_s - self._blind_s >= BLIND_S:
            self._blind_s = now_s
            self._n_blind += 1
            sent += _update(content.unknown_page(), content, now_s)
        self.n_sent += len(sent)
        return sent

    def behind(self, content: Content) -> bool:
        """Return whether there is something new for a page whose window is not full."""
        return any(not page.full and content.has_news(page) for page in list(self._pages.values()))


def _update(page: Page, content: Content, now_s: float) -> list[Message]:
    found = content.update(page)
    if found is None:
        return []
    news, buffers = found
    reset = page.n_sent == 0
    page.n_sent += 1
    page.sent_s = now_s
    return [({"type": "update", "to": page.name, "n": page.n_sent, "reset": reset, **news}, buffers)]


# The one thread that pulls the streams of all views in notebooks, and sends pages the new records.

IDLE_S: Final = 1.0
"""How often to pull a view that no page shows, so that a page that opens has little to wait for."""


class Pullable(Protocol):
    """A view that the thread serves."""

    def turn(self, now_s: float) -> float | None:
        """Pull and send; return after how many seconds to call again, or `None` for only when woken."""


class Puller:
    """Serves any number of views, in turn, with one thread that sleeps while there is nothing to do.

    Attributes:
        failures: The turns that failed; the view gets its next turn a second later.
    """

    def __init__(self) -> None:
        self.failures = Failures("Views in notebooks")
        self._views: tuple[Pullable, ...] = ()
        self._due: dict[int, float] = {}
        self._lock = threading.Lock()
        self._worker = Worker("notebook", self.round)

    def add(self, view: Pullable) -> None:
        """Serve a view from now on, starting at once."""
        with self._lock:
            if not any(one is view for one in self._views):
                self._views = (*self._views, view)
        self.wake(view)

    def wake(self, view: Pullable) -> None:
        """Serve a view at once. May be called from any thread."""
        self._due[id(view)] = 0.0
        self._worker.wake()

    def round(self, now_s: float) -> float:
        """Serve the views that are due."""
        now_s = time.monotonic()  # the clock that views use
        for view in self._views:
            if self._due.get(id(view), float("inf")) > now_s:
                continue
            self._due[id(view)] = float("inf")  # before its turn, so that a `wake` during the turn counts
            try:
                pause_s = view.turn(now_s)
            except (Exception, SystemExit) as error:  # noqa: BLE001  it must not stop the other views
                self.failures.add(error, "one is not updated, and tried again")
                pause_s = IDLE_S
            if pause_s is not None:
                self._due[id(view)] = min(self._due[id(view)], now_s + pause_s)
        with self._lock:
            next_s = min((self._due.get(id(view), float("inf")) for view in self._views), default=float("inf"))
        return UNTIL_WOKEN if next_s == float("inf") else min(max(next_s - time.monotonic(), PACE_S / 10), IDLE_S)


puller = Puller()
