"""The logger for Lightning, in a real training."""

from __future__ import annotations

import importlib.util

import pytest

import sightglass as sg

if importlib.util.find_spec("lightning") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs Lightning", allow_module_level=True)

import torch
from lightning.pytorch import LightningModule, Trainer

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
    assert run.series("hparams/lr")[0].value == 0.1
    assert logger.experiment is None  # it has ended


def test_a_run_that_exists_stays_open(tmp_path):
    with sg.init("mine", dir=tmp_path) as run:
        logger = SightglassLogger(run)
        fit(logger, tmp_path)
        assert not run.ended
        assert (logger.experiment, logger.version) == (run, run.id)
    assert len(sg.open(run.directory).series("loss")) == 3
