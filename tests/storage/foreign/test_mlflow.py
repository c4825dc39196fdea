"""Runs of MLflow's file store: what MLflow itself returns of them is what is read."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import DamagedError
from sightglass.storage import cache_file
from sightglass.storage.foreign.mlflow_told import typed
from sightglass.storage.read import run_totals
from sightglass.storage.read.recording import Recording
from sightglass.storage.run_listing import is_run

FIXTURE = Path(__file__).parents[1] / "fixtures" / "mlflow.zip"
STATES = {"FINISHED": "ended", "FAILED": "failed", "KILLED": "terminated"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FIXTURE) as file:
        file.extractall(tmp_path)
    return tmp_path


def expected(store: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((store / "expected.json").read_text())
    return found


def run_named(store: Path, name: str) -> Path:
    return next(Path(info.directory) for info in sg.runs(store) if info.name == name)


def made(folder: Path, **metrics: str) -> Path:
    """Make a run that has these lines of metrics."""
    for name in ("metrics", "params", "tags"):
        (folder / name).mkdir(parents=True)
    (folder / "meta.yaml").write_text(
        "end_time: null\nrun_id: a\nrun_name: 'it''s'\nstart_time: 1700000000000\nstatus: 1\n"
    )
    for name, lines in metrics.items():
        (folder / "metrics" / name).write_text(lines)
    return folder


def test_every_value_is_the_one_that_mlflow_returns(store: Path) -> None:
    with sg.open(store) as runs:
        found = {run.name: run for run in map(runs.__getitem__, runs)}
        assert found.keys() == expected(store).keys()
        for name, theirs in expected(store).items():
            run = found[name]
            assert run.describe().state == STATES[theirs["status"]]
            assert set(run.tags()) == theirs["metrics"].keys()
            for tag, points in theirs["metrics"].items():
                ours = [(record.step, repr(record.value), round(record.wall_time * 1000)) for record in run.series(tag)]
                assert ours == [tuple(point) for point in points]


def test_what_a_run_says_of_itself(store: Path) -> None:
    with sg.open(run_named(store, "a: 'b' \"c\" # d")) as run:
        assert run.config == {
            "lr": 0.1, "opt": "adam", "n": 3, "flag": True, "none": None, "deep/x": 1e-05, "text": "two\nlines"
        }  # fmt: skip
        assert run.facts["tags"] == {"team": "vision"}
        assert run.check().intact


def test_experiments_artifacts_and_deleted_runs_are_no_runs(store: Path) -> None:
    assert {info.name for info in sg.runs(store)} == expected(store).keys()
    assert [info.name for info in sg.runs(store, deleted=True)] == ["gone"]
    assert not is_run(store)
    assert not any(is_run(experiment) for experiment in store.iterdir())
    for experiment in store.glob("*/meta.yaml"):
        with pytest.raises(DamagedError):
            sg.open(experiment)


def test_runs_are_compared_and_exported(store: Path, tmp_path: Path) -> None:
    with sg.open(store) as runs:
        assert len(runs.where(lambda run: run.config.lr < 1)) == 1
        table = runs.table("loss.min", best="loss.min")
        assert "0.1" in str(table)
    with sg.open(run_named(store, "fails")) as run:
        run.export("csv", out=tmp_path / "out.csv")
        assert "loss" in (tmp_path / "out.csv").read_text()


def test_a_run_that_grows_is_followed(tmp_path: Path) -> None:
    folder = made(tmp_path / "1" / "a", loss="1700000001000 1.0 0\n")
    with Recording(folder) as recording:

        def values(tag: str) -> list[float]:
            numbers: list[float] = np.asarray(recording.series(tag).columns().values).tolist()
            return numbers

        assert values("loss") == [1.0]
        with (folder / "metrics" / "loss").open("a") as file:
            file.write("1700000002000 0.5 1\n1700000003000 0.2")
        made_later = folder / "metrics" / "val"
        made_later.mkdir()
        (made_later / "acc").write_text("1700000002000 0.75 1\n")
        assert recording.changed()
        assert recording.refresh()
        assert (values("loss"), values("val/acc")) == ([1.0, 0.5], [0.75])
        with (folder / "metrics" / "loss").open("a") as file:
            file.write("5 2\n")
        recording.refresh()
        assert values("loss") == [1.0, 0.5, 0.25]
        assert not recording.refresh()


def test_a_line_that_is_no_value_costs_itself_only(tmp_path: Path) -> None:
    lines = "1700000001000 1.0 0\nnonsense\n\n1700000002000 x 1\n1700000003000 2.0\n1700000004000 1e999 9 data digest\n"
    with sg.open(made(tmp_path / "run", loss=lines)) as run:
        assert run.name == "it's"
        assert [(record.step, record.value) for record in run.series("loss")] == [(0, 1.0), (0, 2.0), (9, np.inf)]
        report = run.check()
        assert [damage.tag for damage in report.damages] == ["loss"] * 3
        assert "nonsense" in str(report)


def test_values_of_one_step_belong_together(tmp_path: Path) -> None:
    points = [(1_700_000_000_000 + 10 * step, step) for step in range(5)]
    lines = "".join(f"{time} {step / 4} {step}\n" for time, step in points)
    later = "".join(f"{time + 3} {step} {step}\n" for time, step in points)
    with sg.open(made(tmp_path / "run", a=lines, b=later)) as run:
        both = list(run.stream("log.a + log.b"))
        assert [record.value for record in both] == [1.25 * step for step in range(5)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("1e-3", 1e-3),
        ("1_000", "1_000"),
        ("False", False),
        ("None", None),
        ("", ""),
        ("0x1", "0x1"),
    ],
)
def test_parameters_have_their_types(text: str, value: object) -> None:
    assert (typed(text), type(typed(text))) == (value, type(value))


def test_totals_are_of_the_metrics_that_there_are(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", loss="1700000001000 1.0 0\n")
    files = cache_file.files_of(folder)
    with Recording(folder) as recording:
        assert run_totals.make(recording, files, rank=None) is not None
    assert run_totals.load(folder, files, rank=None) is not None
    with (folder / "metrics" / "loss").open("a") as file:
        file.write("1700000002000 0.5 1\n")
    assert run_totals.load(folder, cache_file.files_of(folder), rank=None) is None
