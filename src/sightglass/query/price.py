"""The price of an expression: what its evaluation would cost, from the shapes of the values it reads.

The expression is walked as the evaluator would, with an `ArraySpec` in place of each array that it would compute.
Nothing is computed on arrays, copied, or waited for; plain numbers are computed, since indices and sizes depend on
them. Where the walk cannot know, it assumes the most: a condition selects all items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sightglass.core.errors import SightglassError
from sightglass.core.guarded import FAILURES

from . import expressions as e
from .costs import CostModel
from .price_walk import MAX_STEPS, EnoughError, PriceWalk


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a query costs for one event.

    Attributes:
        seconds: The time of one thread.
        n_bytes: The most bytes that are alive at a time, besides the observables.
        python_s: The part of `seconds` that holds the interpreter's lock.
        largest: The operation that costs most, as text; empty if all are small.
        largest_bytes: The bytes of the largest observable that it reads.
        n_items: The items of that observable.
        known: Whether the price of every part is known.
        sized: Whether the bytes of every part are known: not where a function of the run is called, for example.
        more: Whether it is higher than that.
    """

    seconds: float
    n_bytes: int
    python_s: float
    largest: str = ""
    largest_bytes: int = 0
    n_items: int = 0
    known: bool = True
    sized: bool = True
    more: bool = False


def price_of(
    tree: e.Lambda,
    values: Iterable[object],
    model: CostModel,
    *,
    measured: Mapping[int, float] | None = None,
    samples: int = 0,
    enough: tuple[float, float] = (math.inf, math.inf),
    is_late: Callable[[], bool] = bool,
) -> Price:
    """Return what a lambda costs on these values.

    Args:
        tree: The lambda.
        values: Its arguments; the first one may be the observables of an event.
        model: The costs of operations on this machine.
        measured: By `id` of parts of the tree that are evaluated in blocks, the nanoseconds that an item took.
        samples: If positive, the price with arrays of more items replaced by samples of this many.
        enough: Stop when the price is as high, in seconds or bytes: it is then at least that.
        is_late: Returns whether there is no time to go on; asked every `LATE` steps.
    """
    walk = PriceWalk(model, measured or {}, samples, enough[0] * 1e9, enough[1], is_late)
    known, more = True, False
    try:
        walk.value(tree.body, dict(zip(tree.params, values, strict=True)))
    except SightglassError:
        pass  # the evaluation raises it too, once it has come as far
    except EnoughError:
        more, walk.sized = True, False
        if walk.n_steps > MAX_STEPS:
            walk.ns = max(walk.ns, walk.enough_ns)
    except FAILURES:
        known = walk.sized = False
    return Price(
        seconds=walk.ns / 1e9,
        n_bytes=int(walk.peak),
        python_s=walk.python_ns / 1e9,
        largest=walk.largest,
        largest_bytes=walk.largest_bytes,
        n_items=walk.n_items,
        known=known,
        sized=walk.sized,
        more=more,
    )
