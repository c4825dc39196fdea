"""Two users on one machine who have no accounts: what one of them keeps to themselves, the other one tries to get.

Each process becomes its user as soon as the interpreter runs, whose files these users need not be able to read. Only
root can do that; without it, `test_network.py`, `tests/core/test_files.py` and
`tests/storage/test_file_system.py` check the modes of the same files.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Child, Start, wait_until

USER, OTHER = 65533, 65534

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can be two users"),
]

BECOME = """
import ctypes, socket, threading
import sightglass as sg
from sightglass.protocol import discovery

def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.umask(0o022)
    # Or Linux hides what any process of this user could see of it: command line, environment, memory.
    assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0
"""

USERS_RUN = (
    BECOME
    + """
import sightglass.protocol.zmq, sightglass.storage.write.writer, sightglass.training.wiring, sightglass.client.run
import sightglass.storage.read.recording, sightglass.client.recorded
from sightglass.storage.format import index
index.MIN_FRAMES = 1
live = os.environ["SIGHTGLASS_RUNTIME_DIR"]
os.environ["SIGHTGLASS_RUNTIME_DIR"] = sys.argv[2] + "/root"
warm = sg.init("warm", dir=sys.argv[2] + "/warm", listen="tcp://127.0.0.1:0")  # loads what a run needs
warm.log({"loss": 1.0})
warm.close()
sg.open(warm.directory).close()
os.environ["SIGHTGLASS_RUNTIME_DIR"] = live
become(int(sys.argv[1]))
options = eval(sys.argv[3])
run = sg.init("job", config={"note": sys.argv[4]}, listen="tcp://127.0.0.1:0", **options)
run.control(sys.argv[4], 0.1)
for step in range(5):
    run.log({"loss": 1.0, sys.argv[4]: step, "text": sys.argv[4]}, step=step)
    run.observe("batch", step=step, snapshot=True, x=np.array([sys.argv[4]]))
run.flush()
sg.open(run.directory).close()  # leaves an index
say("ready", run.directory, run.connection_file)
until(lambda: run.stopping or os.path.exists(sys.argv[2] + "/done"))
run.close()
sg.open(run.directory).close()
say("closed")
until(lambda: os.path.exists(sys.argv[2] + "/gone"))
"""
)

USERS_PAGE = (
    BECOME
    + """
import sightglass.cli.ui, sightglass.server.app, sightglass.server.live.page_socket, webbrowser
import uvicorn.protocols.http.h11_impl, uvicorn.protocols.websockets.websockets_sansio_impl
import uvicorn.lifespan.on, uvicorn.loops.auto, asyncio.unix_events, encodings.idna
sightglass.server.page_files.page()
become(int(sys.argv[1]))
sys.argv[1:] = ["ui", sys.argv[2], "--port", sys.argv[3]]
sightglass.cli.main()
"""
)

OTHERS_EYES = (
    BECOME
    + """
with open(sys.argv[2], "rb") as file:
    secrets = file.read().split(b"\\n")
become(int(sys.argv[1]))

def contents(root):
    if os.path.isdir(root):
        for folder, folders, names in os.walk(root):
            for name in names:
                yield from contents(os.path.join(folder, name))
            for name in names + folders:
                yield f"the name {os.path.join(folder, name)}", name.encode()
        return
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            yield root, file.read(2**22)
    except OSError:
        return

def processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ", "status", "stack", "mountinfo", "net/unix"):
            yield from contents(f"/proc/{pid}/{name}")

for root in sys.argv[3:]:
    for place, content in (processes() if root == "processes" else contents(root)):
        for secret in secrets:
            if secret in content:
                say("seen", place)
say("looked", os.getuid())
"""
)

Look = Callable[..., list[str]]


@pytest.fixture
def look(start: Start, tmp_path: Path) -> Look:
    """Return a function by which the other user looks for secrets in folders and files, or in all "processes"."""

    def look(secrets: list[str], *roots: object) -> list[str]:
        wanted = tmp_path / "wanted"
        wanted.write_text("\n".join(secrets))
        wanted.chmod(0o600)
        child = start(OTHERS_EYES, str(OTHER), str(wanted), *map(str, roots))
        seen = []
        while (line := child.line())[0] != "looked":
            seen.append(" ".join(line[1:]))
        assert line == ["looked", str(OTHER)]
        return seen

    return look


@pytest.fixture
def shared(everybodys: Path) -> Iterator[Path]:
    """Return a folder that everybody can write into, such as a group's on a cluster."""
    path = everybodys / "shared"
    path.mkdir()
    path.chmod(0o777)
    yield path
    for user in (USER, OTHER):
        shutil.rmtree(f"/tmp/sightglass-{user}", ignore_errors=True)


@pytest.fixture
def home(everybodys: Path) -> Path:
    """Return a folder of the user's, which all can read."""
    path = everybodys / "home"
    path.mkdir()
    os.chown(path, USER, USER)
    return path


def begin(start: Start, shared: Path, options: str, secret: str = "hunter2") -> tuple[Child, Path, Path]:
    """Start the user's run; return it with its directory and connection file."""
    live = shared.parent / "live"
    live.mkdir(mode=0o700)
    os.chown(live, USER, USER)
    child = start(USERS_RUN, str(USER), str(shared), options, secret, SIGHTGLASS_RUNTIME_DIR=str(live))
    directory, connection = child.hears("ready")
    return child, Path(directory), Path(connection)


def keys(connection: Path) -> list[str]:
    """Return the secrets in the connection files, for root sees everything."""
    content = [
        json.loads(connection.with_name(name).read_text()) for name in ("connection.json", "connection-viewer.json")
    ]
    return [one[key] for one in content for key in ("client_secret", "server_key", "client_public")]


def planted(path: Path, content: str = "", mode: int = 0o666) -> Path:
    """Write a file of the other user."""
    path.write_text(content)
    path.chmod(mode)
    os.chown(path, OTHER, OTHER)
    return path


def test_keys_and_private_records_of_a_run_in_a_shared_folder(
    start: Start, look: Look, shared: Path, home: Path
) -> None:
    """While the run lives, and after it; nor are names, config, controls and indexes read by others."""
    planted(shared / "note", "the secret", 0o644)
    start(BECOME + "become(int(sys.argv[1])); say('ready'); time.sleep(600)", str(USER), "a_word").hears("ready")
    seen = look(["secret", "a_word"], shared, "processes")
    assert seen[0] == str(shared / "note")  # what is open to all is seen, or this test could not fail
    assert seen[1].endswith("/cmdline")

    theirs = planted(shared / "theirs")  # the other user has taken the names that the run needs
    (shared / "connection.json").write_text("{}")
    (shared / "connection.json").chmod(0o644)
    os.chown(shared / "connection.json", USER, USER)
    (shared / "connection-viewer.json").hardlink_to(theirs)
    child, directory, connection = begin(start, shared, f"dict(files=sg.Files(private=True, into={str(shared)!r}))")
    assert directory == shared
    assert connection.stat().st_uid == USER
    secrets = keys(connection)
    assert list(directory.glob("*.index"))
    assert look(secrets, shared, shared.parent / "live", "processes") == []
    assert look(["hunter2"], directory, home) == []
    assert theirs.read_text() == ""
    (shared / "done").touch()
    child.hears("closed")
    assert {".sgr", ".index", ".json"} <= {path.suffix for path in directory.iterdir()}
    assert look(secrets, shared, "processes") == []
    assert look(["hunter2"], directory, home) == []
    (shared / "gone").touch()
    assert child.ends() == 0


def test_other_records_follow_the_umask_and_no_name_that_others_took_is_used(
    start: Start, look: Look, shared: Path
) -> None:
    """Directories of runs are named by the second, that for live runs in the temporary folder by the user."""
    trap, theirs = shared / f"sightglass-{USER}", shared / "theirs"
    for path in (trap, theirs):
        path.mkdir()
        path.chmod(0o777)
        os.chown(path, OTHER, OTHER)
    now_s = time.time()
    for second in range(300):
        name = time.strftime("job-%Y-%m-%d-%H%M%S", time.localtime(now_s + second))
        os.symlink(theirs, shared / name)
    child = start(
        USERS_RUN, str(USER), str(shared), f"dict(dir={str(shared)!r})", "hunter2",
        SIGHTGLASS_RUNTIME_DIR="", XDG_RUNTIME_DIR="", TMPDIR=str(shared),
    )  # fmt: skip
    directory, connection = (Path(word) for word in child.hears("ready"))
    assert directory.name.endswith("-2")
    status = directory.lstat()
    assert stat.S_ISDIR(status.st_mode)
    assert status.st_uid == USER
    assert os.listdir(theirs) == os.listdir(trap) == []
    assert look(keys(connection), shared, "/tmp/sightglass-" + str(USER), "processes") == []
    kinds = {Path(place).suffix for place in look(["hunter2"], directory)}
    assert kinds == {".sgr", ".index", ".json"}  # as the guide says
    (shared / "done").touch()
    (shared / "gone").touch()
    child.hears("closed")
    assert child.ends() == 0
    child.complaints  # where it went instead


def test_the_link_of_the_page(start: Start, look: Look, shared: Path, home: Path) -> None:
    """It is printed for its user, and given to a browser, whose command line all users can read."""
    browser = home / "browser"
    browser.write_text(
        f"#!/bin/sh\necho browser >&2\nexec >&- 2>&-\nwhile [ -d {home} ] && [ ! -e {home}/seen ]; do sleep 0.1; done\n"
    )
    browser.chmod(0o755)
    live = shared.parent / "live"
    live.mkdir(mode=0o700)
    os.chown(live, USER, USER)
    child = start(
        USERS_PAGE, str(USER), str(home), "0",
        SIGHTGLASS_RUNTIME_DIR=str(live), BROWSER=f"{browser} %s &",
    )  # fmt: skip
    links = [child.hears(word)[-1] for word in ("controller:", "viewer:")]
    tokens = [link.partition("#token=")[2] for link in links]
    assert min(map(len, tokens)) > 40
    wait_until(lambda: "browser" in child.complaints, "the browser starts")
    assert list(live.glob("page-*.html"))
    assert look([live.name + "/page-"], "processes")  # the browser, with the file that redirects it
    assert look(tokens, shared, live, home, "processes") == []
    (home / "seen").touch()
