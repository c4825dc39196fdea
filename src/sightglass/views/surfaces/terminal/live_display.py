"""The live part of a terminal, which all live views share.

A terminal has one screen, so all live views share one `rich.live.Live`, one below the other. Rich's own thread repaints
it, and only when something changed. The last drawing of a view whose streams have ended stays as text, above the views
that continue.
"""

from __future__ import annotations

import atexit
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sightglass.core.counts import Failures
from sightglass.core.program_values.guarded import message

REFRESHES_PER_SECOND = 8  # looks live, and costs a slow terminal or SSH link little


class Drawable(Protocol):
    """What the live display needs from a view."""

    @property
    def ended(self) -> bool:
        """Whether the drawing can no longer change."""

    def pull(self) -> bool:
        """Pull new records, and return whether the drawing changed."""

    def draw(self, *, height: int) -> RenderableType:
        """Return the drawing, at most `height` rows high."""


class LiveDisplay(Live):
    """All live views of one console.

    Attributes:
        failures: The drawings that failed; the other views are drawn.
    """

    def __init__(self, console: Console) -> None:
        self.failures = Failures("Views in the terminal")
        self.views: tuple[Drawable, ...] = ()
        self._size = console.size
        super().__init__(
            console=console,
            auto_refresh=True,
            refresh_per_second=REFRESHES_PER_SECOND,
            vertical_overflow="crop",
            transient=True,
            get_renderable=self._drawing,
        )

    def enter(self, view: Drawable) -> None:
        """Draw a view from now on."""
        with self._lock:
            if view not in self.views:
                self.views = (*self.views, view)
            atexit.register(self.leave_all)
            self.start()
            self.repaint()

    def leave(self, view: Drawable) -> None:
        """Stop drawing a view, and print its last drawing as text."""
        with self._lock:
            if view not in self.views:
                return
            self.views = tuple(other for other in self.views if other is not view)
            if self.views:
                self.repaint()
            else:
                self.stop()
                atexit.unregister(self.leave_all)
            self.console.print(self._drawing_of(view, self.console.height))

    def leave_all(self) -> None:
        """Leave every view: at exit, this preserves the last drawings and restores the cursor."""
        for view in self.views:
            self.leave(view)

    def refresh(self) -> None:
        """Repaint if something changed; rich's thread calls this periodically, and ends if this raises."""
        try:
            self._refresh()
        except Exception as error:  # noqa: BLE001  see above
            self.failures.add(error, "not repainted")

    def _refresh(self) -> None:
        n_changed = sum(self._pull(view) for view in self.views)
        if n_changed or self._size != self.console.size or not self.is_started:
            self.repaint()
        for view in self.views:
            if view.ended and self.is_started:
                self.leave(view)

    def repaint(self) -> None:
        """Repaint, whether anything changed or not."""
        self._size = self.console.size
        super().refresh()

    def _drawing(self) -> RenderableType:
        room = (self.console.height - 1) // max(len(self.views), 1)
        return Group(*(self._drawing_of(view, room) for view in self.views))

    def _pull(self, view: Drawable) -> bool:
        try:
            return view.pull()
        except Exception as error:  # noqa: BLE001  one view must not stop the others
            self.failures.add(error, "one is not updated")
            return False

    def _drawing_of(self, view: Drawable, height: int) -> RenderableType:
        try:
            return view.draw(height=height)
        except Exception as error:  # noqa: BLE001  as above
            self.failures.add(error, "one is not drawn")
            return Text(f"Not drawn: {message(error)}")


_displays: dict[int, LiveDisplay] = {}


def live_display_of(console: Console) -> LiveDisplay:
    """Return the live display of a console."""
    display = _displays.get(id(console))
    if display is None or display.console is not console:
        display = _displays[id(console)] = LiveDisplay(console)
    return display
