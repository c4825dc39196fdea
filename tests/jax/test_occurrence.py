"""Where events happen: the round of each loop is an event of its own, whatever else is logged."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sightglass.jax import log
from sightglass.jax.ondemand import occurrence
from sightglass.jax.ondemand.occurrence import Occurrence
from sightglass.jax.ondemand.variant import find_events
from sightglass.jax.program.survey import survey

from .programs import divided, mesh

pytestmark = pytest.mark.smoke


def events(f: Any, *args: Any, own: str = "batch") -> dict[str, Occurrence]:
    return find_events(jax.jit(f), own, args, {})


def shown(occurrence: Occurrence) -> tuple[bool, int | None, dict[str, str]]:
    """Return whether it is in a loop, how often it happens in a call, and what can be read."""
    seen = {name: f"{a.dtype}{list(a.shape)}" for name, a in occurrence.observables.items()}
    return occurrence.body is not None, occurrence.n_per_call, seen


def scan(body: Any, n: int = 3, c: Any = 0.0) -> Any:
    def each(c: Any, i: Any) -> Any:
        return body(c, i), None

    return lax.scan(each, c, jnp.arange(float(n)))[0]


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


def test_many_logs_of_an_event_are_found_in_one_pass(monkeypatch):
    n_passes = []

    def counted(jaxpr, takes):
        n_passes.append(1)
        return survey(jaxpr, takes)

    monkeypatch.setattr(occurrence, "survey", counted)
    names = [f"layer{i}" for i in range(20)]
    found = events(lambda x: [log({name: x}) for name in names] and x, 0.0)
    assert list(found["batch"].observables) == names
    assert len(n_passes) == 1


def test_the_own_event_is_there_without_a_log():
    found = events(lambda x: scan(a_log("c", event="inner"), c=x), 0.0)
    assert shown(found["batch"]) == (False, 1, {})
    assert shown(found["inner"]) == (True, 3, {"c": "float32[]"})


def test_the_round_of_a_loop_is_an_event_named_after_its_function():
    found = events(lambda x: scan(a_log("c"), c=x), 0.0)
    assert (set(found), shown(found["batch_each"])) == ({"batch", "batch_each"}, (True, 3, {"c": "float32[]"}))
    assert shown(found["batch"]) == (False, 1, {})


def test_what_names_the_event_of_a_step_is_stacked_there():
    def f(x):
        log({"x": x})
        return scan(a_log("c", event="batch"), c=x)

    assert shown(events(f, 0.0)["batch"]) == (False, 1, {"x": "float32[]", "c": "float32[3]"})
    alone = events(lambda x: scan(a_log("c", event="batch"), c=x), 0.0)
    assert shown(alone["batch"]) == (False, 1, {"c": "float32[3]"})


def test_what_names_the_event_of_a_loop_around_it_is_stacked_there():
    def outer(c, i):
        log({"a": c})
        return scan(a_log("b", event="batch_outer"), 4, c)

    found = events(lambda x: lax.scan(lambda_of(outer), x, jnp.arange(2.0))[0], 0.0)
    assert shown(found["batch_outer"]) == (True, 2, {"a": "float32[]", "b": "float32[4]"})


def lambda_of(body: Any) -> Any:
    """Return a body for a scan that has the name of another function."""

    def scanned(c: Any, i: Any) -> Any:
        return body(c, i), None

    scanned.__name__ = body.__name__
    return scanned


def test_nested_loops_are_two_events():
    def outer(c, i):
        log({"a": c})
        return scan(a_log("b"), 4, c)

    found = events(lambda x: lax.scan(lambda_of(outer), x, jnp.arange(2.0))[0], 0.0)
    assert shown(found["batch_outer"]) == (True, 2, {"a": "float32[]"})
    assert shown(found["batch_each"]) == (True, 8, {"b": "float32[]"})


def test_loops_with_one_function_are_numbered_whether_they_log_or_not():
    def quiet(c, i):
        return c + i

    def f(x):
        return scan(a_log("b"), 4, scan(a_log("a"), 2, scan(quiet, 5, x)))

    found = events(f, 0.0)
    assert {name: shown(one)[1:] for name, one in found.items() if name != "batch"} == {
        "batch_each_2": (2, {"a": "float32[]"}),
        "batch_each_3": (4, {"b": "float32[]"}),
    }


def test_the_same_loop_twice_is_two_events():
    body = a_log("a")

    def f(x):
        return scan(body, 2, scan(body, 3, x))

    found = events(f, 0.0)
    assert [(name, one.n_per_call) for name, one in found.items()] == [
        ("batch", 1),
        ("batch_each", 3),
        ("batch_each_2", 2),
    ]
    assert len({id(one.body) for one in found.values()}) == 3


def test_loops_that_only_a_log_computes_are_not_counted():
    def f(x):
        log({"a": lambda: scan(lambda c, i: c + i, 3, x)})
        return scan(a_log("b"), 2, x)

    assert set(events(f, 0.0)) == {"batch", "batch_each"}


def generated(choose: random.Random, places: Iterator[int], depth: int = 3) -> list[Any]:
    """Return a program: the numbers of places for logs, and loops, branches and calls with programs in them."""
    program: list[Any] = [next(places)]
    for _ in range(choose.randint(1, 2) if depth else 0):
        kind, name = choose.choice(("scan", "while", "cond", "jit")), choose.choice(("update", "each", "<lambda>"))
        program += [(kind, name, generated(choose, places, depth - 1)), next(places)]
    return program


def run(program: list[Any], logged: set[int], x: Any) -> Any:
    for part in program:
        if not isinstance(part, int):
            x = run_within(*part, logged, x)
        elif part in logged:
            log({f"k{part}": x})
    return x


def run_within(kind: str, name: str, program: list[Any], logged: set[int], x: Any) -> Any:
    def inner(x: Any) -> Any:
        return run(program, logged, x) + 1

    def each(x: Any, _: Any) -> Any:
        return inner(x), None

    inner.__name__ = each.__name__ = name
    match kind:
        case "scan":
            return lax.scan(each, x, None, length=2)[0]
        case "while":
            return lax.while_loop(lambda x: x < 9, inner, x)
        case "cond":
            return lax.cond(x > 0, inner, lambda x: x, x)
    return jax.jit(inner)(x)


@pytest.mark.parametrize("seed", range(4))
def test_a_log_elsewhere_changes_no_event(seed):
    places = itertools.count()
    program = generated(random.Random(seed), places)
    every = set(range(next(places)))

    def found(logged: set[int]) -> dict[str, Any]:
        each = events(functools.partial(run, program, logged), 0.0).items()
        return {key: (event, one.n_per_call) for event, one in each for key in one.observables}

    together = found(every)
    assert together.keys() == {f"k{i}" for i in every}
    for some in ({i} for i in random.Random(seed).sample(sorted(every), 4)):
        assert found(some).items() <= together.items()


def test_a_function_without_a_name_is_a_loop():
    def f(x):
        x = lax.scan(lambda c, i: (a_log("a")(c, i), None), x, jnp.arange(3.0))[0]
        return lax.map(lambda y: a_log("b")(y, x), jnp.arange(3.0))

    assert set(events(f, 0.0, own="fit")) == {"fit", "fit_loop", "fit_loop_2"}


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

    in_loop, n, seen = shown(events(lambda x: scan(body, 3, x), np.zeros(2, np.float32))["batch_each"])
    assert (in_loop, n, seen) == (True, 3, {"c": "float32[2]"})


def test_a_branch_is_no_body():
    def body(c, i):
        return lax.cond(i > 1, lambda c: a_log("c")(c, i), lambda c: c, c)

    found = events(lambda x: scan(body, 3, x), 0.0)["batch_each"]
    assert shown(found) == (True, 3, {"c": "float32[]"})
    assert found.logs["c"].masked


def test_a_while_loop_has_no_known_number():
    def f(n):
        return lax.fori_loop(0, n, lambda i, c: a_log("c")(c, 1.0), 0.0)

    assert shown(events(f, 3)["batch_loop"]) == (True, None, {"c": "float32[]"})
    inside = events(lambda n: scan(lambda c, i: c + f(n), 2), 3)["batch_loop"]
    assert shown(inside)[:2] == (True, None)


def test_a_loop_over_a_known_range_has_a_known_number():
    def f(x):
        return lax.fori_loop(0, 5, lambda i, c: a_log("c")(c, 1.0), x)

    assert shown(events(f, 0.0)["batch_loop"])[:2] == (True, 5)


def test_only_logs_in_a_nested_while_loop_are_unavailable():
    def f(n):
        log({"n": n})
        return lax.fori_loop(0, n, lambda i, c: a_log("c", step=7, event="batch")(c, 1.0), 0.0)

    found = events(f, 3)["batch"]
    assert shown(found) == (False, 1, {"n": "int32[]"})
    assert set(found.unavailable) == {"c"}
    assert "leave out event=" in found.unavailable["c"]


def test_conflicting_shapes_are_unfit_and_the_rest_is_not():
    def f(x):
        log({"a": x, "b": x})
        log({"a": x.sum()})
        return x

    found = events(f, np.zeros(3, np.float32))["batch"]
    assert shown(found)[2] == {"b": "float32[3]"}
    assert re.search(r"'a' .*float32\[3\] at ", found.unavailable["a"])


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
    spec = jax.sharding.PartitionSpec("x")

    def shard(x):
        log({"m": x.sum()})
        return lax.scan(lambda c, _: (a_log("c")(c, 1.0), None), x, None, length=2)[0]

    f = jax.shard_map(shard, mesh=mesh("x"), in_specs=spec, out_specs=spec)
    assert shown(events(f, divided(jnp.arange(8.0), "x"))["batch"]) == (
        False,
        1,
        {"m": "float32[4]", "c": "float32[8, 2]"},
    )


def test_a_loop_on_each_device_is_no_event():
    spec = jax.sharding.PartitionSpec("x")

    def shard(x):
        return lax.scan(lambda c, _: (a_log("c")(c, 1.0), None), x, None, length=2)[0]

    mapped = jax.shard_map(shard, mesh=mesh("x"), in_specs=spec, out_specs=spec)
    assert shown(events(mapped, divided(jnp.arange(8.0), "x"))["batch"]) == (False, 1, {"c": "float32[8, 2]"})
    looped = events(
        lambda x: lax.scan(lambda c, _: (mapped(c), None), x, None, length=3)[0], divided(jnp.arange(8.0), "x")
    )
    assert shown(looped["batch_loop"]) == (True, 3, {"c": "float32[8, 2]"})


def test_the_test_of_a_loop_and_its_body_are_two_events():
    def test(c):
        log({"tested": c})
        return c < 3

    def f(x):
        return lax.while_loop(test, lambda c: a_log("c")(c, 1.0), x)

    found = events(f, 0.0)
    assert shown(found["batch_test"]) == (True, None, {"tested": "float32[]"})
    assert shown(found["batch_loop"]) == (True, None, {"c": "float32[]"})


def test_the_branches_of_a_condition_are_two_places():
    def f(x):
        return lax.cond(x > 0, lambda x: scan(a_log("a"), 2, x), lambda x: scan(a_log("b"), 3, x), x)

    found = events(f, 0.0)
    assert {name: set(one.logs) for name, one in found.items()} == {
        "batch": set(),
        "batch_each": {"b"},  # of a `cond`, JAX has the branch for False first
        "batch_each_2": {"a"},
    }


def test_static_arguments_and_shapes_are_enough():
    def f(x, n):
        log({f"x{n}": x})
        return x

    shape = jax.ShapeDtypeStruct((3,), np.float32)
    found = find_events(jax.jit(f, static_argnums=1), "batch", (shape, 2), {})
    assert shown(found["batch"])[2] == {"x2": "float32[3]"}
