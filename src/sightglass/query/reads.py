"""What a query reads of an event: the paths to its observables, and copies of just these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sightglass.core.errors import SightglassError
from sightglass.core.values import Value, array_bytes, array_kind

from . import expressions as e
from .access import attribute
from .query import Query
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
