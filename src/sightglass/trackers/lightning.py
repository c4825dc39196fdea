"""A logger for Lightning: `Trainer(logger=SightglassLogger("mnist"))`, alone or beside others."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from sightglass.callbacks.callback_run import CallbackRun, runs_of_loggers
from sightglass.callbacks.lightning_package import lightning_package
from sightglass.core.process.current_run import Handle
from sightglass.core.process.files import runs_folder
from sightglass.core.process.ranks import is_first_rank
from sightglass.training.run import Run

lightning = lightning_package("The logger for Lightning")


class SightglassLogger(Handle, lightning.loggers.Logger):  # type: ignore[misc,name-defined]
    """Logs in a run what a module passes to `self.log`. To query its tensors, add the callback for Lightning.

    The run begins on rank 0, with the first metrics or when somebody asks for it. Checkpoints go to
    `{folder of runs}/{name}/{id}/checkpoints`, unless the trainer says otherwise.
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
        self._folder = options.get("dir")
        self._run = run if isinstance(run, Run) else None  # the newest, also when it has ended

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._name

    @property
    @lightning.loggers.logger.rank_zero_experiment  # type: ignore[untyped-decorator]
    def experiment(self) -> Run:
        """The run, which begins now if it has not; on other ranks than 0 an object whose methods do nothing."""
        if self._run is None:
            self._run = self._callback_run.begin()
        return self._run

    @property
    def version(self) -> str | None:
        """The id of the run, which begins now if it has not; `None` on other ranks than 0."""
        run = self.experiment
        return run.id if isinstance(run, Run) else None

    @property
    def save_dir(self) -> str:
        """The folder of the run's directory."""
        directory = None if self._run is None else self._run.directory
        folder = self._folder or runs_folder()
        return os.fspath(folder if directory is None else directory.parent)  # type: ignore[call-overload,no-any-return]

    @property
    def root_dir(self) -> str:
        """The folder of the run's directory."""
        return self.save_dir

    @property
    def log_dir(self) -> str | None:
        """The run's directory; `None` on other ranks than 0. The run begins now if it has not."""
        run = self.experiment
        return str(run.directory) if isinstance(run, Run) else None

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace, *rest: object, **options: object) -> None:
        """Log hyper-parameters, as `hparams/{name}`."""
        if is_first_rank():
            self._callback_run.log_hyper_parameters(vars(params) if isinstance(params, Namespace) else params)
            self._run = self._callback_run.run

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics."""
        if is_first_rank():
            self._run = self._callback_run.begin()
            runs_of_loggers.add(self._run)
            self._run.log(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        """End the run that began with the training."""
        self._callback_run.end()
