"""The client service: a state machine between clients and the run. Messages go in and come out; it uses no socket.

Rule 1: Whatever a client sends, the run continues. A malformed message is refused once, and its sender ignored.
Rule 2: Equal queries share one subscription. A client that closes a group by itself gets one of its own.
Rule 3: Every client holds a lease, which any message renews. When it ends, its streams close, and its pause ends. What
the run holds of them is parked: a client that comes back goes on with the next number.
Rule 4: Commands wait for the training thread. What cannot succeed is refused at once.

The `io` loop drives it (`io_loop`): `receive` for each message, then `flush` and `tick`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from sightglass.core.columns import Columns
from sightglass.core.counts import Failures
from sightglass.core.description import Description, StreamInfo
from sightglass.core.errors import SightglassError, WireError, unknown
from sightglass.core.process.clock import WorkClock
from sightglass.core.process.stacks import thread_stacks
from sightglass.core.program_values.guarded import message as message_of
from sightglass.protocol import messages
from sightglass.protocol.transport import Delivery, Frames
from sightglass.query.parser import parse
from sightglass.query.query import Query
from sightglass.storage.format.block import Key
from sightglass.training.controls import check_functions
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.options import Limits
from sightglass.training.recorder import Recorder
from sightglass.training.serving import describe
from sightglass.training.serving.client_commands import ClientCommands
from sightglass.training.serving.client_subscriptions import ClientSubscriptions, RecordedSubscriptions
from sightglass.training.serving.clients import (
    MAX_CLIENTS,
    Client,
    Clients,
    Outbox,
    Outgoing,
    PublishedStreams,
    allowed_pace_s,
)

MAX_IGNORED: Final = 1_000  # peers are named by the transport, so a flood of new ones must not fill memory
SURVEY_S: Final = 10.0  # how long a description waits for a compiled step to be traced, which may take seconds


class ClientService:
    """Answers the clients of one run.

    Attributes:
        about: What a description of the run shows besides its events, such as the config.
        failures: The messages, streams and questions that failed here by an internal error.
        publications: The streams that are published.
        background: The failures of what else works in the background, which a description shows, too.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        run: str,
        id: str,
        clock: WorkClock,
        functions: Mapping[str, Callable[..., Any]],
        about: Mapping[str, Any] | None = None,
        refuse_commands: Callable[[], str] = str,
        recorder: Recorder | None = None,
        limits: Limits | None = None,
        watch: Callable[[Key, Columns], None] | None = None,
    ) -> None:
        """Start without clients.

        Args:
            telemetry: The inside of the run.
            run: The run's name.
            id: The run's id.
            clock: The time.
            functions: The functions that the run registered for queries, by name.
            about: What else a description shows, such as the config.
            refuse_commands: Returns why commands are refused in this process; empty if they are not.
            recorder: Records queries; `None` if this run does not record.
            limits: How much subscriptions retain for late clients.
            watch: Called with the records of streams, on the `io` thread.
        """
        self.about: dict[str, Any] = {"name": run, "id": id, **(about or {})}
        self.failures = Failures(f"Run {run!r}")
        self.background: list[Failures] = []
        self._telemetry = telemetry
        self._clock = clock
        self._functions = functions
        self._ignored: set[bytes] = set()
        self._inquiries: list[tuple[bytes, messages.Ask, float]] = []
        self._pulse = describe.Pulse(clock.monotonic())
        self._outbox = outbox = Outbox()
        self.publications = outbox.publications
        self.clients = clients = Clients(clock)
        self._recorded = recorded = RecordedSubscriptions(telemetry, recorder, run=run)
        self._published = PublishedStreams(telemetry, outbox=outbox, run=run)
        self._commands = ClientCommands(
            telemetry.commands,
            clients=clients,
            outbox=outbox,
            recorded=recorded,
            run=run,
            refusal=refuse_commands,
            clock=clock,
        )
        self._subscriptions = ClientSubscriptions(
            telemetry, clients=clients, outbox=outbox, recorded=recorded, functions=functions, clock=clock,
            limits=limits, watch=watch,
        )  # fmt: skip

    # Called by the io thread

    def receive(self, delivery: Delivery) -> Outgoing:
        """Take in a message; return the messages to send."""
        peer = delivery.peer
        if peer in self._ignored:
            return []
        request = 0
        try:
            message, buffers = messages.decode_from_client(delivery.frames)
            request = getattr(message, "request", 0)
            if isinstance(message, messages.Hello):
                self._hello(peer, message, delivery)
            elif peer in self.clients:
                self._dispatch(peer, self.clients.renew(peer), message, buffers)
            else:
                reason = "Expected a hello first; the lease may have ended"
                self._outbox.refuse(peer, 0, "RefusedError", reason)
        except WireError as error:
            self._outbox.refuse(peer, 0, error)
            if len(self._ignored) < MAX_IGNORED:
                self._ignored.add(peer)
            self.leave(peer)
        except Exception as error:  # noqa: BLE001  a message costs at most its sender
            self._failed(peer, request, error)
        return self._outbox.take()

    def flush(self) -> Outgoing:
        """Return the results of commands, the records since the last flush, and the ends of streams that failed."""
        self._commands.flush()
        for subscription in list(self._telemetry.subscriptions.active.values()):
            try:
                self._flush(subscription)
            except Exception as error:  # noqa: BLE001  a stream costs at most itself
                self.failures.add(error, f"The stream of {subscription.query} is closed")
                self._subscriptions.fail(subscription, error)
        self._subscriptions.bound_backlogs()
        self._answer_inquiries()
        return self._outbox.take()

    def tick(self) -> Outgoing:
        """End the leases that ran out, and tell whose commands wait in vain and what streams wait for."""
        for peer in self.clients.expired():
            self._outbox.send(peer, messages.Bye(reason="lease ended"))
            self.leave(peer)
        self._commands.tick()
        self._look()
        self._subscriptions.renew_notes()
        self._answer_inquiries()
        return self._outbox.take()

    def reset(self) -> None:
        """Forget all clients and what they have asked for; what is recorded is still recorded."""
        self._outbox.take()
        self._inquiries.clear()
        for peer in self.clients.peers:
            try:
                self.leave(peer)
            except Exception as error:  # noqa: BLE001  the next client is forgotten all the same
                self.failures.add(error, "A client has left")

    def leave(self, peer: bytes, *, lost: bool = True) -> None:
        """Forget a client: its streams close, and its pause ends.

        Args:
            peer: The client.
            lost: Whether it left without a goodbye, and may come back for its streams.
        """
        client = self.clients.pop(peer)
        if client is None:
            return
        for stream in client.streams:
            self._subscriptions.close(peer, stream, lost=lost)
        self.publications.forget(peer)
        self._commands.release(peer)

    def end(self, reason: str) -> Outgoing:
        """Tell all clients that the run ends; each says goodbye when it has read that."""
        for peer in self.clients.peers:
            for stream in self.clients[peer].streams:
                self._subscriptions.finish(peer, stream)
            self._outbox.send(peer, messages.Bye(reason=reason))
        return self._outbox.take()

    def after_end(self, delivery: Delivery) -> None:
        """Take in a goodbye; nothing else is answered any more."""
        with contextlib.suppress(WireError):
            if isinstance(messages.decode_from_client(delivery.frames)[0], messages.Bye):
                self.leave(delivery.peer, lost=False)

    # Called by the run

    def record(self, query: Query, *, may_compile: bool = True) -> Subscription:
        """Record a query from now on.

        Args:
            query: The query.
            may_compile: Whether the program or a controller accepts that compiled programs are compiled again for it.

        Raises:
            QueryError: The query calls a function that does not exist, or costs more than the run's budget.
            RefusedError: This run does not record.
        """
        subscription = self._subscriptions.find(query)
        check_functions(query, self._functions, may_command=True)
        self._recorded.check(query, subscription)
        subscription = subscription or self._subscriptions.start(query, may_compile=may_compile)
        with self._telemetry.lock.turn():
            if subscription not in self._recorded:
                self._subscriptions.flush(subscription)  # rows from before: they are not recorded
            self._recorded.add(subscription)
        return subscription

    def describe(self) -> Description:
        """Describe the run; the caller holds the lock."""
        return describe.run(
            self._telemetry, self._functions, about=self.about, clock=self._clock,
            streams=self._describe_streams(), n_clients=len(self.clients),
            failures={each.where: f"{each.n}; the last: {each.last}" for each in self._failures() if each.n},
            pulse=self._pulse,
        )  # fmt: skip

    def interval_s(self, event: str) -> float | None:
        """Return the usual seconds between two events of a name; `None` if they are not known."""
        return self._pulse.interval_s(event)

    def _look(self) -> None:
        commands = self._telemetry.commands
        self._pulse.look(
            [*self._telemetry.subscriptions.sources.values()], self._clock.monotonic(),
            paused=commands.queue.paused_by is not None, ran_s=self._clock.ran(commands.threads.native_id),
        )  # fmt: skip

    def _flush(self, subscription: Subscription) -> None:
        if subscription.rows:
            self._subscriptions.flush(subscription)
        if self._recorded.lapsed(subscription):
            cost = self._telemetry.budget.cost(subscription)
            self._unrecord(subscription, f"it costs {cost}, and recorded queries are never thinned")
        if subscription.suspended and subscription.last_error is not None:
            self._subscriptions.fail(subscription, subscription.last_error)

    # Messages

    def _failed(self, peer: bytes, request: int, error: Exception) -> None:
        """Refuse a request that caused an internal error; disconnect a client whose message was not a request."""
        client = self.clients[peer].name if peer in self.clients else "a client"
        what = "A request" if request else "The connection"
        self.failures.add(error, f"{what} of {client!r} failed")
        self._outbox.refuse(peer, request, "RefusedError", f"An internal error of the run: {message_of(error)}")
        if not request:
            self.leave(peer)

    def _hello(self, peer: bytes, message: messages.Hello, delivery: Delivery) -> None:
        if message.version != messages.VERSION:
            versions = f"Expected protocol version {messages.VERSION}, got {message.version}"
            reason = f"{versions}: use the same version of sightglass on both sides"
            self._outbox.refuse(peer, 0, "RefusedError", reason)
            return
        if len(self.clients) >= MAX_CLIENTS and peer not in self.clients:
            self._outbox.refuse(peer, 0, "RefusedError", f"Expected at most {MAX_CLIENTS} clients, got more")
            return
        self.leave(peer)
        may_command = delivery.may_command
        self.clients.add(peer, message.client, may_command=may_command, user=delivery.user, pace_s=message.pace_s)
        self._telemetry.steps.survey()
        welcome = messages.Welcome(
            version=messages.VERSION, run=self.about["name"], id=self.about["id"],
            may_command=may_command and self._commands.allowed, lease_s=self.clients.lease_s,
        )  # fmt: skip
        self._outbox.send(peer, welcome)

    def _dispatch(self, peer: bytes, client: Client, message: messages.FromClient, buffers: Frames) -> None:
        match message:
            case messages.Ping(pace_s=pace_s):
                client.pace_s = client.pace_s if pace_s is None else allowed_pace_s(pace_s)
                self._outbox.send(peer, messages.Ping())
            case messages.Bye():
                self.leave(peer, lost=False)
            case messages.Ask():
                self._inquiries.append((peer, message, self._clock.monotonic() + SURVEY_S))
                self._answer_inquiries()
            case messages.Open():
                self._subscriptions.open(peer, client, message)
            case messages.Close(stream=stream):
                client.streams.discard(stream)
                self._subscriptions.close(peer, stream)
            case messages.Readers(stream=stream, names=names):
                self._subscriptions.name_readers(client, stream, names)
            case messages.EndGroup(request=request, stream=stream):
                self._subscriptions.end_group(peer, client, request, stream)
            case messages.RunCommand():
                self._commands.submit(peer, client, message)
            case messages.Publish():
                self._published.begin(peer, client, message)
            case messages.RecordQuery():
                self._record(peer, client, message)
            case messages.Block():
                self._published.take(peer, client, message, buffers)

    def _record(self, peer: bytes, client: Client, message: messages.RecordQuery) -> None:
        request = message.request
        if not client.may_command:
            reason = "Expected a controller's key to record; a viewer's key is read-only"
            self._outbox.refuse(peer, request, "RefusedError", reason)
            return
        try:
            query = parse(message.query, functions=self._functions)
            if message.record:
                self._subscriptions.check_price(query, client, confirm=message.confirm)
                self.record(query, may_compile=message.confirm)
            else:
                self._unrecord(self._recorded.find(query, self._subscriptions.find(query)))
        except (SightglassError, LookupError) as error:
            self._outbox.refuse(peer, request, error)
            return
        note = self._subscriptions.note(query)
        self._outbox.reply(peer, request, {"tag": query.tag, "query": query.key, "note": note})

    def _unrecord(self, subscription: Subscription, problem: str = "") -> None:
        with self._telemetry.lock.turn():
            self._subscriptions.flush(subscription)
            self._recorded.discard(subscription, problem)
        self._subscriptions.release(subscription)

    def _answer_inquiries(self) -> None:
        """Answer questions; descriptions wait until it is known what the compiled steps offer."""
        if not self._inquiries:
            return
        ready, now_s = None, self._clock.monotonic()
        waiting, self._inquiries = self._inquiries, []
        for peer, message, until_s in waiting:
            if message.what == "describe" and until_s >= now_s:
                ready = self._telemetry.steps.survey() if ready is None else ready
                if not ready:
                    self._inquiries.append((peer, message, until_s))
                    continue
            if peer in self.clients:
                try:
                    self._answer(peer, message)
                except Exception as error:  # noqa: BLE001  a question costs at most its own answer
                    self.failures.add(error, f"The question {message.what!r} has no answer")
                    self._outbox.refuse(peer, message.request, "RefusedError", message_of(error))

    def _answer(self, peer: bytes, message: messages.Ask) -> None:
        if message.what == "stacks":  # without the lock of the events, which a thread that is stuck may hold
            self._answer_stacks(peer, message.request)
            return
        answers: dict[str, Callable[[], Any]] = {
            "describe": self.describe,
            "statistics": self._describe_streams,
            "history": lambda: list(self._telemetry.commands.queue.history),
        }
        if message.what not in answers:
            self._outbox.refuse(peer, message.request, "RefusedError", unknown("question", message.what, answers))
            return
        with self._telemetry.lock.turn():
            value = answers[message.what]()
        if message.what == "history":  # its entries do not change: 10,000 are described without the lock
            value = [describe.result(entry) for entry in value[-message.last :]]
        self._outbox.reply(peer, message.request, value)

    def _answer_stacks(self, peer: bytes, request: int) -> None:
        if self.clients[peer].may_command:
            self._outbox.reply(peer, request, thread_stacks())
        else:
            reason = "Expected a controller's key for the stacks of a program; a viewer's key is read-only"
            self._outbox.refuse(peer, request, "RefusedError", reason)

    def _describe_streams(self) -> list[StreamInfo]:
        n_failures = sum(each.n for each in self._failures())
        return [
            describe.stream(subscription, self._subscriptions.names(subscription), n_failures=n_failures)
            for subscription in self._telemetry.subscriptions.active.values()
        ]

    def _failures(self) -> list[Failures]:
        return [self.failures, *self.background]
