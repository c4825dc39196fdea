"""`tap` with a logger's state: each event says whose it is.

Theory of operation:

1. The lane, a few integers, is an argument of the program, and is threaded through it next to `tap`'s own number. So it
   stays an array wherever JAX carries it: under `jit`, in loops, on every device of a `shard_map`, and under `vmap`,
   which gives it an axis in front.
2. Each event carries it as one more step track, named `LANE` and the number of batch axes that the program itself has
   put in front of the event's values. The axes before these are those of a `vmap` around the program: one lane each.
3. What a `spool` has collected goes the same way: as the value of one log, under the key `LOGS`. Nobody further out
   sees that one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.jax.logs.columns import EventColumns
from sightglass.jax.logs.logdict import logdict
from sightglass.jax.program.primitive import LogEvent, WantedLogs, call_wanting, log, wanted
from sightglass.jax.program.traced_function import TransformedFunction, traced
from sightglass.jax.program.walk import CollectedLogs, Walk
from sightglass.jax.pytree import PyTree
from sightglass.jax.tap import Tapped

LANE: Final = "sightglass.lane:"
LOGS: Final = "sightglass.logs"
EVENT_BYTES: Final = 1_000

COLLECTED: Final = WantedLogs(False, frozenset((LOGS,)))


class Routed(Tapped):
    """A function that hands each of its logs to a callback, with the lane that it belongs to."""

    _lane: Any

    def at(self, lane: Any) -> Routed:
        """Return the same function for a lane; what is compiled is shared."""
        other = copy.copy(self)
        other._lane = lane
        return other

    def like(self, other: TransformedFunction) -> Routed:
        """Take over what the arguments of another function are: static, or donated."""
        self._static, self._donated = other._static, other._donated
        return self

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, Any]:
        """Put a callback in the place of events, and pass on what is not the loggers' own."""
        number, lane = state
        if wanted.value is not None:
            for event in events:
                if LOGS not in event.data:
                    event.bind()
        _, number = call_wanting(None, super().take, [_of_lane(event, lane) for event in events], number)
        return {}, (number, lane)

    def merge(self, state: PyTree, shards: PyTree, n_shards: int) -> Any:
        """Return the state after a `shard_map`; the lane is the same on all devices."""
        return super().merge(state[0], shards[0], n_shards), state[1]

    def _tap(self, call: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        lane, *own = arrays
        jaxpr, tree = traced(call, own, self._wants)
        outputs, _, _ = Walk(self).run(jaxpr, own, (jnp.int32(0), lane))
        return jax.tree.unflatten(tree, outputs)

    def _split(self, args: Any, kwargs: Any) -> Any:
        shape, arrays, donated = super()._split(args, kwargs)
        return shape, [self._lane, *arrays], tuple(i + 1 for i in donated)


def _of_lane(event: LogEvent, lane: Any) -> LogEvent:
    """Add the lane to an event's steps, with the event's own batch axes in front."""
    leaves = jax.tree.leaves(event.data)
    if not leaves:
        return event
    batch = leaves[0].shape[: event.n_batch]
    track = {f"{LANE}{event.n_batch}": jnp.broadcast_to(lane, (*batch, *lane.shape))}
    return replace(event, steps={**event.steps, **track})


def hand_over(logs: logdict) -> None:
    """Log what was collected, for the `Routed` around it."""
    log({LOGS: logs}, explicit=True)


def parted(logs: logdict) -> Iterator[tuple[Any, logdict]]:
    """Divide what a callback was handed, lane by lane.

    Yields:
        The lane, shape (n_words,), and the lane's logs, events first.
    """
    data, steps, valid, _ = logs._columns()
    name = next(name for name in steps if name.startswith(LANE))
    n_own = int(name.removeprefix(LANE))
    words = next(iter(steps[name].values()))[0]
    collected = data.get(LOGS)
    if collected is not None:
        yield from lanes(words, collected, events=(0,), n_own=n_own)
        return
    own = logdict._of(EventColumns(data, {other: track for other, track in steps.items() if other != name}, valid, {}))
    yield from lanes(words, own, events=(slice(None),), n_own=n_own)


def lanes(words: Any, logs: logdict, *, events: tuple[Any, ...] = (), n_own: int = 0) -> Iterator[tuple[Any, logdict]]:
    """Take logs apart, lane by lane.

    Args:
        words: The lanes, shape (*lanes, *own, n_words).
        logs: Each leaf has the lanes along its first axes, but for those that `events` index.
        events: What to take of the axes before these.
        n_own: How many axes `own` has.
    """
    outer = words.shape[: words.ndim - 1 - n_own]
    if not outer and events in ((), (slice(None),)):
        yield words[(0,) * n_own], logs
        return
    for place in np.ndindex(*outer):
        yield words[(*place, *(0,) * n_own)], jax.tree.map(lambda leaf, at=(*events, *place): leaf[at], logs)


def n_bytes(logs: logdict) -> int:
    """Tell how many bytes the values of logs take, about."""
    return EVENT_BYTES + sum(int(leaf.nbytes) for leaf in jax.tree.leaves(logs._columns().data))
