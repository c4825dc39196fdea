"""A logger for Lightning: `Trainer(logger=SightglassLogger("mnist"))`, alone or beside others."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from sightglass.callbacks.callback_run import CallbackRun, runs_of_loggers
from sightglass.callbacks.lightning_package import lightning_package
from sightglass.core.ranks import is_first_rank
from sightglass.training.run import Run


class SightglassLogger(lightning_package("The logger for Lightning").loggers.Logger):  # type: ignore[misc]
    """Logs in a run what a module passes to `self.log`. To query its tensors, add the callback for Lightning.

    The run begins with the first metrics, on rank 0 only.
    """

    def __init__(self, run: Run | str = "lightning", **options: object) -> None:
        """Take a run, which stays open, or the name of one that begins with the training.

        Args:
            run: The run, or its name.
            **options: Arguments of `sightglass.init`, if `run` is a name.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        super().__init__()
        self._callback_run = CallbackRun(run, options)
        self._name = run if isinstance(run, str) else run.name

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._name

    @property
    def version(self) -> str:
        """The id of the run; empty before it begins."""
        return "" if self._callback_run.run is None else self._callback_run.run.id

    @property
    def experiment(self) -> Run | None:
        """The run; `None` before it begins."""
        return self._callback_run.run

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace, *rest: object, **options: object) -> None:
        """Log hyper-parameters, as `hparams/{name}`."""
        if is_first_rank():
            self._callback_run.log_hyper_parameters(vars(params) if isinstance(params, Namespace) else params)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics."""
        if is_first_rank():
            run = self._callback_run.begin()
            runs_of_loggers.add(run)
            run.log(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        """End the run that began with the training."""
        self._callback_run.end()
