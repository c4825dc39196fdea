"""What the tests cost: minutes, processor time, how many of each kind there are, and the slowest.

`python -m bench suite` runs the inner loop for three folders, as after a change in each, and all tests once. Minutes at
speed index 1 are the minutes times the machine's index (see `speed`), which halves what a busy machine makes of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests import gate, quick

QUICK_S, ALL_S = 120, 20 * 60
N_SLOWEST = 40
# Folders of `tests` that are a kind of their own; all others mirror a folder of the package.
KINDS = ("laws", "contracts", "simulation", "compatibility", "fuzz", "meta", "whole", "page", "notebook")


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    """Yield the cost of the inner loop and of all tests, tests by kind, and the slowest tests."""
    for folder in ("query", "storage", "training"):
        yield from _cost(f"make quick FOLDERS={folder}", *gate.run(quick.arguments({folder})), target_s=QUICK_S)
    status, report = gate.check(["-n", "auto"])
    yield from _cost("make test", status, report, target_s=None)
    yield "  by the clock", report.took_s, "s", ALL_S
    for kind, (n, seconds) in kinds(report).items():
        yield f"  {n:,} tests of {kind}", seconds, "s", None
    for name, seconds in sorted(report.seconds.items(), key=lambda item: -item[1])[:N_SLOWEST]:
        yield f"    {name.removeprefix('tests/')}", seconds, "s", None


def kinds(report: gate.Report) -> dict[str, tuple[int, float]]:
    """Return for each kind how many tests it has and how many seconds they took, the slowest kind first."""
    n: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for name, took_s in report.seconds.items():
        folder = name.split("/")[1]
        kind = folder if folder in KINDS else "one folder each"
        n[kind] += 1
        seconds[kind] += took_s  # type: ignore[assignment]
    return {kind: (n[kind], float(took_s)) for kind, took_s in seconds.most_common()}


def _cost(
    what: str, status: int, report: gate.Report, *, target_s: float | None
) -> Iterator[tuple[str, float, str, float | None]]:
    yield f"{what}{'' if status == 0 else ' (failed)'}, at index 1", report.took_s * report.speed_index, "s", target_s
    yield "  processor time", report.cpu_s, "s", None
