"""What the machine did, and the steps of the run: on one axis by time, and never joined by numbers of two meanings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.process.clock import SystemClock
from sightglass.query.parser import as_query
from sightglass.server.runs.reached import Reached
from sightglass.storage.format.block import Key
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.write.writer import RecordWriter

BEGAN = 1.7e9
STEPS_A_SECOND = 100
CPU = "system.cpu_percent"


@pytest.fixture
def key(page):
    """Return the key of a run of a minute, a hundred steps a second, whose machine was sampled every ten seconds."""
    about = RunFile(name="busy", id="b" * 12, started=BEGAN, host="h", pid=1)
    writer = RecordWriter(RunDirectory(Path("runs/busy"), shared=True, about=lambda: about).open, clock=SystemClock())
    for step in range(60 * STEPS_A_SECOND):
        writer.log(step, step, BEGAN + step / STEPS_A_SECOND, {"loss": 1 / (step + 1)}, None)
    for name, value in ((CPU, 0.0), ("system.disk_percent", 100.0)):
        query = as_query(name)
        rows = [(i, 10 * i, BEGAN + 10 * i + 1 / 128, value + i, None, i) for i in range(6)]
        writer.rows(Key(kind="stream", tag=query.tag, query=query.key), rows)
    writer.close(60)
    return page.key("busy")


def scalars(page, key, tag=CPU, **query):
    return page.json(f"/runs/{key}/scalars", tag=tag, **query)


def test_over_steps_the_machine_stands_at_the_step_that_the_run_had_reached(page, key):
    line = scalars(page, key)
    assert line["x"] == line["step"] == [0, 1000, 2000, 3000, 4000, 5000]
    assert line["y"] == [0, 1, 2, 3, 4, 5]
    assert scalars(page, key, x="relative")["x"] == pytest.approx([10 * i + 1 / 128 for i in range(6)])
    assert scalars(page, key, tag=f"{CPU} / 2")["x"] == line["x"]


def test_a_range_of_steps_is_one_of_times(page, key):
    assert scalars(page, key, from_=900, to=2100)["x"] == [1000, 2000]
    assert scalars(page, key, from_=1001, to=1999)["x"] == []
    assert scalars(page, key, from_=5001)["x"] == []


def test_a_line_is_fetched_as_a_whole_again(page, key):
    """What a run reaches becomes known later than what its machine did then."""
    line = scalars(page, key)
    assert scalars(page, key, since=line["cursor"])["x"] == line["x"]
    assert not line["continued"]


def test_series_of_two_kinds_of_steps_are_not_joined_by_them(page, key):
    assert scalars(page, key, tag=CPU, x="system.disk_percent")["x"] == [100, 101, 102, 103, 104, 105]
    for tag, x in ((CPU, "loss"), ("loss", CPU), (f"{CPU} + loss", "step")):
        answer = page.get(f"/runs/{key}/scalars", tag=tag, x=x)
        assert answer.status_code == 400
        assert "those of 'system.cpu_percent' are seconds, those of 'loss' are not" in answer.text


times = st.lists(st.integers(0, 60), min_size=1, max_size=30)


@given(times, st.data())
def test_the_steps_at_a_time_are_those_of_the_last_record_before_it(walls, data):
    walls = np.array(walls, float)
    steps = np.array(data.draw(st.lists(st.integers(0, 50), min_size=len(walls), max_size=len(walls))), float)
    reached = Reached.of(walls, steps)
    order = np.argsort(walls, kind="stable")
    for wall in np.arange(-1, 62, 0.5):
        before = [i for i in order if walls[i] <= wall]
        assert reached.at(np.array([wall]))[0] == steps[before[-1] if before else order[0]]


@given(times, st.integers(-5, 70), st.integers(0, 30))
def test_a_span_has_exactly_the_times_at_which_the_steps_are_in_it(walls, low, width):
    walls = np.sort(np.array(walls, float))
    reached = Reached.of(walls, np.arange(0.0, 3 * len(walls), 3.0))
    begin, end = reached.span(low, low + width)
    for wall in np.arange(-1, 62, 0.25):
        assert (begin <= wall <= end) == (low <= reached.at(np.array([wall]))[0] <= low + width)
