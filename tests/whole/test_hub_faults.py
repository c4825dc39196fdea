"""A hub through the faults of real machines: the training goes on, the message is clear, each loss is counted."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, TRAINING, Hub, Trained, all_counted, listed, needs_server, wait_until

import sightglass as sg
from sightglass.core.errors import RunLostError, SightglassError, TransportError
from sightglass.hub.store import make_stores
from sightglass.protocol.hub_link import drop_link, use_link
from sightglass.protocol.hub_pace import MAX_RATE
from sightglass.protocol.hub_presence import BEAT_EVERY_S, GONE_S, HubDirectory
from sightglass.protocol.kept_reader import KeptReader
from sightglass.protocol.nats_client import tls
from sightglass.server import certificate

pytestmark = [needs_server, pytest.mark.slow]
nats = pytest.importorskip("nats")


@pytest.fixture
def train(start: Any, hub: Hub) -> Callable[..., Any]:
    """Return a function that starts a training on the hub and waits until it has begun."""

    def train(name: str = "job", **environment: str) -> Any:
        child = start(TRAINING, name, **{"SIGHTGLASS_HUB": str(hub.files["P", "node"]), **environment})
        (child.id,) = child.hears("ready")
        return child

    return train


def reached(hub: Hub, name: str = "job", user: str = "bob", **options: Any) -> Any:
    """Connect; a machine that is busy answers late."""

    def connect() -> Any:
        with contextlib.suppress(SightglassError):
            return sg.connect(name, hub=hub.files["P", user], **options)

    return wait_until(connect, f"{name} answers")


class Between:
    """What carries the bytes between a machine and a server, and may stall, or cut all connections."""

    def __init__(self, port: int) -> None:
        self._to, self._listener = ("127.0.0.1", port), socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def stall(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        for pair in self._pairs:
            end(*pair)

    def close(self) -> None:
        end(self._listener)
        self.go_on()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for one in (self._listener, *(one for pair in self._pairs for one in pair)):
            one.close()

    def _begin(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                here, there = self._listener.accept()[0], socket.create_connection(self._to, PATIENCE_S)
                self._pairs.append((here, there))
                self._begin(self._carry, here, there)
                self._begin(self._carry, there, here)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                self._flows.wait()
                other.sendall(data)
        end(one, other)


def end(*sockets: socket.socket) -> None:
    """End connections without closing the sockets, which others wait for."""
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def between(hub: Hub) -> Iterator[Between]:
    """Put something between the trainings and the hub."""
    between = Between(hub.server.port)
    file = hub.files["P", "node"]
    file.write_text(file.read_text().replace(f":{hub.server.port}", f":{between.port}"))
    yield between
    between.close()


def test_a_connection_that_stalls_for_a_moment_costs_no_record(hub: Hub, between: Between, train: Any) -> None:
    child = train()
    with reached(hub) as remote:
        stream = remote.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        between.stall()
        child.goes_on()
        n = int(child.hears("step")[0])
        between.go_on()
        wait_until(lambda: stream.latest.step > n, "the stream goes on")
        assert remote.stop().applied
        all_counted(stream, child)
        assert (remote.n_reconnects, stream.statistics().n_lost) == (0, 0)


def test_connections_that_are_cut_or_stall_for_long_leave_counted_gaps(hub: Hub, between: Between, train: Any) -> None:
    child = train(PING_S="0.5")
    with reached(hub) as remote, sg.connect("job") as local:
        stream = remote.stream("batch.n")
        for fault in (between.cut, between.stall):
            stream.wait(stream.statistics().n_records + 20, timeout_s=PATIENCE_S)
            n_before = int(local.describe().failures.get("The hub", "0;").partition(";")[0])
            fault()
            wait_until(
                lambda n=n_before: int(local.describe().failures.get("The hub", "0;").partition(";")[0]) > n,
                "the run notices",
            )
            child.goes_on()
            between.go_on()
            between.cut()  # what is still in between is gone with its connections
            child.goes_on()
            n = int(child.hears("step")[0])
            wait_until(lambda n=n: stream.latest.step > n, "the stream goes on")
        assert re.search(
            "run 'job' continues without it, and connects when it can: ", local.describe().failures["The hub"]
        )
        assert remote.stop().applied
        all_counted(stream, child)


@pytest.mark.parametrize("store", ["empty", "full"])
def test_a_server_that_is_killed_comes_back_whatever_is_in_its_store(hub: Hub, train: Any, store: str) -> None:
    folder = Path(json.loads(hub.server.config)["jetstream"]["store_dir"])
    if store == "full":
        hub.folder.prepare(keep_bytes=100_000)
        make_stores(hub.folder, url=hub.address("node").url)
        fill(hub)
    child = train()
    with reached(hub) as remote:
        stream = remote.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        hub.server.kill()
        child.goes_on()
        if store == "empty":
            shutil.rmtree(folder / "jetstream")
        hub.server.start()
        child.goes_on()
        n = int(child.hears("step")[0])
        wait_until(lambda: stream.latest.step > n, "the stream goes on")
        assert remote.stop().applied
        all_counted(stream, child)


def fill(hub: Hub) -> None:
    """Fill the store of a project until it leaves out the oldest."""
    link, reader = use_link(hub.address("other")), KeptReader(hub.address("ann"))
    subject = "sightglass.kept.other.x.1.records"
    try:
        assert link.wait_connected(PATIENCE_S)
        link.send(subject, [b"%d" % n + bytes(10_000) for n in range(50)])

        def kept() -> list[int]:
            reader.read(subject)
            return [int(one.data.rstrip(bytes(1))) for one in reader.read_all(PATIENCE_S)]

        wait_until(lambda: kept()[-1:] == [49], "all are stored")
        assert 1 < len(kept()) < 10
    finally:
        reader.close()
        drop_link(link)


def test_clocks_that_differ_by_minutes_and_two_runs_of_one_name(hub: Hub, train: Any) -> None:
    first, second = train(AHEAD_S="300"), train(AHEAD_S="-300")
    file = hub.files["P", "bob"]
    wait_until(lambda: listed(file) == ["job", "job"], "both are found")
    assert [run.id for run in sg.runs(hub=file)] == [second.id, first.id]
    with pytest.warns(UserWarning, match=f"2 live runs.*'job'.*{second.id}.*{first.id}"):
        newest = sg.connect("job", hub=file)
    with newest, reached(hub, first.id) as other:
        assert (newest.id, other.id) == (second.id, first.id)
        streams = [run.stream("batch.n") for run in (newest, other)]
        for stream in streams:
            stream.wait(20, timeout_s=PATIENCE_S)
        assert newest.stop().applied
        all_counted(streams[0], second)
        first.goes_on()
        assert other.stop().applied
        all_counted(streams[1], first)
        assert other.n_reconnects == 0


def test_a_run_that_stands_still_is_gone_after_some_seconds_and_comes_back(hub: Hub, train: Any) -> None:
    child = train()
    with reached(hub) as remote, contextlib.closing(HubDirectory(hub.address("ann"))) as directory:
        stream = remote.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        wait_until(directory.runs, "it is found")
        child.send(signal.SIGSTOP)
        stopped_s = time.monotonic()
        wait_until(lambda: not directory.runs(), "it is gone")
        assert time.monotonic() - stopped_s > GONE_S - BEAT_EVERY_S - 1.0
        child.send(signal.SIGCONT)
        wait_until(directory.runs, "it is back")
        child.goes_on()
        n = int(child.hears("step")[0])
        wait_until(lambda: stream.latest.step > n, "the stream goes on")
        assert remote.stop().applied
        all_counted(stream, child)


def test_a_user_who_floods_costs_the_training_little_and_is_named(hub: Hub, train: Any) -> None:
    child = train(PING_S="0.5")
    with reached(hub) as remote, sg.connect("job") as local:
        stream = remote.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        with flooding(hub, "ann", child.id) as n_sent:
            told = wait_until(lambda: local.describe().failures, "it is told")
            assert (
                "take 1,000 messages a second, and leave the rest at the hub: user 'ann' sends more" in told["The hub"]
            )
            wait_until(lambda: n_sent[0] > 20 * MAX_RATE, "it is a flood")
        child.goes_on()
        n = int(child.hears("step")[0])
        wait_until(lambda: stream.latest.step > n, "the stream goes on")
        assert remote.stop(timeout_s=PATIENCE_S).applied
        all_counted(stream, child)


@contextlib.contextmanager
def flooding(hub: Hub, user: str, id: str) -> Iterator[list[int]]:
    """Send as fast as the server takes it what a viewer may, until the end of the block; count the messages."""
    address = hub.address(user)
    n_sent, client = [0], "0" * 24
    ask = f"PUB sightglass.ask.{user}.node.{id}.{client} 9\r\n\x02{chr(0) * 8}\r\n"
    block = (ask + f"PUB sightglass.who.{user}.{client} 0\r\n\r\n").encode() * 200
    options = {"user": f"P.{user}", "pass": address.key, "verbose": False, "protocol": 1}
    with (
        socket.create_connection(("127.0.0.1", hub.server.port), PATIENCE_S) as plain,
        tls(address.certificate).wrap_socket(plain) as connection,
    ):
        connection.sendall(f"CONNECT {json.dumps(options)}\r\n".encode())
        over = threading.Event()

        def send() -> None:
            while not over.is_set():
                connection.sendall(block)
                n_sent[0] += 400

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield n_sent
        finally:
            over.set()
            thread.join(PATIENCE_S)


@pytest.mark.filterwarnings("ignore:The hub")
@pytest.mark.parametrize(
    ("valid", "message"),
    [
        ((-2, -1), "hub at .* has expired"),
        ((1, 2), "hub at .* not yet valid"),
        ((-1, 1), "has another certificate"),
    ],
    ids=["expired", "not yet valid", "another one"],
)
def test_a_wrong_certificate_is_named_and_the_training_goes_on(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, valid: tuple[int, int], message: str
) -> None:
    begin, end = (datetime.timedelta(days=days) for days in valid)
    monkeypatch.setattr(certificate, "EARLIER", -begin)
    pem = certificate.made(["sightglass-hub"], valid=end - begin)
    hub.server.kill()
    Path(json.loads(hub.server.config)["tls"]["cert_file"]).write_bytes(pem)
    hub.server.start()
    if "another" not in message:
        shown = pem.decode()[pem.decode().index("-----BEGIN CERTIFICATE") :]
        for file in hub.files.values():
            file.write_text(json.dumps(json.loads(file.read_text()) | {"certificate": shown}))
    with sg.init("lone", hub=hub.files["P", "node"]) as run, sg.connect(run) as local, Trained(run) as trained:
        failures = wait_until(lambda: local.describe().failures, "it is told")
        assert re.search(f"^1?.*run 'lone' continues without it, .*{message}", failures["The hub"])
        with pytest.raises(TransportError, match=message):
            sg.runs(hub=hub.files["P", "ann"])
        n = trained.n
        wait_until(lambda: trained.n > n + 50, "the training goes on")


def test_arrays_of_20_mb_reach_two_viewers_or_are_counted(hub: Hub, train: Any) -> None:
    child = train(SIZE="2500000", PACE_S="0.2", EVERY="5")
    with reached(hub, user="ann") as one, reached(hub) as two:
        streams = [run.stream("batch.x") for run in (one, two)]
        firsts = []
        for stream in streams:
            records = stream.wait(3, timeout_s=PATIENCE_S)
            assert all(record.value.nbytes == 20_000_000 and (record.value == record.step).all() for record in records)
            firsts.append(records[0].step)
        child.goes_on()
        assert two.stop().applied
        made = int(child.hears("made")[0])
        for stream, first in zip(streams, firsts, strict=True):
            cut = ""
            try:
                list(stream)  # until it ends
            except RunLostError as error:  # the run does not wait for a client to which nothing comes for half a second
                cut = str(error)
            counts = stream.statistics()
            n_uncounted = made - first - counts.n_records - counts.n_lost
            assert n_uncounted == 0 or "has ended before all its records arrived" in cut
