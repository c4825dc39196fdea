"""Queries on what the rows of a loop tell: answered after a chunk, beside the step, which stays as it is.

Theory of operation:

1. A program that reads the rows of a chunk and logs them is small: queries are compiled into it in a fraction of the
   time that the step takes to compile, and cost the step nothing.
2. It runs after the step, on what the step returned. Its results leave as those of any other variant.
3. Queries that need more are compiled into the step itself; until that is done, the others are answered from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import jax

from .arguments import AbstractCall
from .event_queries import StepQuery
from .variant import Variant
from .variant_compiler import VariantCompiler


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
