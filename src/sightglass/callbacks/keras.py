"""The callback for Keras 3, with any backend: `model.fit(…, callbacks=[SightglassCallback("mnist")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sightglass.core.errors import MissingExtraError
from sightglass.core.process.current_run import Handle
from sightglass.training.run import Run, wiring

from .callback_run import CallbackRun

try:
    import keras
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "keras", extra="keras", purpose="The callback for Keras") from None

LR_CONTROL: Final = "optimizer.lr"


class _LearningRate:
    """The learning rate of an optimizer, read and written as a number."""

    def __init__(self, optimizer: keras.optimizers.Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def value(self) -> float:
        return float(keras.ops.convert_to_numpy(self._optimizer.learning_rate))

    @value.setter
    def value(self, value: float) -> None:
        self._optimizer.learning_rate = value


def _scheduled(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether a schedule sets the learning rate of an optimizer."""
    return isinstance(optimizer.get_config().get("learning_rate"), Mapping)


class SightglassCallback(Handle, keras.callbacks.Callback):  # type: ignore[misc]
    """Lets clients query and control a Keras training.

    Events: "batch" with the metrics so far, and `params`, the model's weights by their paths; "epoch" with the metrics;
    "validation" with those of the validation; "test" with those of `evaluate`; "checkpoint" when you call
    `checkpoint()`, because Keras does not report checkpoints. On PyTorch a batch also has `grads`, by the same paths,
    and what layers take and return, by their names: "dense", "encoder/dense". On PyTorch and JAX, "initial" has the
    norms and histograms that the weights began with. The learning rate is the control
    "optimizer.lr", unless a schedule sets it. The step counts batches, from 0, or from those that the optimizer has
    taken before; what happens after a batch has its step.

    The run logs the metrics of each epoch, with `epoch` as a step track, and those of `evaluate` as `test_{name}`. A
    run that begins with the training has the optimizer's settings and facts about the training as `config`; the model's
    next `fit` or `evaluate` continues it.
    """

    def __init__(self, run: Run | str = "keras", *, watch: bool = True, **options: object) -> None:
        """Take a run, or the name of one to begin with the training.

        Args:
            run: A run, which stays open, or the name of a run that begins and ends with the training.
            watch: Whether to make the model's weights observable, and the learning rate a control.
            **options: Arguments of `sightglass.init`, if `run` is a name.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        super().__init__()
        self._callback_run = CallbackRun(run, options)
        self._watches = watch
        self._n_batches = 0
        self._epoch = 0
        self._trains = False
        self._has_control = False
        self._module: object = None  # `watch` does not keep it alive

    def set_params(self, params: Mapping[str, object]) -> None:
        """Take what Keras tells at the begin of `fit`, `evaluate` and `predict`, also after one that has failed."""
        super().set_params(params)
        self._trains = False

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Begin or continue the run, and declare the learning rate as a control."""
        self._trains = True
        run = self._callback_run.begin(self._facts)
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None and not self._n_batches:  # else a training that is resumed would begin at 0 again
            self._n_batches = int(keras.ops.convert_to_numpy(optimizer.iterations))
        if self._watches and optimizer is not None and not _scheduled(optimizer) and not run.disabled:
            rate = _LearningRate(optimizer)
            run.control(LR_CONTROL, bind=(rate, "value"), min=0.0, max=max(1.0, 10.0 * rate.value))
            self._has_control = True
        if self._watches and keras.backend.backend() == "torch":
            from sightglass.torch.watch import KerasModel

            self._module = module = KerasModel(self.model)
            self._callback_run.watch(module)
        elif self._watches and keras.backend.backend() == "jax":
            from sightglass.jax.initial import initial

            initial({variable.path: variable.value for variable in self.model.weights}, run)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Observe a batch, and stop the training if a client has stopped the run."""
        own: dict[str, object] = {"step": self._n_batches, "epoch": self._epoch, "batch_index": batch}
        if self._watches:
            own["params"] = {variable.path: variable.value for variable in self.model.weights}
        self._n_batches += 1
        self._callback_run.observe("batch", logs, **own)
        self._stop_if_requested()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Remember the number of the epoch, which `fit(initial_epoch=…)` sets."""
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Observe an epoch, and log its metrics."""
        self._epoch = epoch
        self._callback_run.end_epoch()
        self._callback_run.log(dict(logs or {}), step=self._step, epoch=epoch)
        self._observe("epoch", logs)

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Begin or continue the run for an evaluation."""
        self._callback_run.begin(self._facts)

    def on_test_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Observe a validation with its metrics; log them, and end the run, if it is not a part of `fit`."""
        self._observe("validation" if self._trains else "test", logs)
        if not self._trains:
            found = {f"test_{name}": value for name, value in (logs or {}).items()}
            self._callback_run.log(found, step=self._step, epoch=self._epoch)
            self._callback_run.end()

    def checkpoint(self, **observables: object) -> None:
        """Observe a checkpoint, and record where its file `path` is. Call it when you have saved one."""
        self._observe("checkpoint", observables)
        self._callback_run.file(observables.get("path"), step=self._step)

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """End the run that began with the training, and stop watching the model."""
        self._trains = False
        run = self._callback_run.run
        if run is not None and self._has_control:
            self._has_control = False
            with wiring(run).telemetry.lock.mutex:
                wiring(run).telemetry.commands.queue.controls.pop(LR_CONTROL, None)
        self._callback_run.end()
        self._module = None

    @property
    def _step(self) -> int:
        """The step of the last batch."""
        return max(0, self._n_batches - 1)

    def _facts(self) -> dict[str, object]:
        """Return what is known of the training."""
        model, optimizer = self.model, getattr(self.model, "optimizer", None)
        facts: dict[str, object] = {"model": model.name, "training": dict(self.params or {})}
        if model.built:
            facts["n_parameters"] = model.count_params()
        if optimizer is not None:
            facts["optimizer"] = optimizer.get_config()
        return facts

    def _observe(self, event: str, metrics: Mapping[str, object] | None) -> None:
        self._callback_run.observe(event, metrics, step=self._step, epoch=self._epoch)
        self._stop_if_requested()

    def _stop_if_requested(self) -> None:
        if self._callback_run.stopping:
            self.model.stop_training = True
