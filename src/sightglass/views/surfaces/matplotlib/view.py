"""The Matplotlib surface: live charts in a window of any interactive backend, or in a file.

Theory of operation
    Drawing has three steps: the stream set *pulls* new records and takes an immutable *scene* of them; a
    `FigurePainter` updates its artists from the scene. If there is a window, its timer does this in the window's own
    thread; without a window, `wait` does it in the caller's thread. This surface starts no thread.

    Everything is drawn within `rc_context`: the user's rcParams neither change the drawing nor are changed.
"""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from sightglass.core.errors import MissingExtraError, ViewError
from sightglass.core.source import Source
from sightglass.views.live_view import LiveView
from sightglass.views.options import Span, options_of
from sightglass.views.stream_set import StreamSet

try:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    raise MissingExtraError("matplotlib", extra="plot", purpose="Drawing with Matplotlib") from None

from .display import SLICE_S, FigureFile, Window, is_live
from .figure_painter import FigurePainter
from .style import background_is_dark, rc_params

OWN: Final = ("second", "figure", "axes", "path", "window", "size")
NO_DISPLAY: Final = (
    "There is no display to open a window on (Matplotlib's backend is {backend!r}). "
    'Draw into a file that is kept fresh instead: path="loss.png" (or .svg, .pdf), or --out loss.png in a shell; '
    "view.save(path) draws what is there by now."
)


class MatplotlibView(LiveView):
    """One drawing of one or more streams with Matplotlib.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        second: Which of the streams are read on a second y axis, at the right.
        figure: A figure to draw on; by default one is made, with a window where there is a display.
        axes: Axes to draw in; views that need several, or other ones, take their place.
        path: A file to draw into: its suffix says which kind; no window is opened then.
        window: Whether there has to be a window; by default there is one where there is a display.
        size: Width and height of a new figure in inches, or a name as for `theme.figure_size`.
        **options: See `options.Options`.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ViewError: The view is unknown, or the values that are there already cannot share one; there is no display for
            a window that has to be; or the file cannot be drawn.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Iterable[Source] = (),
        figure: Any = None,
        axes: Any = None,
        path: str | os.PathLike[str] | None = None,
        window: bool | None = None,
        size: str | tuple[float, float] | None = None,
        **options: Any,
    ) -> None:
        drawn = options_of(options, surface="matplotlib", own=OWN)
        self._streams = StreamSet(sources, view=view, title=title, second=second, options=drawn)
        self._file = FigureFile(path) if path is not None else None
        given = axes.figure if axes is not None else figure
        self._rc = rc_params(dark=background_is_dark(drawn.dark, given), size=size)
        # Whoever hands in a figure, or wants no window, knows what becomes of it.
        self._given = given is not None or window is False
        with self._context():
            self.figure = given if given is not None else _new_figure(windowed=path is None and window is not False)
            canvas = self.figure.canvas
            root = canvas.figure
            self._window: Window | None = None
            if window and not is_live(canvas):
                raise ViewError(NO_DISPLAY.format(backend=mpl.get_backend()))
            if self._file is None and window is not False and is_live(canvas):
                self._window = Window(
                    root, animated_artists=self._animated_artists, tick=self._tick, resized=self._on_resize
                )
            self._painter = FigurePainter(
                self.figure, axes, live=self._window is not None, blit=bool(self._window and self._window.blits)
            )
        self._painted = self._over = self._stale = self._warned = False
        self._visible_x: Span | None = None

    @property
    def closed(self) -> bool:
        """Whether drawing is over: the view or its window was closed."""
        return self._over or (self._window is not None and self._window.closed)

    def update(self) -> bool:
        """Take what the streams have, and draw it if it is new; says whether it was.

        A window is to be updated in the thread that it belongs to, which its own timer does.
        """
        changed = self._streams.pull()
        visible_x = self._painter.visible_x
        if not (changed or visible_x != self._visible_x or not self._painted):
            return False
        self._visible_x = visible_x
        self._paint()
        return True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw what there is by now into a file.

        Raises:
            ViewError: It cannot be written, or its suffix is no kind of picture.
        """
        self.update()
        file = FigureFile(path)
        with self._context():
            file.write(self.figure)

    def start(self) -> MatplotlibView:
        """Begin to draw: open the window, which updates itself from then on, or write the file.

        Warns:
            UserWarning: There is neither a display nor a path.
        """
        self.update()
        if self._window is not None:
            with self._context():
                self._window.open()
        elif self._file is not None:
            self._write()
        elif not self._given and not self._warned:
            self._warned = True
            if _is_inline():
                self._display()
            else:
                warnings.warn(NO_DISPLAY.format(backend=mpl.get_backend()), UserWarning, stacklevel=3)
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Draw until the streams have ended, and say whether they have; less long if the window is closed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self.ended or self.closed):
            left = SLICE_S if deadline is None else min(deadline - time.monotonic(), SLICE_S)
            if left <= 0:
                break
            self._turn(left)
        if self._window is None:
            self.update()
            self._write(now=self.ended)
        return self.ended

    def show(self) -> None:
        """Draw until the window is closed, or Ctrl-C; into a file, until the streams end.

        Raises:
            ViewError: There is neither a display nor a path.
        """
        if self._window is None and self._file is None and not self._given and not _is_inline():
            raise ViewError(NO_DISPLAY.format(backend=mpl.get_backend()))
        self.start()
        with suppress(KeyboardInterrupt):
            self.wait()
            while self._window is not None and not self.closed:
                self._turn(SLICE_S)
        self.close()

    def close(self) -> None:
        """Stop drawing; the last drawing stays. Closing twice is no error."""
        if self._over:
            return
        if not self.closed:
            self.update()
        self._write()
        self._over = True
        if self._window is not None:
            self._window.detach()
            self._still()

    def _context(self) -> Any:
        params: Any = self._rc
        return mpl.rc_context(params)

    def _paint(self) -> None:
        streams, visible_x = self._streams, self._visible_x
        scene = (
            streams.scene if visible_x is None else streams.take(visible_x=visible_x, n_pixels=self._painter.n_pixels)
        )
        with self._context():
            whole = self._painter.paint(scene, ended=streams.ended)
            if self._window is not None:
                self._window.repaint(whole=whole or not self._painted)
        self._painted = True
        self._stale = self._file is not None

    def _write(self, *, now: bool = True) -> None:
        if self._file is not None and self._stale and (now or self._file.due):
            self._stale = False
            with self._context():
                self._file.write(self.figure)

    def _turn(self, seconds: float) -> None:
        """Let time go by, and draw what comes meanwhile."""
        if self._window is not None:
            self._window.run(seconds)
            return
        self.update()
        self._write(now=False)
        if not self.ended:
            time.sleep(min(seconds, SLICE_S))

    def _animated_artists(self) -> list[Any]:
        return self._painter.animated_artists

    def _tick(self) -> None:
        """Do what the window's timer is for."""
        if self.closed:
            return
        self.update()

    def _on_resize(self) -> None:
        if self._painted and not self.closed:
            self._paint()

    def _streams_changed(self) -> None:
        if self._window is not None and not self.closed and self._painted:
            with self._context():
                self._window.open()

    def _still(self) -> None:
        """Let the figure be drawn by anybody, without what a live one needs."""
        for artist in self._painter.animated_artists:
            artist.set_animated(False)
        if self._window is not None and not self._window.closed:
            self.figure.canvas.draw_idle()

    def _display(self) -> None:
        from IPython import display

        show: Any = display.display_png
        show(self._png(), raw=True)

    def _png(self) -> bytes:
        data = io.BytesIO()
        with self._context():
            self.figure.savefig(data, format="png", dpi=self._rc["figure.dpi"] * 1.5, bbox_inches=None)
        return data.getvalue()


def _new_figure(*, windowed: bool) -> Any:
    """Make a figure: with a window where there can be one, and known to nobody else where not."""
    if windowed and not _is_inline():
        from matplotlib import pyplot as plt

        try:
            figure = plt.figure()
        except ImportError as error:
            raise ViewError(f"{error}. {NO_DISPLAY.format(backend=mpl.get_backend())}") from None
        if is_live(figure.canvas):
            return figure
        plt.close(figure)
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure


def _is_inline() -> bool:
    return "IPython" in sys.modules and "inline" in str(mpl.get_backend()).lower()
