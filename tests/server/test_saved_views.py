"""Saved views: names for addresses, in a file beside the runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sightglass.storage import object_file

from .conftest import record


@pytest.fixture
def page(page):
    record()
    return page


def save(page, name, address, **options):
    return page.post("/saved-views", {"name": name, "address": address}, **options)


def test_views_are_saved_replaced_and_removed(page):
    assert page.json("/saved-views") == {"views": {}}
    assert save(page, "b", "#/runs?views=1").json() == {"views": {"b": "#/runs?views=1"}}
    save(page, "A loss", "#/charts?tags=loss")
    assert list(page.json("/saved-views")["views"]) == ["A loss", "b"]
    save(page, "b", "#/runs")
    assert json.loads(Path("runs/views.json").read_text()) == {"A loss": "#/charts?tags=loss", "b": "#/runs"}
    assert save(page, "b", None).json() == {"views": {"A loss": "#/charts?tags=loss"}}
    assert save(page, "b", None).status_code == 404
    assert len(page.runs()) == 1


def test_a_view_is_renamed(page):
    save(page, "old", "#/runs")
    save(page, "other", "#/ask")
    name = {"name": "old", "renamed": "new"}
    assert page.post("/saved-views/name", name, role="viewer").status_code == 403
    assert page.post("/saved-views/name", name).json() == {"views": {"new": "#/runs", "other": "#/ask"}}
    assert page.post("/saved-views/name", name).status_code == 404
    taken = page.post("/saved-views/name", {"name": "new", "renamed": "other"})
    assert taken.status_code == 400
    assert "'other' already" in taken.json()["error"]["message"]
    assert page.post("/saved-views/name", {"name": "new", "renamed": " x"}).status_code == 400


def test_viewers_read_views_only(page):
    save(page, "mine", "#/runs")
    assert page.get("/saved-views", role="viewer").json()["views"] == {"mine": "#/runs"}
    assert save(page, "mine", None, role="viewer").status_code == 403


@pytest.mark.parametrize(
    ("name", "address"),
    [("", "#/runs"), (" x", "#/runs"), ("x" * 101, "#/runs"), ("x", "https://example.org"), ("x", "#/" + "x" * 17_000)],
)
def test_odd_names_and_addresses_are_refused(page, name, address):
    assert save(page, name, address).status_code == 400
    assert not Path("runs/views.json").exists()


def test_a_file_that_was_edited_by_hand(page):
    Path("runs/views.json").write_text('{"good": "#/runs", "odd": 3, "out": "javascript:alert()"}')
    assert page.json("/saved-views")["views"] == {"good": "#/runs"}
    save(page, "new", "#/ask")
    assert json.loads(Path("runs/views.json").read_text()) == {
        "good": "#/runs", "odd": 3, "out": "javascript:alert()", "new": "#/ask"
    }  # fmt: skip
    Path("runs/views.json").write_text("{")
    for reply in (page.get("/saved-views"), save(page, "x", "#/ask")):
        assert reply.status_code == 409
        assert "'views.json'" in reply.json()["error"]["message"]
    assert Path("runs/views.json").read_text() == "{"


def test_there_are_at_most_so_many(page, monkeypatch):
    monkeypatch.setattr(object_file, "MAX_VIEWS", 1)
    save(page, "a", "#/runs")
    assert save(page, "b", "#/runs").status_code == 400
    assert save(page, "a", "#/ask").status_code == 200


def test_a_view_is_changed_in_the_folder_that_has_it(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    object_file.save_view(folders[1:], "there", "#/runs")
    object_file.save_view(folders, "there", "#/ask")
    object_file.save_view(folders, "here", "#/ask")
    assert [list(object_file.read_views([folder])) for folder in folders] == [["here"], ["there"]]
    assert object_file.read_views(folders) == {"here": "#/ask", "there": "#/ask"}
