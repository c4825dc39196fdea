"""Where figures go: the run, live clients, files, W&B, TensorBoard; and drawn again."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import sightglass as sg
from sightglass.cli import main
from sightglass.core.errors import FigureError, FigureErrors, UnknownNameError
from sightglass.figures import Plotter, TensorBoard
from sightglass.figures.replot import replot

from .conftest import pixels

PLOTS = """
import numpy as np

def draw(data, extra=None):
    from matplotlib.figure import Figure
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot(np.asarray(data["a"]["x"][0]))
    return {"analysis/x": figure}

def single(x):
    from matplotlib.figure import Figure
    figure = Figure(figsize=(2, 1))
    figure.subplots().imshow(x)
    return figure

def other(x):
    return 1 / 0
"""


@pytest.fixture
def plots(tmp_path, monkeypatch):
    """Give a module of functions that can be imported from the working directory."""
    (tmp_path / "my_plots.py").write_text(PLOTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_plots

    yield my_plots
    sys.modules.pop("my_plots")


DATA = {"a": {"x": (np.arange(4.0),)}}


def test_figures_are_recorded_by_the_run_and_seen_live_at_their_steps(plots, tmp_path):
    with sg.init("job", dir=tmp_path / "runs") as run, sg.connect(run) as client:
        stream = client.stream("log.single")
        with Plotter(plots.draw) as plotter:
            plotter.submit(DATA, 4096)
            run.log({"loss": 1.0}, step=5000)
            plotter.log({"perplexity": np.float32(2.5)}, 4096)
            plotter.submit(DATA, 10)
        run.figure("single", plots.single, np.eye(3), step=7)
        run.figure("single", plots.single, np.eye(3))
        (first, second) = stream.wait(2, timeout_s=60)
        assert (first.step, second.step) == (7, 0)
        assert pixels(first.value.data).shape[2] == 4
    with sg.open(run.directory) as old:
        series = old.series("analysis/x")
        assert [int(step) for step in series.steps] == [4096, 10]
        assert all(isinstance(r.value, sg.Figure) and r.value.data[:4] == b"\x89PNG" for r in series)
        assert list(map(int, old.series("single").steps)) == [7, 0]
        assert list(map(int, old.series("perplexity").steps)) == [4096]
    names = sorted(path.name for path in (run.directory / "figures").iterdir())
    assert names == [
        ".figure-names",
        "analysis_x_step10.npz", "analysis_x_step4096.npz", "single_step0.npz", "single_step7.npz",
    ]  # fmt: skip


def test_a_run_that_ends_waits_for_its_figures_and_takes_no_others(plots, tmp_path):
    plotter = Plotter(plots.draw)
    with sg.init("job", dir=tmp_path / "runs") as run:
        plotter.submit(DATA, 1)
        run.figure("single", plots.single, np.eye(3), step=2)
    with sg.open(run.directory) as old:
        assert old.tags() == ["analysis/x", "single"]
    with sg.init("next", dir=tmp_path / "runs") as other:
        plotter.close()
        other.log({"x": 1})
    with sg.open(other.directory) as old:
        assert old.tags() == ["x"]


def test_figures_of_a_run_that_fail_are_warned_of_and_never_raised(plots, tmp_path):
    with pytest.warns(RuntimeWarning, match="'bad'.*ZeroDivisionError"), sg.init("job", dir=tmp_path) as run:
        run.figure("bad", plots.other, 1)
    with sg.open(run.directory) as old:
        assert len(old.series("bad")) == 1  # the card
    run.figure("late", plots.single, np.eye(2))
    with pytest.raises(TypeError, match="got 3"):
        run.figure(3, plots.single)
    disabled = sg.init("off", mode="disabled")
    disabled.figure("x", plots.single, np.eye(2))
    assert disabled._figures._plotter is None


def test_files(plots, tmp_path, caught):
    folder = tmp_path / "root/p/g/r"
    config = tmp_path / "config.yaml"
    config.write_text(
        f"cluster: {{root: {tmp_path}/root}}\nproject: p\ngroup: g\nrun_name: r\nlogging: {{plots: {{save: true}}}}\n"
    )
    with Plotter.from_config(config, plots.draw, sinks=[caught]) as plotter:
        plotter.submit(DATA, 4096)

        def both():
            figure = plots.single(np.eye(2))
            return {"analysis_x": figure, "../odd name:*?": figure, "x" * 300: figure}

        plotter.plot(both, step=0.5)
    names = sorted(path.name for path in folder.glob("*.pdf"))
    assert names[0].startswith("_odd name___")
    assert "analysis_x_step4096.pdf" in names
    (distinct,) = [name for name in names if name.startswith("analysis_x-")]
    assert distinct.endswith("_step0.5.pdf")
    assert len(names) == 4
    assert all((folder / name).read_bytes()[:4] == b"%PDF" for name in names)
    with np.load(folder / "analysis_x_step4096.npz") as inputs:
        assert (inputs["a/x/0"] == np.arange(4.0)).all()
    assert plotter.statistics().n_files == 6


def test_a_vector_file_of_a_large_mesh_is_small(tmp_path, caught):
    def mesh(x):
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().pcolormesh(x)
        return figure

    with Plotter(save=["pdf", "svg"], save_dir=tmp_path, sinks=[caught], inputs=False, renderer="inline") as plotter:
        plotter.plot(mesh, np.random.default_rng(0).normal(size=(256, 256)), step=0)
    assert (tmp_path / "mesh_step0.pdf").stat().st_size < 400_000
    assert (tmp_path / "mesh_step0.svg").stat().st_size < 400_000
    assert not list(tmp_path.glob("*.npz"))


def test_wandb_gets_every_late_figure_and_every_row_of_the_training(plots, tmp_path):
    wandb = pytest.importorskip("wandb")
    from tests.storage.wandb_files import read_all

    run = wandb.init(dir=str(tmp_path), mode="offline", project="p", name="r")
    plotter = Plotter(plots.draw)
    steps = []
    try:
        for step in range(100):
            run.log({"loss": step}, step=step)
            if step % 10 == 0:
                plotter.submit(DATA, step)
                steps.append(step)
        plotter.close()
    finally:
        run.finish()
    (offline,) = read_all(tmp_path)
    assert [row["loss"] for row in offline.rows if "loss" in row] == list(range(100))
    assert offline.series("analysis/x/path", "sightglass/step") == [
        (step, row["analysis/x/path"])
        for step, row in zip(steps, [row for row in offline.rows if "analysis/x/path" in row], strict=True)
    ]
    assert offline.axes["analysis/x"] == "sightglass/step"
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    images = list((folder / "files").rglob("*.png"))
    assert images
    assert all(pixels(image.read_bytes()).shape[2] == 4 for image in images)


def image_steps(run, tag):
    return [step for step, _ in run.series(f"{tag}/path", "sightglass/step")]


@pytest.mark.parametrize("end", ["finish, close", "close, finish", "flush, finish, close", "with, with", "with with"])
def test_either_order_of_ends_keeps_every_figure_in_its_own_wandb_run(plots, tmp_path, end):
    """Figures are all that these runs log, five of one name, so that W&B's step stands still."""
    wandb = pytest.importorskip("wandb")
    from tests.storage.wandb_files import read_all

    def begin(name):
        return wandb.init(dir=str(tmp_path), mode="offline", name=name)

    def draw(plotter, steps):
        for step in steps:
            plotter.submit(DATA, step)

    if end == "with, with":
        with begin("first"), Plotter(plots.draw) as plotter:
            draw(plotter, range(5))
    elif end == "with with":
        with Plotter(plots.draw) as plotter, begin("first"):
            draw(plotter, range(5))
    else:
        run, plotter = begin("first"), Plotter(plots.draw)
        draw(plotter, range(5))
        for call in end.split(", "):
            (run.finish if call == "finish" else getattr(plotter, call))()
    with begin("second"), Plotter(plots.draw) as other:
        draw(other, range(5, 8))
    first, second = read_all(tmp_path)
    assert (image_steps(first, "analysis/x"), image_steps(second, "analysis/x")) == ([*range(5)], [5, 6, 7])


def test_one_plotter_for_several_wandb_runs_one_after_the_other(plots, tmp_path):
    wandb = pytest.importorskip("wandb")
    from tests.storage.wandb_files import read_all

    with Plotter(plots.draw) as plotter:
        for n in range(3):
            run = wandb.init(dir=str(tmp_path), mode="offline", name=str(n))
            for step in range(3):
                plotter.submit(DATA, 10 * n + step)
                run.log({"loss": step}, step=step)
            plotter.log({"perplexity": n}, 10 * n)
            run.finish()
        plotter.flush()
    runs = read_all(tmp_path)
    assert [image_steps(run, "analysis/x") for run in runs] == [[10 * n, 10 * n + 1, 10 * n + 2] for n in range(3)]
    assert [run.series("perplexity", "sightglass/step") for run in runs] == [[(10 * n, n)] for n in range(3)]
    assert [[row["loss"] for row in run.rows if "loss" in row] for run in runs] == [[0, 1, 2]] * 3


def test_figures_of_a_run_reach_a_wandb_run_that_ends_before_it(plots, tmp_path):
    wandb = pytest.importorskip("wandb")
    from tests.storage.wandb_files import read_all

    with sg.init("job", dir=tmp_path / "runs") as run, wandb.init(dir=str(tmp_path), mode="offline", name="r") as other:
        for step in range(3):
            run.figure("single", plots.single, np.eye(3), step=step)
            run.figure("again", plots.single, np.eye(3), step=step)
        assert other is wandb.run
    (read,) = read_all(tmp_path)
    assert [*map(int, sg.open(run.directory).series("single").steps)] == [0, 1, 2]
    assert {*image_steps(read, "single"), *image_steps(read, "again")} == {0, 1, 2}


def test_a_figure_for_a_finished_wandb_run_is_named_in_the_error(plots, tmp_path):
    wandb = pytest.importorskip("wandb")
    from sightglass.storage.wandb import WandB

    with wandb.init(dir=str(tmp_path), mode="offline", name="first") as run:
        plotter = Plotter(plots.draw, sinks=[WandB(run)])
    plotter.submit(DATA, 3)
    with pytest.raises(FigureErrors, match="'analysis/x'") as errors:
        plotter.close()
    (error,) = errors.value.exceptions
    assert re.match(r"Figure 'analysis/x' at step 3: StorageError: .*'first' .*wandb\.finish\(\)", str(error))


AT_EXIT = """
import numpy as np, wandb
from sightglass.figures import Plotter
import my_plots
run = wandb.init(mode="offline", name="r", settings={"silent": True})
plotter = Plotter(my_plots.draw)
for step in range(5):
    plotter.submit({"a": {"x": (np.arange(4.0),)}}, step)
"""


@pytest.mark.slow
def test_without_any_end_wandb_gets_every_figure_when_the_process_exits(plots, tmp_path):
    pytest.importorskip("wandb")
    from tests.storage.wandb_files import environment, read_all

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AT_EXIT], cwd=tmp_path, timeout=120, check=False,
        env={**environment(), "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (read,) = read_all(tmp_path)
    assert image_steps(read, "analysis/x") == [*range(5)]


def test_tensorboard(plots, tmp_path):
    sink = TensorBoard(tmp_path / "tb")
    with Plotter(plots.draw, sinks=[sink]) as plotter:
        plotter.submit(DATA, 3)
        plotter.log({"ppl": 2.0}, 3)
    sink.close()
    with sg.open(tmp_path / "tb") as old:
        assert old.tags() == ["analysis/x", "ppl"]
        assert list(old.series("analysis/x").steps) == [3]


def test_a_failing_sink_is_reported_and_the_others_get_their_figures(plots, caught):
    class Broken:
        def write(self, records):
            raise OSError("full")

        def flush(self, timeout_s):
            raise OSError("still full")

    plotter = Plotter(plots.draw, sinks=[Broken(), caught])
    plotter.submit(DATA, 1)
    with pytest.raises(FigureErrors) as errors:
        plotter.close()
    assert [error.kind for error in errors.value.exceptions] == ["OSError", "OSError"]
    assert caught.names == [("analysis/x", 1)]


# Drawn again


@pytest.fixture
def drawn(plots, tmp_path, caught):
    with Plotter(plots.draw, save_dir=tmp_path / "out", sinks=[caught]) as plotter:
        for step in (1, 2):
            plotter.submit(DATA, step)
        plotter.plot(plots.single, np.eye(3), step=5)
        plotter.plot(lambda x: plots.single(x), np.eye(3), step=6)  # noqa: PLW0108
    return tmp_path / "out"


def test_replot_draws_the_same_again_and_with_another_theme(drawn, tmp_path, caught):
    path = replot(drawn, "analysis/x", form="png")
    assert path == tmp_path / "analysis_x_step2.png"
    assert np.array_equal(pixels(path.read_bytes()), caught.picture("analysis/x", 2))
    dark = replot(drawn, "analysis/x", step=1, theme="dark", form="png", out=tmp_path / "dark.png")
    assert pixels(dark.read_bytes())[0, 0].tolist() == [0x16, 0x19, 0x1D, 255]
    assert replot(drawn, "single").read_bytes()[:4] == b"%PDF"


def test_replot_at_the_command_line(drawn, tmp_path):
    run = CliRunner()
    result = run.invoke(
        main, ["replot", str(drawn), "analysis/x", "--theme", "dark", "--format", "svg", "--out", "x.svg"]
    )
    assert (result.exit_code, result.output) == (0, "wrote x.svg\n"), result.output
    assert (tmp_path / "x.svg").read_bytes()[:5] == b"<?xml"
    for arguments, message in (
        (["analysis/y"], "Did you mean 'analysis/x'"),
        (["single", "--step", "4"], "Unknown step '4' of figure 'single'"),
        (["<lambda>"], "--with MODULE:FUNCTION"),
        (["single", "--with", "os:system"], "Python's own 'os:system'"),
        (["single", "--with", "my_plots:other"], "ZeroDivisionError"),
        (["single", "--with", "no_such:f"], "Cannot import 'no_such'"),
        (["single", "--theme", "drak"], "Did you mean 'dark'"),
    ):
        result = run.invoke(main, ["replot", str(drawn), *arguments])
        assert result.exit_code == 1
        assert message in result.output
    result = run.invoke(main, ["replot", str(drawn), "<lambda>", "--with", "my_plots:single"])
    assert result.exit_code == 0, result.output
    assert run.invoke(main, ["replot", str(tmp_path), "x"]).exit_code == 1
    assert run.invoke(main, ["replot", "nowhere", "x"]).exit_code == 3


def test_replot_runs_no_code_from_a_file(drawn):
    with pytest.raises(FigureError, match="again"):
        replot(drawn, "single", function="__main__:draw")
    (drawn / "damaged.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(UnknownNameError):
        replot(drawn, "nothing")
