"""The queries on one event of a compiled step, evaluated where the event happens.

The evaluator that runs on arrays runs here on tracers. A query that JAX cannot trace, for example because a shape
depends on values, sends the observables that it names to the host and is evaluated there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sightglass.core.errors import SightglassError
from sightglass.core.program_values.guarded import is_container, rebuild
from sightglass.core.values import array_kind, to_host
from sightglass.jax.program.collected import CollectedLog
from sightglass.jax.program.primitive import MARK
from sightglass.query.evaluation import Evaluation, PerEventResult
from sightglass.query.query import Query
from sightglass.query.stages import Every, Group, Reduce

from .occurrence import Occurrence

NO_FIELDS: Final = (
    "Event {!r} happens in a compiled step, where its number and time are not known. Each record has the time, as "
    "wall_time, and as its step the number, unless the program logs a step"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuery:
    """A query to compile into a step, and the registered functions that it may call."""

    query: Query
    functions: Mapping[str, Callable[..., Any]]

    @property
    def key(self) -> str:
        """The canonical text, shared by equal queries."""
        return self.query.key

    @property
    def names(self) -> frozenset[str] | None:
        """The observables it reads; `None` for all."""
        return None if self.query.reads_all else frozenset(self.query.names)

    def is_satisfied_by(self, names: Collection[str]) -> bool:
        """Return whether an event with these observables has all that the query reads."""
        return self.names is None or self.names <= frozenset(names)

    @property
    def window_events(self) -> int | None:
        """How many events its first window has: 1 where each event counts; `None` for a group, which a call ends."""
        window = next((stage.window for stage in self.query.stages if isinstance(stage, Reduce)), None)
        match window:
            case Every(n):
                return n
            case Group():
                return None
        return 1


class EventQueries:
    """The queries on one event.

    Attributes:
        occurrence: Where the event happens.
        refused: Why a query cannot be evaluated, by its key.
    """

    def __init__(self, occurrence: Occurrence, queries: Sequence[StepQuery]) -> None:
        self.occurrence = occurrence
        self.refused: dict[str, SightglassError] = {}
        self._queries = {one.key: (one, Evaluation(one.query, one.functions)) for one in queries}
        self._forms: dict[str, Value] = {}
        self._steps: dict[str, Value] = {}
        self._on_host: dict[str, Evaluation] = {}

    @property
    def event(self) -> str:
        """The event's name."""
        return self.occurrence.event

    @property
    def keys(self) -> frozenset[str]:
        """The queries that are evaluated."""
        return frozenset(self._forms)

    @property
    def reads(self) -> frozenset[str]:
        """The observables that are read."""
        named = [one.names for one, _ in self._queries.values()]
        logged = frozenset(self.occurrence.logs)
        marks = frozenset(key for key in logged if key.startswith(MARK))
        if self.occurrence.sign is not None and any(not self._reads_log(one) for one, _ in self._queries.values()):
            marks |= {self.occurrence.sign}
        return marks | (logged if None in named else frozenset().union(*filter(None, named)))

    def evaluate(self, collected: Mapping[str, CollectedLog]) -> list[jax.Array]:
        """Evaluate the queries on the values logged under each key; return the arrays that leave the program."""
        outputs: list[jax.Array] = []
        # Always in the order of the program: JAX sorts what leaves a branch, and a loop's buffer has a place for each.
        collected = {**{key: collected[key] for key in self.occurrence.logs if key in collected}, **collected}
        steps = _steps(collected)
        observables = {name: _Observable(step, None, True) for name, step in steps.items()}
        observables |= {key: _observable(log) for key, log in collected.items() if not key.startswith(MARK)}
        sign = collected.get(self.occurrence.sign or "")
        happened = None if sign is None or sign.valid is None else jnp.any(sign.valid)
        for key, (one, evaluation) in self._queries.items():
            reads = observables if one.names is None else {n: observables[n] for n in one.names if n in observables}
            if happened is not None and not self._reads_log(one):
                reads = {**reads, self.occurrence.sign or "": _Observable((), happened, True)}
            try:
                self._evaluate(key, evaluation, reads, outputs)
            except SightglassError as error:
                self.refused[key] = error
        self._steps = {name: take_arrays(step, outputs) for name, step in steps.items()}
        return outputs

    def _reads_log(self, one: StepQuery) -> bool:
        """Return whether a query reads what is logged; one that only counts events or lanes does not."""
        return one.names is None or any(name in self.occurrence.logs for name in one.names)

    def result(self, key: str, outputs: Sequence[npt.NDArray[Any] | jax.Array]) -> PerEventResult:
        """Return the result of a query's first stages, given the arrays that left the program."""
        value, pending, closes = fill(self._forms[key], outputs)
        if key in self._on_host:
            return _HostResult(None, True, (), (), True, evaluation=self._on_host[key], observables=value)
        return PerEventResult(value, True, pending, closes, True)

    def steps(self, outputs: Sequence[npt.NDArray[Any] | jax.Array]) -> tuple[Any, dict[str, Any] | None]:
        """Return the event's step, if it has one, and its other step tracks."""
        steps = {name: outputs[hole.index] for name, hole in self._steps.items()}
        return steps.pop("step", None), steps or None

    def _evaluate(
        self, key: str, evaluation: Evaluation, reads: Mapping[str, _Observable], outputs: list[jax.Array]
    ) -> None:
        if all(one.is_single for one in reads.values()):
            n_outputs = len(outputs)
            try:
                result = evaluation.per_event_traced({name: one.value for name, one in reads.items()})
                valid = tuple(one.valid for one in reads.values() if one.valid is not None)
                closes = tuple(functools.reduce(jnp.logical_and, valid, close) for close in result.closes)
                self._forms[key] = take_arrays((result.value, (*valid, *result.pending), closes), outputs)
            except SightglassError:
                raise
            except Exception:  # noqa: BLE001  whatever JAX cannot trace is evaluated on the host
                del outputs[n_outputs:]
            else:
                return
        self._on_host[key] = evaluation
        value = {name: (one.value, None if one.is_single else one.valid) for name, one in reads.items()}
        self._forms[key] = take_arrays((value, (), ()), outputs)


@dataclass(slots=True)
class _HostResult(PerEventResult):
    """A result that is evaluated once its observables have arrived on the host."""

    evaluation: Evaluation = field(kw_only=True)
    observables: Mapping[str, tuple[Any, Any]] = field(kw_only=True)

    def read(self) -> None:
        if self.on_device:
            observables = {name: _happened(*map(to_host, pair)) for name, pair in self.observables.items()}
            happened = {name: value for name, value in observables.items() if value is not None}
            if len(happened) < len(observables) and not self.evaluation.query.reads_all:
                result = PerEventResult(None, False, (), (), False)  # an observable is missing: skipped, as by `where`
            else:
                result = self.evaluation.per_event(happened)
                result.read()
            self.value, self.passed, self.closes, self.on_device = result.value, result.passed, result.closes, False


def _happened(value: Value, valid: npt.NDArray[np.bool_] | None) -> Value:
    """Return the entries of a stacked value that happened; `None` if there are none."""
    if valid is None:
        return value
    chosen = jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(valid)], value)
    return chosen if np.any(valid) else None


class _Observable(NamedTuple):
    """An observable of an event: its value, and the mask of the entries that happened, if some may not have."""

    value: Value
    valid: jax.Array | None
    is_single: bool


def _observable(log: CollectedLog) -> _Observable:
    """Remove the event axis of a value that was logged once; leave it where it was logged several times."""
    leaf = jax.tree.leaves(log.value)[0]
    if leaf.shape[0] == 1 and (log.valid is None or log.valid.ndim == 1):
        value = jax.tree.map(lambda a: a[0], log.value)
        return _Observable(value, None if log.valid is None else log.valid[0], True)
    return _Observable(log.value, log.valid, log.valid is None)


def _steps(collected: Mapping[str, CollectedLog]) -> dict[str, jax.Array]:
    """Return each step from the first log that certainly happened once; under `vmap`, that of the first lane."""
    steps: dict[str, jax.Array] = {}
    for key, log in collected.items():
        if key.startswith(MARK) and log.valid is None:
            for name, step in log.value.items():
                if step.shape[0] == 1 and jnp.issubdtype(step.dtype, jnp.number):
                    steps.setdefault(name, step.ravel()[0])
    return steps


# Values of queries as they leave a compiled program: the arrays as outputs, the rest in a *form* on the host.
#
# A form is the value with a hole for each array. Texts, shapes and the structure stay in it; on the host, the arrays
# that left the program are put back into the holes.

Value = Any
"""Any value of a query: an array, a text, or any container of these."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Where an array was taken out of a value; `index` is its place among the outputs."""

    index: int


def take_arrays(value: Value, outputs: list[jax.Array]) -> Value:
    """Append the arrays of a value to the outputs, and return its form."""
    if array_kind(value) == "jax":
        raw = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
        # A copy: an array that the step also returns may be donated to the next call before it is read.
        outputs.append(jnp.copy(raw))
        return Hole(len(outputs) - 1)
    return _map_children(value, lambda child: take_arrays(child, outputs))


def fill(form: Value, outputs: Sequence[npt.NDArray[Any] | jax.Array]) -> Value:
    """Put the outputs into the holes of a form."""
    return outputs[form.index] if isinstance(form, Hole) else _map_children(form, lambda child: fill(child, outputs))


def _map_children(value: Value, change: Callable[[Value], Value]) -> Value:
    if is_container(value):
        return rebuild(value, change)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # for example a histogram on the device
        return dataclasses.replace(value, **{f.name: change(getattr(value, f.name)) for f in dataclasses.fields(value)})
    leaves, tree = jax.tree.flatten(value)  # for example a pytree class of the user's
    return value if jax.tree_util.treedef_is_leaf(tree) else tree.unflatten(map(change, leaves))
