"""The connection of a process to a hub, which is a NATS server: one for all runs and clients in the process.

nats-py needs an event loop, which has a thread of its own here. Other threads append to a queue that the loop empties,
and never wait for it. A connection that is lost is made again for as long as anything uses it, with longer rests in
between. What was on its way is then lost, so its users begin again: `HubUser.broken` tells them.

A process holds at most `MAX_QUEUED_BYTES` that the server has not taken. Beyond, nothing more is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import selectors
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from sightglass.core.errors import RefusedError, TransportError
from sightglass.core.process.threads import Background
from sightglass.core.process.unpatched import is_patched, threading
from sightglass.core.program_values.guarded import message as message_of
from sightglass.hub.nats_client import CONNECT_S, LINGER_S, REFUSED, check_installed, close, connect, why

from .address import HubAddress

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient


MAX_QUEUED_BYTES: Final = 64 * 2**20  # what waits for the server; as much as a run holds for all of its clients
REST_S: Final = 0.2  # before the second attempt; it doubles each time
MAX_REST_S: Final = 5.0  # a hub that is back is found within this time
BEAT_S: Final = 1.0  # also how late the end of a connection is seen if nats-py does not tell of it
MAX_CHUNK_BYTES: Final = 2**20  # NATS's own default for `max_payload`; a server may allow less
ASTRAY: Final = "unknown, by answers of the hub"  # which do not say who has asked for them
MAX_STEPS: Final = 8  # what waits is sent in three; messages that arrive wait no longer than that


spread: Final = random.Random()  # of our own: the program's random numbers stay as they are without a hub


class HubUser(Protocol):
    """What uses a connection to a hub. It is called on the thread of the hub, and never waits.

    Attributes:
        subjects: What it listens to.
    """

    subjects: Sequence[str]

    def received(self, subject: str, data: bytes) -> None:
        """Take a message."""

    def broken(self, reason: str) -> None:
        """Learn that the connection is lost, and whatever was on its way with it."""

    def beat(self) -> None:
        """Called once a second while there is a connection, and after each attempt to make one that failed."""


Task = tuple[Literal["listen", "ignore"], HubUser] | tuple[str, bytes]
"""What the loop does next: listen for a user, or no more; or send data under a subject."""


class HubLink:
    """A connection to a hub.

    Attributes:
        reason: Why there is no connection; empty while there is one, and before the first attempt has failed.
        refused: Whether the hub refused the user at the last attempt, as one who was revoked.
        n_dropped: How many messages were given up, since the connection was lost or the server refused them.
        max_chunk_bytes: The size of a message that the server takes.
        pace: How many messages of clients are taken in a second. Who serves clients counts them.
    """

    def __init__(self, address: HubAddress) -> None:
        """Begin to connect.

        Raises:
            MissingExtraError: nats-py is not installed.
            TransportError: No thread can be started.
        """
        check_installed()
        self.address = address
        self.reason = ""
        self.refused = False
        self.n_dropped = 0
        self.max_chunk_bytes = MAX_CHUNK_BYTES
        self.pace = Pace()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users: list[HubUser] = []
        self._tasks: deque[Task] = deque()
        self._queued_bytes = self._sent_bytes = 0
        self._connected = False
        self._changed = threading.Condition(self._lock)
        self._closing = self._hurries = False
        self._n_failed = 0
        self._loop = asyncio.SelectorEventLoop(RareSelector())
        self._work = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._listening: dict[HubUser, list[Any]] = {}
        try:
            self._thread = Background("hub", self._run)
        except RuntimeError as error:
            self._loop.close()
            raise TransportError(f"Cannot connect to the hub: {error}") from error

    # From any thread

    def join(self, user: HubUser) -> None:
        """Listen for a user, now and after each connection that is made again."""
        with self._lock:
            self._users.append(user)
            if self._connected:
                self._tasks.append(("listen", user))
        self._wake()

    def leave(self, user: HubUser) -> None:
        """Listen no more, once what was sent before is sent."""
        with self._lock:
            self._users.remove(user)
            if self._connected:
                self._tasks.append(("ignore", user))
        self._wake()

    def send(self, subject: str, chunks: Sequence[bytes]) -> bool:
        """Send data in order; return whether there is a connection."""
        with self._lock:
            if not self._connected:
                return False
            self._queued_bytes += sum(map(len, chunks))
            is_busy = bool(self._tasks)  # then it comes to these, too
            self._tasks.extend((subject, chunk) for chunk in chunks)
        if not is_busy:
            self._wake()
        return True

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._connected

    @property
    def has_room(self) -> bool:
        """Whether more may be sent now."""
        return self._queued_bytes - self._sent_bytes < MAX_QUEUED_BYTES

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked child, and the connection its parent's."""
        return os.getpid() != self._pid

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait until there is a connection, or an attempt that begins at once has failed; return whether there is."""
        with self._changed:
            n_failed = self._n_failed
            self._hurries = True
            self._wake()
            self._changed.wait_for(lambda: self._connected or self._n_failed > n_failed, timeout_s)
            return self._connected

    def close(self) -> None:
        """Send what waits, disconnect, and end the thread. In a forked child this does nothing."""
        if self.is_foreign:
            return
        self._closing = True
        self._wake()
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._give_up)
        self._thread.join(2 * LINGER_S)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is sent any more
            self._loop.call_soon_threadsafe(self._work.set)

    # On the thread of the hub

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(self._stay_connected())

    def _give_up(self) -> None:
        """End an attempt to connect: nothing needs the connection any more."""
        if self._closing and not self._connected and self._main is not None:
            self._main.cancel()

    async def _stay_connected(self) -> None:
        """Connect, again and again."""
        self._main = asyncio.current_task()
        rest_s = REST_S
        while not self._closing:
            try:
                client = await connect(self.address, noticed=self._noticed)
            except Exception as error:  # noqa: BLE001  whatever a server answers, the next attempt may succeed
                self.refused = REFUSED in message_of(error)
                self._tell(why(error, self.address))
                self._beat()
                # Not all at the same moment: a hub that is back meets a thousand runs.
                await self._rest(rest_s * spread.uniform(0.5, 1.0))
                rest_s = min(2 * rest_s, MAX_REST_S)
                continue
            rest_s, self.refused = REST_S, False
            try:
                await self._serve(client)
            finally:
                await close(client)

    async def _serve(self, client: NatsClient) -> None:
        """Send what waits, until the connection is lost or no longer necessary."""
        self.max_chunk_bytes = min(client.max_payload, MAX_CHUNK_BYTES)
        with self._changed:
            self._tasks.clear()
            self._tasks.extend(("listen", user) for user in self._users)
            self._queued_bytes = self._sent_bytes = 0
            self._connected, self.reason = True, ""
            self._changed.notify_all()
        why, beat_s = "the connection to the hub was lost", -math.inf
        try:
            while not client.is_closed:
                while self._tasks and not client.is_closed:
                    await self._do(client, self._tasks.popleft())
                if self._closing:
                    await client.flush(timeout=LINGER_S)
                    return
                if (now_s := self._loop.time()) >= beat_s:
                    beat_s = now_s + BEAT_S
                    self._beat()
                await self._rest(beat_s - now_s)
        except Exception as error:  # noqa: BLE001  costs this connection, and the next one begins anew
            why = f"{why}: {message_of(error)}"
        finally:
            self._tell(why)

    async def _do(self, client: NatsClient, task: Task) -> None:
        match task:
            case ("listen", user) if not isinstance(user, bytes):
                self._listening[user] = [
                    await client.subscribe(subject, cb=self._passes_to(user)) for subject in user.subjects
                ]
            case ("ignore", user) if not isinstance(user, bytes):
                for subscription in self._listening.pop(user, ()):
                    await subscription.unsubscribe()
            case (str(subject), bytes(data)):
                await client.publish(subject, data)
                self._sent_bytes += len(data)

    def _passes_to(self, user: HubUser) -> Callable[[str, bytes, bytes | None], Awaitable[None]]:
        """Return what is called for each message, and waited for before the next one is read."""

        async def received(subject: str, data: bytes, headers: bytes | None) -> None:
            if not headers:
                user.received(subject, data)
            else:  # of the server's own: runs and clients send none
                self.pace.count(ASTRAY)
            if rest_s := self.pace.rest_s():
                await asyncio.sleep(rest_s)

        return received

    def _tell(self, reason: str) -> None:
        """Note that there is no connection, and tell the users if there was one."""
        with self._changed:
            was_connected, self._connected, self.reason = self._connected, False, reason
            self._n_failed += not was_connected
            self.n_dropped += sum(isinstance(task[1], bytes) for task in self._tasks)
            self._tasks.clear()
            users = list(self._users)
            self._changed.notify_all()
        self._listening.clear()
        if was_connected:
            for user in users:
                user.broken(reason)

    def _beat(self) -> None:
        with self._lock:
            users = list(self._users)
        for user in users:
            user.beat()

    async def _noticed(self, error: Exception) -> None:
        """Count what the server refused or nats-py dropped; the end that misses it sees a gap."""
        if self._connected:
            self.n_dropped += 1

    async def _rest(self, rest_s: float) -> None:
        """Wait until there is work, for at most this long; without a connection, that is to connect, or to end."""
        deadline_s = self._loop.time() + rest_s
        while not self._closing and (left_s := deadline_s - self._loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._work.wait()
            self._work.clear()
            if self._connected or self._hurries:
                self._hurries = False
                return


class RareSelector(selectors.DefaultSelector):
    """Looks at the sockets once for several steps of the loop that are ready.

    Each look releases the interpreter lock. A program that is busy in Python gives it back after 5 ms, so to send a
    message, for which asyncio takes three steps, would take 15.
    """

    def __init__(self) -> None:
        super().__init__()
        self._n_steps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return which sockets are ready; none at all, without a look, while the loop has other work."""
        self._n_steps += 1
        if timeout == 0 and self._n_steps < MAX_STEPS:
            return []
        self._n_steps = 0
        return super().select(timeout)


_links: dict[tuple[int, HubAddress], tuple[HubLink, int]] = {}
_links_lock = threading.Lock()


def use_link(address: HubAddress) -> HubLink:
    """Return this process's connection to a hub, and make it if necessary; `drop_link` ends its use.

    Errors as of `HubLink`, and a `TransportError` in a program that gevent has patched, where asyncio does not work.
    """
    if is_patched():
        raise TransportError("Expected a program with the system's threads for a hub, got one that gevent has patched")
    key = (os.getpid(), address)  # a forked child has no thread of its parent
    with _links_lock:
        link, n = _links.get(key, (None, 0))
        link = link or HubLink(address)
        _links[key] = (link, n + 1)
        return link


def use_connected_link(address: HubAddress) -> HubLink:
    """Return this process's connection to a hub once it stands; `drop_link` ends its use.

    Raises:
        MissingExtraError: nats-py is not installed.
        TransportError: The hub does not answer, or no thread can be started.
        RefusedError: The hub does not know the user, or they were revoked.
    """
    link = use_link(address)
    if not link.wait_connected(CONNECT_S):
        drop_link(link)
        refused = RefusedError if link.refused else TransportError
        raise refused(f"Cannot connect to the hub: {link.reason or f'no answer from {address.url}'}")
    return link


def drop_link(link: HubLink) -> None:
    """End a use of a connection, which closes with its last use."""
    key = (os.getpid(), link.address)
    with _links_lock:
        found, n = _links.get(key, (None, 0))
        if found is not link:
            return
        if n > 1:
            _links[key] = (link, n - 1)
            return
        del _links[key]
    link.close()


# How many messages of clients a process with runs takes in a second. The rest waits at the hub.
#
# NATS has no quotas on rates: a user with a key may send as fast as they can. Each message, with its answer, costs the
# process some 100 µs of the interpreter, which the training needs. What waits at the hub is bounded there: the hub ends
# the connection, as of any slow reader, and the process makes a new one.

MAX_RATE: Final = 1_000  # a tenth of a core; as many clients that ask at once are all answered within a second


class Pace:
    """The pace at which messages of clients are taken.

    Attributes:
        n_full: In how many seconds more came than are taken.
        sender: The user who sent most of them in the last of these seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_full = 0
        self.sender = ""
        self._clock = clock
        self._end_s = -math.inf  # of this second
        self._n = 0
        self._senders: Counter[str] = Counter()

    def count(self, user: str) -> None:
        """Count a message of a user."""
        if (now_s := self._clock()) >= self._end_s:
            self._end_s = now_s + 1.0
            self._n = 0
            self._senders.clear()
        self._n += 1
        self._senders[user] += 1

    def rest_s(self) -> float:
        """Return how long to take nothing more."""
        if self._n < MAX_RATE or (left_s := self._end_s - self._clock()) <= 0:
            return 0.0
        self.n_full += 1
        ((self.sender, _),) = self._senders.most_common(1)
        return left_s
