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
from sightglass.storage.object_file import save_view


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


def test_the_page_is_opened_at_a_view(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "run", lambda self: self._socket.close())
    save_view([Path("runs")], "mine", "#/charts?smooth=0.5")
    printed = sightglass("ui", "--view", "mine", "--no-browser", "--port", "0").stdout.splitlines()
    assert all("/#/charts?smooth=0.5&token=" in line for line in printed)
    assert len(printed) == 2
    assert "Unknown view" in sightglass("ui", "--view", "your", "--no-browser", "--port", "0", code=1).stderr


def test_a_view_is_exported_as_one_file(run: Path) -> None:
    save_view([Path("runs")], "mine", "#/runs")
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
