"""Names of run directories, and who has which."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.disk import Disk, Fault

from sightglass.storage.run_directory import RunDirectory, choose, claim
from sightglass.storage.run_file import RunFile, read

pytestmark = pytest.mark.smoke


def about(name: str = "n", started: float = 1.5) -> Callable[[], RunFile]:
    return lambda: RunFile(name=name, id="0" * 12, started=started)


@given(st.text())
def test_every_name_gives_a_directory_that_can_be_made(name: str) -> None:
    path = choose(Path("p"), name)
    assert path.parent == Path("p")
    assert re.search(r"[\w.-]-\d{4}-\d\d-\d\d-\d{6}$", path.name)
    assert not path.name.startswith(".")
    assert "/" not in path.name
    assert len(path.name.encode()) <= 200


@pytest.mark.parametrize(("name", "begin"), [
    ("mnist", "mnist-2"), ("a/b c", "a_b_c-2"), ("../..", "_-2"), ("...", "run-2"), ("größe✓", "größe_-2"),
    ("x" * 500, "x" * 150 + "-2"), ("ü" * 500, "ü" * 75 + "-2"), ("a" + "ü" * 500, "a" + "ü" * 74 + "-2"),
    ("\ud800", "_-2"),
])  # fmt: skip
def test_names(name: str, begin: str) -> None:
    assert choose(Path("p"), name).name.startswith(begin)


def test_a_taken_name_gets_a_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda form: "now")
    first, second = choose(tmp_path, "a"), choose(tmp_path, "a")
    assert first == second == tmp_path / "a-now"
    assert [claim(first), claim(second), claim(first)] == [tmp_path / name for name in ("a-now", "a-now-2", "a-now-3")]
    assert choose(tmp_path, "a") == tmp_path / "a-now-4"


def test_a_place_that_leads_nowhere_is_an_error_and_no_endless_search(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(FileExistsError):
        claim(tmp_path / "link" / "a")
    (tmp_path / "gone").mkdir()
    assert claim(tmp_path / "link" / "a").is_dir()


def test_nothing_is_made_before_it_is_opened(tmp_path: Path) -> None:
    files = RunDirectory(tmp_path / "a", shared=False, about=about())
    files.end(about())
    assert list(tmp_path.iterdir()) == []
    assert files.open() == files.path == tmp_path / "a"
    assert files.open() == tmp_path / "a"
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "run.json"]


def test_two_runs_of_one_name_do_not_share_but_those_that_want_to_do(tmp_path: Path) -> None:
    alone = [RunDirectory(tmp_path / "a", shared=False, about=about(started=n)) for n in (1.5, 2.5)]
    assert [files.open().name for files in alone] == ["a", "a-2"]
    shared = [RunDirectory(tmp_path / "s", shared=True, about=about(str(n), started=n)) for n in (1.5, 2.5)]
    assert [files.open().name for files in shared] == ["s", "s"]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["run-2500-rank0.json", "run.json"]
    shared[1].end(about("second", started=2.5))
    told = {name: read(tmp_path / "s" / name) for name in ("run.json", "run-2500-rank0.json")}
    assert [run and run.name for run in told.values()] == ["1.5", "second"]


def test_what_was_removed_is_made_again_in_the_same_place(tmp_path: Path) -> None:
    files = RunDirectory(tmp_path / "a", shared=False, about=about())
    files.open()
    (tmp_path / "a" / "run.json").unlink()
    (tmp_path / "a").rmdir()
    assert files.open() == tmp_path / "a"
    assert (tmp_path / "a" / "run.json").is_file()


def test_where_nothing_can_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, shared in ((tmp_path / "file" / "a", False), (tmp_path / "file", True), (tmp_path / "file" / "a", True)):
        with pytest.raises(OSError, match="file"):
            RunDirectory(path, shared=shared, about=about()).open()


def test_while_the_file_cannot_be_made_there_is_one_directory_and_no_other_file() -> None:
    """On a full disk directories can often be made, and files be begun."""
    disk = Disk()
    files = RunDirectory(Path("/a"), shared=False, about=about(), moved=pytest.fail, files=disk)
    disk.fault = lambda call: Fault(code=errno.ENOSPC) if call.operation == "write" else None
    for _ in range(10):
        with pytest.raises(OSError, match="No space left"):
            files.open()
    assert disk.names(Path("/")) == ["a"]
    assert disk.names(Path("/a")) == []
    disk.fault = lambda call: None
    assert files.open() == Path("/a")
    assert disk.names(Path("/a")) == ["run.json"]
