"""The callback for the Hugging Face `Trainer`: `Trainer(…, callbacks=[SightglassCallback("gpt")])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightglass.core.errors import MissingExtraError
from sightglass.core.process.current_run import Handle
from sightglass.training.run import Run

from .callback_run import CallbackRun

try:
    from transformers import (
        PretrainedConfig,
        PreTrainedModel,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ModuleNotFoundError as error:
    raise MissingExtraError(
        error.name or "transformers", extra="huggingface", purpose="The callback for Hugging Face"
    ) from None


class SightglassCallback(Handle, TrainerCallback):  # type: ignore[misc]
    """Lets clients query and control a training of a Hugging Face `Trainer`.

    Events: "batch" after each step, with the observables of `watch` (`b.activations[""].loss` is the loss of the
    model's last call); "epoch"; "validation" with the metrics; "checkpoint" with its `directory`. The run logs what the
    trainer logs: its `loss` is the mean over accumulated batches, processes and the steps between two logs. The step is
    the trainer's `global_step`. A run that begins with the training has its arguments and the model's as `config`.
    """

    def __init__(self, run: Run | str = "huggingface", *, watch: bool = True, **options: object) -> None:
        """Take a run, or the name of one to begin with the training.

        Args:
            run: A run, which stays open, or the name of a run that begins and ends with the training.
            watch: Whether to make the model's tensors observable, and the optimizer's settings controls.
            **options: Arguments of `sightglass.init`, if `run` is a name.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        self._callback_run = CallbackRun(run, options)
        self._watches = watch

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        optimizer: Any = None,
        **rest: object,
    ) -> None:
        """Begin the run, and watch the model."""
        self._callback_run.begin(lambda: _facts(args, model))
        if self._watches and model is not None:
            self._callback_run.watch(model, optimizer)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> TrainerControl:
        """Observe a batch, and stop the training if a client has stopped the run."""
        self._callback_run.observe("batch", step=state.global_step, epoch=state.epoch)
        return self._stop_if_requested(control)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **rest: object,
    ) -> None:
        """Log the trainer's logs."""
        if self._callback_run.run is not None and logs:
            self._callback_run.run.log(dict(logs), step=state.global_step)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> TrainerControl:
        """Observe an epoch."""
        self._callback_run.end_epoch()
        self._callback_run.observe("epoch", step=state.global_step, epoch=state.epoch)
        return self._stop_if_requested(control)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **rest: object,
    ) -> TrainerControl:
        """Observe a validation with its metrics."""
        self._callback_run.observe("validation", metrics, step=state.global_step, epoch=state.epoch)
        return self._stop_if_requested(control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object) -> None:
        """Observe a checkpoint."""
        directory = str(Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        self._callback_run.observe("checkpoint", step=state.global_step, epoch=state.epoch, directory=directory)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> None:
        """Stop watching the model, and end the run that began with the training."""
        self._callback_run.end()

    def _stop_if_requested(self, control: TrainerControl) -> TrainerControl:
        if self._callback_run.stopping:
            control.should_training_stop = True
        return control


def _facts(args: TrainingArguments, model: PreTrainedModel | None) -> dict[str, Any]:
    """Return the arguments of a training, without secrets, and what the model is."""
    facts: dict[str, Any] = {"training": args.to_dict()}
    if model is not None:
        facts["n_parameters"] = sum(p.numel() for p in model.parameters())
        facts["model"] = model.config.to_dict() if isinstance(getattr(model, "config", None), PretrainedConfig) else {}
    return facts
