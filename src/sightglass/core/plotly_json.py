"""Plotly's figures as Plotly's own JSON, which loses nothing. Plotly itself is never imported."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from .values import Figure

MEDIA_TYPE: Final = "application/vnd.plotly.v1+json"
"""What Jupyter calls the JSON of a figure: the traces as `data`, the `layout`, and perhaps `frames`."""

MARKUP: Final = re.compile("<[^<>]*>")
MAX_NAMED: Final = 6  # traces that a summary names


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotlySummary:
    """What a Plotly figure says about itself.

    Attributes:
        title: Its title, without markup; empty if it has none.
        traces: The type of each trace, with its name.
        n_frames: The number of frames of its animation.
        width: How wide it asks to be, in pixels; `None` for as wide as its place.
        height: How high it asks to be.
    """

    title: str = ""
    traces: tuple[str, ...] = ()
    n_frames: int = 0
    width: int | None = None
    height: int | None = None

    def __str__(self) -> str:
        names = ", ".join(self.traces[:MAX_NAMED])
        more = f" and {len(self.traces) - MAX_NAMED:,} more traces" if len(self.traces) > MAX_NAMED else ""
        frames = f", {self.n_frames:,} frames" if self.n_frames else ""
        return ": ".join(part for part in (self.title, f"{names or 'no traces'}{more}{frames}") if part)


class _Trace(msgspec.Struct, frozen=True):
    type: Any = "scatter"
    name: Any = ""


class _Layout(msgspec.Struct, frozen=True):
    title: Any = ""
    width: Any = None
    height: Any = None


class _Json(msgspec.Struct, frozen=True):
    data: list[_Trace] = []
    layout: _Layout = _Layout()
    frames: list[msgspec.Raw] | None = None


def is_plotly(value: object) -> bool:
    """Return whether a value is a figure of Plotly; nobody has one who has not imported Plotly."""
    known = getattr(sys.modules.get("plotly.basedatatypes"), "BaseFigure", None)
    return known is not None and issubclass(type(value), known)


def as_figure(value: Any) -> Figure:
    """Return a figure of Plotly as its JSON."""
    return Figure(value.to_json().encode(), MEDIA_TYPE)


def summary_of(data: bytes) -> PlotlySummary | None:
    """Summarize the JSON of a figure, without reading its numbers; `None` if it is not such JSON."""
    try:
        read = msgspec.json.decode(data, type=_Json)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    title = read.layout.title.get("text") if isinstance(read.layout.title, dict) else read.layout.title
    return PlotlySummary(
        title=_plain(title),
        traces=tuple(" ".join(filter(None, (_plain(one.type), _plain(one.name)))) for one in read.data),
        n_frames=len(read.frames or ()),
        width=_pixels(read.layout.width),
        height=_pixels(read.layout.height),
    )


def _plain(text: object) -> str:
    return " ".join(MARKUP.sub(" ", text).split()) if isinstance(text, str) else ""


def _pixels(size: object) -> int | None:
    return round(size) if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 1e5 else None
