"""The callback for Lightning: `Trainer(callbacks=[SightglassCallback("mnist")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sightglass.core.process.current_run import Handle
from sightglass.torch.observables import is_made
from sightglass.training.run import Run

from .callback_run import CallbackRun, runs_of_loggers
from .lightning_package import lightning_package

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class SightglassCallback(Handle, lightning_package("The callback for Lightning").Callback):  # type: ignore[misc]
    """Lets clients query and control a Lightning training.

    Events: "batch" with `loss` as `training_step` returned it, `batch`, `batch_index`, and the observables of `watch`;
    "epoch" and "validation" with the metrics; "checkpoint" with the checkpoint's contents. The step is the trainer's
    `global_step`; batches whose gradients are accumulated have that of the step that they lead to. The run logs the
    metrics at the end of each epoch, unless a logger of the trainer logs in it. A run that begins with the training
    has the module's hyper-parameters and facts about the training as `config`.
    """

    def __init__(self, run: Run | str = "lightning", *, watch: bool = True, **options: object) -> None:
        """Take a run, or the name of one to begin with the training.

        Args:
            run: A run, which stays open, or the name of a run that begins and ends with the training.
            watch: Whether to make the model's tensors observable, and its optimizers' settings controls.
            **options: Arguments of `sightglass.init`, if `run` is a name.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        self._callback_run = CallbackRun(run, options)
        self._watches = watch
        self._last_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the run, and watch the model."""
        self._callback_run.begin(lambda: _facts(trainer, pl_module))
        self._last_step = trainer.global_step
        if self._watches:
            self._callback_run.watch(pl_module, trainer.optimizers)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Observe a batch, and stop the training if a client has stopped the run."""
        metrics = dict(outputs) if isinstance(outputs, Mapping) else {} if outputs is None else {"loss": outputs}
        step, gathers = trainer.global_step, pl_module.automatic_optimization and trainer.accumulate_grad_batches > 1
        if gathers and "loss" in metrics:
            metrics["loss"] = metrics["loss"] * trainer.accumulate_grad_batches  # the trainer has divided it
        if gathers and step == self._last_step:
            step += 1
        self._last_step = trainer.global_step
        self._callback_run.observe("batch", metrics, step=step, batch=batch, batch_index=batch_idx)
        self._stop_if_requested(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Observe an epoch with its metrics."""
        self._callback_run.end_epoch()
        run = self._callback_run.run
        if run is not None and run not in runs_of_loggers and trainer.callback_metrics:
            run.log(dict(trainer.callback_metrics), step=trainer.global_step)
        self._observe("epoch", trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Observe a validation with its metrics."""
        if not trainer.sanity_checking:
            self._observe("validation", trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Mapping[str, object]
    ) -> None:
        """Observe a checkpoint with its contents."""
        self._callback_run.observe(
            "checkpoint", step=trainer.global_step, epoch=trainer.current_epoch, checkpoint=checkpoint
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop watching the model, and end the run that began with the training."""
        self._callback_run.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop watching the model, and end the run that began with the training."""
        self._callback_run.end()

    def _observe(self, event: str, trainer: Trainer) -> None:
        self._callback_run.observe(
            event, trainer.callback_metrics, step=trainer.global_step, epoch=trainer.current_epoch
        )
        self._stop_if_requested(trainer)

    def _stop_if_requested(self, trainer: Trainer) -> None:
        if self._callback_run.stopping:
            trainer.should_stop = True


def _facts(trainer: Trainer, module: LightningModule) -> dict[str, Any]:
    """Return a module's hyper-parameters, and facts about its training."""
    return {
        "hparams": dict(module.hparams),
        "n_parameters": sum(p.numel() for p in module.parameters() if is_made(p)),
        "optimizers": [type(optimizer).__name__ for optimizer in trainer.optimizers],
        "trainer": {
            "max_epochs": trainer.max_epochs,
            "max_steps": trainer.max_steps,
            "precision": str(trainer.precision),
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            "gradient_clip_val": trainer.gradient_clip_val,
            "world_size": trainer.world_size,
        },
    }
