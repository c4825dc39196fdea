"""Statistics of tensors without the evaluator: most queries about a module ask for one number for each tensor.

The evaluator prices and checks each operation, which takes longer than the statistic of a small tensor. So statistics
that take half a millisecond together are computed between two looks at the clock. The results are those of the
evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch

from sightglass.query import expressions as e
from sightglass.query.blocks import MIN_ITEMS
from sightglass.query.functions import FUNCTIONS
from sightglass.query.functions.histograms import histogram_of_tensor, histograms_of_tensors
from sightglass.query.limits import MAX_BINS

READ: Final = 2**21  # items that are read in half a millisecond, and the same for those that are counted
COUNTED: Final = 2**19
DTYPES: Final = (torch.float32, torch.float64)
NUMBERS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "norm": torch.linalg.vector_norm, "sum": torch.sum, "min": torch.min, "max": torch.max, "mean": torch.mean,
}  # fmt: skip
# Not public, but what `torch.nn.utils.clip_grad_norm_` calls: one call for tensors of any devices and dtypes. A version
# of PyTorch without it computes norms one by one.
OF_MANY: Final = {"norm": getattr(torch, "_foreach_norm", None)}
SKIP_ZEROS: Final = ("norm", "sum")


class Statistic(NamedTuple):
    """A statistic of small tensors.

    Attributes:
        of: Computes it of one tensor, on its device.
        largest: Of a tensor of more items, the evaluator computes it in blocks.
        most: How many items may be read between two looks at the clock.
        skips_zeros: Whether it is the same without the items that are zero.
        of_many: Computes it of several tensors in one call, if PyTorch can.
    """

    of: Callable[[torch.Tensor], Any]
    largest: int
    most: int
    skips_zeros: bool = False
    of_many: Callable[[Sequence[torch.Tensor]], Sequence[Any]] | None = None

    def n_taken(self, values: Sequence[Any], start: int = 0) -> int:
        """Return how many values from `start` on it takes at once: dense tensors of numbers, small, and not empty."""
        n_items = 0
        for i in range(start, len(values)):
            x = values[i]
            if type(x) is not torch.Tensor or x.dtype not in DTYPES or x.layout is not torch.strided:
                return i - start
            n = x.numel()
            n_items += n
            if not 0 < n <= self.largest or n_items > self.most:
                return i - start
        return len(values) - start

    def of_each(self, values: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Return the statistic of each tensor, on its device."""
        return self.of_many(values) if self.of_many and len(values) > 1 else [self.of(x) for x in values]

    def numbers(self, values: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Return the statistics, as Python's numbers where they are on the host; the training waits for no device."""
        if self.of is torch.mean:  # whose code takes twice as long where it is not in the processor's cache
            return [torch.sum(x).item() / x.numel() if x.is_cpu else torch.mean(x) for x in values]
        found = self.of_each(values)
        return [one.item() if isinstance(one, torch.Tensor) and one.is_cpu else one for one in found]


def statistic(tree: e.Lambda) -> Statistic | None:
    """Return a part's expression as a statistic of its last argument, the tensor; `None` if it is another one."""
    *others, tensor = tree.params

    def is_tensor(part: e.Expr) -> bool:
        return isinstance(part, e.Var) and part.name == tensor not in others

    match tree.body:
        case e.Call(name="histogram", args=(of, *rest), kwargs=()) if is_tensor(of):
            if all(isinstance(part, e.Const) for part in rest):
                histogram, bins = FUNCTIONS["histogram"].call, [part.value for part in rest]  # type: ignore[attr-defined]
                n_bins = bins[0] if len(bins) == 1 and type(bins[0]) is int and 0 < bins[0] <= MAX_BINS else 0

                def counted(x: torch.Tensor) -> Any:
                    return histogram_of_tensor(x, n_bins) if n_bins and x.is_cpu else histogram(x, *bins)

                def counted_together(values: Sequence[torch.Tensor]) -> Any:
                    together = n_bins and all(x.is_cpu for x in values)
                    return histograms_of_tensors(values, n_bins) if together else [*map(counted, values)]

                return Statistic(counted, COUNTED, COUNTED, of_many=counted_together)
        case e.Call(name=name, args=(of,), kwargs=()) if is_tensor(of) and name in NUMBERS:
            largest = MIN_ITEMS - 1 if name == "norm" else READ
            return Statistic(NUMBERS[name], largest, READ, skips_zeros=name in SKIP_ZEROS, of_many=OF_MANY.get(name))
        case e.Call(name=name, args=(e.Call(name="abs", args=(of,), kwargs=()),), kwargs=()) if name in NUMBERS:
            if is_tensor(of):
                return Statistic(lambda x: NUMBERS[name](x.abs()), MIN_ITEMS - 1, READ, skips_zeros=name in SKIP_ZEROS)
    return None
