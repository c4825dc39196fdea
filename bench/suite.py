"""What the tests cost, in processor time, which a busy machine does not change as much as the clock does."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    """Run the inner loop as after a change in `query`, then everything, as `make quick` and `make test` do."""
    yield from _cost("make quick FOLDERS=query", [sys.executable, "tests/quick.py", "query"], target_s=60)
    yield from _cost("make test", [sys.executable, "-m", "pytest", "-q", "-n", "auto"], target_s=15 * 60)


def _cost(what: str, command: list[str], *, target_s: float) -> Iterator[tuple[str, float, str, float | None]]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = subprocess.call(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    took_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    yield f"{what}{'' if code == 0 else ' (failed)'}", took_s, "s", target_s
    yield "  processor time", cpu_s, "s", None
