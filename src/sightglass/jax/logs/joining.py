"""Concatenates the events of several logdicts."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.core.errors import LogError
from sightglass.jax.pytree import Array

from .columns import EventColumns, Value, n_events, no_step
from .reduction import is_number, library


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
