"""Copy CUDA tensors to the host: start the copy in the thread that made them, wait in the thread that reads them.

Theory of operation:

1. The thread that computed the values calls `start_copy`. It queues copies into pinned memory on a CUDA stream of their
   own, after the work that this thread has queued so far, and returns at once. Work that the program queues later does
   not wait for the copies.
2. `start_copy` returns the values with a `PendingCopy` in place of each tensor. Another thread reads it, and waits for
   these copies alone.
3. Small values of one dtype are copied together: a norm for each of a hundred layers is one copy.

PyTorch is not imported at run time: a program that has its tensors has imported it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from .guarded import rebuild
from .values import DeviceHistogram, Mark, PendingCopy, Value, array_kind

if TYPE_CHECKING:
    import torch

SMALL: Final = 4_096
"""The largest number of items of a tensor that is copied together with others: its copy takes less than the 10 us that
a copy takes to start."""


class CopyStream(Protocol):
    """The stream of copies to the host from one device."""

    def copying(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which copies run after the work that is queued on the device so far."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Start to copy a tensor to the host, and return the host's tensor."""

    def mark(self) -> Mark:
        """Return a mark after the copies so far."""


class CudaCopyStream:
    """A CUDA stream for the copies from one device."""

    def __init__(self, device: torch.device) -> None:
        self._torch = sys.modules["torch"]
        self._device = device
        self._stream = self._torch.cuda.Stream(device)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Return a context in which copies run after the work that is queued on the device so far."""
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(self._stream):
            yield

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Start to copy a tensor to pinned memory. The device's memory is not reused before the copy is done."""
        host: torch.Tensor = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)
        return host

    def mark(self) -> torch.cuda.Event:
        """Return a CUDA event after the copies so far."""
        event: torch.cuda.Event = self._torch.cuda.Event()
        event.record(self._stream)
        return event


_streams: dict[Any, CopyStream] = {}


def copy_stream_of(tensor: Value) -> CopyStream | None:
    """Return the copy stream of a CUDA tensor's device; `None` for any other value."""
    if array_kind(tensor) != "torch" or tensor.device.type != "cuda":
        return None
    if tensor.device not in _streams:
        _streams[tensor.device] = CudaCopyStream(tensor.device)
    return _streams[tensor.device]


def start_copy(value: Value) -> Value:
    """Start to copy all CUDA tensors in a value to the host; returns the value with `PendingCopy` in their places.

    Args:
        value: The value; nothing may overwrite its tensors.
    """
    if "torch" not in sys.modules:
        return value
    found: list[tuple[CopyStream, torch.Tensor]] = []
    _collect(value, found)
    if not found:
        return value
    by_stream: dict[int, tuple[CopyStream, list[torch.Tensor]]] = {}
    for stream, tensor in found:
        by_stream.setdefault(id(stream), (stream, []))[1].append(tensor)
    pending: dict[int, PendingCopy] = {}
    for stream, tensors in by_stream.values():
        pending |= _started(stream, tensors)
    return _replaced(value, pending)


def _started(stream: CopyStream, tensors: list[torch.Tensor]) -> dict[int, PendingCopy]:
    """Start the copies of tensors of one device."""
    together: defaultdict[Any, list[Any]] = defaultdict(list)
    for tensor in tensors:
        together[tensor.dtype if tensor.numel() <= SMALL else id(tensor)].append(tensor.detach())
    torch = sys.modules["torch"]
    with stream.copying():
        flat = {
            key: parts[0].reshape(-1) if len(parts) == 1 else torch.cat([part.reshape(-1) for part in parts])
            for key, parts in together.items()
        }
        arrived = {key: stream.copy(one) for key, one in flat.items()}
    mark = stream.mark()
    placed = dict.fromkeys(arrived, 0)
    pending = {}
    for tensor in tensors:
        key = tensor.dtype if tensor.numel() <= SMALL else id(tensor)
        start = placed[key]
        placed[key] = start + tensor.numel()
        pending[id(tensor)] = PendingCopy(arrived[key][start : placed[key]].reshape(tensor.shape), mark)
    return pending


def _collect(value: Value, found: list[tuple[CopyStream, torch.Tensor]]) -> None:
    if isinstance(value, DeviceHistogram):
        for name in value.__slots__:
            _collect(getattr(value, name), found)
    elif array_kind(value):
        stream = copy_stream_of(value)
        if stream is not None:
            found.append((stream, value))
    else:
        rebuild(value, lambda item: _collect(item, found))


def _replaced(value: Value, pending: dict[int, PendingCopy]) -> Value:
    if id(value) in pending:
        return pending[id(value)]
    if isinstance(value, DeviceHistogram):
        parts = {name: _replaced(getattr(value, name), pending) for name in value.__slots__}
        return DeviceHistogram(**parts)
    return rebuild(value, lambda item: _replaced(item, pending))
