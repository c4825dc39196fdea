"""A tracker for Accelerate: `Accelerator(log_with=SightglassTracker("bert"))`, alone or beside others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sightglass.callbacks.callback_run import CallbackRun
from sightglass.core.errors import MissingExtraError
from sightglass.core.process.current_run import Handle
from sightglass.training.run import Run

try:
    from accelerate.tracking import GeneralTracker
except ModuleNotFoundError as error:
    raise MissingExtraError(
        error.name or "accelerate", extra="huggingface", purpose="The tracker for Accelerate"
    ) from None


class SightglassTracker(Handle, GeneralTracker):  # type: ignore[misc]
    """Logs in a run what goes through `accelerator.log`.

    The run begins with `accelerator.init_trackers`, whose config becomes `hparams/{name}`, and ends with
    `accelerator.end_training`. Accelerate calls trackers in the main process only.
    """

    name: Final = "sightglass"
    requires_logging_directory: Final = False

    def __init__(self, run: Run | str = "accelerate", **options: object) -> None:
        """Take a run, which stays open, or the name of one to begin.

        Args:
            run: The run, or its name.
            **options: Arguments of `sightglass.init`, if `run` is a name.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        super().__init__()
        self._callback_run = CallbackRun(run, options)

    @property
    def tracker(self) -> Run | None:
        """The run; `None` before it begins."""
        return self._callback_run.run

    def start(self) -> None:
        """Begin the run."""
        self._callback_run.begin()

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Log the configuration."""
        self._callback_run.log_hyper_parameters(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **options: object) -> None:
        """Log values; options, which `accelerator.log(log_kwargs=…)` passes to each tracker, have no effect."""
        self._callback_run.begin().log(dict(values), step=step)

    def finish(self) -> None:
        """End the run, unless it was passed."""
        self._callback_run.end()
