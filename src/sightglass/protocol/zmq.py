"""ZeroMQ as a transport: a ROUTER in the run, a DEALER in each client.

Every client has its own bounded queue, and a full or missing one is reported at once (`ROUTER_MANDATORY`): nothing is
lost silently, as it would be with publish/subscribe. On one machine, clients use a Unix socket in a directory of the
user. On systems without Unix sockets, and on request, they use TCP, always with CURVE keys. The key of a peer decides
whether it may command: libzmq queries the handler here (ZeroMQ RFC 27, "ZAP"), and adds the reply to each message.

libzmq's own heartbeats stay off: if a peer dies while its queue is full, their timer ends the whole process (an
assertion in `out_event`, 4.3.5). Leases and the keep-alive of TCP detect peers that are gone.

The wake-up is a socket pair of the operating system, polled beside the ZeroMQ sockets.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections import deque
from pathlib import Path
from typing import Any, Final

import zmq
import zmq.utils.garbage  # for large messages; imported while Python exits, it changes the exit status of Ctrl-C

from sightglass.core.errors import TransportError
from sightglass.core.process.threads import shortage

from .address import Address, Keys, outer_address
from .messages import MAX_CLIENT_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from .transport import MAX_QUEUED, MAX_QUEUED_BYTES, Delivery, Frames, Sent

MAX_TAKEN: Final = 100  # messages in one turn, so that sending gets its turn too
MAX_UNREAD: Final = 1_000  # small requests; libzmq's own default
LINGER_MS: Final = 1_000  # for the last messages of a process that exits
HANDSHAKE_MS: Final = 10_000  # a slow network and a busy client; libzmq's own default is 30 s
KEEPALIVE_S: Final = 30  # often enough that firewalls do not drop an idle connection
ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
COPY_UNDER_BYTES: Final = 65_536  # below, copying is cheaper than libzmq's bookkeeping of a shared buffer
MAX_SOCKET_PATH: Final = 107
# With its first socket, a context starts 2 threads and opens 5 descriptors, and each socket opens up to 2 more. libzmq
# ends the process if the system refuses one of them, or memory; so they are probed.
N_THREADS: Final = 2
N_DESCRIPTORS: Final = 32  # 11 for a listener on both kinds of sockets; the rest is for clients and for the run's files
N_LISTENER_THREADS: Final = 2  # that a run starts itself: one to serve clients, one to write records
N_CHANNEL_THREADS: Final = 1  # that a client starts itself
N_BYTES: Final = 32 * 2**20  # the stacks of its threads, 8 MiB each, and as much again for queues and for Python


def new_keys() -> Keys:
    """Make a new pair of keys."""
    public, secret = zmq.curve_keypair()
    return Keys(public=public.decode(), secret=secret.decode())


class _Waiting:
    """What one thread waits for: messages on its sockets, and `wake` by other threads.

    Each system call lets go of the interpreter lock, and a program that is busy in Python may then keep it for
    milliseconds. So there is none between the end of a wait and the work that it is for: `ready` gives what the wait
    found, and the byte of a wake-up is read before the next wait. While a wake-up is under way it is not sent again.
    """

    def __init__(self) -> None:
        self._is_woken = self._has_byte = False
        self._found: set[Any] | None = None
        self._poller = zmq.Poller()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._poller.register(self._reader.fileno(), zmq.POLLIN)

    def add(self, one: zmq.Socket[bytes]) -> None:
        """Wait for the messages of a socket, too."""
        self._poller.register(one, zmq.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Wait, unless `wake` was called after the last `ready`."""
        if self._has_byte:
            self._reader.recv(4096)
        self._found = self._poll(0.0 if self._is_woken else timeout_s)

    def ready(self) -> set[Any]:
        """Return the sockets that have messages: those that the last wait found."""
        self._is_woken = False
        found, self._found = self._found, None
        return self._poll(0.0) if found is None else found

    def wake(self) -> None:
        """End a wait, or the next one."""
        if self._is_woken:
            return
        self._is_woken = True
        with contextlib.suppress(OSError):  # full: it is awake already; closed: nothing waits
            self._writer.send(b"\0")

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def _poll(self, timeout_s: float) -> set[Any]:
        found = {one for one, _ in self._poller.poll(math.ceil(max(0.0, timeout_s) * 1000))}
        self._has_byte = self._reader.fileno() in found
        return found


def _context(*, n_threads: int) -> zmq.Context[zmq.Socket[bytes]]:
    """Return a new context, if libzmq finds what it needs, and `n_threads` more threads can start beside its own.

    Make the first socket at once: another process may take what was free.

    Raises:
        TransportError: Something lacks.
    """
    if lack := shortage(n_threads=N_THREADS + n_threads, n_descriptors=N_DESCRIPTORS, n_bytes=N_BYTES):
        raise TransportError(f"Cannot start ZeroMQ: {lack}")
    try:
        context = zmq.Context()
    except zmq.ZMQError as error:
        raise TransportError(f"Cannot start ZeroMQ: {error}") from error
    context.linger = LINGER_MS  # libzmq's own is endless, and would block whatever drops a socket without closing it
    return context


class ZmqListener:
    """The run's end over ZeroMQ: a Unix socket, and TCP on request.

    Attributes:
        address: The address for clients of this user on this machine.
        viewer: The address and keys for viewers; `None` without TCP.
        controller: The address and keys for controllers; `None` without TCP.
    """

    def __init__(self, *, path: Path | None = None, listen: str | None = None) -> None:
        """Open the sockets.

        Args:
            path: The path of the Unix socket; without it, or on systems without Unix sockets, loopback TCP with keys.
            listen: A TCP endpoint to open as well, such as "tcp://0.0.0.0:0"; port 0 picks a free one.

        Raises:
            TransportError: An endpoint cannot be opened.
        """
        self._pid = os.getpid()
        self._context = _context(n_threads=N_LISTENER_THREADS)
        self._waiting = _Waiting()
        self._routers: list[zmq.Socket[bytes]] = []
        self._zap: zmq.Socket[bytes] | None = None
        self._roles: dict[bytes, bytes] = {}
        self._large: dict[bytes, deque[tuple[zmq.MessageTracker, int]]] = {}  # messages that libzmq holds, by peer
        self.viewer = self.controller = None
        try:
            use_ipc = path is not None and bool(zmq.has("ipc"))
            self.address = self._open_ipc(path) if use_ipc and path is not None else None
            if listen is not None or not use_ipc:
                self.viewer, self.controller = self._open_tcp(listen or "tcp://127.0.0.1:*")
                self.address = self.address or self.controller
        except (zmq.ZMQError, TransportError) as error:
            self.close()
            if isinstance(error, TransportError):
                raise
            raise TransportError(f"Cannot listen on {listen or path}: {error}") from error

    def wait(self, timeout_s: float) -> None:
        """Wait for messages, for at most this long."""
        self._waiting.wait(timeout_s)

    def receive(self) -> list[Delivery]:
        """Return the messages received."""
        ready = self._waiting.ready()
        if self._zap is not None and self._zap in ready:
            self._authenticate()
        deliveries: list[Delivery] = []
        for number, router in enumerate(self._routers):
            while router in ready and len(deliveries) < MAX_TAKEN:
                try:
                    parts = router.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    break
                peer = bytes([number]) + parts[0].bytes
                local = number == 0 and self.address is not None and not self.address.server
                key = "" if local or len(parts) < 2 else _user(parts[-1]) or ""
                may_command = local or key == "controller"
                deliveries.append(Delivery(peer, [part.bytes for part in parts[1:]], may_command, key))
        return deliveries

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        number, identity = peer[0], peer[1:]
        if number >= len(self._routers):
            return "gone"
        n_bytes = sum(map(len, frames))
        parts: list[Any] = [identity, *frames]
        largest: Any = None
        if n_bytes >= COPY_UNDER_BYTES:
            if self._held_bytes(peer) >= MAX_QUEUED_BYTES:
                return "full"
            place = max(range(1, len(parts)), key=lambda i: len(parts[i]))
            with contextlib.suppress(RuntimeError):  # the program exits: pyzmq no longer knows what libzmq has sent
                parts[place] = largest = zmq.Frame(parts[place], track=True, copy=False)
        try:
            self._routers[number].send_multipart(parts, zmq.NOBLOCK, copy=largest is None)
        except zmq.Again:
            return "full"
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._large.pop(peer, None)
            return "gone"
        if largest is not None:
            if peer not in self._large:  # forget the peers that have left
                self._large = {other: held for other, held in self._large.items() if held and not held[-1][0].done}
            self._large.setdefault(peer, deque()).append((largest.tracker, n_bytes))
        return "sent"

    def wake(self) -> None:
        """End a wait."""
        self._waiting.wake()

    def close(self) -> None:
        """Stop listening. In a forked child this does nothing: the sockets are the parent's."""
        if os.getpid() != self._pid:
            return
        for router in self._routers:
            router.close()
        if self._zap is not None:
            self._zap.close(0)
        self._waiting.close()
        self._context.term()

    def _held_bytes(self, peer: bytes) -> int:
        """Return the bytes of the large messages to a peer that libzmq has not passed to the system."""
        held = self._large.get(peer, deque())
        while held and held[0][0].done:
            held.popleft()
        return sum(n_bytes for _, n_bytes in held)

    def _router(self) -> zmq.Socket[bytes]:
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.SNDHWM, MAX_QUEUED)
        router.setsockopt(zmq.RCVHWM, MAX_UNREAD)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_CLIENT_MESSAGE_BYTES)
        router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        router.setsockopt(zmq.TCP_KEEPALIVE, 1)
        router.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
        return router

    def _open_ipc(self, path: Path) -> Address:
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise TransportError(f"Expected a Unix socket path of at most {MAX_SOCKET_PATH} bytes, got {str(path)!r}")
        router = self._router()
        self._routers.append(router)
        router.bind(f"ipc://{path}")
        self._waiting.add(router)
        return Address(endpoint=f"ipc://{path}")

    def _open_tcp(self, listen: str) -> tuple[Address, Address]:
        if not listen.startswith("tcp://") or ":" not in listen[6:]:
            raise TransportError(f"Expected an endpoint such as 'tcp://0.0.0.0:0', got {listen!r}")
        server, viewer, controller = new_keys(), new_keys(), new_keys()
        self._roles = {_raw_key(viewer.public): b"viewer", _raw_key(controller.public): b"controller"}
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(ZAP_ENDPOINT)
        self._waiting.add(self._zap)
        router = self._router()
        self._routers.append(router)
        router.curve_server = True
        router.curve_secretkey = server.secret.encode()
        router.curve_publickey = server.public.encode()
        router.setsockopt(zmq.ZAP_DOMAIN, b"sightglass")
        host, _, port = listen[6:].rpartition(":")
        router.setsockopt(zmq.IPV6, _is_ipv6(host))
        router.bind(f"tcp://{host}:{'*' if port in ('0', '*') else port}")
        bound = router.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        port = bound.decode().rstrip("\0").rpartition(":")[2]
        endpoint = f"tcp://{_reachable(host)}:{port}"
        self._waiting.add(router)
        return (
            Address(endpoint=endpoint, server=server.public, client=viewer),
            Address(endpoint=endpoint, server=server.public, client=controller),
        )

    def _authenticate(self) -> None:
        """Answer the authentication requests of libzmq: admit the two known keys, each with its role as user name."""
        assert self._zap is not None
        while True:
            try:
                question = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            version, request, _domain, _address, _identity, mechanism, *credentials = question
            role = self._roles.get(credentials[0], b"") if mechanism == b"CURVE" and credentials else b""
            status = (b"200", b"OK") if role else (b"400", b"unknown key")
            self._zap.send_multipart([version, request, *status, role, b""])


class ZmqChannel:
    """A client's end over ZeroMQ."""

    def __init__(self, address: Address) -> None:
        """Connect. Whether the run exists shows only when it replies.

        Raises:
            TransportError: The address is invalid, or no socket can be opened.
        """
        self._pid = os.getpid()
        self._context = _context(n_threads=N_CHANNEL_THREADS)
        try:
            self._socket = self._context.socket(zmq.DEALER)
            self._waiting = _Waiting()
        except (zmq.ZMQError, OSError) as error:
            self._context.destroy(0)
            raise TransportError(f"Cannot open a socket: {error}") from error
        self._waiting.add(self._socket)
        self._socket.setsockopt(zmq.SNDHWM, MAX_UNREAD)
        self._socket.setsockopt(zmq.RCVHWM, MAX_QUEUED)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        try:
            if address.client is not None:
                self._socket.curve_serverkey = address.server.encode()
                self._socket.curve_publickey = address.client.public.encode()
                self._socket.curve_secretkey = address.client.secret.encode()
            self._socket.setsockopt(zmq.IPV6, _is_ipv6(address.endpoint))
            self._socket.connect(address.endpoint)
        except (zmq.ZMQError, ValueError) as error:
            self.close()
            raise TransportError(f"Cannot connect to {address.endpoint}: {error}") from error

    def wait(self, timeout_s: float) -> None:
        """Wait for messages, for at most this long."""
        self._waiting.wait(timeout_s)

    def receive(self) -> list[Frames]:
        """Return the messages received."""
        ready = self._waiting.ready()
        messages: list[Frames] = []
        while self._socket in ready and len(messages) < MAX_TAKEN:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            messages.append([part.buffer for part in parts])
        return messages

    def send(self, frames: Frames) -> Sent:
        """Send to the run."""
        try:
            self._socket.send_multipart(list(frames), zmq.NOBLOCK, copy=_small(frames))
        except zmq.Again:
            return "full"
        return "sent"

    def wake(self) -> None:
        """End a wait."""
        self._waiting.wake()

    def close(self) -> None:
        """Disconnect. In a forked child this does nothing."""
        if os.getpid() != self._pid:
            return
        self._socket.close()
        self._waiting.close()
        self._context.term()


def _small(frames: Frames) -> bool:
    return all(len(frame) < COPY_UNDER_BYTES for frame in frames)


def _user(frame: Any) -> str | None:
    try:
        user: str | None = frame.get("User-Id")
    except zmq.ZMQError:
        return None
    return user


def _raw_key(public: str) -> bytes:
    from zmq.utils import z85

    return z85.decode(public.encode())


def _is_ipv6(address: str) -> bool:
    """Return whether libzmq must speak IPv6; of a name with both addresses, it would then try that one alone."""
    return "[" in address


def _reachable(host: str) -> str:
    """Return the address of this machine for other machines, if it listens on all of its addresses."""
    if host not in ("*", "0.0.0.0", "::", "[::]"):  # the names of "everywhere"
        return host
    return outer_address() or socket.gethostname()
