"""The boundary to the program's objects: whatever reads or prints one of them is here.

An object of the program may raise in any method, lie about its length, contain itself, or compute without end.

* `text`, `class_name`, `length`, `message` and `first_line` ask one question each, and never raise.
* `parts` reads one level of a container, and `rebuild` builds one; both may raise.
* `copier.Copier` copies whole values with them.

Rule 1: Subclasses of built-in containers are read as they are stored: methods that they override are not called.
Rule 2: No constructor of the program is called: named tuples and dataclasses are read by their fields.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import types
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from time import monotonic, thread_time
from typing import Any, Final, NamedTuple

from sightglass.core.errors import SightglassError

FAILURES: Final = (Exception, SystemExit)
"""What the program's objects may raise. A `KeyboardInterrupt` is the user's and passes."""

MAX_DEPTH: Final = 64  # as deep as a message nests; well below Python's recursion limit
MAX_ITEMS: Final = 250_000  # about a quarter of a second to copy; more parameters than the largest models have names
MAX_TEXT: Final = 1_000  # characters of the repr that stands for a value
MAX_MESSAGE: Final = 2_000  # characters of an error; some libraries print whole tensors in theirs
MAX_NAME: Final = 80  # characters of the name of a type
MAX_PRINTED: Final = 10_000  # items of a set to print; a repr is not interrupted

STORES: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)

BUILT_IN: Final[tuple[Any, ...]] = (dict, list, tuple, set, frozenset, deque, str, bytes)
READ_AS: Final[tuple[Any, ...]] = (dict, list, tuple, str, bytes, int, float, complex, Mapping)
EXACT: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__, int: int.__int__, float: float.__float__, complex: complex.__complex__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}  # fmt: skip
"""The built-in scalars, and what makes one of a subclass without calling its methods."""
MAPPINGS: Final = (dict, Mapping)
KEYS: Final = frozenset((str, int, bool, float, type(None), tuple))

Value = Any


class OwnValue:
    """The base class of the package's own data classes, which are never taken apart."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LostValue(OwnValue):
    """Stands for a value that cannot be kept.

    Attributes:
        why: The reason.
        path: Where it was, such as "config['x'][2]"; may be empty.
    """

    why: str
    path: str = ""

    def __str__(self) -> str:
        return f"unreadable: {self.why}"


class Holder(OwnValue):
    """An `OwnValue` that holds a value of the program, as `value`."""

    __slots__ = ()
    value: Any


class OwnMapping(Mapping[str, Any]):
    """A mapping of our own whose values are found as they are read: that computes, and waits for nothing."""

    __slots__ = ()


class Level(NamedTuple):
    """One level of a container: its length if that is stored, its (key, value) pairs, and what builds another one."""

    size: int | None
    pairs: Iterator[tuple[Any, Any]]
    build: Callable[[list[Any], list[Any]], Any]


# One level of a container


def is_container(value: object) -> bool:
    """Return whether a value is a mapping, a list, a tuple, a dataclass or a `Holder`."""
    cls: type = type(value)
    return _is_container(cls)


@lru_cache(maxsize=1024)
def _is_container(cls: type) -> bool:
    if issubclass(cls, dict | list | tuple | Holder | Mapping):
        return True
    return dataclasses.is_dataclass(cls) and not issubclass(cls, OwnValue)


def parts(value: Value) -> Level | None:
    """Read one level of a container; `None` for any other value.

    A value that the program's code fails to return is a `LostValue`. Dataclasses are rebuilt as mappings.
    """
    cls: type = type(value)
    if not _is_container(cls):
        return None
    if issubclass(cls, dict):
        items = OrderedDict.items if issubclass(cls, OrderedDict) else dict.items
        return Level(dict.__len__(value), iter(list(items(value))), _as_dict)
    if issubclass(cls, list):
        return Level(list.__len__(value), enumerate(list.__iter__(value)), lambda keys, values: values)
    if issubclass(cls, tuple):
        return Level(tuple.__len__(value), enumerate(tuple.__iter__(value)), _builder(cls, tuple.__len__(value)))
    if issubclass(cls, Holder):
        return Level(1, iter((("value", value.value),)), partial(_refilled, value))
    if issubclass(cls, Mapping):
        return Level(None, _items(value), _as_dict)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return Level(None, ((name, _read(getattr, value, name)) for name in names), _as_dict)


def built_in(value: object) -> Any:
    """Return the built-in class that a value is read as, `Mapping` for other mappings, else `None`."""
    cls: type = type(value)
    return _built_in(cls)


@lru_cache(maxsize=1024)
def _built_in(cls: type) -> Any:
    return next((base for base in READ_AS if issubclass(cls, base)), None)


def is_mapping(value: object) -> bool:
    """Return whether a value is a mapping; its `__class__` is not asked."""
    return type(value) is dict or built_in(value) in MAPPINGS


def exact(value: Value) -> Any:
    """Return a value of a subclass of a built-in scalar as that scalar; any other value as it is."""
    make = EXACT.get(built_in(value))
    return value if make is None or type(value) is bool else make(value)


def item_of(mapping: Value, key: Any, missing: object) -> Any:
    """Return the value of a key, or `missing`: of a dict as it is stored, of another mapping by its own code.

    Raises:
        Exception: What the program's code raises.
    """
    if issubclass(type(mapping), dict):
        return dict.get(mapping, key, missing)
    return mapping[key] if key in mapping else missing  # noqa: SIM401  the program's own `get` may differ


def keys_of(mapping: Value, max_keys: int) -> list[Any]:
    """Return the keys of a dict, or the first keys of another mapping. Errors as in `item_of`."""
    if issubclass(type(mapping), dict):
        return list(dict.keys(mapping))
    return list(itertools.islice(mapping, max_keys))


def items_of(
    mapping: Value, *, max_items: int, max_reading_s: float, first: int | None = None
) -> list[tuple[Any, Any]]:
    """Return the (key, value) pairs of a mapping, or the first ones.

    A value that the program fails to return is a `LostValue`.

    Raises:
        ValueError: It has more items.
        TimeoutError: Reading it takes longer than `max_reading_s`.
        Exception: What the program's code raises.
    """
    if issubclass(type(mapping), dict):
        if dict.__len__(mapping) > max_items:
            raise ValueError(f"it has more than {max_items:,} items")
        items = OrderedDict.items(mapping) if issubclass(type(mapping), OrderedDict) else dict.items(mapping)
        return list(items if first is None else itertools.islice(items, first))
    found: list[tuple[Any, Any]] = []
    clock = reading_clock(mapping)
    until_s = clock() + max_reading_s
    for pair in itertools.islice(_items(mapping), first):
        if len(found) >= max_items:
            raise ValueError(f"it has more than {max_items:,} items")
        if clock() > until_s:
            raise TimeoutError(f"reading it takes longer than {max_reading_s:g} s")
        found.append(pair)
    return found


def reading_clock(mapping: Value) -> Callable[[], float]:
    """Return the clock that says how long a mapping is read.

    The program's own code may wait for anything. Ours only computes: if it waits, then for a processor.
    """
    return thread_time if issubclass(type(mapping), OwnMapping) else monotonic


def rebuild(value: Value, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a container with each of its values changed; any other value as it is."""
    found = parts(value)
    if found is None:
        return value
    keys, values = [], []
    for key, item in found.pairs:
        keys.append(key)
        values.append(change(item))
    return found.build(keys, values)


def _items(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for n, key in enumerate(value):
        if n >= MAX_ITEMS:
            raise ValueError(f"it has more than {MAX_ITEMS:,} items")
        yield key, _read(operator.getitem, value, key)


def _read(function: Callable[..., Any], *args: object) -> Any:
    try:
        return function(*args)
    except FAILURES as error:
        return LostValue(message(error))


def _as_dict(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


def _builder(cls: type, size: int) -> Callable[[list[Any], list[Any]], Any]:
    names = fields_of(cls, size)
    return (lambda keys, values: named_tuple(names, values)) if names else (lambda keys, values: tuple(values))


def fields_of(cls: type, size: int) -> tuple[str, ...]:
    """Return the names of a named tuple's items; empty for the tuples of any other class."""
    names = getattr(cls, "_fields", ())
    is_named = type(names) is tuple and len(names) == size and all(type(name) is str for name in names)
    return names if is_named else ()


def named_tuple(names: tuple[str, ...], values: Iterable[Any]) -> tuple[Any, ...]:
    """Return a named tuple of our own with these fields."""
    return _class_of(names)._make(values)  # type: ignore[attr-defined,no-any-return]


@lru_cache(maxsize=1024)
def _class_of(names: tuple[str, ...]) -> type:
    made: type = namedtuple("Fields", names, rename=True)  # type: ignore[misc]
    made.__reduce__ = lambda self: (named_tuple, (names, tuple(self)))  # type: ignore[method-assign,arg-type]
    return made


def _refilled(holder: Value, keys: list[Any], values: list[Any]) -> Any:
    return dataclasses.replace(holder, value=values[0])


# One question to an object


def instance_dict(value: object) -> dict[Any, Any]:
    """Return the `__dict__` of an object, without running code of its class; empty if it has none."""
    getters = (vars(cls).get("__dict__") for cls in type(value).__mro__)
    getter = next((get for get in getters if isinstance(get, STORES)), None)
    return {} if getter is None else getter.__get__(value)


def stored(value: object) -> dict[str, Any]:
    """Return the attributes that an object stores, without running code of its class; then its slots."""
    found = {name: item for name, item in instance_dict(value).items() if type(name) is str}
    for cls in type(value).__mro__:
        # Members of the interpreter's own classes, such as the frame of a traceback, are not slots.
        for name, member in vars(cls).items() if "__slots__" in vars(cls) else ():
            if isinstance(member, types.MemberDescriptorType) and name not in found:
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # not set
                    continue
    return found


def text(value: object, max_chars: int = MAX_TEXT) -> str:
    """Return the repr of a value, or why it has none."""
    try:
        return printed(value, max_chars)
    except FAILURES as error:
        return str(LostValue(message(error)))


def printed(value: object, max_chars: int = MAX_TEXT) -> str:
    """Return the repr of a value; raises what the repr raises."""
    n = length(value) if issubclass(type(value), set | frozenset | deque) else None
    return f"{class_name(value)} of {n}" if n is not None and n > MAX_PRINTED else clean(repr(value), max_chars)


def clean(said: str, max_chars: int = MAX_TEXT) -> str:
    """Return the beginning of a text, as a built-in string that UTF-8 can encode."""
    return str.__getitem__(said, slice(max_chars)).encode("utf-8", "backslashreplace").decode()


def message(error: BaseException) -> str:
    """Return an error as text, with its type unless it is one of Sightglass."""
    try:
        said = clean(str(error), MAX_MESSAGE)
    except FAILURES:
        said = ""
    return said if said and isinstance(error, SightglassError) else f"{class_name(error)}: {said}".removesuffix(": ")


def class_name(value: object) -> str:
    """Return the name of a value's type."""
    try:
        return clean(type(value).__name__, MAX_NAME)
    except FAILURES:
        return "object"


def length(value: Value) -> int | None:
    """Return the length of a container, of built-in ones as it is stored; `None` if it has none."""
    try:
        base = next((base for base in BUILT_IN if issubclass(type(value), base)), None)
        return len(value) if base is None else base.__len__(value)
    except FAILURES:
        return None


def first_line(function: object) -> str:
    """Return the first line of a function's docstring."""
    try:
        doc = getattr(function, "__doc__", None)
        return clean(doc.strip().partition("\n")[0]) if isinstance(doc, str) else ""
    except FAILURES:
        return ""
