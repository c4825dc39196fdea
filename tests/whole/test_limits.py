"""Limits of a process, a user, a container and a disk, from 0 up to where everything works: the run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import sightglass as sg

from .conftest import Start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits of POSIX systems")

PIDS = Path("/sys/fs/cgroup/pids")
N_STEPS = 50
MIB = 2**20
TCP = "tcp://127.0.0.1:0"
UNREACHABLE = "Run 'job' continues, but can be reached by no other process: "
NOT_ENDED = "Cannot note the end of run 'job': "
TCP_ONLY = "Run 'job' continues, but can be reached over TCP only: "
NOT_WRITTEN = "Records cannot be written now and wait in memory: "
DRAWN_HERE = "Drawing in a thread of this process, because no process can be started for figures: "
UNREADABLE = "sightglass.core.errors.RunNotFoundError: Cannot read the connection file "
REFUSED = "sightglass.core.errors.TransportError: "

FORKS = """
import json, resource, traceback
from pathlib import Path
# Nothing is imported under a limit.
import sightglass.client.discover, sightglass.client.streams.stream, sightglass.training.process_runs
KIND, CASES, PLACE, N_STEPS = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
USER = 1_000_000 + os.getpid()  # a user without other processes

def limit(n):
    if KIND == "user":
        resource.setrlimit(resource.RLIMIT_NPROC, (n, n))
    elif KIND == "container":
        group = Path("/sys/fs/cgroup/pids", f"sightglass-{os.getpid()}")
        group.mkdir()
        (group / "pids.max").write_text(str(n))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    elif KIND == "descriptors":
        n += len(os.listdir("/proc/self/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
    elif KIND == "memory":
        n += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (n, n))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))

def outcome_of(function):
    try:
        return function()
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error}"

def run_limited(n, to, body, arguments):
    told = []
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: told.append(str(message))
    signal.alarm(60)
    if n is not None:
        limit(n)
    found = {}
    try:
        body(found, *arguments)
    except BaseException:
        found["raised"] = traceback.format_exc()[-800:]
    os.write(to, json.dumps({**found, "told": told}).encode())

def sweep():
    for number, (body, n, *arguments) in enumerate(CASES):
        place = PLACE / str(number)
        os.environ["SIGHTGLASS_RUNTIME_DIR"] = str(place / "runtime")
        for path in (place, place / "runtime"):
            path.mkdir(mode=0o700)
            os.chown(path, *(USER, USER) if KIND == "user" else (os.getuid(), os.getgid()))
        os.chdir(place)
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.dup2(writer, reader)  # leaves no gap between the descriptors, which would be one more
            os.close(writer)
            if KIND == "user":
                os.setgroups([])
                os.setgid(USER)
                os.setuid(USER)
            run_limited(n, reader, globals()[body], arguments)
            sys.exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as lines:
            found = json.loads(lines.read() or b"{}")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if KIND == "container":
            group = Path("/sys/fs/cgroup/pids", f"sightglass-{pid}")
            if group.exists():
                until(lambda: not (group / "cgroup.procs").read_text())
                group.rmdir()
        found["left"] = os.listdir(place / "runtime")
        found["directories"] = os.listdir(place / "runs") if (place / "runs").is_dir() else []
        say("outcome", json.dumps({"limit": n, "status": status, **found}))
"""

TRAINING = """
def query(run):
    with sg.connect(run) as client:
        stream = client.stream("asked.loss")
        for step in range(N_STEPS):
            run.observe("asked", step=step, loss=float(step))
        return len(stream.wait(N_STEPS, timeout_s=60))

def train(found, listen):
    run = sg.init("job", dir="runs", record=["batch.x"], budget=None, listen=listen or None)
    found["reachable"] = run.reachable
    found["threads"] = len(os.listdir("/proc/self/task")) if KIND in ("user", "container") else 0
    for step in range(N_STEPS):
        run.observe("batch", step=step, x=float(step))
        run.log({"a": float(step)}, step=step)
    found["inside"] = outcome_of(lambda: query(run))
    for step in range(N_STEPS):
        run.observe("batch", step=step, x=float(step))
    found["flush"] = outcome_of(run.flush)
    found["close"] = outcome_of(run.close)
    found["directory"] = str(run.directory.absolute())
"""

CLIENT = """
from sightglass.protocol import discovery

def ask(target):
    with sg.connect(target) as run:
        return len(run.stream("batch.loss").wait(3, timeout_s=60)) >= 3

def look():
    return [(info.name, info.description is not None) for info in sg.runs(timeout_s=30)]

def attend(found, target):
    os.environ["SIGHTGLASS_RUNTIME_DIR"] = SERVED
    found["asked"] = outcome_of(lambda: ask(target))
    found["runs"] = outcome_of(look)
    found["alive"] = all(discovery.alive(path.stem) for path in ENTRIES)

SERVED = sys.argv[5]
ENTRIES = list(Path(SERVED).glob("*.json"))
"""

SERVED = """
run = sg.init("job", dir=sys.argv[1], listen="tcp://127.0.0.1:0")
say("ready", run.connection_file)
while not run.stopping:
    run.observe("batch", loss=1.0)
    time.sleep(0.001)
run.close()
"""

FIGURES = """
import matplotlib.backends.backend_agg, matplotlib.figure, matplotlib.pyplot, cloudpickle
import sightglass.figures.plotter, sightglass.training.run_figures, sightglass.views.frames

def draw(x):
    figure = matplotlib.figure.Figure(figsize=(2, 1))
    figure.subplots().plot(x)
    return figure

XS = [np.arange(30_000.0) + step for step in range(2)]  # the program's own memory, which it has

def draw_all(found):
    run = sg.init("job", dir="runs")
    found["reachable"] = run.reachable
    for step in range(2):
        run.figure("f", draw, XS[step], step=step)
    plotter = sightglass.figures.plotter.Plotter(save="png", save_dir="out")
    found["plotted"] = [outcome_of(lambda: plotter.plot(draw, XS[step], step=step)) for step in range(2)]
    found["closed"] = [outcome_of(plotter.close), outcome_of(run.close)]
    count = plotter.statistics()
    found["counts"] = [count.n_records, count.n_errors, count.n_dropped, count.n_waiting]
    found["directory"] = str(run.directory.absolute())
"""

LOWERED = """
def lower(found):
    resource.setrlimit(resource.RLIMIT_NPROC, (1_000, 1_000))
    run = sg.init("job", dir="runs", record=["batch.x"], budget=None)
    found["reachable"] = run.reachable
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    for step in range(N_STEPS):
        run.observe("batch", step=step, x=float(step))
        run.log({"a": float(step)}, step=step)
        if step % 10 == 0:
            found["inside"] = outcome_of(lambda: sg.connect(run))
    found["flush"] = outcome_of(run.flush)
    found["close"] = outcome_of(run.close)
    found["directory"] = str(run.directory.absolute())
"""

RACE = """
from sightglass.protocol import discovery
register = discovery.register

def take_all_threads(*arguments):
    register(*arguments)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

def race(found):
    discovery.register = take_all_threads  # after libzmq was started, before the run's own threads are
    run = sg.init("job", dir="runs", record=["batch.x"], budget=None, listen="tcp://127.0.0.1:0")
    found["reachable"] = run.reachable
    found["entries"] = os.listdir("runtime")
    found["connections"] = [str(path) for path in Path("runs").rglob("connection*.json")]
    found["inside"] = outcome_of(lambda: sg.connect(run))
    for step in range(N_STEPS):
        run.observe("batch", step=step, x=float(step))
        run.log({"a": float(step)}, step=step)
    found["flush"] = outcome_of(run.flush)
    found["close"] = outcome_of(run.close)
    found["directory"] = str(run.directory.absolute())
"""

PLACED = """
from pathlib import Path
from sightglass.protocol import discovery
discovery._candidates = lambda: iter([Path(os.environ["ONLY"])])
told = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: told.append(str(message))
run = sg.init("job", budget=None)
say("reachable", run.reachable)
(message,) = told
say("told", message)
own = sg.connect(run).stream("batch.loss")
for step in range(100):
    run.observe("batch", step=step, loss=float(step))
say("got", len(own.wait(100, timeout_s=60)))
run.close()
"""

NOWHERE = """
for place in ("/tmp", "/var/tmp"):
    assert not os.access(place, os.W_OK)
told = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: told.append(str(message))
run = sg.init("job", dir="runs")
for step in range(100):
    run.observe("batch", step=step, x=float(step))
    run.log({"a": float(step)}, step=step)
own = sg.connect(run).stream("batch.x")
run.observe("batch", x=1.0)
say("got", len(own.wait(1, timeout_s=60)), run.reachable, isinstance(sg.runs(), list))
try:
    run.close()
except Exception as error:
    say("closed", type(error).__name__)
for message in told:
    say("told", message)
say("end")
"""

NO_ROOM = """
import tempfile
os.__dict__.pop("memfd_create", None)  # as on systems without it, where shared memory is a file
tempfile.tempdir = sys.argv[1]
from sightglass.core.codec import encode
from sightglass.figures.snapshot import Arena, Snapshot
arena = Arena(64 * 2**20)
os.chdir("/")
value = np.arange(1_000_000.0)
snapshots = [Snapshot(encode({"x": value}), arena) for _ in range(3)]
say("sizes", *(sum(len(memoryview(buffer)) for buffer in snapshot.buffers()) for snapshot in snapshots))
say("shared", *(not snapshot.in_band for snapshot in snapshots))
"""

Outcomes = list[dict[str, Any]]
Sweep = Callable[..., Outcomes]


@pytest.fixture
def sweep(start: Start, everybodys: Path) -> Sweep:
    """Return a function that calls functions of `BODIES` in a process each, under a limit, and returns the outcomes.

    A case is a function, a limit or `None`, and further arguments.
    """

    def sweep(kind: str, cases: Sequence[Sequence[Any]], bodies: str, *arguments: str) -> Outcomes:
        if kind in {"user", "container"} and os.getuid() != 0:
            pytest.skip("needs root, to become another user or to make a control group")
        if kind == "container" and not os.access(PIDS / "cgroup.procs", os.W_OK):
            pytest.skip("no control groups for processes")
        place = everybodys / kind[:1]  # short enough for a socket
        place.mkdir()
        place.chmod(0o755)
        command = (kind, json.dumps(list(cases)), str(place), str(N_STEPS), *arguments)
        child = start(FORKS + bodies + "\nsweep()\n", *command, OPENBLAS_NUM_THREADS="1")
        outcomes = [json.loads(" ".join(child.hears("outcome"))) for _ in cases]
        assert child.ends() == 0
        child.may_complain = kind == "memory"  # libraries do, in the renderer's process
        return outcomes

    return sweep


def check(outcome: dict[str, Any]) -> None:
    """Check what holds at any limit: the training trained on, told why it is not reachable, and left nothing."""
    assert "raised" not in outcome, f"{outcome}"
    assert outcome["status"] == 0, f"{outcome}"
    assert [Path(name).suffix for name in outcome["left"]] in ([], [".closed"]), f"{outcome}"
    assert len(outcome["directories"]) <= 1, f"{outcome}"
    # What the run says of itself and its records are two files, of which each may be told.
    told = [message for message in outcome["told"] if not message.startswith((NOT_WRITTEN, NOT_ENDED))]
    if outcome["reachable"]:
        assert all(message.startswith(TCP_ONLY) for message in told), f"{outcome}"
    else:
        assert len(told) == 1, f"{outcome}"
        assert told[0].startswith(UNREACHABLE), f"{outcome}"
    assert len(set(outcome["told"])) == len(outcome["told"]) <= len(told) + 3, f"{outcome}"
    assert outcome["inside"] == N_STEPS or outcome["inside"].startswith(REFUSED), f"{outcome}"


def check_records(outcome: dict[str, Any]) -> None:
    """Check that everything is in the files, and that nothing else was told."""
    assert not any(message.startswith(NOT_WRITTEN) for message in outcome["told"]), f"{outcome}"
    assert (outcome["flush"], outcome["close"]) == (None, None), f"{outcome}"
    with sg.open(outcome["directory"]) as recorded:
        assert [record.value for record in recorded.series("a")] == list(range(N_STEPS)), f"{outcome}"
        assert recorded.series("batch.x").n == 2 * N_STEPS, f"{outcome}"


def check_client(outcome: dict[str, Any], *, memory: bool = False) -> None:
    """Check that a client was refused or got what it asked for, and that the run it asked stays."""
    assert "raised" not in outcome, f"{outcome}"
    assert (outcome["status"], outcome["told"], outcome["alive"]) == (0, [], True), f"{outcome}"
    lacks = ("builtins.MemoryError: ",) * memory  # without a page to get, Python itself lacks memory
    assert outcome["asked"] is True or outcome["asked"].startswith((REFUSED, UNREADABLE, *lacks)), f"{outcome}"
    assert isinstance(outcome["runs"], list) or outcome["runs"].startswith((REFUSED, *lacks)), f"{outcome}"


def check_figures(outcome: dict[str, Any]) -> None:
    """Check that each figure was drawn, or is counted."""
    assert "raised" not in outcome, f"{outcome}"
    assert outcome["status"] == 0, f"{outcome}"
    assert all(name.endswith(".closed") for name in outcome["left"]), f"{outcome}"
    for said in outcome["plotted"]:  # as documented; the default
        assert said is None or said.startswith("sightglass.core.errors.FigureErrors: "), f"{outcome}"
    n_drawn, n_failed, n_dropped, n_waiting = outcome["counts"]
    assert (n_drawn + n_failed + n_dropped, n_waiting) == (2, 0), f"{outcome}"
    assert n_told_drawn_here(outcome) <= 2, f"{outcome}"  # once for each plotter


def n_told_drawn_here(outcome: dict[str, Any]) -> int:
    return sum(DRAWN_HERE in message for message in outcome["told"])


@pytest.fixture
def served(start: Start, runtime: Path) -> Iterator[tuple[str, str]]:
    """Start a run for clients to ask; return the folder of its entry, and its connection file."""
    (folder := runtime / "served").mkdir(mode=0o700)
    run = start(SERVED, str(runtime / "runs"), SIGHTGLASS_RUNTIME_DIR=str(folder))
    (connection_file,) = run.hears("ready")
    yield str(folder), connection_file
    assert len(list(folder.glob("*.json"))) == 1
    with sg.connect(connection_file) as client:
        client.stop()
    assert run.ends() == 0


def attending(limits: Sequence[int], connection_file: str) -> list[Any]:
    """Return cases of clients, of which every other one asks over TCP."""
    return [["attend", n, connection_file if i % 2 else "job"] for i, n in enumerate(limits)]


def parts(outcomes: Outcomes, *sizes: int) -> Iterator[Outcomes]:
    """Split outcomes of several functions."""
    left = iter(outcomes)
    for size in sizes:
        yield [next(left) for _ in range(size)]


# Each limit below has an outcome of its own, as sweeps over all limits have found: some thread is the first that is
# missing, some descriptor, some reserve of a library.


@pytest.mark.slow
def test_too_few_threads_of_a_user(sweep: Sweep) -> None:
    limits = (1, 2, 3, 4, 5, 6)
    cases = [["train", n, TCP if n % 2 else ""] for n in limits] + [["lower", None], ["race", None]]
    trained, lowered, raced = parts(sweep("user", cases, TRAINING + LOWERED + RACE), len(limits), 1, 1)
    check_threads(trained)

    (outcome,) = lowered  # a limit that is reached later costs nothing else
    assert outcome["reachable"]
    assert outcome["inside"].startswith(REFUSED)
    assert all(message.startswith("sightglass-writer: its work is done when") for message in outcome["told"])
    check({**outcome, "told": []})

    (outcome,) = raced  # and so do threads that others take after the probe
    reached, written = outcome["told"]
    assert reached == UNREACHABLE + "no thread can be started"
    assert written.startswith("sightglass-writer: its work is done when the program waits for it: ")
    assert (outcome["reachable"], outcome["entries"], outcome["connections"]) == (False, [], [])
    assert outcome["inside"].startswith(REFUSED)
    check({**outcome, "told": [reached]})
    for (outcome,) in (lowered, raced):
        with sg.open(outcome["directory"]) as recorded:
            assert recorded.series("a").n == recorded.series("batch.x").n == N_STEPS


def check_threads(outcomes: Outcomes) -> None:
    """Check the outcomes of a training with 1 to 6 threads."""
    for n_free, outcome in enumerate(outcomes):
        check(outcome)
        check_records(outcome)
        assert outcome["reachable"] == (n_free >= 4)
        if n_free < 4:
            assert f"4 more threads are needed, got {n_free}" in outcome["told"][0]
    assert outcomes[0]["inside"] != outcomes[-1]["inside"] == N_STEPS
    assert outcomes[1]["threads"] == 2  # the only thread there is writes the records


@pytest.mark.slow
def test_too_few_threads_of_a_container(sweep: Sweep, served: tuple[str, str]) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("cloudpickle")
    folder, connection_file = served
    cases = [["train", n, "" if n % 2 else TCP] for n in (1, 2, 3, 4, 5, 6)]
    clients, figures = attending((1, 2, 3, 4, 5, 6), connection_file), [["draw_all", n] for n in (1, 4, 5, 10)]
    outcomes = sweep("container", [*cases, *clients, *figures], TRAINING + CLIENT + FIGURES, folder)
    trained, asked, drawn = parts(outcomes, len(cases), len(clients), len(figures))
    check_threads(trained)
    for outcome in asked:
        check_client(outcome)
    assert [outcome["asked"] is True for outcome in asked] == [False] * 3 + [True] * 3
    assert asked[-1]["runs"] == [["job", True]]
    for outcome in drawn:
        check_figures(outcome)
        # The thread that waits for the figures draws them.
        assert (outcome["counts"], outcome["closed"]) == ([2, 0, 0, 0], [None, None]), f"{outcome}"
        with sg.open(outcome["directory"]) as recorded:
            assert recorded.series("f").n == 2, f"{outcome}"
    assert n_told_drawn_here(drawn[-2]) > n_told_drawn_here(drawn[-1]) == 0


@pytest.mark.slow
def test_too_few_descriptors(sweep: Sweep, served: tuple[str, str]) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("cloudpickle")
    folder, connection_file = served
    points = ((0, ""), (1, TCP), (2, ""), (8, TCP), (31, TCP), (32, ""), (32, TCP), (33, ""))
    cases = [["train", n, listen] for n, listen in points]
    clients, figures = attending((0, 1, 31, 31, 32, 32), connection_file), [["draw_all", n] for n in (0, 4, 16, 32, 40)]
    outcomes = sweep("descriptors", [*cases, *clients, *figures], TRAINING + CLIENT + FIGURES, folder)
    trained, asked, drawn = parts(outcomes, len(cases), len(clients), len(figures))
    for outcome in trained:
        check(outcome)
        if outcome["limit"] >= 8:
            check_records(outcome)
        if not outcome["reachable"]:
            n_free = min(outcome["limit"], 31)  # the lock of the run takes one
            assert f"32 free file descriptors are needed, got {n_free}: " in outcome["told"][0]
    assert [outcome["reachable"] for outcome in trained] == [False] * 6 + [True] * 2
    assert [len(outcome["told"]) for outcome in trained[-2:]] == [1, 0]  # the first one can be reached over TCP only
    for outcome in asked:
        check_client(outcome)
    assert [outcome["asked"] is True for outcome in asked] == [False] * 4 + [True] * 2
    assert asked[-1]["runs"] == [["job", True]]
    for outcome in drawn:
        check_figures(outcome)
    assert drawn[0]["told"] != []
    assert [outcome["counts"] for outcome in drawn] == [[0, 2, 0, 0]] * 2 + [[2, 0, 0, 0]] * 3
    assert n_told_drawn_here(drawn[-1]) == 0


@pytest.mark.slow
def test_too_little_memory(sweep: Sweep, served: tuple[str, str]) -> None:
    """Fine steps where Python itself lacks memory, coarse ones over the sizes that libraries reserve for threads."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("cloudpickle")
    folder, connection_file = served
    cases = [["train", n * MIB, TCP if n % 8 else ""] for n in (0, 1, 4, 8, 60, 156, 252, 640)]
    clients = attending([n * MIB for n in (0, 32, 64, 160, 224, 480)], connection_file)
    figures = [["draw_all", n * MIB] for n in (0, 64, 128, 192, 8192)]
    outcomes = sweep("memory", [*cases, *clients, *figures], TRAINING + CLIENT + FIGURES, folder)
    trained, asked, drawn = parts(outcomes, len(cases), len(clients), len(figures))
    for outcome in trained:
        check(outcome)
    assert [trained[i]["reachable"] for i in (0, -1)] == [False, True]
    check_records(trained[-1])
    for outcome in asked:
        check_client(outcome, memory=outcome["limit"] == 0)
    assert asked[0]["asked"] != asked[-1]["asked"] is True
    assert asked[-1]["runs"] == [["job", True]]
    for outcome in drawn:
        check_figures(outcome)
    assert drawn[0]["told"] != []
    assert (drawn[-1]["counts"], n_told_drawn_here(drawn[-1])) == ([2, 0, 0, 0], 0)


def test_too_small_files(sweep: Sweep) -> None:
    outcomes = sweep("files", [["train", n, ""] for n in (0, 1, 50, 300, 500, 1_000, 10_000)], TRAINING)
    for outcome in outcomes:
        check(outcome)
        if not outcome["reachable"]:
            assert "File too large" in outcome["told"][0]
    assert [outcome["reachable"] for outcome in outcomes] == [False] * 4 + [True] * 3
    check_records(outcomes[-1])


@pytest.mark.slow
def test_file_systems_that_are_full_or_cannot_be_written_to(start: Start, disk: Callable[[str], Path]) -> None:
    for options in ("size=16k,nr_inodes=3", "ro"):
        child = start(PLACED, SIGHTGLASS_RUNTIME_DIR=str(place := disk(options)), ONLY=str(place))
        assert child.hears("reachable") == ["False"]
        assert " ".join(child.hears("told")).startswith(UNREACHABLE)
        assert child.hears("got") == ["100"]
        assert child.ends() == 0

    child = start(NO_ROOM, str(disk("size=10m")))  # shared memory as a file: a write beyond the end kills a process
    assert child.hears("sizes") == ["8000000"] * 3
    assert child.hears("shared") == ["True", "False", "False"]
    assert child.ends() == 0

    mounts = "for p in /tmp /var/tmp; do mount --bind $p $p && mount -o remount,bind,ro $p || exit 9; done"
    within = ("unshare", "-m", "sh", "-c", mounts + '; cd "$PWD"; exec "$@"', "sh")
    child = start(NOWHERE, prefix=within, SIGHTGLASS_RUNTIME_DIR="", XDG_RUNTIME_DIR="/tmp/none", TMPDIR="/tmp/none")
    assert child.hears("got") == ["1", "False", "True"]
    assert child.hears("closed") == ["StorageError"]
    assert " ".join(child.hears("told")).startswith(UNREACHABLE + "No folder for live runs: ")
    assert " ".join(child.hears("told")).startswith(NOT_WRITTEN)
    child.hears("end")
    assert child.ends() == 0
