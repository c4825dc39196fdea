"""The one place of a terminal where drawings move.

A terminal has one screen, so all live views share one `rich.live.Live`, one below the other. It is repainted by
rich's own thread, and only when something changed; a view whose streams have ended is left behind as text, above
those that go on.
"""

from __future__ import annotations

import atexit
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live

REFRESHES_PER_SECOND = 8


class Drawable(Protocol):
    """What the stage needs of a view."""

    @property
    def ended(self) -> bool:
        """Whether nothing can change any more."""

    def pull(self) -> bool:
        """Take what is new, and say whether the drawing changed."""

    def draw(self, *, height: int) -> RenderableType:
        """Return the drawing, for a number of rows at most."""


class LiveDisplay(Live):
    """All the live views of one console."""

    def __init__(self, console: Console) -> None:
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
        """Begin to draw a view."""
        with self._lock:
            if view not in self.views:
                self.views = (*self.views, view)
            atexit.register(self.leave_all)
            self.start()
            self.repaint()

    def leave(self, view: Drawable) -> None:
        """Leave a view's last drawing behind as text, and draw it no more."""
        with self._lock:
            if view not in self.views:
                return
            self.views = tuple(other for other in self.views if other is not view)
            if self.views:
                self.repaint()
            else:
                self.stop()
                atexit.unregister(self.leave_all)
            self.console.print(view.draw(height=self.console.height))

    def leave_all(self) -> None:
        """Leave every view; a program that ends would otherwise take its last drawings with it, and the cursor."""
        for view in self.views:
            self.leave(view)

    def refresh(self) -> None:
        """Repaint when something changed: called by rich's thread, again and again."""
        n_changed = sum(view.pull() for view in self.views)
        if n_changed or self._size != self.console.size or not self.is_started:
            self.repaint()
        for view in self.views:
            if view.ended and self.is_started:
                self.leave(view)

    def repaint(self) -> None:
        """Repaint in any case."""
        self._size = self.console.size
        super().refresh()

    def _drawing(self) -> RenderableType:
        room = (self.console.height - 1) // max(len(self.views), 1)
        return Group(*(view.draw(height=room) for view in self.views))


_displays: dict[int, LiveDisplay] = {}


def live_display_of(console: Console) -> LiveDisplay:
    """Return the stage of a console."""
    display = _displays.get(id(console))
    if display is None or display.console is not console:
        display = _displays[id(console)] = LiveDisplay(console)
    return display
