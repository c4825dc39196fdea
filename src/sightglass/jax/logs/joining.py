"""Putting the events of several logdicts one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.core.errors import LogError

from .reduction import is_number, library

Parts = tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Any], dict[str, Any]]


def concatenated(parts: Sequence[Parts]) -> Parts:
    """Put events one after the other, with one concatenation for each leaf.

    Raises:
        LogError: Values of one tag differ in structure, in shape, or in what they are.
    """
    tags = dict.fromkeys(tag for part in parts for tag in part[0])
    names = dict.fromkeys(name for part in parts for name in part[1])
    out: Parts = ({}, {name: {} for name in names}, {}, {})
    for tag in tags:
        having = [part for part in parts if tag in part[0]]
        values = [part[0][tag] for part in having]
        lengths = [n_events(tag, value) for value in values]
        out[0][tag] = _joined_trees(values, tag)
        for name in names:
            tracks = [part[1].get(name, {}).get(tag) for part in having]
            if any(track is not None for track in tracks):
                out[1][name][tag] = _joined(_filled(tracks, lengths), f"under tag {tag!r} in step track {name!r}")
        masks = [part[2].get(tag) for part in having]
        if any(ok is not None for ok in masks):
            out[2][tag] = _joined_masks(masks, lengths)
        lost = [part[3][tag] for part in having if tag in part[3]]
        if lost:
            out[3][tag] = sum(lost[1:], lost[0])
    return out


def _joined_trees(values: list[Any], tag: str) -> Any:
    structures = [jax.tree.structure(value) for value in values]
    for structure in structures:
        if structure != structures[0]:
            raise LogError(f"Expected values of one structure under tag {tag!r}, got {structures[0]} and {structure}")
    return jax.tree.map(lambda *leaves: _joined(leaves, f"under tag {tag!r}"), *values)


def _joined(leaves: Sequence[Any], where: str) -> Any:
    first = leaves[0]
    for leaf in leaves[1:]:
        if leaf.shape[1:] != first.shape[1:]:
            raise LogError(
                f"Expected values of one shape {where}, got {first.shape[1:]} and {leaf.shape[1:]}: "
                "log them under tags of their own"
            )
        if leaf.dtype != first.dtype and not (is_number(leaf.dtype) and is_number(first.dtype)):
            raise LogError(f"Expected values of one type {where}, got {first.dtype} and {leaf.dtype}")
    if len(leaves) == 1:
        return first
    return (np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp).concatenate(leaves)


def _filled(tracks: list[Any], lengths: list[int]) -> list[Any]:
    """Fill in steps for the events that were logged without this track."""
    like = next(track for track in tracks if track is not None)
    empty = no_step(like)
    return [
        library(like).full((n, *like.shape[1:]), empty, like.dtype) if track is None else track
        for track, n in zip(tracks, lengths, strict=True)
    ]


def _joined_masks(masks: list[Any], lengths: list[int]) -> Any:
    widest = max((ok for ok in masks if ok is not None), key=lambda ok: ok.ndim)
    xp = library(widest)
    full = [xp.ones(n, bool) if ok is None else ok for ok, n in zip(masks, lengths, strict=True)]
    return xp.concatenate([
        xp.broadcast_to(ok.reshape(ok.shape + (1,) * (widest.ndim - ok.ndim)), (len(ok), *widest.shape[1:]))
        for ok in full
    ])  # fmt: skip


def n_events(tag: str, value: Any) -> int:
    """Return how many events a tag's leaves have.

    Raises:
        ValueError: They have no event axis, or different ones.
    """
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(value)]
    if () in shapes or len({shape[0] for shape in shapes}) > 1:
        found = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise ValueError(f"Expected leaves of tag {tag!r} with the events along their first axis, got shapes {found}")
    return int(shapes[0][0]) if shapes else 0


def no_step(like: Any) -> Any:
    """Return what stands in a step track, an array, for an event that was logged without it.

    NaN for floats, the smallest number of the type for integers (the largest for unsigned ones).
    """
    if jnp.issubdtype(like.dtype, jnp.inexact):
        return float("nan")
    limits = jnp.iinfo(like.dtype)
    return int(limits.max) if limits.min == 0 else int(limits.min)
