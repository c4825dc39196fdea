"""The reducers: many values to one, in constant memory.

NaN is never hidden: it makes a mean, a minimum or a quantile NaN. Random choices depend on a seed and the event's
ordinal, so that the same events give the same sample in any order and in any chunks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sightglass.core.copies import snapshot
from sightglass.core.errors import EvaluationError, QueryError, RefusedQueryError
from sightglass.core.guarded import is_container, rebuild
from sightglass.core.values import Value, to_host, type_name

from .limits import PLAIN, check_count, check_int
from .reduction import Reducer, State, by_name, check_alike, real, stored, wide
from .sketches import Bins, Quantiles

SKETCH_NS = 4_000.0  # to begin a sketch of a number, the slowest update


def reducer(name: str, args: Mapping[str, Any], *, seed: int = 0) -> Reducer:
    """Return the reducer of a name.

    Args:
        name: A key of `BUILDERS`.
        args: The reducer's arguments; `by` and `fn` are Python functions.
        seed: The seed of `sample`.

    Raises:
        QueryError: An argument is not valid.
    """
    if name == "sample":
        return _sample(seed=seed, **args)
    return BUILDERS[name](**args)


def _count() -> Reducer:
    return Reducer(
        name="count", start=lambda: 0, update=lambda n, x, i: n + 1, finish=lambda n: n, merge=lambda a, b: a + b,
        number_ns=0.0, n_copies=0, n_held=0,
    )  # fmt: skip


def _sum() -> Reducer:
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

    return by_name(Reducer(name="sum", start=lambda: 0, update=update, finish=lambda s: s, merge=add))


def _wrapped(a: Value, b: Value, total: Value) -> Value:
    """Return where a sum of integers overflowed: its sign differs from the sign of both summands."""
    return total < a if total.dtype.kind == "u" else ((a ^ total) & (b ^ total)) < 0


def _mean() -> Reducer:
    def update(state: State, value: object, ordinal: int) -> State:
        x = wide(value)
        check_alike(state[1], x)
        return state[0] + 1, state[1] + x

    def merge(a: State, b: State) -> State:
        check_alike(a[1], b[1])
        return a[0] + b[0], a[1] + b[1]

    def finish(state: State) -> Value:
        return state[1] / state[0] if state[0] else math.nan

    return by_name(Reducer(name="mean", start=lambda: (0, 0.0), update=update, finish=finish, merge=merge))


def _moments_update(state: State, value: object, ordinal: int) -> State:
    """Welford's update; see Chan, Golub and LeVeque (1979), "Updating formulae", for the merge."""
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
    n = a[0] + b[0]
    delta = b[1] - a[1]
    return n, a[1] + delta * (b[0] / n), a[2] + b[2] + delta * delta * (a[0] * b[0] / n)


def _var(name: str = "var") -> Reducer:
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
        )
    )


def _extreme(name: str) -> Reducer:
    pick, of_arrays = (min, np.minimum) if name == "min" else (max, np.maximum)

    def choose(a: Value, b: Value) -> Value:
        if a is None or b is None:
            return stored(a if b is None else b)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            check_alike(a, b)
            return of_arrays(a, b)
        return a if math.isnan(a) else b if math.isnan(b) else pick(a, b)

    update = lambda state, value, ordinal: choose(state, real(value))  # noqa: E731
    return by_name(Reducer(name=name, start=lambda: None, update=update, finish=lambda s: s, merge=choose))


def _first() -> Reducer:
    return Reducer(
        name="first",
        start=lambda: None,
        update=lambda s, x, i: (i, stored(x)) if s is None else s,
        finish=lambda s: s and s[1],
        merge=lambda a, b: min((s for s in (a, b) if s), key=lambda s: s[0], default=None),
    )


def _last() -> Reducer:
    return Reducer(
        name="last",
        start=lambda: None,
        update=lambda s, x, i: (i, stored(x)),
        finish=lambda s: s and s[1],
        merge=lambda a, b: max((s for s in (a, b) if s), key=lambda s: s[0], default=None),
    )


def _quantile(q: object) -> Reducer:
    wanted = tuple(q) if isinstance(q, list | tuple) else (q,)
    if not wanted or any(isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1 for p in wanted):
        raise QueryError(f"Expected q between 0 and 1, or a list of them, got {q!r}")

    def finish(state: Quantiles) -> Value:
        results = tuple(state.at(p) for p in wanted)
        return results if isinstance(q, list | tuple) else results[0]

    return by_name(
        Reducer(
            name="quantile",
            start=Quantiles,
            update=lambda s, x, i: s.add(real(x)),
            finish=finish,
            merge=lambda a, b: a.merge(b),
            state_bytes=64 * 1024,
            number_ns=SKETCH_NS,
            n_copies=1,
            n_held=0,
        )
    )


def _histogram(bins: object = 64) -> Reducer:
    bins = check_count(bins, name="bins")
    return by_name(
        Reducer(
            name="histogram",
            start=lambda: Bins(bins),
            update=lambda s, x, i: s.add(real(x)),
            finish=lambda s: s.histogram(),
            merge=lambda a, b: a.merge(b),
            state_bytes=8 * bins,
            number_ns=SKETCH_NS,
            n_copies=1,
            n_held=0,
        )
    )


def _keep_largest(state: list[Any], entry: Value, k: int) -> list[Any]:
    if len(state) < k:
        heapq.heappush(state, RankedValue((*entry[:2], stored(entry[2], len(state) + 1))))
    elif entry[:2] > state[0][:2]:
        heapq.heapreplace(state, RankedValue((*entry[:2], stored(entry[2], k))))
    return state


class RankedValue(tuple[Any, ...]):
    """A value with its rank; compares by the rank alone, never by the value."""

    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return bool(self[:2] < other[:2])


def _top(k: object, by: Callable[[Any], Any] | None = None) -> Reducer:
    k = check_count(k, name="k")

    def update(state: list[Any], value: object, ordinal: int) -> list[Any]:
        rank = real(by(value) if by else value)
        if isinstance(rank, np.ndarray):
            raise EvaluationError(f"Expected one number to rank by, got {type_name(rank)}: use by=lambda x: …")
        return _keep_largest(state, (-math.inf if math.isnan(rank) else rank, -ordinal, value), k)

    def merge(a: list[Any], b: list[Any]) -> list[Any]:
        for entry in b:
            _keep_largest(a, entry, k)
        return a

    def finish(state: list[Any]) -> list[Any]:
        return [entry[2] for entry in sorted(state, reverse=True)]

    return Reducer(name="top", start=list, update=update, finish=finish, merge=merge)


def scramble(seed: int, ordinal: int) -> int:
    """Hash two integers to 64 random bits (SplitMix64, Steele, Lea and Flood 2014)."""
    z = (seed + (ordinal + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


def _sample(k: object, *, seed: int = 0) -> Reducer:
    """Store the k events of the largest random ranks: a uniform sample without replacement, in any order of arrival."""
    k = check_count(k, name="k")

    def merge(a: list[Any], b: list[Any]) -> list[Any]:
        for entry in b:
            _keep_largest(a, entry, k)
        return a

    return Reducer(
        name="sample",
        start=list,
        update=lambda s, x, i: _keep_largest(s, (scramble(seed, i), i, x), k),
        finish=lambda s: [entry[2] for entry in sorted(s, key=lambda entry: entry[1])],
        merge=merge,
    )


def _collect(limit: object = 1000) -> Reducer:
    limit = check_count(limit, name="limit")

    def update(state: list[Any], value: object, ordinal: int) -> list[Any]:
        if len(state) < limit:
            state.append((ordinal, stored(value, len(state) + 1)))
        return state

    return Reducer(
        name="collect",
        start=list,
        update=update,
        finish=lambda s: [value for _, value in s],
        merge=lambda a, b: sorted([*a, *b], key=lambda entry: entry[0])[:limit],
    )


def _reduce(fn: Callable[[Any, Any], Any], init: object) -> Reducer:
    def update(state: object, value: object, ordinal: int) -> Value:
        result = _plain(fn(state, value))
        if structure(result) != structure(state):
            raise EvaluationError(
                f"Expected the accumulator to stay {structure(state)}, got {structure(result)}: "
                "the function must return the structure, shape and type of `init`"
            )
        return result

    return Reducer(name="reduce", start=lambda: snapshot(init), update=update, finish=lambda s: s)


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


BUILDERS: dict[str, Callable[..., Reducer]] = {
    "count": _count,
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "std": lambda: _var("std"),
    "min": lambda: _extreme("min"),
    "max": lambda: _extreme("max"),
    "first": _first,
    "last": _last,
    "quantile": _quantile,
    "histogram": _histogram,
    "top": _top,
    "sample": _sample,
    "collect": _collect,
    "reduce": _reduce,
}
