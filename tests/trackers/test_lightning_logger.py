"""The logger for Lightning, in a real training."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg

if importlib.util.find_spec("lightning") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs Lightning", allow_module_level=True)

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger

from sightglass.trackers.lightning import SightglassLogger

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


class Model(LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch).mean()
        self.log("loss", loss, on_step=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def fit(logger, tmp_path):
    trainer = Trainer(
        logger=logger, max_epochs=1, log_every_n_steps=1, accelerator="cpu", enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(6, 2), batch_size=2))


def test_a_training_is_logged_with_its_steps_and_hyper_parameters(tmp_path):
    logger = SightglassLogger("mnist", dir=tmp_path)
    assert logger.name == "mnist"
    fit(logger, tmp_path)
    (run,) = sg.open(tmp_path).values()
    assert [record.step for record in run.series("loss")] == [0, 1, 2]
    assert run.config == {"lr": 0.1}
    assert not [info for info in sg.runs(tmp_path) if info.live]
    assert logger.log_dir == str(run.directory)


def test_a_run_that_exists_stays_open(tmp_path):
    with sg.init("mine", dir=tmp_path) as run:
        logger = SightglassLogger(run)
        fit(logger, tmp_path)
        assert not run.ended
        assert (logger.experiment, logger.version) == (run, run.id)
    assert len(sg.open(run.directory).series("loss")) == 3


HOOKS = (
    "setup", "configure_model", "on_fit_start", "on_train_start", "on_train_epoch_start",
    "on_train_batch_start", "on_before_backward", "on_after_backward", "on_train_batch_end", "on_validation_start",
    "on_validation_end", "on_train_epoch_end", "on_train_end", "on_fit_end",
)  # fmt: skip
ATTRIBUTES = ("experiment", "version", "save_dir", "root_dir", "log_dir")


class Asking(Model):
    """A module that asks its logger in each hook for what Lightning's own loggers have."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def ask(self, hook):
        logger = self.logger
        logger.experiment.log({f"note/{hook}": 1.0})
        found = (logger.name, logger.version, logger.save_dir, logger.root_dir, logger.log_dir, self.trainer.log_dir)
        self.asked.append((hook, found))

    def validation_step(self, batch, index):
        self.ask("validation_step")

    def training_step(self, batch, index):
        self.ask("training_step")
        return super().training_step(batch, index)


for hook in HOOKS:
    setattr(Asking, hook, lambda self, *_, hook=hook, **__: self.ask(hook))


def fit_asking(logger, tmp_path):
    loader = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
    trainer = Trainer(
        logger=logger, max_epochs=1, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path / "root",
    )  # fmt: skip
    model = Asking()
    trainer.fit(model, loader, loader)
    return model, trainer


def test_whatever_a_module_asks_for_in_any_hook_is_there(tmp_path):
    logger = SightglassLogger("job", dir=tmp_path / "runs")
    model, trainer = fit_asking(logger, tmp_path)
    directory = str(logger.experiment.directory)
    runs = str(tmp_path / "runs")
    expected = ("job", logger.version, runs, runs, directory, runs)  # the trainer's is the folder of a logger
    assert {hook for hook, _ in model.asked} == {*HOOKS, "training_step", "validation_step"}
    assert {found for _, found in model.asked} == {expected}
    with sg.open(directory) as run:
        assert {tag.removeprefix("note/") for tag in run.tags() if tag.startswith("note/")} >= {*HOOKS[:-2]}
    assert trainer.checkpoint_callback.best_model_path.startswith(f"{tmp_path}/runs/job/{logger.version}/checkpoints/")
    assert [run.name for run in sg.open(tmp_path / "runs").values()] == ["job"]


@given(
    asked=st.lists(st.tuples(st.sampled_from(HOOKS), st.sampled_from(ATTRIBUTES)), min_size=1, max_size=4),
    options=st.sets(st.sampled_from(["accumulates", "beside another", "logs metrics"])),
    seed=st.integers(0, 3),
)
def test_whatever_is_asked_for_first_is_the_same_until_the_end(tmp_path_factory, asked, options, seed):
    """A logger makes its run at the first access, whichever hook and attribute that is, and never a second one."""
    folder = tmp_path_factory.mktemp("first")

    class First(Model):
        def training_step(self, batch, index):
            return super().training_step(batch, index) if "logs metrics" in options else self.layer(batch).mean()

        def validation_step(self, batch, index):
            pass

    def ask(model, hook):
        for attribute in (name for at, name in asked if at == hook):
            found.setdefault(attribute, []).append(getattr(logger, attribute))

    for hook in HOOKS:
        setattr(First, hook, lambda self, *_, hook=hook, **__: ask(self, hook))
    logger, found = SightglassLogger("job", dir=folder / "runs"), {}
    Trainer(
        logger=[CSVLogger(folder / "csv"), logger] if "beside another" in options else logger,
        max_epochs=1 + seed % 2, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder / "root", num_sanity_val_steps=seed // 2,
        accumulate_grad_batches=2 if "accumulates" in options else 1, enable_checkpointing=False,
    ).fit(First(), *[torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)] * 2)  # fmt: skip
    expected = {
        "version": logger.version, "log_dir": logger.log_dir,
        "save_dir": str(folder / "runs"), "root_dir": str(folder / "runs"),
    }  # fmt: skip
    assert found.keys() == {attribute for _, attribute in asked}
    assert len({run.id for run in found.pop("experiment", ())} - {logger.version}) == 0
    assert all(value == expected[attribute] for attribute, values in found.items() for value in values)
    assert [run.id for run in sg.open(folder / "runs").values()] == [logger.version]


def test_two_trainings_do_not_share_checkpoints(tmp_path):
    paths = [
        fit_asking(SightglassLogger("job", dir=tmp_path / "runs"), tmp_path)[1].checkpoint_callback.best_model_path
        for _ in range(2)
    ]
    assert len({path.rpartition("/")[0] for path in paths}) == 2


def test_other_ranks_have_a_dummy(tmp_path, monkeypatch):
    from lightning.fabric.utilities.rank_zero import rank_zero_only

    monkeypatch.setattr(rank_zero_only, "rank", 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    logger = SightglassLogger("job", dir=tmp_path / "runs")
    logger.experiment.log({"x": 1.0})
    logger.experiment[0].anything()
    logger.log_metrics({"x": 1.0}, step=0)
    logger.log_hyperparams({"lr": 0.1})
    logger.save()
    logger.finalize("success")
    assert (logger.name, logger.version, logger.log_dir) == ("job", None, None)
    assert logger.save_dir == logger.root_dir == str(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
