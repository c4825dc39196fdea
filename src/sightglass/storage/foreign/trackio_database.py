"""Projects of Trackio: what their databases say of their runs. A run has the path `PROJECT.db/RUN`.

The tables are those of `trackio.sqlite_storage`; earlier versions know runs by their names only.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import sqlite3

    from .sqlite_file import Moments

SUFFIX: Final = ".db"
COLUMNS: Final = frozenset({"timestamp", "run_name", "step", "metrics"})  # of "metrics"; other programs have one, too
TABLES: Final[Mapping[str, tuple[str, str]]] = {
    "metrics": ("timestamp", "metrics"),
    "configs": ("created_at", "config"),
    "system_metrics": ("timestamp", "metrics"),
    "alerts": ("timestamp", "title"),
    "traces": ("timestamp", "messages"),
}
"""The tables that runs have rows in, with the columns of their times and of what was recorded."""

OWN: Final = {"_Username": "user", "_Group": "group"}  # facts that Trackio adds to configurations
CREATED: Final = "_Created"
ODD: Final = re.compile(r"[%/\0]|^\.+$")  # in the name of a run: what a part of a path cannot be
MAX_CACHED: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRun:
    """A run of a project.

    Attributes:
        name: Its name.
        id: Its id; its name where the database has none.
        began: The time of its first row, in seconds since the Unix epoch; 0 if that cannot be read.
        changed: That of its last row.
        n_bytes: How much its rows have recorded.
        config: Its configuration as JSON, or empty.
    """

    name: str
    id: str
    began: float
    changed: float
    n_bytes: int
    config: bytes


def find(path: str | os.PathLike[str]) -> ProjectRun | None:
    """Return the run that a path names; `None` if it does not name one in a project."""
    database, name = os.path.split(os.fspath(path))
    return runs_of(database).get(name) if database.endswith(SUFFIX) else None


def runs_of(database: str | os.PathLike[str]) -> Mapping[str, ProjectRun]:
    """Return the runs of a project, by the last parts of their paths; none of a file that is not one, or is damaged."""
    path = Path(database)
    if path.suffix != SUFFIX or not path.is_file():
        return {}
    from .sqlite_file import moments, read  # which takes time to import, and few folders need

    key = os.path.realpath(path)
    with contextlib.suppress(OSError):
        now, known = moments(path), _cached.get(key)
        if known is None or known[0] != now:
            if len(_cached) >= MAX_CACHED:
                _cached.clear()
            known = _cached[key] = now, read(path, _runs)
        return known[1]
    return {}


_cached: dict[str, tuple[Moments, dict[str, ProjectRun]]] = {}


def _runs(connection: sqlite3.Connection) -> dict[str, ProjectRun]:
    if not columns_of(connection, "metrics") >= COLUMNS:
        return {}
    rows: dict[str, list[tuple[str, str, str, int]]] = {}
    for table, (time, body) in TABLES.items():
        if (columns := columns_of(connection, table)) >= {time, body, "run_name"}:
            of = f"{id_in(columns)}, max(run_name), min({time}), max({time}), sum(length({body}))"
            for id, *row in connection.execute(f"SELECT {of} FROM {table} GROUP BY 1"):
                rows.setdefault(str(id), []).append(tuple(row))
    configs: dict[str, Any] = {}
    if columns := columns_of(connection, "configs"):  # which the first versions did not have
        configs = dict(connection.execute(f"SELECT {id_in(columns)}, config FROM configs"))
    runs = []
    for id, parts in rows.items():
        names, first, last, n_bytes = zip(*parts, strict=True)
        times = [time for time in map(seconds, (*first, *last)) if time]
        runs.append(
            ProjectRun(
                name=str(names[0]), id=id, began=min(times, default=0.0), changed=max(times, default=0.0),
                n_bytes=sum(n or 0 for n in n_bytes), config=_bytes(configs.get(id, b"")),
            )
        )  # fmt: skip
    found: dict[str, ProjectRun] = {}
    for run in sorted(runs, key=lambda run: (run.began, run.id)):  # a later run does not change the path of another
        part = ODD.sub(lambda odd: "".join(f"%{ord(char):02X}" for char in odd[0]), run.name)
        found[part if part not in found else f"{part} {run.id}"] = run
    return found


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; empty if there is no such table. A view may compute without end."""
    is_table = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")} if is_table else set()


def id_in(columns: set[str]) -> str:
    """Return the column that tells runs apart."""
    return "run_id" if "run_id" in columns else "run_name"


def read_trackio(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return fields of `run_file.RunFile`; empty if the path does not name a run of a project."""
    run = find(path)
    if run is None:
        return {}
    config: Any = {}
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        config = msgspec.json.decode(run.config) if run.config else {}
    config = config if isinstance(config, dict) else {}
    facts = {name: config.pop(key) for key, name in OWN.items() if config.get(key)}
    shown = {name: value for name, value in config.items() if name not in (*OWN, CREATED)}
    return {"name": run.name, "config": shown, "started": run.began, "facts": facts}


def seconds(time: Any) -> float:
    """Return a time of a row in seconds since the Unix epoch; 0 if it cannot be read.

    >>> seconds("2023-11-14T22:13:20+00:00")
    1700000000.0
    """
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        at = datetime.fromisoformat(time)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return 0.0


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""
