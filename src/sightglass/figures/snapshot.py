"""Copies of what figures are drawn from, taken when they are ordered.

Rule 1: when a snapshot is taken, the program may overwrite its arrays. Small values become part of a message; large
arrays are copied once, into memory that is used again and again and that the child has before its eyes: nothing of them
goes through a pipe.
Rule 2: what rests on a device, or is still being computed, is copied there and its transfer begun (`begin`); nothing is
waited for. It is read later, on another thread (`PendingTransfer.read`).
Rule 3: arrays of several devices are gathered whole. What this process cannot see all of is refused.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core.codec import Buffer, encode
from sightglass.core.errors import UnsendableError
from sightglass.core.values import array_kind, is_container, rebuild, to_host

from .messages import IN_BAND

PAGE: Final = 4096
ALIGNMENT: Final = 64


class Arena:
    """Memory that this process and its child share: pieces are lent, lowest places first, since those are warm.

    Attributes:
        descriptor: What the child maps; -1 where memory cannot be shared.
        n_bytes: How large it is; pages that were never used take no memory.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = -(-n_bytes // PAGE) * PAGE
        self.descriptor = -1
        self._lock = threading.RLock()
        self._free: list[tuple[int, int]] = [(0, self.n_bytes)]
        try:
            self.descriptor = _shared_memory(self.n_bytes)
            self._map = mmap.mmap(self.descriptor, self.n_bytes)
        except (OSError, ValueError):  # a limit on files, or a system without
            self.close()
            self._free = []

    def take(self, n_bytes: int) -> Region | None:
        """Lend a piece, or return `None` if there is no such room."""
        size = -(-n_bytes // PAGE) * PAGE
        with self._lock:
            for i, (start, length) in enumerate(self._free):
                if length >= size:
                    self._free[i : i + 1] = [(start + size, length - size)] if length > size else []
                    return Region(self, start, size)
        return None

    def view(self, start: int, n_bytes: int) -> memoryview:
        """Return a piece as memory."""
        return memoryview(self._map)[start : start + n_bytes]

    def give_back(self, start: int, size: int) -> None:
        """Take a piece back."""
        with self._lock:
            merged: list[tuple[int, int]] = []
            for piece in sorted([*self._free, (start, size)]):
                if merged and sum(merged[-1]) == piece[0]:
                    merged[-1] = merged[-1][0], merged[-1][1] + piece[1]
                else:
                    merged.append(piece)
            self._free = merged

    def close(self) -> None:
        """Let the memory go, once nobody looks at it any more."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of an arena, in bytes."""

    arena: Arena
    start: int
    size: int


class Snapshot:
    """The arguments of one function, copied.

    Attributes:
        blob: Everything but large arrays, as `core.codec` encodes it.
        spans: Where the large arrays are; see `Order`.
        in_band: Those that found no room in the arena, in order.
        n_bytes: How many bytes it takes.
    """

    def __init__(self, value: Any, arena: Arena) -> None:
        """Copy a value.

        Raises:
            UnsendableError: There is something in it that is neither a number, a text, an array nor a container.
        """
        self.blob, buffers = encode(value)
        sizes = [len(buffer) for buffer in buffers]
        self.n_bytes = len(self.blob) + sum(sizes)
        places = [0]
        for size in sizes:
            places.append(places[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        self._region = arena.take(places[-1]) if buffers else None
        self.in_band: list[Buffer] = []
        if self._region is None:
            self.spans = [(IN_BAND, size) for size in sizes]
            self.in_band = [bytearray(buffer) for buffer in buffers]
            return
        start = self._region.start
        self.spans = [(start + place, size) for place, size in zip(places, sizes, strict=False)]
        for (at, size), buffer in zip(self.spans, buffers, strict=True):
            # By NumPy, which lets other threads have Python meanwhile.
            np.copyto(np.frombuffer(arena.view(at, size), np.uint8), np.frombuffer(buffer, np.uint8))

    def buffers(self) -> Sequence[Buffer]:
        """Return the large arrays' bytes."""
        if self._region is None:
            return self.in_band
        return [self._region.arena.view(at, size) for at, size in self.spans]

    def release(self) -> None:
        """Give the memory back; what `buffers` returned must not be used any more."""
        if self._region is not None:
            self._region.arena.give_back(self._region.start, self._region.size)
            self._region = None
        self.in_band = []


@dataclass(frozen=True, slots=True)
class PendingTransfer:
    """A value whose transfer from a device has begun.

    Attributes:
        value: The value; what was on the host already is a copy.
        events: What marks the place in the device's work behind which it is complete.
    """

    value: Any
    events: tuple[Any, ...]

    def read(self) -> Any:
        """Wait for the device, and return the value on the host."""
        for event in self.events:
            event.synchronize()
        return to_host(self.value)


def begin(value: Any) -> Any:
    """Return a value as it is if all of it is on the host, else a `PendingTransfer`; nothing is waited for.

    Raises:
        UnsendableError: An array is spread over several processes, so that this one cannot see all of it.
    """
    if not _elsewhere(value):
        return value
    events: dict[Any, Any] = {}
    return PendingTransfer(_begun(value, events), tuple(events.values()))


def _elsewhere(value: Any) -> bool:
    """Tell whether reading a value could mean waiting for a device."""
    match array_kind(value):
        case "jax":
            _check_addressable(value)
            return not (all(device.platform == "cpu" for device in value.devices()) and value.is_ready())
        case "torch":
            return bool(value.device.type != "cpu")
        case "other":
            return True
        case "numpy":
            return False
    if isinstance(value, dict):
        return any(map(_elsewhere, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_elsewhere, value))
    if is_container(value):
        return any(map(_elsewhere, _items(value)))
    return False


def _begun(value: Any, events: dict[Any, Any]) -> Any:
    """Copy a value where it is, and begin to bring it to the host."""
    match array_kind(value):
        case "jax":
            copy = value.copy()  # what the program donates later takes its buffers with it
            if copy.is_fully_addressable:
                copy.copy_to_host_async()
            return copy
        case "torch" if value.device.type == "cuda":
            torch = sys.modules["torch"]
            copy = value.detach().clone()
            if value.device not in events:
                events[value.device] = torch.cuda.Event()
            events[value.device].record(torch.cuda.current_stream(value.device))
            return copy
        case "torch":
            return value.detach().clone()
        case "numpy":
            return value.copy()
        case "other":
            return value.copy() if hasattr(value, "copy") else value
    return rebuild(value, lambda item: _begun(item, events)) if is_container(value) else value


def _check_addressable(array: Any) -> None:
    if not (array.is_fully_addressable or array.is_fully_replicated):
        raise UnsendableError(
            f"Expected an array that this process can see all of, got one of shape {array.shape} over several "
            "processes: gather it on all of them first, such as by jax.experimental.multihost_utils.process_allgather"
        )


def _items(value: Any) -> list[Any]:
    found: list[Any] = []
    rebuild(value, found.append)
    return found


def _shared_memory(n_bytes: int) -> int:
    """Return a descriptor of memory that a child can map.

    Raises:
        OSError: There is none.
    """
    if os.name != "posix":
        raise OSError("descriptors are not handed to children here")
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("sightglass-figures")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, n_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
