"""Queries from names: an event, and a path to one of its values."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any

from sightglass.core.values import Value

from .query import Query, on


def query_of(event: str, path: Sequence[str] = ()) -> Query:
    """Return the query for an event, an observable, or a value inside an observable.

    >>> str(query_of("batch", ["grads", "dense"]))
    "on('batch').map(lambda value: value.grads['dense'])"
    """
    asked = on(event)
    if not path:
        return asked

    def walk(value: Value) -> Any:
        for i, name in enumerate(path):
            value = getattr(value, name) if i == 0 and is_plain(name) else value[name]
        return value

    mapped: Query = asked.map(walk)
    return mapped


def is_plain(name: str) -> bool:
    """Return whether a query can write a name as an attribute."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
