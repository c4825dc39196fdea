"""The disk in memory does what the machine's does, and loses what a machine may lose."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.disk import CODES, Call, Disk, Fault, Loss

from sightglass.storage.file_system import LOCAL, FileSystem, exists, written_aside

pytestmark = pytest.mark.smoke

Place = tuple[FileSystem, Path]


@pytest.fixture(params=["memory", "machine"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a file system, and an empty directory in it."""
    if request.param == "machine":
        return LOCAL, tmp_path
    disk = Disk()
    disk.make_directory(Path("/runs"))
    return disk, Path("/runs")


def code_of(call: Callable[..., Any], *args: Any, **options: Any) -> int | None:
    try:
        call(*args, **options)
    except OSError as error:
        return error.errno
    return None


def test_files_are_appended_to_read_cut_off_and_renamed(place: Place) -> None:
    files, folder = place
    path, other = folder / "one", folder / "other"
    writing = files.create(path)
    assert writing.write([b"abc", memoryview(b"def")]) == 6
    writing.truncate(4)
    assert writing.write([b"x"]) == 1
    writing.sync()
    reading = files.open(path)
    assert reading.read(1, 10) == b"bcdx"
    assert reading.read(9, 10) == b""
    buffer = bytearray(3)
    assert reading.readinto(0, memoryview(buffer)) == 3
    assert bytes(buffer) == b"abc"
    assert (reading.status().n_bytes, reading.status().n_links) == (5, 1)
    files.link(path, other)
    assert files.status(other) == files.status(path) == reading.status()
    assert reading.status().n_links == 2
    files.remove(other)
    with written_aside(files, other, [b"new", b"er"], sync=True) as aside:
        files.replace(aside, path)
    assert (reading.status().n_links, reading.read(0, 9)) == (0, b"abcdx")
    assert writing.write([b"lost"]) == 4
    assert files.open(path).read(0, 9) == b"newer"
    assert files.names(folder) == ["one"]
    for file in (reading, writing, writing):
        file.close()


def test_errors_are_the_same(place: Place) -> None:
    files, folder = place
    path, missing = folder / "one", folder / "missing"
    files.create(path).close()
    assert code_of(files.create, path) == errno.EEXIST
    assert code_of(files.create, missing / "file") == errno.ENOENT
    files.create(folder / "two").close()
    assert code_of(files.link, folder / "two", path) == errno.EEXIST
    assert code_of(files.link, path, path) is None
    files.remove(folder / "two")
    assert code_of(files.link, missing, folder / "other") == errno.ENOENT
    assert code_of(files.make_directory, folder) == errno.EEXIST
    assert code_of(files.make_directory, path) == errno.EEXIST
    for call in (files.open, files.status, files.remove, files.names):
        assert code_of(call, missing) == errno.ENOENT
    assert code_of(files.replace, missing, path) == errno.ENOENT
    files.make_directory(folder, exist_ok=True)
    files.make_directory(folder / "a" / "b")
    assert (exists(files, folder / "a"), exists(files, missing)) == (True, False)
    assert sorted(files.names(folder)) == ["a", "one"]
    assert files.free_bytes(folder) > 0


def disk_with(data: bytes, *, synced: int) -> Disk:
    disk = Disk()
    file = disk.create(Path("/file"))
    file.write([data[:synced]])
    disk.settle()
    for i in range(synced, len(data), 10):
        file.write([data[i : i + 10]])
    return disk


@pytest.mark.parametrize("code", CODES)
def test_a_call_fails_once_or_after_it_took_effect(code: int) -> None:
    disk = Disk()
    faults = {2: Fault(code=code), 3: Fault(code=code, n_bytes=2, applied=True), 4: Fault(n_bytes=1)}
    disk.fault = lambda call: faults.get(call.n)
    file = disk.create(Path("/file"))
    assert code_of(file.write, [b"abc"]) == code
    assert code_of(file.write, [b"abc"]) == code
    assert file.write([b"xyz"]) == 1
    assert disk.contents(Path("/")) == {"file": b"abx"}


def test_a_full_disk_takes_what_fits_and_then_nothing() -> None:
    disk = Disk()
    disk.room = 4
    file = disk.create(Path("/file"))
    assert file.write([b"abc"]) == 3
    assert file.write([b"abc"]) == 1
    assert code_of(file.write, [b"abc"]) == errno.ENOSPC


def test_a_slow_call_lets_time_pass() -> None:
    slept: list[float] = []
    disk = Disk(sleep=slept.append)
    disk.fault = lambda call: Fault(delay_s=3.0)
    disk.create(Path("/file"))
    assert slept == [3.0]


def test_what_a_killed_process_wrote_stays() -> None:
    data = bytes(range(1, 201))
    disk = disk_with(data, synced=100)
    copy = disk.copy()
    disk.open(Path("/file"))._node.change(b"", 0.0)
    assert copy.contents(Path("/")) == {"file": data}


@pytest.mark.parametrize(("loss", "kept"), [("none", bytes(range(1, 201))), ("unsynced", bytes(range(1, 101))),
                                            ("zeros", bytes(range(1, 101)) + bytes(100))])  # fmt: skip
def test_a_machine_that_fails_keeps_what_was_synced(loss: Loss, kept: bytes) -> None:
    disk = disk_with(bytes(range(1, 201)), synced=100)
    assert disk.crashed(loss, random.Random(1)).contents(Path("/")) == {"file": kept}


def test_bytes_are_lost_torn_and_zeros_and_the_same_seed_loses_the_same() -> None:
    data = bytes(range(1, 201))
    disk = disk_with(data, synced=100)
    found = [disk.crashed("random", random.Random(seed)).contents(Path("/"))["file"] for seed in range(50)]
    assert found == [disk.crashed("random", random.Random(seed)).contents(Path("/"))["file"] for seed in range(50)]
    assert all(kept[:100] == data[:100] for kept in found)
    assert all(byte in (0, data[i]) for kept in found for i, byte in enumerate(kept))
    assert len({len(kept) for kept in found}) > 10
    assert any(0 in kept for kept in found)


def test_a_rename_can_outlive_the_bytes_of_its_file_unless_they_were_synced() -> None:
    def renamed(*, sync: bool) -> set[bytes]:
        disk = disk_with(b"old", synced=3)
        with written_aside(disk, Path("/file"), [b"newer"], sync=sync) as aside:
            disk.replace(aside, Path("/file"))
        return {disk.crashed("random", random.Random(seed)).contents(Path("/"))["file"] for seed in range(50)}

    assert renamed(sync=True) == {b"old", b"newer"}
    assert b"" in renamed(sync=False)


def test_calls_are_counted_and_seen_before_they_take_effect() -> None:
    disk, seen = Disk(), []
    disk.on_call = lambda call: seen.append((call, len(disk.contents(Path("/")))))
    disk.create(Path("/file")).write([b"a"])
    disk.create(Path("/other"))
    path = Path("/file")
    assert seen == [(Call(1, "create", 1, path), 0), (Call(2, "write", 1, path, b"a"), 1),
                    (Call(3, "create", 2, Path("/other")), 1)]  # fmt: skip
