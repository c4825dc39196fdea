"""A callback for the `Trainer` of Hugging Face: `Trainer(…, callbacks=[SightglassCallback("gpt")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sightglass.core.errors import MissingExtraError
from sightglass.torch import Watched, watch
from sightglass.training.run import Run

from .callback_run import CallbackRun, named

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise MissingExtraError(
        error.name or "transformers", extra="huggingface", purpose="The callback for Hugging Face"
    ) from None


class SightglassCallback(TrainerCallback):  # type: ignore[misc]
    """Lets clients ask a training of a Hugging Face `Trainer`, and act on it.

    Events: "batch" behind each step, with what `watch` offers of the model (`b.activations[""].loss` is the loss of its
    last call); "epoch"; "validation" with the metrics; "checkpoint". What the trainer logs is logged in the run.
    The step is the trainer's `global_step`.
    """

    def __init__(self, run: Run | str = "huggingface", *, watch: bool = True, **options: Any) -> None:
        """Prepare the callback.

        Args:
            run: A run, which stays open, or the name of one that begins and ends with the training.
            watch: Whether to offer the model's tensors, and the optimizer's settings as controls.
            **options: For `sightglass.init`, where `run` is a name.

        Raises:
            TypeError: It is neither a run nor a name, or there are options for a run that has begun.
        """
        self._session = CallbackRun(run, options)
        self._watches = watch
        self._watched: Watched | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **rest: Any
    ) -> None:
        """Begin the run, and watch the model."""
        run = self._session.begin()
        if self._watches and model is not None:
            self._watched = watch(model, run, optimizer=optimizer)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Announce a batch, and stop the training if a client has asked for it."""
        self._session.observe("batch", step=state.global_step, epoch=state.epoch)
        return self._asked(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **rest: Any) -> None:
        """Log what the trainer logs."""
        if self._session.run is not None and logs:
            self._session.run.log(dict(logs), step=state.global_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Announce an epoch."""
        if self._session.run is not None:
            self._session.run.end_group("batch")
        self._session.observe("epoch", step=state.global_step, epoch=state.epoch)
        return self._asked(control)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **rest: Any
    ) -> Any:
        """Announce a validation with its metrics."""
        own = {"step": state.global_step, "epoch": state.epoch}
        self._session.observe("validation", **own, **named(metrics, own))
        return self._asked(control)

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Announce a checkpoint."""
        self._session.observe("checkpoint", step=state.global_step, epoch=state.epoch, directory=args.output_dir)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Leave the model as it was, and end the run that began with the training."""
        if self._watched is not None:
            self._watched.close()
            self._watched = None
        self._session.end()

    def _asked(self, control: Any) -> Any:
        if self._session.stopping:
            control.should_training_stop = True
        return control
