"""The streams of one view, and the scene that the surfaces drawn in Python paint.

Theory of operation
    A stream set has one `SeriesBuffer` per source. The drawing thread calls `pull`, which reads new records and returns
    whether anything changed, and then reads `scene`, which is immutable: one thread may pull while another draws.

    The view is chosen (`choose`) again whenever the forms of the values change. A stream whose first value turns out
    not to fit the view is left out, and the scene says why: misuse that is known at the call raises, a later surprise
    never stops a repaint.

    A source that is made of those of single runs (`core.source.members_of`) is drawn as these, run by run; those that
    come later are added at the next pull.

    Several threads may call `pull` at the same time. One of them pulls; the others return at once and draw the last
    scene.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from sightglass.core.errors import ViewError, unknown
from sightglass.core.process.unpatched import threading
from sightglass.core.source import Source, members_of

from .choose import VIEWS, Choice, ViewName, choose
from .labels import label_streams
from .options import Options, Span
from .scene import MAX_PIXELS, Scene, scene_of
from .series_buffer import SeriesBuffer

FLAT_NOTE = "z is not drawn: this is the projection onto x and y"

Buffer = TypeVar("Buffer", bound=SeriesBuffer)


class StreamSet:
    """The streams of one view.

    Args:
        sources: The streams.
        view: The view to use, one of `choose.VIEWS`; by default the one that suits the values.
        title: The title; by default the streams' tags.
        second: The sources to draw against a second y axis.
        options: How to draw.
        flat: Whether the surface has no third dimension. A note then tells the reader so.

    Attributes:
        options: How to draw.
        view: The view of the last pull; `None` before the first value.
        scene: What to draw since the last pull.

    Raises:
        ViewError: The view is unknown, or the values that exist already cannot share one.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Source | Iterable[Source] = (),
        options: Options | None = None,
        flat: bool = False,
    ) -> None:
        if view is not None and view not in VIEWS:
            raise ViewError(unknown("view", view, VIEWS))
        self.options = options or Options()
        self.view: ViewName | None = None
        self.scene = Scene(view=None, title=title or "", options=self.options)
        self._wanted, self._title, self._flat = view, title, flat
        self._buffers: tuple[SeriesBuffer, ...] = ()
        self._second: tuple[Source, ...] = ()
        self._unions: tuple[Source, ...] = ()
        self._lock = threading.Lock()
        self._stale = True
        second = (second,) if isinstance(second, Source) else tuple(second)
        for source in [sources] if isinstance(sources, Source) else sources:
            self.add(source, second=any(source is one for one in second))
        for source in second:
            self.add(source, second=True)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams of the view."""
        return tuple(buffer.source for buffer in self._buffers)

    @property
    def labels(self) -> list[str]:
        """The streams' names in the legend, in their order."""
        return label_streams(self._buffers)

    @property
    def ended(self) -> bool:
        """Whether all streams have ended and all their records are drawn."""
        sources = (*(union.ended for union in self._unions), *(buffer.ended for buffer in self._buffers))
        return all(sources) and not self._stale

    def add(self, source: Source, *, second: bool = False) -> None:
        """Draw another stream too. A stream that is drawn already is ignored.

        Args:
            source: The stream.
            second: Draw it against a second y axis, on the right.

        Raises:
            ViewError: Its values cannot share the view with those of the others.
        """
        with self._lock:
            if any(drawn is source for drawn in (*self._unions, *self.sources)):
                return
            if members_of(source) is not None:
                self._unions = (*self._unions, source)
                self._second = (*self._second, source) if second else self._second
                self._stale = True
                return
            buffer = self._buffer_of(source)
            buffer.pull()
            choice_of((*self._buffers, buffer), self._wanted)
            if second:
                self._second = (*self._second, source)
            self._buffers = (*self._buffers, buffer)
            self._stale = True

    def remove(self, source: Source) -> None:
        """Stop drawing a stream. A stream that is not drawn is ignored."""
        gone = (source, *(members_of(source) or ()))
        with self._lock:
            self._unions = tuple(one for one in self._unions if one is not source)
            self._buffers = tuple(one for one in self._buffers if not any(one.source is each for each in gone))
            self._second = tuple(one for one in self._second if not any(one is each for each in gone))
            self._stale = True

    def pull(self, *, wait: bool = False) -> bool:
        """Read new records, and return whether the drawing changed.

        Args:
            wait: Wait while another thread pulls; by default return `False` at once.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            stale, self._stale = self._take_members() or self._stale, False
            # `sum`, not `any`: every buffer pulls, even after one has changed.
            if sum(buffer.pull() for buffer in self._buffers) or stale:
                self._stale = True  # until it is updated, should that fail
                self._update()
                self._stale = False
                return True
            return False
        finally:
            self._lock.release()

    def take(self, *, visible_x: Span | None = None, n_pixels: int = MAX_PIXELS) -> Scene:
        """Return the scene of the records pulled so far.

        Args:
            visible_x: The limits of x in view. Lines are thinned within these limits only, so zooming in loses nothing.
            n_pixels: The width of the drawing.
        """
        drawn, choice, notices = shared(self._buffers, self._wanted)
        if self._flat and choice and choice.view in ("xy", "scatter", "line3d") and "triple" in choice.kinds:
            notices.append(FLAT_NOTE)
        return scene_of(
            drawn,
            choice=choice,
            title=self._heading,
            options=self.options,
            second=self._second,
            notices=notices,
            visible_x=visible_x,
            n_pixels=n_pixels,
        )

    def _take_members(self) -> bool:
        """Draw the members of unions that are new, too; return whether there are any."""
        drawn = {id(source) for source in self.sources}
        new = [(one, union) for union in self._unions for one in members_of(union) or () if id(one) not in drawn]
        if new:  # one whose values do not fit is left out with a notice
            self._buffers = (*self._buffers, *(self._buffer_of(one) for one, _ in new))
            self._second = (*self._second, *(one for one, union in new if any(union is each for each in self._second)))
        return bool(new)

    @property
    def _heading(self) -> str | None:
        """The title; that of unions is their names, and not those of all members."""
        if self._title is not None or not self._unions:
            return self._title
        others = [buffer.source for buffer in self._buffers]
        members = {id(one) for union in self._unions for one in members_of(union) or ()}
        return ", ".join(one.tag for one in (*self._unions, *others) if id(one) not in members)

    def _buffer_of(self, source: Source) -> SeriesBuffer:
        return SeriesBuffer(source, x=self.options.x)

    def _update(self) -> None:
        """Take what to draw, after something changed."""
        self.scene = self.take()
        self.view = self.scene.view


def choice_of(buffers: Sequence[SeriesBuffer], view: str | None) -> Choice | None:
    """Choose the view of some streams; `None` while none has a value. Raises as `choose` does."""
    known = [(b.form, label) for b, label in zip(buffers, label_streams(buffers), strict=True) if b.form is not None]
    return choose([form for form, _ in known], view=view, names=[label for _, label in known]) if known else None


def shared(buffers: Sequence[Buffer], view: str | None) -> tuple[list[Buffer], Choice | None, list[str]]:
    """Return the streams that share a view, that view, and the reasons why the others are left out."""
    drawn: list[Buffer] = []
    choice: Choice | None = None
    notices = []
    for buffer in buffers:
        try:
            choice = choice_of([*drawn, buffer], view) or choice
        except ViewError as error:
            notices.append(str(error))
            continue
        drawn.append(buffer)
    return drawn, choice, notices
