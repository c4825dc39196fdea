"""The machine's own files, and a whole file written aside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightglass.storage.file_system import LOCAL, exists, written_aside


def test_a_second_name_is_given_only_where_none_is(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    LOCAL.link(one, other)
    assert other.read_bytes() == b"1"
    third = tmp_path / "third"
    third.write_bytes(b"3")
    with pytest.raises(FileExistsError):
        LOCAL.link(third, other)
    assert other.read_bytes() == b"1"


def test_a_link_that_took_effect_although_it_failed_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS repeats a request whose answer was lost, and answers that the name exists."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    real = os.link

    def late(*paths: Any) -> None:
        real(*paths)
        raise FileExistsError

    monkeypatch.setattr(os, "link", late)
    LOCAL.link(one, other)
    assert other.read_bytes() == b"1"


def test_where_files_have_one_name_only_a_link_moves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    LOCAL.link(one, other)
    assert other.read_bytes() == b"1"
    assert not exists(LOCAL, one)
    one.write_bytes(b"2")
    with pytest.raises(FileExistsError):
        LOCAL.link(one, other)
    assert other.read_bytes() == b"1"


def test_a_file_that_was_left_aside_by_a_killed_process_is_not_written_through(tmp_path: Path) -> None:
    """A process that is killed after it linked its file leaves the other name, and a later one may have its number."""
    path = tmp_path / "run.json"
    path.write_bytes(b"first")
    os.link(path, tmp_path / f".run.json.{os.getpid()}")
    with written_aside(LOCAL, path, [b"second"], sync=True) as aside:
        assert (path.read_bytes(), aside.read_bytes()) == (b"first", b"second")
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_file_stays_open_until_the_program_has_ended_its_runs(tmp_path: Path) -> None:
    """Runs are closed by `atexit`, so a file that they write must not be closed there before."""
    script = (
        "import atexit, pathlib; from sightglass.storage.file_system import LOCAL\n"
        "atexit.register(lambda: file.write([b'last']))\n"
        f"file = LOCAL.create(pathlib.Path({str(tmp_path / 'file')!r}))\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "file").read_bytes() == b"last"
