"""The keeper: what is given comes back from the files, in order, by tag, however it was given."""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.waiting import wait_until

from sightglass.core.columns import plain
from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.threads import Worker
from sightglass.core.program_values.guarded import LostValue
from sightglass.core.values import Histogram, Image, Text
from sightglass.storage.format import block
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import RandomAccessFile, Scan
from sightglass.storage.format.index import BlockEntry
from sightglass.storage.write import column_builder, held_rows, writer
from sightglass.storage.write.column_builder import ColumnBuilder
from sightglass.storage.write.writer import RecordWriter

from ..blocks import entry_of, whole_frames  # noqa: TID252  tests are not a package
from ..disk_scenario import HandWorker  # noqa: TID252

WAIT_S = 60.0

Point = tuple[int, int, float, float, Any, dict[str, float]]
"""(index, ordinal, step, wall time, value, tracks)."""


def stored(directory: Path) -> tuple[dict[Key, list[Point]], dict[Key, list[BlockEntry]]]:
    """Read everything in a directory; numbers of records must grow within each series."""
    points: dict[Key, list[Point]] = defaultdict(list)
    heads: dict[Key, list[BlockEntry]] = defaultdict(list)
    for path in sorted(directory.glob("*.sgr")):
        file = RandomAccessFile(path)
        scan = Scan(file)
        for _, payload in whole_frames(file, scan):
            if not block.is_block(payload):
                continue
            head, columns = entry_of(payload), block.decode(payload)
            heads[head.key].append(head)
            assert not points[head.key] or points[head.key][-1][0] < columns.index
            for i in range(head.n):
                record = columns.record(i, tag=head.key.tag, run="")
                place = (record.index, int(columns.ordinals[i]), record.step, record.wall_time)
                points[head.key].append((*place, plain(columns.values[i]), dict(record.steps)))
        file.close()
        assert not scan.torn
        assert not scan.damages
    return points, heads


def tag(name: str) -> Key:
    return Key(kind="logged", tag=name)


def values_of(directory: Path, name: str) -> list[Any]:
    return [point[4] for point in stored(directory)[0][tag(name)]]


class Keeping:
    """A keeper that writes into a folder, and the warnings it gave."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.open: Callable[[], Path] = lambda: directory
        self.keeper = RecordWriter(self._open, clock=SystemClock())
        self.n = 0

    def _open(self) -> Path:
        return self.open()

    def log(self, values: dict[str, Any], *, step: Any = None, **steps: float) -> None:
        self.keeper.log(self.n, self.n if step is None else step, 1e9 + self.n, values, steps or None)
        self.n += 1

    def flush(self) -> None:
        self.keeper.flush(WAIT_S)

    def close(self) -> None:
        self.keeper.close(WAIT_S)


Told = Callable[[], list[str]]


@pytest.fixture
def told() -> Iterator[Told]:
    """Return a function that returns the warnings given so far."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(warning.message) for warning in caught]


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    keeping = Keeping(tmp_path / "run")
    keeping.directory.mkdir()
    yield keeping
    keeping.keeper.close(WAIT_S)


plain_values = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.text(max_size=5),
    st.floats(width=32).map(np.float32), st.floats().map(np.float64), st.integers(-5, 5).map(np.int64),
)  # fmt: skip
any_values = plain_values | st.one_of(
    st.lists(st.floats(width=16), min_size=1, max_size=4).map(np.array),
    st.tuples(st.integers(), st.text(max_size=3)),
    st.just(Text("t")),
    st.integers(0, 9).map(lambda n: Histogram.from_counts([n, 1], [0, 1, 2])),
)
one_kind = st.sampled_from([st.floats(), st.integers(-9, 9), any_values])
steps = st.integers(0, 10**12) | st.floats(allow_nan=False)
tracks = st.none() | st.dictionaries(st.sampled_from(["epoch", "sample"]), st.integers(0, 9), max_size=2)
logs = one_kind.flatmap(
    lambda values: st.lists(
        st.tuples(steps, st.dictionaries(st.sampled_from("abcd"), values, max_size=4), tracks), max_size=30
    )
)


def same(kept: Any, value: Any) -> bool:
    """Tell whether a value came back with its type; NumPy's default types are Python's."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        return kept.dtype == value.dtype and np.array_equal(kept, value, equal_nan=True)
    if isinstance(value, float | np.floating):
        return type(kept) is type(value) and (kept == value or (math.isnan(kept) and math.isnan(value)))
    return type(kept) is type(value) and kept == value


def expected(given: list[Any]) -> dict[Key, list[Point]]:
    points: dict[Key, list[Point]] = defaultdict(list)
    for n, (step, values, steps) in enumerate(given):
        for name, value in values.items():
            points[tag(name)].append((len(points[tag(name)]), n, step, 1e9 + n, value, steps or {}))
    return points


def check(kept: dict[Key, list[Point]], given: list[Any]) -> None:
    want = expected(given)
    assert kept.keys() == want.keys()
    for key, points in want.items():
        assert [(p[:4], p[5]) for p in kept[key]] == [(p[:4], p[5]) for p in points]
        assert all(same(a[4], b[4]) for a, b in zip(kept[key], points, strict=True)), (kept[key], points)


@settings(max_examples=examples(60))
@given(given=logs, flushes=st.sets(st.integers(0, 30)))
def test_what_is_logged_comes_back(
    tmp_path_factory: pytest.TempPathFactory, given: list[Any], flushes: set[int]
) -> None:
    directory = tmp_path_factory.mktemp("run")
    keeper = RecordWriter(lambda: directory, clock=SystemClock())
    for n, (step, values, steps) in enumerate(given):
        keeper.log(n, step, 1e9 + n, values, steps)
        if n in flushes:
            keeper.flush(WAIT_S)
            assert keeper.statistics().n_waiting == 0
    keeper.close(WAIT_S)
    check(stored(directory)[0], given)
    n_rows = sum(len(values) for _, values, _ in given)
    assert keeper.statistics().n_records == n_rows
    assert keeper.statistics().n_bytes == sum(path.stat().st_size for path in directory.iterdir())
    assert (keeper.statistics().n_dropped, keeper.statistics().last_error) == (0, "")


@given(given=logs, cuts=st.sets(st.integers(1, 29)), takes=st.sets(st.integers(0, 9)))
def test_any_chunks_make_the_same_records(given: list[Any], cuts: set[int], takes: set[int]) -> None:
    gathered = ColumnBuilder(lose=pytest.fail)  # type: ignore[arg-type]
    points: dict[Key, list[Point]] = defaultdict(list)
    places = [0, *sorted(cut for cut in cuts if cut < len(given)), len(given)]
    for i, (start, stop) in enumerate(pairwise(places)):
        items = [(n, given[n][0], 1e9 + n, given[n][1], given[n][2], 0) for n in range(start, stop)]
        if items:
            gathered.log(items)
        for rows in gathered.take(all=i in takes or stop == len(given)):
            columns = rows.columns
            for j in range(len(columns)):
                record = columns.record(j, tag="", run="")
                place = (record.index, int(columns.ordinals[j]), record.step, record.wall_time)
                points[rows.key].append((*place, plain(columns.values[j]), dict(record.steps)))
    assert (gathered.n_rows, gathered.n_bytes) == (0, 0)
    check(points, given)


class Unreadable:
    """An array of no library, whose device is gone."""

    dtype, shape, size, ndim = np.dtype(float), (3,), 3, 1

    def __array_namespace__(self) -> Any: ...

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (len, "a function cannot travel"),
        (object(), "an object cannot travel"),
        ("\ud800", "surrogates not allowed"),
        (np.array([{}]), "dtype object"),
        (2**9000, "got 1126"),
        (Unreadable(), "RuntimeError: the device is gone"),
        (Histogram([1j]), "TypeError: Expected real numbers"),
        ([1, {"a": print}], "value[1]['a']: a function cannot travel"),
    ],
)
def test_a_value_that_cannot_be_kept_costs_only_itself(keeping: Keeping, told: Told, bad: Any, why: str) -> None:
    for n in range(6):
        keeping.log({"a": n, "b": bad if n in (1, 2, 4) else n})
    keeping.flush()
    (message,) = told()
    assert message.startswith("Values of 'b' cannot be recorded: ")
    assert why in message
    points, heads = stored(keeping.directory)
    assert [point[:2] for point in points[tag("a")]] == [(n, n) for n in range(6)]
    assert [point[:2] for point in points[tag("b")]] == [(0, 0), (3, 3), (5, 5)]
    assert [head.n_missed for head in heads[tag("b")]] == [0, 2, 3]
    assert keeping.keeper.statistics().n_dropped == 3
    keeping.flush()


def test_a_list_that_holds_itself_cannot_be_kept(keeping: Keeping, told: Told) -> None:
    endless: list[Any] = []
    endless.append(endless)
    keeping.log({"a": 1, "b": endless})
    keeping.flush()
    assert "Values of 'b' cannot be recorded: value[0]: it contains itself" in told()[0]
    assert values_of(keeping.directory, "a") == [1]


def test_what_the_program_overwrites_is_kept_as_it_was(keeping: Keeping) -> None:
    torch = pytest.importorskip("torch")
    array, small, tensor = np.zeros(2**18), np.zeros(3), torch.zeros(2**17)
    zero, half, listed = np.zeros(()), torch.zeros(3, dtype=torch.bfloat16), [0, [0]]
    for n in range(12):
        for each in (array, small, tensor, half):
            each[:] = n
        zero[()] = listed[0] = listed[1][0] = n  # type: ignore[index]
        keeping.log({"large": array, "small": small, "tensor": tensor, "zero": zero, "loss": torch.tensor(n * 0.5),
                     "half": half, "list": listed, "image": Image(small.reshape(1, 3)), "samples": Histogram(array)},
                    step=np.array(n))  # fmt: skip
    array[:] = tensor[:] = small[:] = -1
    keeping.flush()
    for name, size in {"large": 2**18, "tensor": 2**17, "small": 3, "half": 3}.items():
        kept = values_of(keeping.directory, name)
        assert [value.shape for value in kept] == [(size,)] * 12
        assert [set(value.tolist()) for value in kept] == [{n} for n in range(12)]
    assert values_of(keeping.directory, "large")[0].dtype == np.float64
    assert values_of(keeping.directory, "tensor")[0].dtype == np.float32
    assert values_of(keeping.directory, "zero") == [*range(12)]
    assert values_of(keeping.directory, "loss") == [n * 0.5 for n in range(12)]
    assert values_of(keeping.directory, "list") == [[n, [n]] for n in range(12)]
    assert [image.value.tolist() for image in values_of(keeping.directory, "image")] == [[[n] * 3] for n in range(12)]
    assert [h.edges[0] for h in values_of(keeping.directory, "samples")] == [n - 0.5 for n in range(12)]
    assert [point[2] for point in stored(keeping.directory)[0][tag("loss")]] == [*range(12)]


def test_values_on_a_device_are_read_on_the_thread(keeping: Keeping) -> None:
    jax = pytest.importorskip("jax")
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every backend can donate
        x = jax.numpy.arange(4.0)
        for _ in range(3):
            keeping.log({"x": x, "loss": x[1]}, step=x[1])
            x = double(x)
    keeping.flush()
    assert [value.tolist() for value in values_of(keeping.directory, "x")] == [[0, k, 2 * k, 3 * k] for k in (1, 2, 4)]
    assert [point[2] for point in stored(keeping.directory)[0][tag("loss")]] == [1, 2, 4]


def test_streams_bring_their_own_numbers(keeping: Keeping) -> None:
    key = Key(kind="stream", tag="batch.loss", query="batch.loss")
    for n in (0, 1, 2, 5, 6, 9):
        keeping.keeper.rows(key, [(n, n, n / 2, n * 0.25, None, 10 * n)], since=3, n_missed=n)
    rows = [(n, n, n / 2, n * 0.25, (4, 3 if n < 22 else 1, {"epoch": n}), 10 * n) for n in (20, 21, 22)]
    keeping.keeper.rows(key, rows, since=3, n_missed=11)
    keeping.keeper.rows(Key(kind="groups", tag="batch"), [(0, 5, 2.5, True, None, 5)])
    keeping.flush()
    points, heads = stored(keeping.directory)
    assert [point[0] for point in points[key]] == [0, 1, 2, 5, 6, 9, 20, 21, 22]
    assert [(head.index, head.n, head.since, head.n_missed) for head in heads[key]] == [
        (0, 3, 3, 2), (5, 2, 3, 6), (9, 1, 3, 9), (20, 3, 3, 11),
    ]  # fmt: skip
    assert [point[1] for point in points[key]] == [10 * point[0] for point in points[key]]
    assert points[key][-1][5] == {"epoch": 22}
    assert points[Key(kind="groups", tag="batch")][0][:5] == (0, 5, 5, 2.5, True)


def test_several_threads_may_give(keeping: Keeping) -> None:
    def give(name: str) -> None:
        for n in range(5_000):
            keeping.keeper.log(n, n, 1.0, {name: n}, None)

    threads = [threading.Thread(target=give, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeping.flush()
    for name in "abc":
        assert [point[:2] for point in stored(keeping.directory)[0][tag(name)]] == [(n, n) for n in range(5_000)]


def test_full_blocks_are_small(keeping: Keeping) -> None:
    for _ in range(20_000):
        keeping.log({"a": 0.5, "b": 1.5})
    keeping.close()
    statistics = keeping.keeper.statistics()
    assert statistics.n_records == 40_000
    assert statistics.n_bytes / statistics.n_records < 17


def test_nothing_given_is_nothing_written(tmp_path: Path) -> None:
    keeper = RecordWriter(pytest.fail, clock=SystemClock())
    n_threads = threading.active_count()
    assert not keeper.active
    keeper.flush(WAIT_S)
    keeper.close(WAIT_S)
    keeper.close(WAIT_S)
    keeper.log(0, 0, 0.0, {"a": 1}, None)
    assert threading.active_count() == n_threads
    assert keeper.statistics() == Statistics()


def test_what_is_given_reaches_the_file_by_itself(keeping: Keeping) -> None:
    for round_ in range(3):
        keeping.log({"a": 1.0})
        wait_until(lambda n=round_: keeping.keeper.statistics().n_records == n + 1)
    assert keeping.keeper.statistics().n_waiting == 0


class Hand(Worker):
    """A thread that is moved by hand."""

    def __init__(self) -> None:
        super().__init__("hand", lambda now_s: math.inf)
        self.woken = False
        self.meanwhile: Callable[[], None] = lambda: None

    def wake(self) -> None:
        self.woken = True

    def breathe(self) -> None:  # type: ignore[override]
        self.meanwhile()


@dataclass
class HandClock:
    """A clock that is moved by hand."""

    now_s: float = 100.0

    def wall(self) -> float:
        return self.now_s

    monotonic = wall


@settings(max_examples=examples(40))
@given(
    during=st.sets(st.integers(0, 20)),
    plan=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.7, 5.0]),
            st.sampled_from([1, 3, writer.WAKE_ITEMS + 5, held_rows.FULL_ROWS]),
            st.sampled_from([0.5, np.zeros(2**17)]),
        ),
        max_size=12,
    ),
)
def test_everything_is_written_in_time_and_the_thread_sleeps(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[float, int, Any]], during: set[int]
) -> None:
    directory, clock, hand = tmp_path_factory.mktemp("run"), HandClock(), Hand()
    keeper = RecordWriter(lambda: directory, clock=clock)
    keeper._worker = hand
    given_at, wakes_s, n_rounds, n_breaths = [(0.0, 0)], math.inf, 0, itertools.count()

    def give(n: int, value: Any = 0.5) -> None:
        n_given = given_at[-1][1]
        for i in range(n_given, n_given + n):
            keeper.log(i, i, clock.now_s, {"a": value}, None)
        given_at.append((clock.now_s, n_given + n))

    hand.meanwhile = lambda: give(next(n_breaths) in during)
    for wait_s, n, value in [*plan, (20.0, 0, 0.0)]:
        then_s = clock.now_s + wait_s
        while hand.woken or wakes_s <= then_s:
            clock.now_s = clock.now_s if hand.woken else wakes_s
            hand.woken = False
            wakes_s = clock.now_s + keeper.round(clock.now_s)
            n_rounds += 1
            promised = max(total for at_s, total in given_at if at_s <= clock.now_s - writer.FLUSH_S - 1e-6)
            assert keeper.statistics().n_records >= promised
        clock.now_s = then_s
        give(n if isinstance(value, float) else 1, value)
    assert (keeper.statistics().n_records, keeper.statistics().n_waiting) == (given_at[-1][1], 0)
    assert wakes_s == math.inf
    assert n_rounds <= 5 * (len(plan) + len(during)) + 1
    keeper._segments.close()


def test_large_values_are_written_at_once(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FLUSH_S", 1e6)
    keeping.log({"w": np.ones(2**20)})
    wait_until(lambda: keeping.keeper.statistics().n_records == 1)


class Full:
    """A disk that is full while it is told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        writev = os.writev

        def write(file: int, buffers: Any) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return writev(file, buffers)

        monkeypatch.setattr(os, "writev", write)


def test_a_full_disk_is_told_once_and_nothing_is_lost(
    keeping: Keeping, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch)
    monkeypatch.setattr(writer, "RETRY_S", 0.02)
    for outage in range(2):
        disk.full = True
        for n in range(3):
            keeping.log({"a": 3 * outage + n})
            with pytest.raises(StorageError, match=f"No space left.*; {n + 1} wait.*0 are lost$"):
                keeping.flush()
        (path,) = keeping.directory.iterdir()
        why = f"{path}: No space left on device"
        assert [one.endswith(f": {why}") for one in told()] == [True] * (outage + 1)
        assert keeping.keeper.statistics().n_waiting == 3
        disk.full = False
        wait_until(lambda n=outage: keeping.keeper.statistics().n_records == 3 * n + 3)
        keeping.flush()
    assert values_of(keeping.directory, "a") == [*range(6)]
    assert "No space left" in keeping.keeper.statistics().last_error


def check_holes(keeping: Keeping, key: Key) -> None:
    """Check that each record has the number of its call, so that those that were dropped left a hole."""
    points, heads = stored(keeping.directory)
    for each in (tag("a"), tag("b"), key):
        assert [point[0] for point in points[each]] == [point[1] for point in points[each]]
        assert heads[each][-1].n_missed == (keeping.n - len(points[each]) if each != key else heads[key][-1].n_missed)
    assert points[tag("a")][-1][0] == keeping.n - 1
    statistics = keeping.keeper.statistics()
    assert statistics.n_records == sum(map(len, points.values()))
    assert statistics.n_records + statistics.n_dropped == 3 * keeping.n
    assert statistics.n_dropped


def test_beyond_a_bound_the_newest_calls_are_dropped(
    keeping: Keeping, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch)
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 10_000)
    monkeypatch.setattr(writer, "MAX_WAITING", 1_000)
    key = Key(kind="groups", tag="batch")

    def train(n_steps: int) -> None:
        for n in range(keeping.n, keeping.n + n_steps):
            keeping.log({"a": 0.0, "b": n})
            keeping.keeper.rows(key, [(n, n, 1.0, n, None, n)])

    train(10)
    with pytest.raises(StorageError):
        keeping.flush()
    train(3_000)
    n_dropped = keeping.keeper.statistics().n_dropped
    disk.full = False
    with pytest.raises(StorageError, match=f"^{n_dropped} records"):
        keeping.flush()
    train(10)
    keeping.flush()
    assert len([message for message in told() if "dropped" in message]) == 1
    check_holes(keeping, key)


def test_a_flush_writes_what_waits_behind_records_that_could_not_be_written(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch)
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 10_000)
    keeper = RecordWriter(lambda: tmp_path, clock=SystemClock(), worker=partial(HandWorker, HandClock()))
    for n in range(1_000):
        keeper.log(n, n, 1e9, {"a": 0.5}, None)
    with pytest.raises(StorageError, match="1000 wait"):
        keeper.flush(WAIT_S)
    disk.full = False
    keeper.log(1_000, 1_000, 1e9, {"a": 0.5}, None)
    keeper.flush(WAIT_S)
    assert len(values_of(tmp_path, "a")) == 1_001
    keeper.close(WAIT_S)


def test_beyond_a_bound_large_values_are_dropped_and_small_ones_kept(
    keeping: Keeping, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch)
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 2**21)
    key = Key(kind="groups", tag="batch")
    for n in range(50):
        keeping.log({"a": n, "b": np.full(2**15, n)})
        keeping.keeper.rows(key, [(n, n, 1.0, n, None, n)])
    with pytest.raises(StorageError, match="No space left"):
        keeping.flush()
    disk.full = False
    keeping.flush()
    keeping.log({"a": 50, "b": np.full(2**15, 50)})
    keeping.keeper.rows(key, [(50, 50, 1.0, 50, None, 50)])
    keeping.flush()
    assert any("'b' cannot be recorded: more than 2 MiB" in message for message in told())
    assert values_of(keeping.directory, "a") == [*range(51)]
    assert len(values_of(keeping.directory, "b")) >= 5
    check_holes(keeping, key)


def test_a_directory_that_cannot_be_made_is_made_later(keeping: Keeping, told: Told) -> None:
    def refuse() -> Path:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(keeping.directory))

    keeping.open = refuse
    for n in range(10):
        keeping.log({"a": n})
        with pytest.raises(StorageError, match="Permission denied"):
            keeping.flush()
    why = f"{keeping.directory}: Permission denied"
    assert [one.endswith(f": {why}") for one in told()] == [True]
    keeping.open = lambda: keeping.directory
    keeping.flush()
    assert values_of(keeping.directory, "a") == [*range(10)]


def test_closing_on_a_full_disk_says_what_is_lost(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping.log({"a": 1})
    keeping.flush()
    Full(monkeypatch)
    keeping.log({"a": 2, "b": 3})
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(StorageError, match=r"No space left.*0 wait.*2 are lost$"),
    ):
        keeping.close()
    keeping.close()
    keeping.log({"a": 4})
    assert values_of(keeping.directory, "a") == [1]
    assert (keeping.keeper.statistics().n_dropped, keeping.keeper.statistics().n_waiting) == (2, 0)


def test_whoever_makes_errors_of_warnings_loses_nothing(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Full(monkeypatch)
    warnings.simplefilter("error")
    keeping.log({"a": 1, "b": {1}})
    with pytest.raises(StorageError):
        keeping.flush()
    disk.full = False
    keeping.log({"a": 2})
    keeping.flush()
    assert values_of(keeping.directory, "a") == [1, 2]


def test_a_file_that_is_removed_is_told(keeping: Keeping) -> None:
    keeping.log({"a": 1})
    keeping.flush()
    for path in keeping.directory.iterdir():
        path.unlink()
    keeping.log({"a": 2})
    with pytest.warns(RuntimeWarning, match="removed"):
        keeping.flush()
    assert [point[:2] for point in stored(keeping.directory)[0][tag("a")]] == [(1, 1)]


def test_a_forked_child_keeps_nothing(keeping: Keeping) -> None:
    keeping.log({"a": 1})
    keeping.flush()
    (path,) = keeping.directory.iterdir()
    size = path.stat().st_size
    other = RecordWriter(lambda: keeping.directory, clock=SystemClock())
    other.__dict__.update(keeping.keeper.__dict__)
    other.abandon()
    other.log(5, 5, 5.0, {"a": 5}, None)
    other.rows(tag("a"), [(5, 5, 5.0, 5, None, 5)])
    other.flush(0.1)
    other.close(0.1)
    assert path.stat().st_size == size


def test_an_internal_error_costs_the_calls_it_met(
    keeping: Keeping, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(column_builder.ColumnBuilder, "log", fail)
    keeping.log({"a": 1})
    why = "1 records are lost: ZeroDivisionError: a bug"
    with pytest.raises(StorageError, match=f"^1 records.*{why}$"):
        keeping.flush()
    assert told() == [why]
    monkeypatch.undo()
    keeping.log({"a": 2})
    keeping.flush()
    assert [point[0] for point in stored(keeping.directory)[0][tag("a")]] == [1]


def test_a_writer_that_fails_twice_goes_on_in_another_file(
    keeping: Keeping, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    keeping.log({"a": 1})
    keeping.flush()
    monkeypatch.setattr(writer.Segments, "flush", fail)
    keeping.log({"a": 2})
    supervised = keeping.keeper._worker.supervised
    wait_until(lambda: supervised.n_restarts > 0)
    monkeypatch.undo()
    keeping.log({"a": 3})
    with pytest.raises(StorageError, match=r"^1 records"):
        keeping.flush()
    assert values_of(keeping.directory, "a") == [1, 3]
    assert len(list(keeping.directory.iterdir())) == 2
    one, two = told()
    assert re.match("sightglass-writer: a round .*: ZeroDivisionError: a bug$", one)
    assert re.match("sightglass-writer: two rounds .*: ZeroDivisionError: a bug$", two)


def test_rows_that_fail_cost_nothing_that_came_with_them(
    keeping: Keeping, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise ZeroDivisionError("a bug")

    keeping.log({"a": 1})
    keeping.flush()
    with keeping.keeper._worker.lock:  # they are taken together
        monkeypatch.setattr(column_builder.ColumnBuilder, "rows", fail)
        keeping.log({"a": 2})
        keeping.keeper.rows(Key(kind="stream", tag="s", query="s"), [(0, 0, 1e9, 1.0, None, 0)] * 3)
        keeping.log({"a": 3})
    with pytest.raises(StorageError, match=r"^3 records"):
        keeping.flush()
    assert values_of(keeping.directory, "a") == [1, 2, 3]
    assert told() == ["3 records are lost: ZeroDivisionError: a bug"]


@pytest.mark.usefixtures("told")
def test_a_flush_confirms_nothing_that_its_round_did_not_write(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    keeping.log({"a": 1})
    keeping.flush()
    monkeypatch.setattr(writer.RecordWriter, "_collect", fail)
    keeping.log({"a": 2})
    with pytest.raises(StorageError, match="ZeroDivisionError: a bug; 1 wait"):
        keeping.flush()
    monkeypatch.undo()
    keeping.flush()
    assert values_of(keeping.directory, "a") == [1, 2]


def test_lost_values_say_why() -> None:
    lost: list[Any] = []
    gathered = ColumnBuilder(lose=lambda *told: lost.append(told))
    gathered.log([(n, n, 1.0, {"a": LostValue("x") if n % 2 else 1.5}, None, 0) for n in range(4)])
    assert lost == [(tag("a"), 1, "x")] * 2
    assert [(rows.columns.index, rows.n_missed) for rows in gathered.take(all=True)] == [(0, 0), (2, 1)]
