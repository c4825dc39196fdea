"""The columns of a `logdict`, and the operations on them: values, steps and masks by tag, events first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from sightglass.jax.pytree import Array

from .reduction import REDUCTIONS, apply, check_numbers, library, name_of, or_nan, pick, sum_type

Value = Any
"""The value of a tag: an array, or a pytree of arrays, each with the events along its first axis."""
Leaves = dict[str, Value]


class EventReducer(Protocol):
    """An accumulator, such as `histogram(64)`, as far as reducing stacked events needs it."""

    @property
    def steps(self) -> EventReducer:
        """The reducer of the step tracks."""
        ...

    def over(self, value: Value, ok: Array | None = None) -> Any:
        """Reduce stacked events."""
        ...


Mode = str | EventReducer | Callable[..., ArrayLike]


class EventColumns(NamedTuple):
    """The parts of a logdict, by tag.

    Attributes:
        data: The values.
        steps: The steps, by name of the track and tag; of shapes (n_events,) or (n_events, *lanes).
        valid: For some tags a mask of the events that happened; shapes as those of the steps.
        n_dropped: For some tags how many events a ring buffer no longer holds.
    """

    data: Leaves
    steps: dict[str, Leaves]
    valid: Leaves
    n_dropped: Leaves

    def ordered(self) -> EventColumns:
        """Return the columns with steps and masks in the order of the tags, and without empty step tracks."""
        steps = {name: leaves for name, track in self.steps.items() if (leaves := _ordered(track, self.data))}
        return EventColumns(self.data, steps, _ordered(self.valid, self.data), _ordered(self.n_dropped, self.data))

    def renamed(self, names: Mapping[str, str]) -> EventColumns:
        """Return the columns of the tags in `names`, by their new names."""

        def rename(leaves: Leaves) -> Leaves:
            return {new: leaves[tag] for tag, new in names.items() if tag in leaves}

        steps = {name: rename(track) for name, track in self.steps.items()}
        return EventColumns(rename(self.data), steps, rename(self.valid), rename(self.n_dropped))

    def sliced(self, where: slice) -> EventColumns:
        """Return some of the entries of every tag."""

        def cut(leaves: Leaves) -> Leaves:
            return {tag: jax.tree.map(lambda leaf: leaf[where], value) for tag, value in leaves.items()}

        steps = {name: cut(track) for name, track in self.steps.items()}
        return EventColumns(cut(self.data), steps, cut(self.valid), self.n_dropped)

    def updated(self, other: EventColumns) -> EventColumns:
        """Return the tags of both; those of `other` replace those of this one, with their steps and masks."""
        mine = self.renamed({tag: tag for tag in self.data if tag not in other.data})
        names = dict.fromkeys((*mine.steps, *other.steps))
        return EventColumns(
            {tag: other.data.get(tag, value) for tag, value in {**self.data, **other.data}.items()},
            {name: {**mine.steps.get(name, {}), **other.steps.get(name, {})} for name in names},
            {**mine.valid, **other.valid},
            {**mine.n_dropped, **other.n_dropped},
        )

    def only_happened(self) -> EventColumns:
        """Return NumPy columns without the events that did not happen; a mask stays where some lanes did not."""
        data, valid = dict(self.data), dict(self.valid)
        steps = {name: dict(track) for name, track in self.steps.items()}
        for tag, ok in self.valid.items():
            rows = ok.any(axis=tuple(range(1, ok.ndim)))
            data[tag] = jax.tree.map(lambda x, rows=rows: x[rows], data[tag])
            for track in steps.values():
                if tag in track:
                    track[tag] = track[tag][rows]
            valid[tag] = ok[rows]
            if valid[tag].all():
                del valid[tag]
        return EventColumns(data, steps, valid, self.n_dropped)

    def reduced(self, mode: Mode, *, keep_steps: bool = True) -> EventColumns:
        """Return every tag reduced over its events.

        Raises:
            UnknownNameError: There is no such reduction.
            TypeError: The values of a tag cannot be reduced this way.
        """
        how = mode if hasattr(mode, "over") else name_of(mode) or mode
        out = EventColumns({}, {name: {} for name in self.steps}, {}, {})
        for tag, value in self.data.items():
            tracks = {name: track[tag] for name, track in self.steps.items() if keep_steps and tag in track}
            try:
                out.data[tag], tracks, ok, n_dropped = _reduced(how, value, tracks, self.valid.get(tag))
            except TypeError as error:
                raise TypeError(f"{error} (tag {tag!r})") from error
            for name, track in tracks.items():
                out.steps[name][tag] = track
            if ok is not None:
                out.valid[tag] = ok
            if n_dropped is not None or tag in self.n_dropped:
                out.n_dropped[tag] = (0 if n_dropped is None else n_dropped) + self.n_dropped.get(tag, 0)
        return out


def n_events(tag: str, value: Value) -> int:
    """Return how many events a tag's leaves have.

    Raises:
        ValueError: The leaves have no event axis, or different ones.
    """
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(value)]
    if () in shapes or len({shape[0] for shape in shapes}) > 1:
        found = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise ValueError(f"Expected leaves of tag {tag!r} with the events along their first axis, got shapes {found}")
    return int(shapes[0][0]) if shapes else 0


def no_step(like: Array | jax.ShapeDtypeStruct) -> float | int:
    """Return the placeholder in a step track for an event that was logged without that step.

    NaN for floats, the smallest number of the type for integers (the largest for unsigned ones). Under
    `jax.debug_nans`, which raises for any NaN that leaves a program, the smallest number for floats, too.
    """
    if jnp.issubdtype(like.dtype, jnp.inexact):
        return float(jnp.finfo(like.dtype).min) if jax.config.jax_debug_nans else float("nan")
    limits = jnp.iinfo(like.dtype)
    return int(limits.max) if limits.min == 0 else int(limits.min)


def _ordered(leaves: Leaves, data: Leaves) -> Leaves:
    return {tag: leaves[tag] for tag in data if tag in leaves}


def _reduced(
    how: Any, value: Value, tracks: Leaves, ok: Array | None
) -> tuple[Value, Leaves, Array | None, ArrayLike | None]:
    """Reduce the value, the steps and the mask of one tag; also return how many events a ring buffer dropped."""
    if n_events("", value) == 0 and jax.tree.leaves(value):
        value, tracks = jax.tree.map(lambda x: library(x).zeros((1, *x.shape[1:]), x.dtype), (value, tracks))
        ok = np.zeros(1, bool)
    if hasattr(how, "over"):
        done = how.over(value, ok)
        return done.value, {name: how.steps.over(x, ok).value for name, x in tracks.items()}, done.valid, done.n_dropped
    tracks = {name: pick(x, ok, last=how != "first") for name, x in tracks.items()}
    if how == "count":
        return _count(value, ok), tracks, None, None
    if isinstance(how, str):
        for leaf in jax.tree.leaves(value):
            check_numbers(leaf, how)
        result = jax.tree.map(lambda x: REDUCTIONS[how](x, ok), value)
    else:
        result = jax.tree.map(lambda x: apply(how, x, ok), value)
    if ok is None or how == "sum":
        return result, tracks, None, None
    happened = ok.any(axis=0, keepdims=True)
    return jax.tree.map(lambda x: or_nan(x, happened), result), tracks, happened, None


def _count(value: Value, ok: Array | None) -> Array:
    if ok is not None:
        return ok.sum(axis=0, keepdims=True)
    leaves = jax.tree.leaves(value)
    xp = library(leaves[0]) if leaves else np
    return xp.full(1, n_events("", value), sum_type(np.dtype(np.int64), x64=xp is np))
