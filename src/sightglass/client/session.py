"""A client's session with a run: one connection after another, and the streams that outlive each of them.

When a connection is lost, `reconnect` makes another one. Each stream goes on with the next number that its buffer
expects; what the run no longer has is counted as lost. A run that was restarted begins at 0 again: the stream goes on
behind a mark.

Requests whose connection is lost are not repeated: a command is applied at most once. Requests made while there is no
connection wait for the next one.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sightglass.core.columns import Columns
from sightglass.core.errors import RunLostError
from sightglass.core.process.current_run import check_wait
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.protocol import messages

from .connection import REPLY_S, Connection, PendingReply
from .live_runs import RunRoute, Target
from .reconnect import Reconnector
from .resumable_stream import End, ResumableStream
from .streams.arrivals import arrivals


class Session:
    """A client's session with a run.

    Attributes:
        run: The run's name.
        id: The run's id; another one after a restart.
        may_command: Whether the run accepts commands from this client.
        connection: The last connection.
        n_reconnects: How often it has connected again.
    """

    def __init__(
        self,
        target: Target,
        route: RunRoute,
        *,
        client: str = "",
        resume: bool = True,
        pace_s: float = 0.0,
        worker: type[Worker] = Worker,
    ) -> None:
        """Connect.

        Args:
            target: Finds the run again.
            route: The way to the run.
            client: The name of this client, by default `client_name()`.
            resume: Whether to connect again; otherwise the streams of a lost connection fail.
            pace_s: How long the run may hold records back, to send them together.
            worker: Runs the rounds of all connections.

        Raises:
            TransportError: No channel can be opened, or no thread can be started.
        """
        self.run, self.id, self.may_command = route.run, route.id, False
        self.n_reconnects = 0
        self._client = client or client_name()
        self._resumes = resume
        self._pace_s = pace_s
        self._worker = worker
        self._ended = ""
        self._streams: list[ResumableStream] = []
        self._offers: list[Offer] = []
        self._condition = threading.Condition()
        self._pid = os.getpid()
        self._reconnector = Reconnector(target, route, self, worker=worker)
        self.connection: Connection = self.connect(route)
        self._changed()  # it may have ended before it was known here

    @property
    def ended(self) -> str:
        """Why the session ended, or empty while it lasts."""
        return self._ended or ("" if self._resumes and self.connection.end == "lost" else self.connection.ended)

    def why_lost(self) -> str:
        """Return why there is no connection; empty if there is one, or if it is not made again."""
        if self._ended or not self._resumes or self.connection.end != "lost":
            return ""
        return self.connection.ended.removesuffix(". Connect again")

    @property
    def route(self) -> RunRoute:
        """The way that led to the run."""
        return self._reconnector.route

    @property
    def died(self) -> bool:
        """Whether the process of the run died, and no run has replaced it so far."""
        return bool(self.why_lost()) and self._reconnector.died

    @property
    def n_failures(self) -> int:
        """How often something failed here by an internal error."""
        return self.connection.n_failures + self._reconnector.supervised.failures.n

    # What clients call, from any thread

    def wait_welcome(self, timeout_s: float) -> None:
        """Wait until the run has accepted this client. Errors as in `Connection.wait_welcome`."""
        self.connection.wait_welcome(timeout_s)
        self._take_over(self.connection)

    def check_wait(self, *, for_event: bool = False) -> None:
        """Refuse a request that the run cannot answer, because it waits for this thread."""
        check_wait(self.id, f"A request to run {self.run!r}", for_event=for_event)

    def current(self, timeout_s: float = REPLY_S) -> Connection:
        """Return the connection; while it is being made again, wait for it.

        Raises:
            RunLostError: It is not made again in time, or the run died.
            DeadlockError: The run waits for this thread.
        """
        self.check_wait()
        if self.why_lost():
            with self._condition:
                self._condition.wait_for(lambda: self._reconnector.died or not self.why_lost(), timeout_s)
            if lost := self.why_lost():
                raise RunLostError(lost if self._reconnector.died else f"{lost}. Connecting again")
        return self.connection

    def request(self, make: Callable[[int], messages.Message]) -> Any:
        """Send a request, wait for the reply and return it. Errors as in `Connection.request`."""
        return self.current().request(make)

    def start_stream(self, stream: ResumableStream, *, timeout_s: float = REPLY_S) -> PendingReply:
        """Open a stream without waiting for the reply. Errors as in `current`."""
        connection = self.current(timeout_s)
        with self._condition:
            self._streams.append(stream)
        return connection.open_stream(stream)

    def open(self, stream: ResumableStream) -> messages.Opened:
        """Open a stream, and wait for the reply. Errors as in `Connection.request`."""
        try:
            opened: messages.Opened = self.connection.wait_reply(self.start_stream(stream))
        except BaseException:  # after an interrupt, too, the run must not go on evaluating for nobody
            self.close_stream(stream)
            raise
        return opened

    def close_stream(self, stream: ResumableStream) -> None:
        """Close a stream."""
        stream.closed = True
        with self._condition:
            self._streams = [other for other in self._streams if other is not stream]
        self.connection.close_stream(stream)

    def publish(self, event: str) -> Offer:
        """Offer a stream as an event of the run, through reconnections. Errors as in `Connection.request`."""
        offer = Offer(self, event, self.current())
        with self._condition:
            self._offers.append(offer)
        return offer

    @property
    def pace_s(self) -> float:
        """How long the run may hold records back, to send them together."""
        return self._pace_s

    @pace_s.setter
    def pace_s(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self.connection.send(messages.encode(messages.Ping(pace_s=pace_s)))

    def close(self, timeout_s: float = 2.0) -> None:
        """Leave the run; wait for at most this long."""
        if os.getpid() != self._pid:
            return
        self.connection.close(timeout_s)
        self.finish(f"The connection to run {self.run!r} was closed", "clean")
        self._reconnector.close(timeout_s)

    # What the reconnector calls

    def connect(self, route: RunRoute) -> Connection:
        """Make a connection."""
        return Connection(
            route.connect(), run=route.run, client=self._client, alive=route.alive, closed=route.closed,
            pace_s=self._pace_s, worker=self._worker, on_change=self._changed,
        )  # fmt: skip

    def resume(self, connection: Connection) -> None:
        """Go on with a new connection: open all streams again, each from the record that it expects."""
        with self._condition:
            self.connection = connection
            self.n_reconnects += 1
            self._take_over(connection)
            for offer in self._offers:
                offer.renew(connection)
            connection.send(messages.encode(messages.Ping(pace_s=self._pace_s)))  # it may have changed meanwhile
            for stream in self._streams:
                if stream.run_id and not stream.newest.ended:
                    connection.open_stream(stream)
            self._condition.notify_all()
        arrivals.notify()

    def finish(self, reason: str, end: End) -> None:
        """End the session, and all streams."""
        with self._condition:
            self._ended = self._ended or reason
            streams, self._streams = self._streams, []
            self._condition.notify_all()
        for stream in streams:
            stream.end(reason, end)
        arrivals.notify()

    def _take_over(self, connection: Connection) -> None:
        self.run, self.id, self.may_command = connection.run, connection.id, connection.may_command

    def _changed(self) -> None:
        """React to a connection that was accepted or refused, or has ended; called on its thread."""
        connection = getattr(self, "connection", None)  # not yet while the first one is made
        if connection is None or self._ended or not connection.ended:
            return
        arrivals.notify()
        if self.why_lost() and self._reconnector.wake():
            return
        self.finish(connection.ended, connection.end)


class Offer:
    """A stream that a client publishes as an event of the run."""

    def __init__(self, session: Session, event: str, connection: Connection) -> None:
        """Offer it, and wait for the reply. Errors as in `Connection.request`."""
        self._session = session
        self._event = event
        self._number, self._run_id = 0, ""
        self.renew(connection)
        self._accepted()

    def renew(self, connection: Connection) -> None:
        """Offer it on another connection, as the same stream unless the run was restarted."""
        known = self._number if connection.id == self._run_id else 0
        pending = connection.start_request(
            lambda number: messages.Publish(request=number, event=self._event, stream=known)
        )
        self._offered = (connection, pending)  # at once: `put` runs on another thread

    def put(self, columns: Columns) -> None:
        """Send records, as soon as there is a connection and room. Errors as in `Connection.request`."""
        self._session.current()
        connection = self._accepted()
        connection.send_bounded(messages.encode_block(self._number, columns), timeout_s=REPLY_S)

    def _accepted(self) -> Connection:
        """Wait until the run has accepted the offer, and return the connection."""
        connection, pending = self._offered
        self._number, self._run_id = connection.wait_reply(pending), connection.id
        return connection


def client_name() -> str:
    """Return the names of the user and the machine, and this program and its process."""
    script = Path(sys.argv[0] if sys.argv else "")
    name = script.parent.name if script.name == "__main__.py" else script.stem  # `python -m package`
    program = "python" if name in ("", "-c", "-m") else name
    return f"{_user()}@{socket.gethostname()} {program}[{os.getpid()}]"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
