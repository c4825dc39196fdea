"""A tag with values of several kinds: each kind is a series, and no name depends on the order of the file."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import QueryError, UnknownNameError
from sightglass.core.values import Histogram
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version
from sightglass.storage.read.check import check

BEGAN = 1_700_000_000
FORMATS: dict[str, Any] = {"mindspore": mindspore, "tensorboard": tensorboard}
FILES = {
    "mindspore": (f"events.out.events.summary.{BEGAN}.0.host_MS", MINDSPORE_VERSION),
    "tensorboard": (f"events.out.tfevents.{BEGAN}.host.1.0", TENSORBOARD_VERSION),
}
TENSOR = np.arange(6, dtype=np.float32).reshape(2, 3)
HISTOGRAM = Histogram.from_counts([1, 2, 3], [0.0, 1.0, 2.0, 3.0])
VALUES = {"scalar": 0.5, "tensor": TENSOR, "histogram": HISTOGRAM}

dialects = pytest.mark.parametrize("dialect", FORMATS)
orders = pytest.mark.parametrize("order", list(itertools.permutations(VALUES)), ids="-".join)


def begin(folder: Path, dialect: str) -> Path:
    name, version = FILES[dialect]
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"".join(map(bytes, frame(encode_version(version, BEGAN)))))
    return folder / name


def append(path: Path, dialect: str, tag: str, value: object, *, step: int) -> None:
    parts, left_out = FORMATS[dialect].encode_event({tag: value}, step=step, wall_time=BEGAN + step)
    assert not left_out
    with path.open("ab") as file:
        file.write(b"".join(map(bytes, frame(parts))))


def written(folder: Path, dialect: str, *kinds: str) -> Path:
    """Write a value of each kind under "x", in an order, at two steps."""
    path = begin(folder, dialect)
    for step in (1, 2):
        for kind in kinds:
            append(path, dialect, "x", VALUES[kind], step=step)
    return folder


def is_whole(run: sg.RecordedRun) -> None:
    """Check that a run has all three kinds, under their names."""
    assert run.tags() == ["x", "x:histogram", "x:tensor"]
    assert run.series("x").columns().values.tolist() == [0.5, 0.5]
    np.testing.assert_array_equal(run.series("x:tensor").at(2), TENSOR)
    counts = run.series("x:histogram").at(2).counts
    assert counts.tolist() == [1, 2, 3]


@dialects
@orders
def test_names_do_not_depend_on_the_order(tmp_path: Path, dialect: str, order: tuple[str, ...]) -> None:
    with sg.open(written(tmp_path / "run", dialect, *order)) as run:
        is_whole(run)
        assert {run.series(name).tag for name in run.tags()} == {"x"}
        assert [run.series(name).kind for name in run.tags()] == ["scalar", "histogram", "tensor"]
        assert set(run.describe().events["log"].observables) == {"x", "x:histogram", "x:tensor"}


@dialects
@pytest.mark.parametrize("kind", VALUES)
def test_one_kind_keeps_the_name_of_the_tag(tmp_path: Path, dialect: str, kind: str) -> None:
    with sg.open(written(tmp_path / "run", dialect, kind)) as run:
        assert run.tags() == ["x"]
        assert run.series("x").kind == kind
        assert len(run.series(f"x:{kind}")) == 2


@dialects
def test_a_series_that_is_followed_stays_itself_when_another_kind_comes(tmp_path: Path, dialect: str) -> None:
    path = begin(tmp_path / "run", dialect)
    append(path, dialect, "x", HISTOGRAM, step=0)
    with sg.open(tmp_path / "run", follow=True) as run:
        followed, stream = run.series("x"), run.stream("x:histogram")
        assert run.tags() == ["x"]
        for step in (1, 2):
            append(path, dialect, "x", TENSOR, step=step)
            append(path, dialect, "x", HISTOGRAM, step=step)
        is_tensor = run.series("x:tensor")
        assert (followed.kind, followed.steps.tolist()) == ("histogram", [0, 1, 2])
        assert run.series("x:histogram") is followed
        assert is_tensor.steps.tolist() == [1, 2]
        steps = [record.step for record in itertools.islice(stream, 3)]
        assert steps == [0, 1, 2]


@dialects
def test_runs_are_asked_together_about_one_kind(tmp_path: Path, dialect: str) -> None:
    written(tmp_path / "a", dialect, "tensor")
    written(tmp_path / "b", dialect, "histogram")
    with sg.init("own", dir=tmp_path) as own:
        own.log({"x": sg.Tensor(TENSOR)}, step=1)
    with sg.open(tmp_path) as runs:
        assert isinstance(runs, sg.RecordedRuns)
        with pytest.warns(RuntimeWarning, match="histogram, not tensor"):
            tensors = runs.stream("x")
        assert sorted((record.run, type(record.value).__name__) for record in tensors) == [
            ("a", "ndarray"), ("a", "ndarray"), ("own", "ndarray"),
        ]  # fmt: skip
        assert {record.run for record in runs.stream("x:tensor")} == {"own", "a"}
        assert {(record.run, type(record.value)) for record in runs.stream("x:histogram")} == {("b", Histogram)}
        with pytest.raises(QueryError):
            runs.stream("x:image")
        rows = {
            row["run"].partition("-")[0]: row for row in runs.table(counts="x:histogram", norm="norm(x:tensor).max")
        }
        assert [name for name, row in rows.items() if isinstance(row["counts"], Histogram)] == ["b"]
        assert {name: row["norm"] for name, row in rows.items()} == {
            "a": pytest.approx(55**0.5), "own": pytest.approx(55**0.5), "b": None,
        }  # fmt: skip


def test_a_kind_of_an_own_tag_is_checked(tmp_path: Path) -> None:
    with sg.init("own", dir=tmp_path) as own:
        own.log({"x": sg.Tensor(TENSOR), "y": 0.5}, step=1)
    with sg.open(own.directory) as run:
        assert run.series("x:tensor") is run.series("x")
        assert [record.value for record in run.stream("on('log').map(lambda e: e['x:tensor'].sum())")] == [15.0]
        with pytest.raises(UnknownNameError, match="x:histogram"):
            run.series("x:histogram")
        with pytest.raises(UnknownNameError, match="y:tensor"):
            run.series("y:tensor")


def test_a_tag_with_a_colon_is_itself(tmp_path: Path) -> None:
    path = begin(tmp_path / "run", "tensorboard")
    for tag, value in (("x", TENSOR), ("x:tensor", 0.5), ("layer:0", 1.5)):
        append(path, "tensorboard", tag, value, step=0)
    with sg.open(tmp_path / "run") as run:
        assert run.tags() == ["layer:0", "x", "x:tensor"]
        assert run.series("x:tensor").at(0) == 0.5
        assert run.series("layer:0").at(0) == 1.5


def test_statistics_are_of_a_kind(tmp_path: Path) -> None:
    with sg.open(written(tmp_path / "run", "mindspore", "histogram", "scalar", "tensor")) as run:
        assert run.series("norm(x)").columns().values.tolist() == pytest.approx([55**0.5] * 2)
        assert run.series("mean(x:tensor)").columns().values.tolist() == [2.5, 2.5]
        assert run.series("n_nan(x:histogram)").columns().values.tolist() == [0, 0]


@dialects
def test_damage_is_told_of_the_kind_that_it_hit(tmp_path: Path, dialect: str) -> None:
    folder = written(tmp_path / "run", dialect, "histogram", "tensor")
    path = next(folder.iterdir())
    data = bytearray(path.read_bytes())
    data[-8] ^= 1  # in the last tensor
    path.write_bytes(data)
    with sg.open(folder) as run:
        assert len(run.series("x:tensor").damages) == 1
        assert not run.series("x:histogram").damages
        assert run.series("x:histogram").steps.tolist() == [1, 2]
    assert [(damage.tag, damage.step) for damage in check(folder).damages] == [("x", 2)]


@dialects
@pytest.mark.parametrize("to", FORMATS)
def test_exports_write_the_tag_itself(tmp_path: Path, dialect: str, to: Any) -> None:
    with sg.open(written(tmp_path / "run", dialect, "histogram", "tensor", "scalar")) as run:
        exported = run.export(to, out=tmp_path / "to")
        assert not exported.losses
        run.export(to, out=tmp_path / "one", tags=["x:histogram"])
    with sg.open(tmp_path / "to") as run:
        is_whole(run)
    assert b"(histogram)" not in (data := next((tmp_path / "to").iterdir()).read_bytes())
    assert b"x:" not in data
    with sg.open(tmp_path / "one") as run:
        assert (run.tags(), run.series("x").kind) == (["x"], "histogram")


def test_other_exports_have_all_kinds(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with sg.open(written(tmp_path / "run", "mindspore", "histogram", "tensor", "scalar")) as run:
        run.export("parquet", out=tmp_path / "to")
    assert {path.name for path in (tmp_path / "to").iterdir()} == {
        "scalars.parquet", "x.parquet", "x.histogram.parquet",
    }  # fmt: skip
