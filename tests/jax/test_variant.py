"""Variants of a step: what leaves the device, what is computed for it, and what the step's own options become."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sightglass.jax import log
from sightglass.jax.ondemand.event_queries import StepQuery, fill, take_arrays
from sightglass.jax.ondemand.variant import Variant, find_events
from sightglass.jax.program import compat
from sightglass.jax.program.survey import equations
from sightglass.query.parser import parse


def variant(function: Any, *queries: str, own: str = "batch", **functions: Any) -> Variant:
    compiled = [StepQuery(query=parse(text, functions=functions), functions=functions) for text in queries]
    return Variant(function, own, compiled, lambda delivery: None)


def outputs(made: Variant, *args: Any, call: Any = None) -> tuple[list[str], list[str]]:
    """Return the types of a variant's own results, and of what leaves besides."""
    result, extras = jax.eval_shape(made.jitted, call, *args)
    return [_type(a) for a in jax.tree.leaves(result)], [_type(a) for a in jax.tree.leaves(extras)]


def _type(aval: Any) -> str:
    return f"{aval.dtype}{list(aval.shape)}"


def hlo(made: Variant, *args: Any) -> str:
    return str(made.jitted.lower(None, *args).compile().as_text())


def network(w: Any, x: Any) -> Any:
    def loss_of(w: Any) -> Any:
        y = jnp.tanh(x @ w)
        log({"acts": y}, step=7)
        return (y**2).mean()

    loss, grads = jax.value_and_grad(loss_of)(w)
    log({"loss": loss, "grads": {"dense": grads}, "sorted": jnp.sort(x.ravel())}, epoch=3)
    return w - 0.1 * grads


W = functools.partial(np.ones, (4, 3), np.float32)
X = functools.partial(np.ones, (8, 4), np.float32)


def test_only_the_result_and_the_steps_leave_the_device():
    made = variant(jax.jit(network), "on('batch').map(lambda b: abs(b.grads['dense']).mean())")
    own, besides = outputs(made, W(), X())
    assert own == ["float32[4, 3]"]
    assert sorted(besides) == ["float32[]", "int32[]", "int32[]"]


def test_a_program_without_steps_returns_only_the_result():
    def f(x):
        log({"loss": x.sum(), "x": x})
        return x

    assert outputs(variant(jax.jit(f), "batch.loss"), X())[1] == ["float32[]"]
    assert outputs(variant(jax.jit(f), "on('batch').count(every=10)"), X())[1] == []
    assert outputs(variant(jax.jit(f), "on('batch').map(lambda b: b.x.shape)"), X())[1] == []


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("batch.loss", False),
        ("batch.sorted", True),
        ("on('batch').map(lambda b: b.sorted[0])", True),
        ("on('batch').map(lambda b: b.sorted.shape)", False),
    ],
)
def test_values_without_a_query_are_not_computed(query, shown):
    assert bool(re.search(r"\bsort\(|= sort|TopK", hlo(variant(jax.jit(network), query), W(), X()))) is shown


def test_thunks_are_called_only_for_queried_keys():
    called = []

    def thunk(name, value):
        def make():
            called.append(name)
            return value * 2

        return make

    @jax.jit
    def f(x):
        log({"a": thunk("a", x), "b": {"c": thunk("b", x)}, "d": x})
        return x

    f(X())
    assert called == []
    assert outputs(variant(f, "batch.d"), X())[1] == ["float32[8, 4]"]
    assert called == []
    assert outputs(variant(f, "on('batch').map(lambda b: b.b['c'].sum())"), X())[1] == ["float32[]"]
    assert set(called) == {"b"}


def test_explicit_logs_need_to_be_named():
    @jax.jit
    def f(x):
        log({"loss": x.sum()})
        log({"big": x}, explicit=True)
        return x

    made = variant(f, "on('batch').map(lambda b: b)")
    assert outputs(made, X())[1] == ["float32[]"]
    assert outputs(variant(f, "batch.big"), X())[1] == ["float32[8, 4]"]
    assert set(find_events(f, "batch", (X(),), {})["batch"].observables) == {"loss", "big"}


def test_equal_queries_and_shared_values_leave_once_each():
    made = variant(jax.jit(network), "batch.loss", "batch.loss", "on('batch').map(lambda b: (b.loss, b.loss * 2))")
    assert sorted(outputs(made, W(), X())[1]) == ["float32[]"] * 3 + ["int32[]"] * 2


def test_a_query_that_jax_cannot_trace_receives_only_what_it_reads():
    made = variant(jax.jit(network), "on('batch').map(lambda b: odd(b.acts))", odd=lambda a: float(np.asarray(a).sum()))
    assert sorted(outputs(made, W(), X())[1]) == ["float32[8, 3]", "int32[]", "int32[]"]


def test_a_query_that_fails_leaves_no_outputs_and_the_others_work():
    made = variant(jax.jit(network), "on('batch').map(lambda b: b.grads['dens'])", "batch.loss")
    assert sorted(outputs(made, W(), X())[1]) == ["float32[]", "int32[]", "int32[]"]
    (error,) = made.once[0].refused.values()
    assert "Did you mean 'dense'?" in str(error)


def test_loops_without_a_query_carry_no_buffer():
    @jax.jit
    def f(x):
        def body(c, i):
            log({"c": c}, event="inner")
            return c + i, None

        c, _ = lax.scan(body, x, jnp.arange(3.0))
        log({"loss": c})
        return c

    assert primitives(variant(f, "batch.loss"), None, 0.0).count("tap") == 0
    assert primitives(variant(f, "inner.c"), np.array([0, 1], np.int32), 0.0).count("tap") == 2, (
        "in the body, and at the end"
    )
    plain, asked = scans(f, 0.0), scans(variant(f, "batch.loss").jitted, None, 0.0)
    assert plain == asked == [1]


def primitives(made: Variant, *args: Any) -> list[str]:
    return [eqn.primitive.name for eqn, _ in equations(jax.make_jaxpr(made.jitted)(*args).eqns)]


def scans(f: Any, *args: Any) -> list[int]:
    """Return how many values the scans of a program carry."""
    found = equations(jax.make_jaxpr(f)(*args).eqns)
    return [compat.scan_arity(eqn.params)[1] for eqn, _ in found if eqn.primitive.name == "scan"]


def test_one_callback_for_a_loop_body_and_rate():
    @jax.jit
    def f(x):
        def body(c, i):
            log({"c": c, "d": c * 2})
            log({"e": i})
            return c + i, None

        return lax.scan(body, x, jnp.arange(3.0))[0]

    made = variant(f, *(f"batch_body.{key}" for key in "cde"), "on('batch_body').map(lambda b: b.c).sum(every=1)")
    assert primitives(made, np.array([0, 1], np.int32), 0.0).count("tap") == 2, (
        "one in the body, one at the end of the call"
    )
    assert len(made.buffers) == 1


def test_the_size_of_a_buffer_is_bounded():
    @jax.jit
    def f(x):
        def body(c, i):
            log({"small": i, "big": jnp.zeros((1024, 64)) + i})
            return c, None

        return lax.scan(body, x, jnp.arange(3.0))[0]

    sizes = {}
    for query in (
        "on('batch_body').map(lambda b: b.small).sum(every=1000000)",
        "on('batch_body').map(lambda b: b.big).last(every=100)",
    ):
        made = variant(f, query)
        jax.eval_shape(made.jitted, np.array([0, 1], np.int32), 0.0)
        sizes[made.buffers[0].window_events] = made.buffers[0].size
    assert sizes == {1_000_000: 4_096, 100: 4}


@pytest.mark.parametrize("call", [0, 5, 3_000_000, 2**31 - 1])
def test_a_buffer_is_sent_where_a_window_closes_in_long_runs_too(call):
    @jax.jit
    def f(x):
        def body(c, i):
            log({"i": i})
            return c, None

        return lax.scan(body, x, jnp.arange(1000))[0]

    for every in (7, 300, 1_000_003):
        deliveries = []
        query = parse(f"on('batch_body').map(lambda b: b.i).sum(every={every})", functions={})
        made = Variant(f, "batch", [StepQuery(query=query, functions={})], deliveries.append)
        jax.block_until_ready(made.jitted(np.array([call, 1], np.int32), 0.0))
        ends = [call * 1000 + n for n in itertools.accumulate(delivery.n for delivery in deliveries[:-1])]
        assert ends == [end for end in range(call * 1000 + 1, (call + 1) * 1000 + 1) if end % every == 0]


def test_forms_put_arrays_back_where_they_were():
    def f(x):
        arrays: list[Any] = []
        form = take_arrays({"a": (x, "text", [x * 2, None]), "n": 3}, arrays)
        f.form = form
        return arrays

    arrays = jax.jit(f)(jnp.arange(2.0))
    assert len(arrays) == 2
    back = fill(f.form, [np.asarray(a) for a in arrays])
    assert (back["a"][1], back["a"][2][1], back["n"]) == ("text", None, 3)
    np.testing.assert_array_equal(back["a"][2][0], [0, 2])


def test_results_that_are_logged_too_do_not_share_their_buffer():
    @functools.partial(jax.jit, donate_argnums=0)
    def f(p):
        new = p + 1
        log({"params": new})
        return new

    result, outputs = variant(f, "batch.params").jitted(None, jnp.zeros(64))
    ((copy,),) = outputs.once
    f(result)
    assert result.is_deleted()
    np.testing.assert_array_equal(copy, np.ones(64))


def test_keys_travel_as_their_data():
    @jax.jit
    def f(key):
        log({"key": key})
        return jax.random.split(key)[0]

    assert outputs(variant(f, "batch.key"), jax.random.key(0))[1] == ["uint32[2]"]
