"""Logs that a program collects: with a leading event axis, joined in the order of the program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sightglass.jax import explicit

from .survey import Survey


class CollectedLog(NamedTuple):
    """The values logged under one key.

    Attributes:
        value: The values; each leaf has shape (n_events, *batch, *shape).
        steps: The steps, by name, of shapes (n_events, *batch, *shape).
        valid: A mask of those that happened, shape (n_events, *batch); `None` if all did.
    """

    value: Any
    steps: dict[str, Any]
    valid: Any


CollectedLogs = dict[str, CollectedLog]


def joined(parts: Iterable[CollectedLogs]) -> CollectedLogs:
    """Concatenate collected logs, key by key."""
    every: dict[str, list[CollectedLog]] = {}
    for part in parts:
        for key, log in part.items():
            every.setdefault(key, []).append(log)
    return {key: _appended(logs) for key, logs in every.items()}


def _appended(logs: list[CollectedLog]) -> CollectedLog:
    if len(logs) == 1:
        return logs[0]
    mask = next((log.valid for log in logs if log.valid is not None), None)
    if mask is not None:
        logs = [log if log.valid is not None else _all_valid(log, mask.shape[1:]) for log in logs]
    return CollectedLog(*jax.tree.map(lambda *leaves: jnp.concatenate(explicit.alike(leaves)), *map(tuple, logs)))


def _all_valid(log: CollectedLog, shape: tuple[int, ...]) -> CollectedLog:
    return log._replace(valid=jnp.ones((_n_events(log), *shape), bool))


def _n_events(log: CollectedLog) -> int:
    return int(jax.tree.leaves(log.value)[0].shape[0])


def stacked(collected: CollectedLogs, *, reverse: bool = False) -> CollectedLogs:
    """Merge the two leading axes into one event axis, in the order in which the events happened."""

    def flat(leaf: jax.Array) -> jax.Array:
        leaf = jnp.flip(leaf, 0) if reverse else leaf
        return jax.lax.collapse(leaf, 0, 2)

    logs: CollectedLogs = jax.tree.map(flat, collected)
    return logs


def padded(collected: CollectedLogs, together: Survey) -> CollectedLogs:
    """Pad the logs of a branch to the shape that all branches share."""
    logs: CollectedLogs = {}
    for key, expected in together.items():
        missing = (expected.n_events or 0) - (_n_events(collected[key]) if key in collected else 0)
        valid = jnp.zeros((missing, *expected.batch), bool) if expected.masked else None
        blank = jax.tree.map(
            lambda a, n=missing: explicit.filled(explicit.abstract(a, lead=(n,))),
            CollectedLog(expected.value, expected.steps, None),
        )
        parts = [collected[key]] if key in collected else []
        if expected.masked and parts and parts[0].valid is None:
            parts = [_all_valid(parts[0], expected.batch)]
        logs[key] = _appended([*parts, blank._replace(valid=valid)]) if missing else parts[0]
    return logs
