"""Copies of the arguments that figures are drawn from.

* After a snapshot the program may overwrite its arrays. Small values become part of a message; large arrays are copied
  once, into reused memory that the child shares, so they never pass through a pipe.
* Arrays on a device, or still being computed, are copied there and their transfer is started without waiting
  (`start_transfer`). Another thread reads them later (`PendingTransfer.read`).
* Arrays over several devices are gathered whole. Arrays that this process cannot see all of are refused.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import parts, rebuild
from sightglass.core.values import array_kind, to_host

from .messages import IN_BAND

PAGE: Final = 4096
ALIGNMENT: Final = 64


class Arena:
    """Memory that this process and its child share, lent in regions, lowest addresses first, since those are warm.

    Attributes:
        descriptor: The file descriptor that the child maps; -1 where memory cannot be shared.
        n_bytes: Its size; pages that were never used take no memory.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = -(-n_bytes // PAGE) * PAGE
        self.descriptor = -1
        self._lock = threading.RLock()
        self._free: list[tuple[int, int]] = [(0, self.n_bytes)]
        try:
            self.descriptor, self._is_file = _shared_memory(self.n_bytes)
            self._map = mmap.mmap(self.descriptor, self.n_bytes)
        except (OSError, ValueError):  # a resource limit, or a system without shared descriptors
            self.close()
            self._free = []

    def take(self, n_bytes: int) -> Region | None:
        """Lend a region, or return `None` without room."""
        size = -(-n_bytes // PAGE) * PAGE
        with self._lock:
            for i, (start, length) in enumerate(self._free):
                if length >= size:
                    self._free[i : i + 1] = [(start + size, length - size)] if length > size else []
                    return Region(self, start, size)
        return None

    def write(self, start: int, data: Buffer) -> None:
        """Copy bytes into a region.

        Raises:
            OSError: They do not fit.
        """
        view = memoryview(data).cast("B")
        if not self._is_file:  # NumPy releases the interpreter's lock meanwhile
            np.copyto(np.frombuffer(self.view(start, len(view)), np.uint8), np.frombuffer(view, np.uint8))
            return
        while len(view):  # written through the map of a file, what a full disk has no room for would end the process
            n = os.pwrite(self.descriptor, view, start)
            view, start = view[n:], start + n

    def view(self, start: int, n_bytes: int) -> memoryview:
        """Return a region as memory."""
        return memoryview(self._map)[start : start + n_bytes]

    def give_back(self, start: int, size: int) -> None:
        """Take a region back."""
        with self._lock:
            merged: list[tuple[int, int]] = []
            for piece in sorted([*self._free, (start, size)]):
                if merged and sum(merged[-1]) == piece[0]:
                    merged[-1] = merged[-1][0], merged[-1][1] + piece[1]
                else:
                    merged.append(piece)
            self._free = merged

    def close(self) -> None:
        """Release the memory, once no view of it is left."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True, slots=True)
class Region:
    """A region of an arena, in bytes."""

    arena: Arena
    start: int
    size: int


class Snapshot:
    """A copy of the arguments of one function.

    Attributes:
        blob: Everything except large arrays, as `core.codec` encodes it.
        spans: Where the large arrays are; see `DrawFigure`.
        in_band: The large arrays that the arena had no room for, in order.
        n_bytes: The size of the copy.
    """

    def __init__(self, encoded: tuple[bytes, list[Buffer]], arena: Arena) -> None:
        """Copy a value that `core.codec` has encoded."""
        self.blob, buffers = encoded
        sizes = [len(buffer) for buffer in buffers]
        self.n_bytes = len(self.blob) + sum(sizes)
        places = [0]
        for size in sizes:
            places.append(places[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        self._region = arena.take(places[-1]) if buffers else None
        self.in_band: list[Buffer] = []
        if self._region is not None:
            start = self._region.start
            self.spans = [(start + place, size) for place, size in zip(places, sizes, strict=False)]
            try:
                for (at, _), buffer in zip(self.spans, buffers, strict=True):
                    arena.write(at, buffer)
                return
            except OSError:
                self.release()
        self.spans = [(IN_BAND, size) for size in sizes]
        self.in_band = [bytearray(buffer) for buffer in buffers]

    def buffers(self) -> Sequence[Buffer]:
        """Return the bytes of the large arrays."""
        if self._region is None:
            return self.in_band
        return [self._region.arena.view(at, size) for at, size in self.spans]

    def release(self) -> None:
        """Free the memory; the results of `buffers` are invalid after that."""
        if self._region is not None:
            self._region.arena.give_back(self._region.start, self._region.size)
            self._region = None
        self.in_band = []


@dataclass(frozen=True, slots=True)
class PendingTransfer:
    """A value whose transfer from a device has started.

    Attributes:
        value: The value; arrays that were on the host already are copies.
        events: The CUDA events after which it is complete.
    """

    value: Any
    events: tuple[Any, ...]

    def read(self) -> Any:
        """Wait for the device, and return the value on the host."""
        for event in self.events:
            event.synchronize()
        return to_host(self.value)


def start_transfer(value: object) -> Any:
    """Return a value unchanged if all of it is on the host, else a `PendingTransfer`; never waits.

    Raises:
        UnsendableError: An array is spread over several processes, so that this one cannot see all of it.
    """
    if not _elsewhere(value):
        return value
    events: dict[Any, Any] = {}
    return PendingTransfer(_copied(value, events), tuple(events.values()))


def _elsewhere(value: Any) -> bool:
    """Return whether reading a value could wait for a device."""
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
    found = parts(value)
    return found is not None and any(_elsewhere(item) for _, item in found.pairs)


def _copied(value: Any, events: dict[Any, Any]) -> Any:
    """Copy a value where it is, and start its transfer to the host."""
    match array_kind(value):
        case "jax":
            copy = value.copy()  # the program may donate the original later
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
    return rebuild(value, lambda item: _copied(item, events))


def _check_addressable(array: Any) -> None:
    if not (array.is_fully_addressable or array.is_fully_replicated):
        raise UnsendableError(
            f"Expected an array that this process can see all of, got one of shape {array.shape} over several "
            "processes: gather it on all of them first, such as by jax.experimental.multihost_utils.process_allgather"
        )


def _shared_memory(n_bytes: int) -> tuple[int, bool]:
    """Return the descriptor of memory that a child can map, and whether it is a file on a disk.

    Raises:
        OSError: The system does not offer any.
    """
    if os.name != "posix":
        raise OSError("children do not inherit descriptors here")
    is_file = not hasattr(os, "memfd_create")
    if not is_file:
        descriptor = os.memfd_create("sightglass-figures")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, n_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, is_file
