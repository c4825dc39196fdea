"""A step with queries compiled into it: what is asked is evaluated where it is logged, and only its result leaves.

Theory of operation:

1. The evaluator that runs on arrays runs here on tracers. What it gives is flattened: the arrays leave the program, the
   rest (texts, shapes, the structure) stays behind as a *form*, in which the arrays are put back on the host.
2. A query that JAX cannot trace, such as one whose shape depends on values, gets the observables it names as they are,
   and is evaluated on the host.
3. What happens once a call leaves as further outputs. What happens in a loop is put into a buffer on the device, and
   leaves through a raw callback: one for each loop body and rate. The buffer is sent when it is full, where a window of
   the query closes, and at the end of the call.
4. The callback takes a token and returns it, so that the program's own data flow keeps the order, as in `tap`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sightglass.core.errors import SightglassError
from sightglass.core.values import array_kind, is_container, rebuild, to_host
from sightglass.jax.program import compat
from sightglass.jax.program.primitive import MARK, LogEvent, Site, WantedLogs
from sightglass.jax.program.survey import Survey
from sightglass.jax.program.traced_function import traced
from sightglass.jax.program.walk import Track, Tracks, Walk, joined
from sightglass.jax.tap import tap_p
from sightglass.query.pipeline import Evaluation, PerEventResult
from sightglass.query.query import Query
from sightglass.query.stages import Every, Group, Reduce

from .occurrence import Occurrence, event_of, occurrences

EVERYTHING: Final = WantedLogs(True, frozenset(), explicit=True, marks=True)
END: Final = "end"
MAX_BUFFERED: Final = 4_096
MAX_BUFFER_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query that is to be compiled into a step.

    Attributes:
        query: The query.
        functions: What else it may call.
        names: The observables it reads; `None` for all.
    """

    query: Query
    functions: Mapping[str, Callable[..., Any]]

    @property
    def key(self) -> str:
        """What equal queries share."""
        return self.query.key

    @property
    def names(self) -> frozenset[str] | None:
        """The observables it reads; `None` for all."""
        return None if self.query.reads_all else frozenset(self.query.names)

    def answered_by(self, names: Collection[str]) -> bool:
        """Return whether an event that offers such names has all that the query reads."""
        return self.names is None or self.names <= frozenset(names)

    @property
    def every(self) -> int:
        """How many events may wait on the device: all of the first window; of a call, if its end closes it."""
        window = next((stage.window for stage in self.query.stages if isinstance(stage, Reduce)), None)
        match window:
            case Every(n):
                return n
            case Group():
                return MAX_BUFFERED
        return 1


# Forms: values with holes for arrays.


@dataclass(frozen=True, slots=True)
class _Hole:
    index: int


def flattened(value: Any, arrays: list[Any]) -> Any:
    """Append the arrays of a value to a list, and return its form."""
    if array_kind(value) == "jax":
        raw = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
        # A copy: what is also a result of the step may be donated to the next one before it is read.
        arrays.append(jnp.copy(raw))
        return _Hole(len(arrays) - 1)
    return _changed(value, lambda part: flattened(part, arrays))


def filled(form: Any, arrays: Sequence[Any]) -> Any:
    """Put arrays back into a form."""
    return arrays[form.index] if isinstance(form, _Hole) else _changed(form, lambda part: filled(part, arrays))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if is_container(value):
        return rebuild(value, change)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # such as a histogram on the device
        return dataclasses.replace(value, **{f.name: change(getattr(value, f.name)) for f in dataclasses.fields(value)})
    leaves, tree = jax.tree.flatten(value)  # such as a container of the program's own that JAX knows
    return value if jax.tree_util.treedef_is_leaf(tree) else tree.unflatten(map(change, leaves))


@dataclass(slots=True)
class _OnHost(PerEventResult):
    """A head that is evaluated when its observables have come to the host."""

    evaluation: Evaluation = field(kw_only=True)
    observables: Mapping[str, tuple[Any, Any]] = field(kw_only=True)

    def read(self) -> None:
        if self.on_device:
            observables = {name: _happened(*map(to_host, several)) for name, several in self.observables.items()}
            happened = {name: value for name, value in observables.items() if value is not None}
            if len(happened) < len(observables) and not self.evaluation.query.reads_all:
                head = PerEventResult(None, False, (), (), False)  # what did not happen is held back, as by a condition
            else:
                head = self.evaluation.per_event(happened)
                head.read()
            self.value, self.passed, self.closes, self.on_device = head.value, head.passed, head.closes, False


def _happened(value: Any, valid: Any) -> Any:
    """Return what happened of a stacked value; `None` if nothing did."""
    if valid is None:
        return value
    chosen = jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(valid)], value)
    return chosen if np.any(valid) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackDelivery:
    """What a callback brought.

    Attributes:
        part: Of which part.
        call: The number of the call, modulo 2^31.
        n_before: How many events of that call were brought before.
        n: How many these are.
        arrays: The arrays that left the program, each with a leading axis of n events, or more that are not valid.
        ended: Whether the call ends here.
    """

    part: QueriedEvent
    call: int
    n_before: int
    n: int
    arrays: Sequence[Any]
    ended: bool


Receive = Callable[[CallbackDelivery], None]
"""Called by a thread of XLA's: must not raise, call JAX, or wait."""


class QueriedEvent:
    """What is asked of one event at one rate.

    Attributes:
        occurrence: The event.
        every: How many events may wait in the buffer.
        leads: Whether it is the one part of its event that tells when the event happens.
        refused: The queries that cannot be answered, by their keys.
        size: How many events the buffer holds.
        n_lost: How many were brought when too many waited already; whoever reads it sets it to 0.
    """

    def __init__(
        self, occurrence: Occurrence, asked: Sequence[Asked], receive: Receive, *, every: int = 1, leads: bool = True
    ) -> None:
        self.occurrence = occurrence
        self.every = every
        self.leads = leads
        self.size = 1
        self.refused: dict[str, SightglassError] = {}
        self.n_lost = 0
        self._receive = receive
        self._asked = {one.key: (one, Evaluation(one.query, one.functions)) for one in asked}
        self._forms: dict[str, Any] = {}
        self._steps: dict[str, Any] = {}
        self._raw: dict[str, Evaluation] = {}

    @property
    def keys(self) -> frozenset[str]:
        """The queries that are answered."""
        return frozenset(self._forms) | frozenset(self._raw)

    @property
    def reads(self) -> frozenset[str]:
        """The observables that are read."""
        named = [one.names for one, _ in self._asked.values()]
        offers = frozenset(self.occurrence.offers)
        marks = frozenset(key for key in offers if key.startswith(MARK))
        return marks | (offers if None in named else frozenset().union(*filter(None, named)))

    def arrays(self, tracks: Mapping[str, Track]) -> list[Any]:
        """Evaluate the queries on what was logged, by key; returns what is to leave the program."""
        arrays: list[Any] = []
        steps = _steps(tracks)
        observables = {name: _Seen(step, None, True) for name, step in steps.items()}
        observables |= {key: _observable(track) for key, track in tracks.items() if not key.startswith(MARK)}
        for key, (one, evaluation) in self._asked.items():
            try:
                self._evaluate(key, one, evaluation, observables, arrays)
            except SightglassError as error:
                self.refused[key] = error
        self._steps = {name: flattened(step, arrays) for name, step in steps.items()}
        return arrays

    def head(self, key: str, arrays: Sequence[Any]) -> PerEventResult:
        """Return the head of a query, given what left the program."""
        value, pending, closes = filled(self._forms[key], arrays)
        if key in self._raw:
            return _OnHost(None, True, (), (), True, evaluation=self._raw[key], observables=value)
        return PerEventResult(value, True, pending, closes, True)

    def steps(self, arrays: Sequence[Any]) -> tuple[Any, dict[str, Any] | None]:
        """Return the event's step, if it has one, and its further steps."""
        steps = {name: arrays[hole.index] for name, hole in self._steps.items()}
        return steps.pop("step", None), steps or None

    def deliver(self, kinds: Any, operands: Sequence[Any]) -> None:
        """Hand over what a callback brought; the interface of `tap_p`."""
        call, n_before, n, *arrays = operands
        delivery = CallbackDelivery(
            part=self, call=int(call), n_before=int(n_before), n=int(n), arrays=arrays, ended=kinds == (END,)
        )
        self._receive(delivery)

    def _evaluate(
        self, key: str, one: Asked, evaluation: Evaluation, observables: Mapping[str, _Seen], arrays: list[Any]
    ) -> None:
        reads = observables if one.names is None else {n: observables[n] for n in one.names if n in observables}
        if all(seen.single for seen in reads.values()):
            n_arrays = len(arrays)
            try:
                head = evaluation.per_event_traced({name: seen.value for name, seen in reads.items()})
                valid = tuple(seen.valid for seen in reads.values() if seen.valid is not None)
                closes = tuple(functools.reduce(jnp.logical_and, valid, close) for close in head.closes)
                self._forms[key] = flattened((head.value, (*valid, *head.pending), closes), arrays)
            except SightglassError:
                raise
            except Exception:  # noqa: BLE001  whatever JAX cannot trace, the host computes
                del arrays[n_arrays:]
            else:
                return
        self._raw[key] = evaluation
        value = {name: (seen.value, None if seen.single else seen.valid) for name, seen in reads.items()}
        self._forms[key] = flattened((value, (), ()), arrays)


@dataclass(frozen=True, slots=True)
class _Seen:
    """An observable of an event: its value; and what of it happened, if that is known to the program alone."""

    value: Any
    valid: Any
    single: bool


def _observable(track: Track) -> _Seen:
    """Take the event axis off what was logged once; leave it on what was logged several times."""
    leaf = jax.tree.leaves(track.value)[0]
    if leaf.shape[0] == 1 and (track.valid is None or track.valid.ndim == 1):
        value = jax.tree.map(lambda a: a[0], track.value)
        return _Seen(value, None if track.valid is None else track.valid[0], True)
    return _Seen(track.value, track.valid, track.valid is None)


def _steps(tracks: Mapping[str, Track]) -> dict[str, Any]:
    """Return the steps of an event: each from the first log that surely happened once; under vmap, the first lane's."""
    steps: dict[str, Any] = {}
    for key, track in tracks.items():
        if key.startswith(MARK) and track.valid is None:
            for name, step in track.value.items():
                if step.shape[0] == 1 and jnp.issubdtype(step.dtype, jnp.number):
                    steps.setdefault(name, step.ravel()[0])
    return steps


@dataclass(frozen=True, slots=True)
class _Buffer:
    """The state of a part that happens in a loop, threaded through the program."""

    call: Any
    phase: Any
    n_seen: Any
    n_waiting: Any
    token: Any
    arrays: list[Any]


jax.tree_util.register_dataclass(_Buffer, [f.name for f in dataclasses.fields(_Buffer)], [])


class _Asking:
    """The collector that evaluates queries; its state is a buffer for each part that happens in a loop."""

    def __init__(self, own: str, found: Mapping[str, Occurrence], parts: Sequence[QueriedEvent]) -> None:
        self._own = own
        self._found = found
        self._reads: dict[str, frozenset[str]] = {}
        for part in parts:
            event = part.occurrence.event
            self._reads[event] = self._reads.get(event, frozenset()) | part.reads
        self._looped = [(i, part) for i, part in enumerate(parts) if part.occurrence.body is not None]
        self._open: list[int] = []

    def take(self, events: Sequence[LogEvent], state: Any) -> tuple[Tracks, Any]:
        made: list[Tracks] = []
        for event in events:
            for key, value in event.data.items():
                name = self.track(key, event.site)
                if name is not None:
                    value, mask = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), (value, event.mask))
                    made.append({name: Track(value, {}, mask)})
        return joined(made), state

    def track(self, key: str, site: Site) -> str | None:
        event = event_of(site, self._own)
        if key not in self._reads.get(event, ()):
            return None
        body = self._found[event].body
        return f"{event}{MARK}{key}" if body is None or id(body) in self._open else None

    def completed(self, found: Survey) -> Survey:
        return {name: dataclasses.replace(expected, steps={}) for name, expected in found.items()}

    def enter(self, jaxpr: Any) -> None:
        self._open.append(id(jaxpr))

    def leave(self, jaxpr: Any, tracks: Tracks, state: Any) -> tuple[Tracks, Any]:
        self._open.pop()
        here = [(i, part) for i, part in self._looped if part.occurrence.body is jaxpr]
        for i, part in here:
            state = {**state, i: _passed(part, tracks_of(part, tracks), state[i])}
        taken = {name for _, part in here for name in tracks if name.startswith(f"{part.occurrence.event}{MARK}")}
        return {name: track for name, track in tracks.items() if name not in taken}, state

    def fork(self, state: Any) -> Any:
        return state

    def merge(self, state: Any, shards: Any, n_shards: int) -> Any:
        return state  # an event never happens within a shard_map


def tracks_of(part: QueriedEvent, tracks: Tracks) -> dict[str, Track]:
    """Return what was logged for a part's event, by key."""
    prefix = f"{part.occurrence.event}{MARK}"
    return {name[len(prefix) :]: track for name, track in tracks.items() if name.startswith(prefix)}


def _buffer(part: QueriedEvent, call: Any) -> _Buffer:
    """Make an empty buffer: the shapes of what will be put into it are found by evaluating the queries on shapes."""
    expected = {
        key: Track(
            e.stacked,
            {},
            compat.Aval((e.n_events, *e.batch), np.bool_) if e.masked else None,
        )
        for key, e in part.occurrence.offers.items()
        if key in part.reads
    }
    avals = jax.eval_shape(part.arrays, expected)
    n_bytes = sum(a.size * a.dtype.itemsize for a in avals)
    part.size = max(1, min(part.every, MAX_BUFFERED, MAX_BUFFER_BYTES // max(1, n_bytes)))
    zero = jnp.int32(0)
    phase = call * (part.occurrence.n_per_call or 0) % part.every
    return _Buffer(call, phase, zero, zero, zero, [jnp.zeros((part.size, *a.shape), a.dtype) for a in avals])


def _passed(part: QueriedEvent, tracks: Mapping[str, Track], buffer: _Buffer) -> _Buffer:
    """Put an event into the buffer, and send the buffer if it is time."""
    arrays = [
        lax.dynamic_update_index_in_dim(kept, new.astype(kept.dtype), buffer.n_waiting, 0)
        for kept, new in zip(buffer.arrays, part.arrays(tracks), strict=True)
    ]
    buffer = dataclasses.replace(buffer, arrays=arrays, n_seen=buffer.n_seen + 1, n_waiting=buffer.n_waiting + 1)
    if part.size == 1:
        return _sent(part, buffer)
    due = (buffer.n_waiting == part.size) | ((buffer.phase + buffer.n_seen) % part.every == 0)
    return _sent_if(due, part, buffer)


def _sent(part: QueriedEvent, buffer: _Buffer, *, ended: bool = False) -> _Buffer:
    """Send what waits, be it nothing; at the end of the call, say so."""
    n_before = buffer.n_seen - buffer.n_waiting
    operands = (buffer.token, buffer.call, n_before, buffer.n_waiting, *buffer.arrays)
    (token,) = tap_p.bind(*operands, kinds=(END,) if ended else (), tap=part)
    return dataclasses.replace(buffer, token=token, n_waiting=jnp.zeros_like(buffer.n_waiting))


def _sent_if(due: Any, part: QueriedEvent, buffer: _Buffer) -> _Buffer:
    def send(buffer: _Buffer) -> tuple[Any, Any]:
        sent = _sent(part, buffer)
        return sent.token, sent.n_waiting

    token, n_waiting = lax.cond(due, send, lambda buffer: (buffer.token, buffer.n_waiting), buffer)
    return dataclasses.replace(buffer, token=token, n_waiting=n_waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What leaves a step besides its own results.

    Attributes:
        arrays: What was evaluated once a call, for each part that happens so.
        tokens: For each part that happens in a loop, the last token: when it is there, all callbacks have run.
    """

    arrays: list[list[Any]]
    tokens: list[Any]


jax.tree_util.register_dataclass(Extras, ["arrays", "tokens"], [])


class Variant:
    """A step with queries compiled into it.

    Attributes:
        jitted: Takes the number of the call, int32, and then what the step takes; returns its results, and `Extras`.
        once: What is asked of events that happen once a call.
        looped: What is asked of those that happen in loops.
    """

    def __init__(
        self,
        function: Any,
        own: str,
        asked: Sequence[Asked],
        receive: Receive,
        *,
        n_args: int = 0,
        whole: Any = None,
    ) -> None:
        """Prepare a variant; nothing is traced before it is called or lowered.

        Args:
            function: The user's jitted function.
            own: The step's own event.
            asked: The queries, on its own event and on those that happen within.
            receive: Called by a thread of XLA's with what happened in loops; must not raise, call JAX, or wait.
            n_args: How many positional arguments it is called with that are not static.
            whole: The sharding of what leaves; `None` for any.
        """
        self.once: list[QueriedEvent] = []
        self.looped: list[QueriedEvent] = []
        self._function = function
        self._own = own
        self._asked = tuple(asked)
        self._receive = receive

        def program(call: Any, *args: Any, **kwargs: Any) -> tuple[Any, Extras]:
            return self._program(call, args, kwargs)

        program.__name__ = program.__qualname__ = getattr(function, "__name__", "step")
        self.jitted: Any = jax.jit(program, **compat.options_around(function, n_args, whole))

    def compile(self, call: Any, args: Any, kwargs: Any) -> None:
        """Trace and compile it, given shapes and shardings; a call with such arguments finds it compiled."""
        self.jitted.lower(call, *args, **kwargs).compile()

    @property
    def parts(self) -> list[QueriedEvent]:
        """All parts."""
        return self.once + self.looped

    def _program(self, number: Any, args: Any, kwargs: Any) -> tuple[Any, Extras]:
        jaxpr, structure, arrays = _opened(self._function, args, kwargs, self._demand())
        found = occurrences(jaxpr, self._own)
        self._divide(found)
        state = {i: _buffer(part, number) for i, part in enumerate(self.looped)}
        collector = _Asking(self._own, found, self.looped + self.once)
        outputs, tracks, state = Walk(collector).run(jaxpr, arrays, state)
        once = [part.arrays(tracks_of(part, tracks)) for part in self.once]
        tokens = [_sent(part, state[i], ended=True).token for i, part in enumerate(self.looped)]
        return jax.tree.unflatten(structure, outputs), Extras(arrays=once, tokens=tokens)

    def _demand(self) -> WantedLogs:
        names = [one.names for one in self._asked]
        return WantedLogs(None in names, frozenset().union(*filter(None, names)), marks=True)

    def _divide(self, found: Mapping[str, Occurrence]) -> None:
        """Sort the queries by event and rate."""
        self.once, self.looped = [], []
        for event, occurrence in found.items():
            looped = occurrence.body is not None
            by_rate: dict[int, list[Asked]] = {}
            for one in self._asked:
                if one.query.event == event:
                    by_rate.setdefault(one.every if looped else 1, []).append(one)
            parts = self.looped if looped else self.once
            parts += [
                QueriedEvent(occurrence, by_rate[every], self._receive, every=every, leads=every == min(by_rate))
                for every in by_rate
            ]


def find(function: Any, own: str, args: Any, kwargs: Any) -> dict[str, Occurrence]:
    """Return the events of a jitted function that is called with such arguments, whose arrays may be shapes."""
    found: dict[str, Occurrence] = {}

    def program(*args: Any, **kwargs: Any) -> None:
        found.update(occurrences(_opened(function, args, kwargs, EVERYTHING)[0], own))

    positions, names = compat.static_arguments(function)
    jax.jit(program, static_argnums=positions, static_argnames=names).eval_shape(*args, **kwargs)
    return found


def _opened(function: Any, args: Any, kwargs: Any, demanded: WantedLogs) -> tuple[Any, Any, list[Any]]:
    """Trace a jitted function with a demand in force, within a trace.

    Returns:
        Its jaxpr, the structure of its results, and what the jaxpr is to be run on.
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    is_traced = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]

    def call(*arrays: Any) -> Any:
        rest = iter(arrays)
        args, kwargs = tree.unflatten([next(rest) if t else leaf for leaf, t in zip(leaves, is_traced, strict=True)])
        return function.__wrapped__(*args, **kwargs)

    arrays = [leaf for leaf, t in zip(leaves, is_traced, strict=True) if t]
    jaxpr, structure = traced(call, arrays, demanded)
    return jaxpr, structure, arrays
