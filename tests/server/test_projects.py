"""Which project a run belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

import sightglass as sg
from sightglass.server.runs.projects import names_of, project_of


@pytest.mark.parametrize(
    ("directory", "roots", "project"),
    [
        ("/r/a", ["/r"], "r"),
        ("/r/p/a", ["/r"], "p"),
        ("/r/p/q/a", ["/r"], "p"),
        ("/r/p/q/a", ["/r/p", "/s"], "p"),
        ("/s/a", ["/r", "/s"], "s"),
        ("/x/runs/a", ["/x/runs", "/y/runs"], "x/runs"),
        ("/elsewhere/a", ["/r"], ""),
        ("/ra", ["/r"], ""),
        ("", ["/r"], ""),
        ("/r/a", [], ""),
    ],
)
def test_a_project_is_a_folder(directory, roots, project):
    assert project_of(directory, tuple(map(Path, roots))) == project


def test_folders_of_one_name_are_told_apart():
    assert names_of([Path("/a/x/runs"), Path("/b/x/runs"), Path("/c")]) == ["a/x/runs", "b/x/runs", "c"]
    assert names_of([Path("/"), Path("/runs")]) == ["/", "runs"]


def test_the_list_of_runs_has_them(page):
    for project in ("mnist", "cifar"):
        with sg.init(f"in-{project}", dir=Path("runs", project)) as run:
            run.log({"loss": 1.0})
    assert {run["name"]: run["project"] for run in page.json("/runs")["runs"]} == {
        "in-mnist": "mnist", "in-cifar": "cifar"
    }  # fmt: skip
