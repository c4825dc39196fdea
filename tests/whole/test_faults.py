"""Streams through faults of real machines: cables pulled and plugged in, a slow client, clocks that are set."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.client import connection, reconnect

ELSEWHERE = """
from sightglass.training import clients
clients.LEASE_S = float(sys.argv[3])
run = sg.init("job", dir=sys.argv[2], budget=None, listen=sys.argv[1])
say("ready", run.connection_file)
train(run)
"""


class Cable:
    """The cable to the other host: while it is pulled, packets vanish in silence."""

    def __init__(self, host: str) -> None:
        self._host = host

    def pull(self) -> None:
        self._set("down")

    def plug(self) -> None:
        self._set("up")

    def _set(self, state: str) -> None:
        subprocess.run(["ip", "-n", self._host, "link", "set", f"{self._host}b", state], check=True)


@pytest.fixture
def elsewhere(start, other_host, tmp_path):
    """Return a function that starts a run on another host; gives its process and its connection file."""

    def begin(lease_s):
        endpoint = f"tcp://10.213.{os.getpid() % 250}.2:0"
        child = start(
            ELSEWHERE, endpoint, str(tmp_path / "runs"), str(lease_s), prefix=("ip", "netns", "exec", other_host)
        )
        return child, Path(child.hears("ready")[0])

    return begin


def test_a_cable_that_is_pulled_for_a_moment_costs_no_record(elsewhere, other_host, until):
    child, file = elsewhere(60.0)
    cable = Cable(other_host)
    with sg.connect(file) as run:
        stream = run.stream("batch.n")
        stream.wait(20, timeout_s=60)
        cable.pull()
        child.goes_on()
        cable.plug()
        n = int(child.hears("step")[0])
        until(lambda: stream.latest.step > n, 60)  # TCP sends again, later and later
        assert run.n_reconnects == 0
        assert run.stop().applied
        values = [record.value for record in stream]
    assert values == list(range(values[0], values[0] + len(values)))
    assert stream.n_lost == 0
    assert values[-1] == int(child.hears("made")[0]) - 1


def test_a_cable_that_is_pulled_beyond_the_lease_leaves_a_counted_gap(elsewhere, other_host, until, monkeypatch):
    monkeypatch.setattr(connection, "PING_S", 0.2)
    monkeypatch.setattr("sightglass.client.presence.SILENCE_S", 3.0)
    monkeypatch.setattr(reconnect, "GREET_S", 0.5)
    monkeypatch.setattr(reconnect, "MAX_REST_S", 0.5)
    child, file = elsewhere(3.0)
    cable = Cable(other_host)
    with sg.connect(file) as run:
        stream = run.stream("batch.n")
        for _ in range(2):
            n = stream.statistics().n_records
            stream.wait(n + 20, timeout_s=60)
            cable.pull()
            until(lambda: run.lost)
            with sg.connect("job") as near:  # through the file system
                until(lambda: not near.describe().streams)  # the lease has ended
            child.goes_on()
            cable.plug()
            until(lambda: not run.lost, 60)
        n = stream.statistics().n_records
        stream.wait(n + 100, timeout_s=60)
        assert run.stop().applied
        records = list(stream)
    made = int(child.hears("made")[0])
    assert [record.value for record in records] == sorted({record.value for record in records})
    assert {record.value - record.index for record in records} == {records[0].value}
    assert run.n_reconnects >= 2
    assert stream.n_lost >= 100  # each time nobody asked meanwhile
    assert len(records) + stream.n_lost == records[-1].index + 1 == made - records[0].value


WIDE = """
from sightglass.training import io_loop
io_loop.MAX_OUTBOX_BYTES = 16 * 2**20
run = sg.init("job", budget=None, limits=sg.Limits(max_backlog_bytes=2**22))
x = np.zeros(int(sys.argv[1]))
say("ready")
until(lambda: len(run._telemetry.subscriptions.active) == 2)
train(run, lambda step: x.fill(step) or {"x": x})
"""

SLOW = """
from sightglass.client.connection import Connection
from sightglass.protocol import zmq
zmq.MAX_TAKEN = 1
add, n_lost = Connection._add_records, int(sys.argv[1])

def slowly(self, block, arrays):
    add(self, block, arrays)
    if stream.n_lost < n_lost:
        time.sleep(0.02 * block.n)  # ten times as long as the run takes for them

with sg.connect("job") as run:
    stream = run.stream("batch.x")
    Connection._add_records = slowly
    say("reads")
    until(lambda: stream.n_lost >= n_lost, 120)
    say("lost", stream.n_lost)
    records = list(stream)
    right = all((record.value == record.step).all() for record in records)
    in_order = [record.index for record in records] == sorted({record.index for record in records})
    counts = stream.statistics()
    say("got", counts.n_records, counts.n_lost, right and in_order and len(records) == counts.n_records
        - counts.n_forgotten, run.n_reconnects)
"""


def test_a_client_ten_times_slower_than_its_stream(start):
    n_numbers, n_lost = 50_000, 1_000
    child = start(WIDE, str(n_numbers))
    child.hears("ready")
    slow = start(SLOW, str(n_lost))
    slow.hears("reads")
    with sg.connect("job") as run:
        other = run.stream("batch.n")
        child.hears("step")
        before = most_bytes(child.pid)
        slow.hears("lost", 120)
        most = most_bytes(child.pid)
        run.stop()
        made = int(child.hears("made", 60)[0])
        values = [record.value for record in other]
    n, n_counted, right, n_reconnects = slow.hears("got", 60)
    assert (right, n_reconnects) == ("True", "0")
    assert int(n) + int(n_counted) == made
    assert most - before < 200 * 2**20 < 8 * n_numbers * int(n_counted)
    assert values == list(range(made))
    assert other.n_lost == 0


def most_bytes(pid: int) -> int:
    """Return how much memory a process held at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1])


CLOCK = """
shift, real = [float(sys.argv[1])], time.time
time.time = lambda: real() + shift[0]  # the wall clock of this process
from sightglass.core.clock import SystemClock
SystemClock.wall = staticmethod(time.time)
"""

TIMED = (
    CLOCK
    + """
from sightglass.training import clients
clients.LEASE_S = 60.0
run = sg.init("job", dir=sys.argv[2], budget=None, record=["batch.n"])
run.action("set_clock", lambda by_s: shift.__setitem__(0, by_s))
say("ready")
train(run, lambda step: {"twice": 2 * step})
"""
)

TIMED_READER = (
    CLOCK
    + """
import itertools
with sg.connect("job") as run:
    past = run.stream("batch.n", since="start")
    twice = run.stream("batch.twice")
    n = run.stream("batch.n")
    windows = run.stream("batch.n.count(every='20 s')")
    pairs = n.zip(twice, by="wall_time", tolerance=0.0005)
    n.wait(3, timeout_s=60)
    past.wait(3, timeout_s=60)
    say("reads")
    for record in n:
        if record.index % 40 == 0:
            shift[0] = (0.0, 3600.0, -3600.0)[record.index // 40 % 3]  # and so is the clock of this client
    assert run.n_reconnects == 0, run.n_reconnects
    values = [record.value for record in n]
    assert values == list(range(values[0], values[-1] + 1))
    from_start = [record.value for record in past]
    assert from_start == list(range(values[-1] + 1)), from_start
    paired = [record.value for record in pairs]
    assert all(b == 2 * a for a, b in paired)
    both = values[-len(twice.records()) :]  # what a clock shows again, after it was set back, has no partner
    assert len(both) > len(paired) > 0 and {a for a, _ in paired} <= set(both), (len(both), len(paired))
    assert pairs.statistics().n_unpaired == len(values) - len(paired)
    groups = list(windows)
    assert all(b.step == a.step + b.value for a, b in itertools.pairwise(groups)), groups
    assert groups[-1].step == values[-1]
    assert [s.n_lost for s in (past, n, twice, windows)] == [0] * 4
    say("got", values[-1] + 1, len(groups))
"""
)


def test_clocks_that_are_set_by_an_hour_in_the_run_and_in_the_client(start, tmp_path):
    child = start(TIMED, "0", str(tmp_path))
    child.hears("ready")
    child.hears("step")
    with sg.connect("job") as run:
        assert run.call("set_clock", 3600.0).applied  # before anybody asks: the files have both times
        child.goes_on()
        reader = start(TIMED_READER, "0")
        reader.hears("reads")
        for by_s in (0.0, 3600.0, -3600.0, 0.0):
            assert run.call("set_clock", by_s).applied
            child.goes_on()
        run.stop()
    made = int(child.hears("made")[0])
    n, n_groups = map(int, reader.hears("got", 60))
    assert n == made
    assert n_groups >= 5  # each time the clock was set, and the last one


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_run_that_is_started_again_after_the_clock_was_set(start, tmp_path, until, by_s):
    first = start(TIMED, "0", str(tmp_path))
    first.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.n")
        stream.wait(20, timeout_s=60)
        first.send(9)
        first.ends()
        second = start(TIMED, str(by_s), str(tmp_path))
        second.hears("ready")
        until(lambda: stream.restarts)
        until(lambda: stream.latest.index > stream.restarts[0].index)
        run.stop()
        assert list(stream)[-1].step == int(second.hears("made")[0]) - 1
