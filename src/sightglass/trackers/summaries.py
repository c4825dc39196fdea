# ruff: noqa: PLR0917  the parameters are PyTorch's
"""What all methods of the `SummaryWriter` share: the run, and what is left out; scalars, texts and tensors."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from platform import node
from typing import Any, Final

from sightglass.core.guarded import warn
from sightglass.core.values import Tensor, Text, Value, array_kind
from sightglass.storage.file_names import EVENT_FILES
from sightglass.storage.tensorboard_log import TensorBoard
from sightglass.training.options import Files
from sightglass.training.process_runs import init
from sightglass.training.run import Run, wiring

WALL_TIME: Final = "walltime"
PLAIN_STEPS: Final = frozenset((int, float))


class Summaries:
    """A run that takes summaries.

    Attributes:
        run: The run that gets them.
        log_dir: Where it writes.
        n_left_out: How many calls of each method were left out, by the method's name.
    """

    _put: Callable[..., None]
    _put_number: Callable[[str, float, Any], None]

    def __init__(self, log_dir: str, run: Run | None, event_files: bool, options: Mapping[str, Any]) -> None:
        self.n_left_out: Counter[str] = Counter()
        self.log_dir = log_dir
        self._event_files = event_files
        self._options = options
        self._owns = run is None
        self._use(self._begin(log_dir, options) if run is None else run)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Log a number, without a loss of precision; a number on a device is not waited for.

        Args:
            tag: Its name.
            scalar_value: The number, or an array with one item.
            global_step: The step; by default a counter.
            walltime: A time to note with it, in seconds since the Unix epoch: the step track `walltime`.
            new_style: Has no effect, as `double_precision`: numbers are recorded as they are.
            double_precision: Has no effect.

        Raises:
            ValueError: The array has several items.
        """
        if type(scalar_value) is float and type(global_step) in PLAIN_STEPS and walltime is None:
            self._put_number(tag, scalar_value, global_step)
            return
        if array_kind(scalar_value) is not None and scalar_value.ndim:
            scalar_value = scalar_value.reshape(())
        if walltime is None:
            self._put({tag: scalar_value}, step=global_step)
        else:
            self._put({tag: scalar_value}, step=global_step, walltime=walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Value],
        global_step: float | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log several numbers, as `{main_tag}/{tag}`."""
        self._log({main_tag: dict(tag_scalar_dict)}, global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: float | None = None, walltime: float | None = None
    ) -> None:
        """Log a text."""
        self._log({tag: Text(text_string)}, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Value, global_step: float | None = None, walltime: float | None = None
    ) -> None:
        """Log an array of any shape and dtype."""
        self._log({tag: Tensor(tensor)}, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Value],
        hparam_domain_discrete: Mapping[str, Any] | None = None,
        run_name: str | None = None,
        global_step: float | None = None,
    ) -> None:
        """Log the metrics of a set of hyper-parameters, as a run of its own whose config they are.

        Args:
            hparam_dict: The hyper-parameters.
            metric_dict: The metrics.
            hparam_domain_discrete: Has no effect: the page compares runs by their configs.
            run_name: The run's name, and its folder in `log_dir`; by default the time.
            global_step: The step of the metrics.
        """
        options = {**self._options, "config": dict(hparam_dict)}
        if self.run.disabled:
            options["mode"] = "disabled"
        with self._begin(os.path.join(self.log_dir, run_name or str(time.time())), options) as run:
            run.log(dict(metric_dict), step=global_step)

    def get_logdir(self) -> str:
        """Return `log_dir`."""
        return self.log_dir

    def flush(self) -> None:
        """Wait until everything is written.

        Raises:
            StorageError: A record could not be written.
        """
        self.run.flush()

    def close(self) -> None:
        """End the run, unless the caller passed it. What is added later begins it again, in the same directory.

        Raises:
            StorageError: A record could not be written.
        """
        self._end(None)

    def _end(self, kind: type[BaseException] | None) -> None:
        """End the run; `kind` is that of the exception that ends it, if any."""
        if self._owns and not self.run.ended:
            self._put = self._continue
            self._put_number = lambda tag, value, step: self._continue({tag: value}, step=step)
            self.run.__exit__(kind) if kind else self.run.close()

    def _log(self, data: Mapping[str, Any], global_step: float | None, walltime: float | None) -> None:
        track = {} if walltime is None else {WALL_TIME: walltime}
        self._put(data, step=global_step, **track)

    def _leave_out(self, method: str, why: str) -> None:
        """Count a call that records nothing; warn of the first one of its method."""
        self.n_left_out[method] += 1
        if self.n_left_out[method] == 1:
            warn(f"{method} records nothing: {why}. Further calls are counted in `n_left_out`", stacklevel=3)

    def _continue(self, data: Mapping[str, Any], *, step: float | None, **steps: float) -> None:
        self._use(self._begin(self.log_dir, self._options))
        self._put(data, step=step, **steps)

    def _use(self, run: Run) -> None:
        self.run = run
        self._put = run.log
        self._put_number = wiring(run).telemetry.events.log_number

    def _begin(self, folder: str, options: Mapping[str, Any]) -> Run:
        options = dict(options)
        if self._event_files:
            options["mirror"] = [*options.get("mirror", ()), EventFiles(Path(folder) / EVENT_FILES)]
        return init(Path(folder).resolve().name or "run", **{"files": Files(into=folder), **options})


class EventFiles(TensorBoard):
    """Event files whose times are those that the program passed as `walltime`, where it did."""

    def write(self, records: Any) -> None:
        """Write records. Errors as in `TensorBoard.write`."""
        super().write([replace(record, wall_time=record.steps.get(WALL_TIME, record.wall_time)) for record in records])


def folder_name(comment: str) -> str:
    """Return the default directory, which is PyTorch's: `runs/{date}_{host}{comment}`."""
    return os.path.join("runs", f"{datetime.now():%b%d_%H-%M-%S}_{node() or 'host'}{comment}")
