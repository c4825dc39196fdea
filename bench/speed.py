"""How fast this machine is now: beside every table, because machines and their load differ by a factor of three."""

from __future__ import annotations

import statistics
import time

import numpy as np

ROUNDS = 9
N_LOOPS = 200_000
COPY_BYTES = 64 * 2**20  # larger than any cache


def index() -> str:
    """Return the speed of pure Python and of copying memory: medians of several rounds, with their spread."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.empty(COPY_BYTES, np.uint8)
    loops, copies = [], []
    for _ in range(ROUNDS):
        loops.append(N_LOOPS / _seconds(_loop) / 1e6)
        copies.append(COPY_BYTES / _seconds(lambda: np.copyto(target, source)) / 1e9)
    return f"Python {_spread(loops)} M loops/s, memory copy {_spread(copies)} GB/s"


def _loop() -> None:
    total = 0
    for i in range(N_LOOPS):
        total += i


def _seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _spread(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.1f} ± {100 * (max(values) - min(values)) / 2 / middle:.0f} %"
