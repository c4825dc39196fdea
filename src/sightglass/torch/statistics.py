"""Statistics of tensors without the evaluator: most queries about a module ask for one number for each tensor.

The evaluator prices and checks each operation, which takes longer than the statistic of a small tensor. Tensors whose
statistics take half a millisecond together need neither. The results are those of the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch

from sightglass.query import expressions as e
from sightglass.query.blocks import MIN_ITEMS
from sightglass.query.functions import FUNCTIONS

READ: Final = 2**21  # items that are read in half a millisecond, and the same for those that are counted
COUNTED: Final = 2**17
DTYPES: Final = (torch.float32, torch.float64)
NUMBERS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "norm": torch.linalg.vector_norm, "sum": torch.sum, "min": torch.min, "max": torch.max,
    "mean": lambda x: torch.sum(x) / x.numel(),  # twice as fast as `torch.mean` where its code is not in the cache
}  # fmt: skip


class Statistic(NamedTuple):
    """A statistic of each of several tensors, on its device.

    Attributes:
        of_all: Computes it.
        largest: Of a tensor of more items, the evaluator computes it in blocks.
        most: How many items all tensors may have together.
    """

    of_all: Callable[[Sequence[torch.Tensor]], Sequence[Any]]
    largest: int
    most: int

    def takes(self, values: Sequence[Any]) -> bool:
        """Return whether all values are dense tensors of numbers, small, and not empty."""
        n_items = 0
        for x in values:
            if type(x) is not torch.Tensor or x.dtype not in DTYPES or not 0 < (n := x.numel()) <= self.largest:
                return False
            n_items += n
        return n_items <= self.most


def statistic(tree: e.Lambda) -> Statistic | None:
    """Return a part's expression as a statistic of its last argument, the tensor; `None` if it is another one."""
    *others, tensor = tree.params

    def is_tensor(part: e.Expr) -> bool:
        return isinstance(part, e.Var) and part.name == tensor not in others

    match tree.body:
        case e.Call(name="histogram", args=(of, *rest), kwargs=()) if is_tensor(of):
            if all(isinstance(part, e.Const) for part in rest):
                histogram, bins = FUNCTIONS["histogram"].call, [part.value for part in rest]  # type: ignore[attr-defined]
                return Statistic(lambda tensors: [histogram(x, *bins) for x in tensors], COUNTED, COUNTED)
        case e.Call(name=name, args=(of,), kwargs=()) if is_tensor(of) and name in NUMBERS:
            largest = MIN_ITEMS - 1 if name == "norm" else READ
            return Statistic(lambda tensors: list(map(NUMBERS[name], tensors)), largest, READ)
        case e.Call(name=name, args=(e.Call(name="abs", args=(of,), kwargs=()),), kwargs=()) if name in NUMBERS:
            if is_tensor(of):
                return Statistic(lambda tensors: [NUMBERS[name](x.abs()) for x in tensors], MIN_ITEMS - 1, READ)
    return None
