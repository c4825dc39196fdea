"""A live step in a run: its calls, its events, and the queries on them.

The step is called through here while it is queried, while commands wait, and at its first call.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from sightglass.core.errors import RefusedError
from sightglass.core.process.threads import Background
from sightglass.core.values import type_name
from sightglass.jax.program.traced_function import delivered, template
from sightglass.query.query import on
from sightglass.training.evaluation.compiled import VariantPlan
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.subscriptions import EventSource, ObservableFacts
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.run import Run, wiring

from .event_queries import StepQuery
from .loop_buffer import MAX_CALLS, CallbackDelivery, LoopEvent
from .step_variants import LoopRows, RowQueries, StepBudget, StepVariants
from .variant import QueryOutputs, Variant
from .variant_compiler import AbstractCall, Arguments, Events, Signatures, VariantCompiler

AHEAD: Final = "cannot be queried: the step was compiled ahead of time; pass live() what jax.jit returned"


def is_held(run: Run, event: str, *, after: int) -> bool:
    """Return whether an event is that of a live step which was made later than number `after`."""
    steps = wiring(run).telemetry.steps
    return any(isinstance(step, LiveStep) and step.event == event and step.number > after for step in steps)


class LiveStep:
    """A live step in a run; `number` counts the live steps of the process."""

    def __init__(
        self,
        function: Callable[..., Any],
        event: str,
        run: Run,
        ended: weakref.WeakMethod[Callable[..., None]],
        *,
        number: int,
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
        self.number = number
        wires = wiring(run)
        self._telemetry: Telemetry = wires.telemetry
        self._signature = 0
        self._ended = ended
        self._refusal = functools.partial(wires.refusal, "Queries of compiled steps")
        self._arguments = Arguments(pure or function)
        self._signatures = Signatures()
        self._example: AbstractCall | None = None
        self._wants_events = False
        self._loops: dict[str, LoopEvent] = {}
        self._compiler: VariantCompiler | None = None
        self._variants: StepVariants | None = None
        self._budget = StepBudget(self._telemetry, event)
        self._last: QueryOutputs | None = None
        with self._telemetry.lock.turn():
            self._channel: EventSource = self._claim(event)
            self._channel.describe_next, self._channel.nested, self._channel.counted = True, (), None
            self._channel.observables.clear()
            self._channel.note = "" if can_query else AHEAD
            self._telemetry.steps.add(self)
            self._telemetry.subscriptions.refresh()
        if can_query:
            wake = self._telemetry.wake
            self._compiler = compiler = VariantCompiler(
                pure or function, event, receive=self._receive, on_events=self._on_events, on_done=wake,
                clock_s=self._telemetry.clock.monotonic, counts_rounds=n_rounds is not None, share=self._budget.share,
            )  # fmt: skip
            beside = None if rows is None else RowQueries(rows, function, event, receive=self._receive, on_done=wake)
            self._variants = StepVariants(compiler, beside, functions=wires.functions, wake=wake)
            self._channel.compiling, self._channel.lacks = compiler.compiling, self._variants.lacks

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
        self._signature = self._signatures.number(signature)
        abstract = functools.partial(self._arguments.abstract, *given)
        index = channel.next_index()
        # Where each event is a call, its number decides, so that streams that the run thins meet answered calls.
        self._n_calls = index if self._n_rounds is None else self._n_calls + 1
        variant, n = self._choose(answers, given[0], abstract)
        if channel.describe_next:
            self._describe(abstract)
        n_rounds = 1 if self._n_rounds is None else self._n_rounds(args)
        channel.advance(n_rounds - 1)
        self._skip(answers, variant, index, n_rounds)
        if variant is None:
            call = functools.partial(self._function, *args, **kwargs)
            result = self._budget.plain(call, given, signature=self._signature) if answers else call()
            if self._event not in self._loops:
                telemetry.events.post_heads(channel, index)
        else:
            result = self._run(variant, index, given, answers, n_rounds=n_rounds, n=n)
            result = result if self._pure is None else delivered(result, args, kwargs)
        if self._n_rounds is not None:  # a command finds what these rounds leave
            jax.block_until_ready(result)
        telemetry.events.after(self._event, index + n_rounds - 1)
        return result

    def _claim(self, event: str) -> EventSource:
        """Return the source of one of this step's events; another live step of this event is replaced.

        Raises:
            ValueError: The loops of another live step are events of this name.
        """
        steps = self._telemetry.steps
        for step in [step for step in steps if isinstance(step, LiveStep) and step is not self]:
            if step.event == event:
                step.close(replaced=True)
            if step.event == event or step._ended() is None:
                steps.remove(step)
            elif event in {part.name for part in step._channel.nested}:
                raise ValueError(
                    f"A loop of another live step already is the event {event!r}, and an event has one source: "
                    "choose another name for this one"
                )
        return self._telemetry.subscriptions.source(event, "live")

    @property
    def stopping(self) -> bool:
        """Whether a client has asked the run to stop."""
        return self._telemetry.commands.queue.read_stopping()

    def called_by(self, ago_s: Callable[[], float]) -> None:
        """Let clients know how many seconds ago the last call began."""
        self._channel.called = lambda: ago_s() if self._channel.n_counted else 0.0

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

    def close(self, *, replaced: bool = False) -> None:
        """End with the run, or because another step is `replaced` for it."""
        if self._variants is not None:
            self._variants.close()
        ended = self._ended()
        if ended is not None:
            ended(replaced)

    def propose(self) -> VariantPlan:
        """Return the variant that all ranks should run from the next call on."""
        answers = self._answers()
        if not answers or self._variants is None:
            return VariantPlan()
        name = self._signatures.name(self._signature)
        return self._variants.propose(self._queries(answers), answers, signature=self._signature, name=name)

    def adopt(self, plan: VariantPlan) -> None:
        """Follow the plan of rank 0."""
        if self._variants is not None:
            self._variants.adopt(plan)
            with self._telemetry.lock.mutex:
                self._channel.planned = bool(plan.use or plan.prepare)
                self._telemetry.subscriptions.refresh()

    # Subscriptions

    def _answers(self) -> list[Subscription]:
        """Return the active subscriptions to the step's events."""
        answers = [answer for source in self._sources for answer in source.subscriptions if not answer.suspended]
        agreement = self._telemetry.commands.agreement
        lack = "" if agreement is None else agreement.lack
        reason = lack or self._refusal() or ("" if self._compiler else f"Event {self._event!r} {self._channel.note}")
        if reason:
            for answer in answers:
                answer.errors.refuse(RefusedError(reason))
            self._telemetry.wake()
            return []
        return answers

    def _queries(self, answers: Sequence[Subscription]) -> dict[str, StepQuery]:
        """Return the queries to compile, by key."""
        queries = {a.query.key: StepQuery(query=a.query, functions=a.functions) for a in answers}
        for channel in self._sources:
            if channel.delimits and channel.name in self._loops:  # each event in the loop closes a window: count them
                each = on(channel.name).count(every=1)
                queries.setdefault(each.key, StepQuery(query=each, functions={}))
        return queries

    def _choose(
        self, answers: Sequence[Subscription], args: Sequence[Any], abstract: Callable[[], AbstractCall]
    ) -> tuple[Variant | None, int]:
        """Return the variant that a call runs, or `None`, and of how many events in its loops it answers one."""
        variants, signature = self._variants, self._signature
        if variants is None:
            return None, 1
        if self._telemetry.commands.agrees:
            return variants.planned(signature, self._signatures.name(signature), abstract), 1
        if not answers:
            return None, 1
        variant = variants.find(self._queries(answers), answers, signature=signature, args=args, abstract=abstract)
        if variant is None:
            return None, 1
        thins = not any(source.delimits for source in self._sources if source.name in self._loops)
        return self._budget.choose(variant, answers, signature=signature, n_calls=self._n_calls, thins=thins)

    @property
    def _sources(self) -> tuple[EventSource, ...]:
        return (self._channel, *self._channel.nested)

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

    # Events

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
        assert self._variants is not None
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
                channel.compiling, channel.lacks = self._compiler.compiling, self._variants.lacks
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
        index: int,
        given: tuple[Sequence[Any], Mapping[str, Any]],
        answers: Sequence[Subscription],
        *,
        n_rounds: int,
        n: int,
    ) -> Any:
        """Call a variant that answers one of n events in its loops, and pass its query results on."""
        args, kwargs = given
        telemetry = self._telemetry
        for buffer in variant.buffers:
            if buffer.counts_events:
                event = buffer.queries.event
                n_buffers = sum(other.queries.event == event for other in variant.buffers)
                n_per_round = buffer.queries.occurrence.n_per_call
                n_per_call = None if n_per_round is None else n_per_round * n_rounds
                self._loops[event].begin(index, n_per_call, n_buffers)
        number = np.array([index % MAX_CALLS, n], np.int32) if variant.buffers else None
        call = functools.partial(variant.jitted, number, *args, **kwargs)
        result, outputs = self._budget.queried(variant, n, call, given, signature=self._signature, answers=answers)
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

    def _receive(self, delivery: CallbackDelivery) -> None:
        self._loops[delivery.buffer.queries.event].receive(delivery)


def facts_of(value: object) -> ObservableFacts:
    """Describe an observable by its shapes and dtypes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(value)
    fields = {jax.tree_util.keystr(path, simple=True, separator="."): _type(leaf) for path, leaf in leaves if path}
    return ObservableFacts(type_name(value), fields=fields) if fields else ObservableFacts(_type(value))


def _type(aval: jax.ShapeDtypeStruct) -> str:
    return f"{aval.dtype}[{', '.join(map(str, aval.shape))}]"
