"""Who looks at a view, and what each is sent now. It only decides: the clock and the sending are somebody else's.

Theory of operation
    A page is one browser tab in which the view is shown at least once. It announces itself ("ready"), and is sent
    all that is kept, then what is new. Messages to it are numbered; it acknowledges what it has drawn, and no more
    than `WINDOW` messages are on the way: what comes meanwhile waits in the backlogs, thinned, and goes as one. A
    page that misses a number announces itself again. Nobody is sent anything faster than every `PACE_S`.

    A page that is hidden, or shows the view no more, says so and is forgotten. One that is gone without a word has a
    full window for ever, and is forgotten after `SILENT_S`; should it speak again, it is asked to announce itself.

    There are front ends whose words reach the kernel only when no cell is running. While one is, they are sent a little
    without being heard: those who are known go on getting what is new every `BLIND_S`, and before anybody announced
    themself the whole picture, small, goes to everybody (`EVERYBODY`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sightglass.views import encoding

from .view_streams import NotebookStreams

WINDOW: Final = 4
PACE_S: Final = 0.066
BLIND_S: Final = 1.0
SILENT_S: Final = 600.0
MAX_PAGES: Final = 16
MAX_BLIND: Final = 3_600
"""How many messages are sent, at most, to pages that nobody hears."""

POINTS: Final = 32_768
BLIND_POINTS: Final = 400
ENOUGH_BYTES: Final = 8 * 2**20
"""Of a message; further streams come with the next."""

EVERYBODY: Final = "*"

# What is sent: words, and a buffer for each stream.
Message = tuple[dict[str, Any], list[bytes]]


@dataclass(slots=True, kw_only=True)
class Page:
    """One page that looks.

    Attributes:
        name: What it calls itself.
        points: How many pixels a line may have.
        n_sent: How many messages it was sent.
        n_acknowledged: How many of them it has drawn.
        cursors: How far it is in each stream.
        settings: What it was told of how to draw.
        sent_s: When it was sent something last.
        heard_s: When it said something last.
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
        """Whether enough is on the way to it."""
        return self.n_sent - self.n_acknowledged >= WINDOW


class OpenPages:
    """The pages that look at a view.

    Attributes:
        concurrent: Whether a page was ever heard while a cell was running.
        heard: Whether a page was ever heard.
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
        """How many look."""
        return len(self._pages)

    def expect(self, now_s: float) -> None:
        """Note that the view is shown from now on: somebody will announce themself."""
        if not self._shown:
            self._shown, self._blind_s = True, now_s

    def hear(self, message: Mapping[str, Any], *, now_s: float, busy: bool) -> list[Message]:
        """Take what a page says.

        Args:
            message: What it says; what cannot be read is passed over.
            now_s: The time.
            busy: Whether a cell is running.

        Returns:
            What it is answered at once.
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

    def turn(self, desk: NotebookStreams, *, now_s: float, busy: bool) -> list[Message]:
        """Return what is to be sent now."""
        deaf = busy and not self.concurrent and self._n_blind < MAX_BLIND
        sent = []
        for page in list(self._pages.values()):
            if page.full and now_s - page.heard_s > SILENT_S and not busy:
                del self._pages[page.name]
                continue
            if now_s - page.sent_s < (BLIND_S if page.full else PACE_S) or (page.full and not deaf):
                continue
            self._n_blind += page.full
            sent += self._message(page, desk, now_s)
        if deaf and self._shown and not self.heard and now_s - self._blind_s >= BLIND_S:
            self._blind_s = now_s
            self._n_blind += 1
            sent += self._message(_stranger(desk), desk, now_s)
        self.n_sent += len(sent)
        return sent

    def behind(self, desk: NotebookStreams) -> bool:
        """Tell whether a page waits for something that it can be sent before it speaks."""
        return any(not page.full and _news(page, desk) for page in list(self._pages.values()))

    def _message(self, page: Page, desk: NotebookStreams, now_s: float) -> list[Message]:
        settings, lines = desk.settings, desk.lines
        words: dict[str, Any] = {"type": "update", "to": page.name, "reset": page.n_sent == 0, "streams": []}
        if settings != page.settings:
            words["settings"] = page.settings = settings
        buffers: list[bytes] = []
        for stream in settings["streams"]:
            id = stream["id"]
            line = lines.get(id)
            taken = line.backlog.take(page.cursors.get(id, 0), page.points) if line else None
            if taken is None:
                continue
            page.cursors[id] = taken.cursor
            words["streams"].append({"id": id, "n": taken.cursor})
            buffers.append(encoding.encode_msgpack(taken.message))
            if sum(map(len, buffers)) > ENOUGH_BYTES:
                break
        if not buffers and "settings" not in words:
            return []
        page.n_sent += 1
        page.sent_s = now_s
        words["n"] = page.n_sent
        return [(words, buffers)]


def _news(page: Page, desk: NotebookStreams) -> bool:
    if page.settings != desk.settings:
        return True
    lines = desk.lines
    drawn = [lines[stream["id"]] for stream in desk.settings["streams"] if stream["id"] in lines]
    return any(line.backlog.n > page.cursors.get(line.id, 0) for line in drawn)


def _stranger(desk: NotebookStreams) -> Page:
    """Return somebody who knows nothing, and is told little: of what is no number the last only."""
    cursors = {id: max(0, line.backlog.n - 1) for id, line in desk.lines.items() if not line.backlog.numeric}
    return Page(name=EVERYBODY, points=BLIND_POINTS, cursors=cursors)
