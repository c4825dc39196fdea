"""How to draw streams: the options that all surfaces share, under the same names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import ViewError, unknown
from sightglass.core.source import Source

X_KINDS: Final = ("step", "relative", "wall", "index")
Over = Literal["latest", "ridge", "heat"]
OVER: Final[tuple[Over, ...]] = get_args(Over)

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to draw a view.

    Attributes:
        x: The x axis of lines: "step", "relative" (seconds since the stream's first record), "wall" (the time of day),
            "index" (the record's number), the name of another step track, or another stream of numbers, which is
            matched by step.
        smooth: The weight of the past in an exponential average over x, from 0 (none) to below 1, in W&B's unit: see
            `smoothing`. The same however many records a line has; the raw line stays visible, faintly.
        log_x: Whether x is logarithmic.
        log_y: Whether y is logarithmic.
        x_limits: The limits of x; by default those of the data.
        y_limits: The limits of y; by default those of the data.
        clip: Whether the limits of y leave out the most extreme 1 % at each end.
        frames: Whether to draw each record as one complete frame, with older frames fading.
        history: How many older frames to draw.
        over: How to draw distributions over steps: "latest" (only the last one), "ridge" (one behind the other) or
            "heat" (a map of counts); by default what suits the surface.
        last: How many of the newest points to draw; 0 draws all.
        dark: Whether the background is dark; by default as around the surface.
    """

    x: str | Source = "step"
    smooth: float = 0.0
    log_x: bool = False
    log_y: bool = False
    x_limits: Span | None = None
    y_limits: Span | None = None
    clip: bool = False
    frames: bool = False
    history: int = 10
    over: Over | None = None
    last: int = 0
    dark: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.x, str | Source) or not self.x:
            known = ", ".join(map(repr, X_KINDS))
            raise ViewError(f"Expected x as one of {known}, a step track's name, or a stream, got {self.x!r}")
        if not 0 <= self.smooth < 1:
            raise ViewError(f"Expected smooth of at least 0 and below 1, for example 0.9, got {self.smooth!r}")
        if self.over is not None and self.over not in OVER:
            raise ViewError(unknown("value of over", self.over, OVER))
        for name in ("history", "last"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise ViewError(f"Expected {name} as an integer of at least 0, got {getattr(self, name)!r}")
        for name in ("x_limits", "y_limits"):
            _check_limits(name, getattr(self, name), log=self.log_x if name == "x_limits" else self.log_y)


OPTION_NAMES: Final = tuple(field.name for field in fields(Options))


def options_of(given: Mapping[str, Any], *, surface: str, own: tuple[str, ...] = ()) -> Options:
    """Return the options that `plot` was called with.

    Args:
        given: The options by name.
        surface: The name of the surface, for the error.
        own: The names of the surface's own options.

    Raises:
        TypeError: A name is unknown.
        ViewError: A value is invalid.
    """
    for name in given:
        if name not in OPTION_NAMES:
            raise TypeError(unknown(f"option of the {surface} surface", name, (*OPTION_NAMES, *own)))
    return Options(**given)


def _check_limits(name: str, limits: object, *, log: bool) -> None:
    if limits is None:
        return
    if not isinstance(limits, tuple | list) or len(limits) != 2 or not all(map(_finite, limits)):
        raise ViewError(f"Expected {name} as two finite numbers, got {limits!r}")
    if limits[0] >= limits[1]:
        raise ViewError(f"Expected {name} as (low, high), got {limits!r}")
    if log and limits[0] <= 0:
        raise ViewError(f"Expected {name} above zero on a logarithmic axis, got {limits!r}")


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# Colours that are legible on dark and light backgrounds, also for colour-blind readers.
#
# A program cannot find out a terminal's background. Each line colour therefore has a contrast of at least 3 (WCAG 2.1,
# 1.4.11) to both white and near-black. Colour never carries meaning alone: a label repeats it. The sequential scale is
# viridis. The diverging scale is dark at zero: most entries of a weight matrix are near zero, and bright cells dazzle.

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
