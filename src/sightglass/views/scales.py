"""Axes: limits, ticks at round numbers, and numbers formatted for people.

Ticks are at 1, 2 or 5 times a power of ten (Heckbert, "Nice Numbers for Graph Labels", Graphics Gems, 1990). The limits
are those of the data, not of the ticks: room is scarce in a terminal, and the largest value belongs in the top row.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
import numpy.typing as npt

SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MAX_TICK_DECIMALS = 8
# Below this, powers of ten lose digits: logarithmic axes start here.
MIN_LOG = 1e-300

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its limits and its scale.

    Attributes:
        low: The smallest value shown.
        high: The largest value shown; greater than `low`.
        log: Whether the axis is logarithmic; `low` is then positive.
    """

    low: float
    high: float
    log: bool = False

    def to_pixels(self, values: npt.ArrayLike, n_pixels: int) -> Floats:
        """Return the positions of values, from 0 to `n_pixels` - 1; NaN for values the axis cannot show."""
        data = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                data = np.where(data >= min(MIN_LOG, low), np.log10(np.where(data > 0, data, 1.0)), np.nan)
            low, high = math.log10(low), math.log10(high)
        # Halves, because the difference of two large numbers can overflow.
        share: Floats = (data / 2 - low / 2) / (high / 2 - low / 2)
        return share * (n_pixels - 1)

    def ticks(self, n_max: int) -> list[tuple[float, str]]:
        """Return about `n_max` round values within the limits, at most, with their labels."""
        values = self._log_ticks(n_max) if self.log else []
        if len(values) >= 2:
            return [(value, number(value)) for value in values]
        step = nice_step(self.high / 2 - self.low / 2, max(n_max, 1) / 2)
        if not math.isfinite(step) or step <= 0:
            return [(self.low, number(self.low)), (self.high, number(self.high))]
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [value for i in range(first, last + 1) if (value := i * step) > 0 or not self.log]
        return list(zip(values, tick_labels(values, step), strict=True))

    def _log_ticks(self, n_max: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        decades = [10.0**k for k in range(first, last + 1)]
        if len(decades) > n_max:
            return decades[:: -(-len(decades) // max(n_max, 1))]
        finer = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        finer = [value for value in finer if self.low * (1 - 1e-9) <= value <= self.high]
        return finer if len(finer) <= n_max else decades


def axis_of(
    columns: Iterable[npt.ArrayLike],
    *,
    log: bool = False,
    zero: bool = False,
    clip: bool = False,
    limits: tuple[float, float] | None = None,
) -> Axis | None:
    """Return the axis that shows all finite values of some columns; `None` if there are none.

    Args:
        columns: Arrays of one dimension.
        log: Whether the axis is logarithmic; only positive values count then.
        zero: Whether to include zero.
        clip: Leave out the most extreme 1 % at each end, if there are more than 20 values.
        limits: The limits to use, whatever the values are.
    """
    if limits is not None:
        return Axis(low=limits[0], high=limits[1], log=log)
    lows, highs, most = [], [], sys.float_info.max
    for column in columns:
        data = np.asarray(column, np.float64)
        data = data[np.isfinite(data) & (data >= MIN_LOG)] if log else data[np.isfinite(data)]
        if clip and len(data) > 20:
            data = np.quantile(data, (0.01, 0.99))
        if len(data):
            lows.append(float(data.min()))
            highs.append(float(data.max()))
    if not lows:
        return None
    low, high = min(lows), max(highs)
    if zero and not log:
        low, high = min(low, 0.0), max(high, 0.0)
    if high / 2 - low / 2 > 1e-12 * max(abs(low), abs(high)):
        return Axis(low=low, high=high, log=log)
    if log:
        return Axis(low=low / 2, high=min(high * 2, sys.float_info.max), log=True)
    room = abs(low) * 0.1 or 1.0
    return Axis(low=max(low - room, -most), high=min(high + room, most))


def nice_step(span: float, n: float) -> float:
    """Return the smallest of 1, 2, 5 · 10ᵏ that divides a span into at most `n` intervals."""
    rough = span / max(n, 1e-9)
    if not math.isfinite(rough) or rough <= 0:
        return math.inf
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 5) if m * power >= rough * (1 - 1e-9)), 10 * power)


def tick_labels(values: Sequence[float], step: float) -> list[str]:
    """Format ticks with common decimals and a common suffix, no more digits than needed to distinguish them."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest >= 1e15 or (largest < 1e-2 and step < 1e-3):
        return [_exponent(value, step) for value in values]
    scale, suffix = next(((s, t) for s, t in SUFFIXES if largest >= 10 * s or (largest >= s > 1e3)), (1.0, ""))
    decimals = min(max(0, -math.floor(math.log10(step / scale) + 1e-9)), MAX_TICK_DECIMALS)
    return [f"{value / scale + 0.0:.{decimals}f}{suffix if value else ''}" for value in values]


def number(value: SupportsFloat, *, digits: int = 4) -> str:
    """Format a number for people.

    >>> number(0.123456), number(1234567), number(0.00001234), number(12), number(float("nan"))
    ('0.1235', '1,234,567', '1.234e-5', '12', 'NaN')
    """
    x = float(value)
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "+Inf" if x > 0 else "-Inf"
    if x == int(x) and abs(x) < 1e9:
        return f"{int(x):,}"
    if abs(x) >= 1e6 or abs(x) < 1e-3:
        return _short(f"{x:.{digits - 1}e}")
    return f"{x:.{digits}g}" if abs(x) < 1000 else f"{x:,.1f}"


def _exponent(value: float, step: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, math.floor(math.log10(abs(value)) + 1e-9) - math.floor(math.log10(step) + 1e-9))
    return _short(f"{value:.{min(decimals, MAX_TICK_DECIMALS)}e}")


def _short(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"
