"""Where a figure is shown: in a window, or in a file that is rewritten.

Theory of operation
    A window belongs to the thread that created it, and all work is done in that thread: the window's timer calls for
    updates. While only values change, the window blits: it restores the background from a copy and draws the animated
    artists over it. A full repaint makes a new copy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.backend_bases import Event, FigureCanvasBase, TimerBase
from matplotlib.figure import Figure

from sightglass.core.counts import Failures
from sightglass.core.errors import ViewError, unknown

from .style import FILE_DPI

REFRESH_MS: Final = 50  # 20 updates a second look continuous
SLICE_S: Final = 0.1  # how long Ctrl-C or a closed window may go unnoticed
FILE_PERIOD_S: Final = 0.5  # encoding takes about 0.1 s; viewers of files rarely reload faster
FORMATS: Final = ("png", "svg", "pdf", "jpg", "jpeg", "webp", "tiff", "eps", "ps")


def is_live(canvas: FigureCanvasBase) -> bool:
    """Return whether a canvas belongs to an interactive backend: one whose event loop has timers."""
    return type(canvas.new_timer(REFRESH_MS)) is not TimerBase


class Window:
    """A figure in an interactive backend's window.

    Args:
        figure: The figure.
        animated_artists: Returns the artists that change with the values.
        tick: Called periodically by the window's timer.
        resized: Called after the window was resized.

    Attributes:
        closed: Whether the user closed the window.
        failures: The updates that failed.
    """

    def __init__(
        self,
        figure: Figure,
        *,
        animated_artists: Callable[[], Sequence[Artist]],
        tick: Callable[[], None],
        resized: Callable[[], None],
    ) -> None:
        self.closed = False
        self.failures = Failures("The window of a view")
        self._canvas: Any = figure.canvas  # blitting is not in the base class
        self._figure = figure
        self._animated_artists = animated_artists
        self._tick, self._resized = tick, resized
        self._background: Any = None
        self._timer: Any = None
        self._callbacks = [
            self._canvas.mpl_connect("draw_event", self._drawn),
            self._canvas.mpl_connect("resize_event", self._on_resize),
            self._canvas.mpl_connect("close_event", self._on_close),
        ]

    @property
    def blits(self) -> bool:
        """Whether the canvas supports blitting."""
        return bool(getattr(self._canvas, "supports_blit", False))

    def open(self) -> None:
        """Show the window, and start its timer."""
        manager = self._canvas.manager
        if manager is not None:
            manager.show()
        if self._timer is None:
            self._timer = self._canvas.new_timer(REFRESH_MS)
            self._timer.add_callback(self._on_tick)
        self._timer.start()

    def repaint(self, *, whole: bool) -> None:
        """Show the changed artists: all of the figure, or only the animated artists."""
        if self.closed:
            return
        if whole or self._background is None or not self.blits:
            self._background = None
            self._canvas.draw_idle()
            return
        self._canvas.restore_region(self._background)
        self._draw_animated()
        self._canvas.blit(self._figure.bbox)

    def run(self, seconds: float) -> None:
        """Run the event loop for some seconds.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C.
        """
        if not self.closed:
            with _interruptible(self._canvas.stop_event_loop):
                self._canvas.start_event_loop(max(seconds, 0.001))

    def stop(self) -> None:
        """Stop the timer; the window stays."""
        if self._timer is not None:
            self._timer.stop()

    def detach(self) -> None:
        """Disconnect from the figure, which stays as it is and can be drawn and saved like any other."""
        self.stop()
        self._timer = None
        for callback in self._callbacks:
            self._canvas.mpl_disconnect(callback)

    def _on_tick(self) -> None:
        began = time.perf_counter()
        try:
            self._tick()
        except Exception as error:  # noqa: BLE001  some toolkits end the process for an exception in a callback
            self.failures.add(error, "it is not updated, and tried again")
        if self._timer is not None:
            # If drawing is slow, leave the event loop as much time as drawing takes.
            pause = max(REFRESH_MS, int(2000 * (time.perf_counter() - began)))
            if abs(pause - self._timer.interval) > REFRESH_MS:
                self._timer.interval = pause

    def _drawn(self, event: Any) -> None:
        if self._canvas.is_saving():
            # Axes draw animated artists into files; figures do not.
            for artist in self._animated_artists():
                if artist.axes is None:
                    artist.draw(event.renderer)
            return
        if event.canvas is not self._canvas or not self.blits:
            return
        canvas: Any = event.canvas
        self._background = canvas.copy_from_bbox(self._figure.bbox)
        self._draw_animated()

    def _draw_animated(self) -> None:
        for artist in self._animated_artists():
            if artist.get_visible() and artist.figure is not None:
                self._figure.draw_artist(artist)

    def _on_resize(self, _event: Event) -> None:
        self._background = None
        self._resized()

    def _on_close(self, _event: Event) -> None:
        self.closed = True
        self.stop()


@contextlib.contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C end an event loop; an exception raised within its callbacks would only be printed.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C; raised after the loop has ended.
    """
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        stop()

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # the program handles Ctrl-C itself
        return
    try:
        signal.signal(signal.SIGINT, press)
    except ValueError:  # signals reach the main thread only
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


class FigureFile:
    """A figure in a file that is rewritten as it changes.

    Args:
        path: The file; its suffix selects the format.

    Raises:
        ViewError: The suffix is unknown, or the directory does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._format = format_of(self.path)
        self._written_s: float | None = None
        if not self.path.parent.is_dir():
            raise ViewError(f"Cannot write {self.path.name!r}: the directory {str(self.path.parent)!r} does not exist")

    @property
    def due(self) -> bool:
        """Whether it is time to write the file again."""
        return self._written_s is None or time.monotonic() - self._written_s >= FILE_PERIOD_S

    def write(self, figure: Figure) -> None:
        """Write the figure atomically: readers see either the old or the new version.

        Raises:
            ViewError: The file cannot be written.
        """
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            figure.savefig(part, format=self._format, dpi=FILE_DPI, bbox_inches=None)
            part.replace(self.path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ViewError(f"Cannot write {str(self.path)!r}: {error.strerror or error}") from None
        self._written_s = time.monotonic()


def format_of(path: Path) -> str:
    """Return the format that a file's suffix selects.

    Raises:
        ViewError: The suffix is unknown.
    """
    found = path.suffix.removeprefix(".").lower()
    if found not in FORMATS:
        raise ViewError(unknown("figure format", found, FORMATS, where=f"in the file name {path.name!r}"))
    return found
