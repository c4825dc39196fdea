"""What clients may do to a run: die, stand still, flood it. The run goes on; the others get every record."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.protocol import discovery

from .conftest import wait_until

READER = """
with sg.connect("job", on_lost="raise") as run:
    stream = run.stream(sys.argv[1])
    stream.wait(3, timeout_s=60)
    say("reads")
    try:
        for record in stream:
            pass
    except sg.RunLostError as error:
        say("lost", stream.statistics().n_lost, stream.statistics().n_records)
        say("told", error)
"""

PAUSER = """
run = sg.connect("job")
assert run.pause().applied
say("paused")
time.sleep(600)
"""


def most_bytes(pid: int) -> int:
    """Return how much memory a process held at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1])


@pytest.mark.slow
def test_a_killed_client_costs_nothing_and_its_pause_ends_when_its_lease_has_ended(train, start):
    """The one test with the real lease."""
    child = train()
    reader = start(READER, "batch.loss.mean(every=2)")
    reader.hears("reads")
    pauser = start(PAUSER)
    pauser.hears("paused")
    with sg.connect("job") as run:
        assert len(run.describe().streams) == 1
        assert run.describe().state == "paused"
        reader.send(signal.SIGKILL)
        pauser.send(signal.SIGKILL)
        wait_until(lambda: run.describe().state == "running", "the pause ends")
        wait_until(lambda: not run.describe().streams, "the stream is closed")
        wait_until(lambda: run.describe().n_clients == 1, "the clients are forgotten")
    child.goes_on()


WIDE = """
run = sg.init("job", budget=None)
say("ready")
x = np.zeros(125_000)
train(run, lambda step: {"x": x})
"""


@pytest.mark.slow
def test_a_suspended_client_costs_bounded_memory_and_learns_of_it(start):
    child = start(WIDE)
    child.hears("ready")
    reader = start(READER, "batch.x")  # a megabyte per record
    reader.hears("reads")
    with sg.connect("job") as run:
        mine = run.stream("batch.n")
        n_before = len(mine.wait(1, timeout_s=60))
        before = most_bytes(child.pid)
        reader.send(signal.SIGSTOP)
        wait_until(lambda: run.describe().n_clients == 1, "its lease ends")
        assert most_bytes(child.pid) - before < 500 * 2**20
        reader.send(signal.SIGCONT)
        assert int(reader.hears("lost")[1]) > 3
        assert "Connect again" in " ".join(reader.hears("told"))
        child.goes_on()
        assert run.stop().applied
        values = [record.value for record in mine]
        assert values == list(range(values[0], int(child.hears("made")[0])))
        assert len(values) > n_before
        assert mine.statistics().n_lost == 0
    assert child.ends() == 0


FLOODER = """
import zmq
from sightglass.protocol import messages
socket = zmq.Context().socket(zmq.DEALER)
socket.sndhwm = 0
socket.connect(sys.argv[1])
socket.send_multipart(messages.encode(messages.Hello(version=messages.VERSION, client="flooder")))
frames = messages.encode(messages.Ask(request=1, what="describe"))
for _ in range(50_000):
    socket.send_multipart(frames)  # and never reads an answer
say("sent")
time.sleep(600)
"""


@pytest.mark.slow
def test_a_flooder_that_is_killed_while_its_queue_is_full(train, start):
    """Where a queue is full, some timers of libzmq end the process: they must be off in the run."""
    child = train()
    (entry,) = discovery.entries()
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        stream.wait(1, timeout_s=60)
        before = most_bytes(child.pid)
        flooder = start(FLOODER, entry.endpoint)
        flooder.hears("sent")
        child.goes_on()
        flooder.send(signal.SIGKILL)
        flooder.ends()
        for _ in range(15):  # at least 200 ms each, in which the timers would come
            child.goes_on()
        assert most_bytes(child.pid) - before < 200 * 2**20
        assert run.describe().state == "running"
        n = stream.statistics().n_records
        stream.wait(n + 100, timeout_s=60)
        assert stream.statistics().n_lost == 0


RECORDING = """
from sightglass.training.serving import clients
clients.LEASE_S = 3.0  # a shorter one ends by itself on a busy machine
limits = sg.Limits(max_backlog_records=20)
run = sg.init("job", dir=sys.argv[1], budget=None, record=["batch.n"], limits=limits)
say("ready")
train(run, lambda step: {"other": step})
"""

READERS = """
QUERIES = ["batch.n", "batch.n * 2", "batch.n.sum(every=10)", "batch.other"]
with sg.connect("job") as run, sg.fleet("job") as fleet:
    streams = [run.stream(query) for query in QUERIES] + [fleet.stream("batch.n * 3")]
    for stream in streams:
        stream.wait(3, timeout_s=60)
    heard = []
    streams[0].subscribe(heard.append)
    thinned = [stream.statistics().n_thinned for stream in streams]  # of a late stream, when it began
    say("reads")
    for stream, n_thinned in zip(streams[:-1], thinned):
        records = list(stream)
        values = [record.value for record in records]
        indexes, steps = [record.index for record in records], [record.step for record in records]
        say("got", len(records), stream.n_lost, stream.statistics().n_thinned - n_thinned,
            n_thinned + records[0].index, records[-1].index + 1,
            values[0], values[-1], indexes == sorted(set(indexes)) and steps == sorted(set(steps)))
    until(lambda: len(heard) == len(streams[0].records()))
    until(lambda: streams[-1].members[0].ended)
    (part,) = streams[-1].members
    records = part.records()
    say("fleet", len(records), part.n_lost, len(streams[-1].records()), records[-1].value - records[0].value)
    say("again", run.n_reconnects)
"""

WATCH = "from sightglass.__main__ import main; sys.argv[1:] = ['watch', 'job', 'batch.other', '--plain']; main()"
MISSING = re.compile(r"^Connected again: ([\d,]+) records are missing so far\.$", re.MULTILINE)


@pytest.mark.slow
def test_clients_that_stood_still_get_what_the_run_recorded_and_are_told_what_is_missing(start, tmp_path):
    child = start(RECORDING, str(tmp_path))
    child.hears("ready")
    reader, watch = start(READERS), start(WATCH)
    reader.hears("reads")
    watch.line()
    for client in (reader, watch):
        client.send(signal.SIGSTOP)
    with sg.connect("job") as run:
        wait_until(lambda: len(run.describe().streams) == 1, "what is recorded is evaluated on, the rest is not")
        n_events = lambda: run.describe().events["batch"].n_events  # noqa: E731
        n_lost_from = n_events()
        wait_until(lambda: n_events() >= n_lost_from + 60, "events that nobody asked for")
        for client in (reader, watch):
            client.send(signal.SIGCONT)
        wait_until(lambda: len(run.describe().streams) == 5, "all are evaluated again")
        # On a busy machine the short lease may have ended before, when nothing was missing.
        found = lambda: [int(n.replace(",", "")) for n in MISSING.findall(watch.complaints)]  # noqa: E731
        wait_until(lambda: max(found(), default=0) >= 50, "the command says so")
        child.goes_on()
        run.stop()
    made = int(child.hears("made")[0])
    got = [reader.hears("got") for _ in range(4)]
    for words in got:
        n, n_lost, n_thinned, first, end = map(int, words[:5])
        assert words[7] == "True"
        assert n + n_lost + n_thinned == end - first
    assert [words[1:3] for words in got[:3]] == [["0", "0"]] * 3
    assert int(got[3][1]) >= 50  # nobody asked for it meanwhile, and it is not recorded
    assert int(got[0][4]) <= made
    assert int(got[1][6]) - int(got[1][5]) == 2 * (int(got[1][0]) - 1)
    n, n_lost, n_union, span = map(int, reader.hears("fleet"))
    assert (n_lost, 3 * (n - 1), n_union) == (0, span, n)
    assert int(reader.hears("again")[0]) >= 1
    assert watch.ends() == 0
