"""The state says whose logs these are, wherever JAX carries it; nothing that goes wrong reaches the program."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from sightglass.core.errors import LogError, StorageError
from sightglass.jax import log, logdict, spool, tap
from sightglass.jax.loggers import LoggerState, SinkLogger

from .programs import Memory, losses, train


@pytest.fixture
def memory():
    with Memory() as memory:
        yield memory


def by_step(seen):
    return [(step, value) for _, step, value in seen]


# The state


def test_the_name_of_a_lane_is_its_seed_or_its_key(memory):
    for key in (
        None,
        7,
        np.int64(8),
        -1,
        jax.random.key(9),
        jax.random.PRNGKey(10),
        jax.random.split(jax.random.key(0))[0],
    ):
        memory.init(key)
    memory.flush()
    assert list(memory.records) == ["", "7", "8", f"{2**32 - 1}", "9", "10", "6b20015999ba4efe"]


def test_a_seed_of_64_bits_keeps_them_all(memory):
    with jax.enable_x64(True):
        memory.init(np.int64(2**40 + 1))
        jax.vmap(memory.init)(np.array([1, 2**33], np.int64))
    memory.flush()
    assert list(memory.records) == ["0000010000000001", "1", "0000000200000000"]


def test_anything_but_a_single_key_is_refused(memory):
    with pytest.raises(LogError, match="float32"):
        memory.init(1.5)
    for keys in (jnp.arange(3), jax.random.split(jax.random.key(0), 3)):
        with pytest.raises(LogError, match=r"\(3.*jax.vmap\(logger.init\)"):
            memory.init(keys)
    states = jax.vmap(memory.init)(jnp.arange(3))
    with pytest.raises(LogError, match=r"\(3,\).*jax.vmap"):
        memory.tap(train, states)
    with pytest.raises(LogError, match=r"init\(\).*int"):
        memory.spool(train, 3)


def test_the_state_is_an_argument_like_any_other(memory):
    states = jax.vmap(memory.init)(jnp.array([4, 5, 6]))
    assert isinstance(states, LoggerState)
    assert jax.tree.leaves(states)[0].shape == (3, 2)
    one = jax.tree.map(lambda leaf: leaf[1], states)
    program = jax.jit(lambda state, x: memory.tap(train, state)(x))
    program(one, 1.0)
    program(jax.tree.map(lambda leaf: leaf[2], states), 2.0)
    assert by_step(memory.seen("5")) == losses(1.0)
    assert by_step(memory.seen("6")) == losses(2.0)
    assert memory.seen("4") == []


@pytest.mark.parametrize("way", ["tap", "spool"])
def test_seeds_in_a_loop_and_in_a_map_of_maps(memory, way):
    states = jax.vmap(jax.vmap(memory.init))(jnp.arange(4).reshape(2, 2))
    jax.jit(jax.vmap(jax.vmap(lambda s, x: getattr(memory, way)(train, s)(x))))(states, jnp.arange(4.0).reshape(2, 2))
    for seed in range(4):
        assert by_step(memory.seen(str(seed))) == losses(float(seed))
    flat = jax.tree.map(lambda leaf: leaf.reshape(4, -1), states)
    lax.map(lambda args: getattr(memory, way)(train, args[0])(args[1]), (flat, jnp.arange(4.0)))
    for seed in range(4):
        assert by_step(memory.seen(str(seed))) == losses(float(seed)) * 2


def test_lanes_of_a_map_over_data_alone_are_events_of_one_state(memory):
    state = memory.init()
    jax.vmap(lambda x: memory.tap(lambda x: log({"x": x}, step=3), state)(x) and None)(jnp.arange(3.0))
    assert memory.seen() == [("x", 3, 0.0), ("x", 3, 1.0), ("x", 3, 2.0)]


# What programs do


@pytest.mark.parametrize("way", ["tap", "spool"])
def test_only_events_that_happened_in_a_lane_are_written(memory, way):
    def f(x, n):
        lax.cond(x > 0, lambda: (log({"positive": x}), 0)[1], lambda: 0)
        return lax.while_loop(lambda c: c < n, lambda c: (log({"c": c}, step=c), c + 1)[1], 0)

    options = {"capacity": 4} if way == "spool" else {}
    states = jax.vmap(memory.init)(jnp.arange(2))
    jax.vmap(lambda s, x, n: getattr(memory, way)(f, s, **options)(x, n))(
        states, jnp.array([-1.0, 2.0]), jnp.array([1, 3])
    )
    assert sorted(memory.seen("0")) == [("c", 0, 0)]
    assert sorted(memory.seen("1")) == [("c", 0, 0), ("c", 1, 1), ("c", 2, 2), ("positive", 0, 2.0)]


@pytest.mark.parametrize("way", ["tap", "spool"])
def test_maps_inside_the_program_are_axes_of_the_values(memory, way):
    """Also in a branch that the lanes outside take differently."""

    def f(x):
        def inside():
            return jax.vmap(lambda y: (log({"y": x * y}, step=1), y)[1])(jnp.arange(3.0)).sum()

        return lax.cond(x > 1, inside, lambda: 0.0)

    states = jax.vmap(memory.init)(jnp.arange(2))
    jax.vmap(lambda s, x: getattr(memory, way)(f, s)(x))(states, jnp.array([1.0, 2.0]))
    assert memory.seen("0") == []
    assert memory.seen("1") == [("y", 1, [0.0, 2.0, 4.0])]


def on_devices(x):
    def shard(x):
        log({"x": x.sum()})
        return x

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("d",))
    return jax.shard_map(shard, mesh=mesh, in_specs=P("d"), out_specs=P("d"))(x)


@jax.custom_jvp
def square(x):
    log({"x": x})
    return x * x


square.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (jax.checkpoint(lambda x: (log({"x": x[0]}), x)[1]), [0.0]),
        (jax.grad(lambda y: (log({"x": y[1]}), y.sum())[1]), [1.0]),
        (lambda x: square(x[2]), [2.0]),
        (on_devices, [0.0, 1.0, 2.0, 3.0]),
    ],
    ids=["checkpoint", "grad", "custom_jvp", "shard_map"],
)
def test_tap_goes_through_transformations(memory, f, expected):
    state = memory.init(1)
    jax.jit(lambda s, x: memory.tap(f, s)(x))(state, jnp.arange(4.0))
    assert sorted(value for _, _, value in memory.seen("1")) == expected


def test_tap_under_a_derivative_from_outside(memory):
    state = memory.init()
    f = lambda x: (log({"x": x}), x**2)[1]  # noqa: E731
    assert float(jax.grad(memory.tap(f, state))(3.0)) == 6.0
    assert float(jax.grad(memory.spool(f, state))(3.0)) == 6.0
    assert [value for _, _, value in memory.seen()] == [3.0, 3.0]


@pytest.mark.parametrize("way", ["tap", "spool"])
def test_static_and_donated_arguments_stay_such(memory, way):
    @functools.partial(jax.jit, static_argnums=1, donate_argnames="y")
    def f(x, n, *, y):
        log({"x": x})
        return [x + y] * n

    y = jnp.float32(2)
    out = getattr(memory, way)(f, memory.init())(1.0, 2, y=y)
    assert [float(value) for value in out] == [3.0, 3.0]
    assert y.is_deleted()
    assert memory.seen() == [("x", 0, 1.0)]


def test_a_function_is_traced_once(memory):
    n_traced = 0

    def f(x):
        nonlocal n_traced
        n_traced += 1
        log({"x": x})
        return x

    tapped, spooled = memory.tap(f, memory.init()), memory.spool(f, memory.init())
    for i in range(5):
        tapped(float(i)), spooled(float(i))
    assert n_traced == 2
    assert len(memory.seen()) == 10


# What is taken, and what is left


def test_a_tap_shares_its_logs_and_a_spool_consumes_them(memory):
    state = memory.init()
    _, logs = spool(memory.tap(train, state))(1.0)
    assert (list(logs), list(logs.steps)) == (["loss"], ["step", "epoch"])
    _, logs = spool(memory.spool(train, state))(1.0)
    assert len(logs) == 0
    _, logs = spool(memory.spool(train, state, keep_logs=True))(1.0)
    assert logs["loss"].tolist() == [1.0, 2.0, 3.0]
    seen = []
    tap(memory.spool(train, state, keep_logs=True), seen.append)(1.0)
    assert by_step(memory.seen()) == losses(1.0) * 4
    assert [list(event) for event in seen] == [["loss"]] * 3


def test_options_are_those_of_spool_and_tap(memory):
    def f(x):
        log({"x": x}, explicit=True)
        log({"y": x})
        return train(x)

    state = memory.init()
    memory.tap(f, state, argnames="x", prefix="a/")(1.0)
    memory.spool(f, state, argnames=["x", "loss"], reduce={"loss": "mean"}, prefix="b/")(1.0)
    memory.spool(f, state, every=2)(1.0)
    assert memory.seen() == [
        ("a/x", 0, 1.0), ("b/x", 0, 1.0), ("b/loss", 20, 2.0), ("y", 0, 1.0), ("loss", 0, 1.0), ("loss", 20, 3.0),
    ]  # fmt: skip
    with pytest.raises(LookupError, match="'los'"):
        memory.spool(f, state, argnames="los")(1.0)


def test_without_logs_nothing_is_written(memory):
    assert float(memory.spool(lambda x: x, memory.init())(1.0)) == 1.0
    memory.flush()
    assert memory.records == {"": []}


# log


@pytest.mark.parametrize("seeds", [None, [3], range(4)])
def test_each_call_counts_as_one_event_however_many_lanes_are_opened(memory, seeds):
    state = memory.init(0) if seeds is None else jax.tree.map(lambda x: x[0], memory.init(seeds=seeds))
    for i in range(20):
        memory.log(state, log({"x": jnp.float32(i)}))
    memory.flush()
    assert memory.statistics().n_events == 20


def test_log_writes_values_at_once(memory):
    state = memory.init()
    _, logs = spool(train)(2.0)
    memory.log(state, logs, prefix="p/")
    memory.log(state, log({"x": jnp.float32(1)}, step=7))
    assert memory.seen() == [*(("p/loss", *event) for event in losses(2.0)), ("x", 7, 1.0)]
    with pytest.raises(LogError, match=r"spool\(\).*got dict"):
        memory.log(state, {"x": 1})


def test_log_of_many_lanes_at_once(memory):
    states = jax.vmap(memory.init)(jnp.arange(2))
    _, logs = jax.vmap(spool(train))(jnp.array([1.0, 2.0]))
    memory.log(states, logs)
    assert [by_step(memory.seen(seed)) for seed in "01"] == [losses(1.0), losses(2.0)]


@pytest.mark.parametrize("jitted", [False, True])
def test_log_while_tracing_waits_for_the_values(memory, jitted):
    def f(state, x):
        out, logs = spool(train)(x)
        memory.log(state, logs, prefix="p/")
        return out

    states = jax.vmap(memory.init)(jnp.arange(2))
    f = jax.vmap(f)
    out = (jax.jit(f) if jitted else f)(states, jnp.array([1.0, 2.0]))
    assert out.tolist() == [3.0, 6.0]
    assert memory.seen("1") == [("p/loss", *event) for event in losses(2.0)]


def test_numbers_go_on_from_call_to_call(memory):
    def f(x):
        return lax.while_loop(lambda c: c < 5, lambda c: (log({"c": c}), c + 1)[1], x)

    state = memory.init()
    for _ in range(2):
        memory.spool(f, state, capacity=2)(0)
    assert memory.seen() == [("c", 3, 3), ("c", 4, 4), ("c", 8, 3), ("c", 9, 4)]
    assert [record.index for record in memory.records[""]] == [3, 4, 8, 9]


# What goes wrong


class Broken(SinkLogger):
    def __init__(self, where):
        self.where = where
        self.n_opened = 0
        super().__init__()

    def open(self, name):
        self.n_opened += 1
        if self.where == "open":
            raise OSError("no open")
        return Full()


class Full:
    def write(self, records):
        raise OSError("no write")

    def flush(self, timeout_s):
        pass

    def close(self, timeout_s):
        pass


def test_a_sink_that_fails_does_not_stop_the_program():
    logger = Broken("write")
    state = logger.init()

    def run():
        assert float(logger.tap(train, state)(1.0)) == 3.0
        assert float(logger.spool(train, state)(1.0)) == 3.0
        logger.flush()

    with (
        pytest.warns(RuntimeWarning, match="^Broken: .*OSError: no write") as told,
        pytest.raises(StorageError, match=r"^Broken: .*4 lost: OSError: no write"),
    ):
        run()
    assert len(told) == 1
    assert logger.statistics().n_dropped == 4
    logger.close()


def test_a_sink_that_fails_to_open_is_not_tried_again():
    logger = Broken("open")

    def run():
        assert float(logger.tap(train, logger.init())(1.0)) == 3.0
        logger.close()

    with pytest.warns(RuntimeWarning, match="no open"), pytest.raises(StorageError, match="3 lost: OSError: no open"):
        run()
    assert logger.n_opened == 1


def test_a_closed_logger_raises_and_counts_what_it_loses():
    logger = Memory()
    state = logger.init()
    tapped = logger.tap(train, state)
    tapped(1.0)
    logger.close()
    logger.close()
    assert by_step([(r.tag, r.step, r.value.tolist()) for r in logger.records[""]]) == losses(1.0)
    assert logger.calls == ["flush", "close"]
    for misuse in (logger.init, lambda: logger.tap(train, state), lambda: logger.log(state, logdict({}))):
        with pytest.raises(LogError, match="Memory"):
            misuse()
    with pytest.warns(RuntimeWarning, match="closed"):
        tapped(1.0), jax.effects_barrier()
    assert logger.statistics().n_dropped == 3


def test_an_error_in_the_block_is_not_hidden_by_one_of_the_logger():
    def run():
        with Broken("write") as logger:
            logger.tap(train, logger.init())(1.0)
            raise ZeroDivisionError

    with (
        pytest.warns(RuntimeWarning, match="3 lost: OSError: no write"),
        pytest.warns(RuntimeWarning, match="^Broken: .*can be written"),
        pytest.raises(ZeroDivisionError),
    ):
        run()
