"""Orders of figures: what is refused at the call, what is counted, what waits for what, and for how long."""

from __future__ import annotations

import ast
import errno
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.errors import FigureErrors, UnknownNameError
from sightglass.figures import Plotter, child_process, closures, figure_files, render_job, render_queue
from sightglass.figures.snapshot import PendingTransfer

from .simulated import simulate

FIGURES = Path(figure_files.__file__).parent
SURROGATE = "a\ud800"


def draw(x=(1, 2)):
    from matplotlib.figure import Figure

    return Figure(figsize=(0.5, 0.5))


# Refused at the call


@pytest.mark.parametrize(
    "step", [10**20, -(2**63) - 1, 2**63, 10**5000], ids=["20 digits", "below", "above", "5,000 digits"]
)
@pytest.mark.parametrize("renderer", ["process", "thread", "inline"])
def test_a_step_beyond_64_bits_is_refused_and_nothing_waits(renderer, step, caught):
    plotter = Plotter(draw, sinks=[caught], renderer=renderer)
    for call in (plotter.plot, plotter.submit):
        with pytest.raises(ValueError, match="64 bits"):
            call(draw, step=step)
    assert plotter.statistics().n_events == plotter.statistics().n_waiting == 0
    plotter.close()


def test_a_name_that_cannot_be_encoded_is_refused_and_nothing_waits(caught):
    plotter = Plotter(sinks=[caught])
    with pytest.raises(ValueError, match=r"'a.ud800'"):
        plotter.plot(draw, step=0, name=SURROGATE)
    with pytest.raises(TypeError, match="got int 3"):
        plotter.plot(draw, step=0, name=3)
    with pytest.raises(UnknownNameError, match="'drop'"):
        plotter.plot(draw, step=0, on_full="drop")
    assert plotter.statistics().n_events == 0
    plotter.close()


def test_misuse_of_a_run_raises_and_the_run_ends(tmp_path):
    with sg.init("job", dir=tmp_path) as run:
        for name, step in (("a", 10**20), (SURROGATE, 1)):
            with pytest.raises(ValueError, match="Expected a"):
                run.figure(name, draw, step=step)
        with pytest.raises(TypeError, match="step"):
            run.figure("a", draw, step="1")
        run.figure("a", draw, [1, 2])
    with sg.open(run.directory) as old:
        assert [(record.tag, record.step) for record in old.series("a")] == [("a", 0)]


def test_no_folder_has_a_name_that_no_file_system_takes():
    with pytest.raises(UnicodeEncodeError):
        Plotter(save=True, save_dir=SURROGATE)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_of_folders_that_are_not_utf_8_are_no_obstacle(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    script = """
import os
from sightglass.figures import Plotter
def draw():
    from matplotlib.figure import Figure
    return Figure(figsize=(1, 1))
def fail():
    raise ValueError(__file__)
plotter = Plotter(save=True, save_dir=os.path.dirname(__file__), sinks=[], on_error="ignore")
draw.__qualname__ = "caf\\ud800"
plotter.plot(draw, step=1)
plotter.plot(fail, step=1)
plotter.plot(lambda: {"\\ud800": draw()}, step=1)
plotter.close()
counts = plotter.statistics()
print(counts.n_records, counts.n_errors, counts.n_waiting, counts.n_started)
"""
    path = os.path.join(folder, "train.py")
    Path(path).write_text(script)
    done = subprocess.run([sys.executable, path], capture_output=True, timeout=100, check=True)
    assert done.stdout.split() == [b"1", b"2", b"0", b"1"], done.stderr.decode(errors="replace")
    assert (Path(folder) / "draw_step1.pdf").exists()


# Counted


def test_arguments_that_contain_themselves_are_counted_and_nothing_waits(caught):
    endless = []
    endless.append(endless)
    plotter = Plotter(sinks=[caught], renderer="inline", on_error="ignore")
    plotter.plot(draw, endless, step=0)
    plotter.plot(draw, step=1)
    counts = plotter.statistics()
    assert (counts.n_events, counts.n_errors, counts.n_waiting, caught.names) == (2, 1, 0, [("draw", 1)])


@pytest.mark.parametrize("large", [
    np.zeros(2**20), [0.5] * 2**20, b"x" * 2**23, {"nested": (np.zeros(2**20)[::2],)},
], ids=["array", "list", "bytes", "strided"])  # fmt: skip
def test_a_closure_over_a_large_array_is_counted_and_says_what_to_write(caught, large):
    plotter = Plotter(sinks=[caught])
    with pytest.raises(FigureErrors) as errors:
        plotter.plot(lambda: draw(large), step=0, name="closure")
    assert "holds at most 4,194,304 bytes, got tests.figures.test_orders:" in str(errors.value.exceptions[0])
    assert "as arguments" in str(errors.value.exceptions[0])
    assert (plotter.statistics().n_waiting, plotter.statistics().n_here) == (0, 0)
    plotter.close()


def test_what_a_closure_holds_takes_room(monkeypatch, caught):
    plotter, _ = simulate(monkeypatch, kind="process", sinks=[caught], max_bytes=100_000, on_full="drop_new")
    held = np.zeros(5_000)
    for step in range(5):
        plotter.plot(lambda: draw(held), step=step)
    assert (plotter.statistics().n_waiting, plotter.statistics().n_dropped) == (2, 3)


def test_pickling_stops_at_the_limit():
    file = closures._BoundedFile()
    with pytest.raises(OverflowError):
        file.look(np.zeros(2**20))
    file = closures._BoundedFile()
    file.write(bytes(closures.MAX_PICKLED_BYTES))
    with pytest.raises(OverflowError):
        file.write(b"x")
    assert sum(map(len, file.parts)) <= closures.MAX_PICKLED_BYTES


def test_a_disk_that_takes_nothing_is_one_failure_of_each_figure(tmp_path, caught):
    (tmp_path / "file").write_text("")
    plotter = Plotter(
        save=["pdf", "png"], save_dir=tmp_path / "file/x", sinks=[caught], renderer="inline", on_error="ignore"
    )
    plotter.plot(draw, step=0)
    plotter.plot(lambda: {"a": draw(), "b": draw()}, step=1)
    counts = plotter.statistics()
    assert (counts.n_errors, counts.n_records, counts.n_files) == (3, 3, 0)


# Deadlines


def test_a_late_close_reports_each_figure_once_by_its_name(monkeypatch):
    plotter, renderer = simulate(monkeypatch)
    for step in range(4):
        plotter.plot(draw, step=step, name="it's")
    renderer.jobs[0].hangs = True
    with pytest.raises(FigureErrors, match="4 could not") as errors:
        plotter.close(1.0)
    assert [(error.figure, error.step) for error in errors.value.exceptions] == [("it's", step) for step in range(4)]
    counts = plotter.statistics()
    assert (counts.n_errors, counts.n_waiting) == (0, 4)  # they may still be drawn
    assert renderer.clock.now_s <= 1.5


@pytest.mark.parametrize("end", ["flush", "close", "drain"])
def test_a_renderer_that_never_answers_is_waited_for_until_the_deadline(monkeypatch, end):
    plotter, renderer = simulate(monkeypatch, limit_s=10.0, on_error="ignore")
    renderer.limit_s = float("inf")
    plotter.plot(lambda: "hangs", step=0)
    plotter.plot(draw, step=1)
    {"flush": plotter.flush, "close": plotter.close, "drain": lambda: plotter._queue.wait(None)}[end]()
    assert plotter.statistics().n_waiting == 2
    assert renderer.clock.now_s < 3 * (10.0 + 60.0)


def test_waiting_goes_on_while_figures_are_finished(monkeypatch, caught):
    plotter, renderer = simulate(monkeypatch, sinks=[caught], limit_s=10.0, on_full="replace")
    renderer.seconds = 9.0
    for step in range(40):
        plotter.plot(draw, step=step, name=f"n{step}")
    plotter.flush()
    assert len(caught.records) == 40
    assert renderer.clock.now_s >= 360


def test_no_figure_waits_for_room_or_is_lost_and_all_come_in_order(monkeypatch, caught, tmp_path):
    plotter, renderer = simulate(monkeypatch, sinks=[caught], max_jobs=1, max_bytes=300_000, save_dir=tmp_path)
    closed = []
    for step in range(20):
        held = np.full(1_000, step)
        plotter.plot(
            lambda x, held=held: closed.append((int(x[0]), int(held[0]))) or draw(), np.full(20_000, step), step=step
        )
        renderer.finish(step % 3 == 2)
    assert renderer.clock.now_s == 0
    assert plotter.statistics().n_waiting == 14
    plotter.close()
    assert [step for _, step in caught.names] == list(range(20))
    assert closed == [(step, step) for step in range(20)]
    assert plotter.statistics().n_dropped == plotter.statistics().n_waiting == 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")]


def test_arrays_of_a_device_come_in_order_too(monkeypatch, caught):
    plotter, _ = simulate(monkeypatch, sinks=[caught], max_jobs=1)
    monkeypatch.setattr(render_queue, "start_transfer", lambda value: OnDevice(value) if value[0] % 2 else value)
    for step in range(8):
        plotter.plot(first, step, step=step, name="a")
    wait_until(lambda: not plotter._queue._transferring)
    plotter.close()
    assert caught.names == [("a", step) for step in range(8)]


class OnDevice(PendingTransfer):
    def __init__(self, value):
        super().__init__(value, ())

    def read(self):
        return self.value


def first(step):
    return draw()


def test_a_full_disk_drops_the_newest_and_warns_once(monkeypatch, caught):
    plotter, _ = simulate(monkeypatch, sinks=[caught], max_jobs=1)
    full = [True]

    class Disk:
        def __init__(self, **options):
            self.file = io.BytesIO()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, view):
            if full[0]:
                self.file.write(view[:3])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(view[:100])  # as a raw file may

    monkeypatch.setattr(render_job.tempfile, "TemporaryFile", Disk)
    with pytest.warns(RuntimeWarning) as told:  # noqa: PT031
        for step in range(6):
            plotter.plot(draw, step=step)
    assert [str(one.message)[:50] for one in told] == ["Figures are dropped: there is no room in memory, a"]
    assert plotter.statistics().n_dropped == 4
    full[0] = False
    for step in range(6, 9):
        plotter.plot(draw, step=step)
    plotter.close()
    assert [step for _, step in caught.names] == [0, 1, 6, 7, 8]
    assert plotter.statistics().n_dropped == 4


def test_a_wait_of_five_seconds_says_for_what(monkeypatch):
    plotter, renderer = simulate(monkeypatch)
    renderer.seconds = 4.0
    for step in range(4):
        plotter.plot(draw, step=step)
    with pytest.warns(RuntimeWarning, match="Waiting for 3 figures") as told:
        plotter.close()
    assert len(told) == 1


def test_a_thread_that_hangs_costs_its_own_figure_only(caught):
    began, go_on = threading.Event(), threading.Event()

    def hang():
        began.set()
        go_on.wait(60.0)
        return draw()

    plotter = Plotter(sinks=[caught], renderer="thread", on_error="ignore")
    plotter.plot(hang, step=0)
    for step in range(1, 4):
        plotter.plot(draw, step=step)
    assert began.wait(60.0)
    plotter._queue._renderers[0]._since_s -= 1e6
    plotter.close()
    go_on.set()
    assert caught.names == [("draw", step) for step in (1, 2, 3)]
    assert "Figure 'hang' at step 0: Not drawn: took longer than 120 s" in plotter.statistics().last_error
    assert plotter.statistics().n_waiting == 0


UNENDING = """
import threading
import matplotlib.figure
from sightglass.figures import Plotter
plotter = Plotter(renderer="thread", limit_s=1.0, on_error="warn", sinks=[])
plotter.plot(lambda: threading.Event().wait(), step=0)
"""


def test_the_exit_does_not_wait_for_a_thread_that_hangs():
    done = subprocess.run([sys.executable, "-c", UNENDING], timeout=60, capture_output=True, text=True, check=True)
    assert "took longer than 1 s" in done.stderr


def wait_for(path):
    wait_until(lambda: os.path.exists(path))
    return draw()


def test_two_figures_that_hang_cost_the_others_nothing_and_end(tmp_path, caught, monkeypatch):
    monkeypatch.setattr(child_process, "HUNG_S", 0.1)
    plotter = Plotter(sinks=[caught], on_error="ignore", limit_s=3.0)
    for step in range(2):
        plotter.plot(wait_for, str(tmp_path / "never"), step=step)
        plotter.plot(draw, step=step)
    plotter.close()
    assert sorted(caught.names) == [("draw", 0), ("draw", 1), ("wait_for", 0), ("wait_for", 1)]  # two of them cards
    counts = plotter.statistics()
    assert (counts.n_errors, counts.n_waiting) == (2, 0)
    assert "took longer than" in counts.last_error


WAITS = {"wait", "join", "acquire", "communicate", "synchronize", "get"}
UNBOUNDED = {
    ("renderer.py", "wait"),  # in the child, which the end of its pipe wakes
    ("renderer.py", "get"),
    ("snapshot.py", "synchronize"),  # CUDA has no timeout; on a thread of its own, for which others wait with one
}


def test_no_wait_of_figures_is_without_a_deadline():
    found = set()
    for path in FIGURES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in WAITS:
                    found.add((path.name, name))
    assert found == UNBOUNDED


# Room


def test_the_newest_of_each_name_is_drawn_and_every_name_has_its_turn(monkeypatch, caught):
    plotter, renderer = simulate(monkeypatch, sinks=[caught], on_full="replace", max_jobs=2)
    names = [f"n{i}" for i in range(10)]
    for step in range(20):
        for name in names:
            plotter.plot(draw, step=step, name=name)
        renderer.finish(2)
    assert renderer.clock.now_s == 0
    plotter.close()
    drawn = {name: [at for tag, at in caught.names if tag == name] for name in names}
    assert all(steps[-1] == 19 for steps in drawn.values())
    assert all(3 <= len(steps) <= 7 for steps in drawn.values()), drawn
    counts = plotter.statistics()
    assert (counts.n_events, counts.n_records + counts.n_dropped) == (200, 200)


def test_what_a_call_promised_is_kept_when_others_replace(monkeypatch, caught):
    plotter, _ = simulate(monkeypatch, sinks=[caught], on_full="replace", max_jobs=1)
    for step in range(4):
        plotter.plot(draw, step=step, name="a")
    with pytest.raises(UnknownNameError):
        plotter.plot(draw, step=4, name="a", on_full="drop_newest")
    plotter.plot(draw, step=5, name="a", on_full="drop_new")
    plotter.plot(draw, step=6, name="a", on_full="spill")
    for step in range(7, 10):
        plotter.plot(draw, step=step, name="a")
    plotter.close()
    steps = [step for _, step in caught.names]
    assert {6, 9} <= set(steps)
    assert 5 not in steps


def test_newer_figures_find_room_in_bytes(monkeypatch, caught):
    plotter, _ = simulate(monkeypatch, sinks=[caught], on_full="replace", max_bytes=1_000_000)
    for step in range(20):
        plotter.plot(draw, np.zeros(40_000), step=step)
    plotter.close()
    assert caught.names == [("draw", 0), ("draw", 19)]
    assert plotter.statistics().n_dropped == 18


def test_names_without_end_are_bounded(monkeypatch, caught):
    plotter, _ = simulate(monkeypatch, sinks=[caught], on_full="replace")
    for step in range(1_000):
        plotter.plot(draw, step=step, name=f"n{step}")
    counts = plotter.statistics()
    assert counts.n_waiting < 300
    assert counts.n_waiting + counts.n_dropped == 1_000


def test_a_run_never_waits_for_its_figures_and_says_what_it_dropped(tmp_path):
    with pytest.warns(RuntimeWarning, match="dropped|faster") as warned, sg.init("job", dir=tmp_path) as run:  # noqa: PT031
        for step in range(30):
            run.figure("slow", wait_for, str(tmp_path / "go"), step=step)
        run.figure("other", draw, step=0)
        (tmp_path / "go").touch()
    with sg.open(run.directory) as old:
        assert [int(step) for step in old.series("slow").steps] == [*range(9), 29]
        assert len(old.series("other")) == 1
    coming, dropped = (text for one in warned if "Waiting" not in (text := str(one.message)))  # of a busy machine
    assert "on_full='spill'" in coming
    assert "20 of 31 figures" in dropped
