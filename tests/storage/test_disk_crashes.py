"""Records after the process was killed, or the machine failed, at each call of the disk, compaction included."""

from __future__ import annotations

import errno
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.simulation.disk import CODES, Call, Disk, DiskFile, Fault, Loss

from sightglass.storage.file_names import NAME

from .disk_scenario import (
    CALL_S,
    FOLDER,
    N_STEPS,
    Rows,
    Training,
    n_of,
    opened,
    read,
    rows_of,
    small,  # noqa: F401  a fixture
    start,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small")]

CHANGES = {"create", "write", "truncate", "sync", "link", "replace", "remove", "close"}
FULL = Fault(code=errno.ENOSPC, applied=True, n_bytes=30)
LOSSES: tuple[Loss, ...] = ("none", "unsynced", "zeros", "random", "random", "random")
SETTLED = {5, 11, 17, 23}  # the steps after which everything so far is on the disk


Losses = tuple[Loss, int]
"""What a machine loses, and a seed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment at which the scenario could end: before a call of the disk takes effect, or within it.

    Attributes:
        call: The call.
        disk: What is left.
        n_written: How many records the writer has written.
        confirmed: The records that are certain to be there.
        failed: Whether the machine failed; else the process was killed.
    """

    call: Call
    disk: Disk
    n_written: int
    confirmed: Rows
    failed: bool = False


def moments(*losses: Losses) -> tuple[Training, list[Moment]]:
    """Run the scenario once, and return what is left if it ends at each change of the disk.

    Some writes fail after a part, so files are cut off, too; and a reader leaves indexes beside the files.
    """
    training = start(full_now_and_then())
    found: list[Moment] = []
    settled: Rows = {}
    disk = training.disk

    def note(call: Call) -> None:
        training.clock.sleep(CALL_S)
        if call.operation not in CHANGES:
            return
        n_written, confirmed = training.writer.statistics().n_records, training.confirmed
        if not losses:
            found.append(Moment(call, disk.copy(), n_written, confirmed))
            for n in {1, len(call.data) // 2, len(call.data) - 1} if call.data else ():
                torn = disk.copy()
                torn.put(call.path, torn.contents(call.path.parent)[call.path.name] + call.data[:n])
                found.append(Moment(call, torn, n_written, confirmed))
        for loss, seed in losses:
            left = disk.crashed(loss, random.Random(call.n + 1_000 * seed))
            found.append(Moment(call, left, n_written, settled, failed=True))

    disk.on_call = note
    for step in range(N_STEPS):
        training.step(step)
        if step in SETTLED:
            training.confirm(training.writer.flush)
            disk.settle()
            settled = training.confirmed
        if step % 5 == 2:
            training.look()
    training.confirm(training.writer.close)
    training.directory.end(lambda: training.about)
    assert settled
    assert sum(moment.call.operation == "replace" and moment.call.path.suffix == ".new" for moment in found) >= 2
    return training, found


def full_now_and_then() -> Callable[[Call], Fault | None]:
    """Return a plan by which each fourth write to a record file is not whole."""
    n_writes = itertools.count(1)

    def plan(call: Call) -> Fault | None:
        is_record = call.operation == "write" and call.path.suffix == ".sgr"
        return FULL if is_record and next(n_writes) % 4 == 0 else None

    return plan


def check(training: Training, moment: Moment) -> None:
    """Check what a user finds."""
    with opened(moment.disk, FOLDER) as recording:
        rows = rows_of(recording)
        training.check(rows, confirmed=moment.confirmed)
        if not moment.failed:
            assert n_of(rows) >= moment.n_written
            assert not recording.damages
        described = [name for name in moment.disk.contents(FOLDER) if name == NAME]
        assert not described or recording.info.id == training.about.id, "run.json is there in part"


def check_all(training: Training, found: list[Moment]) -> None:
    for moment in found:
        try:
            check(training, moment)
        except BaseException as error:
            error.add_note(str(moment.call))
            raise


def test_a_process_that_is_killed_loses_what_it_had_not_written() -> None:
    training, found = moments()
    assert {moment.call.operation for moment in found} == CHANGES
    check_all(training, found)


@pytest.mark.parametrize("losses", [("unsynced", 0), ("zeros", 0), ("random", 0), ("random", 1), ("random", 2)])
def test_a_machine_that_fails_loses_what_was_not_on_the_disk(losses: Losses) -> None:
    training, found = moments(losses)
    check_all(training, found)


@pytest.mark.parametrize("path", [".json", ".new"])
def test_a_file_that_was_not_synced_before_its_rename_is_found(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The test above would notice if the description of the run, or a compacted file, were replaced too early."""
    sync = DiskFile.sync
    monkeypatch.setattr(DiskFile, "sync", lambda self: None if path in self.path.name else sync(self))
    training, found = moments(("unsynced", 0))
    with pytest.raises(AssertionError):
        check_all(training, found)


def test_another_process_continues_where_one_was_killed() -> None:
    training, found = moments()
    for moment in found[::11]:
        before = read(moment.disk)
        training.clock.sleep(10.0)
        later = Training(moment.disk, training.clock, into=FOLDER).run(10, first=N_STEPS)
        assert not later.errors
        after = read(moment.disk)
        assert n_of(after) == n_of(before) + n_of(later.made), moment.call
        for tag, rows in later.made.items():
            for i, (step, _) in rows.items():
                assert after[tag][len(before[tag]) + i][0] == step
        assert moment.disk.contents(FOLDER).keys() >= {"run.json"}


def test_an_index_is_whole_or_ignored_after_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader writes it without waiting for the disk, since it is only a cache."""
    training = start().run(8)
    (name,) = [name for name in training.disk.contents(FOLDER) if name.endswith(".sgr")]
    rows, n_used = read(training.disk), 0
    training.disk.settle()
    left: list[Disk] = []
    training.disk.on_call = lambda call: left.extend(
        training.disk.crashed(loss, random.Random(seed)) for seed, loss in enumerate(LOSSES)
    )
    training.look()
    left += [training.disk.crashed(loss, random.Random(seed)) for seed, loss in enumerate(LOSSES)]
    for disk in left:
        assert n_of(read(disk)) == n_of(rows)
        n_used += f"{name}.index" in disk.contents(FOLDER)
    assert n_used


def test_an_index_that_cannot_be_written_costs_a_reader_nothing() -> None:
    n_calls: Counter[str] = Counter()
    for n in range(1, 40):
        training = start().run(8)
        fault = Fault(code=CODES[n % len(CODES)], applied=n % 3 == 0)
        training.disk.n_calls.clear()
        training.disk.fault = lambda call, n=n, fault=fault: (
            fault if call.n >= n and "index" in call.path.name else None
        )
        training.look()
        n_calls.update(training.disk.n_calls)
        training.disk.fault = lambda call: None
        assert n_of(read(training.disk)) == n_of(training.made)
    assert n_calls["replace"]
