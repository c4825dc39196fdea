"""Logs in the terminal: a live table, or plain lines if the output is not a terminal.

The table shares the console with other live views (`sightglass.views.surfaces.terminal`). It has a row for each tag of
each lane: the latest value, its steps, and the latest numbers as a sparkline.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, SupportsFloat, TypeGuard

import numpy as np
from rich import get_console
from rich.console import Console, RenderableType
from rich.table import Table

from sightglass.core.columns import Record
from sightglass.core.process.unpatched import threading
from sightglass.core.values import Histogram, is_real, type_name
from sightglass.jax.logs.columns import range_of
from sightglass.jax.logs.logdict import PRIMARY
from sightglass.storage.align import moments
from sightglass.storage.delivery_queue import RecordSink
from sightglass.views.options import AXIS, line_color
from sightglass.views.surfaces.terminal import live_display_of

from .record_sink import SinkLogger

# Leaves room for tag, value and steps in 80 columns.
SPARK_WIDTH: Final = 32
BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.-=+*%#"
# The header, and the line that counts hidden rows.
OVERHEAD_ROWS: Final = 2


class ConsoleLogger(SinkLogger):
    """Shows the latest values in the terminal; if the output is not a terminal, prints a line for each event.

    Args:
        console: The console; `None` for standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or get_console()
        self._table: ConsoleTable | None = None
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Return the sink of a lane: rows of the table, or lines."""
        if not self._console.is_terminal:
            return _Lines(self._console, name)
        if self._table is None:
            self._table = ConsoleTable(unicode=not self._console.options.ascii_only)
            live_display_of(self._console).enter(self._table)
        return _TableRows(self._console, self._table, name)


class _Lines:
    """Prints the events of one lane as lines."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._prefix = f"[{name}] " if name else ""

    def write(self, records: Sequence[Record]) -> None:
        for moment in moments(records):
            parts = [f"{name} {brief(at)}" for name, at in {PRIMARY: moment.step, **moment.steps}.items()]
            parts += [f"{tag} {brief(value)}" for tag, value in moment.values.items()]
            line = self._prefix + "  ".join(parts)
            self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def flush(self, timeout_s: float) -> None:
        pass  # printed already

    def close(self, timeout_s: float) -> None:
        pass


@dataclass(slots=True)
class _Row:
    """The row of one tag of one lane."""

    record: Record
    numbers: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK_WIDTH))


class ConsoleTable:
    """The table, as the terminal's stage draws it.

    Attributes:
        ended: Whether the table cannot change any more.
    """

    def __init__(self, *, unicode: bool) -> None:
        self.ended = False
        self._blocks = BLOCKS if unicode else ASCII_BLOCKS
        self._lock = threading.RLock()
        self._rows: dict[tuple[str, str], _Row] = {}
        self._changed = True

    def put(self, name: str, records: Iterable[Record]) -> None:
        """Add records of a lane."""
        with self._lock:
            for record in records:
                row = self._rows.setdefault((name, record.tag), _Row(record))
                row.record = record
                if _is_number(record.value):
                    row.numbers.append(float(record.value))
            self._changed = True

    def pull(self) -> bool:
        """Return whether the table has changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def draw(self, *, height: int) -> RenderableType:
        """Return the table with at most `height` rows."""
        with self._lock:
            rows = [
                (lane, tag, row.record, sparkline(row.numbers, self._blocks)) for (lane, tag), row in self._rows.items()
            ]
        room = max(height - OVERHEAD_ROWS, 1)
        several = len({lane for lane, *_ in rows}) > 1
        table = Table(box=None, header_style=AXIS, pad_edge=False)
        for name in (*(("lane",) if several else ()), "tag", "value", "at", ""):
            table.add_column(name, no_wrap=True, justify="right" if name == "value" else "left")
        for lane, tag, record, line in rows[:room]:
            at = ", ".join(f"{name} {brief(n)}" for name, n in {PRIMARY: record.step, **record.steps}.items())
            table.add_row(*((lane,) if several else ()), tag, brief(record.value), at, f"[{line_color(0)}]{line}[/]")
        if len(rows) > room:
            table.add_row(f"and {len(rows) - room} more")
        return table


class _TableRows:
    """Puts the records of one lane into the table."""

    def __init__(self, console: Console, table: ConsoleTable, name: str) -> None:
        self._console = console
        self._table = table
        self._name = name

    def write(self, records: Sequence[Record]) -> None:
        self._table.put(self._name, records)

    def flush(self, timeout_s: float) -> None:
        live_display_of(self._console).refresh()

    def close(self, timeout_s: float) -> None:
        self._table.ended = True
        live_display_of(self._console).leave(self._table)


def sparkline(numbers: Iterable[float], blocks: str = BLOCKS) -> str:
    """Draw numbers as blocks, from the smallest to the largest; numbers that are not finite are blank.

    >>> sparkline([0, 1, 2, float("nan"), 7])
    '▁▂▃ █'
    """
    every = list(numbers)
    finite = [number for number in every if math.isfinite(number)]
    if not finite:
        return " " * len(every)
    low, high = min(finite), max(finite)
    scale = (len(blocks) - 1) / (high - low) if high - low > 0 else 0.0
    return "".join(blocks[round((n - low) * scale)] if math.isfinite(n) else " " for n in every)


def brief(value: object) -> str:
    """Format a value in a few characters.

    >>> brief(3), brief(0.123456), brief(np.float32([1, 2])), brief((1.5, 2))
    ('3', '0.1235', 'float32[2] 1 … 2', '(1.5, 2)')
    """
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{type_name(value)} {range_of(value, None)}".rstrip()
    if isinstance(value, tuple | list):
        return f"({', '.join(map(brief, value))})"
    if isinstance(value, Histogram):
        return f"{value.total} values"
    value = value.item() if isinstance(value, np.generic) and value.dtype.kind in "biufc" else value
    if isinstance(value, bool | int | str):
        return str(value)
    return (
        f"{float(value):.4g}"
        if _is_number(value)
        else f"{value:.4g}"
        if isinstance(value, complex)
        else type_name(value)
    )


def _is_number(value: object) -> TypeGuard[SupportsFloat]:
    return isinstance(value, bool | int | float) or (isinstance(value, np.generic) and is_real(value.dtype))
