"""The events of a run, and the subscriptions that read them.

`idle` maps the events without subscriptions to the function that counts them: `observe` calls that function and
returns. An event that is not in the table takes the long way. `idle_steps` is the same for compiled steps. `busy` maps
the events that have subscriptions, and need nothing else, to their source.

`JoinedEvent` copies what a query reads of another event when that happens.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Final, Literal, Protocol

import numpy as np

from sightglass.core.errors import AbsentError, EvaluationError, UnknownNameError
from sightglass.core.program_values.guarded import FAILURES, built_in, class_name, exact, is_container, text
from sightglass.core.values import array_kind, type_name
from sightglass.query.evaluation import Evaluation
from sightglass.query.meter import Meter, NoRoom
from sightglass.query.query import Query, with_fields
from sightglass.query.reads import joined_part, reads_fields_of
from sightglass.query.stages import Per
from sightglass.training.controls import numbers_in

from .budget import Turns
from .deferred import Tracks
from .subscription import LOG, Subscription

MAX_OBSERVABLES_SHOWN: Final = 1_000  # a description of more is larger than anybody reads, and slow to send
MAX_EXAMPLE_CHARS: Final = 60  # fits a column of a terminal
MAX_DEPTH_SHOWN: Final = 4  # enough for model / layer / parameter / statistic
NOT_PLAIN: Final = (type, ModuleType, FunctionType)  # queries refuse these

Origin = Literal["observe", "log", "live", "attached", "publish"]
COMPILED: Final = ("live", "attached")
"""The origins of events that happen in compiled programs."""


@dataclass(frozen=True, slots=True)
class ObservableFacts:
    """The description of an observable.

    Attributes:
        type: Its type, with dtype and shape for arrays.
        example: A number or text that was seen, as text; empty for larger values.
        fields: For a mapping, the types of the values inside, by paths such as "dense.kernel"; for a plain object, of
            the numbers that it stores.
        step: The step of the event that the example is from; `None` if it is not known on the host.
    """

    type: str
    example: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    step: float | None = None


class Provider(Protocol):
    """Adds observables to an event, such as the tensors of a watched module."""

    wants_event: bool
    """Whether it needs to see the next event, even without subscriptions."""

    def provide(self, index: int, observables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the observables of an event with its own added; called under the lock, where the event happens."""

    def describe(self) -> Mapping[str, ObservableFacts]:
        """Return the description of the observables that it adds."""

    def price(self, query: Query) -> str:
        """Return what a query costs the run beyond its evaluation; empty if nothing. Called by the `io` thread."""

    def note(self, query: Query) -> str:
        """Return why a query has no records; empty if that is not known. Called by the `io` thread."""


class EventSource:
    """One event of the run.

    Attributes:
        name: Its name.
        origin: Where it comes from.
        next_index: Counts an event, and returns its number.
        counted: Returns how often it happened, where the counter does not know.
        nested: For a compiled step, the events that happen within it.
        providers: Add observables to it.
        subscriptions: The subscriptions that read it.
        delimits: The subscriptions whose groups it closes.
        joins: The subscriptions that join it.
        describe_next: Whether to describe the observables of the next event.
        observables: What it offers, by name.
        snapshot: The copy of an event that was observed with `snapshot=True`.
        n_groups: How many groups of it the run has closed.
        n_lost: How many values, or parts of them, could not be copied for snapshots.
        note: A remark for clients.
        planned: For a compiled step, whether all ranks run a variant of it, which the clients of another one ask for.
        called: For a compiled step, returns how many seconds ago its last call began.
        compiling: For a compiled step, returns how many seconds ago it began to compile the query with this key.
        lacks: For a compiled step, returns whether the program of its last call has nothing that the query with this
            key reads.
        price: What a subscription costs the run beyond the query; empty if nothing. `price_of` asks providers, too.
        turns: The limit of what its queries may take, and their order.
    """

    __slots__ = (
        "_counter", "called", "compiling", "counted", "delimits", "describe_next", "joins", "lacks", "n_groups",
        "n_lost", "name", "nested", "next_index", "note", "observables", "origin", "planned", "price", "providers",
        "snapshot",
        "subscriptions", "turns",
    )  # fmt: skip

    def __init__(self, name: str, origin: Origin, turns: Turns | None = None) -> None:
        self.name = name
        self.origin = origin
        self._counter = itertools.count()
        self.next_index: Callable[[], int] = self._counter.__next__
        self.subscriptions: list[Subscription] = []
        self.delimits: list[Subscription] = []
        self.joins: list[JoinedEvent] = []
        self.describe_next = True
        self.observables: dict[str, ObservableFacts] = {}
        self.snapshot: Snapshot | None = None
        self.n_groups = self.n_lost = 0
        self.note = self.price = ""
        self.nested: tuple[EventSource, ...] = ()
        self.planned = False
        self.providers: tuple[Provider, ...] = ()
        self.counted: Callable[[], int] | None = None
        self.called: Callable[[], float] = float
        self.compiling: Callable[[str], float | None] = lambda key: None
        self.lacks: Callable[[str], bool] = lambda key: False
        self.turns = turns or Turns()

    @property
    def wanted(self) -> bool:
        """Whether a subscription of this or another rank reads the event, or one that happens within it."""
        asked = self.subscriptions or self.delimits or self.joins or self.planned
        return bool(asked) or any(inner.wanted for inner in self.nested)

    @property
    def n_events(self) -> int:
        """How many events there were."""
        return self.n_counted if self.counted is None else self.counted()

    @property
    def n_counted(self) -> int:
        """The value of the counter, read from its repr: the only way that does not advance it."""
        return int(repr(self._counter)[len("count(") : -1])

    def advance(self, n: int) -> None:
        """Count `n` events more, which nobody reads one by one; 20 ns each."""
        deque(itertools.islice(self._counter, n), maxlen=0)  # others hold this counter's `__next__`

    def price_of(self, query: Query) -> str:
        """Return what a query of this event costs the run beyond its evaluation; empty if nothing."""
        prices = (self.price, *(provider.price(query) for provider in self.providers))
        return " ".join(price for price in prices if price)

    def note_of(self, query: Query) -> str:
        """Return why a query of this event has no records; empty if that is not known."""
        return next(filter(None, (provider.note(query) for provider in self.providers)), "")

    def describe(self, observables: Mapping[str, Any]) -> None:
        """Note names, types and examples; no value is retained."""
        self.describe_next = False
        at: Any = _on_host(observables.get("step"))
        step = exact(at) if issubclass(type(at), int | float) else None  # reading it from a device would wait
        for name, value in observables.items():
            if len(self.observables) >= MAX_OBSERVABLES_SHOWN and name not in self.observables:
                break
            try:
                self.observables[name] = _facts(value, step)
            except FAILURES as error:
                problem = f"(not described: {class_name(error)})"
                self.observables[name] = ObservableFacts(class_name(value), problem)
        for provider in self.providers:
            self.observables.update(provider.describe())


def _facts(value: object, step: float | None) -> ObservableFacts:
    """Describe a value. Mappings other than `dict` are not read: they may compute their items."""
    inside = _leaves(value, "", MAX_DEPTH_SHOWN) if type(value) is dict else _numbers(value)
    fields = dict(itertools.islice(inside, MAX_OBSERVABLES_SHOWN))
    return ObservableFacts(type_name(value), _example(_on_host(value)), fields, step)


def _numbers(value: object) -> Iterator[tuple[str, str]]:
    """Yield the names and types of the numbers that a plain object stores."""
    is_plain = not (built_in(value) or is_container(value) or issubclass(type(value), NOT_PLAIN))
    if is_plain and array_kind(value) is None:
        yield from ((name, type_name(number)) for name, number in numbers_in(value).items())


def _on_host(value: Any) -> object:
    """Return a scalar of NumPy as a number of Python, anything else as it is."""
    return value.item() if issubclass(type(value), np.generic) else value  # `isinstance` asks the object


def _example(value: object) -> str:
    if isinstance(value, str):
        return text(str.__getitem__(value, slice(MAX_EXAMPLE_CHARS)), MAX_EXAMPLE_CHARS)
    return text(value, MAX_EXAMPLE_CHARS) if isinstance(value, bool | int | float) else ""


def _leaves(value: dict[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the paths and types of the values inside a mapping."""
    for key, item in value.items():
        path = f"{prefix}{key}"
        if type(item) is dict and item and depth > 1:
            yield from _leaves(item, f"{path}.", depth - 1)
        else:
            yield path, type_name(item)


class Subscriptions:
    """All events of a run, and all subscriptions.

    Attributes:
        sources: The events, by name.
        active: The subscriptions that are evaluated, by number.
        idle: For events from `observe` without subscriptions: the function that counts them.
        idle_steps: The same for compiled steps.
        busy: The events from `observe` that have subscriptions, and need nothing else.
        idle_log: The event of what is logged, while it has no subscriptions; else `None`.
    """

    def __init__(self, turns: Callable[[], Turns] = Turns) -> None:
        """Start without events; `turns` makes the limit of each."""
        self._turns = turns
        self.abandon()

    def abandon(self) -> None:
        """Forget all events and subscriptions, without touching the tables: a forked child shares them."""
        self.sources: dict[str, EventSource] = {}
        self.active: dict[int, Subscription] = {}
        self.idle: dict[str, Callable[[], int]] = {}
        self.idle_steps: dict[str, Callable[[], int]] = {}
        self.busy: dict[str, EventSource] = {}
        self.idle_log: EventSource | None = None
        self._alert = False

    def source(self, name: str, origin: Origin = "observe") -> EventSource:
        """Return an event, which is made if it is new. The run's own events replace those that clients publish.

        Raises:
            ValueError: Another source already produces events of this name.
        """
        source = self.sources.get(name)
        if source is None:
            source = self.sources[name] = EventSource(name, origin, self._turns())
            for subscription in self.active.values():
                self._connect(source, subscription)
        elif source.origin == "publish":
            source.origin, source.describe_next = origin, source.describe_next or origin != "publish"
        elif source.origin != origin:
            raise ValueError(f"Event {name!r} comes from {source.origin} already; an event name has one source")
        return source

    def latest(self) -> tuple[str, int]:
        """Return the event that happens most often, other than `log`, and its last number; "" and 0 before any."""
        every = [(name != LOG, source.n_events, name) for name, source in [*self.sources.items()] if source.n_events]
        _, n, name = max(every, default=(False, 1, ""))
        return name, n - 1

    def open(self, subscription: Subscription) -> None:
        """Let a subscription see its events from now on."""
        self.active[subscription.id] = subscription
        for source in self.sources.values():
            self._connect(source, subscription)
        self.refresh()

    def close(self, subscription: Subscription) -> None:
        """Forget a subscription; its events cost nothing from now on."""
        self.active.pop(subscription.id, None)
        for source in self.sources.values():
            source.subscriptions = [other for other in source.subscriptions if other is not subscription]
            source.delimits = [other for other in source.delimits if other is not subscription]
            source.joins = [joined for joined in source.joins if joined.subscription is not subscription]
        self.refresh()

    def alert(self, on: bool) -> None:
        """Send every event the long way, or stop doing so: commands or the end of the run need the next one."""
        self._alert = on
        self.refresh()

    def refresh(self) -> None:
        """Update the tables of idle and busy events."""
        for name, source in self.sources.items():
            observed = source.origin == "observe"
            needed = any(provider.wants_event for provider in source.providers)
            special = self._alert or source.describe_next or source.snapshot is not None or needed
            wanted = source.wanted
            for table, listed in ((self.idle, observed), (self.idle_steps, source.origin == "live")):
                if listed and not (special or wanted):
                    table[name] = source.next_index
                else:
                    table.pop(name, None)
            if observed and wanted and not special:
                self.busy[name] = source
            else:
                self.busy.pop(name, None)
            if source.origin == "log":
                self.idle_log = None if wanted or special else source

    @staticmethod
    def _connect(source: EventSource, subscription: Subscription) -> None:
        if subscription.event == source.name and subscription not in source.subscriptions:
            subscription.errors.known = source.observables
            source.subscriptions = [*source.subscriptions, subscription]
            source.turns.crowded = True  # until its price is known
        if any(isinstance(window, Per) and window.event == source.name for window in subscription.windows):
            source.delimits = [*source.delimits, subscription]
        if source.name in subscription.latest:
            joined = JoinedEvent(subscription, source.name)
            joined.begin(source.n_events, source.snapshot)
            source.joins = [*source.joins, joined]
            source.turns.crowded = True  # as above
        if (
            source.origin in COMPILED
            and subscription.latest
            and source.name in (subscription.event, *subscription.latest)
        ):
            subscription.errors.refuse(not_compiled(source.name))


# An event that a query joins: what the query reads of it is copied when it happens, within the limit of that event.

Snapshot = tuple[int, Any, float, Mapping[str, Any]]
"""A copy of an event: index, step, wall time, observables."""


class JoinedEvent:
    """Copies what a subscription reads of one event that it joins. It has a turn at that event, as queries have.

    Attributes:
        subscription: The subscription.
        n_seen: How many events it was copied from.
        n_waited: How many events in a row it was skipped because others had taken the time.
        price_s: The seconds that the last copy took.
    """

    __slots__ = ("_evaluation", "_event", "_latest", "_reads_fields", "n_seen", "n_waited", "price_s", "subscription")

    def __init__(self, subscription: Subscription, event: str) -> None:
        of = subscription.tail.evaluation.meter
        meter = Meter(limit_s=of.limit_s, max_bytes=of.max_bytes, model=of.model, cpu_s=of.now, memory=of.memory)
        self.subscription = subscription
        self.n_seen = self.n_waited = 0
        self.price_s = 0.0
        self._event = event
        self._evaluation = Evaluation(joined_part(subscription.query, event), meter=meter)
        self._latest = subscription.latest[event]
        self._reads_fields = reads_fields_of(subscription.query, event)

    def begin(self, n_events: int, snapshot: Snapshot | None) -> None:
        """Begin after some events; a snapshot of the last of them is the latest one."""
        if n_events and self._latest.observables is None:
            self._latest.lose()
            if snapshot is not None and snapshot[0] == n_events - 1:
                self.post(*snapshot)

    @property
    def suspended(self) -> bool:
        """Whether the query is not evaluated any more."""
        return self.subscription.errors.suspended

    @property
    def first(self) -> bool:
        """Whether it is copied whatever others take."""
        return self.subscription.first

    @property
    def confirmed(self) -> bool:
        """Whether a controller accepts that it takes more of an event than queries may."""
        return self.subscription.confirmed

    def allow(self, left_s: float, *, limit_s: float | None) -> None:
        """Set what is left of the event."""
        if not self.confirmed:
            self._evaluation.meter.limit_s = left_s

    def skip(self, index: int, wall_time: float) -> None:
        """Count an event for which there is no time: what follows it has no partner."""
        self._latest.lose()

    def post(
        self, index: int, step: object, wall_time: float, observables: Mapping[str, Any], steps: Tracks = None
    ) -> None:
        """Copy what the query reads of an event. Never raises."""
        subscription, latest = self.subscription, self._latest
        if subscription.errors.suspended:
            return
        if subscription.stride > 1 and index % subscription.stride:
            latest.lose()  # the budget thins the query, and its copies with it
            return
        clock = subscription.clock
        cpu_s, now_s = clock.cpu(), clock.monotonic()
        try:
            if self._reads_fields:
                observables = with_fields(observables, index=index, wall_time=wall_time)
            latest.hold(*self._evaluation.to_hold(observables, before=latest.n_bytes))
            self.n_seen += 1
        except NoRoom:
            latest.lose()
        except FAILURES as error:
            error.__traceback__ = None  # its frames hold what was computed so far
            unlogged = self._event == LOG and isinstance(error, UnknownNameError) and error.what == "observable"
            if not unlogged:  # calls of `log` differ in their names: the latest that has those of the query counts
                latest.lose()
                if not isinstance(error, AbsentError):
                    subscription.errors.add(error, step, event=self._event)
        taken_s = clock.cpu() - cpu_s
        self.price_s = taken_s
        subscription.cost.tail(taken_s, clock.monotonic() - now_s)


def not_compiled(event: str) -> EvaluationError:
    """Return the error of a query that joins an event of a compiled step."""
    return EvaluationError(
        f"Expected events of observe or log to join, got {event!r}, which happens in a compiled step: "
        "pass its results to observe, and join that event",
        event=event,
    )
