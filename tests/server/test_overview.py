"""Statistics of tensors over their steps, and all tensors of a run at a glance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.growing import write_kinds

import sightglass as sg
from sightglass.server.api import overview, scalars
from sightglass.storage.tensors.digests import N_BARS

from .conftest import place_foreign, wait_until


def complete(page, path, **query):
    """Ask until nothing is pending."""

    def reply():
        found = page.get(path, **query)
        assert found.status_code == 200, found.text
        return found.json() if found.json()["n_pending"] == 0 else None

    return wait_until(reply)


@pytest.fixture
def run(page):
    with sg.init("net") as run:
        for step in range(0, 400, 10):
            weights = np.full((2, 3), step, np.float32)
            weights[0, 0] = np.nan if step == 200 else 0
            run.log({"layer/kernel": sg.Tensor(weights), "loss": 0.5}, step=step)
            if step % 100 == 50:
                run.log({"layer/acts": sg.Histogram(np.arange(100.0))}, step=step)
    return page.runs()["net"]["key"]


def test_statistics_of_all_steps_come_in_one_reply(page, run):
    found = complete(page, f"/runs/{run}/statistics", tag="layer/kernel")
    assert found["steps"] == list(range(0, 400, 10))
    assert found["statistics"]["max"] == found["steps"]
    assert found["statistics"]["n_nan"] == [int(step == 200) for step in found["steps"]]
    acts = complete(page, f"/runs/{run}/statistics", tag="layer/acts")["statistics"]
    assert (acts["std"], acts["n_zero"], acts["n_nan"]) == (["NaN"] * 4, [-1] * 4, [0] * 4)
    assert page.get(f"/runs/{run}/statistics", tag="nope").status_code == 404


def test_a_statistic_over_the_steps_is_a_line_of_a_chart(page, run, monkeypatch):
    found = complete(page, f"/runs/{run}/scalars", tag="max(layer/kernel)")
    assert (found["x"], found["y"]) == ([*range(0, 400, 10)],) * 2
    more = complete(page, f"/runs/{run}/scalars", tag="max(layer/kernel)", since=found["cursor"])
    assert (more["continued"], more["x"]) == (True, [])
    monkeypatch.setattr(scalars, "LIMIT_S", -1.0)
    part = page.get(f"/runs/{run}/scalars", tag="n_zero(layer/acts)").json()
    assert (part["n_pending"], part["x"], part["y"]) == (3, [50], ["NaN"])
    assert page.get(f"/runs/{run}/scalars", tag="max(nope)").status_code in {400, 404}
    of_number, number = (page.get(f"/runs/{run}/scalars", tag=tag).json() for tag in ("max(loss)", "loss"))
    assert of_number["y"] == number["y"]


def test_the_overview_has_every_tensor_at_a_step(page, run):
    found = complete(page, f"/runs/{run}/overview", step=205, curve="max")
    acts, kernel = found["tensors"]
    assert (kernel["tag"], kernel["type"], kernel["shape"], kernel["n_steps"]) == (
        "layer/kernel",
        "tensor",
        "[2, 3]",
        40,
    )
    assert kernel["step"] == 200
    assert kernel["statistics"]["n_nan"] == 1
    assert kernel["statistics"]["max"] == 200
    assert kernel["curve"] == list(range(0, 400, 20))
    assert (acts["tag"], acts["type"], acts["step"]) == ("layer/acts", "histogram", 150)
    assert acts["statistics"]["mean"] == "NaN"
    assert len(acts["bars"]) == N_BARS
    assert min(acts["bars"]) > 0
    zeros = complete(page, f"/runs/{run}/overview", curve="n_zero")["tensors"]
    assert [one["curve"] for one in zeros] == [["NaN"] * 4, [6, *[1] * 9, 0, *[1] * 9]]
    assert found["steps"] == list(range(0, 400, 10))
    last = complete(page, f"/runs/{run}/overview")["tensors"]
    assert [one["step"] for one in last] == [350, 390]
    before = complete(page, f"/runs/{run}/overview", step=20)["tensors"]
    assert [one["statistics"] is None for one in before] == [True, False]


def test_what_is_not_read_in_time_is_read_when_asked_again(page, run, monkeypatch):
    monkeypatch.setattr(overview, "LIMIT_S", -1.0)
    first = page.get(f"/runs/{run}/overview").json()
    assert first["n_pending"] == first["n_records"] == 25
    assert [one["statistics"] for one in first["tensors"]] == [None, None]
    part = page.get(f"/runs/{run}/statistics", tag="layer/kernel").json()
    assert part["n_pending"] == 39, "one is read in any case"
    monkeypatch.undo()
    assert len(complete(page, f"/runs/{run}/statistics", tag="layer/kernel")["steps"]) == 40


def test_a_run_that_grows_has_the_new_steps(page, begin):
    live = begin("grows")
    live.log({"w": sg.Tensor(np.ones(4))}, step=0)
    live.flush()
    key = page.runs()["grows"]["key"]
    assert complete(page, f"/runs/{key}/overview")["tensors"][0]["step"] == 0
    live.log({"w": sg.Tensor(np.ones(4))}, step=1)
    live.flush()
    wait_until(lambda: complete(page, f"/runs/{key}/overview")["tensors"][0]["step"] == 1)


def test_other_programs_files_have_an_overview(page):
    place_foreign()
    for run in page.runs().values():
        found = complete(page, f"/runs/{run['key']}/overview")
        tags = page.get(f"/runs/{run['key']}/tags").json()["tags"]
        assert [one["tag"] for one in found["tensors"]] == [
            tag["tag"] for tag in tags if tag["type"] in ("tensor", "histogram")
        ]


def test_a_run_without_files_has_none(page, begin):
    begin("quiet")
    key = page.runs()["quiet"]["key"]
    assert complete(page, f"/runs/{key}/overview") == {"tensors": [], "steps": [], "n_records": 0, "n_pending": 0}


@pytest.mark.parametrize("n", [40, 40_000])  # in small blocks, and in those whose heads alone are read for the steps
def test_among_damaged_records_the_one_at_the_step_is_shown(page, n):
    with sg.init("torn") as run:
        for step in range(6):
            run.log({"w": sg.Tensor(np.full(n, step, np.float32))}, step=step)
            run.flush()  # a block for each
    (file,) = run.directory.glob("*.sgr")
    data = bytearray(file.read_bytes())
    data[data.index(np.full(n, 4, np.float32).tobytes())] ^= 1
    file.write_bytes(data)
    path = f"/runs/{page.runs()['torn']['key']}/overview"
    assert complete(page, path, step=2)["tensors"][0]["statistics"]["max"] == 2
    assert complete(page, f"/runs/{page.runs()['torn']['key']}/statistics", tag="w")["steps"] == [0, 1, 2, 3, 5]
    shown = [complete(page, path, step=step)["tensors"][0]["step"] for step in (2, 3, 5)]
    assert shown == [2, 3, 5]
    assert complete(page, path, step=4)["tensors"][0]["step"] in (None, 3), "never another step's values"


def test_kinds_of_one_tag_are_asked_for_apart_and_never_compared(page):
    write_kinds(Path("runs/a"), ["histogram", "scalar", "tensor"], step=1)
    write_kinds(Path("runs/b"), ["histogram"], step=1)
    write_kinds(Path("runs/c"), ["scalar", "tensor"], step=2)
    with sg.init("own") as own:
        own.log({"x": sg.Tensor(np.zeros((2, 3)))}, step=1)
    keys = {name: run["key"] for name, run in page.runs().items()}
    names = {
        name: {tag["name"]: (tag["tag"], tag["type"]) for tag in page.json(f"/runs/{key}/tags")["tags"]}
        for name, key in keys.items()
    }
    assert names == {
        "a": {"x": ("x", "scalar"), "x:tensor": ("x", "tensor"), "x:histogram": ("x", "histogram")},
        "b": {"x:histogram": ("x", "histogram")},
        "c": {"x": ("x", "scalar"), "x:tensor": ("x", "tensor")},
        "own": {"x": ("x", "tensor")},
    }
    assert page.json(f"/runs/{keys['a']}/scalars", tag="x")["y"] == [0.5]
    assert page.json(f"/runs/{keys['a']}/tensor", tag="x:tensor", step=1)["shape"] == [2, 3]
    counts = page.json(f"/runs/{keys['a']}/histograms", tag="x:histogram", bins=3)["counts"]
    assert [sum(row) for row in counts] == [9]
    overview = complete(page, f"/runs/{keys['a']}/overview")["tensors"]
    assert [(one["tag"], one["name"]) for one in overview] == [("x", "x:tensor"), ("x", "x:histogram")]
    for run, other in (("a", "own"), ("own", "a"), ("own", "c"), ("a", "c")):
        tag = "x" if run == "own" else "x:tensor"
        found = page.json(f"/runs/{keys[run]}/tensor", tag=tag, step=1, other_run=keys[other])
        assert (
            found["values"]
            == (np.full((2, 3), {"a": 1, "c": 2, "own": 0}[run] - {"a": 1, "c": 2, "own": 0}[other])).tolist()
        )
        assert page.get(f"/runs/{keys[run]}/tensor", tag=tag, step=1, other_run=keys["b"]).status_code == 404


def test_what_is_shown_stays_when_another_kind_comes_to_its_tag(page):
    write_kinds(Path("runs/a"), ["histogram"], step=1)
    key = page.runs()["a"]["key"]
    (tag,) = page.json(f"/runs/{key}/tags")["tags"]
    write_kinds(Path("runs/a"), ["tensor", "scalar", "histogram"], step=2)
    tags = wait_until(lambda: len(found := page.json(f"/runs/{key}/tags")["tags"]) == 3 and found)
    assert tag["name"] in {one["name"] for one in tags}
    assert page.json(f"/runs/{key}/steps", tag=tag["name"])["steps"] == [1, 2]
