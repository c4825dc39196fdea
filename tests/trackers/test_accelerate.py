"""The tracker for Accelerate, in a training loop, and the contract of Accelerate's own trackers."""

from __future__ import annotations

import importlib.util
import inspect

import numpy as np
import pytest

import sightglass as sg

if importlib.util.find_spec("accelerate") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs Accelerate", allow_module_level=True)

import torch
from accelerate import Accelerator, PartialState
from accelerate.tracking import GeneralTracker, TensorBoardTracker, WandBTracker
from tests.callbacks.odd_settings import EXPECTED, SETTINGS

from sightglass.trackers.accelerate import SightglassTracker

pytestmark = pytest.mark.filterwarnings("ignore")  # Accelerate's own

THEIRS = (GeneralTracker, WandBTracker)
NAMES = sorted({name for cls in THEIRS for name in dir(cls) if not name.startswith("_")})
PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)

CALLS = {
    "start": lambda tracker: tracker.start(),
    "store_init_configuration": lambda tracker: tracker.store_init_configuration({"late": {"deep": None}}),
    "log": lambda tracker: tracker.log({"loss": 1.0, "by": {"a": 2}}, step=5, commit=True),
    "log_images": lambda tracker: tracker.log_images({"one": [PICTURE], "stack": np.stack([PICTURE] * 2)}, step=5),
    "log_table": lambda tracker: tracker.log_table("rows", columns=["a"], data=[[1], [2]], step=5),
    "finish": lambda tracker: tracker.finish(),
}
ATTRIBUTES = ("name", "requires_logging_directory", "main_process_only", "tracker")


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
        assert run.config["lr"] == 0.1
    assert len(sg.open(run.directory).series("loss")) == 3


def test_a_run_that_exists_takes_no_options():
    with sg.init("mine", mode="disabled") as run, pytest.raises(TypeError, match="no options"):
        SightglassTracker(run, dir="elsewhere")


def test_every_public_name_of_their_trackers_is_here_and_takes_what_theirs_takes():
    assert set(NAMES) == {*CALLS, *ATTRIBUTES}
    for name in CALLS:
        mine = inspect.signature(getattr(SightglassTracker, name)).parameters
        for cls in (*THEIRS, TensorBoardTracker):
            theirs = inspect.signature(getattr(cls, name)).parameters if hasattr(cls, name) else {}
            assert [n for n in mine if n in theirs] == [n for n in theirs if n in mine]
            kinds = {p.kind for p in mine.values()}
            assert all(n in mine or p.kind in kinds for n, p in theirs.items())


def test_whatever_is_called_in_whatever_order_stays_in_one_run(tmp_path):
    tracker = SightglassTracker("job", dir=tmp_path)
    PartialState(cpu=True)
    for name in [*CALLS, "finish", *CALLS, "store_init_configuration", "log", "finish"]:
        CALLS[name](tracker)
    (run,) = sg.open(tmp_path).values()
    assert (len(run.series("loss")), len(run.series("rows")), run.series("by/a")[-1].value) == (3, 2, 2)
    assert run.series("stack")[-1].value.value.shape == (2, 4, 4, 3)
    assert run.config == {"late": {"deep": None}}


def test_a_configuration_alone_leaves_a_run_with_its_types(tmp_path):
    accelerator = Accelerator(log_with=SightglassTracker("bert", dir=tmp_path), cpu=True)
    accelerator.init_trackers("project", config=SETTINGS)
    accelerator.end_training()
    (run,) = sg.open(tmp_path).values()
    assert run.config == EXPECTED


def test_other_processes_do_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(PartialState, "is_main_process", property(lambda self: False))
    monkeypatch.setattr(PartialState, "use_distributed", property(lambda self: True))
    tracker = SightglassTracker("job", dir=tmp_path / "runs")
    PartialState(cpu=True)
    for call in CALLS.values():
        call(tracker)
    assert tracker.tracker is None
    assert not (tmp_path / "runs").exists()
