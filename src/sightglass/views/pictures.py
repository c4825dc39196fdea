"""Figures of other libraries as ours: Matplotlib's as PNG, SVG or PDF, Plotly's as JSON."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from sightglass.core.guarded import FAILURES, MAX_DEPTH, LostValue, message, parts
from sightglass.core.plotly_json import as_figure, is_plotly
from sightglass.core.values import PLAIN, Figure, Image, Value

from .frames import as_png, is_pillow, pixels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}


def encode(
    figure: MatplotlibFigure, *, format: Literal["png", "svg", "pdf"] = "png", dpi: float | None = None
) -> Figure:
    """Render a Matplotlib figure to a file format, without changing the figure, on any backend.

    Args:
        figure: A `matplotlib.figure.Figure`.
        format: The file format.
        dpi: Dots per inch; by default the figure's.
    """
    data = io.BytesIO()
    figure.savefig(data, format=format, dpi="figure" if dpi is None else dpi)
    return Figure(data.getvalue(), MEDIA_TYPES[format])


def encode_figures(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Encode figures of Matplotlib and Plotly and Pillow's images among named values; others are returned as they are.

    A figure that cannot be drawn becomes a `LostValue`.
    """
    if type(data) is dict and {*map(type, data.values())} <= PLAIN:
        return data
    encoded: Mapping[str, Any] = _encoded(data, ())
    return encoded


def _encoded(value: Value, inside: tuple[int, ...]) -> Any:
    """Encode the figures in a value; what cannot be read is returned as it is."""
    try:
        if is_pillow(value):
            pixels = pixels_of(value)
            return Figure(as_png(value) or b"") if pixels is None else Image(pixels)
        if _is_figure(value):
            return encode(value)
        if is_plotly(value):
            return as_figure(value)
        if not (issubclass(type(value), Mapping) or type(value) in (list, tuple)):
            return value
        found = None if id(value) in inside or len(inside) >= MAX_DEPTH else parts(value)
        if found is None:
            return value
        pairs = list(found.pairs)
        encoded = [_encoded(item, (*inside, id(value))) for _, item in pairs]
        unchanged = all(new is old for new, (_, old) in zip(encoded, pairs, strict=True))
        return value if unchanged else found.build([key for key, _ in pairs], encoded)
    except FAILURES as error:
        is_ours = _is_figure(value) or is_pillow(value) or is_plotly(value)
        return LostValue(message(error)) if is_ours else value


def _is_figure(value: Value) -> bool:
    """Return whether a value is a Matplotlib figure; nobody has one who has not imported Matplotlib."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    return figure is not None and issubclass(type(value), figure)
