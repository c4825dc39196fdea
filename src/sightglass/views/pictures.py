"""Matplotlib figures as encoded figures: PNG, SVG, PDF."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from sightglass.core.values import PLAIN, Figure, Value

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
    """Encode the Matplotlib figures among named values; other values are returned as they are."""
    from matplotlib.figure import Figure as MatplotlibFigure

    def encode_nested(value: Value) -> Any:
        if isinstance(value, MatplotlibFigure):
            return encode(value)
        if isinstance(value, Mapping):
            return {name: encode_nested(item) for name, item in value.items()}
        return type(value)(map(encode_nested, value)) if type(value) in (list, tuple) else value

    if not isinstance(data, Mapping) or {*map(type, data.values())} <= PLAIN:
        return data
    encoded: Mapping[str, Any] = encode_nested(data)
    return encoded
