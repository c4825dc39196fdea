"""Loggers that write into sinks, one for each lane.

Theory of operation:

1. Callbacks put their logs into a queue. The queue's thread makes records and passes them to the sink of their lane,
   which it opens for the first log of the lane.
2. A record's index is the number of its tag's event in its lane; its step is the primary one, else that number. Events
   that a ring buffer dropped leave a gap.
3. The logs of `spool` are written in the order of the steps, as long as steps do not decrease.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from sightglass.core.columns import Record
from sightglass.core.counts import Statistics
from sightglass.core.errors import LogError, StorageError
from sightglass.core.process.clock import SystemClock
from sightglass.core.program_values.guarded import is_container, rebuild
from sightglass.jax.logs.columns import is_missing, n_events, no_step, plain, row
from sightglass.jax.logs.logdict import PRIMARY, logdict
from sightglass.jax.pytree import PyTree
from sightglass.storage.align import moments
from sightglass.storage.delivery_queue import DeliveryQueue, RecordSink
from sightglass.storage.event_log import TensorBoard
from sightglass.storage.file_names import OWN_NAME, SUFFIX
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.wandb import WandB, load
from sightglass.storage.write.writer import RecordWriter
from sightglass.training.process_runs import current
from sightglass.training.run import Run

from .logger import TIMEOUT_S, Logger, LoggerState, close_first_at_exit, name_of
from .routed import Words, by_lane, lanes, n_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedLogs:
    """Logs in the queue; see `Logger._receive`."""

    logs: logdict | None
    lane: Words | None
    wall_time: float


@dataclass(frozen=True, slots=True)
class _LaneSink:
    sink: RecordSink
    numbers: RecordNumbers


class SinkLogger(Logger):
    """A logger that writes into sinks, one for each lane. Derive from it and define `open`.

    Example:
        >>> import jax.numpy as jnp
        >>> from sightglass.jax import log
        >>> class Printing:
        ...     def write(self, records):
        ...         print(*(f"{record.tag} = {record.value}" for record in records))
        ...     def flush(self, timeout_s): pass
        ...     def close(self, timeout_s): pass
        >>> class PrintLogger(SinkLogger):
        ...     def open(self, name):
        ...         return Printing()
        >>> with PrintLogger() as logger:
        ...     _ = logger.tap(lambda x: log({"x": x}), logger.init())(jnp.float32(2))
        x = 2.0
    """

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[str, _LaneSink] = {}
        self._failures: dict[str, Exception] = {}
        self._queue: DeliveryQueue[_QueuedLogs] = DeliveryQueue(
            type(self).__name__, self._deliver, settle=self._settle, end=self._end
        )

    @abstractmethod
    def open(self, name: str) -> RecordSink:
        """Return the sink of a lane; called once for each lane, on the logger's thread.

        Args:
            name: The name of the lane: its seed, the hexadecimal digits of its key, or empty if it has neither.
        """

    @property
    def closed(self) -> bool:
        """Whether the logger is closed."""
        return self._queue.closed

    def statistics(self) -> Statistics:
        """Return how many batches of logs there were, wait, and were dropped; each callback or call is one batch."""
        return self._queue.statistics()

    def _receive(self, logs: logdict | None, lane: Words | None = None) -> None:
        queued = _QueuedLogs(logs=logs, lane=lane, wall_time=SystemClock.wall())
        if logs is None:
            self._queue.put(queued, n_events=0)  # a lane is opened: nothing was logged
        else:
            self._queue.put(queued, n_bytes(logs))

    def _flush(self, timeout_s: float) -> None:
        self._queue.flush(timeout_s)

    def _close(self, timeout_s: float) -> None:
        self._queue.close(timeout_s)

    # On the queue's thread

    def _deliver(self, queued: _QueuedLogs) -> None:
        if queued.logs is None:
            assert queued.lane is not None
            self._lane(queued.lane)
            return
        parts = by_lane(queued.logs) if queued.lane is None else lanes(queued.lane, queued.logs)
        for words, logs in parts:
            lane = self._lane(words)
            records = lane.numbers.records(logs, wall_time=queued.wall_time)
            if records:
                lane.sink.write(records)

    def _lane(self, words: Iterable[int]) -> _LaneSink:
        name = name_of(words)
        if name in self._failures:
            raise self._failures[name]
        lane = self._lanes.get(name)
        if lane is None:
            try:
                lane = self._lanes[name] = _LaneSink(self.open(name), RecordNumbers())
            except Exception as error:
                self._failures[name] = error  # trying again at each log could take too long
                raise
            close_first_at_exit()
        return lane

    def _settle(self) -> None:
        self._each(lambda sink: sink.flush(TIMEOUT_S))

    def _end(self) -> None:
        self._each(lambda sink: sink.close(TIMEOUT_S))

    def _each(self, call: Callable[[RecordSink], None]) -> None:
        """Call a function with every sink, even if it fails for some; raise the first error."""
        failures = []
        for lane in self._lanes.values():
            try:
                call(lane.sink)
            except Exception as error:  # noqa: BLE001  the other sinks must be called too
                failures.append(error)
        if failures:
            raise failures[0]


# Records of logs: numbered across calls, and sorted by steps.


class RecordNumbers:
    """Numbers the events of one lane, by tag."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def records(self, logs: logdict, *, wall_time: float) -> list[Record]:
        """Return the records of the events that happened.

        Args:
            logs: NumPy arrays, events first.
            wall_time: When they happened, in seconds since the Unix epoch.

        Returns:
            Records of the same steps next to each other. If steps differ between the lanes of a `vmap` inside the
            program, the record has the largest; lanes in which an event did not happen are NaN.
        """
        data, steps, valid, dropped = logs._columns()
        by_tag: dict[str, list[Record]] = {}
        for tag, value in data.items():
            index = self._next.get(tag, 0) + (int(np.max(dropped[tag])) if tag in dropped else 0)
            tracks = {name: _read(track[tag]) for name, track in steps.items() if tag in track}
            for i in _happened(n_events(tag, value), valid.get(tag)):
                at = {name: track[i] for name, track in tracks.items() if track[i] is not None}
                step = at.pop(PRIMARY, index)
                for name, item in _leaves(tag, _value(value, i, valid.get(tag))):
                    record = Record(tag=name, index=index, step=step, wall_time=wall_time, value=item, steps=at)
                    by_tag.setdefault(name, []).append(record)
                index += 1
            self._next[tag] = index
        return together(by_tag)


def _happened(n: int, ok: npt.NDArray[np.bool_] | None) -> Sequence[int]:
    """Return which of n entries happened, in any lane."""
    return range(n) if ok is None else np.flatnonzero(ok.reshape(n, -1).any(axis=1)).tolist()


def _read(track: npt.NDArray[Any]) -> list[Any]:
    """Return the step of each event: the largest of its lanes; `None` for an event without this step."""
    if track.ndim > 1:
        return [None if is_missing(step) else np.max(step).item() for step in track]
    missing = _missing(track.dtype)
    return [None if step == missing or step != step else step for step in track.tolist()]  # noqa: PLR0124  NaN


@lru_cache
def _missing(dtype: np.dtype[Any]) -> Any:
    return no_step(np.empty(0, dtype))


def _value(value: PyTree, i: int, ok: npt.NDArray[np.bool_] | None) -> Any:
    """Return the value of one event for a record."""
    return value[i] if ok is None and type(value) is np.ndarray else plain(row(value, i, ok))


def together(by_tag: Mapping[str, list[Record]]) -> list[Record]:
    """Merge the records of several tags: records of the same steps are consecutive, and each tag keeps its order.

    The next record is the one with the lowest step that no other tag still has further ahead.
    """
    moments = [[_moment(record) for record in records] for records in by_tag.values()]
    if all(own == moments[0] for own in moments):
        return [record for row in zip(*by_tag.values(), strict=True) for record in row]
    queues = [deque(zip(own, records, strict=True)) for own, records in zip(moments, by_tag.values(), strict=True)]
    n_ahead = [Counter(own) for own in moments]
    found: list[Record] = []
    while any(queues):
        heads = {queue[0][0]: queue[0][1].step for queue in queues if queue}
        free = [moment for moment in heads if not _is_further_ahead(moment, queues, n_ahead)]
        moment = min(free or heads, key=lambda moment: heads[moment])
        for queue, counts in zip(queues, n_ahead, strict=True):
            if queue and queue[0][0] == moment:
                counts[moment] -= 1
                found.append(queue.popleft()[1])
    return found


def _moment(record: Record) -> Any:
    return record.step, *record.steps.items()


def _is_further_ahead(moment: object, queues: Sequence[Any], n_ahead: Sequence[Counter[Any]]) -> bool:
    """Return whether a tag has records of this moment after other ones."""
    return any(
        queue and queue[0][0] != moment and counts[moment] for queue, counts in zip(queues, n_ahead, strict=True)
    )


def _leaves(tag: str, value: PyTree) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value, named by their paths with slashes; sequences of numbers are leaves."""
    if dataclasses.is_dataclass(value) and is_container(value):
        value = rebuild(value, lambda item: item)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, list | tuple) and not all(
        isinstance(item, bool | int | float | np.generic) for item in value
    ):
        value = {str(i): item for i, item in enumerate(value)}
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(f"{tag}/{name}", item)
    else:
        yield tag, value


# Logs into a sightglass run, where clients see them live.


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


# Logs into record files, which `sightglass.open` reads.


class SaveLogger(SinkLogger):
    """Writes record files into `path`; named lanes have a subdirectory each.

    Args:
        path: A directory, created at the first log.
        overwrite: Whether to remove existing records at the first log. No other files in the directory are touched.

    Raises:
        StorageError: `path` is not a directory, or not empty and `overwrite` is false.
    """

    def __init__(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        self._path = Path(path)
        if self._path.exists() and not self._path.is_dir():
            raise StorageError(f"{str(self._path)!r} is not a directory")
        if not overwrite and self._path.is_dir() and any(self._path.iterdir()):
            raise StorageError(
                f"{str(self._path)!r} is not empty: choose another path, or replace the records in it with "
                "SaveLogger(path, overwrite=True)"
            )
        self._cleared = False
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Open the record files of a lane."""
        if not self._cleared:
            self._cleared = True
            for file in _records_in(self._path):
                file.unlink()
        return _RecordFiles(self._path / name, name)


class _RecordFiles:
    """The record files of one lane."""

    def __init__(self, path: Path, name: str) -> None:
        self._run_file = RunFile(
            name=name or path.resolve().name, started=SystemClock.wall(), host=platform.node(), pid=os.getpid()
        )
        self._directory = RunDirectory(path, shared=True, about=lambda: self._run_file)
        self._writer = RecordWriter(self._directory.open, clock=SystemClock())
        self._n = 0

    def write(self, records: Sequence[Record]) -> None:
        for moment in moments(records):
            self._writer.log(self._n, moment.step, moment.wall_time, moment.values, moment.steps or None)
            self._n += 1

    def flush(self, timeout_s: float) -> None:
        self._writer.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        try:
            self._writer.close(timeout_s)
        finally:
            own = self._run_file
            ended = RunFile(
                name=own.name, started=own.started, host=own.host, pid=own.pid, ended=SystemClock.wall(),
                state="ended", events={"log": self._n},
            )  # fmt: skip
            self._directory.end(lambda: ended)


def _records_in(path: Path) -> Iterator[Path]:
    """Yield the record files and run files of a directory and its subdirectories."""
    folders = [path, *(entry for entry in path.iterdir() if entry.is_dir())] if path.is_dir() else []
    for folder in folders:
        for file in folder.iterdir():
            if file.suffix == SUFFIX or OWN_NAME.fullmatch(file.name):
                yield file


# Logs into runs of Weights & Biases.


class WandBLogger(SinkLogger):
    """Writes into W&B runs of its own, one for each lane; closing the logger finishes them.

    Steps are columns, and "step" is the x axis of every chart. Arrays become histograms of their elements.

    Args:
        **wandb_init_kwargs: Arguments of `wandb.init`. For named lanes, the lane's name is appended to `name`, and
            `group` defaults to `name`.

    Raises:
        MissingExtraError: `wandb` is not installed.
    """

    def __init__(self, **wandb_init_kwargs: Any) -> None:
        load()  # now, because Python cannot import it while the interpreter ends
        self._options = wandb_init_kwargs
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Begin a W&B run for a lane."""
        options = dict(self._options)
        if name:
            shared = options.get("name")
            options["name"] = f"{shared}-{name}" if shared else name
            options.setdefault("group", shared)
            if not isinstance(options.get("config"), str):
                options["config"] = {**(options.get("config") or {}), "lane": name}
        return WandB.begin(**options)


# Logs into TensorBoard's event files.


class TensorBoardLogger(SinkLogger):
    """Writes event files into `path`; named lanes have a subdirectory each.

    Numbers become float32, and steps integers; arrays are written as tensors. TensorBoard knows only one step: other
    step tracks are omitted. The directory may contain other event files: TensorBoard shows all of them as one run.

    Args:
        path: A log directory, created at the first log.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Open the event file of a lane."""
        return TensorBoard(self._path / name)
