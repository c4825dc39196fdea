"""A stream that several clients of a hub ask is sent once. What each of them gets stays the same."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sightglass.core.process.clock import SystemClock
from sightglass.protocol import messages
from sightglass.protocol.transport import MEMORY, Both, Delivery, MemoryListener, publisher_of
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.serving.client_service import ClientService
from sightglass.training.serving.clients import Publications
from sightglass.training.serving.io_loop import IoLoop

from .test_isolation import Still

N_CLIENTS = 4


class Hub:
    """A listener that publishes. Each peer has one list of what it took, in the order in which it was sent."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.taken: defaultdict[bytes, list[Any]] = defaultdict(list)
        self.invited: set[tuple[bytes, int]] = set()
        self.listening: set[tuple[bytes, int]] = set()
        self.entered: set[tuple[bytes, int]] = set()
        self.full: set[bytes] = set()
        self.local: set[bytes] = set()
        self.n_published = self.n_copies = 0

    def wait(self, timeout_s: float) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...

    def receive(self) -> list[Delivery]:
        deliveries, self.deliveries = self.deliveries, []
        return deliveries

    def send(self, peer: bytes, frames: Any) -> Any:
        if peer in self.full:
            return "full"
        self.n_copies += 1
        self.taken[peer].append(messages.decode_from_run(frames))
        return "sent"

    def reaches(self, peer: bytes) -> bool:
        return peer not in self.local

    def enter(self, peer: bytes, stream: int) -> bool:
        if (peer, stream) not in self.listening:
            self.invited.add((peer, stream))
            return False
        self.entered.add((peer, stream))
        return True

    def dismiss(self, peer: bytes, stream: int) -> None:
        for state in (self.invited, self.listening, self.entered):
            state.discard((peer, stream))

    def publish(self, stream: int, frames: Any) -> Any:
        self.n_published += 1
        for peer in sorted(peer for peer, one in self.entered if one == stream):
            self.taken[peer].append(messages.decode_from_run(frames))
        return "sent"


class Reader:
    """One of a client's streams, from its first record on."""

    def __init__(self, stream: int, index: int) -> None:
        self.stream, self.next = stream, index

    def add(self, block: messages.Block) -> None:
        if block.stream == self.stream:
            assert block.index <= self.next, "records are missing"
            self.next = max(self.next, block.index + block.n)


class Watched:
    """A run on such a hub, with clients that open and close its one stream as often as they like."""

    def __init__(self) -> None:
        self.hub, self.telemetry = Hub(), Telemetry(clock=SystemClock(), budget=None)
        self.service = ClientService(self.telemetry, run="r", id="0", clock=SystemClock(), functions={})
        self.loop = IoLoop(self.hub, self.service, clock=SystemClock(), worker=lambda *_, **__: Still())
        self.n = 0
        self.opened: dict[int, bytes] = {}  # the requests of streams that are not closed
        self.clients = [b"client-%d" % n for n in range(N_CLIENTS)]
        self.readers: dict[bytes, list[Reader]] = {peer: [] for peer in self.clients}
        for peer in self.clients:
            self.say(peer, messages.Hello(version=messages.VERSION, client="c"))

    def say(self, peer: bytes, message: messages.Message) -> None:
        self.hub.deliveries.append(Delivery(peer, messages.encode(message), True))

    def open(self, peer: bytes) -> None:
        self.n += 1
        self.opened[self.n] = peer
        self.say(peer, messages.Open(request=self.n, query="batch.loss"))

    def observe(self) -> None:
        self.telemetry.events.observe("batch", {"loss": 1.0})

    def round(self) -> None:
        self.loop._next_flush_s = 0.0
        self.loop.round(self.loop._clock.monotonic())

    def read(self, peer: bytes) -> None:
        """Read as a client does: each reader takes what follows its last record, and nothing may be missing."""
        for message, _ in self.hub.taken.pop(peer, []):
            if isinstance(message, messages.Opened):
                assert message.index is not None
                if message.request in self.opened:
                    self.readers[peer].append(Reader(message.stream, message.index))
            elif isinstance(message, messages.Block):
                for reader in self.readers[peer]:
                    reader.add(message)

    def close(self, peer: bytes) -> None:
        """Close the stream, as far as the client knows of it."""
        self.read(peer)
        for stream in {reader.stream for reader in self.readers[peer]}:
            self.say(peer, messages.Close(stream=stream))
        self.readers[peer].clear()
        self.opened = {request: other for request, other in self.opened.items() if other != peer}

    def end(self) -> None:
        self.telemetry.close()


OPERATIONS = ["observe", "observe", "round", "round", "open", "close", "slow", "quick", "listens", "read"]
# What waits for a client that came again.
SLOW = ("open", "round", "observe", "round", "slow", "observe", "round", "listens", "round", "observe", "round")


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, N_CLIENTS - 1)), max_size=60), st.integers(0, 2))
@example([(what, 0) for what in SLOW], 0)
def test_each_client_gets_each_record_whoever_comes_goes_and_is_slow(operations, n_local):
    run = shared_by_all(n_local)
    for what, n in operations:
        peer = run.clients[n]
        match what:
            case "observe":
                run.observe()
            case "round":
                run.round()
            case "open":
                run.open(peer)
            case "close":
                run.close(peer)
            case "slow":
                run.hub.full.add(peer)
            case "quick":
                run.hub.full.discard(peer)
            case "listens":
                run.hub.listening |= run.hub.invited
            case "read":
                run.read(peer)
    run.hub.full.clear()
    for _ in range(2):
        run.round()
    n_made = {one.id: one.rows.n_made for one in run.telemetry.subscriptions.active.values()}
    for peer in run.clients:
        run.read(peer)
        for reader in run.readers[peer]:
            assert reader.next == n_made.get(reader.stream, reader.next)
    run.end()


def shared_by_all(n_local: int = 0) -> Watched:
    run = Watched()
    run.hub.local = set(run.clients[:n_local])
    for peer in run.clients:
        run.open(peer)
    run.round()
    run.observe()
    run.round()  # they are invited
    run.hub.listening |= run.hub.invited
    run.round()  # they have entered
    assert run.hub.entered
    run.hub.n_published = run.hub.n_copies = 0
    return run


def test_what_several_read_is_sent_once_and_charged_once():
    run = shared_by_all(n_local=1)
    for _ in range(10):
        run.observe()
        run.round()
    assert (run.hub.n_published, run.hub.n_copies) == (10, 10)  # once for the hub, and one copy on this machine
    run.end()


def test_the_end_of_a_stream_follows_its_last_records():
    run = shared_by_all()
    run.observe()
    run.loop._closing = "over"
    run.round()
    for peer in run.clients:
        kinds = [type(message).__name__ for message, _ in run.hub.taken[peer]]
        assert kinds[-3:] == ["Block", "Ended", "Bye"]
    run.end()


def test_a_client_that_leaves_takes_nothing_more():
    run = shared_by_all()
    run.say(run.clients[0], messages.Bye())
    run.round()
    assert {peer for peer, _ in run.hub.entered} == set(run.clients[1:])
    for peer in run.clients[1:]:
        run.say(peer, messages.Close(stream=1))
    run.round()
    run.observe()
    run.round()
    assert run.hub.n_published == 0
    run.end()


def test_without_a_publisher_each_client_has_its_copy():
    peers = dict.fromkeys([b"a", b"b"])
    assert Publications().recipients(1, peers) is peers
    memory = MemoryListener()
    assert publisher_of(memory) is None
    hub: Any = Hub()
    assert publisher_of(Both(memory, hub, MEMORY)) is hub
