"""What the render queue takes, drops and counts; which processes draw; invalid options. A test steps its renderer."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import msgspec
import numpy as np
import pytest

from sightglass.core.codec import encode
from sightglass.core.errors import FigureErrors, UnknownNameError
from sightglass.figures import Plotter, figure_files, no_plot, render_queue
from sightglass.figures.figure_files import at_step, file_stem, read_about, read_inputs, safe
from sightglass.figures.messages import DrawFinished
from sightglass.figures.snapshot import PAGE, Arena, Snapshot

pytestmark = pytest.mark.smoke


class SteppedRenderer:
    """A renderer that draws when the test calls `draw`."""

    lack, n_started = "", 0

    def __init__(self, finished, *, limit_s, at_once):
        self.finished = finished
        self.jobs = []
        self.put_ids = []
        self.n_checks = 0
        self.when_checked = lambda: None

    def put(self, job):
        self.jobs.append(job)
        self.put_ids.append(job.message.step)
        return True

    def draw(self):
        job = self.jobs.pop(0)
        self.finished(job, DrawFinished(id=job.message.id, names=["x"], cards=[False]), {"x": b"png"})

    def end_overdue(self):
        pass

    def check(self):
        self.n_checks += 1
        self.when_checked()

    def close(self, timeout_s):
        return True

    def abandon(self):
        pass


@pytest.fixture
def make(monkeypatch, caught):
    """Return a function that makes a plotter with a stepped renderer."""

    def make(**options):
        monkeypatch.setattr(render_queue, "LocalRenderer", SteppedRenderer)
        plotter = Plotter(**{"renderer": "inline", "sinks": [caught], **options})
        return plotter, plotter._queue._start()[0]

    return make


def draw():
    raise AssertionError("the stepped renderer calls no function")


def test_one_drawn_and_eight_waiting_jobs_fit_and_the_next_waits_elsewhere(make, caught):
    plotter, renderer = make()
    for step in range(12):
        plotter.plot(draw, step=step)
    assert renderer.n_checks == 0
    assert renderer.put_ids == list(range(9))
    assert len(plotter._queue._backlog.outside) == 3
    while renderer.jobs:
        renderer.draw()
    plotter.close()
    assert renderer.put_ids == list(range(12))
    assert [record.step for record in caught.records] == list(range(12))
    assert plotter.statistics().n_dropped == 0


@pytest.mark.parametrize(("on_full", "drawn"), [("drop_oldest", [0, 1, 6, 7]), ("drop_new", [0, 1, 2, 3])])
def test_a_full_queue_drops_the_job_that_waited_longest_or_the_new_one(make, caught, on_full, drawn):
    plotter, renderer = make(on_full=on_full, max_jobs=3)
    for step in range(8):
        plotter.plot(draw, step=step)
    while renderer.jobs:
        renderer.draw()
    assert [record.step for record in caught.records] == drawn
    counts = plotter.statistics()
    assert (counts.n_events, counts.n_records, counts.n_dropped) == (8, 4, 4)


def test_a_job_that_cannot_be_handed_over_is_counted_and_forgotten(make, caught):
    plotter, renderer = make(on_error="ignore")
    put = renderer.put

    def fail(job):
        if job.message.step == 1:
            raise SystemExit(3)
        return put(job)

    renderer.put = fail
    for step in range(3):
        plotter.plot(draw, step=step)
    renderer.draw()
    renderer.draw()
    counts = plotter.statistics()
    assert ([step for _, step in caught.names], counts.n_errors, counts.n_waiting) == ([0, 2], 1, 0)


@pytest.mark.parametrize("on_full", ["drop_new", "drop_oldest"])
def test_the_queue_is_bounded_in_bytes(make, on_full):
    plotter, renderer = make(on_full=on_full, max_bytes=100_000)
    for step in range(5):
        plotter.plot(draw, np.zeros(5_000), step=step)
    counts = plotter.statistics()
    assert (counts.n_waiting, counts.n_dropped) == (2, 3)
    while renderer.jobs:
        renderer.draw()
    plotter.plot(draw, np.zeros(5_000), step=6)
    assert plotter.statistics().n_waiting == 1
    with pytest.raises(FigureErrors, match="draw") as errors:
        plotter.plot(draw, np.zeros(20_000), step=7)
    assert "100,000 bytes to draw from, got 160,000" in str(errors.value.exceptions[0])
    renderer.draw()


def test_many_threads_can_submit(make, caught):
    plotter, renderer = make(max_jobs=1000)
    threads = [threading.Thread(target=lambda: [plotter.plot(draw, step=s) for s in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while renderer.jobs:
        renderer.draw()
    plotter.close()
    assert len(caught.records) == 200
    assert len({id(record) for record in caught.records}) == 200


def test_arguments_that_cannot_be_encoded_fail(make):
    plotter, _ = make()
    with pytest.raises(FigureErrors) as errors:
        plotter.plot(draw, {"a": {"b": object()}}, step=1)
    assert "got object at $[0].a.b" in str(errors.value.exceptions[0])
    assert plotter.statistics().n_waiting == 0


@pytest.mark.parametrize("step", [None, "3", True, np.zeros(2), [1]])
def test_steps_are_numbers(make, step):
    plotter, _ = make()
    with pytest.raises(TypeError, match="step"):
        plotter.plot(draw, step=step)
    with pytest.raises(TypeError, match="got int"):
        plotter.plot(3, step=1)


# Which processes draw


def test_without_an_override_nothing_is_read_imported_or_started():
    class Untouchable(dict):
        def __getattribute__(self, name):
            raise AssertionError("read")

    class Base:
        plot = staticmethod(no_plot)

    for plotter in (Plotter(), Plotter(Base)):
        plotter.submit(Untouchable(), 0)
        plotter.flush()
        plotter.close()
        assert not plotter._queue._renderers
        assert plotter._queue._arena is None
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
    plotter, renderer = make()
    plotter.plot(draw, step=0)
    plotter.log({"x": 1}, 0)
    plotter._function = draw
    plotter.submit({}, 0)
    assert not renderer.jobs
    plotter.close()
    plotter.submit({}, 0)  # closed, and still nothing: other ranks must not fail where rank 0 does not


# Options


@pytest.mark.parametrize(("options", "message"), [
    ({"renderer": "proces"}, "'process'"),
    ({"on_full": "drop"}, "'drop'"),
    ({"on_error": "rise"}, "'raise'"),
    ({"save": "pfd"}, "'pdf'"),
    ({"theme": "drak"}, "'dark'"),
    ({"theme": {"styel": "dark"}}, "'style'"),
    ({"theme": {"context": "tlak"}}, "'talk'"),
])  # fmt: skip
def test_unknown_option_values_suggest_the_nearest(options, message):
    with pytest.raises(UnknownNameError, match=message):
        Plotter(**options)


@pytest.mark.parametrize("options", [{"dpi": 0}, {"max_jobs": -1}, {"max_bytes": "1"}, {"limit_s": True}])
def test_numbers_are_above_zero(options):
    with pytest.raises(ValueError, match="above 0"):
        Plotter(**options)


@pytest.mark.parametrize(("config", "message"), [
    ({"logging": {"plots": {"sav": True}}}, "'sav' under logging.plots in .*'save'"),
    ({"logging": {"plot": {"save": True}}}, "'plots'"),
    ({"logging": {"plots": {"save": 3}}}, "list as logging.plots.save"),
    ({"logging": {"plots": {"max_jobs": True}}}, "int as logging.plots.max_jobs"),
    ({"logging": []}, "mapping as logging"),
    ({"cluster": {"root": ["/"]}}, "text as cluster.root"),
])  # fmt: skip
def test_invalid_configurations_are_refused(config, message):
    with pytest.raises((UnknownNameError, ValueError), match=message):
        Plotter.from_config(config)


def test_configurations_set_options(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", str(tmp_path))
    tree = {
        "cluster": {"root": "$PLACE", "nodes": 4}, "project": "p", "group": None, "run_name": 7, "optimizer": {"lr": 1},
        "logging": {"plots": {"save": ["svg"], "max_jobs": 2, "theme": {"style": "paper"}}, "level": "info"},
    }  # fmt: skip
    plotter = Plotter.from_config(tree, on_error="warn")
    assert plotter._folder == tmp_path / "p/7"
    assert plotter._output.formats == ("svg",)
    assert (plotter._output.theme.style, plotter._queue._backlog._n_jobs, plotter._queue.failures.on_error) == (
        "paper",
        2,
        "warn",
    )
    file = tmp_path / "c.yaml"
    file.write_text("")
    assert Plotter.from_config(file)._folder is None
    for text in ("- a\n", "a: ]\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"c\.yaml"):
            Plotter.from_config(str(file))


# Parts


def test_an_arena_reuses_and_merges_free_regions():
    arena = Arena(4 * PAGE)
    lent = [arena.take(PAGE) for _ in range(4)]
    assert [region.start for region in lent] == [0, PAGE, 2 * PAGE, 3 * PAGE]
    assert arena.take(1) is None
    for region in (lent[2], lent[0], lent[1]):
        arena.give_back(region.start, region.size)
    assert arena.take(3 * PAGE).start == 0
    arena.close()


def test_a_snapshot_without_room_in_the_arena_is_held_in_this_process():
    arena = Arena(PAGE)
    value = {"x": np.arange(2_000.0), "y": np.arange(3_000, dtype=np.int8)}
    for snapshot in (Snapshot(encode(value), arena), Snapshot(encode({"x": np.arange(600.0)[:, None]}), arena)):
        assert all(at == -1 for at, _ in snapshot.spans) == bool(snapshot.in_band)
        sizes = [size for _, size in snapshot.spans]
        assert [len(memoryview(buffer)) for buffer in snapshot.buffers()] == sizes
        snapshot.release()
    arena.close()


def test_file_names_are_safe(tmp_path):
    for odd in ("", "..", "/", "a\0b", "con:", "x" * 400, "ü/ö", "\ud800"):
        for stem in (safe(odd), file_stem(odd, tmp_path)):
            assert stem
            assert not set(stem) & set("/\\\0:")
            assert not stem.startswith(".")
            assert len(stem.encode()) <= 160
    assert at_step("a", 4096.0, "pdf") == "a_step4096.pdf"


NAMES = ("a/b", "a_b", "a:b", "A/b", "a b", "a//b", ".a/b", "a/b_c", "a/b/c", "a_b_c", "a_b/c", "x" * 300, "x" * 301,
         "loss", ".loss", "loss.", "", "figure", "\ud800", "_")  # fmt: skip


def test_files_have_digits_only_where_two_names_of_a_folder_meet(tmp_path):
    usual = {"loss": "loss", "cum_scores": "cum_scores", "analysis/cum_scores": "analysis_cum_scores"}
    assert {name: file_stem(name, tmp_path / "usual") for name in usual} == usual
    assert re.fullmatch("cum_scores-[0-9a-f]{6}", file_stem("cum/scores", tmp_path / "usual"))
    assert file_stem("cum/scores", tmp_path / "other") == "cum_scores"
    stems = [file_stem(name, tmp_path) for name in NAMES]
    names = [*NAMES, *stems, *(stem.replace("_", "/", 1) for stem in stems)]
    assert len({file_stem(name, tmp_path) for name in names}) == len({*names})
    figure_files._first.clear()  # as another process, which draws in another order
    assert [file_stem(name, tmp_path) for name in reversed(NAMES)] == stems[::-1]


def test_inputs_round_trip(tmp_path, caught):
    from .test_renderers import line

    value = {
        "plots": {"A/B": (np.arange(3), [1, 2.5, float("inf")]), "file": np.float32(2), "../x": 1j},
        "figure": np.zeros((0, 2)),
        "text": "é", "none": None, "yes": True,
    }  # fmt: skip
    with Plotter(lambda data: {"x": line([1])}, save_dir=tmp_path, sinks=[caught], renderer="inline") as plotter:
        plotter.submit(value, 3)
    about, (back,) = read_inputs(tmp_path / "x_step3.npz")
    assert repr(back) == repr(value)
    assert about == read_about(tmp_path / "x_step3.npz")
    assert (about.step, about.figures) == (3, ["x"])
    assert msgspec.to_builtins(about.theme)["style"] == "light"
