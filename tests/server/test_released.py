"""What the server holds of runs that came and went: few descriptions, and no files that nobody reads."""

from __future__ import annotations

import gc
import weakref

from sightglass.server.runs import run_table
from sightglass.server.runs.run_table import UNUSED_S

from .conftest import record, wait_until


def test_descriptions_of_ended_runs_are_bounded(page, begin, monkeypatch):
    monkeypatch.setattr(run_table, "MAX_DESCRIBED", 2)
    for number in range(5):
        run = begin(f"job{number}", record=["batch.loss"])
        run.observe("batch", loss=1.0)
        key = page.key(f"job{number}")
        assert "batch" in page.json(f"/runs/{key}")["description"]["events"]
        run.close()
        wait_until(lambda number=number: not page.runs()[f"job{number}"]["live"])
    served = page.hub._runs._served.values()
    assert [source.key for source in served if source.description is not None] == [s.key for s in list(served)[-2:]]
    for number in range(5):  # their files still tell
        run = page.runs()[f"job{number}"]
        assert "batch" in page.json(f"/runs/{run['key']}")["description"]["events"]
        assert run["last_step"] == 0


def test_files_that_nobody_reads_are_closed(page):
    record()
    key = page.key("mnist")
    first = page.json(f"/runs/{key}/tensor", tag="holes")
    runs = page.hub._runs
    source = runs.find(key)
    recording = weakref.ref(source._files.recording)
    runs.release_unused()
    assert source._files is not None  # it was used just now
    with source.borrow() as files:
        files.used_s -= UNUSED_S
        runs.release_unused()
        assert source._files is files  # it is in use
    del files
    wait_until(lambda: source._files is None)  # the hub releases it, though nobody asks anything
    wait_until(lambda: (gc.collect(), recording())[1] is None)  # with its index, and the last blocks that were read
    assert page.json(f"/runs/{key}/tensor", tag="holes") == first
