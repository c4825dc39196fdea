"""Every endpoint, over recorded and live runs."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

import sightglass as sg
from sightglass.query.functions import FUNCTIONS
from sightglass.server.api import schema, tensors
from sightglass.server.app import ROUTES
from sightglass.server.runs import run_table, scalar_lines
from sightglass.storage.read.series import Series
from sightglass.views.smoothing import smooth

from .conftest import FOREIGN, floats, place_foreign, record, wait_until


@pytest.fixture
def mnist(page):
    """Return how to ask about a recorded run."""
    record()
    key = page.key("mnist")

    def ask(path, **query):
        return page.get(f"/runs/{key}/{path}", **query)

    return ask


def error(answer):
    return answer.status_code, answer.json()["error"]["type"]


def test_runs_of_all_kinds_are_listed(page, begin):
    directory = record()
    place_foreign()
    (Path("runs") / "bad").mkdir()
    (Path("runs") / "bad" / "x.sgr").write_bytes(b"no record file, whatever its name says")
    os.utime(Path("runs") / "bad" / "x.sgr", (1e9, 1e9))
    live = begin("alive")
    live.observe("batch", loss=1.0)
    runs = wait_until(lambda: (found := page.runs()) and len(found) == 5 and found)
    mnist = runs["mnist"]
    assert mnist["state"] == "ended"
    assert mnist["directory"].endswith(directory.name)
    assert (mnist["live"], mnist["source"], mnist["last_step"], mnist["problem"]) == (False, "sightglass", 299, "")
    assert mnist["config"] == {"lr": 0.0}
    assert mnist["ended"] > mnist["started"] > 0
    assert (runs["ms"]["source"], runs["tb"]["source"]) == ("mindspore", "tensorboard")
    assert (runs["alive"]["state"], runs["alive"]["live"], runs["alive"]["key"]) == ("running", True, live.id)
    assert "damaged" in runs["bad"]["problem"]
    assert (runs["bad"]["state"], runs["ms"]["state"]) == ("recorded", "writing")
    assert len({run["key"] for run in runs.values()}) == 5
    for run in runs.values():
        detail = page.json(f"/runs/{run['key']}")
        assert {name: detail[name] for name in ("key", "name", "source")} == {
            n: run[n] for n in ("key", "name", "source")
        }


def test_a_directory_that_is_gone_says_so_and_one_that_moved_is_found(page, monkeypatch):
    monkeypatch.setattr(run_table, "FRESH_S", 0.0)
    directory = record()
    key = page.key("mnist")
    directory.rename(directory.with_name("elsewhere"))
    assert (page.runs()["mnist"]["key"], page.runs()["mnist"]["problem"]) == (key, "")
    assert page.runs()["mnist"]["directory"].endswith("elsewhere")
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] == 300
    shutil.rmtree(directory.with_name("elsewhere"))
    assert page.runs()["mnist"]["problem"].endswith("is gone")
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] == 300  # what is open stays


def test_copies_have_keys_of_their_own(page):
    directory = record()
    shutil.copytree(directory, "runs/copy")
    runs = page.json("/runs")["runs"]
    assert len({run["key"] for run in runs}) == 2
    assert {run["id"] for run in runs} == {runs[0]["id"]}
    for run in runs:
        assert page.json(f"/runs/{run['key']}/tags")["tags"]


def test_a_live_run_is_described(page, begin):
    run = begin("alive", config={"lr": 1.0})
    run.control("lr", 0.1, min=0.0, max=1.0)
    run.action("save", lambda: None)
    run.observe("batch", step=3, loss=1.0)
    run.observe("batch", step=4, loss=1.0)
    detail = page.json(f"/runs/{page.key('alive')}")
    assert detail["config"] == {"lr": 1.0}
    assert detail["description"]["controls"]["lr"]["max"] == 1.0
    assert detail["description"]["events"]["batch"]["n_events"] == 2
    assert list(detail["description"]["actions"]) == ["save"]
    assert detail["history"] == detail["streams"] == []
    assert page.json(f"/runs/{page.key('alive')}/tags") == {"tags": [], "charts": []}


def test_tags_have_a_type_and_a_query(page, mnist):
    tags = {tag["tag"]: tag for tag in mnist("tags").json()["tags"]}
    kinds = {name: tag["type"] for name, tag in tags.items()}
    assert kinds == {
        "activations": "histogram", "batch.loss": "scalar", "digits": "image", "figure": "figure", "holes": "tensor",
        "kernel": "tensor", "note": "text", "point": "other", "val/accuracy": "scalar",
    }  # fmt: skip
    assert (tags["kernel"]["n"], tags["kernel"]["first_step"], tags["kernel"]["last_step"]) == (3, 0, 200)
    run = sg.open(page.runs()["mnist"]["directory"])
    for name, tag in tags.items():
        assert len(run.stream(tag["query"]).wait(1)) == tag["n"], name


def test_tags_of_other_programs(page):
    place_foreign()
    kinds = {
        name: {tag["tag"]: tag["type"] for tag in page.json(f"/runs/{page.key(name)}/tags")["tags"]}
        for name in ("ms", "tb")
    }
    assert (kinds["ms"]["colour"], kinds["ms"]["loss"], kinds["ms"]["weights"]) == ("image", "scalar", "histogram")
    assert (kinds["tb"]["images"], kinds["tb"]["note"], kinds["tb"]["array/0"]) == ("image", "text", "tensor")
    for name, tag in (("ms", "colour"), ("tb", "images"), ("tb", "one")):
        media = page.get(f"/runs/{page.key(name)}/media", tag=tag)
        assert (media.status_code, media.headers["content-type"]) == (200, "image/png")
    for name, found in kinds.items():
        for tag, kind in found.items():
            paths = {"scalar": "scalars", "tensor": "find", "histogram": "histograms", "text": "texts"}
            if kind in paths:
                more = {"what": "max"} if kind == "tensor" else {}
                assert page.get(f"/runs/{page.key(name)}/{paths[kind]}", tag=tag, **more).status_code == 200, tag


def test_scalars_keep_values_that_are_not_finite(mnist):
    reply = mnist("scalars", tag="batch.loss", from_=6, to=12).json()
    assert reply["x"] == reply["step"] == [6, 7, 8, 9, 10, 11, 12]
    assert reply["y"][1::2] == ["NaN", "Infinity", "-Infinity"]
    assert (reply["n"], reply["thinned"]) == (7, False)
    thin = mnist("scalars", tag="batch.loss", points=5).json()
    assert (thin["n"], thin["thinned"]) == (300, True)
    assert {"NaN", "Infinity", "-Infinity", 1.0} <= set(thin["y"])
    assert len(thin["y"]) < 40
    relative = mnist("scalars", tag="batch.loss", x="relative").json()
    wall = mnist("scalars", tag="batch.loss", x="wall").json()
    assert wall["x"] == wall["wall"] == relative["wall"]
    assert 0 <= relative["x"][0] < 60
    assert np.diff(relative["x"]) == pytest.approx(np.diff(wall["x"]), abs=1e-6)
    part = mnist("scalars", tag="batch.loss", x="relative", from_=relative["x"][5], to=relative["x"][8]).json()
    assert 3 <= part["n"] <= 5


@pytest.mark.parametrize("zoom", [{}, {"from_": 20_000.5, "to": 40_000.5}])
def test_a_thinned_line_is_smoothed_as_the_whole_one(page, begin, zoom):
    n = 60_000
    y = np.random.default_rng(0).exponential(size=n) ** 2 + np.sin(np.arange(n) / 1e4)  # extremes on one side
    y[30_000] = np.nan
    run = begin("long")
    for step, value in enumerate(y.tolist()):
        run.log({"loss": value}, step=step)
    run.close()
    reply = page.json(f"/runs/{page.key('long')}/scalars", tag="loss", points=500, **zoom)
    x, found, mean = (np.array(reply[name], float) for name in ("x", "y", "mean"))
    assert len(x) < n / 20
    whole = smooth(np.arange(n), y, 0.9, extent=n)
    again = smooth(x, found, 0.9, extent=n, means=mean)
    past = (x - x[0] < n / 10) | ((x >= 30_000) & (x < 36_000))  # the first points, and those behind a gap
    known = np.isfinite(found) & ~past
    spread = np.nanstd(whole[n // 10 :])
    assert np.abs(again - whole[x.astype(int)])[known].max() < 0.1 * spread
    assert np.abs(smooth(x, found, 0.9, extent=n) - whole[x.astype(int)])[known].max() > spread


def test_many_series_at_once(page, mnist):
    key = page.key("mnist")
    asked = [(key, "batch.loss"), (key, "los"), ("x", "y"), (key, "kernel")]
    body = {"requests": [{"run": run, "tag": tag, "points": 5} for run, tag in asked]}
    answer = page.post("/scalars", body)
    assert answer.headers["content-type"] == "application/msgpack"
    reply = msgspec.msgpack.decode(answer.content)
    assert (reply[0]["run"], reply[0]["tag"], reply[0]["n"], reply[0]["thinned"]) == (key, "batch.loss", 300, True)
    single = mnist("scalars", tag="batch.loss", points=5).json()
    for name in ("x", "y", "wall", "step", "mean"):
        assert floats(reply[0][name]) == pytest.approx([float(value) for value in single[name]], nan_ok=True)
    assert [one["error"]["type"] for one in reply[1:]] == ["UnknownNameError", "UnknownNameError", "QueryError"]


def test_a_growing_series_grows(page, begin):
    run = begin("alive", record=["batch.loss"])
    for step in range(100):
        run.observe("batch", step=step, loss=float(step))
    run.flush()
    path = f"/runs/{page.key('alive')}/scalars"
    assert page.json(path, tag="batch.loss")["y"] == list(range(100))
    for step in range(100, 150):
        run.observe("batch", step=step, loss=float(step))
    run.flush()
    assert page.json(path, tag="batch.loss")["y"] == list(range(150))


def small_overviews(monkeypatch):
    for name, value in {"CHUNK_ROWS": 1024, "MAX_ROWS": 512, "RUN_ROWS": 8, "TAIL_ROWS": 64}.items():
        monkeypatch.setattr(scalar_lines, name, value)


@pytest.mark.parametrize("n", [100, 5000, 5120, 20_001])
def test_an_overview_loses_no_extreme(monkeypatch, n):
    small_overviews(monkeypatch)
    rng = np.random.default_rng(n)
    values = rng.normal(size=n)
    for place, odd in zip(rng.choice(n, 12, replace=False), [50, -50, np.nan, np.inf, -np.inf, 40] * 2, strict=True):
        values[place] = odd
    with sg.init("long") as run:
        for step, value in enumerate(values[: n // 2]):
            run.log({"y": float(value)}, step=2 * step)
        run.flush()
        recording = sg.open(run.directory, follow=True)
        found = scalar_lines.Overview(0)
        found.extend(recording.series("y"))
        for step, value in enumerate(values[n // 2 :], n // 2):
            run.log({"y": float(value)}, step=2 * step)
    found.extend(recording.series("y"))
    series = recording.series("y")
    for low, high, points in [(-np.inf, np.inf, 50), (0, n, 30), (n / 3, n / 2, 10), (5, 9, 100), (3, 3, 5), (9, 1, 5)]:
        line = found.line(series, x="step", low=low, high=high, points=points, origin=0.0)
        inside = (2 * np.arange(n) >= low) & (2 * np.arange(n) <= high)
        here = values[inside]
        assert abs(line.n - inside.sum()) <= 2 * found.run_rows
        if not len(here):
            assert not len(line.y)
            continue
        finite = here[np.isfinite(here)]
        shown = line.y[np.isfinite(line.y)]
        assert (shown.min(), shown.max()) == (finite.min(), finite.max())
        for test in (np.isnan, np.isposinf, np.isneginf):
            assert test(line.y).any() == test(here).any()
        assert (np.diff(line.step) > 0).all()
        assert np.array_equal(values[(line.step / 2).astype(int)], line.y, equal_nan=True)
    recording.close()


@pytest.mark.parametrize("n_each", [1, 7, 300, 5000])
def test_an_overview_is_bounded_and_reads_each_row_once(monkeypatch, n_each):
    small_overviews(monkeypatch)
    n_read = []
    blocks = Series.blocks
    monkeypatch.setattr(Series, "blocks", lambda self, a, b: n_read.append(b - a) or blocks(self, a, b))
    with sg.init("long") as run:
        for step in range(10_000):
            run.log({"y": float(step % 777)}, step=step)
        run.flush()
    found = scalar_lines.Overview(0)
    with sg.open(run.directory) as recorded:
        series = recorded.series("y")
        for n in range(n_each, len(series) + 1, n_each):
            monkeypatch.setattr(Series, "__len__", lambda self, n=n: n)
            found.extend(series)
            assert found.n_rows <= 512 + max(64, found.run_rows)
            assert found.n_bytes <= 5 * 8 * found.n_rows + 200 * (n // 1024 + 2)
        assert sum(n_read) == n
        line = found.line(series, x="step", low=-np.inf, high=np.inf, points=20, origin=0.0)
        assert (line.n, line.y.min(), line.y.max(), line.step[-1]) == (n, 0.0, 776.0, n - 1)
        # Runs are as short as the room allows: an overview of many short requests is as fine as one of one request.
        assert found.n_rows >= 512 / 8
        assert found.run_rows <= 128


def test_a_table(page, mnist):
    reply = mnist("tensor", tag="kernel", step=100, slice="[1, :, 2:4]").json()
    whole = sg.open(page.runs()["mnist"]["directory"]).series("kernel").at(100)
    assert reply["values"] == whole[1, :, 2:4].tolist()
    assert (reply["shape"], reply["dtype"], reply["rows"], reply["columns"]) == (
        [3, 8, 5],
        "float32",
        [*range(8)],
        [2, 3],
    )
    assert reply["statistics"]["slice"]["max"] == whole[1, :, 2:4].max()
    assert reply["statistics"]["whole"]["mean"] == pytest.approx(whole.astype(float).mean())
    assert mnist("tensor", tag="kernel", slice="[0]", whole=False).json()["statistics"]["whole"] is None
    holes = mnist("tensor", tag="holes").json()
    assert holes["values"] == [1, "NaN", "Infinity", "-Infinity"]
    assert [holes["statistics"]["slice"][name] for name in ("n", "n_nan", "n_posinf", "n_neginf")] == [4, 1, 1, 1]
    saved = mnist("tensor", tag="kernel", step=100, format="npy")
    assert np.array_equal(np.load(io.BytesIO(saved.content)), whole)
    assert saved.headers["content-disposition"] == 'attachment; filename="kernel-100.npy"'
    text = mnist("tensor", tag="kernel", step=100, slice="[0]", format="csv").text
    assert np.loadtxt(io.StringIO(text), delimiter=",").astype(np.float32).tolist() == whole[0].tolist()


@pytest.mark.parametrize(
    ("query", "status", "kind", "words"),
    [
        ({"slice": "[0, :, 99]"}, 400, "QueryError", "out of range"),
        ({"slice": "[0, :,, 1]"}, 400, "QuerySyntaxError", "Expected an integer"),
        ({"slice": "[:]"}, 400, "RefusedQueryError", "at most 2 dimensions"),
        ({"step": 7}, 404, "UnknownNameError", "the nearest steps are: 0 and 100"),
        ({"step": "nan"}, 400, "RequestError", "Expected a step"),
        ({"step": "x"}, 400, "RequestError", "step"),
        ({"tag": "kernal"}, 404, "UnknownNameError", "Did you mean 'kernel'?"),
        ({"tag": "note"}, 400, "QueryError", "Expected a tensor"),
        ({"format": "exe"}, 400, "RequestError", "exe"),
        ({"colour": "red"}, 400, "RequestError", "Unknown parameter 'colour'"),
    ],
)
def test_wrong_tables(mnist, query, status, kind, words):
    answer = mnist("tensor", **{"tag": "kernel", **query})
    assert error(answer) == (status, kind)
    assert words in answer.json()["error"]["message"]
    if kind == "QuerySyntaxError":
        assert answer.json()["error"]["position"] == 6


def test_a_table_that_is_too_large_names_the_limit(mnist, monkeypatch):
    monkeypatch.setattr(tensors, "MAX_CELLS", 39)
    answer = mnist("tensor", tag="kernel", slice="[0]")
    assert error(answer) == (413, "TooLargeError")
    assert "at most 39 values in a table, got 40" in answer.json()["error"]["message"]
    monkeypatch.setattr(tensors, "MAX_NPY_BYTES", 16 * 119)
    assert error(mnist("tensor", tag="kernel", format="npy")) == (413, "TooLargeError")
    monkeypatch.setattr(tensors, "MAX_STEPS", 2)
    assert error(mnist("steps", tag="kernel")) == (413, "TooLargeError")


def test_steps_histograms_differences_searches(page, mnist):
    steps = mnist("steps", tag="kernel").json()
    assert steps["steps"] == [0, 100, 200]
    assert len(steps["wall_times"]) == 3
    reply = mnist("histograms", tag="activations", bins=10).json()
    assert [sum(counts) for counts in reply["counts"]] == [500] * 3
    assert [len(edges) for edges in reply["edges"]] == [11] * 3
    part = mnist("histograms", tag="kernel", from_=50, limit=1).json()
    assert (part["steps"], sum(part["counts"][0])) == ([100], 120)
    assert mnist("histograms", tag="holes").json()["n_posinf"] == [1, 1, 1]
    assert error(mnist("histograms", tag="note")) == (400, "QueryError")
    change = mnist("tensor", tag="kernel", step=100, other_step=0, slice="[0, 0]").json()
    assert change["values"] == pytest.approx([1.0] * 5, abs=1e-5)
    found = mnist("find", tag="holes", what="nan", step=0).json()
    assert found == {"found": True, "step": 0, "index": [1], "value": "NaN"}
    assert mnist("find", tag="kernel", what="nan").json()["found"] is False
    assert mnist("find", tag="kernel", what="max").json()["step"] == 200
    assert error(mnist("find", tag="kernel", what="most")) == (400, "RequestError")


@pytest.fixture
def pair(page):
    """The keys of two runs with tensors to compare."""
    for name, ones in (("a", (5.0, 0.0)), ("b", (0.0, 0.0))):
        with sg.init(name, dir="runs") as run:
            for step, one in enumerate(ones):
                run.log({"w": sg.Tensor([[0.0, one], [9.0, 1e-9]])}, step=10 * step)
            run.log({"v": sg.Tensor([[1.0, 2.0], [3.0, 0.0]]), "short": sg.Tensor([1.0])}, step=0)
    return page.key("a"), page.key("b")


def test_a_comparison_is_a_tensor(page, pair):
    key, other = pair

    def asked(endpoint, **query):
        return page.json(f"/runs/{key}/{endpoint}", tag="w", **{"other_run": other, **query})

    table = asked("tensor", step=0)
    assert (table["values"], table["statistics"]["whole"]["max"]) == ([[0.0, 5.0], [0.0, 0.0]], 5.0)
    assert asked("find", what="max", step=0) == {"found": True, "step": 0, "index": [0, 1], "value": 5.0}
    assert asked("find", what="nan", step=0)["found"] is False
    assert asked("find", what="min", other_step="first", other_run=key)["step"] == 10
    assert asked("find", what="zero", measure="close")["index"] == [0, 1]
    assert page.json(f"/runs/{key}/find", tag="w", what="max", step=0)["index"] == [1, 0]
    relative = asked("tensor", step=0, measure="relative", other_run=key, other_tag="v")
    assert relative["values"] == [[-1.0, 1.5], [2.0, "Infinity"]]
    loose = asked("tensor", step=0, measure="close", rtol=0, atol=2, other_tag="v")
    assert (loose["dtype"], loose["values"]) == ("bool", [[True, False], [False, True]])
    counted = asked("histograms", other_step="previous", bins=2, other_run=key)
    assert (counted["steps"], counted["counts"]) == ([0, 10], [[0, 4], [1, 3]])
    file = page.get(f"/runs/{key}/tensor", tag="w", step=0, other_run=other, format="npy")
    assert np.load(io.BytesIO(file.content)).tolist() == table["values"]


def test_a_comparison_that_cannot_be_says_why(page, pair):
    key, other = pair
    for query, expected in (
        ({"other_run": "none"}, (404, "UnknownNameError")),
        ({"other_tag": "none"}, (404, "UnknownNameError")),
        ({"other_step": 7}, (404, "UnknownNameError")),
        ({"other_tag": "short"}, (409, "ViewError")),
        ({"other_step": "last"}, (400, "RequestError")),
        ({"other_run": other, "measure": "close", "rtol": -1}, (400, "RequestError")),
    ):
        assert error(page.get(f"/runs/{key}/tensor", tag="w", step=0, **query)) == expected
        assert error(page.get(f"/runs/{key}/find", tag="w", what="max", **query)) == expected


def test_steps_that_are_damaged_are_listed(page):
    place_foreign()
    file = Path("runs/ms") / FOREIGN["ms"][1]
    data = bytearray(file.read_bytes())
    data[data.index(np.float32([2, 4, 6]).tobytes())] ^= 1  # "kernel" of step 2
    file.write_bytes(data)
    key = page.key("ms")

    steps = page.json(f"/runs/{key}/steps", tag="weights")

    assert steps["steps"] == [1, 3]
    assert [lost["step"] for lost in steps["damaged"]] == [2]
    assert re.fullmatch(r"\S+_MS, offset \d+: .*", steps["damaged"][0]["problem"])
    assert error(page.get(f"/runs/{key}/media", tag="grey", step=2)) == (422, "DamagedError")
    assert error(page.get(f"/runs/{key}/tensor", tag="ids", step=2)) == (422, "DamagedError")
    assert error(page.get(f"/runs/{key}/tensor", tag="ids", step=4)) == (404, "UnknownNameError")
    assert "damaged" in page.runs()["ms"]["problem"]


def test_tensors_say_what_they_were(page):
    place_foreign()
    tags = {tag["tag"]: tag for tag in page.json(f"/runs/{page.key('ms')}/tags")["tags"]}
    assert {tag: (tags[tag]["dtype"], tags[tag]["stored_as"]) for tag in ("mask", "weights", "loss")} == {
        "mask": ("bool", "float32"), "weights": ("", ""), "loss": ("", ""),
    }  # fmt: skip


def test_media_and_texts(mnist):
    one, other = (mnist("media", tag="digits", index=i) for i in (0, 3))
    assert one.headers["content-type"] == "image/png"
    assert one.content.startswith(b"\x89PNG")
    assert one.content != other.content
    assert error(mnist("media", tag="digits", index=4)) == (404, "UnknownNameError")
    assert mnist("media", tag="figure", format="pdf").headers["content-type"] == "application/pdf"
    assert error(mnist("media", tag="figure", format="png")) == (404, "UnknownNameError")
    assert error(mnist("media", tag="note")) == (400, "QueryError")
    texts = mnist("texts", tag="note").json()["texts"]
    assert [(text["step"], text["text"]) for text in texts] == [(step, f"<b>{step}</b>") for step in (0, 100, 200)]
    assert [text["step"] for text in mnist("texts", tag="note", limit=2).json()["texts"]] == [100, 200]
    assert [text["step"] for text in mnist("texts", tag="note", from_=100, limit=1).json()["texts"]] == [100]
    assert error(mnist("texts", tag="kernel")) == (400, "QueryError")


def test_the_texts_beside_a_run_are_for_controllers(mnist, page):
    assert mnist("beside").json() == {"changes": "", "printed": ""}
    directory = Path(page.runs()["mnist"]["directory"])
    (directory / "changes.diff").write_text("+lr = 0.3\n")
    (directory / "console.txt").write_text("loss nan")
    assert mnist("beside").json() == {"changes": "+lr = 0.3\n", "printed": "loss nan"}
    assert next(route for route in ROUTES if route.path == "/runs/{key}/beside").controllers_only


def test_the_list_of_runs_has_their_commits(page):
    directory = record()
    file = next(directory.glob("run*.json"))
    about = json.loads(file.read_text())
    about["facts"] = {"git": {"commit": "0123456789abcdef", "branch": "main", "dirty": True}}
    file.write_text(json.dumps(about))
    assert page.runs()["mnist"]["commit"] == "0123456789, with changes"


def test_recorded_answers_have_etags(page, mnist):
    for path, query in (("tags", {}), ("scalars", {"tag": "batch.loss"}), ("media", {"tag": "digits"})):
        first = mnist(path, **query)
        key = page.key("mnist")
        again = page.get(f"/runs/{key}/{path}", headers={"If-None-Match": f'"x", W/{first.headers["etag"]}'}, **query)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert page.get(f"/runs/{key}/{path}", headers={"If-None-Match": '"x"'}, **query).status_code == 200


def test_an_etag_ends_when_the_files_change(page, begin):
    run = begin("alive", record=["batch.loss"])
    run.observe("batch", loss=1.0)
    run.flush()
    path = f"/runs/{page.key('alive')}/tags"
    first = page.get(path)
    run.observe("batch", loss=2.0)
    run.flush()
    again = page.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert again.json()["tags"][0]["n"] == 2


def test_functions_and_checks(page, mnist):
    reply = page.json("/functions")
    assert {one["name"] for one in reply if one["kind"] == "function"} == set(FUNCTIONS)
    assert "quantile" in {one["name"] for one in reply if one["kind"] == "reducer"}
    key = page.key("mnist")
    done = page.post(f"/runs/{key}/check", {"query": "batch.loss.mean(every=10)"}).json()
    assert done == {"ok": True, "tag": "batch.loss.mean(every=10)", "canonical": done["canonical"]}
    assert sg.parse(done["canonical"]) == sg.parse("batch.loss.mean(every=10)")
    assert page.post(f"/runs/{key}/check", {"query": "val/accuracy"}).json()["tag"]
    wrong = page.post(f"/runs/{key}/check", {"query": "batch.loss +"})
    assert error(wrong) == (400, "QuerySyntaxError")
    assert isinstance(wrong.json()["error"]["position"], int)
    assert error(page.post(f"/runs/{key}/check", {"query": 3})) == (400, "RequestError")
    assert error(page.post(f"/runs/{key}/check", {})) == (400, "RequestError")


def test_commands(page, begin):
    run = begin("alive")
    lr = run.control("lr", 0.1, min=0.0, max=1.0)
    run.action("add", lambda a, at: a + at)
    key = page.key("alive")
    done = []

    def do(**body):
        answers = []
        asking = threading.Thread(target=lambda: answers.append(page.post(f"/runs/{key}/commands", body)))
        asking.start()
        wait_until(lambda: not asking.is_alive(), "the answer", pause=lambda: run.observe("batch", loss=1.0))
        done.append(body)
        return answers[0]

    ack = do(kind="set", name="lr", value=0.5).json()
    assert (ack["applied"], ack["event"], ack["old"], ack["result"], lr.value) == (True, "batch", 0.1, 0.5, 0.5)
    assert do(kind="call", name="add", value=[1, 2]).json()["result"] == 3
    assert do(kind="call", name="add", value=[1], keywords={"at": 2}).json()["result"] == 3
    wrong = do(kind="set", name="lr", value=7)
    assert error(wrong) == (409, "CommandError")
    assert "1.0" in wrong.json()["error"]["message"]
    assert wrong.status_code == 409
    assert error(do(kind="set")) == (400, "RequestError")
    assert error(do(kind="jump")) == (400, "RequestError")
    history = page.json(f"/runs/{key}")["history"]
    assert [(entry["kind"], entry["name"]) for entry in history][:2] == [("set", "lr"), ("call", "add")]
    assert do(kind="stop").json()["applied"]
    assert run.stopping
    run.close()
    assert error(page.post(f"/runs/{key}/commands", {"kind": "stop"}))[0] in (404, 409)


def test_commands_to_recorded_runs_are_refused(page, mnist):
    answer = page.post(f"/runs/{page.key('mnist')}/commands", {"kind": "stop"})
    assert error(answer) == (409, "RunLostError")
    assert "has ended" in answer.json()["error"]["message"]


def test_record(page, begin):
    run = begin("alive")
    key = page.key("alive")
    assert page.post(f"/runs/{key}/record", {"query": "batch.loss", "record": True}).json() == {
        "tag": "batch.loss",
        "record": True,
    }
    run.observe("batch", loss=1.0)
    run.flush()
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["y"] == [1.0]
    assert page.post(f"/runs/{key}/record", {"query": "batch.loss", "record": False}).status_code == 200
    assert error(page.post(f"/runs/{key}/record", {"query": "batch.loss", "record": False}))[0] in (400, 404)


def test_views_are_chosen_as_everywhere(page):
    forms = [{"kind": "number"}, {"kind": "histogram"}]
    assert page.post("/view", {"forms": forms}).json()["view"] == "line"
    assert error(page.post("/view", {"forms": [{"kind": "number"}, {"kind": "images"}]})) == (409, "ViewError")
    assert error(page.post("/view", {"forms": [{"kind": "smell"}]})) == (400, "RequestError")
    assert error(page.post("/view", {"forms": []})) == (400, "RequestError")


def test_the_document_covers_every_route(page):
    reply = page.json("/openapi.json")
    listed = {(method.upper(), path) for path, methods in reply["paths"].items() for method in methods}
    assert listed == {(route.method, schema.PREFIX + route.path) for route in ROUTES}
    for methods in reply["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith(".")
            assert {"200", "400", "401", "404", "503"} <= set(operation["responses"])
            assert "500" not in operation["responses"]
    for reference in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(reply)):
        assert reference in reply["components"]["schemas"]


def test_unexpected_errors_are_503(page, monkeypatch, capfd):
    from sightglass.server.api import runs

    monkeypatch.setattr(runs, "SessionInfo", None)
    answer = page.get("/session")
    assert error(answer) == (503, "InternalError")
    assert "Traceback" in capfd.readouterr().err
    assert page.get("/session").status_code == 503
    assert "Traceback" not in capfd.readouterr().err


def test_other_methods_and_addresses(page):
    assert error(page.post("/session", {})) == (405, "RequestError")
    assert error(page.get("/nothing")) == (404, "RequestError")
    assert page.http.get("/").status_code == 200
    assert math.isclose(page.http.head("/api/v1/session", headers=page.headers()).status_code, 200)


def test_steps_are_integers(page):
    with sg.init("stepped") as run:
        for step in (2_069_400, 2_069_500):
            run.log({"loss": 0.5, "kernel": sg.Tensor(np.zeros(3)), "half": 1.0}, step=step)
    key = next(run["key"] for run in page.json("/runs")["runs"] if run["name"] == "stepped")
    of_run = ("", "/tags", "/scalars?tag=loss", "/steps?tag=kernel", "/tensor?tag=kernel", "/statistics?tag=kernel")
    for path in ("/runs", *(f"/runs/{key}{rest}" for rest in (*of_run, "/overview"))):
        said = page.http.get(schema.PREFIX + path, headers=page.headers()).text
        assert "2069500" in said, path
        assert "2069500." not in said, path
    assert page.get(f"/runs/{key}/scalars", tag="loss").json()["y"] == [0.5, 0.5]


def test_the_reference_is_a_page_for_people(page):
    said = page.http.get("/api/v1")
    assert said.headers["content-type"] == "text/html; charset=utf-8"
    for route in ROUTES:
        assert f'id="{route.id}"' in said.text
    names = set(re.findall(r'href="#([\w-]+)"', said.text))
    assert names == set(re.findall(r'id="([\w-]+)"', said.text)) & names
    assert "PackedScalars" in said.text
    assert "http" not in re.sub(r"http://127\.0\.0\.1:7117\S*", "", said.text).replace("HTTP", "")
    assert not re.search(r"<script|src=", said.text)


def test_many_series_have_a_schema(page):
    post = page.json("/openapi.json")["paths"]["/api/v1/scalars"]["post"]
    [content] = post["responses"]["200"]["content"].values()
    assert content["schema"] == {"type": "array", "items": {"$ref": "#/components/schemas/PackedScalars"}}
    series = page.json("/openapi.json")["components"]["schemas"]["PackedScalars"]["properties"]
    assert {"run", "tag", "x", "y", "error", "cursor"} <= set(series)


def test_an_outlier_is_counted_in_the_bins_at_the_edges(page):
    values = np.random.default_rng(0).normal(size=10_000)
    values[7] = 1e4
    with sg.init("squeezed") as run:
        run.log({"w": sg.Tensor(values), "same": sg.Tensor(np.zeros(100))}, step=0)
    ask = f"/runs/{page.key('squeezed')}/histograms"
    whole = page.get(ask, tag="w").json()
    assert max(whole["counts"][0]) == len(values) - 1
    edge = page.get(ask, tag="w", outliers="edge", bins=32).json()
    assert sum(edge["counts"][0]) == len(values)
    assert max(edge["counts"][0]) < 0.2 * len(values)
    assert edge["counts"][0][-1] == 1
    assert -6 < edge["edges"][0][0] < -4
    assert page.get(ask, tag="same", outliers="edge").json() == page.get(ask, tag="same").json()


def test_arrays_of_strings_are_tables_of_texts(page):
    with sg.init("texts") as run:
        run.log({"names": np.array([["cat", "dog"], ["NaN", ""]]), "bytes": np.array([b"x", b"\xff"])}, step=3)
    key = page.key("texts")
    tags = {tag["tag"]: (tag["type"], tag["dtype"], tag["shape"]) for tag in page.json(f"/runs/{key}/tags")["tags"]}
    assert tags == {"names": ("tensor", "str", "[2, 2]"), "bytes": ("tensor", "str", "[2]")}
    table = page.json(f"/runs/{key}/tensor", tag="names", step=3)
    assert (table["dtype"], table["shape"], table["statistics"]) == ("str", [2, 2], None)
    assert table["values"] == [["cat", "dog"], ["NaN", ""]]
    assert page.json(f"/runs/{key}/tensor", tag="names", step=3, slice="[1, 0]")["values"] == "NaN"
    assert page.json(f"/runs/{key}/tensor", tag="bytes", step=3)["values"] == ["x", "\ufffd"]
    assert page.get(f"/runs/{key}/tensor", tag="names", step=3, format="csv").text == "cat,dog\r\nNaN,\r\n"
    for path, query in (("find", {"what": "max"}), ("histograms", {}), ("tensor", {"format": "npy", "thin": 4})):
        assert page.get(f"/runs/{key}/{path}", tag="names", **query).status_code == 400
    assert page.json(f"/runs/{key}/overview")["tensors"] == []


COUNT = itertools.count()
LARGE = {
    "int": [2**53 - 1, 2**53, 2**53 + 1, 2**62 + 1, -(2**60) - 1, 7],
    "int64": [np.int64(2**53 + 1), np.int64(2**62 + 3), np.int64(-5)],
    "uint64": [np.uint64(2**64 - 1), np.uint64(2**63 + 1), np.uint64(1)],
    "beyond 64 bits": [2**70 + 1, -(2**90) - 1, 3],
    "among floats": [0.5, 2**53 + 1, 1e30, np.int64(2**60 + 1)],
    "time_ns": [1_795_864_543_000_000_001 + 7 * i for i in range(60)],
    "floats": [1e300, 2.0**60, math.inf],
}


def test_integers_beyond_53_bits_come_with_their_digits(page):
    with sg.init("large", budget=None) as run:
        for tag, values in LARGE.items():
            for step, value in enumerate(values):
                run.log({tag: value}, step=step)
    key = page.key("large")
    for tag, values in LARGE.items():
        reply = page.json(f"/runs/{key}/scalars", tag=tag)
        assert [float(y) for y in reply["y"]] == [float(value) for value in values]
        exact = [[i, str(int(x))] for i, x in enumerate(values) if not isinstance(x, float) and abs(int(x)) >= 2**53]
        assert reply["integers"] == exact
        (entry,) = msgspec.msgpack.decode(page.post("/scalars", {"requests": [{"run": key, "tag": tag}]}).content)
        assert entry["integers"] == exact
    some = page.json(f"/runs/{key}/scalars", tag="time_ns", from_=20, to=40, points=4)
    rows = {float(value): value for value in LARGE["time_ns"]}
    assert some["thinned"]
    assert [int(digits) for _, digits in some["integers"]] == [LARGE["time_ns"][int(step)] for step in some["step"]]
    assert rows.keys() >= set(some["y"])


integers = st.integers(-(2**63), 2**64 - 1) | st.integers(2**53 - 2, 2**53 + 2) | st.integers(-(2**80), 2**80)
kinds = st.sampled_from([int, np.int64, np.uint64, np.int32, float])


def of_kind(kind: Any, number: int) -> Any:
    """Return a number as one of a kind, or as Python's own where the kind has no room for it."""
    try:
        return kind(number)
    except OverflowError:
        return number


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(numbers=st.lists(st.builds(of_kind, kinds, integers), min_size=1, max_size=6))
def test_any_integer_keeps_its_digits_through_every_door(page, tmp_path, numbers):
    tag = f"t{next(COUNT)}"
    with sg.init(tag, budget=None) as run:
        for step, number in enumerate(numbers):
            run.log({tag: number}, step=step)
    exact = {i: int(x) for i, x in enumerate(numbers) if not isinstance(x, float) and abs(int(x)) >= 2**53}
    reply = page.json(f"/runs/{page.key(tag)}/scalars", tag=tag)
    assert {i: int(digits) for i, digits in reply["integers"]} == exact
    with sg.open(run.directory) as recorded:
        assert [int(record.value) for record in recorded.series(tag)] == [int(number) for number in numbers]
        recorded.export(to="csv", out=tmp_path / f"{tag}.csv")
    rows = csv.DictReader(io.StringIO((tmp_path / f"{tag}.csv").read_text()))
    texts = [row["value"] or row["text"] for row in rows]  # a column of numbers has 64 bits
    plain = [number if isinstance(number, float) else int(number) for number in numbers]  # NumPy compares rounded
    assert sorted(float(text) if "." in text or "e" in text else int(text) for text in texts) == sorted(plain)
