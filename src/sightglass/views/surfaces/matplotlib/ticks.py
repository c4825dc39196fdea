"""Ticks at the same values as on the other surfaces, with the same labels."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axis import Axis as MatplotlibAxis
from matplotlib.ticker import FixedFormatter, FixedLocator, Formatter, Locator, LogLocator, NullFormatter

from sightglass.views.scales import Axis, number, tick_labels

from .style import plain, shorten

MAX_TICKS: Final = 9  # more are clutter, however long the axis
# Beyond this the span of an axis overflows.
MOST: Final = sys.float_info.max / 16
MAX_CATEGORIES: Final = 40  # as above, for names
DAY_S: Final = 86400.0
TIME_STEPS: Final = (
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0,
    43200.0, DAY_S, 2 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S, 365 * DAY_S,
)  # fmt: skip


class NumberLocator(Locator):  # type: ignore[misc,unused-ignore]
    """Ticks at 1, 2 or 5 times a power of ten."""

    def __init__(self, *, log: bool = False, n_max: int | None = None) -> None:
        self._log, self._n_max = log, n_max

    @property
    def _room(self) -> int:
        """The number of labels that fit."""
        axis: Any = self.axis
        return max(2, min(MAX_TICKS, int(axis.get_tick_space() * 0.75)))

    def __call__(self) -> Sequence[float]:
        """Return the ticks within the view limits."""
        axis: Any = self.axis
        return self.tick_values(*axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks between two values."""
        low, high = sorted((float(vmin), float(vmax)))
        if not (math.isfinite(low) and math.isfinite(high)) or low == high or (self._log and low <= 0):
            return []
        n_max = self._n_max or self._room
        return [value for value, _ in Axis(low=low, high=high, log=self._log).ticks(n_max)]


class TimeLocator(NumberLocator):
    """Ticks at round times of day, in the local time zone."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks between two times, in seconds since the Unix epoch."""
        low, high = sorted((float(vmin), float(vmax)))
        n_max = max(2, self._room * 4 // 5)
        if not (math.isfinite(low) and math.isfinite(high)) or high - low < n_max:
            return super().tick_values(low, high)
        step = next((step for step in TIME_STEPS if (high - low) / step <= n_max), (high - low) / n_max)
        # Whole hours and days in local time, not in UTC.
        ahead = _ahead_of_utc(low)
        first, last = math.ceil((low + ahead) / step), math.floor((high + ahead) / step)
        return [i * step - ahead for i in range(first, last + 1)]


class NumberFormatter(Formatter):  # type: ignore[misc,unused-ignore]
    """Numbers as on the other surfaces: with as few decimals as distinguish the ticks."""

    def __init__(self, *, log: bool = False) -> None:
        self._log = log

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Format one value."""
        return number(x)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Format all ticks alike."""
        if self._log or len(values) < 2:
            return [number(value) for value in values]
        steps = [abs(b - a) for a, b in itertools.pairwise(values)]
        return tick_labels([float(value) for value in values], min(filter(None, steps), default=1.0))


class TimeFormatter(Formatter):  # type: ignore[misc,unused-ignore]
    """Times of day, with the date if days differ."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Format one value."""
        return _moment(x, "%Y-%m-%d %H:%M:%S.%f")[:-3]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Format all ticks alike."""
        if len(values) < 2:
            return [_moment(value, "%H:%M:%S") for value in values]
        step = min(b - a for a, b in itertools.pairwise(values))
        if step >= DAY_S - 1:
            return [_moment(value, "%b %d" if step < 300 * DAY_S else "%Y") for value in values]
        form = "%H:%M:%S.%f" if step < 1 else "%H:%M:%S" if step < 60 else "%H:%M"
        labels = [_moment(value, form) for value in values]
        if step < 1:
            labels = [label[:-3] for label in labels]
        if _moment(values[0], "%x") != _moment(values[-1], "%x"):
            labels = [f"{_moment(value, '%b %d')} {label}" for value, label in zip(values, labels, strict=True)]
        return labels


def bounded(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Clip numbers to the range that an axis can show; NaN stays."""
    return np.clip(np.asarray(values, np.float64), -MOST, MOST)


def ends_of(axis: Axis | None) -> tuple[float, float]:
    """Return the limits of an axis, clipped to what Matplotlib can show; (0, 1) for `None`."""
    if axis is None:
        return 0.0, 1.0
    low, high = bounded([axis.low, axis.high]).tolist()
    return (low, high) if high > low else (low, low + (abs(low) * 1e-9 or 1e-300))


def set_ticks(axis: MatplotlibAxis, *, log: bool = False, clock: bool = False) -> None:
    """Set the ticks of an axis as on the other surfaces.

    Args:
        axis: A Matplotlib axis.
        log: Whether it is logarithmic.
        clock: Whether its values are seconds since the Unix epoch.
    """
    axis.set_major_locator(TimeLocator() if clock else NumberLocator(log=log))
    axis.set_major_formatter(TimeFormatter() if clock else NumberFormatter(log=log))
    if log:
        axis.set_minor_locator(LogLocator(subs="auto", numticks=12))
        axis.set_minor_formatter(NullFormatter())


def set_categories(axis: MatplotlibAxis, categories: Sequence[str], *, room_in: float) -> bool:
    """Label an axis with category names at 0, 1, 2 …, as many as fit, and return whether the labels are rotated.

    Args:
        axis: A Matplotlib axis.
        categories: The names.
        room_in: The length of the axis, in inches.
    """
    longest = min(max(map(len, categories), default=1), 16)
    turned = len(categories) * (longest * 0.08 + 0.08) > room_in and not all(name.isdecimal() for name in categories)
    n_max = max(1, min(MAX_CATEGORIES, int(room_in / (0.2 if turned else longest * 0.08 + 0.1))))
    every = -(-len(categories) // n_max)
    at = range(0, len(categories), max(every, 1))
    axis.set_major_locator(FixedLocator(list(at)))
    axis.set_major_formatter(FixedFormatter([plain(shorten(categories[i], 16)) for i in at]))
    axis.set_tick_params(rotation=35 if turned else 0)
    for tick in axis.get_major_ticks(len(at)):
        for label in (tick.label1, tick.label2):
            label.set_parse_math(False)
            label.set_horizontalalignment("right" if turned else "center")
            label.set_rotation_mode("anchor" if turned else "default")
    return turned


def _moment(seconds: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):  # outside the range of `datetime`
        return number(seconds)


def _ahead_of_utc(seconds: float) -> float:
    try:
        return float(time.localtime(seconds).tm_gmtoff)
    except (ValueError, OverflowError, OSError):
        return 0.0
