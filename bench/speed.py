"""How fast this machine is now: beside every table, because machines and their load differ by a factor of three.

`python -m bench.speed SECONDS` says what a time would be on a machine of speed index 1.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

ROUNDS = 9
N_LOOPS = 200_000
COPY_BYTES = 64 * 2**20  # larger than any cache
# Speed index 1: a fast two-core cloud machine of 2025. An ordinary, busy one has 0.4.
INDEX_LOOPS_PER_S = 50e6


def index() -> float:
    """Return the speed of pure Python, the median of several rounds, as a multiple of speed index 1."""
    return statistics.median(_loops()) / INDEX_LOOPS_PER_S


def line() -> str:
    """Return the speed of pure Python and of copying memory: medians of several rounds, with their spread."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.empty(COPY_BYTES, np.uint8)
    loops = [n / 1e6 for n in _loops()]
    copies = [COPY_BYTES / _seconds(lambda: np.copyto(target, source)) / 1e9 for _ in range(ROUNDS)]
    return (
        f"speed index {statistics.median(loops) * 1e6 / INDEX_LOOPS_PER_S:.2f}: "
        f"Python {_spread(loops)} M loops/s, memory copy {_spread(copies)} GB/s"
    )


def _loops() -> list[float]:
    return [N_LOOPS / _seconds(_loop) for _ in range(ROUNDS)]


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


if __name__ == "__main__":
    minutes, now = float(sys.argv[1]) / 60, index()
    print(f"{minutes:.1f} min at speed index {now:.2f}; at index 1: {minutes * now:.1f} min")
