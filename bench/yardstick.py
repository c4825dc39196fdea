"""N: what calling an empty method costs, with the same keywords as the `observe` that is compared with it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

VALUES = {"loss": 0.5, "grads": np.ones(10), "params": np.ones(10), "y": np.ones(10, int)}


class Empty:
    """An object whose method takes what `observe` takes, and does nothing."""

    def f(self, event, /, **observables):
        """Do nothing."""


def seconds_per_call(call: Callable[..., object], n: int) -> float:
    """Call with five observables, flat out, and return the seconds per call."""
    grads, params, y = VALUES["grads"], VALUES["params"], VALUES["y"]
    started = time.perf_counter()
    for step in range(n):
        call("batch", step=step, loss=0.5, grads=grads, params=params, y=y)
    return (time.perf_counter() - started) / n


def n_seconds() -> float:
    """Return N: the best of several rounds."""
    return min(seconds_per_call(Empty().f, 200_000) for _ in range(5))
