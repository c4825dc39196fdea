"""Logs in a sightglass run, where clients see them live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sightglass.core.errors import LogError, StorageError
from sightglass.core.record import Record
from sightglass.storage.align import moments
from sightglass.training import run as runs
from sightglass.training.run import Run

from .logger import LoggerState
from .record_sink import RecordSink, SinkLogger


class RunLogger(SinkLogger):
    """Logs into a run by `run.log`. Of several lanes, each tag has the lane's name and a slash in front.

    Close or flush the logger before the run ends: what comes later is lost, and the logger says so.

    Args:
        run: The run; by default the newest live one when `init` is called.
    """

    def __init__(self, run: Run | None = None) -> None:
        self._run = run
        super().__init__()

    def init(self, key: Any = None) -> LoggerState:
        """Make the state that `log`, `tap` and `spool` take; see `Logger.init`.

        Raises:
            LogError: No run is given, and none is live.
        """
        if self._run is None:
            self._run = runs.current()
        if self._run is None:
            raise LogError("No run is live: call sightglass.init() first, or give one: RunLogger(run)")
        return super().init(key)

    def open(self, name: str) -> RecordSink:
        """Let a lane log into the run."""
        if self._run is None:
            raise LogError("Expected a state that this logger's init() made")
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
