"""The totals that a run writes are those that a reader makes of its files."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.core.process.clock import SystemClock
from sightglass.query.reduce.columns import NAMES
from sightglass.query.reduce.table import can_reduce, reduce_columns, reducer
from sightglass.storage import cache_file, totals_file
from sightglass.storage.format import totals
from sightglass.storage.format.block import Key
from sightglass.storage.format.totals import RunTotals, TotalsBuilder
from sightglass.storage.read import run_totals
from sightglass.storage.read.recording import Recording
from sightglass.storage.write import column_builder, held_rows, rotation, segment
from sightglass.storage.write.writer import RecordWriter

WAIT_S = 60.0
TAGS = [*"abcdef", "é\n", 'with "quotes"']

numbers = st.one_of(
    st.floats(),
    st.integers(-5, 5),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 2**53, 2**62, -(2**63), 1e308]),
)
floats = st.one_of(st.floats(-1e3, 1e3), st.sampled_from([math.inf, -math.inf, math.nan]))  # sums lose no digits
others = st.sampled_from([True, None, "text", 2**70, np.float32(0.5), np.zeros(2), [1, 2]])
calls = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from(TAGS), st.one_of(numbers, numbers, numbers, others)),
        st.floats().map(lambda x: {tag: x + i for i, tag in enumerate(TAGS)}),
        st.integers(-100, 100).map(lambda x: {tag: x + i for i, tag in enumerate(TAGS)}),
    ),
    max_size=30,
)
steps = st.one_of(st.integers(-10, 10), st.floats(-3, 3), st.sampled_from([2**53, 2**60, math.inf]))
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(100))


def written(directory: Path) -> RunTotals | None:
    return run_totals.load(directory, cache_file.files_of(directory), rank=None)


def made(directory: Path) -> RunTotals | None:
    """Return what a reader makes of the files of a run."""
    (directory / totals_file.NAME).unlink(missing_ok=True)
    with Recording(directory) as recording:
        return run_totals.make(recording, cache_file.files_of(directory), rank=None)


def is_like(one: Any, other: Any, *, scale: float) -> bool:
    if isinstance(one, tuple):
        return all(is_like(a, b, scale=scale) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or abs(one - other) <= 1e-9 * scale
    return bool(one == other)


def check_alike(one: RunTotals | None, other: RunTotals | None, *, steps_fit: bool = True) -> None:
    assert one is not None
    assert other is not None
    assert one.keys == other.keys
    for key in one.keys:
        low, high = one.state(key, "min"), one.state(key, "max")
        exact = low is None or not math.isfinite(low) or not math.isfinite(high) or max(-low, high) < 1e150
        for name in NAMES:
            if not exact and name in ("sum", "mean", "var", "std"):
                continue  # whether an order of summation overflows is chance
            largest = max(1.0, abs(low), abs(high)) if low is not None and exact else 1.0
            scale = (one.state(key, "count") or 1) * largest ** (2 if name in ("var", "std") else 1)
            a, b = one.state(key, name), other.state(key, name)
            if b is None or (a is None and not steps_fit):
                continue  # a reader does not add up integers and floats, a writer no steps beyond 53 bits
            if name in ("var", "std") and a is not None and math.isnan(a[2]) and math.isnan(b[2]):
                continue  # of an infinity: NaN, about whichever mean
            assert is_like(a, b, scale=scale if math.isfinite(scale) else 1.0), (key, name, a, b)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make wide blocks of few series, and many files."""
    for module in (column_builder, held_rows):
        monkeypatch.setattr(module, "MANY", 3)
    monkeypatch.setattr(held_rows, "MIN_SERIES", 2)
    monkeypatch.setattr(segment, "BLOCK_ROWS", 3)
    monkeypatch.setattr(rotation, "SEGMENT_BYTES", 2_000)


@few
@given(given_calls=st.lists(st.tuples(steps, calls), max_size=4))
def test_they_are_what_a_reader_makes(small: None, tmp_path_factory: Any, given_calls: Any) -> None:
    directory = tmp_path_factory.mktemp("run")
    keeper = RecordWriter(lambda: directory, clock=SystemClock(), totals=True)
    n = 0
    for step, several in given_calls:
        for values in several:
            keeper.log(n, step, 1e9 + n, values, None)
            n += 1
        keeper.rows(Key(kind="groups", tag="batch"), [(n, n, 1e9 + n, True, None, n)])
        keeper.flush(WAIT_S)
    keeper.close(WAIT_S)
    if any(directory.glob("*.sgr")):
        fit = all(abs(step) <= 2**53 for step, _ in given_calls)
        check_alike(written(directory), made(directory), steps_fit=fit)


@few
@given(values=st.lists(st.one_of(st.lists(floats, min_size=1), st.lists(st.integers(-9, 9), min_size=1)), min_size=1))
def test_states_are_those_of_the_reducers(values: Any) -> None:
    builder, key, index = TotalsBuilder(), Key(kind="logged", tag="x"), 0
    states: dict[str, Any] = {}
    for some in values:
        at = np.arange(index, index + len(some))
        columns = Columns(index=index, steps=at * 2, wall_times=at * 1.0, values=np.array(some), ordinals=at)
        builder.add(key, columns)
        index += len(some)
        for name in NAMES:
            made = reducer(name, {})
            assert can_reduce(made, columns.values)
            state, merge = reduce_columns(made, columns), made.merge
            assert merge is not None
            states[name] = merge(states[name], state) if name in states else state
    found = builder.totals({})
    stored = totals.decode(totals.encode(found))
    assert stored is not None
    for name, state in states.items():
        got = reducer(name, {}).finish(stored.state(key, name))
        expected = reducer(name, {}).finish(state)
        assert got == pytest.approx(expected, rel=1e-6, abs=1e-6, nan_ok=True) or not math.isfinite(
            states["sum"] * states["sum"]
        )


def log(directory: Path, n: int, *, start: int = 0, close: bool = True) -> RecordWriter:
    keeper = RecordWriter(lambda: directory, clock=SystemClock(), totals=True)
    for i in range(start, start + n):
        keeper.log(i, i, 1e9 + i, {"x": float(i), "y": i}, None)
    keeper.flush(WAIT_S)
    if close:
        keeper.close(WAIT_S)
    return keeper


def test_a_run_writes_them_at_its_end(tmp_path: Path) -> None:
    keeper = log(tmp_path, 100, close=False)
    assert not (tmp_path / totals_file.NAME).exists()
    keeper.close(WAIT_S)
    check_alike(written(tmp_path), made(tmp_path))


def test_a_run_writes_them_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "DUE_BYTES", 1_000)
    keeper = log(tmp_path, 100, close=False)
    found = written(tmp_path)
    assert found is not None
    assert found.state(Key(kind="logged", tag="y"), "sum") == 4_950
    keeper.close(WAIT_S)


def test_a_second_process_leaves_them_to_the_reader(tmp_path: Path) -> None:
    log(tmp_path, 100)
    first = written(tmp_path)
    log(tmp_path, 20, start=90)
    assert written(tmp_path) is None  # those of the first process do not count any more
    again = made(tmp_path)
    assert again is not None
    assert first is not None
    assert again.state(Key(kind="logged", tag="x"), "last") != first.state(Key(kind="logged", tag="x"), "last")


def test_two_processes_at_once_leave_them_to_the_reader(tmp_path: Path) -> None:
    one, other = log(tmp_path, 10, close=False), log(tmp_path, 10, close=False)
    one.close(WAIT_S)
    other.close(WAIT_S)
    assert not (tmp_path / totals_file.NAME).exists()


def test_only_the_lowest_rank_of_a_directory_writes_them(tmp_path: Path) -> None:
    keepers = [RecordWriter(lambda: tmp_path, rank=rank, clock=SystemClock(), totals=True) for rank in (1, 0)]
    for rank, keeper in enumerate(keepers):
        keeper.log(0, 0, 1e9, {"x": float(rank)}, None)
        keeper.flush(WAIT_S)
    for keeper in keepers:
        keeper.close(WAIT_S)
    found = written(tmp_path)
    assert found is not None
    assert found.state(Key(kind="logged", tag="x"), "last") == (0, 1.0)
    check_alike(found, made(tmp_path))


def test_a_file_that_others_removed_leaves_them_to_the_reader(tmp_path: Path) -> None:
    keeper = log(tmp_path, 10, close=False)
    for path in tmp_path.glob("*.sgr"):
        path.unlink()
    keeper.log(10, 10, 1e9, {"x": 10.0}, None)
    with pytest.warns(RuntimeWarning, match="removed"):
        keeper.flush(WAIT_S)
    keeper.close(WAIT_S)
    assert not (tmp_path / totals_file.NAME).exists()


@pytest.mark.parametrize("fails", ["write", "files_of"])
def test_a_failure_costs_the_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_file, fails, fail)
    log(tmp_path, 10)
    monkeypatch.undo()
    with Recording(tmp_path) as recording:
        assert len(recording.series("x")) == 10
    assert not (tmp_path / totals_file.NAME).exists()


def test_what_cannot_be_added_up_costs_the_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TotalsBuilder, "add_all", lambda *args: 1 / 0)
    log(tmp_path, 10)
    with Recording(tmp_path) as recording:
        assert len(recording.series("x")) == 10
    assert not (tmp_path / totals_file.NAME).exists()


def test_a_tag_that_is_no_text_costs_only_the_totals(tmp_path: Path) -> None:
    keeper = RecordWriter(lambda: tmp_path, clock=SystemClock(), totals=True)
    keeper.log(0, 0, 1e9, {"\ud800": 1.0}, None)
    keeper.close(WAIT_S)
    assert not (tmp_path / totals_file.NAME).exists()
    assert made(tmp_path) is not None


def test_too_many_series_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MAX_SERIES", 1)
    log(tmp_path, 10)
    assert not (tmp_path / totals_file.NAME).exists()


KILLED = """
import sys
from pathlib import Path
from sightglass.core.process.clock import SystemClock
from sightglass.storage.write import rotation
from sightglass.storage.write.writer import RecordWriter

rotation.DUE_BYTES = 20_000
keeper = RecordWriter(lambda: Path(sys.argv[1]), clock=SystemClock(), totals=True)
for n in range(10**9):
    keeper.log(n, n, 1e9 + n, {"x": float(n), "y": -n}, None)
    if n % 50 == 0:
        keeper.flush(60)
        print(n, flush=True)
"""


def test_those_of_a_killed_run_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) > 3_000 and (tmp_path / totals_file.NAME).exists():
                child.send_signal(signal.SIGKILL)
                break
    before = totals_file.kept(tmp_path, rank=None)
    assert before is not None
    (n_before,) = {before.n_rows[key] for key in before.keys}
    starts = []
    add = run_totals._add
    monkeypatch.setattr(
        run_totals, "_add", lambda builder, series, low, high: starts.append(low) or add(builder, series, low, high)
    )
    with Recording(tmp_path) as recording:
        found = run_totals.make(recording, cache_file.files_of(tmp_path), rank=None)
    assert starts == [n_before] * 2
    check_alike(found, made(tmp_path))


def test_a_table_of_runs_that_ended_opens_no_record_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        with sg.init("sweep", dir=tmp_path, config={"number": number}, record=["batch.loss"]) as run:
            for i in range(10):
                run.observe("batch", loss=i / (number + 1))
                run.log({"val/accuracy": number + i / 10}, step=i)
    monkeypatch.setattr("sightglass.client.many.partial.Recording", None)
    table = sg.open([tmp_path]).table(best="val/accuracy.max", loss="batch.loss.mean")
    assert sorted(table.column("best")) == pytest.approx([0.9, 1.9, 2.9])
    assert sorted(table.column("loss")) == pytest.approx([1.5, 2.25, 4.5])


@pytest.mark.skipif(os.name == "nt", reason="permissions")
def test_they_are_as_private_as_the_records(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        log(tmp_path, 3)
    finally:
        os.umask(old)
    assert (tmp_path / totals_file.NAME).stat().st_mode & 0o777 == 0o600
