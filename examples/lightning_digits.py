"""Watch a Lightning training with one callback, change its learning rate, and stop it when it is good enough.

python examples/lightning_digits.py
"""

from __future__ import annotations

import os
import tempfile
import threading
import warnings

import lightning.pytorch as pl
import torch
from torch import nn

import sightglass as sg
from sightglass.callbacks.lightning import SightglassCallback
from sightglass.demo import digits

GOOD = 0.9


class Classifier(pl.LightningModule):
    """An ordinary network with one hidden layer."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x).relu())

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def loader(images, labels):
    data = torch.utils.data.TensorDataset(torch.as_tensor(images), torch.as_tensor(labels))
    return torch.utils.data.DataLoader(data, batch_size=50)


class Observer(threading.Thread):
    """A client: queries the run, sets the learning rate, and stops the run when the model has learned."""

    def __init__(self, name):
        super().__init__()
        self.run_name, self.accuracies, self.norms, self.error = name, [], [], None

    def run(self):
        try:
            with sg.connect(self.run_name, wait_s=60) as run:
                norms = run.stream(sg.on("batch").map(lambda b: b.grads.map(lambda name, g: g.norm())))
                accuracies = run.stream("validation.accuracy")
                run.set("optimizer.lr", 0.1)
                for record in accuracies:
                    self.accuracies.append(record.value)
                    if record.value > GOOD:
                        break
                self.norms = norms.latest.value
                run.stop()
        except sg.SightglassError as error:  # the main thread raises it
            self.error = error


def main():
    warnings.filterwarnings("ignore", module="lightning")
    pl.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    train, test = (loader(*part) for part in (digits.load()[:2], digits.load()[2:]))
    name = f"lightning-digits-{os.getpid()}"
    observer = Observer(name)
    observer.start()
    model = Classifier()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=500, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=folder, callbacks=[SightglassCallback(name, dir=folder)],
        )  # fmt: skip
        trainer.fit(model, train, test)
    observer.join()
    if observer.error is not None:
        raise observer.error
    print("accuracy:", ", ".join(f"{value:.2f}" for value in observer.accuracies))
    print("gradients:", ", ".join(f"{layer} {norm:.3f}" for layer, norm in observer.norms.items()))
    print(f"Stopped after {trainer.current_epoch} epochs of 500.")
    assert observer.accuracies[-1] > GOOD
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.1


if __name__ == "__main__":
    main()
