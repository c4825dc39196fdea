"""Many series in one call: wide blocks, from the columns of the writer to what a reader shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, StorageError, UnknownNameError, WireError
from sightglass.core.process.clock import SystemClock
from sightglass.storage.format import block, index
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import SIGHTGLASS_VERSION, encode_version
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.segment_reader import SegmentReader
from sightglass.storage.write import column_builder, compact, held_rows, segment
from sightglass.storage.write.column_builder import ColumnBuilder, Log
from sightglass.storage.write.compact import Compactor
from sightglass.storage.write.rotation import Segments
from sightglass.storage.write.writer import RecordWriter

WAIT_S = 60.0
NONE: Set[int] = frozenset()
TAGS = [*"abcdefgh", 'with "quotes"', "é\n\0", "\ud800", "\ud83d\ude00"]

values = st.one_of(
    st.floats(),
    st.integers(-5, 5),
    st.booleans(),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.just(np.longlong(3)),
    st.sampled_from([None, 2**70, "text", [1, 2], {1}, np.zeros(2)]),
)
calls = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from(TAGS), values),
        st.lists(st.sampled_from(TAGS), unique=True).map(lambda tags: {tag: float(len(tag)) for tag in tags}),
        st.floats().map(lambda x: {tag: x + i for i, tag in enumerate(TAGS)}),
    ),
    max_size=12,
)
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make wide blocks of few series."""
    for module in (column_builder, held_rows):
        monkeypatch.setattr(module, "MANY", 3)
    monkeypatch.setattr(held_rows, "MIN_SERIES", 2)
    monkeypatch.setattr(held_rows, "MAX_SERIES", 5)
    for module in (held_rows, segment, compact):
        monkeypatch.setattr(module, "TALL_ROWS", 3)


def shown(value: Any) -> Any:
    """Return what is compared of a value: its type, and its bits."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    value = value.item() if isinstance(value, np.generic) and not isinstance(value, np.float32) else value
    return type(value).__name__, value if value == value else "nan"


def seen(path: Path) -> dict[str, list[tuple[int, float, Any]]]:
    """Return index, step and value of each record by its tag."""
    with Recording(path) as recording:
        return {
            tag: [(record.index, record.step, shown(record.value)) for record in recording.series(tag)]
            for tag in recording.tags()
        }


def recorded(given: list[dict[str, Any]]) -> dict[str, list[tuple[int, float, Any]]]:
    """Return what should be seen: a value that cannot be recorded leaves a hole in the numbers."""
    n: dict[str, int] = defaultdict(int)
    found: dict[str, list[tuple[int, float, Any]]] = defaultdict(list)
    for step, call in enumerate(given):
        for tag, value in call.items():
            if type(value) is not set:
                found[tag].append((n[tag], step, shown(value)))
            n[tag] += 1
    return dict(found)


def write(
    folder: Path, given: list[dict[str, Any]], cuts: Set[int] = NONE, takes: Set[int] = NONE, *, tracks: bool = True
) -> Path:  # type: ignore[assignment]
    """Write calls: collected together up to each of `cuts`, and written at each of `takes`."""
    columns = ColumnBuilder(lose=lambda key, n, why: None)
    segments = Segments(lambda: folder, rank=0, clock=SystemClock(), tell=pytest.fail)
    segments.open()
    waiting: list[Log] = []
    for i, call in enumerate(given):
        waiting.append((i, i, 1e9 + i, call, {"epoch": i // 2} if tracks and i % 5 == 4 else None, 0))
        if i in cuts or i in takes or i == len(given) - 1:
            columns.log(waiting)
            waiting = []
            for rows in columns.take(all=i in takes or i == len(given) - 1):
                segments.append(rows)
            segments.flush()
            assert columns.n_bytes >= 0
    assert (columns.n_rows, columns.n_bytes) == (0, 0)
    segments.close()
    return folder


@given(calls, st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)))
@few
@pytest.mark.usefixtures("small")
def test_what_is_logged_comes_back_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, given: list[Any], cuts: set[int], takes: set[int]
) -> None:
    folder = write(tmp_path_factory.mktemp("run"), given, cuts, takes)
    assert seen(folder) == recorded(given)
    assert check(folder).damages == []
    assert [gap for file in check(folder).files for gap in file.gaps] == []
    (path,) = folder.glob("*.sgr") if any(given) else [None]
    if path is not None:
        compacted(path)
        assert seen(folder) == recorded(given)


def compacted(path: Path) -> None:
    compactor = Compactor(SystemClock())
    compactor.add(path, path.stat().st_size)
    while compactor.busy:
        compactor.work(1.0)


@given(st.data())
@few
@pytest.mark.usefixtures("small")
def test_a_file_torn_at_any_byte_has_the_records_before_it_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    given = data.draw(calls)
    whole = write(tmp_path_factory.mktemp("whole"), given, takes=set(range(0, 12, 2)))
    files = [*whole.glob("*.sgr")]
    if not files:
        return
    content = files[0].read_bytes()
    path = tmp_path_factory.mktemp("live") / files[0].name
    path.write_bytes(b"")
    with Recording(path.parent) as recording:
        for place in sorted({*data.draw(st.lists(st.integers(0, len(content)), max_size=6)), len(content)}):
            path.write_bytes(content[:place])
            recording.refresh()
            assert recording.damages == []
            expected = recorded(given)
            for tag in recording.tags():
                series = recording.series(tag)
                found = [(record.index, record.step, shown(record.value)) for record in series]
                assert found == expected[tag][: len(found)]
                assert (len(series), series.steps.tolist()) == (len(found), [step for _, step, _ in found])
        assert sorted(recording.tags()) == sorted(expected)
    assert seen(path.parent) == expected


@pytest.mark.usefixtures("small")
def test_a_flipped_bit_costs_the_records_of_one_block(tmp_path: Path) -> None:
    given = [{tag: float(step) for tag in TAGS} for step in range(4)]
    (path,) = write(tmp_path, given, takes={1, 3}).glob("*.sgr")
    reader = SegmentReader(path)
    places = {key: entries.rows["offset"].tolist() for key, entries in reader.blocks().items()}
    reader.close()
    assert {len(offsets) for offsets in places.values()} == {2}
    hurt = next(iter(places))
    content = bytearray(path.read_bytes())
    content[places[hurt][1] + 12 + block.HEAD_BYTES + len(hurt.tag.encode("utf-8", "surrogatepass")) + 40] ^= 1
    path.write_bytes(content)
    lost = block.columns_of(hurt)
    with Recording(tmp_path) as recording:
        n = {tag: len(recording.series(tag).columns()) for tag in recording.tags()}
        assert n == {tag: 2 if tag in lost else 4 for tag in TAGS}
        (damage,) = recording.damages
    assert (damage.tag, damage.step) == ("", 2)
    assert damage.what.startswith("the payload is damaged: records of ")
    assert f"{len(lost)} series from" in damage.what


@pytest.mark.usefixtures("small")
def test_a_value_of_another_type_makes_a_series_single_and_no_others(tmp_path: Path) -> None:
    given: list[dict[str, Any]] = [dict.fromkeys("abcdef", 1.0) for _ in range(6)]
    given[2]["b"] = None
    (path,) = write(tmp_path, given, takes=set(range(6))).glob("*.sgr")
    reader = SegmentReader(path)
    keys = [[*block.columns_of(key)] if key.kind == "wide" else key.tag for key in reader.blocks()]
    reader.close()
    assert keys == [["a", "b", "c"], ["d", "e", "f"], ["a", "c"], "b"]
    assert seen(tmp_path) == recorded(given)


def test_many_rows_are_written_series_by_series(tmp_path: Path) -> None:
    tags = [f"t{i}" for i in range(held_rows.MANY)]
    given = [{tag: float(i) for tag in tags} for i in range(held_rows.TALL_ROWS)]
    (path,) = write(tmp_path, given).glob("*.sgr")
    reader = SegmentReader(path)
    assert {key.kind for key in reader.blocks()} == {"logged"}
    assert len(reader.blocks()) == len(tags)
    reader.close()


def test_an_index_beside_a_wide_file_saves_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MIN_FRAMES", 2)
    tags = [f"layer.{i}/weight" for i in range(3_000)]
    (path,) = write(tmp_path, [dict.fromkeys(tags, i) for i in range(2)], takes={0, 1}).glob("*.sgr")
    SegmentReader(path).close()
    assert index.path_of(path).exists()
    monkeypatch.setattr("sightglass.storage.read.segment_reader.Scan.runs", lambda self: iter(()))
    reader = SegmentReader(path)
    assert len(reader.entries()) == 3_000
    entries = reader.entries()[Key(kind="logged", tag=tags[-1])]
    assert [columns.values.tolist() for columns in reader.loads(entries) if columns is not None] == [[0], [1]]
    reader.close()


def test_dropped_calls_leave_a_hole_in_every_series(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tags = [f"t{i}" for i in range(300)]
    keeper = RecordWriter(lambda: tmp_path, clock=SystemClock())
    keeper.log(0, 0, 1e9, dict.fromkeys(tags, 0.0), None)
    keeper.flush(WAIT_S)
    monkeypatch.setattr(keeper, "_room", 0)
    with pytest.warns(RuntimeWarning, match="dropped"):
        keeper.log(1, 1, 1e9, dict.fromkeys(tags, 1.0), None)
    monkeypatch.undo()
    keeper.log(2, 2, 1e9, dict.fromkeys(tags, 2.0), None)
    with pytest.raises(StorageError, match="300 records"):
        keeper.close(WAIT_S)
    assert seen(tmp_path) == {tag: [(0, 0, ("float", 0.0)), (2, 2, ("float", 2.0))] for tag in tags}
    assert check(tmp_path).intact


def test_a_run_with_many_tags_is_asked_and_exported(tmp_path: Path) -> None:
    tags = [f"t{i}" for i in range(300)]
    with sg.init("wide", files=sg.Files(into=tmp_path / "run")) as run:
        for step in range(3):
            run.log({tag: step + i / 1000 for i, tag in enumerate(tags)}, step=step)
            run.flush()
    with sg.open(tmp_path / "run") as recorded_run:
        assert recorded_run.tags() == sorted(tags)
        assert recorded_run.stream("t7").since(0)[1].values.tolist() == [0.007, 1.007, 2.007]
        assert recorded_run.stream("on('log').map(lambda e: e.t1 + e.t2)").since(0)[1].values.tolist() == [
            pytest.approx(2 * step + 0.003) for step in range(3)
        ]
        assert recorded_run.series("t299").at(2) == 2.299
        with pytest.raises(UnknownNameError, match="'t299'"):
            recorded_run.series("t2999")
        exported = recorded_run.export("csv", out=tmp_path / "out")
        assert exported


def test_a_restart_of_a_wide_run_hides_what_it_does_again(tmp_path: Path) -> None:
    tags = [f"t{i}" for i in range(300)]
    for value in (1.0, 2.0):
        keeper = RecordWriter(lambda: tmp_path, clock=SystemClock())
        for step in range(2, 5) if value == 2.0 else range(4):
            keeper.log(step, step, 1e9 + step, dict.fromkeys(tags, value), None)
        keeper.close(WAIT_S)
    assert {tuple(found) for found in seen(tmp_path).values()} == {
        tuple((step, step, ("float", 1.0 if step < 2 else 2.0)) for step in range(5))
    }


def test_names_of_any_kind_are_kept() -> None:
    key = block.key_of(TAGS)
    assert [*block.columns_of(key)] == TAGS
    assert set(block.columns_of(key).values()) == set(range(len(TAGS)))


@pytest.mark.parametrize("text", ["", "[", "{}", "[]", '["a", 1]', '["a", "a"]', "3", "[" * 100_000])
def test_what_names_no_series_is_damage(text: str, tmp_path: Path) -> None:
    key = Key(kind="wide", tag=text)
    with pytest.raises(WireError):
        block.columns_of(key)
    path = tmp_path / "1000-rank0-0000.sgr"
    ones = Columns(index=0, steps=np.arange(2), wall_times=np.ones(2), values=np.ones((2, 2)))
    payload = block.encode(key, ones, segment=1)
    path.write_bytes(b"".join([*frame(encode_version(SIGHTGLASS_VERSION, 1.0)), *frame(payload)]))
    reader = SegmentReader(path)
    assert ([*reader.entries()], len(reader.damages)) == ([], 1)
    reader.close()


def test_a_matrix_of_another_width_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "1000-rank0-0000.sgr"
    ones = Columns(index=0, steps=np.arange(2), wall_times=np.ones(2), values=np.ones((2, 3)))
    payload = block.encode(block.key_of(["a", "b"]), ones, segment=1)
    path.write_bytes(b"".join([*frame(encode_version(SIGHTGLASS_VERSION, 1.0)), *frame(payload)]))
    with Recording(tmp_path) as recording:
        assert recording.series("a").columns().values == []
        assert "a wide block" in str(recording.damages[0])
        with pytest.raises(DamagedError, match=r"2 series.*'a'.*'b'"):
            recording.series("b")[0]


def test_compaction_merges_wide_blocks_of_few_rows(tmp_path: Path) -> None:
    tags = [f"model.layers.{i}.weight/norm" for i in range(2_000)]
    given = [{tag: float(i * step) for i, tag in enumerate(tags)} for step in range(300)]
    (path,) = write(tmp_path, given, takes=set(range(300)), tracks=False).glob("*.sgr")
    n_bytes, before = path.stat().st_size, seen_of(tmp_path, tags[7])
    reader = SegmentReader(path, cache=False)
    n_frames = reader.n_frames
    reader.close()
    compacted(path)
    reader = SegmentReader(path, cache=False)
    assert (n_frames, reader.n_frames <= 60) == (600, True)
    reader.close()
    assert path.stat().st_size < 0.4 * n_bytes
    assert seen_of(tmp_path, tags[7]) == before
    assert check(tmp_path).intact


def seen_of(path: Path, tag: str) -> list[tuple[int, float, Any]]:
    with Recording(path) as recording:
        return [(record.index, record.step, shown(record.value)) for record in recording.series(tag)]
