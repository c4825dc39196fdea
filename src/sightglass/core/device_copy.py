"""Bringing what rests on a CUDA device to the host: begun where it was made, waited for where it is read.

Theory of operation:

1. `start_copy` is called by the thread that computed the values. It puts copies into pinned memory on a stream of their
   own, behind what that thread has asked the device for so far, and returns at once; what the program asks for next is
   not in their way.
2. What it gives in the values' place is read by another thread, which waits for these copies alone.
3. Small values of one dtype are copied as one: a norm for each of a hundred layers is one copy, not a hundred.

PyTorch is not imported here: who has tensors of it has imported it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, Protocol

from .values import DeviceHistogram, PendingCopy, array_kind, is_container, rebuild

SMALL: Final = 4_096
"""Up to how many items a tensor is copied together with others."""


class CopyStream(Protocol):
    """Where copies to the host go, for one device."""

    def copying(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which copies are behind all that was asked of the device so far."""

    def copy(self, tensor: Any) -> Any:
        """Begin to copy a tensor to the host, and return what it will be in."""

    def mark(self) -> Any:
        """Return what can be waited for: `synchronize()` returns when the copies so far are done."""


class CudaCopyStream:
    """A stream of one CUDA device."""

    def __init__(self, device: Any) -> None:
        self._torch = sys.modules["torch"]
        self._device = device
        self._stream = self._torch.cuda.Stream(device)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Return the context in which copies are behind all that was asked of the device so far."""
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(self._stream):
            yield

    def copy(self, tensor: Any) -> Any:
        """Begin to copy a tensor to pinned memory; the device's memory is not used again before it is done."""
        host = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)
        return host

    def mark(self) -> Any:
        """Return an event behind the copies so far."""
        event = self._torch.cuda.Event()
        event.record(self._stream)
        return event


_lanes: dict[Any, CopyStream] = {}


def copy_stream_of(tensor: Any) -> CopyStream | None:
    """Return where a tensor's copies go, or `None` if it is read otherwise."""
    if array_kind(tensor) != "torch" or tensor.device.type != "cuda":
        return None
    if tensor.device not in _lanes:
        _lanes[tensor.device] = CudaCopyStream(tensor.device)
    return _lanes[tensor.device]


def start_copy(value: Any) -> Any:
    """Begin to bring all CUDA tensors within a value to the host; returns it with `PendingCopy` in their places.

    Args:
        value: It is the caller's own: nothing overwrites its tensors any more.
    """
    if "torch" not in sys.modules:
        return value
    found: list[Any] = []
    _collect(value, found)
    if not found:
        return value
    by_lane: dict[int, tuple[CopyStream, list[Any]]] = {}
    for lane, tensor in found:
        by_lane.setdefault(id(lane), (lane, []))[1].append(tensor)
    gone: dict[int, PendingCopy] = {}
    for lane, tensors in by_lane.values():
        gone |= _sent(lane, tensors)
    return _replaced(value, gone)


def _sent(lane: CopyStream, tensors: list[Any]) -> dict[int, PendingCopy]:
    """Begin the copies of tensors of one device."""
    together: defaultdict[Any, list[Any]] = defaultdict(list)
    for tensor in tensors:
        together[tensor.dtype if tensor.numel() <= SMALL else id(tensor)].append(tensor.detach())
    torch = sys.modules["torch"]
    with lane.copying():
        flat = {
            key: parts[0].reshape(-1) if len(parts) == 1 else torch.cat([part.reshape(-1) for part in parts])
            for key, parts in together.items()
        }
        arrived = {key: lane.copy(one) for key, one in flat.items()}
    mark = lane.mark()
    placed = dict.fromkeys(arrived, 0)
    gone = {}
    for tensor in tensors:
        key = tensor.dtype if tensor.numel() <= SMALL else id(tensor)
        start = placed[key]
        placed[key] = start + tensor.numel()
        gone[id(tensor)] = PendingCopy(arrived[key][start : placed[key]].reshape(tensor.shape), mark)
    return gone


def _collect(value: Any, found: list[Any]) -> None:
    if isinstance(value, DeviceHistogram):
        for name in value.__slots__:
            _collect(getattr(value, name), found)
    elif array_kind(value):
        lane = copy_stream_of(value)
        if lane is not None:
            found.append((lane, value))
    elif is_container(value):
        rebuild(value, lambda item: _collect(item, found))


def _replaced(value: Any, gone: dict[int, PendingCopy]) -> Any:
    if id(value) in gone:
        return gone[id(value)]
    if isinstance(value, DeviceHistogram):
        parts = {name: _replaced(getattr(value, name), gone) for name in value.__slots__}
        return DeviceHistogram(**parts)
    return rebuild(value, lambda item: _replaced(item, gone)) if is_container(value) else value
