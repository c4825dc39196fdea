"""Streams of your own data: an iterable, a table, or a file of one, beside the streams of runs."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns, step_column, value_column
from sightglass.core.counts import Statistics
from sightglass.core.errors import QueryError
from sightglass.core.guarded import class_name, text

from .pulled import Pick, PulledProducer, RowReader
from .record_buffer import RecordBuffer
from .stream import Stream
from .table_files import Columnar, read_table, table_of

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

    An iterable, such as a generator, is read on a thread of its own, up to `pulled.AHEAD` items ahead of the
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
