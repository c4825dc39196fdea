"""The `io` loop of a run: it moves messages between the sockets and the client service, and does nothing else.

Each client has a bounded queue. When it is full, the oldest records in it are dropped and counted; the client sees the
gap in the index numbers. Replies are never dropped: a client that sends requests and does not read is disconnected.

The first event wakes the loop. While more events follow, it fetches their records every `FOLLOW_S` by itself: a wake-up
is a system call, in which the training would lose the interpreter lock. After an event that none follows it looks once
more, since each look takes the interpreter lock, too. Sending takes at most 1 / `PACE` of the time.
If a client is behind, records are fetched less often, in larger blocks; likewise if no client wants each record at once
(`Hello.pace_s`). Receiving takes at most `SHARE` of the time: a flood of requests waits in its own queue, and slows
down no other client.

`Chores` are what the thread does from time to time beside that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sightglass.core.counts import Failures
from sightglass.core.process.clock import WorkClock
from sightglass.core.process.threads import Supervised, Worker
from sightglass.core.process.unpatched import time
from sightglass.protocol import messages
from sightglass.protocol.transport import Frames, Listener, Sent, publisher_of
from sightglass.query.meter import SharedBytes

from .client_service import ClientService
from .clients import Outgoing

IDLE_S: Final = 0.25  # the loop is woken for records and messages; this bounds the delay of everything else
RETRY_S: Final = 0.005  # a full queue has room again after some milliseconds
TICK_S: Final = 1.0  # leases last seconds, so they are checked as often
LATE_S: Final = 1.0  # a loop that was held up this long reads the pings that wait before it ends leases
MAX_OUTBOX_BYTES: Final = 64 * 2**20  # for each client; some seconds of a fast stream on a slow network
MAX_OUTBOXES_BYTES: Final = 64 * 2**20  # for all clients together: however many are slow, the run has memory for itself
MAX_OUTBOX_MESSAGES: Final = 20_000  # the same in messages, each of which costs memory of its own
FINISH_S: Final = 2.0  # at the end of a run: clients on the same network read the rest in milliseconds
PACE: Final = 10  # sending takes at most a tenth of the thread's time, and of the interpreter lock
RESTING_PACE: Final = 2  # the same while the program rests
FOLLOW_S: Final = 0.001  # a record waits no longer than for a wake-up (`events.WAKE_S`)
FOLLOW_FOR_S: Final = 0.002  # longer than `events.WAKE_S`: while events come this close, they do not wake the loop
BEHIND_S: Final = 0.02  # longer, and records would pile up until sending them takes longer than the pause saved
SHARE: Final = 0.2  # of the time may go into requests; ordinary clients need a thousandth
CREDIT_S: Final = 0.5  # a burst of requests, such as fifty new clients, is served at once
BLOCK_TAG: Final = b"\xa5block"
ARRAY_BYTES: Final = 1

Queued = tuple[Frames, int, bool]


@dataclass(slots=True)
class SendQueue:
    """The messages that wait for one client. If they exceed the limits, the oldest blocks of records are dropped.

    Attributes:
        queue: The messages.
        n_bytes: Their size.
        n_dropped: How many blocks of records were dropped.
        overfull: Whether the limits are exceeded even without records.
        shared: What the queues of all clients hold together.
    """

    shared: SharedBytes = field(default_factory=SharedBytes)
    queue: deque[Queued] = field(default_factory=deque)
    n_bytes: int = 0
    n_dropped: int = 0
    overfull: bool = False

    def put(self, frames: Frames) -> None:
        """Append a message."""
        size = sum(len(frame) for frame in frames)
        self.queue.append((frames, size, is_block(frames)))
        self.n_bytes += size
        self.shared.hold(frames, size)
        if self.n_bytes > MAX_OUTBOX_BYTES or len(self.queue) > MAX_OUTBOX_MESSAGES:
            self._bound()

    def take(self) -> None:
        """Remove the oldest message, which was sent."""
        self._remove(self.queue.popleft())

    def drop_records(self) -> None:
        """Drop the blocks of records for a client that has left."""
        self._keep(lambda entry: not entry[2])

    def clear(self) -> None:
        """Drop all messages."""
        self._keep(lambda entry: False)
        self.overfull = False

    def shrink(self, max_bytes: int) -> None:
        """Drop the oldest blocks of records, until few messages of at most `max_bytes` are left."""
        excess = len(self.queue) - MAX_OUTBOX_MESSAGES // 2

        def keep(entry: Queued) -> bool:
            nonlocal excess
            if not entry[2] or (self.n_bytes <= max_bytes and excess <= 0):
                return True
            excess -= 1
            self.n_dropped += 1
            return False

        self._keep(keep)

    def _bound(self) -> None:
        self.shrink(MAX_OUTBOX_BYTES // 2)
        self.overfull = self.n_bytes > MAX_OUTBOX_BYTES // 2 or len(self.queue) > MAX_OUTBOX_MESSAGES // 2

    def _keep(self, wanted: Callable[[Queued], bool]) -> None:
        """Remove the messages that are not wanted, from the oldest on."""
        kept: deque[Queued] = deque()
        for entry in self.queue:
            if wanted(entry):
                kept.append(entry)
            else:
                self._remove(entry)
        self.queue = kept

    def _remove(self, entry: Queued) -> None:
        self.n_bytes -= entry[1]
        self.shared.release(entry[0], entry[1])


def is_block(frames: Frames) -> bool:
    """Return whether a message carries records, by its header: a short array that begins with the tag of the type."""
    header = bytes(frames[0][: len(BLOCK_TAG) + ARRAY_BYTES])
    return header.endswith(BLOCK_TAG)


class IoLoop:
    """The loop that serves a run's clients."""

    def __init__(
        self,
        listener: Listener,
        service: ClientService,
        *,
        clock: WorkClock,
        worker: type[Worker] = Worker,
        charge: Callable[[float], object] = float,
        chores: Chores | None = None,
        rests: Callable[[], bool] = bool,
    ) -> None:
        """Start to serve.

        Args:
            listener: Where messages arrive.
            service: Answers them.
            clock: The time.
            worker: Runs the rounds.
            charge: Takes the seconds of this thread that it took to send records.
            chores: What else this thread does from time to time.
            rests: Returns whether the program rests, so that sending records at once takes nothing from it.
        """
        self._listener = listener
        self._service = service
        self._publications = service.publications
        self._publications.publisher = publisher_of(listener)
        self._clock = clock
        self._charge = charge
        self._chores = chores
        self._rests = rests
        self._outboxes: dict[bytes, SendQueue] = {}
        self._shared = SharedBytes()
        self._ticked_s = self._turned_s = clock.monotonic()
        self._credit_s = CREDIT_S
        self._next_flush_s = self._woken_s = self._paid_s = 0.0
        self._gap_s = IDLE_S
        self._follows = False
        self._urgent = False
        self._closing = ""
        self._ended_s: float | None = None
        self._worker = worker("io", self.round, reset=self.reset, wait=self._wait, wake=listener.wake)
        self._worker.warns_if_starved = False  # `serves` says it
        self._worker.wake()

    @property
    def serves(self) -> bool:
        """Whether it has a thread. Without one, only `settle` and `close` run its rounds."""
        return not self._worker.starved

    @property
    def supervised(self) -> Supervised:
        """The rounds, and what failed in them."""
        return self._worker.supervised

    def wake(self) -> None:
        """Make the loop fetch records: now, or as soon as it does so by itself; from any thread."""
        before_s, self._woken_s = self._woken_s, self._clock.monotonic()
        self._gap_s = self._woken_s - before_s
        if not self._follows or self._rests():
            self._listener.wake()

    def settle(self, timeout_s: float) -> bool:
        """Wait until all records so far are passed to the recorder; return whether they were in time."""
        self._urgent = True
        return self._worker.flush(timeout_s)

    def close(self, reason: str, *, timeout_s: float = 3.0) -> None:
        """Send what is queued and the reason to all clients, then close the listener; wait for at most `timeout_s`."""
        self._closing = reason
        self._worker.close(timeout_s)

    def round(self, now_s: float) -> float | None:
        """Take messages in, hand messages and records out."""
        if self._closing:
            return self._end(now_s)
        if self._credit_s > 0:
            self._take_in()
        self._tick(now_s)
        self._hand_out(now_s)
        if self._chores is not None:
            self._chores.tick(now_s)
        if self._credit_s <= 0 or any(outbox.queue for outbox in self._outboxes.values()):
            return RETRY_S
        return min(max(0.0, self._next_flush_s - self._clock.monotonic()), IDLE_S) if self._follows else IDLE_S

    def reset(self) -> None:
        """Start over without clients; what is recorded is still recorded."""
        self._outboxes, self._shared = {}, SharedBytes()
        peers = self._service.clients.peers
        self._service.reset()
        for peer in peers:
            self._listener.send(peer, messages.encode(messages.Bye(reason=messages.RESTARTED)))

    def _wait(self, rest_s: float) -> None:
        """Wait for messages, except while they have had their share of the time."""
        if self._credit_s > 0 or self._closing:
            self._listener.wait(rest_s)
        else:
            time.sleep(rest_s)

    def _take_in(self) -> None:
        """Pass received messages to the client service, and charge the time that this took."""
        began_s = self._clock.cpu()
        for delivery in self._listener.receive():
            self._queue(self._service.receive(delivery))
        self._credit_s -= self._clock.cpu() - began_s

    def _tick(self, now_s: float) -> None:
        """End leases, unless the loop was held up: then it first reads what clients sent meanwhile."""
        if now_s - self._turned_s > LATE_S:
            self._ticked_s = now_s
        self._credit_s = min(CREDIT_S, self._credit_s + SHARE * (now_s - self._turned_s))
        self._turned_s = now_s
        if now_s - self._ticked_s >= TICK_S:
            self._ticked_s = now_s
            self._queue(self._service.tick())

    def _end(self, now_s: float) -> float | None:
        """Send the last records and the end of the run, and wait until all clients have read them, for `FINISH_S`.

        That they are sent is not enough: when a socket closes, libzmq drops what a busy client has not yet taken from
        the system.
        """
        if self._chores is not None:
            self._chores.close()
            self._chores = None
            return 0.0  # they took some time, which the clients get all the same
        if self._ended_s is None:
            self._ended_s = now_s
            self._queue(self._service.flush())
            self._queue(self._service.end(self._closing))
        for delivery in self._listener.receive():
            self._service.after_end(delivery)
        self._send()
        unread = len(self._service.clients) > 0 or any(outbox.queue for outbox in self._outboxes.values())
        if unread and now_s - self._ended_s < FINISH_S:
            return RETRY_S
        self._listener.close()
        return None

    def _hand_out(self, now_s: float) -> None:
        """Send queued messages, and fetch records if it is time; see the top of this module for how often."""
        began_s = self._clock.cpu()
        fetch = self._urgent or now_s >= self._next_flush_s
        if fetch:
            self._urgent, self._follows = False, True
            self._queue(self._service.flush())
        self._send()
        self._shrink()  # only now, so that a client which reads loses nothing
        took_s = self._clock.cpu() - began_s
        self._charge(took_s)
        if fetch:
            # The time before pays, too: a wait for the interpreter lock takes nothing from the program.
            # Never longer than `BEHIND_S`: records that pile up meanwhile would make the next turn longer.
            rests = self._rests()
            paid_s = max(now_s, self._paid_s + (RESTING_PACE if rests else PACE) * took_s)
            self._paid_s = min(paid_s, now_s + BEHIND_S)
            behind = any(outbox.queue for outbox in self._outboxes.values())
            pause_s = max(BEHIND_S if behind else self._paid_s - now_s, self._service.clients.pace_s)
            self._follows = False  # before the last wake-up is looked at: an event from now on wakes the loop
            follow_for_s = FOLLOW_FOR_S if self._gap_s < FOLLOW_FOR_S else FOLLOW_S
            if now_s - self._woken_s < follow_for_s and not rests:
                pause_s = max(pause_s, FOLLOW_S)
            self._follows = pause_s >= FOLLOW_S
            self._next_flush_s = now_s + pause_s if self._follows else now_s

    def _queue(self, outgoing: Outgoing) -> None:
        for peer, frames in outgoing:
            outbox = self._outboxes.get(peer) or self._outboxes.setdefault(peer, SendQueue(self._shared))
            outbox.put(frames)
            if outbox.overfull:
                self._service.leave(peer)
                outbox.clear()
                outbox.put(messages.encode(messages.Bye(reason=messages.UNREAD)))

    def _shrink(self) -> None:
        """Drop old records of the clients for which most waits, until all outboxes together are within their limit."""
        if self._shared.n_bytes <= MAX_OUTBOXES_BYTES:
            return
        for outbox in sorted(self._outboxes.values(), key=lambda outbox: -outbox.n_bytes):
            if self._shared.n_bytes > MAX_OUTBOXES_BYTES:
                outbox.shrink(outbox.n_bytes // 2)

    def _send(self) -> None:
        """Send as many queued messages as the peers take."""
        # Published streams first: the end of a stream follows its last records.
        published = [(name, self._outboxes[name]) for name in self._publications.names if name in self._outboxes]
        for peer, outbox in [*published, *self._outboxes.items()]:
            while outbox.queue:
                sent = self._pass_on(peer, outbox.queue[0][0])
                if sent == "full":
                    break
                if sent == "gone":
                    self._service.leave(peer)
                    outbox.clear()
                    break
                outbox.take()
            if peer not in self._service.clients and peer not in self._publications.names:
                outbox.drop_records()
                if not outbox.queue:
                    self._outboxes.pop(peer, None)
        self._publications.admit(lambda peer: peer not in self._outboxes or not self._outboxes[peer].queue)

    def _pass_on(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer, or to all who read a stream."""
        stream, publisher = self._publications.names.get(peer), self._publications.publisher
        if stream is None or publisher is None:
            return self._listener.send(peer, frames)
        return publisher.publish(stream, frames)


# What a run does from time to time on its `io` thread, beside serving its clients.

EVERY_S: Final = 0.5  # what is read from a process or a terminal is half a second late at most


class Chore(Protocol):
    """Something to do from time to time, which takes little time."""

    def tick(self, now_s: float) -> None:
        """Do what there is to do, if it is time."""

    def close(self) -> None:
        """Do it for the last time."""


class Chores:
    """Does the chores of a run. One that fails is given up, and costs the run and the others nothing.

    Attributes:
        failures: The chores that failed.
    """

    def __init__(self, chores: Sequence[Chore], *, run: str) -> None:
        self.failures = Failures(f"Run {run!r}")
        self._chores = list(chores)
        self._due_s = 0.0

    def add(self, chore: Chore) -> None:
        """Do another one, too."""
        self._chores.append(chore)

    def tick(self, now_s: float) -> None:
        """Do all of them, if it is time."""
        if self._chores and now_s >= self._due_s:
            self._due_s = now_s + EVERY_S
            for chore in tuple(self._chores):
                try:
                    chore.tick(now_s)
                except Exception as error:  # noqa: BLE001  what is told about a run must not cost it its clients
                    self._give_up(chore, error)

    def close(self) -> None:
        """Do all of them for the last time."""
        for chore in tuple(self._chores):
            try:
                chore.close()
            except Exception as error:  # noqa: BLE001  as above
                self._give_up(chore, error)
        self._chores.clear()

    def _give_up(self, chore: Chore, error: Exception) -> None:
        self._chores.remove(chore)
        self.failures.add(error, f"{type(chore).__name__} is given up")
