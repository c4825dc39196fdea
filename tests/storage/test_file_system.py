"""The machine's own files, and a whole file written aside."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

import sightglass as sg
from sightglass.storage.file_system import LOCAL, LocalFile, exists, written_aside
from sightglass.storage.format import index


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


def test_a_file_that_nobody_closed_fails_silently(tmp_path: Path) -> None:
    """On a file system in a network, closing can fail."""

    class Gone(FileIO):
        def close(self) -> None:
            super().close()
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    (tmp_path / "file").touch()
    with pytest.MonkeyPatch.context() as patch:
        told: list[Any] = []
        patch.setattr(sys, "unraisablehook", told.append)
        file = LocalFile(Gone(tmp_path / "file"))
        del file
        gc.collect()
        assert [one for one in told if "finalize" in repr(one.object)] == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_only_regular_files_are_opened(tmp_path: Path, make: Any) -> None:
    """A pipe would block its reader; a device may never end."""
    make(tmp_path / "odd")
    with pytest.raises(OSError, match="regular"):
        LOCAL.open(tmp_path / "odd")


def test_private_files_are_nobody_else_s(tmp_path: Path) -> None:
    usual = os.umask(0o022)
    try:
        with sg.init("x", dir=tmp_path / "runs", files=sg.Files(private=True), listen="tcp://127.0.0.1:0") as run:
            run.log({"loss": 1.0})
        with sg.init("y", dir=tmp_path / "runs") as open_run:
            open_run.log({"loss": 1.0})
    finally:
        os.umask(usual)
    modes = {path.stat().st_mode & 0o777 for path in run.directory.iterdir()}
    assert (modes, run.directory.stat().st_mode & 0o777) == ({0o600}, 0o700)
    assert {path.stat().st_mode & 0o777 for path in open_run.directory.iterdir()} == {0o644}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_an_index_can_be_read_by_those_who_can_read_its_file(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the tags and queries of the file."""
    monkeypatch.setattr(index, "MIN_FRAMES", 1)
    with sg.init("x", files=sg.Files(into=tmp_path)) as run:
        run.log({"loss": 1.0})
    [path] = tmp_path.glob("*.sgr")
    path.chmod(mode)
    usual = os.umask(0)
    try:
        sg.open(tmp_path).close()
    finally:
        os.umask(usual)
    assert (tmp_path / f"{path.name}.index").stat().st_mode & 0o777 == mode


def test_a_file_like_another_is_never_open_to_more_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "copymode", lambda *_: None)  # somebody looks before it is done
    like = tmp_path / "like"
    like.touch(0o600)
    LOCAL.create(tmp_path / "fresh", like=like).close()
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o600
