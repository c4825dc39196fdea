"""The terminal surface: live charts in characters, drawn with rich.

Theory of operation
    Drawing has three steps: the stream set *pulls* new records and takes an immutable *scene* of them; a
    `TerminalDrawing` of the scene paints itself when rich prints it, for the width, height, encoding and colours of
    that console. The same drawing can be printed to a terminal, a file and an SVG.
"""

from __future__ import annotations

import io
import textwrap
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rich import get_console
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sightglass.core.source import Source
from sightglass.views.latest_values import log_axis_notices
from sightglass.views.live_view import View
from sightglass.views.options import ALARM, AXIS, options_of
from sightglass.views.scene import Scene, record_state
from sightglass.views.stream_set import StreamSet

from .blocks import paint_bars, paint_heatmap, paint_histogram, paint_images, paint_log, paint_table
from .canvas import Capabilities
from .charts import legend, nothing_finite, paint_lines, paint_path
from .live_display import REFRESHES_PER_SECOND, live_display_of
from .pictures import is_moving, paint_picture

PLAIN_WIDTH = 80
HEIGHT = 20  # leaves room for a prompt and some output in a terminal of 24 rows
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
    "sounds": paint_log,
    "sheet": paint_table,
    "log": paint_log,
    "table": paint_table,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalDrawing:
    """A scene as a rich renderable, which adapts to the console that prints it.

    Attributes:
        scene: The scene.
        height: The height in rows; fewer if the console has fewer.
        at_ms: Which frame of an animation to show.
    """

    scene: Scene
    height: int = HEIGHT
    at_ms: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Paint the scene."""
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
        # If there is little room, show fewer notices, but at least one.
        footer = footer[: max(self.height - len(header) - 6, 1)]
        room = max(self.height - len(header) - len(footer), 4)
        painter = PAINTERS[scene.view] if scene.view else None
        if painter is paint_picture:
            painter = partial(paint_picture, at_ms=self.at_ms)
        body = painter(scene, width, room, caps) if painter else nothing_finite(scene, room)
        rows = [*header, *body, *footer]
        return rows if caps.unicode else [_ascii(row) for row in rows]


class TerminalView(View):
    """One drawing of one or more streams in the terminal.

    Args:
        sources: The streams.
        view: The view to use, one of `choose.VIEWS`; by default the one that suits the values.
        title: The title; by default the streams' tags.
        second: The streams for a second y axis; a terminal has only one, and a notice says so.
        height: The height in rows; by default 20, or the terminal's height if smaller.
        console: The console to draw on; by default standard output.
        **options: See `options.Options`.

    Raises:
        ViewError: The view is unknown, or the values that exist already cannot share one.
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
        **options: object,
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
        """Pull new records, and return whether the drawing changed."""
        return self._streams.pull() or is_moving(self._streams.scene)

    def render(self) -> TerminalDrawing:
        """Pull, and return the drawing."""
        self.pull()
        return self.draw(height=self._console.height)

    def draw(self, *, height: int) -> TerminalDrawing:
        """Return the last drawing again, at most `height` rows high."""
        rows = max(min(self._height or HEIGHT, height), MIN_HEIGHT)
        at_ms = 0 if self.ended else int(time.monotonic() * 1000)
        return TerminalDrawing(scene=self._streams.scene, height=rows, at_ms=at_ms)

    def start(self) -> TerminalView:
        """Draw in the background if there is a terminal. Text that is printed meanwhile appears above the drawing.

        If all streams have ended, draw once.
        """
        self.pull()
        if self.sources and self.ended:
            self._console.print(self.render())
        elif self._console.is_terminal:
            live_display_of(self._console).enter(self)
        return self

    def show(self) -> None:
        """Draw until the streams end or Ctrl-C is pressed; without a terminal, draw once at the end."""
        self.start()
        drawn = self.ended
        with suppress(KeyboardInterrupt):
            self.wait()
        if not self._console.is_terminal and not drawn:
            self._console.print(self.render())
        self.close()

    def close(self) -> None:
        """Stop drawing. The last drawing stays. Closing twice is allowed."""
        self.pull()
        live_display_of(self._console).leave(self)

    def _is_pulled(self) -> bool:
        return self in live_display_of(self._console).views


def _says_more(scene: Scene) -> bool:
    named = [series.label for series in scene.series if series.label]
    return bool(named) and named != [scene.title]


def _heading(scene: Scene, width: int, caps: Capabilities) -> Text:
    """Return the title, the latest value if there is only one line, and the subtitle at the right."""
    text = Text(no_wrap=True, end="").append(scene.title, "bold")
    subtitle = scene.subtitle
    if not caps.unicode:
        subtitle = subtitle.replace("·", "-").encode("ascii", "replace").decode()
    named = [series for series in scene.series if series.label]
    if len(named) == 1 and not _says_more(scene):
        one = legend(named, width, caps)[0]
        text = one
    elif scene.view in ("images", "heatmap", "histogram", "bars") and len(scene.items) == 1 and scene.items[0].record:
        record = scene.items[0].record
        state = record_state(record)
        text.append(f" ({state})" if state else "", AXIS)
    while subtitle and text.cell_len + len(subtitle) + 2 > width:
        # If space is short, drop the run first, then the step: the values matter most.
        subtitle = subtitle.partition(" · " if caps.unicode else " - ")[2]
    room = width - len(subtitle) - 2
    if room < 12:
        text.truncate(width, overflow="ellipsis" if caps.unicode else "crop")
        return text
    text.truncate(room, overflow="ellipsis" if caps.unicode else "crop")
    return text.append(" " * (width - text.cell_len - len(subtitle))).append(subtitle, AXIS)


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
    """Replace characters that an ASCII terminal cannot show by question marks."""
    row.plain = row.plain.encode("ascii", "replace").decode()
    return row


def _axis_notices(scene: Scene) -> list[str]:
    second = any(series.second for series in scene.series)
    return [*log_axis_notices(scene), *(["A terminal has one y axis: all lines share it"] if second else [])]
