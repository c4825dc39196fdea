"""`live`: clients ask for what a compiled step logs, while it runs, and it stays the step it was."""

from __future__ import annotations

import functools
import gc
import os
import re
import subprocess
import sys
import threading
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.errors import LogError
from sightglass.core.process.threads import TURN_S
from sightglass.jax import live, log, spool
from sightglass.jax.ondemand.variant_compiler import MAX_SIGNATURES, MAX_VARIANTS

from .programs import mesh
from .queried_run import QueriedRun, same

P = jax.sharding.PartitionSpec


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


# Results and answers


def train(w, x):
    def loss_of(w):
        y = jnp.tanh(x @ w)
        log({"acts": y})
        return (y**2).mean()

    loss, grads = jax.value_and_grad(loss_of)(w)
    log({"loss": loss, "grads": {"dense": grads}}, step=x[0, 0].astype(int), epoch=3)
    return w - 0.1 * grads, loss


def test_results_are_those_of_the_plain_step_and_answers_those_of_spool(queried):
    plain = jax.jit(train)
    w, x = jnp.ones((4, 3)), jnp.full((8, 4), 2.0)
    step = queried.live(plain, w, x)
    loss, size, acts = queried.query(
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
        (record,) = queried.new_records(loss)
        assert (record.step, record.steps) == (2, {"epoch": 3})
        np.testing.assert_allclose(record.value, logs["loss"][0], rtol=1e-6)
        np.testing.assert_allclose(queried.values(size), abs(logs["grads"]["dense"][0]).mean(), rtol=1e-6)
        np.testing.assert_allclose(queried.values(acts), logs["acts"], rtol=1e-6)


def test_the_number_of_the_call_is_the_index_of_the_event(queried):
    step = queried.live(jax.jit(halve))
    n_calls = [0]

    def call():
        n_calls[0] += 1
        return step(x3())

    for _ in range(7):
        call()
    stream = queried.query(call, "batch.loss")
    call()
    assert [r.step for r in queried.new_records(stream)] == [n_calls[0] - 1]
    assert queried.client.describe().events["batch"].n_events == n_calls[0]


def test_reducers_and_windows_are_those_of_the_run(queried):
    step = queried.live(jax.jit(halve), x3())
    mean, above = queried.query(
        lambda: step(x3()),
        "on('batch').map(lambda b: b.loss).mean(every=4)",
        "on('batch').where(lambda b: b.loss > 10).map(lambda b: b.loss).count(every=2)",
    )
    for scale in [1.0, 2.0] * 4:  # the first window may have begun before
        step(scale * x3())
    assert {(r.value, r.n_events, (r.step + 1) % 4) for r in queried.new_records(mean)[1:]} == {(12.5, 4, 0)}
    assert set(queried.values(above)[1:]) == {1}


def test_a_group_ends_where_the_run_says_or_another_event(queried):
    step = queried.live(jax.jit(halve), x3())
    group, per = queried.query(
        lambda: (step(x3()), queried.run.end_group("batch"), queried.run.observe("epoch"))[0],
        "on('batch').map(lambda b: b.loss).sum()",
        "on('batch').map(lambda b: b.loss).sum(per='epoch')",
    )
    for _ in range(2):
        for _ in range(3):
            step(x3())
        queried.run.end_group("batch")
        queried.run.observe("epoch")
    assert queried.values(group) == queried.values(per) == [15.0, 15.0]


def test_calls_delimit_groups_of_other_events(queried):
    step = queried.live(jax.jit(halve), x3())
    queried.run.observe("tick", n=0)
    ticks = queried.client.stream("on('tick').count(per='batch')")
    for _ in range(3):
        queried.run.observe("tick", n=1)
        queried.run.observe("tick", n=2)
        step(x3())
    assert queried.values(ticks) == [2, 2, 2]


def test_functions_of_the_run_are_called_with_arrays_of_the_host(queried):
    queried.run.function("odd", lambda x: sorted(np.asarray(x).tolist())[-1])
    step = queried.live(jax.jit(halve), x3())
    stream = queried.query(lambda: step(x3()), "on('batch').map(lambda b: odd(b.x) + b.loss)")
    step(2 * x3())
    assert queried.values(stream) == [24.0]


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
def test_queries_give_the_same_results_inside_and_outside_of_the_step(queried, query):
    step = queried.live(jax.jit(halve), x3())
    outside = queried.client.stream(query.replace("'batch'", "'outside'"))
    inside = queried.query(lambda: step(x3()), query)
    x = jnp.array([0.5, 3.0, 2.0])
    step(x)
    queried.run.observe("outside", x=np.asarray(x), loss=np.float32((x * x).sum()))
    (a,), (b,) = queried.values(inside), queried.values(outside)
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


def test_without_queries_the_step_is_the_users_own(queried):
    body = Traced(halve)
    plain = jax.jit(body)
    step = queried.live(plain, x3())
    assert queried.idle(step)
    for _ in range(5):
        step(x3())
    assert (len(body.threads), plain._cache_size()) == (1, 1)


def test_no_other_thread_traces_for_the_training_thread(queried):
    """To ask, to ask again, and to leave: the training thread traces nothing, and the plain step is never retraced."""
    inner, other = Traced(lambda x: x * 3), Traced(lambda x: x + 1)
    j_inner, j_other = jax.jit(inner), jax.jit(other)
    body = Traced(lambda x: halve(j_inner(x)))
    plain = jax.jit(body)
    j_inner(x3()), j_other(x3())
    step = queried.live(plain, x3())
    for _ in range(3):
        stream = queried.query(lambda: step(x3()), "batch.loss")
        j_other(x3()), j_inner(x3()), plain(x3())
        queried.end(stream)
        wait_until(lambda: queried.idle(step))
        step(x3())
    assert (body.here, inner.here, other.here) == (1, 1, 1)
    assert len(other.threads) == 1
    assert len(body.threads) == 3, "here; to see what is logged; and for the one variant"
    assert plain._cache_size() == 1


def test_turns_are_short_while_a_variant_is_traced(queried):
    seen = []

    def quick(x):
        seen.append((threading.current_thread().name, sys.getswitchinterval()))
        return halve(x)

    step = queried.live(jax.jit(quick), x3())
    queried.query(lambda: step(x3()), "batch.loss")
    assert {name for name, _ in seen} == {threading.current_thread().name, "sightglass-compile"}
    assert all(turn_s == pytest.approx(TURN_S) for name, turn_s in seen if name == "sightglass-compile")
    wait_until(lambda: sys.getswitchinterval() > 2 * TURN_S, "the usual interval")


def test_a_compiled_variant_is_reused(queried):
    body = Traced(halve)
    step = queried.live(jax.jit(body), x3())
    queries = ["batch.loss", "batch.x", ("batch.loss", "batch.x")]
    for query in queries:
        queried.end(*_all(queried.query(lambda: step(x3()), *_all(query))))
    n = len(body.threads)
    for query in queries:
        streams = [queried.client.stream(one) for one in _all(query)]
        step(x3())  # the first call answers
        assert [len(queried.new_records(stream)) for stream in streams] == [1] * len(streams)
        queried.end(*streams)
    assert len(body.threads) == n


def _all(one):
    return one if isinstance(one, tuple | list) else (one,)


def test_the_number_of_variants_is_bounded_and_the_oldest_goes(queried):
    body = Traced(halve)
    step = queried.live(jax.jit(body), x3())
    for i in range(MAX_VARIANTS + 2):
        queried.end(queried.query(lambda: step(x3()), f"on('batch').map(lambda b: b.loss + {i})"))
    assert len(step._step._compiler._compiled) == MAX_VARIANTS
    n = len(body.threads)
    for i, again in ((MAX_VARIANTS + 1, 0), (0, 1)):
        queried.end(queried.query(lambda: step(x3()), f"on('batch').map(lambda b: b.loss + {i})"))
        assert len(body.threads) == n + again


def test_a_later_query_does_not_interrupt_an_earlier_one(queried):
    step = queried.live(jax.jit(halve), x3())
    first = queried.query(lambda: step(x3()), "batch.loss")
    second = queried.query(lambda: step(x3()), "batch.x")
    queried.query(lambda: step(x3()), "on('batch').map(lambda b: b.x.max())")
    queried.new_records(first)
    steps = [r.step for r in first.records()]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    second.close()
    step(x3())
    step(x3())
    assert [r.step for r in queried.new_records(first)][-2:] == [steps[-1] + 1, steps[-1] + 2]


def test_equal_queries_of_two_clients_are_one(queried):
    body = Traced(halve)
    step = queried.live(jax.jit(body), x3())
    first = queried.query(lambda: step(x3()), "batch.loss")
    n = len(body.threads)
    second = queried.another().stream(sg.on("batch").map(lambda e: e.loss))
    queried.new_records(second)
    step(x3())
    assert queried.values(first) == queried.values(second) == [5.0]
    assert len(body.threads) == n


def test_calling_the_function_directly_is_no_event(queried):
    plain = jax.jit(halve)
    step = queried.live(plain, x3())
    stream = queried.query(lambda: step(x3()), "batch.loss")
    plain(x3())
    step(x3())
    assert len(queried.new_records(stream)) == 1


@pytest.mark.parametrize("context", ["matmul_precision", "device"])
def test_settings_around_the_call_apply(queried, context):
    set_ = {
        "matmul_precision": lambda: jax.default_matmul_precision("highest"),
        "device": lambda: jax.default_device(jax.devices()[1]),
    }[context]
    with set_():
        step = queried.live(jax.jit(halve), x3())
        stream = queried.query(lambda: step(x3()), "batch.loss")
        result = step(x3())
        assert result.devices() == x3().devices()
        assert queried.values(stream) == [5.0]


# Options of jax.jit


def test_donated_arguments_are_donated(queried):
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
    step = queried.live(plain)
    stream = queried.query(lambda: call(step)[0], "batch.loss")
    result, now_deleted = call(step)
    same(result, wanted)
    assert queried.values(stream) == [9.0]
    assert now_deleted[:2] == deleted[:2]


def test_arguments_that_are_donated_by_name_are_donated(queried):
    plain = jax.jit(lambda p: halve(p), donate_argnames="p")  # noqa: PLW0108  its name counts
    step = queried.live(plain)
    queried.query(lambda: step(p=x3()), "batch.loss")
    p = x3()
    step(p=p)
    assert p.is_deleted()


def test_an_argument_that_is_logged_unchanged_may_be_donated_at_once(queried):
    step = queried.live(jax.jit(halve), x3())
    stream = queried.query(lambda: step(x3()), "batch.x")
    for i in range(20):
        x = jnp.full(3, i, jnp.float32)
        step(x)
        x.delete()
    assert [v.tolist() for v in queried.values(stream)] == [[i] * 3 for i in range(20)]
    assert stream.statistics().n_errors == 0


def test_values_donated_to_the_next_call_are_read_whole(queried):
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

    step = queried.live(f)
    call(step)
    stream = queried.query(lambda: call(step), "batch.params")
    for _ in range(200):
        call(step)
    records = queried.new_records(stream)
    assert len(records) == 200
    assert all((r.value["w"] == r.step).all() and r.value["n"] == r.step for r in records)
    assert stream.statistics().n_errors == 0


def test_donation_warns_no_more_than_the_plain_step(queried):
    """Nothing can take the place of what is donated."""

    def f(p, x):
        log({"loss": p.sum()})
        return x.sum() + p[0]

    def warned(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return {str(w.message) for w in caught}

    step = live(jax.jit(f, donate_argnums=0), queried.run)
    plain = warned(lambda: step(jnp.ones(7), x3()))
    assert plain
    assert warned(lambda: queried.query(lambda: step(jnp.ones(7), x3()), "batch.loss")) <= plain


@pytest.mark.parametrize("by", ["position", "name", "negative position"])
def test_static_arguments_tell_variants_apart(queried, by):
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

    step = queried.live(plain)
    stream = queried.query(lambda: call(2), "batch.loss")
    assert stream.latest.value == 20.0
    wait_until(lambda: (call(6), any(r.value == 149.0 for r in queried.new_records(stream)))[1])
    call(6), call(2), call(6)
    assert queried.values(stream)[-3:] == [149.0, 20.0, 149.0]


def test_pytrees_scalars_arrays_of_numpy_and_keys(queried):
    def f(tree, n, key, *rest, scale=1):
        noise = jax.random.normal(key, (3,))
        log({"sum": tree["a"][0] + tree["b"] * n + sum(rest) * scale, "noise": noise})
        return {"a": tree["a"][0] * n, "key": jax.random.split(key)[0]}, None

    def call(step, n=2, scale=3):
        return step(
            {"a": (x3(), None), "b": np.ones(3, np.float64)}, n, jax.random.key(1), 1.5, np.int64(2), scale=scale
        )

    plain = jax.jit(f)
    step = queried.live(plain)
    total, noise = queried.query(lambda: call(step)[0]["a"], "batch.sum", "batch.noise")
    (got, nothing), (wanted, _) = call(step), call(plain)
    same(got["a"], wanted["a"])
    assert (nothing, got["key"].dtype) == (None, wanted["key"].dtype)
    assert (jax.random.key_data(got["key"]) == jax.random.key_data(wanted["key"])).all()
    np.testing.assert_allclose(queried.values(total), [[12.5, 13.5, 14.5]])
    np.testing.assert_allclose(queried.values(noise), [jax.random.normal(jax.random.key(1), (3,))], rtol=1e-6)


@pytest.mark.parametrize("how", ["committed", "in_shardings", "each", "one for all"])
def test_shardings_are_those_of_the_plain_step(queried, how):
    spread = jax.sharding.NamedSharding(mesh("x"), P("x"))
    whole = jax.sharding.NamedSharding(mesh("x"), P())

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
    step = queried.live(plain)
    total, double = queried.query(lambda: step(a, b), "batch.sum", "batch.a")
    same(step(a, b), plain(a, b))
    assert queried.values(total) == [28.0]
    np.testing.assert_array_equal(queried.values(double), [np.arange(0, 16, 2)])


def test_a_mesh_around_the_call_applies_to_variants(queried):
    @jax.jit
    def f(x):
        x = jax.lax.with_sharding_constraint(x, P("x"))
        return halve(x)

    with jax.set_mesh(mesh("x")):
        x = jax.device_put(jnp.arange(8.0), P("x"))
        step = queried.live(f, x)
        stream = queried.query(lambda: step(x), "batch.loss")
        same(step(x), f(x))
        assert queried.values(stream) == [140.0]


def test_options_of_the_compiler_and_unused_arguments(queried):
    plain = jax.jit(lambda x, unused: halve(x), keep_unused=True, compiler_options={"xla_cpu_enable_fast_math": False})
    step = queried.live(plain)
    stream = queried.query(lambda: step(x3(), jnp.ones(5)), "batch.loss")
    same(step(x3(), jnp.ones(5)), plain(x3(), jnp.ones(5)))
    assert queried.values(stream) == [5.0]
    lowered = step._step._compiler.newest(0).jitted.lower(None, x3(), jnp.ones(5))
    assert "5xf32" in lowered.as_text()


def test_a_smaller_last_batch_stalls_nothing(queried):
    body = Traced(lambda x: halve(x).sum())
    step = queried.live(jax.jit(body), jnp.ones(8))
    stream = queried.query(lambda: step(jnp.ones(8)), "batch.loss")
    for x in (jnp.ones(3), jnp.ones(8), jnp.ones(3), jnp.ones(8)):
        step(x)
    assert queried.values(stream).count(8.0) == 2
    wait_until(lambda: (step(jnp.ones(3)), 3.0 in queried.values(stream))[1])
    for x in (jnp.ones(8), jnp.ones(3), jnp.ones(8)):
        step(x)
    assert queried.values(stream)[-3:] == [8.0, 3.0, 8.0]
    assert body.here == 2, "once for each shape, by the plain step"


def test_committed_arguments_are_another_signature(queried):
    body = Traced(halve)
    step = queried.live(jax.jit(body), x3())
    stream = queried.query(lambda: step(x3()), "batch.loss")
    there = jax.device_put(2 * x3(), jax.devices()[1])
    wait_until(lambda: (step(there), 20.0 in queried.values(stream))[1])
    here = jax.device_put(3 * x3(), jax.devices()[0])
    queried.new_records(stream)
    step(here)
    assert queried.new_records(stream) == [], "no variant is ready for it, and none is compiled on this thread"
    wait_until(lambda: (step(here), 45.0 in queried.values(stream))[1])
    assert (body.here, step(there).devices()) == (1, {jax.devices()[1]})


def test_only_shapes_of_the_arguments_are_stored(queried):
    step = queried.live(jax.jit(halve))
    x = x3() * 1
    held = weakref.ref(x)
    step(x)
    stream = queried.query(lambda: step(x3()), "batch.loss")
    del x
    gc.collect()
    assert held() is None
    assert stream.latest.value == 5.0


# What cannot be answered


def test_a_name_that_is_not_logged(queried):
    step = queried.live(jax.jit(halve), x3())
    good = queried.query(lambda: step(x3()), "batch.loss")
    expected = "QueryError: Unknown observable 'los' at event 'batch'. Did you mean 'loss'? Known: loss, x."
    assert queried.refused(lambda: step(x3()), "batch.los") == expected
    queried.new_records(good)
    step(x3())
    assert queried.values(good) == [5.0]


@pytest.mark.parametrize("field", ["index", "wall_time"])
def test_the_number_and_the_time_of_an_event_say_where_they_are(queried, field):
    step = queried.live(jax.jit(halve), x3())
    refused = queried.refused(lambda: step(x3()), f"batch.loss + batch.event.{field}")
    assert refused.startswith("QueryError: Event 'batch' ")
    assert "wall_time" in refused


@pytest.mark.parametrize(
    "query",
    [
        "on('batch').join('epoch').map(lambda b: b.loss + b.epoch.x)",
        "on('epoch').join('batch').map(lambda e: e.batch.loss)",
    ],
)
def test_a_join_with_an_event_in_a_step_says_what_to_do(queried, query):
    step = queried.live(jax.jit(halve), x3())
    good = queried.query(lambda: step(x3()), "batch.loss")
    refused = queried.refused(lambda: step(x3()), query)
    assert "got 'batch'" in refused
    assert "observe" in refused
    queried.new_records(good)
    step(x3())
    assert queried.values(good) == [5.0]


def test_an_event_that_is_not_known(queried):
    queried.live(jax.jit(halve), x3())
    note = queried.client.stream("bach.loss").note
    assert re.match("Unknown event 'bach' .*'batch'", note)


def test_a_result_that_is_too_big(queried):
    @jax.jit
    def f(x):
        log({"big": lambda: jnp.zeros((5_000, 5_000)) + x[0], "small": x})
        return x

    step = queried.live(f, x3())
    good = queried.query(lambda: step(x3()), "batch.small", "on('batch').map(lambda b: b.big.max())")[0]
    expected = "RefusedQueryError: Expected a result of at most 64 MiB, got 95 MiB"
    assert queried.refused(lambda: step(x3()), "batch.big") == expected
    queried.new_records(good)
    step(x3())
    assert len(queried.new_records(good)) == 1


def test_a_condition_that_selects_items_of_an_unknown_number(queried):
    step = queried.live(jax.jit(halve), x3())
    message = queried.refused(lambda: step(x3()), "on('batch').map(lambda b: b.x[b.x > 1])")
    assert re.match("RefusedQueryError: .*on a device", message)


def test_unavailable_observables_are_refused_by_name_and_the_rest_works(queried):
    @jax.jit
    def f(n):
        log({"n": n, "twice": n})
        log({"twice": jnp.ones(2)})
        return jax.lax.fori_loop(0, n, lambda i, c: (log({"c": c}, event="batch"), c + i)[1], 0)

    step = queried.live(f, 3)
    assert "leave out event=" in queried.refused(lambda: step(3), "batch.c")
    assert "'twice'" in queried.refused(lambda: step(3), "batch.twice")
    stream = queried.query(lambda: step(3), "batch.n")
    step(5)
    assert queried.values(stream) == [5]
    shown = queried.client.describe().events["batch"].observables
    assert {name: one.type for name, one in shown.items()} == {
        "n": "int32[]",
        "c": "cannot be queried",
        "twice": "cannot be queried",
    }


def test_who_asks_the_step_for_what_a_loop_logs_learns_its_event(queried):
    def update(c, i):
        log({"c": c})
        return c + i, None

    step = queried.live(jax.jit(lambda x: jax.lax.scan(update, x, jnp.arange(3))[0]), 0)
    refused = queried.refused(lambda: step(0), "batch.c")
    assert refused.startswith("QueryError: 'c' ")
    assert "ask batch_update.c. " in refused
    assert "log(…, event='batch')" in refused
    stream = queried.query(lambda: step(0), "batch_update.c")
    step(5)
    assert queried.values(stream) == [5, 5, 6]


def test_a_step_that_cannot_be_traced_with_its_logs_continues(queried):
    @jax.jit
    def f(x):
        log({"a": x, "bad": lambda: 1 / 0})
        return x * 2

    step = queried.live(f, x3())
    message = queried.refused(lambda: step(x3()), "batch.a")
    assert re.match("EvaluationError: .*'f'.*: ZeroDivisionError", message)
    assert queried.client.describe().events["batch"].note == message.removeprefix("EvaluationError: ")
    same(step(x3()), 2 * x3())


def test_a_query_that_fails_later_costs_its_events_and_not_the_step(queried):
    def fail(x):
        raise ValueError("no luck")

    queried.run.function("fail", fail)
    step = queried.live(jax.jit(halve), x3())
    message = queried.refused(lambda: step(x3()), "on('batch').map(lambda b: fail(b.x))")
    assert "ValueError: no luck (at event 'batch', step " in message
    same(step(x3()), 0.5 * x3())


@pytest.mark.parametrize("wrong", [halve, 3, "step", lambda x: x, functools.partial(halve), jax.vmap(halve)])
def test_anything_but_a_function_of_jax_jit_is_refused(wrong):
    with pytest.raises(LogError, match=r"jax\.jit, nnx\.jit or eqx\.filter_jit .*live\(jax\.jit\(f\)\), got "):
        live(wrong)


def test_a_step_that_is_live_already_is_refused():
    with pytest.raises(LogError, match=r"jax\.jit, nnx\.jit"):
        live(live(jax.jit(halve)))


def test_a_step_compiled_ahead_of_time_runs_and_says_why_it_cannot_be_queried(queried):
    step = queried.live(jax.jit(halve).lower(x3()).compile(), x3())
    note = queried.client.describe().events["batch"].note
    assert "ahead of time" in note
    assert queried.refused(lambda: step(x3()), "batch.loss") == f"RefusedError: Event 'batch' {note}"
    same(step(x3()), 0.5 * x3())
    assert queried.client.describe().events["batch"].n_events > 1


def test_an_event_has_one_source(queried):
    queried.run.observe("seen", x=1)
    first = queried.live(jax.jit(halve), x3())
    with pytest.raises(ValueError, match=r"'seen'.*observe"):
        live(jax.jit(halve), queried.run, "seen")
    loop = jax.jit(lambda x: jax.lax.scan(lambda c, i: (log({"c": c}), (c, None))[1], x, jnp.arange(2))[0])
    nested = queried.live(loop, x3(), event="epoch")
    queried.query(lambda: nested(x3()), "on('epoch')")
    [name] = [name for name in queried.client.describe().events if name.startswith("epoch_")]
    with pytest.raises(ValueError, match=f"'{name}'"):
        live(jax.jit(halve), queried.run, name)
    same(first(x3()), 0.5 * x3())


@pytest.mark.parametrize("other", [halve, lambda x: x * 3])
def test_a_step_that_is_made_live_again_replaces_the_old_one(queried, other):
    function = jax.jit(halve)
    old = queried.live(function, x3())
    stream = queried.query(lambda: old(x3()), "batch.loss")
    n = len(stream.records())
    new = queried.live(function if other is halve else jax.jit(other), x3())
    with pytest.warns(RuntimeWarning, match="'batch'.*replaced"):
        same(old(x3()), 0.5 * x3())
    same(old(x3()), 0.5 * x3())  # it says so once
    if other is halve:
        wait_until(lambda: (jax.block_until_ready(new(x3())), len(stream.records()) > n)[1], "a record of the new one")


def test_an_event_of_a_live_step_cannot_be_observed(queried):
    step = queried.live(jax.jit(halve), x3())
    with pytest.raises(ValueError, match=r"'batch'.*live"):
        queried.run.observe("batch", loss=1.0)
    assert queried.idle(step)


def test_a_log_for_an_event_that_is_observed_stays_unseen_and_the_rest_is_seen(queried):
    @jax.jit
    def f(x):
        log({"a": x.sum()}, event="epoch")
        return halve(x)

    queried.run.observe("epoch", accuracy=0.5)
    step = queried.live(f, x3())
    stream, accuracy = queried.query(
        lambda: (step(x3()), queried.run.observe("epoch", accuracy=0.5))[0], "batch.loss", "epoch.accuracy"
    )
    step(x3())
    assert (queried.values(stream), accuracy.latest.value) == ([5.0], 0.5)
    note = queried.client.describe().events["batch"].note
    assert note.startswith("Event 'epoch' comes from observe ")


def test_two_steps_that_log_for_one_event_do_not_mix(queried):
    def f(x):
        log({"deep": x.sum()}, event="deep")
        return halve(x)

    first = queried.live(jax.jit(f), x3())
    queried.client.describe()  # and so what it logs is known
    second = queried.live(jax.jit(f), x3(), event="test")
    deep, tested = queried.query(lambda: (first(x3()), second(2 * x3()))[0], "deep.deep", "test.loss")
    second(2 * x3())
    first(x3())
    assert (queried.values(deep), queried.values(tested)) == ([3.0], [20.0])


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
        queried = QueriedRun(dir=tmp_path)
        stream = queried.query(lambda: step(x3()), "batch.loss")
        (first, *_) = stream.records()
        assert (stream.latest.value, first.step) != (None, 0)
        queried.close()
        assert step._step is None
        same(step(x3()), 0.5 * x3())


def test_a_disabled_run_is_ignored_and_the_next_one_is_used(tmp_path):
    step = live(jax.jit(halve))
    with sg.init("off", dir=tmp_path, mode="disabled"):
        same(step(x3()), 0.5 * x3())
        assert step._step is None
    queried = QueriedRun(dir=tmp_path)
    assert queried.query(lambda: step(x3()), "batch.loss").latest.value == 5.0
    queried.close()


def test_a_given_run_is_used(tmp_path):
    first, second = QueriedRun(dir=tmp_path), QueriedRun(dir=tmp_path)
    step = live(jax.jit(halve), first.run)
    newest = live(jax.jit(halve))
    assert first.query(lambda: step(x3()), "batch.loss").latest.value == 5.0
    assert second.query(lambda: newest(2 * x3()), "batch.loss").latest.value == 20.0
    first.close()
    second.close()


def test_a_deleted_step_claims_no_event(tmp_path):
    """As in a sweep: each run has a step of its own."""

    def fit():
        queried = QueriedRun(dir=tmp_path)
        step = queried.live(jax.jit(halve), x3())
        assert queried.query(lambda: step(x3()), "batch.loss").latest.value == 5.0
        queried.close()
        return weakref.ref(step)

    steps = [fit() for _ in range(3)]
    gc.collect()
    assert [ref() for ref in steps] == [None] * 3


def test_a_step_that_is_no_longer_called_claims_no_event(tmp_path):
    first, old = QueriedRun(dir=tmp_path), live(jax.jit(halve))
    old(x3())
    first.close()
    second = QueriedRun(dir=tmp_path)
    step = second.live(jax.jit(halve), 2 * x3())
    assert second.query(lambda: step(2 * x3()), "batch.loss").latest.value == 20.0
    with pytest.warns(RuntimeWarning, match="'batch'.*replaced"):
        same(old(x3()), 0.5 * x3())
    same(old(x3()), 0.5 * x3())
    assert second.query(lambda: step(2 * x3()), "batch.loss").latest.value == 20.0
    second.close()


def test_questions_may_come_before_the_first_call(queried):
    step = live(jax.jit(halve), queried.run)
    early = queried.client.stream("batch.loss")
    assert (early.note, queried.client.describe().events["batch"].n_events) == ("", 0)
    wait_until(lambda: (step(x3()), early.latest)[1])
    assert early.latest.value == 5.0


def test_a_description_waits_for_the_events_of_the_step(queried):
    @jax.jit
    def f(x):
        log({"loss": x.sum(), "grads": {"dense": {"kernel": jnp.zeros((2, 3))}}}, step=3)
        log({"deep": x}, event="deep")
        return x

    step = queried.live(f, x3())
    events = queried.client.describe().events
    assert (events["batch"].origin, events["batch"].n_events, set(events)) == ("live", 1, {"batch", "deep"})
    shown = {name: (one.type, dict(one.fields)) for name, one in events["batch"].observables.items()}
    assert shown == {
        "step": ("int32[]", {}),
        "loss": ("float32[]", {}),
        "grads": ("mapping of 1", {"dense.kernel": "float32[2, 3]"}),
    }
    assert events["deep"].observables["deep"].type == "float32[3]"
    assert queried.idle(step)


def test_queries_recorded_from_the_start_are_recorded(tmp_path):
    queried = QueriedRun(dir=tmp_path, record=["batch.loss"])
    step = live(jax.jit(halve), queried.run)
    answers = queried.telemetry.subscriptions.active
    wait_until(lambda: (step(x3()), any(answer.rows.n_made for answer in answers.values()))[1])
    step(2 * x3())
    queried.close()
    with sg.open(queried.run.directory) as old:
        records = [r.value for r in old.stream("batch.loss")]
        mean = [r.value for r in old.stream("on('batch').map(lambda b: b.loss).max()")]
    assert (records[0], records[-1], mean[-1]) == (5.0, 20.0, 20.0)


def test_recording_begins_and_ends_at_run_time(queried):
    step = queried.live(jax.jit(halve), x3())
    queried.client.record("batch.loss")
    stream = queried.query(lambda: step(x3()), "batch.loss")
    stream.close()
    step(2 * x3())
    queried.run.flush()
    queried.client.unrecord("batch.loss")
    wait_until(lambda: not queried.telemetry.subscriptions.active)
    step(3 * x3())
    assert queried.idle(step)
    queried.run.close()
    with sg.open(queried.run.directory) as old:
        assert [float(r.value) for r in old.stream("batch.loss")][-1] == 20.0


def test_open_windows_at_the_end_are_marked(queried):
    step = queried.live(jax.jit(halve), x3())
    stream = queried.query(
        lambda: (step(x3()), queried.run.end_group("batch"))[0], "on('batch').map(lambda b: b.loss).sum()"
    )
    for _ in range(3):
        step(x3())
    queried.run.close()
    assert [(r.value, r.closed) for r in list(stream)][-1] == (15.0, False)


# Acts


def in_background(act):
    """Let a client act while this thread goes on; return what to wait for."""
    box = []
    thread = threading.Thread(target=lambda: box.append(act()))
    thread.start()
    return thread, box


@pytest.mark.parametrize("asked", [False, True])
def test_acts_apply_between_calls(queried, asked):
    rate = queried.run.control("rate", 1.0, min=0.0, max=10.0)
    queried.run.action("add", lambda a: a + 1)
    step = queried.live(jax.jit(lambda x, rate: halve(x * rate)), x3(), 1.0)
    if asked:
        stream = queried.query(lambda: step(x3(), rate.value), "batch.loss")
    for act, expected in (
        (lambda: queried.client.set("rate", 2.0), 1.0),
        (lambda: queried.client.set("rate", 3.0, at="batch"), 2.0),
    ):
        thread, box = in_background(act)
        wait_until(lambda: queried.telemetry.commands.queue.pending or not thread.is_alive())  # noqa: B023
        n = queried.telemetry.subscriptions.sources["batch"].n_events
        assert rate.value == expected
        step(x3(), rate.value)
        thread.join(90)
        assert (box[0].applied, box[0].event, box[0].index, box[0].old) == (True, "batch", n, expected)
    assert rate.value == 3.0
    if asked:
        step(x3(), rate.value)
        assert queried.values(stream) == [5.0, 20.0, 45.0]
    thread, box = in_background(lambda: queried.client.call("add", 41))
    wait_until(lambda: (step(x3(), 1.0), not thread.is_alive())[1])
    assert box[0].result == 42


@pytest.mark.parametrize("asked", [False, True])
def test_a_pause_holds_the_step_between_calls(queried, asked):
    step = queried.live(jax.jit(halve), x3())
    if asked:
        stream = queried.query(lambda: step(x3()), "batch.loss")
    client = queried.another()
    seen = []

    def control():
        client.pause()
        seen.append(queried.telemetry.subscriptions.sources["batch"].n_events)
        seen.append(queried.client.describe().state)
        seen.append(queried.telemetry.subscriptions.sources["batch"].n_events)
        client.resume()
        client.stop()

    thread, _ = in_background(control)
    wait_until(lambda: (step(x3()), queried.run.stopping)[1])
    thread.join(90)
    assert seen[1] == "paused"
    assert seen[0] == seen[2]
    assert [entry.kind for entry in queried.client.history] == ["pause", "resume", "stop"]
    if asked:
        assert set(queried.values(stream)) == {5.0}


# Where it is called


def test_who_asks_during_a_long_call_learns_it_at_once(queried):
    step = queried.live(jax.jit(halve), x3())
    for call in range(2):
        step._called_s -= 252
        step(x3())
        assert queried.client.stream(f"batch.loss + {call}").note == ""
        step._called_s -= 252  # as if it had begun then
        note = queried.client.stream(f"batch.loss - {call}").note
        assert "'batch' began 00:04:12 ago" in note, call


def test_who_waits_for_a_compiler_learns_it(queried):
    may_trace = threading.Event()
    may_trace.set()
    slow = lambda x: (may_trace.wait(90), x.sum())[1]  # noqa: E731
    step = queried.live(jax.jit(lambda x: (log({"slow": lambda: slow(x), "x": x}), x)[1]), x3())
    may_trace.clear()
    stream = queried.client.stream("batch.slow")
    try:
        wait_until(lambda: (step(x3()), stream.note.startswith("Compiling for "))[1], "the remark")
        first = stream.note
        wait_until(
            lambda: stream.note.startswith("Compiling for ") and stream.note != first, "the remark as time goes on"
        )
        assert re.search(r"[\d.]+ s: ", stream.note)
    finally:
        may_trace.set()
    wait_until(lambda: (step(x3()), stream.latest is not None)[1], "the first record")
    assert "Compiling" not in stream.note


@pytest.mark.parametrize("in_loop", [False, True])
def test_who_asks_for_what_only_other_calls_log_learns_it(queried, in_loop):
    @functools.partial(jax.jit, static_argnames="is_test")
    def f(x, is_test):
        if is_test and in_loop:
            jax.lax.fori_loop(0, 2, lambda i, x: (log({"accuracy": x[i]}, event="test"), x)[1], x)
        elif is_test:
            log({"accuracy": x[1]}, event="test")
        return halve(x)

    step = queried.live(f, x3(), is_test=True)
    queried.query(lambda: step(x3(), is_test=False), "batch.loss")
    stream = queried.client.stream("test.accuracy")
    wait_until(lambda: (step(x3(), is_test=False), "event 'test'" in stream.note)[1], "the remark")
    assert stream.latest is None
    wait_until(lambda: (step(x3(), is_test=True), stream.latest is not None)[1], "the first record")
    assert "does not log" not in stream.note


def test_a_call_that_is_part_of_a_trace_is_the_plain_step(queried):
    step = queried.live(jax.jit(halve), x3())
    stream = queried.query(lambda: step(x3()), "batch.loss")
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
    assert queried.new_records(stream) == []
    step(x3())
    assert queried.values(stream) == [5.0]


def test_a_call_inside_grad_that_is_not_differentiated_is_a_call(queried):
    step = queried.live(jax.jit(halve), x3())
    queried.query(lambda: step(x3()), "batch.loss")
    outside = x3()
    assert float(jax.grad(lambda a: (a * step(outside)).sum())(1.0)) == 1.5


def test_without_jit_the_step_is_the_plain_one(queried):
    step = queried.live(jax.jit(halve), x3())
    queried.query(lambda: step(x3()), "batch.loss")
    with jax.disable_jit():
        same(step(x3()), 0.5 * x3())


def test_a_method_in_a_class(queried):
    class Trainer:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(live, event="batch")
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x):
            return halve(x * self.scale)

    trainer = Trainer(2.0)
    stream = queried.query(lambda: trainer.step(x3()), "batch.loss")
    same(trainer.step(x3()), x3())
    assert queried.values(stream) == [20.0]


def test_a_method_of_one_object_is_refused_with_the_way_out(queried):
    class Trainer:
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x):
            return halve(x)

    with pytest.raises(LogError, match=r"live\(jax\.jit\(…\)\)"):
        live(Trainer().step)
    bound = jax.jit(Trainer().step)  # this is one of jax.jit's
    step = queried.live(bound, x3())
    assert queried.query(lambda: step(x3()), "batch.loss").latest.value == 5.0


def test_threads_may_call_the_step(queried):
    step = queried.live(jax.jit(halve), x3())
    stream = queried.query(lambda: step(x3()), "batch.loss")
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
        thread.join(90)
    assert failures == []
    values = queried.values(stream)
    assert sorted(values) == sorted([5.0 * i * i for i in range(1, 4)] * 50)


def test_clients_come_and_go_on_other_threads_while_the_step_runs(queried):
    step = queried.live(jax.jit(halve), x3())
    over, failures = threading.Event(), []

    def work(i):
        try:
            with sg.connect(queried.run) as client:
                for j in range(6):
                    stream = client.stream(f"on('batch').map(lambda b: b.loss + {i + j})")
                    stream.wait(2, timeout_s=90)
                    assert stream.latest.value == 5.0 + i + j
                    stream.close()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            over.set()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    wait_until(
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
assert compiles.wait(200)
"""


def test_a_process_can_end_while_a_variant_is_compiled(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ENDING],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ},
    )
    assert (done.returncode, done.stderr) == (0, "")


# Indices


@pytest.mark.parametrize("index", ["7, 1", "-9", "[0, 9]", "0, -3", "..., 5", "1:, [0, 2]"])
def test_an_index_out_of_bounds_is_refused_as_on_numpy(queried, index):
    step = queried.live(jax.jit(lambda x: (log({"w": x}), x + 1)[1]), jnp.zeros((2, 2)))
    message = queried.refused(lambda: step(jnp.zeros((2, 2))), f"batch.w[{index}]")
    assert "out of bounds for axis" in message
    for array in (np.zeros((2, 2)), jnp.zeros((2, 2))):
        observe = functools.partial(queried.run.observe, "obs", w=array)
        assert "out of bounds for axis" in queried.refused(lambda call=observe: call() or 0, f"obs.w[{index}]")


INDICES = {
    "b.w[b.i]": lambda w, i: w[i],
    "b.w[b.i, b.i - 1]": lambda w, i: w[i, i - 1],
    "b.w[:, b.many]": lambda w, i: w[:, [i, 0]],
    "b.w[..., b.many % 2].sum()": lambda w, i: w[..., [i % 2, 0]].sum(),
    "b.w[b.small].sum()": lambda w, i: w[np.uint8(i % 256)].sum(),
    "b.w[b.many].shape[0]": lambda w, i: w[[i, 0]].shape[0],
    "b.w[[b.i, b.i]].mean()": lambda w, i: w[[i, i]].mean(),
}


@pytest.mark.parametrize("query", INDICES)
@pytest.mark.parametrize("way", ["live", "observe"])
def test_an_index_that_the_program_computes_is_checked(queried, query, way):
    w = np.arange(12.0, dtype=np.float32).reshape(3, 4)

    def offered(i):
        return {"w": jnp.asarray(w), "i": i, "many": jnp.stack([i, 0 * i]), "small": i.astype(jnp.uint8)}

    step = queried.live(jax.jit(lambda i: (log(offered(i)), i + 1)[1]), 0)
    call = step if way == "live" else lambda i: queried.run.observe("obs", **offered(jnp.int32(i))) or 0
    stream = queried.query(lambda: call(1), f"on({'batch' if way == 'live' else 'obs'!r}).map(lambda b: {query})")
    queried.new_records(stream)
    before, wanted, n_errors = stream.statistics().n_errors, [], 0
    for i in (2, 0, 7, 1, -1, 0, -4, 1, 300, 2):  # a query that fails three times in a row is given up
        jax.block_until_ready(call(i))
        try:
            wanted.append(INDICES[query](w, i))
        except IndexError:
            n_errors += 1
    got = []
    wait_until(lambda: (got.extend(queried.values(stream)), len(got) >= len(wanted))[1], "all records")
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    wait_until(lambda: stream.statistics().n_errors - before == n_errors, "the errors")


def test_observe_does_not_wait_for_an_index_on_a_device(queried):
    """The index is still being computed when `observe` returns: the training thread never synchronises."""

    @jax.jit
    def slow(i, n):
        done = jax.lax.fori_loop(0, n, lambda _, a: jnp.sin(a @ a), jnp.ones((300, 300)))
        return i + (done[0, 0] > 2)

    def observe(n):
        i = slow(jnp.array([3, 1]), n)
        queried.run.observe("obs", x=jnp.arange(5.0), i=i)
        return i

    checked = ["obs.x[obs.i]", "obs.x[obs.i[0]]", "on('obs').where(lambda b: b.x[b.i].sum() > 0).map(lambda b: b.i)"]
    streams = queried.query(lambda: observe(1), *checked)
    index = observe(2_000)  # takes seconds
    assert not index.is_ready()
    for stream, wanted in zip(streams, ([3, 1], 3, [3, 1]), strict=True):
        np.testing.assert_array_equal(queried.values(stream)[-1], wanted)
        assert stream.statistics().n_errors == 0


def test_an_index_on_a_device_is_no_index_of_an_array_on_the_host(queried):
    call = functools.partial(queried.run.observe, "obs", x=np.arange(5.0), i=jnp.int32(2))
    assert "on a device" in queried.refused(lambda: call() or 0, "obs.x[obs.i]")


def test_what_a_condition_keeps_out_needs_no_index_in_bounds(queried):
    def call(i, ok):
        queried.run.observe("obs", x=jnp.arange(5.0), i=jnp.int32(i), ok=jnp.asarray(ok))
        return 0

    stream = queried.query(lambda: call(1, True), "on('obs').where(lambda b: b.ok).map(lambda b: b.x[b.i])")
    queried.new_records(stream)
    for i, ok in ((9, False), (9, True), (4, True)):
        call(i, ok)
    wait_until(lambda: stream.latest.value == 4.0, "the last record")
    wait_until(lambda: stream.statistics().n_errors == 1, "the error")


def test_calls_of_more_shapes_than_are_kept_are_answered_or_counted(queried):
    step = queried.live(jax.jit(lambda x: (log({"n": x.sum()}), x)[1]), jnp.ones(1))
    stream = queried.query(lambda: step(jnp.ones(1)), "batch.n")
    before, calls = stream.statistics(), step._step._channel
    n_calls = calls.n_counted
    for n in range(2, 2 * MAX_SIGNATURES):
        jax.block_until_ready(step(jnp.ones(n)))
    queried.query(lambda: step(jnp.ones(3)), "on('batch').map(lambda b: b.n * 2)")
    queried.new_records(stream)
    after = stream.statistics()
    assert after.n_events + after.n_skipped - before.n_events - before.n_skipped == calls.n_counted - n_calls
    assert after.n_skipped > before.n_skipped
    assert len(step._step._signatures._known) == MAX_SIGNATURES
