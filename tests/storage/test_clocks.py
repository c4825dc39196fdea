"""Processes of one directory, whose clocks differ: their order is that in which they began."""

from __future__ import annotations

import contextlib
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightglass.core.process.clock import SystemClock
from sightglass.storage.read.recording import Recording
from sightglass.storage.run_directory import BEHIND_S, RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.write.writer import RecordWriter

WAIT_S = 60.0
HOUR_S = 3600.0
offsets = st.one_of(st.floats(-HOUR_S, HOUR_S), st.sampled_from([0.0, -20.0, 20.0, -0.001, 0.001]))
law = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Process:
    """A process that records the numbers 100 * k + step of the series "a", by a clock that is off."""

    def __init__(self, path: Path, k: int, offset_s: float) -> None:
        class Off(SystemClock):
            @staticmethod
            def wall() -> float:
                return time.time() + offset_s

        self._clock, self._k, self._n = Off(), k, 0
        self.id = f"{k:012x}"
        about = RunFile(name="r", id=self.id, started=self._clock.wall(), host="h", pid=k)
        self._directory = RunDirectory(path, shared=True, about=lambda: about)
        self._writer = RecordWriter(self._directory.open, clock=self._clock)

    def log(self, *steps: int) -> None:
        for step in steps:
            self._writer.log(self._n, step, self._clock.wall(), {"a": 100 * self._k + step}, None)
            self._n += 1
        self._writer.flush(WAIT_S)

    def end(self) -> None:
        self._writer.close(WAIT_S)


def rows(path: Path) -> tuple[list[tuple[int, int]], str, tuple[str, ...]]:
    with Recording(path) as recording:
        found = recording.series("a").columns()
        return list(zip(found.steps.tolist(), found.values.tolist(), strict=True)), recording.overlap, recording.run_ids


@pytest.mark.filterwarnings("ignore:This machine's clock")
@law
@given(processes=st.lists(st.tuples(offsets, st.integers(0, 12), st.integers(1, 6)), min_size=2, max_size=4))
def test_a_process_that_continues_hides_what_was_before_it_whatever_its_clock_says(
    tmp_path_factory: Any, processes: list[tuple[float, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "r"
    expected: list[tuple[int, int]] = []
    ids = []
    for k, (offset_s, first, n) in enumerate(processes):
        process = Process(path, k, offset_s)
        process.log(*range(first, first + n))
        process.end()
        expected = [row for row in expected if row[0] < first]
        expected += [(step, 100 * k + step) for step in range(first, first + n)]
        ids.append(process.id)
    assert rows(path) == (expected, "", tuple(ids))


@pytest.mark.filterwarnings("ignore:.*is also written by", "ignore:This machine's clock")
@law
@given(one=offsets, other=offsets, first=st.integers(0, 12))
def test_processes_that_write_at_the_same_time_hide_nothing_whatever_their_clocks_say(
    tmp_path_factory: Any, one: float, other: float, first: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "r"
    a, b = Process(path, 0, one), Process(path, 1, other)
    a.log(0, 1, 2)
    b.log(first, first + 1)
    a.log(3, 4, 5)
    b.log(first + 2)
    for process in (a, b):
        process.end()
    found, overlap, _ = rows(path)
    assert found == [(i, i) for i in range(6)] + [(first + i, 100 + first + i) for i in range(3)]
    assert overlap.startswith("2 processes wrote rank 0 at the same time")


@pytest.mark.parametrize(("behind_s", "told"), [(20.0, True), (BEHIND_S / 2, False), (-20.0, False)])
def test_a_clock_that_is_behind_is_told(tmp_path: Path, behind_s: float, told: bool) -> None:
    first = Process(tmp_path / "r", 0, 0.0)
    first.log(0)
    first.end()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.closing(Ended(Process(tmp_path / "r", 1, -behind_s))) as second:
            second.process.log(1)
    messages = [str(one.message) for one in caught if "clock is" in str(one.message)]
    assert len(messages) == told
    assert all(f"{behind_s:.0f} s behind" in one or f"{behind_s - 1:.0f} s behind" in one for one in messages)


class Ended:
    def __init__(self, process: Process) -> None:
        self.process = process

    def close(self) -> None:
        self.process.end()
