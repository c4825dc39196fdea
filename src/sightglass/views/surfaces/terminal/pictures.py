"""Figures in a terminal: what they are, and a coarse picture of half blocks, whose animation plays in a live view.

Pillow reads the files; without it, or without colours, there are only the words. A figure of Plotly is words, too.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.text import Text

from sightglass.core import plotly_json
from sightglass.core.values import Figure
from sightglass.storage.format import png
from sightglass.views.options import AXIS
from sightglass.views.scales import number
from sightglass.views.scene import Scene
from sightglass.views.summaries import summary

from .blocks import half_blocks
from .canvas import Capabilities
from .charts import nothing_finite

MAX_FRAMES: Final = 200  # of an animation: decoding a frame takes some milliseconds
MAX_PIXELS: Final = 2**24  # of one frame: a picture of a run is not believed to be as small as its file
FRAME_MS: Final = 100  # of a frame that does not say how long it is shown
ANIMATED: Final = b"acTL"  # the chunk of an animated PNG that says so, which stands before its pixels
HEAD: Final = 1_024
MIN_ROWS: Final = 4  # of a picture in which one still sees something


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """The frames of a picture as a terminal shows them.

    Attributes:
        frames: Each of shape (2 * rows, columns, 3).
        ends_ms: When each ends, from the begin of the first.
    """

    frames: tuple[npt.NDArray[np.uint8], ...]
    ends_ms: tuple[int, ...]

    def place(self, at_ms: int) -> int:
        """Return the number of the frame that is shown at a time."""
        return int(np.searchsorted(self.ends_ms, at_ms % max(1, self.ends_ms[-1]), side="right")) % len(self.frames)


def paint_picture(scene: Scene, width: int, height: int, caps: Capabilities, at_ms: int = 0) -> list[Text]:
    """Paint the latest figures: their types, and as much of their pictures as the terminal can show.

    Args:
        scene: The scene.
        width: Columns.
        height: Rows.
        caps: What the terminal can show.
        at_ms: Which frame of an animation to show.
    """
    figures = [
        (item, item.record) for item in scene.items
        if item.record is not None and isinstance(item.record.value, Figure)
    ]  # fmt: skip
    if not figures:
        return nothing_finite(scene, height)
    rows: list[Text] = []
    room = (height - 1) // len(figures) - 1
    n_drawn = 0
    for item, record in figures:
        text = Text(no_wrap=True, end="").append(f"{caps.pick('▣', '#')} ", item.color).append(item.label, "bold")
        text.append(f"  {caps.plain(_about(record.value))}, at step {number(record.step)}", AXIS)
        text.truncate(width, overflow="ellipsis" if caps.unicode else "crop")
        rows.append(text)
        film = film_of(record.value, width, room) if caps.color and caps.unicode and room >= MIN_ROWS else None
        if film is not None:
            rows += half_blocks(film.frames[film.place(at_ms)])
            n_drawn += 1
    where = "open it in a notebook or the browser."
    told = f"A terminal shows figures coarsely; {where}" if n_drawn else f"A terminal cannot show figures; {where}"
    return [*rows, Text(told, AXIS, end="")]


def is_moving(scene: Scene) -> bool:
    """Return whether a figure is an animation, so that its picture changes although no record comes."""
    values = [item.record.value for item in scene.items if item.record is not None]
    return scene.view == "picture" and any(
        isinstance(value, Figure) and ANIMATED in value.data[:HEAD] for value in values
    )


@lru_cache(maxsize=16)  # of each figure one, for the size in which it is drawn
def film_of(figure: Figure, width: int, rows: int) -> Film | None:
    """Decode a picture in the size of a terminal; `None` if that is not possible.

    Args:
        figure: The file.
        width: Columns.
        rows: Rows, each two pixels high.
    """
    head = png.picture(figure.data)
    if head is None or not 0 < head.width * head.height <= MAX_PIXELS:
        return None
    try:
        from PIL import Image as Pillow
    except ImportError:
        return None
    share = min(width / head.width, 2 * rows / head.height)
    size = (max(1, int(head.width * share)), max(1, int(head.height * share)))
    frames: list[npt.NDArray[np.uint8]] = []
    times: list[int] = []
    try:
        with Pillow.open(io.BytesIO(figure.data)) as image:
            for i in range(min(getattr(image, "n_frames", 1), MAX_FRAMES)):
                image.seek(i)
                small = image.convert("RGBA").resize(size, Pillow.Resampling.BOX)
                frames.append(png.rgb(np.asarray(small)))
                times.append(int(image.info.get("duration", 0)) or FRAME_MS)
    except (OSError, ValueError, SyntaxError, EOFError):  # what Pillow raises for files that are damaged
        return None
    return Film(frames=tuple(frames), ends_ms=tuple(accumulate(times)))


def _about(figure: Figure) -> str:
    if figure.media_type == plotly_json.MEDIA_TYPE:
        return summary(figure)
    parts = (figure.media_type, png_size(figure.data), f"{len(figure.data) / 1000:,.1f} kB")
    return ", ".join(part for part in parts if part)


def png_size(data: bytes) -> str:
    """Read "width x height" from a PNG's header (RFC 2083, 11.2.2); "" for other files."""
    if not data.startswith(png.SIGNATURE) or len(data) < 24:
        return ""
    return "{} x {}".format(*struct.unpack(">II", data[16:24]))
