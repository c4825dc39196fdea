"""Debiased exponential smoothing of lines (Kingma & Ba, "Adam", ICLR 2015, section 3).

The average is s = w·s + (1 − w)·y, divided by 1 − wⁿ, so that the first points are not biased towards zero. Each drawn
point counts once, as in other dashboards: a zoomed line is smoothed less.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def smooth(y: npt.ArrayLike, weight: float) -> Floats:
    """Smooth a line. NaN and infinities stay as they are, and do not affect other points.

    Args:
        y: Shape (n,).
        weight: The weight of the past, from 0 (y itself) to below 1.

    >>> smooth([4.0, 0.0, float("nan"), 0.0], 0.5).round(3).tolist()
    [4.0, 1.333, nan, 0.571]
    """
    out = np.array(y, np.float64)
    if weight <= 0:
        return out
    total = mass = 0.0
    for i, value in enumerate(out.tolist()):
        if math.isfinite(value):
            total = weight * total + (1 - weight) * value
            mass = weight * mass + (1 - weight)
            out[i] = total / mass
    return out
