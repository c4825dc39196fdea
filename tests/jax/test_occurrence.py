"""Where events happen: in the innermost loop body that holds all their logs, once each time it runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sightglass.jax import log
from sightglass.jax.ondemand.occurrence import Occurrence
from sightglass.jax.ondemand.variant import find_events

pytestmark = pytest.mark.smoke


def events(f: Any, *args: Any, own: str = "batch") -> dict[str, Occurrence]:
    return find_events(jax.jit(f), own, args, {})


def shown(occurrence: Occurrence) -> tuple[bool, int | None, dict[str, str]]:
    """Return whether it is in a loop, how often it happens in a call, and what can be read."""
    seen = {name: f"{a.dtype}{list(a.shape)}" for name, a in occurrence.observables.items()}
    return occurrence.body is not None, occurrence.n_per_call, seen


def scan(body: Any, n: int = 3, c: Any = 0.0) -> Any:
    return lax.scan(lambda c, i: (body(c, i), None), c, jnp.arange(float(n)))[0]


def a_log(name: str, **options: Any) -> Any:
    def body(c, i):
        log({name: c}, **options)
        return c + i

    return body


def test_no_loop_is_once_a_call():
    def f(x):
        log({"x": x}, step=3)
        return x

    assert shown(events(f, np.zeros((2, 3), np.float32))["batch"]) == (
        False,
        1,
        {"step": "int32[]", "x": "float32[2, 3]"},
    )


def test_the_own_event_is_there_without_a_log():
    found = events(lambda x: scan(a_log("c", event="inner"), c=x), 0.0)
    assert shown(found["batch"]) == (False, 1, {})
    assert shown(found["inner"]) == (True, 3, {"c": "float32[]"})


@pytest.mark.parametrize("event", ["log", "batch"])
def test_the_own_event_moves_into_the_loop_that_holds_all_its_logs(event):
    found = events(lambda x: scan(a_log("c", event=event), c=x), 0.0)
    assert (set(found), shown(found["batch"])) == ({"batch"}, (True, 3, {"c": "float32[]"}))


def test_with_a_log_outside_the_event_happens_once_per_call_and_deeper_logs_are_stacked():
    def f(x):
        log({"x": x})
        return scan(a_log("c"), c=x)

    assert shown(events(f, 0.0)["batch"]) == (False, 1, {"x": "float32[]", "c": "float32[3]"})


def test_the_innermost_body_that_holds_all():
    def outer(c, i):
        log({"a": c})
        return scan(a_log("b"), 4, c)

    assert shown(events(lambda x: scan(outer, 2, x), 0.0)["batch"]) == (True, 2, {"a": "float32[]", "b": "float32[4]"})
    nested = events(lambda x: scan(lambda c, i: scan(a_log("b"), 4, c), 2, x), 0.0)
    assert shown(nested["batch"]) == (True, 8, {"b": "float32[]"})


def test_two_loops_side_by_side_have_the_call_in_common():
    def f(x):
        return scan(a_log("b"), 4, scan(a_log("a"), 2, x))

    assert shown(events(f, 0.0)["batch"]) == (False, 1, {"a": "float32[2]", "b": "float32[4]"})


def test_the_same_loop_twice_is_two_places():
    body = a_log("a")

    def f(x):
        return scan(body, 2, scan(body, 2, x))

    assert shown(events(f, 0.0)["batch"]) == (False, 1, {"a": "float32[4]"})


def test_events_of_their_own_are_found_apart():
    def outer(c, i):
        c = scan(a_log("b", event="inner"), 4, c)
        log({"a": c}, event="outer")
        return c

    def f(x):
        log({"loss": x})
        return scan(outer, 2, x)

    found = events(f, 0.0)
    assert {name: shown(one)[:2] for name, one in found.items()} == {
        "batch": (False, 1),
        "outer": (True, 2),
        "inner": (True, 8),
    }


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())])
def test_calls_are_no_levels(wrap):
    def body(c, i):
        return wrap(lambda c: a_log("c")(c, i))(c)

    in_loop, n, seen = shown(events(lambda x: scan(body, 3, x), np.zeros(2, np.float32))["batch"])
    assert (in_loop, n, seen) == (True, 3, {"c": "float32[2]"})


def test_a_branch_is_no_body():
    def body(c, i):
        return lax.cond(i > 1, lambda c: a_log("c")(c, i), lambda c: c, c)

    found = events(lambda x: scan(body, 3, x), 0.0)["batch"]
    assert shown(found) == (True, 3, {"c": "float32[]"})
    assert found.logs["c"].masked


def test_a_while_loop_has_no_known_number():
    def f(n):
        return lax.fori_loop(0, n, lambda i, c: a_log("c")(c, 1.0), 0.0)

    assert shown(events(f, 3)["batch"]) == (True, None, {"c": "float32[]"})
    inside = events(lambda n: scan(lambda c, i: c + f(n), 2), 3)["batch"]
    assert shown(inside)[:2] == (True, None)


def test_a_loop_over_a_known_range_has_a_known_number():
    def f(x):
        return lax.fori_loop(0, 5, lambda i, c: a_log("c")(c, 1.0), x)

    assert shown(events(f, 0.0)["batch"])[:2] == (True, 5)


def test_only_logs_in_a_nested_while_loop_are_unavailable():
    def f(n):
        log({"n": n})
        return lax.fori_loop(0, n, lambda i, c: a_log("c", step=7)(c, 1.0), 0.0)

    found = events(f, 3)["batch"]
    assert shown(found) == (False, 1, {"n": "int32[]"})
    assert set(found.unavailable) == {"c"}
    assert "Give it an event of its own: log(…, event='…')" in found.unavailable["c"]


def test_conflicting_shapes_are_unfit_and_the_rest_is_not():
    def f(x):
        log({"a": x, "b": x})
        log({"a": x.sum()})
        return x

    found = events(f, np.zeros(3, np.float32))["batch"]
    assert shown(found)[2] == {"b": "float32[3]"}
    assert found.unavailable["a"].startswith("Two logs under the key 'a' cannot be stacked: float32[3] at ")


def test_conflicts_are_between_logs_of_one_event_alone():
    def f(x):
        log({"a": x})
        log({"a": x.sum()}, event="other")
        return x

    found = events(f, np.zeros(3, np.float32))
    assert [shown(one)[2] for one in found.values()] == [{"a": "float32[3]"}, {"a": "float32[]"}]


def test_several_logs_of_a_key_in_one_body_are_stacked():
    def f(x):
        log({"a": x})
        log({"a": x * 2})
        return x

    assert shown(events(f, 0.0)["batch"])[2] == {"a": "float32[2]"}


def test_devices_are_no_events():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("x")

    def shard(x):
        log({"m": x.sum()})
        return lax.scan(lambda c, _: (a_log("c")(c, 1.0), None), x, None, length=2)[0]

    f = jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec)
    assert shown(events(f, jnp.arange(8.0))["batch"]) == (False, 1, {"m": "float32[4]", "c": "float32[8, 2]"})


def test_a_loop_on_each_device_is_no_event():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("x")

    def shard(x):
        return lax.scan(lambda c, _: (a_log("c")(c, 1.0), None), x, None, length=2)[0]

    mapped = jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec)
    assert shown(events(mapped, jnp.arange(8.0))["batch"]) == (False, 1, {"c": "float32[8, 2]"})
    looped = events(lambda x: lax.scan(lambda c, _: (mapped(c), None), x, None, length=3)[0], jnp.arange(8.0))
    assert shown(looped["batch"]) == (True, 3, {"c": "float32[8, 2]"})


def test_the_test_of_a_loop_and_its_body_are_two_places():
    def test(c):
        log({"tested": c})
        return c < 3

    def f(x):
        return lax.while_loop(test, lambda c: a_log("c")(c, 1.0), x)

    found = events(f, 0.0)["batch"]
    assert (found.body, set(found.unavailable), set(found.logs)) == (None, {"tested", "c"}, set())


def test_the_branches_of_a_condition_are_two_places():
    def f(x):
        return lax.cond(x > 0, lambda x: scan(a_log("a"), 2, x), lambda x: scan(a_log("b"), 3, x), x)

    assert shown(events(f, 0.0)["batch"]) == (False, 1, {"a": "float32[2]", "b": "float32[3]"})


def test_static_arguments_and_shapes_are_enough():
    def f(x, n):
        log({f"x{n}": x})
        return x

    shape = jax.ShapeDtypeStruct((3,), np.float32)
    found = find_events(jax.jit(f, static_argnums=1), "batch", (shape, 2), {})
    assert shown(found["batch"])[2] == {"x2": "float32[3]"}
