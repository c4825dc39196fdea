"""What a reducer is, and what all reducers do with the values that they get.

A reducer is three functions, `start() -> state`, `update(state, value, ordinal) -> state` and `finish(state) -> value`,
plus `merge(state, state) -> state` where the mathematics allows it. They use only their arguments. `update` and `merge`
may change the states they get and return one of them, so that a sketch can grow in place.

Numbers are accumulated in 64 bits, floats as float64. Mappings and tuples of numbers are reduced name by name.

Whole arrays are reduced at once, and the states of reducers are plain data, for other processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, RefusedQueryError, WireError
from sightglass.core.program_values.array_data import seconds_of
from sightglass.core.program_values.copier import snapshot
from sightglass.core.values import Value, is_extended, n_bytes, to_host, type_name

from .limits import MAX_RESULT_BYTES, PLAIN, Total, check_bytes, check_int, check_length
from .sketches import Bins, Quantiles, SortedNumbers

State = Any

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
        reads_place: Whether `update` gets (value, place), see `windows.Place`.
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

    mergeable = merge if inner.merge else None
    return replace(inner, start=lambda: None, update=quick, finish=finish, merge=mergeable, of_numbers=inner)


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

    mergeable = merge if inner.merge else None
    return replace(inner, start=dict, update=update, finish=finish, merge=mergeable, of_numbers=None)


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


# Reduce a whole array of numbers at once: the state is the one that the reducer reaches number by number.
#
# Sums of floats are added in another order, so means and variances agree to about 1e-12 of their size. Reducers without
# a function here take their values one by one.

INT64_MAX: Final = 2**63 - 1


def can_reduce(name: str, values: object) -> bool:
    """Return whether `reduce_numbers` takes these values: one number for each record."""
    return name in _STATES and isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (float, int)


def reduce_numbers(name: str, args: Mapping[str, Any], columns: Columns, first_ordinal: int = 0) -> State:
    """Return the state of a reducer after all records of some columns, in order.

    Args:
        name: The reducer's name.
        args: Its arguments.
        columns: At least one record, with values that `can_reduce`.
        first_ordinal: Added to the ordinals of the records.
    """
    with np.errstate(all="ignore"):  # infinities of both signs add up to NaN, as they do one by one
        return _STATES[name](columns, first_ordinal, **args)


def _sum(columns: Columns, first: int) -> State:
    values = columns.values
    if values.dtype != np.int64:
        return float(values.sum())
    fits = max(-int(values.min()), int(values.max())) * len(values) <= INT64_MAX
    return int(values.sum()) if fits else check_int(sum(values.tolist()))


def _mean(columns: Columns, first: int) -> State:
    return len(columns), float(columns.values.sum(dtype=np.float64))


def _moments(columns: Columns, first: int) -> State:
    values = columns.values.astype(np.float64)
    mean = float(values.mean())
    return len(columns), mean, float(np.square(values - mean).sum())


def _place(columns: Columns, i: int, first: int) -> int:
    return first + (columns.index + i if columns.ordinals is None else int(columns.ordinals[i]))


def _at(columns: Columns, i: int, first: int) -> State:
    return _place(columns, i, first), columns.values[i].item()


def _arg(choose: Callable[[npt.NDArray[Any]], np.intp]) -> Callable[[Columns, int], State]:
    def state(columns: Columns, first: int) -> State:
        values = columns.values
        nan = np.isnan(values)
        i = int(nan.argmax() if nan.any() else choose(values))
        return values[i].item(), _place(columns, i, first), columns.steps[i].item()

    return state


def _rate(columns: Columns, first: int) -> State:
    return len(columns), float(columns.wall_times.min()), float(columns.wall_times.max())


_STATES: Final[Mapping[str, Callable[..., State]]] = {
    "count": lambda columns, first: len(columns),
    "sum": _sum,
    "mean": _mean,
    "var": _moments,
    "std": _moments,
    "min": lambda columns, first: columns.values.min().item(),
    "max": lambda columns, first: columns.values.max().item(),
    "first": lambda columns, first: _at(columns, 0, first),
    "last": lambda columns, first: _at(columns, len(columns) - 1, first),
    "quantile": lambda columns, first, q: Quantiles().add(columns.values),
    "histogram": lambda columns, first, bins=64: Bins(bins).add(columns.values),
    "argmin": _arg(np.argmin),
    "argmax": _arg(np.argmax),
    "rate": _rate,
}


# The states of reducers as plain data, so that another process can merge them.
#
# Where a query runs in several processes, each sends the state of every window instead of its result. A state becomes
# nested tuples that begin with a name, such as `("tuple", 2, 0.5)`: what is a tuple on the wire is a container, and
# everything else a value. Nothing but the names below is restored.
#
# An event's number decides which of two equal values counts, and which values a sample takes. `Numbering` makes the
# numbers of several processes those of one process that saw all events.

MAX_PACKED_BYTES: Final = 16 * 2**20  # what a run keeps for late clients of one stream; a state has to fit into it
LAST: Final = 2**62
"""The key of a window that was open when the run ended, and that has no number of its own."""


class Numbering(NamedTuple):
    """How the events of one process are numbered among those of several: event `i` is number `first + stride * i`."""

    first: int = 0
    stride: int = 1


class WindowState(NamedTuple):
    """The state of a window, as it travels instead of the window's result.

    Attributes:
        key: Which window it is, the same in all processes: see `windows.StateFold`.
        n_values: How many values are in it.
        state: The state, packed.
    """

    key: int
    n_values: int
    state: Any


def pack(state: State) -> Any:
    """Return a state as plain data.

    Raises:
        RefusedQueryError: It takes more than `MAX_STATE_BYTES`.
    """
    n_bytes = held_bytes(state)
    if n_bytes > MAX_PACKED_BYTES:
        limit, size = MAX_PACKED_BYTES >> 20, n_bytes / 2**20
        raise RefusedQueryError(f"Expected a state of at most {limit} MiB to merge elsewhere, got {size:.0f} MiB")
    return _packed(state)


def _packed(state: State) -> Any:
    match state:
        case Quantiles():
            return "quantiles", state.to_data()
        case Bins():
            return "bins", state.to_data()
        case Branch(kind, states):
            return "branch", kind is dict, *((key, _packed(part)) for key, part in states.items())
        case RankedValue():
            return "ranked", *map(_packed, state)
        case tuple():
            return "tuple", *map(_packed, state)
        case list():
            return "list", *map(_packed, state)
        case dict():
            return "dict", *((key, _packed(part)) for key, part in state.items())
    return state


def unpack(data: Any) -> State:
    """Return a state that may be changed, from plain data.

    Raises:
        WireError: `data` is not a state.
    """
    try:
        return _unpacked(data)
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise WireError(f"Expected the state of a reducer: {error}") from error


def _unpacked(data: Any) -> State:
    if not isinstance(data, tuple):
        return data
    name, *parts = data
    match name:
        case "quantiles":
            return Quantiles.of_data(*parts)
        case "bins":
            return Bins.of_data(*parts)
        case "branch":
            return Branch(dict if parts[0] else tuple, {key: _unpacked(part) for key, part in parts[1:]})
        case "ranked":
            return RankedValue(map(_unpacked, parts))
        case "tuple":
            return tuple(map(_unpacked, parts))
        case "list":
            return list(map(_unpacked, parts))
        case "dict":
            return {key: _unpacked(part) for key, part in parts}
    raise ValueError(f"unknown container {name!r:.40}")
