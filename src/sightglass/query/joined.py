"""What a query holds of the events that it joins: `on("batch").join("epoch")` sees the latest epoch beside each batch.

What the query reads of an epoch is copied when the epoch happens, and stays until the next one. Live and recorded runs
make pairs from the same two parts: `joined_part`, the query of what is copied, and `paired`.

Rule 1: An event sees the last of the others before it, in the order in which the run took them in.
Rule 2: Before the first one there is no pair: the event is left out, as if a condition had dropped it.
Rule 3: Where there was one that is not held, because nobody asked yet or because it failed, the event is missed: its
window is incomplete. It is never paired with an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import expressions as e
from .query import FIELDS, Query
from .reads import Path, all_paths, paths
from .stages import Map


@dataclass(slots=True)
class Latest:
    """What a query holds of the latest event of a name.

    Attributes:
        observables: What it reads of that event; `None` while nothing is held.
        is_lost: Whether there was one that is not held.
        n_bytes: The bytes that are held.
    """

    observables: Mapping[str, Any] | None = None
    is_lost: bool = False
    n_bytes: int = 0

    def hold(self, observables: Mapping[str, Any], n_bytes: int = 0) -> None:
        """Hold an event in place of the one before."""
        self.observables, self.is_lost, self.n_bytes = observables, False, n_bytes

    def lose(self) -> None:
        """Hold nothing, since the latest event is not known."""
        self.observables, self.is_lost, self.n_bytes = None, True, 0


def paired(observables: Mapping[str, Any], latest: Mapping[str, Latest]) -> dict[str, Any] | None:
    """Return the observables of an event with those of the latest others, by name; `None` without one of them."""
    pairs = dict(observables)
    for event, one in latest.items():
        if one.observables is None:
            return None
        pairs[event] = one.observables
    return pairs


def joined_part(query: Query, event: str) -> Query:
    """Return the query of what a query reads of an event that it joins.

    >>> from sightglass.query.parser import parse
    >>> print(joined_part(parse("on('batch').join('epoch').map(lambda b: b.loss - b.epoch.loss)"), "epoch"))
    on('epoch').map(lambda e: {'loss': e.loss})
    """
    read = joined_paths(query, event)
    if () in read:
        return Query(event)
    return Query(event, (Map(e.Lambda(("e",), _mapping(e.Var("e"), read))),))


def joined_paths(query: Query, event: str) -> list[Path]:
    """Return the paths that a query reads of an event that it joins; the empty path for all of it."""
    read = paths(query)
    if query.reads_all or () in read:
        return [()]
    return [path[1:] for path in read if path[0] == event]


def reads_fields_of(query: Query, event: str) -> bool:
    """Return whether a query reads the number or the wall time of an event that it joins."""
    return any(path[:2] == (event, FIELDS) for path in all_paths(query))


def _mapping(target: e.Expr, read: list[Path]) -> e.Expr:
    """Return nested mappings of what is at some paths below a target."""
    names = dict.fromkeys(path[0] for path in read)
    entries = []
    for name in names:
        below = [path[1:] for path in read if path[0] == name]
        part = e.Item(target, e.Const(name)) if not name.isidentifier() else e.Attr(target, name)
        entries.append((name, part if () in below else _mapping(part, below)))
    return e.Dict(tuple(entries))
