"""The streams of one view, and the picture of them: what all surfaces share that are drawn in Python.

Theory of operation
    A board has a trace for each of its sources. Whoever draws calls `pull`, which takes what is new and says whether
    anything changed, and then reads `scene`, a picture that never changes: one thread may pull while another draws.

    The view is chosen (`choose`) again whenever the forms of the values change. A stream that cannot share the view
    after all, because its first value came later, is left out and the scene says so: misuse that is known at the
    call raises, what turns up later never stops a repaint.

    Several threads may pull at the same time, and no lock is to be had here: whoever holds the board's one token
    pulls, the other draws what was drawn last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from sightglass.core.errors import ViewError, unknown
from sightglass.core.source import Source

from .choose import VIEWS, Choice, choose
from .options import Options, Span
from .scene import MAX_PIXELS, Scene, label_streams, scene_of
from .series_buffer import SeriesBuffer

FLAT_NOTE = "z is not drawn: this is the projection on x and y"


class StreamSet:
    """The streams of one view.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        second: Which of the sources are read on a second y axis.
        options: How it is drawn.
        flat: Whether the surface has no third dimension, and the reader is to be told.

    Attributes:
        options: How it is drawn; another one may be put here, and counts from the next `pull` on.
        scene: The last picture.

    Raises:
        ViewError: The view is unknown, or the values that are there already cannot share one.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Iterable[Source] = (),
        options: Options | None = None,
        flat: bool = False,
    ) -> None:
        if view is not None and view not in VIEWS:
            raise ViewError(unknown("view", view, VIEWS))
        self.options = options or Options()
        self.scene = Scene(view=None, title=title or "", options=self.options)
        self._wanted, self._title, self._flat = view, title, flat
        self._traces: tuple[SeriesBuffer, ...] = ()
        self._second: tuple[Source, ...] = ()
        self._x = SeriesBuffer(self.options.x) if isinstance(self.options.x, Source) else None
        self._token = deque([None])
        self._stale = True
        second = (second,) if isinstance(second, Source) else tuple(second)
        for source in [sources] if isinstance(sources, Source) else sources:
            self.add(source, second=any(source is one for one in second))
        for source in second:
            self.add(source, second=True)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams that are drawn."""
        return tuple(trace.source for trace in self._traces)

    @property
    def labels(self) -> list[str]:
        """What the streams are called, in their order."""
        return label_streams(self._traces)

    @property
    def ended(self) -> bool:
        """Whether all streams have ended and all of their records are drawn."""
        return all(trace.ended for trace in self._traces) and not self._stale

    def add(self, source: Source, *, second: bool = False) -> None:
        """Draw another stream too; one that is drawn already is no error.

        Args:
            source: The stream.
            second: Read it on a second y axis, at the right.

        Raises:
            ViewError: Its values cannot share the view with those of the others.
        """
        if any(trace.source is source for trace in self._traces):
            return
        trace = SeriesBuffer(source, x=self.options.x if isinstance(self.options.x, str) else "step")
        trace.pull()
        choice_of((*self._traces, trace), self._wanted)
        if second:
            self._second = (*self._second, source)
        self._traces = (*self._traces, trace)
        self._stale = True

    def remove(self, source: Source) -> None:
        """Draw a stream no more; one that is not drawn is no error."""
        self._traces = tuple(trace for trace in self._traces if trace.source is not source)
        self._second = tuple(one for one in self._second if one is not source)
        self._stale = True

    def touch(self) -> None:
        """Let the next `pull` take the picture anew, whether something came or not."""
        self._stale = True

    def pull(self) -> bool:
        """Take what the streams have, and say whether the picture changed."""
        try:
            token = self._token.pop()
        except IndexError:
            return False
        try:
            stale, self._stale = self._stale, False
            traces = self._traces
            moved = self._x is not None and self._x.pull()
            if sum(trace.pull() for trace in traces) or stale or moved:
                self.scene = self.take()
                return True
            return False
        finally:
            self._token.append(token)

    def take(self, *, seen: Span | None = None, n_pixels: int = MAX_PIXELS) -> Scene:
        """Return the picture of what was pulled.

        Args:
            seen: What of x is in view: lines are thinned to it alone, so that nothing is lost in a close look.
            n_pixels: How wide it is.
        """
        drawn, choice, notices = shared(self._traces, self._wanted)
        if self._flat and choice and choice.view in ("xy", "scatter", "line3d") and "triple" in choice.kinds:
            notices.append(FLAT_NOTE)
        return scene_of(
            drawn,
            choice=choice,
            title=self._title,
            options=self.options,
            second=self._second,
            over=self._x,
            notices=notices,
            seen=seen,
            n_pixels=n_pixels,
        )


def choice_of(traces: Sequence[SeriesBuffer], view: str | None) -> Choice | None:
    """Choose the view of some streams, or `None` while none has a value. Errors as in `choose`."""
    known = [(t.form, label) for t, label in zip(traces, label_streams(traces), strict=True) if t.form is not None]
    return choose([form for form, _ in known], view=view, names=[label for _, label in known]) if known else None


def shared(traces: Sequence[SeriesBuffer], view: str | None) -> tuple[list[SeriesBuffer], Choice | None, list[str]]:
    """Return the streams that share a view, that view, and why the others are left out."""
    drawn: list[SeriesBuffer] = []
    choice: Choice | None = None
    notices = []
    for trace in traces:
        try:
            choice = choice_of([*drawn, trace], view) or choice
        except ViewError as error:
            notices.append(str(error))
            continue
        drawn.append(trace)
    return drawn, choice, notices
