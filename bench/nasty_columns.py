"""Columns of pandas, Polars and Arrow that take long to convert, each with six queries that try to."""

from __future__ import annotations

from typing import Any, Final

from tests.core.test_columns_at_source import MADE, MAX_IN_COLUMN, MAX_LISTED, MAX_MADE, NUMBERS, QUERIES, TEXTS

TIMES_BEYOND: Final = 4
KINDS: Final = {
    f"{name}, {n:,}": (make, n)
    for kinds, n_most in ((TEXTS, MAX_LISTED), (MADE, MAX_MADE), (NUMBERS, MAX_IN_COLUMN))
    for name, make in kinds.items()
    for n in (n_most, TIMES_BEYOND * n_most)
}
NASTY: Final = {
    f"{query} of {name}": query.replace("b.c", f"b.c{i}").replace("b.d", f"b.d{i}")
    for i, name in enumerate(KINDS)
    for query in QUERIES
}


def made() -> dict[str, Any]:
    """Return each column under a name, and in a mapping."""
    columns = {i: make(n) for i, (make, n) in enumerate(KINDS.values())}
    return {
        **{f"c{i}": column for i, column in columns.items()},
        **{f"d{i}": {"c": column} for i, column in columns.items()},
    }
