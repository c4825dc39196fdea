"""Keeping runs and saved views in order, from the command line and from Python: each verb, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import sightglass as sg
from sightglass.cli import main
from sightglass.server.app import Server


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIGHTGLASS_RUNS", raising=False)
    with sg.init("mnist") as run:
        run.log({"loss": 1.0})
    return Path("runs", Path(run.directory).name)


def sightglass(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result


VERBS: list[tuple[str, list[str], dict[str, Any], list[str], dict[str, Any]]] = [
    ("name", ["--name", "other"], {"name": "other"}, ["--name", ""], {"name": ""}),
    ("labels", ["--label", "best"], {"add_labels": ["best"]}, ["--unlabel", "best"], {"remove_labels": ["best"]}),
    ("notes", ["--notes", "**so**"], {"notes": "**so**"}, ["--notes", ""], {"notes": ""}),
    ("archived", ["--archive"], {"archived": True}, ["--unarchive"], {"archived": False}),
    ("deleted", ["--delete"], {"deleted": True}, ["--restore"], {"deleted": False}),
    ("baseline", ["--baseline"], {"baseline": True}, ["--no-baseline"], {"baseline": False}),
]


@pytest.mark.parametrize(("field", "does", "given", "undoes", "back"), VERBS, ids=[verb[0] for verb in VERBS])
def test_each_verb_works_from_the_command_line_and_from_python_and_is_undone(
    run: Path, field: str, does: list[str], given: dict[str, Any], undoes: list[str], back: dict[str, Any]
) -> None:
    first = getattr(sg.Annotations(), field)
    sightglass("annotate", str(run), *does)
    with sg.open(run) as opened:
        by_command = getattr(opened.annotations, field)
        assert by_command != first
        opened.annotate(**back)
        assert getattr(opened.annotations, field) == first
        by_python = getattr(opened.annotate(**given), field)
        assert by_python == by_command or field == "deleted"  # the time at which it was
        sightglass("annotate", str(run), *undoes)
        assert getattr(opened.annotations, field) == first


def test_views_are_saved_listed_shown_renamed_and_deleted(run: Path) -> None:
    link = "http://127.0.0.1:7117/#/charts?smooth=0.5&token=SECRET"
    assert sightglass("view", "save", "smooth", link).stdout == "Saved smooth: #/charts?smooth=0.5\n"
    assert "SECRET" not in Path("runs/views.json").read_text()
    sightglass("view", "save", "all runs", "#/runs", "runs")
    assert sightglass("view", "list").stdout.splitlines() == [
        "name\taddress", "all runs\t#/runs", "smooth\t#/charts?smooth=0.5"
    ]  # fmt: skip
    assert sightglass("view", "rename", "smooth", "smoother").stdout == "Renamed to smoother.\n"
    assert sightglass("view", "show", "smoother").stdout == "#/charts?smooth=0.5\n"
    assert "already" in sightglass("view", "rename", "smoother", "all runs", code=1).stderr
    assert json.loads(sightglass("view", "delete", "all runs", "--json").stdout) == {
        "name": "all runs", "address": "#/runs"
    }  # fmt: skip
    assert "Did you mean 'smoother'" in sightglass("view", "show", "smoothe", code=1).stderr
    assert "Expected a folder" in sightglass("view", "list", "nowhere", code=3).stderr
    assert "Expected an address" in sightglass("view", "save", "x", "https://example.org", code=1).stderr


def test_views_from_python(run: Path) -> None:
    views = sg.saved_views()
    views["a"] = "http://localhost:1/#/runs?token=SECRET"
    views["b"] = "#/charts?token=SECRET&smooth=0.5"
    assert dict(views) == dict(sg.saved_views("runs")) == {"a": "#/runs", "b": "#/charts?smooth=0.5"}
    views.rename("a", "c")
    assert list(views) == ["b", "c"]
    del views["b"]
    assert repr(views) == "<SavedViews in 'runs': c>"
    assert "a" not in views
    assert views.get("a") is None
    assert views.pop("a", "") == ""
    with pytest.raises(sg.UnknownNameError):
        del views["b"]
    with pytest.raises(sg.UnknownNameError):
        views.rename("b", "d")
    with pytest.raises(ValueError, match="name"):
        views[" d"] = "#/runs"
    with pytest.raises(sg.RunNotFoundError, match="'nowhere'"):
        sg.saved_views("nowhere")


@pytest.mark.parametrize("command", [["view", "open", "mine"], ["ui", "--view", "mine"]])
def test_the_page_is_opened_at_a_view(run: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "run", lambda self: self._socket.close())
    sg.saved_views()["mine"] = "#/charts?smooth=0.5"
    printed = sightglass(*command, "--no-browser", "--port", "0").stdout.splitlines()
    assert all("/#/charts?smooth=0.5&token=" in line for line in printed)
    assert len(printed) == 2
    assert "Unknown view" in sightglass(*command[:-1], "your", "--no-browser", "--port", "0", code=1).stderr


def test_a_view_is_exported_as_one_file(run: Path) -> None:
    sg.saved_views()["mine"] = "#/runs"
    told = sightglass("export", "runs", "--to", "html", "--view", "mine").stdout
    assert told.startswith("wrote runs.html (")
    assert told.endswith("): 1 run, 1 series\n")
    assert "exists already" in sightglass("export", "runs", "--to", "html", code=1).stderr
    (row,) = json.loads("[" + sightglass("export", str(run), "--to", "html", "--out", "a.html", "--json").stdout + "]")
    assert (row["path"], row["n_runs"]) == ("a.html", 1)
    assert (
        "Expected a view of"
        in sightglass("export", "runs", "--to", "html", "--view", "#/ask", "--overwrite", code=1).stderr
    )
    assert "--view with --to html" in sightglass("export", "runs", "--to", "csv", "--view", "mine", code=2).stderr
    assert "--tag" in sightglass("export", "runs", "--to", "html", "--tag", "loss", code=2).stderr
