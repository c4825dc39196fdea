"""Colours that are legible on dark and light backgrounds, also for colour-blind readers.

A program cannot find out a terminal's background. Each line colour therefore has a contrast of at least 3 (WCAG 2.1,
1.4.11) to both white and near-black. Colour never carries meaning alone: a label repeats it. The sequential scale is
viridis. The diverging scale is dark at zero: most entries of a weight matrix are near zero, and bright cells dazzle.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

LINES = ("#3f8fc4", "#dc6b4a", "#2f9e77", "#9a74c9", "#c08a1e", "#cf5f93", "#7f9440", "#7d8794")
AXIS = "#7d828c"
ALARM = "#e0506a"
NEGATIVE = LINES[1]

SEQUENTIAL = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
DIVERGING = ("#9fe3ee", "#4fb3d4", "#2f78b7", "#2b4478", "#1f1e24", "#6b2737", "#b8433b", "#e8804f", "#ffd19c")
MISSING = (224, 80, 170)

Rgb = npt.NDArray[np.uint8]


def line_color(index: int) -> str:
    """Return the colour of the n-th line; colours repeat after eight."""
    return LINES[index % len(LINES)]


def color_map(values: npt.ArrayLike, *, diverging: bool) -> Rgb:
    """Convert values from 0 to 1 to colours; NaN becomes `MISSING`.

    Args:
        values: Any shape.
        diverging: Whether 0.5 represents zero.

    Returns:
        The shape of the values, with a last dimension of 3.
    """
    stops = np.array([rgb(color) for color in (DIVERGING if diverging else SEQUENTIAL)], np.float64)
    data = np.asarray(values, np.float64)
    at = np.clip(np.nan_to_num(data), 0, 1) * (len(stops) - 1)
    channels = [np.interp(at, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    colors: Rgb = np.stack(channels, axis=-1).round().astype(np.uint8)
    colors[np.isnan(data)] = MISSING
    return colors


def rgb(color: str) -> tuple[int, int, int]:
    """Parse "#rrggbb"."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def hex_of(color: Iterable[int]) -> str:
    """Format three numbers from 0 to 255 as "#rrggbb"."""
    red, green, blue = (int(part) for part in color)
    return f"#{red:02x}{green:02x}{blue:02x}"
