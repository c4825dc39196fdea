"""What runs say of themselves, and the runs in a folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.core.description import ControlInfo, Description
from sightglass.storage import run_file
from sightglass.storage.run_file import RunFile, create, read, read_all, together, write
from sightglass.storage.run_listing import FolderWalk, is_run, runs_in

RUN = RunFile(name="mnist", id="0123456789ab", started=1700000000.5, host="h", pid=7, config={"lr": 0.1})


def dead(_: str) -> bool:
    return False


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = create(tmp_path, RUN)
    assert path == tmp_path / "run.json"
    assert read(path) == RUN
    ended = msgspec.structs.replace(
        RUN, ended=1700000100.0, state="failed", events={"batch": 10}, described=Description(n_clients=2)
    )
    write(path, ended)
    assert read(path) == ended
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    runs = [RUN, RUN, msgspec.structs.replace(RUN, rank=3), msgspec.structs.replace(RUN, started=1800000000.0), RUN]
    names = []
    for run in runs[:4]:
        names.append(create(tmp_path, run).name)
    assert names == [
        "run.json",
        "run-1700000000500-rank0.json",
        "run-1700000000500-rank3.json",
        "run-1800000000000-rank0.json",
    ]
    assert create(tmp_path, RUN).name == f"run-1700000000500-rank0-{os.getpid()}.json"
    with pytest.raises(FileExistsError):
        create(tmp_path, RUN)
    assert len(read_all(tmp_path)) == 5


def test_what_processes_say_is_put_together(tmp_path: Path) -> None:
    first = msgspec.structs.replace(RUN, events={"batch": 10, "epoch": 1}, ended=1700000050.0, state="failed")
    again = msgspec.structs.replace(RUN, id="b" * 12, started=1800000000.0, events={"batch": 5}, config={"lr": 0.2})
    other = msgspec.structs.replace(RUN, id="c" * 12, started=1900000000.0, rank=1)
    for run in (again, other, first):
        create(tmp_path, run)
    told = together(read_all(tmp_path))
    assert (told.id, told.started, told.ended, told.state) == ("b" * 12, first.started, None, "running")
    assert (told.events, told.config) == ({"batch": 15, "epoch": 1}, {"lr": 0.2})
    assert together(read_all(tmp_path), rank=1).id == "c" * 12
    assert together(read_all(tmp_path), rank=9).id == "b" * 12
    assert together([]) == RunFile()


class Odd:
    def __str__(self) -> str:
        return "odd \udc80"


class Leaves:
    """An object that ends the program wherever it is asked."""

    def _leave(self, *_: object) -> Any:
        sys.exit(3)

    __str__ = __repr__ = item = _leave
    shape = property(_leave)


def test_an_object_that_raises_costs_its_own_text(tmp_path: Path) -> None:
    described = Description(controls={"lr": ControlInfo(value=Leaves())}, n_clients=2)
    path = create(tmp_path, msgspec.structs.replace(RUN, described=described))
    written = json.loads(path.read_text())["described"]
    assert (written["controls"]["lr"]["value"], written["n_clients"]) == ("unreadable: SystemExit: 3", 2)


def test_any_configuration_can_be_written(tmp_path: Path) -> None:
    config: dict[Any, Any] = {
        "nan": float("nan"), "inf": float("inf"), "path": Path("/x"), 3: (1, {2}), "np": np.float32(0.5), "odd": Odd(),
        "array": np.arange(3), "n": np.int64(4), "big": 2**80, "bool": np.True_, "none": None, "text": "a\udc80",
    }  # fmt: skip
    config["self"] = config
    path = create(tmp_path, msgspec.structs.replace(RUN, config=config))
    told = json.loads(path.read_text())["config"]
    assert (told["nan"], told["inf"], told["path"], told["3"]) == ("nan", "inf", "/x", [1, [2]])
    assert (told["np"], told["n"], told["bool"], told["big"], told["array"]) == (0.5, 4, True, 2**80, "[0 1 2]")
    assert (told["odd"], told["text"]) == ("odd ?", "a?")
    found = read(path)
    assert found is not None
    assert found.config["n"] == 4


def test_runs_that_files_do_not_name_have_the_names_of_their_folders(tmp_path: Path) -> None:
    for folder in ("", "hp/t0", "hp/t1", "other/t0"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "events.out.tfevents.1.h").touch()
    make(tmp_path / "mine", "named", id="d" * 12, started=1.0)
    found = {entry.name for entry in runs_in(tmp_path, alive=dead).runs}
    assert found == {tmp_path.name, "hp/t0", "hp/t1", "other/t0", "named"}
    assert {entry.name for entry in runs_in(tmp_path / "hp", alive=dead).runs} == {"t0", "t1"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"', b"[" * 10_000, b'{"name": "x"'])
def test_what_cannot_be_read_is_not_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run.json").write_bytes(data)
    assert read(tmp_path / "run.json") is None
    (entry,) = runs_in(tmp_path, alive=dead).runs
    assert (entry.name, entry.id, entry.state) == (tmp_path.name, "", "writing")


def test_a_newer_version_and_foreign_types_are_read_as_far_as_they_are_known(tmp_path: Path) -> None:
    told = {"version": 9, "name": "x", "id": 5, "started": 7, "state": "paused", "events": [1], "new": {}, "pid": "7"}
    (tmp_path / "run.json").write_text(json.dumps(told))
    assert read(tmp_path / "run.json") == RunFile(version=9, name="x", started=7.0)


told = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.dictionaries(st.text(), st.text())
)


@given(st.dictionaries(st.sampled_from(RunFile.__struct_fields__), told))
def test_any_json_is_read(tmp_path_factory: pytest.TempPathFactory, told: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("f") / "run.json"
    path.write_text(json.dumps(told))
    found = read(path)
    assert found is None or isinstance(found, RunFile)
    runs_in(path.parent, alive=dead).runs


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = create(tmp_path, RUN)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write(path, RunFile(name="other"))
    assert read(path) == RUN
    assert len(list(tmp_path.iterdir())) == 1


def make(folder: Path, name: str, *files: str, **told: Any) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    for file in files:
        (path / file).write_bytes(b"x" * 10)
    if told:
        create(path, RunFile(name=name.rpartition("/")[2], **told))
    return path


def test_runs_are_found_by_their_files(tmp_path: Path) -> None:
    make(tmp_path, "ours", "1000-rank0-0000.sgr", id="a" * 12, started=5.0, ended=6.0, state="ended")
    make(tmp_path, "silent", "1000-rank0-0000.sgr")
    make(tmp_path, "board/train", "events.out.tfevents.1700000000.host.1.0")
    make(tmp_path, "board/validation", "events.out.tfevents.1700000000.host.1.1")
    make(tmp_path, "spore", "x.events.summary.1700000000.host_MS")
    make(
        tmp_path, "lineage", "x.events.summary.1700000000.host_MS_lineage", "x.summary.1700000000_explain", "notes.txt"
    )
    make(tmp_path, "a/b/c/d/deep", "1000-rank0-0000.sgr")
    make(tmp_path, ".hidden", "1000-rank0-0000.sgr")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    found = runs_in(tmp_path, alive=dead).runs
    names = {entry.path.relative_to(tmp_path).as_posix(): entry.state for entry in found}
    assert names == {
        "ours": "ended", "silent": "writing", "board/train": "writing", "board/validation": "writing",
        "spore": "writing", "a/b/c/d/deep": "writing",
    }  # fmt: skip
    assert all(entry.n_bytes >= 10 and entry.changed > 0 for entry in found)
    starts = {entry.path.name: entry.started for entry in found}
    assert starts == {"ours": 5.0, "silent": 0.0, "train": 1.7e9, "validation": 1.7e9, "spore": 1.7e9, "deep": 0.0}
    assert is_run(tmp_path / "ours")
    assert is_run(tmp_path / "spore")
    assert not is_run(tmp_path / "lineage")
    assert not is_run(tmp_path / "missing")
    assert [entry.path for entry in runs_in(tmp_path / "ours", alive=dead).runs] == [tmp_path / "ours"]
    assert runs_in(tmp_path / "missing", alive=dead).runs == []


@pytest.mark.parametrize("name", ["tfevents", "run.wandb", "summary.1", "run.json", "a.sgr"])
def test_a_directory_is_no_record_file_whatever_its_name(tmp_path: Path, name: str) -> None:
    make(tmp_path / name, "one", "events.out.tfevents.1700000000.host.1.0")
    assert not is_run(tmp_path)
    assert [entry.name for entry in runs_in(tmp_path, alive=dead).runs] == [f"{name}/one"]


def test_links_below_the_folder_lead_to_each_directory_once(tmp_path: Path) -> None:
    make(tmp_path, ".cache/one", "1000-rank0-0000.sgr")
    make(tmp_path, "two", "1000-rank0-0000.sgr")
    (tmp_path / "a").symlink_to(tmp_path / ".cache")
    (tmp_path / "b").symlink_to(tmp_path / ".cache/one")
    (tmp_path / "two/loop").symlink_to(tmp_path)
    found = runs_in(tmp_path, alive=dead)
    assert sorted(entry.name for entry in found.runs) == ["a/one", "two"]
    assert not found.note


def test_a_folder_of_links_says_where_they_lead(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/one", "1000-rank0-0000.sgr")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/mine").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="elsewhere"):
        assert sg.runs(tmp_path / "tree") == []
    with pytest.raises(sg.RunNotFoundError, match=r"1 link to .*mine.*elsewhere.*follow_links"):
        sg.open(tmp_path / "tree")
    (info,) = sg.runs(tmp_path / "tree", follow_links=True)
    assert info.name == "mine/one"
    with sg.open(tmp_path / "tree", follow_links=True) as runs:
        assert list(runs) == ["mine/one"]
    make(tmp_path / "tree", "own", "1000-rank0-0000.sgr")
    assert not runs_in(tmp_path / "tree", alive=dead).note


def test_a_walk_that_ends_early_says_so_and_has_what_is_near(tmp_path: Path) -> None:
    make(tmp_path, "near", "1000-rank0-0000.sgr")
    make(tmp_path, "a/b/c/far", "1000-rank0-0000.sgr")
    walk = FolderWalk(tmp_path, max_entries=4)
    assert {Path(listed.path).name for listed in walk} >= {"a", "near"}
    assert "ended after 4 files and folders" in walk.unfinished
    walk = FolderWalk(tmp_path, max_s=0.0)
    assert len(list(walk)) == 1
    assert walk.unfinished
    walk = FolderWalk(tmp_path)
    assert len(list(walk)) == 6
    assert not walk.unfinished


def test_runs_however_many_do_not_end_a_walk(tmp_path: Path) -> None:
    for n in range(20):
        make(tmp_path, f"run{n}", "1000-rank0-0000.sgr", "notes.txt")
    make(tmp_path, "deep/er/last", "1000-rank0-0000.sgr")
    walk = FolderWalk(tmp_path, max_entries=6)
    assert sum(any(file.name.endswith(".sgr") for file in listed.files) for listed in walk) == 21
    assert not walk.unfinished


def test_the_newest_run_comes_first_and_states_are_told(tmp_path: Path) -> None:
    make(tmp_path, "died", id="d" * 12, started=1.0)
    make(tmp_path, "lives", id="e" * 12, started=2.0)
    make(tmp_path, "failed", id="f" * 12, started=3.0, ended=4.0, state="failed")
    again = make(tmp_path, "again", id="1" * 12, started=4.0, ended=5.0, state="failed")
    create(again, RunFile(name="again", id="2" * 12, started=6.0))
    found = runs_in(tmp_path, alive=lambda id: id in ("e" * 12, "2" * 12)).runs
    assert [(entry.name, entry.state) for entry in found] == [
        ("again", "running"), ("failed", "failed"), ("lives", "running"), ("died", "died"),
    ]  # fmt: skip
    assert [entry.state for entry in runs_in(tmp_path, alive=dead).runs] == ["died", "failed", "died", "died"]


def test_a_run_that_ends_while_it_is_listed_has_not_died(tmp_path: Path) -> None:
    """Its file is read before it ends, its lock is tried after."""
    path = make(tmp_path, "x", id="d" * 12, started=1.0) / "run.json"

    def ends(id: str) -> bool:
        write(path, RunFile(name="x", id=id, started=1.0, ended=2.0, state="ended"))
        return False

    assert [entry.state for entry in runs_in(tmp_path, alive=ends).runs] == ["ended"]


def test_an_odd_run_hides_no_other(tmp_path: Path) -> None:
    make(tmp_path, "odd", id="d" * 12, started=1.0)
    make(tmp_path, "even", id="e" * 12, started=2.0, ended=3.0)

    def alive(id: str) -> bool:
        raise UnicodeError("what is this")

    even, odd = sorted(runs_in(tmp_path, alive=alive).runs, key=lambda entry: entry.name)
    assert (even.name, even.state, even.problem) == ("even", "ended", "")
    assert (odd.name, odd.state, odd.problem) == ("odd", "recorded", "Cannot be read: UnicodeError: what is this")


def test_files_are_read_again_only_when_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, "x", id="d" * 12, started=1.0) / "run.json"
    runs_in(tmp_path, alive=dead).runs
    real, n_read = run_file.read, []
    monkeypatch.setattr(run_file, "read", lambda path: n_read.append(path) or real(path))
    assert [entry.state for entry in runs_in(tmp_path, alive=dead).runs] == ["died"]
    assert n_read == []
    write(path, RunFile(name="x", id="d" * 12, started=1.0, ended=2.0, state="ended"))
    assert [entry.state for entry in runs_in(tmp_path, alive=dead).runs] == ["ended"]
    assert n_read == [str(path)]


def test_a_thousand_runs_are_listed(tmp_path: Path) -> None:
    for i in range(1000):
        make(tmp_path, f"run{i}", "1-rank0-0000.sgr", "1-rank0-0001.sgr", id=f"{i:012x}", started=float(i + 1))
    assert len(runs_in(tmp_path, alive=dead).runs) == 1000
    assert runs_in(tmp_path, alive=dead).runs[0].name == "run999"
