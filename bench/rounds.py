"""Works that are compared with each other take turns, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def best_seconds(*works: Callable[[], object], rounds: int, n: int = 1) -> list[float]:
    """Return the least seconds that each work took for a call, in rounds of n calls in a row."""
    best = [float("inf")] * len(works)
    for work in works:
        work()
    for _ in range(rounds):
        for i, work in enumerate(works):
            gc.collect()
            gc.disable()
            started = time.perf_counter()
            for _ in range(n):
                work()
            best[i] = min(best[i], (time.perf_counter() - started) / n)
            gc.enable()
    return best
