"""Matplotlib's figures as pictures."""

from __future__ import annotations

import io
from typing import Any, Literal

from sightglass.core.values import Figure

MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}


def encode(figure: Any, *, format: Literal["png", "svg", "pdf"] = "png", dpi: float | None = None) -> Figure:
    """Draw a Matplotlib figure as a picture; the figure stays as it is, whatever backend it belongs to.

    Args:
        figure: A `matplotlib.figure.Figure`.
        format: The kind of picture.
        dpi: Dots an inch; by default the figure's own.
    """
    data = io.BytesIO()
    figure.savefig(data, format=format, dpi="figure" if dpi is None else dpi)
    return Figure(data.getvalue(), MEDIA_TYPES[format])
