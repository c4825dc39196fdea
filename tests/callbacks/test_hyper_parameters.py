"""Hyper-parameters as a run's config, of whatever kind they are."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.callbacks.odd_settings import CASES, EXPECTED, SETTINGS, Net, Settings

import sightglass as sg
from sightglass.callbacks.callback_run import CallbackRun
from sightglass.callbacks.hyper_parameters import as_config

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("within", [dict, Settings, lambda items: argparse.Namespace(**items)])
def test_each_kind_is_the_same_in_every_place(kind, within):
    (value, expected), name = CASES[kind], kind.replace(" ", "_")
    assert as_config(within({name: value})) == {name: expected}
    assert as_config({"deep": [within({name: value})]}) == {"deep": [{name: expected}]}


def test_what_contains_itself_or_cannot_be_read_costs_itself_only():
    looped = {"a": 1}
    looped["me"] = looped
    assert as_config({"loop": looped, "b": 2}) == {"loop": {"a": 1, "me": "dict that contains itself"}, "b": 2}
    found = as_config({"m": Settings({"there": 1, "gone": "???"}), "b": 2})
    assert (found["b"], found["m"]["there"]) == (2, 1)
    assert "missing" in found["m"]["gone"]


def test_what_has_no_names_is_named():
    assert as_config(None) == as_config({}) == {}
    assert as_config(Net(width=1))["width"] == 1
    assert as_config([1, 2]) == {"hparams": [1, 2]}


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.dictionaries(
    st.text(max_size=5),
    st.recursive(plain, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=3), t, max_size=3)),
)


@given(trees)
def test_a_config_is_itself(config):
    assert as_config(config) == config


@pytest.mark.parametrize("in_steps", [False, True])
def test_what_is_logged_at_any_time_is_in_the_config_live_and_recorded(tmp_path, in_steps):
    own = CallbackRun("job", {"dir": tmp_path, "config": {"mine": 1}})
    if in_steps:
        own.begin(lambda: {"mine": 2, "known": 3})
        for name, value in SETTINGS.items():
            own.log_hyper_parameters({name: value})
    else:
        own.log_hyper_parameters(SETTINGS)
    expected = {"mine": 1, **({"known": 3} if in_steps else {}), **EXPECTED}
    assert own.run.config == expected
    with sg.connect(own.run) as client:
        assert dict(client.describe().config) == expected
    with sg.open(own.directory) as live:  # a process that is killed has left it, too
        assert dict(live.config) == expected
    own.end()
    with sg.open(own.directory) as kept:
        assert dict(kept.config) == expected
        assert kept.config["dataclass"]["inner"]["depth"] == 2


def test_a_run_that_was_passed_has_them_beside_its_own(tmp_path):
    with sg.init("job", dir=tmp_path, config={"mine": 1}) as run:
        CallbackRun(run, {}).log_hyper_parameters(argparse.Namespace(lr=0.1, mine=2))
        assert run.config == {"mine": 2, "lr": 0.1}
    assert dict(sg.open(run.directory).config) == {"mine": 2, "lr": 0.1}


@pytest.mark.parametrize("stages", [1, 3])
def test_stages_of_one_training_are_one_run_and_hide_nothing_of_each_other(tmp_path, stages):
    own = CallbackRun("job", {"dir": tmp_path})
    for stage in range(stages):
        own.begin(lambda: {"stage": stage})  # noqa: B023  it is called now
        own.log({"loss": float(stage), "counted": 1.0}, step=3 - stage)
        own.run.log({"no step": float(stage)})
        own.end()
    (run,) = sg.open(tmp_path).values()
    assert (run.directory, run.config["stage"]) == (own.directory, stages - 1)
    assert [(record.step, record.value) for record in run.series("loss")] == [
        (3 - stage, float(stage)) for stage in range(stages)
    ]
    assert [record.value for record in run.series("no step")] == [float(stage) for stage in range(stages)]
    assert [record.value for record in run.stream("loss")] == [float(stage) for stage in range(stages)]


def test_a_training_that_is_resumed_in_another_process_continues_its_run(tmp_path):
    first = CallbackRun("job", {"dir": tmp_path})
    first.log_hyper_parameters({"lr": 0.1})
    for step in range(4):
        first.log({"loss": 1.0}, step=step)
    first.end()
    second = CallbackRun("job", {"files": sg.Files(into=first.directory)})
    for step in range(2, 6):  # from a checkpoint
        second.log({"loss": 2.0}, step=step)
    assert (second.id, second.directory) == (first.id, first.directory)
    second.end()
    (run,) = sg.open(tmp_path).values()
    assert run.config == {"lr": 0.1}
    assert [record.value for record in run.series("loss")] == [1.0] * 2 + [2.0] * 4


def test_an_error_that_ends_a_stage_is_why_the_run_ended(tmp_path):
    own = CallbackRun("job", {"dir": tmp_path})
    own.begin()
    own.end(ArithmeticError("broken"))
    (info,) = sg.runs(tmp_path)
    assert info.state == "failed"
    assert "broken" in str(info.ending)


def test_a_disabled_run_begins_once_and_leaves_nothing(tmp_path):
    own = CallbackRun("job", {"dir": tmp_path / "runs", "mode": "disabled"})
    run = own.begin()
    own.log({"loss": 1.0}, step=0)
    own.log_hyper_parameters({"lr": 0.1})
    assert own.begin() is run
    own.end()
    assert own.begin().disabled
    assert not (tmp_path / "runs").exists()
