"""Evaluation aside: queries that do not fit into an event, on a copy of what they read, off the training thread.

Making the copy must fit into the event; one is alive at a time in a run. While it is evaluated, further events of its
query are skipped and counted. What the evaluation takes counts in the run's budget.

New expressions on JAX arrays are evaluated there until each of their operations is compiled.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import PriceError, SightglassError
from sightglass.core.program_values.copier import snapshot
from sightglass.core.program_values.guarded import FAILURES
from sightglass.core.program_values.own_pieces import mark_of
from sightglass.core.values import Value, array_bytes, array_kind
from sightglass.query.arrays import namespace
from sightglass.query.costs import MODEL
from sightglass.query.evaluation import Evaluation, PerEventResult
from sightglass.query.meter import NEARLY, Meter
from sightglass.query.price import Price
from sightglass.query.reads import Path, copied, n_bytes_read, paths
from sightglass.training.evaluation.deferred import Defer

MAX_ASIDE_S: Final = 1.0  # of another core: at a budget of 5 %, once in 20 s
MAX_LOCKED_S: Final = 0.005  # of Python, for which other threads wait
COPIED_AT_ONCE: Final = 2**18  # bytes between two looks at the clock: at most a millisecond
NEW_PART: Final = 0.25  # of the limit: more new memory than this is made on the other thread, before it is copied to
COPY_NS: Final = 0.4  # for each byte, into memory that was used before


class Aside:
    """The place of a run for one evaluation off the training thread.

    Attributes:
        defer: Evaluates and settles there, in order.
        kept: The arrays of the last copy, by their paths.
        running_bytes: What the evaluation holds that runs there now.
    """

    def __init__(self, defer: Defer) -> None:
        self.defer = defer
        self.kept: dict[Path, Any] = {}
        self.running_bytes = 0
        self._taken = False

    @property
    def held_bytes(self) -> int:
        """The bytes of the last copy, whose memory is used again, and of what is evaluated there now."""
        return sum(map(array_bytes, self.kept.values())) + self.running_bytes

    @property
    def waiting_bytes(self) -> int:
        """No results wait here."""
        return 0

    @property
    def peak_bytes(self) -> int:
        """No more than that: what an evaluation holds is counted with its query."""
        return 0

    def calibrating(self) -> bool:
        """Return whether prices are not exact yet; measure here what nobody did."""
        if MODEL.wanted:
            MODEL.wanted = False
            self.defer(MODEL.measure, lambda error: None)
        return not MODEL.exact

    def take(self) -> bool:
        """Take the place; return whether it was free."""
        taken, self._taken = self._taken, True
        return not taken

    def free(self) -> None:
        """Give the place back."""
        self.running_bytes = 0
        self._taken = False


class AsideEvaluation:
    """The evaluation of one query aside.

    Attributes:
        copy_s: The seconds of the training thread that the copy of an event takes.
        left_s: The seconds that it may take of this event.
    """

    def __init__(self, evaluation: Evaluation, place: Aside, *, copy_s: float, limit_s: float) -> None:
        self.copy_s = copy_s
        self.left_s = limit_s
        self._cpu_s = time.thread_time
        self._until_s = 0.0
        self._place = place
        self._paths = paths(evaluation.query)
        evaluation.holds = evaluation.meter.may_compile = True
        evaluation.meter.limit_s, evaluation.meter.tail_s = MAX_ASIDE_S, limit_s

    @classmethod
    def of(
        cls, evaluation: Evaluation, place: Aside, observables: Mapping[str, Any], *, limit_s: float
    ) -> AsideEvaluation | None:
        """Return the evaluation aside of a query that costs more than `limit_s`; `None` if it is not possible."""
        price, wanted = evaluation.meter.price, paths(evaluation.query)
        if price is None or price.seconds <= limit_s or not _bearable(price) or () in wanted:
            return None
        try:
            n_bytes = n_bytes_read(observables, wanted)
        except (SightglassError, *FAILURES):
            return None
        copy_s = n_bytes * COPY_NS * MODEL.factors["arithmetic"] / 1e9
        left_bytes = evaluation.meter.bytes_left(price.largest_bytes) + place.held_bytes
        if copy_s > limit_s or price.n_bytes + n_bytes > left_bytes:
            return None
        return cls(evaluation, place, copy_s=copy_s, limit_s=limit_s)

    def post(
        self,
        evaluation: Evaluation,
        observables: Mapping[str, Any],
        settle: Callable[[PerEventResult | None, float, BaseException | None], None],
    ) -> bool:
        """Copy what the query reads, and evaluate it on the other thread; return whether it is ready for that.

        Args:
            evaluation: The evaluation of the query.
            observables: The observables of the event.
            settle: Called there with the result or the error, and the processor time that it took, in seconds.

        Raises:
            SightglassError: What the query reads cannot be copied.
        """
        if not self._place.take():
            return False
        self._until_s = self._cpu_s() + NEARLY * self.left_s
        try:
            new = self._room(observables)
            if MODEL.new_ns * sum(map(array_bytes, new)) / 1e9 > NEW_PART * self.left_s:
                self._place.defer(lambda: _touch(new), lambda error: self._place.free())
                return False
            copies = copied(observables, self._paths, self._copy)
        except BaseException:
            self._place.free()
            raise
        heads: list[PerEventResult] = []
        meter = evaluation.meter
        self._place.running_bytes = 0 if meter.price is None else meter.price.n_bytes
        meter.memory.add(self._place.running_bytes)
        meter.own_bytes = self._place.held_bytes  # the copy and what is made of it

        def evaluate() -> None:
            values = copies
            with contextlib.suppress(TypeError, RuntimeError):  # of a dtype such as bfloat16, or on a device
                values = _of_numpy(copies)
            heads.append(evaluation.per_event(values))
            heads[0].read()

        def settled(error: BaseException | None) -> None:
            meter.own_bytes = 0
            self._place.free()
            meter.memory.free()
            settle(heads[0] if error is None else None, meter.taken_s, error)

        self._place.defer(evaluate, settled)
        return True

    def _room(self, observables: Mapping[str, Any]) -> list[Any]:
        """Make the arrays that are copied to, in the memory of the last copy where they have the same shapes.

        Returns:
            The others, whose memory is new.
        """
        before, self._place.kept = self._place.kept, {}
        new = []

        def keep(path: Path, value: Value) -> None:
            for at, array in _host_arrays(path, value):
                kept: Any = before.get(at)
                if type(kept) is not type(array) or (kept.shape, kept.dtype) != (array.shape, array.dtype):
                    is_numpy = type(array) is np.ndarray
                    kept = np.empty(array.shape, array.dtype) if is_numpy else array.new_empty(array.shape)
                    new.append(kept)
                self._place.kept[at] = kept

        copied(observables, self._paths, keep)
        return new

    def _copy(self, path: Path, value: Value) -> Any:
        """Copy a value, its arrays into those that were made for them.

        Raises:
            PriceError: It takes too long.
        """
        if type(value) is dict:
            return {key: self._copy((*path, key), one) for key, one in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._copy((*path, i), one) for i, one in enumerate(value))
        kept = self._place.kept.get(path)
        if kept is None:
            return snapshot(value)
        n_rows = max(1, COPIED_AT_ONCE * len(value) // max(1, value.nbytes))
        for i in range(0, len(value), n_rows):
            kept[i : i + n_rows] = value[i : i + n_rows]
            if self._cpu_s() > self._until_s:
                raise PriceError("Expected the copy of what a query reads to fit into an event", seconds=0.0)
        return kept


def _host_arrays(path: Path, value: Value) -> Iterator[tuple[Path, Any]]:
    """Yield the arrays in this process's memory that a value has, by their paths; without marked pieces."""
    if type(value) is dict:
        for key, one in value.items():
            yield from _host_arrays((*path, key), one)
    elif type(value) in (list, tuple):
        for i, one in enumerate(value):
            yield from _host_arrays((*path, i), one)
    elif (type(value) is np.ndarray or _is_host_tensor(value)) and value.ndim and not mark_of(value):
        yield path, value


def _is_host_tensor(value: Value) -> bool:
    return array_kind(value) == "torch" and value.device.type == "cpu" and not value.requires_grad


def _of_numpy(value: Value) -> Any:
    """Return a value with NumPy's view of each tensor of PyTorch and array of JAX, but marked pieces as they are.

    These libraries ask for aligned memory, which `malloc` finds badly on other threads than the first: 80 sorts of
    32 MB left holes of 640 MB. What NumPy frees is used again, and JAX has nothing to compile.

    Raises:
        TypeError: A value is on another device, or NumPy does not have its dtype.
    """
    if type(value) is dict:
        return {key: _of_numpy(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_of_numpy, value))
    kind = array_kind(value)
    if mark_of(value):
        return value
    if kind == "jax":
        if any(device.platform != "cpu" for device in value.devices()):
            raise TypeError
        return np.asarray(value)
    return value.numpy() if kind == "torch" else value


def _touch(arrays: list[Any]) -> None:
    """Write to memory that was never used: the system clears each of its pages first, which takes long."""
    for array in arrays:
        array[...] = 0


def _bearable(price: Price) -> bool:
    return price.known and not price.more and price.seconds <= MAX_ASIDE_S and price.python_s <= MAX_LOCKED_S


# New expressions on JAX arrays: evaluated off the training thread until each of their operations is compiled.
#
# Outside of `jit`, JAX compiles each operation for each shape when it is first used, which takes tens of milliseconds.
# Its arrays do not change, so an event waits for that by reference. Arrays that the program has donated or deleted
# meanwhile cannot be read any more: their event is skipped and counted, and zeros are compiled for in their place.

MAX_COMPILE_S: Final = 10.0  # of another thread; the price of the evaluation itself is checked before
MAX_WAITING: Final = 64  # events, each of which holds on to arrays of the program


class CompilingEvaluation:
    """The evaluation of one query aside, as long as it meets operations that are not compiled.

    Attributes:
        copy_s: The seconds of the training thread that an event takes: nearly none.
        left_s: The seconds that it may take of this event.
        n_waiting: How many events wait for their evaluation.
    """

    copy_s: Final = 0.0

    def __init__(self, evaluation: Evaluation, place: Aside) -> None:
        self.left_s = 0.0
        self.n_waiting = 0
        self._place = place
        self._bytes = 0
        evaluation.holds = True
        of = evaluation.meter
        meter = Meter(limit_s=MAX_COMPILE_S, max_bytes=of.max_bytes, memory=of.memory)
        meter.compiled = of.compiled
        meter.result_s = meter.tail_s = of.limit_s
        self._evaluation = Evaluation(evaluation.query, evaluation.functions, meter=meter)
        self._evaluation.holds = True

    def post(
        self,
        evaluation: Evaluation,
        observables: Mapping[str, Any],
        settle: Callable[[PerEventResult | None, float, BaseException | None], None],
    ) -> bool:
        """Evaluate an event on the other thread; return whether it has room. Arguments as of `AsideEvaluation.post`.

        Raises:
            SightglassError: What the query reads cannot be read.
        """
        wanted = paths(evaluation.query)
        if () in wanted:
            wanted = [(name,) for name in observables]
        n_bytes = n_bytes_read(observables, wanted)
        left_bytes = evaluation.meter.bytes_left(n_bytes) - self._bytes
        if self.n_waiting >= MAX_WAITING or (self.n_waiting and n_bytes > left_bytes):
            return False
        held = copied(observables, wanted, _held)
        self.n_waiting += 1
        self._bytes += n_bytes
        heads: list[PerEventResult] = []

        def evaluate() -> None:
            try:
                heads.append(self._evaluation.per_event(held))
                heads[0].read()
            except FAILURES:
                if not _some_deleted(held):
                    raise
                heads.clear()
                self._evaluation.per_event(_zeros(held))

        def settled(error: BaseException | None) -> None:
            self.n_waiting -= 1
            self._bytes -= n_bytes
            settle(heads[0] if heads and error is None else None, self._evaluation.meter.taken_s, error)

        self._place.defer(evaluate, settled)
        return True


def _held(path: Path, value: Value) -> Any:
    """Return a value that does not change any more: JAX's arrays as they are, others copied."""
    if type(value) is dict:
        return {key: _held((*path, key), one) for key, one in value.items()}
    return value if array_kind(value) == "jax" else snapshot(value)


def _zeros(value: Value) -> Any:
    """Return a value with zeros in place of arrays that were deleted."""
    if type(value) is dict:
        return {key: _zeros(one) for key, one in value.items()}
    if array_kind(value) == "jax" and value.is_deleted():
        place = value.sharding if len(value.sharding.device_set) > 1 else None  # one device is mostly the default
        return namespace(value).zeros(value.shape, dtype=value.dtype, device=place)
    return value


def _some_deleted(value: Value) -> bool:
    if type(value) is dict:
        return any(map(_some_deleted, value.values()))
    return array_kind(value) == "jax" and value.is_deleted()
