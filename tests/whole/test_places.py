"""Where a run's entry, socket and files go: full, unwritable, too long, or somebody else's places. The run goes on."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

import sightglass as sg

TRAINING = """
import resource, warnings
from pathlib import Path
from sightglass.protocol import discovery
ONLY = sys.argv[1]
if ONLY:
    discovery._candidates = lambda: iter([Path(ONLY)])
exec(sys.argv[2])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    run = sg.init("job", budget=None, **eval(sys.argv[3]))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
say("reachable", run.reachable)
for entry in caught:
    say("warning", entry.category.__name__, entry.message)
say("n_warnings", len(caught))
own = sg.connect(run).stream("batch.loss")
for step in range(100):
    run.observe("batch", step=step, loss=float(step))
if run.reachable:
    until(lambda: run.stopping or run.observe("batch", loss=0.0) or time.sleep(0.001))
assert len(own.wait(100, timeout_s=60)) >= 100
run.close()
say("left", *(os.listdir(ONLY) if ONLY and os.path.isdir(ONLY) else []))
"""


@pytest.fixture
def short(runtime):
    """Return a folder whose path is short enough for sockets."""
    return runtime


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


BAD = [file_in_the_way, symbolic_link, too_long, kernels, somebody_elses]


@pytest.mark.parametrize("make", BAD)
def test_no_place_at_all(start, short, make):
    if make is somebody_elses and os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    child = start(TRAINING, str(make(short)), "", "{}")
    assert child.hears("reachable") == ["False"]
    warning = " ".join(child.hears("warning"))
    assert "RuntimeWarning Run 'job' continues, but can be reached by no other process: No folder" in warning
    assert child.hears("n_warnings") == ["1"]
    child.hears("left")
    assert child.ends() == 0


@pytest.mark.parametrize("make", [file_in_the_way, too_long])
def test_the_next_place_is_taken_and_it_says_so(start, short, make, monkeypatch):
    (short / "xdg").mkdir()
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(make(short)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "xdg"))
    child = start(TRAINING, "", "", "{}")
    assert child.hears("reachable") == ["True"]
    warning = " ".join(child.hears("warning"))
    assert warning.startswith("RuntimeWarning Expected a folder for live runs in SIGHTGLASS_RUNTIME_DIR")
    assert f"using {short}/xdg/sightglass instead" in warning
    assert child.hears("n_warnings") == ["1"]
    assert (short / "xdg" / "sightglass").stat().st_mode & 0o777 == 0o700
    with sg.connect("job") as run:
        run.stream("batch.loss").wait(20, timeout_s=60)
        run.stop()
    child.hears("left")
    assert child.ends() == 0


@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o755])
def test_a_folder_that_others_can_enter_stays_as_it_is_and_is_not_used(start, short, mode, monkeypatch):
    """It may be the system's own folder for temporary files, which everybody needs, and root could close it."""
    path = short / "open"
    path.mkdir()
    path.chmod(mode)
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    child = start(TRAINING, "", "", "{}")
    assert child.hears("reachable") == ["True"]
    warning = " ".join(child.hears("warning"))
    assert (
        f"other users can enter {path} (make it private with chmod 700, or name a folder that does not exist)"
        in warning
    )
    assert child.hears("n_warnings") == ["1"]
    with sg.connect("job") as run:
        assert run.stop().applied
    child.hears("left")
    assert child.ends() == 0
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("n_bytes", [0, 50])
def test_a_disk_without_room(start, short, n_bytes):
    """With a few bytes of room the probe succeeds, and the entry does not fit: nothing half-made stays behind."""
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({n_bytes}, resource.RLIM_INFINITY))"
    child = start(TRAINING, str(short), limit, "{}")
    assert child.hears("reachable") == ["False"]
    assert "File too large" in " ".join(child.hears("warning"))
    assert child.hears("n_warnings") == ["1"]
    assert child.hears("left") == []
    assert child.ends() == 0


@pytest.mark.parametrize("options", ["size=16k,nr_inodes=3", "ro"])
def test_a_full_or_read_only_file_system(start, short, options):
    path = short / "mounted"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        child = start(TRAINING, str(path), "", "{}")
        assert child.hears("reachable") == ["False"]
        assert "can be reached by no other process" in " ".join(child.hears("warning"))
        assert child.hears("n_warnings") == ["1"]
        child.hears("left")
        assert child.ends() == 0
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_too_many_open_files(start, short):
    limit = "keep = [os.open('/dev/null', os.O_RDONLY) for _ in range(200)]\n"
    limit += "n = len(os.listdir('/proc/self/fd')) + int(os.environ['ROOM'])\n"
    limit += "resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))\nimport sightglass.training.process_runs"
    for room in (1, 8, 30):
        child = start(TRAINING, str(short), limit, "{}", ROOM=str(room))
        assert child.hears("reachable") == ["False"]
        assert "can be reached by no other process" in " ".join(child.hears("warning"))
        assert child.hears("n_warnings") == ["1"]
        assert child.hears("left") == []
        assert child.ends() == 0


def test_a_port_that_is_taken(start, short, tmp_path):
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        endpoint = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        child = start(TRAINING, "", "", repr({"listen": endpoint, "dir": str(tmp_path)}))
        assert child.hears("reachable") == ["True"]
        warning = " ".join(child.hears("warning"))
        assert "continues, but can be reached from this machine only" in warning
        assert "Address already in use" in warning
        with sg.connect("job") as run:
            run.stop()
        assert child.ends() == 0


def test_no_folder_but_a_port(start, short, tmp_path):
    child = start(
        TRAINING, str(file_in_the_way(short)), "", repr({"listen": "tcp://127.0.0.1:0", "dir": str(tmp_path)})
    )
    assert child.hears("reachable") == ["True"]
    assert "continues, but can be reached over TCP only" in " ".join(child.hears("warning"))
    [file] = tmp_path.rglob("connection.json")
    with sg.connect(file) as run:
        run.stop()
    assert child.ends() == 0


def test_a_run_directory_that_cannot_be_made(start, short, tmp_path):
    (tmp_path / "file").write_text("")
    child = start(TRAINING, "", "", repr({"listen": "tcp://127.0.0.1:0", "dir": str(tmp_path / "file" / "runs")}))
    assert child.hears("reachable") == ["True"]
    assert "Cannot write the connection files of run 'job'" in " ".join(child.hears("warning"))
    with sg.connect("job") as run:
        run.stop()
    assert child.ends() == 0
