"""Smoothing of lines: an exponential average of the line itself, whatever the density of its points.

The smoothed line at x is the mean of the line up to x, its points joined straight, with weights that fall by e over
each `scale` of x (Eckner, "Algorithms for Unevenly Spaced Time Series", 2019, `EMA_lin`). With a = Δx/scale between
two points, the weighted sum s becomes

    e⁻ᵃ·s + (1 − e⁻ᵃ − q)·y₀ + q·y₁,    q = 1 − (1 − e⁻ᵃ)/a,

and is divided by the sum of the weights, 1 − e^(−(x − x₀)/scale), so that the first points are not biased towards
zero (Kingma & Ba, "Adam", ICLR 2015, section 3). A point that lies on the line therefore changes nothing, and a stream
with a record every 20 steps is smoothed as one with a record each step. The unit is that of W&B's time-weighted
average: each thousandth of the visible x axis weighs the past by the square root of `weight`.

A thinned line has its extremes left, whose average is not that of the line. Where points were thinned, the mean of the
line between two points is given (`core.buckets.line_means`), and the line counts as that mean there.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

N_UNITS: Final = 1000.0  # of the x axis; W&B's
SMALL: Final = 1e-4  # below, 1 − (1 − e⁻ᵃ)/a cancels: its series is exact to 1e-14 there
MAX_EXPONENT: Final = 256.0  # of one block: e^256 is far from overflow

Floats = npt.NDArray[np.float64]


def smooth(
    x: npt.ArrayLike, y: npt.ArrayLike, weight: float, *, extent: float, means: npt.ArrayLike | None = None
) -> Floats:
    """Smooth a line. Points that are not finite stay as they are, and do not affect other points.

    Args:
        x: Shape (n,), in any order.
        y: Shape (n,).
        weight: From 0 (y itself) to below 1.
        extent: The length of the visible x axis, which all lines of a chart share.
        means: Shape (n,): the mean of the line between each point and the one before; NaN, or `None` for all,
            where they are joined straight.

    >>> smooth([0, 1, 2, 3], [4.0, 0.0, float("nan"), 0.0], 0.99, extent=3.0).round(3).tolist()
    [4.0, 1.466, nan, 0.042]
    """
    xs, out = np.asarray(x, np.float64), np.array(y, np.float64)
    if not (weight > 0 and 0 < extent < math.inf):
        return out
    known = np.flatnonzero(np.isfinite(xs) & np.isfinite(out))
    if len(known) > 1:
        order = np.argsort(xs[known], kind="stable")
        known = known[order]
        # A mean is that between neighbours in the order of the stream.
        between = None if means is None or (np.diff(order) < 0).any() else np.asarray(means, np.float64)[known]
        out[known] = _smooth(xs[known], out[known], between, -0.5 * math.log(weight) * N_UNITS / extent)
    return out


def _smooth(x: Floats, y: Floats, means: Floats | None, rate: float) -> Floats:
    a = np.diff(x) * rate
    lost = -np.expm1(-a)
    with np.errstate(divide="ignore", invalid="ignore"):
        new = np.where(a > SMALL, 1 - lost / a, a / 2 - a * a / 6 + a * a * a / 24)
    size = float(np.abs(y).max()) or 1.0  # so that no product overflows
    added = np.concatenate([[0.0], (lost - new) * (y[:-1] / size) + new * (y[1:] / size)])
    if means is not None:
        thinned = np.flatnonzero(np.isfinite(means[1:]))
        added[1 + thinned] = lost[thinned] * (means[1 + thinned] / size)
    at = np.concatenate([[0.0], np.cumsum(a)])
    sums = np.empty_like(y)
    # The recursion in closed form: e^(-at) times the sum of added · e^(at), in blocks within which e^(at) is finite.
    starts = np.flatnonzero(np.diff(at // MAX_EXPONENT, prepend=-1.0))
    last, last_at = 0.0, 0.0
    for start, end in zip(starts, [*starts[1:], len(at)], strict=True):
        inside = at[start:end] - at[start]
        carried = last * math.exp(last_at - at[start])
        sums[start:end] = np.exp(-inside) * (carried + np.cumsum(added[start:end] * np.exp(inside)))
        last, last_at = float(sums[end - 1]), float(at[end - 1])
    mass = -np.expm1(-at)
    return np.where(mass > 0, size * (sums / np.where(mass > 0, mass, 1.0)), y)
