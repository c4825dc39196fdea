"""Two processes that write into one directory as the same rank: both are kept, and it is said."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.core.process.clock import SystemClock
from sightglass.storage.read.recording import Recording
from sightglass.storage.write.writer import RecordWriter

WAIT_S = 60.0
OTHER = """
import sys
import sightglass as sg
run = sg.init("other", files=sg.Files(into=sys.argv[1]))
run.log({"a": 0.5}, step=0)
run.flush(60)
print("ready", flush=True)
sys.stdin.readline()
run.log({"a": 1.5}, step=1)
run.close()
"""


def test_a_second_writer_is_noticed_and_both_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-W", "ignore", "-c", OTHER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        sg.open(folder).close()  # reading the run leaves its lock alone
        with pytest.warns(RuntimeWarning, match=f"process {other.pid} .*rank 0"):
            run = sg.init("second", files=sg.Files(into=folder))
        for step in range(3):
            run.log({"a": float(step)}, step=step)
        run.flush(WAIT_S)
        other.stdin.write("\n")
        other.stdin.close()
        other.wait(WAIT_S)
    run.close()
    with pytest.warns(RuntimeWarning, match="2 processes.*rank 0"):
        opened = sg.open(folder)
    assert opened.series("a").columns().values.tolist() == [0.5, 1.5, 0.0, 1.0, 2.0]
    assert sum(sum(file.n_rows.values()) for file in opened.check().files) == 5
    opened.close()


def test_a_restart_warns_of_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1.0, 2.0):
            with sg.init("again", files=sg.Files(into=folder)) as run:
                run.log({"a": value}, step=0)
        with sg.open(folder) as opened:
            assert opened.series("a").columns().values.tolist() == [2.0]


def test_processes_that_overlap_hide_nothing_and_a_later_restart_does(tmp_path: Path) -> None:
    now = SystemClock.wall()
    for first_s, value in ((now, 1.0), (now + 1, 2.0), (now + 100, 3.0)):
        at = _At(first_s)
        writer = RecordWriter(lambda: tmp_path, clock=at)
        for step in range(2, 4) if value == 3.0 else range(4):
            writer.log(step, step, first_s + step, {"a": value, "only": value}, None)
        writer.close(WAIT_S)
    with Recording(tmp_path) as recording:
        assert recording.series("a").columns().values.tolist() == [1, 1, 2, 2, 3, 3]
        assert recording.series("a").steps.tolist() == [0, 1, 0, 1, 2, 3]
        assert recording.overlap.startswith("2 processes wrote rank 0")


class _At(SystemClock):
    """A clock whose wall time stands."""

    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def wall(self) -> float:  # type: ignore[override]
        return self._wall_s
