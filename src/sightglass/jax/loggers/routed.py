"""`tap` with a logger's state: each event carries its lane.

Theory of operation:

1. The lane, a few integers, is an argument of the program, which carries it next to `tap`'s own number. So it is an
   array everywhere: under `jit`, in loops, on every device of a `shard_map`, and under `vmap`, which adds a leading
   axis.
2. Each event carries the lane as an additional step track, named `LANE`, the number of batch axes that the program
   itself has put in front of the event's values, and the names of these axes if the event is divided by them. The axes
   before these belong to a `vmap` around the program: one lane of the logger each.
3. The logs of a `spool` take the same route: they are the value of one log under the key `LOGS`, which outer
   transformations do not see.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sightglass.jax.logs.columns import EventColumns, Lanes, divided
from sightglass.jax.logs.logdict import logdict
from sightglass.jax.program.collected import CollectedLogs
from sightglass.jax.program.primitive import LogEvent, WantedLogs, call_wanting, log, wanted
from sightglass.jax.program.traced_function import TransformedFunction, traced
from sightglass.jax.program.walk import Walk
from sightglass.jax.pytree import Array, PyTree
from sightglass.jax.tap import Callback, Tapped

LANE: Final = "sightglass.lane:"
Words: TypeAlias = npt.NDArray[np.uint32]
"""A lane on the host, shape (n_words,), or several, shape (*lanes, n_words)."""

LOGS: Final = "sightglass.logs"
# Roughly what the objects of one event take besides their arrays.
EVENT_BYTES: Final = 1_000

COLLECTED: Final = WantedLogs(False, frozenset((LOGS,)))


class Routed(Tapped):
    """A function that passes each of its logs and its lane to a callback."""

    _lane: Array

    def __init__(
        self,
        function: Callable[..., Any],
        callback: Callback,
        wants: WantedLogs,
        prefix: str = "",
        *,
        lanes: Lanes | None = "stack",
    ) -> None:
        super().__init__(function, callback, wants, prefix)
        self._inner = lanes

    def at(self, lane: Array) -> Routed:
        """Return the same function for a lane; compiled programs are shared."""
        other = copy.copy(self)
        other._lane = lane
        return other

    def like(self, other: TransformedFunction) -> Routed:
        """Use the static and donated arguments of another function."""
        self._static, self._donated = other._static, other._donated
        return self

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, Any]:
        """Replace events by a callback; pass events other than `LOGS` to outer transformations."""
        number, lane = state
        if wanted.value is not None:
            for event in events:
                if LOGS not in event.data:
                    event.bind()
        events = [event.averaged() if self._inner == "mean" else event for event in events]
        routed = [_of_lane(event, lane, self._inner) for event in events]
        _, number = call_wanting(None, super().take, routed, number)
        return {}, (number, lane)

    def merge(self, state: PyTree, shards: PyTree, n_shards: int) -> Any:
        """Return the state after a `shard_map`; the lane is the same on all devices."""
        return super().merge(state[0], shards[0], n_shards), state[1]

    def _tap(self, call: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        lane, *own = arrays
        jaxpr, tree = traced(call, own, self._wants)
        outputs, _, _ = Walk(self).run(jaxpr, own, (jnp.int32(0), lane))
        return jax.tree.unflatten(tree, outputs)

    def _split(self, args: Sequence[PyTree], kwargs: Mapping[str, PyTree]) -> Any:
        shape, arrays, donated = super()._split(args, kwargs)
        return shape, [self._lane, *arrays], tuple(i + 1 for i in donated)


def _of_lane(event: LogEvent, lane: Array, inner: Lanes | None) -> LogEvent:
    """Add the lane to an event's steps, with the event's batch axes in front, and say how these are collected."""
    leaves = jax.tree.leaves(event.data)
    if not leaves:
        return event
    batch = leaves[0].shape[: event.n_batch]
    divides = inner == "each" or (inner is None and event.mask is not None)
    track = f"{LANE}{event.n_batch}:{','.join(event.lanes) if divides else ''}"
    return replace(event, steps={**event.steps, track: jnp.broadcast_to(lane, (*batch, *lane.shape))})


def hand_over(logs: logdict) -> None:
    """Log collected logs, for the `Routed` function around it."""
    log({LOGS: logs}, explicit=True)


def by_lane(logs: logdict) -> Iterator[tuple[Words, logdict]]:
    """Divide the logs that a callback received by lane.

    Yields:
        The lane, shape (n_words,), and the lane's logs, events first.
    """
    data, steps, valid, _ = logs._columns()
    name = next(name for name in steps if name.startswith(LANE))
    n_axes, _, names = name.removeprefix(LANE).partition(":")
    n_own = int(n_axes)
    words = next(iter(steps[name].values()))[0]
    collected = data.get(LOGS)
    if collected is not None:
        yield from lanes(words, collected, events=(0,), n_own=n_own)
        return
    own = logdict._of(EventColumns(data, {other: track for other, track in steps.items() if other != name}, valid, {}))
    axes = dict.fromkeys(data, names.split(",")) if names else {}
    for lane, part in lanes(words, own, events=(slice(None),), n_own=n_own):
        yield lane, logdict._of(divided(part._columns(), axes)) if axes else part


def lanes(
    words: Words, logs: logdict, *, events: tuple[Any, ...] = (), n_own: int = 0
) -> Iterator[tuple[Words, logdict]]:
    """Divide logs by the lanes in their leading axes.

    Args:
        words: The lanes, shape (*lanes, *own, n_words).
        logs: Logs whose leaves have the lanes along their first axes, after those that `events` indexes.
        events: An index of the axes before the lanes.
        n_own: How many axes `own` has.
    """
    outer = words.shape[: words.ndim - 1 - n_own]
    if not outer and events in ((), (slice(None),)):
        yield words[(0,) * n_own], logs
        return
    for place in np.ndindex(*outer):
        yield words[(*place, *(0,) * n_own)], jax.tree.map(lambda leaf, at=(*events, *place): leaf[at], logs)


def n_bytes(logs: logdict) -> int:
    """Return about how many bytes the values of logs take."""
    return EVENT_BYTES + sum(int(leaf.nbytes) for leaf in jax.tree.leaves(logs._columns().data))
