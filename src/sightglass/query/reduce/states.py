"""The states of reducers as plain data, so that another process can merge them.

Where a query runs in several processes, each sends the state of every window instead of its result. A state becomes
nested tuples that begin with a name, such as `("tuple", 2, 0.5)`: what is a tuple on the wire is a container, and
everything else a value. Nothing but the names below is restored.

An event's number decides which of two equal values counts, and which values a sample takes. `Numbering` makes the
numbers of several processes those of one process that saw all events.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sightglass.core.errors import RefusedQueryError, WireError

from .reducer import Branch, RankedValue, State, held_bytes
from .sketches import Bins, Quantiles

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
