"""The terminal surface: live charts in characters, drawn with rich.

Theory of operation
    Drawing has three steps: the stream set *pulls* what is new; from it a *scene* is taken, which never changes; a
    `TerminalDrawing` of the scene paints itself when rich prints it, for the width, the height, the encoding and the
    colours of that console. So one drawing can go to a terminal, a file and an SVG alike.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rich import get_console
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sightglass.core.source import Source
from sightglass.views.latest_values import log_axis_notices
from sightglass.views.live_view import LiveView
from sightglass.views.options import options_of
from sightglass.views.palette import ALARM, AXIS
from sightglass.views.scene import Scene
from sightglass.views.stream_set import StreamSet

from .blocks import paint_bars, paint_heatmap, paint_histogram, paint_images
from .canvas import Capabilities
from .charts import legend, nothing_finite, paint_lines, paint_path
from .live_display import REFRESHES_PER_SECOND, live_display_of
from .text_views import paint_log, paint_picture, paint_table

PLAIN_WIDTH = 80
HEIGHT = 20
MIN_HEIGHT = 5
MAX_NOTICES = 4

PAINTERS = {
    "line": paint_lines,
    "xy": paint_path,
    "scatter": paint_path,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalDrawing:
    """A scene that rich can print; it adapts to the console that prints it.

    Attributes:
        scene: What is drawn.
        height: In rows; fewer where the console has fewer.
    """

    scene: Scene
    height: int = HEIGHT

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Paint."""
        caps = Capabilities(
            unicode=not options.ascii_only and not options.legacy_windows,
            color=console.color_system is not None and not console.no_color,
        )
        yield Text("\n", no_wrap=True).join(self.rows(options.max_width, caps))

    def rows(self, width: int, caps: Capabilities) -> list[Text]:
        """Return the rows of the drawing."""
        scene = self.scene
        header = [_heading(scene, width, caps)]
        if len([series for series in scene.series if series.label]) > 1 or _says_more(scene):
            header += legend(scene.series, width, caps)
        elif scene.view in ("histogram", "heatmap") and len(scene.items) > 1:
            header.append(Text("   ", end="", no_wrap=True).join(Text(item.label, item.color) for item in scene.items))
        footer = _footer(scene, width, caps)
        # Where there is little room, notices give way to the picture, but never all of them.
        footer = footer[: max(self.height - len(header) - 6, 1)]
        room = max(self.height - len(header) - len(footer), 4)
        painter = PAINTERS[scene.view] if scene.view else None
        body = painter(scene, width, room, caps) if painter else nothing_finite(scene, room)
        rows = [*header, *body, *footer]
        return rows if caps.unicode else [_ascii(row) for row in rows]


class TerminalView(LiveView):
    """One drawing of one or more streams in the terminal.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        second: Which of the streams belong to a second y axis; a terminal has one, and says so.
        height: How many rows it takes; by default 20, or what the terminal has.
        console: Where it is drawn; standard output by default.
        **options: See `options.Options`.

    Raises:
        ViewError: The view is unknown, or the values that are there already cannot share one.
    """

    _poll_s = 1 / REFRESHES_PER_SECOND

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Iterable[Source] = (),
        height: int | None = None,
        console: Console | None = None,
        **options: Any,
    ) -> None:
        drawn = options_of(options, surface="terminal", own=("height", "console"))
        self._streams = StreamSet(sources, view=view, title=title, second=second, options=drawn, flat=True)
        self._height = height
        self._console = console or get_console()

    def __str__(self) -> str:
        console = Console(
            file=io.StringIO(), width=PLAIN_WIDTH, color_system=None, force_terminal=False, legacy_windows=False
        )
        with console.capture() as capture:
            console.print(self.render())
        return "\n".join(row.rstrip() for row in capture.get().rstrip().split("\n"))

    def pull(self) -> bool:
        """Take what the streams have, and say whether the drawing changed."""
        return self._streams.pull()

    def render(self) -> TerminalDrawing:
        """Return the drawing of what the streams hold by now."""
        self.pull()
        return self.draw(height=self._console.height)

    def draw(self, *, height: int) -> TerminalDrawing:
        """Return the last drawing again, for a number of rows at most."""
        return TerminalDrawing(scene=self._streams.scene, height=max(min(self._height or HEIGHT, height), MIN_HEIGHT))

    def start(self) -> TerminalView:
        """Begin to draw in the background, where there is a terminal; what is printed meanwhile stands above.

        Streams that have ended are drawn once.
        """
        self.pull()
        if self.sources and self.ended:
            self._console.print(self.render())
        elif self._console.is_terminal:
            live_display_of(self._console).enter(self)
        return self

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
        live_display_of(self._console).leave(self)

    def _is_pulled(self) -> bool:
        return self in live_display_of(self._console).views


def _says_more(scene: Scene) -> bool:
    named = [series.label for series in scene.series if series.label]
    return bool(named) and named != [scene.title]


def _heading(scene: Scene, width: int, caps: Capabilities) -> Text:
    """Return the title, the latest value where there is one line only, and at the right where we are."""
    text = Text(no_wrap=True, end="").append(scene.title, "bold")
    where = scene.subtitle if caps.unicode else scene.subtitle.replace("·", "-").encode("ascii", "replace").decode()
    named = [series for series in scene.series if series.label]
    if len(named) == 1 and not _says_more(scene):
        one = legend(named, width, caps)[0]
        text = one
    elif scene.view in ("images", "heatmap", "histogram", "bars") and len(scene.items) == 1 and scene.items[0].record:
        record = scene.items[0].record
        state = "open" if not record.closed else "partial" if not record.complete else ""
        text.append(f" ({state})" if state else "", AXIS)
    while where and text.cell_len + len(where) + 2 > width:
        # What is at hand goes first: the run, then the step. The values are what one came for.
        where = where.partition(" · " if caps.unicode else " - ")[2]
    room = width - len(where) - 2
    if room < 12:
        text.truncate(width, overflow="ellipsis" if caps.unicode else "crop")
        return text
    text.truncate(room, overflow="ellipsis" if caps.unicode else "crop")
    return text.append(" " * (width - text.cell_len - len(where))).append(where, AXIS)


def _footer(scene: Scene, width: int, caps: Capabilities) -> list[Text]:
    notices = [*scene.notices, *_axis_notices(scene)]
    rows = []
    for notice in notices[:MAX_NOTICES]:
        for i, line in enumerate(textwrap.wrap(notice, max(width - 2, 8), max_lines=3)):
            mark = caps.pick("▸ ", "> ") if i == 0 else "  "
            rows.append(Text(no_wrap=True, end="").append(mark, ALARM).append(line, AXIS))
    if len(notices) > MAX_NOTICES:
        rows.append(Text(f"  and {len(notices) - MAX_NOTICES} more", AXIS, no_wrap=True, end=""))
    return rows


def _ascii(row: Text) -> Text:
    """Return a row with a question mark for every character that an ASCII terminal cannot show."""
    row.plain = row.plain.encode("ascii", "replace").decode()
    return row


def _axis_notices(scene: Scene) -> list[str]:
    second = any(series.second for series in scene.series)
    return [*log_axis_notices(scene), *(["A terminal has one y axis: all lines are read on it"] if second else [])]
