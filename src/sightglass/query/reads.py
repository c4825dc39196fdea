"""What a query reads of an event: the paths to its observables, and copies of just these.

`Latest` is what a query holds of the events that it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sightglass.core.errors import SightglassError
from sightglass.core.values import Value, array_bytes, array_kind

from . import expressions as e
from .access import attribute
from .query import FIELDS, Query
from .stages import Map, Reduce, Where, event_functions

Path = tuple[Any, ...]


def paths(query: Query) -> list[Path]:
    """Return the paths of names that a query reads of its event, each as deep as it is constant.

    >>> from sightglass.query.parser import parse
    >>> paths(parse('on("batch").map(lambda b: b.grads["w"].norm() + b.loss)'))
    [('grads', 'w'), ('loss',)]
    """
    found = all_paths(query)
    return [path for path in found if not any(path[:n] in found for n in range(1, len(path)))]


def all_paths(query: Query) -> dict[Path, None]:
    """Return the same paths, with those below others that are read as a whole."""
    return {path: None for tree in _of_event(query) for path in _paths(tree.body, tree.params[0])}


def _of_event(query: Query) -> Iterator[e.Lambda]:
    """Yield the lambdas of a query whose argument is the event."""
    mapped = False
    for stage in query.stages:
        match stage:
            case Where(e.Lambda() as tree) if not mapped:
                yield tree
            case Map(e.Lambda() as tree) if not mapped:
                yield tree
                mapped = True
            case Reduce():
                yield from event_functions(stage)


def _paths(tree: e.Expr, root: str) -> Iterator[Path]:
    path = _path(tree, root)
    if path is not None:
        yield path
        return
    for part in tree.children():
        yield from _paths(part, root)


def _path(tree: e.Expr, root: str) -> Path | None:
    match tree:
        case e.Var(name):
            return () if name == root else None
        case e.Attr(target, name) | e.Item(target, e.Const(str(name))):
            above = _path(target, root)
            return None if above is None else (*above, name)
    return None


def read(observables: Mapping[str, Any], path: Path) -> tuple[Path, Value]:
    """Return the value at a path, or the array on the way to it, and the path to that.

    Raises:
        SightglassError: There is no such value.
    """
    value: Any = observables
    for n, name in enumerate(path):
        if array_kind(value):
            return path[:n], value
        value = attribute(value, name)
    return path, value


def copied(observables: Mapping[str, Any], wanted: list[Path], copy: Callable[[Path, Value], Any]) -> dict[str, Any]:
    """Return the observables at these paths, copied; mappings take the place of other objects on the way.

    Raises:
        SightglassError: A value cannot be copied.
    """
    copies: dict[str, Any] = {}
    for path in wanted:
        try:
            place, value = read(observables, path)
        except SightglassError:
            continue  # the evaluation reports it
        inside = copies
        for name in place[:-1]:
            inside = inside.setdefault(name, {})
        if place[-1] not in inside:
            inside[place[-1]] = copy(place, value)
    return copies


def n_bytes_read(observables: Mapping[str, Any], wanted: list[Path]) -> int:
    """Return the bytes of the arrays at these paths; those of mappings count in all."""
    return sum(_n_bytes(read(observables, path)[1]) for path in wanted)


def _n_bytes(value: Any) -> int:
    if array_kind(value):
        return array_bytes(value)
    if type(value) in (dict, list, tuple):
        return sum(map(_n_bytes, value.values() if type(value) is dict else value))
    return 0


# What a query holds of the events that it joins: `on("batch").join("epoch")` sees the latest epoch beside each batch.
#
# What the query reads of an epoch is copied when the epoch happens, and stays until the next one. Live and recorded
# runs make pairs from the same two parts: `joined_part`, the query of what is copied, and `paired`.
#
# Rule 1: An event sees the last of the others before it, in the order in which the run took them in.
# Rule 2: Before the first one there is no pair: the event is left out, as if a condition had dropped it.
# Rule 3: Where there was one that is not held, because nobody asked yet or because it failed, the event is missed: its
# window is incomplete. It is never paired with an earlier one.


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
