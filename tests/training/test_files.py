"""Files that a run points to: where they are, how large, and which runs wrote them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import sightglass as sg
from sightglass.cli import main


def which(*arguments):
    result = CliRunner().invoke(main, ["which", *map(str, arguments), "--json"])
    return json.loads(result.stdout) if result.exit_code == 0 else result.exit_code


def test_a_file_and_a_folder_are_recorded_with_their_sizes_and_hashes_and_their_runs_are_found(tmp_path):
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "a.bin").write_bytes(b"abc")
    (tmp_path / "data" / "deep" / "b.bin").write_bytes(b"de")
    for name in ("first", "second"):
        with sg.init(name, dir=tmp_path / "runs") as run:
            run.file(tmp_path / "data" / "a.bin", step=3, hash=name == "first")
            run.file(str(tmp_path / "data"), step=4)
    assert sorted(
        Path(row["run"]).name.partition("-")[0] for row in which(tmp_path / "data" / "a.bin", tmp_path / "runs")
    ) == ["first", "second"]
    assert {(row["step"], row["n_bytes"], row["found_by"]) for row in which(tmp_path / "data", tmp_path / "runs")} == {
        (4, 5, "path"),
    }
    (tmp_path / "copy").write_bytes(b"abc")
    (found,) = which(tmp_path / "copy", tmp_path / "runs")
    assert (found["found_by"], found["changed"]) == ("hash", False)
    assert "first" in found["run"]
    series = next(run for run in sg.open(tmp_path / "runs").values() if run.name == "first").series("file/sha256")
    assert series[0].value == hashlib.sha256(b"abc").hexdigest()
    (tmp_path / "data" / "a.bin").write_bytes(b"abcd")
    assert {row["changed"] for row in which(tmp_path / "data" / "a.bin", tmp_path / "runs")} == {True}
    (tmp_path / "data" / "a.bin").unlink()
    assert len(which(tmp_path / "data" / "a.bin", tmp_path / "runs")) == 2
    assert which(tmp_path / "other", tmp_path / "runs") == 3


def test_the_hash_of_a_folder_changes_with_any_file_and_any_name(tmp_path):
    hashes = []
    with sg.init("job", dir=tmp_path / "runs") as run:
        (tmp_path / "data").mkdir()
        for name, content in (("a", b"1"), ("a", b"2"), ("b", b"2")):
            (tmp_path / "data" / name).write_bytes(content)
            run.file(tmp_path / "data", hash=True)
    hashes = [record.value for record in sg.open(run.directory).series("file/sha256")]
    assert len({*hashes}) == 3


def test_a_file_that_is_gone_raises_at_the_call_and_a_disabled_run_does_not_look(tmp_path):
    with sg.init("job", dir=tmp_path) as run, pytest.raises(FileNotFoundError):
        run.file(tmp_path / "gone")
    with sg.init("job", mode="disabled") as run:
        run.file(tmp_path / "gone")
