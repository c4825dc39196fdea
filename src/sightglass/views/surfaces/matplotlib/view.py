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
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from sightglass.core.errors import MissingExtraError, ViewError, warn_user
from sightglass.core.source import Source
from sightglass.views.live_view import View
from sightglass.views.options import Span, options_of
from sightglass.views.stream_set import StreamSet

try:
    import matplotlib as mpl
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure, SubFigure
except ImportError:
    raise MissingExtraError("matplotlib", extra="plot", purpose="Drawing with Matplotlib") from None

from .display import SLICE_S, FigureFile, Window, is_live
from .figure_painter import FigurePainter
from .style import background_is_dark, rc_params

OWN: Final = ("second", "figure", "axes", "path", "window", "size")
NO_DISPLAY: Final = (
    "Cannot open a window: Matplotlib's backend {backend!r} has no display. "
    'Draw to a file that is updated instead: path="loss.png" (or .svg, .pdf), or --out loss.png in a shell; '
    "view.save(path) writes the current state."
)


class MatplotlibView(View):
    """One drawing of one or more streams with Matplotlib.

    Args:
        sources: The streams.
        view: The view to use, one of `choose.VIEWS`; by default the one that suits the values.
        title: The title; by default the streams' tags.
        second: The streams to draw against a second y axis, on the right.
        figure: The figure to draw on; by default a new one, in a window if there is a display.
        axes: The axes to draw in; views that need several, or other ones, replace them.
        path: A file to draw to instead of a window; its suffix selects the format.
        window: Whether to require a window; by default one opens if there is a display.
        size: The width and height of a new figure in inches, or a name as for `theme.figure_size`.
        **options: See `options.Options`.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ViewError: The view is unknown, or the values that exist already cannot share one; or a window is required and
            there is no display; or the file's format is unknown.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Iterable[Source] = (),
        figure: Figure | SubFigure | None = None,
        axes: Axes | None = None,
        path: str | os.PathLike[str] | None = None,
        window: bool | None = None,
        size: str | tuple[float, float] | None = None,
        **options: object,
    ) -> None:
        drawn = options_of(options, surface="matplotlib", own=OWN)
        self._streams = StreamSet(sources, view=view, title=title, second=second, options=drawn)
        self._file = FigureFile(path) if path is not None else None
        given = axes.figure if axes is not None else figure
        self._rc = rc_params(dark=background_is_dark(drawn.dark, given), size=size)
        # With a figure of their own, or with window=False, users show the figure themselves.
        self._given = given is not None or window is False
        with self._context():
            self.figure: Any = (
                given if given is not None else _new_figure(windowed=path is None and window is not False)
            )
            canvas = self.figure.canvas
            self._root: Any = canvas.figure  # a subfigure cannot be saved by itself
            self._window: Window | None = None
            if window and not is_live(canvas):
                raise ViewError(NO_DISPLAY.format(backend=mpl.get_backend()))
            if self._file is None and window is not False and is_live(canvas):
                self._window = Window(
                    self._root, animated_artists=self._animated_artists, tick=self._tick, resized=self._on_resize
                )
            self._painter = FigurePainter(
                self.figure, axes, live=self._window is not None, blit=bool(self._window and self._window.blits)
            )
        self._painted = self._over = self._stale = self._warned = False
        self._visible_x: Span | None = None

    @property
    def closed(self) -> bool:
        """Whether the view or its window was closed."""
        return self._over or (self._window is not None and self._window.closed)

    def update(self) -> bool:
        """Pull, draw if anything changed, and return whether it did.

        A window must be updated in its own thread, which its timer does.
        """
        changed = self._streams.pull()
        visible_x = self._painter.visible_x
        if not (changed or visible_x != self._visible_x or not self._painted):
            return False
        self._visible_x = visible_x
        self._paint()
        return True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the current drawing to a file: the whole figure, also if the view draws in a part of it.

        Raises:
            ViewError: The file cannot be written, or its suffix is unknown.
        """
        self.update()
        file = FigureFile(path)
        with self._context():
            file.write(self._root)

    def start(self) -> MatplotlibView:
        """Open the window, which updates itself from now on, or write the file.

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
                warn_user(NO_DISPLAY.format(backend=mpl.get_backend()), UserWarning)
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Draw until the streams have ended or the window is closed, and return whether the streams have ended."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self.ended or self.closed):
            left = SLICE_S if deadline is None else min(deadline - time.monotonic(), SLICE_S)
            if left <= 0:
                break
            self._run(left)
        if self._window is None:
            self.update()
            self._write(now=self.ended)
        return self.ended

    def show(self) -> None:
        """Draw until the window is closed or Ctrl-C is pressed; to a file, until the streams end.

        Raises:
            ViewError: There is neither a display nor a path.
        """
        if self._window is None and self._file is None and not self._given and not _is_inline():
            raise ViewError(NO_DISPLAY.format(backend=mpl.get_backend()))
        self.start()
        with suppress(KeyboardInterrupt):
            self.wait()
            while self._window is not None and not self.closed:
                self._run(SLICE_S)
        self.close()

    def close(self) -> None:
        """Stop drawing. The last drawing stays. Closing twice is allowed."""
        if self._over:
            return
        if not self.closed:
            self.update()
        self._write()
        self._over = True
        if self._window is not None:
            self._window.detach()
            self._end_animation()

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
                self._file.write(self._root)

    def _run(self, seconds: float) -> None:
        """Draw for some seconds."""
        if self._window is not None:
            self._window.run(seconds)
            return
        self.update()
        self._write(now=False)
        if not self.ended:
            time.sleep(min(seconds, SLICE_S))

    def _animated_artists(self) -> list[Artist]:
        return self._painter.animated_artists

    def _tick(self) -> None:
        """Update; the window's timer calls this."""
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

    def _end_animation(self) -> None:
        """Make the figure an ordinary one, which any code can draw."""
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
            self._root.savefig(data, format="png", dpi=self._rc["figure.dpi"] * 1.5, bbox_inches=None)
        return data.getvalue()


def _new_figure(*, windowed: bool) -> Any:
    """Return a new figure: in a window if there is a display, else one that pyplot does not know."""
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
