"""The clients of the soak: each a process forked from one that has imported everything, with a task of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sightglass as sg
from sightglass.client.run import RemoteRun
from sightglass.client.streams.stream import Stream
from sightglass.core.errors import RunLostError, SightglassError
from sightglass.protocol import discovery, messages
from sightglass.protocol.address import Address
from sightglass.protocol.zmq import ZmqChannel

from .formula import EVENTS, REDUCERS, SLEEPER, Question, StreamCheck, loss

POLL_S = 0.1
COMMAND_S = 4.0  # between two commands of a client: the history of a run holds 10,000, and is to stay below that
PATIENCE_S = 30.0  # after its time, a client that is still there is hung; machines with a load of 20 take some seconds
N_NUMBERS = 100_000  # of commands of one client
MEMORY_BYTES = 64 * 2**20  # that the client with a limit may take more
HELD = 5_000  # records that a client holds of each stream, so that those that stay long are as large as the others


@dataclass
class Client:
    """One client: what it needs to know, and what it reports.

    Attributes:
        number: Its number.
        name: The name of the run.
        folder: Where it reports.
        files: The run's connection files: a controller's, and a viewer's.
        link: The link to the page.
        leave_s: When it leaves, on the monotonic clock.
    """

    number: int
    name: str
    folder: Path
    files: tuple[Path, Path]
    link: str
    leave_s: float
    report: dict[str, Any] = field(default_factory=dict)
    random: random.Random = field(default_factory=random.Random)

    @property
    def over(self) -> bool:
        """Whether it is time to leave."""
        return time.monotonic() >= self.leave_s

    def note(self, what: str, number: int) -> None:
        """Append a number to a file, so that it is known even if this process is killed."""
        with (self.folder / what).open("a") as file:
            file.write(f"{number}\n")


Task = Callable[[Client], None]


def spawn(task: Task, client: Client) -> int:
    """Start a client in a process of its own; return its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        client.random.seed(client.number)
        with (client.folder / f"{client.number}.txt").open("w") as trace:
            faulthandler.enable(trace)  # a client that hangs is ended by SIGABRT, and tells where it was
            try:
                try:
                    task(client)
                except RunLostError as error:  # while it asked: it was stopped too long, or the run ended
                    client.report["told"] = str(error)
                code = 0
            except BaseException:
                trace.write(traceback.format_exc())
                raise
        (client.folder / f"{client.number}.json").write_text(json.dumps(client.report))
    finally:
        os._exit(code)


def follow(
    client: Client, run: RemoteRun, questions: Sequence[Question], *, each: Callable[[], None] | None = None
) -> None:
    """Ask questions and check every record, until it is time to leave or the run tells that it ended."""
    checks = [(StreamCheck(question), run.stream(question.query)) for question in questions]
    for _, stream in checks:
        stream.bound(max_records=HELD, max_bytes=2**26)
    read(client, checks, each=each)


def read(
    client: Client, checks: Sequence[tuple[StreamCheck, Stream]], *, each: Callable[[], None] | None = None
) -> None:
    """Check every record of streams, until it is time to leave or all have ended; report what came."""
    cursors = [0] * len(checks)

    def take() -> None:
        for i, (check, stream) in enumerate(checks):
            cursors[i], columns = stream.since(cursors[i])
            for record in columns.records(tag=stream.tag, run=stream.run):
                check.take(record)
            stream.forget(cursors[i])

    client.report["told"] = "left"
    while not client.over:
        over = all(stream.ended for _, stream in checks)
        take()
        if over:
            errors = {str(stream.error) for _, stream in checks if stream.error is not None}
            client.report["told"] = "; ".join(sorted(errors)) or "ended"
            break
        if each is not None:
            each()
        time.sleep(POLL_S)
    for _, stream in checks:
        stream.close()  # what arrives after the last look would be counted, and not read
    time.sleep(POLL_S)
    take()
    client.report["streams"] = [check.report(stream.statistics()) for check, stream in checks]


def connected(client: Client, target: str | Path | None = None) -> RemoteRun:
    """Connect to the run, by its name or a connection file."""
    return sg.connect(client.name if target is None else target, timeout_s=PATIENCE_S)


def commander(client: Client) -> Callable[[RemoteRun], None]:
    """Return a function that sends a command now and then, with a number of its own, and notes acknowledgements."""
    numbers = iter(range(client.number * N_NUMBERS, (client.number + 1) * N_NUMBERS))
    next_s = 0.0

    def command(run: RemoteRun) -> None:
        nonlocal next_s
        if time.monotonic() < next_s:
            return
        next_s, number = time.monotonic() + COMMAND_S, next(numbers)
        with contextlib.suppress(RunLostError):  # the run has ended, or this client's lease: the streams tell which
            run.set("knob", number)
            client.note("sent", number)
            told = run.call("apply", number)
            if told.applied:
                client.note("acknowledged", number)
                assert told.result == number, told

    return command


# The tasks


def plain(client: Client) -> None:
    """Follow one to three queries of events."""
    with connected(client) as run:
        follow(client, run, client.random.sample(EVENTS, client.random.randint(1, 3)))


def reducers(client: Client) -> None:
    """Follow one to three reducers."""
    with connected(client) as run:
        follow(client, run, client.random.sample(REDUCERS, client.random.randint(1, 3)))


def tcp(client: Client) -> None:
    """Follow the tensor and a reducer over TCP, with a controller's key."""
    with connected(client, client.files[0]) as run:
        follow(client, run, [EVENTS[1], client.random.choice(REDUCERS)])


def viewer(client: Client) -> None:
    """Ask over TCP with a viewer's key, and be refused a command."""
    with connected(client, client.files[1]) as run:
        with contextlib.suppress(RunLostError):
            try:
                run.call("apply", -1)
            except SightglassError as error:
                client.report["refused"] = type(error).__name__
        follow(client, run, [client.random.choice(EVENTS), client.random.choice(REDUCERS)])


def commands(client: Client) -> None:
    """Send commands, each with a number of its own, and follow the loss meanwhile."""
    command = commander(client)
    with connected(client, client.random.choice([None, client.files[0]])) as run:
        follow(client, run, [EVENTS[0]], each=lambda: command(run))


def publisher(client: Client) -> None:
    """Publish a stream as an event of the run, and follow that event."""
    with connected(client) as run:
        event = f"published{client.number}"
        with run.stream("batch.loss") as stream:
            stream.bound(max_records=HELD, max_bytes=2**26)
            run.publish(event, stream)
            follow(client, run, [Question(f"{event}.value", lambda step, n: loss(step), counted=False)])


def derived(client: Client) -> None:
    """Map and reduce in the client."""
    with connected(client) as run:
        doubled = run.stream("batch.n").map(lambda n: 2 * n).mean(every=10)
        question = Question("2 * batch.n, mean of 10 in the client", lambda step, n: 2 * step - (n - 1), stride=10,
                            contiguous=False)  # fmt: skip
        read(client, [(StreamCheck(question), doubled)])


def deaf(client: Client) -> None:
    """Ask for all tensors and never read an answer, but keep the lease."""
    entry = next(entry for entry in discovery.entries() if entry.name == client.name)
    with contextlib.closing(ZmqChannel(Address(endpoint=entry.endpoint))) as channel:
        channel.send(messages.encode(messages.Hello(version=messages.VERSION, client="deaf")))
        for request in (1, 2):
            channel.send(messages.encode(messages.Open(request=request, query=f"batch.x + {request}")))
        while not client.over:
            time.sleep(1.0)
            channel.send(messages.encode(messages.Ping()))
    client.report["told"] = "left"


def greedy(client: Client) -> None:
    """Take more memory with every record, until the limit kills this process."""
    with connected(client) as run:
        stream = run.stream("batch.x")
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES,) * 2)
        held: list[bytearray] = []
        try:
            for _ in stream:
                held.append(bytearray(2**18))
                if client.over:
                    break
        except MemoryError:
            os.kill(os.getpid(), signal.SIGKILL)  # as the system does
    client.report["told"] = "left"


def resident(client: Client) -> None:
    """Stay for the whole run, with streams of all kinds, and send commands."""
    command = commander(client)
    with connected(client) as run:
        follow(client, run, [*EVENTS[:5], *REDUCERS[:4], EVENTS[6]], each=lambda: command(run))


def sleeper(client: Client) -> None:
    """Follow two streams to the end, through a long sleep."""
    with connected(client) as run:
        follow(client, run, SLEEPER)


KINDS: dict[Task, int] = {
    plain: 6, reducers: 4, tcp: 3, viewer: 3, commands: 5, publisher: 2, derived: 2, deaf: 1, greedy: 1,
}  # fmt: skip
"""The tasks, and how many of each there are for one another."""
