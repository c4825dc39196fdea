"""The gate: `python -m tests.gate [PYTEST-ARGUMENT ...]`, or `make test`; `make steady` runs it five times.

Runs the tests, and prints how long they took, and how long they would take at speed index 1. A failed test fails the
gate, with one exception: of the tests that start real processes, browsers or sockets (`is_real`), at most two may run
again, alone and once, if they failed by patience: a wait of `waiting` was over before its fact came true. They are
printed as `UNSTEADY`: make them steady next. Any other failure, such as a wrong value, is final.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bench import speed
from tests.waiting import PatienceError

ROOT = Path(__file__).parents[1]
REAL_FOLDERS = ("whole", "page", "notebook")
REAL_FIXTURES = frozenset({"hub", "start"})  # these start a NATS server, and processes
MAX_REAL, MAX_AGAIN = 250, 2
BY_PATIENCE = ("failed by patience", True)
MAY_SKIP = "whoever may read everything is not refused"  # of what root cannot try


@dataclass(kw_only=True, slots=True)
class Report:
    """What tests did, by their names.

    Attributes:
        seconds: How long each took, in seconds of the clock, with its fixtures.
        failed: Those that failed, and whether each may run again.
        skipped: Those that were skipped, and why.
        took_s: How long all took, in seconds of the clock.
        cpu_s: The processor time of all, in seconds, with that of the processes that they started.
        speed_index: How fast the machine was, before and after, see `bench.speed`.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, bool] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    took_s: float = 0.0
    cpu_s: float = 0.0
    speed_index: float = 0.0

    @property
    def again(self) -> list[str]:
        """The failed tests, if all of them may run again."""
        return list(self.failed) if len(self.failed) <= MAX_AGAIN and all(self.failed.values()) else []

    def __str__(self) -> str:
        minutes = self.took_s / 60
        return (
            f"{len(self.seconds):,} tests in {minutes:.1f} min (processors: {self.cpu_s / 60:.1f} min) at speed index "
            f"{self.speed_index:.2f}; at index 1: {minutes * self.speed_index:.1f} min"
        )


def is_real(item: pytest.Item) -> bool:
    """Return whether a test starts real processes, browsers or sockets, by its folder and its fixtures."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return folder in REAL_FOLDERS or not REAL_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


class Reporter:
    """The plugin of pytest that writes a `Report` to the file that `--report` names."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._report = Report()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name, noted = report.nodeid, self._report
        noted.seconds[name] = noted.seconds.get(name, 0.0) + report.duration
        if report.failed:
            noted.failed[name] = noted.failed.get(name, True) and BY_PATIENCE in map(tuple, report.user_properties)
        if report.skipped and not hasattr(report, "wasxfail"):
            noted.skipped[name] = str(report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report.failed[report.nodeid] = False

    def pytest_sessionfinish(self) -> None:
        Path(self._path).write_text(json.dumps(asdict(self._report)))


def note_patience(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Note on a report that its test may run again."""
    if call.excinfo is not None and call.excinfo.errisinstance(PatienceError) and is_real(item):
        report.user_properties.append(BY_PATIENCE)


def run(arguments: Sequence[str]) -> tuple[int, Report]:
    """Run pytest with arguments; return its exit status and what the tests did."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        before, began_s, began_cpu_s = speed.index(), time.perf_counter(), _cpu_s()
        status = subprocess.call([sys.executable, "-m", "pytest", "-q", f"--report={path}", *arguments], cwd=ROOT)
        took_s, cpu_s = time.perf_counter() - began_s, _cpu_s() - began_cpu_s
        told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return status, Report(**{**told, "took_s": took_s, "cpu_s": cpu_s, "speed_index": (before + speed.index()) / 2})


def check(arguments: Sequence[str], *, may_skip: bool = True) -> tuple[int, Report]:
    """Run the tests, and those again that may run again; return the exit status of the gate, and what the tests did."""
    status, report = run(arguments)
    if status == pytest.ExitCode.TESTS_FAILED and report.again:
        status, _ = run(["-n0", *report.again])
        for name in report.again:
            print(f"UNSTEADY: {name}")
    skipped = {} if may_skip else {name: why for name, why in report.skipped.items() if MAY_SKIP not in why}
    if skipped:
        status = status or pytest.ExitCode.TESTS_FAILED
        for name, why in skipped.items():
            print(f"Expected no skipped test, got {name}: {why}")
    print(report, flush=True)
    return status, report


def main(arguments: Sequence[str]) -> int:
    """Run the tests as often as asked for; stop after the first run that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__, add_help=False)
    parser.add_argument("--times", type=int, default=1, metavar="N")
    parser.add_argument("--no-skips", action="store_true")
    options, rest = parser.parse_known_args(arguments)
    for n in range(options.times):
        status, report = check(rest, may_skip=not options.no_skips)
        if options.times > 1:
            print(f"run {n + 1} of {options.times}: {'failed' if status or report.failed else 'passed'}", flush=True)
        if status or (options.times > 1 and report.failed):
            return status or 1
    return 0


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
