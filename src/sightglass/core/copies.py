"""Copies of the program's values, made of our own: what a query keeps, what a run keeps for later, what can be sent.

Arrays are copied where they are; nothing is moved from its device or waited for. How other objects are read, and what
becomes of those that cannot be, is in `guarded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from . import codec
from .array_data import check_data
from .copier import NOT_A_LEAF, Copier, CopyLimits, Kept
from .errors import UnsendableError
from .guarded import EXACT, OwnValue, built_in, class_name, exact, printed
from .own_pieces import mark_of, marked, own_piece
from .values import (
    PLAIN,
    DeviceHistogram,
    Figure,
    Histogram,
    PendingCopy,
    Text,
    Value,
    array_kind,
    kind_of,
    on_device,
    to_host,
)

MAX_PARTS: Final = 20_000  # as many as a result may have, see `query.limits`
OPENED: Final = CopyLimits(max_items=MAX_PARTS, max_reading_s=0.02)  # within an event
SENT: Final = CopyLimits(max_depth=32, max_chars=10_000)  # half a message's levels; the repr of a trainer's arguments

CONTAINER_TYPES: Final = frozenset((dict, list, tuple))
LOOKED_INTO: Final = CONTAINER_TYPES | {np.ndarray}
OBJECTS: Final = np.dtype(object).num
RECORDS: Final = np.dtype([("a", "i4")]).num

SCALAR_TYPES: Final = PLAIN | {bytes, complex, np.float64, np.float32, np.int64, np.int32, np.bool_}


def leaf(value: Value) -> Any:
    """Copy a number, a text, an array or a value of this module; return `NOT_A_LEAF` for anything else.

    Arrays stay on their device, and nothing is waited for. Of one over several processes, the copy is of this process's
    piece. Subclasses of the program become the built-in types.
    """
    cls = type(value)
    if cls in SCALAR_TYPES:
        return value
    if cls is np.ndarray:
        return _copied_array(value) if value.dtype.num != OBJECTS else NOT_A_LEAF
    if issubclass(cls, DeviceHistogram | PendingCopy | Text | Figure):
        return value
    if issubclass(cls, np.generic):
        return value if cls.__module__ == "numpy" else np.asarray(value)[()]
    if built_in(value) in EXACT:
        return exact(value)
    if array_kind(value) is not None:
        return _copied_array(value)
    if issubclass(cls, Histogram):
        return value if value._binned is not None else Histogram(snapshot(value._samples), bins=value._bins)
    return NOT_A_LEAF


def _copied_array(array: Value) -> Any:
    kind = "numpy" if type(array) is np.ndarray else array_kind(array)
    check_data(array, kind or "other")
    array = own_piece(array, kind or "other")
    match kind:
        case "numpy" if array.dtype.hasobject or array.dtype.names:
            raise UnsendableError(f"Expected an array of numbers or strings, got dtype {array.dtype}")
        case "numpy" if not type(array).__module__.startswith("numpy"):
            return np.array(array, subok=False)[()]
        case "numpy":
            return array.copy() if array.ndim else array[()]
        case "torch":
            return marked(array.detach().clone(), mark_of(array))
    copied = array.copy() if hasattr(array, "copy") else array
    if type(copied) is not type(array):
        raise TypeError(f"Expected a copy of an array of {class_name(array)}, got {class_name(copied)}")
    return marked(copied, mark_of(array))


def snapshot(value: Value, path: str = "value") -> Value:
    """Copy a value so that the program cannot overwrite it; arrays stay on their device, and nothing is waited for.

    Objects become mappings of their public attributes. Messages call the value `path`.

    Raises:
        UnsendableError: The value, or one inside it, cannot be copied: it is a function, or cannot be read.
    """
    cls = type(value)
    if cls in SCALAR_TYPES or (cls is tuple and SCALAR_TYPES.issuperset(map(type, value))):
        return value
    if cls is list and SCALAR_TYPES.issuperset(map(type, value)):
        return value.copy()
    if cls is dict and SCALAR_TYPES.issuperset(map(type, value.values())) and {*map(type, value)} == {str}:
        return value.copy()
    if array_kind(value) is not None and not (cls is np.ndarray and value.dtype.num in (OBJECTS, RECORDS)):
        return _copied_array(value)
    return _whole(Copier(leaf, form="value").copy(value, path))


def held(value: Value, path: str = "value") -> Value:
    """Copy a value that is held from one event to the next, as `snapshot`; arrays of JAX are held as they are.

    Nothing changes them, and to copy them is a program that JAX would compile here, where the training waits for it. A
    program that donates one deletes it, which those who read it are told.
    """
    return _whole(Copier(_held_leaf, form="value").copy(value, path))


def _held_leaf(value: Value) -> Any:
    return value if array_kind(value) == "jax" else leaf(value)


def _whole(kept: Kept) -> Value:
    if kept.first is not None:
        raise UnsendableError(f"{kept.first.path}: {kept.first.why}")
    return kept.value


def data_of(value: Value, path: str, *, max_parts: int = MAX_PARTS) -> Value:
    """Return a value with mappings in place of its objects, and what `data_values` knows as arrays and lists.

    Arrays are not copied. A value of more than `max_parts` parts may be returned as it is. Errors as in `snapshot`.
    """
    opened = Copier(_as_it_is, form="value", limits=OPENED)
    return _whole(opened.copy(value, path)) if _has_objects(value, max_parts) else value


def _as_it_is(value: Value) -> Any:
    cls: Any = type(value)
    if cls in CONTAINER_TYPES and SCALAR_TYPES.issuperset(map(type, value.values() if cls is dict else value)):
        return value
    return exact(value) if _is_data(cls) and not _holds_objects(value) else NOT_A_LEAF


def _holds_objects(value: Value) -> bool:
    return type(value) is np.ndarray and value.dtype.num == OBJECTS


@lru_cache(maxsize=1024)
def _is_data(cls: Any) -> bool:
    if cls in SCALAR_TYPES or issubclass(cls, (*EXACT, np.generic, OwnValue, Histogram, PendingCopy)):
        return True
    return kind_of(cls) is not None


def _has_objects(value: Value, max_parts: int) -> bool:
    """Return whether the first parts of a value are others than numbers, texts, arrays, or containers of these."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) <= max_parts:
        part = waiting.pop()
        cls: Any = type(part)
        if cls in CONTAINER_TYPES:
            if id(part) in seen:
                continue
            seen.add(id(part))
            items = part.values() if cls is dict else part
            types: set[Any] = {*map(type, items)}
            if not (types <= SCALAR_TYPES):
                if any(not (one in CONTAINER_TYPES or _is_data(one)) for one in types):
                    return True
                if types & LOOKED_INTO:
                    waiting += [item for item in items if type(item) in LOOKED_INTO]
        elif not _is_data(cls) or _holds_objects(part):
            return True
    return False


def freeze(observables: Mapping[str, Any], path: str) -> dict[str, Kept]:
    """Copy the observables of an event, plain objects as namespaces; each is a `Kept`."""
    copier = Copier(leaf, form="snapshot")
    return {name: copier.copy(value, f"{path}.{name}") for name, value in observables.items()}


def sendable(value: object, path: str = "value", *, copy: bool = True) -> Kept:
    """Return a value that `codec.encode` takes; what it does not take becomes text.

    Args:
        value: The value.
        path: What the reasons call it.
        copy: Whether to copy arrays; not if the value is a copy already.
    """
    read = _copied_to_send if copy else _checked_to_send
    return Copier(read, form="message", limits=SENT).copy(value, path)


def _copied_to_send(value: Value) -> Any:
    kind = array_kind(value)
    copied = value if kind is None else _copied_array(value)
    return _checked_to_send(to_host(copied) if kind == "other" else copied)


def _checked_to_send(value: Value) -> Any:
    try:
        copied = value if array_kind(value) is not None else leaf(value)
        if copied is not NOT_A_LEAF and not on_device(copied):
            codec.encode(copied)
    except UnsendableError:
        return printed(value, SENT.max_chars)
    return copied
