"""One connection of a client to a run: a loop that owns the channel, sends messages and dispatches replies.

Each request has a number, and its reply carries the same. The loop adds arriving records to the buffers of their
streams, renews the lease, and checks that the run is alive: by its lock on this machine, by its silence elsewhere.

A message that causes an internal error ends only the stream or the request that it belongs to. A lost connection stays
lost: `session` makes another one.

The queue of messages, the replies that are waited for, and the check that a run is there, stand at the end.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

from sightglass.core import codec, errors
from sightglass.core.counts import Failures
from sightglass.core.description import StreamInfo, read_struct
from sightglass.core.errors import RefusedError, RunLostError, SightglassError, TransportError, WireError
from sightglass.core.process.current_run import check_wait
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message as message_of
from sightglass.protocol import messages
from sightglass.protocol.transport import Channel, Frames

from .resumable_stream import End, ResumableStream
from .streams.arrivals import arrivals

# The longest time between pings. At least four fit into a run's lease, so that a late one does not end it.
PING_S: Final = 3.0
# A run that grants no lease, or a negative one, must not keep the thread of its client busy.
MIN_PING_S: Final = 0.01
# A full queue has room again after some milliseconds.
RETRY_S: Final = 0.005
# A run on the same network takes the last messages within milliseconds; a stopped one is not waited for.
LEAVE_S: Final = 1.0
# The run's `io` loop replies within milliseconds, unless one long call of native code holds the interpreter.
REPLY_S: Final = 10.0


class Connection:
    """A connection to a run.

    Attributes:
        run: The run's name.
        id: The run's id.
        may_command: Whether the run accepts commands from this client.
        ended: Why the connection ended, or empty while it lasts.
        end: How it ended; "clean" while it lasts.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        run: str,
        client: str,
        alive: Callable[[], bool] | None = None,
        closed: Callable[[], bool] = lambda: False,
        worker: type[Worker] = Worker,
        pace_s: float = 0.0,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """Greet the run.

        Args:
            channel: Leads to the run.
            run: The run's name, until the run itself says it.
            client: The name of this client.
            alive: Returns whether the run's process lives; `None` if that cannot be known, as on another machine.
            closed: Returns whether the run was closed, once its process does not live.
            worker: Runs the rounds.
            pace_s: How long the run may hold records back, to send them together.
            on_change: Called when the run has accepted or refused this client, and when the connection has ended. With
                it, the streams of a lost connection do not end here: the caller decides what becomes of them.

        Raises:
            TransportError: No thread can be started for it.
        """
        self.run = run
        self.id = ""
        self.may_command = False
        self.ended = ""
        self.end: End = "clean"
        self._on_change = on_change
        self._channel = channel
        self._poll_s = max(POLL_S, PATIENT * pace_s)
        self._presence = PresenceCheck(alive, closed, poll_s=self._poll_s)
        self._request_numbers = itertools.count(1)
        self._send_queue = MessageQueue()
        self._pending: dict[int, PendingReply] = {}
        self._opening: dict[int, ResumableStream] = {}
        self._streams: dict[int, list[ResumableStream]] = {}  # by the run's numbers; without one until it is closed
        self._order = threading.Lock()  # a stream is not closed between its request and the answer
        self._welcome = PendingReply()
        self._closing = self._closed = False
        self._ping_s = math.inf  # until the run grants a lease
        self._pinged_s = -math.inf
        self._leave_by_s = math.inf
        self._failures = Failures(f"The connection to run {run!r}")
        self._pid = os.getpid()
        self._worker = worker("client", self.round, reset=self.reset, wait=channel.wait, wake=channel.wake)
        self._worker.warns_if_starved = False
        self.send(messages.encode(messages.Hello(version=messages.VERSION, client=client, pace_s=pace_s)))
        if self._worker.starved:
            channel.close()
            raise TransportError(f"Cannot connect to run {run!r}: the system starts no more threads")

    @property
    def n_failures(self) -> int:
        """How often something failed here by an internal error."""
        return self._failures.n + self._worker.supervised.failures.n

    @property
    def welcomed(self) -> bool:
        """Whether the run has accepted this client."""
        return self._welcome.wait(0) and bool(self.id)

    @property
    def refused(self) -> bool:
        """Whether the run has refused this client."""
        return self._welcome.wait(0) and not (self.id or self.ended)

    def wait_welcome(self, timeout_s: float) -> None:
        """Wait until the run has accepted this client.

        Raises:
            RunLostError: The run does not answer.
            RefusedError: The run refused the client.
        """
        if not self._welcome.wait(timeout_s):
            raise self.no_reply()
        self._welcome.result()

    def request(self, make: Callable[[int], messages.Message], *, timeout_s: float = REPLY_S) -> Any:
        """Send a request, wait for the reply and return it.

        Args:
            make: Returns the message for the number of the request.
            timeout_s: How long to wait.

        Raises:
            RunLostError: The run does not answer, takes no messages, or has ended.
            SightglassError: The run refused the request.
        """
        return self.wait_reply(self.start_request(make), timeout_s=timeout_s)

    def wait_reply(self, pending: PendingReply, *, timeout_s: float = REPLY_S) -> Any:
        """Wait for a reply and return it. Errors as in `request`."""
        if not pending.wait(timeout_s):
            raise self.no_reply()
        return pending.result()

    def no_reply(self) -> RunLostError:
        """Return the error for a run that does not answer."""
        reason = "it may be busy in one long call, stopped, or out of reach"
        return RunLostError(f"Run {self.run!r} does not answer; {reason}")

    def start_request(
        self, make: Callable[[int], messages.Message], *, stream: ResumableStream | None = None
    ) -> PendingReply:
        """Send a request without waiting for the reply.

        Args:
            make: Returns the message for the number of the request.
            stream: The stream that the request opens.

        Raises:
            DeadlockError: The run waits for this thread.
            RunLostError: The run takes no messages: this one was not sent.
        """
        check_wait(self.id, f"A request to run {self.run!r}")
        number = next(self._request_numbers)
        pending = self._pending[number] = PendingReply()
        if self.ended:
            pending.resolve(error=RunLostError(self.ended))
            return pending
        frames = messages.encode(make(number))
        if stream is not None:  # there are as many as streams, all of which a new connection opens at once
            with self._order:
                self._opening[number] = stream
                self.send(frames)
            return pending
        try:
            self.send_bounded(frames)
        except RunLostError:
            del self._pending[number]
            raise
        return pending

    def start_query(self, subject: str, *, last: int = 0) -> PendingReply:
        """Send a question of `messages.Ask`, and do not wait for the reply. None needs an event."""
        return self.start_request(lambda number: messages.Ask(request=number, what=subject, last=last))

    def send(self, frames: Frames) -> None:
        """Send a message of the connection itself; do nothing if the run has ended."""
        if not self.ended:
            self._send_queue.put(frames)
            self._worker.wake()

    def send_bounded(self, frames: Frames, *, timeout_s: float = 0.0) -> None:
        """Send a message, once there is room for it; do nothing if the run has ended.

        Raises:
            RunLostError: There is no room within this time. The message was not sent.
        """
        if self.ended:
            return
        if not self._send_queue.offer(frames, timeout_s=timeout_s):
            waiting = f"{len(self._send_queue):,} wait already: this one was not sent"
            raise RunLostError(
                f"Run {self.run!r} takes no messages, and {waiting}. The run may be stopped, or out of reach"
            )
        self._worker.wake()

    def open_stream(self, stream: ResumableStream) -> PendingReply:
        """Open a stream, or go on with it, without waiting for the reply."""
        return self.start_request(lambda number: stream.request(number, self.id), stream=stream)

    def stream_number(self, stream: ResumableStream) -> int | None:
        """Return the run's number for a stream, or `None` if it is not open here."""
        return stream.number if stream in self._streams.get(stream.number, ()) else None

    def close_stream(self, stream: ResumableStream) -> None:
        """Close a stream; the run learns of it when this client has no other stream of the same query."""
        stream.closed = True
        number = self.stream_number(stream)
        if number is None:
            return
        self._streams[number] = [other for other in self._streams.get(number, ()) if other is not stream]
        self._close_unused()

    def name_readers(self, stream: ResumableStream) -> None:
        """Tell the run for whom this client reads a stream, if it is open."""
        number = self.stream_number(stream)
        if number is not None:
            self.send(messages.encode(messages.Readers(stream=number, names=stream.readers)))

    def _close_unused(self) -> None:
        """Tell the run which streams are read no more, unless it may be about to answer that one of them is opened."""
        with self._order:
            for number in [] if self._opening else [n for n, streams in list(self._streams.items()) if not streams]:
                del self._streams[number]
                self.send(messages.encode(messages.Close(stream=number)))

    def close(self, timeout_s: float = 2.0) -> None:
        """Leave the run; wait for at most this long."""
        if os.getpid() != self._pid:
            return
        self._closing = True
        self._worker.close(timeout_s)

    def round(self, now_s: float) -> float | None:
        """Take messages in and hand messages out; notice that the run has gone."""
        if not (self._closing or self.ended):
            heard = self._take_in()
            self._ping(now_s)
            self._check_presence(now_s, heard=heard)
        self._flush()
        if self._closing:
            self._leave(now_s)
        if self.ended:
            self._close_channel()
            return None
        return RETRY_S if self._send_queue else min(self._poll_s, self._ping_s)

    def reset(self) -> None:
        """End the connection, because two rounds failed."""
        self._end(f"The connection to run {self.run!r} failed: an internal error. Connect again", "lost")
        self._close_channel()

    def _close_channel(self) -> None:
        if not self._closed:
            self._closed = True
            self._channel.close()

    def _take_in(self) -> bool:
        """Dispatch the messages that have arrived; return whether there were any."""
        received = self._channel.receive()
        for frames in received:
            if not self.ended:
                self._receive(frames)
        return bool(received)

    def _ping(self, now_s: float) -> None:
        """Renew the lease."""
        if now_s - self._pinged_s > self._ping_s:
            self._pinged_s = now_s
            if not self._send_queue:  # otherwise what waits renews the lease when it is sent
                self._send_queue.put(messages.encode(messages.Ping()))

    def _check_presence(self, now_s: float, *, heard: bool) -> None:
        match self._presence(now_s, heard=heard):
            case "ended":
                self._run_ended()
            case "died":
                self._end(f"Run {self.run!r} died: its process ended without closing it", "lost")
            case "silent":
                self._end(f"Run {self.run!r} has been silent for {SILENCE_S:.0f} s", "lost")

    def _leave(self, now_s: float) -> None:
        """Say goodbye, and end the connection when all is sent, or cannot be sent in time."""
        if self._leave_by_s == math.inf:
            self._leave_by_s = now_s + LEAVE_S
            self.send(messages.encode(messages.Bye()))
            self._flush()
        if not self._send_queue or now_s >= self._leave_by_s:
            self._end(f"The connection to run {self.run!r} was closed", "clean")

    def _flush(self) -> None:
        while self._send_queue and not self.ended:
            sent = self._channel.send(self._send_queue.first())
            if sent == "gone":
                self._take_in()  # what the run sent before it left: its goodbye comes last
                self._run_ended()
            elif sent == "lost":
                self._take_in()
                self._end(f"The connection to run {self.run!r} was lost", "lost")
            elif sent == "full":
                return
            else:
                self._send_queue.pop()

    def _receive(self, frames: Frames) -> None:
        try:
            message, arrays = messages.decode_from_run(frames)
        except WireError as error:
            self._refuse(error)
            return
        try:
            self._dispatch(message, arrays)
        except WireError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001  a message costs at most its own stream or request
            self._drop(message, error)

    def _refuse(self, error: WireError) -> None:
        self._end(f"Run {self.run!r} sent an invalid message: {error}", "invalid")

    def _drop(self, message: messages.FromRun, error: Exception) -> None:
        """End the stream and the request of a message that caused an internal error."""
        what = f"A message ({type(message).__name__}) cannot be taken in"
        self._failures.add(error, what)
        problem = SightglassError(f"{what}: {message_of(error)}")
        stream, request = getattr(message, "stream", None), getattr(message, "request", None)
        if stream is not None:
            for each in self._streams.pop(stream, ()):
                each.fail(problem)
            self.send(messages.encode(messages.Close(stream=stream)))
        if request is not None:
            self._refused(request, problem)

    def _dispatch(self, message: messages.FromRun, arrays: Frames) -> None:
        match message:
            case messages.Block():
                self._add_records(message, arrays)
            case messages.Welcome(run=run, id=id, may_command=may_command, lease_s=lease_s):
                self.run, self.id, self.may_command = run, id, may_command
                self._ping_s = max(MIN_PING_S, min(PING_S, lease_s / 4))
                self._welcome.resolve()
                self._changed()
            case messages.Reply(request=request, value=value):
                self._resolve(request, codec.decode(value, arrays))
            case messages.Opened(request=request):
                self._opened(message)
            case messages.Moved(stream=stream, to=to):
                if stream in self._streams:
                    self._streams[to] = self._streams.pop(stream)
                    for each in self._streams[to]:
                        each.number = to
            case messages.Refused(request=request, error=error, reason=reason):
                self._refused(request, exception_of(error, reason))
            case messages.Waiting(request=request, note=note, thinned=True):
                for each in self._opened_by(request):
                    each.thinned = note
            case messages.Waiting(request=request, note=note, stuck=stuck):
                if request in self._pending:
                    self._pending[request].told(note, stuck=stuck)
                for each in self._opened_by(request):
                    each.waits_for = note
            case messages.Ended(stream=stream, error=error, reason=reason, counts=counts):
                decoded = read_struct(StreamInfo, codec.decode(counts)) if counts else None
                cause = exception_of(error, reason) if error else None
                for each in self._streams.pop(stream, ()):
                    each.finish(decoded, cause)
            case messages.Bye(reason=reason):
                self._bye(reason)

    def _opened_by(self, request: int) -> list[ResumableStream]:
        return [each for each in itertools.chain(*self._streams.values()) if each.opened_by == request]

    def _opened(self, answer: messages.Opened) -> None:
        stream = self._opening.pop(answer.request, None)
        if stream is None:
            return
        stream.opened(answer, self.id)
        self._streams[answer.stream] = [*self._streams.get(answer.stream, ()), stream]
        if stream.closed:  # while the run did not answer
            self.close_stream(stream)
        elif stream.readers:
            self.name_readers(stream)
        self._close_unused()
        self._resolve(answer.request, answer)

    def _add_records(self, block: messages.Block, arrays: Frames) -> None:
        columns = messages.decode_block(block, arrays)
        for stream in self._streams.get(block.stream, ()):
            stream.add(columns)
        arrivals.notify()

    def _resolve(self, request: int, value: object) -> None:
        pending = self._pending.pop(request, None)
        if pending is not None:
            pending.resolve(value)

    def _refused(self, request: int, error: Exception) -> None:
        stream = self._opening.pop(request, None)
        if stream is not None and stream.run_id:  # it was open before the connection was lost
            stream.fail(error)
        self._close_unused()
        pending = self._pending.pop(request, None)
        if pending is not None:
            pending.resolve(error=error)
        elif not self._welcome.wait(0):
            self._welcome.resolve(error=error)
            self._changed()
        elif request == 0:
            self._end(str(error), "lost")

    def _bye(self, reason: str) -> None:
        cause = {"lease ended": "ended this client's lease: it had been silent for too long",
                 messages.UNREAD: f"disconnected this client: {messages.UNREAD}",
                 messages.RESTARTED: f"disconnected this client: {messages.RESTARTED}"}.get(reason)  # fmt: skip
        if cause is not None:
            self._end(f"Run {self.run!r} {cause}. Connect again", "lost")
        else:
            self._channel.send(messages.encode(messages.Bye()))  # the run waits until its last records are read
            self._end(f"Run {self.run!r} has ended", "clean")

    def _run_ended(self) -> None:
        """End with a run whose goodbye did not arrive, nor the last records of the streams that have not ended."""
        if any(self._streams.values()):
            self._end(f"Run {self.run!r} has ended before all its records arrived", "early")
        else:
            self._end(f"Run {self.run!r} has ended", "clean")

    def _end(self, reason: str, end: End) -> None:
        if self.ended:
            return
        self.end, self.ended = end, reason
        if end != "lost" or self._on_change is None:
            for stream in [*itertools.chain(*self._streams.values()), *self._opening.values()]:
                stream.end(reason, end)
        self._streams.clear()
        self._send_queue.close()
        for pending in [self._welcome, *self._pending.values()]:
            if not pending.wait(0):
                pending.resolve(error=RunLostError(reason))
        self._pending.clear()
        arrivals.notify()
        self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


# The messages that wait to be sent to a run, in bounded memory: a run that is stopped takes none.

# libzmq takes as many before any wait here, and a program that works asks less in the time in which a run answers.
MAX_WAITING: Final = 1_000
# One message of the largest size that a client may send still fits; it may wait alone if it is larger.
MAX_WAITING_BYTES: Final = 64 * 2**20


class MessageQueue:
    """A bounded queue of messages. Any thread may put; one takes."""

    def __init__(self) -> None:
        """Begin empty."""
        self._messages: deque[Frames] = deque()
        self._n_bytes = 0
        self._room = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, frames: Frames) -> None:
        """Append a message of the connection itself, of which there are few: two for each stream, and a ping."""
        with self._room:
            self._append(frames)

    def offer(self, frames: Frames, *, timeout_s: float = 0.0) -> bool:
        """Append a message if there is room, or as soon as there is; return whether it was appended."""
        size = _size(frames)
        with self._room:
            there = self._room.wait_for(lambda: self._closed or self._has_room(size), timeout_s)
            if there:
                self._append(frames)
            return there

    def first(self) -> Frames:
        """Return the oldest message."""
        return self._messages[0]

    def pop(self) -> None:
        """Remove the oldest message: it was sent."""
        with self._room:
            self._n_bytes -= _size(self._messages.popleft())
            self._room.notify()

    def close(self) -> None:
        """Drop all messages: the connection has ended. What is put later is dropped, too."""
        with self._room:
            self._closed, self._n_bytes = True, 0
            self._messages.clear()
            self._room.notify_all()

    def _has_room(self, size: int) -> bool:
        fits = len(self._messages) < MAX_WAITING and self._n_bytes + size <= MAX_WAITING_BYTES
        return fits or not self._messages

    def _append(self, frames: Frames) -> None:
        if not self._closed:
            self._messages.append(frames)
            self._n_bytes += _size(frames)


def _size(frames: Frames) -> int:
    return sum(map(len, frames))


# A request that waits for its reply, and the exceptions that a run replies with.


class PendingReply:
    """A request that waits for its reply.

    Attributes:
        note: The run's last remark about the request, such as the event it waits for.
    """

    def __init__(self) -> None:
        self.note = ""
        self._done = False
        self._news, self._noted = threading.Event(), threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def resolve(self, value: object = None, error: Exception | None = None) -> None:
        """Set the reply, or the error that the run replied with."""
        self._value, self._error, self._done = value, error, True
        self._news.set()
        self._noted.set()

    def told(self, note: str, *, stuck: bool) -> None:
        """Take in a remark; if no reply is in sight, nobody waits for it any longer."""
        self.note = note
        self._noted.set()
        if stuck:
            self._news.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the reply, as long as it is in sight; return whether it arrived."""
        self._news.wait(timeout_s)
        return self._done

    def wait_note(self, timeout_s: float) -> bool:
        """Wait for the reply or a remark; return whether the reply arrived."""
        self._noted.wait(timeout_s)
        return self._done

    def result(self) -> Any:
        """Return the reply, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._value


def exception_of(name: str, reason: str) -> Exception:
    """Return the exception that the run names, or a `RefusedError` for a name that this version does not have."""
    of_query = name in {"UnknownNameError", "KeyError"}  # in a query: an error of it, for those who sent it
    cls = getattr(errors, "QueryError" if of_query else name, RefusedError)
    no_message = (errors.MissingExtraError, errors.FigureErrors)  # they take something else
    if not (isinstance(cls, type) and issubclass(cls, SightglassError)) or cls in no_message:
        cls = RefusedError
    return cls(reason)


# Whether a run is still there: by its lock on this machine, by its silence elsewhere.

# How late the death of the run's process may be noticed, and how long what it sent before may take to arrive.
POLL_S: Final = 0.5
# A client that takes records so much later also takes a death later, and looks as seldom: one may watch 50 runs.
PATIENT: Final = 2.0
# A run on another machine counts as lost after five pings without a word: a congested network recovers within that.
SILENCE_S: Final = 15.0
# Much longer than a poll: a client that was held up for so many first reads what the run sent meanwhile.
LATE_POLLS: Final = 4

Presence = Literal["there", "ended", "died", "silent"]


class PresenceCheck:
    """Decides whether a run has gone, from the times at which it was heard."""

    def __init__(self, alive: Callable[[], bool] | None, closed: Callable[[], bool], *, poll_s: float = POLL_S) -> None:
        """Begin before the first word of the run.

        Args:
            alive: Returns whether the run's process lives; `None` if that cannot be known, as on another machine.
            closed: Returns whether the run was closed, once its process does not live.
            poll_s: How late a death may be noticed.
        """
        self._poll_s = poll_s
        self._alive = alive
        self._closed = closed
        self._asked_s = self._checked_s = self._heard_s = -math.inf
        self._dead_s = math.inf

    def __call__(self, now_s: float, *, heard: bool) -> Presence:
        """Return whether the run is there; `heard` is whether it sent anything since the last call."""
        if heard or now_s - self._asked_s > LATE_POLLS * self._poll_s:
            self._heard_s, self._dead_s = now_s, math.inf
        self._asked_s = now_s
        if self._alive is None:
            return "silent" if now_s - self._heard_s > SILENCE_S else "there"
        if now_s - self._dead_s >= self._poll_s:  # all that it sent has been read
            return "ended" if self._closed() else "died"
        if self._dead_s == math.inf and not heard and now_s - self._checked_s >= self._poll_s:
            self._checked_s = now_s
            if not self._alive():
                self._dead_s = now_s
        return "there"
