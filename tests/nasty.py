"""Objects that a program may offer, log or configure, and whose methods raise, lie, return nonsense or never end."""

from __future__ import annotations

import io
import itertools
import types
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

METHODS = (
    "__repr__", "__str__", "__format__", "__len__", "__iter__", "__getitem__", "__contains__", "__eq__", "__bool__",
    "__float__", "__int__", "__index__", "__array__", "__deepcopy__", "__copy__", "__reduce__", "__sizeof__",
    "__getattr__", "__lt__", "__call__", "__add__",
    "keys", "items", "values", "get", "copy", "tolist", "item", "detach",
)  # fmt: skip
ATTRIBUTES = (
    "shape",
    "dtype",
    "ndim",
    "size",
    "nbytes",
    "device",
    "_fields",
    "__class__",
    "__dict__",
    "__doc__",
    "__module__",
)
BASES: tuple[tuple[type, tuple[Any, ...]], ...] = (
    (object, ()), (dict, ({"a": 1.0, "b": [2]},)), (list, ([1, 2, 3],)), (tuple, ((1, 2),)), (set, ({1},)),
    (str, ("text",)), (int, (7,)), (float, (0.5,)), (bytes, (b"raw",)), (OrderedDict, ({"a": 1},)),
    (UserDict, ({"a": 1},)), (deque, ([1],)),
)  # fmt: skip


class NoReason(RuntimeError):
    """An error that does not even say its message."""

    def __str__(self) -> str:
        raise RuntimeError("no reason")


def _fails(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def method(*args: object, **kwargs: object) -> Any:
        raise error()

    return method


def _recurses(*args: object, **kwargs: object) -> Any:
    return _recurses(*args, **kwargs)


ERRORS = (RuntimeError, NoReason, MemoryError, OSError, KeyError, AttributeError)
LEAVE = _fails(SystemExit)
RESULTS = (None, -1, 3, "\ud800", object(), NotImplemented, [1], {"a": object()}, float("nan"), 2**70)
behaviours = st.sampled_from([*map(_fails, ERRORS), LEAVE, _recurses]) | st.sampled_from(RESULTS).map(
    lambda result: lambda *args, **kwargs: result
)


@st.composite
def hostile(draw: st.DrawFn) -> Any:
    """Return an object of a class that overrides methods and attributes of a built-in one."""
    base, args = draw(st.sampled_from(BASES))
    namespace: dict[str, Any] = draw(st.dictionaries(st.sampled_from(METHODS), behaviours, max_size=4))
    if namespace.get("__repr__") is LEAVE:  # pytest itself prints arguments, and would leave
        del namespace["__repr__"]
    for name, behaviour in draw(st.dictionaries(st.sampled_from(ATTRIBUTES), behaviours, max_size=2)).items():
        namespace[name] = property(behaviour)
    if draw(st.integers(0, 7)) == 7:
        namespace["__array_namespace__"] = lambda self, **_: types.SimpleNamespace()
    return type("Hostile", (base,), namespace)(*args)


class Pair(tuple):
    """A tuple that takes its items one by one."""

    def __new__(cls, a: object, b: object) -> Pair:
        return super().__new__(cls, (a, b))


class Named(NamedTuple):
    """A named tuple."""

    a: Any
    b: Any


class Three(Named):
    """A named tuple with another constructor."""

    def __new__(cls, a: object) -> Three:  # type: ignore[misc]
        return tuple.__new__(cls, (a, 2))


class Sized(list):
    """A list with another constructor."""

    def __init__(self, n: int, fill: object) -> None:
        super().__init__([fill] * n)


class Short(list):
    """A list whose length cannot be read."""

    def __len__(self) -> int:
        raise RuntimeError("closed")


class Mute:
    """An object without a repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Duck:
    """An array that cannot be converted."""

    shape, dtype, ndim = (2,), np.dtype("f8"), 1

    def __array_namespace__(self, **_: object) -> Any:
        return types.SimpleNamespace()


class Units(np.ndarray):
    """An array with another constructor, and a copy that fails."""

    def __new__(cls, values: Any, unit: str) -> Units:
        made = np.asarray(values).view(cls)
        made.unit = unit
        return made

    def copy(self, order: Any = "C") -> Any:
        raise RuntimeError("no copy")


class Store(Mapping[str, Any]):
    """A mapping over a file: some or all of its items cannot be read."""

    def __init__(self, unreadable: str, *, keys: Callable[[], Iterator[str]] = lambda: iter("abc")) -> None:
        self._unreadable = unreadable
        self._keys = keys

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[str]:
        if self._unreadable == "all":
            raise OSError("closed file")
        return self._keys()

    def __getitem__(self, key: str) -> Any:
        if key == self._unreadable:
            raise OSError("closed file")
        return 1.0


@dataclass
class Plan:
    """A dataclass."""

    a: int
    b: Any


class Odd:
    """A key that cannot be compared or printed."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __repr__ = Mute.__repr__


def unfinished() -> Plan:
    """Return a dataclass of which one field is not set."""
    plan = Plan.__new__(Plan)
    plan.a = 1
    return plan


def nested(depth: int, kind: type = list) -> Any:
    """Return a container within containers."""
    value: Any = 1
    for _ in range(depth):
        value = {"k": value} if kind is dict else kind([value])
    return value


def cycle(kind: type) -> Any:
    """Return a container that contains itself."""
    if kind is dict:
        own: Any = {"ok": 1}
        own["me"] = own
    elif kind is list:
        own = [1]
        own.append(own)
    else:
        own = types.SimpleNamespace(ok=1)
        own.me = own
    return own


def closed_file() -> Any:
    """Return a file that is closed."""
    file = io.StringIO()
    file.close()
    return file


KNOWN: dict[str, Callable[[], Any]] = {
    "mute": Mute, "pair": lambda: Pair(1, 2), "three": lambda: Three(1), "sized": lambda: Sized(2, 0.5),
    "short": lambda: Short([1]), "duck": Duck, "units": lambda: Units([1.0], "m"), "units0": lambda: Units(1.0, "m"),
    "some": lambda: Store("b"), "none": lambda: Store("all"),
    "endless": lambda: Store("", keys=lambda: map(str, itertools.count())),
    "unfinished": unfinished, "deep": lambda: nested(5_000), "deep dict": lambda: nested(5_000, dict),
    "leaves": lambda: list(range(1_000_000)), "own list": lambda: cycle(list), "own dict": lambda: cycle(dict),
    "own object": lambda: cycle(object), "file": closed_file, "keys": lambda: {Odd(): 1, 2: Odd()},
    "class": lambda: Plan, "module": lambda: types, "objects": lambda: np.array([Mute(), 1], object),
    "object0": lambda: np.array(Mute(), object),
    "surrogate": lambda: "\ud800", "surrogate key": lambda: {"\ud800": 1},
    "huge": lambda: 10**5000, "error": NoReason,
    "record": lambda: np.zeros(2, "i4,f4"), "lambda": lambda: lambda: 1, "generator": lambda: (x for x in ()),
}  # fmt: skip

nasties = st.deferred(
    lambda: (
        st.sampled_from([name for name in KNOWN if name not in ("endless", "leaves")]).map(lambda name: KNOWN[name]())
        | hostile()
        | st.lists(nasties, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b"]), nasties, max_size=2)
        | st.builds(Plan, st.integers(), nasties)
        | st.builds(Named, nasties, nasties)
    )
)
"""Values of every kind above; the large ones, which take a while, have tests of their own."""


class Box:
    """A value that is drawn for a test; its repr can be read."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        cls = type(self.value)
        overridden = sorted(vars(cls)) if cls.__name__ == "Hostile" else ""
        inside = f" of {list(map(Box, self.value))}" if cls is list else ""
        return f"{cls.__name__}({cls.__mro__[1:2]}, {overridden}){inside}"


boxes = nasties.map(Box)
"""The same in boxes: a test that fails prints its arguments."""
