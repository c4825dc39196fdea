"""`chunked`: a training in one call runs some rounds at a time, and is asked and commanded in between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.waiting import wait_until

from sightglass.core.errors import LogError
from sightglass.jax import LoopState, chunked, control, log

from .programs import divided, mesh
from .queried_run import PATIENCE_S

N_ROUNDS = 20_000_000
"""More than any test waits for."""


def train(key, n=20):
    """Fit noise: code before and after the loop, a log in it, the same array twice in what it carries."""
    key, sub = jax.random.split(key)
    w = jax.random.normal(sub, (8, 8))
    xs = jax.random.normal(key, (n, 8))

    def update(carry, x):
        w, first, key = carry
        key, sub = jax.random.split(key)
        loss, grads = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - jax.random.normal(sub, (8,))) ** 2))(w)
        log({"loss": loss, "spectrum": lambda: jnp.linalg.svd(grads)[1] + xs[0]})
        return (w - 0.1 * grads, first, key), (loss, grads.sum())

    carry, (losses, sums) = lax.scan(update, (w, w, key), xs)
    return {"carry": carry, "losses": losses, "mean": losses.mean(), "seen": xs[3], "sums": sums}


def backwards(x):
    return lax.scan(lambda c, y: (c * 1.5 + y, c), x, jnp.arange(20.0), reverse=True)


def without_rows(x):
    return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=20)[0]


def within_jits(x):
    return jax.jit(lambda y: jax.jit(without_rows)(y * 2) + 1)(x) * 3


def one_of_several(x):
    x, _ = lax.scan(lambda c, _: (c + 1, None), x, None, length=3)
    x, ys = lax.scan(lambda c, _: ((log({"c": c}), c * 2)[1], c), x, None, length=20)
    return x, lax.fori_loop(0, 3, lambda _, s: s + 1, ys.sum())


def weak(x):
    return lax.scan(lambda c, i: ((c[0] + x, c[1] + 1), c[0] * i), (0.0, 0), jnp.arange(20))


def powers(x, n=0):
    return lax.scan(lambda c, _: (c * x, c), x, None, length=n)


def leaves(tree):
    def raw(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return [(leaf.dtype, leaf.shape, raw(leaf).tobytes()) for leaf in jax.tree.leaves(tree)]


# Results


@pytest.mark.parametrize("every", [1, 7, 100])
@pytest.mark.parametrize("f", [backwards, without_rows, within_jits, one_of_several, weak, powers])
def test_results_are_bit_equal(f, every):
    x = jnp.float32(0.7)
    assert leaves(chunked(f, every=every)(x)) == leaves(jax.jit(f)(x))
    assert not x.is_deleted(), "what the loop takes over is a copy"


@pytest.mark.parametrize("seeds", [None, 3])
def test_a_training_and_one_over_seeds_are_bit_equal(seeds):
    key = jax.random.key(0, impl="rbg")  # XLA compiles it in a third of the time
    keys = key if seeds is None else jax.random.split(key, seeds)
    plain = jax.jit(train if seeds is None else jax.vmap(train))
    assert leaves(chunked(plain, every=3)(keys)) == leaves(plain(keys))


def test_rounds_are_traced_once_whatever_their_number():
    n_traced = []

    def f(x):
        n_traced.append(1)
        return without_rows(x)

    steps = chunked(f, every=3)
    for _ in range(2):
        steps(jnp.float32(1))
    assert len(n_traced) == 1
    assert steps._rounds._function._cache_size() == 1


def test_static_arguments_stay_static():
    f = jax.jit(powers, static_argnames="n")
    steps = chunked(f, every=8)
    for n in (5, 30):
        assert leaves(steps(jnp.float32(0.5), n=n)) == leaves(f(jnp.float32(0.5), n=n))


def test_arrays_divided_between_devices_stay_divided():
    x = divided(jnp.arange(8.0))
    with jax.set_mesh(mesh()):
        result = chunked(lambda x: lax.scan(lambda c, _: (c * 2, c.sum()), x, None, length=6), every=4)(x)
        wanted = jax.jit(lambda x: lax.scan(lambda c, _: (c * 2, c.sum()), x, None, length=6))(x)
    assert leaves(result) == leaves(wanted)
    assert result[0].sharding == wanted[0].sharding


def nothing(x):
    return x + 1


def a_while(x):
    return lax.while_loop(lambda c: c < 9, lambda c: (log({"c": c}), c + 1)[1], x)


def two(x):
    for _ in range(2):
        x, _ = lax.scan(lambda c, _: ((log({"c": c}), c + 1)[1], None), x, None, length=3)
    return x


def in_a_branch(x):
    return lax.cond(x > 0, without_rows, lambda x: x, x)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_the_shardings_of_the_jit_hold(kind):
    axes = (getattr(jax.sharding.AxisType, kind),)
    devices = jax.make_mesh((4,), ("d",), axis_types=axes, devices=jax.devices()[:4])
    split, whole = (jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec(*spec)) for spec in (("d",), ()))
    x = jax.device_put(jnp.arange(8.0), split)
    given = jnp.arange(8.0) if kind == "Auto" else x

    def f(x):
        c, rows = without_and_rows(x)
        return c, rows, c.sum()

    for options in ({"in_shardings": split}, {"out_shardings": (split, whole, whole)}, {"out_shardings": whole}):
        plain = jax.jit(f, **options)
        wanted, got = plain(given), chunked(jax.jit(f, **options), every=7)(given)
        for a, b in zip(got, wanted, strict=True):
            assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
            np.testing.assert_allclose(a, b, rtol=1e-6)


def without_and_rows(x):
    return lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=20)


def test_donated_arguments_are_taken_over():
    f = jax.jit(lambda x, y: without_and_rows(x + 0 * y)[0], donate_argnums=0)
    x, y = jnp.arange(8.0), jnp.ones(8)
    wanted = f(jnp.copy(x), y)
    np.testing.assert_array_equal(chunked(f, every=7)(x, y), wanted)
    assert x.is_deleted()
    assert not y.is_deleted()


@pytest.mark.parametrize(
    ("f", "said"),
    [(nothing, "got none"), (a_while, "got while at"), (two, "got scan at"), (in_a_branch, "got cond at")],
)
def test_other_loops_are_refused_with_their_place(f, said):
    with pytest.raises(LogError, match=said) as error:
        chunked(f, every=2)(jnp.float32(1))
    if f is not nothing:
        assert f"{__name__.split('.')[-1]}.py:" in str(error.value)


def test_it_is_not_traced():
    steps = chunked(without_rows, every=2)
    with pytest.raises(LogError, match=r"chunked\(jax.vmap\(train\)"):
        jax.vmap(steps)(jnp.ones(3))
    with pytest.raises(ValueError, match="at least 1"):
        chunked(without_rows, every=0)


# Between chunks


def test_a_saved_state_goes_on_as_if_it_had_never_stopped():
    saved, key = [], jax.random.key(0)

    def save(state):
        saved.append(jax.tree.map(np.array, (state.carry[0], state.ys)))
        if state.n_done == 10:
            kept.append(jax.tree.map(jnp.copy, state))

    kept = []
    steps = chunked(train, every=5, between=save)
    wanted = leaves(steps(key))
    assert [int((~np.isnan(ys[0])).sum()) for _, ys in saved] == [5, 10, 15, 20], "rows that no round has written"
    (state,) = kept
    assert isinstance(state, LoopState)
    assert (state.n_done, state.length) == (10, 20)
    for _ in range(2):
        assert leaves(steps.resume(state, key)) == wanted
    with pytest.raises(ValueError, match="state"):
        chunked(backwards, every=5).resume(state, jnp.float32(1))


def test_the_memory_of_a_state_is_taken_over():
    states = []
    chunked(train, every=5, between=states.append)(jax.random.key(0))
    given_away = [[leaf.is_deleted() for leaf in jax.tree.leaves(state)] for state in states]
    assert all(map(all, given_away[:-1]))
    assert not any(given_away[-1])


# Clients


def count(x):
    def update(c, i):
        log({"c": c}, step=i)
        lax.fori_loop(0, 4, lambda j, c: (log({"inner": c + j}, event="inner"), c)[1], c)
        return c + 2, None

    return lax.scan(update, x, jnp.arange(N_ROUNDS))[0]


def stopped(client, *streams):
    """Stop a run once all streams have a record; its one call would never end."""
    wait_until(lambda: all(stream.latest is not None for stream in streams), "a record within the call")
    client.stop()


@pytest.mark.parametrize("seeds", [False, True])
def test_who_asks_during_the_only_call_is_answered_in_it(queried, seeds):
    asked = []
    started = threading.Event()

    def between(_):
        started.set()
        queried.run.flush(PATIENCE_S)  # a loop that does nothing outruns the thread that takes in its events

    steps = chunked(jax.vmap(count) if seeds else count, every=50, run=queried.run, between=between)
    x = jnp.arange(2) if seeds else jnp.int32(0)

    def ask():
        assert started.wait(PATIENCE_S)
        asked.extend(map(queried.client.stream, ("batch.c", "inner.inner", "on('batch').count()")))
        stopped(queried.client, *asked)

    with ThreadPoolExecutor() as threads:
        asking = threads.submit(ask)
        result = steps(x)
        asking.result()
    c, inner, group = map(queried.new_records, asked)
    assert 0 < steps.n_done < N_ROUNDS
    assert steps.n_done % 50 == 0
    assert np.asarray(result).tolist() == (x + 2 * steps.n_done).tolist()
    assert [np.asarray(r.value).tolist() for r in c] == [(x + 2 * r.step).tolist() for r in c]
    at = [(r.step, np.asarray(r.value).tolist()) for r in inner]
    assert at == [(i, (x + i // 4 * 2 + i % 4).tolist()) for i, _ in at], "an event is numbered by its round"
    assert {r.value for r in group} == {50}, "a chunk is a group"
    assert [stream.statistics().n_dropped for stream in asked] == [0, 0, 0]
    assert queried.client.describe().events["batch"].n_events == steps.n_done


def test_a_client_pauses_sets_and_stops_between_chunks(queried):
    gain = queried.run.control("gain", 1.0, min=0.0)
    seen = []

    def ascend(x):
        def update(c, _):
            return c + control(gain), jax.jit(lambda c: c * control(gain))(c)

        return lax.scan(update, x, None, length=N_ROUNDS)

    def command(client):
        wait_until(lambda: len(seen) > 1, "two chunks")
        client.pause()
        n = len(seen)
        seen.append((client.describe().state, len(seen) == n))
        client.set("gain", 0.5)
        client.resume()
        n = len(seen)
        wait_until(lambda: len(seen) > n + 3, "more chunks")
        client.stop()

    steps = chunked(ascend, every=10, run=queried.run, between=lambda s: seen.append(float(s.carry[0])))
    with ThreadPoolExecutor() as threads:
        commanding = threads.submit(command, queried.client)
        last, rows = steps(jnp.float32(0))
        commanding.result()
    (paused,) = (one for one in seen if isinstance(one, tuple))
    assert paused == ("paused", True)
    sums = [one for one in seen if isinstance(one, float)]
    assert set(np.diff(sums)) == {10.0, 5.0}
    assert float(last) == sums[-1]
    rows = np.asarray(rows)
    assert np.isfinite(rows[: steps.n_done]).all()
    assert np.isnan(rows[steps.n_done :]).all()


def test_a_control_is_read_where_the_program_runs(queried):
    gain = queried.run.control("gain", 3)
    f = jax.jit(jax.vmap(jax.grad(lambda x: x * x * control(gain))))
    assert f(jnp.ones(2)).tolist() == [6.0, 6.0]
    gain.set(5)
    assert f(jnp.ones(2)).tolist() == [10.0, 10.0]
    assert f(jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16
    assert float(control(gain)) == 5
    with pytest.raises(LogError, match=r"run\.control"):
        control(5)
