"""The endpoint for logged tables: sorted, filtered and paged here."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from sightglass.core.table import Table, column_type
from sightglass.core.values import type_name
from sightglass.server.http_errors import Problem
from sightglass.server.runs.run_table import Runs
from sightglass.views.sheets import drawn_cell, find_rows, python_cells

from .media import MAX_TAG, AtStep, Tag, record_at
from .schema import ApiRequest, Route

MAX_ROWS: Final = 2_000  # the points of a curve


class RowsQuery(AtStep, frozen=True, kw_only=True):
    """Which rows of a table: those that meet the conditions in `find`, sorted, from `offset` on."""

    find: Annotated[str, msgspec.Meta(max_length=MAX_TAG)] = ""
    sort: Tag = ""
    descending: bool = False
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] = 100


class ColumnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A column's name, and its dtype or "text", "image", "figure", "audio", "mixed"."""

    name: str
    type: str


class RowsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table, how many it has, and how many were found; a picture is `{png, caption}` in base64."""

    step: float
    wall_time: float
    columns: list[ColumnInfo]
    n_rows: int
    n_found: int
    offset: int
    rows: list[list[Any]]


async def list_rows(call: ApiRequest, query: RowsQuery) -> RowsReply:
    """Return rows of the table of a tag at a step."""
    return await call.read(_rows, call.runs, call.key, query)


def _rows(runs: Runs, key: str, query: RowsQuery) -> RowsReply:
    record = record_at(runs, key, query)
    table = record.value
    if not isinstance(table, Table):
        raise Problem(400, "QueryError", f"Expected a table under {query.tag!r}, got {type_name(table)}")
    found = find_rows(table, query.find, sort=query.sort, descending=query.descending)
    places = found[query.offset : query.offset + query.limit]
    cells = [python_cells(column, places) for column in table.value.values()]
    return RowsReply(
        step=record.step,
        wall_time=record.wall_time,
        columns=[ColumnInfo(name=name, type=column_type(column)) for name, column in table.value.items()],
        n_rows=len(table),
        n_found=len(found),
        offset=query.offset,
        rows=[[drawn_cell(cell) for cell in row] for row in zip(*cells, strict=True)],
    )


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/rows", handler=list_rows, query=RowsQuery, response=RowsReply, cached=True,
    ),
)  # fmt: skip
