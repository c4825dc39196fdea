"""What clients may do to a run: die, stop, flood it, send it nonsense. The run goes on; the others get every record."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from pathlib import Path

import pytest
import zmq

import sightglass as sg
from sightglass.protocol import messages

READER = """
with sg.connect(sys.argv[1], on_lost="raise") as run:
    stream = run.stream(sys.argv[2])
    stream.wait(3, timeout_s=60)
    say("reads")
    try:
        for record in stream:
            pass
    except sg.RunLostError as error:
        say("lost", stream.statistics().n_lost, stream.statistics().n_records)
        say("told", error)
"""


def resident_bytes(pid: int) -> int:
    """Return how much memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def endpoint(pid: int) -> str:
    """Return where the run of a process listens, from its entry."""
    from sightglass.protocol import discovery

    return next(entry.endpoint for entry in discovery.entries() if entry.pid == pid)


class Raw:
    """A client without manners."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(address)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exception: object) -> None:
        self.context.destroy(linger=0)

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def says(self, message: messages.Message) -> None:
        self.send(*messages.encode(message))

    def gets(self, timeout_s: float = 30.0):
        assert self.socket.poll(int(timeout_s * 1000)), "no answer in time"
        return messages.decode_from_agent(self.socket.recv_multipart())[0]

    def hello(self) -> None:
        self.says(messages.Hello(version=messages.VERSION, client="raw"))
        assert isinstance(self.gets(), messages.Welcome)


@pytest.mark.slow
def test_a_killed_client_costs_nothing_when_its_lease_has_ended(train, start, until):
    run_process = train()
    reader = start(READER, "job", "batch.loss.mean(every=2)")
    pauser = start("run = sg.connect('job'); run.stream('batch.step.max(every=2)'); say('asked'); time.sleep(60)")
    reader.hears("reads")
    pauser.hears("asked")
    with sg.connect("job") as run:
        assert len(run.describe().streams) == 2
        reader.send(signal.SIGKILL)
        pauser.send(signal.SIGKILL)
        until(lambda: not run.describe().streams)
        until(lambda: run.describe().n_clients == 1)
    run_process.goes_on()


@pytest.mark.slow
def test_a_suspended_client_costs_bounded_memory_and_learns_of_it(start, until):
    child = start(
        """
        run = sg.init("job", budget=None)
        say("ready")
        x, step = np.zeros(125_000), 0
        while not run.stopping:
            run.observe("batch", step=step, loss=1.0, x=x)
            step += 1
            if step % 100 == 0:
                say("step", step)
            time.sleep(0.002)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    reader = start(READER, "job", "batch.x")  # a megabyte per record
    reader.hears("reads")
    with sg.connect("job") as run:
        mine = run.stream("batch.loss")
        mine.wait(1, timeout_s=60)
        before = resident_bytes(child.pid)
        reader.send(signal.SIGSTOP)
        stopped_s, n_before, most = time.monotonic(), mine.statistics().n_records, 0
        while run.describe().n_clients > 1:
            most = max(most, resident_bytes(child.pid))
            assert time.monotonic() - stopped_s < 60
            time.sleep(0.05)
        assert most - before < 500 * 2**20
        reader.send(signal.SIGCONT)
        n_records = int(reader.hears("lost")[1])
        assert "Connect again" in " ".join(reader.hears("told"))
        assert n_records > 3
        assert mine.statistics().n_lost == 0
        assert mine.statistics().n_records > n_before
        child.goes_on()
        run.stop()
    assert child.ends() == 0


def test_a_client_stopped_for_a_moment_sees_what_it_lost(start):
    child = start(
        """
        from sightglass.training import clients, io_loop
        clients.LEASE_S, io_loop.MAX_OUTBOX_MESSAGES = 60.0, 100
        run = sg.init("job", budget=None)
        say("ready")
        until(lambda: run._telemetry.subscriptions.active)
        time.sleep(0.5)
        for step in range(1_000_000):
            if run.stopping: break
            run.observe("batch", step=step, x=np.zeros(5_000))
            time.sleep(0.001)
            if step % 200 == 0: say("step", step)
        run.close()
        say("made", step)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    reader = start(
        """
        with sg.connect("job") as run:
            stream = run.stream("batch.x")
            say("reads")
            records = list(stream)
            say("got", len(records), stream.statistics().n_lost, records[-1].index + 1)
        """.replace("\n        ", "\n")
    )
    reader.hears("reads")
    child.hears("step")
    reader.send(signal.SIGSTOP)
    for _ in range(12):
        child.hears("step")
    reader.send(signal.SIGCONT)
    child.hears("step")
    with sg.connect("job") as run:
        run.stop()
    made = int(child.hears("made")[0])
    n_records, n_lost, n_all = map(int, reader.hears("got"))
    assert n_lost > 0
    assert n_records + n_lost == n_all == made


def test_flooding_requests(train, until):
    child = train()
    with sg.connect("job") as run, Raw(endpoint(child.pid)) as raw:
        stream = run.stream("batch.loss")
        raw.hello()
        before = resident_bytes(child.pid)
        frames = messages.encode(messages.Ask(request=1, what="describe"))
        ends_s = time.monotonic() + 3
        n_sent = 0
        while time.monotonic() < ends_s or n_sent <= 5_000:  # and never reads an answer
            assert time.monotonic() < ends_s + 60
            try:
                raw.socket.send_multipart(frames, zmq.NOBLOCK)
                n_sent += 1
            except zmq.Again:
                time.sleep(0.001)
        child.goes_on()
        n = stream.statistics().n_records
        stream.wait(n + 100, timeout_s=60)
        assert resident_bytes(child.pid) - before < 200 * 2**20
        assert stream.statistics().n_lost == 0


FLOODER = """
import zmq
from sightglass.protocol import messages
socket = zmq.Context().socket(zmq.DEALER)
socket.sndhwm = 0
socket.connect(sys.argv[1])
socket.send_multipart(messages.encode(messages.Hello(version=messages.VERSION, client="flooder")))
frames = messages.encode(messages.Ask(request=1, what="describe"))
for _ in range(50_000):
    socket.send_multipart(frames)
say("sent")
time.sleep(60)
"""


@pytest.mark.slow
def test_a_flooder_that_is_killed_while_its_queue_is_full(train, start):
    """Where a queue is full, some timers of libzmq end the process: they must be off in the run."""
    child = train()
    flooder = start(FLOODER, endpoint(child.pid))
    flooder.hears("sent")
    flooder.send(signal.SIGKILL)
    flooder.ends()
    killed_s = time.monotonic()
    while time.monotonic() - killed_s < 4:
        child.goes_on()
    with sg.connect("job") as run:
        assert run.describe().state == "running"


def test_an_old_version_is_refused_with_a_reason(train):
    child = train()
    with Raw(endpoint(child.pid)) as raw:
        raw.says(messages.Hello(version=0, client="old"))
        refused = raw.gets()
        assert "version 2, got 0" in refused.reason
        raw.says(messages.Ask(request=1, what="describe"))
        assert "hello" in raw.gets().reason
    child.goes_on()


def test_nonsense_is_refused_once_and_its_sender_ignored(train):
    child = train()
    with sg.connect("job") as run, Raw(endpoint(child.pid)) as raw:
        stream = run.stream("batch.loss")
        raw.hello()
        raw.send(b"\xc1nonsense")
        assert "message of version 2" in raw.gets().reason
        raw.says(messages.Hello(version=messages.VERSION, client="raw"))
        assert not raw.socket.poll(300)
        n = stream.statistics().n_records
        stream.wait(n + 50, timeout_s=60)


def near_messages(rng: random.Random) -> list[list[bytes]]:
    """Make messages that are almost right."""
    number, text = rng.choice([0, 1, -1, 2**63 - 1]), rng.choice(["", "batch.loss", "\0", "é" * 100, "x" * 10_000])
    blob = rng.choice([b"", b"\x01", b"\xc1", rng.randbytes(40), b"\xdc\xff\xff"])
    whole = [
        messages.Hello(version=messages.VERSION, client=text),
        messages.Ping(),
        messages.Ask(request=number, what=text),
        messages.Open(request=number, query=text),
        messages.Close(stream=number),
        messages.EndGroup(request=number, stream=number),
        messages.RunCommand(request=number, kind=rng.choice(["set", "call", "resume", text]), name=text, value=blob,
                            at=text),
        messages.Publish(request=1, event=rng.choice([text, "log", "batch"])),
        messages.Block(stream=1, index=number, n=rng.choice([0, 1, -1, 2**40]),
                       steps=rng.choice([b"d" + bytes(8), blob]), wall_times=rng.choice([bytes(8), blob]),
                       values=rng.choice([b"\x91\x01", b"\x90", blob]),
                   n_events=blob, flags=blob, tracks=blob),
    ]  # fmt: skip
    made = []
    for message in whole:
        frames = [bytes(frame) for frame in messages.encode(message)]
        made.append(frames)
        cut = bytearray(frames[0])
        if cut:
            cut[rng.randrange(len(cut))] = rng.randrange(256)
        made += [[bytes(cut)], [frames[0][: rng.randrange(len(cut) + 1)]], [*frames, rng.randbytes(rng.randrange(50))]]
    made += [[b""], [b"", b""], [rng.randbytes(rng.randrange(300))], [b"\x93" * 5_000], [b""] * 5_000]
    return made


@pytest.mark.slow
def test_fuzzed_frames(train):
    child = train()
    rng = random.Random(0)
    address = endpoint(child.pid)
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        for _ in range(8):
            for frames in near_messages(rng):
                with Raw(address) as raw:
                    raw.hello()
                    if frames[0][1:10].endswith(b"block"):
                        raw.says(messages.Publish(request=1, event="mine"))
                    raw.send(*frames)
                    raw.says(messages.Ping())
                    raw.gets()
        child.goes_on()
        n = stream.statistics().n_records
        stream.wait(n + 50, timeout_s=60)
        assert stream.statistics().n_lost == 0
        assert run.describe().state == "running"
        assert run.describe().controls["lr"].value == 0.1


def test_random_bytes_on_the_socket_itself(train):
    child = train()
    rng = random.Random(1)
    path = endpoint(child.pid).removeprefix("ipc://")
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\0" + bytes(31)
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        keep = []
        for i in range(200):
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(path)
            data = rng.randbytes(rng.randrange(1, 2_000))
            if i % 4 == 1:
                data = greeting[: rng.randrange(len(greeting) + 1)]
            elif i % 4 == 2:
                data = greeting + data
            elif i % 4 == 3:
                data = b"\x01\0" + bytes([len(data) % 200, 0]) + data  # the oldest protocol has no greeting
            try:
                peer.sendall(data)
            except OSError:
                pass
            keep.append(peer)
        child.goes_on()
        for peer in keep:
            peer.close()
        n = stream.statistics().n_records
        stream.wait(n + 50, timeout_s=60)
        assert stream.statistics().n_lost == 0
        with sg.connect("job") as other:
            assert other.describe().state == "running"


def test_an_unfinished_message_delays_no_other_client(train):
    child = train()
    with Raw(endpoint(child.pid)) as raw, sg.connect("job") as run:
        raw.hello()
        for _ in range(1_000):
            raw.socket.send(b"part", zmq.SNDMORE)
        stream = run.stream("batch.loss")
        stream.wait(50, timeout_s=60)
        assert run.set("lr", 0.2).applied
        child.goes_on()


def test_limits_of_one_client(train):
    child = train()
    from sightglass.training.client_subscriptions import MAX_STREAMS

    with Raw(endpoint(child.pid)) as raw:
        raw.hello()
        for i in range(MAX_STREAMS + 1):
            raw.says(messages.Open(request=i, query=f"(batch.loss * {i}).sum(every=100000)"))
        reasons = []
        while not reasons:
            message = raw.gets()
            if isinstance(message, messages.Refused):
                reasons.append(message.reason)
        assert reasons == [f"Expected at most {MAX_STREAMS} streams of a client, got more"]
    child.goes_on()
