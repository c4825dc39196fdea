"""A step in a run: what it logs, what is asked of it, and which variant runs at a call.

It is called in the step's place while anybody asks, acts wait, or the step was not called yet.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np

from sightglass.core.errors import RefusedError
from sightglass.core.threads import Background
from sightglass.core.values import type_name
from sightglass.query.parser import parse
from sightglass.query.query import on
from sightglass.training.commands import VariantPlan
from sightglass.training.events import Emitter
from sightglass.training.run import Run, wiring
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import EventSource, ObservableFacts

from .arguments import Arguments, Called, Signature
from .compiling import Compiler, Found, Made
from .loops import CALLS, Loop
from .variant import Asked, CallbackDelivery, Extras, Variant

MAX_SIGNATURES: Final = 16
AHEAD: Final = "cannot be asked: the step was compiled ahead of time; give live() what jax.jit returned"


class LiveStep:
    """A step in a run."""

    def __init__(
        self, function: Any, event: str, run: Run, ended: weakref.WeakMethod[Callable[[], None]], *, is_askable: bool
    ) -> None:
        self._function = function
        self.event = self._event = event
        wires = wiring(run)
        self._emitter: Emitter = wires.emitter
        self._functions = wires.functions
        self._plan = VariantPlan()
        self._number = 0
        self._ended = ended
        self._refusal = wires.refuse_variants
        self._arguments = Arguments(function)
        self._signatures: list[Signature] = []
        self._example: Any = None
        self._survey_wanted = False
        self._loops: dict[str, Loop] = {}
        self._last: Extras | None = None
        with self._emitter.turn():
            self._channel: EventSource = self._claimed(event)
            self._channel.describe_next, self._channel.parts, self._channel.counted = True, (), None
            self._channel.offered.clear()
            self._channel.note = "" if is_askable else AHEAD
            self._emitter.steps.append(self)
            self._emitter.demand.refresh()
        self._compiler = (
            Compiler(function, event, receive=self._receive, surveyed=self._surveyed, done=self._emitter.wake)
            if is_askable
            else None
        )

    def call(self, args: Any, kwargs: Any) -> Any:
        """Call the function with attention: somebody asks, acts wait, or it is the first call."""
        emitter, channel = self._emitter, self._channel
        signature = None if emitter.closed else self._arguments.signature(args, kwargs)
        if signature is None:  # the run is over, or the call is part of what is being traced
            return self._function(*args, **kwargs)
        answers = self._answers()
        number = self._number = self._numbered(signature)
        called = functools.partial(self._arguments.called, args, kwargs)
        if emitter.agrees:
            variant = self._planned(called)
        else:
            variant = self._variant(answers, number, called) if answers else None
        if channel.describe_next:
            self._see_first(called)
        index = channel.next_index()
        if variant is None:
            result = self._function(*args, **kwargs)
            if self._event not in self._loops:
                emitter.happened(channel, index)
        else:
            result = self._run(variant, index, answers, args, kwargs)
        emitter.between(self._event, index)
        return result

    def _claimed(self, event: str) -> EventSource:
        """Return the channel of an event of this step's.

        Raises:
            ValueError: The event comes from elsewhere already: an event name has one source.
        """
        steps = self._emitter.steps
        for step in list(steps):
            if isinstance(step, LiveStep) and step is not self and step.event == event and step.is_of(self._function):
                step.close()  # the same cell of a notebook, run again
                steps.remove(step)
        steps[:] = [step for step in steps if not isinstance(step, LiveStep) or step._ended() is not None]
        others = (step for step in steps if isinstance(step, LiveStep) and step is not self)
        if any(event == step.event or event in {part.name for part in step._channel.parts} for step in others):
            raise ValueError(
                f"Event {event!r} comes from another live step already; an event name has one source: "
                "give this one another name"
            )
        return self._emitter.demand.channel(event, "live")

    def is_of(self, function: Any) -> bool:
        """Return whether this is a step of a function that was defined under the same name, at the same place."""
        mine, other = (getattr(f, "__wrapped__", f) for f in (self._function, function))
        places = {(getattr(f, "__module__", ""), getattr(f, "__qualname__", id(f))) for f in (mine, other)}
        return mine is not other and len(places) == 1

    # For the emitter

    def survey(self) -> bool:
        """Begin to find out what the step logs; returns whether it is known, or cannot be before the first call."""
        self._survey_wanted = True
        if self._compiler is None or self._example is None or self._compiler.found is not None:
            return True
        self._compiler.survey(self._example)
        return False

    def asked(self) -> None:
        """See that what is asked has changed: the next call looks by itself."""

    def flush(self, timeout_s: float) -> None:
        """Wait until the last call has brought all that was asked of it."""
        last = self._last
        if last is not None:
            Background("wait", lambda: jax.block_until_ready(last)).join(timeout_s)

    def close(self) -> None:
        """See the run end."""
        if self._compiler is not None:
            self._compiler.close()
        ended = self._ended()
        if ended is not None:
            ended()

    # What is asked

    def _answers(self) -> list[Subscription]:
        """Return the answers to queries about this step, and about what happens within it."""
        answers = list(self._channel.answers)
        for part in self._channel.parts:
            answers += part.answers
        answers = [answer for answer in answers if not answer.suspended]
        reason = self._refusal or ("" if self._compiler else f"Event {self._event!r} {self._channel.note}")
        if reason:
            for answer in answers:
                answer.refuse(RefusedError(reason))
            self._emitter.wake()
            return []
        return answers

    def _asked(self, answers: Sequence[Subscription]) -> dict[str, Asked]:
        asked = {a.query.key: Asked(query=a.query, functions=a.functions) for a in answers}
        for channel in (self._channel, *self._channel.parts):
            if channel.delimits and channel.name in self._loops:  # a loop whose passes delimit groups is to be heard of
                each = on(channel.name).count(every=1)
                asked.setdefault(each.key, Asked(query=each, functions={}))
        return asked

    def _numbered(self, signature: Signature) -> int:
        """Return the number of a signature; there is a bounded number of them."""
        if signature not in self._signatures:
            self._signatures.append(signature)
            if len(self._signatures) > MAX_SIGNATURES:
                self._signatures = [signature]
                if self._compiler is not None:
                    self._compiler.forget()
        return self._signatures.index(signature)

    def _variant(self, answers: Sequence[Subscription], number: int, called: Callable[[], Called]) -> Variant | None:
        """Return the variant that answers, if it is ready, or else an older one that fits."""
        assert self._compiler is not None
        asked = self._asked(answers)
        name = frozenset(asked), number
        made = self._compiler.get(name)
        if made is None:
            self._compiler.want(name, tuple(asked.values()), called)
            return self._compiler.newest(number)
        self._refuse(answers, made)
        return made.variant

    def _refuse(self, answers: Sequence[Subscription], made: Made) -> None:
        for answer in answers:
            error = made.refused.get(answer.query.key)
            if error is not None:
                answer.refuse(error)
                self._emitter.wake()

    # Several processes: all of them run the same variant at the same call

    def propose(self) -> VariantPlan:
        """Say what all ranks are to run from the next call on: what is asked here, once it is compiled here."""
        answers = self._answers()
        if not answers or self._compiler is None:
            return VariantPlan()
        asked = self._asked(answers)
        made = self._compiler.get((frozenset(asked), self._number))
        if made is None:
            old = self._plan.use if self._plan.signature == self._number else ()
            return VariantPlan(signature=self._number, use=old, prepare=tuple(asked))
        self._refuse(answers, made)
        return VariantPlan(signature=self._number, use=tuple(asked) if made.variant is not None else ())

    def adopt(self, plan: VariantPlan) -> None:
        """Follow the plan of rank 0."""
        self._plan = plan

    def _planned(self, called: Callable[[], Called]) -> Variant | None:
        """Return the variant that all ranks run at this call; the one who is late with it, waits for it."""
        plan = self._plan
        if plan.signature != self._number or self._compiler is None:
            return None
        if plan.prepare:
            self._compiler.want((frozenset(plan.prepare), self._number), self._parsed(plan.prepare), called)
        if not plan.use:
            return None
        return self._compiler.wait((frozenset(plan.use), self._number), self._parsed(plan.use), called).variant

    def _parsed(self, texts: Sequence[str]) -> tuple[Asked, ...]:
        return tuple(Asked(query=parse(text, functions=self._functions), functions=self._functions) for text in texts)

    def _see_first(self, called: Callable[[], Called]) -> None:
        """See what the step is called with; from now on it can be asked what it logs."""
        self._example = called()
        emitter = self._emitter
        with emitter.lock:
            self._channel.describe_next = False
            emitter.demand.refresh()
        if self._survey_wanted or emitter.demand.answers:
            self.survey()

    def _surveyed(self, found: Found) -> None:
        """Let clients see what the step logs; runs on the compiler's thread."""
        assert self._compiler is not None
        demand = self._emitter.demand
        with self._emitter.turn():
            self._channel.note = self._compiler.problem
            for event, occurrence in list(found.items()):
                try:
                    channel = self._channel if event == self._event else self._claimed(event)
                except ValueError as error:  # what is logged for it here stays unseen
                    self._channel.note = f"{error}. The logs for it in {self._function.__name__!r} cannot be asked"
                    del found[event]
                    continue
                channel.describe_next = False
                for name, value in occurrence.observables.items():
                    channel.offered[name] = offered(value)
                for name, problem in occurrence.unfit.items():
                    channel.offered[name] = ObservableFacts("cannot be asked", problem)
                if occurrence.body is not None:
                    loop = Loop(
                        emitter=self._emitter, channel=channel, calls=self._channel, n_per_call=occurrence.n_per_call
                    )
                    self._loops[event] = loop
                    channel.counted = loop.n_events
            self._channel.parts = tuple(demand.channels[event] for event in found if event != self._event)
            demand.refresh()

    # Calls of a variant

    def _run(self, variant: Variant, index: int, answers: Sequence[Subscription], args: Any, kwargs: Any) -> Any:
        emitter = self._emitter
        for part in variant.looped:
            if part.leads:
                event = part.occurrence.event
                n_parts = sum(other.occurrence.event == event for other in variant.looped)
                self._loops[event].begin(index, part.occurrence.n_per_call, n_parts)
        result, extras = variant.jitted(np.int32(index % CALLS) if variant.looped else None, *args, **kwargs)
        for array in [array for arrays in extras.arrays for array in arrays]:
            array.copy_to_host_async()
        self._last = extras
        for part, arrays in zip(variant.once, extras.arrays, strict=True):
            event = part.occurrence.event
            heads = [
                (answer, part.head(answer.query.key, arrays))
                for answer in answers
                if answer.event == event and answer.query.key in part.keys
            ]
            step, steps = part.steps(arrays)
            channel = emitter.demand.channels[event]
            emitter.happened(channel, index, heads, step, steps)
        if self._event not in self._loops and not any(part.occurrence.event == self._event for part in variant.once):
            emitter.happened(self._channel, index)
        return result

    def _receive(self, delivery: CallbackDelivery) -> None:
        self._loops[delivery.part.occurrence.event].receive(delivery)


def offered(value: Any) -> ObservableFacts:
    """Describe an observable by its shapes and dtypes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(value)
    fields = {jax.tree_util.keystr(path, simple=True, separator="."): _type(leaf) for path, leaf in leaves if path}
    return ObservableFacts(type_name(value), fields=fields) if fields else ObservableFacts(_type(value))


def _type(aval: Any) -> str:
    return f"{aval.dtype}[{', '.join(map(str, aval.shape))}]"
