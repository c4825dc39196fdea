"""The table of several runs, and its columns as people write them: one language for `table`, command line and page.

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

import html
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from sightglass.client.describe import RunInfo
from sightglass.core.errors import MissingExtraError, QueryError
from sightglass.core.values import type_name
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.query.reduce.columns import NAMES
from sightglass.storage.object_file import Annotations
from sightglass.storage.read.series import Series

if TYPE_CHECKING:
    import polars

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


# A table of runs: a row for each run, with its name, state, configuration and what was asked.

RunRow = Mapping[str, Any]

SHOWN: Final = 20  # rows, a screenful
WIDTH: Final = 60  # characters of a cell
FORMS: Final = (".parquet", ".csv")
FIRST: Final = ("run", "state")
OWN: Final = (*FIRST, "config", "problem")
"""The names of columns that every table may have."""


class RunsTable(Sequence[RunRow]):
    """Rows by number, as mappings; every row has all `columns`, with `None` where a run has no such value.

    `pandas.DataFrame(table)` makes a data frame of pandas.

    Attributes:
        columns: The names of the columns: "run" and "state", "config.…", what was asked, and "problem".
    """

    def __init__(self, rows: Sequence[RunRow]) -> None:
        flat = [dict(_flat(row)) for row in rows]
        names = dict.fromkeys(name for row in flat for name in row)
        ends = [name for name in names if name == "problem"]
        self.columns = [*FIRST, *(name for name in names if name not in (*FIRST, *ends)), *ends]
        self._rows = [{name: row.get(name) for name in self.columns} for row in flat]

    def __getitem__(self, i: Any) -> Any:
        return self._rows[i]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RunRow]:
        return iter(self._rows)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column, a row after the other."""
        return [row[name] for row in self._rows]

    def to_polars(self) -> polars.DataFrame:
        """Return a data frame of Polars. Columns of several types become text.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise MissingExtraError("polars", extra="export", purpose="RunsTable.to_polars") from None
        return polars.DataFrame({name: _alike(self.column(name)) for name in self.columns}, strict=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as Parquet or CSV, by the path's suffix.

        Raises:
            ValueError: The path has another suffix.
            MissingExtraError: Polars is not installed.
        """
        match Path(path).suffix:
            case ".parquet":
                self.to_polars().write_parquet(Path(path))
            case ".csv":
                self.to_polars().write_csv(Path(path))
            case other:
                raise ValueError(f"Expected a path that ends in {' or '.join(FORMS)}, got {other!r}")

    def __repr__(self) -> str:
        rows = [self.columns, *([*_shown(row)] for row in self._rows[:SHOWN])]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]
        return "\n".join([*lines, *self._more()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = ([html.escape(cell_text(value)) for value in row.values()] for row in self._rows[:SHOWN])
        body = "".join(f"<tr><td>{'</td><td>'.join(cells)}</td></tr>" for cells in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{''.join(self._more())}"

    def _more(self) -> list[str]:
        return [f"… and {len(self) - SHOWN:,} more rows"] if len(self) > SHOWN else []


def _shown(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cells of a row as a screen has room for them; a problem in full, since its end says what to do."""
    for name, value in row.items():
        yield cell_text(value)[: None if name == "problem" else WIDTH]


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a row; those of a mapping under its name and theirs, with a dot between."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _alike(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) <= 1:
        return values
    return [None if value is None else cell_text(value) for value in values]


def cell_text(value: object) -> str:
    """Return a value as the text of a cell; nothing for `None`."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, str | int) else type_name(value) if hasattr(value, "shape") else repr(value)


def texts_of(unnamed: Sequence[Query | str], queries: Mapping[str, Query | str]) -> dict[str, str]:
    """Return the queries of columns as texts, which other processes can read; the tag of a series stays as it is.

    Args:
        unnamed: Queries whose columns are named by their texts.
        queries: Queries by the names of their columns.

    Raises:
        ValueError: A column has the name of one that every table has.
    """
    texts = {}
    for name, query in (*((None, one) for one in unnamed), *queries.items()):
        text = query if isinstance(query, str) else str(as_query(query))
        texts[text if name is None else name] = text
    if taken := sorted({*texts} & {*OWN}):
        raise ValueError(f"Expected other names than {', '.join(OWN)} for columns, got {', '.join(taken)}")
    return texts


def row_of(
    run: str, state: str, config: Mapping[str, Any], values: Mapping[str, Any], problems: Mapping[str, str]
) -> RunRow:
    """Return the row of a run, with why values are missing, or not of all events, by the names of their columns."""
    row = {"run": run, "state": state, "config": config, **values}
    told = "; ".join(": ".join(filter(None, problem)) for problem in problems.items())
    return {**row, "problem": told} if told else row
