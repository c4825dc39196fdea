"""Bugs of every kind, planted into the real code: the simulation must find each of them.

Each function is a context manager: within it, the real code has the bug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from sightglass.client.presence import PresenceCheck
from sightglass.client.record_buffer import RecordBuffer
from sightglass.core.columns import Row
from sightglass.core.threads import Supervised
from sightglass.protocol import messages
from sightglass.query.windows import PipelineItem
from sightglass.storage.write.segment import SegmentWriter
from sightglass.training.client_commands import ClientCommands
from sightglass.training.clients import Clients
from sightglass.training.io_loop import IoLoop, SendQueue
from sightglass.training.subscription import Subscription

from .network import Weather

Planted = AbstractContextManager[Any]


def record_dropped_uncounted() -> Planted:
    """Leave out a record now and then, without a hole in the numbers."""
    emit = Subscription._emit

    def leaky(self: Subscription, items: Sequence[PipelineItem]) -> None:
        emit(self, [item for item in items if item.ordinal % 10 != 9])

    return mock.patch.object(Subscription, "_emit", leaky)


def record_made_twice() -> Planted:
    """Make a record twice, with two numbers."""
    emit = Subscription._emit

    def repeating(self: Subscription, items: Sequence[PipelineItem]) -> None:
        emit(self, [item for item in items for _ in range(2 if item.ordinal % 10 == 9 else 1)])

    return mock.patch.object(Subscription, "_emit", repeating)


def command_applied_twice() -> Planted:
    """Accept a command again that arrives again."""
    return mock.patch.object(ClientCommands, "_is_new", return_value=True)


def clean_end_reported_as_death() -> Planted:
    """Forget to ask the registry whether the run was closed."""
    init = PresenceCheck.__init__

    def forgetful(self: PresenceCheck, alive: Any, closed: Any) -> None:
        init(self, alive, lambda: False)

    return mock.patch.object(PresenceCheck, "__init__", forgetful)


def rest_of_a_short_write_lost() -> Planted:
    """Take a short write for a whole one."""
    advance = SegmentWriter._advance

    def hasty(self: SegmentWriter, n: int) -> None:
        advance(self, sum(map(len, self._batch())))

    return mock.patch.object(SegmentWriter, "_advance", hasty)


def torn_tail_not_cut() -> Planted:
    """Leave half a frame in the file, and write on after it."""

    def careless(self: SegmentWriter) -> None:
        self._n_begun = 0
        self._watched = False

    return mock.patch.object(SegmentWriter, "_cut_off", careless)


def queue_without_bound() -> Planted:
    """Drop nothing from a client's queue."""
    return mock.patch.object(SendQueue, "_shrink")


def number_wrong_after_a_split() -> Planted:
    """Give the first record after a stream was split a number too high."""
    fork = Subscription.fork

    def hasty(self: Subscription, id: int) -> Subscription:
        other = fork(self, id)
        other.n_rows += 1
        return other

    return mock.patch.object(Subscription, "fork", hasty)


def row_lost_on_the_way_to_the_loop() -> Planted:
    """Clear the rows that came while the others were taken away."""
    take = Subscription.take_rows

    def clearing(self: Subscription) -> list[Row]:
        rows = take(self)
        return rows[:-1] if len(rows) > 3 else rows

    return mock.patch.object(Subscription, "take_rows", clearing)


def loop_dies_of_an_exception() -> Planted:
    """Let the first exception end a loop."""

    def fragile(self: Supervised, now_s: float) -> float | None:
        try:
            return self._round(now_s)
        except Exception:  # noqa: BLE001  as a thread does
            return None

    return mock.patch.object(Supervised, "round", fragile)


def value_changed_on_the_way() -> Planted:
    """Keep a reference to an array that the program overwrites."""
    return mock.patch("sightglass.query.pipeline.snapshot", lambda value, *args, **options: value)


def goodbye_not_sent() -> Planted:
    """Close the listener before the last messages are sent."""

    def hasty(self: IoLoop, now_s: float) -> None:
        self._listener.close()

    return mock.patch.object(IoLoop, "_end", hasty)


def acknowledged_but_not_applied() -> Planted:
    """Acknowledge a command when it arrives, and lose some."""
    submit = ClientCommands.submit

    def hasty(self: ClientCommands, peer: bytes, client: Any, message: messages.RunCommand) -> None:
        if message.request % 5 == 0:
            self._outbox.reply(peer, message.request, None)
        else:
            submit(self, peer, client, message)

    return mock.patch.object(ClientCommands, "submit", hasty)


def loss_not_counted_at_the_end() -> Planted:
    """Do not count the records that were lost after the last one that arrived."""
    return mock.patch.object(RecordBuffer, "expect")


def streams_of_the_dead_stay_open() -> Planted:
    """Never end a lease."""
    return mock.patch.object(Clients, "expired", return_value=[])


QUIET = {
    "weather": Weather(),
    "cut_s": 0.0,
    "stall_s": 0.0,
    "calm": True,
    "tight": False,
    "errors": 0.0,
    "end": "close",
}
HOSTILE = {"weather": Weather(hostile=0.1)}

BUGS: tuple[tuple[Callable[[], Planted], dict[str, Any]], ...] = (
    (record_dropped_uncounted, {}), (record_made_twice, {}), (command_applied_twice, HOSTILE),
    (clean_end_reported_as_death, {"end": "close", "cut_s": 0.5}), (rest_of_a_short_write_lost, {"disk_faults": 0.3}),
    (torn_tail_not_cut, {"disk_faults": 0.3}), (queue_without_bound, {"tight": True}),
    (number_wrong_after_a_split, QUIET), (row_lost_on_the_way_to_the_loop, QUIET),
    (loop_dies_of_an_exception, {"errors": 0.02}), (value_changed_on_the_way, {}), (goodbye_not_sent, QUIET),
    (acknowledged_but_not_applied, {}), (loss_not_counted_at_the_end, {"tight": True}),
    (streams_of_the_dead_stay_open, {"calm": False, "lease_s": 2.0, "errors": 0.0}),
)  # fmt: skip
"""The bugs, and the features of the schedules that are likely to show them."""
