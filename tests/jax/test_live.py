"""`live`: clients ask for what a compiled step logs, while it runs, and it stays the step it was."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import LogError
from sightglass.jax import live, log, spool
from sightglass.jax.ondemand.variant_compiler import MAX_VARIANTS

from .living import Desk, same, until

P = jax.sharding.PartitionSpec


@pytest.fixture
def desk(tmp_path):
    desk = Desk(dir=tmp_path)
    yield desk
    desk.close()


class Traced:
    """A function that remembers on which threads its body ran: once for each time it is traced."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function
        self.threads = []

    def __call__(self, *args, **kwargs):
        self.threads.append(threading.current_thread().name)
        return self.function(*args, **kwargs)

    @property
    def here(self):
        return self.threads.count(threading.current_thread().name)


def halve(x):
    log({"loss": (x * x).sum(), "x": x})
    return x * 0.5


def x3():
    return jnp.arange(3.0)


def mesh():
    return jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


# Results and answers


def train(w, x):
    def loss_of(w):
        y = jnp.tanh(x @ w)
        log({"acts": y})
        return (y**2).mean()

    loss, grads = jax.value_and_grad(loss_of)(w)
    log({"loss": loss, "grads": {"dense": grads}}, step=x[0, 0].astype(int), epoch=3)
    return w - 0.1 * grads, loss


def test_results_are_those_of_the_plain_step_and_answers_those_of_spool(desk):
    plain = jax.jit(train)
    w, x = jnp.ones((4, 3)), jnp.full((8, 4), 2.0)
    step = desk.live(plain, w, x)
    loss, size, acts = desk.ask(
        lambda: step(w, x),
        "batch.loss",
        sg.on("batch").map(lambda b: abs(b.grads["dense"]).mean()),
        "batch.acts",
    )
    for i in range(3):
        w2 = w * (i + 1)
        result = step(w2, x)
        same(result, plain(w2, x))
        _, logs = spool(plain)(w2, x)
        (record,) = desk.take(loss)
        assert (record.step, record.steps) == (2, {"epoch": 3})
        np.testing.assert_allclose(record.value, logs["loss"][0], rtol=1e-6)
        np.testing.assert_allclose(desk.values(size), abs(logs["grads"]["dense"][0]).mean(), rtol=1e-6)
        np.testing.assert_allclose(desk.values(acts), logs["acts"], rtol=1e-6)


def test_the_number_of_the_call_is_the_index_of_the_event(desk):
    step = desk.live(jax.jit(halve))
    n_calls = [0]

    def call():
        n_calls[0] += 1
        return step(x3())

    for _ in range(7):
        call()
    stream = desk.ask(call, "batch.loss")
    call()
    assert [r.step for r in desk.take(stream)] == [n_calls[0] - 1]
    assert desk.client.describe().events["batch"].n_events == n_calls[0]


def test_reducers_and_windows_are_those_of_the_run(desk):
    step = desk.live(jax.jit(halve), x3())
    mean, above = desk.ask(
        lambda: step(x3()),
        "on('batch').map(lambda b: b.loss).mean(every=4)",
        "on('batch').where(lambda b: b.loss > 10).map(lambda b: b.loss).count(every=2)",
    )
    for scale in [1.0, 2.0] * 4:  # the first window may have begun before
        step(scale * x3())
    assert {(r.value, r.n_events, (r.step + 1) % 4) for r in desk.take(mean)[1:]} == {(12.5, 4, 0)}
    assert set(desk.values(above)[1:]) == {1}


def test_a_group_ends_where_the_run_says_or_another_event(desk):
    step = desk.live(jax.jit(halve), x3())
    group, per = desk.ask(
        lambda: (step(x3()), desk.run.end_group("batch"), desk.run.observe("epoch"))[0],
        "on('batch').map(lambda b: b.loss).sum()",
        "on('batch').map(lambda b: b.loss).sum(per='epoch')",
    )
    for _ in range(2):
        for _ in range(3):
            step(x3())
        desk.run.end_group("batch")
        desk.run.observe("epoch")
    assert desk.values(group) == desk.values(per) == [15.0, 15.0]


def test_calls_delimit_groups_of_other_events(desk):
    step = desk.live(jax.jit(halve), x3())
    desk.run.observe("tick", n=0)
    ticks = desk.client.stream("on('tick').count(per='batch')")
    for _ in range(3):
        desk.run.observe("tick", n=1)
        desk.run.observe("tick", n=2)
        step(x3())
    assert desk.values(ticks) == [2, 2, 2]


def test_functions_of_the_run_are_called_with_arrays_of_the_host(desk):
    desk.run.function("odd", lambda x: sorted(np.asarray(x).tolist())[-1])
    step = desk.live(jax.jit(halve), x3())
    stream = desk.ask(lambda: step(x3()), "on('batch').map(lambda b: odd(b.x) + b.loss)")
    step(2 * x3())
    assert desk.values(stream) == [24.0]


@pytest.mark.parametrize(
    "query",
    [
        "on('batch').map(lambda b: b.x)",
        "on('batch').map(lambda b: (b.x, {'a': b.loss, 'text': 'hello', 'n': b.x.shape}))",
        "on('batch').map(lambda b: b.x.histogram(bins=4))",
        "on('batch').map(lambda b: b.x.quantile(0.5))",
        "on('batch').map(lambda b: b.x.topk(2))",
        "on('batch').map(lambda b: b.x.norm() > 1)",
        "on('batch').map(lambda b: where(b.x > 1, b.x, 0.0).sum())",
        "on('batch').map(lambda b: b.x[1:].max())",
        "on('batch').map(lambda b: b.x.argmax())",
        "on('batch').map(lambda b: b.x).mean(every=1)",
        "on('batch').map(lambda b: 1)",
        "on('batch').count(every=1)",
    ],
)
def test_what_is_evaluated_in_the_step_is_what_is_evaluated_outside(desk, query):
    step = desk.live(jax.jit(halve), x3())
    outside = desk.client.stream(query.replace("'batch'", "'outside'"))
    inside = desk.ask(lambda: step(x3()), query)
    x = jnp.array([0.5, 3.0, 2.0])
    step(x)
    desk.run.observe("outside", x=np.asarray(x), loss=np.float32((x * x).sum()))
    (a,), (b,) = desk.values(inside), desk.values(outside)
    assert type(a) is type(b) or isinstance(a, np.generic) or isinstance(b, np.generic)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), _plain(a), _plain(b))


def _plain(value):
    """Take values apart that are no containers of JAX's."""
    if isinstance(value, sg.Histogram):
        return value.counts, value.edges
    if isinstance(value, str):
        return len(value)
    return jax.tree.map(_plain, value) if isinstance(value, tuple | list | dict) else value


# While nobody asks


def test_while_nobody_asks_the_step_is_the_users_own(desk):
    body = Traced(halve)
    plain = jax.jit(body)
    step = desk.live(plain, x3())
    assert desk.idle(step)
    for _ in range(5):
        step(x3())
    assert (len(body.threads), plain._cache_size()) == (1, 1)


def test_no_thread_traces_what_the_training_thread_would(desk):
    """To ask, to ask again, and to leave: the training thread traces nothing, and the plain step is never retraced."""
    inner, other = Traced(lambda x: x * 3), Traced(lambda x: x + 1)
    j_inner, j_other = jax.jit(inner), jax.jit(other)
    body = Traced(lambda x: halve(j_inner(x)))
    plain = jax.jit(body)
    j_inner(x3()), j_other(x3())
    step = desk.live(plain, x3())
    for _ in range(3):
        stream = desk.ask(lambda: step(x3()), "batch.loss")
        j_other(x3()), j_inner(x3()), plain(x3())
        desk.leave(stream)
        until(lambda: desk.idle(step))
        step(x3())
    assert (body.here, inner.here, other.here) == (1, 1, 1)
    assert len(other.threads) == 1
    assert len(body.threads) == 3, "here; to see what is logged; and for the one variant"
    assert plain._cache_size() == 1


def test_a_variant_that_was_made_is_used_again(desk):
    body = Traced(halve)
    step = desk.live(jax.jit(body), x3())
    queries = ["batch.loss", "batch.x", ("batch.loss", "batch.x")]
    for query in queries:
        desk.leave(*_all(desk.ask(lambda: step(x3()), *_all(query))))
    n = len(body.threads)
    for query in queries:
        streams = [desk.client.stream(one) for one in _all(query)]
        step(x3())  # the first call answers
        assert [len(desk.take(stream)) for stream in streams] == [1] * len(streams)
        desk.leave(*streams)
    assert len(body.threads) == n


def _all(one):
    return one if isinstance(one, tuple | list) else (one,)


def test_the_number_of_variants_is_bounded_and_the_oldest_goes(desk):
    body = Traced(halve)
    step = desk.live(jax.jit(body), x3())
    for i in range(MAX_VARIANTS + 2):
        desk.leave(desk.ask(lambda: step(x3()), f"on('batch').map(lambda b: b.loss + {i})"))
    assert len(step._step._compiler._compiled) == MAX_VARIANTS
    n = len(body.threads)
    for i, again in ((MAX_VARIANTS + 1, 0), (0, 1)):
        desk.leave(desk.ask(lambda: step(x3()), f"on('batch').map(lambda b: b.loss + {i})"))
        assert len(body.threads) == n + again


def test_who_asks_later_does_not_interrupt_who_asked_before(desk):
    step = desk.live(jax.jit(halve), x3())
    first = desk.ask(lambda: step(x3()), "batch.loss")
    second = desk.ask(lambda: step(x3()), "batch.x")
    desk.ask(lambda: step(x3()), "on('batch').map(lambda b: b.x.max())")
    steps = [r.step for r in first.since(0)[1]]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    second.close()
    step(x3())
    step(x3())
    assert [r.step for r in desk.take(first)][-2:] == [steps[-1] + 1, steps[-1] + 2]


def test_equal_queries_of_two_clients_are_one(desk):
    body = Traced(halve)
    step = desk.live(jax.jit(body), x3())
    first = desk.ask(lambda: step(x3()), "batch.loss")
    n = len(body.threads)
    second = desk.another().stream(sg.on("batch").map(lambda e: e.loss))
    desk.take(second)
    step(x3())
    assert desk.values(first) == desk.values(second) == [5.0]
    assert len(body.threads) == n


def test_the_step_called_directly_is_not_watched(desk):
    plain = jax.jit(halve)
    step = desk.live(plain, x3())
    stream = desk.ask(lambda: step(x3()), "batch.loss")
    plain(x3())
    step(x3())
    assert len(desk.take(stream)) == 1


@pytest.mark.parametrize("context", ["matmul_precision", "device"])
def test_what_is_set_around_the_call_is_obeyed(desk, context):
    set_ = {
        "matmul_precision": lambda: jax.default_matmul_precision("highest"),
        "device": lambda: jax.default_device(jax.devices()[1]),
    }[context]
    with set_():
        step = desk.live(jax.jit(halve), x3())
        stream = desk.ask(lambda: step(x3()), "batch.loss")
        result = step(x3())
        assert result.devices() == x3().devices()
        assert desk.values(stream) == [5.0]


# Options of jax.jit


def test_donated_arguments_are_donated(desk):
    def f(p, x, *, q):
        log({"loss": (p + x + q).sum()})
        return p + x, q * 2

    def arguments():
        return (jnp.ones(3), x3()), {"q": jnp.ones(3)}

    plain = jax.jit(f, donate_argnums=0, donate_argnames="q")

    def call(step):
        (p, x), named = arguments()
        result = step(p, x, **named)
        return result, (p.is_deleted(), x.is_deleted(), named["q"].is_deleted())

    wanted, deleted = call(plain)
    assert deleted == (True, False, True)
    step = desk.live(plain)
    stream = desk.ask(lambda: call(step)[0], "batch.loss")
    result, now_deleted = call(step)
    same(result, wanted)
    assert desk.values(stream) == [9.0]
    assert now_deleted[:2] == deleted[:2]


def test_arguments_that_are_donated_by_name_are_donated(desk):
    plain = jax.jit(lambda p: halve(p), donate_argnames="p")  # noqa: PLW0108  its name counts
    step = desk.live(plain)
    desk.ask(lambda: step(p=x3()), "batch.loss")
    p = x3()
    step(p=p)
    assert p.is_deleted()


def test_an_argument_that_is_logged_as_it_is_may_be_given_away_at_once(desk):
    step = desk.live(jax.jit(halve), x3())
    stream = desk.ask(lambda: step(x3()), "batch.x")
    for i in range(20):
        x = jnp.full(3, i, jnp.float32)
        step(x)
        x.delete()
    assert [v.tolist() for v in desk.values(stream)] == [[i] * 3 for i in range(20)]
    assert stream.statistics().n_errors == 0


def test_what_is_donated_next_is_read_whole(desk):
    """The new parameters are logged, returned, and given away in the next call."""

    @functools.partial(jax.jit, donate_argnums=0)
    def f(params, x):
        new = {"w": params["w"] + x, "n": params["n"] + 1}
        log({"params": new}, step=new["n"])
        return new

    box = [{"w": jnp.zeros(1000), "n": jnp.int32(0)}]

    def call(step):
        box[0] = step(box[0], 1.0)
        return box[0]["n"]

    step = desk.live(f)
    call(step)
    stream = desk.ask(lambda: call(step), "batch.params")
    for _ in range(200):
        call(step)
    records = desk.take(stream)
    assert len(records) == 200
    assert all((r.value["w"] == r.step).all() and r.value["n"] == r.step for r in records)
    assert stream.statistics().n_errors == 0


def test_donation_warns_no_more_than_the_plain_step(desk):
    """Nothing can take the place of what is donated."""

    def f(p, x):
        log({"loss": p.sum()})
        return x.sum() + p[0]

    def warned(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return {str(w.message) for w in caught}

    step = live(jax.jit(f, donate_argnums=0), desk.run)
    plain = warned(lambda: step(jnp.ones(7), x3()))
    assert plain
    assert warned(lambda: desk.ask(lambda: step(jnp.ones(7), x3()), "batch.loss")) <= plain


@pytest.mark.parametrize("by", ["position", "name", "negative position"])
def test_static_arguments_tell_variants_apart(desk, by):
    body = Traced(lambda x, n: halve(x * n) if n < 5 else halve(x + n))
    options = {
        "position": {"static_argnums": 1},
        "name": {"static_argnames": "n"},
        "negative position": {"static_argnums": -1},
    }[by]
    plain = jax.jit(body.__wrapped__, **options)

    def call(n):
        result = step(x3(), n=n) if by == "name" else step(x3(), n)
        same(result, plain(x3(), n=n) if by == "name" else plain(x3(), n))
        return result

    step = desk.live(plain)
    stream = desk.ask(lambda: call(2), "batch.loss")
    assert stream.latest.value == 20.0
    until(lambda: (call(6), any(r.value == 149.0 for r in desk.take(stream)))[1])
    call(6), call(2), call(6)
    assert desk.values(stream)[-3:] == [149.0, 20.0, 149.0]


def test_pytrees_scalars_arrays_of_numpy_and_keys(desk):
    def f(tree, n, key, *rest, scale=1):
        noise = jax.random.normal(key, (3,))
        log({"sum": tree["a"][0] + tree["b"] * n + sum(rest) * scale, "noise": noise})
        return {"a": tree["a"][0] * n, "key": jax.random.split(key)[0]}, None

    def call(step, n=2, scale=3):
        return step(
            {"a": (x3(), None), "b": np.ones(3, np.float64)}, n, jax.random.key(1), 1.5, np.int64(2), scale=scale
        )

    plain = jax.jit(f)
    step = desk.live(plain)
    total, noise = desk.ask(lambda: call(step)[0]["a"], "batch.sum", "batch.noise")
    (got, nothing), (wanted, _) = call(step), call(plain)
    same(got["a"], wanted["a"])
    assert (nothing, got["key"].dtype) == (None, wanted["key"].dtype)
    assert (jax.random.key_data(got["key"]) == jax.random.key_data(wanted["key"])).all()
    np.testing.assert_allclose(desk.values(total), [[12.5, 13.5, 14.5]])
    np.testing.assert_allclose(desk.values(noise), [jax.random.normal(jax.random.key(1), (3,))], rtol=1e-6)


@pytest.mark.parametrize("how", ["committed", "in_shardings", "each", "one for all"])
def test_shardings_are_those_of_the_plain_step(desk, how):
    spread = jax.sharding.NamedSharding(mesh(), P("x"))
    whole = jax.sharding.NamedSharding(mesh(), P())

    def f(a, b):
        log({"a": a * 2, "sum": (a * b).sum()})
        return a + b, b * 2

    a, b = jnp.arange(8.0), jnp.ones(8)
    options = {
        "committed": {},
        "in_shardings": {"in_shardings": (spread, whole), "out_shardings": (whole, spread)},
        "each": {"in_shardings": (spread, None), "out_shardings": spread},
        "one for all": {"in_shardings": spread, "out_shardings": spread},
    }[how]
    if how == "committed":
        a, b = jax.device_put(a, spread), jax.device_put(b, whole)
    plain = jax.jit(f, **options)
    step = desk.live(plain)
    total, double = desk.ask(lambda: step(a, b), "batch.sum", "batch.a")
    same(step(a, b), plain(a, b))
    assert desk.values(total) == [28.0]
    np.testing.assert_array_equal(desk.values(double), [np.arange(0, 16, 2)])


def test_a_mesh_around_the_call_is_known_where_variants_are_made(desk):
    @jax.jit
    def f(x):
        x = jax.lax.with_sharding_constraint(x, P("x"))
        return halve(x)

    with jax.set_mesh(mesh()):
        x = jax.device_put(jnp.arange(8.0), P("x"))
        step = desk.live(f, x)
        stream = desk.ask(lambda: step(x), "batch.loss")
        same(step(x), f(x))
        assert desk.values(stream) == [140.0]


def test_options_of_the_compiler_and_unused_arguments(desk):
    plain = jax.jit(lambda x, unused: halve(x), keep_unused=True, compiler_options={"xla_cpu_enable_fast_math": False})
    step = desk.live(plain)
    stream = desk.ask(lambda: step(x3(), jnp.ones(5)), "batch.loss")
    same(step(x3(), jnp.ones(5)), plain(x3(), jnp.ones(5)))
    assert desk.values(stream) == [5.0]
    lowered = step._step._compiler.newest(0).jitted.lower(None, x3(), jnp.ones(5))
    assert "5xf32" in lowered.as_text()


def test_a_last_smaller_batch_stalls_nothing(desk):
    body = Traced(lambda x: halve(x).sum())
    step = desk.live(jax.jit(body), jnp.ones(8))
    stream = desk.ask(lambda: step(jnp.ones(8)), "batch.loss")
    for x in (jnp.ones(3), jnp.ones(8), jnp.ones(3), jnp.ones(8)):
        step(x)
    assert desk.values(stream).count(8.0) == 2
    until(lambda: (step(jnp.ones(3)), 3.0 in desk.values(stream))[1])
    for x in (jnp.ones(8), jnp.ones(3), jnp.ones(8)):
        step(x)
    assert desk.values(stream)[-3:] == [8.0, 3.0, 8.0]
    assert body.here == 2, "once for each shape, by the plain step"


def test_committed_arguments_are_another_signature(desk):
    body = Traced(halve)
    step = desk.live(jax.jit(body), x3())
    stream = desk.ask(lambda: step(x3()), "batch.loss")
    there = jax.device_put(2 * x3(), jax.devices()[1])
    until(lambda: (step(there), 20.0 in desk.values(stream))[1])
    here = jax.device_put(3 * x3(), jax.devices()[0])
    desk.take(stream)
    step(here)
    assert desk.take(stream) == [], "no variant is ready for it, and none is compiled on this thread"
    until(lambda: (step(here), 45.0 in desk.values(stream))[1])
    assert (body.here, step(there).devices()) == (1, {jax.devices()[1]})


def test_the_shapes_alone_are_kept_of_what_the_step_was_called_with(desk):
    step = desk.live(jax.jit(halve))
    x = x3() * 1
    held = weakref.ref(x)
    step(x)
    stream = desk.ask(lambda: step(x3()), "batch.loss")
    del x
    gc.collect()
    assert held() is None
    assert stream.latest.value == 5.0


# What cannot be answered


def test_a_name_that_is_not_logged(desk):
    step = desk.live(jax.jit(halve), x3())
    good = desk.ask(lambda: step(x3()), "batch.loss")
    expected = "QueryError: Unknown observable 'los' at event 'batch'. Did you mean 'loss'? Known: loss, x."
    assert desk.refused(lambda: step(x3()), "batch.los") == expected
    desk.take(good)
    step(x3())
    assert desk.values(good) == [5.0]


def test_an_event_that_is_not_known(desk):
    desk.live(jax.jit(halve), x3())
    note = desk.client.stream("bach.loss").note
    assert note == "Unknown event 'bach' so far. Did you mean 'batch'? Known: batch. Waiting for the first."


def test_a_result_that_is_too_big(desk):
    @jax.jit
    def f(x):
        log({"big": lambda: jnp.zeros((5_000, 5_000)) + x[0], "small": x})
        return x

    step = desk.live(f, x3())
    good = desk.ask(lambda: step(x3()), "batch.small", "on('batch').map(lambda b: b.big.max())")[0]
    expected = "RefusedQueryError: Expected a result of at most 64 MiB, got 95 MiB"
    assert desk.refused(lambda: step(x3()), "batch.big") == expected
    desk.take(good)
    step(x3())
    assert len(desk.take(good)) == 1


def test_a_condition_that_picks_items_of_an_unknown_number(desk):
    step = desk.live(jax.jit(halve), x3())
    message = desk.refused(lambda: step(x3()), "on('batch').map(lambda b: b.x[b.x > 1])")
    assert message.startswith("RefusedQueryError: A condition cannot pick items on a device")


def test_what_is_unfit_is_refused_by_name_and_shown_and_the_rest_answers(desk):
    @jax.jit
    def f(n):
        log({"n": n, "twice": n})
        log({"twice": jnp.ones(2)})
        return jax.lax.fori_loop(0, n, lambda i, c: (log({"c": c}), c + i)[1], 0)

    step = desk.live(f, 3)
    assert "Give it an event of its own" in desk.refused(lambda: step(3), "batch.c")
    assert "Two logs under the key 'twice'" in desk.refused(lambda: step(3), "batch.twice")
    stream = desk.ask(lambda: step(3), "batch.n")
    step(5)
    assert desk.values(stream) == [5]
    shown = desk.client.describe().events["batch"].observables
    assert {name: one.type for name, one in shown.items()} == {
        "n": "int32[]",
        "c": "cannot be queried",
        "twice": "cannot be queried",
    }


def test_a_step_that_cannot_be_traced_with_its_logs_goes_on(desk):
    @jax.jit
    def f(x):
        log({"a": x, "bad": lambda: 1 / 0})
        return x * 2

    step = desk.live(f, x3())
    message = "EvaluationError: Cannot trace 'f' with its logs: ZeroDivisionError: division by zero"
    assert desk.refused(lambda: step(x3()), "batch.a") == message
    assert desk.client.describe().events["batch"].note == message.removeprefix("EvaluationError: ")
    same(step(x3()), 2 * x3())


def test_a_query_that_fails_later_costs_its_events_and_not_the_step(desk):
    def fail(x):
        raise ValueError("no luck")

    desk.run.function("fail", fail)
    step = desk.live(jax.jit(halve), x3())
    message = desk.refused(lambda: step(x3()), "on('batch').map(lambda b: fail(b.x))")
    assert "ValueError: no luck (at event 'batch', step " in message
    same(step(x3()), 0.5 * x3())


@pytest.mark.parametrize("wrong", [halve, 3, "step", lambda x: x, functools.partial(halve), jax.vmap(halve)])
def test_what_jax_jit_did_not_return_is_refused(wrong):
    expected = r"Expected a function that jax\.jit returned, as in live\(jax\.jit\(f\)\), got "
    with pytest.raises(LogError, match=expected):
        live(wrong)


def test_a_step_that_is_live_already_is_refused():
    with pytest.raises(LogError, match=r"Expected a function that jax\.jit returned"):
        live(live(jax.jit(halve)))


def test_a_step_compiled_ahead_of_time_runs_and_says_why_it_cannot_be_asked(desk):
    step = desk.live(jax.jit(halve).lower(x3()).compile(), x3())
    note = "cannot be queried: the step was compiled ahead of time; pass live() what jax.jit returned"
    assert desk.client.describe().events["batch"].note == note
    assert desk.refused(lambda: step(x3()), "batch.loss") == f"RefusedError: Event 'batch' {note}"
    same(step(x3()), 0.5 * x3())
    assert desk.client.describe().events["batch"].n_events > 1


def test_an_event_has_one_source(desk):
    desk.run.observe("seen", x=1)
    first = desk.live(jax.jit(halve), x3())
    with pytest.raises(ValueError, match="Event 'seen' comes from observe already"):
        live(jax.jit(halve), desk.run, "seen")
    with pytest.raises(ValueError, match="Another live step already produces events named 'batch'"):
        live(jax.jit(halve), desk.run)
    del first
    desk.live(jax.jit(halve), x3())


def test_an_event_of_a_live_step_cannot_be_observed(desk):
    step = desk.live(jax.jit(halve), x3())
    with pytest.raises(ValueError, match="Event 'batch' comes from live already"):
        desk.run.observe("batch", loss=1.0)
    assert desk.idle(step)


def test_a_log_for_an_event_that_is_observed_stays_unseen_and_the_rest_is_seen(desk):
    @jax.jit
    def f(x):
        log({"a": x.sum()}, event="epoch")
        return halve(x)

    desk.run.observe("epoch", accuracy=0.5)
    step = desk.live(f, x3())
    stream, accuracy = desk.ask(
        lambda: (step(x3()), desk.run.observe("epoch", accuracy=0.5))[0], "batch.loss", "epoch.accuracy"
    )
    step(x3())
    assert (desk.values(stream), accuracy.latest.value) == ([5.0], 0.5)
    note = desk.client.describe().events["batch"].note
    assert note.startswith("Event 'epoch' comes from observe already; an event name has one source")


def test_two_steps_that_log_for_one_event_do_not_mix(desk):
    def f(x):
        log({"deep": x.sum()}, event="deep")
        return halve(x)

    first = desk.live(jax.jit(f), x3())
    desk.client.describe()  # and so what it logs is known
    second = desk.live(jax.jit(f), x3(), event="test")
    deep, tested = desk.ask(lambda: (first(x3()), second(2 * x3()))[0], "deep.deep", "test.loss")
    second(2 * x3())
    first(x3())
    assert (desk.values(deep), desk.values(tested)) == ([3.0], [20.0])


# Life


def test_a_step_without_a_run_is_the_plain_one():
    body = Traced(halve)
    plain = jax.jit(body)
    step = live(plain)
    same(step(x3()), 0.5 * x3())
    assert (plain._cache_size(), len(body.threads)) == (1, 1)
    assert step.lower(x3()).as_text() == plain.lower(x3()).as_text()
    assert (step.__name__, step.__wrapped__) == ("halve", plain)


def test_runs_come_and_go(tmp_path):
    step = live(jax.jit(halve))
    step(x3())
    for _ in range(2):
        desk = Desk(dir=tmp_path)
        stream = desk.ask(lambda: step(x3()), "batch.loss")
        (first, *_) = stream.since(0)[1]
        assert (stream.latest.value, first.step) != (None, 0)
        desk.close()
        assert step._step is None
        same(step(x3()), 0.5 * x3())


def test_a_run_that_is_disabled_sees_nothing_and_the_next_one_does(tmp_path):
    step = live(jax.jit(halve))
    with sg.init("off", dir=tmp_path, mode="disabled"):
        same(step(x3()), 0.5 * x3())
        assert step._step is None
    desk = Desk(dir=tmp_path)
    assert desk.ask(lambda: step(x3()), "batch.loss").latest.value == 5.0
    desk.close()


def test_the_run_that_is_named_is_the_one_that_is_asked(tmp_path):
    first, second = Desk(dir=tmp_path), Desk(dir=tmp_path)
    step = live(jax.jit(halve), first.run)
    newest = live(jax.jit(halve))
    assert first.ask(lambda: step(x3()), "batch.loss").latest.value == 5.0
    assert second.ask(lambda: newest(2 * x3()), "batch.loss").latest.value == 20.0
    first.close()
    second.close()


def test_a_step_that_nobody_has_any_more_is_in_nobodys_way(tmp_path):
    """As in a sweep: each run has a step of its own."""

    def fit():
        desk = Desk(dir=tmp_path)
        step = desk.live(jax.jit(halve), x3())
        assert desk.ask(lambda: step(x3()), "batch.loss").latest.value == 5.0
        desk.close()
        return weakref.ref(step)

    steps = [fit() for _ in range(3)]
    gc.collect()
    assert [ref() for ref in steps] == [None] * 3


def test_a_step_that_is_not_called_any_more_is_in_nobodys_way(tmp_path):
    first, old = Desk(dir=tmp_path), live(jax.jit(halve))
    old(x3())
    first.close()
    second = Desk(dir=tmp_path)
    step = second.live(jax.jit(halve), 2 * x3())
    assert second.ask(lambda: step(2 * x3()), "batch.loss").latest.value == 20.0
    with pytest.raises(ValueError, match="Another live step already produces events"):
        old(x3())
    second.close()


def test_questions_may_come_before_the_first_call(desk):
    step = live(jax.jit(halve), desk.run)
    early = desk.client.stream("batch.loss")
    assert (early.note, desk.client.describe().events["batch"].n_events) == ("", 0)
    until(lambda: (step(x3()), early.latest)[1])
    assert early.latest.value == 5.0


def test_a_description_waits_for_what_the_step_logs(desk):
    @jax.jit
    def f(x):
        log({"loss": x.sum(), "grads": {"dense": {"kernel": jnp.zeros((2, 3))}}}, step=3)
        log({"deep": x}, event="deep")
        return x

    step = desk.live(f, x3())
    events = desk.client.describe().events
    assert (events["batch"].origin, events["batch"].n_events, set(events)) == ("live", 1, {"batch", "deep"})
    shown = {name: (one.type, dict(one.fields)) for name, one in events["batch"].observables.items()}
    assert shown == {
        "step": ("int32[]", {}),
        "loss": ("float32[]", {}),
        "grads": ("mapping of 1", {"dense.kernel": "float32[2, 3]"}),
    }
    assert events["deep"].observables["deep"].type == "float32[3]"
    assert desk.idle(step)


def test_what_is_kept_from_the_start_is_recorded(tmp_path):
    desk = Desk(dir=tmp_path, record=["batch.loss"])
    step = live(jax.jit(halve), desk.run)
    answers = desk.telemetry.subscriptions.active
    until(lambda: (step(x3()), any(answer.n_rows for answer in answers.values()))[1])
    step(2 * x3())
    desk.close()
    with sg.open(desk.run.directory) as old:
        records = [r.value for r in old.stream("batch.loss")]
        mean = [r.value for r in old.stream("on('batch').map(lambda b: b.loss).max()")]
    assert (records[0], records[-1], mean[-1]) == (5.0, 20.0, 20.0)


def test_recording_begins_and_ends_at_run_time(desk):
    step = desk.live(jax.jit(halve), x3())
    desk.client.record("batch.loss")
    stream = desk.ask(lambda: step(x3()), "batch.loss")
    stream.close()
    step(2 * x3())
    desk.run.flush()
    desk.client.unrecord("batch.loss")
    until(lambda: not desk.telemetry.subscriptions.active)
    step(3 * x3())
    assert desk.idle(step)
    desk.run.close()
    with sg.open(desk.run.directory) as old:
        assert [float(r.value) for r in old.stream("batch.loss")][-1] == 20.0


def test_what_is_open_at_the_end_is_said_to_be(desk):
    step = desk.live(jax.jit(halve), x3())
    stream = desk.ask(lambda: (step(x3()), desk.run.end_group("batch"))[0], "on('batch').map(lambda b: b.loss).sum()")
    for _ in range(3):
        step(x3())
    desk.run.close()
    assert [(r.value, r.closed) for r in list(stream)][-1] == (15.0, False)


# Acts


def in_background(act):
    """Let a client act while this thread goes on; return what to wait for."""
    box = []
    thread = threading.Thread(target=lambda: box.append(act()))
    thread.start()
    return thread, box


@pytest.mark.parametrize("asked", [False, True])
def test_acts_apply_between_calls(desk, asked):
    rate = desk.run.control("rate", 1.0, min=0.0, max=10.0)
    desk.run.action("add", lambda a: a + 1)
    step = desk.live(jax.jit(lambda x, rate: halve(x * rate)), x3(), 1.0)
    if asked:
        stream = desk.ask(lambda: step(x3(), rate.value), "batch.loss")
    for act, expected in (
        (lambda: desk.client.set("rate", 2.0), 1.0),
        (lambda: desk.client.set("rate", 3.0, at="batch"), 2.0),
    ):
        thread, box = in_background(act)
        until(lambda: desk.telemetry.commands.queue.pending or not thread.is_alive())  # noqa: B023
        n = desk.telemetry.subscriptions.sources["batch"].n_events
        assert rate.value == expected
        step(x3(), rate.value)
        thread.join(10)
        assert (box[0].applied, box[0].event, box[0].index, box[0].old) == (True, "batch", n, expected)
    assert rate.value == 3.0
    if asked:
        step(x3(), rate.value)
        assert desk.values(stream) == [5.0, 20.0, 45.0]
    thread, box = in_background(lambda: desk.client.call("add", 41))
    until(lambda: (step(x3(), 1.0), not thread.is_alive())[1])
    assert box[0].result == 42


@pytest.mark.parametrize("asked", [False, True])
def test_a_pause_holds_the_step_between_calls(desk, asked):
    step = desk.live(jax.jit(halve), x3())
    if asked:
        stream = desk.ask(lambda: step(x3()), "batch.loss")
    client = desk.another()
    seen = []

    def control():
        client.pause()
        seen.append(desk.telemetry.subscriptions.sources["batch"].n_events)
        seen.append(desk.client.describe().state)
        seen.append(desk.telemetry.subscriptions.sources["batch"].n_events)
        client.resume()
        client.stop()

    thread, _ = in_background(control)
    until(lambda: (step(x3()), desk.run.stopping)[1])
    thread.join(10)
    assert seen[1] == "paused"
    assert seen[0] == seen[2]
    assert [entry.kind for entry in desk.client.history] == ["pause", "resume", "stop"]
    if asked:
        assert set(desk.values(stream)) == {5.0}


# Where it is called


def test_a_call_that_is_part_of_a_trace_is_the_plain_step(desk):
    step = desk.live(jax.jit(halve), x3())
    stream = desk.ask(lambda: step(x3()), "batch.loss")
    outside = x3()
    half = 0.5 * x3()
    for _ in range(2):
        same(jax.jit(step)(x3()), half)
        same(jax.jit(lambda y: step(outside) + y)(0.0), half)
        same(jax.vmap(step)(jnp.stack([x3(), x3()]))[1], half)
        same(jax.grad(lambda x: step(x).sum())(x3()), jnp.full(3, 0.5))
        same(jax.lax.scan(lambda c, _: (step(c), None), x3(), None, length=1)[0], half)
        _, logs = spool(step)(x3())
        assert float(logs["loss"][0]) == 5.0
    assert desk.take(stream) == []
    step(x3())
    assert desk.values(stream) == [5.0]


def test_a_call_inside_grad_of_nothing_that_it_takes_is_a_call(desk):
    step = desk.live(jax.jit(halve), x3())
    desk.ask(lambda: step(x3()), "batch.loss")
    outside = x3()
    assert float(jax.grad(lambda a: (a * step(outside)).sum())(1.0)) == 1.5


def test_without_jit_the_step_is_the_plain_one(desk):
    step = desk.live(jax.jit(halve), x3())
    desk.ask(lambda: step(x3()), "batch.loss")
    with jax.disable_jit():
        same(step(x3()), 0.5 * x3())


def test_a_method_in_a_class(desk):
    class Trainer:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(live, event="batch")
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x):
            return halve(x * self.scale)

    trainer = Trainer(2.0)
    stream = desk.ask(lambda: trainer.step(x3()), "batch.loss")
    same(trainer.step(x3()), x3())
    assert desk.values(stream) == [20.0]


def test_a_method_of_one_object_is_refused_with_the_way_out(desk):
    class Trainer:
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x):
            return halve(x)

    with pytest.raises(LogError, match=r"write live\(jax\.jit\(…\)\) in the class, around the function"):
        live(Trainer().step)
    bound = jax.jit(Trainer().step)  # this is one of jax.jit's
    step = desk.live(bound, x3())
    assert desk.ask(lambda: step(x3()), "batch.loss").latest.value == 5.0


def test_threads_may_call_the_step(desk):
    step = desk.live(jax.jit(halve), x3())
    stream = desk.ask(lambda: step(x3()), "batch.loss")
    failures = []

    def work(scale):
        try:
            for _ in range(50):
                np.testing.assert_array_equal(step(scale * x3()), 0.5 * scale * np.arange(3))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    values = desk.values(stream)
    assert sorted(values) == sorted([5.0 * i * i for i in range(1, 4)] * 50)


def test_clients_come_and_go_on_other_threads_while_the_step_runs(desk):
    step = desk.live(jax.jit(halve), x3())
    over, failures = threading.Event(), []

    def work(i):
        try:
            with sg.connect(desk.run) as client:
                for j in range(6):
                    stream = client.stream(f"on('batch').map(lambda b: b.loss + {i + j})")
                    stream.wait(2, timeout_s=30)
                    assert stream.latest.value == 5.0 + i + j
                    stream.close()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            over.set()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    until(
        lambda: (np.testing.assert_array_equal(step(x3()), 0.5 * np.arange(3)), not any(t.is_alive() for t in threads))[
            1
        ]
    )
    assert failures == []


ENDING = """
import threading, time
import jax, jax.numpy as jnp
import sightglass as sg
from sightglass.jax import live, log

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(1.5)  # while the interpreter goes: whatever comes back from XLA now, comes back to nothing

last = Last()
compiles = threading.Event()

def listen(event, *args, **kwargs):
    if event.endswith("jaxpr_to_mlir_module_duration") and threading.current_thread() is not threading.main_thread():
        compiles.set()  # what comes next on that thread is XLA

@jax.jit
def f(x):
    for i in range(60 if threading.current_thread() is not threading.main_thread() else 1):
        x = jnp.sort(jnp.sin(x) + i)
    log({"loss": x.sum()})
    return x

run = sg.init("t")
step = live(f)
stream = sg.connect(run).stream("batch.loss")
jax.monitoring.register_event_duration_secs_listener(listen)
step(jnp.ones(30))
step(jnp.ones(30))
assert compiles.wait(60)
"""


def test_a_process_that_ends_while_a_variant_is_made_ends_well(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ENDING],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ},
    )
    assert (done.returncode, done.stderr) == (0, "")
