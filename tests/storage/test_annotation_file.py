"""What people write down about runs: in a file of its own, beside theirs, while others write."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.core.errors import StorageError
from sightglass.storage import object_file
from sightglass.storage.object_file import (
    ANNOTATIONS_NAME,
    Annotations,
    Edit,
    edit_annotations,
    edit_of,
    read_annotations,
)
from sightglass.storage.run_listing import run_at


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with sg.init("kept", dir=tmp_path / "runs") as run:
        run.log({"loss": 1.0}, step=0)
    return run.directory


def contents(directory: Path) -> dict[str, bytes]:
    ours = (ANNOTATIONS_NAME, object_file.lock_of(directory / ANNOTATIONS_NAME).name)
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in ours}


def test_an_edit_changes_what_it_names_and_touches_nothing_of_the_run(directory: Path) -> None:
    before, entry = contents(directory), run_at(directory, alive=lambda id: False)
    assert read_annotations(directory) == Annotations()
    edit_annotations(directory, edit_of(name=" other ", add_labels=["best", "best", "paper"], notes="# Why"))
    edit_annotations(directory, edit_of(remove_labels=["paper"], archived=True))
    edit_annotations(directory, edit_of(baseline=True, deleted=True))
    found = read_annotations(directory)
    assert (found.name, found.labels, found.notes) == ("other", ("best",), "# Why")
    assert found.archived
    assert found.baseline
    assert found.deleted > 0
    edit_annotations(directory, edit_of(name="", labels=["a", "b"], deleted=False))
    assert (
        read_annotations(directory).name,
        read_annotations(directory).labels,
        read_annotations(directory).deleted,
    ) == ("", ("a", "b"), 0.0)
    now = run_at(directory, alive=lambda id: False)
    assert contents(directory) == before
    assert entry is not None
    assert now is not None
    assert (now.version, now.name, now.plain) == (entry.version, "kept", True), "nothing is read again for a label"
    assert now.annotations == read_annotations(directory)


def test_two_writers_at_once_lose_nothing(directory: Path) -> None:
    def label(who: str) -> None:
        for n in range(10):
            edit_annotations(directory, Edit(add_labels=(f"{who}{n}",)))

    threads = [threading.Thread(target=label, args=(who,)) for who in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_annotations(directory).labels) == {f"{who}{n}" for who in "abc" for n in range(10)}
    assert {path.name for path in directory.iterdir() if path.name.startswith(f".{ANNOTATIONS_NAME}")} == set()


def test_a_writer_waits_for_another_process(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit_annotations(directory, Edit(add_labels=("first",)))
    # An open file of its own, as another process has.
    held = object_file.LOCAL.lock(object_file.lock_of(directory / ANNOTATIONS_NAME))
    assert held is not None
    monkeypatch.setattr(object_file, "LOCK_S", 0.0)
    with pytest.raises(StorageError, match="held"):
        edit_annotations(directory, Edit(add_labels=("second",)))
    held.close()
    assert edit_annotations(directory, Edit(add_labels=("second",))).labels == ("first", "second")


def test_entries_of_newer_versions_are_kept_and_odd_ones_have_their_default(directory: Path) -> None:
    (directory / ANNOTATIONS_NAME).write_text(json.dumps({"labels": "best", "notes": "x", "stars": 3}))
    assert read_annotations(directory) == Annotations(notes="x")
    edit_annotations(directory, Edit(archived=True))
    assert json.loads((directory / ANNOTATIONS_NAME).read_text()) == {"notes": "x", "archived": True, "stars": 3}


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 2000, "\udcff"])
def test_a_file_that_is_no_json_is_not_replaced(directory: Path, text: str) -> None:
    (directory / ANNOTATIONS_NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_annotations(directory) == Annotations()
    with pytest.raises(StorageError, match=r"annotations\.json"):
        edit_annotations(directory, Edit(archived=True))
    assert (directory / ANNOTATIONS_NAME).read_bytes() == text.encode("utf-8", "surrogateescape")


def test_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"notes": "secret"}')
    os.symlink(tmp_path / "secret.json", directory / ANNOTATIONS_NAME)
    assert read_annotations(directory) == Annotations()
    with pytest.raises(StorageError, match="Cannot write"):
        edit_annotations(directory, Edit(archived=True))
    assert (tmp_path / "secret.json").read_text() == '{"notes": "secret"}'


@pytest.mark.parametrize(
    "given",
    [
        {"labels": [""]}, {"add_labels": [" a"]}, {"name": "x" * 201}, {"archived": 1}, {"tags": []},
        {"labels": "best"}, {"remove_labels": "best"}, {"name": "a\nb"}, {"labels": ["a\tb"]}, {"notes": "\ud800"},
    ],
)  # fmt: skip
def test_what_cannot_be_written_down_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"Expected|unknown field"):
        edit_of(**given)


def test_too_many_labels_are_refused(directory: Path) -> None:
    edit_annotations(directory, Edit(labels=tuple(map(str, range(100)))))
    with pytest.raises(ValueError, match="100 labels, got 101"):
        edit_annotations(directory, Edit(add_labels=("more",)))


def test_runs_are_chosen_by_labels_and_lists_leave_out_the_trash(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with sg.init(name, dir=tmp_path) as run:
            run.log({"loss": 1.0}, step=0)
    runs = sg.open(tmp_path)
    assert isinstance(runs, sg.RecordedRuns)
    first = next(name for name in runs if runs[name].name == "a")
    assert runs[first].annotate(add_labels=["best"], name="other").labels == ("best",)
    assert (runs[first].annotations.name, runs[first].name) == ("other", "a")
    assert list(runs.where(lambda run: "best" in run.annotations.labels)) == [first]
    runs[first].annotate(deleted=True)
    assert [Path(name).name[0] for name in sg.open([tmp_path])] == ["b"]  # type: ignore[union-attr]
    assert [info.name for info in sg.runs(tmp_path)] == ["b"]
    assert [info.name for info in sg.runs(tmp_path, deleted=True)] == ["a"]
    runs[next(iter(set(runs) - {first}))].annotate(deleted=True)
    with pytest.raises(sg.RunNotFoundError, match="trash"):
        sg.open(tmp_path)
    for name in runs:
        with sg.open(tmp_path / name) as old:
            old.annotate(deleted=False)
    assert {info.name for info in sg.runs(tmp_path)} == {"a", "b"}
    runs.close()


def test_a_live_run_goes_on_whatever_is_written_down(tmp_path: Path) -> None:
    with sg.init("live", dir=tmp_path) as run:
        run.log({"loss": 1.0}, step=0)
        run.flush()
        with sg.open(run.directory) as old:
            old.annotate(name="other", deleted=True)
        run.log({"loss": 2.0}, step=1)
    with sg.open(run.directory) as old:
        assert (old.name, old.annotations.name) == ("live", "other")
        assert list(old.stream("loss").to_arrays().values) == [1.0, 2.0]
