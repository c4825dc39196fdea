"""Where a run's entry, socket and files go: unwritable, too long, or somebody else's places. The run goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sightglass as sg
from sightglass.protocol import discovery

Begin = Callable[..., tuple[sg.Run, list[str]]]
TCP = "tcp://127.0.0.1:0"


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that begins a run, checks that it answers in its own process; gives it and its warnings."""
    begun: list[sg.Run] = []

    def begin(**options: Any) -> tuple[sg.Run, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            begun.append(sg.init("job", budget=None, **options))
        assert {one.category for one in caught} <= {RuntimeWarning}
        with sg.connect(begun[-1]) as own:
            stream = own.stream("batch.loss")
            for step in range(20):
                begun[-1].observe("batch", step=step, loss=float(step))
            assert [record.value for record in stream.wait(20, timeout_s=60)] == list(range(20))
        return begun[-1], [str(one.message) for one in caught]

    yield begin
    for run in begun:
        run.close()


def file_in_the_way(place: Path) -> Path:
    place.joinpath("file").write_text("")
    return place / "file" / "below"


def symbolic_link(place: Path) -> Path:
    place.joinpath("real").mkdir()
    place.joinpath("link").symlink_to(place / "real")
    return place / "link"


def somebody_elses(place: Path) -> Path:
    path = place / "theirs"
    path.mkdir()
    os.chown(path, 12345, 12345)
    return path


def too_long(place: Path) -> Path:
    return place / ("long" * 30)


def kernels(place: Path) -> Path:
    return Path("/proc/sightglass")


@pytest.mark.parametrize("make", [file_in_the_way, symbolic_link, too_long, kernels, somebody_elses])
def test_no_place_at_all(begin: Begin, runtime: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    if make is somebody_elses and os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    path = make(runtime)
    monkeypatch.setattr(discovery, "_candidates", lambda: iter([path]))
    run, (told,) = begin()
    assert not run.reachable
    assert told.startswith("Run 'job' continues, but can be reached by no other process: No folder")


@pytest.mark.parametrize("make", [file_in_the_way, too_long])
def test_the_next_place_is_taken_and_it_says_so(
    begin: Begin, runtime: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    (runtime / "xdg").mkdir()
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(make(runtime)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "xdg"))
    run, (told,) = begin()
    assert run.reachable
    assert told.startswith("Expected a folder for live runs in SIGHTGLASS_RUNTIME_DIR")
    assert f"using {runtime}/xdg/sightglass instead" in told
    assert (runtime / "xdg" / "sightglass").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o755])
def test_a_folder_that_others_can_enter_stays_as_it_is_and_is_not_used(
    begin: Begin, runtime: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """It may be the system's own folder for temporary files, which everybody needs, and root could close it."""
    path = runtime / "open"
    path.mkdir()
    path.chmod(mode)
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    run, (told,) = begin()
    assert run.reachable
    assert f"other users can enter {path}" in told
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert list(path.iterdir()) == []


def test_a_port_that_is_taken(begin: Begin, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        run, told = begin(listen=f"tcp://127.0.0.1:{holder.getsockname()[1]}", dir=tmp_path)
    assert run.reachable
    assert "can be reached from this machine only" in " ".join(told)
    assert "Address already in use" in " ".join(told)


def test_no_folder_but_a_port(begin: Begin, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_in_the_way(runtime)
    monkeypatch.setattr(discovery, "_candidates", lambda: iter([path]))
    run, told = begin(listen=TCP, dir=tmp_path)
    assert run.reachable
    assert "can be reached over TCP only" in " ".join(told)
    (file,) = tmp_path.rglob("connection.json")
    with sg.connect(file) as client:
        assert client.id == run.id


def test_a_run_directory_that_cannot_be_made(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run, told = begin(listen=TCP, dir=tmp_path / "file" / "runs")
    assert run.reachable
    assert "Cannot write the connection files of run 'job'" in " ".join(told)
    with sg.connect("job") as client:
        assert client.id == run.id


@pytest.mark.parametrize("trouble", ["runtime", "directory", "port", "hub"])
def test_where_warnings_are_errors_a_run_goes_on_all_the_same(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """The suite's own filter makes errors of warnings."""
    options: dict[str, Any] = {"dir": tmp_path}
    if trouble == "runtime":
        monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(file_in_the_way(runtime)))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    elif trouble == "directory":
        options["dir"] = file_in_the_way(tmp_path)
    elif trouble == "port":
        options["listen"] = "tcp://192.0.2.1:1"
    else:
        options["hub"] = str(file_in_the_way(tmp_path))
    run = sg.init("job", budget=None, **options)
    run.observe("batch", loss=1.0)
    with contextlib.suppress(sg.StorageError):
        run.log({"x": 1.0})
        run.close()
    assert run.ended
