"""Variants of a step, made on a background thread while the step goes on.

Only what is wanted last is made: whoever asks for something else meanwhile, replaces it. A bounded number of variants
is kept, the least recently used goes first.
"""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from sightglass.core.errors import EvaluationError, QueryError, SightglassError, UnknownNameError
from sightglass.core.threads import Worker

from .arguments import Called
from .occurrence import Occurrence
from .variant import Asked, Receive, Variant, find

MAX_VARIANTS: Final = 8
JOIN_S: Final = 600.0

Found = dict[str, Occurrence]
Name = tuple[frozenset[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A variant that was made.

    Attributes:
        variant: What to call; `None` if there is nothing to be answered.
        refused: The queries that cannot be answered, by their keys, and why.
    """

    variant: Variant | None
    refused: dict[str, SightglassError]


class Compiler:
    """Makes variants of one step.

    Attributes:
        found: The events of the step, when they are known.
        problem: Why they cannot be known.
    """

    def __init__(
        self,
        function: Any,
        event: str,
        *,
        receive: Receive,
        surveyed: Callable[[Found], None],
        done: Callable[[], None],
    ) -> None:
        """Begin without variants.

        Args:
            function: The user's jitted function.
            event: Its own event.
            receive: Takes what happens in loops.
            surveyed: Called when the step's events are known, on the background thread.
            done: Called after each piece of work, on the background thread.
        """
        self.found: Found | None = None
        self.problem = ""
        self._function = function
        self._event = event
        self._receive = receive
        self._surveyed = surveyed
        self._done = done
        self._made: OrderedDict[Name, Made] = OrderedDict()
        self._wanted: tuple[Name, tuple[Asked, ...], Called] | None = None
        self._example: Called | None = None
        self._is_open = True
        self._worker = Worker("compile", self._work)
        _compilers.add(self)

    def survey(self, called: Called) -> None:
        """Let it be found out what happens in the step."""
        self._example = called
        self._worker.wake()

    def get(self, name: Name) -> Made | None:
        """Return a variant that was made."""
        with self._worker.lock:
            made = self._made.get(name)
            if made is not None:
                self._made.move_to_end(name)
            return made

    def newest(self, number: int) -> Variant | None:
        """Return the variant that was used last with a signature."""
        with self._worker.lock:
            made = (self._made[name] for name in reversed(self._made) if name[1] == number)
            return next((one.variant for one in made), None)

    def want(self, name: Name, asked: tuple[Asked, ...], called: Callable[[], Called]) -> None:
        """Let a variant be made, unless it is under way."""
        if self._wanted is None or self._wanted[0] != name:
            self._wanted = (name, asked, called())
            self._worker.wake()

    def wait(self, name: Name, asked: tuple[Asked, ...], called: Callable[[], Called]) -> Made:
        """Return a variant, however long it takes to make it."""
        while (made := self.get(name)) is None:
            self.want(name, asked, called)
            self._worker.round(60.0)
        return made

    def close(self) -> None:
        """Begin nothing any more."""
        self._is_open = False
        self._worker.close(0.0)

    def join(self) -> None:
        """Wait until nothing is under way."""
        self.close()
        self._worker.close(JOIN_S)

    def forget(self) -> None:
        """Drop all variants."""
        with self._worker.lock:
            self._made.clear()

    def _work(self) -> None:
        while self._is_open and (
            (self._example is not None and self.found is None and not self.problem) or self._wanted is not None
        ):
            wanted = self._wanted
            if self.found is None and not self.problem:
                self._find(self._example or wanted[2])  # type: ignore[index]
            if wanted is not None and self._is_open:
                made = self._make(wanted[1], wanted[2])
                with self._worker.lock:
                    self._made[wanted[0]] = made
                    for name in list(itertools.islice(self._made, max(0, len(self._made) - MAX_VARIANTS))):
                        del self._made[name]
                if self._wanted is wanted:
                    self._wanted = None
            self._done()

    def _find(self, called: Called) -> None:
        try:
            with called.settings():
                found = find(self._function, self._event, called.args, called.kwargs)
        except Exception as error:  # noqa: BLE001  the program's own code is traced here
            self.problem = f"Cannot trace {_name(self._function)} with its logs: {type(error).__name__}: {error}"
            found = {}
        self.found = found
        self._surveyed(found)

    def _make(self, asked: Sequence[Asked], called: Called) -> Made:
        refused = {one.key: error for one in asked if (error := self._unanswerable(one)) is not None}
        answerable = [one for one in asked if one.key not in refused]
        if not answerable:
            return Made(variant=None, refused=refused)
        variant = Variant(
            self._function,
            self._event,
            answerable,
            self._receive,
            n_args=called.n_traced,
            whole=_on_all_processes(called),
        )
        try:
            number = jax.ShapeDtypeStruct((), np.int32) if self._is_looped(answerable) else None
            with called.settings():
                variant.compile(number, called.args, called.kwargs)
        except Exception as error:  # noqa: BLE001  the program's own code is traced here
            problem = f"Cannot compile the query into {_name(self._function)}: {type(error).__name__}: {error}"
            return Made(variant=None, refused={one.key: EvaluationError(problem) for one in asked} | refused)
        moved = [part for part in variant.looped if not self._is_in_loop(part.occurrence.event)]
        if moved:
            problem = (
                f"Event {moved[0].occurrence.event!r} happens in a loop with these static arguments, not with others"
            )
            return Made(variant=None, refused={one.key: QueryError(problem) for one in asked} | refused)
        for part in variant.parts:
            refused |= part.refused
        return Made(variant=variant, refused=refused)

    def _is_looped(self, asked: Sequence[Asked]) -> bool:
        return any(self._is_in_loop(one.query.event) for one in asked)

    def _is_in_loop(self, event: str) -> bool:
        assert self.found is not None
        return event in self.found and self.found[event].body is not None

    def _unanswerable(self, one: Asked) -> SightglassError | None:
        """Say why a query cannot be answered, if that is known before it is tried."""
        if self.problem:
            return EvaluationError(self.problem)
        assert self.found is not None
        occurrence = self.found.get(one.query.event)
        if occurrence is None:
            return QueryError(f"Nothing is logged for event {one.query.event!r} by {_name(self._function)}")
        if occurrence.body is not None and jax.process_count() > 1:
            return QueryError(
                f"Event {one.query.event!r} happens in a compiled loop, which cannot be looked into in a program of "
                "several processes: callbacks run in one of them. Log what a call adds up to, outside the loop"
            )
        known = occurrence.observables
        for name in one.names or ():
            if name in occurrence.unfit:
                return QueryError(occurrence.unfit[name])
            if name not in known:
                return UnknownNameError("observable", name, known, where=f"at event {one.query.event!r}")
        return None


_compilers: weakref.WeakSet[Compiler] = weakref.WeakSet()


def _join_all() -> None:
    """Let the interpreter end only when no thread is within JAX: it would abort the process."""
    for compiler in list(_compilers):
        compiler.close()
    for compiler in list(_compilers):
        compiler.join()


atexit.register(_join_all)


def _on_all_processes(called: Called) -> NamedSharding | None:
    """Return the sharding in which each process has the whole of an array, where there are several."""
    if jax.process_count() == 1:
        return None
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((called.args, called.kwargs)))
    mesh = next((sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)), None)
    return None if mesh is None else NamedSharding(mesh, PartitionSpec())


def _name(function: Any) -> str:
    return repr(getattr(function, "__name__", "the step"))
