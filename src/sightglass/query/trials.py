"""Trials of operations on made-up data: what an operation takes here that never ran here.

Where a price would refuse a query, each of its large operations on NumPy's arrays that was never measured is run once,
off the training thread, on arrays of the same dtype and layout, shortened so that they and the result have at most
`MAX_ITEMS`. The program's arrays are not read. Arrays of other libraries and functions of the run are never tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sightglass.core.program_values.guarded import FAILURES

from .arrays import ArraySpec
from .costs import STRIDED, CostModel, OperationCost, learned_as, of_table
from .functions.elementwise import operation
from .limits import PLAIN

MAX_ITEMS: Final = 2**20  # 8 MB of float64: more than the cache of a core, and sorted in some 50 ms
MAX_NS: Final = 50e6  # as the table says: other work of that thread waits so long
N_TIMES: Final = 3  # the first one uses new memory; a garbage collection seldom comes twice
ENOUGH_S: Final = 0.1  # what takes longer is not repeated
N_RANDOM: Final = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An operation to try.

    Attributes:
        name: Its name: a function, an operator or `PICKED`.
        cost: What is known of it.
        operands: Its arguments, arrays as their specs; a list of arrays as that of the array that they are stacked to.
        lists: Which of them are lists.
        named: Its named arguments.
        learned: The name under which its cost is learned.
    """

    name: str
    cost: OperationCost
    operands: Sequence[Any]
    lists: Sequence[bool]
    named: Mapping[str, Any]
    learned: str

    @property
    def key(self) -> tuple[str, str]:
        """What is learned by it: an operation, and the dtype of its largest argument."""
        return self.learned, _largest(self.operands).name

    def run(self, model: CostModel, cpu_s: Callable[[], float]) -> None:
        """Try it, and let the model learn what it takes; a failure teaches nothing."""
        try:
            specs, n_items, table_ns = self._shortened()
            operands = [_made(one) if isinstance(one, ArraySpec) else one for one in specs]
            given = [list(one) if is_list else one for one, is_list in zip(operands, self.lists, strict=True)]
            call = operation(self.name, len(operands)).call
            taken_s: list[float] = []
            with np.errstate(all="ignore"):
                while len(taken_s) < N_TIMES and sum(taken_s) < ENOUGH_S:
                    began_s = cpu_s()
                    result = call(*given, **self.named)
                    taken_s.append(cpu_s() - began_s)
        except FAILURES:
            return
        made = result[0] if type(result) is tuple and result else result
        if learned_as(self.name, self.cost, getattr(made, "shape", ())) != self.learned:
            return
        first = _largest(specs)
        taken_ns = sorted(taken_s)[len(taken_s) // 2] * 1e9 / (STRIDED if first.strided else 1.0)
        model.learn(self.learned, self.cost, first.name, n_items, taken_ns=taken_ns, table_ns=table_ns)

    def _shortened(self) -> tuple[list[Any], int, float]:
        """Return the operands with shorter axes, the items of the largest or of the result, and the ns by the table."""
        first = _largest(self.operands)
        longest = max(first.shape)
        length = max(1, min(longest, MAX_ITEMS * longest // first.size))
        while True:
            specs = [
                replace(one, shape=tuple(length if n == longest else n for n in one.shape))
                if isinstance(one, ArraySpec)
                else one
                for one in self.operands
            ]
            shape, ns = self._priced(specs)
            n_items = max(_largest(specs).size, math.prod(shape))
            ns = of_table(self.cost, n_items) if ns is None else ns
            if (ns < MAX_NS and n_items <= MAX_ITEMS) or length <= 1:
                return specs, n_items, ns
            length //= 2

    def _priced(self, specs: Sequence[Any]) -> tuple[tuple[int, ...], float | None]:
        """Return the shape of the result, if that may be larger than the operands, and the ns that depend on shapes."""
        if self.cost.shaped is not None:
            return self.cost.shaped(specs, **self.named)
        shapes = [one.shape for one in specs if isinstance(one, ArraySpec)]
        return (np.broadcast_shapes(*shapes) if self.cost.result == "each" else ()), None


def trial_of(  # noqa: PLR0917  what `price` knows of it
    name: str,
    cost: OperationCost,
    args: Sequence[Any],
    stacked: Sequence[Any],
    named: Mapping[str, Any],
    shape: tuple[int, ...],
) -> Trial | None:
    """Return the trial of an operation; `None` if it cannot be tried.

    Args:
        name: Its name.
        cost: What is known of it.
        args: Its arguments, arrays as their specs.
        stacked: The same, lists of numbers or arrays as the specs of what they are stacked to.
        named: Its named arguments.
        shape: The shape of its result.
    """
    lists = [type(one) in (list, tuple) and not PLAIN.issuperset(map(type, one)) for one in args]
    operands = [one if is_list else arg for arg, one, is_list in zip(args, stacked, lists, strict=True)]
    specs = [one for one in operands if isinstance(one, ArraySpec)]
    plain = (None, bool, int, float, str, tuple, list)
    if not all(isinstance(one, ArraySpec) or one is None or type(one) in plain for one in (*operands, *named.values())):
        return None
    if any(one.kind != "numpy" or one.device or one.size > MAX_ITEMS * max(one.shape, default=1) for one in specs):
        return None
    if not specs or not max(one.size for one in specs):
        return None
    return Trial(
        name=name, cost=cost, operands=operands, lists=lists, named=named, learned=learned_as(name, cost, shape)
    )


def _largest(operands: Sequence[Any]) -> ArraySpec:
    return max((one for one in operands if isinstance(one, ArraySpec)), key=lambda spec: spec.size)


def _made(spec: ArraySpec) -> np.ndarray[Any, Any]:
    """Return an array as a spec says; its integers are of the whole range, which searching and counting depend on.

    Raises:
        TypeError: Its dtype has no random numbers.
    """
    dtype, random = np.dtype(spec.dtype), np.random.default_rng(0)
    match dtype.kind:
        case "b":
            few: Any = random.random(N_RANDOM) > 0.5
        case "i" | "u":
            bounds = np.iinfo(dtype)
            few = random.integers(bounds.min, bounds.max, N_RANDOM, dtype.newbyteorder("="))
        case "f" | "V":
            few = random.standard_normal(N_RANDOM)
        case "c":
            few = random.standard_normal(N_RANDOM) + 1j
        case _:
            raise TypeError(f"no random numbers of {dtype}")
    values = np.resize(few.astype(dtype), spec.size).reshape(spec.shape)
    if spec.strided and values.ndim:
        values = np.repeat(values, 2, axis=-1)[..., ::2]
    return np.asfortranarray(values) if spec.reverse and not spec.strided else values


def result_dtype(name: str, operands: Sequence[Any], named: Mapping[str, Any]) -> np.dtype[Any] | None:
    """Return the dtype that an operation item by item gives; `None` if it is not of NumPy's arrays, or refuses them."""
    keys = [np.dtype(one.dtype) if isinstance(one, ArraySpec) and one.kind == "numpy" else one for one in operands]
    if not all(
        isinstance(one, np.dtype) or type(one) in (bool, int, float, complex, str) for one in (*keys, *named.values())
    ):
        return None
    return _dtype_of_one(name, tuple(keys), tuple(named.items()))


@lru_cache(maxsize=4_096, typed=True)
def _dtype_of_one(name: str, operands: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> np.dtype[Any] | None:
    values = [np.ones(1, one) if isinstance(one, np.dtype) else one for one in operands]
    try:
        with np.errstate(all="ignore"):
            found = operation(name, len(values)).call(*values, **dict(named))
    except FAILURES:
        return None
    return found.dtype if isinstance(found, np.ndarray) else None


def places(spec: ArraySpec, n: int) -> ArraySpec:
    """Return the spec of an index: of a condition as it is, of places as a condition of `n` items."""
    if spec.kind != "numpy" or np.dtype(spec.dtype).kind == "b":
        return spec
    return replace(spec, shape=(n,), dtype=np.dtype(bool), name="bool")
