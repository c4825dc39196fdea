"""The evaluation of a query: events go in one by one, records come out when there are any.

An event is evaluated in two halves. `Evaluation.per_event` runs inside `observe`: it maps and filters up to the first
reducer, in the arrays' own library, and never waits for a device. `Evaluation.across_events` takes its result, on the
host, through the reducers and the stages after them. Between the two a value may stay on a device for a while; only the
second half depends on the order of events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sightglass.core.program_values.copier import data_of, held, snapshot, start_copy
from sightglass.core.program_values.guarded import built_in
from sightglass.core.values import CONTAINERS, SCALARS, Value, array_kind, on_device, to_host

from . import expressions as e
from .access import Check, confirm
from .arrays import truth
from .limits import PLAIN, Total
from .meter import Meter, parts_ns
from .pipeline import (
    NONE,
    Functions,
    Pipeline,
    compiled,
    computes_index,
    conditions,
    is_quick,
    key_function,
    maps_to_new,
)
from .query import Query
from .reduce.reducer import Place
from .reduce.table import COUNTING
from .running import Sliding
from .stages import Map, Reduce, Stage, Where, event_functions
from .windows import PipelineItem

MAX_ROW: Final = 1_000  # numbers of a mapping whose memory is not worth pricing
TEXT: Final = frozenset((str,))
MAX_STAGES: Final = 2**16  # more than any query has


@dataclass(slots=True)
class PerEventResult:
    """The result of the first half of an event's evaluation.

    Attributes:
        value: The value; it may still be on a device.
        passed: Whether the conditions on the host held.
        pending: The conditions whose values are on a device, all of which must hold; and the checks of indices there,
            each after the conditions that decide whether it matters.
        closes: The values of the windows' conditions, on the host or on a device.
        on_device: Whether any of these values is on a device.
        n_bytes: The bytes of the value, if it is an array or has parts.
        n_stages: If it did not pass, how many stages were evaluated without an error; `NONE` if not even the first.
    """

    value: Any
    passed: bool
    pending: tuple[Any, ...]
    closes: tuple[Any, ...]
    on_device: bool
    n_bytes: int = 0
    n_stages: int = NONE

    def read(self) -> None:
        """Copy all values to the host; waits for the device."""
        if self.on_device:
            held = all(map(_holds, self.pending))  # checks raise, whether the event passes or not
            if self.passed and not held:
                self.passed, self.n_stages = False, MAX_STAGES  # those after the condition were evaluated, too
            self.value = host(self.value) if self.passed else None
            self.closes = tuple(map(to_host, self.closes))
            self.on_device = False


def _holds(condition: Value) -> bool:
    """Return whether a pending condition holds; one that is a `Check` raises if it does not."""
    if type(condition) is not tuple:
        return truth(to_host(condition))
    confirm(condition)
    return True


class Evaluation:
    """The evaluation of a query on the events of a run.

    Attributes:
        query: The query.
        functions: The functions that the run registered, by name.
        only: The function of the event that gives the value of `number`, if a single map is all before the first
            reducer, no window has a condition and no index is computed; else `None`.
        has_reducer: Whether the query has a reducer.
        windows: The windows of the reducers.
        holds: Whether values outlive the event, so that they are copied unless they are new. True without a reducer;
            set it where `across_events` runs after the event.
    """

    def __init__(self, query: Query, functions: Functions | None = None, *, meter: Meter | None = None) -> None:
        """Compile a query.

        Args:
            query: The query.
            functions: The functions that the run registered, by name.
            meter: What the evaluation of an event may take.

        Raises:
            QueryError: The query calls an unknown function, or one with arguments that it does not take.
        """
        self.query = query
        self.functions = functions = functions or {}
        self.meter = meter or Meter()
        self.meter.checks = []
        self._failing = NONE
        first = next((i for i, stage in enumerate(query.stages) if isinstance(stage, Reduce)), len(query.stages))
        n_wheres = next((i for i, stage in enumerate(query.stages) if not isinstance(stage, Where)), first)
        before, rest = query.stages[:first], query.stages[first:]
        # The first map, and the conditions before it, get the event itself.
        self._before_reducer = [
            compiled(stage, functions, query.event if i <= n_wheres else None, self.meter, begins=i == 0)
            for i, stage in enumerate(before)
        ]
        # A meter of its own: it may run on another thread.
        of = self.meter
        self._tail = Meter(limit_s=of.limit_s, max_bytes=of.max_bytes, model=of.model, cpu_s=of.now, memory=of.memory)
        self._pipeline = Pipeline(
            [compiled(stage, functions, None, self._tail, begins=False) for stage in rest],
            seed=query.seed,
            keyed=True,
            states=query.states,
            meter=self._tail,
        )
        reducers = [fold.reducer for _, fold in self._pipeline.folds]
        self._tail_is_metered = any(
            isinstance(stage, Map | Where) or any(isinstance(arg, e.Lambda) for _, arg in stage.args) for stage in rest
        ) or any(isinstance(fold, Sliding) and fold.is_priced for _, fold in self._pipeline.folds)
        self._n_held = sum(one.n_held for one in reducers)
        self._n_copies = max((one.n_copies for one in reducers), default=0)
        self._number_ns = sum(one.number_ns for one in reducers)
        self._state_bytes = sum(one.state_bytes for one in reducers)
        self._whens = conditions(query, functions, meter=self.meter)
        self._by = key_function(query, functions, meter=self.meter)
        self._counts = any(isinstance(stage, Reduce) and stage.name in COUNTING for stage in rest[:1])
        event_trees = [fn.body for stage in rest if isinstance(stage, Reduce) for fn in event_functions(stage)]
        self.only = None if self._whens or any(map(computes_index, event_trees)) else self._only(before)
        self.has_reducer = bool(self._pipeline.folds)
        self.windows = tuple(stage.window for stage in query.stages if isinstance(stage, Reduce))
        self.holds = not self.has_reducer
        self._name = query.asked
        self._is_new = maps_to_new(before)

    def _only(self, stages: Sequence[Stage]) -> Callable[[Mapping[str, Any]], Any] | None:
        """Return `only`; with keys, it returns (key, value)."""
        fn: Callable[[Mapping[str, Any]], Any]
        match stages:
            case [Map(tree)] if not computes_index(tree):
                fn = self._before_reducer[0].fn  # type: ignore[union-attr]
            case [] if self._counts:
                fn = lambda observables: None  # noqa: E731
            case _:
                return None
        by, begin, counts = self._by, self.meter.begin, self._counts
        if by is None:
            return fn

        def keyed(observables: Mapping[str, Any]) -> tuple[Any, Any]:
            begin()
            value = fn(observables)
            return by(observables), None if counts else value

        return keyed

    def per_event(self, observables: Mapping[str, Any]) -> PerEventResult:
        """Map and filter the observables of an event up to the first reducer, without waiting for a device."""
        value: Any = observables
        pending: tuple[Any, ...] = ()
        self.meter.begin()
        if self.only is not None:
            return self.finish_per_event(self.only(observables))
        i = 0
        try:
            for i, stage in enumerate(self._before_reducer):
                result = stage.fn(value)  # type: ignore[union-attr]
                pending += (checks := self._checks())
                if isinstance(stage, Map):
                    value = result
                elif built_in(result) not in CONTAINERS and (checks or on_device(result)):
                    pending = (*pending, result)
                elif not truth(result):
                    closes = tuple(when(observables) for when in self._whens)
                    checks = self._checks()
                    waits = bool(checks) or any(map(on_device, closes))
                    return PerEventResult(None, False, checks, closes, waits, n_stages=i + 1)
            i = len(self._before_reducer)
            closes = tuple(when(observables) for when in self._whens)
            pending = self._checks() + pending  # which matter whether the event passes or not
            if self._by is not None:
                value = self._by(observables), None if self._counts else value
                pending += self._checks()
            if is_quick(value):
                return PerEventResult(value, True, pending, closes, bool(pending) or any(map(on_device, closes)))
            return self._settled(value, pending, closes)
        except BaseException:
            self._failing = max(self._failing, i)
            raise

    def per_event_traced(self, observables: Mapping[str, Any]) -> PerEventResult:
        """Map and filter observables without values, such as JAX tracers: nothing is decided or copied."""
        value: Any = observables
        pending: tuple[Any, ...] = ()
        self.meter.begin()
        for stage in self._before_reducer:
            result = stage.fn(value)  # type: ignore[union-attr]
            pending += self._checks()
            if isinstance(stage, Map):
                value = result
            else:
                pending = (*pending, result)
        closes = tuple(when(observables) for when in self._whens)
        pending = self._checks() + pending
        if self._by is not None:
            value = self._by(observables), None if self._counts else value
            pending += self._checks()
        total = Total()
        total.add(value)
        total.check()
        return PerEventResult(value, True, pending, closes, True)

    def _checks(self) -> tuple[Check, ...]:
        """Take the checks of indices that the event has used since the last call."""
        if not self.meter.checks:
            return ()
        checks, self.meter.checks = tuple(self.meter.checks), []
        return checks

    def _settled(self, value: object, pending: tuple[Any, ...], closes: tuple[Any, ...]) -> PerEventResult:
        """Copy the value if the program could overwrite it, and start its copy to the host if it is on a device."""
        value = data_of(value, self._name, max_parts=self.meter.max_parts)
        total = self.meter.count(value)
        waiting = on_device((value, *pending, *closes))
        if waiting:
            pending, closes = snapshot((pending, closes))
        if waiting or self.holds:
            total.check()
            self.meter.keeps(total.n_bytes)
            if not self._is_new:
                if waiting and (arrays := _jax_arrays(value)):
                    self.meter.operates(0, arrays)
                self.meter.copies(total.n_bytes, parts_ns=parts_ns(total))
        if self.has_reducer:  # before the copy: JAX makes those of several events that are refused at the same time
            self.meter.reduces(
                total,
                number_ns=self._number_ns,
                n_copies=self._n_copies,
                n_held=self._n_held,
                state_bytes=self._state_bytes,
            )
        if (waiting or self.holds) and not self._is_new:
            value = snapshot(value, self._name)
        if waiting:
            value, pending, closes = start_copy((value, pending, closes))
        return PerEventResult(value if waiting else host(value), True, pending, closes, waiting, total.n_bytes)

    def to_hold(self, observables: Mapping[str, Any], *, before: int) -> tuple[Any, int]:
        """Map the observables of an event and copy the result, to be held in place of `before` bytes.

        It stays on its device, and nothing is waited for.

        Returns:
            The copy, and its bytes.
        """
        value: Any = observables
        self.meter.begin()
        for stage in self._before_reducer:
            value = stage.fn(value)  # type: ignore[union-attr]
        value = data_of(value, self._name, max_parts=self.meter.max_parts)
        total = self.meter.count(value)
        total.check()
        self.meter.copies(total.n_bytes, parts_ns=parts_ns(total))
        self.meter.holds(total.n_bytes, before=before)
        return held(value, self._name), total.n_bytes

    def is_row(self, value: Value) -> bool:
        """Return whether a value of `only` is what the query returns as it is: a new mapping of a few numbers."""
        if type(value) is not dict or not self._is_new or self.has_reducer or len(value) > MAX_ROW:
            return False
        return TEXT.issuperset(map(type, value)) and PLAIN.issuperset(map(type, value.values()))

    def finish_per_event(self, value: object) -> PerEventResult:
        """Return the result of `per_event` from the value of `only`."""
        if is_quick(value):
            return PerEventResult(value, True, (), (), False)
        return self._settled(value, (), ())

    def fork(self, copy: Callable[[Any], Any]) -> Evaluation:
        """Return an independent evaluation in the same state."""
        other = Evaluation.__new__(Evaluation)
        other.__dict__.update(self.__dict__)
        other._pipeline = copy(self._pipeline)
        return other

    def with_per_event_of(self, query: Query, *, is_new: bool) -> Evaluation:
        """Return this evaluation with the per-event half of another query.

        Args:
            query: A query of the same stages with other functions.
            is_new: Whether its last map always computes a new value, which the program cannot overwrite.
        """
        other = Evaluation(query, self.functions, meter=self.meter)
        for name in ("query", "_pipeline", "_tail", "holds", "windows"):
            setattr(other, name, getattr(self, name))
        other._is_new = is_new
        return other

    def across_events(
        self,
        result: PerEventResult,
        *,
        ordinal: int,
        step: float,
        wall_time: float,
        steps: Mapping[str, float] | None = None,
    ) -> list[PipelineItem]:
        """Evaluate the second half of an event; waits for the device if the first half left values there."""
        result.read()
        self._begin_tail()
        item = PipelineItem(ordinal, step, wall_time, result.value, steps=steps, passed=result.passed)
        return self._pipeline.post(item, ordinal=ordinal, wall_time=wall_time, closes=[truth(c) for c in result.closes])

    def number(self, value: object, ordinal: int, place: Place) -> Sequence[PipelineItem]:
        """Process a quick value of `only` for a query with a reducer: a fast path of both halves; see `is_quick`."""
        if self._tail_is_metered:
            self._begin_tail()
        return self._pipeline.post_first(value, ordinal, place)

    def proves(self, passed: bool, items: Sequence[PipelineItem], *, n_stages: int = NONE) -> bool:
        """Return whether an event without an error shows that the stages that failed before need not fail.

        Args:
            passed: Whether its conditions held.
            items: What came out.
            n_stages: If it did not pass, how many stages it was evaluated in, as `PerEventResult`.
        """
        if not (passed or n_stages > self._failing) or not self._pipeline.proves(passed, items):
            return False
        self._failing = NONE
        return True

    def miss(self, *, ordinal: int, wall_time: float) -> list[PipelineItem]:
        """Count an event without evaluating it."""
        self._tail.begin()
        return self._pipeline.miss(ordinal=ordinal, wall_time=wall_time)

    def boundary(self, event: str, mark: int | None = None) -> list[PipelineItem]:
        """Close the groups whose window is `per` this event; `mark` is its number."""
        self._tail.begin()
        return self._pipeline.boundary(event, mark)

    def begin_group(self) -> None:
        """Begin a group of the run."""
        self._pipeline.begin_group()

    def end_group(self, mark: int | None = None) -> list[PipelineItem]:
        """End a group of the run: close the groups of reducers that name no window; `mark` is its number."""
        self._tail.begin()
        return self._pipeline.end_group(mark)

    def finish(self) -> list[PipelineItem]:
        """Close the open groups at the end of the run."""
        self._tail.begin()
        return self._pipeline.finish()

    @property
    def held_bytes(self) -> int:
        """The bytes that reducers hold between events."""
        return sum(fold.held_bytes for _, fold in self._pipeline.folds)

    def _begin_tail(self) -> None:
        """Begin to evaluate the second half of an event; on the thread of the first half, it is the same event."""
        if self.holds:
            self._tail.begin()
            self._tail.limit_s = min(self.meter.limit_s, self.meter.tail_s)
        else:
            self._tail.go_on(self.meter)


def _jax_arrays(value: Value) -> list[Any]:
    """Return the arrays of JAX in a value, or in a container without those that are inside others."""
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,)
    return [part for part in parts if array_kind(part) == "jax"]


def host(value: object) -> Value:
    """Return a value on the host; waits for the device if it is on one."""
    return value if isinstance(value, SCALARS) else to_host(value)
