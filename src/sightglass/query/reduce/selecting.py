"""The reducers that keep some of the values as they came: the first ones, the largest, a sample.

Random choices depend on a seed and the event's ordinal, so that the same events give the same sample in any order and
in any chunks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sightglass.core.errors import EvaluationError
from sightglass.core.values import Value, to_host, type_name
from sightglass.query.limits import check_count

from . import columns as of_columns
from .reducer import Place, RankedValue, Reducer, State, check_text, real, stored


def first() -> Reducer:
    """Return the reducer of the first value."""
    return Reducer(
        name="first",
        start=lambda: None,
        update=lambda s, x, i: (i, stored(x)) if s is None else s,
        finish=lambda s: s and s[1],
        of_block=of_columns.of_block("first"),
        merge=lambda a, b: min((s for s in (a, b) if s), key=lambda s: s[0], default=None),
        slides=True,
    )


def last() -> Reducer:
    """Return the reducer of the last value."""
    return Reducer(
        name="last",
        start=lambda: None,
        update=lambda s, x, i: (i, stored(x)),
        finish=lambda s: s and s[1],
        of_block=of_columns.of_block("last"),
        merge=lambda a, b: max((s for s in (a, b) if s), key=lambda s: s[0], default=None),
        slides=True,
    )


def _keep_largest(state: list[Any], entry: Value, k: int) -> list[Any]:
    if len(state) < k:
        heapq.heappush(state, RankedValue((*entry[:2], stored(entry[2], len(state) + 1))))
    elif entry[:2] > state[0][:2]:
        heapq.heapreplace(state, RankedValue((*entry[:2], stored(entry[2], k))))
    return state


def top(k: object, key: Callable[[Any], Any] | None = None) -> Reducer:
    """Return the reducer of the k largest values, or of those with the largest `key(value)`."""
    k = check_count(k, name="k")

    def update(state: list[Any], value: object, ordinal: int) -> list[Any]:
        rank = real(key(value) if key else value)
        if isinstance(rank, np.ndarray):
            raise EvaluationError(f"Expected one number to rank by, got {type_name(rank)}: use key=lambda x: …")
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


def sample(k: object, *, seed: int = 0) -> Reducer:
    """Return the reducer of k random values: a uniform sample without replacement, in any order of arrival."""
    # It stores the k events of the largest random ranks.
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


def collect(limit: object = 1000) -> Reducer:
    """Return the reducer of the first `limit` values."""
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
        n_first=limit,
    )


def arg(name: str) -> Reducer:
    """Return the reducer `argmin` or `argmax`, whose state is (number, ordinal, step)."""
    sign = 1 if name == "argmin" else -1

    def rank(state: State) -> tuple[float, int]:
        return (-math.inf if math.isnan(state[0]) else sign * state[0]), state[1]

    def choose(a: State, b: State) -> State:
        return (a if b is None else b) if a is None or b is None else min(a, b, key=rank)

    def update(state: State, value: tuple[object, Place], ordinal: int) -> State:
        x = real(value[0])
        if isinstance(x, np.ndarray):
            raise EvaluationError(f"Expected numbers for {name}, got {type_name(x)}")
        return choose(state, (x, ordinal, value[1][0]))

    return Reducer(
        name=name, start=lambda: None, update=update,
        finish=lambda s: s and {"step": s[2], "value": s[0]}, merge=choose, slides=True, reads_place=True,
        of_block=of_columns.of_block(name),
    )  # fmt: skip


def _one_nan(value: Any) -> Any:
    """Return a value; for any NaN the same object, which is equal to itself as a key. Those of a message are others."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def distinct(limit: object = 1000) -> Reducer:
    """Return the reducer of the first `limit` distinct numbers and texts."""
    limit = check_count(limit, name="limit")

    def update(state: dict[Any, int], value: object, ordinal: int) -> dict[Any, int]:
        value = to_host(value)
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, bool | int | float | str | None):
            raise EvaluationError(f"Expected numbers or texts for distinct, got {type_name(value)}")
        if len(state) < limit:
            check_text(value, len(state) + 1)
            state.setdefault(_one_nan(value), ordinal)
        return state

    def merge(a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
        a, b = ({_one_nan(value): ordinal for value, ordinal in state.items()} for state in (a, b))
        first = {value: min(a.get(value, ordinal), ordinal) for value, ordinal in b.items()}
        return dict(sorted({**a, **first}.items(), key=lambda entry: entry[1])[:limit])

    return Reducer(name="distinct", start=dict, update=update, finish=list, merge=merge, slides=False)
