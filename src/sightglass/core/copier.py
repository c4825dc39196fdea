"""Copies of the program's values as values of our own. What cannot be read, or exceeds the limits, is a `LostValue`.

A limit is looked at between two items. A single call into the program's code cannot be interrupted.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from .data_values import NOT_DATA, as_data
from .guarded import (
    FAILURES,
    KEYS,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_TEXT,
    LostValue,
    Parts,
    Value,
    class_name,
    clean,
    message,
    parts,
    printed,
    reading_clock,
    stored,
    text,
)

MAX_READING_S: Final = 1.0  # in the program's own code, such as a mapping that computes its items
MAX_OBJECTS: Final = 8  # plain objects inside each other; beyond, a snapshot would wander through the whole program
MAX_STEPS: Final = 8  # of a path; more would not fit the line of a warning

QUICK: Final = frozenset((float, bool, type(None)))
NOT_A_LEAF: Final = object()

KINDS: Final = {"builtin_function_or_method": "function", "method": "function", "type": "class"}
"""What people call some of Python's types."""
VOWELS: Final = "aeiou"

Form = Literal["value", "snapshot", "message"]
Leaf = Callable[[Value], Any]
"""Copies a number, a text, an array; returns `NOT_A_LEAF` for anything else. It may raise."""


class Kept(NamedTuple):
    """A copy, how many parts of the value are lost, and the first of these."""

    value: Any
    n_lost: int
    first: LostValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """What a copy may cost: levels and items of containers, characters of a repr, seconds in the program's own code."""

    max_depth: int = MAX_DEPTH
    max_items: int = MAX_ITEMS
    max_chars: int = MAX_TEXT
    max_reading_s: float = MAX_READING_S


LIMITS: Final = CopyLimits()


class Copier:
    """Copies values of the program into values of our own; never raises because of a value.

    `form` says what becomes of other objects: in a "message" they are texts, as are all keys and what is lost; in a
    "snapshot" they are namespaces of their public attributes; as a "value" they are mappings of these, and if a part is
    lost, the whole copy is.
    """

    def __init__(
        self, leaf: Leaf, *, form: Form, limits: CopyLimits = LIMITS, clock: Callable[[], float] | None = None
    ) -> None:
        """Begin; the seconds of `limits` are for all copies together, the items for each."""
        self._leaf = leaf
        self._form = form
        self._limits = limits
        self._clock = clock
        self._quick = QUICK if form == "message" else QUICK | {int, str}
        self._spent_s = 0.0
        self._name = ""
        self._path: list[Any] = []
        self._inside: set[int] = set()
        self._n_items = self._n_lost = 0
        self._first: LostValue | None = None

    def copy(self, value: object, path: str) -> Kept:
        """Copy a value, which messages call `path`."""
        self._name = path
        self._n_items = self._n_lost = 0
        self._first = None
        try:
            copied = self._copied(value)
        except _OverError:
            copied = self._first
        return Kept(copied, self._n_lost, self._first)

    def _copied(self, value: Value) -> Any:
        try:
            if type(value) is LostValue:
                return self._lose(value.why)
            copied = self._leaf(value)
            if copied is not NOT_A_LEAF:
                return copied
            found = parts(value)
            if found is None and self._form != "message" and (data := as_data(value)) is not NOT_DATA:
                return self._copied(data)
            if found is None:
                found = self._object(value)
            return self._container(value, found) if isinstance(found, Parts) else found
        except FAILURES as error:
            return self._lose(message(error))

    def _container(self, value: object, found: Parts) -> Any:
        """Copy the items of a container."""
        depth, limits = len(self._path), self._limits
        if id(value) in self._inside:
            return self._lose("it contains itself")
        if depth >= limits.max_depth:
            return self._lose(f"it is nested more than {limits.max_depth} levels deep")
        if found.size is not None and self._n_items + found.size > limits.max_items:
            return self._lose(f"it has {found.size:,} items, which is too large to copy")
        keys: list[Any] = []
        values: list[Any] = []
        self._inside.add(id(value))
        self._path.append(None)
        try:
            for key, item in found.pairs if found.size is not None else self._paced(value, found.pairs):
                self._n_items += 1
                if self._n_items > limits.max_items:
                    raise ValueError(f"it has more than {limits.max_items:,} items")
                self._path[depth] = key
                values.append(item if type(item) in self._quick else self._copied(item))
                keys.append(self._key(key))
            built = found.build(keys, values)
        finally:
            self._inside.discard(id(value))
            del self._path[depth:]
        if type(built) is dict and len(built) < len(keys):
            self._lose("two of its keys have the same text")
        return built

    def _paced(self, value: object, pairs: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Yield what the program's own code returns, as long as that takes no longer than the limit."""
        clock = self._clock or reading_clock(value)
        while True:
            if self._spent_s > self._limits.max_reading_s:
                raise TimeoutError(f"reading it takes longer than {self._limits.max_reading_s:g} s")
            began_s = clock()
            pair = next(pairs, None)
            self._spent_s += clock() - began_s
            if pair is None:
                return
            yield pair

    def _object(self, value: object) -> Any:
        """Return the public attributes of a plain object, or what stands for any other one."""
        nested = sum(type(key) is _Attribute for key in self._path)
        whole = self._form == "message" or callable(value) or isinstance(value, types.ModuleType)
        attributes = {} if whole or nested >= MAX_OBJECTS else stored(value)
        public = {_Attribute(name): item for name, item in attributes.items() if not name.startswith("_")}
        if not public:
            return self._lose(_untravelled(value)) if self._form == "value" else printed(value, self._limits.max_chars)
        return Parts(len(public), iter(public.items()), _namespace if self._form == "snapshot" else _mapping)

    def _key(self, key: Value) -> Any:
        """Return a key of our own; in a message, a text."""
        own = key if type(key) in KEYS else self._leaf(key)
        if hasattr(own, "item"):
            own = own.item()  # a number of NumPy
        if type(own) is tuple and self._form != "message":
            return tuple(map(self._key, own))
        if type(own) not in KEYS or type(own) is tuple:
            return text(key)
        if self._form != "message":
            return own
        return clean(own, len(own)) if type(own) is str else str(own)

    def _lose(self, why: str) -> Any:
        self._n_lost += 1
        if self._first is not None:  # only the first is named
            return str(LostValue(why)) if self._form == "message" else LostValue(why)
        self._first = LostValue(why, self._name + _steps(self._path))
        if self._form == "value":  # it is of no use without that part
            raise _OverError
        return str(self._first) if self._form == "message" else self._first


class _OverError(BaseException):
    """Ends a copy at the first part that is lost."""


class _Attribute(str):
    """The name of an attribute, in a path."""

    __slots__ = ()


def _steps(path: list[Any]) -> str:
    """Return the steps of a path as text, without those in the middle of a long one."""
    if len(path) > MAX_STEPS:
        return f"{_steps(path[: MAX_STEPS // 2])}…{_steps(path[-MAX_STEPS // 2 :])}"
    return "".join(map(_step, path))


def _step(key: object) -> str:
    return f".{key}" if type(key) is _Attribute else f"[{text(key, 80)}]"


def _untravelled(value: object) -> str:
    name = KINDS.get(class_name(value), class_name(value))
    return f"{'an' if name[:1].lower() in VOWELS else 'a'} {name} cannot travel"


def _mapping(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    return dict(zip(map(str, keys), values, strict=True))


def _namespace(keys: list[Any], values: list[Any]) -> types.SimpleNamespace:
    return types.SimpleNamespace(**dict(zip(map(str, keys), values, strict=True)))
