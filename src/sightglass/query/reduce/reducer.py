"""What a reducer is, and what all reducers do with the values that they get.

A reducer is three functions, `start() -> state`, `update(state, value, ordinal) -> state` and `finish(state) -> value`,
plus `merge(state, state) -> state` where the mathematics allows it. They use only their arguments. `update` and `merge`
may change the states they get and return one of them, so that a sketch can grow in place.

Numbers are accumulated in 64 bits, floats as float64. Mappings and tuples of numbers are reduced name by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.program_values.array_data import seconds_of
from sightglass.core.program_values.copier import snapshot
from sightglass.core.values import Value, is_extended, n_bytes, to_host, type_name
from sightglass.query.limits import MAX_RESULT_BYTES, PLAIN, Total, check_bytes, check_int, check_length

from .sketches import Bins, Quantiles, SortedNumbers

State = Any

Place = tuple[float, float, Mapping[str, float] | None]
"""The origin of a value: step, wall time, and further step tracks."""

MAX_STATE_BYTES = 256 * 2**20  # four times `MAX_RESULT_BYTES`; the state lives as long as the window
# Of a text to group by: all keys take a few MB. Longer distinct texts are counted.
MAX_KEY_CHARS = 1_000
MAX_KEYS = 1_000  # a mapping that people can still read; a thousand histograms of 64 bins are 512 KB
OTHERS = "(others)"
LOOK_BYTES = 2**20  # to look at a thousand groups takes milliseconds
N_SEEN = 4  # values of a state that stand for all
QUICK = PLAIN | {np.float64, np.float32}
CONTAINERS = frozenset((dict, list, tuple))
WIDE = {"b": np.int64, "i": np.int64, "u": np.uint64, "c": np.complex128}


def _exact(state: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer:
    """Three pure functions, and `merge` where it exists.

    Attributes:
        state_bytes: The bytes of a state of numbers.
        number_ns: What an update with a number takes, in a mapping or a sequence.
        n_copies: How many copies of an array an update makes at a time, the state's included.
        n_held: How many copies of it a state holds.
        n_needed: How many values it needs before there is a result.
        n_first: How many values decide the result: the first ones.
        slides: Whether `merge` leaves its arguments as they are, so that a sliding window can merge them again.
        reads_place: Whether `update` gets (value, place).
        of_block: Returns the state after all records of some columns, at least one, of one float64 or int64 each. The
            second argument is added to their ordinals. `None` if it takes values one by one.
        is_approximate: Returns whether the result of a state is that of a sketch.
        of_numbers: The same reducer of plain numbers alone, which is quicker; its states are states of this one.
        of_floats: For plain floats alone: what combines two of them, and what makes the result of all combined and
            their number.
        of_sorted: What it returns of numbers in order, for those that cannot be merged in a sliding window.
    """

    name: str
    start: Callable[[], State]
    update: Callable[[State, Any, int], State]
    finish: Callable[[State], Any]
    merge: Callable[[State, State], State] | None = None
    state_bytes: int = 64
    number_ns: float = 1_000.0
    n_copies: int = 3
    n_held: int = 1
    n_needed: int = 1
    n_first: int | None = None
    slides: bool = False
    reads_place: bool = False
    of_block: Callable[[Columns, int], State] | None = None
    is_approximate: Callable[[State], bool] = _exact
    of_numbers: Reducer | None = None
    of_floats: tuple[Callable[[float, float], float], Callable[[float, int], float]] | None = None
    of_sorted: Callable[[SortedNumbers], Any] | None = None


def number(value: Value) -> Value:
    """Return a value as a number or a NumPy array of numbers.

    Raises:
        EvaluationError: The value is not a number or an array of numbers.
    """
    if type(value) in PLAIN:
        return value
    if type(value) in QUICK:
        return float(value)
    value = to_host(value)
    if isinstance(value, float | int | complex) and not isinstance(value, np.generic):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "mM":
        value = seconds_of(np.asarray(value))[()]
    if isinstance(value, np.generic | np.ndarray) and (value.dtype.kind in "biufc" or is_extended(value.dtype)):
        return value.item() if isinstance(value, np.generic) else value
    raise EvaluationError(f"Expected a number or an array to reduce, got {type_name(value)}")


def real(value: object) -> Value:
    """Return a value as a real number or a NumPy array of real numbers; raises as `number`."""
    value = number(value)
    if isinstance(value, complex) or (isinstance(value, np.ndarray) and value.dtype.kind == "c"):
        raise EvaluationError(f"Expected real numbers to reduce, got {type_name(value)}: use .real or abs(…)")
    return value


def wide(value: object) -> Value:
    """Return a value as a number or an array of 64 bits."""
    if type(value) in PLAIN:
        return value
    value = number(value)
    if isinstance(value, np.ndarray):
        check_bytes(8 * value.size)
        return value.astype(WIDE.get(value.dtype.kind, np.float64))
    return value


def floating(value: object) -> Value:
    """Return a value as a float or a complex number, or an array of them, of 64 bits a part."""
    x = wide(value)
    if isinstance(x, np.ndarray):
        return x if x.dtype.kind in "fc" else x.astype(np.float64)
    return x if isinstance(x, float | complex) else float(x)


def difference(a: Value, b: Value) -> Value:
    """Return `a - b` of two values that are `wide`: of integers, exactly if it fits into 64 bits, else as floats."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "iu" and b.dtype.kind in "iu":
            about = a.astype(np.float64) - b.astype(np.float64)
            if np.all(np.abs(about) < 2.0**62):  # so the difference of unsigned integers that wrap around is right
                return (a.astype(np.uint64) - b.astype(np.uint64)).view(np.int64)
            return about
    return check_int(a - b)


def check_alike(a: object, b: object) -> None:
    """Refuse arrays of two shapes in one group: broadcasting them would be a mistake."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape != b.shape:
        raise EvaluationError(f"Expected arrays of one shape to reduce, got {a.shape} and {b.shape}")


def stored(value: object, n_copies: int = 1) -> Value:
    """Return a copy of a value, for a state that stores `n_copies` of them.

    Raises:
        RefusedQueryError: That many values exceed `MAX_RESULT_BYTES`.
    """
    if type(value) in PLAIN:
        return value
    total = Total()
    total.add(value)
    check_bytes(total.n_bytes * n_copies)
    return snapshot(value)


def check_text(value: object, n_copies: int) -> None:
    """Refuse a long text of which a state stores too many; errors as in `stored`."""
    if type(value) is str and len(value) > MAX_KEY_CHARS:
        check_bytes(n_bytes(value) * n_copies)


class RankedValue(tuple[Any, ...]):
    """A value with its rank; compares by the rank alone, never by the value."""

    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return bool(self[:2] < other[:2])


class Branch(NamedTuple):
    """The states of a mapping's or a sequence's values."""

    kind: type
    states: dict[Any, State]


def by_name(inner: Reducer) -> Reducer:
    """Extend a reducer of numbers to mappings and sequences of numbers, reduced name by name."""
    start, of_number = inner.start, inner.update

    def update(state: State, value: object, ordinal: int) -> State:
        if type(value) in CONTAINERS or isinstance(value, Mapping | list | tuple):
            return branch(state, value, ordinal)
        if type(state) is Branch:
            raise EvaluationError(f"Expected values of one kind to reduce, got {type_name(value)} after a container")
        return of_number(start() if state is None else state, value, ordinal)

    def quick(state: State, value: object, ordinal: int) -> State:
        if type(value) in QUICK and type(state) is not Branch:
            return of_number(start() if state is None else state, value, ordinal)
        return update(state, value, ordinal)

    def branch(state: State, value: Value, ordinal: int) -> State:
        kind = dict if isinstance(value, Mapping) else tuple
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        if not (state is None or (type(state) is Branch and state.kind is kind)):
            raise EvaluationError(f"Expected values of one kind to reduce, got {type_name(value)} after another kind")
        states = state.states if state is not None else {}
        for key, item in pairs:
            states[key] = quick(states.get(key), item, ordinal)
        check_length(states)
        if len(states) * inner.state_bytes > MAX_STATE_BYTES:
            raise RefusedQueryError(f"Expected fewer names to reduce by {inner.name}, got {len(states)}")
        return Branch(kind, states)

    def finish(state: State) -> Value:
        if isinstance(state, Branch):
            results = {key: finish(part) for key, part in state.states.items()}
            return results if state.kind is dict else tuple(results[i] for i in sorted(results))
        return inner.finish(inner.start() if state is None else state)

    def merge(a: State, b: State) -> State:
        if a is None or b is None:
            return a if b is None else b
        if isinstance(a, Branch) and isinstance(b, Branch) and a.kind is b.kind:
            return Branch(
                a.kind, {key: merge(a.states.get(key), b.states.get(key)) for key in {**a.states, **b.states}}
            )
        assert inner.merge is not None
        return inner.merge(a, b)

    def is_approximate(state: State) -> bool:
        if isinstance(state, Branch):
            return any(map(is_approximate, state.states.values()))
        return state is not None and inner.is_approximate(state)

    return replace(
        inner, start=lambda: None, update=quick, finish=finish, merge=merge if inner.merge else None,
        is_approximate=is_approximate, of_numbers=inner,
    )  # fmt: skip


def by_key(inner: Reducer) -> Reducer:
    """Extend a reducer to values with keys, as (key, value): one result for each key, by its text."""
    reads_place, stores_values = inner.reads_place, inner.of_numbers is None
    room = MAX_RESULT_BYTES  # what may be added before the groups are looked at again
    full: dict[str, State] | None = None

    def check_groups(states: dict[str, State], value: object) -> None:
        """Check what all groups hold together: each of them bounds only what it holds by itself."""
        nonlocal room, full
        room -= held_bytes(value)
        if room < 0 or states is full:
            n_bytes = MAX_RESULT_BYTES + 1 if states is full else sum(map(held_bytes, states.values()))
            full = states if n_bytes > MAX_RESULT_BYTES else None
            check_bytes(n_bytes)
            room = max(LOOK_BYTES, MAX_RESULT_BYTES - n_bytes)

    def update(states: dict[str, State], value: Any, ordinal: int) -> dict[str, State]:
        (key, value), place = value if reads_place else (value, None)
        name = key if type(key) is str and len(key) <= MAX_KEY_CHARS else _key_text(key)
        if name not in states and len(states) >= MAX_KEYS:
            name = OTHERS
        if stores_values:
            check_groups(states, value)
        state = states[name] if name in states else inner.start()
        states[name] = inner.update(state, (value, place) if reads_place else value, ordinal)
        return states

    def merge(a: dict[str, State], b: dict[str, State]) -> dict[str, State]:
        assert inner.merge is not None
        merged = dict(a)
        for key, state in b.items():
            name = key if key in merged or len(merged) < MAX_KEYS else OTHERS
            merged[name] = inner.merge(merged[name], state) if name in merged else state
        return merged

    def finish(states: dict[str, State]) -> dict[str, Any]:
        return {name: inner.finish(state) for name, state in states.items()}

    return replace(
        inner, start=dict, update=update, finish=finish, merge=merge if inner.merge else None,
        is_approximate=lambda states: any(map(inner.is_approximate, states.values())), of_block=None, of_numbers=None,
    )  # fmt: skip


def _key_text(key: object) -> str:
    key = to_host(key)
    key = key.item() if isinstance(key, np.generic | np.ndarray) and key.size == 1 else key
    if key is None or isinstance(key, bool | int | float | str):
        if len(name := str(key)) > MAX_KEY_CHARS:
            raise EvaluationError(
                f"Expected a text of at most {MAX_KEY_CHARS:,} characters to group by, got {len(name):,}"
            )
        return name
    raise EvaluationError(f"Expected a number or a text to group by, got {type_name(key)}")


def held_bytes(state: State) -> int:
    """Estimate the bytes of a state."""
    if isinstance(state, Quantiles | Bins):
        return state.n_bytes
    if not isinstance(state, dict | list | tuple):
        return n_bytes(state)
    some = list(map(held_bytes, itertools.islice(state, N_SEEN)))
    if isinstance(state, dict):
        keys, some = some, list(map(held_bytes, itertools.islice(state.values(), N_SEEN)))
        some = [key + value for key, value in zip(keys, some, strict=True)]
    return sum(some) * len(state) // max(1, len(some))
