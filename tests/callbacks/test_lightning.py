"""The callback for Lightning: events, the watched model, stopping, controls, and what it cleans up."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

import sightglass as sg
from sightglass.callbacks.lightning import SightglassCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of Lightning's own, about workers and loggers
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
    return torch.utils.data.DataLoader(data, batch_size=8)


def fit(tmp_path, *callbacks, model=None, **options):
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path, callbacks=[*callbacks], **{"logger": False, **options},
    )  # fmt: skip
    trainer.fit(model or Net(), loader(), loader())
    return trainer


def test_events_and_tensors(tmp_path):
    with sg.init("t", budget=None) as run, sg.connect(run) as client:
        streams = {
            text: client.stream(text)
            for text in (
                "batch.loss",
                "batch.grads.map(lambda n, g: norm(g))",
                "batch.activations.body.mean()",
                "batch.loss.mean(per='epoch')",
                "epoch.epoch",
                "validation.val_loss",
                "checkpoint.global_step",
            )
        }
        model = Net()
        trainer = fit(tmp_path, SightglassCallback(run), model=model)
        run.flush()
        for stream in streams.values():
            stream.wait(1)
        run.close()
        got = {text: [record.value for record in stream] for text, stream in streams.items()}
    assert trainer.global_step == 12
    assert len(got["batch.loss"]) == 12
    assert len(got["batch.grads.map(lambda n, g: norm(g))"]) == 11  # hooks are there from the first event on
    assert set(got["batch.grads.map(lambda n, g: norm(g))"][0]) == {
        "body.weight", "body.bias", "head.weight", "head.bias",
    }  # fmt: skip
    assert len(got["batch.activations.body.mean()"]) == 11
    assert len(got["batch.loss.mean(per='epoch')"]) == 3
    assert got["epoch.epoch"] == [0, 1, 2]
    assert len(got["validation.val_loss"]) == 3
    assert got["checkpoint.global_step"][-1] == 12
    assert not any(module._forward_hooks for module in model.modules())


class Adversarial(pl.LightningModule):
    """A generator and a discriminator, each with its optimizer, as Lightning's own example."""

    automatic_optimization = False

    def __init__(self):
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)
        self.grads, self.updates = {}, {}

    def training_step(self, batch, index):
        x, _ = batch
        self.grads, self.updates = {}, {}
        for part, optimizer, sign in zip(("generator", "critic"), self.optimizers(), (-1, 1), strict=True):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(sign * self.critic(self.generator(x)).mean())
            own = {f"{part}.{name}": p for name, p in getattr(self, part).named_parameters()}
            before = {name: p.detach().clone() for name, p in own.items()}
            optimizer.step()
            self.grads |= {name: float(p.grad.norm()) for name, p in own.items()}
            self.updates |= {name: float((p.detach() - before[name]).norm()) for name, p in own.items()}
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), lr=0.01) for part in (self.generator, self.critic)]


def test_several_optimizers(tmp_path, queue_command):
    truth = []

    class TruthCallback(pl.Callback):
        """Remembers what the steps of each batch did."""

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            truth.append((pl_module.grads, pl_module.updates))
            if trainer.global_step == 4:
                queue_command(trainer_run, "set", "optimizer.1.lr", 0.5)

    with sg.init("t", budget=None) as trainer_run, sg.connect(trainer_run) as client:
        kinds = ("grads", "updates")
        streams = [client.stream(f"batch.{kind}.map(lambda n, x: norm(x))") for kind in kinds]
        model = Adversarial()
        trainer = fit(tmp_path, SightglassCallback(trainer_run), TruthCallback(), model=model)
        trainer_run.flush()
        assert all(stream.wait(11) for stream in streams)
        trainer_run.close()
        got = [[record.value for record in stream] for stream in streams]
    assert [optimizer.param_groups[0]["lr"] for optimizer in trainer.optimizers] == [0.01, 0.5]
    for i, (grads, updates) in enumerate(truth[1:]):
        assert got[0][i] == pytest.approx(grads, rel=1e-5)
        assert got[1][i] == pytest.approx(updates, rel=1e-5)


class CommandingCallback(pl.Callback):
    """Sends a command to the run in the middle of the training, as a client would."""

    def __init__(self, run, command):
        self.run, self.command, self.rates = run, command, []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        if trainer.global_step == 2:
            self.command(self.run)


def test_stopping(tmp_path, queue_command):
    with sg.init("t") as run:
        trainer = fit(
            tmp_path, SightglassCallback(run), CommandingCallback(run, lambda run: queue_command(run, "stop"))
        )
        assert run.stopping
        assert trainer.global_step == 3


def test_setting_the_learning_rate(tmp_path, queue_command):
    with sg.init("t") as run:
        callback = CommandingCallback(run, lambda run: queue_command(run, "set", "optimizer.lr", 0.5))
        fit(tmp_path, SightglassCallback(run), callback)
    assert callback.rates == [0.1] * 2 + [0.5] * 10


def test_a_run_made_from_a_name_ends_with_the_training(tmp_path):
    callback = SightglassCallback("own", dir=str(tmp_path / "runs"), record=["batch.loss"])
    fit(tmp_path, callback)
    (info,) = sg.runs(str(tmp_path / "runs"))
    assert (info.name, info.live) == ("own", False)


def test_a_training_leaves_its_metrics_and_what_it_was(tmp_path):
    class Logging(Net):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            self.log("train_loss", loss, on_epoch=True, on_step=False)
            return loss

    model = Logging()
    model.save_hyperparameters({"width": 8})
    fit(tmp_path, SightglassCallback("own", dir=str(tmp_path), config={"mine": 1, "n_parameters": "?"}), model=model)
    (info,) = sg.runs(str(tmp_path))
    with sg.open(info.directory) as run:
        assert run.series("val_loss").steps.tolist() == run.series("train_loss").steps.tolist() == [3, 7, 11]
        assert (run.config["mine"], run.config["n_parameters"], run.config["optimizers"]) == (1, "?", ["SGD"])
        assert run.config["hparams"] == {"width": 8}
        assert [record.value.endswith("step=12.ckpt") for record in run.series("file/path")] == [True]
        assert run.config["trainer"]["max_epochs"] == 3


def test_metrics_are_logged_once_beside_a_logger(tmp_path):
    from sightglass.trackers.lightning import SightglassLogger

    with sg.init("t", dir=str(tmp_path)) as run:
        fit(tmp_path, SightglassCallback(run), logger=SightglassLogger(run))
    with sg.open(run.directory) as kept:
        steps = kept.series("val_loss").steps.tolist()
    assert len({*steps}) == len(steps) == 3


def test_accumulated_batches_have_the_step_that_they_lead_to_and_the_loss_that_was_returned(tmp_path):
    returned = []

    class Remembering(Net):
        def training_step(self, batch, index):
            returned.append(super().training_step(batch, index))
            return returned[-1]

    with sg.init("t", budget=None) as run, sg.connect(run) as client:
        losses = client.stream("batch.loss")
        trainer = fit(tmp_path, SightglassCallback(run), model=Remembering(), accumulate_grad_batches=2)
        run.flush()
        assert losses.wait(12)
        run.close()
        records = [*losses]
    assert trainer.global_step == 6
    assert [record.step for record in records] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [record.value for record in records] == pytest.approx([float(loss.detach()) for loss in returned])


def test_an_error_in_the_training_leaves_nothing(tmp_path):
    class Broken(Net):
        def training_step(self, batch, index):
            if index == 2:
                raise ArithmeticError("broken")
            return super().training_step(batch, index)

    with sg.init("t") as run:
        with pytest.raises(ArithmeticError):
            fit(tmp_path, SightglassCallback(run), model=Broken())
        assert list(run._telemetry.steps) == []


def test_wrong_arguments():
    with pytest.raises(TypeError, match="got int 3"):
        SightglassCallback(3)
    with sg.init("t") as run, pytest.raises(TypeError, match="got dir"):
        SightglassCallback(run, dir="x")
