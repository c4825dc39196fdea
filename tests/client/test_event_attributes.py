"""Events as attributes of a run: what completion shows, and the queries that the attributes are."""

from __future__ import annotations

import pytest

import sightglass as sg

pytestmark = pytest.mark.smoke


@pytest.fixture
def run():
    with sg.init("names") as run:
        run.observe("batch", loss=1.0, grads={"dense": 1.0}, step=0)
        client = sg.connect(run)
        client.describe()  # the next event tells of its observables
        run.observe("batch", loss=1.0, grads={"dense": 1.0}, step=1)
        run.log({"train/loss": 2.0}, step=1)
        run.observe("stream", x=1)
        yield run


def test_completion_shows_events_and_observables(run):
    client = sg.connect(run)
    assert not hasattr(client, "batch"), "outside IPython, connecting does not describe the run"
    assert {"batch", "log", "stream", "describe"} <= set(dir(client))
    assert set(dir(client.batch)) >= {"loss", "grads", "step"}
    assert not any(name.startswith("_") for name in dir(client.batch))
    assert "train/loss" not in dir(client.log)
    assert "train/loss" in client.log._ipython_key_completions_()


def test_an_attribute_is_a_query(run):
    client = sg.connect(run)
    client.describe()
    assert str(client.batch.loss) == str(sg.on("batch").map(lambda value: value.loss))
    assert client.batch.loss == sg.parse("batch.loss")
    assert client.log["train/loss"] == sg.parse("log['train/loss']")
    stream = client.stream(client.batch.loss.mean(every=1))
    run.observe("batch", loss=3.0, step=2)
    assert stream.wait(1, timeout_s=30)[0].value == 3.0


def test_own_attributes_come_first(run):
    client = sg.connect(run)
    client.describe()
    assert callable(client.stream)
    assert client.name == "names"


def test_an_unknown_name_raises_with_a_suggestion(run):
    client = sg.connect(run)
    client.describe()
    with pytest.raises(KeyError, match=r"'los'.*'batch'.*'loss'"):
        client.batch["los"]
    assert not hasattr(client, "bach")
    assert not hasattr(client.batch, "los")
    assert repr(client.batch).startswith("<event 'batch': ")


def test_attributes_follow_the_run(run):
    client = sg.connect(run)
    dir(client)
    run.observe("epoch", accuracy=0.5)
    dir(client)
    run.observe("epoch", accuracy=0.5)
    assert "epoch" in dir(client)
    assert client.epoch.accuracy == sg.parse("epoch.accuracy")


def test_completion_evaluates_no_property(run):
    guarded = pytest.importorskip("IPython.core.guarded_eval")
    client = sg.connect(run)
    dir(client)
    seen = guarded.EvaluationContext(globals={}, locals={"client": client}, evaluation="limited")
    assert "loss" in dir(guarded.guarded_eval("client.batch", seen))
    assert "train/loss" in guarded.guarded_eval("client.log", seen)._ipython_key_completions_()


@pytest.mark.parametrize(
    ("misuse", "meant"),
    [
        (lambda client: client.finish(), "stop()"),
        (lambda client: client.log("loss", 3.0), "publish(name, stream)"),
        (lambda client: client.observe("batch"), "publish(name, stream)"),
        (lambda client: client.control("lr", 0.1), "set(name, value), or describe().controls?"),
        (lambda client: client.action("save", print), "call(name), or describe().actions?"),
        (lambda client: client.config, "describe().config?"),
    ],
)
def test_what_only_the_program_has_is_answered_with_what_to_use(run, misuse, meant):
    client = sg.connect(run)
    with pytest.raises(AttributeError, match="no attribute") as caught:
        misuse(client)
    assert meant in str(caught.value)


def test_what_only_the_program_has_is_not_completed_unless_it_is_an_event(run):
    client = sg.connect(run)
    assert {"log", "stop", "batch"} <= set(dir(client))
    assert not {"finish", "control", "observe", "config"} & set(dir(client))
    with pytest.raises(TypeError, match=r"'log'.*publish"):
        client.log("loss", 3.0)


def test_in_ipython_the_attributes_are_set_on_connecting(run, monkeypatch):
    import sys
    import types

    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=object))
    assert sg.connect(run).batch.loss == sg.parse("batch.loss")


def test_a_lost_run_still_completes_its_own_names():
    run = sg.init("gone")
    client = sg.connect(run)
    run.close()
    client.close()
    assert "describe" in dir(client)
    assert not hasattr(client, "batch")


def test_recorded_runs_have_attributes_too(run):
    run.flush()
    with sg.open(run.directory) as recorded:
        recorded.describe()
        assert recorded.log["train/loss"] == sg.parse("log['train/loss']")
        assert recorded.stream(recorded.log["train/loss"]).wait(1, timeout_s=30)[0].value == 2.0
