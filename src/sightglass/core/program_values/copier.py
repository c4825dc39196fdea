"""Copies of the program's values as values of our own. What cannot be read, or exceeds the limits, is a `LostValue`.

A limit is looked at between two items. A single call into the program's code cannot be interrupted.

The three policies of copying, and copies of tensors on devices, follow the walk.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np

from sightglass.core import codec
from sightglass.core.errors import UnsendableError
from sightglass.core.program_values.own_pieces import mark_of, marked, own_piece
from sightglass.core.values import (
    PLAIN,
    DeviceHistogram,
    Figure,
    Histogram,
    Mark,
    PendingCopy,
    Text,
    Value,
    array_kind,
    kind_of,
    on_device,
    to_host,
)

from .array_data import NOT_DATA, as_data, check_data
from .guarded import (
    EXACT,
    FAILURES,
    KEYS,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_TEXT,
    Level,
    LostValue,
    OwnValue,
    built_in,
    class_name,
    clean,
    exact,
    message,
    parts,
    printed,
    reading_clock,
    rebuild,
    stored,
    text,
)

if TYPE_CHECKING:
    import torch


MAX_READING_S: Final = 1.0  # in the program's own code, such as a mapping that computes its items
MAX_OBJECTS: Final = 8  # plain objects inside each other; beyond, a snapshot would wander through the whole program
MAX_STEPS: Final = 8  # of a path; more would not fit the line of a warning

QUICK: Final = frozenset((float, bool, type(None)))
NOT_A_LEAF: Final = object()

KINDS: Final = {"builtin_function_or_method": "function", "method": "function", "type": "class"}
"""What people call some of Python's types."""
VOWELS: Final = "aeiou"

Form = Literal["value", "snapshot", "message"]
Leaf = Callable[[Value], Any]
"""Copies a number, a text, an array; returns `NOT_A_LEAF` for anything else. It may raise."""


class Kept(NamedTuple):
    """A copy, how many parts of the value are lost, and the first of these."""

    value: Any
    n_lost: int
    first: LostValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """What a copy may cost: levels and items of containers, characters of a repr, seconds in the program's own code."""

    max_depth: int = MAX_DEPTH
    max_items: int = MAX_ITEMS
    max_chars: int = MAX_TEXT
    max_reading_s: float = MAX_READING_S


LIMITS: Final = CopyLimits()


class Copier:
    """Copies values of the program into values of our own; never raises because of a value.

    `form` says what becomes of other objects: in a "message" they are texts, as are all keys and what is lost; in a
    "snapshot" they are namespaces of their public attributes; as a "value" they are mappings of these, and if a part is
    lost, the whole copy is.
    """

    def __init__(
        self, leaf: Leaf, *, form: Form, limits: CopyLimits = LIMITS, clock: Callable[[], float] | None = None
    ) -> None:
        """Begin; the seconds of `limits` are for all copies together, the items for each."""
        self._leaf = leaf
        self._form = form
        self._limits = limits
        self._clock = clock
        self._quick = QUICK if form == "message" else QUICK | {int, str}
        self._spent_s = 0.0
        self._name = ""
        self._path: list[Any] = []
        self._inside: set[int] = set()
        self._n_items = self._n_lost = 0
        self._first: LostValue | None = None

    def copy(self, value: object, path: str) -> Kept:
        """Copy a value, which messages call `path`."""
        self._name = path
        self._n_items = self._n_lost = 0
        self._first = None
        try:
            copied = self._copied(value)
        except _OverError:
            copied = self._first
        return Kept(copied, self._n_lost, self._first)

    def _copied(self, value: Value) -> Any:
        try:
            if type(value) is LostValue:
                return self._lose(value.why)
            copied = self._leaf(value)
            if copied is not NOT_A_LEAF:
                return copied
            found = parts(value)
            if found is None and self._form != "message" and (data := as_data(value)) is not NOT_DATA:
                return self._copied(data)
            if found is None:
                found = self._object(value)
            return self._container(value, found) if isinstance(found, Level) else found
        except FAILURES as error:
            return self._lose(message(error))

    def _container(self, value: object, found: Level) -> Any:
        """Copy the items of a container."""
        depth, limits = len(self._path), self._limits
        if id(value) in self._inside:
            return self._lose("it contains itself")
        if depth >= limits.max_depth:
            return self._lose(f"it is nested more than {limits.max_depth} levels deep")
        if found.size is not None and self._n_items + found.size > limits.max_items:
            return self._lose(f"it has {found.size:,} items, which is too large to copy")
        keys: list[Any] = []
        values: list[Any] = []
        self._inside.add(id(value))
        self._path.append(None)
        try:
            for key, item in found.pairs if found.size is not None else self._paced(value, found.pairs):
                self._n_items += 1
                if self._n_items > limits.max_items:
                    raise ValueError(f"it has more than {limits.max_items:,} items")
                self._path[depth] = key
                values.append(item if type(item) in self._quick else self._copied(item))
                keys.append(self._key(key))
            built = found.build(keys, values)
        finally:
            self._inside.discard(id(value))
            del self._path[depth:]
        if type(built) is dict and len(built) < len(keys):
            self._lose("two of its keys have the same text")
        return built

    def _paced(self, value: object, pairs: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Yield what the program's own code returns, as long as that takes no longer than the limit."""
        clock = self._clock or reading_clock(value)
        while True:
            if self._spent_s > self._limits.max_reading_s:
                raise TimeoutError(f"reading it takes longer than {self._limits.max_reading_s:g} s")
            began_s = clock()
            pair = next(pairs, None)
            self._spent_s += clock() - began_s
            if pair is None:
                return
            yield pair

    def _object(self, value: object) -> Any:
        """Return the public attributes of a plain object, or what stands for any other one."""
        nested = sum(type(key) is _Attribute for key in self._path)
        whole = self._form == "message" or callable(value) or isinstance(value, types.ModuleType)
        attributes = {} if whole or nested >= MAX_OBJECTS else stored(value)
        public = {_Attribute(name): item for name, item in attributes.items() if not name.startswith("_")}
        if not public:
            return self._lose(_untravelled(value)) if self._form == "value" else printed(value, self._limits.max_chars)
        return Level(len(public), iter(public.items()), _namespace if self._form == "snapshot" else _mapping)

    def _key(self, key: Value) -> Any:
        """Return a key of our own; in a message, a text."""
        own = key if type(key) in KEYS else self._leaf(key)
        if hasattr(own, "item"):
            own = own.item()  # a number of NumPy
        if type(own) is tuple and self._form != "message":
            return tuple(map(self._key, own))
        if type(own) not in KEYS or type(own) is tuple:
            return text(key)
        if self._form != "message":
            return own
        return clean(own, len(own)) if type(own) is str else str(own)

    def _lose(self, why: str) -> Any:
        self._n_lost += 1
        if self._first is not None:  # only the first is named
            return str(LostValue(why)) if self._form == "message" else LostValue(why)
        self._first = LostValue(why, self._name + _steps(self._path))
        if self._form == "value":  # it is of no use without that part
            raise _OverError
        return str(self._first) if self._form == "message" else self._first


class _OverError(BaseException):
    """Ends a copy at the first part that is lost."""


class _Attribute(str):
    """The name of an attribute, in a path."""

    __slots__ = ()


def _steps(path: list[Any]) -> str:
    """Return the steps of a path as text, without those in the middle of a long one."""
    if len(path) > MAX_STEPS:
        return f"{_steps(path[: MAX_STEPS // 2])}…{_steps(path[-MAX_STEPS // 2 :])}"
    return "".join(map(_step, path))


def _step(key: object) -> str:
    return f".{key}" if type(key) is _Attribute else f"[{text(key, 80)}]"


def _untravelled(value: object) -> str:
    name = KINDS.get(class_name(value), class_name(value))
    return f"{'an' if name[:1].lower() in VOWELS else 'a'} {name} cannot travel"


def _mapping(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    return dict(zip(map(str, keys), values, strict=True))


def _namespace(keys: list[Any], values: list[Any]) -> types.SimpleNamespace:
    return types.SimpleNamespace(**dict(zip(map(str, keys), values, strict=True)))


# Copies of the program's values, made of our own: what a query keeps, what a run keeps for later, what can be sent.
#
# Arrays are copied where they are; nothing is moved from its device or waited for. How other objects are read, and what
# becomes of those that cannot be, is in `guarded`.

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
    """Return a value with mappings in place of its objects, and what `array_data` knows as arrays and lists.

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


# Copy CUDA tensors to the host: start the copy in the thread that made them, wait in the thread that reads them.
#
# Theory of operation:
#
# 1. The thread that computed the values calls `start_copy`. It queues copies into pinned memory on a CUDA stream of
#    their own, after the work that this thread has queued so far, and returns at once. Work that the program queues
#    later does not wait for the copies.
# 2. `start_copy` returns the values with a `PendingCopy` in place of each tensor. Another thread reads it, and waits
#    for these copies alone.
# 3. Small values of one dtype are copied together: a norm for each of a hundred layers is one copy.
#
# PyTorch is not imported at run time: a program that has its tensors has imported it.

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
