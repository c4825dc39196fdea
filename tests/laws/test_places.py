"""A log added elsewhere changes nothing: what was asked is answered as before, and as often."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")
jax = pytest.importorskip("jax")
pytestmark = pytest.mark.slow

import jax.numpy as jnp  # noqa: E402

from sightglass.jax import log  # noqa: E402
from sightglass.jax.ondemand.event_queries import StepQuery  # noqa: E402
from sightglass.jax.ondemand.occurrence import Occurrence  # noqa: E402
from sightglass.jax.ondemand.variant import Variant, find_events  # noqa: E402
from sightglass.query.parser import parse  # noqa: E402

from . import test_jax_programs as made  # noqa: E402
from .test_jax_programs import ALL, LEAF, Cond, Log, Node, Scan, Seq, Switch  # noqa: E402

X = (0.3, -0.1)
MARKED = "inserted"
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # each step of it compiles two programs
Answers = dict[str, list[np.ndarray]]


class Inserted(Log):
    """One more log, under the key of another and one of its own."""

    def run(self, x: Any) -> Any:
        log({f"k{self.n}": x, MARKED: x})
        return x


class Computed(Log):
    """One more log, of a value that takes a loop to compute."""

    def run(self, x: Any) -> Any:
        log({MARKED: lambda: Scan((LEAF,), 2).run(x)})
        return x


class Named(Log):
    """One more log, for an event of its own."""

    def run(self, x: Any) -> Any:
        log({f"k{self.n}": x, MARKED: x}, event="other")
        return x


def n_nodes(node: Node) -> int:
    return 1 + sum(map(n_nodes, node.inner))


def inserted(node: Node, place: int, new: Node, *, before: bool) -> Node:
    """Return a program with one more log before or after its node of this number."""
    if not place:
        return Seq((new, node) if before else (node, new))
    place -= 1
    inner = list(node.inner)
    for i, each in enumerate(inner):
        if place < n_nodes(each):
            inner[i] = inserted(each, place, new, before=before)
            break
        place -= n_nodes(each)
    return type(node)(tuple(inner), node.n)


def offered(node: Node) -> dict[str, Occurrence]:
    return find_events(jax.jit(node.run), "batch", (jnp.asarray(X),), {})


def keys(events: dict[str, Occurrence]) -> set[tuple[str, str]]:
    return {(event, key) for event, one in events.items() for key in one.logs if not key.startswith("\0")}


def answers(node: Node, asked: list[str]) -> Answers:
    """Return what a call answers to each query: the arrays of each event, in order."""
    deliveries: list[Any] = []
    queries = [StepQuery(query=parse(text), functions={}) for text in asked]
    variant = Variant(jax.jit(node.run), "batch", queries, deliveries.append)
    _, outputs = jax.block_until_ready(variant.jitted(np.array([0, 1], np.int32), jnp.asarray(X)))
    jax.effects_barrier()
    assert not variant.refused
    found: Answers = {query.key: [] for query in queries}

    def take(queries: Any, arrays: Any) -> None:
        for key in queries.keys:
            result = queries.result(key, arrays)
            leaves = jax.tree.leaves((result.value, result.pending, getattr(result, "observables", None)))
            found[key].append(np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in leaves]))

    for one, arrays in zip(variant.once, outputs.once, strict=True):
        take(one, arrays)
    for delivery in deliveries:
        for i in range(delivery.n):
            take(delivery.buffer.queries, [array[i] for array in delivery.outputs])
    return found


def check(node: Node, place: int, new: Node, *, before: bool) -> None:
    node = made.distinct(node, count())
    changed = inserted(node, place % n_nodes(node), new, before=before)
    old, now = offered(node), offered(changed)
    (there,) = [event for event, one in now.items() if MARKED in one.logs]
    elsewhere = sorted(keys(old) - {(there, f"k{new.n}")})
    asked = [f"{event}.{key}" for event, key in elsewhere]
    assert keys(now) >= set(elsewhere)
    assert {event: now[event].n_per_call for event in old} == {event: one.n_per_call for event, one in old.items()}
    first, second = answers(node, asked), answers(changed, asked)
    assert {query: len(found) for query, found in first.items()} == {query: len(f) for query, f in second.items()}
    for query, found in first.items():
        for a, b in zip(found, second[query], strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6, err_msg=query)


@given(made.programs(), st.integers(0, 100), st.booleans(), st.sampled_from([Inserted, Computed, Named]), st.data())
@settings(max_examples=examples(20), deadline=None, phases=WITHOUT_SHRINKING)
def test_a_log_elsewhere_changes_no_answer(node: Node, place: int, before: bool, kind: Any, data: Any) -> None:
    check(node, place, kind(n=data.draw(st.integers(0, 3), "key")), before=before)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_around_and_within_each_kind(kind: type[Node]) -> None:
    inner = kind((LEAF,) * {Cond: 2, Switch: 3}.get(kind, 1), 2)
    node = Seq((Scan((inner,), 2), Scan((inner,), 3)))
    check(node, n_nodes(node) // 2 - 1, Inserted(n=1), before=True)
