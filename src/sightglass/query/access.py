"""Read parts of an observable: only data.

A query can read keys of mappings, items of sequences and arrays, fields of dataclasses and named tuples, plain
attributes and slots of instances, and `ARRAY_ATTRIBUTES` of arrays. Properties are not evaluated. Modules, classes and
callables are refused.

Values of the program enter a query through `arrays.readable`. Subclasses of built-in and NumPy classes are read as
those classes: what they override is not called. The code of the program that a query can run is:

* `__getitem__`, `__contains__`, `__iter__` and `__len__` of mappings that do not extend `dict`; all items together for
  at most `MAX_READING_S`, though a single call cannot be interrupted;
* `__hash__` and `__eq__` of a dict's keys, if they have the hash of the key that is read;
* arrays of other libraries, and PyTorch tensors with a `__torch_dispatch__`, except the pieces of a DTensor;
* functions that the run lends with `run.function`.

Indices are checked against bounds; numbers and texts have their operators here, too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import (
    MAX_NAMES_COMPARED,
    EvaluationError,
    RefusedQueryError,
    SightglassError,
    UnknownNameError,
)
from sightglass.core.program_values.guarded import (
    FAILURES,
    KEYS,
    built_in,
    exact,
    fields_of,
    instance_dict,
    is_mapping,
    item_of,
    items_of,
    keys_of,
    message,
    parts,
    stored,
    text,
)
from sightglass.core.values import (
    DeviceHistogram,
    Histogram,
    Value,
    array_bytes,
    array_kind,
    itemsize,
    on_device,
    to_host,
    type_name,
)

from .arrays import AS_IT_IS, is_array, is_mask, is_texts, namespace, operand, readable
from .expressions import BINARY, UNARY
from .limits import MAX_ITEMS, MAX_TEXT, check_broadcast, check_bytes, check_int, check_length, check_power, n_items

ARRAY_ATTRIBUTES: Final = ("shape", "dtype", "ndim", "size", "T", "real", "imag")
HISTOGRAM_ATTRIBUTES: Final = ("counts", "edges", "n_nan", "n_posinf", "n_neginf", "total")
MAX_READING_S: Final = 0.02  # for the program's own code, as long as all queries of an event may take
MISSING: Final = object()
NUMBER_TYPES: Final = frozenset((complex, float, int))


def attribute(value: object, name: str) -> Value:
    """Read a key of a mapping, a field or plain attribute of an instance, or one of `ARRAY_ATTRIBUTES`."""
    if is_mapping(value):
        return _key(value, name)
    if array_kind(value) or issubclass(type(value), np.generic):
        if name not in ARRAY_ATTRIBUTES:
            raise UnknownNameError("attribute", name, ARRAY_ATTRIBUTES, where="of an array")
        try:
            return _array_attribute(value, name)
        except FAILURES as error:
            raise EvaluationError(f"Cannot read .{name} of {type_name(value)}: {_reason(error)}") from None
    if type(value) in NUMBER_TYPES and name in ("real", "imag"):
        return getattr(value, name)
    if type(value) is Histogram and name in HISTOGRAM_ATTRIBUTES:
        return getattr(value, name)
    if type(value) is DeviceHistogram and name in HISTOGRAM_ATTRIBUTES:
        return _of_device_histogram(value, name)
    if name.startswith("_"):
        raise RefusedQueryError(f"Expected a public name, got {name!r}: a leading underscore is refused")
    return readable(_stored(readable(value, f"the target of .{name}"), name), name)


def _of_device_histogram(value: DeviceHistogram, name: str) -> Value:
    """Return an attribute of a histogram, on its device."""
    if name == "total":
        return value.n_finite
    if name != "counts":
        return getattr(value, name)
    xp, n_finite = namespace(value.below), value.n_finite
    last = xp.astype(xp.reshape(n_finite, (1,)), value.below.dtype)  # the last bin includes its right edge
    return xp.concat([value.below[1:-1], last]) - value.below[:-1]


def entries(mapping: object, first: int | None = None) -> list[tuple[Any, Any]]:
    """Return the (key, value) pairs of a mapping, or the first ones; the values are not `readable` yet.

    Raises:
        RefusedQueryError: It has more than `MAX_ITEMS` items, or reading it takes longer than `MAX_READING_S`.
        EvaluationError: The program's own code fails to read it.
    """
    check_length(mapping)
    try:
        return items_of(mapping, max_items=MAX_ITEMS, max_reading_s=MAX_READING_S, first=first)
    except SightglassError:
        raise
    except (TimeoutError, ValueError) as error:
        raise RefusedQueryError(f"Cannot read {type_name(mapping)}: {error}") from None
    except FAILURES as error:
        raise EvaluationError(f"Cannot read {type_name(mapping)}: {message(error)}") from None


def opened(value: Value) -> Value:
    """Return a dataclass as a mapping of its fields; any other value as it is."""
    if not dataclasses.is_dataclass(type(value)) or built_in(value) is not None:
        return value
    level = parts(value)
    return value if level is None else dict(level.pairs)


def has_key(mapping: object, key: object) -> bool:
    """Return whether a mapping has a key."""
    return _found(mapping, key) is not MISSING


def _key(mapping: object, key: object) -> Value:
    found = _found(mapping, key)
    if found is not MISSING:
        return readable(found, key)
    try:
        keys = keys_of(mapping, MAX_ITEMS)
    except FAILURES:
        keys = []
    shown = [each for each in map(exact, keys[:MAX_NAMES_COMPARED]) if type(each) in AS_IT_IS]
    known = [*shown, *keys[MAX_NAMES_COMPARED:]]  # the others are only counted
    raise UnknownNameError("key", key if isinstance(key, str | int) else type_name(key), known)


def _found(mapping: object, key: Value) -> Value:
    """Return the value of a key, or `MISSING`."""
    for part in key if type(key) is tuple else (key,):
        if type(part) not in KEYS and not issubclass(type(part), np.generic):  # such as a list, or a slice
            return MISSING
    try:
        return item_of(mapping, key, MISSING)
    except SightglassError:
        raise
    except FAILURES as error:
        raise EvaluationError(f"Cannot read {_shown(key)} of {type_name(mapping)}: {message(error)}") from None


def _array_attribute(array: Value, name: str) -> Value:
    if name == "dtype":
        return str(array.dtype).removeprefix("torch.")
    if name == "shape":
        return tuple(int(n) for n in array.shape)
    if name == "size":
        return math.prod(int(n) for n in array.shape)
    if name == "T" and array_kind(array) == "torch":  # its .T warns unless there are two axes
        return array.permute(*reversed(range(array.ndim)))
    if name == "imag" and isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)  # NumPy's own takes as much memory as the array
    return getattr(array, name)


def _stored(value: Value, name: str) -> Value:
    """Return an attribute that an object stores, without running code of its class."""
    fields = _fields(value)
    if name in fields:
        return tuple.__getitem__(value, fields.index(name))
    attributes = instance_dict(value)
    if name not in attributes:
        attributes = stored(value)
    if name in attributes:
        return attributes[name]
    known = [key for key in (*fields, *attributes) if type(key) is str and not key.startswith("_")]
    raise UnknownNameError("attribute", name, known, where=f"of {type_name(value)}")


def _fields(value: Value) -> tuple[str, ...]:
    """Return the names of a named tuple's items; empty for any other value."""
    return fields_of(type(value), tuple.__len__(value)) if issubclass(type(value), tuple) else ()


def item(value: Value, index: Value, checks: list[Check] | None = None) -> Value:
    """Read an item of a mapping, a sequence, a string or an array.

    Args:
        value: What has the item.
        index: A key, an integer, a slice, or an array of integers or conditions; a tuple of these for an array.
        checks: Where checks of places on a device go, which the caller confirms; `None` to wait for the device.
    """
    if is_mapping(value):
        return _key(value, index)
    if is_array(value):
        return _array_item(value, index, checks)
    cls = built_in(value)
    if cls in (list, tuple, str):
        n = cls.__len__(value)
        if isinstance(index, slice):
            return cls.__getitem__(value, _slice(index))
        if isinstance(index, int | np.integer):
            if -n <= index < n:
                return readable(cls.__getitem__(value, int(index)), int(index))
            raise EvaluationError(f"Expected an index below {n}, got {_shown(index)}")
        raise EvaluationError(f"Expected an integer or a slice as index of {type_name(value)}, got {type_name(index)}")
    raise EvaluationError(
        f"Expected a mapping, a sequence or an array before [{_shown(index)}], got {type_name(value)}"
    )


def _array_item(array: Value, index: Value, checks: list[Check] | None) -> Value:
    parts = [_index(part) for part in (index if isinstance(index, tuple) else (index,))]
    picks = [part for part in parts if is_array(part)]

    def expression() -> str:
        shown = ", ".join(type_name(part) if is_array(part) else _written(part) for part in parts)
        return f"Cannot read [{shown:.100}] of {type_name(array)}"

    if picks:
        if any("bool" in str(part.dtype) for part in picks) and on_device(array):
            raise RefusedQueryError("A condition cannot select items on a device: use where(condition, x, y)")
        if array_kind(array) != "jax" and any(array_kind(part) == "jax" for part in picks):
            raise RefusedQueryError(
                f"{expression()}: the training would wait for the index, which is on a device. Offer both as JAX "
                "arrays, or the index as a NumPy array"
            )
        check_bytes(n_items(selected_shape(array.shape, parts)) * itemsize(array.dtype), allowed=array_bytes(array))
    try:
        if array_kind(array) == "jax":
            result = item_of_jax(array, parts, expression, checks)
        else:
            result = array[tuple(parts)] if isinstance(index, tuple) else array[parts[0]]
    except SightglassError:
        raise
    except FAILURES as error:
        raise EvaluationError(f"{expression()}: {_reason(error)}") from None
    return result if is_array(result) or isinstance(result, np.generic) else readable(result, "an item")


def _index(part: Value) -> Value:
    """Return one part of an index; a list or tuple of integers becomes an array."""
    if isinstance(part, slice):
        return _slice(part)
    if part is None or part is ... or (isinstance(part, int | np.integer) and type(part) is not bool):
        return part
    if isinstance(part, list | tuple):
        part = operand(part) if len(part) else np.zeros(0, np.int64)
    if is_array(part) and any(kind in str(part.dtype) for kind in ("int", "bool")):
        return part
    raise EvaluationError(f"Expected integers, slices or conditions as an index, got {type_name(part)}")


def selected_shape(shape: Sequence[int], parts: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of `array[index]`, as NumPy's; as if all conditions held.

    Args:
        shape: The shape of the array.
        parts: The parts of the index; an array may be its spec.
    """
    n_rest = len(shape) - sum(map(n_axes, parts))
    whole = [slice(None)] * n_rest
    at = next((i for i, part in enumerate(parts) if part is ...), len(parts))
    dims: list[int] = []
    axis, places = 0, []  # where picks, and integers beside them, stand among the other axes
    for part in (*parts[:at], *whole, *parts[at + 1 :]):
        if part is None:
            dims.append(1)
        elif isinstance(part, slice):
            dims.append(len(range(*part.indices(shape[axis]))) if axis < len(shape) else 1)
        else:
            places.append(len(dims))
        axis += n_axes(part)
    picked = _picked_shape([part for part in parts if hasattr(part, "shape") and part.shape])
    at = places[0] if len(set(places)) == 1 else 0  # picks that others stand between come first
    return (*dims[:at], *picked, *dims[at:])


def _picked_shape(picks: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of what several arrays pick together; they may repeat items."""
    masks = [part for part in picks if is_mask(part)]
    places = [tuple(part.shape) for part in picks if not is_mask(part)]
    try:
        shape = np.broadcast_shapes(*places)
    except ValueError:
        shown = " and ".join(map(str, places))
        raise RefusedQueryError(f"Expected index arrays whose shapes broadcast together, got {shown}") from None
    n_masked = max((n_items(part.shape) for part in masks), default=1)
    return (n_items(shape) * n_masked,) if masks else shape


def _slice(index: slice) -> slice:
    """Return a slice of integers."""
    ends = (index.start, index.stop, index.step)
    for end in ends:
        if end is not None and (isinstance(end, bool) or not isinstance(end, int | np.integer)):
            raise EvaluationError(f"Expected integers in a slice, got {type_name(end)}")
    if index.step == 0:
        raise EvaluationError(f"Expected a slice whose step is not 0, got [{_written(index)}]")
    return slice(*(None if end is None else int(end) for end in ends))


def _written(part: Value) -> str:
    """Return a part of an index as a query writes it."""
    if not isinstance(part, slice):
        return "..." if part is ... else _shown(part)
    start, stop, step = ("" if end is None else _shown(end) for end in (part.start, part.stop, part.step))
    return f"{start}:{stop}{':' if step else ''}{step}"


def _shown(name: object) -> str:
    """Return an index as it is written between brackets."""
    if type(name) is tuple:
        return ", ".join(map(_shown, name))
    if type(name) is not slice:
        return text(name, 100)
    ends = (name.start, name.stop) if name.step is None else (name.start, name.stop, name.step)
    return ":".join("" if end is None else text(end, 100) for end in ends)


def _reason(error: BaseException) -> str:
    """Return the first line of a library's error."""
    return message(error).partition("\n")[0]


# Indices out of bounds are errors on JAX arrays, too, of which JAX takes the nearest item.
#
# What an index names is known on the host, and checked at once, or on a device. Then nothing waits for it: the smallest
# and the largest place become a `Check`, which is read with the result of the event.

Check: TypeAlias = tuple[Value, Value, int, int, str]
"""The smallest and the largest place in an index, on a device; the axis, its length, and the expression. A tuple, so
that it travels with other values."""

ARRAY: Final = object()  # stands for an array in the form of an index
MAX_FORMS: Final = 256  # more than the queries of a run have


def item_of_jax(array: Value, parts: list[Any], expression: Callable[[], str], checks: list[Check] | None) -> Value:
    """Return an item of a JAX array.

    Args:
        array: The array.
        parts: The parts of the index.
        expression: Returns what errors show.
        checks: Where checks of places on a device go; `None` to wait for the device.

    Raises:
        EvaluationError: A place is out of bounds.
    """
    axis, on_device = 0, []
    n_rest = len(array.shape) - sum(map(n_axes, parts))
    for part in parts:
        if axis < len(array.shape) and not (part is None or part is ... or isinstance(part, slice)):
            if array_kind(part) != "jax":
                _check_on_host(np.asarray(part), axis, int(array.shape[axis]), expression)
            elif part.size:
                on_device.append((part, axis))
        axis += n_rest if part is ... else n_axes(part)
    if not on_device:
        return array[tuple(parts)]
    form = tuple(
        ARRAY if is_array(part) else (part.start, part.stop, part.step) if isinstance(part, slice) else part
        for part in parts
    )
    item, *ends = _picker(form)(array, [part for part in parts if is_array(part)], [part for part, _ in on_device])
    for (low, high), (_, axis) in zip(ends, on_device, strict=True):
        check = low, high, axis, int(array.shape[axis]), expression()
        if checks is None:
            confirm(check)
        else:
            checks.append(check)
    return item


@functools.lru_cache(maxsize=MAX_FORMS)
def _picker(form: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a compiled function for an item and the ends of its index: outside of `jit`, it would be ten operations.

    Each of these takes 20 us, and JAX waits if more than 32 of them are under way on processors.
    """

    def pick(array: Value, named: list[Any], checked: list[Any]) -> Any:
        arrays = iter(named)
        parts = (next(arrays) if part is ARRAY else slice(*part) if type(part) is tuple else part for part in form)
        return array[tuple(parts)], *((places.min(), places.max()) for places in checked)

    return sys.modules["jax"].jit(pick)  # type: ignore[no-any-return]


def _check_on_host(named: npt.NDArray[Any], axis: int, n: int, expression: Callable[[], str]) -> None:
    if named.dtype == bool:
        return
    outside = named[(named < -n) | (named >= n)]
    if outside.size:
        confirm((outside.flat[0], outside.flat[0], axis, n, expression()))


def confirm(check: Check) -> None:
    """Read a check; waits for the device.

    Raises:
        EvaluationError: A place is out of bounds.
    """
    *ends, axis, n, expression = check
    for end in map(int, map(to_host, ends)):
        if not -n <= end < n:
            raise EvaluationError(f"{expression}: index {end} is out of bounds for axis {axis} with size {n}")


def n_axes(part: Value) -> int:
    """Return how many axes of an array one part of an index takes."""
    if part is None or part is ...:
        return 0
    return len(part.shape) if is_mask(part) else 1


# Operators on plain numbers, texts and arrays of texts.
#
# Numbers follow IEEE 754, as arrays do: a division by zero gives infinity or NaN instead of an error.

APPLY: Final[dict[str, Callable[[Any, Any], Any]]] = {op: getattr(operator, name) for op, name in BINARY.items()}
APPLY_UNARY: Final[dict[str, Callable[[Any], Any]]] = {op: getattr(operator, name) for op, name in UNARY.items()}
COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))


def of_unary(op: str, value: Value) -> Value:
    """Return the result of an operator on one plain number."""
    if op == "~" and type(value) is bool:
        return not value
    return check_int(APPLY_UNARY[op](value))


def of_plain(op: str, a: Value, b: Value) -> Value:
    """Return the result of an operator on plain numbers."""
    apply = APPLY[op]
    if op == "**":
        check_power(a, b)
    try:
        result = apply(a, b)
    except (ZeroDivisionError, OverflowError):
        with np.errstate(all="ignore"):
            return apply(np.float64(a), np.float64(b)).item()
    return math.nan if type(result) is complex else check_int(result)


def of_texts(op: str, a: object, b: object) -> Value:
    """Return the result of an operator where an operand is a text, `None`, or an array of texts.

    Raises:
        RefusedQueryError: The operands cannot be compared or joined.
    """
    if op in ("==", "!=") and (is_texts(a) or is_texts(b)):
        return APPLY[op](*_items(a, b))
    if op in ("==", "!="):
        same = (type(a) is type(b) or (isinstance(a, str) and isinstance(b, str))) and a == b
        return same if op == "==" else not same
    if isinstance(a, str) and isinstance(b, str) and (op in COMPARISONS or (op == "+" and len(a) + len(b) <= MAX_TEXT)):
        return APPLY[op](a, b)
    raise RefusedQueryError(f"Expected numbers or arrays around {op!r}, got {type_name(a)} and {type_name(b)}")


def _items(a: Value, b: Value) -> tuple[Value, Value]:
    """Return operands that NumPy compares item by item, texts with texts in its own way."""
    check_broadcast(a, b)
    if all(isinstance(value, str) or (is_texts(value) and value.dtype.kind == "U") for value in (a, b)):
        return a, b
    return tuple(np.asarray(value, dtype=object) for value in (a, b))  # type: ignore[return-value]
