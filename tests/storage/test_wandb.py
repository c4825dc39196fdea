"""The W&B sink: rows of an offline run, read back from its file."""

from __future__ import annotations

import functools
import math
import sys

import numpy as np
import pytest

from sightglass.core.errors import MissingExtraError, StorageError
from sightglass.core.record import Record
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text
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
    assert sink.statistics().n_delivered == 2
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


def test_values_that_wandb_does_not_support_are_reported_and_the_rest_is_logged(begin, tmp_path):
    sink = begin()
    with (
        pytest.warns(RuntimeWarning, match=r"^W&B: not all records can be written: UnsendableError: 'z': .* complex"),
        pytest.raises(StorageError, match="1 lost"),
    ):
        sink.write([record("loss", 0, 1.0), record("z", 0, 1j)]), sink.flush()
    sink.write([record("loss", 1, 2.0)])
    sink.close()
    assert sink.statistics().n_lost == 1
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


def test_without_a_run_it_says_what_to_do():
    with pytest.raises(StorageError, match=r"No W&B run is active: call wandb.init\(\) first"):
        WandB()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for make in (WandB, WandB.begin):
        with pytest.raises(MissingExtraError, match=r"needs 'wandb': pip install 'sightglass\[wandb\]'$"):
            make()
