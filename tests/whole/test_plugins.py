"""Plug-ins of frameworks in programs of two processes: the training is one run, which rank 0 logs."""

from __future__ import annotations

import importlib.util
import socket

import pytest

import sightglass as sg

LIGHTNING = """
warnings.simplefilter("ignore")
import logging, torch
from lightning.pytorch import LightningModule, Trainer
from sightglass.callbacks.lightning import SightglassCallback
from sightglass.trackers.lightning import SightglassLogger

class Model(LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)
    def step(self, name, batch):
        self.logger.experiment.log({"note/" + name: 1.0})
        self.logger.log_table("table", ["rank"], [[self.global_rank]], step=self.global_step)
        self.logger.log_hyperparams({"asked": {"in": name}})
        loss = self.layer(batch).mean()
        self.log(name, loss, sync_dist=True)
        return loss
    def training_step(self, batch, index):
        return self.step("loss", batch)
    def validation_step(self, batch, index):
        self.step("val_loss", batch)
    def test_step(self, batch, index):
        self.step("test_loss", batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

folder = sys.argv[1]
def loader():
    return torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
logger = SightglassLogger("job", dir=folder + "/runs")
logger.log_hyperparams({"early": 1})  # before the ranks know of each other
trainer = Trainer(
    logger=logger, callbacks=[SightglassCallback("job")], max_epochs=2, log_every_n_steps=1, accelerator="cpu",
    devices=2, strategy="ddp", enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
)
model = Model()
trainer.fit(model, loader(), loader())
trainer.validate(model, loader(), verbose=False)
trainer.test(model, loader(), verbose=False)
trainer.fit_loop.max_epochs = 3
trainer.fit(model, loader(), loader())
say("end", trainer.global_rank, logger.version, trainer.checkpoint_callback.best_model_path)
"""

ACCELERATE = """
warnings.simplefilter("ignore")
import torch
from accelerate import Accelerator
from sightglass.trackers.accelerate import SightglassTracker

tracker = SightglassTracker("job", dir=sys.argv[1] + "/runs")
accelerator = Accelerator(log_with=tracker, cpu=True)
accelerator.init_trackers("project", config={"lr": 0.1})
for step in range(3):
    accelerator.log({"loss": 1.0}, step=step)
    tracker.log_table("table", ["rank"], [[accelerator.process_index]], step=step)
rank = accelerator.process_index
accelerator.end_training()
say("end", rank, accelerator.num_processes)
"""


def two(start, script, folder, *, launched_by):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = {"lightning": ("LOCAL_RANK",), "torchrun": ("LOCAL_RANK", "RANK")}[launched_by]
    children = [start(script, str(folder), **common, **dict.fromkeys(ranks, str(rank))) for rank in range(2)]
    for child in children:
        child.may_complain = True  # the libraries say much
    said = [child.hears("end") for child in children]
    assert [child.ends() for child in children] == [0, 0]
    return said


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="needs Lightning")
def test_a_lightning_training_on_two_ranks_is_one_run(start, tmp_path):
    (rank, version, path), (other, no_version, same_path) = two(start, LIGHTNING, tmp_path, launched_by="lightning")
    assert (rank, other, no_version, path) == ("0", "1", "None", same_path)
    assert path.startswith(f"{tmp_path}/runs/job/{version}/checkpoints/")
    runs = [run for run in sg.open(tmp_path / "runs").values() if run.name == "job"]
    assert len(runs) == 1
    run = runs[0]
    assert run.series("loss").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.series("test_loss").steps.tolist() == [4]
    assert (len(run.series("note/loss")), len(run.series("note/test_loss"))) == (6, 2)
    assert {record.value["rank"][0] for record in run.series("table")} == {0}
    assert run.config["lr"] == 0.1
    assert (run.config["early"], run.config["asked"]["in"]) == (1, "val_loss")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs Accelerate")
def test_an_accelerate_training_on_two_ranks_is_one_run(start, tmp_path):
    assert two(start, ACCELERATE, tmp_path, launched_by="torchrun") == [["0", "2"], ["1", "2"]]
    (run,) = sg.open(tmp_path / "runs").values()
    assert (len(run.series("loss")), run.config) == (3, {"lr": 0.1})
    assert [record.value["rank"].tolist() for record in run.series("table")] == [[0]] * 3
