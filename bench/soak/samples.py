"""What processes hold, read from /proc while they run: memory, threads, descriptors, shared memory; and if it grows."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MEASURES = ("RSS, MB", "threads", "descriptors", "shared memory, MB")
SETTLED = 0.4  # the share of the time before a slope is taken: imports, caches and arenas fill up in it
MIN_SAMPLES = 10  # for a slope and its noise
BOUND_SHARE = 0.02  # growth that is worth 2 % of all until the end is flat
BOUND_A_MINUTE = 0.1  # MB; or 6 MB an hour, 144 MB a day
BOUND_COUNT = 1.0  # a minute, of threads and descriptors: clients come and go, leaks come with each


def measured(pid: int) -> tuple[float, ...]:
    """Return `MEASURES` of a process.

    Raises:
        OSError: It has ended.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "RssShmem", "Threads")}  # type: ignore[index]
    n_files, shared = 0, {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            n_files += 1
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                told = path.stat()
                shared[told.st_ino] = told.st_blocks * 512
    shared_mb = max(sum(shared.values()) / 2**20, found["RssShmem"] / 1024)  # in open files, and mapped
    return found["VmRSS"] / 1024, float(found["Threads"]), float(n_files), shared_mb


@dataclass(frozen=True)
class Growth:
    """One measure over the run.

    Attributes:
        early: At a fifth of the time.
        late: At the end.
        slope: Per minute over the last 60 %, by least squares.
        noise: The standard error of the slope.
        bound: The largest slope that is flat.
    """

    early: float
    late: float
    slope: float
    noise: float
    bound: float

    @property
    def verdict(self) -> str:
        """Whether it grows, at two standard errors."""
        if self.slope - 2 * self.noise > self.bound:
            return "GROWS"
        return "flat" if self.slope + 2 * self.noise <= self.bound else "too noisy"


def growth(
    times_s: Sequence[float], values: Sequence[float], crowd: Sequence[float] = (), *, bound: float, share: float = 0.0
) -> Growth:
    """Fit a line to the last 60 % of the samples.

    Args:
        times_s: When the samples were taken.
        values: The samples.
        crowd: How many clients there were then; what comes and goes with them is fitted too, and is not growth.
        bound: The largest slope per minute that is flat.
        share: Also flat is a slope that adds at most this share of the last value in the time that is fitted.
    """
    at, seen = np.asarray(times_s), np.asarray(values)
    late = at >= at[0] + SETTLED * (at[-1] - at[0])
    minutes, fitted = at[late] / 60, seen[late]
    others = np.asarray(crowd)[late] if len(crowd) else np.zeros(len(fitted))
    terms = np.column_stack([minutes - minutes.mean(), others - others.mean(), np.ones(len(fitted))])
    inverse = np.linalg.pinv(terms.T @ terms)
    found = inverse @ terms.T @ fitted
    variance = ((fitted - terms @ found) ** 2).sum() / max(1, len(fitted) - 3)
    early = seen[np.searchsorted(at, at[0] + 0.2 * (at[-1] - at[0]))]
    bound = max(bound, share * float(seen[-1]) / max(1e-9, float(np.ptp(minutes))))
    noise = float(np.sqrt(variance * max(0.0, inverse[0, 0])))
    return Growth(float(early), float(seen[-1]), float(found[0]), noise, bound)


class Samples:
    """The samples of several processes."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[float, ...]]] = {}

    def take(self, name: str, pid: int, *, crowd: int) -> None:
        """Measure a process, unless it has ended; `crowd` is how many clients it has now."""
        with contextlib.suppress(OSError, TypeError):
            self._taken.setdefault(name, []).append((time.monotonic(), crowd, *measured(pid)))

    def rows(self, known: Mapping[str, float]) -> Iterator[tuple[str, Any, str, float | None]]:
        """Yield for each measure what it was at a fifth of the time, what it is at the end, and how fast it grows.

        Args:
            known: The growth of memory that has a known cause and end, in MB a minute, of some processes.
        """
        for name, taken in self._taken.items():
            yield f"{name}: samples; growth a minute", len(taken), "", None
            if len(taken) < MIN_SAMPLES:
                continue
            times_s, crowd, *columns = zip(*taken, strict=True)
            for measure, column in zip(MEASURES, columns, strict=True):
                memory = "MB" in measure
                bound = BOUND_A_MINUTE + known.get(name, 0.0) * ("RSS" in measure) if memory else BOUND_COUNT
                found = growth(times_s, column, crowd, bound=bound, share=BOUND_SHARE * memory)
                what = f"  {measure}, {found.early:.1f} to {found.late:.1f}, ± {found.noise:.1g}"
                yield f"{what}: {found.verdict}", round(found.slope, 3) + 0.0, "", found.bound
