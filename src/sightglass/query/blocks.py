"""Evaluation in blocks: expressions that work item by item, on large arrays, without large temporary arrays.

A block is so small that its temporaries stay in the processor's cache, and that the meter, which is asked after each
one, stops an evaluation within a millisecond. Statistics of all items are computed from those of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.values import Value, array_kind

from .arrays import is_numpy, namespace
from .functions import FUNCTIONS
from .limits import check_broadcast
from .meter import Meter

BLOCK: Final = 2**15  # 256 KB as float64, a part of the second-level cache; even sine takes less than a millisecond
MIN_ITEMS: Final = 4 * BLOCK  # below this, whole arrays are as fast
Body = Callable[[tuple[Any, ...]], Any]


class Blocks:
    """The operands of an expression, cut into blocks of items that belong together.

    Attributes:
        shape: The shape of the result.
        size: The number of its items.
        n_done: How many of them are computed.
    """

    def __init__(self, values: Sequence[Any], shape: tuple[int, ...], places: list[int], library: str) -> None:
        self.values = values
        self.shape = shape
        self.size = math.prod(shape)
        self.places = places
        self.library = library
        self.n_done = 0

    @classmethod
    def of(cls, values: Sequence[Any]) -> Blocks | None:
        """Return the blocks of operands; `None` if they are small, or cannot be cut."""
        places = [i for i, value in enumerate(values) if getattr(value, "ndim", 0)]
        if not places:
            return None
        shapes = [tuple(values[i].shape) for i in places]
        if all(is_numpy(values[i]) for i in places):
            try:
                shape = np.broadcast_shapes(*shapes)
            except ValueError:
                return None  # the expression itself says which shapes do not fit
            return cls(values, shape, places, "numpy") if math.prod(shape) >= MIN_ITEMS else None
        if (
            all(array_kind(values[i]) == "torch" and values[i].device.type == "cpu" for i in places)
            and all(shape == shapes[0] for shape in shapes)
            and all(values[i].is_contiguous() for i in places)
        ):
            return cls(values, shapes[0], places, "torch")
        return None

    def cut(self, order: str = "C") -> Iterator[tuple[Any, ...]]:
        """Yield the operands of each block: items in one dimension; what is not an array stays as it is."""
        arrays = [self.values[i] for i in self.places]
        operands = list(self.values)
        for parts in self._numpy(arrays, order) if self.library == "numpy" else self._torch(arrays):
            for i, part in zip(self.places, parts, strict=True):
                operands[i] = part
            yield tuple(operands)

    def _numpy(self, arrays: list[Any], order: str) -> Iterator[Sequence[Any]]:
        if all(array.flags.c_contiguous and array.shape == self.shape for array in arrays):
            flat = [array.reshape(-1) for array in arrays]
            for i in range(0, self.size, BLOCK):
                yield [array[i : i + BLOCK] for array in flat]
            return
        flags = ["external_loop", "buffered", "zerosize_ok"]
        with np.nditer(arrays, flags, [["readonly"]] * len(arrays), order=order, buffersize=BLOCK) as parts:  # type: ignore[call-overload]
            for part in parts:
                yield part if len(arrays) > 1 else (part,)

    def _torch(self, arrays: list[Any]) -> Iterator[Sequence[Any]]:
        flat = [array.detach().reshape(-1) for array in arrays]
        for i in range(0, self.size, BLOCK):
            yield [array[i : i + BLOCK] for array in flat]

    def map(self, body: Body, meter: Meter, what: str) -> Value:
        """Return the result of an expression that works item by item.

        Raises:
            RefusedQueryError: The operands broadcast to a result that is too large.
        """
        check_broadcast(*(self.values[i] for i in self.places))
        out: Any = None
        for operands in self.cut():
            block = body(operands)
            start, self.n_done = self.n_done, self.n_done + block.shape[0]
            if out is None:
                meter.makes(self.size, block)
                out = np.empty(self.size, block.dtype) if self.library == "numpy" else block.new_empty(self.size)
            out[start : self.n_done] = block
            meter.check(what)
        return out.reshape(self.shape)

    def reduce(self, name: str, body: Body, meter: Meter, what: str) -> Value:
        """Return a statistic of all items of an expression that works item by item."""
        parts: list[Any] = []
        sizes: list[int] = []
        for operands in self.cut("K"):
            block = body(operands)
            sizes.append(block.shape[0])
            self.n_done += sizes[-1]
            parts.append(_partial(name, block))
            meter.check(what)
        return _combined(name, parts, sizes)


def _partial(name: str, block: Value) -> Any:
    """Return what the statistic of all blocks needs of one."""
    if name in ("var", "std"):
        return FUNCTIONS["mean"].call(block), FUNCTIONS["var"].call(block)
    return FUNCTIONS[name].call(block)


def _combined(name: str, parts: list[Any], sizes: list[int]) -> Value:
    """Return the statistic of all items from those of the blocks."""
    if name in ("var", "std"):
        means, variances = (_stacked(column) for column in zip(*parts, strict=True))
        offsets = means - _mean(means, sizes)
        squares = offsets * offsets.conj() if "complex" in str(offsets.dtype) else offsets * offsets
        variance = _mean(variances + squares, sizes)
        return FUNCTIONS["abs"].call(variance if name == "var" else FUNCTIONS["sqrt"].call(variance))
    stacked = _stacked(parts)
    return _mean(stacked, sizes) if name == "mean" else FUNCTIONS[name].call(stacked)


def _stacked(parts: Sequence[Value]) -> Value:
    return namespace(parts[0]).stack(list(parts))


def _mean(means: Value, sizes: list[int]) -> Value:
    """Return the mean of blocks' means, in their dtype."""
    xp, total = namespace(means), sum(sizes)
    weights = xp.asarray([n / total for n in sizes], dtype=means.dtype)
    mean = xp.sum(means * weights)
    return means.dtype.type(mean) if xp is np else mean
