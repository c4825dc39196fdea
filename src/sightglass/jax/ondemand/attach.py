"""Query jitted functions that `live` does not wrap: `sightglass.init(jax_attach="global")`.

Theory of operation:

1. Each log in any jitted function is one event "jax". A query sees the logs that have all observables it reads.
2. The queries are the global value of a JAX user context, which is part of JAX's cache keys. So the first query and the
   end of the last make JAX trace and compile every jitted function again when it is next called. Clients see this as
   the price of the query and confirm it.
3. Changes are collected: the context changes at most once in ten seconds.
4. A query is evaluated on the tracers where the log is, and its result leaves through a raw callback. Under `vmap`, one
   event has the results of all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sightglass.core.errors import QueryError
from sightglass.core.process.threads import UNTIL_WOKEN, Worker
from sightglass.jax.program.collected import CollectedLog
from sightglass.jax.program.primitive import MARK, Site, WantedLogs, arrays, wanted
from sightglass.jax.pytree import PyTree
from sightglass.jax.tap import LogSpec, tap_p
from sightglass.query.evaluation import PerEventResult
from sightglass.query.query import FIELDS, Query
from sightglass.query.reads import paths
from sightglass.query.stages import Group, Per, Reduce
from sightglass.training.evaluation.compiled import CompiledStep
from sightglass.training.process_runs import current, when_begun
from sightglass.training.run import Run, wiring

from .event_queries import NO_FIELDS, EventQueries, StepQuery
from .live_step import facts_of
from .occurrence import Occurrence

EVENT: Final = "jax"
# Each change makes JAX compile every jitted function again, which takes seconds: a client that opens several streams
# should cause one round of it, not one per stream.
PAUSE_S: Final = 10.0
PRICE: Final = (
    "Event 'jax' is every log in any jitted function. Querying it makes JAX trace and compile again every jitted "
    "function that is called from now on, and once more after the last query ends. The run stands still while JAX "
    "compiles."
)
SITE: Final = Site(keys=(), steps=(), tree=None, explicit=False, event=EVENT, where="")


class AttachedLogs(CompiledStep):
    """The logs of all jitted functions of a process, as one event of a run."""

    event = EVENT

    def __init__(self, run: Run) -> None:
        wires = wiring(run)
        self._telemetry = wires.telemetry
        self._clock_s = wires.clock.monotonic
        self._compiled: frozenset[str] = frozenset()
        self._changed_s = -math.inf
        self._worker = Worker("attach", self._switch)
        with self._telemetry.lock.turn():
            self._channel = self._telemetry.subscriptions.source(EVENT, "attached")
            self._channel.describe_next = False
            self._refusal = wires.refusal("Queries of jitted functions", planned=False)
            self._channel.price = self._refusal or PRICE
            self._telemetry.steps.add(self)
            self._telemetry.subscriptions.refresh()

    def subscriptions_changed(self) -> None:
        """Begin to switch if the subscriptions have changed."""
        if self._compiled != frozenset(answer.query.key for answer in self._channel.subscriptions):
            self._worker.wake()

    def flush(self, timeout_s: float) -> None:
        """Wait for the callbacks in progress."""
        jax.effects_barrier()

    def close(self) -> None:
        """End with the run: remove the queries, and wait for the next run."""
        if wanted.value is not None and isinstance(wanted.value.listener, _QueryListener):
            wanted.set_global(None)
        when_begun(attach)

    def _switch(self, now_s: float) -> float:
        """Compile the current queries from now on; return how long to rest."""
        wait_s = self._changed_s + PAUSE_S - self._clock_s()
        if wait_s > 0:
            return wait_s
        with self._telemetry.lock.turn():
            answers = [answer for answer in self._channel.subscriptions if not answer.suspended]
            for answer in answers:
                problem = self._refusal or _problem(answer.query)
                if problem:
                    answer.errors.refuse(QueryError(problem))
            queries = {a.query.key: StepQuery(query=a.query, functions=a.functions) for a in answers if not a.suspended}
        self._telemetry.wake()
        if self._compiled != frozenset(queries) and not self._telemetry.closed:
            self._compiled = frozenset(queries)
            self._changed_s = self._clock_s()
            listener = _QueryListener(self, tuple(queries.values()))
            wanted.set_global(WantedLogs(False, frozenset(), listener=listener) if queries else None)
        return UNTIL_WOKEN

    def describe(self, values: Mapping[str, Any]) -> None:
        """Describe the observables of a log that is traced."""
        with self._telemetry.lock.turn():
            for name, value in values.items():
                self._channel.observables[name] = facts_of(value)

    def deliver(self, queries: EventQueries, outputs: Sequence[npt.NDArray[Any]]) -> None:
        """Pass on what a callback received; called by threads of XLA's."""
        wall_time = self._telemetry.clock.wall_now()

        def settle(error: BaseException | None) -> None:
            index = self._channel.next_index()
            step, steps = queries.steps(outputs)
            step = index if step is None else np.ravel(step)[0]
            results = {}
            for answer in self._channel.subscriptions:
                key = answer.query.key
                result = (
                    queries.result(key, outputs) if key in queries.keys else PerEventResult(None, False, (), (), False)
                )
                results[answer] = [(index, step, wall_time, result, steps)]
            self._telemetry.events.settle(self._channel, results, n_events=1)

        self._telemetry.deferred.defer_loop(settle)

    def refuse(self, queries: EventQueries) -> None:
        """Refuse the queries that cannot be evaluated."""
        if queries.refused:
            with self._telemetry.lock.turn():
                for answer in self._channel.subscriptions:
                    if answer.query.key in queries.refused:
                        answer.errors.refuse(queries.refused[answer.query.key])
            self._telemetry.wake()


def _problem(query: Query) -> str:
    """Return why the event cannot answer a query, or an empty text."""
    for stage in query.stages:
        if isinstance(stage, Reduce) and isinstance(stage.window, Group | Per):
            return (
                "Event 'jax' has no groups, and no other event can close its windows: give "
                f"{stage.name} a window, for example {stage.name}(every=100)"
            )
    if {(FIELDS, "index"), (FIELDS, "wall_time")} & {*paths(query)}:
        return NO_FIELDS.format(EVENT)
    return ""


class _QueryListener:
    """Evaluates the current queries at each log while JAX traces. Compares by identity, as JAX's cache keys need it."""

    def __init__(self, attached: AttachedLogs, queries: Sequence[StepQuery]) -> None:
        self._attached = attached
        self._queries = queries

    def on_log(self, data: Mapping[str, Any], steps: Mapping[str, Any], *, explicit: bool, where: str) -> None:
        """Add a callback to the program where a log is, if the log has what a query reads."""
        matching = [
            query for query in self._queries if query.is_satisfied_by(data) and not (explicit and query.names is None)
        ]
        if not matching:
            return
        reads_all = any(query.names is None for query in matching)
        names = data if reads_all else {name for query in matching for name in query.names or ()}
        values = {name: arrays(data[name], f"of {name!r} in the log at {where}") for name in names}
        values = {name: value for name, value in values.items() if jax.tree.leaves(value)}
        collected = {name: _single(value) for name, value in values.items()}
        if steps:
            collected[MARK] = _single(
                {name: arrays(value, f"of step {name!r} at {where}") for name, value in steps.items()}
            )
        queries = EventQueries(Occurrence(event=EVENT, body=None, n_per_call=None, logs={}, unavailable={}), matching)
        outputs = queries.evaluate(collected)
        self._attached.describe(values)
        self._attached.refuse(queries)
        if queries.keys:
            spec = LogSpec(replace(SITE, tree=jax.tree.structure(outputs)))
            tap_p.bind(jnp.int32(0), *outputs, specs=(spec,), tap=_Callback(self._attached, queries))


class _Callback:
    """Receives the arrays of a raw callback; `tap_p` calls it."""

    def __init__(self, attached: AttachedLogs, queries: EventQueries) -> None:
        self._attached = attached
        self._queries = queries

    def deliver(self, specs: Sequence[LogSpec], operands: Sequence[npt.NDArray[Any]]) -> None:
        """Pass the arrays on; of a masked log, those of the lanes for which it happened."""
        (spec,) = specs
        if spec.masked:
            mask, *operands = operands
            if not np.any(mask):
                return
            operands = [operand[mask] for operand in operands] if spec.axes else operands
        self._attached.deliver(self._queries, list(operands))


def _single(value: PyTree) -> CollectedLog:
    return CollectedLog(jax.tree.map(lambda leaf: leaf[None], value), {}, None)


def attach(run: Run) -> None:
    """Let a run's clients query the logs of all jitted functions, if the run wants it; else wait for the next run."""
    if wiring(run).settings.jax_attach == "global" and not run.disabled:
        AttachedLogs(run)
    else:
        when_begun(attach)


_begun = current()
if _begun is None:
    when_begun(attach)
else:
    attach(_begun)
