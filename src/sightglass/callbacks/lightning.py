"""A callback for Lightning: `Trainer(callbacks=[SightglassCallback("mnist")])`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from sightglass.core.errors import MissingExtraError
from sightglass.torch import Watched, watch
from sightglass.training.run import Run

from .callback_run import CallbackRun, named


def _base() -> Any:
    """Return the base class of callbacks, of the package that the program uses: it goes by two names.

    Raises:
        MissingExtraError: Neither is installed.
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
    """Lets clients ask a Lightning training, and act on it.

    Events: "batch" with `loss`, `batch`, `batch_index`, and what `watch` offers of the model; "epoch" and "validation"
    with the metrics; "checkpoint" with what is saved. The step is the trainer's `global_step`.
    """

    def __init__(self, run: Run | str = "lightning", *, watch: bool = True, **options: Any) -> None:
        """Prepare the callback.

        Args:
            run: A run, which stays open, or the name of one that begins and ends with the training.
            watch: Whether to offer the model's tensors; its first optimizer's settings are controls then.
            **options: For `sightglass.init`, where `run` is a name.

        Raises:
            TypeError: It is neither a run nor a name, or there are options for a run that has begun.
        """
        self._session = CallbackRun(run, options)
        self._watches = watch
        self._watched: Watched | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the run, and watch the model."""
        run = self._session.begin()
        if self._watches:
            optimizer = trainer.optimizers[0] if trainer.optimizers else None
            self._watched = watch(pl_module, run, optimizer=optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Announce a batch, and stop the training if a client has asked for it."""
        given = dict(outputs) if isinstance(outputs, Mapping) else {} if outputs is None else {"loss": outputs}
        own = {"step": trainer.global_step, "batch": batch, "batch_index": batch_idx}
        self._session.observe("batch", **own, **named(given, own))
        self._stop_if_asked(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Announce an epoch with its metrics."""
        if self._session.run is not None:
            self._session.run.end_group("batch")
        self._announce("epoch", trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Announce a validation with its metrics."""
        if not trainer.sanity_checking:
            self._announce("validation", trainer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Mapping[str, Any]) -> None:
        """Announce a checkpoint with what is saved."""
        self._session.observe(
            "checkpoint", step=trainer.global_step, epoch=trainer.current_epoch, checkpoint=checkpoint
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the model as it was, and end the run that began with the training."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model as it was, and end the run that began with the training."""
        self._end()

    def _announce(self, event: str, trainer: Any) -> None:
        own = {"step": trainer.global_step, "epoch": trainer.current_epoch}
        self._session.observe(event, **own, **named(trainer.callback_metrics, own))
        self._stop_if_asked(trainer)

    def _stop_if_asked(self, trainer: Any) -> None:
        if self._session.stopping:
            trainer.should_stop = True

    def _end(self) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None
        self._session.end()
