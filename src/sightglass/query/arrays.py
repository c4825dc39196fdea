"""The values that queries compute with: how those of the program enter a query, and arrays of any library."""

from __future__ import annotations

import itertools
import math
import operator
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError, SightglassError, UnreadableError, UnsendableError
from sightglass.core.program_values.array_data import MAX_LISTED, NOT_DATA, as_data, plain_array, seconds_of
from sightglass.core.program_values.guarded import (
    FAILURES,
    LostValue,
    built_in,
    exact,
    is_container,
    is_mapping,
    length,
    message,
    text,
)
from sightglass.core.values import (
    CONTAINERS,
    ArrayKind,
    Value,
    array_bytes,
    array_kind,
    is_extended,
    itemsize,
    type_name,
)

from .costs import OperationCost, without
from .limits import PLAIN, Total, check_bytes, check_length

AS_IT_IS: Final = frozenset((float, int, bool, str, bytes, type(None), dict, list, tuple))
NUMBERS = (bool, int, float, np.number, np.bool_)
TEXTS: Final = frozenset((str, type(None)))
TIMES: Final = frozenset((np.datetime64, np.timedelta64))
OBJECTS: Final = np.dtype(object).num
NOT_READ: Final = frozenset((OBJECTS, np.dtype(np.void).num))
"""Of the dtypes of NumPy, those whose arrays are not read as they are: of objects, and structured ones, by field."""
LAST_NUMERIC: Final = np.dtype(np.clongdouble).num
"""NumPy numbers its own dtypes: bools, integers, floats and complex come first, half precision among the later ones."""


def readable(value: Value, name: object) -> Value:
    """Return a value that a query may read, as one of a built-in class or of an array library.

    Raises:
        RefusedQueryError: The value is a module, a class, or callable.
        UnreadableError: The value is an array or a column whose data cannot be read.
        UnsendableError: The value was not kept.
    """
    cls: type = type(value)
    if cls in AS_IT_IS or (cls is np.ndarray and value.base is None and value.dtype.num not in NOT_READ):
        return value
    kind = array_kind(value)
    if kind is not None:
        try:
            array = plain_array(value, kind)
        except SightglassError as error:
            raise type(error)(f"Cannot read {text(name, 100)}: {error}") from None
        if type(array) is np.ndarray and array.dtype.names:
            return {field: array[field] for field in array.dtype.names}
        return array if type(array) is not np.ndarray or array.dtype.num != OBJECTS else _data(array, name)
    if cls is LostValue:
        raise UnsendableError(f"{text(name, 100)} was not kept: {value.why}")
    if issubclass(cls, np.void) and value.dtype.names:
        return {field: value[field] for field in value.dtype.names}
    if issubclass(cls, np.generic):
        return value if cls.__module__ == "numpy" else np.asarray(value)[()]
    base = built_in(value)
    if base is None and (data := _data(value, name)) is not NOT_DATA:
        return data
    if issubclass(cls, types.ModuleType | type) or (base is None and callable(value) and not is_container(value)):
        raise RefusedQueryError(
            f"Expected {text(name, 100)} to be a value, got a {cls.__name__}: "
            "queries cannot read modules, classes and functions"
        )
    if base is None and _pretends(value):
        raise RefusedQueryError(
            f"Expected {text(name, 100)} to be a value, got a {cls.__name__} with another __class__"
        )
    return exact(value)


def _data(value: object, name: object) -> Any:
    """Return what `as_data` does; a failure names the value.

    Raises:
        UnreadableError: The value cannot be read.
    """
    try:
        return as_data(value)
    except FAILURES as error:
        why = str(error) if isinstance(error, UnreadableError) else message(error)
        raise UnreadableError(f"Cannot read {text(name, 100)}: {why}") from None


def _pretends(value: object) -> bool:
    """Return whether a value says that it is of another class, as proxies do."""
    cls: type = type(value)
    return _has_other_class(cls)


@lru_cache(maxsize=1024)
def _has_other_class(cls: type) -> bool:
    return any("__class__" in vars(base) for base in cls.__mro__[:-1])


_namespaces: dict[type, Any] = {}


def namespace(value: object) -> Value:
    """Return the array library of a value as an array API namespace; NumPy for plain numbers."""
    kind = type(value)
    if kind not in _namespaces:
        if array_kind(value) in (None, "numpy"):
            _namespaces[kind] = np
        else:
            from array_api_compat import array_namespace

            _namespaces[kind] = array_namespace(value)
    return _namespaces[kind]


def is_array(value: object) -> bool:
    """Return whether a value is an array of any library."""
    return array_kind(value) is not None


def is_numpy(value: object) -> bool:
    """Return whether a value is a NumPy array of one of NumPy's own numeric dtypes, which have fast paths."""
    return type(value) is np.ndarray and value.dtype.num <= LAST_NUMERIC


def is_texts(value: object) -> bool:
    """Return whether a value is an array of texts, or of objects, as `texts` makes them."""
    return type(value) is np.ndarray and value.dtype.kind in "USO"


def texts(value: Value) -> Any:
    """Return an array of texts, or a list of them, as an array; `None` for any other value.

    A list may have `None` between the texts, as a column has that lacks some.
    """
    if is_texts(value):
        return value
    if type(value) not in (list, tuple) or not value or not TEXTS.issuperset(map(type, value)):
        return None
    return np.array(value, dtype=object)


def few_texts(value: Value) -> Any:
    """Return what `texts` does, of at most `MAX_LISTED` items, each of which becomes an object of Python.

    Raises:
        RefusedQueryError: There are more.
    """
    found = texts(value)
    if found is not None and found.size > MAX_LISTED:
        raise RefusedQueryError(f"Expected at most {MAX_LISTED:,} texts, got {found.size:,}")
    return found


def operand(value: Value) -> Value:
    """Return a number or an array; a sequence of numbers becomes an array, and times become seconds.

    Raises:
        RefusedQueryError: The value is anything else.
        UnreadableError: It cannot be read.
    """
    if type(value) in PLAIN or is_numpy(value):
        return value
    if type(value) in TIMES:
        return seconds_of(np.asarray(value))[()]
    if isinstance(value, NUMBERS):
        return value
    if type(value) is complex:
        return np.complex128(value)  # which divides by zero as arrays do
    if array_kind(value):
        kind = getattr(value.dtype, "kind", "f")
        if kind in "mM":
            return seconds_of(value)
        if kind in "OSUV" and not is_extended(value.dtype):
            raise RefusedQueryError(f"Expected an array of numbers, got dtype {value.dtype}")
        return value
    if issubclass(type(value), list | tuple):
        return _stack(value)
    if type(value) is LostValue:
        raise UnreadableError(value.why)
    raise RefusedQueryError(f"Expected a number or an array, got {type_name(value)}{_hint(value)}")


def _stack(values: list[Any] | tuple[Any, ...]) -> Value:
    """Stack numbers or arrays of one shape."""
    check_length(values)
    iterate = list.__iter__ if issubclass(type(values), list) else tuple.__iter__
    if any(issubclass(type(item), list | tuple) for item in iterate(values)):  # type: ignore[arg-type]
        Total().add(values)  # refuses too many items before arrays are made of them
    items = [operand(readable(item, i)) for i, item in enumerate(iterate(values))]  # type: ignore[arg-type]
    first = next((item for item in items if is_array(item)), None)
    shapes = {tuple(getattr(item, "shape", ())) for item in items}
    if len(shapes) > 1:
        raise RefusedQueryError(f"Expected items of one shape, got {' and '.join(map(str, sorted(shapes)[:2]))}")
    if first is None:
        stacked = np.asarray(items)
        return operand(stacked) if items else stacked
    check_bytes(sum(array_bytes(item) for item in items if is_array(item)))
    xp = namespace(first)
    return xp.stack([item if is_array(item) and namespace(item) is xp else xp.asarray(item) for item in items])


def _hint(value: object) -> str:
    if is_mapping(value):
        return ". Use .map(lambda name, value: …) to compute with each value"
    return ""


def truth(value: Value) -> bool:
    """Return whether a condition holds.

    Raises:
        EvaluationError: The condition is an array of more than one item.
    """
    if is_array(value) and math.prod(value.shape) != 1:
        raise EvaluationError(f"Expected a single boolean, got {type_name(value)}: write .any() or .all()")
    if built_in(value) in CONTAINERS:
        return bool(length(value))
    return bool(value)


# Arrays of which only the shape, the dtype and the library are known, and the shapes of what is made of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """An array of which only the library, the shape and the dtype are known.

    Attributes:
        name: The name of the dtype.
        itemsize: The bytes of an item.
        owned: The bytes that computing it takes; 0 if it is a view or an observable.
        strided: Whether its items are not next to each other.
        reverse: Whether they are in the order of the first axis, as in Fortran.
    """

    shape: tuple[int, ...]
    dtype: Any
    kind: ArrayKind | None
    name: str
    itemsize: int
    device: bool = False
    owned: int = 0
    strided: bool = False
    reverse: bool = False

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """The number of bytes of its items."""
        return self.size * self.itemsize

    @property
    def width(self) -> int:
        """The bytes of an item of what functions make of it: of integers, most make float64."""
        return self.itemsize if "float" in self.name or "complex" in self.name else max(self.itemsize, 8)

    def like(self, *shape: int, owned: int = 0, strided: bool = False, reverse: bool = False) -> ArraySpec:
        """Return another shape with the same dtype, in the same place."""
        return ArraySpec(
            shape=shape, dtype=self.dtype, kind=self.kind, name=self.name, itemsize=self.itemsize, device=self.device,
            owned=owned, strided=strided, reverse=reverse,
        )  # fmt: skip

    def placeholder(self) -> Any:
        """Return an array of NumPy with this shape, and with the strides of contiguous memory.

        It has no memory, so an item must never be read. Index it with `...`, which makes views only.
        """
        order = self.shape if self.reverse else self.shape[::-1]
        strides = list(itertools.accumulate(order[:-1], operator.mul, initial=1))[: len(order)]
        strides = strides if self.reverse else strides[::-1]
        return np.lib.stride_tricks.as_strided(np.zeros((), np.bool_), self.shape, strides, writeable=False)


FLOATS: Final = ArraySpec(shape=(), dtype=np.dtype(np.float64), kind="numpy", name="float64", itemsize=8)
"""What a list of numbers becomes."""


class Unknown:
    """A value that only the evaluation finds, such as the result of a function of the run."""


@dataclass(frozen=True, slots=True)
class UnknownText(Unknown):
    """A part of a text, of which only the length is known, and the bytes of a character."""

    n: int
    width: int


@lru_cache(maxsize=256)
def name_and_width(dtype: object) -> tuple[str, int]:
    """Return the name of a dtype of any library, and the bytes of an item."""
    return str(dtype).removeprefix("torch."), itemsize(dtype)


def result_shape(cost: OperationCost, arrays: list[ArraySpec], first: ArraySpec, axis: object) -> tuple[int, ...]:
    """Return the shape of the result of an operation."""
    match cost.result:
        case "each" if len(arrays) == 1 or all(spec.shape == first.shape for spec in arrays):
            return first.shape
        case "each":
            shapes = [spec.shape for spec in arrays]
            try:
                return tuple(np.broadcast_shapes(*shapes))
            except ValueError:  # a shape that the items decide is a bound; of others, the expression says it
                return tuple(map(max, itertools.zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)))[::-1]
        case "same":
            return first.shape
        case "reduce":
            return without(first.shape, axis)
        case "flat":
            return (first.size,)
    return ()


def is_strided(array: Value, kind: ArrayKind) -> bool:
    """Return whether the items of an array are not next to each other in memory."""
    if kind == "numpy":
        return not (array.flags.c_contiguous or array.flags.f_contiguous)
    return kind == "torch" and not array.is_contiguous()


def is_mask(part: object) -> bool:
    """Return whether a part of an index is an array of conditions, or the spec of one."""
    return (isinstance(part, ArraySpec) or is_array(part)) and "bool" in str(part.dtype)  # type: ignore[attr-defined]


def plain_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments after the first, without arrays."""
    return (
        [arg for arg in args[1:] if not isinstance(arg, ArraySpec | Unknown)],
        {key: arg for key, arg in kwargs.items() if not isinstance(arg, ArraySpec | Unknown)},
    )
