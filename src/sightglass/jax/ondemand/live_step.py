"""A live step in a run: its events, the queries on them, and which variant runs at a call.

The step is called through here while it is queried, while commands wait, and at its first call.
"""

from __future__ import annotations

import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from sightglass.core.errors import PriceError, RefusedError
from sightglass.core.threads import Background
from sightglass.core.values import type_name
from sightglass.jax.program.boundary import delivered, template
from sightglass.query.parser import parse
from sightglass.query.query import on
from sightglass.training.compiled import VariantPlan
from sightglass.training.run import Run, wiring
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import EventSource, ObservableFacts
from sightglass.training.telemetry import Telemetry

from .arguments import AbstractCall, Arguments, Signature
from .call_times import MAX_WAIT_S, CallTimes, estimate, stride
from .event_queries import StepQuery
from .loop_buffer import CallbackDelivery
from .loop_event import MAX_CALLS, LoopEvent
from .row_queries import LoopRows, RowQueries
from .variant import QueryOutputs, Variant
from .variant_compiler import CompiledVariant, Events, VariantCompiler

# A step has one signature, or two with a shorter last batch; a text model has one for each padded length.
MAX_SIGNATURES: Final = 16
AHEAD: Final = "cannot be queried: the step was compiled ahead of time; pass live() what jax.jit returned"


class LiveStep:
    """A live step in a run."""

    def __init__(
        self,
        function: Callable[..., Any],
        event: str,
        run: Run,
        ended: weakref.WeakMethod[Callable[[], None]],
        *,
        can_query: bool,
        pure: Callable[..., Any] | None = None,
        n_rounds: Callable[[Sequence[Any]], int] | None = None,
        rows: LoopRows | None = None,
    ) -> None:
        self._function = function
        self._pure = pure
        self._n_rounds = n_rounds
        self._n_calls = 0
        self.event = self._event = event
        wires = wiring(run)
        self._telemetry: Telemetry = wires.telemetry
        self._functions = wires.functions
        self._plan = VariantPlan()
        self._signature = 0
        self._ended = ended
        self._refusal = wires.refuse_variants
        self._arguments = Arguments(pure or function)
        self._signatures: list[tuple[Signature, int]] = []  # the last used first
        self._n_signatures = 0
        self._example: AbstractCall | None = None
        self._wants_events = False
        self._loops: dict[str, LoopEvent] = {}
        self._plain_times: defaultdict[int, CallTimes] = defaultdict(CallTimes)
        self._last: QueryOutputs | None = None
        self._lacking: frozenset[str] = frozenset()  # the queries whose event the last call's program does not have
        with self._telemetry.lock.turn():
            self._channel: EventSource = self._claim(event)
            self._channel.describe_next, self._channel.nested, self._channel.counted = True, (), None
            self._channel.observables.clear()
            self._channel.note = "" if can_query else AHEAD
            self._telemetry.steps.add(self)
            self._telemetry.subscriptions.refresh()
        self._compiler = (
            VariantCompiler(
                pure or function,
                event,
                receive=self._receive,
                on_events=self._on_events,
                on_done=self._telemetry.wake,
                clock_s=self._telemetry.clock.monotonic,
                counts_rounds=n_rounds is not None,
            )
            if can_query
            else None
        )
        self._rows: RowQueries | None = None
        if self._compiler is not None:
            self._channel.compiling, self._channel.lacks = self._compiler.compiling, self._lacks
        if rows is not None:
            self._rows = RowQueries(rows, function, event, receive=self._receive, on_done=self._telemetry.wake)

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the step while it is queried, while commands wait, or for the first time."""
        telemetry, channel = self._telemetry, self._channel
        given: tuple[Sequence[Any], Mapping[str, Any]] = (args, kwargs)
        if self._pure is not None:
            shape, arrays = template(args, kwargs)
            given = ((shape, *arrays), {})
        signature = None if telemetry.closed else self._arguments.signature(*given)
        if signature is None:  # the run has ended, or JAX traces the call as a part of another function
            return self._function(*args, **kwargs)
        answers = self._answers()
        self._signature = self._index_of(signature)
        abstract = functools.partial(self._arguments.abstract, *given)
        index = channel.next_index()
        # Where each event is a call, its number decides, so that streams that the run thins meet answered calls.
        self._n_calls = index if self._n_rounds is None else self._n_calls + 1
        if telemetry.commands.agrees:
            variant = self._planned(abstract)
        else:
            variant = self._variant(answers, given[0], abstract) if answers else None
            variant = self._affordable(variant, answers) if variant else None
        if channel.describe_next:
            self._describe(abstract)
        n_rounds = 1 if self._n_rounds is None else self._n_rounds(args)
        channel.advance(n_rounds - 1)
        self._skip(answers, variant, index, n_rounds)
        if variant is None:
            result = self._plainly(functools.partial(self._function, *args, **kwargs), given, answers)
            if self._event not in self._loops:
                telemetry.events.post_heads(channel, index)
        else:
            result = self._run(variant, (index, n_rounds), answers, *given)
            result = result if self._pure is None else delivered(result, args, kwargs)
        if self._n_rounds is not None:  # a command finds what these rounds leave
            jax.block_until_ready(result)
        telemetry.events.after(self._event, index + n_rounds - 1)
        return result

    def _claim(self, event: str) -> EventSource:
        """Return the source of one of this step's events.

        Raises:
            ValueError: Another live step produces events of this name.
        """
        steps = self._telemetry.steps
        for step in list(steps):
            if isinstance(step, LiveStep) and step is not self and step.event == event and step.is_of(self._function):
                step.close()  # the same cell of a notebook, run again
                steps.remove(step)
            elif isinstance(step, LiveStep) and step._ended() is None:
                steps.remove(step)
        others = (step for step in steps if isinstance(step, LiveStep) and step is not self)
        if any(event == step.event or event in {part.name for part in step._channel.nested} for step in others):
            raise ValueError(
                f"Another live step already produces events named {event!r}, and an event has one source: "
                "choose another name for this one"
            )
        return self._telemetry.subscriptions.source(event, "live")

    @property
    def stopping(self) -> bool:
        """Whether a client has asked the run to stop."""
        return self._telemetry.commands.queue.stopping

    def called_by(self, ago_s: Callable[[], float]) -> None:
        """Let clients know how many seconds ago the last call began."""
        self._channel.called = lambda: ago_s() if self._channel.n_counted else 0.0

    def is_of(self, function: Callable[..., Any]) -> bool:
        """Return whether this step's function is another one, defined under the same name at the same place."""
        mine, other = (getattr(f, "__wrapped__", f) for f in (self._function, function))
        definitions = {(getattr(f, "__module__", ""), getattr(f, "__qualname__", id(f))) for f in (mine, other)}
        return mine is not other and len(definitions) == 1

    # Called by the run

    def survey(self) -> bool:
        """Begin to find the step's events; returns whether they are known, or cannot be before the first call."""
        self._wants_events = True
        if self._compiler is None or self._example is None or self._compiler.events is not None:
            return True
        self._compiler.find_events(self._example)
        return False

    def subscriptions_changed(self) -> None:
        """Find the step's events once somebody asks; the subscriptions themselves are read by each call."""
        if self._telemetry.subscriptions.active and self._compiler is not None and self._compiler.events is None:
            self.survey()

    def flush(self, timeout_s: float) -> None:
        """Wait until the last call has delivered its query results."""
        last = self._last
        if last is not None:
            try:
                Background("wait", lambda: jax.block_until_ready(last)).join(timeout_s)
            except RuntimeError:  # the system starts no more threads
                jax.block_until_ready(last)

    def close(self) -> None:
        """End with the run."""
        if self._compiler is not None:
            self._compiler.close()
        if self._rows is not None:
            self._rows.close()
        ended = self._ended()
        if ended is not None:
            ended()

    # Subscriptions and variants

    def _answers(self) -> list[Subscription]:
        """Return the active subscriptions to the step's events."""
        answers = list(self._channel.subscriptions)
        for nested in self._channel.nested:
            answers += nested.subscriptions
        answers = [answer for answer in answers if not answer.suspended]
        reason = self._refusal or ("" if self._compiler else f"Event {self._event!r} {self._channel.note}")
        if reason:
            for answer in answers:
                answer.errors.refuse(RefusedError(reason))
            self._telemetry.wake()
            return []
        return answers

    def _queries(self, answers: Sequence[Subscription]) -> dict[str, StepQuery]:
        """Return the queries to compile, by key."""
        queries = {a.query.key: StepQuery(query=a.query, functions=a.functions) for a in answers}
        for channel in (self._channel, *self._channel.nested):
            if channel.delimits and channel.name in self._loops:  # each event in the loop closes a window: count them
                each = on(channel.name).count(every=1)
                queries.setdefault(each.key, StepQuery(query=each, functions={}))
        return queries

    def _index_of(self, signature: Signature) -> int:
        """Return the number of a signature; of too many, the least recently used is forgotten."""
        known = self._signatures
        for place, (other, number) in enumerate(known):
            if other == signature:
                if place:
                    known.insert(0, known.pop(place))
                return number
        known.insert(0, (signature, self._n_signatures))
        del known[MAX_SIGNATURES:]
        self._n_signatures += 1
        return known[0][1]

    def _variant(
        self, answers: Sequence[Subscription], args: Sequence[Any], abstract: Callable[[], AbstractCall]
    ) -> Variant | None:
        """Return the variant with these queries if it is compiled, else an older one that fits the call."""
        assert self._compiler is not None
        queries = self._queries(answers)
        reading, has_all = None, False
        if self._rows is not None:
            reading, has_all = self._rows.variant(queries, args, self._signature, abstract)
        if reading is not None and queries.keys() <= reading.keys:
            return reading
        older = filter(None, (self._compiler.newest(self._signature), reading))
        best = max(older, key=lambda one: len(one.keys & queries.keys()), default=None)
        if has_all:
            return best
        key = frozenset(queries), self._signature
        compiled = self._compiler.get(key)
        if compiled is None:
            self._compiler.request(key, tuple(queries.values()), abstract)
            return best
        self._refuse(answers, compiled)
        variant = compiled.variant
        if variant is None:
            return None
        self._lacking = frozenset(queries) - variant.keys - compiled.refused.keys()
        return variant if variant.keys else None

    def _lacks(self, query: str) -> bool:
        """Return whether the program of the last call has nothing that a query reads."""
        return query in self._lacking

    def _affordable(self, variant: Variant, answers: Sequence[Subscription]) -> Variant | None:
        """Return the variant where the budget allows it to run, and `None` for the step itself."""
        share = self._telemetry.budget.share
        if share is None or any(answer.first for answer in answers):
            return variant
        plain_s, both_s = self._plain_times[self._signature].seconds, variant.times.seconds
        if plain_s is None:
            return None
        price_s = estimate(variant.growth, variant.n_more, plain_s) if both_s is None else both_s - plain_s
        if price_s > share * MAX_WAIT_S:
            problem = (
                f"Expected queries that the budget of {share:.1%} pays for, got {price_s:.1f} s for each call of "
                f"{self._event!r}, which takes {plain_s:.3g} s without them: ask for less, or log less"
            )
            fresh = [answer for answer in answers if not answer.n_seen] if both_s is None else []
            for answer in fresh or answers:  # whom an older variant answers goes on
                answer.errors.refuse(PriceError(problem, seconds=price_s))
            self._telemetry.wake()
            return None
        if both_s is None:  # its first call is measured
            return variant
        return None if self._n_calls % stride(price_s, plain_s, share) else variant

    def _plainly(self, call: Callable[[], Any], given: object, answers: Sequence[Subscription]) -> Any:
        """Call the step itself; while somebody asks and there is a budget, now and then measure it."""
        telemetry = self._telemetry
        if not answers or telemetry.budget.share is None or telemetry.commands.agrees:
            return call()
        return self._plain_times[self._signature].measured(call, given, clock_s=telemetry.clock.monotonic)

    def _skip(self, answers: Sequence[Subscription], variant: Variant | None, index: int, n_rounds: int) -> None:
        """Count a call for the queries that have answers, but not from the program that runs now."""
        keys = variant.keys if variant is not None else frozenset()
        skipped = [a for a in answers if a.n_seen and a.query.key not in keys]
        if skipped:
            with self._telemetry.lock.mutex:
                wall_time = self._telemetry.clock.wall_now()
                for answer in skipped:
                    if answer.event in self._loops:
                        answer.n_skipped += (self._loops[answer.event].n_per_call or 1) * n_rounds
                    else:
                        answer.skip(index, wall_time)

    def _refuse(self, answers: Sequence[Subscription], compiled: CompiledVariant) -> None:
        for answer in answers:
            error = compiled.refused.get(answer.query.key)
            if error is not None:
                answer.errors.refuse(error)
                self._telemetry.wake()

    # Several processes: all of them run the same variant at the same call

    def propose(self) -> VariantPlan:
        """Return the variant that all ranks should run from the next call on, once it is compiled here."""
        answers = self._answers()
        if not answers or self._compiler is None:
            return VariantPlan()
        queries = self._queries(answers)
        compiled = self._compiler.get((frozenset(queries), self._signature))
        if compiled is None:
            old = self._plan.use if self._plan.signature == self._signature else ()
            return VariantPlan(signature=self._signature, use=old, prepare=tuple(queries))
        self._refuse(answers, compiled)
        return VariantPlan(signature=self._signature, use=tuple(queries) if compiled.variant is not None else ())

    def adopt(self, plan: VariantPlan) -> None:
        """Follow the plan of rank 0."""
        self._plan = plan

    def _planned(self, abstract: Callable[[], AbstractCall]) -> Variant | None:
        """Return the variant that all ranks run at this call; waits until it is compiled."""
        plan = self._plan
        if plan.signature != self._signature or self._compiler is None:
            return None
        if plan.prepare:
            self._compiler.request((frozenset(plan.prepare), self._signature), self._parsed(plan.prepare), abstract)
        if not plan.use:
            return None
        return self._compiler.wait((frozenset(plan.use), self._signature), self._parsed(plan.use), abstract).variant

    def _parsed(self, texts: Sequence[str]) -> tuple[StepQuery, ...]:
        return tuple(
            StepQuery(query=parse(text, functions=self._functions), functions=self._functions) for text in texts
        )

    def _describe(self, abstract: Callable[[], AbstractCall]) -> None:
        """Remember the arguments of the first call; from now on, the step's events can be found."""
        self._example = abstract()
        telemetry = self._telemetry
        with telemetry.lock.mutex:
            self._channel.describe_next = False
            telemetry.subscriptions.refresh()
        if self._wants_events or telemetry.subscriptions.active:
            self.survey()

    def _on_events(self, events: Events) -> None:
        """Describe the step's events to clients; runs on the compiler's thread."""
        assert self._compiler is not None
        subscriptions = self._telemetry.subscriptions
        with self._telemetry.lock.turn():
            self._channel.note = self._compiler.problem
            for event, occurrence in list(events.items()):
                try:
                    channel = self._channel if event == self._event else self._claim(event)
                except ValueError as error:  # the logs for this event stay hidden
                    self._channel.note = f"{error}. Its logs in {self._function.__name__!r} cannot be queried"
                    del events[event]
                    continue
                channel.describe_next = False
                channel.compiling, channel.lacks = self._compiler.compiling, self._lacks
                for name, value in occurrence.observables.items():
                    channel.observables[name] = facts_of(value)
                for name, problem in occurrence.unavailable.items():
                    channel.observables[name] = ObservableFacts("cannot be queried", problem)
                if occurrence.body is not None:
                    loop = LoopEvent(
                        telemetry=self._telemetry,
                        channel=channel,
                        calls=self._channel,
                        n_per_call=occurrence.n_per_call,
                    )
                    self._loops[event] = loop
                    channel.counted = loop.n_events
            self._channel.nested = tuple(subscriptions.sources[event] for event in events if event != self._event)
            subscriptions.refresh()

    # Calls of a variant

    def _run(
        self,
        variant: Variant,
        rounds: tuple[int, int],
        answers: Sequence[Subscription],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        telemetry, (index, n_rounds) = self._telemetry, rounds
        for buffer in variant.buffers:
            if buffer.counts_events:
                event = buffer.queries.event
                n_buffers = sum(other.queries.event == event for other in variant.buffers)
                n_per_round = buffer.queries.occurrence.n_per_call
                n_per_call = None if n_per_round is None else n_per_round * n_rounds
                self._loops[event].begin(index, n_per_call, n_buffers)
        number = np.int32(index % MAX_CALLS) if variant.buffers else None
        call = functools.partial(variant.jitted, number, *args, **kwargs)
        if telemetry.budget.share is None or telemetry.commands.agrees:
            result, outputs = call()
        else:
            result, outputs = variant.times.measured(call, (args, kwargs), clock_s=telemetry.clock.monotonic)
            self._charge(variant, answers)
        for array in [array for arrays in outputs.once for array in arrays]:
            array.copy_to_host_async()
        self._last = outputs
        for queries, arrays in zip(variant.once, outputs.once, strict=True):
            results = [
                (answer, queries.result(answer.query.key, arrays))
                for answer in answers
                if answer.event == queries.event and answer.query.key in queries.keys
            ]
            step, steps = queries.steps(arrays)
            telemetry.events.post_heads(telemetry.subscriptions.sources[queries.event], index, results, step, steps)
        if self._event not in self._loops and not any(queries.event == self._event for queries in variant.once):
            telemetry.events.post_heads(self._channel, index)
        return result

    def _charge(self, variant: Variant, answers: Sequence[Subscription]) -> None:
        """Charge a call's queries for what they take of the device."""
        plain_s, both_s = self._plain_times[self._signature].seconds, variant.times.seconds
        answered = [answer for answer in answers if answer.query.key in variant.keys]
        if plain_s is not None and both_s is not None and both_s > plain_s:
            each_s = (both_s - plain_s) / max(1, len(answered))
            with self._telemetry.lock.mutex:
                for answer in answered:
                    if answer.recorded:  # it is given up where the account of the run cannot pay for it
                        answer.cost.ahead(each_s, each_s)
                    else:
                        answer.cost.device_s += each_s

    def _receive(self, delivery: CallbackDelivery) -> None:
        self._loops[delivery.buffer.queries.event].receive(delivery)


def facts_of(value: object) -> ObservableFacts:
    """Describe an observable by its shapes and dtypes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(value)
    fields = {jax.tree_util.keystr(path, simple=True, separator="."): _type(leaf) for path, leaf in leaves if path}
    return ObservableFacts(type_name(value), fields=fields) if fields else ObservableFacts(_type(value))


def _type(aval: jax.ShapeDtypeStruct) -> str:
    return f"{aval.dtype}[{', '.join(map(str, aval.shape))}]"
