"""How a painted figure gets before somebody's eyes: a window, a file, a notebook.

Theory of operation
    A window belongs to the thread that made it, and everything is done there: its own timer asks for what is new.
    While only values change, the still parts of the picture are put back from a copy and what moves is painted over
    them; a whole repaint makes a new copy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.backend_bases import TimerBase

from sightglass.core.errors import ViewError, unknown

from .style import FILE_DPI

REFRESH_MS: Final = 50
SLICE_S: Final = 0.1
FILE_PERIOD_S: Final = 0.5
FORMATS: Final = ("png", "svg", "pdf", "jpg", "jpeg", "webp", "tiff", "eps", "ps")


def is_live(canvas: Any) -> bool:
    """Tell whether a canvas is shown by a loop of events, which has timers."""
    return type(canvas.new_timer(REFRESH_MS)) is not TimerBase


class Window:
    """A figure that is shown by a loop of events.

    Args:
        figure: The figure.
        moving: Returns the artists that change with the values.
        tick: Is called again and again by the figure's own timer.
        resized: Is called when the figure has another size.

    Attributes:
        closed: Whether the user closed it.
    """

    def __init__(
        self,
        figure: Any,
        *,
        animated_artists: Callable[[], Sequence[Any]],
        tick: Callable[[], None],
        resized: Callable[[], None],
    ) -> None:
        self.closed = False
        self._canvas = figure.canvas
        self._figure = figure
        self._animated_artists = animated_artists
        self._tick, self._resized = tick, resized
        self._still: Any = None
        self._timer: Any = None
        self._callbacks = [
            self._canvas.mpl_connect("draw_event", self._drawn),
            self._canvas.mpl_connect("resize_event", self._on_resize),
            self._canvas.mpl_connect("close_event", self._on_close),
        ]

    @property
    def blits(self) -> bool:
        """Whether parts of the figure can be painted alone."""
        return bool(getattr(self._canvas, "supports_blit", False))

    def open(self) -> None:
        """Show the window, and begin to ask for what is new."""
        manager = self._canvas.manager
        if manager is not None:
            manager.show()
        if self._timer is None:
            self._timer = self._canvas.new_timer(REFRESH_MS)
            self._timer.add_callback(self._on_tick)
        self._timer.start()

    def repaint(self, *, whole: bool) -> None:
        """Bring what was painted before the viewer's eyes."""
        if self.closed:
            return
        if whole or self._still is None or not self.blits:
            self._still = None
            self._canvas.draw_idle()
            return
        self._canvas.restore_region(self._still)
        self._draw_animated()
        self._canvas.blit(self._figure.bbox)

    def run(self, seconds: float) -> None:
        """Run the loop of events for a time.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed meanwhile.
        """
        if not self.closed:
            with _interruptible(self._canvas.stop_event_loop):
                self._canvas.start_event_loop(max(seconds, 0.001))

    def stop(self) -> None:
        """Ask no more for what is new; the window stays."""
        if self._timer is not None:
            self._timer.stop()

    def detach(self) -> None:
        """Let go of the figure; it stays as it is, and can be drawn and saved like any other."""
        self.stop()
        self._timer = None
        for callback in self._callbacks:
            self._canvas.mpl_disconnect(callback)

    def _on_tick(self) -> None:
        began = time.perf_counter()
        self._tick()
        if self._timer is not None:
            # A slow picture leaves the loop as much time as it takes.
            pause = max(REFRESH_MS, int(2000 * (time.perf_counter() - began)))
            if abs(pause - self._timer.interval) > REFRESH_MS:
                self._timer.interval = pause

    def _drawn(self, event: Any) -> None:
        if self._canvas.is_saving() or event.canvas is not self._canvas or not self.blits:
            return
        self._still = self._canvas.copy_from_bbox(self._figure.bbox)
        self._draw_animated()

    def _draw_animated(self) -> None:
        for artist in self._animated_artists():
            if artist.get_visible() and artist.axes is not None:
                self._figure.draw_artist(artist)

    def _on_resize(self, _event: Any) -> None:
        self._still = None
        self._resized()

    def _on_close(self, _event: Any) -> None:
        self.closed = True
        self.stop()


@contextlib.contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C end a loop of events; an exception within one of its callbacks would be printed there, and forgotten.

    Raises:
        KeyboardInterrupt: It was pressed, once the loop has ended.
    """
    pressed: list[int] = []

    def press(number: int, frame: Any) -> None:
        pressed.append(number)
        stop()

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # the program has a way of its own
        return
    try:
        signal.signal(signal.SIGINT, press)
    except ValueError:  # not the main thread, which alone hears of it
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


class FigureFile:
    """A figure that is kept as a file.

    Args:
        path: Where; the suffix says which kind of file.

    Raises:
        ViewError: There is no such kind of file, or no such folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._format = format_of(self.path)
        self._written_s: float | None = None
        if not self.path.parent.is_dir():
            raise ViewError(f"There is no folder {str(self.path.parent)!r} to draw {self.path.name!r} into")

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return self._written_s is None or time.monotonic() - self._written_s >= FILE_PERIOD_S

    def write(self, figure: Any) -> None:
        """Write the figure; who reads the file sees either the old picture or the new one.

        Raises:
            ViewError: It cannot be written.
        """
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            figure.savefig(part, format=self._format, dpi=FILE_DPI, bbox_inches=None)
            part.replace(self.path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ViewError(f"Cannot write the picture {str(self.path)!r}: {error.strerror or error}") from None
        self._written_s = time.monotonic()


def format_of(path: Path) -> str:
    """Return the kind of picture that a file's name asks for.

    Raises:
        ViewError: There is no such kind.
    """
    found = path.suffix.removeprefix(".").lower()
    if found not in FORMATS:
        raise ViewError(unknown("kind of picture", found, FORMATS, where=f"in the name {path.name!r}"))
    return found
