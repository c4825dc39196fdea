"""`tap`: pass each log to a callback as it happens, while the compiled program runs.

Theory of operation:

1. The walk replaces consecutive logs of one body by one raw callback, which receives NumPy arrays directly from XLA.
2. Each callback takes a number and returns it, increased by the number of its events; the next callback takes that one.
   So the program's own data flow keeps callbacks in program order, through loops, branches and calls, and the host
   sorts nothing. Each device of a `shard_map` counts separately.
3. Errors in the user's callback are counted, and the first one is reported as a warning; XLA never sees them.
4. A tap consumes nothing: an outer `spool` or `tap` sees the same logs.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sightglass.core.counts import Statistics
from sightglass.core.errors import warn_user
from sightglass.jax.program import compat
from sightglass.jax.pytree import PyTree

from .logs.columns import EventColumns, Lanes, axis_names, check_lanes, divided
from .logs.logdict import logdict
from .program.collected import CollectedLogs
from .program.primitive import LogEvent, Site, WantedLogs, wanted, wanted_logs, with_lanes
from .program.traced_function import TransformedFunction, traced
from .program.walk import Collector, Walk

Callback = Callable[[logdict], object]


@dataclass(frozen=True, slots=True)
class LogSpec:
    """The static part of an event: the log, its batch axes, and whether a mask is the first of its operands."""

    site: Site
    axes: tuple[str | None, ...] = ()
    masked: bool = False

    @property
    def n_leaves(self) -> int:
        """How many operands it has."""
        return int(self.site.tree.num_leaves) + self.masked


class Tapped(TransformedFunction, Collector):
    """A function that passes each of its logs to a callback."""

    def __init__(
        self,
        function: Callable[..., Any],
        callback: Callback,
        wants: WantedLogs,
        prefix: str,
        lanes: Lanes | None = "stack",
    ) -> None:
        self._callback = callback
        self._lanes = lanes
        self._wants = wants
        self._prefix = prefix
        self._n_events = self._n_errors = 0
        super().__init__(function, self._tap)

    def statistics(self) -> Statistics:
        """Return how many logs were delivered, and how often the callback raised."""
        return Statistics(n_events=self._n_events, n_errors=self._n_errors)

    def _tap(self, call: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        jaxpr, tree = traced(call, arrays, self._wants)
        outputs, _, _ = Walk(self).run(jaxpr, arrays, jnp.int32(0))
        return jax.tree.unflatten(tree, outputs)

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, Any]:
        """Replace events by a callback."""
        specs, operands = [], []
        for event in events:
            if wanted.value is not None:
                event.bind()
            spec, leaves = self._described(event.averaged() if self._lanes == "mean" else event)
            if spec.site.keys:
                specs.append(spec)
                operands += leaves
        if specs:
            (state,) = tap_p.bind(state, *operands, specs=tuple(specs), tap=self)
        return {}, state

    def merge(self, state: PyTree, shards: PyTree, n_shards: int) -> Any:
        """Return the number after a `shard_map`: the largest of its devices."""
        return jnp.max(shards)

    def _described(self, event: LogEvent) -> tuple[LogSpec, list[Any]]:
        data = {
            self._prefix + key: value
            for key, value in event.data.items()
            if self._wants.include(key, explicit=event.site.explicit)
        }
        event = event.with_data(data)
        return LogSpec(event.site, event.axes, event.mask is not None), [_raw(leaf) for leaf in event.operands]

    def deliver(self, specs: Sequence[LogSpec], arrays: Sequence[Any]) -> None:
        """Pass events to the callback, on the host; never raises."""
        start = 0
        for spec in specs:
            leaves = arrays[start : start + spec.n_leaves]
            start += spec.n_leaves
            if spec.masked and not np.any(leaves[0]):
                continue
            self._n_events += 1
            try:
                self._callback(self._logs(spec, leaves))
            except KeyboardInterrupt:
                _thread.interrupt_main()  # the program ends in its own thread, not inside XLA
            except BaseException as error:  # noqa: BLE001  a user's callback: XLA must see neither errors nor exits
                self._failed(error, spec.site)

    def _logs(self, spec: LogSpec, leaves: Sequence[Any]) -> logdict:
        keys = spec.site.keys
        values, steps = spec.site.tree.unflatten([leaf[None] for leaf in leaves[spec.masked :]])
        # These columns fit together; checking them would double the cost of an event.
        columns = EventColumns(
            dict(zip(keys, values, strict=True)),
            {name: dict.fromkeys(keys, step) for name, step in zip(spec.site.steps, steps, strict=True)},
            dict.fromkeys(keys, leaves[0][None]) if spec.masked and spec.axes else {},
            {},
        )
        if spec.axes and (self._lanes == "each" or (self._lanes is None and spec.masked)):
            columns = divided(columns, dict.fromkeys(keys, axis_names(spec.site.axis, spec.axes))).only_happened()
        return logdict._of(columns)

    def _failed(self, error: BaseException, site: Site) -> None:
        self._n_errors += 1
        if self._n_errors > 1:
            return
        try:
            warn_user(
                f"The callback of tap() raised {type(error).__name__}: {error} at the log in {site.where}. The "
                "program continues; statistics() counts further errors, which are not shown",
            )
        except RuntimeWarning:
            pass  # warnings are errors here, and XLA must not see one; the error is counted


def _raw(leaf: jax.Array) -> Any:
    """Return the value, or the data of a PRNG key, as raw callbacks accept no keys."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def show(logs: logdict) -> None:
    """Print a log; the default callback of `tap`."""
    sys.stdout.write(f"{logs}\n")


def tap(
    f: Callable[..., Any],
    callback: Callback = show,
    argnames: str | Sequence[str] | None = None,
    prefix: str = "",
    lanes: Lanes | None = "stack",
) -> Tapped:
    """Pass each log of a function to a callback as it happens.

    Args:
        f: Any function that JAX can trace, jitted or not.
        callback: Called with a `logdict` of NumPy arrays for each log, in program order; the leading event axis has
            length 1. It runs in a thread of XLA's and must not call JAX. `jax.effects_barrier()` waits for pending
            callbacks.
        argnames: The keys to collect; `None` for all except explicit ones.
        prefix: A text to put in front of each key.
        lanes: What the callback gets of the lanes of a `jax.vmap`, as in `spool`; with "each", the events of one log
            are along the event axis.

    Returns:
        A function with the same results. It may be transformed further. PRNG keys are delivered as their data.
    """
    return Tapped(f, callback, wanted_logs(argnames), prefix, check_lanes(lanes))


tap_p: Any = Primitive("tap")
tap_p.multiple_results = True


def _abstract(number: jax.Array, *avals: object, **params: object) -> Any:
    return [number], {compat.effect}


def _run(*operands: Any, **params: Any) -> Any:
    with jax.disable_jit(False):  # it lowers to a callback: there is no other way to run it
        return jax.jit(lambda *values: tap_p.bind(*values, **params))(*operands)


def _lower(context: mlir.LoweringRuleContext, *operands: object, specs: Sequence[LogSpec], tap: Tapped) -> Any:
    n_events = np.int32(max(1, len(specs)))

    def callback(number: npt.NDArray[np.int32], *arrays: npt.NDArray[Any]) -> tuple[Any]:
        tap.deliver(specs, arrays)
        return (number + n_events,)

    return compat.emit_callback(context, callback, operands)


def _jvp(primals: Sequence[jax.Array], tangents: object, **params: object) -> Any:
    (number,) = tap_p.bind(*primals, **params)
    return [number], [ad.Zero(jax.typeof(number).to_tangent_aval())]


def _batch(
    axis: Any, values: Sequence[jax.Array], axes: Sequence[int | None], *, specs: Sequence[LogSpec], tap: Tapped
) -> Any:
    number = values[0] if axes[0] is None else jnp.max(values[0])
    operands: list[Any] = []
    batched, start = [], 1
    for spec in specs:
        own = slice(start, start + spec.n_leaves)
        start += spec.n_leaves
        arrays, lane_axes = with_lanes(axis, values[own], axes[own], site=spec.site, axes=spec.axes)
        operands += arrays
        batched.append(replace(spec, axes=lane_axes))
    return tap_p.bind(number, *operands, specs=tuple(batched), tap=tap), [None]


tap_p.def_impl(_run)
tap_p.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[tap_p] = _jvp
batching.fancy_primitive_batchers[tap_p] = _batch
mlir.register_lowering(tap_p, _lower)
