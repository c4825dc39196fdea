"""Which variant of a live step has the queries of its clients: the one compiled for them; until then, an older one."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import jax

from sightglass.core.errors import PriceError
from sightglass.query.parser import parse
from sightglass.training.evaluation.compiled import VariantPlan
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.telemetry import Telemetry

from .call_times import MAX_WAIT_S, CallPeriod, CallTimes, estimate, every, guess, price_of, stride
from .event_queries import StepQuery
from .variant import Variant
from .variant_compiler import AbstractCall, CompiledVariant, VariantCompiler

# Queries on what the rows of a loop tell: answered after a chunk, beside the step, which stays as it is.
#
# 1. A program that reads the rows of a chunk and logs them is small: queries are compiled into it in a fraction of the
#    time that the step takes to compile, and cost the step nothing.
# 2. It runs after the step, on what the step returned. Its results leave as those of any other variant.
# 3. Queries that need more are compiled into the step itself; until that is done, the others are answered from here.


class LoopRows(Protocol):
    """Reads the logs that the rows of a chunk tell.

    Attributes:
        jitted: A jitted function that logs them, and returns nothing.
    """

    jitted: Any

    def keys(self, args: Sequence[Any]) -> Collection[str]:
        """Return what it logs for the step's own event, given the arguments of a call of the step."""
        ...

    def arguments(self, args: Sequence[Any], results: Any = None) -> tuple[Any, ...]:
        """Return its arguments after a call of the step; without results, similar ones."""
        ...


class RowQueries:
    """The queries on the own event of one step that its rows answer."""

    def __init__(self, reader: LoopRows, step: Callable[..., Any], event: str, **options: Any) -> None:
        """Begin without queries.

        Args:
            reader: Reads the rows.
            step: The step.
            event: Its own event.
            **options: As for `VariantCompiler`.
        """
        self._reader = reader
        self._step = step
        self._event = event
        self._compiler = VariantCompiler(
            reader.jitted, event, on_events=lambda events: None, on_compiled=self._beside, counts_rounds=True, **options
        )

    def variant(
        self,
        queries: Mapping[str, StepQuery],
        args: Sequence[Any],
        signature: int,
        abstract: Callable[[], AbstractCall],
    ) -> tuple[Variant | None, bool]:
        """Return the variant with those queries that rows answer, and whether these are all.

        Args:
            queries: The queries on the step, by key.
            args: The arguments of its call.
            signature: The number of their signature.
            abstract: Returns the call without its values.
        """
        keys = self._reader.keys(args)
        answered = tuple(one for one in queries.values() if keys and self._is_answered(one, keys))
        if not answered:
            return None, False
        key, has_all = (frozenset(one.key for one in answered), signature), len(answered) == len(queries)
        compiled = self._compiler.get(key)
        if compiled is None:
            self._compiler.request(key, answered, lambda: self._abstract(abstract()))
            return self._compiler.newest(signature), has_all
        return compiled.variant, has_all and not compiled.refused

    def close(self) -> None:
        """Start no more work."""
        self._compiler.close()

    def _is_answered(self, one: StepQuery, keys: Collection[str]) -> bool:
        return one.query.event == self._event and one.names is not None and one.is_satisfied_by(keys)

    def _abstract(self, call: AbstractCall) -> AbstractCall:
        args = self._reader.arguments(call.args)
        return dataclasses.replace(call, args=args, n_traced=len(args) - (len(call.args) - call.n_traced))

    def _beside(self, variant: Variant) -> None:
        """Let a variant run the step first, and then read its rows."""
        read = variant.jitted

        def both(number: jax.Array, *args: Any) -> tuple[Any, Any]:
            results = self._step(*args)
            _, outputs = read(number, *self._reader.arguments(args, results))
            return results, outputs

        variant.jitted = both
        variant.growth, variant.n_more = 1.0, 0.0  # next to the step; what it adds is known as soon as it has run


# Which variant a call runs.


class StepVariants:
    """The variants of one step."""

    def __init__(
        self,
        compiler: VariantCompiler,
        rows: RowQueries | None,
        *,
        functions: Mapping[str, Callable[..., Any]],
        wake: Callable[[], None],
    ) -> None:
        """Start without queries.

        Args:
            compiler: Compiles the variants.
            rows: Answers what the rows of a loop tell.
            functions: The functions of the run that queries may call, by name.
            wake: Lets clients know that a query was refused.
        """
        self._compiler = compiler
        self._rows = rows
        self._functions = functions
        self._wake = wake
        self._plan = VariantPlan()
        self._lacking: frozenset[str] = frozenset()  # the queries whose event the last call's program does not have

    def find(
        self,
        queries: Mapping[str, StepQuery],
        answers: Sequence[Subscription],
        *,
        signature: int,
        args: Sequence[Any],
        abstract: Callable[[], AbstractCall],
    ) -> Variant | None:
        """Return the variant with these queries if it is compiled, else an older one that fits the call.

        Args:
            queries: The queries, by key.
            answers: Their subscriptions.
            signature: The number of the call's signature.
            args: The arguments of the call.
            abstract: Returns the call without its values.
        """
        reading, has_all = None, False
        if self._rows is not None:
            reading, has_all = self._rows.variant(queries, args, signature, abstract)
        if reading is not None and queries.keys() <= reading.keys:
            return reading
        older = filter(None, (self._compiler.newest(signature), reading))
        best = max(older, key=lambda one: len(one.keys & queries.keys()), default=None)
        if has_all:
            return best
        key = frozenset(queries), signature
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

    def lacks(self, query: str) -> bool:
        """Return whether the program of the last call has nothing that a query reads."""
        return query in self._lacking

    def close(self) -> None:
        """Start no more work."""
        self._compiler.close()
        if self._rows is not None:
            self._rows.close()

    # Several processes: all of them run the same variant at the same call

    def propose(
        self, queries: Mapping[str, StepQuery], answers: Sequence[Subscription], *, signature: int, name: str
    ) -> VariantPlan:
        """Return the variant that all ranks should run from the next call on, once it is compiled here.

        Args:
            queries: The queries, by key.
            answers: Their subscriptions.
            signature: The number of the signature.
            name: Its name on all ranks.
        """
        compiled = self._compiler.get((frozenset(queries), signature))
        if compiled is None:
            old = self._plan.use if self._plan.signature == name else ()
            return VariantPlan(signature=name, use=old, prepare=tuple(queries))
        self._refuse(answers, compiled)
        return VariantPlan(signature=name, use=tuple(queries) if compiled.variant is not None else ())

    def adopt(self, plan: VariantPlan) -> None:
        """Follow the plan of rank 0."""
        self._plan = plan

    def planned(self, signature: int, name: str, abstract: Callable[[], AbstractCall]) -> Variant | None:
        """Return the variant that all ranks run at this call; waits until it is compiled. Arguments as `propose`."""
        plan = self._plan
        if plan.signature != name:
            return None
        if plan.prepare:
            self._compiler.request((frozenset(plan.prepare), signature), self._parsed(plan.prepare), abstract)
        if not plan.use:
            return None
        return self._compiler.wait((frozenset(plan.use), signature), self._parsed(plan.use), abstract).variant

    def _parsed(self, texts: Sequence[str]) -> tuple[StepQuery, ...]:
        return tuple(
            StepQuery(query=parse(text, functions=self._functions), functions=self._functions) for text in texts
        )

    def _refuse(self, answers: Sequence[Subscription], compiled: CompiledVariant) -> None:
        for answer in answers:
            error = compiled.refused.get(answer.query.key)
            if error is not None:
                answer.errors.refuse(error)
                self._wake()


# Which calls of a live step answer its queries, and how many events of its loops, so that they stay in the budget.
#
# What calls take is measured in `call_times.py`, and so is the arithmetic.


class StepBudget:
    """The budget of one step."""

    def __init__(self, telemetry: Telemetry, event: str) -> None:
        self._telemetry = telemetry
        self._event = event
        self._plain: defaultdict[int, CallTimes] = defaultdict(CallTimes)
        self._period = CallPeriod()

    @property
    def share(self) -> float | None:
        """The part of the time that queries may take; `None` for any, and where all ranks run what a plan says."""
        return None if self._telemetry.commands.agrees else self._telemetry.budget.share

    def choose(
        self, variant: Variant, answers: Sequence[Subscription], *, signature: int, n_calls: int, thins: bool
    ) -> tuple[Variant | None, int]:
        """Decide what a call runs.

        Args:
            variant: The variant that has queries.
            answers: Their subscriptions.
            signature: The number of the call's signature.
            n_calls: How many calls there were before.
            thins: Whether events within a call may be left out.

        Returns:
            The variant, or `None` for the step itself; and of how many events in its loops it answers one.
        """
        share, plain_s = self.share, self._plain[signature].seconds
        self._period.begins(self._telemetry.clock.monotonic())
        if share is None or any(answer.first for answer in answers):
            return variant, 1
        if plain_s is None:
            return None, 1
        period_s = self._period.seconds(plain_s)
        prices_s = {n: times.seconds - plain_s for n, times in variant.times.items() if times.seconds is not None}
        largest = variant.max_every if thins else 1
        allowed_s = period_s * share / (1 - share)
        n = every(prices_s or {1: guess(variant.growth_of_rounds, plain_s)}, allowed_s, largest)
        price_s = price_of(prices_s, n) if prices_s else estimate(variant.growth, variant.n_more, plain_s) / n
        if price_s > share * MAX_WAIT_S:
            fresh = [answer for answer in answers if not answer.n_seen]
            self._refuse(answers if prices_s else fresh or answers, price_s, plain_s, share)
            return None, 1
        m = stride(price_s, period_s, share)
        for answer in answers:
            answer.program_stride = m * n
        if n in prices_s and n_calls % m:  # its first call is measured
            return None, n
        self._period.takes(price_s)
        return variant, n

    def plain(self, call: Callable[[], Any], given: object, *, signature: int) -> Any:
        """Call the step itself; while there is a budget, now and then measure it."""
        if self.share is None:
            return call()
        return self._plain[signature].measured(call, given, clock_s=self._telemetry.clock.monotonic)

    def queried(
        self,
        variant: Variant,
        n: int,
        call: Callable[[], Any],
        given: object,
        *,
        signature: int,
        answers: Sequence[Subscription],
    ) -> Any:
        """Call a variant that answers one of n events in its loops, and charge its queries for the device's time."""
        if self.share is None:
            return call()
        result = variant.times[n].measured(call, given, clock_s=self._telemetry.clock.monotonic)
        plain_s, both_s = self._plain[signature].seconds, variant.times[n].seconds
        answered = [answer for answer in answers if answer.query.key in variant.keys]
        if plain_s is not None and both_s is not None and both_s > plain_s:
            each_s = (both_s - plain_s) / max(1, len(answered))
            with self._telemetry.lock.mutex:
                for answer in answered:
                    if answer.recorded:  # it is given up where the account of the run cannot pay for it
                        answer.cost.ahead(each_s, each_s)
                    else:
                        answer.cost.device_s += each_s
        return result

    def _refuse(self, answers: Sequence[Subscription], price_s: float, plain_s: float, share: float) -> None:
        problem = (
            f"Expected queries that the budget of {share:.1%} pays for, got {price_s:.1f} s for each call of "
            f"{self._event!r}, which takes {plain_s:.3g} s without them: ask for less, or log less"
        )
        for answer in answers:  # of new ones alone, if there are any: whom an older variant answers goes on
            answer.errors.refuse(PriceError(problem, seconds=price_s))
        self._telemetry.wake()
