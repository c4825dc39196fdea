"""A real run whose clients send whatever they like."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from sightglass.core import codec
from sightglass.core.columns import Columns
from sightglass.core.values import Histogram
from sightglass.protocol import messages
from sightglass.protocol.transport import Delivery
from sightglass.training.controls import Action, Control
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.serving.client_service import ClientService

from .inputs import split
from .query import check_error
from .wire import header

PEERS = 0b11  # which of four peers sends a message; the last one never says hello
VIEWER = 0b100  # the sender may not command
BUFFER = 0b1000  # the next part is a buffer of this message
LATER = 0b1_0000  # then five seconds pass: three of them end a lease
GROUP = 0b10_0000  # then an epoch ends
MAX_MESSAGES = 12  # each is followed by an event, on which all open queries are evaluated

GOOD = b"good"


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall(self) -> float:
        return self.now_s + 1_000_000.0

    def monotonic(self) -> float:
        return self.now_s

    def cpu(self) -> float:
        return 0.0

    def queued(self) -> float:
        return 0.0

    def ran(self, thread: int) -> float | None:
        return None


class Run:
    """A client service, what it watches, and what it sent to the client that keeps to the rules."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.telemetry = Telemetry(clock=self.clock, budget=None)
        queue = self.telemetry.commands.queue
        for control in (Control("lr", 0.1, min=0, max=1), Control("n", 3), Control("on", True), Control("how", "a")):
            queue.controls[control.name] = control
        queue.actions["f"] = Action("f", lambda *values: values)
        self.service = ClientService(
            self.telemetry, run="job", id="abc", clock=self.clock, functions={"f": lambda x: x}
        )
        self.received: list[Any] = []
        self.n_events = 0
        self.requests = itertools.count(2)

    def receive(self, peer: bytes, *frames: Any, may_command: bool = True) -> None:
        self.take(self.service.receive(Delivery(peer, frames, may_command)))

    def say(self, message: messages.Message) -> Any:
        """Send a message of the good client, and return the answer."""
        self.receive(GOOD, *messages.encode(message))
        return self.received.pop()

    def announce(self, event: str, **observables: Any) -> None:
        """Announce an event, and do what the io thread does; a pause ends at once, since this is the only thread."""
        if any(command.kind == "pause" for command in self.telemetry.commands.queue.pending):
            self.say(messages.RunCommand(request=next(self.requests), kind="resume"))
        self.telemetry.events.observe(event, observables)
        self.take(self.service.flush())
        self.take(self.service.tick())

    def batch(self) -> None:
        """Announce a batch."""
        loss, kernel = float(self.n_events), np.arange(6.0).reshape(2, 3)
        self.n_events += 1
        self.announce("batch", loss=loss, x=kernel, grads={"dense": kernel}, h=Histogram(np.arange(4.0)), text="words")

    def take(self, outgoing: Any) -> None:
        """Decode what the run sends, to all clients."""
        for peer, frames in outgoing:
            message, buffers = messages.decode_from_run(frames)
            columns = messages.decode_block(message, buffers) if isinstance(message, messages.Block) else None
            if peer == GOOD:
                self.received.append(message if columns is None else columns)


def service(data: bytes) -> None:
    """Answer clients that send anything; one that keeps to the rules gets all that it asks for."""
    run = Run()
    try:
        _attack(run, split(data))
    finally:
        run.telemetry.close()


def _attack(run: Run, parts: list[bytes]) -> None:
    assert isinstance(run.say(messages.Hello(version=messages.VERSION, client="good")), messages.Welcome)
    assert isinstance(run.say(messages.Open(request=1, query="batch.loss")), messages.Opened)
    for peer in range(PEERS):
        run.receive(b"%d" % peer, *messages.encode(messages.Hello(version=messages.VERSION, client="bad")))
    n_messages = 0
    while parts and n_messages < MAX_MESSAGES:
        part = parts.pop(0)
        flags = part[0] if part else 0
        frames = [header(part[1:])]
        while flags & BUFFER and parts and len(frames) < 4:
            frames.append(parts.pop(0))
        run.receive(b"%d" % (flags & PEERS), *frames, may_command=not flags & VIEWER)
        if flags & LATER:
            run.clock.now_s += 5.0
            run.receive(GOOD, *messages.encode(messages.Ping()))
        run.batch()
        if flags & GROUP:
            run.announce("epoch", accuracy=0.5)
        n_messages += 1
    _check(run)


def _check(run: Run) -> None:
    """Check what the good client was sent, and that nothing failed inside."""
    assert run.service.failures.n == 0, run.service.failures.last
    for subscription in run.telemetry.subscriptions.active.values():
        check_error(subscription)
    got = [float(value) for columns in run.received if isinstance(columns, Columns) for value in columns.values]
    assert got == [float(i) for i in range(run.n_events)], got
    run.received.clear()
    assert run.say(messages.Ping()) == messages.Ping()
    for request, what in enumerate(("describe", "statistics", "history")):
        reply = run.say(messages.Ask(request=request, what=what))
        assert isinstance(reply, messages.Reply), reply
        codec.decode(reply.value)
