"""An service driven by messages, without a thread; the clock is in the conftest above."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sightglass.core import codec
from sightglass.protocol import messages
from sightglass.protocol.transport import Delivery
from sightglass.query.meter import Meter
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.serving.client_service import ClientService


class ServiceBench:
    """An service, its telemetry, and what it sent to whom."""

    def __init__(self, clock: Any, **options: Any) -> None:
        self.clock = clock
        self.functions: dict[str, Any] = options.pop("functions", {})
        self.telemetry = Telemetry(clock=clock, budget=None, agree=options.pop("agree", None))
        self.service = ClientService(
            self.telemetry, run="job", id="abc", clock=clock, functions=self.functions, about={"config": {}}, **options
        )
        self.sent: dict[bytes, list[Any]] = {}
        self._requests = itertools.count(5)

    def hello(self, *peers: bytes, may_command: bool = True) -> None:
        for peer in peers:
            self.say(peer, messages.Hello(version=messages.VERSION, client=peer.decode()), may_command=may_command)
            self.sent[peer].clear()

    def say(self, peer: bytes, message: messages.Message, buffers: Any = (), *, may_command: bool = True) -> list[Any]:
        """Send a message; returns what came back to the same peer."""
        return self.frames(peer, messages.encode(message, buffers), may_command=may_command)

    def frames(self, peer: bytes, frames: Any, *, may_command: bool = True) -> list[Any]:
        n = len(self.sent.setdefault(peer, []))
        self._take(self.service.receive(Delivery(peer, frames, may_command)))
        return self.sent[peer][n:]

    def flush(self) -> None:
        self._take(self.service.flush())

    def tick(self) -> None:
        self._take(self.service.tick())

    def open(self, peer: bytes, query: str, request: int = 1) -> int:
        opened = self.say(peer, messages.Open(request=request, query=query))[0]
        assert isinstance(opened, messages.Opened), opened
        return opened.stream

    def ask(self, peer: bytes, what: str) -> Any:
        reply = self.say(peer, messages.Ask(request=7, what=what))[-1]
        assert isinstance(reply, messages.Reply), reply
        return codec.decode(reply.value)

    def command(self, peer: bytes, kind: str, name: str = "", value: Any = None, **options: Any) -> list[Any]:
        blob = b"" if value is None else codec.encode(value)[0]
        may_command = options.pop("may_command", True)
        message = messages.RunCommand(request=next(self._requests), kind=kind, name=name, value=blob, **options)
        return self.say(peer, message, may_command=may_command)

    def observe(self, event: str, /, **observables: Any) -> None:
        self.telemetry.events.observe(event, observables)

    def values(self, peer: bytes, stream: int) -> list[Any]:
        """Return the values of a stream that a peer was sent so far."""
        return [value for block in self.blocks(peer, stream) for value in block.values]

    def blocks(self, peer: bytes, stream: int) -> list[Records]:
        """Return the records of a stream that a peer was sent so far, in blocks."""
        self.flush()
        return [message for message in self.sent[peer] if isinstance(message, Records) and message.stream == stream]

    def _take(self, outgoing: Any) -> None:
        for peer, frames in outgoing:
            message, buffers = messages.decode_from_run(frames)
            if isinstance(message, messages.Block):
                message = Records(message, messages.decode_block(message, buffers))
            self.sent.setdefault(peer, []).append(message)


class Records:
    """A block, decoded."""

    def __init__(self, block: messages.Block, columns: Any) -> None:
        self.stream, self.index, self.n, self.columns = block.stream, block.index, block.n, columns
        self.indexes = columns.numbers.tolist()
        self.values = [
            value.item() if hasattr(value, "item") and not value.shape else value for value in columns.values
        ]


@pytest.fixture(autouse=True)
def timeless(monkeypatch):
    """Let evaluations take no time: on a busy machine, a first one may take more than a query may."""
    monkeypatch.setitem(Meter.__init__.__kwdefaults__, "cpu_s", lambda: 0.0)


@pytest.fixture
def service_bench(clock):
    """Return a function that makes client services."""
    made = []

    def make(**options: Any) -> ServiceBench:
        made.append(ServiceBench(clock, **options))
        return made[-1]

    yield make
    for one in made:
        one.telemetry.close()


@pytest.fixture(scope="module")
def make_bench():
    """Return a function that makes client services, for laws that need one for each example; the clock stands still."""
    from tests.training.conftest import FakeClock

    def make(**options: Any) -> ServiceBench:
        return ServiceBench(FakeClock(), **options)

    return make
