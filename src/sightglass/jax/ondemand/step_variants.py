"""Which variant of a live step has the queries of its clients: the one compiled for them; until then, an older one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sightglass.query.parser import parse
from sightglass.training.compiled import VariantPlan
from sightglass.training.subscription import Subscription

from .arguments import AbstractCall
from .event_queries import StepQuery
from .row_queries import RowQueries
from .variant import Variant
from .variant_compiler import CompiledVariant, VariantCompiler


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
        self, queries: Mapping[str, StepQuery], answers: Sequence[Subscription], *, signature: int
    ) -> VariantPlan:
        """Return the variant that all ranks should run from the next call on, once it is compiled here."""
        compiled = self._compiler.get((frozenset(queries), signature))
        if compiled is None:
            old = self._plan.use if self._plan.signature == signature else ()
            return VariantPlan(signature=signature, use=old, prepare=tuple(queries))
        self._refuse(answers, compiled)
        return VariantPlan(signature=signature, use=tuple(queries) if compiled.variant is not None else ())

    def adopt(self, plan: VariantPlan) -> None:
        """Follow the plan of rank 0."""
        self._plan = plan

    def planned(self, signature: int, abstract: Callable[[], AbstractCall]) -> Variant | None:
        """Return the variant that all ranks run at this call; waits until it is compiled."""
        plan = self._plan
        if plan.signature != signature:
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
