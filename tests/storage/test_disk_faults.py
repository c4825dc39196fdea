"""Records while the disk fails, with an error at each call, compaction included.

The scenario runs without faults first, to count its calls, and then once for each call and each way to fail, as in the
tests of SQLite.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.simulation.disk import CODES, Call, Fault

from .disk_scenario import (
    FOLDER,
    N_STEPS,
    Training,
    calls,
    n_of,
    read,
    small,  # noqa: F401  a fixture
    start,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small")]

WHILE_S = 5.0  # a third of the scenario

Plan = Callable[[Call], Fault | None]


def test_without_faults_all_is_there_and_every_operation_is_called() -> None:
    training = start().run()
    assert not training.errors
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)
    training.check_counts(rows)
    assert training.writer._segments._compactor.n_saved > 0
    names = training.disk.contents(FOLDER)
    assert len([name for name in names if name.endswith(".sgr")]) > 2
    assert not [name for name in names if name.startswith(".")]
    operations = {call.operation for call in calls()}
    assert operations == {"make_directory", "create", "open", "status", "read", "write", "sync", "close", "link",
                          "replace", "remove", "names", "free_bytes"}  # fmt: skip


def failing(training: Training, n: int, fault: Fault, for_s: float) -> Plan:
    """Return a plan by which a call fails, and for a time also those that follow."""
    until_s = 0.0

    def plan(call: Call) -> Fault | None:
        nonlocal until_s
        if call.n == n:
            until_s = training.clock.now_s + for_s
            return fault
        return fault if call.n > n and training.clock.now_s < until_s else None

    return plan


def survives(training: Training) -> None:
    """Run the scenario, and check that no record is wrong, doubled, or lost without being counted."""
    training.run()
    training.check(rows := read(training.disk, training.directory.path))
    training.check_counts(rows)


@pytest.mark.parametrize(
    ("fault", "for_s"),
    [
        (Fault(), 0.0),
        (Fault(applied=True), 0.0),
        (Fault(applied=True, n_bytes=5), 0.0),
        (Fault(), WHILE_S),
        (Fault(applied=True), WHILE_S),
        (Fault(), 1e9),
    ],
    ids=["once", "once, with effect", "once, in part", "for a while", "for a while, with effect", "for ever"],
)
def test_an_error_at_each_call(fault: Fault, for_s: float) -> None:
    for call in calls():
        code = CODES[(call.n + int(for_s) + fault.applied) % len(CODES)]
        chosen = Fault(code=code, applied=fault.applied, n_bytes=fault.n_bytes)
        training = start()
        training.disk.fault = failing(training, call.n, chosen, for_s)
        try:
            survives(training)
        except BaseException as error:
            error.add_note(f"{call}, {chosen}")
            raise
        if not for_s and not fault.applied and call.operation != "remove":
            names = training.disk.contents(FOLDER)
            assert not [name for name in names if name.startswith(".")], call
            assert training.disk.names(FOLDER.parent) == [FOLDER.name]


PLACES = (
    None,
    ("write", "truncate", "status"),
    ("write", "truncate", "sync", "close"),
    ("create", "link", "replace", "remove", "make_directory"),
    ("open", "read", "free_bytes", "names"),
)


@settings(max_examples=examples(150))
@given(
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.02, 0.1, 0.4, 0.8]),
    places=st.sampled_from(PLACES),
    until_s=st.floats(101.0, 120.0),
)
def test_any_errors_together(seed: int, rate: float, places: tuple[str, ...] | None, until_s: float) -> None:
    random_ = random.Random(seed)
    training = start()

    def plan(call: Call) -> Fault | None:
        if training.clock.now_s > until_s or random_.random() > rate or (places and call.operation not in places):
            return None
        return Fault(
            code=random_.choice((0, *CODES)), applied=random_.random() < 0.5,
            n_bytes=random_.choice((None, 1, 40, 700)), delay_s=random_.choice((0.0, 0.0, 1.5)),
        )  # fmt: skip

    training.disk.fault = plan
    survives(training)


def test_a_disk_that_is_full_for_a_while_loses_nothing() -> None:
    training = start()
    training.disk.room = 4_000
    for step in range(N_STEPS):
        training.step(step)
    assert training.writer.statistics().n_waiting > 0
    assert "No space left" in training.writer.statistics().last_error
    training.disk.room = None
    training.clock.sleep(2.0)
    training.confirm(training.writer.flush)
    training.confirm(training.writer.close)
    assert not training.errors
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)


def test_rows_that_were_written_though_the_write_failed_are_shown_once() -> None:
    """A write takes effect although it fails, and cannot be taken back; the records go to the next file, too."""
    training = start()
    failed: list[Call] = []

    def plan(call: Call) -> Fault | None:
        if call.operation in ("write", "truncate") and call.path.suffix == ".sgr" and len(failed) < 2:
            failed.append(call)
            return Fault(code=errno.EIO, applied=call.operation == "write")
        return None

    training.disk.fault = plan
    training.run()
    assert [call.operation for call in failed] == ["write", "truncate"]
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)
    assert all(list(some) == list(range(len(some))) for some in rows.values())


def test_an_error_that_only_closing_the_file_shows_is_raised() -> None:
    """NFS may say only then that it has no room."""
    training = start()
    training.step(0)
    training.disk.fault = lambda call: Fault(code=errno.EDQUOT, applied=True) if call.operation == "close" else None
    training.confirm(training.writer.close)
    assert "quota" in str(training.errors[0])


def test_a_full_file_that_cannot_be_closed_is_told_and_the_next_one_is_written() -> None:
    training = start()
    failed: list[str] = []

    def plan(call: Call) -> Fault | None:
        if call.operation != "close" or call.path.suffix != ".sgr" or failed:
            return None
        failed.append(call.path.name)
        return Fault(code=errno.EIO)

    training.disk.fault = plan
    training.run()
    assert not training.errors
    last_error = training.writer.statistics().last_error
    assert last_error.startswith(f"{FOLDER / failed[0]} could not be closed")
    assert last_error.endswith(": Input/output error")
    training.check(rows := read(training.disk))
    assert n_of(rows) == n_of(training.made)
