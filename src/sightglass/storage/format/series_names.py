"""The names under which the series of a run are asked for.

A tag of another program's file may have values of several kinds, such as tensors and histograms, which are a series
each. The tag alone means the first of them in the order of `KINDS`, whatever the order of the file. The tag with a
kind, such as "kernel:histogram", means the same series whatever else comes under the tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from .block import Key, ValueKind

KINDS: Final[tuple[ValueKind, ...]] = get_args(ValueKind)
IN_QUERY: Final = re.compile(rf"""(['"])([^'"]+:(?:{"|".join(KINDS[1:])}))\1""")

SCALAR: Final = re.compile(r"bool|u?int\d*|b?float\w*")
ARRAY: Final = re.compile(r"\w+\[[\d, ]*\]|complex\d*")
TYPES: Final[dict[str, ValueKind]] = {
    "Histogram": "histogram", "Image": "image", "Images": "image", "Figure": "image", "Audio": "audio",
    "Table": "table", "Text": "text", "str": "text",
}  # fmt: skip


def in_order(key: Key) -> tuple[Any, ...]:
    """Return what series are sorted by: of one tag, the series that the tag alone means comes first."""
    return key.kind, key.tag, KINDS.index(key.values), key.query


def kind_of(type: str) -> ValueKind:
    """Return the kind of values of a type as `core.values.type_name` writes it; "" for others, such as mappings."""
    if SCALAR.fullmatch(type):
        return "scalar"
    return "tensor" if ARRAY.fullmatch(type) else TYPES.get(type, "")


def query_of(key: Key) -> str:
    """Return the text of the query that asks for a series."""
    return f"log[{json.dumps(key.name, ensure_ascii=False)}]" if key.kind == "logged" else key.query


def split(name: str) -> tuple[str, ValueKind]:
    """Split a name into its tag and its kind, "" for a tag alone."""
    tag, _, kind = name.rpartition(":")
    return (tag, kind) if tag and kind in KINDS[1:] else (name, "")


def candidates(name: str) -> Iterator[Key]:
    """Yield what a name may mean among logged values, the likeliest first."""
    yield from (Key(kind="logged", tag=name, values=kind) for kind in KINDS)
    tag, kind = split(name)
    if kind:
        yield Key(kind="logged", tag=tag, values=kind)


def named(keys: Iterable[Key]) -> dict[str, Key]:
    """Return logged series by all their names; of those of one series, the one that lists show comes first."""
    logged = sorted((key for key in keys if key.kind == "logged"), key=in_order)
    found: dict[str, Key] = {}
    for key in logged:
        found.setdefault(key.tag, key)
    for key in logged:
        if key.values:
            found.setdefault(f"{key.tag}:{key.values}", key)
    return found


def shown(keys: Iterable[Key]) -> dict[Key, str]:
    """Return the names of logged series in lists: the tag, and of further kinds of its values the tag and the kind."""
    return {key: name for name, key in reversed(named(keys).items())}


def listed(keys: Iterable[Key]) -> list[str]:
    """Return the names of a run's series, sorted."""
    several = list(keys)
    return sorted({*shown(several).values(), *(key.tag for key in several if key.kind == "stream")})


def in_query(query: str) -> list[str]:
    """Return what may be names with a kind in the text of a query, or in a tag with the name of a reducer."""
    several = [query, query.rpartition(".")[0], *(found[2] for found in IN_QUERY.finditer(query))]
    return [name for name in several if split(name)[1]]
