"""Runs of W&B that were resumed offline: each process has a directory, and all of one id are one run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.storage import wandb_files
from tests.waiting import PATIENCE_S

import sightglass as sg
from sightglass.storage import cache_file, file_names, run_file, run_listing
from sightglass.storage.read.recording import Recording

PROGRAM = """
import sys, wandb

def part(id, part, steps, code):
    settings = wandb.Settings(console="off", silent=True, x_disable_meta=True)
    config = {"lr": part, f"only {part}": True}
    run = wandb.init(
        dir=sys.argv[1], mode="offline", id=id, name=id, resume="allow", config=config, settings=settings)
    for step in steps:
        run.log({"loss": part + step / 100, f"in {part}": step}, step=step)
    run.finish(exit_code=code)

if sys.argv[2] == "1":
    part("a-b", 1, range(4), 3)
else:
    part("a-b", 2, range(2, 6), 0)
    part("b", 3, range(2), 0)
"""
STEPS = [0, 1, 2, 3, 2, 3, 4, 5]  # W&B retracts nothing


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder `wandb` with a run in two parts, and another run."""
    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("made")
    for part in "12":
        arguments = [sys.executable, "-c", PROGRAM, str(folder), part]
        subprocess.run(arguments, env=wandb_files.environment(), check=True, capture_output=True, timeout=PATIENCE_S)
    return folder / "wandb"


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("offline-run-*-a-b"))


def loss(run: sg.RecordedRun) -> list[tuple[float | None, float]]:
    return [(record.step, record.value) for record in run.series("loss")]


EXPECTED = [(step, 1 + step / 100) for step in range(4)] + [(step, 2 + step / 100) for step in range(2, 6)]


def test_directories_of_one_id_are_one_run(made: Path) -> None:
    listed = sg.runs(made)
    assert sorted(run.name for run in listed) == ["a-b", "b"]
    (one,) = (run for run in listed if run.name == "a-b")
    assert (Path(one.directory), one.state) == (parts(made)[0], "ended")
    with sg.open(made) as folder:
        assert len(folder) == 2
        run = folder[parts(made)[0].name]
        assert loss(run) == EXPECTED
        assert dict(run.config) == {"lr": 2, "only 1": True, "only 2": True}
        assert [record.step for record in run.series("in 1")] == [0, 1, 2, 3]
        (other,) = (run for run in folder.values() if run.name == "b")
        assert loss(other) == [(0, 3.0), (1, 3.01)]
    first = run_file.read_all(parts(made)[0])[0]
    assert one.started == first.started
    assert one.ended is not None
    assert one.ended > one.started


def test_each_of_them_opens_the_whole_run(made: Path) -> None:
    for path in parts(made):
        with sg.open(path) as run:
            assert loss(run) == EXPECTED
    with sg.open(parts(made)[0] / "run-a-b.wandb") as part:  # a file is what it is
        assert loss(part) == EXPECTED[:4]


def test_a_run_that_is_resumed_while_it_is_open_goes_on(made: Path, tmp_path: Path) -> None:
    first, second = parts(made)
    shutil.copytree(first, tmp_path / first.name)
    with Recording(tmp_path / first.name) as recording:
        assert recording.info.state == "failed"
        files, n = cache_file.files_of(recording.path), len(recording.series("loss"))
        assert not recording.changed()
        shutil.copytree(second, tmp_path / second.name)
        assert recording.changed()
        assert recording.refresh()
        assert [record.step for record in recording.series("loss")] == STEPS
        assert (n, recording.info.state, recording.vanished) == (4, "ended", [])
        assert len(cache_file.files_of(recording.path)) == len(files) + 1
        assert set(files) < set(cache_file.files_of(recording.path))


def test_a_run_is_in_one_place_of_a_list_however_it_is_reached(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "wandb", symlinks=True)
    assert (tmp_path / "wandb" / "latest-run").is_symlink()
    found = run_listing.runs_in(tmp_path, alive=lambda id: False)
    assert sorted((entry.name, entry.path.name) for entry in found.runs) == sorted(
        (name, path.name) for name, path in (("a-b", parts(made)[0]), ("b", next(made.glob("offline-run-*[0-9]-b"))))
    )
    whole = sum(entry.n_bytes for entry in found.runs)
    shutil.rmtree(parts(tmp_path / "wandb")[1])
    (entry,) = (one for one in run_listing.runs_in(tmp_path, alive=lambda id: False).runs if one.name == "a-b")
    assert entry.state == "failed"
    assert entry.n_bytes < whole


def test_folders_that_are_only_named_like_parts_are_what_they_are(tmp_path: Path) -> None:
    for name in ("offline-run-20240101_000000-a", "offline-run-20240102_000000-a"):
        with sg.init("own", dir=tmp_path / name, files=sg.Files(into=tmp_path / name)) as run:
            run.log({"x": 1.0})
    assert len(sg.runs(tmp_path)) == 2


def test_a_folder_of_many_runs_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        (tmp_path / f"offline-run-20240101_0000{i:02}-r{i % 10}").mkdir()
    n_listed = 0

    def scandir(path: str) -> os.ScandirIterator[str]:
        nonlocal n_listed
        n_listed += 1
        return listed(path)

    listed = os.scandir
    os.utime(tmp_path, (1e9, 1e9))  # long ago: nothing has changed since it was listed
    monkeypatch.setattr(file_names.os, "scandir", scandir)
    for run in sorted(tmp_path.iterdir()):
        id = run.name.rpartition("-")[2]
        assert [one.name.rpartition("-")[2] for one in file_names.directories_of(run)] == [id, id]
    assert n_listed == 1
    (tmp_path / "offline-run-20240102_000000-r0").mkdir()  # right after a look
    assert len(file_names.directories_of(tmp_path / "offline-run-20240101_000000-r0")) == 3
