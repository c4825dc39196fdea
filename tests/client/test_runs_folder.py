"""The folder of runs that is used where none is named."""

from __future__ import annotations

import pytest

import sightglass as sg


def record(name, **options):
    with sg.init(name, **options) as run:
        run.log({"loss": 1.0})
    return run.directory


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    here = record("here")
    assert here.parent.name == "runs"
    monkeypatch.setenv("SIGHTGLASS_RUNS", str(tmp_path / "elsewhere"))
    assert sg.runs() == []  # the folder need not exist
    there = record("there")
    assert there.parent == tmp_path / "elsewhere"
    assert [info.name for info in sg.runs()] == ["there"]
    assert list(sg.open()) == [there.name]
    record("chosen", dir="runs")
    assert [info.name for info in sg.runs("runs")] == ["chosen", "here"]
    monkeypatch.setenv("SIGHTGLASS_RUNS", "")
    assert [info.name for info in sg.runs()] == ["chosen", "here"]
    assert len(sg.open()) == 2


def test_a_folder_that_is_not_there_cannot_be_opened():
    with pytest.raises(sg.RunNotFoundError, match="'runs'"):
        sg.open()
