"""Kills, full disks and readers: training goes on, and what is in a file is whole and in order."""

from __future__ import annotations

import itertools
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import StorageError
from sightglass.core.process.clock import SystemClock
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording
from sightglass.storage.write.writer import RecordWriter

from .conftest import Child, Start, wait_until

COMPACTING = """
from pathlib import Path
from sightglass.core.process.clock import SystemClock
from sightglass.storage.write import compact, merge, rotation, writer
from sightglass.storage.write.writer import RecordWriter

rotation.MANY_SMALL, writer.REST, writer.SLICE_S = 300, 0.0, 0.0
compact.STEP_ITEMS, compact.WINDOW_BYTES, merge.N_ALIKE = 2, 4_096, 4
keeper = RecordWriter(lambda: Path(sys.argv[1]), clock=SystemClock())
for n in range(10**9):
    keeper.log(n, n, 1e9 + n, {"a": n * 0.5, "b": n, "text": str(n)}, None)
    keeper.flush(60)
    say(n + 1)
"""


def unfinished(directory: Path) -> list[Path]:
    """Return the files that a compaction has begun to write."""
    return list(directory.glob(".*.new"))


def stands_still_amid(child: Child, directory: Path) -> bool:
    """Stop a process where it compacts; let it go on if it does not."""
    if not unfinished(directory):
        return False
    child.send(signal.SIGSTOP)
    if unfinished(directory):
        return True
    child.send(signal.SIGCONT)
    return False


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_compaction_costs_nothing(start: Start, tmp_path: Path) -> None:
    for n in range(3):
        directory = tmp_path / str(n)
        directory.mkdir()
        child = start(COMPACTING, str(directory))
        wait_until(lambda: stands_still_amid(child, directory), "it compacts", pause=lambda: None)  # noqa: B023
        child.send(signal.SIGKILL)
        n_said = int(child.rest()[-1])
        assert all(not file.damages and not file.gaps and not file.refused for file in check(directory).files)
        with Recording(directory) as recording:
            for name, value in (("a", lambda i: i * 0.5), ("b", int), ("text", str)):
                values = list(recording.series(name).columns().values)
                assert values == [value(i) for i in range(len(values))]
                assert len(values) >= n_said
        assert len(unfinished(directory)) == 1


def test_training_continues_on_a_full_disk(disk: Callable[[str], Path]) -> None:
    small_disk = disk("size=1m")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2**19))
    keeper = RecordWriter(lambda: small_disk, clock=SystemClock())
    n = itertools.count()

    def train(n_steps: int) -> int:
        for i in itertools.islice(n, n_steps):
            keeper.log(i, i, 1e9 + i, {"a": i * 0.5, "w": np.full(1_000, i)}, None)
        return i + 1

    def fill() -> None:
        while True:
            train(20)
            keeper.flush(60)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with pytest.raises(StorageError, match=r"No space left .*; \d+ wait.*, 0 are lost$"):
                fill()
    (told,) = caught
    assert str(small_disk) in str(told.message)
    assert check(small_disk).intact
    ballast.unlink()
    n_given = train(1)
    wait_until(lambda: keeper.statistics().n_records == 2 * n_given, "all is written")
    keeper.close(60)
    assert keeper.statistics().n_dropped == 0
    with Recording(small_disk) as recording:
        assert list(recording.series("a").columns().values) == [0.5 * i for i in range(n_given)]
        assert recording.series("w").n == n_given


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


@pytest.mark.slow
def test_who_follows_a_run_sees_each_record_once_while_its_files_are_compacted(start: Start, tmp_path: Path) -> None:
    n = 1_500
    child = start(FOLLOWED, str(tmp_path), str(n))
    (directory,) = child.hears("ready")
    wait_until(lambda: sg.runs(tmp_path), "it is listed")
    with sg.open(directory, follow=True) as run, sg.open(directory, follow=True) as late:
        queries: list[Any] = [
            "a", "batch.loss", sg.on("log").map(lambda e: e.b).sum(every=10),
        ]  # fmt: skip
        streams = [run.stream(query) for query in queries]
        assert sg.runs(tmp_path)[0].state == "running"
        found = [list(stream) for stream in streams]  # until the run ends
        child.hears("done")
        assert [record.value for record in found[0]] == [i * 0.25 for i in range(n)]
        assert [record.value for record in found[1]] == [i / 2 for i in range(n)]
        assert [record.value for record in found[2]] == [sum(range(i, i + 10)) for i in range(0, n, 10)]
        for records in found:
            assert [record.index for record in records] == list(range(len(records)))
        assert [record.value for record in late.stream("a")] == [i * 0.25 for i in range(n)]
        assert run.check().intact
    assert child.ends() == 0
    files = list(Path(directory).glob("*.sgr"))
    assert len(files) > 2
    assert sum(path.stat().st_size for path in files) < 3 * n * 40  # they were compacted
    assert not unfinished(Path(directory))
