"""Secrets go into files that only this user can read, whatever somebody else has placed there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sightglass.core.process.files import read_private, write_private

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")


@pytest.fixture(autouse=True)
def lax():
    """Set the umask that narrows nothing."""
    usual = os.umask(0)
    yield
    os.umask(usual)


def test_a_new_file_is_private(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", b"1")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_file_that_all_can_read_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as reader:  # somebody who had opened it before
        write_private(path, b"new")
        assert (path.read_bytes(), reader.read()) == (b"new", b"old")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"")
    (tmp_path / "secret").symlink_to(tmp_path / "theirs")
    write_private(tmp_path / "secret", b"1")
    assert (tmp_path / "theirs").read_bytes() == b""
    assert not (tmp_path / "secret").is_symlink()


def test_a_file_that_cannot_take_the_name_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret" / "folder").mkdir(parents=True)
    with pytest.raises(OSError, match="secret"):
        write_private(tmp_path / "secret", b"1")
    assert os.listdir(tmp_path) == ["secret"]


def test_what_only_this_user_wrote_is_read(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", b"1")
    assert read_private(tmp_path / "secret", max_bytes=1) == b"1"
    with pytest.raises(OSError, match="0 bytes"):
        read_private(tmp_path / "secret", max_bytes=0)


@pytest.mark.parametrize("plant", [
    lambda path: path.touch() or path.chmod(0o622),
    lambda path: path.symlink_to(__file__),
    os.mkfifo,
    os.mkdir,
], ids=["others may write it", "link", "pipe", "folder"])  # fmt: skip
def test_what_another_user_can_have_left_is_not_read(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    plant(tmp_path / "planted")
    with pytest.raises(OSError):  # noqa: PT011  each has its own reason
        read_private(tmp_path / "planted", max_bytes=100)
