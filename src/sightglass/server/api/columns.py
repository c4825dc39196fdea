"""The endpoints for columns of the table of runs, for all runs at once: as JSON, and as a Parquet file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from sightglass.client.many.table import TableColumn, entry_of, parse_column
from sightglass.server.http_errors import Problem, bad_request
from sightglass.server.runs.run_columns import STATISTICS
from sightglass.server.runs.run_table import Runs, summary_of
from sightglass.server.runs.served_run import RunSummary, ServedRun
from sightglass.storage.export.media_files import parquet_of
from sightglass.storage.object_file import Annotations

from .schema import ApiRequest, Raw, Request, Route

MAX_COLUMNS: Final = 100
MAX_TAGS: Final = 2_000  # as many as a person searches
MAX_RUNS: Final = 100_000
LIMIT_S: Final = 0.5  # the page shows what there is, and asks again
FILE_LIMIT_S: Final = 60.0  # a file is complete
PARQUET: Final = "application/vnd.apache.parquet"
TIMES: Final = ("started", "ended", "changed")
FACTS: Final = (
    *(name for name in RunSummary.__struct_fields__ if name not in ("config", "annotations")),
    *(name for name in Annotations.__struct_fields__ if name != "name"), "duration",
)  # fmt: skip

ColumnText = Annotated[str, msgspec.Meta(max_length=4_096)]


class ColumnsRequest(Request, frozen=True, kw_only=True):
    """The names of columns.

    A tag and a statistic, such as `val/accuracy.max`; a tag and where another is best, `loss@val/accuracy.max`;
    `config.` and a key; `run.` and a fact of the list of runs.
    """

    columns: Annotated[list[ColumnText], msgspec.Meta(max_length=MAX_COLUMNS)]


class RunFileRequest(ColumnsRequest, frozen=True, kw_only=True):
    """The columns of a file, named as for `/columns`, and the keys of its runs in their order; by default all runs."""

    runs: Annotated[list[str], msgspec.Meta(max_length=MAX_RUNS)] | None = None


class ColumnsReply(msgspec.Struct, frozen=True, kw_only=True):
    """The values of columns, in the order of the request, each with a value for each of `keys`, or `null`.

    `tags` are the tags that columns can have, those of most runs first, and `statistics` what may follow them. The
    totals of `n_pending` runs are not read yet: ask again for them. `without` are the runs whose series have none: they
    are damaged, too large to be added up, or have too many series.
    """

    keys: list[str]
    values: list[list[Any]]
    tags: list[str]
    statistics: list[str]
    n_pending: int
    without: list[str]


async def read_columns(call: ApiRequest, query: Request, body: ColumnsRequest) -> ColumnsReply:
    """Return columns of the table of all runs: what series of numbers come to, configurations and facts.

    A column of a series is named by its tag and one of `last`, `min`, `max`, `mean`, `std`, `first`, `count`, `argmin`
    and `argmax`, the step of the highest value. `loss@val/accuracy.max` is the last `loss` up to that step.
    """
    return await call.read(_read, call.runs, [_parsed(column) for column in body.columns])


async def read_run_file(call: ApiRequest, query: Request, body: RunFileRequest) -> Raw:
    """Return the table of runs as a Parquet file, with a row for each run; it needs `sightglass[export]`."""
    return await call.read(_read_file, call.runs, [_parsed(column) for column in body.columns], body)


def _parsed(written: str) -> TableColumn:
    kind, _, name = written.partition(".")
    if kind == "run" and name in FACTS:
        return TableColumn(title=written, written=written, kind="run", text=name)
    column = parse_column(written, title=written)
    if column.kind not in ("config", "series") or (column.reducer and column.reducer not in STATISTICS):
        raise bad_request(
            f"Expected config.KEY, run.FACT, or a tag with one of {', '.join(STATISTICS)}; got {written!r:.200}"
        )
    return column


def _read(runs: Runs, names: list[TableColumn]) -> ColumnsReply:
    runs.refresh()
    sources = runs.all()
    n_pending = runs.columns.read(sources, limit_s=LIMIT_S)
    values, n_left = _columns(runs, sources, names, limit_s=LIMIT_S)
    return ColumnsReply(
        keys=[source.key for source in sources],
        values=values,
        tags=runs.columns.tags()[:MAX_TAGS],
        statistics=list(STATISTICS),
        n_pending=max(n_pending, n_left),
        without=runs.columns.without(),
    )


def _columns(
    runs: Runs, sources: Sequence[ServedRun], names: Sequence[TableColumn], *, limit_s: float
) -> tuple[list[list[Any]], int]:
    """Return the values of columns, and how many runs are still to be read for them."""
    keys = [source.key for source in sources]
    tags = set(runs.columns.tags()) if any(name.at for name in names) else ()
    summaries = [summary_of(source) for source in sources] if any(name.kind == "run" for name in names) else []
    until_s = time.monotonic() + limit_s
    values: list[list[Any]] = []
    n_left = 0
    for one in names:
        if one.kind == "config":
            values.append([entry_of(source.config(), one.text) for source in sources])
        elif one.kind == "run":
            values.append([_fact(summary, one.text) for summary in summaries])
        elif one.at and f"{one.text}@{one.at}" not in tags:
            best = one.at, one.reducer
            found, n = runs.columns.at_best(sources, one.text, best, limit_s=until_s - time.monotonic())
            values.append(list(found))
            n_left = max(n_left, n)
        else:
            tag = f"{one.text}@{one.at}" if one.at else one.text
            values.append(list(runs.columns.column(keys, tag, one.reducer)))
    return values, n_left


def _read_file(runs: Runs, names: list[TableColumn], body: RunFileRequest) -> Raw:
    """Write the table as Parquet.

    Raises:
        MissingExtraError: pyarrow is not installed.
        Problem: Not all runs could be read in time.
    """
    runs.refresh()
    sources = runs.all()
    if body.runs is not None:
        by_key = {source.key: source for source in sources}
        sources = [by_key[key] for key in dict.fromkeys(body.runs) if key in by_key]
    n_pending = runs.columns.read(runs.all(), limit_s=FILE_LIMIT_S)
    values, n_left = _columns(runs, sources, names, limit_s=FILE_LIMIT_S)
    if n_pending or n_left:
        raise Problem(409, "UnreadError", f"{max(n_pending, n_left)} runs are still to be read: try again")
    columns: dict[str, list[Any]] = {}
    times = []
    for column, one, cells in zip(body.columns, names, values, strict=True):
        # A key of the configuration may be called as a fact.
        title = column if one.kind == "series" or one.text in columns else one.text
        columns[title] = cells
        if one.kind == "run" and one.text in TIMES:
            times.append(title)
    return Raw(data=parquet_of(columns, times=times), media_type=PARQUET, name="runs.parquet")


def _fact(run: RunSummary, name: str) -> Any:
    if name == "duration":
        end = run.ended if run.ended is not None else time.time() if run.live else None
        return None if run.started is None or end is None else max(0.0, end - run.started)
    return getattr(run.annotations if name in Annotations.__struct_fields__ and name != "name" else run, name)


ROUTES: Final = (
    Route(method="POST", path="/columns", handler=read_columns, body=ColumnsRequest, response=ColumnsReply),
    Route(method="POST", path="/runs.parquet", handler=read_run_file, body=RunFileRequest, response=(PARQUET,)),
)
