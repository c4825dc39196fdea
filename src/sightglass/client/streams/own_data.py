"""Streams of your own data: an iterable, a table, or a file of one, beside the streams of runs.

`pulled` takes items of iterables on a thread; tables are columns by name, from data frames or files.
"""

from __future__ import annotations

import csv
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.client.resumable_stream import RecordBuffer
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Columns, Record, step_column, value_column
from sightglass.core.counts import Statistics
from sightglass.core.errors import MissingExtraError, QueryError
from sightglass.core.process.threads import Background
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import class_name, message, text

from .arrivals import arrivals

HELD: Final = (list, tuple, range, deque, np.ndarray)  # iterables without code of the program: they are read at once


def stream(
    data: Iterable[Any] | str | os.PathLike[str],
    /,
    *,
    step: Pick | None = None,
    value: Pick | None = None,
    name: str = "",
) -> Stream:
    """Return your own data as a stream, which can be reduced, zipped, plotted, saved and published like any other.

    An iterable, such as a generator, is read on a thread of its own, up to `own_data.AHEAD` items ahead of the
    stream's readers; it may be endless. If it raises, the stream ends with that error. `Stream.close` stops reading.

    Args:
        data: An iterable of items; a table, such as a mapping of names to columns, a data frame of pandas or Polars, or
            an Arrow table; or the path of a CSV or Parquet file.
        step: The name of the column with the steps. In an iterable, the key or attribute of each item, its place in a
            tuple, or a function of the item. By default a table's column "step", else the number of the record.
        value: What the values are, likewise. By default an item itself; of a table, its only other column, or a mapping
            of all other columns by name.
        name: What legends and records call the data, as `run`; by default the name of the file, or "data".

    Raises:
        TypeError: The data are something else, or steps are not numbers.
        QueryError: The table has no such column, or the file cannot be read as a table.
        MissingExtraError: Reading Parquet needs Polars.

    >>> losses = stream([{"epoch": 10, "loss": 0.5}, {"epoch": 20, "loss": 0.3}], step="epoch", value="loss")
    >>> [(record.step, record.value) for record in losses]
    [(10, 0.5), (20, 0.3)]
    """
    table = None
    if isinstance(data, str | os.PathLike):
        table, name = read_table(Path(data)), name or Path(data).stem
    elif not isinstance(data, np.ndarray):
        table = table_of(data)
    buffer = RecordBuffer(tag=value if isinstance(value, str) else "value", run=name or "data")
    if table is not None:
        _add(buffer, *_of_table(table, step, value))
        return Stream(_Held(), buffer)
    if not isinstance(data, Iterable):
        raise TypeError(f"Expected an iterable, a table or the path of one, got {class_name(data)} {text(data, 100)}")
    row = RowReader(step, value)
    if isinstance(data, HELD):
        _add(buffer, [row.step(item, i) for i, item in enumerate(data)], [row.value(item) for item in data])
        return Stream(_Held(), buffer)
    producer = PulledProducer(iter(data), row)
    made = Stream(producer, buffer)
    weakref.finalize(made, producer.close)
    return made


def _add(buffer: RecordBuffer, steps: Any, values: Any, wall_times: Any = None) -> None:
    """Fill a buffer with records, and end it."""
    if len(steps):
        times = np.full(len(steps), time.time()) if wall_times is None else np.asarray(wall_times, np.float64)
        buffer.add(Columns(index=0, steps=step_column(steps), wall_times=times, values=_values(values)))
    buffer.end()


def _values(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values
    return value_column(values if isinstance(values, list) else values.tolist())


def _of_table(table: Columnar, step: Pick | None, value: Pick | None) -> tuple[Any, Any, Any]:
    """Return the steps, values and wall times of a table."""
    for pick in (step, value):
        if pick is not None and pick not in table:
            raise QueryError(f"Expected one of the columns {', '.join(map(repr, table))}, got {text(pick, 100)}")
    n_rows = len(next(iter(table.values()), ()))
    key = "step" if step is None else step
    steps = table.get(key, np.arange(n_rows))  # type: ignore[arg-type]
    if steps.dtype.kind not in "iuf":
        raise TypeError(f"Expected numbers as steps, got column {key!r} of {steps.dtype}")
    wall_times = table.get("wall_time")
    others = [name for name in table if name not in (key, "wall_time")]
    if value is None and len(others) != 1:
        rows = zip(*(table[other].tolist() for other in others), strict=True)
        return steps, [dict(zip(others, row, strict=True)) for row in rows], wall_times
    return steps, table[others[0] if value is None else value], wall_times  # type: ignore[index]


class _Held:
    """Stands for data that are in the buffer already."""

    def advance(self, buffer: RecordBuffer) -> None:
        pass

    def end_group(self, buffer: RecordBuffer) -> None:
        raise QueryError("Expected a stream with a reducer to close; this one holds data")

    def close(self) -> None:
        pass

    def statistics(self) -> Statistics:
        return Statistics()


# Streams of iterables: a thread pulls items, a little ahead of those who read.

# Items that were pulled but not read: as many as a run retains for late clients. An endless iterable waits then.
AHEAD: Final = 8_192


Pick = str | int | Callable[[Any], Any]
"""A key, an attribute, a place in a tuple, or a function of an item."""


class RowReader:
    """Reads the step and the value of an item."""

    def __init__(self, step: Pick | None, value: Pick | None) -> None:
        self._step = step
        self._value = value

    def step(self, item: Any, index: int) -> float:
        """Return the step of an item; its number if none is named."""
        if self._step is None:
            return item.step if type(item) is Record else index
        step = _pick(item, self._step)
        if not isinstance(step, int | float | np.integer | np.floating):
            raise TypeError(f"Expected a number as step, got {class_name(step)} {text(step, 100)}")
        return step  # type: ignore[return-value]

    def value(self, item: Any) -> Any:
        """Return the value of an item."""
        if self._value is None:
            return item.value if type(item) is Record else item
        return _pick(item, self._value)


def _pick(item: Any, pick: Pick) -> Any:
    if callable(pick):
        return pick(item)
    if isinstance(item, Mapping) or isinstance(pick, int):
        return item[pick]
    return getattr(item, pick)


class PulledProducer:
    """Produces a record of each item of an iterable."""

    def __init__(self, items: Iterator[Any], row: RowReader) -> None:
        """Start to pull."""
        self._items = items
        self._row = row
        self._waiting: deque[tuple[float, Any, float]] = deque()
        self._room = threading.Condition()
        self._n = 0
        self._closed = self._over = False
        self._error: Exception | None = None
        self._thread = Background("own-data", self._pull)

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the items that were pulled since the last call."""
        over = self._over  # before reading: later items are for the next call
        with self._room:
            rows = list(self._waiting)
            self._waiting.clear()
            self._room.notify()
        buffer.extend([
            Record(tag=buffer.tag, index=i, step=step, wall_time=wall_time, value=value, run=buffer.run)
            for i, (step, value, wall_time) in enumerate(rows, self._n)
        ])  # fmt: skip
        self._n += len(rows)
        if over:
            buffer.end(self._error)

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse: this stream has no reducer."""
        raise QueryError("Expected a stream with a reducer to close; this one holds data")

    def close(self) -> None:
        """Stop pulling, once the iterable has given the item that it is about to."""
        with self._room:
            self._closed = True
            self._room.notify()

    def statistics(self) -> Statistics:
        """Return how many items were pulled and not read."""
        return Statistics(n_waiting=len(self._waiting))

    def _pull(self) -> None:
        index = 0
        try:
            for item in self._items:
                row = self._row.step(item, index), self._row.value(item), time.time()
                index += 1
                with self._room:
                    self._room.wait_for(lambda: self._closed or len(self._waiting) < AHEAD)
                    if self._closed:
                        break
                    self._waiting.append(row)
                arrivals.notify()
        except BaseException as error:  # noqa: BLE001  the iterable is the program's: it ends this stream only
            self._error = error if isinstance(error, Exception) else RuntimeError(f"The data end: {message(error)}")
        finally:
            del self._items  # a generator runs its `finally` here
            self._over = True
            arrivals.notify()


# Tables as columns by name: data frames, mappings of columns, CSV and Parquet files.

Columnar = dict[str, Any]
"""Columns by name: NumPy arrays of one length."""

DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}


def table_of(data: object) -> Columnar | None:
    """Return the columns of a mapping or a data frame; `None` for anything else.

    Raises:
        TypeError: A column of a mapping has no length.
        QueryError: The columns differ in length.
    """
    if isinstance(data, Mapping):
        for name, column in data.items():
            if not isinstance(column, Sequence | np.ndarray) or isinstance(column, str):
                raise TypeError(f"Expected a mapping of names to columns, got {type(column).__name__} as {name!r}")
        return _checked({str(name): np.asarray(column) for name, column in data.items()})
    # Arrow tables have `column_names`, and `columns` without names; the frames of pandas and Polars have names there.
    names: Any = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if names is None and callable(getattr(data, "to_numpy", None)):
        return {"value": data.to_numpy()}  # type: ignore[attr-defined]  # a series
    if names is None or not hasattr(data, "__getitem__"):
        return None
    return _checked({str(name): np.asarray(data[name].to_numpy()) for name in names})


def read_table(path: Path) -> Columnar:
    """Return the columns of a CSV, TSV or Parquet file, by its suffix.

    Raises:
        FileNotFoundError: There is no such file.
        QueryError: It is not such a file.
        MissingExtraError: Reading Parquet needs Polars.
    """
    suffix = path.suffix.lower()
    if suffix in DELIMITERS:
        return _read_csv(path, DELIMITERS[suffix])
    if suffix == ".parquet":
        return _read_parquet(path)
    hint = ". Open recorded runs with sg.open(path)" if path.is_dir() or suffix == ".sgr" else ""
    raise QueryError(f"Expected a file named .csv, .tsv or .parquet, got {str(path)!r}{hint}")


def _read_csv(path: Path, delimiter: str) -> Columnar:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=delimiter)
        names = next(lines, [])
        if not names or len(set(names)) < len(names):
            raise QueryError(f"Expected different names of columns in the first line of {str(path)!r}, got {names}")
        rows = []
        for row in lines:
            if row and len(row) != len(names):
                raise QueryError(
                    f"Expected {len(names)} cells in line {lines.line_num} of {str(path)!r}, got {len(row)}"
                )
            rows += [row] if row else []
    return {name: _column([row[i] for row in rows]) for i, name in enumerate(names)}


def _column(cells: list[str]) -> Any:
    """Return cells as integers, else as floats, where an empty cell is NaN, else as text."""
    for kind in (np.int64, np.float64):
        try:
            return np.asarray([kind(cell or "nan") for cell in cells], kind)
        except (ValueError, OverflowError):
            continue
    return np.asarray(cells, object)


def _read_parquet(path: Path) -> Columnar:
    try:
        import polars
    except ImportError:
        raise MissingExtraError("polars", extra="export", purpose=f"Reading {path.name!r}") from None
    try:
        frame = polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise QueryError(f"Cannot read {str(path)!r}: {error}") from None
    return {name: frame[name].to_numpy() for name in frame.columns}


def _checked(table: Columnar) -> Columnar:
    lengths = {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) > 1:
        raise QueryError(f"Expected columns of one length, got {lengths}")
    return table
