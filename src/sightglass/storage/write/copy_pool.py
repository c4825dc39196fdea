"""Copies of values that a program may overwrite, taken on its own thread, in memory that is reused.

A fresh copy of a large array costs ten times as much as a copy into warm memory: the system has to find and clear new
pages. So buffers are reused: a weak reference to each copy returns its buffer when the copy is no longer referenced.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.program_values.array_data import check_data
from sightglass.core.program_values.copier import snapshot
from sightglass.core.program_values.guarded import FAILURES, Holder, LostValue, is_container, message, rebuild
from sightglass.core.table import Table
from sightglass.core.values import Histogram, array_kind, n_bytes

STAGED_BYTES: Final = 2**16  # smaller arrays come from the warm memory of the allocator anyway
MAX_FREE_BYTES: Final = 128 * 2**20

FIXED: Final = frozenset((float, int, bool, type(None), np.float64, np.float32, np.int64, np.int32, np.bool_))
"""Types of values that cannot change, and whose bytes need not be counted."""


class CopyPool:
    """Takes copies; from any thread."""

    def __init__(self, *, max_free_bytes: int = MAX_FREE_BYTES) -> None:
        """Begin with no buffers; unused buffers take at most `max_free_bytes`."""
        self._max_free_bytes = max_free_bytes
        self._free: dict[int, deque[Any]] = {}
        self._lent: dict[int, tuple[weakref.ref[Any], Any]] = {}

    @property
    def n_free_bytes(self) -> int:
        """How many bytes of buffers are unused."""
        return sum(size * len(buffers) for size, buffers in list(self._free.items()))

    def own_all(self, values: Mapping[str, Any], refuse: Callable[[int], str]) -> tuple[dict[str, Any], int]:
        """Return values that the program can no longer change, and how many bytes they take.

        Args:
            values: The values by name.
            refuse: Returns why there is no room for so many bytes, or an empty text.
        """
        owned: dict[str, Any] = {}
        size = 0
        for tag, value in values.items():
            if type(value) in FIXED:
                owned[tag] = value
                continue
            own = owned[tag] = self.own(value, refuse, n_before=size)
            size += 0 if type(own) is LostValue else n_bytes(own)
        return owned, size

    def own(self, value: Any, refuse: Callable[[int], str], *, n_before: int = 0) -> Any:
        """Return a value that the program can no longer change, or why it is lost; `n_before` bytes need room, too."""
        if type(value) is LostValue:
            return value
        try:
            size = 0 if is_container(value) else n_bytes(value)  # the length of a container may be a lie
            why = refuse(n_before + size) if size >= STAGED_BYTES else ""
            return LostValue(why) if why else self.take(value)
        except FAILURES as error:
            return LostValue(message(error))

    def take(self, value: Any) -> Any:
        """Return a value that the program can no longer overwrite, without waiting for anything.

        Arrays without a dimension are read if they are on the host. Arrays on a device stay there. Values in
        a container are copied without reusing memory.
        """
        kind = array_kind(value)
        if kind is not None:
            check_data(value, kind)
        match kind:
            case "numpy":
                return self._copy(np.asarray(value)) if value.ndim else value[()]
            case "torch" if value.device.type == "cpu":
                if not value.ndim:
                    return value.item()
                array = _shared(value)
                return snapshot(value) if array is None else self._copy(array)
            case None if isinstance(value, Histogram):
                samples = value._samples
                return value if value._binned is not None else Histogram(self.take(samples), bins=value._bins)
            case None if isinstance(value, Table) and isinstance(value.value, dict):
                return Table({name: self.take(column) for name, column in value.value.items()})
            case None if isinstance(value, Holder):
                return rebuild(value, self.take)
        return snapshot(value)

    def _copy(self, array: np.ndarray[Any, Any]) -> Any:
        """Copy an array, the elements in C order."""
        if array.nbytes < STAGED_BYTES or array.dtype.hasobject:
            return array.copy()
        buffer = self._buffer(array.nbytes)
        flat = np.frombuffer(memoryview(buffer), np.uint8, count=array.nbytes)
        # Views of `flat` refer to it, not to the buffer: NumPy stops there, because a memoryview is not an array.
        reference = weakref.ref(flat, self._give_back)
        self._lent[id(reference)] = reference, buffer
        copy = flat.view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy

    def _buffer(self, n_bytes: int) -> Any:
        """Return a buffer of at least this size, a used one if there is any."""
        size = 1 << (n_bytes - 1).bit_length()
        try:
            return self._free[size].pop()  # the one used last is the warmest
        except (KeyError, IndexError):
            return np.empty(size, np.uint8)

    def _give_back(self, reference: weakref.ref[Any]) -> None:
        _, buffer = self._lent.pop(id(reference))
        if self.n_free_bytes + buffer.nbytes <= self._max_free_bytes:
            self._free.setdefault(buffer.nbytes, deque()).append(buffer)


def _shared(tensor: Any) -> Any:
    """Return a NumPy array over the memory of a tensor, or `None` where there can be none, as for bfloat16."""
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError):
        return None
