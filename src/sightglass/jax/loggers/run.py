"""Logs into a sightglass run, where clients see them live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jax.typing import ArrayLike

from sightglass.core.errors import LogError, StorageError
from sightglass.core.record import Record
from sightglass.storage.align import moments
from sightglass.storage.record_sink import RecordSink
from sightglass.training.process_runs import current
from sightglass.training.run import Run

from .logger import LoggerState
from .record_sink import SinkLogger


class RunLogger(SinkLogger):
    """Logs into a run by `run.log`. Tags of named lanes begin with the lane's name and a slash.

    Close or flush the logger before the run ends: later logs are lost, and the logger reports the failure.

    Args:
        run: The run; `None` for the newest live one when `init` is called.
    """

    def __init__(self, run: Run | None = None) -> None:
        self._run = run
        super().__init__()

    def init(self, key: ArrayLike | None = None, *, seeds: Iterable[int | str] | None = None) -> LoggerState:
        """Return a state for `log`, `tap` and `spool`; see `Logger.init`.

        Raises:
            LogError: The logger has no run, and no run is live.
        """
        if self._run is None:
            self._run = current()
        if self._run is None:
            raise LogError("No run is live: call sightglass.init() first, or pass a run: RunLogger(run)")
        return super().init(key, seeds=seeds)

    def open(self, name: str) -> RecordSink:
        """Return the sink of a lane."""
        if self._run is None:
            raise LogError("Expected a state that this logger's init() returned")
        return _InRun(self._run, f"{name}/" if name else "")


class _InRun:
    """The logs of one lane in a run."""

    def __init__(self, run: Run, prefix: str) -> None:
        self._run = run
        self._prefix = prefix

    def write(self, records: Sequence[Record]) -> None:
        if self._run._telemetry.closed and not self._run.disabled:
            raise StorageError(f"Run {self._run.name!r} has ended")
        for moment in moments(records):
            values = {self._prefix + tag: value for tag, value in moment.values.items()}
            self._run.log(values, step=moment.step, **moment.steps)

    def flush(self, timeout_s: float) -> None:
        self._run.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._run.flush(timeout_s)
