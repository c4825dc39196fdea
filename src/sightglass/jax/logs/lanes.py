"""The lanes of a `vmap` inside a program: how the events of several lanes are collected.

A *lane* is one of the calls that a `vmap` makes at once. Its axis has a name: that of `log(…, axis=…)`, the `axis_name`
of the `vmap`, or "lane". An event that is divided by lane is as many events, one for each lane in which it happened,
and each has the number of its lane in a step track with the name of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import jax
import numpy as np

from sightglass.core.errors import LogError

from .columns import EventColumns
from .reduction import library

Lanes: TypeAlias = Literal["mean", "each", "stack"]
"""The mean of the lanes in which an event happened, an event for each of these, or an array with all lanes."""

MODES: Final = get_args(Lanes)
UNNAMED: Final = "lane"


def check_lanes(lanes: str | None) -> Any:
    """Return how lanes are collected.

    Raises:
        LogError: There is no such way.
    """
    if lanes is not None and lanes not in MODES:
        raise LogError(f"Expected 'mean', 'each' or 'stack' as lanes=, got {lanes!r:.80}")
    return lanes


def axis_names(given: Sequence[str], own: Sequence[str | None]) -> tuple[str, ...]:
    """Return the names of batch axes, outermost first.

    Args:
        given: The names in a log, of the innermost axes.
        own: The names of the axes themselves; `None` for those without.
    """
    names = [*own[: len(own) - len(given)], *given[max(0, len(given) - len(own)) :]]
    n_unnamed = sum(name is None for name in names)
    numbers = iter(range(n_unnamed, 0, -1))  # the innermost is "lane", the next one outwards "lane2"
    return tuple(name if name is not None else UNNAMED + (str(n) if (n := next(numbers)) > 1 else "") for name in names)


def divided(columns: EventColumns, axes: Mapping[str, Sequence[str]]) -> EventColumns:
    """Divide the events of some tags by lane, in the order of the lanes.

    Args:
        columns: Events first, then the axes of the lanes.
        axes: For each tag to divide, the names of these axes.
    """
    data, valid, dropped = dict(columns.data), dict(columns.valid), dict(columns.n_dropped)
    steps = {name: dict(track) for name, track in columns.steps.items()}
    for tag, names in axes.items():
        first = jax.tree.leaves(data[tag])[0]
        shape, xp = first.shape[: 1 + len(names)], library(first)
        n = math.prod(shape)

        def flat(leaf: Any, n: int = n, n_axes: int = len(shape)) -> Any:
            return leaf.reshape((n, *leaf.shape[n_axes:]))

        data[tag] = jax.tree.map(flat, data[tag])
        for track in steps.values():
            if tag in track:
                track[tag] = flat(xp.broadcast_to(track[tag], shape))
        if tag in valid:
            valid[tag] = flat(xp.broadcast_to(_widened(valid[tag], len(shape)), shape))
        for i, name in enumerate(names, 1):
            number = xp.arange(shape[i], dtype=np.int32).reshape((-1,) + (1,) * (len(shape) - 1 - i))
            steps.setdefault(name, {}).setdefault(tag, flat(xp.broadcast_to(number, shape)))
        if tag in dropped:
            dropped[tag] = dropped[tag].sum()
    return EventColumns(data, steps, valid, dropped)


def where_it_happened(columns: EventColumns) -> EventColumns:
    """Divide by lane the events that happened in some lanes and not in others."""
    masked = {tag: axis_names((), [None] * (ok.ndim - 1)) for tag, ok in columns.valid.items() if ok.ndim > 1}
    return divided(columns, masked) if masked else columns


def _widened(mask: Any, n_axes: int) -> Any:
    return mask.reshape(mask.shape + (1,) * (n_axes - mask.ndim))
