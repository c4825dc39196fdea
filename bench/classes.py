"""The classes of faults that were found in use: how many neighbours of each are tried, and how many are not right.

Each class has tests that would have found it. A neighbour is a test, an example of Hypothesis within one, or one of the
cases that a test counts itself, as the property "tried". `CLASSES=R-03 python -m bench classes` tries one class.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, Final

import pytest
from tests.waiting import PATIENCE_S

THOROUGHLY: Final = "--hypothesis-profile=release"  # where there is one property
CLASSES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "N-01": ("a role reaches what it may not", ("tests/hub/test_deputies.py",)),
    "C-01": ("a dtype changes a result", ("tests/laws/test_running.py", "tests/query/test_running.py")),
    "P-08": ("an integer loses digits", ("tests/server/test_api.py", "-k", "digits", THOROUGHLY)),
    "S-01": ("an export has what nobody recorded", ("tests/storage/export/test_export.py",)),
    "R-03": ("a log leaves its loop", ("tests/jax/test_differentiated.py",)),
    "T-01": ("a number has no total", ("tests/server/test_columns.py", "tests/storage/write/test_totals.py")),
    "T-02": ("a writer hides another", ("tests/storage/foreign/test_foreign.py", "-k", "writers_of", THOROUGHLY)),
    "T-03": ("a histogram is called damaged", ("tests/storage/foreign/test_tensorboard_histograms.py",)),
    "T-04": ("a point alone is not drawn", ("frontend/test/draw.test.ts",)),
    "T-05": ("a copied file is lost", ("tests/storage/foreign/test_foreign.py", "-k", "is_synced", THOROUGHLY)),
    "S-02": ("a clock decides the order", ("tests/storage/test_clocks.py",)),
    "C-02": ("a column is converted before it is judged", ("tests/core/test_columns_at_source.py",)),
    "R-01": ("an end costs another run", ("tests/training/test_endings.py",)),
    "R-02": ("a patched program hangs", ("tests/whole/test_gevent.py",)),
    "F-01": ("a figure holds up the training", ("tests/laws/test_figures.py", "tests/figures/test_orders.py")),
    "F-03": ("a plug-in lacks its contract", ("tests/trackers/test_lightning_logger.py", THOROUGHLY)),
}  # fmt: skip
N_LEAST: Final = 50


class Counter:
    """Counts the tests of a session, and the examples of Hypothesis within them."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self.n_tried = self.n_wrong = 0
        self.failed: list[str] = []
        self._n_examples = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Count the calls of each property."""
        for item in items:
            handle = getattr(getattr(item, "obj", None), "hypothesis", None)
            if handle is not None:
                handle.inner_test = self._counted(getattr(handle.inner_test, "counted", handle.inner_test))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add a test."""
        if report.when == "call" or report.failed:
            self.n_tried += max(1, self._n_examples, *(n for name, n in report.user_properties if name == "tried"))
            self._n_examples = 0
        if report.failed:
            self.n_wrong += 1
            self.failed.append(report.nodeid)

    def _counted(self, test: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: Any, **named: Any) -> None:
            self._n_examples += 1
            test(*arguments, **named)

        counted.counted = test  # type: ignore[attr-defined]
        return counted


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    """Yield for each class its neighbours, and those that are not right."""
    only = os.environ.get("CLASSES", "")
    for finding, (what, tests) in CLASSES.items():
        if only not in finding:
            continue
        counter = Counter()
        if tests[0].startswith("frontend/"):
            _try_page(counter, tests[0])
        else:
            with redirect_stdout(io.StringIO()) as said:
                pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[counter])
            if not counter.n_tried:
                raise RuntimeError(f"Nothing was tried of {finding}: {said.getvalue()[-2_000:]}")
        if finding in MORE:
            MORE[finding](counter)
        yield f"{finding} {what}: not right", counter.n_wrong, "", 0
        few = f" (fewer than {N_LEAST})" if counter.n_tried < N_LEAST else ""
        yield f"  of neighbours tried{few}", counter.n_tried, "", None
        for name in counter.failed:
            yield f"    {name.rpartition('/')[2][:48]}", 1, "", None


def _try_page(counter: Counter, test: str) -> None:
    """Run a test of the page's parts, which needs Node and `make page`."""
    root, name = test.split("/", 1)
    command = ["npx", "vitest", "run", "--reporter=json", name]
    made = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    report = json.loads(made[made.index("{") :])
    counter.n_tried += report["numTotalTests"]
    counter.n_wrong += report["numFailedTests"]


def _try_patches(counter: Counter) -> None:
    """Try programs that gevent patches in part, at any moment, each in a process of its own."""
    from tests.whole.conftest import command
    from tests.whole.test_gevent import VARIANT, begin

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
    }
    for number in range(N_LEAST):
        first, (moment, patched, listen) = begin(number)
        with tempfile.TemporaryDirectory() as folder:
            program = command(VARIANT, moment, patched, folder, listen, first=first)
            try:
                done = subprocess.run(
                    program, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False
                )
                said = done.stdout
            except subprocess.TimeoutExpired:
                said = "hangs"
        counter.n_tried += 1
        if said.split() != ["rows", "50", "50"]:
            counter.n_wrong += 1
            counter.failed.append(f"{number}: {moment}")


def _try_nests(counter: Counter) -> None:
    """Try all nests of loops under all derivatives; each has five logs."""
    from tests.jax.test_differentiated import DERIVATIVES, KEYS, NESTS, test_each_round_logs_once

    for nest, derivative in itertools.product(NESTS, DERIVATIVES):
        counter.n_tried += len(KEYS)
        try:
            test_each_round_logs_once(nest, derivative)
        except AssertionError:
            counter.n_wrong += 1
            counter.failed.append(f"{nest} under {derivative}")


# Of these, further neighbours that take too long for the tests.
MORE: Final = {"R-02": _try_patches, "R-03": _try_nests}
