"""Columns of the table of runs, over runs of all kinds."""

from __future__ import annotations

import json
import shutil

import pytest

import sightglass as sg
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


@pytest.mark.parametrize("name", ["loss", ".min", "loss.best", "loss.sum"])
def test_a_column_needs_a_statistic(page, name):
    reply = page.post("/columns", {"columns": [name]})
    assert reply.status_code == 400
    assert json.dumps(name)[1:-1] in reply.json()["error"]["message"]


def test_too_many_columns_are_refused(page):
    assert page.post("/columns", {"columns": ["a.min"] * 101}).status_code == 400
