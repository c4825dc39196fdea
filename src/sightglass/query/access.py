"""Read parts of an observable: only data, and never by running the program's code.

A query can read keys of mappings, items of sequences and arrays, fields of dataclasses and named tuples, plain
attributes and slots of instances, and `ARRAY_ATTRIBUTES` of arrays. Properties are not evaluated. Modules, classes and
callables are refused.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError, UnknownNameError, UnsendableError
from sightglass.core.guarded import LostValue, instance_dict, stored
from sightglass.core.values import Histogram, Value, array_bytes, array_kind, itemsize, on_device, type_name

from .arrays import is_array, operand
from .limits import check_bytes, n_items

ARRAY_ATTRIBUTES: Final = ("shape", "dtype", "ndim", "size", "T", "real", "imag")
HISTOGRAM_ATTRIBUTES: Final = ("counts", "edges", "n_nan", "n_posinf", "n_neginf", "total")


def readable(value: object, name: str) -> Value:
    """Return a value that a query may read.

    Raises:
        RefusedQueryError: The value is a module, a class or callable.
        UnsendableError: The value was not kept.
    """
    if type(value) is LostValue:
        raise UnsendableError(f"{name!r} was not kept: {value.why}")
    if isinstance(value, types.ModuleType | type) or (callable(value) and not is_array(value)):
        raise RefusedQueryError(
            f"Expected {name!r} to be a value, got a {type(value).__name__}: "
            "queries cannot read modules, classes and functions"
        )
    return value


def attribute(value: object, name: str) -> Value:
    """Read a key of a mapping, a field or plain attribute of an instance, or one of `ARRAY_ATTRIBUTES`."""
    if isinstance(value, Mapping):
        if name in value:
            return readable(value[name], name)
        raise UnknownNameError("key", name, value)
    if array_kind(value) or isinstance(value, np.generic):
        if name not in ARRAY_ATTRIBUTES:
            raise UnknownNameError("attribute", name, ARRAY_ATTRIBUTES, where="of an array")
        return _array_attribute(value, name)
    if isinstance(value, Histogram) and name in HISTOGRAM_ATTRIBUTES:
        return getattr(value, name)
    if name.startswith("_"):
        raise RefusedQueryError(f"Expected a public name, got {name!r}: a leading underscore is refused")
    return readable(_stored(readable(value, f"the target of .{name}"), name), name)


def _array_attribute(array: Value, name: str) -> Value:
    if name == "dtype":
        return str(array.dtype).removeprefix("torch.")
    if name == "shape":
        return tuple(int(n) for n in array.shape)
    if name == "size":
        return math.prod(int(n) for n in array.shape)
    if name == "T" and array_kind(array) == "torch":  # its .T warns unless there are two axes
        return array.permute(*reversed(range(array.ndim)))
    return getattr(array, name)


def _stored(value: object, name: str) -> Value:
    """Return an attribute that an object stores, without running code of its class."""
    kinds = type(value).__mro__
    if isinstance(value, tuple) and name in getattr(kinds[0], "_fields", ()):
        return value[kinds[0]._fields.index(name)]  # type: ignore[attr-defined]
    attributes = instance_dict(value)
    if name not in attributes:
        attributes = stored(value)
    if name in attributes:
        return attributes[name]
    known = [key for key in (*getattr(kinds[0], "_fields", ()), *attributes) if not key.startswith("_")]
    raise UnknownNameError("attribute", name, known, where=f"of {type_name(value)}")


def item(value: object, index: object) -> Value:
    """Read an item of a mapping, a sequence, a string or an array."""
    if isinstance(value, Mapping):
        try:
            found = index in value  # check first: reading a defaultdict would add the key
        except TypeError:
            found = False
        if found:
            return readable(value[index], str(index))
        raise UnknownNameError("key", index if isinstance(index, str | int) else type_name(index), value)
    if is_array(value):
        return _array_item(value, index)
    if isinstance(value, list | tuple | str):
        if isinstance(index, slice):
            return value[index]
        if isinstance(index, int | np.integer):
            if -len(value) <= index < len(value):
                return readable(value[index], str(index))
            raise EvaluationError(f"Expected an index below {len(value)}, got {index}")
    raise EvaluationError(f"Expected a mapping, a sequence or an array before [{index!r:.100}], got {type_name(value)}")


def _array_item(array: Value, index: Value) -> Value:
    parts = [_index(part) for part in (index if isinstance(index, tuple) else (index,))]
    picks = [part for part in parts if is_array(part)]
    if picks:
        if any("bool" in str(part.dtype) for part in picks) and on_device(array):
            raise RefusedQueryError("A condition cannot select items on a device: use where(condition, x, y)")
        check_bytes(_n_selected(array, parts, picks) * itemsize(array.dtype), allowed=array_bytes(array))
    result = array[tuple(parts)] if isinstance(index, tuple) else array[parts[0]]
    return result if is_array(result) or isinstance(result, np.generic) else readable(result, "an item")


def _index(part: Value) -> Value:
    """Return one part of an index; a list or tuple of integers becomes an array."""
    if part is None or part is ... or (isinstance(part, int | np.integer | slice) and type(part) is not bool):
        return part
    if isinstance(part, list | tuple):
        part = operand(part) if len(part) else np.zeros(0, np.int64)
    if is_array(part) and any(kind in str(part.dtype) for kind in ("int", "bool")):
        return part
    raise EvaluationError(f"Expected integers, slices or conditions as an index, got {type_name(part)}")


def _n_selected(array: Value, parts: list[Any], picks: list[Any]) -> int:
    """Return an upper bound for the number of items of `array[index]`; index arrays may repeat items."""
    masks = [part for part in picks if "bool" in str(part.dtype)]
    places = [tuple(part.shape) for part in picks if "bool" not in str(part.dtype)]
    try:
        n_places = n_items(np.broadcast_shapes(*places))
    except ValueError:
        shown = " and ".join(map(str, places))
        raise RefusedQueryError(f"Expected index arrays whose shapes broadcast together, got {shown}") from None
    n_masked = max((n_items(part.shape) for part in masks), default=1)
    n_rest = len(array.shape) - sum(map(_n_axes, parts))
    n_sliced, axis = 1, 0
    for part in (*parts, ...):
        n_axes = _n_axes(part)
        if part is ...:
            n_axes, n_rest = n_rest, 0
        if part is ... or isinstance(part, slice):
            n_sliced *= n_items(array.shape[axis : axis + n_axes])
        axis += n_axes
    return n_places * n_masked * n_sliced


def _n_axes(part: Value) -> int:
    """Return how many axes of an array one part of an index takes."""
    if part is None or part is ...:
        return 0
    return len(part.shape) if is_array(part) and "bool" in str(part.dtype) else 1
