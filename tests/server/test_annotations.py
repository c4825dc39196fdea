"""Names, labels, the archive and the trash, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import sightglass as sg
from sightglass.server.app import ROUTES

from .conftest import record, wait_until


def test_runs_are_annotated_and_all_others_keep_what_they_have(page):
    directory = record()
    key = page.key("mnist")
    before = page.runs()["mnist"]
    answer = page.post(
        "/annotations", {"edits": [{"key": key, "name": "other", "add_labels": ["best"]}, {"key": "none"}]}
    )
    assert answer.status_code == 200, answer.text
    (run,) = answer.json()["runs"]
    assert (run["name"], run["own_name"], run["annotations"]["labels"]) == ("other", "mnist", ["best"])
    assert "Unknown run 'none'" in answer.json()["problems"]["none"]
    now = wait_until(lambda: page.runs().get("other"))
    assert (now["key"], now["version"], now["changed"], now["state"]) == (
        key,
        before["version"],
        before["changed"],
        "ended",
    )
    (directory / "annotations.json").write_text(json.dumps({"labels": ["by hand"]}))
    assert wait_until(lambda: (found := page.runs().get("mnist")) and found["annotations"]["labels"] == ["by hand"])
    assert page.post("/annotations", {"edits": [{"key": key, "deleted": True}]}).json()["runs"][0]["annotations"][
        "deleted"
    ]
    assert page.runs()["mnist"]["annotations"]["deleted"], "the page lists the trash, and hides it"


def test_only_controllers_annotate(page):
    directory = record()
    edits = {"edits": [{"key": page.key("mnist"), "archived": True}]}
    refused = page.post("/annotations", edits, role="viewer")
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "RefusedError")
    assert not (directory / "annotations.json").exists()
    assert next(route for route in ROUTES if route.path == "/annotations").controllers_only


def test_odd_edits_are_refused(page):
    record()
    key = page.key("mnist")
    for edit in ({"add_labels": [""]}, {"name": "x" * 201}, {"stars": 3}, {"archived": "yes"}):
        answer = page.post("/annotations", {"edits": [{"key": key, **edit}]})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "RequestError"), edit


def test_a_live_run_that_is_renamed_is_still_found_and_one_without_a_recording_says_so(page, begin):
    live = begin("alive")
    live.observe("batch", loss=1.0)
    key = page.key("alive")
    if not live.directory.exists():
        answer = page.post("/annotations", {"edits": [{"key": key, "name": "other"}]}).json()
        assert "has no recording" in answer["problems"][key]
    live.log({"loss": 1.0}, step=0)
    live.flush()
    wait_until(lambda: page.runs()["alive"]["changed"])
    answer = page.post("/annotations", {"edits": [{"key": key, "name": "other"}]}).json()
    assert answer["problems"] == {}
    assert wait_until(lambda: page.runs().get("other"))["live"]
    with sg.connect("alive") as remote:
        assert remote.describe().name == "alive"


def test_a_run_whose_files_lead_out_is_not_written_to(page, tmp_path):
    directory = record()
    key = page.key("mnist")
    (tmp_path / "elsewhere").mkdir()
    directory.rename(tmp_path / "elsewhere" / "run")
    Path(directory).symlink_to(tmp_path / "elsewhere" / "run")
    answer = page.post("/annotations", {"edits": [{"key": key, "archived": True}]}).json()
    assert answer["problems"][key]
    assert not (directory / "annotations.json").exists()
