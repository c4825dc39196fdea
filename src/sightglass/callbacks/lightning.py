"""The callback for Lightning: `Trainer(callbacks=[SightglassCallback("mnist")])`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sightglass.core.errors import MissingExtraError
from sightglass.torch import Watched, watch
from sightglass.training.run import Run

from .callback_run import CallbackRun, free_names

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


def _base() -> Any:
    """Return the base class of callbacks, of the one of Lightning's two packages that the program uses.

    Raises:
        MissingExtraError: Neither package is installed.
    """
    try:
        if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ModuleNotFoundError as error:
        missing = error.name or "lightning"
        raise MissingExtraError(missing, extra="lightning", purpose="The callback for Lightning") from None
    return Callback


class SightglassCallback(_base()):  # type: ignore[misc]
    """Lets clients query and control a Lightning training.

    Events: "batch" with `loss`, `batch`, `batch_index`, and the observables of `watch`; "epoch" and "validation" with
    the metrics; "checkpoint" with the checkpoint's contents. The step is the trainer's `global_step`.
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
        self._watched: Watched | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the run, and watch the model."""
        run = self._callback_run.begin()
        if self._watches:
            self._watched = watch(pl_module, run, optimizer=trainer.optimizers)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Observe a batch, and stop the training if a client has stopped the run."""
        metrics = dict(outputs) if isinstance(outputs, Mapping) else {} if outputs is None else {"loss": outputs}
        own = {"step": trainer.global_step, "batch": batch, "batch_index": batch_idx}
        self._callback_run.observe("batch", **own, **free_names(metrics, own))
        self._stop_if_requested(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Observe an epoch with its metrics."""
        if self._callback_run.run is not None:
            self._callback_run.run.end_group("batch")
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
        self._end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop watching the model, and end the run that began with the training."""
        self._end()

    def _observe(self, event: str, trainer: Trainer) -> None:
        own = {"step": trainer.global_step, "epoch": trainer.current_epoch}
        self._callback_run.observe(event, **own, **free_names(trainer.callback_metrics, own))
        self._stop_if_requested(trainer)

    def _stop_if_requested(self, trainer: Trainer) -> None:
        if self._callback_run.stopping:
            trainer.should_stop = True

    def _end(self) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None
        self._callback_run.end()
