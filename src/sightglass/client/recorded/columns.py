"""The columns of a table of runs, as people write them: one language for `table`, the command line and the page.

| column | value |
| --- | --- |
| `val/accuracy.max` | a reducer of `REDUCERS` over all values of a series of numbers |
| `loss@val/accuracy.max` | the last value of a series up to the step where another one is best |
| `config.lr` | an entry of the configuration |
| `run.host` | a fact of the run |
| `best=batch.loss.min(per="run")` | any query, under a name |
| `batch.loss` | any query: its last value |
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from sightglass.client.describe import RunInfo
from sightglass.core.errors import QueryError
from sightglass.storage.format.totals import NAMES
from sightglass.storage.object_file import Annotations
from sightglass.storage.read.series import Series

REDUCERS: Final = NAMES
"""What may follow a tag; `argmin` and `argmax` are where it is lowest and highest."""
BESTS: Final = ("min", "max")
OF_PEOPLE: Final = tuple(name for name in Annotations.__struct_fields__ if name != "name")
FACTS: Final = ("name", "id", "state", "host", "directory", "started", "ended", "changed", "duration", *OF_PEOPLE)
"""The facts of a run."""

_NAMED: Final = re.compile(r"\s*([^\s=,()\[\]'\"][^=,()\[\]'\"]*?)\s*=(?!=)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column.

    Attributes:
        title: Its name: what was written, or stands before the "=".
        written: The column without that name.
        kind: What it is of.
        text: A query, a tag, a key of the configuration with dots between its levels, or a fact.
        reducer: What follows the tag of a series; empty for other kinds.
        at: The tag of the series whose best value says where to look, if there is one.
    """

    title: str
    written: str
    kind: Literal["query", "series", "config", "run"]
    text: str
    reducer: str = ""
    at: str = ""


def parse_column(written: str, *, title: str = "") -> TableColumn:
    """Return a column.

    Args:
        written: The text.
        title: The name of the column, if it does not stand in the text.

    Raises:
        QueryError: It is empty, or names a fact that runs do not have.
    """
    named = None if title else _NAMED.fullmatch(written)
    title, text = (named[1], named[2]) if named else (title or written.strip(), written.strip())
    if not text:
        raise QueryError(f"Expected a column, such as 'loss.min' or 'best=batch.loss', got {written!r:.200}")
    kind, _, name = text.partition(".")
    if kind == "config" and name:
        return TableColumn(title=title, written=text, kind="config", text=name)
    if kind == "run" and name in FACTS:
        return TableColumn(title=title, written=text, kind="run", text=name)
    tag, _, reducer = text.rpartition(".")
    if not tag or reducer not in REDUCERS:
        return TableColumn(title=title, written=text, kind="query", text=text)
    first, _, at = tag.partition("@")
    if first and at and reducer in BESTS:
        return TableColumn(title=title, written=text, kind="series", text=first, reducer=reducer, at=at)
    return TableColumn(title=title, written=text, kind="series", text=tag, reducer=reducer)


def parse_columns(written: str) -> list[TableColumn]:
    """Return the columns in a list with commas between them, which may also stand inside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in written:
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
        depth += 0 if quote else (character in "([{") - (character in ")]}")
        if character == "," and not (depth or quote):
            parts.append("")
        else:
            parts[-1] += character
    return [parse_column(part) for part in parts if part.strip()]


def entry_of(config: Any, key: str) -> Any:
    """Return an entry of a configuration, in which a dot leads into a mapping; `None` if there is none."""
    value = config
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def fact_of(info: RunInfo, name: str) -> Any:
    """Return one of `FACTS`; `None` if it is not known."""
    if name in OF_PEOPLE:
        return getattr(info.annotations, name)
    if name != "duration":
        return getattr(info, name) or None
    end = info.ended or (time.time() if info.live else None)
    return None if not info.started or end is None else max(0.0, end - info.started)


def known_value(column: TableColumn, info: RunInfo) -> Any:
    """Return the value of a column of the configuration or a fact; `None` for others, or if there is none."""
    if column.kind == "config":
        return entry_of(info.config, column.text)
    return fact_of(info, column.text) if column.kind == "run" else None


def value_at(series: Series, step: float) -> Any:
    """Return the last value of a series up to a step; `None` if it has none there."""
    steps = np.asarray(series.steps)
    before = np.flatnonzero(steps <= step)
    return series[int(before[steps[before] == steps[before].max()][-1])].value if len(before) else None
