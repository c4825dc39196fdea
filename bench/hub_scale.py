"""Ten thousand runs and a thousand viewers on a hub: what runs say of themselves, over a modelled hub.

The runs and one viewer are the real code (`HubAnnouncement`, `HubDirectory`), on a clock of the model. The other
viewers are counted: what the hub hands to one, it hands to each. The model's hub delivers as many messages a second as
the real server does here, in order; the way takes half a millisecond; a viewer takes as long for a message as this one
did, and nats-py. Nobody asks for streams: those cost what `bench.hub` says, for each run.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import selectors
import socket
import subprocess
import time
import tracemalloc
import types
from collections.abc import Iterator

from sightglass.hub import presence
from sightglass.hub.address import HubAddress
from sightglass.hub.link import BEAT_S, Pace
from sightglass.hub.presence import BEAT_EVERY_S, HubAnnouncement, HubDirectory
from sightglass.hub.service.nats_server import nats_server
from sightglass.protocol.discovery import LiveRun

from .row import Row

N_RUNS, N_VIEWERS = 10_000, 1_000
WAY_S = 0.0005
NATS_PY_S = 10e-6  # to take a message off the socket, as of the flood in tests/hub/test_faults.py
PERIOD_S = math.ceil(BEAT_EVERY_S / BEAT_S) * BEAT_S  # between two signs of life: runs look once in `BEAT_S`
MEASURED_S = 2.0
N_SUBSCRIBERS = 16
ADDRESS = HubAddress(url="nats://model:4222")


class ModelHub:
    """A hub with runs, one real viewer, and others that are counted. It stands for the link of each of them, too."""

    connected, is_foreign, reason, n_dropped = True, False, "", 0

    def __init__(self, *, per_s: float, n_viewers: int, take_s: float) -> None:
        self.now_s = 0.0
        self.n_in = self.n_out = self.out_bytes = 0
        self.pace = Pace(clock=lambda: self.now_s)
        self._per_s, self._n_viewers, self._take_s = per_s, n_viewers, take_s
        self._free_s = self._viewer_free_s = 0.0
        self._runs: list[HubAnnouncement] = []
        self._viewer: HubDirectory | None = None
        self._due: list[tuple[float, int, str, bytes]] = []
        self._order = itertools.count()

    def wait_connected(self, timeout_s: float) -> bool:
        """Return at once."""
        return True

    def join(self, user: HubAnnouncement | HubDirectory) -> None:
        """Deliver to a run or to the viewer from now on."""
        if isinstance(user, HubDirectory):
            self._viewer = user
        else:
            self._runs.append(user)

    def leave(self, user: object) -> None:
        """Do nothing: the model ends with them."""

    def send(self, subject: str, pieces: list[bytes]) -> bool:
        """Take a message, and hand it out once all before it are handed out."""
        kind = subject.split(".")[1]
        n = {"live": self._n_viewers, "who": len(self._runs), "here": 1}[kind]
        self.n_in, self.n_out = self.n_in + 1, self.n_out + n
        self.out_bytes += n * (len(pieces[0]) + len(subject))
        self._free_s = max(self._free_s, self.now_s + WAY_S) + n / self._per_s
        heapq.heappush(self._due, (self._free_s + WAY_S, next(self._order), subject, pieces[0]))
        return True

    def turn(self) -> None:
        """Let the next message arrive."""
        self.now_s, _, subject, data = heapq.heappop(self._due)
        if subject.split(".")[1] == "who":
            for run in self._runs:
                self.pace = Pace(clock=lambda: self.now_s)  # each has a process of its own
                run.received(subject, data)
        elif self._viewer is not None:
            self._viewer_free_s = max(self._viewer_free_s, self.now_s) + self._take_s
            self._viewer.received(subject, data)

    def live(self, until_s: float, beats: list[tuple[float, int, HubAnnouncement]]) -> None:
        """Let time pass; `beats` holds when each run next looks whether to say that it lives."""
        while min(beats[0][0], self._due[0][0] if self._due else until_s) < until_s:
            if not self._due or beats[0][0] <= self._due[0][0]:
                self.now_s, n, run = beats[0]
                run.beat()
                heapq.heapreplace(beats, (self.now_s + BEAT_S, n, run))
            else:
                self.turn()

    def seconds_to_table(self) -> float:
        """Return how long a viewer that comes now needs until it knows all runs."""
        came_s = self.now_s
        viewer = HubDirectory(ADDRESS, clock=lambda: self.now_s)
        while len(viewer._runs) < len(self._runs):
            self.turn()
        return max(self.now_s, self._viewer_free_s) - came_s


def measure() -> Iterator[Row]:
    """Yield the rows."""
    per_s = delivered_per_s()
    take_s, table_mb, answer_s = own_costs()
    take_s, answer_s = take_s + NATS_PY_S, answer_s + 2 * NATS_PY_S  # a run takes a message, and sends one
    n_full = per_s / (N_RUNS / PERIOD_S)
    hub = _settled(n_viewers=N_VIEWERS, per_s=1e12, take_s=take_s)
    yield Row(f"{N_RUNS:,} runs: messages/s to the hub", hub.n_in / (2 * PERIOD_S), "/s", None)
    yield Row(f"  and from it to {N_VIEWERS:,} viewers", hub.n_out / (2 * PERIOD_S) / 1e6, "M/s", None)
    yield Row("  the same in bytes", hub.out_bytes / (2 * PERIOD_S) / 1e6, "MB/s", None)
    yield Row("messages/s that the real server hands out here", per_s / 1e6, "M/s", None)
    yield Row(f"  so many viewers of {N_RUNS:,} runs are too many", n_full, "", None)
    for n_viewers in (1, int(n_full / 2)):
        hub = _settled(n_viewers=n_viewers, per_s=per_s, take_s=take_s)
        yield Row(f"until a new viewer knows all, beside {n_viewers:,}", hub.seconds_to_table(), "s", 10)
    yield Row("a viewer's processor time for the runs' signs of life", 1e3 * take_s * N_RUNS / PERIOD_S, "ms/s", None)
    yield Row("  and the memory of its table", table_mb, "MB", None)
    yield Row(f"{N_VIEWERS:,} viewers come at once: processor time of each run", N_VIEWERS * answer_s, "s", None)
    yield Row("  and time of the real server for the replies", N_RUNS * N_VIEWERS / per_s, "s", None)


def _settled(*, n_viewers: int, per_s: float, take_s: float) -> ModelHub:
    """Return a hub whose runs have said twice that they live."""
    hub = ModelHub(per_s=per_s, n_viewers=n_viewers, take_s=take_s)
    _use(hub)
    rng = random.Random(0)
    runs = [HubAnnouncement(ADDRESS, entry(n)) for n in range(N_RUNS)]
    beats = sorted((rng.uniform(0, PERIOD_S), n, run) for n, run in enumerate(runs))
    hub.live(2 * PERIOD_S, beats)
    return hub


def _use(hub: ModelHub) -> None:
    """Put the model in the place of the connection and of the clock."""
    presence.use_link = lambda address: hub
    presence.drop_link = lambda link: None
    presence.time = types.SimpleNamespace(monotonic=lambda: hub.now_s)


def entry(n: int) -> LiveRun:
    """Return what a run says of itself."""
    return LiveRun(
        name=f"sweep-{n:05}-lr-0.001", id=f"{n:012x}", pid=n, host=f"node-{n % 500:03}", started=1.7e9 + n, endpoint="",
        directory=f"/data/projects/vision/runs/sweep-{n:05}-2026-11-24",
    )  # fmt: skip


def own_costs() -> tuple[float, float, float]:
    """Return the seconds that a viewer takes for a message, the MB of its table, and the seconds of a run's answer."""
    hub = ModelHub(per_s=1e12, n_viewers=1, take_s=0.0)
    _use(hub)
    runs = [HubAnnouncement(ADDRESS, entry(n)) for n in range(N_RUNS)]
    began_s = time.process_time()
    for run in runs:
        run.received("sightglass.who.anyone.0", b"")
    answer_s = (time.process_time() - began_s) / N_RUNS
    said = [(subject, data) for _, _, subject, data in hub._due]
    tracemalloc.start()
    viewer = HubDirectory(ADDRESS)
    for subject, data in said:
        viewer.received(subject, data)
    table_mb = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    began_s = time.process_time()
    for subject, data in said:
        viewer.received(subject, data)
    return (time.process_time() - began_s) / N_RUNS, table_mb, answer_s


def delivered_per_s() -> float:
    """Return how many messages of a sign of life a second a real server hands out on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    body = bytes(300)
    publish = b"PUB sightglass.live.node.0123456789ab %d\r\n%s\r\n" % (len(body), body)
    handed = len(b"MSG sightglass.live.node.0123456789ab 1 300\r\n\r\n") + len(body)
    with subprocess.Popen([nats_server(), "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            sockets = [_connected(port) for _ in range(N_SUBSCRIBERS + 1)]
            *readers, writer = sockets
            with selectors.DefaultSelector() as ready:
                for reader in readers:
                    reader.sendall(b"SUB sightglass.live.*.* 1\r\n")
                    ready.register(reader, selectors.EVENT_READ)
                n_bytes, end_s = 0, time.monotonic() + MEASURED_S
                while time.monotonic() < end_s:
                    writer.sendall(20 * publish)
                    for key, _ in ready.select(0):
                        n_bytes += len(key.fileobj.recv(2**20))
            for one in sockets:
                one.close()
            return n_bytes / handed / MEASURED_S
        finally:
            server.terminate()


def _connected(port: int) -> socket.socket:
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), 5.0)
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        connection.recv(4096)
        connection.sendall(b'CONNECT {"verbose":false}\r\n')
        return connection
