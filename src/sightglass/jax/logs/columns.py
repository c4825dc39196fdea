"""The columns of a `logdict`, and the operations on them: values, steps and masks by tag, events first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from sightglass.core.errors import LogError
from sightglass.core.values import to_host, type_name
from sightglass.jax.pytree import Array, PyTree

from .reduction import (
    REDUCTIONS,
    SELECTING,
    apply,
    check_numbers,
    fit,
    is_number,
    library,
    name_of,
    or_nan,
    pick,
    sum_type,
)

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
    result = jax.tree.map(lambda node: _reduced_node(how, node, ok), value, is_leaf=_is_histogram)
    if ok is None or how == "sum":
        return result, tracks, None, None
    happened = ok.any(axis=0, keepdims=True)
    return jax.tree.map(lambda x: or_nan(x, happened), result), tracks, happened, None


def _reduced_node(how: Any, node: Any, ok: Array | None) -> Any:
    """Reduce an array, or a histogram of each event."""
    if _is_histogram(node) and how == "sum":
        return node.merged(ok)
    if _is_histogram(node) and how not in SELECTING:
        raise TypeError(f"Expected 'sum', 'first' or 'last' for histograms, got {how!r:.80}")
    if callable(how):
        return apply(how, node, ok)
    for leaf in jax.tree.leaves(node):
        check_numbers(leaf, how)
    return jax.tree.map(lambda x: REDUCTIONS[how](x, ok), node)


def _is_histogram(node: object) -> bool:
    return hasattr(node, "merged")


def _count(value: Value, ok: Array | None) -> Array:
    if ok is not None:
        return ok.sum(axis=0, keepdims=True)
    leaves = jax.tree.leaves(value)
    xp = library(leaves[0]) if leaves else np
    return xp.full(1, n_events("", value), sum_type(np.dtype(np.int64), x64=xp is np))


# Concatenates the events of several logdicts.


def concatenated(parts: Sequence[EventColumns]) -> EventColumns:
    """Concatenate events, with one concatenation for each leaf.

    Raises:
        LogError: Values of one tag differ in structure, in shape, or in kind of dtype.
    """
    tags = dict.fromkeys(tag for part in parts for tag in part.data)
    names = dict.fromkeys(name for part in parts for name in part.steps)
    out = EventColumns({}, {name: {} for name in names}, {}, {})
    for tag in tags:
        having = [part for part in parts if tag in part.data]
        values = [part.data[tag] for part in having]
        lengths = [n_events(tag, value) for value in values]
        out.data[tag] = _joined_trees(values, tag)
        for name in names:
            tracks = [part.steps.get(name, {}).get(tag) for part in having]
            if any(track is not None for track in tracks):
                out.steps[name][tag] = _joined(_filled(tracks, lengths), f"under tag {tag!r} in step track {name!r}")
        masks = [part.valid.get(tag) for part in having]
        if any(ok is not None for ok in masks):
            out.valid[tag] = _joined_masks(masks, lengths)
        dropped = [part.n_dropped[tag] for part in having if tag in part.n_dropped]
        if dropped:
            out.n_dropped[tag] = sum(dropped[1:], dropped[0])
    return out


def _joined_trees(values: list[Value], tag: str) -> Value:
    structures = [jax.tree.structure(value) for value in values]
    for structure in structures:
        if structure != structures[0]:
            raise LogError(f"Expected values of one structure under tag {tag!r}, got {structures[0]} and {structure}")
    return jax.tree.map(lambda *leaves: _joined(leaves, f"under tag {tag!r}"), *values)


def _joined(leaves: Sequence[Array], where: str) -> Array:
    first = leaves[0]
    for leaf in leaves[1:]:
        if leaf.shape[1:] != first.shape[1:]:
            raise LogError(
                f"Expected values of one shape {where}, got {first.shape[1:]} and {leaf.shape[1:]}: "
                "log them under different tags"
            )
        if leaf.dtype != first.dtype and not (is_number(leaf.dtype) and is_number(first.dtype)):
            raise LogError(f"Expected values of one type {where}, got {first.dtype} and {leaf.dtype}")
    if len(leaves) == 1:
        return first
    return (np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp).concatenate(leaves)


def _filled(tracks: list[Array | None], lengths: list[int]) -> list[Array]:
    """Fill in placeholders for events that were logged without this step."""
    like = next(track for track in tracks if track is not None)
    empty = no_step(like)
    return [
        library(like).full((n, *like.shape[1:]), empty, like.dtype) if track is None else track
        for track, n in zip(tracks, lengths, strict=True)
    ]


def _joined_masks(masks: list[Array | None], lengths: list[int]) -> Array:
    widest = max((ok for ok in masks if ok is not None), key=lambda ok: ok.ndim)
    xp = library(widest)
    full = [xp.ones(n, bool) if ok is None else ok for ok, n in zip(masks, lengths, strict=True)]
    return xp.concatenate([
        xp.broadcast_to(ok.reshape(ok.shape + (1,) * (widest.ndim - ok.ndim)), (len(ok), *widest.shape[1:]))
        for ok in full
    ])  # fmt: skip


# Read logged values on the host.


def read(tree: PyTree) -> Any:
    """Read a tree of arrays into NumPy arrays, in new containers; PRNG keys become their data.

    Raises:
        TypeError: A leaf is traced.
    """

    def ready(leaf: object) -> Any:
        if isinstance(leaf, jax.core.Tracer):
            raise TypeError(
                f"Expected arrays to read on the host, got the tracer {leaf}: return the logs and read them then"
            )
        return jax.random.key_data(leaf) if hasattr(leaf, "dtype") and not is_number(leaf.dtype) else leaf

    return jax.tree.map(np.asarray, jax.device_get(jax.tree.map(ready, tree)))


def row(value: PyTree, i: int, ok: npt.NDArray[np.bool_] | None) -> Any:
    """Return one event; as a masked array if it happened in some lanes only, and histograms as those of the host."""

    def take(x: npt.NDArray[Any]) -> Any:
        if ok is None or ok[i].all():
            return x[i]
        return np.ma.masked_array(x[i], np.broadcast_to(~fit(ok, x)[i], x[i].shape))

    return jax.tree.map(_read_histogram, jax.tree.map(take, value), is_leaf=_is_histogram)


def plain(value: PyTree) -> Any:
    """Convert to the value of a record: a scalar, array, histogram, or container of these; masked lanes become NaN."""

    def of(node: object) -> Any:
        if isinstance(node, np.ma.MaskedArray):
            return np.where(np.ma.getmaskarray(node), np.nan, node.data)
        return to_host(node)

    return jax.tree.map(of, value)


def _read_histogram(node: Any) -> Any:
    return node.read() if _is_histogram(node) else node


def is_missing(step: npt.NDArray[Any]) -> bool:
    """Return whether an event was logged without this step."""
    if step.dtype.kind in "iu":
        return bool(np.all(step == no_step(step)))
    return bool(np.all(np.isnan(step) | (step == jnp.finfo(step.dtype).min)))


# Summaries of logs: a line for each leaf.
#
# Nothing is computed on a device: ranges are shown only of arrays that are cheap to read, never of tracers.

# About one screen.
MAX_LINES = 60
# A repr must not take noticeable time, and a million numbers take some milliseconds.
MAX_SUMMARISED = 2**20


def table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Align rows of cells; empty columns are omitted."""
    more = [f"  … and more than {MAX_LINES} lines"] if len(rows) > MAX_LINES else []
    rows = rows[:MAX_LINES]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True) if n).rstrip() for row in rows]
    return "\n".join([title, *lines, *more])


def summary(leaf: object, ok: Array | None) -> tuple[str, str]:
    """Return the type of a leaf and the range of its values."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return type_name(leaf), ""
    return f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]", range_of(leaf, ok)


def range_of(leaf: object, ok: Array | None) -> str:
    """Return the smallest and the largest number as text, if they are cheap to read."""
    if not _readable(leaf) or not (ok is None or _readable(ok)):
        return ""
    x = np.asarray(leaf)
    if ok is not None:
        x = x[np.broadcast_to(fit(np.asarray(ok), x), x.shape)]
    if x.dtype == bool:
        return f"{int(x.sum())} of {x.size} true" if x.size else ""
    x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64 if x.dtype.kind not in "iu" else x.dtype)
    missing = np.isnan(x)
    x = x[~missing]
    if np.iscomplexobj(x) or not x.size:
        return f"{missing.sum()} NaN" if missing.any() else ""
    low, high = (f"{end:.4g}" if x.dtype.kind == "f" else str(end) for end in (x.min(), x.max()))
    return (low if low == high else f"{low} … {high}") + (f", {missing.sum()} NaN" if missing.any() else "")


def _readable(leaf: object) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.size <= MAX_SUMMARISED
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array) or not is_number(leaf.dtype):
        return False
    return leaf.size <= MAX_SUMMARISED and leaf.is_fully_addressable and not leaf.is_deleted()


def notes(ok: Array | None, n_dropped: Array | int | None) -> list[str]:
    """Return how many events happened and how many were dropped, as text."""
    found = []
    if ok is not None:
        found.append(f"{int(np.asarray(ok).sum())} of {ok.size} happened" if _readable(ok) else "masked")
    if n_dropped is not None and (isinstance(n_dropped, int | np.generic) or _readable(n_dropped)):
        found.append(f"{int(np.max(n_dropped))} dropped")
    return found


# The lanes of a `vmap` inside a program: how the events of several lanes are collected.
#
# A *lane* is one of the calls that a `vmap` makes at once. Its axis has a name: that of `log(…, axis=…)`, the
# `axis_name` of the `vmap`, or "lane". An event that is divided by lane is as many events, one for each lane in which
# it happened, and each has the number of its lane in a step track with the name of the axis.

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
