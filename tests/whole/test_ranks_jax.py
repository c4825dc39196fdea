"""Two real JAX processes with one program: queries compiled into the step of both, and arrays over both."""

from __future__ import annotations

import socket

import numpy as np
import pytest

import sightglass as sg

from .conftest import wait_until

TRAINING = """
rank, port, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
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

run = sg.init(f"rank{rank}", budget=None, ranks=sg.Ranks(agree=sgx.agree) if mode == "agree" else None)
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
    def begin(*arguments, script=TRAINING):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        one_device = {"XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type=", "JAX_PLATFORMS": "cpu"}
        children = [start(script, str(rank), port, *arguments, **one_device) for rank in range(2)]
        for child in children:
            child.may_complain = True  # the collectives say that they are connected
            child.hears("step", 60)
        return children

    return begin


@pytest.mark.slow
def test_every_rank_switches_at_the_same_call_and_the_numbers_stay_right(two_ranks):
    children = two_ranks("agree")
    with sg.connect("rank1") as other:
        refused = other.stream("batch.loss")
        with pytest.raises(sg.RefusedError, match="rank 0"):
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
    (n, calls, w), (n1, calls1, w1) = (child.hears("end", 60) for child in children)
    assert (n, calls, w) == (n1, calls1, w1)
    expected, at_the_end = losses(int(n))
    np.testing.assert_allclose([r.value for r in records], [expected[int(r.step)] for r in records], rtol=1e-4)
    np.testing.assert_allclose(np.array(eval_floats(w)), at_the_end, rtol=1e-4)
    assert calls.count("v0.x") > 20


@pytest.mark.slow
def test_without_a_broadcast_a_client_is_refused(two_ranks):
    children = two_ranks("alone")
    for rank in range(2):
        with sg.connect(f"rank{rank}") as run:
            stream = run.stream("batch.loss")
            with pytest.raises(sg.RefusedError, match="2 proc"):
                next(iter(stream))
    for child in children:
        child.goes_on()


def newest(stream, timeout_s=90.0):
    """Return the newest record that is of both processes: those of the first events may be refused as too slow."""

    def found():
        return [record for record in stream.records() if record.complete]

    return wait_until(found, timeout_s)[-1]


@pytest.mark.slow
def test_a_query_reads_the_piece_of_its_process_and_waits_for_no_other_one(two_ranks):
    children = two_ranks(script=SPREAD)
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
    for child in children:
        child.goes_on()


@pytest.mark.slow
def test_all_pieces_of_what_jax_spreads_over_processes_are_reduced_as_one(two_ranks):
    children = two_ranks(script=SPREAD)
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
