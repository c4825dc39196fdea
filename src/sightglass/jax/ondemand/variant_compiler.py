"""Compiles variants of a step on a background thread while the step runs.

Only the latest request is compiled: a new one replaces one that has not begun. A bounded number of variants is cached,
the least recently used is dropped first.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jax.sharding import NamedSharding, PartitionSpec

from sightglass.core.errors import EvaluationError, QueryError, SightglassError, UnknownNameError
from sightglass.core.process.threads import UNTIL_WOKEN, Worker
from sightglass.jax.program import compat
from sightglass.query.query import FIELDS

from .event_queries import NO_FIELDS, StepQuery
from .loop_buffer import Receive
from .occurrence import Occurrence
from .variant import Variant, find_events

# Each variant holds an executable as large as the step's own. Clients open and close streams in turn, and a step has as
# many variants for the same queries as it has shapes.
MAX_VARIANTS: Final = 16
# A thread that is still inside XLA when the interpreter ends aborts the process, and compiling can take minutes.
JOIN_S: Final = 600.0
# How long `wait` sleeps between two looks; the worker wakes it earlier.
WAIT_S: Final = 60.0

Events = dict[str, Occurrence]
VariantKey = tuple[frozenset[str], int]
"""The keys of the queries, and the number of the call's signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledVariant:
    """The result of compiling queries into a step.

    Attributes:
        variant: The program to call; `None` if no query can be evaluated.
        refused: Why a query cannot be evaluated, by its key.
    """

    variant: Variant | None
    refused: dict[str, SightglassError]


class VariantCompiler:
    """Compiles the variants of one step.

    Attributes:
        events: The events of the step, once they are known.
        problem: Why they cannot be known.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        event: str,
        *,
        receive: Receive,
        on_events: Callable[[Events], None],
        on_done: Callable[[], None],
        on_compiled: Callable[[Variant], None] = lambda variant: None,
        clock_s: Callable[[], float] = time.monotonic,
        counts_rounds: bool = False,
        share: float | None = None,
    ) -> None:
        """Start without variants.

        Args:
            function: The user's jitted function.
            event: Its own event.
            receive: Called with what happens in loops.
            on_events: Called on the background thread when the step's events are known.
            on_done: Called on the background thread after each piece of work.
            on_compiled: Called on the background thread with each variant before it is used.
            clock_s: The time.
            counts_rounds: As in `placed`.
            share: The part of the time that queries may take; `None` for any.
        """
        self.events: Events | None = None
        self.problem = ""
        self._function = function
        self._event = event
        self._receive = receive
        self._on_events = on_events
        self._on_done = on_done
        self._on_compiled = on_compiled
        self._clock_s = clock_s
        self._requested_s = 0.0
        self._counts_rounds = counts_rounds
        self._share = share
        self._compiled: OrderedDict[VariantKey, CompiledVariant] = OrderedDict()
        self._requested: tuple[VariantKey, tuple[StepQuery, ...], AbstractCall] | None = None
        self._example: AbstractCall | None = None
        self._is_open = True
        self._worker = Worker("compile", self._work)
        _compilers.add(self)

    def find_events(self, call: AbstractCall) -> None:
        """Find the events of the step in the background."""
        self._example = call
        self._worker.wake()

    def get(self, key: VariantKey) -> CompiledVariant | None:
        """Return a compiled variant."""
        with self._worker.lock:
            compiled = self._compiled.get(key)
            if compiled is not None:
                self._compiled.move_to_end(key)
            return compiled

    def newest(self, signature: int) -> Variant | None:
        """Return the most recently used variant for a signature."""
        with self._worker.lock:
            compiled = (self._compiled[key] for key in reversed(self._compiled) if key[1] == signature)
            return next((one.variant for one in compiled), None)

    def request(self, key: VariantKey, queries: tuple[StepQuery, ...], call: Callable[[], AbstractCall]) -> None:
        """Compile a variant in the background, unless that has been requested already."""
        if self._requested is None or self._requested[0] != key:
            self._requested, self._requested_s = (key, queries, call()), self._clock_s()
            self._worker.wake()

    def compiling(self, query: str) -> float | None:
        """Return how many seconds ago a variant with a query was requested; `None` if none is being compiled."""
        requested = self._requested
        return None if requested is None or query not in requested[0][0] else self._clock_s() - self._requested_s

    def wait(
        self, key: VariantKey, queries: tuple[StepQuery, ...], call: Callable[[], AbstractCall]
    ) -> CompiledVariant:
        """Return a variant, and wait until it is compiled."""
        while (compiled := self.get(key)) is None:
            self.request(key, queries, call)
            self._worker.flush(WAIT_S)
        return compiled

    def close(self) -> None:
        """Start no more work."""
        self._is_open = False
        self._worker.close(0.0)

    def join(self) -> None:
        """Wait until no work is in progress."""
        self.close()
        self._worker.close(JOIN_S)

    def _work(self, now_s: float) -> float | None:
        while self._is_open and (
            (self._example is not None and self.events is None and not self.problem) or self._requested is not None
        ):
            requested = self._requested
            if self.events is None and not self.problem:
                self._find_events(self._example or requested[2])  # type: ignore[index]
            if requested is not None and self._is_open:
                compiled = self._compile(requested[1], requested[2])
                with self._worker.lock:
                    self._compiled[requested[0]] = compiled
                    for key in list(itertools.islice(self._compiled, max(0, len(self._compiled) - MAX_VARIANTS))):
                        del self._compiled[key]
                if self._requested is requested:
                    self._requested = None
            self._on_done()
        return UNTIL_WOKEN if self._is_open else None

    def _find_events(self, call: AbstractCall) -> None:
        try:
            with call.settings():
                events = find_events(
                    self._function, self._event, call.args, call.kwargs, counts_rounds=self._counts_rounds
                )
        except Exception as error:  # noqa: BLE001  the user's code is traced here
            self.problem = f"Cannot trace {_name(self._function)} with its logs: {type(error).__name__}: {error}"
            events = {}
        self.events = events
        self._on_events(events)

    def _compile(self, queries: Sequence[StepQuery], call: AbstractCall) -> CompiledVariant:
        refused = {query.key: error for query in queries if (error := self._refusal(query)) is not None}
        accepted = [query for query in queries if query.key not in refused]
        if not accepted:
            return CompiledVariant(variant=None, refused=refused)

        def refuse_all(error: SightglassError) -> CompiledVariant:
            return CompiledVariant(variant=None, refused={query.key: error for query in queries} | refused)

        variant = Variant(
            self._function,
            self._event,
            accepted,
            self._receive,
            n_args=call.n_traced,
            output_sharding=_replicated(call),
            counts_rounds=self._counts_rounds,
            share=self._share,
        )
        has_loops = any(self._is_in_loop(query.query.event) for query in accepted)
        try:
            number = jax.ShapeDtypeStruct((2,), np.int32) if has_loops else None
            with call.settings():
                variant.compile(number, call.args, call.kwargs)
        except Exception as error:  # noqa: BLE001  the user's code is traced here
            problem = f"Cannot compile the query into {_name(self._function)}: {type(error).__name__}: {error}"
            return refuse_all(EvaluationError(problem))
        for buffer in variant.buffers:
            event = buffer.queries.event
            if not self._is_in_loop(event):
                return refuse_all(
                    QueryError(f"Event {event!r} happens in a loop with these static arguments, but not with others")
                )
        self._on_compiled(variant)
        return CompiledVariant(variant=variant, refused=refused | variant.refused)

    def _is_in_loop(self, event: str) -> bool:
        assert self.events is not None
        return event in self.events and self.events[event].body is not None

    def _refusal(self, query: StepQuery) -> SightglassError | None:
        """Return why a query cannot be evaluated, if that is known without compiling it."""
        if self.problem:
            return EvaluationError(self.problem)
        assert self.events is not None
        event = query.query.event
        occurrence = self.events.get(event)
        if occurrence is None:
            return QueryError(f"{_name(self._function)} logs nothing for event {event!r}")
        if occurrence.body is not None and jax.process_count() > 1:
            return QueryError(
                f"Event {event!r} happens in a compiled loop. Such events cannot be queried in a program of several "
                "processes, because callbacks run in only one of them. Log an aggregate outside the loop instead"
            )
        known = occurrence.observables
        if query.query.reads_fields and FIELDS not in known:
            return QueryError(NO_FIELDS.format(event))
        for name in query.names or ():
            if name in occurrence.unavailable:
                return QueryError(occurrence.unavailable[name])
            if name not in known:
                return self._elsewhere(event, name) or UnknownNameError(
                    "observable", name, known, where=f"at event {event!r}"
                )
        return None

    def _elsewhere(self, event: str, name: str) -> SightglassError | None:
        """Return where to ask for what the step's own event does not have, if a loop of its logs it."""
        assert self.events is not None
        loops = [one for one in self.events.values() if name in one.observables]
        if event != self._event or not loops:
            return None
        places = " or ".join(f"{one.event}.{name}" for one in loops)
        return QueryError(
            f"{name!r} is logged in a loop, and each round of a loop is an event of its own: ask {places}. To ask "
            f"{event}.{name} for what all rounds log, stacked, write log(…, event={event!r}) there"
        )


_compilers: weakref.WeakSet[VariantCompiler] = weakref.WeakSet()


def _join_all() -> None:
    """Keep the interpreter from ending while a thread is inside JAX: that aborts the process."""
    for compiler in list(_compilers):
        compiler.close()
    for compiler in list(_compilers):
        compiler.join()


atexit.register(_join_all)


def _replicated(call: AbstractCall) -> NamedSharding | None:
    """Return the sharding that gives every process the whole array; `None` in a program of one process."""
    if jax.process_count() == 1:
        return None
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((call.args, call.kwargs)))
    mesh = next((sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)), None)
    return None if mesh is None else NamedSharding(mesh, PartitionSpec())


def _name(function: Callable[..., Any]) -> str:
    return repr(getattr(function, "__name__", "the step"))


# Arguments of a step: distinguished by shapes, dtypes and shardings, never by the values of arrays.

# A step has one signature, or two with a shorter last batch; a text model has one for each padded length.
MAX_SIGNATURES: Final = 16

Signature = tuple[Any, ...]
SCALARS: Final = (bool, int, float, complex, str, bytes, type(None))

_no_trace = get_opaque_trace_state(convention="flax")


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractCall:
    """A call without its values: enough to compile a program for it.

    Attributes:
        args: The positional arguments, with shapes in place of arrays; static ones unchanged.
        kwargs: The keyword arguments, likewise.
        n_traced: How many of `args` are not static.
        settings: Enters the JAX settings in which the call was made.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    n_traced: int
    settings: Callable[[], AbstractContextManager[object]]


class Signatures:
    """The signatures of the last calls of a step, numbered."""

    def __init__(self) -> None:
        self._known: list[tuple[Signature, int]] = []  # the last used first
        self._names: dict[int, str] = {}
        self._n = 0

    def number(self, signature: Signature) -> int:
        """Return the number of a signature; of too many, the least recently used is forgotten."""
        known = self._known
        for place, (other, number) in enumerate(known):
            if other == signature:
                if place:
                    known.insert(0, known.pop(place))
                return number
        known.insert(0, (signature, self._n))
        del known[MAX_SIGNATURES:]
        self._n += 1
        return known[0][1]

    def name(self, number: int) -> str:
        """Return what all ranks call a signature. Their numbers differ: a rank does not look at each of its calls."""
        if number not in self._names:
            signature = next((one for one, other in self._known if other == number), None)
            self._names[number] = "" if signature is None else _name_of(signature)
        return self._names[number]


class Arguments:
    """Reads the arguments of a jitted function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        positions, names = compat.static_arguments(function)
        self._positions, self._names = frozenset(positions), frozenset(names)

    def signature(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Signature | None:
        """Return a value that is equal for calls of the same compiled program; `None` while JAX traces the call."""
        static: tuple[object, ...] = ()
        if self._positions or self._names:
            static = tuple(args[i] for i in self._positions if i < len(args))
            static += tuple((name, kwargs[name]) for name in self._names if name in kwargs)
            args = [arg for i, arg in enumerate(args) if i not in self._positions]
            kwargs = {name: arg for name, arg in kwargs.items() if name not in self._names}
        leaves, tree = jax.tree.flatten((args, kwargs))
        types = {type(leaf) for leaf in leaves}
        traced = any(issubclass(kind, jax.core.Tracer) for kind in types)
        if traced or get_opaque_trace_state(convention="flax") != _no_trace:
            return None
        if all(issubclass(kind, jax.Array) for kind in types):
            return static, tree, [leaf.aval for leaf in leaves], [(leaf.sharding, leaf.committed) for leaf in leaves]
        return static, tree, [_abstract(leaf) for leaf in leaves], [_placement(leaf) for leaf in leaves]

    def abstract(self, args: Sequence[object], kwargs: Mapping[str, object]) -> AbstractCall:
        """Return a call with shapes in place of arrays."""
        return AbstractCall(
            args=tuple(arg if i in self._positions else jax.tree.map(_shape, arg) for i, arg in enumerate(args)),
            kwargs={name: arg if name in self._names else jax.tree.map(_shape, arg) for name, arg in kwargs.items()},
            n_traced=sum(i not in self._positions for i in range(len(args))),
            settings=compat.settings(),
        )


def _name_of(signature: Signature) -> str:
    """Name a signature alike in all processes, which place their own arrays on different devices."""
    static, tree, avals, placements = signature
    plain = [one if isinstance(one, SCALARS) else type(one).__qualname__ for one in jax.tree.leaves(static)]
    placed = [place and (place[1], str(getattr(place[0], "spec", type(place[0])))) for place in placements]
    return hashlib.sha256(repr((plain, str(tree), [str(one) for one in avals], placed)).encode()).hexdigest()[:16]


def _abstract(leaf: object) -> object:
    if isinstance(leaf, jax.Array):
        return leaf.aval
    return (leaf.shape, leaf.dtype) if isinstance(leaf, np.ndarray | np.generic) else type(leaf)


def _placement(leaf: object) -> tuple[object, object] | None:
    return (leaf.sharding, leaf.committed) if isinstance(leaf, jax.Array) else None


def _shape(leaf: object) -> object:
    if isinstance(leaf, jax.Array):
        sharding = leaf.sharding if leaf.committed else None
        weak_type = getattr(leaf, "weak_type", False)  # PRNG keys do not have one
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak_type)
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
