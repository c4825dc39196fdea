"""What operations cost: nanoseconds for each item of their largest argument, learned while they run.

The numbers in `OperationCost` are those of NumPy on float64 in one thread of a recent processor. `CostModel` scales
them: by how fast this machine is at operations of this kind (measured once, in the background), by dtype, by library,
and by what each operation took when it ran on large arrays, or when it was tried.
"""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np

from sightglass.core.values import ArrayKind, Value, array_kind

UNKNOWN_MACHINE: Final = 2.0  # until it is measured, a machine may be half as fast as the one of the table
LEARNED: Final = 1.2  # the next time may take a little longer
UNTRIED: Final = 1.5  # machines differ in more than one factor: AVX-512, the size of the cache, the speed of memory
STRIDED: Final = 4.0  # of memory that is not contiguous, at most one of eight float64 of a cache line is used
NEW_NS: Final = 2.0  # for each byte of new memory, until it is measured: 9 us for a page of a virtual machine
Kind = Literal["python", "arithmetic", "functions", "sorting"]
"""What the speed of an operation depends on: the interpreter; memory and vector units; what processors compute
differently, such as sines; and what the version of NumPy and the instruction set decide."""
ON_DEVICE: Final = 1 / 32  # a device has 20 to 100 times the memory bandwidth and the arithmetic of one thread
LARGE_NS: Final = 200_000.0  # an operation worth timing: reading the clock of a thread takes 0.3 to 0.5 us
BASE_NS: Final[dict[ArrayKind | None, float]] = {None: 300.0, "numpy": 1_500.0, "torch": 5_000.0}
OTHER_BASE_NS: Final = 60_000.0  # JAX dispatches each operation outside of `jit` through Python
CALIBRATION_ITEMS: Final = 2**16  # in the cache, as blocks are
CALIBRATION_ROUNDS: Final = 7
CALIBRATION_BYTES: Final = 2**21
CALIBRATION_LOOPS: Final = 20_000
MAX_TRIALS: Final = 16  # that wait: half a second of another thread


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """What a function costs, and what is known of its result without computing it.

    Attributes:
        ns: Nanoseconds for each item of the largest argument.
        kind: What its speed depends on.
        result: The shape of the result: that of the arguments together, if each of its items is computed from one item
            of each of them ("each"), that of the largest argument ("same"), without the axes of `axis` ("reduce"), a
            scalar, all items in one dimension ("flat"), or a value that is not an array ("plain").
        copies: How many temporary copies of the largest argument exist at a time.
        places: Whether PyTorch makes the place of each item as well, in 64 bits.
        sorts: Whether the cost of an item grows with the logarithm of their number.
        more_ns: From the number of items and the other arguments, what is added to the nanoseconds.
        shaped: From all arguments, of which arrays have shapes and dtypes, the shape of the result and the nanoseconds;
            instead of `ns` and the shape of `result`.
        more_bytes: From the shape of the largest argument and the other arguments, what is added to the bytes.
        text_ns: Nanoseconds for each character, where it reads texts.
    """

    ns: float = 0.0
    kind: Kind = "arithmetic"
    result: Literal["each", "same", "reduce", "scalar", "flat", "plain"] = "plain"
    copies: float = 0.0
    places: bool = False
    sorts: bool = False
    more_ns: Callable[..., float] | None = None
    shaped: Callable[..., tuple[tuple[int, ...], float]] | None = None
    more_bytes: Callable[..., int] = lambda shape, *args, **kwargs: 0
    text_ns: float = 0.0

    @property
    def n_made(self) -> float:
        """How many arrays as large as its largest argument it makes."""
        return self.copies + self.places + (self.result in ("each", "same", "flat"))


PLAIN_COST: Final = OperationCost()
ARITHMETIC_NS: Final = 0.5
PICK_NS: Final = 8.0
"""To pick an item of an array by its place."""
ITEM_NS: Final = 50.0
"""To pass by an item of a list or a mapping."""
KINDS: Final[dict[str, float]] = {"f8": 1.0, "f4": 0.7, "b1": 0.7, "f2": 8.0, "c8": 8.0, "c16": 12.0}
OTHER_KIND: Final = 2.0  # integers are converted by many functions; extended types by nearly all
HALF: Final = 8.0  # half precision is converted for every operation


class CostModel:
    """The costs of operations on this machine.

    Attributes:
        factors: How much slower than the table this machine is, for each kind of operation.
        new_ns: Nanoseconds for each byte of memory that is used for the first time.
        calibrated: Whether they were measured.
        wanted: Whether something should be: somebody asks for prices.
    """

    def __init__(self) -> None:
        self.factors: dict[Kind, float] = dict.fromkeys(get_args(Kind), UNKNOWN_MACHINE)
        self.new_ns = NEW_NS
        self.calibrated = self.wanted = False
        self._learned: dict[tuple[str, str], float] = {}
        self._trials: dict[tuple[str, str], ModelTrial] = {}
        self._tried: set[tuple[str, str]] = set()

    def ns(
        self, name: str, cost: OperationCost, dtype: object, dtype_name: str, n: int, *, table_ns: float | None = None
    ) -> float:
        """Return the nanoseconds of an operation.

        Args:
            name: The operation.
            cost: Its cost.
            dtype: The dtype of its largest argument.
            dtype_name: The name of that.
            n: How many items the argument has.
            table_ns: What the table says, if the shapes of all arguments tell it.
        """
        factor = self._learned.get((name, dtype_name))
        if factor is None:
            factor = self.factors[cost.kind] * UNTRIED * _kind(dtype, dtype_name)
        return factor * (of_table(cost, n) if table_ns is None else table_ns)

    def learn(
        self, name: str, cost: OperationCost, dtype_name: str, n: int, *, taken_ns: float, table_ns: float | None = None
    ) -> None:
        """Take in what an operation took; slower counts at once, faster little by little."""
        factor = LEARNED * taken_ns / max(of_table(cost, n) if table_ns is None else table_ns, 1.0)
        old = self._learned.get((name, dtype_name), factor)
        self._learned[name, dtype_name] = factor if factor > old else 0.9 * old + 0.1 * factor

    @property
    def exact(self) -> bool:
        """Whether prices change no more by what is measured: nothing waits for it."""
        return self.calibrated and not self._trials

    def knows(self, key: tuple[str, str]) -> bool:
        """Return whether an operation on a dtype was measured here, or was tried without success."""
        return key in self._learned or key in self._tried

    def want(self, trials: Iterable[ModelTrial]) -> None:
        """Let prices become exact: by the speed of the machine, and by operations that were never measured here."""
        for trial in trials:
            if not self.knows(trial.key) and len(self._trials) < MAX_TRIALS:
                self._trials.setdefault(trial.key, trial)
        self.wanted = self.wanted or not self.exact

    def measure(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        """Measure what is wanted, on this thread: the machine in some 20 ms, each operation in up to 100 ms."""
        self.wanted = False
        if not self.calibrated:
            self.calibrate(cpu_s)
        for key, trial in list(self._trials.items()):
            self._tried.add(key)
            trial.run(self, cpu_s)
            del self._trials[key]

    def calibrate(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        """Measure how fast this machine is, in some 20 ms of this thread."""
        x = np.linspace(0.5, 2.0, CALIBRATION_ITEMS)
        references: tuple[tuple[Kind, float, int, Callable[[], object]], ...] = (
            ("python", 20.0, CALIBRATION_LOOPS, _loop), ("arithmetic", 0.4, x.size, lambda: x + x),
            ("functions", 7.8, x.size, lambda: np.sin(x)), ("sorting", 4.2, x.size, lambda: np.sort(-x)),
        )  # fmt: skip
        for kind, reference_ns, n, run in references:
            taken_s = []
            for _ in range(CALIBRATION_ROUNDS):
                started_s = cpu_s()
                run()
                taken_s.append(cpu_s() - started_s)
            ratio = sorted(taken_s)[CALIBRATION_ROUNDS // 2] * 1e9 / n / reference_ns
            self.factors[kind] = max(0.5, ratio)
        taken_s, zeros = [], bytes(CALIBRATION_BYTES)
        for _ in range(CALIBRATION_ROUNDS):
            with mmap.mmap(-1, CALIBRATION_BYTES) as memory:
                started_s = cpu_s()
                memory.write(zeros)
                taken_s.append(cpu_s() - started_s)
        self.new_ns = UNTRIED * sorted(taken_s)[CALIBRATION_ROUNDS // 2] * 1e9 / CALIBRATION_BYTES
        self.calibrated = True


class ModelTrial(Protocol):
    """An operation to be tried; see `trials`."""

    @property
    def key(self) -> tuple[str, str]:
        """The name under which its cost is learned, and the dtype."""

    def run(self, model: CostModel, cpu_s: Callable[[], float]) -> None:
        """Try it, and let the model learn what it takes."""


def _loop() -> None:
    total = 0
    for i in range(CALIBRATION_LOOPS):
        total += i


def learned_as(name: str, cost: OperationCost, shape: tuple[int, ...]) -> str:
    """Return the name under which the cost of an operation is learned, from the shape of its result.

    A statistic of short rows takes up to forty times as long for an item as one of a whole array.
    """
    return f"{name}(axis)" if cost.result in ("reduce", "scalar") and shape else name


def of_table(cost: OperationCost, n: int) -> float:
    """Return the nanoseconds that the table says for an operation on so many items."""
    more = max(1.0, n.bit_length() / CALIBRATION_ITEMS.bit_length()) if cost.sorts else 1.0
    return cost.ns * more * n


def _kind(dtype: object, name: str) -> float:
    if "float16" in name:
        return HALF
    kind = getattr(dtype, "kind", "")
    if kind:
        return KINDS.get(f"{kind}{dtype.itemsize}", OTHER_KIND)  # type: ignore[attr-defined]
    return KINDS["f4"] if "float32" in name else KINDS["f8"] if "float64" in name else OTHER_KIND


MODEL: Final = CostModel()
"""The costs in this process; all runs in it learn together."""


# How many items an operation reads or makes, as far as the shapes of its operands tell.

SIZED: Final = frozenset((list, tuple, dict, str, bytes))


def n_read(value: Value) -> int:
    """Return a number that grows with the work of reading a value."""
    if array_kind(value):
        return math.prod(value.shape)
    if type(value) in (list, tuple) and value and array_kind(value[0]):
        return sum(map(n_read, value))
    return len(value) if type(value) in SIZED else 1


def without(shape: tuple[int, ...], axis: object) -> tuple[int, ...]:
    """Return a shape without an axis or several; without any for `None`, or for axes that it does not have."""
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    if not all(isinstance(one, int) and -len(shape) <= one < len(shape) for one in axes):
        return ()
    gone = {one % len(shape) for one in axes}
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def picks(index: Value) -> bool:
    """Return whether an index selects items one by one, so that they are copied."""
    parts = index if isinstance(index, tuple) else (index,)
    return not all(part is None or part is ... or isinstance(part, int | slice) for part in parts)


def n_broadcast(values: Sequence[Any]) -> int:
    """Return how many items arrays of several shapes have together; 0 if there is one shape."""
    shapes = {tuple(value.shape) for value in values if getattr(value, "ndim", 0)}
    if len(shapes) < 2:
        return 0
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return 0  # the expression itself says which shapes do not fit


def n_sliced(shape: tuple[int, ...], index: Any) -> int:
    """Return how many items of an array slices select, if they do not select all; 0 for other indices."""
    if picks(index):
        return 0
    try:
        n = int(np.broadcast_to(np.zeros((), np.bool_), shape)[index].size)
    except (IndexError, ValueError):
        return 0  # the array itself says what is wrong
    return n if n < math.prod(shape) else 0
