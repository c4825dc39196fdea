"""Queries by name: what is asked when only an event and a path into it are given."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any

from .query import Query, on


def query_of(event: str, path: Sequence[str] = ()) -> Query:
    """Return the query for an observable, or for what is inside it.

    >>> str(query_of("batch", ["grads", "dense"]))
    "on('batch').map(lambda value: value.grads['dense'])"
    """
    asked = on(event)
    if not path:
        return asked

    def walk(value: Any) -> Any:
        for i, name in enumerate(path):
            value = getattr(value, name) if i == 0 and is_plain(name) else value[name]
        return value

    mapped: Query = asked.map(walk)
    return mapped


def is_plain(name: str) -> bool:
    """Tell whether a name can stand behind a dot in a query."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
