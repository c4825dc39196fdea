"""What the desk takes, drops and counts; who draws at all; options that are none. Its renderer does as it is told."""

from __future__ import annotations

import subprocess
import sys
import threading

import msgspec
import numpy as np
import pytest

from sightglass.core.errors import FigureErrors, UnknownNameError
from sightglass.figures import Plotter, no_plot
from sightglass.figures import render_queue as desks
from sightglass.figures.figure_files import FigureFileNames, at_step, read_about, read_inputs, safe
from sightglass.figures.messages import DrawFinished
from sightglass.figures.snapshot import PAGE, Arena, Snapshot


class Puppet:
    """A renderer that draws when the test says so."""

    def __init__(self, finished):
        self.finished = finished
        self.jobs = []
        self.put_ids = []
        self.n_checks = 0
        self.when_checked = lambda: None

    def put(self, job):
        self.jobs.append(job)
        self.put_ids.append(job.order.step)

    def draw(self):
        job = self.jobs.pop(0)
        self.finished(job, DrawFinished(id=job.order.id, names=["x"], cards=[False]), {"x": b"png"})

    def check(self):
        self.n_checks += 1
        self.when_checked()

    def close(self, timeout_s):
        return True

    def abandon(self):
        pass


@pytest.fixture
def make(monkeypatch, caught):
    """Return a function that makes a plotter, and its puppet."""

    def make(**options):
        monkeypatch.setattr(desks, "InlineRenderer", Puppet)
        plotter = Plotter(**{"renderer": "inline", "sinks": [caught], **options})
        plotter._desk._begin()
        return plotter, plotter._desk._main

    return make


def draw():
    raise AssertionError("the puppet does not draw")


def test_one_in_work_and_eight_waiting_are_taken_at_once_and_the_next_one_waits(make, caught):
    plotter, puppet = make()
    for step in range(9):
        plotter.plot(draw, step=step)
    assert puppet.n_checks == 0
    puppet.when_checked = puppet.draw  # room comes while it waits
    plotter.plot(draw, step=9)
    assert puppet.n_checks == 1
    assert puppet.put_ids == list(range(10))
    while puppet.jobs:
        puppet.draw()
    plotter.close()
    assert [record.step for record in caught.records] == list(range(10))
    assert plotter.statistics().n_dropped == 0


def test_a_wait_for_room_ends(make):
    plotter, puppet = make(max_jobs=1, limit_s=0.01)
    for step in range(2):
        plotter.plot(draw, step=step)
    with pytest.raises(FigureErrors, match="'draw'") as errors:
        plotter.plot(draw, step=2)
    assert "Figure 'draw' at step 2: Not drawn: no room within 0.01 s" in str(errors.value.exceptions[0])
    assert plotter.statistics().n_dropped == 1
    while puppet.jobs:
        puppet.draw()


def test_the_oldest_that_waits_is_dropped(make, caught):
    plotter, puppet = make(on_full="drop_oldest", max_jobs=3)
    for step in range(8):
        plotter.plot(draw, step=step)
    while puppet.jobs:
        puppet.draw()
    assert [record.step for record in caught.records] == [0, 1, 6, 7]
    told = plotter.statistics()
    assert (told.n_submitted, told.n_drawn, told.n_dropped) == (8, 4, 4)


def test_the_newest_is_dropped(make, caught):
    plotter, puppet = make(on_full="drop_new", max_jobs=3)
    for step in range(8):
        plotter.plot(draw, step=step)
    while puppet.jobs:
        puppet.draw()
    assert [record.step for record in caught.records] == [0, 1, 2, 3]
    assert plotter.statistics().n_dropped == 4


@pytest.mark.parametrize("on_full", ["drop_new", "drop_oldest"])
def test_bytes_are_limited_too(make, on_full):
    plotter, puppet = make(on_full=on_full, max_bytes=100_000)
    for step in range(5):
        plotter.plot(draw, np.zeros(5_000), step=step)
    told = plotter.statistics()
    assert (told.n_waiting, told.n_dropped) == (2, 3)
    while puppet.jobs:
        puppet.draw()
    plotter.plot(draw, np.zeros(5_000), step=6)
    assert plotter.statistics().n_waiting == 1
    with pytest.raises(FigureErrors, match="draw") as errors:
        plotter.plot(draw, np.zeros(20_000), step=7)
    assert "Expected at most 100,000 bytes to draw from, got 160,000" in str(errors.value.exceptions[0])
    puppet.draw()


def test_many_threads(make, caught):
    plotter, puppet = make(max_jobs=1000)
    threads = [threading.Thread(target=lambda: [plotter.plot(draw, step=s) for s in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while puppet.jobs:
        puppet.draw()
    plotter.close()
    assert len(caught.records) == 200
    assert len({id(record) for record in caught.records}) == 200


def test_what_cannot_travel_is_told(make):
    plotter, _ = make()
    with pytest.raises(FigureErrors) as errors:
        plotter.plot(draw, {"a": {"b": object()}}, step=1)
    assert "got object at $[0].a.b" in str(errors.value.exceptions[0])
    assert plotter.statistics().n_waiting == 0


@pytest.mark.parametrize("step", [None, "3", True, np.zeros(2), [1]])
def test_steps_are_numbers(make, step):
    plotter, _ = make()
    with pytest.raises(TypeError, match="Expected a number as the step"):
        plotter.plot(draw, step=step)
    with pytest.raises(TypeError, match="Expected a function that draws, got int"):
        plotter.plot(3, step=1)


# Who draws


def test_without_an_override_nothing_is_looked_at_imported_or_started():
    class Untouchable(dict):
        def __getattribute__(self, name):
            raise AssertionError("looked at")

    class Base:
        plot = staticmethod(no_plot)

    for plotter in (Plotter(), Plotter(Base)):
        plotter.submit(Untouchable(), 0)
        plotter.flush()
        plotter.close()
        assert plotter._desk._main is None
        assert plotter._desk._arena is None
    script = (
        "import sys, threading\nfrom sightglass.figures import Plotter\np = Plotter()\n"
        "p.submit({'a': 1}, 0)\np.close()\n"
        "assert not {'matplotlib', 'seaborn', 'wandb', 'PIL', 'cloudpickle', 'yaml', 'jax', 'torch'} & {*sys.modules}\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


@pytest.mark.parametrize("environment", [
    {"RANK": "1", "WORLD_SIZE": "2"}, {"SIGHTGLASS_MODE": "disabled"}, {"PMI_RANK": "3", "PMI_SIZE": "4"},
])  # fmt: skip
def test_only_the_main_process_draws(make, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plotter, puppet = make()
    plotter.plot(draw, step=0)
    plotter.log({"x": 1}, 0)
    plotter._function = draw
    plotter.submit({}, 0)
    assert not puppet.jobs
    plotter.close()
    plotter.submit({}, 0)  # closed, and still nothing: other ranks must not fail where rank 0 does not


# Options


@pytest.mark.parametrize(("options", "told"), [
    ({"renderer": "proces"}, "Did you mean 'process'"),
    ({"on_full": "drop"}, "Unknown on_full 'drop'"),
    ({"on_error": "rise"}, "Did you mean 'raise'"),
    ({"save": "pfd"}, "Did you mean 'pdf'"),
    ({"look": "drak"}, "Did you mean 'dark'"),
    ({"look": {"styel": "dark"}}, "Did you mean 'style'"),
    ({"look": {"context": "tlak"}}, "Did you mean 'talk'"),
])  # fmt: skip
def test_options_that_are_none_name_their_neighbours(options, told):
    with pytest.raises(UnknownNameError, match=told):
        Plotter(**options)


@pytest.mark.parametrize("options", [{"dpi": 0}, {"max_jobs": -1}, {"max_bytes": "1"}, {"limit_s": True}])
def test_numbers_are_above_zero(options):
    with pytest.raises(ValueError, match="Expected a number above 0"):
        Plotter(**options)


@pytest.mark.parametrize(("config", "told"), [
    ({"logging": {"plots": {"sav": True}}}, "Unknown option 'sav' under logging.plots in .* Did you mean 'save'"),
    ({"logging": {"plot": {"save": True}}}, "Did you mean 'plots'"),
    ({"logging": {"plots": {"save": 3}}}, "Expected bool or str or list as logging.plots.save"),
    ({"logging": {"plots": {"max_jobs": True}}}, "Expected int as logging.plots.max_jobs"),
    ({"logging": []}, "Expected a mapping as logging"),
    ({"cluster": {"root": ["/"]}}, "Expected text as cluster.root"),
])  # fmt: skip
def test_configurations_that_are_none(config, told):
    with pytest.raises((UnknownNameError, ValueError), match=told):
        Plotter.from_config(config)


def test_configurations(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", str(tmp_path))
    tree = {
        "cluster": {"root": "$PLACE", "nodes": 4}, "project": "p", "group": None, "run_name": 7, "optimizer": {"lr": 1},
        "logging": {"plots": {"save": ["svg"], "max_jobs": 2, "look": {"style": "paper"}}, "level": "info"},
    }  # fmt: skip
    plotter = Plotter.from_config(tree, on_error="warn")
    assert plotter._folder == tmp_path / "p/7"
    assert plotter._output.formats == ("svg",)
    assert (plotter._output.look.style, plotter._desk._n_jobs, plotter._desk._on_error) == ("paper", 2, "warn")
    file = tmp_path / "c.yaml"
    file.write_text("")
    assert Plotter.from_config(file)._folder is None
    for text in ("- a\n", "a: ]\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"c\.yaml"):
            Plotter.from_config(str(file))


# Parts


def test_an_arena_lends_what_is_free_and_merges_what_comes_back():
    arena = Arena(4 * PAGE)
    lent = [arena.take(PAGE) for _ in range(4)]
    assert [region.start for region in lent] == [0, PAGE, 2 * PAGE, 3 * PAGE]
    assert arena.take(1) is None
    for region in (lent[2], lent[0], lent[1]):
        arena.give_back(region.start, region.size)
    assert arena.take(3 * PAGE).start == 0
    arena.close()


def test_a_snapshot_without_room_in_the_arena_is_held_here():
    arena = Arena(PAGE)
    value = {"x": np.arange(2_000.0), "y": np.arange(3_000, dtype=np.int8)}
    for snapshot in (Snapshot(value, arena), Snapshot({"x": np.arange(600.0)[:, None]}, arena)):
        assert all(at == -1 for at, _ in snapshot.spans) == bool(snapshot.in_band)
        sizes = [size for _, size in snapshot.spans]
        assert [len(memoryview(buffer)) for buffer in snapshot.buffers()] == sizes
        snapshot.release()
    arena.close()


def test_names_of_files():
    names = FigureFileNames()
    assert [names.stem(name) for name in ("a/b", "c", "a/b")] == ["a_b", "c", "a_b"]
    assert names.stem("a_b").startswith("a_b-")
    assert names.stem("A/B") != names.stem("a/b")  # on file systems that do not tell them apart
    for odd in ("", "..", "/", "a\0b", "con:", "x" * 400, "ü/ö", "\ud800"):
        stem = safe(odd)
        assert stem
        assert not set(stem) & set("/\\\0:")
        assert not stem.startswith(".")
        assert len(stem.encode()) <= 150
    assert at_step("a", 4096.0, "pdf") == "a_step4096.pdf"


def test_inputs_come_back_as_they_were(tmp_path, caught):
    from .test_renderers import line

    value = {
        "plots": {"A/B": (np.arange(3), [1, 2.5, float("inf")]), "file": np.float32(2), "../x": 1j},
        "order": np.zeros((0, 2)),
        "text": "é", "none": None, "yes": True,
    }  # fmt: skip
    with Plotter(lambda data: {"x": line([1])}, save_dir=tmp_path, sinks=[caught], renderer="inline") as plotter:
        plotter.submit(value, 3)
    about, (back,) = read_inputs(tmp_path / "x_step3.npz")
    assert repr(back) == repr(value)
    assert about == read_about(tmp_path / "x_step3.npz")
    assert (about.step, about.figures) == (3, ["x"])
    assert msgspec.to_builtins(about.look)["style"] == "light"
