"""Bugs of every kind, planted into the real code: the simulation must find each of them.

Each function is a context manager: within it, the real code has the bug.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import msgspec

from sightglass.client.connection import End
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.client.session import Session
from sightglass.core.columns import Columns, Record, Row
from sightglass.core.process.threads import Supervised
from sightglass.protocol import messages
from sightglass.query.windows import PipelineItem
from sightglass.storage.write.segment import SegmentWriter
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.tail import UnsentRows
from sightglass.training.serving.client_commands import ClientCommands
from sightglass.training.serving.clients import Clients
from sightglass.training.serving.io_loop import IoLoop, SendQueue

from .network import Weather
from .program import Pace

Planted = AbstractContextManager[Any]


def record_dropped_uncounted() -> Planted:
    """Leave out a record now and then, without a hole in the numbers."""
    emit = UnsentRows.emit

    def leaky(self: UnsentRows, items: Sequence[PipelineItem]) -> None:
        emit(self, [item for item in items if item.ordinal % 10 != 9])

    return mock.patch.object(UnsentRows, "emit", leaky)


def record_made_twice() -> Planted:
    """Make a record twice, with two numbers."""
    emit = UnsentRows.emit

    def repeating(self: UnsentRows, items: Sequence[PipelineItem]) -> None:
        emit(self, [item for item in items for _ in range(2 if item.ordinal % 10 == 9 else 1)])

    return mock.patch.object(UnsentRows, "emit", repeating)


def command_applied_twice() -> Planted:
    """Accept a command again that arrives again."""
    return mock.patch.object(ClientCommands, "_is_new", return_value=True)


def clean_end_reported_as_death() -> Planted:
    """Tell of each run that is gone that it died."""
    finish = Session.finish

    def forgetful(self: Session, reason: str, end: End) -> None:
        finish(self, reason.replace("has ended", "died"), "lost" if "has ended" in reason else end)

    return mock.patch.object(Session, "finish", forgetful)


def client_does_not_say_where_it_was() -> Planted:
    """Open a stream from its beginning after the connection was lost, and take its numbers for those of another one."""
    request = ResumableStream.request

    def forgetful(self: ResumableStream, number: int, run_id: str) -> messages.Open:
        return msgspec.structs.replace(request(self, number, run_id), stream=0, since=0)

    def opened(self: ResumableStream, answer: messages.Opened, run_id: str) -> None:
        self.number = -1 if self.run_id else 0
        real_opened(self, answer, run_id)

    real_opened = ResumableStream.opened
    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(ResumableStream, "request", forgetful))
    patches.enter_context(mock.patch.object(ResumableStream, "opened", opened))
    return patches


def gap_of_a_parked_stream_not_counted() -> Planted:
    """Let a stream that comes back go on with the next number, whatever happened meanwhile."""
    return mock.patch("sightglass.training.serving.client_subscriptions.n_missing", return_value=0)


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
    return mock.patch.object(SendQueue, "_bound")


def number_wrong_after_a_split() -> Planted:
    """Give the first record after a stream was split a number too high."""
    fork = Subscription.fork

    def hasty(self: Subscription, id: int) -> Subscription:
        other = fork(self, id)
        other.rows.n_made += 1
        return other

    return mock.patch.object(Subscription, "fork", hasty)


def row_lost_on_the_way_to_the_loop() -> Planted:
    """Clear the rows that came while the others were taken away."""
    take = UnsentRows.take

    def clearing(self: UnsentRows) -> list[Row]:
        rows = take(self)
        return rows[:-1] if len(rows) > 3 else rows

    return mock.patch.object(UnsentRows, "take", clearing)


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
    return mock.patch("sightglass.query.evaluation.snapshot", lambda value, *args, **options: value)


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


def thinned_records_not_counted() -> Planted:
    """Take the records that the run has thinned for records that were never made."""
    add = RecordBuffer.add

    def careless(self: RecordBuffer, columns: Columns) -> None:
        n_thinned = self.n_thinned
        add(self, columns)
        self.n_thinned = n_thinned

    return mock.patch.object(RecordBuffer, "add", careless)


def forgotten_records_shown_again() -> Planted:
    """Show a client that reads late the oldest record in place of one that was thinned here."""
    records = RecordBuffer.records

    def inventive(self: RecordBuffer) -> list[Record]:
        held = records(self)
        return [*held, held[0]] if self.n_forgotten else held

    return mock.patch.object(RecordBuffer, "records", inventive)


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

THINNED = {
    "pace": Pace(n_batches=250, batch_s=0.004, burst=5, budget=0.05), "tick_s": 1e-4, "max_records": 24, "lag_s": 0.5,
    "cut_s": 0.2, "lease_s": 0.5, "tight": True, "errors": 0.0,
}  # fmt: skip
"""The budget, the run and the clients thin, a client is slower than its streams, and connections are lost."""

BUGS: tuple[tuple[Callable[[], Planted], dict[str, Any]], ...] = (
    (record_dropped_uncounted, {}), (record_made_twice, {}), (command_applied_twice, HOSTILE),
    (clean_end_reported_as_death, {"end": "close", "cut_s": 0.5}), (rest_of_a_short_write_lost, {"disk_faults": 0.3}),
    (torn_tail_not_cut, {"disk_faults": 0.3}), (queue_without_bound, {"tight": True}),
    (number_wrong_after_a_split, QUIET), (row_lost_on_the_way_to_the_loop, QUIET),
    (loop_dies_of_an_exception, {"errors": 0.02}), (value_changed_on_the_way, {}), (goodbye_not_sent, QUIET),
    (acknowledged_but_not_applied, {}), (loss_not_counted_at_the_end, {"tight": True}),
    (client_does_not_say_where_it_was, {"cut_s": 0.5, "lease_s": 2.0}),
    (gap_of_a_parked_stream_not_counted, {"cut_s": 0.5, "lease_s": 2.0, "tight": False}),
    (thinned_records_not_counted, THINNED), (forgotten_records_shown_again, THINNED),
    (streams_of_the_dead_stay_open, {
        "calm": False, "lease_s": 0.5, "errors": 0.0, "pace": Pace(n_batches=250, batch_s=0.04, budget=None),
    }),
)  # fmt: skip
"""The bugs, and the features of the schedules that are likely to show them."""
