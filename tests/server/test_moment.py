"""All that a run recorded at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.core.process.clock import SystemClock
from sightglass.query.parser import as_query
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.write.writer import RecordWriter

BEGAN = 1.7e9


def write(directory, **series):
    """Write series as rows of time, in seconds since the start, and value; the step is ten times as much."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    about = RunFile(name=directory.name, id="b" * 12, started=BEGAN, host="h", pid=1)
    writer = RecordWriter(RunDirectory(directory, shared=True, about=lambda: about).open, clock=SystemClock())
    for name, rows in series.items():
        query = as_query(name.replace("__", "."))
        key = Key(kind="stream", tag=query.tag, query=query.key)
        writer.rows(key, [(i, 10 * at, BEGAN + at, value, None, i) for i, (at, value) in enumerate(rows)])
        writer.flush(60)
    writer.close(60)


@pytest.fixture
def moment(page):
    write(
        Path("runs/busy"),
        batch__loss=[(at, 1.0 / (at + 1)) for at in range(100)],
        batch__odd=[(0, 1), (10, float("nan")), (20, 2**60 + 1)],
        batch__late=[(90, 5.0)],
        system__cpu_percent=[(10 * i, float(i)) for i in range(10)],
        console__out=[(at, f"line {at}") for at in range(100)],
        batch__weights=[(at, np.full(1000, at)) for at in (0, 30, 60)],
        batch__picture=[(at, sg.Image(np.zeros((2, 2), np.uint8))) for at in (5, 55)],
    )
    key = page.key("busy")
    return lambda at, **query: page.json(f"/runs/{key}/moment", at=BEGAN + at, **query)


def test_of_each_series_it_is_the_last_record_by_then(moment):
    found = moment(30.5)
    numbers = {one["tag"]: (one["value"], one["step"], one["wall_time"] - BEGAN) for one in found["numbers"]}
    assert numbers == {
        "batch.loss": (1 / 31, 300, 30),
        "batch.odd": ("1152921504606846977", 200, 20),
        "system.cpu_percent": (3.0, 300, 30),
    }
    assert {(one["tag"], one["type"], one["step"]) for one in found["others"]} == {
        ("batch.weights", "tensor", 300),
        ("batch.picture", "image", 50),
    }
    assert {one["tag"]: one["value"] for one in moment(15)["numbers"]}["batch.odd"] == "NaN"


def test_the_step_is_that_which_the_run_had_reached_and_the_steps_around_it_are_known(moment):
    found = moment(30.5)
    assert (found["step"], found["before"] - BEGAN, found["after"] - BEGAN) == (300, 29, 31)
    first = moment(-1)
    assert (first["step"], first["before"], first["after"] - BEGAN, first["numbers"]) == (None, None, 0, [])
    assert moment(1000)["after"] is None


def test_a_step_stands_for_the_time_at_which_the_run_was_there(page, moment):
    key = page.key("busy")

    def at_step(step):
        return page.json(f"/runs/{key}/moment", step=step)

    assert at_step(300) == moment(30)
    assert at_step(305) == moment(30), "not yet at the next step"
    assert at_step(1e9)["wall_time"] - BEGAN == 99
    for odd in ({"step": -5}, {"step": "nan"}, {}, {"step": 1, "at": BEGAN}):
        assert page.get(f"/runs/{key}/moment", **odd).status_code == 400


def test_texts_are_those_around_it(moment):
    assert [one["text"] for one in moment(30.5)["texts"]] == [f"line {at}" for at in range(26, 36)]
    assert [one["text"] for one in moment(30, near_s=1)["texts"]] == ["line 29", "line 30", "line 31"]
    assert moment(500)["texts"] == []


def test_the_times_of_a_request_are_numbers(page, moment):
    moment(0)
    assert page.get(f"/runs/{page.key('busy')}/moment", at="NaN").status_code == 400
    assert page.get(f"/runs/{page.key('busy')}/moment").status_code == 400


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(-1, 41))
def test_a_place_is_the_last_row_that_was_made_by_a_time(tmp_path_factory, gaps, at):
    times = sorted(gaps)
    directory = tmp_path_factory.mktemp("place") / "run"
    write(directory, batch__x=[(time, float(i)) for i, time in enumerate(times)])
    with Recording(directory) as recording:
        place = recording.series("batch.x").place_at(BEGAN + at)
    expected = sum(time <= at for time in times) - 1
    assert place == (None if expected < 0 else (expected, 10 * times[expected], BEGAN + times[expected]))
