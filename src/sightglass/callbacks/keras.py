"""A callback for Keras 3, whatever computes below it: `model.fit(…, callbacks=[SightglassCallback("mnist")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sightglass.core.errors import MissingExtraError
from sightglass.training.run import Run, wiring

from .callback_run import CallbackRun, named

try:
    import keras
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "keras", extra="keras", purpose="The callback for Keras") from None

RATE: Final = "optimizer.lr"


class _Rate:
    """The learning rate of an optimizer, read and written as a number."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @property
    def value(self) -> float:
        return float(keras.ops.convert_to_numpy(self._optimizer.learning_rate))

    @value.setter
    def value(self, value: float) -> None:
        self._optimizer.learning_rate = value


class SightglassCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Lets clients ask a Keras training, and act on it.

    Events: "batch" with the metrics so far, and `params`, the model's weights by their paths; "epoch" with the metrics;
    "validation" with those of the validation; "checkpoint" when `checkpoint()` is called, as Keras does not tell. The
    learning rate is the control "optimizer.lr", unless a schedule sets it. The step counts batches.
    """

    def __init__(self, run: Run | str = "keras", *, watch: bool = True, **options: Any) -> None:
        """Prepare the callback.

        Args:
            run: A run, which stays open, or the name of one that begins and ends with the training.
            watch: Whether to offer the model's weights, and the learning rate as a control.
            **options: For `sightglass.init`, where `run` is a name.

        Raises:
            TypeError: It is neither a run nor a name, or there are options for a run that has begun.
        """
        super().__init__()
        self._session = CallbackRun(run, options)
        self._watches = watch
        self._step = 0
        self._epoch = 0
        self._has_control = False

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Begin the run, and offer the learning rate."""
        run = self._session.begin()
        optimizer = getattr(self.model, "optimizer", None)
        scheduled = optimizer is not None and isinstance(optimizer.get_config().get("learning_rate"), Mapping)
        if self._watches and optimizer is not None and not scheduled and not run.disabled:
            rate = _Rate(optimizer)
            run.control(RATE, bind=(rate, "value"), min=0.0, max=max(1.0, 10.0 * rate.value))
            self._has_control = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Announce a batch, and stop the training if a client has asked for it."""
        own: dict[str, Any] = {"step": self._step, "epoch": self._epoch, "batch_index": batch}
        if self._watches:
            own["params"] = {variable.path: variable.value for variable in self.model.weights}
        self._step += 1
        self._session.observe("batch", **own, **named(logs, own))
        self._stop_if_asked()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Announce an epoch with its metrics."""
        if self._session.run is not None:
            self._session.run.end_group("batch")
        self._announce("epoch", logs)
        self._epoch = epoch + 1

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Announce a validation with its metrics."""
        self._announce("validation", logs)

    def checkpoint(self, **observables: Any) -> None:
        """Announce a checkpoint; for whoever saves one."""
        self._announce("checkpoint", observables)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """End the run that began with the training, and offer the learning rate no more."""
        run = self._session.run
        if run is not None and self._has_control:
            self._has_control = False
            with wiring(run).emitter.lock:
                wiring(run).emitter.ledger.controls.pop(RATE, None)
        self._session.end()

    def _announce(self, event: str, values: Mapping[str, Any] | None) -> None:
        own = {"step": self._step, "epoch": self._epoch}
        self._session.observe(event, **own, **named(values, own))
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._session.stopping:
            self.model.stop_training = True
