"""Expressions on JAX arrays are compiled off the training thread before they are evaluated on it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture
def compiled_by():
    """Return the set of the threads on which JAX compiles something from now on."""
    threads: set[int] = set()

    def listen(event: str, duration_s: float, **details: Any) -> None:
        if "compile" in event:
            threads.add(threading.get_ident())

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield threads
    jax.monitoring.unregister_event_duration_listener(listen)


QUERIES = ["b.x.mean()", "(b.x[3:] * b.y + 1).norm()", "b.x[:7]", "b.m.map(lambda n, v: v.std())", "b.x"]


@pytest.mark.parametrize("text", QUERIES)
def test_nothing_is_compiled_on_the_training_thread(bench, compiled_by, text):
    place = bench(aside=True)
    stream = place.ask(f"on('batch').map(lambda b: {text})")
    size = 1_000 + 37 * QUERIES.index(text)  # shapes that no other test uses
    for step in range(4):
        x = jax.device_put(step + jax.numpy.zeros(size).__array__())
        observables = {"x": x, "y": 2.0, "m": {"a": x}}
        compiled_by.clear()
        place.observe("batch", step=step, **observables)
        assert threading.get_ident() not in compiled_by
        place.telemetry.flush(30.0)
        place.clock.pass_(0.01)
    assert [row[1] for row in stream.rows.take()] == [0, 1, 2, 3]
    assert (stream.n_skipped, stream.n_errors) == (0, 0)


def test_a_new_shape_is_compiled_aside_too(bench, compiled_by):
    place = bench(aside=True)
    stream = place.ask("on('batch').map(lambda b: (b.x * 3).sum()).sum(every=4)")
    for size in (2_003, 2_003, 2_004, 2_003):
        x = jax.device_put(jax.numpy.ones(size).__array__())
        compiled_by.clear()
        place.observe("batch", x=x)
        assert threading.get_ident() not in compiled_by
        place.telemetry.flush(30.0)
    assert [row[3] for row in stream.rows.take()] == [3.0 * (3 * 2_003 + 2_004)]


def test_an_array_that_was_donated_meanwhile_costs_its_event_only(bench):
    place = bench(aside=True)
    stream = place.ask("on('batch').map(lambda b: (b.x + 5).max())")
    go_on = threading.Event()
    place.telemetry.deferred.defer_aside(go_on.wait, lambda error: None)
    first = jax.device_put(jax.numpy.zeros(3_001).__array__())
    place.observe("batch", x=first, step=0)
    first.delete()
    go_on.set()
    place.telemetry.flush(30.0)
    place.observe("batch", x=jax.device_put(jax.numpy.ones(3_001).__array__()), step=1)
    place.telemetry.flush(30.0)
    assert [(row[1], row[3]) for row in stream.rows.take()] == [(1, 6.0)]
    assert (stream.n_skipped, stream.n_errors) == (1, 0)
