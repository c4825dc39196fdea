"""A step with queries compiled into it: only the queries' results leave the program.

What happens once a call leaves as additional outputs. What happens in a loop is buffered on the device and leaves
through callbacks, one for each loop body and window length.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from sightglass.core.errors import SightglassError
from sightglass.core.process.threads import short_turns
from sightglass.jax.program import compat
from sightglass.jax.program.collected import CollectedLog, CollectedLogs, joined
from sightglass.jax.program.gate import GatedRound
from sightglass.jax.program.primitive import EVERYTHING, MARK, LogEvent, Site, WantedLogs
from sightglass.jax.program.survey import Survey, work
from sightglass.jax.program.traced_function import traced
from sightglass.jax.program.walk import Collector, Walk
from sightglass.jax.pytree import PyTree

from .call_times import CallTimes, guess
from .event_queries import EventQueries, StepQuery
from .loop_buffer import MIN_ROUNDS, BufferState, LoopBuffer, Receive, largest_every
from .occurrence import Occurrence, occurrences, placed

# What a buffer computes at each event besides the queries: where the event stands in its window, and whether to send.
N_APPEND: Final = 16


class _QueryCollector(Collector):
    """Evaluates queries where their events happen; its state is that of each loop buffer, by position.

    An event never happens inside a `shard_map`, so its devices leave the state unchanged.
    """

    def __init__(
        self, found: Mapping[str, Occurrence], once: Sequence[EventQueries], buffers: Sequence[LoopBuffer]
    ) -> None:
        self._found = found
        self._buffers = buffers
        self._reads: dict[str, frozenset[str]] = {}
        for queries in (*once, *(buffer.queries for buffer in buffers)):
            self._reads[queries.event] = self._reads.get(queries.event, frozenset()) | queries.reads
        self._open: list[int] = []

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, Any]:
        made: list[CollectedLogs] = []
        for event in events:
            for key, value in event.data.items():
                name = self.collected_as(key, event.site)
                if name is not None:
                    value = self._found[event.site.event].logs[key].cast(value)
                    value, mask = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), (value, event.mask))
                    made.append({name: CollectedLog(value, {}, mask)})
        return joined(made), state

    def collected_as(self, key: str, site: Site) -> str | None:
        event = site.event
        if key not in self._reads.get(event, ()):
            return None
        body = self._found[event].body
        return f"{event}{MARK}{key}" if body is None or id(body) in self._open else None

    def completed(self, found: Survey) -> Survey:
        logs = {name: self._found[(at := name.split(MARK, 1))[0]].logs[at[1]] for name in found}
        return {name: dataclasses.replace(e, value=logs[name].value, steps={}) for name, e in found.items()}

    def run(self, walk: Walk, jaxpr: compat.AnyJaxpr, values: Sequence[Any], state: PyTree) -> Any:
        inner, _ = compat.opened(jaxpr)
        gated = {i: b for i, b in enumerate(self._buffers) if b.max_every > 1 and b.queries.occurrence.body is inner}
        if not gated:
            return None
        self.enter(inner)
        gate = GatedRound(walk, frozenset(buffer.queries.event for buffer in gated.values()))
        outputs, found, state = gate.begin(jaxpr, values, state)

        def answered() -> dict[int, BufferState]:
            collected = joined(gate.rest())
            return {i: b.append(state[i], _of_event(b.queries.event, collected)) for i, b in gated.items()}

        def skipped() -> dict[int, BufferState]:
            return {i: b.passed(state[i]) for i, b in gated.items()}

        is_due = state[next(iter(gated))].left == 0  # in one body, all are due in the same rounds
        collected, state = self.leave(inner, joined(found), {**state, **lax.cond(is_due, answered, skipped)})
        return outputs, collected, state

    def enter(self, jaxpr: compat.AnyJaxpr) -> None:
        self._open.append(id(jaxpr))

    def leave(self, jaxpr: compat.AnyJaxpr, collected: CollectedLogs, state: PyTree) -> tuple[CollectedLogs, Any]:
        self._open.pop()
        rest = dict(collected)
        for i, buffer in enumerate(self._buffers):
            if buffer.queries.occurrence.body is jaxpr:
                of_event = _of_event(buffer.queries.event, collected)
                if buffer.max_every == 1:
                    state = {**state, i: buffer.append(state[i], of_event)}
                for key in of_event:
                    rest.pop(f"{buffer.queries.event}{MARK}{key}", None)
        return rest, state


def _of_event(event: str, collected: CollectedLogs) -> dict[str, CollectedLog]:
    """Return what was logged for an event, by key."""
    prefix = f"{event}{MARK}"
    return {name.removeprefix(prefix): log for name, log in collected.items() if name.startswith(prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOutputs:
    """What a variant returns besides the step's own results.

    Attributes:
        once: The arrays of `Variant.once`, in its order.
        tokens: For each of `Variant.buffers` the last token: once it is ready, all callbacks have run.
    """

    once: list[list[jax.Array]]
    tokens: list[jax.Array]


jax.tree_util.register_dataclass(QueryOutputs, ["once", "tokens"], [])


class Variant:
    """A step with queries compiled into it.

    Attributes:
        jitted: Takes the number of the call and of how many events in its loops one is answered, a power of two, as an
            array of int32; then the step's arguments. Returns its results and `QueryOutputs`.
        once: The queries on events that happen once a call.
        buffers: The queries on events that happen in loops, one buffer for each event and window length.
        times: What calls took, by the number of events in loops of which one was answered.
        growth: About how many times the operations of the step it takes, once it is compiled; NaN if not known.
        growth_of_rounds: The same, where loops of unknown length take a few rounds; always known.
        n_more: How many operations it takes more than the step; NaN if not known.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        own: str,
        queries: Sequence[StepQuery],
        receive: Receive,
        *,
        n_args: int = 0,
        output_sharding: NamedSharding | None = None,
        counts_rounds: bool = False,
        share: float | None = None,
    ) -> None:
        """Prepare a variant; JAX traces it when it is called or compiled.

        Args:
            function: The user's jitted function.
            own: The step's own event.
            queries: The queries, on its own event and on events within the step.
            receive: Called by a thread of XLA's with what happened in loops; must not raise, call JAX, or wait.
            n_args: How many positional arguments it is called with that are not static.
            output_sharding: The sharding of `QueryOutputs`; `None` for any.
            counts_rounds: As in `placed`.
            share: The part of the time that queries may take: its loops are gated if they may take more; `None` for
                any.
        """
        self.once: list[EventQueries] = []
        self.buffers: list[LoopBuffer] = []
        self.times: defaultdict[int, CallTimes] = defaultdict(CallTimes)
        self.growth, self.n_more, self.growth_of_rounds = 1.0, 0.0, 1.0
        self._function = function
        self._own = own
        self._queries = tuple(queries)
        self._receive = receive
        self._counts_rounds = counts_rounds
        self._share = share
        self._n_plain = self._n_plain_of_rounds = 0.0  # the operations of the step, once it is traced

        def program(call: jax.Array, *args: PyTree, **kwargs: PyTree) -> tuple[Any, QueryOutputs]:
            return self._program(call, args, kwargs)

        program.__name__ = program.__qualname__ = getattr(function, "__name__", "step")
        self.jitted: Any = jax.jit(program, **compat.options_around(function, n_args, output_sharding))

    @property
    def max_every(self) -> int:
        """The largest number of events in its loops of which one may be answered; 1 if all are."""
        return max((buffer.max_every for buffer in self.buffers), default=1)

    def compile(self, call: jax.ShapeDtypeStruct | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Trace and compile it for shapes and shardings; a call with such arguments finds it compiled.

        Args:
            call: The shape of the first argument; `None` without events in loops.
            args: The shapes of the others.
            kwargs: The shapes of those by name.
        """
        with short_turns():
            traced = self.jitted.trace(call, *args, **kwargs)
            n, n_of_rounds = _counted(traced.jaxpr)
            self.growth, self.n_more = n / self._n_plain, n - self._n_plain
            self.growth_of_rounds = n_of_rounds / self._n_plain_of_rounds
        with short_turns():  # again: what tracing has made is old by now
            lowered = traced.lower()
        with short_turns():
            lowered.compile()  # without the interpreter's lock, but for its begin and end

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """The queries that it answers."""
        every = (*self.once, *(buffer.queries for buffer in self.buffers))
        return frozenset().union(*(queries.keys for queries in every))

    @property
    def refused(self) -> dict[str, SightglassError]:
        """Why a query cannot be evaluated, by its key."""
        every = (*self.once, *(buffer.queries for buffer in self.buffers))
        return {key: error for queries in every for key, error in queries.refused.items()}

    def _program(self, call: jax.Array, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, QueryOutputs]:
        for wanted in (self._wanted(), EVERYTHING):
            jaxpr, structure, arrays = _traced(self._function, args, kwargs, wanted)
            program = placed(jaxpr, self._own, counts_rounds=self._counts_rounds)
            found = occurrences(program)
            asked = [found[query.query.event] for query in self._queries if query.query.event in found]
            if all(event.sign is not None for event in asked if event.is_log):
                break  # else a query that only counts a log's events names no key of it: when does it happen?
        self._divide(found)
        self._n_plain, self._n_plain_of_rounds = (max(1.0, n) for n in _counted(jaxpr, logs=False))
        if self._is_costly(program.jaxpr):
            self._gate()
        state = {i: buffer.start(call) for i, buffer in enumerate(self.buffers)}
        collector = _QueryCollector(found, self.once, self.buffers)
        results, collected, state = Walk(collector).run(program.jaxpr, arrays, state)
        once = [queries.evaluate(_of_event(queries.event, collected)) for queries in self.once]
        tokens = [buffer.send(state[i], is_last=True).token for i, buffer in enumerate(self.buffers)]
        return jax.tree.unflatten(structure, results), QueryOutputs(once=once, tokens=tokens)

    def _wanted(self) -> WantedLogs:
        names = [query.names for query in self._queries]
        return WantedLogs(None in names, frozenset().union(*filter(None, names)), marks=True)

    def _divide(self, found: Mapping[str, Occurrence]) -> None:
        """Group the queries by event and, in loops, by window length."""
        self.once, self.buffers = [], []
        for event, occurrence in found.items():
            queries = [query for query in self._queries if query.query.event == event]
            if occurrence.body is None:
                self.once += [EventQueries(occurrence, queries)] if queries else []
                continue
            windows = dict.fromkeys(query.window_events for query in queries)
            shortest = min(windows, key=lambda n: n or math.inf, default=None)  # it is sent most often
            for n in windows:
                same = EventQueries(occurrence, [query for query in queries if query.window_events == n])
                self.buffers.append(LoopBuffer(same, self._receive, window_events=n, counts_events=n == shortest))

    def _is_costly(self, jaxpr: compat.AnyJaxpr) -> bool:
        """Return whether the queries may take more than their share if each event of each loop is answered."""
        if self._share is None or not self.buffers:
            return False
        more: defaultdict[int, float] = defaultdict(float)
        for buffer in self.buffers:
            more[id(buffer.queries.occurrence.body)] += N_APPEND + work(buffer.evaluation, n_rounds=MIN_ROUNDS)
        growth = work(jaxpr, n_rounds=MIN_ROUNDS, more=more) / self._n_plain_of_rounds
        return guess(growth, 1.0) > self._share

    def _gate(self) -> None:
        """Let calls say of how many events in long loops one is answered."""
        for buffer in self.buffers:
            if not buffer.queries.occurrence.lanes:
                buffer.max_every = largest_every(buffer.queries.occurrence.n_rounds)


def _counted(jaxpr: compat.AnyJaxpr, *, logs: bool = True) -> tuple[float, float]:
    """Return the operations of a program, and those where loops of unknown length take a few rounds."""
    n = work(jaxpr, logs=logs)
    return n, work(jaxpr, logs=logs, n_rounds=MIN_ROUNDS) if math.isnan(n) else n


def find_events(
    function: Callable[..., Any],
    own: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    counts_rounds: bool = False,
) -> dict[str, Occurrence]:
    """Return the events of a jitted function called with these arguments, whose arrays may be shapes."""
    found: dict[str, Occurrence] = {}

    def program(*args: PyTree, **kwargs: PyTree) -> None:
        jaxpr, _, _ = _traced(function, args, kwargs, EVERYTHING)
        found.update(occurrences(placed(jaxpr, own, counts_rounds=counts_rounds)))

    positions, names = compat.static_arguments(function)
    with short_turns():
        jax.jit(program, static_argnums=positions, static_argnames=names).eval_shape(*args, **kwargs)
    return found


def _traced(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], logs: WantedLogs
) -> tuple[Any, Any, list[Any]]:
    """Trace a jitted function with the logs it is wanted with, within a trace.

    Returns:
        Its jaxpr, the structure of its results, and the values of the jaxpr's inputs.
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    is_traced = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]

    def call(*arrays: jax.Array) -> Any:
        rest = iter(arrays)
        args, kwargs = tree.unflatten([next(rest) if t else leaf for leaf, t in zip(leaves, is_traced, strict=True)])
        return function.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    arrays = [leaf for leaf, t in zip(leaves, is_traced, strict=True) if t]
    jaxpr, structure = traced(call, arrays, logs)
    return jaxpr, structure, arrays
