"""Exits, crashes and kills of real trainings and real children: no figure is lost, and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import FigureErrors
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.threads import Background
from sightglass.figures import Plotter

from .conftest import wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

PREAMBLE = """
import os, signal, sys, time
import numpy as np
from sightglass.figures import Plotter

def draw(x):
    from matplotlib.figure import Figure
    print("drawn", flush=True)  # goes nowhere it could hurt
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot(x)
    return figure

def slow(x, seconds=0.3):
    time.sleep(seconds)
    return draw(x)

open("ran", "a").write("x")
"""

QUEUE = """
plotter = Plotter(save=True, save_dir="out", **OPTIONS)
for step in range(3):
    plotter.plot(slow, np.arange(3.0), step=step)
print("queued", flush=True)
"""


FORK = """
if os.fork() == 0:
    plotter.plot(draw, [1], step=99)
    plotter.close()
    print("queued", os.getpid(), flush=True)
    time.sleep(120)
    os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def start(tmp_path):
    """Start a training, and return it once it has queued its figures."""
    children = []

    def start(body, options="{}", wait="queued"):
        path = tmp_path / "train.py"
        path.write_text(PREAMBLE + f"OPTIONS = {options}\n" + textwrap.dedent(body))
        child = subprocess.Popen(
            [sys.executable, str(path)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        children.append(child)
        if wait:
            for line in child.stdout:
                if line.startswith(wait):
                    break
        return child

    yield start
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


def files(folder, pattern="*.pdf"):
    return sorted(path.name for path in (folder / "out").glob(pattern))


ALL = [f"slow_step{step}.pdf" for step in range(3)]
# A shell has programs that it runs in the background ignore the signal, which children inherit.
INTERRUPT = """
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


@pytest.mark.parametrize(("renderer", "end", "status"), [
    ("process", "", 0), ("process", "raise RuntimeError('training')", 1), ("process", INTERRUPT, -2),
    ("thread", "raise RuntimeError('training')", 1),
], ids=["exit", "exception", "interrupt", "exception in a thread"])  # fmt: skip
def test_an_exit_without_close_loses_nothing(start, tmp_path, renderer, end, status):
    child = start(QUEUE + end, repr({"renderer": renderer}))
    _, output = child.communicate(timeout=90)
    assert (child.returncode == 0) == (status == 0), output
    assert files(tmp_path) == ALL
    assert len(files(tmp_path, "*.npz")) == 3
    assert (tmp_path / "ran").read_text() == "x"  # the script has no guard, and ran once


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_queued_figures_are_drawn_after_the_training_is_killed(start, tmp_path, number):
    child = start(QUEUE + "time.sleep(60)\n")
    os.kill(child.pid, number)
    child.wait(30)
    wait_until(lambda: files(tmp_path) == ALL)
    assert wait_until(lambda: len(files(tmp_path, "*.png")) >= 2)  # the training took no more of them
    assert wait_until(lambda: not list((tmp_path / "out").glob(".*")))  # the last file is being written


def test_a_ctrl_c_in_the_terminal_interrupts_the_training_alone(start, tmp_path):
    """The signal goes to the whole process group."""
    body = "os.setsid()\n" + QUEUE + "os.killpg(0, signal.SIGINT)\ntime.sleep(60)\n"
    child = start(body)
    child.communicate(timeout=90)
    assert files(tmp_path) == ALL


def test_a_forked_copy_of_the_training_neither_draws_nor_holds_the_renderer(start, tmp_path):
    body = QUEUE.replace("queued", "not yet") + FORK
    child = start(body, wait="")
    line = next(line for line in child.stdout if line.startswith("queued"))
    forked = int(line.split()[1])
    try:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(30)
        wait_until(lambda: files(tmp_path) == ALL)
        wait_until(lambda: not renderers())
    finally:
        os.kill(forked, signal.SIGKILL)


def renderers():
    """Return the renderers that this test's training has left running."""
    psutil = pytest.importorskip("psutil")
    here = os.getcwd()
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if "sightglass.figures.renderer" in (process.info["cmdline"] or []) and process.info["cwd"] == here:
            found.append(process.pid)
    return found


def draw(x):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    figure.subplots().plot(x)
    return figure


def pid_of(plotter):
    return plotter._queue._renderers[0].pid


def test_a_renderer_that_is_killed_is_replaced_and_nothing_is_lost(caught):
    plotter = Plotter(sinks=[caught])
    plotter.plot(draw, [1, 2], step=0)
    plotter.flush()
    before = pid_of(plotter)
    for step in range(1, 5):
        plotter.plot(draw, np.arange(20_000), step=step)
    os.kill(before, signal.SIGKILL)
    plotter.close()
    assert [record.step for record in caught.records] == [0, 1, 2, 3, 4]
    assert plotter.statistics().n_started == 2


def test_a_renderer_whose_results_cannot_be_read_is_replaced_and_nothing_is_lost(caught, monkeypatch):
    from sightglass.figures import messages

    errors, read = [RecursionError("deep")], messages.read

    def fail(file):
        got = read(file)
        if errors:
            raise errors.pop()
        return got

    plotter = Plotter(sinks=[caught])
    monkeypatch.setattr(messages, "read", fail)
    with pytest.warns(RuntimeWarning, match="RecursionError: deep"):  # noqa: PT031
        for step in range(4):
            plotter.plot(draw, [1, 2], step=step)
        plotter.close()
    assert [record.step for record in caught.records] == [0, 1, 2, 3]
    assert plotter.statistics().n_started == 2


def test_a_job_that_kills_two_renderers_gets_a_card_and_the_others_are_drawn(caught, tmp_path):
    plotter = Plotter(sinks=[caught], save="png", save_dir=tmp_path)
    plotter.plot(draw, [1], step=0)
    plotter.plot(lambda: os.kill(os.getpid(), signal.SIGKILL), step=1, name="poison")
    plotter.plot(draw, [1], step=2)
    with pytest.raises(FigureErrors) as errors:
        plotter.close()
    (error,) = errors.value.exceptions
    assert (error.figure, error.step) == ("poison", 1)
    assert "twice (signal 9)" in str(error)
    assert sorted(record.step for record in caught.records) == [0, 1, 2]
    assert (tmp_path / "poison_step1.png").is_file()
    assert not (tmp_path / "poison_step1.npz").exists()  # there is nothing to draw it again from


def test_a_renderer_that_cannot_start_is_not_restarted_endlessly(caught, monkeypatch):
    from sightglass.figures import child_process

    monkeypatch.setitem(child_process.ENVIRONMENT, "PYTHONHOME", "/nowhere")
    plotter = Plotter(sinks=[caught], on_error="ignore")
    for step in range(3):
        plotter.plot(draw, [1], step=step)
    plotter.close()
    counts = plotter.statistics()
    assert (counts.n_started, counts.n_errors, counts.n_waiting) == (2, 3, 0)
    assert "died twice" in counts.last_error


def test_a_renderer_that_dies_before_it_is_written_to_costs_no_figure_twice(caught, monkeypatch):
    from sightglass.figures import child_process

    def begins(name, work):
        thread = Background(name, work)
        child = work.__self__._child
        wait_until(lambda: child.stdin.closed, "the receiver has seen the end of the child")
        return thread

    monkeypatch.setitem(child_process.ENVIRONMENT, "PYTHONHOME", "/nowhere")
    monkeypatch.setattr(child_process, "Background", begins)
    plotter = Plotter(sinks=[caught], on_error="ignore")
    plotter.plot(draw, [1], step=0)
    plotter.close()
    counts = plotter.statistics()
    assert (counts.n_started, counts.n_errors, counts.n_waiting) == (2, 1, 0)


def test_a_figure_that_hangs_is_given_up(caught):
    plotter = Plotter(sinks=[caught], limit_s=4.0, on_error="ignore")
    plotter.plot(lambda: time.sleep(600), step=0, name="hangs")
    plotter.plot(draw, [1], step=1)
    plotter.close()
    counts = plotter.statistics()
    assert "'hangs' at step 0: Not drawn: took longer than 4 s" in counts.last_error
    assert [record.step for record in caught.records] == [0, 1]  # a card, and the other figure


def test_a_hanging_renderer_does_not_outlive_the_training(start, tmp_path):
    body = """
    plotter = Plotter(save=True, save_dir="out", limit_s=3.0)
    plotter.plot(lambda: time.sleep(600), step=0)
    print("queued", plotter._queue._renderers[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    child = start(body, wait="")
    line = next(line for line in child.stdout if line.startswith("queued"))
    pid = int(line.split()[1])
    psutil = pytest.importorskip("psutil")
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_function_that_cannot_be_pickled_is_drawn_in_a_thread_with_one_warning(caught):
    import threading

    plotter = Plotter(sinks=[caught])
    lock = threading.Lock()

    def draw_locked(x):
        with lock:
            return draw(x)

    with pytest.warns(RuntimeWarning, match="thread") as warned:  # noqa: PT031
        plotter.plot(draw_locked, [1], step=0)
        plotter.plot(draw_locked, [1], step=1)
    assert len(warned) == 1
    plotter.close()
    assert [record.step for record in caught.records] == [0, 1]
    assert (plotter.statistics().n_here, plotter.statistics().n_started) == (2, 0)


def test_a_full_disk_costs_the_files_and_not_the_figures(start, tmp_path):
    body = """
    import resource
    class Sink:
        n = 0
        def write(self, records): Sink.n += len(records)
        def flush(self, timeout_s): pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
    plotter = Plotter(save=True, save_dir="out", sinks=[Sink()])
    plotter.plot(draw, np.arange(3.0), step=0)
    plotter.plot(draw, np.arange(30_000.0), step=1)
    try:
        plotter.close()
    except Exception as errors:
        kinds = {error.kind for error in errors.exceptions}
    print("queued", Sink.n, sorted(kinds), plotter.statistics().n_records, flush=True)
    """
    child = start(textwrap.dedent(body), wait="")
    line = next(line for line in child.stdout if line.startswith("queued"))
    assert line.split(" ", 1)[1].strip() == "2 ['OSError'] 2"
    assert [path for path in (tmp_path / "out").iterdir() if path.name.endswith((".pdf", ".part"))] == []


def test_a_figure_of_twenty_megabytes_is_kept(tmp_path):
    def noise(seed):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(27, 27), dpi=100)
        pixels = np.random.default_rng(seed).integers(0, 256, (2700, 2700, 3), np.uint8)
        figure.figimage(pixels)
        return figure

    with sg.init("large", dir=tmp_path) as run, Plotter(dpi=100) as plotter:
        plotter.plot(noise, 0, step=3)
    with sg.open(run.directory) as old:
        (record,) = old.series("noise")
    assert len(record.value.data) > 20e6


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no idle priority")
def test_the_child_draws_while_a_processor_has_nothing_else_to_do(monkeypatch, caught):
    monkeypatch.setenv("SIGHTGLASS_RENDERER_PRIORITY", "idle")

    def shows(x):
        raise ValueError(f"policy {os.sched_getscheduler(0)}")

    def waits_for(policy):
        from matplotlib.figure import Figure

        wait_until(lambda: os.sched_getscheduler(0) == policy, "the policy")
        return Figure(figsize=(1, 1))

    plotter = Plotter(sinks=[caught], on_error="ignore")
    plotter.plot(shows, 1, step=0)
    wait_until(lambda: plotter.statistics().n_errors)
    assert plotter.statistics().last_error.endswith(f"policy {os.SCHED_IDLE}")
    plotter.plot(waits_for, os.SCHED_OTHER, step=1)
    plotter.flush()  # as soon as somebody waits, it has its share
    plotter.plot(waits_for, os.SCHED_IDLE, step=2)
    wait_until(lambda: not plotter.statistics().n_waiting)
    plotter.close()
    assert caught.names[1:] == [("waits_for", 1), ("waits_for", 2)]
    assert plotter.statistics().n_started == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no idle priority")
def test_a_child_that_may_not_leave_the_idle_class_is_replaced_while_somebody_waits(monkeypatch, caught, tmp_path):
    """As for users who are not root."""
    monkeypatch.setenv("SIGHTGLASS_RENDERER_PRIORITY", "idle")

    def waits(path):
        from matplotlib.figure import Figure

        Path(path).write_text(str(os.sched_getscheduler(0)))
        wait_until(lambda: os.sched_getscheduler(0) == os.SCHED_OTHER, "the policy")
        return Figure(figsize=(1, 1))

    def refuse(*arguments):
        raise PermissionError

    plotter = Plotter(sinks=[caught])
    for step in range(20):
        plotter.plot(waits, str(tmp_path / "policy"), step=step)
    wait_until(lambda: (tmp_path / "policy").exists() and (tmp_path / "policy").read_text() == str(os.SCHED_IDLE))
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(SystemClock, "queued", staticmethod(lambda process: time.monotonic()))
    plotter.close()
    assert caught.names == [("waits", step) for step in range(20)]
    assert (plotter.statistics().n_started, plotter.statistics().n_errors) == (2, 0)


def test_a_figure_that_waits_for_a_processor_is_not_given_up(caught, monkeypatch):
    """A training may keep every processor busy for longer than a figure may take."""

    def slow(x):
        from matplotlib.figure import Figure

        time.sleep(2.0)
        return Figure(figsize=(1, 1))

    plotter = Plotter(sinks=[caught], limit_s=0.5)
    monkeypatch.setattr(SystemClock, "queued", staticmethod(lambda process: time.monotonic()))
    plotter.plot(slow, 1, step=0)
    plotter.close()
    assert caught.names == [("slow", 0)]
    assert plotter.statistics().n_started == 1


def test_figures_leave_nothing_behind_in_the_renderer(caught):
    psutil = pytest.importorskip("psutil")
    plotter = Plotter(sinks=[caught])
    sizes = {}

    def open_and_leave(x):
        import matplotlib.pyplot as plt

        assert plt.get_fignums() == []
        return plt.subplots(figsize=(2, 1))[0]

    for step in range(50):
        plotter.plot(open_and_leave, np.arange(20_000), step=step)
        if step in (20, 49):
            plotter.flush()
            sizes[step] = psutil.Process(pid_of(plotter)).memory_info().rss
    plotter.close()
    assert len(caught.records) == 50
    assert sizes[49] < 1.1 * sizes[20]
