"""The clients of a run: their leases, and the messages that wait to be sent to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from sightglass.core import codec
from sightglass.core.clock import Clock
from sightglass.core.copies import sendable
from sightglass.core.errors import UnsendableError
from sightglass.core.guarded import clean
from sightglass.protocol import messages
from sightglass.protocol.transport import Frames

from .publications import Publications

LEASE_S: Final = 12.0  # four pings: a client that is busy for seconds does not lose its streams
MAX_PACE_S: Final = 1.0  # beyond, rows would pile up in the run
MAX_CLIENTS: Final = 1_000  # each has a queue of its own in the training process

Outgoing = list[tuple[bytes, Frames]]
"""Messages to send, each with the client it is for, or with the name of a stream that is published."""


@dataclass(slots=True)
class Publication:
    """An event that a client publishes.

    Attributes:
        event: Its name.
        request: The number of the client's last request for it.
        next_index: The number of the next record; `None` before the first.
    """

    event: str
    request: int = 0
    next_index: int | None = None


@dataclass(slots=True)
class Client:
    """A client that said hello.

    Attributes:
        name: What it calls itself.
        may_command: Whether it has a controller's key.
        lease_until_s: When its lease ends, in monotonic time.
        streams: The numbers of its streams.
        published: The events that it publishes, by their numbers.
        pace_s: How long records for it may be held back.
    """

    name: str
    may_command: bool
    lease_until_s: float
    streams: set[int] = field(default_factory=set)
    published: dict[int, Publication] = field(default_factory=dict)
    pace_s: float = 0.0


def allowed_pace_s(pace_s: float) -> float:
    """Return for how long records are held back if a client allows this; 0.0 if it sent no positive number."""
    return min(pace_s, MAX_PACE_S) if pace_s > 0 else 0.0


class Clients:
    """The clients of a run. Each holds a lease, which every message renews."""

    def __init__(self, clock: Clock) -> None:
        self.lease_s = LEASE_S
        self._clock = clock
        self._clients: dict[bytes, Client] = {}

    def __contains__(self, peer: object) -> bool:
        return peer in self._clients

    def __getitem__(self, peer: bytes) -> Client:
        return self._clients[peer]

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def peers(self) -> list[bytes]:
        """The ids of all clients."""
        return list(self._clients)

    @property
    def pace_s(self) -> float:
        """How long records may be held back; 0.0 if a client wants everything at once.

        The pace of a client that has no streams says nothing: a page that only lists the runs sets nobody's.
        """
        paces_s = [client.pace_s for client in self._clients.values() if client.streams or not client.pace_s]
        return min(paces_s, default=0.0)

    def add(self, peer: bytes, name: str, *, may_command: bool, pace_s: float = 0.0) -> None:
        """Add a client, or replace it."""
        self._clients[peer] = Client(
            name=name[:200], may_command=may_command, lease_until_s=self._lease_until_s(),
            pace_s=allowed_pace_s(pace_s),
        )  # fmt: skip

    def renew(self, peer: bytes) -> Client:
        """Renew the lease of a client, and return the client."""
        client = self._clients[peer]
        client.lease_until_s = self._lease_until_s()
        return client

    def pop(self, peer: bytes) -> Client | None:
        """Forget a client, and return it if it was there."""
        return self._clients.pop(peer, None)

    def expired(self) -> list[bytes]:
        """Return the clients whose leases have ended."""
        now_s = self._clock.monotonic()
        return [peer for peer, client in self._clients.items() if client.lease_until_s < now_s]

    def names(self, peers: Iterable[bytes]) -> list[str]:
        """Return the names of those of these clients that are still there, sorted."""
        return sorted(self._clients[peer].name for peer in peers if peer in self._clients)

    def _lease_until_s(self) -> float:
        return self._clock.monotonic() + self.lease_s


class Outbox:
    """The messages that an agent wants to send.

    Attributes:
        publications: The streams that are published.
    """

    def __init__(self) -> None:
        self.publications = Publications()
        self._outgoing: Outgoing = []

    def put(self, peer: bytes, frames: Frames) -> None:
        """Send an encoded message."""
        self._outgoing.append((peer, frames))

    def put_for(self, stream: int, peers: Collection[bytes], frames: Frames) -> int:
        """Send new records of a stream to all of its clients; return how many copies that takes."""
        recipients = self.publications.recipients(stream, peers)
        for recipient in recipients:
            self.put(recipient, frames)
        return len(recipients)

    def send(self, peer: bytes, message: messages.Message) -> None:
        """Send a message without buffers."""
        self.put(peer, messages.encode(message))

    def reply(self, peer: bytes, request: int, value: object) -> None:
        """Answer a request with a value."""
        try:
            blob, buffers = codec.encode(value)
        except UnsendableError:  # such as a name that UTF-8 cannot encode
            blob, buffers = codec.encode(sendable(value).value)
        self.put(peer, messages.encode(messages.Reply(request=request, value=blob), buffers))

    def refuse(self, peer: bytes, request: int, error: str | Exception, reason: str = "") -> None:
        """Refuse a request with the name of an error and a reason, or with an error that was raised."""
        if isinstance(error, Exception):
            error, reason = type(error).__name__, str(error)
        reason = clean(reason, len(reason))
        self.send(peer, messages.Refused(request=request, error=error, reason=reason))

    def take(self) -> Outgoing:
        """Return the messages since the last call."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing
