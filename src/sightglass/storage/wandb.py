"""The W&B sink: writes records as rows of a Weights & Biases run.

* The sink holds the run object; `wandb.log` would write to whatever run is current by then.
* Rows are logged without `step=`, because W&B silently drops a row whose step is lower than the newest. Steps are
  columns of the row instead, and `define_metric` makes "step" the x axis of every tag, so late records appear, too.
* In a run that other code logs to (`alone=False`) its rows join the open row (`commit=False`), and its steps are
  columns named `sightglass/step` and so on, which no other code writes. A row that would overwrite values of the open
  row waits until W&B's step has advanced. The sink advances it only where no row of the other code can be lost: in
  `flush`, unless the other code passes `step=`, and before the run ends.
* Before W&B ends the run, in whatever way, the sink waits for those that still write to it, and logs what is left.
  Afterwards it refuses records at once.
* Everything happens on a thread of its own (`DeliveryQueue`). W&B writes its own files late, so a killed process loses
  the history of an offline run; a run directory does not.
"""

from __future__ import annotations

import atexit
import base64
import io
import json
import math
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from itertools import chain
from typing import Any, Final

import numpy as np

from sightglass.core import plotly_json
from sightglass.core.columns import Record
from sightglass.core.counts import Statistics
from sightglass.core.errors import MissingExtraError, StorageError, UnsendableError, warn_user
from sightglass.core.table import Table, column_type
from sightglass.core.values import (
    Audio,
    Figure,
    Histogram,
    Image,
    Images,
    Tensor,
    Text,
    Value,
    is_extended,
    is_real,
    n_bytes,
    to_host,
)

from .align import Moment, moments
from .delivery_queue import DeliveryQueue, Waits
from .foreign.event_encoding import leaves
from .format import wav
from .format.png import encode_png

STEP: Final = "step"
SHARED: Final = "sightglass/"
TIMEOUT_S: Final = 60.0  # W&B hands rows to a process of its own, which may be busy uploading

_shared: Final[weakref.WeakKeyDictionary[Any, WandB]] = weakref.WeakKeyDictionary()


class WandB:
    """Writes records to a W&B run.

    Numbers, texts, histograms, images, sounds and tables become W&B's own types; arrays become
    histograms of their elements, several sounds a table, and mappings names with slashes. Values of other types are
    left out, counted and reported.

    Args:
        run: The W&B run; by default the active one.
        alone: Whether no other code logs to the run: then values of each step become a row at once.

    Raises:
        MissingExtraError: `wandb` is not installed.
        StorageError: `run` is `None`, and no run is active.
    """

    def __init__(self, run: Any = None, *, alone: bool = False) -> None:
        wandb = load()
        run = wandb.run if run is None else run
        if run is None:
            raise StorageError("No W&B run is active: call wandb.init() first, or pass a run: WandB(run)")
        self.run = run
        self._finishes = False
        self._pid = os.getpid()
        self._users: weakref.WeakSet[Waits] = weakref.WeakSet()
        self._failure: StorageError | None = None
        self._prefix = "" if alone else SHARED
        self._tags: set[str] = set()
        self._rows = _Rows(run, alone=alone)
        self._queue: DeliveryQueue[Sequence[Record]] = DeliveryQueue(
            "W&B", self._deliver, settle=lambda: self._log_rows(commit=not _sets_steps(run)), end=self._end
        )
        atexit.register(self._at_exit)  # registered after W&B's own, so it runs before W&B ends its runs
        before_finish(run, self._finish_first)

    @classmethod
    def begin(cls, **options: Any) -> WandB:
        """Start a W&B run of its own beside all others, and finish it in `close`; may wait for the network.

        Args:
            **options: As for `wandb.init`.

        Raises:
            MissingExtraError: `wandb` is not installed.
        """
        sink = cls(load().init(**{"reinit": "create_new", **options}), alone=True)
        sink._finishes = True
        return sink

    @classmethod
    def shared(cls, run: Any) -> WandB:
        """Return the one sink of a run that other code logs to: several would overwrite each other's steps."""
        sink = _shared.get(run)
        if sink is None or sink._queue.closed:
            sink = _shared[run] = cls(run)
        return sink

    @property
    def ended(self) -> bool:
        """Whether the sink, or the W&B run, takes no more records."""
        return self._queue.closed or _is_finished(self.run)

    def used_by(self, queue: Waits) -> None:
        """Remember a queue that may still write records; the W&B run waits for it before it ends."""
        self._users.add(queue)

    def write(self, records: Sequence[Record]) -> None:
        """Queue records to be written; never waits.

        Args:
            records: Consecutive records of the same steps become one row. Their values must not be changed after this.

        Raises:
            StorageError: The W&B run has finished, or the sink is closed.
        """
        if self.ended:
            raise StorageError(f"{_ended(self.run)}: plot and log before wandb.finish(), or in a new W&B run")
        self._queue.put(records, sum(n_bytes(record.value) for record in records))

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until W&B has all records.

        If other code passes `step=` to W&B, rows that would overwrite values of the open row stay here: they are logged
        when the step has advanced, or before the run ends.

        Raises:
            StorageError: W&B has not taken them in time, or some could not be written.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._queue.flush(timeout_s)

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Pass everything to W&B, and finish the run if this sink has started it. Errors as in `flush`."""
        atexit.unregister(self._at_exit)
        self._queue.close(timeout_s)

    def statistics(self) -> Statistics:
        """Return how many calls of `write` there were, how many of them wait, and how many were dropped."""
        return self._queue.statistics()

    # On the queue's thread

    def _deliver(self, records: Sequence[Record]) -> None:
        left_out: list[str] = []
        for moment in moments(records):
            self._rows.held.append(self._row(moment, left_out))
        self._log_rows()
        if left_out:
            raise UnsendableError("; ".join(left_out))

    def _row(self, moment: Moment, left_out: list[str]) -> dict[str, Any]:
        steps = {self._prefix + name: number(at) for name, at in {STEP: moment.step, **moment.steps}.items()}
        self._rows.axes |= steps.keys()
        values: dict[str, Any] = {}
        for tag, value in leaves(moment.values):
            try:
                values[tag] = encode(value)
            except (UnsendableError, MissingExtraError, ValueError, OverflowError) as error:
                left_out.append(f"{tag!r}: {error}")
            except OSError as error:  # W&B takes media as files
                self._queue.drop(f"{tag!r}: {error}", n=1)
        for name in {**steps, **values}:
            if name in self._tags or "*" in name:  # a star is a pattern to W&B
                continue
            axis = {"hidden": True} if name in steps else {"step_metric": self._prefix + STEP}
            self.run.define_metric(name, **axis)
            self._tags.add(name)
        return {**steps, **values}

    def _log_rows(self, *, commit: bool = False) -> None:
        """Log the rows that can be logged; with `commit`, all."""
        if self._rows.held and _is_finished(self.run):  # asking it for its step would take half a minute
            why = f"{_ended(self.run)} before it got {self._rows.tags()}: flush before wandb.finish()"
            self._queue.drop(why, n=self._rows.clear())
        self._rows.log()
        if commit:
            self._rows.commit()

    def _end(self) -> None:
        try:
            self._log_rows(commit=True)
        except Exception as error:  # noqa: BLE001  whatever W&B raises, the rows that are left are lost
            refused = isinstance(error, StorageError)  # the row that it names is not among those left
            rest = f"; also lost: {self._rows.tags()}" if self._rows.held else ""
            self._queue.drop(f"{error}{rest}", n=self._rows.clear() + refused)
        if self._finishes:
            self.run.finish()

    # When the run or the process ends

    def _finish_first(self) -> None:
        """Take what is still to come, and log all of it: W&B is about to finish the run."""
        if self._queue.closed or self._pid != os.getpid():
            return
        for queue in list(self._users):
            queue.wait(None)
        self._finishes = False
        try:
            self.close()
        except StorageError as error:
            self._failure = error  # for the next `flush`: an exception here would keep W&B from finishing
        _shared.pop(self.run, None)

    def _at_exit(self) -> None:
        try:
            self.close()
        except StorageError as error:
            warn_user(str(error))


class _Rows:
    """The rows of a W&B run that are not logged yet.

    Attributes:
        held: The rows, in order.
        axes: Which of their columns are steps.
    """

    def __init__(self, run: Any, *, alone: bool) -> None:
        self.held: deque[dict[str, Any]] = deque()
        self.axes: set[str] = set()
        self._run = run
        self._alone = alone
        self._open_row: dict[str, Any] = {}
        self._open_step = -1

    def log(self) -> None:
        """Log the rows that can be logged.

        Raises:
            StorageError: W&B refuses a row, which is lost.
        """
        while self.held and (self._alone or self._fits(self.held[0])):
            row = self.held.popleft()
            try:
                self._run.log(row, commit=self._alone)
            except Exception as error:
                raise StorageError(f"{self.tags([row])}: {type(error).__name__}: {error}") from error
            finally:
                forget_files(row)
            if not self._alone:
                self._open_row |= row
                self._open_step = self._run.step  # read after the row, which is in this step or an earlier one

    def commit(self) -> None:
        """Commit the open row as long as rows wait for that; W&B commits the last one when the run ends."""
        while self.held:
            self._run.log({}, commit=True)
            self._open_row = {}
            self.log()

    def clear(self) -> int:
        """Forget the rows, and return how many they were."""
        n = len(self.held)
        self.held.clear()
        return n

    def tags(self, rows: Iterable[Mapping[str, Any]] | None = None) -> str:
        """Return the names of the values in some rows, by default in those that wait."""
        names = (name for row in (self.held if rows is None else rows) for name in row)
        return ", ".join(repr(name) for name in dict.fromkeys(names) if name not in self.axes)

    def _fits(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row overwrites no value that was put into the open row here."""
        if all(name not in self._open_row or _same(row[name], self._open_row[name]) for name in row):
            return True
        if self._run.step == self._open_step:
            return False
        self._open_row = {}
        return True


def before_finish(run: Any, call: Callable[[], None]) -> None:
    """Have a function called when a W&B run is about to finish, while it still takes rows.

    W&B's hook for this is private, and its setter replaces the hooks of others; so append, or wrap what ends the run. A
    run whose mode is "disabled" calls no hooks, and has two methods that end it.
    """
    if not getattr(run, "disabled", False):
        try:
            from wandb.sdk.wandb_run import TeardownHook, TeardownStage

            run._teardown_hooks.append(TeardownHook(call, TeardownStage.EARLY))
            return
        except (ImportError, AttributeError, TypeError):
            pass
    for name in ("finish", "_finish"):  # the end of a `with` block calls `_finish`
        if hasattr(run, name):
            setattr(run, name, _after(call, getattr(run, name)))


def _after(call: Callable[[], None], finish: Callable[..., Any]) -> Callable[..., Any]:
    def finish_after(*arguments: Any, **options: Any) -> Any:
        call()
        return finish(*arguments, **options)

    return finish_after


def _is_finished(run: Any) -> bool:
    return bool(getattr(run, "_is_finished", False))


def _ended(run: Any) -> str:
    return f"W&B run {run.name or run.id!r} has finished"


def _sets_steps(run: Any) -> bool:
    """Return whether any code has passed `step=` to a W&B run, which W&B notes for its own statistics.

    Rows of a lower step than the run's are dropped by W&B. So if this is unknown, expect it.
    """
    try:
        return bool(run._telemetry_obj.feature.set_step_log)
    except AttributeError:
        return True


def _same(one: object, other: object) -> bool:
    return isinstance(one, int | float | str) and isinstance(other, int | float | str) and one == other


# Values as W&B's own types.

MAX_BINS: Final = 512  # W&B's own limit


def load() -> Any:
    """Import the package.

    Raises:
        MissingExtraError: `wandb` is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtraError("wandb", extra="wandb", purpose="Logging to Weights & Biases") from None
    return wandb


def number(value: Any) -> int | float:
    """Return a real number of any library as a Python number.

    Raises:
        UnsendableError: `value` is not a real number.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UnsendableError(f"Expected a real number, got {type(value).__name__}") from None


def encode(value: object) -> Any:
    """Convert a value to W&B's own type.

    Raises:
        UnsendableError: W&B has no such type.
        ValueError: The shape or dtype is not that of an image.
        OSError: The temporary file of a sound cannot be written.
    """
    value = to_host(value)
    match value:
        case str():
            return value
        case Text():
            return value.value
        case Tensor():
            return encode(value.value)
        case Histogram():
            return _histogram(value)
        case Image():
            return _image(encode_png(value.value), value.caption)
        case Images():
            captions = value.captions or ("",) * len(value.value)
            return [_image(encode_png(one), caption) for one, caption in zip(value.value, captions, strict=True)]
        case Figure(media_type=plotly_json.MEDIA_TYPE):
            return _plotly(value.data)
        case Figure():
            return _image(value.data, "")
        case Audio():
            return _audio(value)
        case Table():
            return _table(value)
        case list() | tuple() if value and all(isinstance(item, Audio) for item in value):
            return _table(Table({"audio": list(value)}))  # W&B needs `soundfile` for several sounds
        case list() | tuple():
            return [encode(item) for item in value]
        case np.ndarray() if value.ndim and is_real(value.dtype):
            return _histogram(Histogram(value))
        case np.ndarray():
            raise UnsendableError(f"W&B does not support arrays of {value.dtype}")
        case None:
            return None
    return number(value)


def _histogram(value: Histogram) -> Any:
    counts, edges = value.counts, value.edges
    together = math.ceil(len(counts) / MAX_BINS)  # as few as fit
    if together > 1:
        starts = np.arange(0, len(counts), together)
        counts, edges = np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])
    return load().Histogram(np_histogram=(counts.tolist(), edges.tolist()))


def _image(data: bytes, caption: str) -> Any:
    try:
        from PIL import Image as pillow
    except ImportError:
        raise MissingExtraError("pillow", extra="wandb", purpose="Logging images to Weights & Biases") from None
    with pillow.open(io.BytesIO(data)) as image:
        return load().Image(image, caption=caption or None)


def _plotly(data: bytes) -> Any:
    """Return a figure of Plotly; its arrays become lists, as in all that W&B writes.

    Raises:
        UnsendableError: The installed version of Plotly does not know such a figure.
    """
    try:
        import plotly.graph_objects
    except ImportError:
        raise MissingExtraError("plotly", extra="plot", purpose="Logging Plotly's figures to W&B") from None
    try:
        figure = plotly.graph_objects.Figure(_with_lists(json.loads(data)))
    except (ValueError, TypeError, RecursionError) as error:
        raise UnsendableError(f"Expected a figure of Plotly: {error!s:.200}") from None
    return load().Plotly(figure)


def _with_lists(value: Any) -> Any:
    """Return the JSON of a figure with a list in place of each array, which Plotly writes as base64."""
    match value:
        case {"bdata": str(data), "dtype": str(dtype)}:
            array = np.frombuffer(base64.b64decode(data), np.dtype(dtype).newbyteorder("<"))
            shape = [int(n) for n in str(value.get("shape", array.size)).split(",")]
            return array.reshape(shape).tolist()
        case dict():
            return {name: _with_lists(one) for name, one in value.items()}
        case list():
            return [_with_lists(one) for one in value]
    return value


def _audio(value: Audio) -> Any:
    """Return a sound, whose temporary file `forget_files` removes: W&B copies it when the row is logged.

    W&B takes samples, too, but needs the package `soundfile` for them.
    """
    descriptor, path = tempfile.mkstemp(".wav", "sightglass-")
    try:
        with open(descriptor, "wb") as file:
            file.write(wav.encode_wav(value))
        audio = load().Audio(path)
    except BaseException:
        os.unlink(path)
        raise
    audio.forget_file = weakref.finalize(audio, os.unlink, path)
    return audio


def forget_files(row: Mapping[str, Any]) -> None:
    """Remove the temporary files of the sounds in a row that W&B has taken; W&B keeps the objects themselves."""
    table = load().Table
    for value in row.values():
        for cell in chain.from_iterable(value.data) if isinstance(value, table) else (value,):
            getattr(cell, "forget_file", lambda: None)()


def _table(value: Table) -> Any:
    """Return a table; times are in UTC, durations in seconds.

    Raises:
        UnsendableError: W&B would cut it.
    """
    wandb = load()
    if len(value) > wandb.Table.MAX_ARTIFACT_ROWS:
        raise UnsendableError(f"W&B keeps {wandb.Table.MAX_ARTIFACT_ROWS:,} rows of a table, got {len(value):,}")
    mixed = any(column_type(column) == "mixed" for column in value.value.values())
    rows = [list(row) for row in zip(*map(_cells, value.value.values()), strict=True)]
    return wandb.Table(columns=list(value.value), data=rows, allow_mixed_types=mixed)


def _cells(column: Value) -> Sequence[Any]:
    if isinstance(column, list):
        return [encode(item) for item in column]
    array = np.asarray(to_host(column))
    if array.dtype.kind == "M":
        times = array.astype("M8[us]").tolist()
        return [None if time is None else time.replace(tzinfo=UTC) for time in times]
    if array.dtype.kind == "m":
        array = np.where(np.isnat(array), np.nan, array / np.timedelta64(1, "s"))
    listed: Sequence[Any] = (array.astype(np.float32) if is_extended(array.dtype) else array).tolist()
    return listed
