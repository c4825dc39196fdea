"""A simulated network between one run and its clients: messages are late, and connections are cut.

As with ZeroMQ, a connection delivers whole messages in order; its queues are bounded; what is on its way when it is cut
is lost, and the client connects again, as a peer that the run does not know. In `hostile` weather, which no transport
promises to keep away, messages are also lost, repeated and reordered.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from sightglass.protocol.transport import Delivery, Frames, MemoryListener, Sent

from .world import Bell, Process, World

MAX_IN_INBOX = 1_000  # messages of all clients that the run has not read


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the network behaves.

    Attributes:
        delay_s: The mean time on the way.
        max_queued: How many messages of a connection may be on their way or unread, in each direction.
        hostile: The probabilities that a message is lost, repeated and overtaken, each.
    """

    delay_s: float = 0.001
    max_queued: int = 64
    hostile: float = 0.0


class Network:
    """All connections, and the registry of the machine.

    Attributes:
        listener: The run's end.
        channels: The clients' ends.
        closed: Whether the registry says that the run was closed.
        numbers: The numbers of connections.
    """

    def __init__(self, world: World, server: Process, weather: Weather) -> None:
        """Begin without clients."""
        self.world = world
        self.server = server
        self.weather = weather
        self.listener = SimListener(self)
        self.channels: list[SimChannel] = []
        self.closed = False
        self.numbers = itertools.count()
        self._registered = True

    def connect(self, client: Process, *, may_command: bool = True) -> SimChannel:
        """Return a new client's end."""
        self.channels.append(SimChannel(self, client, may_command=may_command))
        return self.channels[-1]

    def run_lives(self) -> bool:
        """Return whether the run holds its lock."""
        return self.server.alive and self._registered

    def run_was_closed(self) -> bool:
        """Return whether the run was closed, rather than killed."""
        return self.closed

    def unregister(self) -> None:
        """Take the run off the registry; it was closed."""
        self._registered, self.closed = False, True

    def endpoints(self, name: str, id: str, **_: object) -> Any:
        """Return the listeners of the run, in place of `training.endpoints.Endpoints`."""
        return SimEndpoints(self)


class SimEndpoints:
    """The listeners of the run; see `training.endpoints.Endpoints`."""

    def __init__(self, network: Network) -> None:
        """Listen."""
        self.memory = MemoryListener()
        self.listener = network.listener
        self.reachable = True
        self.connection_file = self.viewer_file = self.hub = None
        self.close = network.unregister


class Connected:
    """One connection: what is on its way in it."""

    def __init__(self, network: Network, channel: SimChannel, peer: bytes) -> None:
        """Begin empty."""
        self.peer = peer
        self.channel = channel
        self.n_up = self.n_down = 0
        self._network = network
        self._cut = False
        self._lines: dict[str, deque[Frames]] = {"up": deque(), "down": deque()}
        self._arrive_s = {"up": 0.0, "down": 0.0}

    def up(self, frames: Frames) -> None:
        """Carry a message to the run."""
        self.n_up += 1
        self._carry("up", frames)

    def down(self, frames: Frames) -> None:
        """Carry a message to the client."""
        self.n_down += 1
        self._carry("down", frames)

    def cut(self) -> None:
        """Lose what is on its way."""
        self._cut = True

    def _carry(self, way: str, frames: Frames) -> None:
        world, weather = self._network.world, self._network.weather
        delay_s = world.random.expovariate(1 / weather.delay_s)
        p = weather.hostile
        if p and world.random.random() < p:
            self._count(way, -1)
            return
        if p and world.random.random() < p:
            self._count(way, +1)
            world.at(delay_s + world.random.random(), partial(self._arrive, way, frames))
        if p and world.random.random() < p:
            world.at(delay_s + world.random.random(), partial(self._arrive, way, frames))
            return
        self._lines[way].append(frames)
        self._arrive_s[way] = max(self._arrive_s[way], world.now_s + delay_s)
        world.at(self._arrive_s[way] - world.now_s, partial(self._arrive_next, way))

    def _count(self, way: str, n: int) -> None:
        if way == "up":
            self.n_up += n
        else:
            self.n_down += n

    def _arrive_next(self, way: str) -> None:
        self._arrive(way, self._lines[way].popleft())

    def _arrive(self, way: str, frames: Frames) -> None:
        if self._cut:
            return
        self._count(way, -1)
        copy = [bytes(frame) for frame in frames]  # only now: until a message has left, its buffers must not change
        self._network.world.note(f"{self.peer.decode()} {way} {kind_of(copy)} {sum(map(len, copy))} B")
        if way == "up":
            self._network.listener.take(Delivery(self.peer, copy, self.channel.may_command))
        else:
            self.channel.take(copy)


class SimListener:
    """The run's end; see `protocol.transport.Listener`."""

    def __init__(self, network: Network) -> None:
        """Listen."""
        self.wake = Bell()
        self.peers: dict[bytes, Connected] = {}
        self.closed = False
        self.inbox: deque[Delivery] = deque()
        self._network = network

    def wait(self, timeout_s: float) -> None:
        """Never called: the world waits."""
        raise NotImplementedError

    def receive(self) -> list[Delivery]:
        """Return the messages received."""
        return [self.inbox.popleft() for _ in range(len(self.inbox))]

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        connected = self.peers.get(peer)
        if connected is None:
            return "gone"
        if connected.n_down + len(connected.channel.inbox) >= self._network.weather.max_queued:
            return "full"
        connected.down(frames)
        return "sent"

    def close(self) -> None:
        """Stop listening; messages on their way still arrive."""
        self.closed = True
        self.inbox.clear()

    def take(self, delivery: Delivery) -> None:
        """Take a message that has arrived."""
        if self._network.server.alive and not self.closed:
            self.inbox.append(delivery)
            self.wake()


class SimChannel:
    """A client's end; see `protocol.transport.Channel`."""

    def __init__(self, network: Network, client: Process, *, may_command: bool) -> None:
        """Connect."""
        self.wake = Bell()
        self.may_command = may_command
        self.inbox: deque[Frames] = deque()
        self.n_cuts = 0
        self.closed = False
        self._network = network
        self._client = client
        self._unsent: deque[Frames] = deque()
        self._connected: Connected | None = None
        self._connect()

    def wait(self, timeout_s: float) -> None:
        """Never called: the world waits."""
        raise NotImplementedError

    def receive(self) -> list[Frames]:
        """Return the messages received."""
        return [self.inbox.popleft() for _ in range(len(self.inbox))]

    def send(self, frames: Frames) -> Sent:
        """Send to the run; what is sent while there is no connection waits for the next one."""
        network, connected = self._network, self._connected
        n_waiting = len(self._unsent) + (connected.n_up if connected else 0)
        if n_waiting >= network.weather.max_queued or len(network.listener.inbox) >= MAX_IN_INBOX:
            return "full"
        if connected is None:
            self._unsent.append(frames)
        else:
            connected.up(frames)
        return "sent"

    def close(self) -> None:
        """Disconnect; messages on their way still arrive."""
        if not self.closed:
            self.closed = True
            self._network.world.at(0.1, self.disconnect)

    def cut(self, reconnect_s: float, *, noticed: bool) -> None:
        """Cut the connection, and connect again after a time; the run may not notice that this peer has gone."""
        if self._connected is not None:
            self._network.world.note(f"{self._connected.peer.decode()} is cut off for {reconnect_s:.2f} s")
            self.n_cuts += 1
            self._connected.cut()
            self.disconnect(noticed=noticed)
            self._network.world.at(reconnect_s, self._connect)

    def disconnect(self, *, noticed: bool = True) -> None:
        """Leave the run, as the system of a process that ended does; that of a machine that failed says nothing."""
        if self._connected is not None:
            if noticed:
                self._network.listener.peers.pop(self._connected.peer, None)
            self._connected = None

    def take(self, frames: Frames) -> None:
        """Take a message that has arrived."""
        if self._client.alive and not self.closed:
            self.inbox.append(frames)
            self.wake()

    def _connect(self) -> None:
        network = self._network
        if self.closed or network.listener.closed or not network.server.alive or not self._client.alive:
            return
        self._connected = Connected(network, self, f"{self._client.name}.{next(network.numbers)}".encode())
        network.listener.peers[self._connected.peer] = self._connected
        while self._unsent:
            self._connected.up(self._unsent.popleft())


def kind_of(frames: Frames) -> str:
    """Return the type of a message, which its header begins with."""
    header = bytes(frames[0][:16])
    n = header[1] & 0x1F if len(header) > 1 else 0
    return header[2 : 2 + n].decode("ascii", "replace")
