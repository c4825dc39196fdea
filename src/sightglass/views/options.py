"""How streams are drawn: the options that every surface understands, under one name each."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from sightglass.core.errors import ViewError, unknown
from sightglass.core.source import Source

X_KINDS: Final = ("step", "relative", "wall", "index")
Over = Literal["latest", "ridge", "heat"]
OVER: Final[tuple[Over, ...]] = get_args(Over)

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What can be chosen about a drawing, besides its view.

    Attributes:
        x: What a line stands over: "step", "relative" (seconds since the stream's first record), "wall" (the time of
            day), "index" (the record's number), the name of a further step track, or another stream of numbers, which
            is matched by step.
        smooth: The weight of the past in a debiased exponential average, from 0 (none) to below 1; the raw line stays
            behind it.
        log_x: Whether x is logarithmic.
        log_y: Whether y is logarithmic.
        x_limits: From where to where x is shown; by default what there is.
        y_limits: The same of y.
        clip: Whether the most extreme hundredth at each end is left out of the range of y.
        frames: Whether each record is one complete picture, with older ones fading behind it.
        history: How many older ones.
        over: How distributions stand over the steps: "latest" (that one alone), "ridge" (one behind the other) or
            "heat" (a map of counts); by default what suits the surface.
        last: Draw only so many of the newest points; 0 is all.
        dark: Whether the ground is dark; by default as the surface's surroundings are.
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
            raise ViewError(f"Expected x={'|'.join(X_KINDS)}, a step track's name, or a stream, got {self.x!r}")
        if not 0 <= self.smooth < 1:
            raise ViewError(f"Expected smooth from 0 to below 1, such as 0.9, got {self.smooth!r}")
        if self.over is not None and self.over not in OVER:
            raise ViewError(unknown("value of over", self.over, OVER))
        for name in ("history", "last"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise ViewError(f"Expected {name} as a count, got {getattr(self, name)!r}")
        for name in ("x_limits", "y_limits"):
            _check_limits(name, getattr(self, name), log=self.log_x if name == "x_limits" else self.log_y)


OPTION_NAMES: Final = tuple(field.name for field in fields(Options))


def options_of(given: dict[str, Any], *, surface: str, own: tuple[str, ...] = ()) -> Options:
    """Make options of what `plot` was called with.

    Args:
        given: By name.
        surface: Where it is drawn, for the message.
        own: What else this surface takes.

    Raises:
        TypeError: A name is unknown.
        ViewError: A value is out of bounds.
    """
    for name in given:
        if name not in OPTION_NAMES:
            raise TypeError(unknown(f"option of the {surface} surface", name, (*OPTION_NAMES, *own)))
    return Options(**given)


def _check_limits(name: str, limits: Any, *, log: bool) -> None:
    if limits is None:
        return
    if not isinstance(limits, tuple | list) or len(limits) != 2 or not all(map(_finite, limits)):
        raise ViewError(f"Expected {name} as two finite numbers, got {limits!r}")
    if limits[0] >= limits[1]:
        raise ViewError(f"Expected {name} as (low, high), got {limits!r}")
    if log and limits[0] <= 0:
        raise ViewError(f"Expected {name} above zero on a logarithmic axis, got {limits!r}")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
