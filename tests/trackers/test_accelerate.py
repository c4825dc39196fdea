"""The tracker for Accelerate, called by a real accelerator."""

from __future__ import annotations

import importlib.util

import pytest

import sightglass as sg

if importlib.util.find_spec("accelerate") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs Accelerate", allow_module_level=True)

import torch
from accelerate import Accelerator

from sightglass.trackers.accelerate import SightglassTracker

pytestmark = pytest.mark.filterwarnings("ignore")  # Accelerate's own


def train(tracker, project="project"):
    accelerator = Accelerator(log_with=tracker, cpu=True)
    accelerator.init_trackers(project, config={"lr": 0.1, "betas": (0.9, 0.99)})
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    for step in range(3):
        accelerator.log({"loss": model(torch.ones(4, 2)).mean().detach(), "lr": 0.1}, step=10 * step)
    assert accelerator.get_tracker("sightglass", unwrap=True) is tracker.tracker
    accelerator.end_training()


def test_a_training_is_logged_with_its_steps_and_its_config(tmp_path):
    tracker = SightglassTracker("bert", dir=tmp_path)
    train(tracker)
    assert tracker.tracker is None  # it has ended
    (run,) = sg.open(tmp_path).values()
    assert run.name == "bert"
    assert [record.step for record in run.series("loss")] == [0, 10, 20]
    assert run.config == {"lr": 0.1, "betas": [0.9, 0.99]}


def test_a_run_that_exists_stays_open(tmp_path):
    with sg.init("mine", dir=tmp_path) as run:
        train(SightglassTracker(run))
        assert not run.ended
    assert len(sg.open(run.directory).series("loss")) == 3


def test_a_run_that_exists_takes_no_options():
    with sg.init("mine", mode="disabled") as run, pytest.raises(TypeError, match="no options"):
        SightglassTracker(run, dir="elsewhere")
