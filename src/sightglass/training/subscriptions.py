"""What is being asked right now: for each event of the run, the answers that want it, and what is known of it.

`idle` is the heart of it: a table from the events that nobody asks for to the function that counts them. `observe`
calls that function and is done; an event that is missing from the table takes the long way. `resting` is the same for
steps that are watched from inside. `busy` has the channels that somebody asks for, and about which nothing else is to
be done.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sightglass.core.values import type_name
from sightglass.query.stages import Per

from .subscription import Subscription

MAX_OBSERVABLES_SHOWN = 1_000
MAX_EXAMPLE_CHARS = 60
MAX_DEPTH_SHOWN = 4

Origin = Literal["observe", "log", "live", "attached", "publish"]


@dataclass(frozen=True, slots=True)
class ObservableFacts:
    """What is known of an observable.

    Attributes:
        type: Its type, with dtype and shape for arrays.
        example: A number or text that was seen, as text; empty for anything larger.
        fields: What is inside a mapping, by paths such as "dense.kernel".
    """

    type: str
    example: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


class Provider(Protocol):
    """What adds observables of its own to an event, such as the tensors of a watched module."""

    restless: bool
    """Whether it wants to see the next event, though nobody may ask for it."""

    def bring(self, index: int, observables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the observables of an event with its own among them; called under the lock where the event happens."""

    def tell(self) -> Mapping[str, ObservableFacts]:
        """Say what it brings."""


class EventSource:
    """One event of the run.

    Attributes:
        name: Its name.
        origin: Where it comes from.
        next_index: Counts it, and returns its number.
        counted: Says how often it happened, where the counter does not.
        parts: The events that happen within it, where it is a step of JAX's.
        brings: What adds observables to it.
        answers: The queries about it.
        delimits: The queries whose groups it closes.
        describe_next: Whether the next event is to be described.
        offered: What it offers, by name.
        kept: Its snapshot: index, step, wall time, observables.
        note: What else a client should know of it.
        price: What it costs the run to be asked for it, beyond the query; empty if nothing.
    """

    __slots__ = (
        "_counter",
        "answers",
        "brings",
        "counted",
        "delimits",
        "describe_next",
        "kept",
        "name",
        "next_index",
        "note",
        "offered",
        "origin",
        "parts",
        "price",
    )

    def __init__(self, name: str, origin: Origin) -> None:
        self.name = name
        self.origin = origin
        self._counter = itertools.count()
        self.next_index: Callable[[], int] = self._counter.__next__
        self.answers: list[Subscription] = []
        self.delimits: list[Subscription] = []
        self.describe_next = True
        self.offered: dict[str, ObservableFacts] = {}
        self.kept: tuple[int, Any, float, Mapping[str, Any]] | None = None
        self.note = self.price = ""
        self.parts: tuple[EventSource, ...] = ()
        self.brings: tuple[Provider, ...] = ()
        self.counted: Callable[[], int] | None = None

    @property
    def wanted(self) -> bool:
        """Whether somebody asks for the event, or for one that happens within it."""
        return bool(self.answers or self.delimits) or any(part.wanted for part in self.parts)

    @property
    def n_events(self) -> int:
        """How many events there were."""
        return self.n_counted if self.counted is None else self.counted()

    @property
    def n_counted(self) -> int:
        """How far the counter is. It is read by its text: the only way that does not advance it."""
        return int(repr(self._counter)[len("count(") : -1])

    def describe(self, observables: Mapping[str, Any]) -> None:
        """Note names, types and examples; no value is kept."""
        self.describe_next = False
        for name, value in observables.items():
            if len(self.offered) >= MAX_OBSERVABLES_SHOWN and name not in self.offered:
                break
            try:
                self.offered[name] = _offered(value)
            except Exception as error:  # noqa: BLE001  values are the program's own
                self.offered[name] = ObservableFacts(type(value).__name__, f"(not described: {type(error).__name__})")
        for bringer in self.brings:
            self.offered.update(bringer.tell())


def _offered(value: Any) -> ObservableFacts:
    """Look at a value, but not into mappings other than `dict`, which may compute their items."""
    inside = _leaves(value, "", MAX_DEPTH_SHOWN) if type(value) is dict else iter(())
    return ObservableFacts(type_name(value), _example(value), dict(itertools.islice(inside, MAX_OBSERVABLES_SHOWN)))


def _example(value: Any) -> str:
    if isinstance(value, str):
        return repr(value[:MAX_EXAMPLE_CHARS])[:MAX_EXAMPLE_CHARS]
    return repr(value)[:MAX_EXAMPLE_CHARS] if isinstance(value, bool | int | float) else ""


def _leaves(value: dict[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the paths and types of what is inside a mapping."""
    for key, item in value.items():
        path = f"{prefix}{key}"
        if type(item) is dict and item and depth > 1:
            yield from _leaves(item, f"{path}.", depth - 1)
        else:
            yield path, type_name(item)


class Subscriptions:
    """All events of a run, and who wants them."""

    def __init__(self) -> None:
        self.channels: dict[str, EventSource] = {}
        self.answers: dict[int, Subscription] = {}
        self.idle: dict[str, Callable[[], int]] = {}
        self.resting: dict[str, Callable[[], int]] = {}
        self.busy: dict[str, EventSource] = {}
        self._alert = False

    def channel(self, name: str, origin: Origin = "observe") -> EventSource:
        """Return the channel of an event, making it if the event is new.

        What the run offers itself displaces what a client publishes.

        Raises:
            ValueError: The event comes from elsewhere already: an event name has one source.
        """
        channel = self.channels.get(name)
        if channel is None:
            channel = self.channels[name] = EventSource(name, origin)
            for answer in self.answers.values():
                self._connect(channel, answer)
        elif channel.origin == "publish":
            channel.origin, channel.describe_next = origin, channel.describe_next or origin != "publish"
        elif channel.origin != origin:
            raise ValueError(f"Event {name!r} comes from {channel.origin} already; an event name has one source")
        return channel

    def open(self, answer: Subscription) -> None:
        """Let an answer see the events it asks for, from now on."""
        self.answers[answer.id] = answer
        for channel in self.channels.values():
            self._connect(channel, answer)
        self.refresh()

    def close(self, answer: Subscription) -> None:
        """Forget an answer; its events cost nothing any more."""
        self.answers.pop(answer.id, None)
        for channel in self.channels.values():
            channel.answers = [other for other in channel.answers if other is not answer]
            channel.delimits = [other for other in channel.delimits if other is not answer]
        self.refresh()

    def alert(self, on: bool) -> None:
        """Send every event the long way, or stop doing so: something is to be done at the next one."""
        self._alert = on
        self.refresh()

    def refresh(self) -> None:
        """Bring the table of idle events up to date."""
        for name, channel in self.channels.items():
            observed = channel.origin == "observe"
            restless = any(bringer.restless for bringer in channel.brings)
            special = self._alert or channel.describe_next or channel.kept is not None or restless
            wanted = channel.wanted
            for table, listed in ((self.idle, observed), (self.resting, channel.origin == "live")):
                if listed and not (special or wanted):
                    table[name] = channel.next_index
                else:
                    table.pop(name, None)
            if observed and wanted and not special:
                self.busy[name] = channel
            else:
                self.busy.pop(name, None)

    @staticmethod
    def _connect(channel: EventSource, answer: Subscription) -> None:
        if answer.event == channel.name and answer not in channel.answers:
            channel.answers = [*channel.answers, answer]
        if any(isinstance(window, Per) and window.event == channel.name for window in answer.windows):
            channel.delimits = [*channel.delimits, answer]
