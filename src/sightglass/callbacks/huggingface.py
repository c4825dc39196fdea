"""The callback for the Hugging Face `Trainer`: `Trainer(…, callbacks=[SightglassCallback("gpt")])`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sightglass.core.errors import MissingExtraError
from sightglass.core.process.current_run import Handle
from sightglass.training.run import Run

from .callback_run import CallbackRun
from .completions import KeptCompletions

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
    model's last call); "epoch"; "validation" and "test" with the metrics; "checkpoint" with its `directory`;
    "completions" if you pass reward functions of TRL through `rewards`. The run logs what the trainer logs, on rank 0:
    its `loss` is the mean over accumulated batches, processes and the steps between two logs. The step is the trainer's
    `global_step`. A run that begins with the training has its arguments and the model's as `config`; what the trainer
    does next, such as `evaluate`, continues it.
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
        self._trains = False
        self._completions = KeptCompletions()

    def rewards(self, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
        """Return reward functions that do the same, and whose prompts, completions and rewards are kept.

        For TRL: `GRPOTrainer(reward_funcs=callback.rewards(accuracy, length), callbacks=[callback], …)`. The event
        "completions" offers `prompts`, `completions` and `rewards`, the latter by the functions' names, after each
        step. With each log of the trainer the newest since the last one are logged as the table `completions`, at most
        100.

        Args:
            *functions: Reward functions as TRL calls them: with `prompts` and `completions`, which are texts or lists
                of messages, and further arguments by name. `async` functions may be among them.
        """
        return [self._completions.kept(function) for function in functions]

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        optimizer: Any = None,
        **rest: object,
    ) -> None:
        """Begin or continue the run, and watch the model."""
        self._trains = True
        if state.is_hyper_param_search:  # each trial is a run
            self._callback_run.forget()
        self._begin(args, model)
        if self._watches and model is not None:
            self._callback_run.watch(model, optimizer)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> TrainerControl:
        """Observe a batch, and stop the training if a client has stopped the run."""
        self._callback_run.observe("batch", step=state.global_step, epoch=state.epoch)
        if new := self._completions.take():
            self._callback_run.observe("completions", new, step=state.global_step)
        return self._stop_if_requested(control)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **rest: object,
    ) -> None:
        """Log the trainer's logs, and the completions since the last ones."""
        table = self._completions.table()
        found = {**(logs or {}), **({"completions": table} if table else {})}
        if found and state.is_world_process_zero:
            self._begin(args, rest.get("model"))
            self._callback_run.log(found, step=state.global_step)

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
        """Observe a validation with its metrics; end the run if that is all."""
        self._begin(args, rest.get("model"))
        self._callback_run.observe("validation", metrics, step=state.global_step, epoch=state.epoch)
        self._end_unless_training()
        return self._stop_if_requested(control)

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **rest: object,
    ) -> None:
        """Observe a prediction's metrics, as "test", and log them; end the run if that is all."""
        self._begin(args, rest.get("model"))
        self._callback_run.observe("test", metrics, step=state.global_step, epoch=state.epoch)
        self._callback_run.log(dict(metrics or {}), step=state.global_step)
        self._end_unless_training()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object) -> None:
        """Observe a checkpoint, and record where it is."""
        directory = str(Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        self._callback_run.observe("checkpoint", step=state.global_step, epoch=state.epoch, directory=directory)
        self._callback_run.file(directory, step=state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> None:
        """Stop watching the model, and end the run that began with the training."""
        self._trains = False
        self._callback_run.end()

    def _begin(self, args: TrainingArguments, model: Any) -> None:
        self._callback_run.begin(lambda: _facts(args, model))

    def _end_unless_training(self) -> None:
        if not self._trains:
            self._callback_run.end()

    def _stop_if_requested(self, control: TrainerControl) -> TrainerControl:
        if self._callback_run.stopping:
            control.should_training_stop = True
        return control


def _facts(args: TrainingArguments, model: Any) -> dict[str, Any]:
    """Return the arguments of a training, without secrets, and what the model is."""
    facts: dict[str, Any] = {"training": args.to_dict()}
    if model is not None:
        facts["n_parameters"] = sum(p.numel() for p in model.parameters())
        facts["model"] = model.config.to_dict() if isinstance(getattr(model, "config", None), PretrainedConfig) else {}
    return facts
