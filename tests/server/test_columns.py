"""Columns of the table of runs, over runs of all kinds."""

from __future__ import annotations

import io
import itertools
import json
import math
import shutil
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.client.many.test_table import COLUMNS, train

import sightglass as sg
from sightglass.cli import main
from sightglass.server.runs.run_columns import STATISTICS

from .conftest import place_foreign, wait_until


@pytest.fixture
def columns(page):
    """Return a function that asks for columns, until all runs are read, and returns them by run."""

    def ask(*names):
        def reply():
            found = page.post("/columns", {"columns": list(names)}).json()
            return found if found["n_pending"] == 0 else None

        page.runs()
        found = wait_until(reply)
        rows = zip(*found["values"], strict=True) if names else [()] * len(found["keys"])
        cells = dict(zip(found["keys"], map(list, rows), strict=True))
        return {name: cells[run["key"]] for name, run in page.runs().items() if run["key"] in cells}, found

    return ask


def record_values(name, values, **config):
    with sg.init(name, config=config, budget=None) as run:
        for i, value in enumerate(values):
            run.log({"val/acc": value, "n": i, "text": "words"}, step=10 * i)
    return run


def test_columns_of_many_runs_are_given_at_once(columns):
    record_values("a", [0.5, 0.25, 0.75], opt={"lr": 0.1})
    record_values("b", [1.0, float("nan")])
    with sg.init("c") as other:
        other.log({"other": 3})
    names = ["val/acc.min", "val/acc.argmin", "val/acc.last", "n.count", "other.max", "config.opt.lr", "config.none"]
    rows, found = columns(*names)
    assert rows["a"] == [0.25, 10, 0.75, 3, None, 0.1, None]
    assert rows["b"] == ["NaN", 10, "NaN", 2, None, None, None]
    assert rows["c"] == [None, None, None, None, 3, None, None]
    assert found["tags"] == ["n", "val/acc", "other"]
    assert found["statistics"] == list(STATISTICS)


def test_columns_of_other_programs_files(columns):
    place_foreign()
    rows, found = columns("loss.last")
    assert set(rows) == {"ms", "tb"}
    assert found["tags"]


def test_columns_of_a_run_grow_with_it(columns, begin):
    live = begin("grows")
    live.log({"x": 1.0}, step=0)
    live.flush()
    assert wait_until(lambda: columns("x.last")[0].get("grows") == [1.0])
    live.log({"x": 5.0}, step=1)
    live.flush()
    assert wait_until(lambda: columns("x.max", "x.count")[0]["grows"] == [5.0, 2])


def test_damaged_runs_and_those_that_are_gone_have_no_values(columns):
    run = record_values("bad", [1.0] * 500)
    (file,) = run.directory.glob("*.sgr")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    gone = record_values("gone", [1.0])
    assert columns("n.count")[0] == {"bad": [None], "gone": [1]}
    shutil.rmtree(gone.directory)
    assert columns("n.count")[0]["bad"] == [None]


def test_totals_that_are_a_link_are_not_read(columns, tmp_path):
    run = record_values("linked", [1.0])
    totals = run.directory / ".sightglass-totals"
    forged = tmp_path / "forged"
    forged.write_bytes(b"not ours")
    totals.unlink(missing_ok=True)
    totals.symlink_to(forged)
    assert columns("n.count")[0] == {"linked": [None]}  # a link out of the folder: the run's files are not read either
    assert forged.read_bytes() == b"not ours"


@pytest.mark.parametrize("name", ["loss", ".min", "loss.best", "loss.median"])
def test_a_column_needs_a_statistic(page, name):
    reply = page.post("/columns", {"columns": [name]})
    assert reply.status_code == 400
    assert json.dumps(name)[1:-1] in reply.json()["error"]["message"]


def test_too_many_columns_are_refused(page):
    assert page.post("/columns", {"columns": ["a.min"] * 101}).status_code == 400


def test_a_column_is_read_where_another_is_best(columns):
    with sg.init("a", budget=None) as run:
        for i, accuracy in enumerate([0.1, 0.9, 0.9, 0.4]):
            run.log({"val/acc": accuracy}, step=10 * i)
        for i, loss in enumerate([4.0, 3.0, 2.0, 1.0]):
            run.log({"loss": loss, "text": "words"}, step=8 * i)
    record_values("b", [1.0, 2.0])
    names = ["loss@val/acc.max", "loss@val/acc.min", "val/acc@loss.min", "text@loss.min", "loss@none.max"]
    rows, _ = columns(*names)
    assert rows["a"] == [3.0, 4.0, 0.9, None, None]  # at steps 10, 0 and 24: what was there, or last before
    assert rows["b"] == [None] * 5
    with sg.init("odd", budget=None) as run:
        run.log({"loss@val/acc": 7.0})
    assert wait_until(lambda: columns("loss@val/acc.max")[0].get("odd")) == [7.0]  # a tag of that name comes first


def test_a_value_at_the_best_follows_a_growing_run(columns, begin):
    live = begin("grows")
    for step, (accuracy, loss) in enumerate([(0.5, 3.0), (0.7, 2.0)]):
        live.log({"acc": accuracy, "loss": loss}, step=step)
        live.flush()
        assert wait_until(lambda loss=loss: columns("loss@acc.max")[0].get("grows") == [loss])


def test_the_table_of_runs_as_parquet(page):
    record_values("a", [0.5, 0.25], opt={"lr": 0.1}, size=1, betas=[0.9, 0.99], state="x")
    run = record_values("b", [1.0], opt={"lr": 1}, size="large", betas=None)
    sg.open(run.directory).annotate(add_labels=["best"])
    keys = {name: found["key"] for name, found in page.runs().items()}
    names = ["run.name", "config.state", "run.started", "run.duration", "run.labels", "config.opt.lr", "config.size"]
    names += ["config.betas", "val/acc.min", "n@val/acc.min", "config.none", "run.state"]
    reply = page.post("/runs.parquet", {"columns": names, "runs": [keys["b"], keys["a"], "gone"]})
    assert reply.headers["content-type"] == "application/vnd.apache.parquet"
    table = pq.read_table(io.BytesIO(reply.content))
    assert table.column_names[:3] == ["name", "state", "started"]
    assert str(table.schema.field("started").type) == "timestamp[us, tz=UTC]"
    rows = table.drop_columns(["started", "duration"]).to_pylist()
    assert rows == [
        {"name": "b", "state": None, "labels": ["best"], "opt.lr": 1.0, "size": "large", "betas": None,
         "val/acc.min": 1.0, "n@val/acc.min": 0.0, "none": None, "run.state": "ended"},
        {"name": "a", "state": "x", "labels": [], "opt.lr": 0.1, "size": "1", "betas": "[0.9, 0.99]",
         "val/acc.min": 0.25, "n@val/acc.min": 1.0, "none": None, "run.state": "ended"},
    ]  # fmt: skip
    assert pq.read_table(io.BytesIO(page.post("/runs.parquet", {"columns": ["run.id"]}).content)).num_rows == 2


def test_parquet_without_pyarrow_says_what_to_install(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    reply = page.post("/runs.parquet", {"columns": ["run.name"]})
    assert reply.status_code == 422
    assert "pip install 'sightglass[export]'" in reply.json()["error"]["message"]


INF = math.inf
MIXTURE = [0.5, 10, INF, -INF, 1e30, math.nan, True, 2**62, 2**70, np.float32(0.25), np.int8(3), np.bool_(1)]
DTYPES = ["bool", *(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64"]
NUMBERS: dict[str, list[object]] = {
    **{dtype: [np.dtype(dtype).type(one) for one in (3, 1, 2)] for dtype in DTYPES},
    **{f"ends of {dtype}": [np.iinfo(dtype).max, np.iinfo(dtype).min, 1] for dtype in DTYPES if "int" in dtype},
    **{f"{dtype}, then float": [np.dtype(dtype).type(1), 0.5] for dtype in DTYPES},
    **{f"mixture {n}": list(some) for n, some in enumerate(itertools.permutations(MIXTURE, 3)) if n % 31 == 0},
    "time_ns": [1_795_864_543_000_000_000 + i for i in range(8)],
    "beyond 1,024 bits": [1, -(2**2_000), 2**2_000],
    "arrays without dimensions": [np.array(0.5), np.array(0.25, np.float32)],
}


@pytest.mark.parametrize("of", ["run", "reader"])
def test_every_number_that_charts_draw_has_totals(columns, of):
    """Columns are those of the numbers as float64, whatever their types, by whoever they were added up."""
    jax, torch = pytest.importorskip("jax.numpy"), pytest.importorskip("torch")
    given = NUMBERS | {
        "jax": [jax.float32(0.5), jax.bfloat16(0.25), jax.int32(7)],
        "torch": [torch.tensor(0.5), torch.tensor(3), torch.tensor(True), torch.tensor(0.25, dtype=torch.bfloat16)],
    }
    with sg.init("all", budget=None) as run:
        for name, values in given.items():
            for step, value in enumerate(values):
                run.log({name: value}, step=step)
    if of == "reader":
        (run.directory / ".sightglass-totals").unlink()
    statistics = {"last": lambda x: x[-1], "min": np.min, "max": np.max, "mean": np.mean, "first": lambda x: x[0],
                  "count": len, "argmin": np.argmin, "argmax": np.argmax}  # fmt: skip
    for name, values in given.items():
        rows, found = columns(*(f"{name}.{statistic}" for statistic in statistics))
        assert found["without"] == []
        floats = np.array([as_float(value) for value in values])
        exact = np.array(values, object) if all(type(value) is int for value in values) else floats
        with np.errstate(all="ignore"):
            expected = [
                as_float(of(exact if statistic.startswith("arg") else floats)) for statistic, of in statistics.items()
            ]
        got = [float(one) for one in rows["all"]]
        assert got == pytest.approx(expected, nan_ok=True), (name, values)


def as_float(value):
    try:
        return float(value)
    except OverflowError:
        return INF if value > 0 else -INF


def test_a_run_without_totals_is_named(columns):
    record_values("good", [1.0])
    run = record_values("bad", [1.0] * 500)
    (file,) = run.directory.glob("*.sgr")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    _, found = columns("n.count")
    assert found["without"] == [run.id]


def test_columns_are_those_of_tables_and_of_the_command_line(serve, tmp_path):
    train(tmp_path)
    page = serve(tmp_path)
    names = {run["key"]: run["own_name"] for run in page.json("/runs")["runs"]}
    ask = lambda: page.post("/columns", {"columns": list(COLUMNS)}).json()  # noqa: E731
    reply = wait_until(lambda: (found := ask())["n_pending"] == 0 and found)
    order = sorted(range(2), key=lambda i: names[reply["keys"][i]])
    assert {name: [cells[i] for i in order] for name, cells in zip(COLUMNS, reply["values"], strict=True)} == COLUMNS
    shown = CliRunner().invoke(main, ["runs", str(tmp_path), "--columns", ", ".join(COLUMNS), "--json"])
    rows = sorted(json.loads(shown.stdout), key=lambda row: row["run"])
    assert {name: [row[name] for row in rows] for name in COLUMNS} == COLUMNS
