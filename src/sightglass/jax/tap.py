"""`tap`: see each log as it happens, while the compiled program runs.

Theory of operation:

1. The walk puts one raw callback in the place of the logs that follow upon each other in one body: NumPy arrays in, no
   JAX in between.
2. Each callback takes a number and returns it, increased by the number of its events; the next callback takes that one.
   So the program's own data flow keeps callbacks in program order, through loops, branches and calls, with nothing to
   sort on the host. Each device of a `shard_map` counts for itself.
3. A callback of the user's that raises is counted, and warned of once; XLA never sees the error.
4. Watching takes nothing away: what a tap sees is passed on to a `spool` or a `tap` further out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sightglass.jax.program import compat

from .logs.columns import EventColumns
from .logs.logdict import logdict
from .program.primitive import LogEvent, Site, WantedLogs, demand, wanted
from .program.survey import Survey
from .program.traced_function import Staged, traced
from .program.walk import Tracks, Walk

Callback = Callable[[logdict], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TapStatistics:
    """What a tap has delivered.

    Attributes:
        n_events: How many logs were handed to the callback.
        n_errors: How many times the callback raised.
    """

    n_events: int
    n_errors: int


@dataclass(frozen=True, slots=True)
class LogSpec:
    """What is known of an event before it happens."""

    site: Site
    keys: tuple[str, ...]
    steps: tuple[str, ...]
    n_batch: int
    masked: bool
    n_leaves: int
    tree: Any


class Tapped(Staged):
    """A function that hands each of its logs to a callback."""

    def __init__(self, function: Callable[..., Any], callback: Callback, demanded: WantedLogs, prefix: str) -> None:
        self._callback = callback
        self._demanded = demanded
        self._prefix = prefix
        self._n_events = self._n_errors = 0
        super().__init__(function, self._tap)

    def statistics(self) -> TapStatistics:
        """Return how many logs were delivered so far, and how often the callback failed."""
        return TapStatistics(n_events=self._n_events, n_errors=self._n_errors)

    def _tap(self, call: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        jaxpr, tree = traced(call, arrays, self._demanded)
        outputs, _, _ = Walk(self).run(jaxpr, arrays, jnp.int32(0))
        return jax.tree.unflatten(tree, outputs)

    def take(self, events: Sequence[LogEvent], state: Any) -> tuple[Tracks, Any]:
        """Put a callback in the place of events."""
        kinds, operands = [], []
        for event in events:
            if wanted.value is not None:
                event.bind()
            kind, leaves = self._described(event)
            if kind.keys:
                kinds.append(kind)
                operands += leaves
        if kinds:
            (state,) = tap_p.bind(state, *operands, kinds=tuple(kinds), tap=self)
        return {}, state

    def track(self, key: str, site: Site) -> str | None:
        """Return that no key makes a track."""
        return None

    def completed(self, found: Survey) -> Survey:
        """Return what was found, unchanged."""
        return found

    def enter(self, jaxpr: Any) -> None:
        """Begin with a jaxpr: nothing is to be done."""

    def leave(self, jaxpr: Any, tracks: Tracks, state: Any) -> tuple[Tracks, Any]:
        """Go out of a jaxpr, with no track."""
        return tracks, state

    def fork(self, state: Any) -> Any:
        """Return the number with which each device of a `shard_map` begins."""
        return state

    def merge(self, state: Any, shards: Any, n_shards: int) -> Any:
        """Return the number after a `shard_map`: that of the device that logged most."""
        return jnp.max(shards)

    def _described(self, event: LogEvent) -> tuple[LogSpec, list[Any]]:
        data = {k: v for k, v in event.data.items() if self._demanded.wants(k, explicit=event.site.explicit)}
        leaves, tree = jax.tree.flatten((list(data.values()), list(event.steps.values())))
        leaves = [_raw(leaf) for leaf in leaves]
        masks = [] if event.mask is None else [event.mask]
        keys = tuple(self._prefix + key for key in data)
        n_leaves = len(masks) + len(leaves)
        kind = LogSpec(event.site, keys, tuple(event.steps), event.n_batch, bool(masks), n_leaves, tree)
        return kind, masks + leaves

    def deliver(self, kinds: Sequence[LogSpec], arrays: Sequence[Any]) -> None:
        """Hand events to the callback, on the host; nothing that it raises gets out."""
        start = 0
        for kind in kinds:
            leaves = arrays[start : start + kind.n_leaves]
            start += kind.n_leaves
            if kind.masked and not np.any(leaves[0]):
                continue
            self._n_events += 1
            try:
                self._callback(self._logs(kind, leaves))
            except Exception as error:  # noqa: BLE001  a user's callback: XLA must not see what it raises
                self._failed(error, kind.site)

    def _logs(self, kind: LogSpec, leaves: Sequence[Any]) -> logdict:
        values, steps = kind.tree.unflatten([leaf[None] for leaf in leaves[kind.masked :]])
        # The parts fit together: checking them again would double the price of an event.
        return logdict._of(
            EventColumns(
                dict(zip(kind.keys, values, strict=True)),
                {name: dict.fromkeys(kind.keys, step) for name, step in zip(kind.steps, steps, strict=True)},
                dict.fromkeys(kind.keys, leaves[0][None]) if kind.masked and kind.n_batch else {},
                {},
            )
        )

    def _failed(self, error: Exception, site: Site) -> None:
        self._n_errors += 1
        if self._n_errors > 1:
            return
        try:
            warnings.warn(
                f"The callback of tap() raised {type(error).__name__}: {error} at the log of {site.where}; the "
                "program goes on, further errors are counted in statistics() and not shown",
                RuntimeWarning,
                stacklevel=2,
            )
        except RuntimeWarning:
            pass  # warnings are errors here, and XLA must not see one; it is counted


def _raw(leaf: Any) -> Any:
    """Return what of a value a raw callback can take: a PRNG key's data."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def show(logs: logdict) -> None:
    """Print a log, as `tap` does when it is given no callback."""
    sys.stdout.write(f"{logs}\n")


def tap(
    f: Callable[..., Any],
    callback: Callback = show,
    argnames: str | Sequence[str] | None = None,
    prefix: str = "",
) -> Tapped:
    """Hand each log of a function to a callback as it happens.

    Args:
        f: Any function that JAX can trace, jitted or not.
        callback: Called with a `logdict` of NumPy arrays for each log, in program order; the event axis in front has
            length 1. It runs in a thread of XLA's and must not call JAX. `jax.effects_barrier()` waits for what is
            under way.
        argnames: The keys to take; `None` for all but explicit ones.
        prefix: What to put in front of each key.

    Returns:
        A function with the same results. It may be transformed further. PRNG keys are delivered as their data.
    """
    return Tapped(f, callback, demand(argnames), prefix)


tap_p: Any = Primitive("tap")
tap_p.multiple_results = True


def _abstract(number: Any, *avals: Any, **params: Any) -> Any:
    return [number], {compat.effect}


def _lower(context: Any, *operands: Any, kinds: Sequence[LogSpec], tap: Tapped) -> Any:
    n_events = np.int32(max(1, len(kinds)))

    def callback(number: Any, *arrays: Any) -> tuple[Any]:
        tap.deliver(kinds, arrays)
        return (number + n_events,)

    return compat.emit_callback(context, callback, operands)


def _jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    (number,) = tap_p.bind(*primals, **params)
    return [number], [ad.Zero(jax.typeof(number).to_tangent_aval())]


def _batch(values: Any, axes: Any, *, kinds: Sequence[LogSpec], tap: Tapped) -> Any:
    n = next(value.shape[axis] for value, axis in zip(values, axes, strict=True) if axis is not None)
    number = values[0] if axes[0] is None else jnp.max(values[0])
    operands, batched, start = [], [], 1
    for kind in kinds:
        own = list(zip(values, axes, strict=True))[start : start + kind.n_leaves]
        start += kind.n_leaves
        if all(axis is None for _, axis in own):
            operands += [value for value, _ in own]
            batched.append(kind)
            continue
        operands += [
            jnp.broadcast_to(value, (n, *value.shape)) if axis is None else jnp.moveaxis(value, axis, 0)
            for value, axis in own
        ]
        batched.append(replace(kind, n_batch=kind.n_batch + 1))
    return tap_p.bind(number, *operands, kinds=tuple(batched), tap=tap), [None]


tap_p.def_impl(lambda *operands, **params: jax.jit(lambda *values: tap_p.bind(*values, **params))(*operands))
tap_p.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[tap_p] = _jvp
batching.primitive_batchers[tap_p] = _batch
mlir.register_lowering(tap_p, _lower)
