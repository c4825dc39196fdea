"""`sightglass.wandb`: forty programs record the same as with W&B; runs are live; nothing raises into a training."""

from __future__ import annotations

import copy
import datetime
import inspect
import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from tests.trackers import wandb_twins
from tests.waiting import wait_until

import sightglass as sg
from sightglass import trackio
from sightglass import wandb as ours
from sightglass.trackers import wandb_run, wandb_values

wandb = pytest.importorskip("wandb")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    return folder, wandb_twins.both(folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setattr(wandb_values, "_warned", set())
    yield tmp_path
    ours.finish()


def points(run, tag):
    return [(record.step, record.value) for record in sg.open(run.run.directory).series(tag)]


# The same programs with both


@pytest.mark.slow
@pytest.mark.parametrize("program", wandb_twins.PROGRAMS)
def test_a_program_records_what_it_records_with_wandb(both, program):
    folder, told = both
    assert wandb_twins.differences(folder, told, program) == []


@pytest.mark.slow
def test_what_differs_would_be_seen(both):
    folder, told = both
    theirs, other = (told["wandb"] | {"own_steps": told["wandb"][name]} for name in ("own_steps", "late_steps"))
    assert len(wandb_twins.PROGRAMS) == 40
    assert sum(len(wandb_twins.kept(folder / "wandb" / name, name)) > 0 for name in wandb_twins.PROGRAMS) == 39
    assert wandb_twins.differences(folder, {"wandb": theirs, "sightglass.wandb": other}, "own_steps") == ["what it saw"]
    (_, steps), (_, late) = (wandb_twins.kept(folder / "wandb" / name, name)[0] for name in ("own_steps", "late_steps"))
    assert not wandb_twins.same(steps["loss"], late["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("difference", wandb_twins.ON_PURPOSE)
def test_what_differs_on_purpose_does(both, difference):
    folder, _ = both
    program, tag = difference
    theirs, own = (wandb_twins.kept(folder / module / program, "") for module in ("wandb", "sightglass.wandb"))
    assert (tag in theirs[0][1], tag in own[0][1]) == (False, True)


def test_it_has_the_names_and_the_parameters_of_wandb():
    assert [name for name in wandb.__all__ if not hasattr(ours, name) and name != "__version__"] == []
    run = ours.init(mode="disabled")
    inner = {"config_static", "sync_dir", "sweep_url", "project_url", "path"}
    assert [name for name in dir(wandb.Run) if not name.startswith("_") and not hasattr(run, name)] == sorted(inner)
    run.finish()
    for name in ("log", "define_metric", "watch", "unwatch", "alert", "finish"):
        expected, given = (list(inspect.signature(getattr(one.Run, name)).parameters) for one in (wandb, ours))
        assert given[: len(expected)] == expected, name


def test_it_needs_no_wandb(tmp_path):
    program = (
        "import sys; sys.modules['wandb'] = None\n"
        "import sightglass.wandb as wandb\n"
        "from sightglass.wandb import Image, config, log\n"
        f"run = wandb.init(dir={str(tmp_path)!r}, project='p', id='mine')\n"
        "wandb.log({'loss': 1.5}, step=3)\n"
        "raise ValueError('oops')"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ValueError: oops" in child.stderr
    assert json.loads((tmp_path / "p" / "mine" / "run.json").read_text())["state"] == "failed"
    assert [record.value for record in sg.open(tmp_path / "p" / "mine").series("loss")] == [1.5], "the open row"


# A run


def test_a_run_can_be_asked_and_a_row_that_waits_is_written(folder, monkeypatch):
    monkeypatch.setattr(wandb_run, "HELD_S", 0.0)
    run = ours.init(project="p", name="live")
    stream = sg.connect(run.run).stream(sg.on("log").map(lambda e: e.loss))
    ours.log({"loss": 0.5}, step=7)
    assert [(record.step, record.value) for record in stream.wait(1, timeout_s=30)] == [(7, 0.5)]
    ours.log({"loss": 0.25}, step=7)
    wait_until(lambda: run._row is None)
    run.finish()
    assert points(run, "loss") == [(7, 0.5), (7, 0.25)]


def test_pictures_of_files_and_of_one_size(folder):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.zeros((2, 3, 3), np.uint8)
    pillow.fromarray(pixels).save(folder / "x.png")
    with ours.init() as run:
        file = ours.Image(folder / "x.png")
        run.log({"file": [file], "one": [ours.Image(pixels, caption="a")], "float": ours.Image(pixels + 0.5)})
    ((_, (kept,)),) = points(run, "file")
    assert kept.data == (folder / "x.png").read_bytes()
    ((_, one),) = points(run, "one")
    assert (one.value.shape, one.captions) == ((1, 2, 3, 3), ("a",))
    ((_, half),) = points(run, "float")
    assert half.value.max() == 0.5


def test_what_waits_is_what_was_logged(folder):
    values = np.zeros(3)
    with ours.init() as run:
        run.log({"a": values, "n": {"a": values}}, step=1)
        values += 1
    assert [value.tolist() for tag in ("a", "n/a") for _, value in points(run, tag)] == [[0, 0, 0]] * 2


def test_an_x_axis_is_a_step_track(folder):
    with ours.init() as run:
        run.define_metric("val/*", step_metric="epoch")
        run.log({"val/acc": 1, "epoch": 4})
    (record,) = sg.open(run.run.directory).series("val/acc")
    assert (record.step, record.steps) == (0, {"epoch": 4})


def test_a_run_goes_on_by_its_id(folder):
    with ours.init(project="p", name="n", id="mine", config={"lr": 0.1}) as run:
        for i in range(3):
            run.log({"loss": i})
        run.summary["best"] = 7
    with ours.init(project="p", name="other", id="mine", resume="must") as again:
        assert (again.resumed, again.step, dict(again.summary)) == (True, 3, {"loss": 2, "best": 7})
        again.log({"loss": 9})
    assert again.run.directory == run.run.directory
    assert points(run, "loss") == [(0, 0), (1, 1), (2, 2), (3, 9)]
    with pytest.raises(ours.UsageError, match="mine"):
        ours.init(project="p", id="mine", resume="never")
    with pytest.raises(ours.Error, match="nothing"):
        ours.init(project="p", id="nothing", resume="must")


def test_group_tags_and_notes_are_labels_and_notes(folder):
    with ours.init(
        project="p", group="g", job_type="train", tags=["a"], notes="some", settings={"run_name": "n"}
    ) as run:
        run.tags += ("b",)
        run.log({"loss": 1})
    found = sg.open(run.run.directory)
    assert (found.name, found.annotations.notes) == ("n", "some")
    assert {*found.annotations.labels} == {"a", "b", "group: g", "job: train"}


def test_a_run_may_begin_beside_another(folder):
    one = ours.init()
    with pytest.warns(RuntimeWarning, match="active"):
        assert ours.init() is one
    two = ours.init(reinit="create_new")
    assert ours.run is one
    two.log({"a": 2})
    two.finish()
    assert (ours.run, points(two, "a")) == (one, [(0, 2)])
    three = ours.init(reinit=True)
    assert (one.run.ended, ours.run) == (True, three)


def test_finish_says_how_the_run_ended(folder):
    run = ours.init()
    run.log({"a": 1})
    ours.finish(exit_code=1)
    assert json.loads((run.run.directory / "run.json").read_text())["state"] == "failed"


def test_what_is_not_kept_warns_once_and_the_program_goes_on(folder):
    run = ours.init()
    with pytest.warns(RuntimeWarning, match=r"^Artifact .*run\.dir") as seen:
        artifact = ours.Artifact("model", type="model")
    assert seen[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="log_artifact"):
        run.log_artifact(artifact).wait()
    with pytest.warns(RuntimeWarning, match="sweep"):
        assert not list(ours.sweep({"method": "grid"}))
    with pytest.warns(RuntimeWarning, match="Video"):
        ours.log({"film": ours.Video(np.zeros((1, 3, 2, 2))), "loss": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ours.Artifact("again", type="model").new_file("x") as file:
            file.write("text")
    assert isinstance(artifact, ours.Artifact)
    ours.finish()
    assert sg.open(run.run.directory).tags() == ["loss"]


def test_files_are_copied_into_the_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("sub/a.txt", "sub/b.txt", "late.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    run = ours.init(project="p")
    assert len(ours.save("sub/*.txt")) == 2
    ours.save("late.txt", policy="end")
    run.save(str(folder / "sub" / "a.txt"), policy="now")
    monkeypatch.setattr(wandb_run, "MAX_SAVED_BYTES", 3)
    with pytest.warns(RuntimeWarning, match="save"):
        run.save("late.txt", policy="now")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    (folder / "late.txt").write_text("later")
    inside = folder / "p" / run.id / "files"
    (inside / "own.txt").write_text("x")
    run.save(str(inside / "own.txt"))
    run.finish()
    names = {path.relative_to(inside).as_posix(): path.read_text() for path in inside.rglob("*") if path.is_file()}
    assert names == {"sub/a.txt": "sub/a.txt", "sub/b.txt": "sub/b.txt", "late.txt": "later", "own.txt": "x"}


def test_charts_of_points_are_not_kept(folder):
    run = ours.init()
    with pytest.warns(RuntimeWarning, match=r"plot\.pr_curve"):
        run.log({"pr": ours.plot.pr_curve([0, 1], [[0.5, 0.5]] * 2), "loss": 1})
    run.finish()
    assert sg.open(run.run.directory).tags() == ["loss"]


def test_figures_are_drawn(folder):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    express = pytest.importorskip("plotly.express")
    with ours.init() as run:
        pyplot.plot([1, 2])
        run.log({"module": pyplot, "figure": pyplot.gcf(), "image": ours.Image(pyplot)}, step=0)
        run.log({"plotly": express.line(y=[1, 2]), "made": ours.Plotly(express.line(y=[1]))}, step=0)
    pyplot.close("all")
    found = sg.open(run.run.directory)
    types = {tag: found.series(tag)[0].value.media_type.partition("/")[0] for tag in found.tags()}
    assert types == {
        "module": "image",
        "figure": "image",
        "image": "image",
        "plotly": "application",
        "made": "application",
    }


def test_gradients_of_a_watched_module_can_be_asked_for(folder):
    torch = pytest.importorskip("torch")
    run = ours.init()
    module = torch.nn.Linear(2, 1)
    ours.watch(module, log="all", log_freq=10)
    stream = sg.connect(run.run).stream('on("batch").map(lambda b: norm(b.grads["weight"]))')

    def step():
        module.zero_grad()
        module(torch.ones(1, 2)).sum().backward()
        ours.log({"loss": 1})
        return stream.latest is not None

    wait_until(step)
    assert stream.latest.value == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    ("given", "n", "level"),
    [
        ({}, 1, "info"),
        ({"level": "ERROR"}, 1, "error"),
        ({"level": ours.AlertLevel.WARN, "wait_duration": 300}, 1, "warning"),
        ({"wait_duration": datetime.timedelta(microseconds=1)}, 2, "info"),
    ],
)
def test_alerts_of_one_title_keep_the_distance_of_wandb(folder, given, n, level):
    run = ours.init()
    for _ in range(2):
        ours.alert("low", "x", **given)
    ours.alert("other", "y")
    found = [(one.kind, one.name, one.value, one.note) for one in run.run.history]
    assert found == [("alert", "low", "x", level)] * n + [("alert", "other", "y", "info")]


def test_a_disabled_run_makes_no_file(folder):
    run = ours.init(mode="disabled", config={"a": 1}, tags=["x"], id="none")
    run.log({"a": 1})
    run.alert("t", "x")
    assert (ours.config.a, run.step) == (1, 0)
    run.finish()
    assert list(folder.iterdir()) == []


def test_a_run_is_copied_as_itself_and_does_nothing_in_another_process(folder):
    run = ours.init()
    assert copy.deepcopy(run) is run
    data = pickle.dumps(run)
    assert pickle.loads(data) is run
    code = f"import pickle; run = pickle.loads({data!r}); run.log({{'a': 1}}, step=3); run.finish()"
    subprocess.run([sys.executable, "-c", code], check=True)


# Trackio


def test_trackio_is_the_same_interface(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setattr(wandb_values, "_warned", set())
    with pytest.warns(RuntimeWarning, match="space_id"):
        run = trackio.init(project="p", name="n", space_id="x/y", config={"lr": 0.1})
    trackio.log({"loss": 0.5, "t": trackio.Table(dataframe=pytest.importorskip("pandas").DataFrame({"a": [1]}))})
    trackio.alert(title="t", text="x", level=trackio.AlertLevel.WARN)
    assert [(one.name, one.value, one.note, one.step) for one in run.run.history] == [("t", "x", "warning", 1)]
    second = trackio.init(project="p", name="n")
    assert (run.run.ended, second.id != run.id) == (True, True)
    trackio.log({"loss": 0.25}, step=5)
    again = trackio.init(project="p", name="n", resume="allow")
    assert (again.id, again.step) == (second.id, 6)
    trackio.finish()
    assert points(run, "loss") == [(0, 0.5)]
    assert sg.open(run.run.directory).config == {"lr": 0.1}
