"""A program of several processes: acts reach all of them at the same event, and compiled queries, too."""

from __future__ import annotations

import json
import signal
import socket

import numpy as np
import pytest

import sightglass as sg

from .conftest import wait_until

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

import sightglass.training.serving.clients as clients
clients.LEASE_S = 3.0
files = sg.Files(into=sys.argv[2])  # they share a directory
run = sg.init(f"rank{rank}", budget=None, ranks=sg.Ranks(agree=broadcast), files=files, record=["batch.loss"])
lr = run.control("lr", 0.1)
calls = []
run.action("note", lambda: calls.append(step))
say("ready")
changes, last, step = [], lr.value, 0
while not run.stopping and step < 100_000:
    run.observe("batch", step=step, loss=float(rank))
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


@pytest.mark.slow
def test_commands_are_applied_at_the_same_event_on_every_rank(start, runtime, tmp_path):
    def rank(i):
        return start(RANKS, str(runtime / "ranks"), str(tmp_path / "shared"), RANK=str(i), WORLD_SIZE="3")

    children = [rank(0)]
    children[0].hears("bound")
    children += [rank(1), rank(2)]
    for child in children:
        child.hears("ready")
    pauser = start("run = sg.connect('rank0'); assert run.pause().applied; say('paused'); time.sleep(600)")
    pauser.hears("paused")
    with sg.connect("rank1") as other:
        assert not other.may_command
        with pytest.raises(sg.RefusedError, match=r"rank 0.*rank 1"):
            other.stop()
    with sg.connect("rank0") as run:
        assert run.may_command
        assert run.describe().state == "paused"
        pauser.send(signal.SIGKILL)
        wait_until(lambda: run.describe().state == "running", "the pause ends with its owner")
        for child in children:
            child.goes_on()
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
    with sg.open(tmp_path / "shared") as old:
        assert list(old.ranks) == [0, 1, 2]
        for number in old.ranks:
            with old.rank(number) as one:
                arrays = one.stream("batch.loss").to_arrays()
                assert arrays.steps.tolist() == list(range(int(step)))
                assert set(arrays.values.tolist()) == {float(number)}
        with pytest.raises(LookupError, match="Unknown rank 7"):
            old.rank(7)


JAX_TRAINING = """
rank, port = int(sys.argv[1]), sys.argv[2]
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:" + port, 2, rank)
import sightglass.jax as sgx

from sightglass.jax.ondemand.live_step import LiveStep
run_variant, calls = LiveStep._run, []
def note_call(self, variant, index, *rest, **rounds):
    calls.append((index, sorted(key for queries in variant.once for key in queries.keys)))
    return run_variant(self, variant, index, *rest, **rounds)
LiveStep._run = note_call

mesh = jax.make_mesh((2,), ("data",))

def train(w, x):
    gradient = jnp.mean(x * (x @ w - 1)[:, None], axis=0)
    sgx.log({"loss": jnp.mean((x @ w - 1) ** 2), "x": x})
    return w - 0.01 * gradient

given = sg.Ranks(agree=sgx.agree) if sys.argv[3:] == ["agree"] else None  # else the ranks use JAX's coordinator
run = sg.init(f"rank{rank}", budget=None, ranks=given or sg.Ranks(group="agreeing"))
step = sgx.live(jax.jit(train))
local = np.arange(8, dtype=np.float32).reshape(2, 4) / 8 + rank
x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), local)
w = jax.device_put(np.zeros(4, np.float32), NamedSharding(mesh, PartitionSpec()))
n = 0
while not run.stopping and n < 100_000:
    w = step(w, x)
    jax.block_until_ready(w)
    n += 1
    if n % 20 == 0:
        say("step", n)
    time.sleep(0.002)
run.close()
say("end", n, repr(calls).replace(" ", ""), repr(np.asarray(w.addressable_data(0)).tolist()).replace(" ", ""))
"""

X = np.concatenate([np.arange(8, dtype=np.float32).reshape(2, 4) / 8 + rank for rank in range(2)])


def losses(n):
    w, seen = np.zeros(4, np.float32), []
    for _ in range(n):
        seen.append(np.mean((X @ w - 1) ** 2))
        w = w - 0.01 * np.mean(X * (X @ w - 1)[:, None], axis=0)
    return seen, w


# Two processes of two devices each. The axis "host" goes over processes, "local" over the devices of each.
SPREAD = """
rank, port = int(sys.argv[1]), sys.argv[2]
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize("127.0.0.1:" + port, 2, rank)
mesh = jax.make_mesh((2, 2), ("host", "local"))
whole = np.arange(-8, 24, dtype=np.float32).reshape(4, 8)

def spread(*spec):
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P(*spec)), lambda index: whole[index])

params = {
    "rows": spread("host"), "columns": spread(None, "host"), "local": spread("local"), "copied": spread(),
    "both": spread("host", "local"), "one axis": spread(None, ("host", "local")),
}
assert not any(one.is_fully_addressable for one in params.values())
count = jax.jit(lambda n, x: n + jnp.sum(x) * 0 + 1)
run = sg.init(f"spread-{rank}", budget=None, ranks=sg.Ranks(group="spread", rank=rank, size=2))
run.observe("init", snapshot=True, w=params["both"])
n = spread()
step = 0
while not run.stopping:
    n = jax.block_until_ready(count(n, params["both"]))  # both take part
    run.observe("batch", step=step, w=params["both"], params=params)
    run.log({"w": params["rows"]}, step=step)
    step += 1
    if step % 20 == 0:
        say("step", step)
    time.sleep(0.01)
"""

WHOLE = np.arange(-8, 24, dtype=np.float32).reshape(4, 8)


@pytest.fixture
def two_ranks(start):
    def begin(script, *arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        one_device = {"XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type=", "JAX_PLATFORMS": "cpu"}
        children = [start(script, str(rank), port, *arguments, **one_device) for rank in range(2)]
        for child in children:
            child.may_complain = True  # the collectives say that they are connected
            child.hears("step")
        return children

    return begin


@pytest.mark.slow
@pytest.mark.parametrize("how", ["agree", "coordinator"])
def test_every_rank_switches_at_the_same_call_and_the_numbers_stay_right(two_ranks, how):
    children = two_ranks(JAX_TRAINING, how)
    with sg.connect("rank1") as other:
        refused = other.stream("batch.loss")
        with pytest.raises(sg.RefusedError, match=r"compiled steps .*rank 0"):
            next(iter(refused))
    with sg.connect("rank0") as run:
        loss = run.stream("batch.loss")
        loss.wait(20, timeout_s=60)
        whole = run.stream("batch.x")
        whole.wait(20, timeout_s=60)
        loss.close()
        whole.wait(60, timeout_s=60)
        records = list(loss.records())
        np.testing.assert_array_equal(whole.latest.value, X)
        run.stop()
    (n, calls, w), (n1, calls1, w1) = (child.hears("end") for child in children)
    assert (n, calls, w) == (n1, calls1, w1)
    expected, at_the_end = losses(int(n))
    np.testing.assert_allclose([r.value for r in records], [expected[int(r.step)] for r in records], rtol=1e-4)
    np.testing.assert_allclose(np.array(eval_floats(w)), at_the_end, rtol=1e-4)
    assert calls.count("v0.x") > 20


def newest(stream):
    """Return the newest record that is of both processes: those of the first events may be refused as too slow."""

    def found():
        return [record for record in stream.records() if record.complete]

    return wait_until(found, stream)[-1]


@pytest.mark.slow
def test_a_query_reads_the_piece_of_its_process_and_pieces_of_all_are_reduced_as_one(two_ranks):
    children = two_ranks(SPREAD)
    with sg.connect("spread-1") as run:  # the other process is asked for nothing
        piece = run.stream("batch.w")
        np.testing.assert_array_equal(newest(piece).value, WHOLE[2:])
        assert newest(run.stream("batch.w.shape")).value == (2, 8)
        assert float(newest(run.stream("abs(batch.w).sum()")).value) == np.abs(WHOLE[2:]).sum()
        everything = newest(run.stream("batch.params")).value
        np.testing.assert_array_equal(everything["columns"], WHOLE[:, 4:])
        np.testing.assert_array_equal(everything["copied"], WHOLE)
        np.testing.assert_array_equal(newest(run.stream("init.w")).value, WHOLE[2:])
        np.testing.assert_array_equal(newest(run.stream("log['w']")).value, WHOLE[2:])
    with sg.connect("spread") as group:
        norms = group.stream("on('batch').map(lambda b: b.params.map(lambda name, p: pieces(p).norm()))")
        wanted = {
            "norm()": np.linalg.norm(WHOLE), "sum()": WHOLE.sum(), "mean()": WHOLE.mean(), "size": WHOLE.size,
            "min()": WHOLE.min(), "max()": WHOLE.max(),
        }  # fmt: skip
        streams = {name: group.stream(f"pieces(batch.w).{name}") for name in wanted}
        for name, stream in streams.items():
            assert float(newest(stream).value) == pytest.approx(float(wanted[name]), rel=1e-6), name
        names = ["rows", "columns", "local", "copied", "both", "one axis"]
        assert newest(norms).value == pytest.approx(dict.fromkeys(names, float(np.linalg.norm(WHOLE))), rel=1e-6)
        for stream in (norms, *streams.values()):
            stream.close()
        histogram = group.stream("on('batch').map(lambda b: pieces(b.params['local'])).histogram(8, every=1)")
        assert newest(histogram).value.counts.sum() == WHOLE.size
        median = group.stream("on('batch').map(lambda b: pieces(b.w)).quantile(0.5, every=1)")
        assert newest(median).value == pytest.approx(np.median(WHOLE), abs=1)
    for child in children:
        child.goes_on()


def eval_floats(text):
    return [float(part) for part in text.strip("[]").split(",")]


PACE = """
rank = int(sys.argv[1])
run = sg.init(f"pace-{rank}", budget=None, ranks=sg.Ranks(group="pace", rank=rank, size=3))
step = 0
while True:
    for _ in range(3 if rank == 2 else 1):
        sum(range(500_000))
    time.sleep(0.01 if rank == 2 else 0.03)  # as if it waited for rank 2
    run.observe("batch", step=step)
    step += 1
    if step == 20:
        say("step", step)
"""


@pytest.mark.slow
def test_a_rank_that_works_longer_than_the_others_is_named(start):
    children = [start(PACE, str(rank)) for rank in range(3)]
    for child in children:
        child.hears("step")
    with sg.connect("pace") as group:
        wait_until(lambda: (pace := group.pace()).slow == [2] and len(pace.ranks) == 3, "rank 2 is slow")
        lines = str(group.pace("batch")).splitlines()
        assert [line.split()[0] for line in lines] == ["rank", "0", "1", "2"]
        assert lines[3].endswith("slow: the others wait for it")
        with pytest.raises(sg.UnknownNameError):
            group.pace("epoch")
        children[1].send(signal.SIGKILL)
        lost = wait_until(lambda: (pace := group.pace()).missing and pace, "rank 1 is gone")
        assert list(lost.missing) == [1]
        assert list(lost.ranks) == [0, 2]
