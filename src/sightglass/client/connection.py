"""The connection of a client to one run: a thread that owns the channel, sends what is asked and hands out what comes.

Requests carry a number, and wait for the reply with the same. Streams are stores that this thread fills. The thread
renews the lease, and watches whether the run still lives: by its lock where it runs on this machine, by its silence
elsewhere.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sightglass.core import codec, errors
from sightglass.core.errors import RefusedError, RunLostError, SightglassError, WireError
from sightglass.core.threads import Background
from sightglass.protocol import messages
from sightglass.protocol.transport import Channel, Frames
from sightglass.training.io_thread import UNREAD

from .record_buffer import RecordBuffer, arrivals

PING_S: Final = 3.0
POLL_S: Final = 0.5
SILENCE_S: Final = 15.0
ANSWER_S: Final = 10.0


class PendingReply:
    """A request that waits for its reply.

    Attributes:
        note: What the run said meanwhile, such as what it waits for.
    """

    def __init__(self) -> None:
        self.note = ""
        self._done = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def resolve(self, value: Any = None, error: Exception | None = None) -> None:
        """Hand the reply over."""
        self._value, self._error = value, error
        self._done.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the reply; tells whether it came."""
        return self._done.wait(timeout_s)

    def result(self) -> Any:
        """Return the reply, or raise why there is none."""
        if self._error is not None:
            raise self._error
        return self._value


class Connection:
    """A connection to a run.

    Attributes:
        run: The run's name.
        id: The run's id.
        may_act: Whether the run lets this client act.
        ended: Why the connection ended, or empty while it lasts.
    """

    def __init__(self, channel: Channel, *, run: str, client: str, alive: Callable[[], bool] | None = None) -> None:
        self.run = run
        self.id = ""
        self.may_act = False
        self.ended = ""
        self._channel = channel
        self._client = client
        self._alive = alive
        self._numbers = itertools.count(1)
        self._outbox: deque[Frames] = deque()
        self._pending: dict[int, PendingReply] = {}
        self._opening: dict[int, RecordBuffer] = {}
        self._stores: dict[int, list[RecordBuffer]] = {}
        self._welcome = PendingReply()
        self._closing = False
        self._ping_s = PING_S
        self._pid = os.getpid()
        self.send(messages.encode(messages.Hello(version=messages.VERSION, client=client)))
        self._thread = Background("client", self._run)

    def wait_welcome(self, timeout_s: float) -> None:
        """Wait until the run has answered.

        Raises:
            RunLostError: It did not.
            RefusedError: It does not want this client.
        """
        if not self._welcome.wait(timeout_s):
            raise self.silent()
        self._welcome.result()

    def request(self, make: Callable[[int], messages.Message], *, timeout_s: float = ANSWER_S) -> Any:
        """Send a request and return the reply.

        Args:
            make: Makes the message of the request's number.
            timeout_s: How long to wait.

        Raises:
            RunLostError: The run does not answer, or has ended.
            SightglassError: The run refused.
        """
        return self.result(self.begin(make), timeout_s=timeout_s)

    def result(self, pending: PendingReply, *, timeout_s: float = ANSWER_S) -> Any:
        """Wait for a reply and return it. Errors as in `request`."""
        if not pending.wait(timeout_s):
            raise self.silent()
        return pending.result()

    def silent(self) -> RunLostError:
        """Return the error that says that the run does not answer."""
        reason = "it may be busy in one long call, stopped, or out of reach"
        return RunLostError(f"Run {self.run!r} does not answer; {reason}")

    def begin(self, make: Callable[[int], messages.Message], store: RecordBuffer | None = None) -> PendingReply:
        """Send a request without waiting; a store, if given, takes the records of the stream that it opens."""
        number = next(self._numbers)
        pending = self._pending[number] = PendingReply()
        if store is not None:
            self._opening[number] = store
        if self.ended:
            self._pending.pop(number).resolve(error=RunLostError(self.ended))
            return pending
        self.send(messages.encode(make(number)))
        return pending

    def ask(self, what: str) -> PendingReply:
        """Ask something that needs no event, without waiting."""
        return self.begin(lambda number: messages.Ask(request=number, what=what))

    def send(self, frames: Frames) -> None:
        """Send a message that needs no reply; nothing is sent to a run that has ended."""
        if not self.ended:
            self._outbox.append(frames)
            self._channel.wake()

    def number(self, store: RecordBuffer) -> int | None:
        """Return the number that the run knows a stream by, `None` if it has ended."""
        return next((number for number, stores in list(self._stores.items()) if store in stores), None)

    def forget(self, store: RecordBuffer) -> None:
        """Close a stream; the run is told when no other of this client asks the same."""
        stream = self.number(store)
        if stream is None:
            return
        self._stores[stream] = [other for other in self._stores[stream] if other is not store]
        if not self._stores[stream]:
            del self._stores[stream]
            self.send(messages.encode(messages.Close(stream=stream)))

    def close(self, timeout_s: float = 2.0) -> None:
        """Leave the run; waits for at most this long."""
        if os.getpid() != self._pid:
            return
        self._closing = True
        self._channel.wake()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        heard_s = pinged_s = time.monotonic()
        dead = False
        while not self._closing and not self.ended:
            self._flush()
            received = self._channel.receive(min(POLL_S, self._ping_s))
            for frames in received:
                self._take(frames)
            now_s = time.monotonic()
            if now_s - pinged_s > self._ping_s:
                pinged_s = now_s
                self.send(messages.encode(messages.Ping()))
            if received:
                heard_s = now_s
            elif dead:  # since before the last look at the channel: what it sent has been read
                self._end(f"Run {self.run!r} died without a goodbye", lost=True)
            elif self._alive is not None:
                dead = not self._alive()
            elif now_s - heard_s > SILENCE_S:
                self._end(f"Run {self.run!r} has been silent for {SILENCE_S:.0f} s", lost=True)
        if self._closing and not self.ended:
            self.send(messages.encode(messages.Bye()))
            self._flush()
            self._end(f"The connection to run {self.run!r} was closed", lost=False)
        self._channel.close()

    def _flush(self) -> None:
        while self._outbox:
            sent = self._channel.send(self._outbox[0])
            if sent == "gone":
                self._end(f"Run {self.run!r} has ended", lost=False)
                return
            if sent == "full":
                return
            self._outbox.popleft()

    def _take(self, frames: Frames) -> None:
        try:
            message, buffers = messages.decode_from_agent(frames)
            self._dispatch(message, buffers)
        except WireError as error:
            self._end(f"Run {self.run!r} sent what is no message: {error}", lost=True)

    def _dispatch(self, message: messages.FromAgent, buffers: Frames) -> None:
        match message:
            case messages.Block():
                self._records(message, buffers)
            case messages.Welcome(run=run, id=id, may_act=may_act, lease_s=lease_s):
                self.run, self.id, self.may_act = run, id, may_act
                self._ping_s = min(PING_S, lease_s / 4)
                self._welcome.resolve()
            case messages.Reply(request=request, value=value):
                self._resolve(request, codec.decode(value, buffers))
            case messages.Opened(request=request, stream=stream, tag=tag):
                store = self._opening.pop(request)
                store.tag = tag
                self._stores[stream] = [*self._stores.get(stream, ()), store]
                self._resolve(request, message)
            case messages.Moved(stream=stream, to=to):
                if stream in self._stores:
                    self._stores[to] = self._stores.pop(stream)
            case messages.Refused(request=request, error=error, reason=reason):
                self._refused(request, _exception(error, reason))
            case messages.Waiting(request=request, note=note):
                if request in self._pending:
                    self._pending[request].note = note
            case messages.Ended(stream=stream, error=error, reason=reason, counts=counts):
                for store in self._stores.pop(stream, ()):
                    store.counts = codec.decode(counts) if counts else store.counts
                    store.end(_exception(error, reason) if error else None)
            case messages.Bye(reason=reason):
                self._bye(reason)

    def _records(self, block: messages.Block, buffers: Frames) -> None:
        stores = self._stores.get(block.stream, ())
        columns = messages.decode_block(block, buffers)
        for store in stores:
            store.add(columns)
        arrivals.tell()

    def _resolve(self, request: int, value: Any) -> None:
        pending = self._pending.pop(request, None)
        if pending is not None:
            pending.resolve(value)

    def _refused(self, request: int, error: Exception) -> None:
        self._opening.pop(request, None)
        pending = self._pending.pop(request, None)
        if pending is not None:
            pending.resolve(error=error)
        elif not self._welcome.wait(0):
            self._welcome.resolve(error=error)
        elif request == 0:
            self._end(str(error), lost=True)

    def _bye(self, reason: str) -> None:
        told = {"lease ended": "ended this client's lease: it had been silent for too long",
                UNREAD: f"sent this client away: {UNREAD}"}.get(reason)  # fmt: skip
        if told is not None:
            self._end(f"Run {self.run!r} {told}. Connect again", lost=True)
        else:
            self._end(f"Run {self.run!r} has ended", lost=False)

    def _end(self, reason: str, *, lost: bool) -> None:
        self.ended = reason
        for store in [*itertools.chain(*self._stores.values()), *self._opening.values()]:
            store.end(RunLostError(reason) if lost else None)
        self._stores.clear()
        for pending in [self._welcome, *self._pending.values()]:
            if not pending.wait(0):
                pending.resolve(error=RunLostError(reason))
        self._pending.clear()
        arrivals.tell()


def _exception(name: str, reason: str) -> Exception:
    """Make the exception that the run names, if it is one of ours."""
    kind = getattr(errors, name, RefusedError)
    special = (errors.UnknownNameError, errors.MissingExtraError)  # made of other things than a message
    if not (isinstance(kind, type) and issubclass(kind, SightglassError)) or kind in special:
        kind = errors.QueryError if "Unknown" in reason else RefusedError
    return kind(reason)
