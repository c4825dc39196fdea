"""The terminal surface: live charts in characters, drawn with rich.

Theory of operation
    `TerminalView` has a trace for each of its sources. To draw is three steps: the traces *pull* what is new; from
    them a
    *scene* is taken, which never changes; a `Drawing` of the scene paints itself when rich prints it, for the width,
      the height, the encoding and the colours of that very console. So one drawing can go to a terminal, a file and
      an SVG alike.

    The view is chosen (`choose`) again whenever the forms of the values change. A stream that cannot share the view
    after all, because its first value came later, is left out and the drawing says so: misuse that is known at the
    call raises, what turns up later never stops a repaint.

    rich's refresh thread and the caller may pull at the same time, and no lock is to be had here: whoever holds the
    view's one token pulls, the other draws what was drawn last.
"""

from __future__ import annotations

import io
import textwrap
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich import get_console
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sightglass.core.errors import ViewError, unknown
from sightglass.core.sink import Source

from .blocks import paint_bars, paint_heatmap, paint_histogram, paint_images
from .canvas import Brush
from .charts import legend, nothing_finite, paint_lines, paint_path
from .choose import VIEWS, Choice, choose
from .pages import paint_log, paint_picture, paint_table
from .palette import ALARM, AXIS
from .scene import Scene, label_streams, scene_of
from .stage import REFRESHES_PER_SECOND, stage_of
from .trace import Trace

PLAIN_WIDTH = 80
HEIGHT = 20
MIN_HEIGHT = 5
MAX_NOTICES = 4

PAINTERS = {
    "line": paint_lines,
    "xy": paint_path,
    "annotated": paint_path,
    "line3d": paint_path,
    "bars": paint_bars,
    "histogram": paint_histogram,
    "heatmap": paint_heatmap,
    "images": paint_images,
    "picture": paint_picture,
    "log": paint_log,
    "table": paint_table,
}
FLAT_NOTE = "z is not drawn: this is the projection on x and y"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A scene that rich can print; it adapts to the console that prints it.

    Attributes:
        scene: What is drawn.
        height: In rows; fewer where the console has fewer.
    """

    scene: Scene
    height: int = HEIGHT

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Paint."""
        brush = Brush(
            unicode=not options.ascii_only and not options.legacy_windows,
            color=console.color_system is not None and not console.no_color,
        )
        yield Text("\n", no_wrap=True).join(self.rows(options.max_width, brush))

    def rows(self, width: int, brush: Brush) -> list[Text]:
        """Return the rows of the drawing."""
        scene = self.scene
        head = [_heading(scene, width, brush)]
        if len([series for series in scene.series if series.label]) > 1 or _says_more(scene):
            head += legend(scene.series, width, brush)
        elif scene.view in ("histogram", "heatmap") and len(scene.items) > 1:
            head.append(Text("   ", end="", no_wrap=True).join(Text(item.label, item.color) for item in scene.items))
        foot = _foot(scene, width, brush)
        # Where there is little room, notices give way to the picture, but never all of them.
        foot = foot[: max(self.height - len(head) - 6, 1)]
        room = max(self.height - len(head) - len(foot), 4)
        painter = PAINTERS[scene.view] if scene.view else None
        body = painter(scene, width, room, brush) if painter else nothing_finite(scene, room)
        rows = [*head, *body, *foot]
        return rows if brush.unicode else [_ascii(row) for row in rows]


class TerminalView:
    """One drawing of one or more streams in the terminal.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        height: How many rows it takes; by default 20, or what the terminal has.
        log_y: Whether a line chart's y axis is logarithmic.
        console: Where it is drawn; standard output by default.

    Raises:
        ViewError: The view is unknown, or the values that are there already cannot share one.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        height: int | None = None,
        log_y: bool = False,
        console: Console | None = None,
    ) -> None:
        if view is not None and view not in VIEWS:
            raise ViewError(unknown("view", view, VIEWS))
        self._wanted, self._title, self._height, self._log_y = view, title, height, log_y
        self._console = console or get_console()
        self._traces: tuple[Trace, ...] = ()
        self._token = deque([None])
        self._scene = Scene(view=None, title=title or "")
        self._stale = True
        for source in [sources] if isinstance(sources, Source) else sources:
            self.add(source)

    def __enter__(self) -> TerminalView:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        console = Console(
            file=io.StringIO(), width=PLAIN_WIDTH, color_system=None, force_terminal=False, legacy_windows=False
        )
        with console.capture() as capture:
            console.print(self.render())
        return "\n".join(row.rstrip() for row in capture.get().rstrip().split("\n"))

    def __repr__(self) -> str:
        return (
            f"<TerminalView of {', '.join(label_streams(self._traces)) or 'nothing'}: {self._scene.view or 'waiting'}>"
        )

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams that are drawn."""
        return tuple(trace.source for trace in self._traces)

    @property
    def ended(self) -> bool:
        """Whether all streams have ended and all of their records are drawn."""
        return all(trace.ended for trace in self._traces) and not self._stale

    def add(self, source: Source) -> None:
        """Draw another stream too.

        Raises:
            ViewError: Its values cannot share the view with those of the others.
        """
        if any(trace.source is source for trace in self._traces):
            return
        trace = Trace(source)
        trace.pull()
        self._choose((*self._traces, trace))
        self._traces = (*self._traces, trace)
        self._stale = True

    def remove(self, source: Source) -> None:
        """Draw a stream no more; one that is not drawn is no error."""
        self._traces = tuple(trace for trace in self._traces if trace.source is not source)
        self._stale = True

    def pull(self) -> bool:
        """Take what the streams have, and say whether the drawing changed."""
        try:
            token = self._token.pop()
        except IndexError:
            return False
        try:
            stale, self._stale = self._stale, False
            traces = self._traces
            if sum(trace.pull() for trace in traces) or stale:
                self._scene = self._take(traces)
                return True
            return False
        finally:
            self._token.append(token)

    def render(self) -> Drawing:
        """Return the drawing of what the streams hold by now."""
        self.pull()
        return self.draw(height=self._console.height)

    def draw(self, *, height: int) -> Drawing:
        """Return the last drawing again, for a number of rows at most."""
        return Drawing(scene=self._scene, height=max(min(self._height or HEIGHT, height), MIN_HEIGHT))

    def start(self) -> TerminalView:
        """Begin to draw in the background, where there is a terminal; what is printed meanwhile stands above.

        Streams that have ended are drawn once.
        """
        self.pull()
        if self._traces and self.ended:
            self._console.print(self.render())
        elif self._console.is_terminal:
            stage_of(self._console).enter(self)
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the streams have ended, and say whether they have."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.ended:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if self not in stage_of(self._console).views:
                self.pull()
            time.sleep(1 / REFRESHES_PER_SECOND)
        return True

    def show(self) -> None:
        """Draw until the streams end or Ctrl-C is pressed; without a terminal, once, at the end."""
        self.start()
        drawn = self.ended
        with suppress(KeyboardInterrupt):
            self.wait()
        if not self._console.is_terminal and not drawn:
            self._console.print(self.render())
        self.close()

    def close(self) -> None:
        """Stop drawing; the last drawing stays. Closing twice is no error."""
        self.pull()
        stage_of(self._console).leave(self)

    def _choose(self, traces: Sequence[Trace]) -> Choice | None:
        known = [(t, label) for t, label in zip(traces, label_streams(traces), strict=True) if t.form is not None]
        forms = [trace.form for trace, _ in known if trace.form is not None]
        return choose(forms, view=self._wanted, names=[label for _, label in known]) if forms else None

    def _take(self, traces: tuple[Trace, ...]) -> Scene:
        drawn: tuple[Trace, ...] = ()
        choice: Choice | None = None
        notices = []
        for trace in traces:
            try:
                choice = self._choose((*drawn, trace)) or choice
            except ViewError as error:
                notices.append(str(error))
                continue
            drawn = (*drawn, trace)
        if choice and choice.view in ("xy", "line3d") and "triple" in choice.kinds:
            notices.append(FLAT_NOTE)
        return scene_of(drawn, choice=choice, title=self._title, log_y=self._log_y, notices=notices)


def _says_more(scene: Scene) -> bool:
    named = [series.label for series in scene.series if series.label]
    return bool(named) and named != [scene.title]


def _heading(scene: Scene, width: int, brush: Brush) -> Text:
    """Return the title, the latest value where there is one line only, and at the right where we are."""
    text = Text(no_wrap=True, end="").append(scene.title, "bold")
    where = scene.where if brush.unicode else scene.where.replace("·", "-").encode("ascii", "replace").decode()
    named = [series for series in scene.series if series.label]
    if len(named) == 1 and not _says_more(scene):
        one = legend(named, width, brush)[0]
        text = one
    elif scene.view in ("images", "heatmap", "histogram", "bars") and len(scene.items) == 1 and scene.items[0].record:
        record = scene.items[0].record
        state = "open" if not record.closed else "partial" if not record.complete else ""
        text.append(f" ({state})" if state else "", AXIS)
    while where and text.cell_len + len(where) + 2 > width:
        # What is at hand goes first: the run, then the step. The values are what one came for.
        where = where.partition(" · " if brush.unicode else " - ")[2]
    room = width - len(where) - 2
    if room < 12:
        text.truncate(width, overflow="ellipsis" if brush.unicode else "crop")
        return text
    text.truncate(room, overflow="ellipsis" if brush.unicode else "crop")
    return text.append(" " * (width - text.cell_len - len(where))).append(where, AXIS)


def _foot(scene: Scene, width: int, brush: Brush) -> list[Text]:
    notices = [*scene.notices, *_axis_notices(scene)]
    rows = []
    for notice in notices[:MAX_NOTICES]:
        for i, line in enumerate(textwrap.wrap(notice, max(width - 2, 8), max_lines=3)):
            mark = brush.pick("▸ ", "> ") if i == 0 else "  "
            rows.append(Text(no_wrap=True, end="").append(mark, ALARM).append(line, AXIS))
    if len(notices) > MAX_NOTICES:
        rows.append(Text(f"  and {len(notices) - MAX_NOTICES} more", AXIS, no_wrap=True, end=""))
    return rows


def _ascii(row: Text) -> Text:
    """Return a row with a question mark for every character that an ASCII terminal cannot show."""
    row.plain = row.plain.encode("ascii", "replace").decode()
    return row


def _axis_notices(scene: Scene) -> list[str]:
    if not scene.log_y or scene.view not in ("line", "xy", "annotated", "line3d"):
        return []
    n_hidden = sum(int((series.y <= 0).sum()) for series in scene.series)
    return [f"{n_hidden:,} points are not above zero, so the log axis has no place for them"] if n_hidden else []
