"""Compaction with real processes: killed in the middle of it, followed across it, beside a training that is busy."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording

from .conftest import Start, wait_until

N_KILLS = 40
N_AT_ONCE = 6

KILLED = """
import os, sys
from pathlib import Path
from sightglass.core.clock import SystemClock
from sightglass.storage.write import compact, merge, rotation, writer
from sightglass.storage.write.writer import RecordWriter

rotation.MANY_SMALL, writer.REST, writer.SLICE_S = 300, 0.0, 0.0
compact.STEP_ITEMS, compact.WINDOW_BYTES, merge.N_ALIKE = 2, 4_096, 4
keeper = RecordWriter(lambda: Path(sys.argv[1]), clock=SystemClock())
for n in range(10**9):
    keeper.log(n, n, 1e9 + n, {"a": n * 0.5, "b": n, "text": str(n)}, None)
    keeper.flush(60)
    os.write(1, f"{n + 1}\\n".encode())
"""


def kill(directory: Path, seed: int) -> tuple[int, int]:
    """Kill a process at some moment, check its files, and tell how many it was compacting, and had compacted."""
    directory.mkdir()
    with subprocess.Popen([sys.executable, "-c", KILLED, str(directory)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(0.3 + random.Random(seed).uniform(0.0, 2.0))
        child.kill()
        n_said = int((first + child.stdout.read()).split(b"\n")[-2])
    assert all(not file.damages and not file.gaps and not file.refused for file in check(directory).files)
    with Recording(directory) as recording:
        n = len(recording.series("a"))
        assert n >= n_said
        assert recording.series("a").columns().values.tolist() == [i * 0.5 for i in range(n)]
        n_texts = len(recording.series("text"))
        assert recording.series("text").columns().values == [str(i) for i in range(n_texts)]
        assert n_texts >= n_said
    left = list(directory.glob(".*.new"))
    assert len(left) <= 1
    return len(left), sum(path.stat().st_size < 300 * 40 for path in sorted(directory.glob("*.sgr"))[:-1])


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_compaction_costs_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        left = list(pool.map(kill, (tmp_path / str(n) for n in range(N_KILLS)), range(N_KILLS)))
    n_amid, n_done = map(sum, zip(*left, strict=True))
    assert n_amid > 3
    assert n_done > 3


FOLLOWED = """
from sightglass.storage.write import rotation, writer

rotation.MANY_SMALL, writer.REST = 300, 1.0
run = sg.init("job", dir=sys.argv[1], record=["batch.loss"])
say("ready", run.directory)
n = int(sys.argv[2])
for step in range(n):
    run.observe("batch", step=step, loss=step / 2)
    run.log({"a": step * 0.25, "b": step}, step=step)
    run.flush()
run.close()
say("done", n)
"""


def test_who_follows_a_run_sees_each_record_once(start: Start, tmp_path: Path) -> None:
    n = 1_500
    child = start(FOLLOWED, str(tmp_path), str(n))
    [directory] = child.hears("ready")
    wait_until(lambda: list(Path(directory).glob("*.sgr")))
    with sg.open(directory, follow=True) as run, sg.open(directory, follow=True) as late:
        streams = [run.stream("a"), run.stream("batch.loss"), run.stream(sg.on("log").map(lambda e: e.b).sum(every=10))]
        found = [list(stream) for stream in streams]  # until the run ends
        child.hears("done")
        assert [record.value for record in found[0]] == [i * 0.25 for i in range(n)]
        assert [record.value for record in found[1]] == [i / 2 for i in range(n)]
        assert [record.value for record in found[2]] == [sum(range(i, i + 10)) for i in range(0, n, 10)]
        for records in found:
            assert [record.index for record in records] == list(range(len(records)))
        assert [record.value for record in late.stream("a")] == [i * 0.25 for i in range(n)]
        assert run.check().intact
    files = list(Path(directory).glob("*.sgr"))
    assert len(files) > 5
    assert sum(path.stat().st_size for path in files) < 3 * n * 40
    assert len(list(Path(directory).glob(".*.new"))) == 0
