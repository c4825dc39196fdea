"""A run of Trackio as a file of a recording: its rows in the database of its project, for the run's path.

* A row of metrics is a mapping of JSON: each number, text, list, histogram or medium in it is a value of a series.
  Media are read on demand from the folder `media` beside the database.
* What Trackio measures of the machine has the tags `system/...`, and alerts are texts under `alerts`. A row without a
  step has that of the metrics before it.
* A row that is not a mapping is damage. Traces are counted and passed over.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from sightglass.core.columns import Columns, plain, value_column
from sightglass.core.errors import DamagedError, WireError
from sightglass.core.table import Table
from sightglass.core.values import type_name
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.index import BlockEntry

from .event_columns import LogEvents
from .event_scan import OtherFileError
from .foreign_file import HeldFile
from .sqlite_file import read
from .trackio_database import ProjectRun, columns_of, find, id_in, read_trackio, seconds
from .wandb_messages import leaves
from .wandb_values import RowValue, as_table, convert

QUERIES: Final[Mapping[str, str]] = {
    "metrics": "timestamp, step, metrics",
    "system_metrics": "timestamp, NULL, metrics",
    "alerts": "timestamp, step, json_object('alerts', title || coalesce(': ' || text, ''))",
    "traces": "timestamp, step, NULL",
}
"""For each table, what a row says of its time, its step and its values."""

SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # which Trackio writes as texts
MEDIA: Final = {"trackio.image": "image-file", "trackio.audio": "audio-file"}  # and their names with W&B

Names = tuple[str, ...]
"""The path of a value in a mapping of mappings."""


@dataclass(slots=True)
class TableRow:
    """A row of a table: its number, its time in seconds since the Unix epoch, its step if it has one, and JSON."""

    table: str
    id: int
    wall_time: float
    step: int | None
    body: Any


class TrackioRun(HeldFile):
    """The rows of a run of Trackio; see `record_file.RecordFile` for its attributes."""

    dialect = "trackio"

    def __init__(self, path: Path) -> None:
        """Read what the run has.

        Raises:
            OSError: The database cannot be read.
            OtherFileError: The path does not name a run in a project of Trackio.
        """
        super().__init__()
        self.path = path
        self._run: ProjectRun | None = None
        self._last: dict[str, int] = {}  # the last row that was read of each table
        self._step = 0
        self._bad: list[Damage] = []
        self._passed_over = Counter[str]()
        self._events = LogEvents(joins_steps=True)
        run = find(path)
        if run is None:
            raise OtherFileError(f"Expected a run of a project of Trackio, got {str(path)!r}")
        self._read(run)
        self.started = float(self.told.get("started", 0.0))

    @property
    def told(self) -> Mapping[str, Any]:
        """What the project says of its run, as fields of `run_file.RunFile`."""
        return read_trackio(self.path)

    @property
    def damages(self) -> Sequence[Damage]:
        """The rows that are not mappings, and the media that cannot be read."""
        return self._bad

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many values cannot be shown, by what they are."""
        return self._passed_over

    def refresh(self) -> bool:
        """Read the rows that were appended, and return whether there are any."""
        run = find(self.path)
        if run is not None and run != self._run:
            with contextlib.suppress(OSError):  # a later look may find it readable
                self._read(run)
                return True
        return False

    def _read(self, run: ProjectRun) -> None:
        rows = read(self.path.parent, lambda connection: self._new_rows(connection, run))
        self._run = run
        self._last |= {table: found[-1].id for table, found in rows.items() if found}
        self._append(list(heapq.merge(*rows.values(), key=lambda row: row.wall_time)))  # each table in its order

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: A medium is not there, or is not what its name says.
        """
        values = self._block(entry).values
        if isinstance(values, list) and isinstance(values[0], RowValue) and (load := values[0].load) is not None:
            try:
                value = load()
            except (WireError, OSError) as error:
                damage = Damage(
                    path=self.path, offset=entry.offset, length=0, what=str(error), tag=entry.key.tag,
                    step=entry.first_step,
                )  # fmt: skip
                self._bad += [] if damage in self._bad else [damage]
                raise DamagedError(str(damage)) from None
            values = value[None] if isinstance(value, np.ndarray) else [value]
        return self._with(entry, values)

    def _new_rows(self, connection: sqlite3.Connection, run: ProjectRun) -> dict[str, list[TableRow]]:
        found = {}
        for table, wanted in QUERIES.items():
            if columns := columns_of(connection, table):
                rows = connection.execute(
                    f"SELECT rowid, {wanted} FROM {table} WHERE {id_in(columns)} = ? AND rowid > ? ORDER BY rowid",
                    (run.id, self._last.get(table, 0)),
                )
                found[table] = [
                    TableRow(table, id, seconds(time), step if type(step) is int else None, body)
                    for id, time, step, body in rows
                ]
        return found

    def _append(self, rows: list[TableRow]) -> None:
        """Append the values of rows to their series."""
        values = [(i, row, path, value) for i, row in enumerate(rows) for path, value in self._values(row)]
        if not values:
            return
        series = [self.series_of(_key(path, value)) for _, _, path, value in values]
        numbers = np.array([one.number for one in series])
        steps = np.array([row.step for _, row, _, _ in values])
        times = np.array([row.wall_time for _, row, _, _ in values])
        ordinals = self._events.number(np.array([i for i, *_ in values]), numbers, steps)
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            found = [values[i][3] for i in chosen.tolist()]
            parts = [chosen] if found[0].load is None else [chosen[i : i + 1] for i in range(len(chosen))]
            for part in parts:
                several: Any = [values[i][3] for i in part.tolist()]
                type_ = several[0].type
                if several[0].load is None:
                    several = value_column([value.value for value in several])
                    type_ = type_name(plain(several[0]))
                columns = Columns(
                    index=0, steps=steps[part], wall_times=times[part], values=several, ordinals=ordinals[part]
                )
                self.append(series[chosen[0]], type_, columns)

    def _values(self, row: TableRow) -> list[tuple[Names, RowValue]]:
        """Return the values of a row, and give it a step if it has none."""
        if row.table == "metrics" and row.step is not None:
            self._step = row.step
        row.step = self._step if row.step is None else row.step
        if row.table == "traces":
            self._passed_over["trace"] += 1
            return []
        try:
            found = msgspec.json.decode(row.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            what = f"row {row.id} of {row.table!r} is not a mapping: {error}"
            self._bad.append(Damage(path=self.path, offset=row.id, length=0, what=what, step=row.step))
            return []
        first = ("system",) if row.table == "system_metrics" else ()
        values = [(path, _converted(value, self.path.parent.parent / "media")) for path, value in leaves(found, first)]
        self._passed_over.update(value.type for _, value in values if value.kind == "unknown")
        return [(path, value) for path, value in values if value.kind != "unknown"]


def _key(path: Names, value: RowValue) -> Key:
    return Key(kind="logged", tag="/".join(path), values=value.kind)  # type: ignore[arg-type]


def _converted(value: Any, media: Path) -> RowValue:
    """Return a value of a row; those of Trackio's own types are W&B's, by other names."""
    match value:
        case int() if not isinstance(value, bool):
            return RowValue("scalar", "int", value)
        case str() if value in SPECIAL:
            return convert(SPECIAL[value], media)
        case {"_type": "trackio.histogram", **said}:
            return convert(said | {"_type": "histogram"}, media)
        case {"_type": "trackio.image" | "trackio.audio" as name, "file_path": str(path)}:
            return convert({"_type": MEDIA[name], "path": path}, media)
        case {"_type": "trackio.markdown", "_value": str(text)}:
            return convert(text, media)
        case {"_type": "trackio.table", "_value": list(rows)}:
            return RowValue("table", "Table", load=lambda: _table(rows))
        case {"_type": str(name)}:
            return RowValue("unknown", name.removeprefix("trackio."))
        case [{"_type": "trackio.image"}, *_]:
            return convert({"_type": "images/separated", "filenames": [one.get("file_path") for one in value]}, media)
    return convert(_numbers(value), media)


def _numbers(value: Any) -> Any:
    """Return a list with the numbers that JSON has no words for."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return SPECIAL.get(value, value) if isinstance(value, str) else value


def _table(rows: list[Any]) -> Table:
    """Make a table of rows, which are mappings and may have different keys.

    Raises:
        WireError: They are something else.
    """
    if not all(isinstance(row, dict) for row in rows):
        raise WireError("Expected the rows of a table")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return as_table(names, [[row.get(name) for name in names] for row in rows])
