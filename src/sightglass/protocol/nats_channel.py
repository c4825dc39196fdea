"""A client's end on a hub; `nats` has the run's."""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from sightglass.core.errors import WireError
from sightglass.core.unpatched import threading

from .hub_address import HubAddress, checked_token
from .hub_link import drop_link, use_connected_link
from .messages import MAX_MESSAGE_BYTES
from .nats import MAX_TAKEN, ROOT, TO_CLIENT, TO_RUN
from .pieces import (
    ENTER,
    LEAVE,
    LEFT,
    LISTEN,
    Assembler,
    Dialogue,
    WholeMessage,
    about,
    goodbye,
    is_broken,
    kind_of,
    stream_of,
)  # fmt: skip
from .transport import Frames, Sent

MAX_PUBLISHED: Final = 1_000  # streams that a client listens to; it may have fewer
MAX_UNREAD_BYTES: Final = 64 * 2**20  # published, and not read by this client: as much as a run holds for one
MAX_UNREAD: Final = 20_000  # the same in messages


class NatsChannel:
    """A client's end on a hub.

    Attributes:
        link: The connection to the hub.
        subjects: What it listens to.
        heard_s: When the run was last heard of.
    """

    def __init__(self, address: HubAddress, *, owner: str, id: str) -> None:
        """Connect to the hub. Whether the run exists shows only when it replies.

        Args:
            address: The hub.
            owner: The user whose run it is.
            id: The run's id.

        Raises:
            MissingExtraError: nats-py is not installed.
            TransportError: The hub does not answer, or no thread can be started.
            RefusedError: The hub does not know the user, or they were revoked.
        """
        client = secrets.token_hex(12)  # nobody else can guess it
        self._run = f"{ROOT}.stream.{checked_token(owner)}.{checked_token(id)}"
        user, run = checked_token(address.user), f"{checked_token(owner)}.{checked_token(id)}"
        self._subject = f"{ROOT}.{'command' if address.may_command else 'ask'}.{user}.{run}.{client}"
        self.subjects: Sequence[str] = (f"{ROOT}.answer.{user}.{client}",)
        self._dialogue = Dialogue(out=TO_RUN, into=TO_CLIENT)
        self._inbox: deque[tuple[WholeMessage, bool]] = deque()  # each with whether it was published
        self._published: dict[int, PublishedStream] = {}
        self._n_came = self._n_taken = self._came_bytes = self._taken_bytes = 0  # of published messages
        self.heard_s = -math.inf
        self._event = threading.Event()
        self._over: Sent = "sent"
        self._closed = False
        self.link = use_connected_link(address)
        self.link.join(self)

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        if not self._inbox:
            self._event.wait(timeout_s)

    def receive(self) -> list[Frames]:
        """Return the messages received."""
        self._event.clear()
        messages: list[Frames] = []
        for _ in range(min(len(self._inbox), MAX_TAKEN)):
            message, published = self._inbox.popleft()
            if published:
                self._n_taken += 1
                self._taken_bytes += message.size
            elif (piece := self._dialogue.read(message)) is not None:
                self.link.send(self._subject, [piece])
            messages.append(message)
        return messages

    def send(self, frames: Frames) -> Sent:
        """Send to the agent."""
        if self._over != "sent":
            return self._over
        if not self.link.has_room:
            return "full"
        pieces = self._dialogue.cut(frames, self.link.max_piece_bytes)
        if pieces is None:
            return "full"
        return "sent" if self.link.send(self._subject, pieces) else "lost"

    @property
    def over(self) -> bool:
        """Whether the run has left, or messages were lost, as they are with the connection to the hub."""
        return self._over != "sent"

    @property
    def left(self) -> bool:
        """Whether the run has left."""
        return self._over == "gone"

    def wake(self) -> None:
        """End a wait."""
        self._event.set()

    def close(self) -> None:
        """Disconnect. In a forked child this does nothing."""
        if self._closed or self.link.is_foreign:
            return
        self._closed = True
        self.link.send(self._subject, [goodbye()])
        for stream in list(self._published):
            self._leave(stream)
        self.link.leave(self)
        drop_link(self.link)

    # On the thread of the hub

    def received(self, subject: str, data: bytes) -> None:
        """Take a piece in."""
        if self._over != "sent":
            return
        self.heard_s = time.monotonic()
        try:
            kind = kind_of(data)
            if kind == LEFT:
                self._end("lost" if is_broken(data) else "gone")
            elif kind == LISTEN:
                self._listen(stream_of(data)[0])
            elif kind == ENTER:
                self._enter(*stream_of(data))
            elif kind == LEAVE:
                self._leave(stream_of(data)[0])
            elif (message := self._dialogue.add(data)) is not None:
                self._put(message, published=False)
        except WireError:
            self._end("lost")

    def take(self, message: WholeMessage) -> None:
        """Take in what was published; if it is not read for too long, leave it out: its records count as lost."""
        n, n_bytes = self._n_came - self._n_taken, self._came_bytes - self._taken_bytes
        if n < MAX_UNREAD and n_bytes < MAX_UNREAD_BYTES:
            self._n_came += 1
            self._came_bytes += message.size
            self._put(message, published=True)

    def broken(self, reason: str) -> None:
        """Learn that the connection is lost."""
        self._end("lost")

    def beat(self) -> None:
        """Do nothing: the connection to the run renews its lease itself."""

    def _put(self, message: WholeMessage, *, published: bool) -> None:
        self._inbox.append((message, published))
        self._event.set()

    def _listen(self, stream: int) -> None:
        """Listen to a stream that is published, then say so: on one connection, the hub keeps this order."""
        if stream in self._published or len(self._published) >= MAX_PUBLISHED:
            return
        published = PublishedStream(self, f"{self._run}.{stream}")
        self.link.join(published)
        self._published[stream] = published
        self.link.send(self._subject, [about(LISTEN, stream)])
        if self._closed:  # by another thread, which may not have seen this stream
            self._leave(stream)

    def _enter(self, stream: int, first: int) -> None:
        if stream in self._published:
            self._published[stream].assembler = Assembler(MAX_MESSAGE_BYTES, first=first)

    def _leave(self, stream: int) -> None:
        published = self._published.pop(stream, None)
        if published is not None:
            published.assembler = None
            self.link.leave(published)

    def _end(self, over: Sent) -> None:
        self._over = over
        self._event.set()


class PublishedStream:
    """A stream that a channel listens to.

    Attributes:
        subjects: Where it is published.
        assembler: Puts its messages together while the channel takes them; `None` while it does not.
    """

    def __init__(self, channel: NatsChannel, subject: str) -> None:
        self.subjects: Sequence[str] = (subject,)
        self.assembler: Assembler | None = None
        self._channel = channel

    def received(self, subject: str, data: bytes) -> None:
        """Take a piece in. If pieces are lost, the connection is: what the run still has of them comes again."""
        assembler = self.assembler
        try:
            if assembler is not None and (message := assembler.add(data)) is not None:
                self._channel.take(message)
        except WireError:
            self._channel.broken("pieces of a published stream are lost")

    def broken(self, reason: str) -> None:
        """Do nothing: the channel learns of it, too."""

    def beat(self) -> None:
        """Do nothing."""
