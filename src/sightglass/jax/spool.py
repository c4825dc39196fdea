"""`spool`: return a function's logs next to its results.

Theory of operation:

1. A key is either *stacked* or *accumulated*. Stacked values leave loops as additional outputs, and cost as much as
   metrics that you return by hand. Values that are reduced, thinned by `every`, or logged in a while loop are
   accumulated: the program carries a state of constant size (`accumulate.py`).
2. The keys, and the largest number of events of each, are found in the program before it is emitted (`survey.py`).
3. A spool consumes the logs it collects: an outer transformation sees only the others, unless `keep_logs` is set.
4. Events are in program order. Each device of a `shard_map` has rows of its own, next to each other for each event.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from sightglass.core.errors import LogError, UnknownNameError

from . import explicit
from .logs.columns import Lanes, check_lanes, divided, no_step
from .logs.logdict import logdict
from .logs.reduction import float_type, is_number
from .program.collected import CollectedLog, CollectedLogs, joined
from .program.primitive import LogEvent, Site, WantedLogs, wanted, wanted_logs
from .program.survey import ExpectedLog, Survey, survey
from .program.traced_function import TransformedFunction, traced
from .program.walk import Collector, Walk
from .pytree import PyTree
from .reducers.accumulate import every as every_nth
from .reducers.accumulate import last_k
from .reducers.accumulate import plan as planned
from .reducers.accumulator import Accumulator, Finished, per_lane

Reduce = str | Accumulator | Callable[..., Any]
State = dict[str, Any]


class Spool(Collector):
    """The collector of one program: what is stacked, what is accumulated, and how.

    Args:
        wants: Which keys are taken.
        found: What the program logs under these.
        accumulators: The keys that are accumulated.
        keeps_logs: Whether taken logs are left for a transformation further out.
        lanes: How the lanes of a `vmap` are collected.
    """

    def __init__(
        self,
        wants: WantedLogs,
        found: Survey,
        accumulators: Mapping[str, Accumulator],
        *,
        keeps_logs: bool,
        lanes: Lanes | None = "stack",
    ) -> None:
        self._wants = wants
        self._found = found
        self._accumulators = {
            key: how if how.stacks else per_lane(how, found[key].n_batch) for key, how in accumulators.items()
        }
        self._keeps_logs = keeps_logs
        self._lanes = lanes

    def start(self) -> State:
        """Return the initial states of the accumulators."""
        state: State = {}
        # Keys whose values are alike begin with the same arrays: a tree of a thousand leaves makes a handful of them.
        made: dict[Any, Any] = {}
        for key, how in self._accumulators.items():
            if not how.stacks:
                expected = self._found[key]
                leaves, tree = jax.tree.flatten((expected.value, expected.steps))
                alike = (how, tree, *leaves, expected.n_events)
                if alike not in made:
                    made[alike] = self._start(key)
                state[key] = made[alike]
        return state

    def take(self, events: Sequence[LogEvent], state: State) -> tuple[CollectedLogs, State]:
        """Stack events, or put them into accumulators."""
        parts: list[CollectedLogs] = []
        for event in events:
            self._pass_on(event)
            event = event.averaged() if self._lanes == "mean" else event
            for key, value in event.data.items():
                if not self._wants.include(key, explicit=event.site.explicit):
                    continue
                expected = self._found[key]
                value, steps = expected.cast(value), _all_steps(event.steps, expected)
                if key in state:
                    state = {**state, key: self._step(key, state[key], value, steps, event.mask)}
                else:
                    value, steps, mask = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), (value, steps, event.mask))
                    parts.append({key: CollectedLog(value, steps, mask)})
        return joined(parts), state

    def collected_as(self, key: str, site: Site) -> str | None:
        """Return the key, if it is stacked."""
        how = self._accumulators.get(key)
        stacks = self._wants.include(key, explicit=site.explicit) and (how is None or how.stacks)
        return key if stacks else None

    def completed(self, found: Survey) -> Survey:
        """Give each key the dtypes and the steps of all logs under it."""
        every = self._found
        return {
            key: dataclasses.replace(e, value=every[key].value, steps=every[key].steps, lanes=every[key].lanes)
            for key, e in found.items()
        }

    def fork(self, state: State) -> State:
        """Return empty accumulators for each device of a `shard_map`."""
        return self.start()

    def merge(self, state: State, shards: State, n_shards: int) -> State:
        """Merge the states of the devices of a `shard_map` into the state before it."""
        merged: State = {}
        for key in state:
            how = self._accumulators[key]
            if not how.mergeable:
                raise LogError(
                    f"The logs under {key!r} ({self._found[key].where}) cannot be reduced by {how!r} inside a "
                    "shard_map: the results of its devices cannot be merged. Reduce them after spool(), or use "
                    "another function"
                )
            merged[key] = self._merge(key, state[key], shards[key])
        return merged

    def logs(self, collected: CollectedLogs, state: State, prefix: str) -> logdict:
        """Make what is handed out of what was collected."""
        data: dict[str, Any] = {}
        steps: dict[str, dict[str, Any]] = {}
        valid: dict[str, Any] = {}
        dropped: dict[str, Any] = {}
        for key in self._found:
            done, of_steps = self._finish(key, state[key]) if key in state else self._over(key, collected[key])
            data[prefix + key], mask, lost = done
            for name in self._found[key].steps:
                steps.setdefault(name, {})[prefix + key] = of_steps[name]
            if mask is not None:
                valid[prefix + key] = mask
            if lost is not None:
                dropped[prefix + key] = lost
        axes = {
            prefix + key: expected.lanes
            for key, expected in self._found.items()
            if expected.lanes and (self._lanes == "each" or (self._lanes is None and expected.by_lane))
        }
        logs = logdict(data, steps, valid, dropped)
        return logdict._of(divided(logs._columns(), axes)) if axes else logs

    def _pass_on(self, event: LogEvent) -> None:
        """Log again, for a transformation further out, what this one leaves."""
        if wanted.value is None:
            return
        data = {
            key: value
            for key, value in event.data.items()
            if self._keeps_logs or not self._wants.include(key, explicit=event.site.explicit)
        }
        if data or not event.data:  # a mark has no data, and is passed on
            event.with_data(data).bind()

    def _start(self, key: str) -> Any:
        expected, how = self._found[key], self._accumulators[key]
        steps = {name: how.steps.start(a, n_events=expected.n_events) for name, a in expected.steps.items()}
        return how.start(expected.value, n_events=expected.n_events), steps

    def _step(self, key: str, state: PyTree, value: PyTree, steps: dict[str, Any], mask: jax.Array | None) -> Any:
        how, ok = self._accumulators[key], True if mask is None else mask
        return how.step(state[0], value, ok), {k: how.steps.step(state[1][k], v, ok) for k, v in steps.items()}

    def _merge(self, key: str, state: PyTree, shards: PyTree) -> Any:
        how = self._accumulators[key]

        def merge(a: PyTree, b: PyTree) -> Any:
            return how.merge(a[0], b[0]), {name: how.steps.merge(a[1][name], b[1][name]) for name in a[1]}

        return lax.scan(lambda state, shard: (merge(state, shard), None), state, shards)[0]

    def _finish(self, key: str, state: PyTree) -> tuple[Finished, dict[str, Any]]:
        expected, how = self._found[key], self._accumulators[key]
        n_events = None if expected.masked else expected.n_events
        steps = {name: how.steps.finish(s, n_events=n_events).value for name, s in state[1].items()}
        return how.finish(state[0], n_events=n_events), steps

    def _over(self, key: str, log: CollectedLog) -> tuple[Finished, dict[str, Any]]:
        """Reduce stacked logs."""
        how = self._accumulators.get(key)
        if how is None:
            return Finished(log.value, log.valid), log.steps
        return how.over(log.value, log.valid), {
            name: how.steps.over(step, log.valid).value for name, step in log.steps.items()
        }


def _all_steps(steps: dict[str, Any], expected: ExpectedLog) -> dict[str, Any]:
    """Fill in placeholders for steps that only other logs under the key have."""
    return {
        name: steps[name].astype(aval.dtype) if name in steps else explicit.filled(aval, no_step(aval))
        for name, aval in expected.steps.items()
    }


def _averaged(expected: ExpectedLog) -> ExpectedLog:
    """Return what is logged under a key if it is the mean of the lanes."""
    n = expected.n_batch

    def one(aval: Any) -> Any:
        return explicit.abstract(aval, drop=n, dtype=float_type(aval.dtype) if is_number(aval.dtype) else None)

    if not n:
        return expected
    steps = {name: explicit.abstract(aval, drop=n) for name, aval in expected.steps.items()}
    return dataclasses.replace(expected, value=jax.tree.map(one, expected.value), steps=steps, lanes=())


def _plan(
    found: Survey, reduce: Reduce | Mapping[str, Reduce] | None, every: int | None, capacity: int | None
) -> dict[str, Accumulator]:
    """Return the accumulator of each key that is accumulated.

    Raises:
        LogError: A log in a while loop is neither reduced nor bounded by `capacity`.
        UnknownNameError: `reduce` names a key that is not logged.
    """
    accumulators = planned(reduce)
    accumulators.check(found)
    plan: dict[str, Accumulator] = {}
    for key, expected in found.items():
        how = accumulators.of(key)
        if how is not None:
            plan[key] = how
        elif every is not None and every > 1:
            limit = capacity if expected.n_events is None else max(1, math.ceil(expected.n_events / every))
            plan[key] = every_nth(every) if limit is None else every_nth(every, limit=limit)
        elif capacity is not None and expected.n_events is None:
            plan[key] = last_k(capacity)
        if expected.n_events is None and (key not in plan or plan[key].stacks):
            raise LogError(
                f"The log under {key!r} at {expected.where} is in a while loop (or a fori_loop with traced bounds): "
                f"how often it happens is not known in advance, so it cannot be stacked. Keep the last n with "
                f"spool(f, capacity=n), or reduce it in the loop with spool(f, reduce={{{key!r}: 'mean'}})"
            )
    return plan


def spool(  # noqa: PLR0917  the signature users know from lox
    f: Callable[..., Any],
    argnames: str | Sequence[str] | None = None,
    keep_logs: bool = False,
    every: int | None = None,
    reduce: Reduce | Mapping[str, Reduce] | None = None,
    prefix: str = "",
    capacity: int | None = None,
    lanes: Lanes | None = "stack",
) -> Callable[..., tuple[Any, logdict]]:
    """Return a function's logs next to its results.

    Args:
        f: Any function that JAX can trace, jitted or not.
        argnames: The keys to collect; `None` for all except explicit ones.
        keep_logs: Whether an outer `spool` or `tap` sees these logs as well.
        every: Keep only each k-th event of a key, in constant memory.
        reduce: Reduce each key inside the loops, in constant memory: "mean", "sum", "min", "max", "first", "last",
            "count", "var", "std", `every(k)`, `last_k(k)`, `histogram(bins)`, or a function over the event axis, such
            as `jnp.mean`; for all keys, or by key. Functions other than those of `jax.numpy` and NumPy with these names
            need all events at once.
        prefix: A text to put in front of each key.
        capacity: How many events to keep of logs in a while loop: the last ones. `n_dropped` counts the earlier ones.
        lanes: What is collected of the lanes of a `jax.vmap` inside `f`: "stack" for arrays of all lanes, "each" for an
            event for each lane in which it happened, with the number of the lane as a step named after the axis, or
            "mean" for the mean of the lanes in which it happened. `None` for "each" where a log is under a condition
            that differs between lanes, and "stack" elsewhere.

    Returns:
        A function that returns `(f(...), logs)`. In `logs`, a `logdict`, each leaf has the events along its first axis,
        in program order; a `jax.vmap` inside `f` puts its axis second, one around the function puts it first. The
        function is compiled as one program, and traced again only for other shapes, dtypes or static arguments.

    Raises:
        LogError: At the call: logs under one key differ in shape, are in a while loop without `capacity`, or are inside
            a primitive that cannot be emitted again.
        UnknownNameError: At the call: `argnames` or `reduce` names a key that is not logged.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from sightglass.jax import log
        >>> def sum_of(xs):
        ...     def body(total, x):
        ...         log({"total": total + x})
        ...         return total + x, None
        ...     return jax.lax.scan(body, 0, xs)[0]
        >>> out, logs = spool(sum_of)(jnp.arange(4))
        >>> logs["total"].tolist()
        [0, 1, 3, 6]
    """
    wants = wanted_logs(argnames)
    check_lanes(lanes)

    def program(call: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, logdict]:
        jaxpr, tree = traced(call, arrays, wants)
        found = survey(jaxpr, lambda key, site: key if wants.include(key, explicit=site.explicit) else None)
        for key in wants.names - set(found):
            raise UnknownNameError("log", key, found, where="in argnames=")
        found = {key: _averaged(e) for key, e in found.items()} if lanes == "mean" else found
        collector = Spool(wants, found, _plan(found, reduce, every, capacity), keeps_logs=keep_logs, lanes=lanes)
        outputs, collected, state = Walk(collector).run(jaxpr, arrays, collector.start())
        return jax.tree.unflatten(tree, outputs), collector.logs(collected, state, prefix)

    return TransformedFunction(f, program)


# `strip`: a function without its logs.

P = ParamSpec("P")
R = TypeVar("R")


def strip(f: Callable[P, R]) -> Callable[P, R]:
    """Hide a function's logs from outer transformations.

    A `log` outside of any transformation leaves nothing in the program; under `strip`, this holds inside `spool`, `tap`
    and `live` too. JAX traces the backward pass of a `jax.custom_vjp` function after the call, so logs in that rule
    are not hidden.

    Args:
        f: Any function, jitted or not.

    Returns:
        A function with the same results, and the same program as without any log.
    """

    @functools.wraps(f)
    def stripped(*args: P.args, **kwargs: P.kwargs) -> R:
        with wanted(None):
            return f(*args, **kwargs)

    return stripped
