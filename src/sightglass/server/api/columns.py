"""The endpoint for columns of the table of runs: what series of numbers come to, for all runs at once."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from sightglass.server.http_errors import bad_request
from sightglass.server.runs.run_columns import STATISTICS
from sightglass.server.runs.run_table import Runs

from .request import ApiRequest
from .schema import Request, Route

MAX_COLUMNS: Final = 100
MAX_TAGS: Final = 2_000  # as many as a person searches
LIMIT_S: Final = 0.5  # the page shows what there is, and asks again

Column = Annotated[str, msgspec.Meta(max_length=4_096)]


class ColumnsRequest(Request, frozen=True, kw_only=True):
    """The names of columns: a tag and a statistic, such as `val/accuracy.max`, or `config.` and a key."""

    columns: Annotated[list[Column], msgspec.Meta(max_length=MAX_COLUMNS)]


class ColumnsReply(msgspec.Struct, frozen=True, kw_only=True):
    """The values of columns, in the order of the request, each with a value for each of `keys`, or `null`.

    `tags` are the tags that columns can have, those of most runs first, and `statistics` what may follow them. The
    totals of `n_pending` runs are not read yet: ask again for them.
    """

    keys: list[str]
    values: list[list[Any]]
    tags: list[str]
    statistics: list[str]
    n_pending: int


async def read_columns(call: ApiRequest, query: Request, body: ColumnsRequest) -> ColumnsReply:
    """Return columns of the table of all runs: what series of numbers come to, and entries of configurations.

    A column of a series is named by its tag and one of `last`, `min`, `max`, `mean`, `std`, `first`, `count`, `argmin`
    and `argmax`, the step of the highest value.
    """
    names = [_parsed(column) for column in body.columns]
    return await call.read(_read, call.runs, names)


def _parsed(column: str) -> tuple[str, str]:
    """Return a column's tag and statistic; of an entry of the configuration, its key and an empty text."""
    if column.startswith("config."):
        return column.removeprefix("config."), ""
    tag, _, statistic = column.rpartition(".")
    if not tag or statistic not in STATISTICS:
        raise bad_request(f"Expected config.KEY, or a tag with one of {', '.join(STATISTICS)}; got {column!r:.200}")
    return tag, statistic


def _read(runs: Runs, names: list[tuple[str, str]]) -> ColumnsReply:
    runs.refresh()
    sources = runs.all()
    n_pending = runs.columns.read(sources, limit_s=LIMIT_S)
    keys = [source.key for source in sources]
    values: list[list[Any]] = []
    for name, statistic in names:
        if statistic:
            values.append(list(runs.columns.column(keys, name, statistic)))
        else:
            values.append([_entry(source.config(), name) for source in sources])
    return ColumnsReply(
        keys=keys, values=values, tags=runs.columns.tags()[:MAX_TAGS], statistics=list(STATISTICS), n_pending=n_pending
    )


def _entry(config: dict[str, Any], key: str) -> Any:
    """Return an entry of a configuration, in which a dot leads into a mapping."""
    value: Any = config
    for part in key.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


ROUTES: Final = (
    Route(method="POST", path="/columns", handler=read_columns, body=ColumnsRequest, response=ColumnsReply),
)
