"""The reducers of numbers: many values to one, in constant memory.

NaN is never hidden: it makes a mean, a minimum or a quantile NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, RefusedQueryError
from sightglass.core.program_values.copier import snapshot
from sightglass.core.program_values.guarded import is_container, rebuild
from sightglass.core.values import Value, to_host, type_name
from sightglass.query.limits import PLAIN, check_count, check_int

from . import columns as of_columns
from .reducer import Place, Reducer, State, by_name, check_alike, difference, floating, real, stored, wide
from .sketches import Bins, Quantiles, SortedNumbers

SKETCH_NS: Final = 4_000.0  # to begin a sketch of a number, the slowest update
INT64_MAX: Final = 2**63 - 1


def count() -> Reducer:
    """Return the reducer that counts values."""
    return Reducer(
        name="count", start=lambda: 0, update=lambda n, x, i: n + 1, finish=lambda n: n, merge=lambda a, b: a + b,
        number_ns=0.0, n_copies=0, n_held=0, slides=True, of_block=of_columns.of_block("count"),
    )  # fmt: skip


def total() -> Reducer:
    """Return the reducer of the sum."""

    def add(a: Value, b: Value) -> Value:
        check_alike(a, b)
        total = check_int(a + b)
        if isinstance(total, np.ndarray) and total.dtype.kind in "iu" and np.any(_wrapped(a, b, total)):
            raise RefusedQueryError(
                "Expected sums of at most 64 bits, got larger ones: convert the values to floats first"
            )
        return total

    def update(state: object, value: object, ordinal: int) -> Value:
        return add(state, wide(value))

    return by_name(
        Reducer(
            name="sum", start=lambda: 0, update=update, finish=lambda s: s, merge=add, slides=True,
            of_floats=(operator.add, _whole), of_block=_total_of_block,
        )
    )  # fmt: skip


def _total_of_block(columns: Columns, first_ordinal: int) -> State:
    values = columns.values
    if values.dtype == np.int64 and max(-int(values.min()), int(values.max())) * len(values) > INT64_MAX:
        return check_int(sum(values.tolist()))
    return values.sum().item()


def _whole(combined: float, n: int) -> float:
    return combined


def _wrapped(a: Value, b: Value, total: Value) -> Value:
    """Return where a sum of integers overflowed: its sign differs from the sign of both summands."""
    return total < a if total.dtype.kind == "u" else ((a ^ total) & (b ^ total)) < 0


def mean() -> Reducer:
    """Return the reducer of the arithmetic mean."""

    def update(state: State, value: Any, ordinal: int) -> State:
        if type(value) not in PLAIN:
            value = wide(value)
            check_alike(state[1], value)
        return state[0] + 1, state[1] + value

    def merge(a: State, b: State) -> State:
        if type(a[1]) is not float:
            check_alike(a[1], b[1])
        return a[0] + b[0], a[1] + b[1]

    def finish(state: State) -> Value:
        return state[1] / state[0] if state[0] else math.nan

    return by_name(
        Reducer(
            name="mean", start=lambda: (0, 0.0), update=update, finish=finish, merge=merge, slides=True,
            of_floats=(operator.add, operator.truediv), of_block=of_columns.of_block("mean"),
        )
    )  # fmt: skip


def _moments_update(state: State, value: object, ordinal: int) -> State:
    """Welford's update."""
    n, mean, m2 = state
    x = wide(value)
    check_alike(mean, x)
    delta = x - mean
    mean = mean + delta / (n + 1)
    return n + 1, mean, m2 + delta * (x - mean)


def _moments_merge(a: State, b: State) -> State:
    if not a[0] or not b[0]:
        return a if a[0] else b
    check_alike(a[1], b[1])
    return of_columns.merge_moments(a, b)


def var(name: str = "var") -> Reducer:
    """Return the reducer of the variance, or of the standard deviation, by its name."""

    def finish(state: State) -> Value:
        variance = state[2] / state[0] if state[0] else math.nan
        return variance if name == "var" else variance**0.5

    return by_name(
        Reducer(
            name=name,
            start=lambda: (0, 0.0, 0.0),
            update=_moments_update,
            finish=finish,
            merge=_moments_merge,
            n_copies=8,
            n_held=2,
            slides=True,
            of_block=of_columns.of_block(name),
        )
    )


def extreme(name: str) -> Reducer:
    """Return the reducer `min` or `max`."""
    pick, of_arrays = (min, np.minimum) if name == "min" else (max, np.maximum)

    def choose(a: Value, b: Value) -> Value:
        if a is None or b is None:
            return stored(a if b is None else b)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            check_alike(a, b)
            return of_arrays(a, b)
        return a if math.isnan(a) else b if math.isnan(b) else pick(a, b)

    update = lambda state, value, ordinal: choose(state, real(value))  # noqa: E731
    return by_name(
        Reducer(
            name=name, start=lambda: None, update=update, finish=lambda s: s, merge=choose, slides=True,
            of_floats=(_smaller if name == "min" else _larger, _whole), of_block=of_columns.of_block(name),
        )
    )  # fmt: skip


def _smaller(a: float, b: float) -> float:
    return a if a <= b or a != a else b  # noqa: PLR0124  a NaN stays; twice as fast as `math.isnan`


def _larger(a: float, b: float) -> float:
    return a if a >= b or a != a else b  # noqa: PLR0124


def quantile(q: object, *, name: str = "quantile", whole: float = 1) -> Reducer:
    """Return the reducer of the q-quantile, or of several; `whole` is the greatest q."""
    wanted = tuple(q) if isinstance(q, list | tuple) else (q,)
    if not wanted or any(isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= whole for p in wanted):
        raise QueryError(f"Expected q between 0 and {whole}, or a list of them, got {q!r}")

    def finish(state: Quantiles | SortedNumbers) -> Value:
        results = tuple(state.at(p / whole) for p in wanted)
        return results if isinstance(q, list | tuple) else results[0]

    return by_name(
        Reducer(
            name=name,
            start=Quantiles,
            update=lambda s, x, i: s.add(real(x)),
            finish=finish,
            merge=lambda a, b: a.merge(b),
            of_block=lambda columns, first_ordinal: Quantiles().add(columns.values),
            is_approximate=lambda s: not s.is_exact,
            of_sorted=finish,
            state_bytes=64 * 1024,
            number_ns=SKETCH_NS,
            n_copies=1,
            n_held=0,
        )
    )


def median() -> Reducer:
    """Return the reducer of the median."""
    return quantile(0.5, name="median")


def percentile(q: object) -> Reducer:
    """Return the reducer of the q-th percentile, or of several."""
    return quantile(q, name="percentile", whole=100)


def histogram(bins: object = 64) -> Reducer:
    """Return the reducer of a histogram."""
    bins = check_count(bins, name="bins")
    return by_name(
        Reducer(
            name="histogram",
            start=lambda: Bins(bins),
            update=lambda s, x, i: s.add(real(x)),
            finish=lambda s: s.histogram(),
            merge=lambda a, b: a.merge(b),
            of_block=lambda columns, first_ordinal: Bins(bins).add(columns.values),
            state_bytes=8 * bins,
            number_ns=SKETCH_NS,
            n_copies=1,
            n_held=0,
        )
    )


def fold(fn: Callable[[Any, Any], Any], init: object) -> Reducer:
    """Return the reducer that folds values with a function."""

    def update(state: object, value: object, ordinal: int) -> Value:
        result = _plain(fn(state, value))
        if structure(result) != structure(state) and not _takes_place_of(result, state):
            raise EvaluationError(
                f"Expected the accumulator to stay {structure(state)}, got {structure(result)}: "
                "the function must return the structure, shape and type of `init`"
            )
        return result

    return Reducer(name="reduce", start=lambda: snapshot(init), update=update, finish=lambda s: s)


def scan(fn: Callable[[Any, Any], Any], init: object) -> Reducer:
    """Return the reducer that gives what `fold` has after each value."""
    return replace(fold(fn, init), name="scan")


def ema(alpha: object) -> Reducer:
    """Return the reducer of the exponential moving average."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1:
        raise QueryError(f"Expected alpha above 0 and at most 1, got {alpha!r}")

    def update(state: Value, value: object, ordinal: int) -> Value:
        x = floating(value)
        check_alike(state, x)
        if state is None or alpha == 1:
            return x
        found = state + alpha * (x - state)
        # After an infinity that is NaN. The other form of the formula is not, and rounds a little more.
        if isinstance(found, np.ndarray):
            lost = np.isnan(found)
            return np.where(lost, (1 - alpha) * state + alpha * x, found) if lost.any() else found
        return found if found == found else (1 - alpha) * state + alpha * x  # noqa: PLR0124  it is a number

    return by_name(Reducer(name="ema", start=lambda: None, update=update, finish=lambda s: s))


def diff() -> Reducer:
    """Return the reducer of the difference to the value before."""

    def update(state: State, value: object, ordinal: int) -> State:
        x = wide(value)
        check_alike(state[1], x)
        return state[1], x

    def finish(state: State) -> Value:
        before, x = state
        return math.nan if before is None else difference(x, before)

    return replace(
        by_name(Reducer(name="diff", start=lambda: (None, None), update=update, finish=finish, n_held=2)), n_needed=2
    )


def rate() -> Reducer:
    """Return the reducer of the number of values per second."""

    def merge(a: State, b: State) -> State:
        return (a if b is None else b) if a is None or b is None else (a[0] + b[0], min(a[1], b[1]), max(a[2], b[2]))

    def update(state: State, value: tuple[object, Place], ordinal: int) -> State:
        return merge(state, (1, value[1][1], value[1][1]))

    def finish(state: State) -> float:
        n, first_s, last_s = state or (0, 0.0, 0.0)
        return (n - 1) / (last_s - first_s) if last_s > first_s else math.nan

    return Reducer(
        name="rate", start=lambda: None, update=update, finish=finish, merge=merge, slides=True, reads_place=True,
        n_copies=0, n_held=0, of_block=lambda c, first: (len(c), float(c.wall_times.min()), float(c.wall_times.max())),
    )  # fmt: skip


def _plain(value: object) -> Value:
    """Convert NumPy scalars to Python numbers, so that `init=0.0` stays a float, and check the size of integers.

    Arrays are copied: they may be part of a value that the program overwrites.
    """
    if type(value) in PLAIN:
        return check_int(value)
    value = stored(to_host(value))
    if is_container(value):
        return rebuild(value, _plain)
    return check_int(value.item() if isinstance(value, np.generic) else value)


def structure(value: object) -> Value:
    """Return what must not change in an accumulator: keys, lengths, shapes and types."""
    if isinstance(value, Mapping):
        return {key: structure(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [structure(item) for item in value]
    return type_name(value)


def _shape(values: object) -> tuple[int, ...] | None:
    """Return the shape of numbers, or of lists of numbers; `None` if they have none."""
    if not isinstance(values, list):
        return () if isinstance(values, int | float) else None
    inner = {_shape(value) for value in values}
    shape = inner.pop() if len(inner) == 1 else None
    return None if shape is None else (len(values), *shape)


def _takes_place_of(result: object, state: object) -> bool:
    """Return whether a value has the structure of another one, with arrays for lists of as many numbers."""
    if isinstance(result, np.ndarray) and isinstance(state, list):
        return bool(_shape(state) == result.shape)
    if isinstance(result, Mapping) and isinstance(state, Mapping):
        return result.keys() == state.keys() and all(_takes_place_of(result[key], state[key]) for key in state)
    if isinstance(result, list | tuple) and isinstance(state, list | tuple):
        return len(result) == len(state) and all(map(_takes_place_of, result, state))
    return bool(structure(result) == structure(state))
