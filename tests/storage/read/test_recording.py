"""Recordings: files as one, restarts, growth, series by row and by step."""

from __future__ import annotations

import itertools
import math
import struct
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, UnknownNameError
from sightglass.storage.format.block import Key, encode
from sightglass.storage.format.framing import frame
from sightglass.storage.format.index import ROW, BlockEntries
from sightglass.storage.format.protobuf import BYTES, FIXED64, key, varint
from sightglass.storage.read import recording as store_module
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.run_series import make
from sightglass.storage.run_file import RunFile, create

from ..blocks import columns_of  # noqa: TID252  tests are not a package

pytestmark = pytest.mark.smoke

LOSS = Key(kind="logged", tag="loss")
STREAM = Key(kind="stream", tag="batch.loss", query="on('batch').map(lambda e: e.loss)")
OTHER = Key(kind="stream", tag="batch.acc", query="on('batch').map(lambda e: e.acc)")
GROUPS = Key(kind="groups", tag="batch")
COMMANDS = Key(kind="commands", tag="commands")
numbers = itertools.count(1)


def framed(*parts: Any) -> bytes:
    return b"".join(map(bytes, frame(parts)))


def version() -> bytes:
    told = b"Sightglass.Event:2"
    return framed(key(1, FIXED64) + struct.pack("<d", 1.5) + key(3, BYTES) + varint(len(told)) + told)


class Written:
    """A run directory that files are written into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._indexes: dict[Any, int] = {}
        self._segments: dict[Path, int] = {}

    def write(
        self, *rows: Sequence[float], name: Key = LOSS, started: int = 1, rank: int = 0, number: int = 0,
        values: Any = None, index: int | None = None, ordinals: Any = None, since: int = 0,
    ) -> Path:  # fmt: skip
        """Append a block for each list of steps; the value of a row is its step plus a thousandth of the start."""
        self.path.mkdir(exist_ok=True)
        path = self.path / f"{started * 1000}-rank{rank}-{number:04d}.sgr"
        if not path.exists():
            path.write_bytes(version())
        segment = self._segments.setdefault(path, next(numbers))
        for steps in map(np.asarray, rows):
            place = (name, started, rank)
            first = self._indexes.get(place, 0) if index is None else index
            self._indexes[place] = first + len(steps)
            columns = Columns(
                index=first, steps=steps, wall_times=started + steps / 1e6,
                values=steps + started / 1000 if values is None else values,
                ordinals=np.arange(first, first + len(steps)) if ordinals is None else np.asarray(ordinals),
            )  # fmt: skip
            data = framed(*encode(name, columns, segment=segment, since=since))
            with path.open("ab") as file:
                file.write(data)
        return path


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "run")


@pytest.fixture
def opened(written: Written) -> Iterator[Recording]:
    with Recording(written.path) as recording:
        yield recording


def seen(recording: Recording, name: Key | str = LOSS) -> list[tuple[float, float, int]]:
    """Return step, value and index of each row."""
    series = recording.series(name)
    rows = [
        (part.steps[i].item(), part.values[i].item(), part.index + i)
        for part in series.parts()
        for i in range(len(part))
    ]
    assert [(r.step, r.value, r.index) for r in series] == rows
    assert series.steps.tolist() == [step for step, _, _ in rows]
    return rows


def test_nothing_may_be_there_yet(tmp_path: Path) -> None:
    with Recording(tmp_path / "run") as recording:
        assert (recording.keys(), recording.tags(), recording.ranks, recording.damages) == ([], [], [], [])
        assert not recording.changed()
        Written(tmp_path / "run").write([0, 1])
        assert recording.changed()
        assert recording.refresh()
        assert not recording.changed()
        assert seen(recording) == [(0, 0.001, 0), (1, 1.001, 1)]


def test_files_of_one_process_follow_each_other(written: Written, opened: Recording) -> None:
    written.write([0, 1], [2, 3])
    written.write([2, 1], number=1)  # no restart: nothing is hidden
    written.write([0], number=10)
    opened.refresh()
    assert [step for step, _, _ in seen(opened)] == [0, 1, 2, 3, 2, 1, 0]
    assert [index for _, _, index in seen(opened)] == list(range(7))
    assert opened.generation == 0


def test_growth_and_new_files_are_followed(written: Written, opened: Recording) -> None:
    for i in range(6):
        assert not opened.changed()
        written.write([10 * i, 10 * i + 1], number=i // 3)
        assert opened.changed()
        assert opened.refresh()
        assert not opened.refresh()
        assert len(seen(opened)) == 2 * i + 2


def test_ranks_are_read_apart(written: Written) -> None:
    written.write([0, 1])
    written.write([5], rank=2)
    with Recording(written.path) as zero, Recording(written.path, rank=2) as two:
        assert zero.ranks == two.ranks == [0, 2]
        assert seen(zero) == [(0, 0.001, 0), (1, 1.001, 1)]
        assert seen(two) == [(5, 5.001, 0)]


def test_one_file_is_a_recording(written: Written) -> None:
    path = written.write([0, 1])
    saved = path.rename(path.with_name("loss.sgr"))
    with Recording(saved) as recording:
        assert len(seen(recording)) == 2
        assert recording.info.name == "loss"


def test_a_run_says_its_name(written: Written) -> None:
    written.write([0])
    with Recording(written.path) as recording:
        assert (recording.info.name, recording.info.id, recording.info.started) == ("run", "", 1.0)
        create(written.path, RunFile(name="mnist", id="0123456789ab", started=5.0, config={"lr": 0.1}))
        recording.refresh()
        assert (recording.info.name, recording.info.started) == ("mnist", 5.0)
        assert recording.series("loss")[0].run == "mnist"


def test_series_are_found_by_tag_query_or_key(written: Written) -> None:
    written.write([0])
    written.write([1], name=STREAM)
    written.write([2], name=Key(kind="stream", tag="loss", query="log.loss"))
    written.write([3], name=GROUPS)
    with Recording(written.path) as recording:
        assert recording.tags() == ["batch.loss", "loss"]
        opened_keys = recording.keys()
        assert [key.kind for key in opened_keys] == ["groups", "logged", "stream", "stream"]
        assert recording.series("loss").key == LOSS
        assert recording.series("log.loss").steps.tolist() == [2]
        assert recording.series(STREAM.query).tag == "batch.loss"
        assert recording.series(GROUPS).steps.tolist() == [3]
        with pytest.raises(UnknownNameError, match=r"'los' in '.*run'.*'loss'"):
            recording.series("los")
        with pytest.raises(UnknownNameError):
            recording.series(Key(kind="logged", tag="batch.loss"))


# Restarts


def test_a_restart_at_a_lower_step_hides_what_was_there(written: Written, opened: Recording) -> None:
    written.write([0, 10, 20], [30, 40], [50])
    opened.refresh()
    assert len(seen(opened)) == 6
    assert opened.generation == 0
    written.write([25, 35], started=2)
    opened.refresh()
    assert seen(opened) == [(0, 0.001, 0), (10, 10.001, 1), (20, 20.001, 2), (25, 25.002, 3), (35, 35.002, 4)]
    assert opened.generation == 1
    written.write([45], started=2)
    opened.refresh()
    assert seen(opened)[-1] == (45, 45.002, 5)
    assert opened.generation == 1


def test_a_restart_in_the_middle_of_a_block_cuts_it(written: Written, opened: Recording) -> None:
    written.write([0, 10, 20, 30])
    written.write([20], started=2)
    opened.refresh()
    assert seen(opened) == [(0, 0.001, 0), (10, 10.001, 1), (20, 20.002, 2)]


def test_a_restart_at_a_higher_step_hides_nothing(written: Written, opened: Recording) -> None:
    written.write([0, 10])
    written.write([20, 30], started=2)
    opened.refresh()
    assert [step for step, _, _ in seen(opened)] == [0, 10, 20, 30]


def test_a_restart_hides_in_each_series_by_itself(written: Written, opened: Recording) -> None:
    written.write([0, 10, 20])
    written.write([0, 10, 20], name=STREAM)
    written.write([10], started=2)
    opened.refresh()
    assert [step for step, _, _ in seen(opened)] == [0, 10]
    assert [step for step, _, _ in seen(opened, STREAM)] == [0, 10, 20]


rows = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=3)


@given(st.lists(rows, min_size=1, max_size=4), st.integers(1, 3))
def test_what_is_seen_after_restarts(
    tmp_path_factory: pytest.TempPathFactory, starts: list[list[list[int]]], n_blocks: int
) -> None:
    written = Written(tmp_path_factory.mktemp("r") / "run")
    for number, blocks in enumerate(starts, 1):
        for i, steps in enumerate(blocks):
            written.write(steps, started=number, number=i // n_blocks)
    with Recording(written.path) as recording:
        found = seen(recording)
        firsts = [blocks[0][0] for blocks in starts]
        expected: list[tuple[float, float]] = []
        for number, blocks in enumerate(starts, 1):
            limit = min(firsts[number:], default=math.inf)
            steps = [part.steps.tolist() for part in _parts(recording, number)]
            expected += [(step, step + number / 1000) for part in steps for step in part if step < limit]
            assert sorted(itertools.chain(*steps)) == sorted(itertools.chain(*blocks))
        assert [(step, value) for step, value, _ in found] == expected
        indexes = [index for _, _, index in found]
        assert indexes == sorted(indexes)
        if all(len(blocks) == 1 and sorted(blocks[0]) == blocks[0] for blocks in starts):
            assert indexes == list(range(len(found)))
        series = recording.series("loss")
        for start, stop in itertools.product(range(0, len(found) + 1, 2), repeat=2):
            part = series.columns(start, stop)
            assert (
                part.values.tolist() == [v for _, v, _ in found[start:stop]] if len(part) else found[start:stop] == []
            )


def _parts(recording: Recording, started: int) -> list[Columns]:
    parts = [part for part in recording.parts if part.started == started]
    return [columns_of(part, part.entries()[LOSS]) for part in parts if LOSS in part.entries()]


def test_numbers_of_events_go_on_alike_for_all_series_of_an_event(written: Written, opened: Recording) -> None:
    written.write(range(1000), name=STREAM)
    written.write(range(0, 1000, 10), name=OTHER, ordinals=range(0, 1000, 10))
    for end in (300, 600, 900):
        written.write([end], name=GROUPS, ordinals=[end])
    written.write(range(500, 700), name=STREAM, started=2)  # event 0 of the new process is event 500
    written.write(range(550, 700, 10), name=OTHER, started=2, ordinals=range(50, 200, 10))
    written.write([100], name=GROUPS, started=2, ordinals=[100])
    opened.refresh()
    loss, acc, ends = (opened.series(name).columns() for name in (STREAM, OTHER, GROUPS))
    assert loss.ordinals.tolist() == loss.steps.tolist() == list(range(700))
    assert acc.ordinals.tolist() == acc.steps.tolist() == [*range(0, 550, 10), *range(550, 700, 10)]
    assert ends.ordinals.tolist() == [300, 600]
    assert [index for _, _, index in seen(opened, GROUPS)] == [0, 1]


def test_a_run_that_begins_anew_counts_anew(written: Written, opened: Recording) -> None:
    written.write([0, 1, 2], name=STREAM)
    written.write([3], name=GROUPS, ordinals=[3])
    written.write([0, 1], name=STREAM, started=2)
    opened.refresh()
    assert seen(opened, STREAM) == [(0, 0.002, 0), (1, 1.002, 1)]
    assert opened.series(STREAM).columns().ordinals.tolist() == [0, 1]
    assert seen(opened, GROUPS) == []


def test_the_history_of_acts_is_never_hidden(written: Written, opened: Recording) -> None:
    written.write([100, 200], name=COMMANDS)
    written.write([50], name=COMMANDS, started=2)
    opened.refresh()
    assert [(step, index) for step, _, index in seen(opened, COMMANDS)] == [(100, 0), (200, 1), (50, 2)]
    assert opened.series(COMMANDS).columns().ordinals.tolist() == [0, 1, 2]


# Series


def test_a_series_says_what_it_is(written: Written) -> None:
    written.write([0, 1], values=np.zeros((2, 3, 4), np.float32), since=7)
    with Recording(written.path) as recording:
        series = recording.series("loss")
        assert (series.tag, series.n, len(series), series.type, series.stored_as, series.since) == (
            "loss", 2, 2, "float32[3, 4]", "", 7,
        )  # fmt: skip
        assert repr(series) == "<Series 'loss', 2 records of float32[3, 4]>"
        assert series.wall_times.tolist() == [1.0, 1.000001]


def test_rows_are_read_by_number(written: Written) -> None:
    written.write([0, 10], [20], [30, 40, 50])
    with Recording(written.path) as recording:
        series = recording.series("loss")
        assert [series[i].step for i in (0, 1, 2, 5, -1, -6)] == [0, 10, 20, 50, 50, 0]
        assert series[3].tag == "loss"
        assert series.columns(1, 4).steps.tolist() == [10, 20, 30]
        assert series.columns(1, 4).index == 1
        assert series.columns(-2).steps.tolist() == [40, 50]
        assert (len(series.columns(6)), series.columns(6).index) == (0, 6)
        for i in (6, -7):
            with pytest.raises(IndexError):
                series[i]


def test_values_are_found_by_their_step(written: Written) -> None:
    written.write([0, 10], [20, 10], [30, 45], [math.nan])
    with Recording(written.path) as recording:
        series = recording.series("loss")
        assert (series.at(0), series.at(20), series.at(45.0)) == (0.001, 20.001, 45.001)
        assert series.at(10) == 10.001
        for step, near in ((7, "0 and 10"), (-5, "0"), (99, "45"), (40, "30 and 45"), (25, "20 and 30")):
            with pytest.raises(UnknownNameError, match=f"'loss' at step {step};.*: {near}$"):
                series.at(step)


def test_of_several_values_at_a_step_the_last_is_taken(written: Written) -> None:
    written.write([5], values=np.array([1.0]))
    written.write([5, 5], values=np.array([2.0, 3.0]))
    written.write([4, 5], values=np.array([4.0, 5.0]), started=2)
    with Recording(written.path) as recording:
        assert recording.series("loss").at(5) == 5.0


def test_a_part_of_an_array_is_found_by_its_step(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    written.write([0, 10], values=arrays)
    written.write([20], values=arrays[1:] + 100)
    with Recording(written.path) as recording:
        series = recording.series("loss")
        assert np.array_equal(series.at(10), arrays[1])
        assert np.array_equal(series.at(10, "[0, 1:3]"), arrays[1, 0, 1:3])
        assert np.array_equal(series.at(20, (slice(None), 2)), arrays[1, :, 2] + 100)
        assert series.at(20, -1).tolist() == (arrays[1, -1] + 100).tolist()
        monkeypatch.setattr(type(recording.parts[0]), "load", None)  # nothing else is read
        assert series.at(20, "[0, 0]") == 112


def test_steps_of_large_arrays_are_told_without_reading_them(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(5):
        written.write([step], values=np.zeros((1, 20_000)))
    written.write([7.5], values=np.zeros((1, 20_000)))
    written.write([9], values=np.zeros((1, 2)))
    with Recording(written.path) as recording:
        series = recording.series("loss")
        n_read = []
        real = store_module.SegmentReader._load
        monkeypatch.setattr(store_module.SegmentReader, "_load", lambda *args: n_read.append(1) or real(*args))
        assert series.steps.tolist() == [0, 1, 2, 3, 4, 7.5, 9]
        assert series.wall_times.tolist() == [1 + step / 1e6 for step in (0, 1, 2, 3, 4, 7.5, 9)]
        assert len(n_read) == 1


def test_steps_are_read_once_as_a_series_grows(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.write([0, 1], [2, 3])
    with Recording(written.path) as recording:
        series = recording.series("loss")
        assert series.steps.tolist() == [0, 1, 2, 3]
        n_read = []
        real = store_module.SegmentReader._load
        monkeypatch.setattr(store_module.SegmentReader, "_load", lambda *args: n_read.append(1) or real(*args))
        written.write([4.5])
        recording.refresh()
        assert series.steps.tolist() == [0, 1, 2, 3, 4.5]
        assert len(n_read) == 1
        written.write([2, 3], started=2)
        recording.refresh()
        assert series.steps.tolist() == [0, 1, 2, 3]


def test_damaged_rows_keep_their_numbers_and_are_left_out(written: Written) -> None:
    path = written.write([0, 1], [2, 3], [4, 5])
    data = bytearray(path.read_bytes())
    with Recording(written.path) as recording:
        entry = recording.parts[0].entries()[LOSS][1]
    data[entry.offset + 12 + entry.length - 1] ^= 1
    path.write_bytes(bytes(data))
    with Recording(written.path) as recording:
        series = recording.series("loss")
        assert series.damages == []
        parts = series.parts()
        assert [(part.index, part.steps.tolist()) for part in parts] == [(0, [0, 1]), (4, [4, 5])]
        assert series.columns().steps.tolist() == series.steps.tolist() == [0, 1, 4, 5]
        assert len(series) == 6
        assert series[4].step == 4
        for read in (lambda: series[3], lambda: series.at(2), lambda: series.at(3, ())):
            with pytest.raises(DamagedError, match="'loss', step 2"):
                read()
        assert [(d.tag, d.step, d.offset) for d in series.damages] == [("loss", 2.0, entry.offset)]
        assert recording.damages == series.damages


def test_a_gap_in_the_numbers_is_kept(written: Written) -> None:
    written.write([0, 1])
    written.write([5, 6], index=5)
    with Recording(written.path) as recording:
        assert [(part.index, len(part)) for part in recording.series("loss").parts()] == [(0, 2), (5, 2)]
        assert [record.index for record in recording.series("loss")] == [0, 1, 5, 6]


def test_looking_for_changes_reads_nothing(
    written: Written, opened: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        written.write([number], number=number)
    opened.refresh()
    monkeypatch.setattr(store_module.SegmentReader, "refresh", None)
    monkeypatch.setattr(store_module.os, "listdir", None)
    assert not opened.changed()
    written.write([99], number=19)
    assert opened.changed()


def test_rows_that_the_next_file_of_a_process_repeats_are_shown_once(tmp_path: Path) -> None:
    """A write took effect although it failed, and could not be taken back."""
    written = Written(tmp_path / "run")
    written.write([0, 1], [2, 3], [4])
    written.write([2, 3], number=1, index=2)
    written.write([4, 5, 6], number=1, index=4)  # compacted since then
    with Recording(tmp_path / "run") as recording:
        assert [record.index for record in recording.series("loss")] == list(range(7))
        assert recording.series("loss").steps.tolist() == list(range(7))


def test_a_query_that_is_recorded_a_second_time_hides_nothing(tmp_path: Path) -> None:
    written = Written(tmp_path / "run")
    written.write([0, 1], [2, 3], name=STREAM)
    written.write([10, 11], name=STREAM, number=1, index=0)
    with Recording(tmp_path / "run") as recording:
        assert recording.series(STREAM).steps.tolist() == [0, 1, 2, 3, 10, 11]


def test_the_view_of_one_file_takes_no_more_memory_while_it_is_made_than_it_holds():
    class File:
        dialect = "sightglass"
        session_starts = ()

    rows = np.zeros(20_000, ROW)
    rows["n"] = 1
    source = (File(), BlockEntries(LOSS, ["float"], rows))
    make([(0.0, [source])], [math.inf], [0])
    tracemalloc.start()
    try:
        view = make([(0.0, [source])], [math.inf], [0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(view) == len(rows)
    assert peak < 1.5 * (view.pieces.nbytes + view.ends.nbytes)
