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
    "epoch", "validation" and "test" with the metrics; "checkpoint" with the checkpoint's contents. Steps are those of
    Lightning's loggers: the number of the batch that the optimizer steps after, from 0; batches whose gradients are
    accumulated have one step, and what happens after a batch has the step of that batch. The run logs the metrics at
    the end of each epoch, and of `validate` and `test`, unless a logger of the trainer logs in it. A run that begins
    with the training has the module's hyper-parameters and facts about the training as `config`; the trainer's next
    `fit`, `validate` or `test` continues it.
    """

    def __init__(self, run: Run | str = "lightning", *, watch: bool = True, **options: object) -> None:
        """Take a run, or the name of one to begin with the training.

        Args:
            run: A run, which stays open, or the name of a run that begins and ends with the training. If the trainer
                has a `SightglassLogger` of this name, it is the logger's, unless there are options, besides `record`,
                that the logger does not have.
            watch: Whether to make the model's tensors observable, and its optimizers' settings controls.
            **options: Arguments of `sightglass.init`, if `run` is a name.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        self._callback_run = CallbackRun(run, options)
        self._watches = watch
        self._step = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Use the run of the trainer's logger, if that is meant."""
        for logger in trainer.loggers:
            self._callback_run = self._callback_run.or_meant(getattr(logger, "_callback_run", None))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin or continue the run, and watch the model."""
        self._begin(trainer, pl_module)
        self._step = max(0, self._step - 1)
        if self._watches:
            self._callback_run.watch(pl_module, trainer.optimizers)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Observe a batch, and stop the training if a client has stopped the run."""
        metrics = dict(outputs) if isinstance(outputs, Mapping) else {} if outputs is None else {"loss": outputs}
        gathers = pl_module.automatic_optimization and trainer.accumulate_grad_batches > 1
        if gathers and "loss" in metrics:
            metrics["loss"] = metrics["loss"] * trainer.accumulate_grad_batches  # the trainer has divided it
        self._step = _next_step(trainer)
        self._callback_run.observe("batch", metrics, step=self._step, batch=batch, batch_index=batch_idx)
        self._stop_if_requested(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Observe an epoch with its metrics."""
        self._callback_run.end_epoch()
        self._log(trainer)
        self._observe("epoch", trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin or continue the run, if this is not a part of `fit`."""
        if trainer.state.fn == "validate":
            self._begin(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Observe a validation with its metrics."""
        if not trainer.sanity_checking:
            self._log(trainer, if_alone="validate")
            self._observe("validation", trainer)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin or continue the run."""
        self._begin(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Observe a test with its metrics."""
        self._log(trainer, if_alone="test")
        self._observe("test", trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Mapping[str, object]
    ) -> None:
        """Observe a checkpoint with its contents, and the trainer's `global_step`, which its file is named by."""
        own = {"epoch": trainer.current_epoch, "global_step": trainer.global_step, "checkpoint": checkpoint}
        self._callback_run.observe("checkpoint", step=self._step, **own)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop watching the model, record its checkpoints, and end the run that began with the training."""
        for saves in trainer.checkpoint_callbacks:
            for path in checkpoints_of(saves):
                self._callback_run.file(path, step=self._step)
        self._callback_run.end()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End the run that began with the stage."""
        self._callback_run.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop watching the model, and end the run that began with the training."""
        self._callback_run.end(exception)

    def _elsewhere(self) -> tuple[Any, ...]:
        self._callback_run.settle()  # the strategy "ddp_spawn" sends it to processes, and each stage to others
        return super()._elsewhere()

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        self._callback_run.begin(lambda: _facts(trainer, module))
        self._step = _next_step(trainer)

    def _log(self, trainer: Trainer, if_alone: str = "") -> None:
        """Log the metrics, unless a logger does it; those of a validation within `fit` come with the epoch."""
        run = self._callback_run.run
        alone = not if_alone or trainer.state.fn == if_alone
        if alone and run is not None and run not in runs_of_loggers:
            self._callback_run.log(dict(trainer.callback_metrics), step=self._step)

    def _observe(self, event: str, trainer: Trainer) -> None:
        metrics = trainer.callback_metrics
        self._callback_run.observe(event, metrics, step=self._step, epoch=trainer.current_epoch)
        self._stop_if_requested(trainer)

    def _stop_if_requested(self, trainer: Trainer) -> None:
        if self._callback_run.stopping:
            trainer.should_stop = True


def checkpoints_of(saves: object) -> list[str]:
    """Return the paths of the checkpoints that a `ModelCheckpoint` keeps."""
    paths = [getattr(saves, "last_model_path", ""), getattr(saves, "best_model_path", "")]
    return [*dict.fromkeys(str(path) for path in (*getattr(saves, "best_k_models", ()), *paths) if path)]


def _next_step(trainer: Trainer) -> int:
    """Return the step at which Lightning's loggers have what is logged now: it has no public name."""
    loop = getattr(trainer.fit_loop, "epoch_loop", None)
    return int(getattr(loop, "_batches_that_stepped", trainer.global_step))


def _facts(trainer: Trainer, module: LightningModule) -> dict[str, Any]:
    """Return a module's hyper-parameters, and facts about its training."""
    optimizers = [type(optimizer).__name__ for optimizer in trainer.optimizers]
    return {
        "hparams": dict(module.hparams),
        "n_parameters": sum(p.numel() for p in module.parameters() if is_made(p)),
        **({"optimizers": optimizers} if optimizers else {}),  # a test has none
        "trainer": {
            "max_epochs": trainer.max_epochs,
            "max_steps": trainer.max_steps,
            "precision": str(trainer.precision),
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            "gradient_clip_val": trainer.gradient_clip_val,
            "world_size": trainer.world_size,
        },
    }
