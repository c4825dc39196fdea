"""A program of several processes: acts reach all of them at the same event."""

from __future__ import annotations

import json
import signal

import pytest

import sightglass as sg

TO_JSON = str.maketrans("()", "[]")

RANKS = """
import socket, struct
rank, n_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
path = sys.argv[1]
if rank == 0:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    say("bound")
    peers = [server.accept()[0] for _ in range(n_ranks - 1)]
else:
    peers = [socket.socket(socket.AF_UNIX)]
    peers[0].connect(path)

def take(peer, n):
    data = b""
    while len(data) < n:
        part = peer.recv(n - len(data))
        if not part:
            raise ConnectionError("a rank is gone")
        data += part
    return data

def broadcast(data):
    if rank == 0:
        for peer in peers:
            peer.sendall(struct.pack("I", len(data)) + data)
        return data
    return take(peers[0], struct.unpack("I", take(peers[0], 4))[0])

import sightglass.training.clients as clients
clients.LEASE_S = 3.0
run = sg.init(f"rank{rank}", budget=None, ranks=sg.Ranks(agree=broadcast) if sys.argv[2] == "agree" else None)
lr = run.control("lr", 0.1)
calls = []
run.action("note", lambda: calls.append(step))
say("ready")
changes, last, step = [], lr.value, 0
while not run.stopping and step < 100_000:
    run.observe("batch", step=step, loss=1.0)
    if step % 100 == 0:
        say("step", step)
        run.observe("epoch")
    if lr.value != last:
        last = lr.value
        changes.append((step, last))
    step += 1
    time.sleep(0.0005)
run.close()
say("end", step, repr(changes).replace(" ", ""), repr(calls).replace(" ", ""))
"""


@pytest.fixture
def ranks(start, runtime):
    def begin(agree):
        def rank(i):
            return start(RANKS, str(runtime / "ranks"), agree, RANK=str(i), WORLD_SIZE="3")

        first = rank(0)
        first.hears("bound")
        children = [first, rank(1), rank(2)]
        for child in children:
            child.hears("ready")
        return children

    return begin


@pytest.mark.slow
def test_commands_are_applied_at_the_same_event_on_every_rank(ranks):
    children = ranks("agree")
    with sg.connect("rank0") as run:
        assert run.may_command
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=30)
        acks = [run.set("lr", 0.2), run.set("lr", 0.3, at="epoch"), run.set("lr", 0.4)]
        note = run.call("note")
        assert run.pause().applied
        assert run.resume().applied
        stopped = run.stop()
        assert stopped.applied
    ends = [child.hears("end") for child in children]
    assert ends[0] == ends[1] == ends[2]
    step, changes, calls = ends[0]
    assert int(step) == stopped.index + 1
    assert acks[1].event == "epoch"
    assert json.loads(changes.translate(TO_JSON)) == [
        [acks[0].index, 0.2],
        [acks[1].index * 100, 0.3],
        [acks[2].index, 0.4],
    ]
    assert json.loads(calls) == [note.index]
    assert [child.ends() for child in children] == [0, 0, 0]


@pytest.mark.slow
def test_other_ranks_answer_queries_and_refuse_commands(ranks):
    children = ranks("agree")
    with sg.connect("rank1") as run:
        assert not run.may_command
        run.stream("batch.loss").wait(10, timeout_s=30)
        with pytest.raises(sg.RefusedError, match=r"rank 0.*rank 1"):
            run.stop()
    with sg.connect("rank0") as run:
        run.stop()
    assert [child.ends() for child in children] == [0, 0, 0]


@pytest.mark.slow
def test_without_a_broadcast_commands_are_refused(ranks):
    children = ranks("alone")
    for i in range(3):
        with sg.connect(f"rank{i}") as run:
            for act in (run.stop, run.pause, lambda: run.set("lr", 0.2), lambda: run.call("note")):
                with pytest.raises(sg.RefusedError, match=r"3 processes.*sg.Ranks\(agree=…\)"):
                    act()
            run.stream("batch.loss").wait(10, timeout_s=30)
    for child in children:
        child.goes_on()


@pytest.mark.slow
def test_all_ranks_go_on_when_the_owner_of_a_pause_dies(ranks, start, until):
    children = ranks("agree")
    pauser = start("run = sg.connect('rank0'); assert run.pause().applied; say('paused'); time.sleep(60)")
    pauser.hears("paused")
    with sg.connect("rank0") as run:
        assert run.describe().state == "paused"
        pauser.send(signal.SIGKILL)
        until(lambda: run.describe().state == "running")
        for child in children:
            child.goes_on()
        assert run.stop().applied
    ends = [child.hears("end") for child in children]
    assert ends[0] == ends[1] == ends[2]
    assert [child.ends() for child in children] == [0, 0, 0]
