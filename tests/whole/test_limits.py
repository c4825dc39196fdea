"""Limits of a process, a user and a container, each from 0 up to where everything works: the run goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
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
import sightglass.client.discover, sightglass.client.stream, sightglass.training.process_runs
KIND, LIMITS, PLACE, N_STEPS = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
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

def run_limited(n, to, body):
    told = []
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: told.append(str(message))
    signal.alarm(60)
    limit(n)
    found = {}
    try:
        body(found)
    except BaseException:
        found["raised"] = traceback.format_exc()[-800:]
    os.write(to, json.dumps({**found, "told": told}).encode())

def sweep(body):
    for n in LIMITS:
        place = PLACE / str(n)
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
            run_limited(n, reader, body)
            sys.exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as lines:
            found = json.loads(lines.read() or b"{}")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if KIND == "container":
            group = Path("/sys/fs/cgroup/pids", f"sightglass-{pid}")
            until(lambda: not (group / "cgroup.procs").read_text())
            group.rmdir()
        found["left"] = os.listdir(place / "runtime")
        found["directories"] = os.listdir(place / "runs") if (place / "runs").is_dir() else []
        say("outcome", json.dumps({"limit": n, "status": status, **found}))
"""

TRAINING = """
LISTEN = sys.argv[5] or None

def query(run):
    with sg.connect(run) as client:
        stream = client.stream("asked.loss")
        for step in range(N_STEPS):
            run.observe("asked", step=step, loss=float(step))
        return len(stream.wait(N_STEPS, timeout_s=60))

def train(found):
    run = sg.init("job", dir="runs", record=["batch.x"], budget=None, listen=LISTEN)
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

sweep(train)
"""

CLIENT = """
from sightglass.protocol import discovery
SERVED, TARGET = sys.argv[5:]

def ask(target):
    with sg.connect(target) as run:
        return len(run.stream("batch.loss").wait(3, timeout_s=60)) >= 3

def look():
    return [(info.name, info.description is not None) for info in sg.runs(timeout_s=30)]

def attend(found):
    os.environ["SIGHTGLASS_RUNTIME_DIR"] = SERVED
    found["asked"] = outcome_of(lambda: ask(TARGET))
    found["runs"] = outcome_of(look)
    found["alive"] = all(discovery.alive(path.stem) for path in PATHS)

PATHS = list(Path(SERVED).glob("*.json"))
sweep(attend)
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
import sightglass.figures.plotter, sightglass.training.run_figures

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

sweep(draw_all)
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

LIMITS, limit = [0], lambda n: None
sweep(lower)
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
    found["entries"] = os.listdir("../0/runtime")
    found["connections"] = [str(path) for path in Path("runs").rglob("connection*.json")]
    found["inside"] = outcome_of(lambda: sg.connect(run))
    for step in range(N_STEPS):
        run.observe("batch", step=step, x=float(step))
        run.log({"a": float(step)}, step=step)
    found["flush"] = outcome_of(run.flush)
    found["close"] = outcome_of(run.close)
    found["directory"] = str(run.directory.absolute())

limit = lambda n: None
sweep(race)
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
def sweep(start: Start, everybodys: Path) -> Iterator[Sweep]:
    """Return a function that runs a script under each of several limits, and returns the outcomes."""

    def sweep(script: str, kind: str, limits: Sequence[int], *arguments: str) -> Outcomes:
        if kind in {"user", "container"} and os.getuid() != 0:
            pytest.skip("needs root, to become another user or to make a control group")
        if kind == "container" and not os.access(PIDS / "cgroup.procs", os.W_OK):
            pytest.skip("no control groups for processes")
        place = everybodys / kind[:1]  # short enough for a socket
        place.mkdir()
        place.chmod(0o755)
        command = (kind, json.dumps(list(limits)), str(place), str(N_STEPS), *arguments)
        child = start(FORKS + script, *command, OPENBLAS_NUM_THREADS="1")
        outcomes = [json.loads(" ".join(child.hears("outcome", 120))) for _ in limits]
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
    told = [message for message in outcome["told"] if not message.startswith((NOT_WRITTEN, NOT_ENDED))]
    if outcome["reachable"]:
        assert all(message.startswith(TCP_ONLY) for message in told), f"{outcome}"
    else:
        assert len(told) == 1, f"{outcome}"
        assert told[0].startswith(UNREACHABLE), f"{outcome}"
    assert len(outcome["told"]) <= len(told) + 2, f"{outcome}"
    assert outcome["inside"] == N_STEPS or outcome["inside"].startswith(REFUSED), f"{outcome}"


def check_records(outcome: dict[str, Any]) -> None:
    """Check that everything is in the files, and that nothing else was told."""
    assert not any(message.startswith(NOT_WRITTEN) for message in outcome["told"]), f"{outcome}"
    assert (outcome["flush"], outcome["close"]) == (None, None), f"{outcome}"
    with sg.open(outcome["directory"]) as recorded:
        assert [record.value for record in recorded.series("a")] == list(range(N_STEPS)), f"{outcome}"
        assert recorded.series("batch.x").n == 2 * N_STEPS, f"{outcome}"


@pytest.mark.parametrize("listen", ["", "tcp://127.0.0.1:0"])
@pytest.mark.parametrize("kind", ["user", "container"])
def test_too_few_threads(sweep: Sweep, kind: str, listen: str) -> None:
    outcomes = sweep(TRAINING, kind, range(1, 9), listen)
    for outcome in outcomes:
        check(outcome)
        check_records(outcome)
    n_reachable = next(i for i, outcome in enumerate(outcomes) if outcome["reachable"])
    assert n_reachable > 1
    assert all(outcome["reachable"] for outcome in outcomes[n_reachable:])
    assert outcomes[0]["inside"] != outcomes[-1]["inside"] == N_STEPS
    for n_free, outcome in enumerate(outcomes[:n_reachable]):
        assert f"4 more threads are needed, got {n_free}" in outcome["told"][0]
    assert outcomes[1]["threads"] == 2  # the only thread there is writes the records


@pytest.mark.slow
@pytest.mark.parametrize("listen", ["", "tcp://127.0.0.1:0"])
def test_too_few_descriptors(sweep: Sweep, listen: str) -> None:
    outcomes = sweep(TRAINING, "descriptors", range(36), listen)
    for outcome in outcomes:
        check(outcome)
        if outcome["limit"] >= 8:
            check_records(outcome)
    assert not outcomes[0]["reachable"]
    assert outcomes[-1]["reachable"]
    for outcome in outcomes:
        if not outcome["reachable"]:
            n_free = min(outcome["limit"], 31)  # the lock of the run takes one
            assert f"32 free file descriptors are needed, got {n_free}: " in outcome["told"][0]


@pytest.mark.slow
def test_too_little_memory(sweep: Sweep) -> None:
    """Fine steps where Python itself lacks memory, coarse ones over the sizes that libraries reserve for threads."""
    limits = [*range(0, 12 * MIB, MIB // 4), *range(12 * MIB, 640 * MIB, 16 * MIB)]
    outcomes = sweep(TRAINING, "memory", limits, "")
    for outcome in outcomes:
        check(outcome)
    assert not outcomes[0]["reachable"]
    assert outcomes[-1]["reachable"]
    check_records(outcomes[-1])


def test_too_small_files(sweep: Sweep) -> None:
    limits = [0, 1, 10, 50, 100, 200, 300, 400, 500, 1_000, 10_000, 100_000]
    outcomes = sweep(TRAINING, "files", limits, "")
    for outcome in outcomes:
        check(outcome)
    assert not outcomes[0]["reachable"]
    assert outcomes[-1]["reachable"]
    check_records(outcomes[-1])


@pytest.mark.slow
@pytest.mark.parametrize("over_tcp", [False, True])
@pytest.mark.parametrize(
    ("kind", "limits"),
    [("container", range(1, 7)), ("descriptors", range(36)), ("memory", range(0, 512 * MIB, 32 * MIB))],
)
def test_a_client_is_refused_and_the_run_stays(
    start: Start, sweep: Sweep, runtime: Path, kind: str, limits: range, over_tcp: bool
) -> None:
    """A client may live in a training process, too, which libzmq must not end."""
    (served := runtime / "served").mkdir(mode=0o700)
    run = start(SERVED, str(runtime / "runs"), SIGHTGLASS_RUNTIME_DIR=str(served))
    (connection_file,) = run.hears("ready")
    outcomes = sweep(CLIENT, kind, limits, str(served), connection_file if over_tcp else "job")
    for outcome in outcomes:
        assert "raised" not in outcome, f"{outcome}"
        assert (outcome["status"], outcome["told"], outcome["alive"]) == (0, [], True), f"{outcome}"
        # Without a page to get, Python itself lacks memory.
        lacks = ("builtins.MemoryError: ",) * (kind == "memory" and outcome["limit"] == 0)
        assert outcome["asked"] is True or outcome["asked"].startswith((REFUSED, UNREADABLE, *lacks)), f"{outcome}"
        assert isinstance(outcome["runs"], list) or outcome["runs"].startswith((REFUSED, *lacks)), f"{outcome}"
    assert outcomes[0]["asked"] != outcomes[-1]["asked"]
    assert outcomes[-1]["asked"] is True
    assert outcomes[-1]["runs"] == [["job", True]]
    assert len(list(served.glob("*.json"))) == 1
    with sg.connect(connection_file) as client:
        client.stop()
    assert run.ends() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("container", range(1, 11)),
        ("descriptors", range(0, 48, 8)),
        ("memory", [*range(0, 320 * MIB, 64 * MIB), 8192 * MIB]),
    ],
)
def test_figures_are_drawn_here_or_counted(sweep: Sweep, kind: str, limits: Sequence[int]) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("cloudpickle")
    outcomes = sweep(FIGURES, kind, limits)
    for outcome in outcomes:
        assert "raised" not in outcome, f"{outcome}"
        assert outcome["status"] == 0, f"{outcome}"
        assert all(name.endswith(".closed") for name in outcome["left"]), f"{outcome}"
        for said in outcome["plotted"]:  # as documented; the default
            assert said is None or said.startswith("sightglass.core.errors.FigureErrors: "), f"{outcome}"
        n_drawn, n_failed, n_dropped, n_waiting = outcome["counts"]
        assert (n_drawn + n_failed + n_dropped, n_waiting) == (2, 0), f"{outcome}"
        if kind == "container":  # the thread that waits for the figures draws them
            assert (n_drawn, outcome["closed"]) == (2, [None, None]), f"{outcome}"
            with sg.open(outcome["directory"]) as recorded:
                assert recorded.series("f").n == 2, f"{outcome}"
        n_told = sum(DRAWN_HERE in message for message in outcome["told"])
        assert n_told <= 2, f"{outcome}"  # once for each plotter
    assert outcomes[0]["told"] != []
    assert outcomes[-1]["counts"] == [2, 0, 0, 0]
    assert not any(DRAWN_HERE in message for message in outcomes[-1]["told"])


def test_a_limit_that_is_reached_later_costs_nothing_else(sweep: Sweep) -> None:
    (outcome,) = sweep(LOWERED, "user", [0])
    assert outcome["reachable"]
    assert outcome["inside"].startswith(REFUSED)
    assert all(message.startswith("sightglass-writer: its work is done when") for message in outcome["told"])
    check({**outcome, "told": []})
    with sg.open(outcome["directory"]) as recorded:
        assert recorded.series("a").n == recorded.series("batch.x").n == N_STEPS


def test_a_full_folder_of_temporary_files_does_not_end_the_process(start: Start, runtime: Path) -> None:
    (place := runtime / "full").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=10m", "none", str(place)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        child = start(NO_ROOM, str(place))
        assert child.hears("sizes") == ["8000000"] * 3
        assert child.hears("shared") == ["True", "False", "False"]
        assert child.ends() == 0
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_threads_that_others_take_after_the_probe(sweep: Sweep) -> None:
    (outcome,) = sweep(RACE, "user", [0])
    reached, written = outcome["told"]
    assert reached == UNREACHABLE + "no thread can be started"
    assert written.startswith("sightglass-writer: its work is done when the program waits for it: ")
    assert (outcome["reachable"], outcome["entries"], outcome["connections"]) == (False, [], [])
    assert outcome["inside"].startswith(REFUSED)
    check({**outcome, "told": [reached]})
    with sg.open(outcome["directory"]) as recorded:
        assert recorded.series("a").n == recorded.series("batch.x").n == N_STEPS


def test_no_folder_can_be_written_to(start: Start, runtime: Path) -> None:
    mounts = "for p in /tmp /var/tmp; do mount --bind $p $p && mount -o remount,bind,ro $p || exit 9; done"
    command = ["unshare", "-m", "sh", "-c", mounts]
    if shutil.which("unshare") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    within = ("unshare", "-m", "sh", "-c", mounts + '; cd "$PWD"; exec "$@"', "sh")
    child = start(NOWHERE, prefix=within, SIGHTGLASS_RUNTIME_DIR="", XDG_RUNTIME_DIR="/tmp/none", TMPDIR="/tmp/none")
    assert child.hears("got") == ["1", "False", "True"]
    assert child.hears("closed") == ["StorageError"]
    assert " ".join(child.hears("told")).startswith(UNREACHABLE + "No folder for live runs: ")
    assert " ".join(child.hears("told")).startswith(NOT_WRITTEN)
    child.hears("end")
    assert child.ends() == 0
