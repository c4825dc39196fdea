"""A tracker for Accelerate: `Accelerator(log_with=SightglassTracker("bert"))`, alone or beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sightglass.callbacks.callback_run import CallbackRun
from sightglass.core.errors import MissingExtraError
from sightglass.core.process.current_run import Handle
from sightglass.training.run import Run

from . import media

try:
    from accelerate.tracking import GeneralTracker, on_main_process
except ModuleNotFoundError as error:
    raise MissingExtraError(
        error.name or "accelerate", extra="huggingface", purpose="The tracker for Accelerate"
    ) from None


class SightglassTracker(Handle, GeneralTracker):  # type: ignore[misc]
    """Logs in a run what goes through `accelerator.log`.

    It has the methods of Accelerate's tracker for W&B. The run begins with `accelerator.init_trackers`, whose config
    becomes its own, and ends with `accelerator.end_training`; what comes later continues it. Everything happens in the
    main process.
    """

    name: Final = "sightglass"
    requires_logging_directory: Final = False
    main_process_only: Final = True

    def __init__(self, run: Run | str = "accelerate", **options: object) -> None:
        """Take a run, which stays open, or the name of one to begin.

        Args:
            run: The run, or its name.
            **options: Arguments of `sightglass.init`, if `run` is a name; with `files=sg.Files(into=directory)` the run
                continues an earlier one.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        super().__init__()
        self._callback_run = CallbackRun(run, options)

    @property
    def tracker(self) -> Run | None:
        """The run; `None` while there is none: before it begins, after its end, and in other processes."""
        return self._callback_run.run

    @on_main_process  # type: ignore[untyped-decorator]
    def start(self) -> None:
        """Begin the run."""
        self._callback_run.begin()

    @on_main_process  # type: ignore[untyped-decorator]
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Make a configuration part of the run's config, nested and with its types."""
        self._callback_run.log_hyper_parameters(values)

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Mapping[str, Any], step: int | None = None, **options: object) -> None:
        """Log values; options, which `accelerator.log(log_kwargs=…)` passes to each tracker, have no effect."""
        self._callback_run.begin().log(dict(values), step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def log_images(self, values: Mapping[str, Sequence[Any]], step: int | None = None, **options: object) -> None:
        """Log pictures, as `Images`, or `{name}/{number}` if their sizes differ.

        Args:
            values: By their names, several pictures each: tensors of shape (channels, height, width), arrays of shape
                (height, width, channels), images of Pillow, or paths.
            step: The step.
            **options: No effect.
        """
        self.log({name: media.images(list(pictures)) for name, pictures in values.items()}, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def log_table(
        self,
        table_name: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **options: object,
    ) -> None:
        """Log a table, of named columns and rows or a data frame, as `Table`; options have no effect.

        Raises:
            ValueError: A row has not as many items as there are columns.
        """
        self.log({table_name: media.table(columns, data, dataframe)}, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """End the run, unless it was passed."""
        self._callback_run.end()
