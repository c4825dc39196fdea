"""Adopted W&B runs: what is logged there can be asked for, and is recorded."""

from __future__ import annotations

import numpy as np
import pytest

import sightglass as sg
from sightglass.storage.format.wav import encode_wav
from sightglass.storage.wandb import WandB

wandb = pytest.importorskip("wandb")


@pytest.fixture
def theirs(tmp_path):
    """An active W&B run without a network."""
    run = wandb.init(
        project="p", name="theirs", mode="offline", dir=str(tmp_path), config={"lr": 0.1},
        settings=wandb.Settings(silent=True),
    )  # fmt: skip
    yield run
    run.finish()


def points(run, tag):
    return [(record.step, record.value) for record in sg.open(run.directory).series(tag)]


def test_what_is_logged_in_wandb_is_recorded_at_its_steps_until_it_finishes(theirs, tmp_path):
    run = sg.adopt(wandb.run, dir=tmp_path)
    assert (run.name, run.config) == ("theirs", {"lr": 0.1})
    assert sg.adopt(theirs) is run
    wandb.log({"loss": 0.5, "val": {"acc": 0.1}})
    theirs.log({"loss": 0.25}, step=10)
    wandb.log({"loss": 0.125}, 20, commit=False)
    theirs.finish()
    assert run.ended
    assert points(run, "loss") == [(0, 0.5), (10, 0.25), (20, 0.125)]
    assert points(run, "val/acc") == [(0, 0.1)]


def test_alerts_reach_both(theirs, tmp_path):
    run = sg.adopt(theirs, dir=tmp_path)
    wandb.log({"loss": 0.5}, step=3)
    wandb.alert("high", "it is 3", level=wandb.AlertLevel.ERROR)
    theirs.alert(title="high", text="again")
    theirs.alert("low", "it is 1", wait_duration=5)
    found = [(one.kind, one.name, one.value, one.note, one.step) for one in run.history]
    assert found == [("alert", "high", "it is 3", "error", 3), ("alert", "low", "it is 1", "info", 3)]


def test_later_changes_of_the_config_and_of_the_summary_are_followed(theirs, tmp_path):
    run = sg.adopt(theirs, dir=tmp_path)
    theirs.config.update({"width": 8})
    theirs.config.update({"lr": 0.2}, allow_val_change=True)
    theirs.config["opt"] = {"name": "sgd"}
    expected = {"lr": 0.2, "width": 8, "opt": {"name": "sgd"}}
    with sg.connect(run) as client:
        assert dict(client.describe().config) == run.config == expected
    wandb.log({"loss": 0.5}, step=3)
    theirs.summary["best"] = 0.25
    theirs.summary.update({"nested": {"a": 1}, "picture": wandb.Image(np.zeros((2, 2)))})
    theirs.summary["nested"]["b"] = 2
    summary = {**theirs.summary._as_dict()}
    theirs.finish()
    assert sg.open(run.directory).config == expected
    assert [points(run, f"summary/{name}") for name in ("best", "nested/a", "nested/b")] == [
        [(3, 0.25)], [(3, 1)], [(3, 2)],
    ]  # fmt: skip
    assert "summary/picture" in sg.open(run.directory).tags()
    assert (dict(theirs.config), summary["best"]) == (expected, 0.25), "W&B has them, too"


def test_a_disabled_run_of_wandb_is_adopted_as_any(tmp_path):
    theirs = wandb.init(mode="disabled", config={"lr": 0.1})
    run = sg.adopt(theirs, dir=tmp_path)
    theirs.config["width"] = 8
    theirs.summary["best"] = 0.5
    theirs.log({"loss": 0.5})
    run.close()
    assert (run.config, sg.open(run.directory).tags()) == ({"lr": 0.1, "width": 8}, ["loss"])


@pytest.mark.parametrize("mode", ["offline", "disabled"])
@pytest.mark.parametrize("how", ["finish", "module", "with"])
def test_when_a_run_of_wandb_has_finished_what_it_logged_is_there(tmp_path, mode, how):
    theirs = wandb.init(mode=mode, config={"lr": 0.1}, dir=str(tmp_path), settings=wandb.Settings(silent=True))
    run = sg.adopt(theirs, dir=tmp_path)
    for loss in (0.5, 0.25):
        theirs.log({"loss": loss})
    if how == "with":
        with theirs:
            pass
    else:
        wandb.finish() if how == "module" else theirs.finish()
    assert run.ended
    assert points(run, "loss") == [(0, 0.5), (1, 0.25)]
    assert sg.open(run.directory).config == {"lr": 0.1}


def test_a_version_of_wandb_that_tells_of_no_changes_is_warned_of(theirs, tmp_path, monkeypatch):
    monkeypatch.delattr(type(theirs.summary), "_set_update_callback")
    with pytest.warns(RuntimeWarning, match="summary"):
        sg.adopt(theirs, dir=tmp_path)
    theirs.summary["best"] = 0.5


def test_it_can_be_asked_for_while_it_comes(theirs, tmp_path):
    run = sg.adopt(theirs, dir=tmp_path)
    stream = sg.connect(run).stream(sg.on("log").map(lambda e: e.loss))
    wandb.log({"loss": 0.5}, step=7)
    assert [(r.step, r.value) for r in stream.wait(1, timeout_s=30)] == [(7, 0.5)]


def test_types_of_wandb_become_those_of_a_run(theirs, tmp_path):
    run = sg.adopt(theirs, dir=tmp_path)
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    wandb.log({
        "h": wandb.Histogram(np_histogram=([1, 2], [0.0, 1.0, 2.0])),
        "one": wandb.Image(picture, caption="cat"),
        "two": [wandb.Image(picture), wandb.Image(picture)],
        "sizes": [wandb.Image(picture), wandb.Image(picture[:2])],
        "nested": {"h": wandb.Histogram([1.0, 2.0])},
    })  # fmt: skip
    run.flush()
    run.close()
    ((_, h),) = points(run, "h")
    assert (h.counts.tolist(), h.edges.tolist()) == ([1, 2], [0.0, 1.0, 2.0])
    ((_, one),) = points(run, "one")
    assert np.array_equal(one.value, picture)
    assert one.caption == "cat"
    ((_, two),) = points(run, "two")
    assert two.value.shape == (2, 4, 4, 3)
    assert {"sizes/0", "sizes/1", "nested/h"} <= {*sg.open(run.directory).tags()}


def test_tables_sounds_charts_and_figures_of_wandb_become_those_of_a_run(theirs, tmp_path):
    run = sg.adopt(theirs, dir=tmp_path)
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    (tmp_path / "sound.wav").write_bytes(encode_wav(sg.Audio(np.zeros(8, np.int16), 8000)))
    sound = wandb.Audio(str(tmp_path / "sound.wav"), caption="c")
    rows = [[1, "x", wandb.Image(picture), sound], [None, None, None, None]]
    table = wandb.Table(columns=["n", "what", "picture", "sound"], data=rows)
    figure = pytest.importorskip("plotly.graph_objects").Figure([{"type": "scatter", "y": [1, 2]}])
    wandb.log({
        "table": table,
        "odd": wandb.Table(
            columns=["any", "two"], data=[[[1, {"a": 2}], np.float32(0.5)], ["text", 1]], allow_mixed_types=True
        ),
        "frame": wandb.Table(dataframe=pytest.importorskip("pandas").DataFrame({"a": [1, 2]})),
        "empty": wandb.Table(columns=["a"]),
        "sound": sound,
        "nested": {"deep": {"table": wandb.Table(columns=["a"], data=[[1]])}},
        "figure": wandb.Plotly(figure),
        "page": wandb.Html("<b>bold</b>", inject=False),
        "chart": wandb.plot.line(wandb.Table(columns=["x", "y"], data=[[0, 1], [1, 2]]), "x", "y"),
    })  # fmt: skip
    theirs.finish()
    kept = {tag: points(run, tag)[0][1] for tag in sg.open(run.directory).tags()}
    assert kept["table"]["what"] == ["x", None]
    assert np.array_equal(kept["table"]["picture"][0].value, picture)
    assert kept["table"]["sound"][0].rate == kept["sound"].rate == 8000
    assert (kept["odd"]["any"], kept["odd"]["two"].tolist()) == (['[1, {"a": 2}]', "text"], [0.5, 1.0])
    assert kept["frame"]["a"].tolist() == [1, 2]
    assert (len(kept["empty"]), kept["nested/deep/table"]["a"].tolist()) == (0, [1])
    assert kept["figure"].media_type.endswith("plotly.v1+json")
    assert kept["page"] in ("<b>bold</b>", sg.Text("<b>bold</b>"))
    assert kept["chart_table"]["y"].tolist() == [1, 2]


def test_what_has_no_value_type_goes_to_wandb_only_and_warns_once(theirs, tmp_path):
    run = sg.adopt(theirs, dir=tmp_path)
    shape = wandb.Object3D(np.zeros((4, 3)))
    with pytest.warns(RuntimeWarning, match=r"wandb\.Object3D"):
        wandb.log({"t": shape, "several": [shape, shape], "loss": 0.5})
    wandb.log({"t": shape, "loss": 0.5})  # a warning would be an error
    run.close()
    assert [value for _, value in points(run, "loss")] == [0.5, 0.5]


def test_a_run_that_exists_stays_open_and_what_it_sends_to_wandb_does_not_come_back(theirs, tmp_path):
    with sg.init("mine", dir=tmp_path) as run:
        assert sg.adopt(theirs, run) is run
        WandB.shared(theirs).write([sg.Record(tag="figure", index=0, step=3, wall_time=0.0, value=1.0)])
        wandb.log({"loss": 0.5}, step=0)
        theirs.config["width"] = 8
        theirs.finish()
        assert (run.ended, run.config) == (False, {})
        with pytest.raises(TypeError, match="no options"):
            sg.adopt(theirs, run, dir=tmp_path)
    assert sg.open(run.directory).tags() == ["loss"]
    assert points(run, "loss") == [(0, 0.5)]


def test_a_run_whose_mirror_is_wandb_cannot_adopt(theirs, tmp_path):
    with sg.init("mine", dir=tmp_path, mirror=["wandb"]) as run, pytest.raises(ValueError, match="go back"):
        sg.adopt(theirs, run)
    with pytest.raises(ValueError, match="go back"):
        sg.adopt(theirs, mirror="wandb")


def test_what_is_not_a_wandb_run_is_refused():
    with pytest.raises(TypeError, match=r"wandb\.init\(\), got None"):
        sg.adopt(None)
