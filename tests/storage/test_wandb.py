"""The W&B sink: rows of an offline run, read back from its file."""

from __future__ import annotations

import functools
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.columns import Record
from sightglass.core.counts import Statistics
from sightglass.core.errors import MissingExtraError, StorageError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Tensor, Text
from sightglass.storage.format.png import encode_png
from sightglass.storage.wandb import WandB

from .wandb_files import read_all

wandb = pytest.importorskip("wandb")

PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


@pytest.fixture
def begin(tmp_path):
    """Begin runs in this test's directory; W&B reads its environment once per process."""
    return functools.partial(WandB.begin, dir=str(tmp_path), mode="offline")


def record(tag, step, value, **steps):
    return Record(tag=tag, index=0, step=step, wall_time=0.0, value=value, steps=steps)


def test_records_of_one_step_are_a_row_and_late_records_appear(begin, tmp_path):
    sink = begin(project="p", name="r")
    sink.write([record("loss", 10, np.float32(0.5), epoch=1), record("acc", 10, 3, epoch=1), record("loss", 20, 0.25)])
    sink.write([record("loss", 5, math.inf)])
    sink.flush()
    assert sink.statistics() == Statistics(n_events=2)
    sink.close()
    sink.close()
    (run,) = read_all(tmp_path)
    assert run.rows == [
        {"step": 10, "epoch": 1, "loss": 0.5, "acc": 3},
        {"step": 20, "loss": 0.25},
        {"step": 5, "loss": math.inf},
    ]
    assert run.axes == {"step": "", "epoch": "", "loss": "step", "acc": "step"}


def test_every_kind_of_value(begin, tmp_path):
    values = {
        "text": Text("hello"),
        "word": "there",
        "bool": np.True_,
        "nested": {"a": 1, "b": {"c": 2.5}},
        "pair": (1, np.float32(0.5)),
        "array": np.array([0.0, 0.0, 1.0]),
        "tensor": Tensor(np.arange(4)),
        "histogram": Histogram.from_counts(np.ones(1_000), np.arange(1_001.0)),
        "image": Image(PIXELS, "two by two"),
        "images": Images(np.stack([PIXELS] * 3)),
        "figure": Figure(encode_png(PIXELS)),
    }
    sink = begin()
    sink.write([record(tag, 1, value) for tag, value in values.items()])
    sink.close()
    (run,) = read_all(tmp_path)
    (row,) = run.rows
    assert (row["text"], row["word"], row["bool"]) == ("hello", "there", True)
    assert (row["nested/a"], row["nested/b/c"], row["pair"]) == (1, 2.5, [1, 0.5])
    assert sum(row["array/values"]) == 3
    assert (row["array/bins"][0], row["array/bins"][-1]) == (0, 1)
    assert sum(row["tensor/values"]) == 4
    assert (sum(row["histogram/values"]), len(row["histogram/values"])) == (1_000, 500)
    assert row["histogram/bins"][-1] == 1_000
    assert (row["image/caption"], row["image/width"], row["image/height"]) == ("two by two", 2, 2)
    assert row["images/count"] == 3
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    from PIL import Image as pillow

    for tag in ("image", "figure"):
        with pillow.open(folder / "files" / row[f"{tag}/path"]) as image:
            assert np.array_equal(np.asarray(image), PIXELS)


def test_sounds_and_tables_are_read_back_as_they_were(begin, tmp_path):
    left = set(Path(tempfile.gettempdir()).glob("sightglass-*.wav"))
    tone = Audio(np.array([[1, -2], [3, 4]], np.int16), 8_000)
    times = np.array(["2026-01-02T03:04:05.678", "NaT"], "M8[ms]")
    table = {
        "n": np.array([1, 2**53 - 1]), "share": np.array([0.5, np.nan]), "word": ["a", None],
        "half": np.array([1.5, 2], np.float16), "mixed": [1, "two"], "ok": np.array([True, False]),
        "time": times, "took": np.array([1500, "NaT"], "m8[ms]"), "photo": [Image(PIXELS, "two by two"), None],
    }  # fmt: skip
    sink = begin()
    sink.write([record("tone", 1, tone), record("table", 1, Table(table)), record("both", 1, (tone, tone))])
    sink.close()
    assert set(Path(tempfile.gettempdir()).glob("sightglass-*.wav")) == left
    (row,) = read_all(tmp_path)[0].rows
    assert row["both/nrows"] == 2
    assert (row["table/_type"], row["table/ncols"], row["table/nrows"]) == ("table-file", len(table), 2)
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    with sg.open(folder) as run:
        heard = run.series("tone")[0].value
        assert (heard.value.tolist(), heard.rate) == (tone.value.tolist(), 8_000)
        read = run.series("table")[0].value
    np.testing.assert_array_equal(read["n"], table["n"])
    np.testing.assert_array_equal(read["share"], table["share"])
    assert (read["word"], read["mixed"]) == (["a", None], [1, "two"])
    assert (read["half"].tolist(), read["ok"].tolist()) == ([1.5, 2], [True, False])
    written = json.loads((folder / "files" / row["table/path"]).read_text())
    columns = dict(zip(written["columns"], zip(*written["data"], strict=True), strict=True))
    assert columns["time"] == ("2026-01-02T03:04:05.678000Z", None)
    assert columns["took"][0] == 1.5


def test_a_table_that_wandb_would_cut_is_reported(begin, monkeypatch):
    monkeypatch.setattr(wandb.Table, "MAX_ARTIFACT_ROWS", 2)
    sink = begin()
    with pytest.warns(RuntimeWarning, match="W&B.*2 rows.*got 3"):
        sink.write([record("t", 0, Table({"n": np.arange(3)}))]), sink.flush()
    sink.close()


def test_values_that_wandb_does_not_support_are_reported_and_the_rest_is_logged(begin, tmp_path):
    sink = begin()
    with pytest.warns(RuntimeWarning, match="left out 'z': .*complex"):
        sink.write([record("loss", 0, 1.0), record("z", 0, 1j)]), sink.flush()
    sink.write([record("loss", 1, 2.0)])
    sink.close()
    assert sink.statistics().n_dropped == 1
    (run,) = read_all(tmp_path)
    assert run.series("loss") == [(0, 1.0), (1, 2.0)]


def test_two_runs_at_once_leave_the_current_run_alone(begin, tmp_path):
    one, other = begin(name="a"), begin(name="b")
    assert wandb.run is None
    for step in range(3):
        one.write([record("x", step, step)])
        other.write([record("x", step, -step)])
    one.close(), other.close()
    assert [run.series("x") for run in read_all(tmp_path)] == [[(0, 0), (1, 1), (2, 2)], [(0, 0), (1, -1), (2, -2)]]


def test_a_shared_run_loses_no_rows_of_other_code(tmp_path):
    """Late records while the training itself logs with `step=`: both are all there."""
    run = wandb.init(name="shared", dir=str(tmp_path), mode="offline")
    sink = WandB()
    assert sink.run is run
    for step in range(20):
        run.log({"loss": step}, step=step)
        if step % 5 == 4:
            sink.write([record("late", step - 4, step), record("late", step - 3, step)])
            sink.write([record("other", step - 4, step)])
            sink.flush()
        run.log({"accuracy": -step}, step=step)
    sink.close()
    run.finish()
    (read,) = read_all(tmp_path)
    assert [row["loss"] for row in read.rows if "loss" in row] == list(range(20))
    assert [row["accuracy"] for row in read.rows if "accuracy" in row] == [-step for step in range(20)]
    expected = [(step - late, step) for step in (4, 9, 14, 19) for late in (4, 3)]
    assert read.series("late", "sightglass/step") == expected
    assert read.series("other", "sightglass/step") == [(step - 4, step) for step in (4, 9, 14, 19)]
    assert read.axes["late"] == "sightglass/step"


def shared_run(tmp_path, name="shared"):
    run = wandb.init(name=name, dir=str(tmp_path), mode="offline")
    return run, WandB.shared(run)


def test_a_flush_logs_the_rows_of_one_name_where_no_other_code_sets_steps(tmp_path):
    run, sink = shared_run(tmp_path)
    with run:
        for step in range(4):
            sink.write([record("late", step, -step)])
        sink.flush()
        assert run.step == 3  # the last one is in the open row, which other values may join
        run.log({"loss": 1.0})
        run.log({"loss": 2.0})
    (read,) = read_all(tmp_path)
    assert read.series("late", "sightglass/step") == [(step, -step) for step in range(4)]
    assert [row["loss"] for row in read.rows if "loss" in row] == [1.0, 2.0]


def test_a_flush_costs_no_row_of_other_code_that_sets_steps_and_the_end_logs_what_waits(tmp_path):
    run, sink = shared_run(tmp_path)
    with run:
        for step in range(4):
            run.log({"loss": step}, step=step)
            sink.write([record("late", 10 * step + i, i) for i in range(3)])
            sink.flush()
            run.log({"accuracy": step}, step=step)
    (read,) = read_all(tmp_path)
    assert [(row["loss"], row["accuracy"]) for row in read.rows if "loss" in row] == [(i, i) for i in range(4)]
    assert read.series("late", "sightglass/step") == [(10 * step + i, i) for step in range(4) for i in range(3)]


@pytest.mark.parametrize("hook", ["hook", "wrapped"])
@pytest.mark.parametrize("end", ["method", "function", "with", "error"])
def test_however_a_run_ends_it_takes_what_waits_first(tmp_path, monkeypatch, hook, end):
    from wandb.sdk import wandb_run

    if hook == "wrapped":
        monkeypatch.delattr(wandb_run, "TeardownHook")  # W&B's hook is private, and may go
    run, sink = shared_run(tmp_path)
    sink.write([record("late", step, -step) for step in range(3)])
    if end == "method":
        run.finish()
    elif end == "function":
        wandb.finish()
    elif end == "with":
        with run:
            pass
    else:
        with pytest.raises(KeyError), run:
            raise KeyError("in the training")
    assert sink.ended
    sink.flush()
    (read,) = read_all(tmp_path)
    assert read.series("late", "sightglass/step") == [(step, -step) for step in range(3)]


def test_a_run_waits_for_the_queues_that_still_write_to_it(tmp_path):
    run, sink = shared_run(tmp_path)

    class Late:
        def wait(self, timeout_s):
            sink.write([record("late", 5, 1.0)])
            return True

    queue = Late()
    sink.used_by(queue)
    run.finish()
    (read,) = read_all(tmp_path)
    assert read.series("late", "sightglass/step") == [(5, 1.0)]


def test_a_finished_run_is_refused_at_once_and_the_next_one_has_a_sink_of_its_own(tmp_path):
    run, sink = shared_run(tmp_path, "first")
    run.finish()
    with pytest.raises(StorageError, match=r"W&B.*'first'.*wandb.finish\(\)"):
        sink.write([record("late", 0, 1.0)])
    second, other = shared_run(tmp_path, "second")
    with second:
        assert other is not sink
        other.write([record("late", 1, 1.0)])
    assert [(read.name, read.series("late", "sightglass/step")) for read in read_all(tmp_path)] == [
        ("first", []),
        ("second", [(1, 1.0)]),
    ]


def test_rows_that_a_finished_run_did_not_take_are_named_and_counted(tmp_path):
    """Where the hook was lost: W&B would be asked for its step, and answer after half a minute."""
    run, sink = shared_run(tmp_path, "r")
    run.log({"loss": 0}, step=0)
    sink.write([record("late", step, -step) for step in range(3)])
    sink.flush()
    run._teardown_hooks.clear()
    run.finish()
    why = r"2 lost: .*'r' has finished .*'late'.*wandb.finish\(\)"
    with pytest.warns(RuntimeWarning, match="finished"), pytest.raises(StorageError, match=why):
        sink.close()
    assert sink.statistics().n_dropped == 2


def test_without_a_run_it_says_what_to_do():
    with pytest.raises(StorageError, match=r"W&B.*wandb.init\(\)"):
        WandB()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for make in (WandB, WandB.begin):
        with pytest.raises(MissingExtraError, match=r"'wandb'.*'sightglass\[wandb\]'"):
            make()
