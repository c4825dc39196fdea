"""Which logs of a loop its rows tell, and what clients get from them: the same as from the step itself."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.waiting import wait_until

from sightglass.jax import chunked, control, log
from sightglass.jax.program import compat
from sightglass.jax.program.collected import stacked_logs
from sightglass.jax.program.primitive import EVERYTHING, MARK, call_wanting

from .queried_run import PATIENCE_S

N_ROUNDS = 1_000_000
"""At `PAUSE_S` for a chunk of 20, more than any test waits for."""
PAUSE_S = 0.005
SIZE = 64


def body(x, i):
    """Do what a training does: work on what it carries, and return a metric or two."""
    x = jnp.sin(x @ x) / SIZE
    return x, {"row": x[0, :8], "first": x[0, 0] + i}


def logs_of(round, xs=None):
    xs = jnp.arange(3.0) if xs is None else xs
    scan = call_wanting(EVERYTHING, jax.make_jaxpr(lambda x: lax.scan(round, x, xs)), jnp.eye(SIZE))
    (eqn,) = (eqn for eqn in compat.opened(scan)[0].eqns if eqn.primitive.name == "scan")
    found = stacked_logs(eqn.params["jaxpr"], *compat.scan_arity(eqn.params))
    return {key for key in found.keys if not key.startswith(MARK)} if found else set()


def logging(what, **options):
    def round(x, i):
        before = x
        x, rows = body(x, i)
        log(what(before, x, i, rows), **options)
        return x, rows

    return round


def test_what_is_stacked_or_scanned_over_and_what_follows_from_it():
    def what(before, x, i, rows):
        mean = rows["row"].mean()
        return {"row": rows["row"], "both": {"mean": mean, "i": i}, "carried": x, "before": before[0], "max": x.max()}

    assert logs_of(logging(what)) == {"row", "both"}


def test_nothing_whose_step_is_carried():
    assert logs_of(logging(lambda before, x, i, rows: rows)) == {"row", "first"}
    assert logs_of(lambda x, i: (log({"row": x[0]}, step=x[1, 1]), body(x, i))[1]) == set()


def test_nothing_that_not_every_round_logs_once():
    def twice(x, i):
        x, rows = body(x, i)
        log(rows)
        log({"row": x[1]})
        return x, rows

    def sometimes(x, i):
        x, rows = body(x, i)
        lax.cond(i > 1, lambda: log(rows) and None, lambda: None)
        return x, rows

    def in_lanes(x, i):
        x, rows = body(x, i)
        jax.vmap(lambda r: lax.cond(r > 0, lambda: log({"r": r}) and None, lambda: None))(rows["row"])
        return x, rows

    assert logs_of(twice) == {"first"}
    assert logs_of(sometimes) == logs_of(in_lanes) == set()


def test_nothing_of_another_event():
    assert logs_of(logging(lambda before, x, i, rows: rows, event="other")) == set()


def test_nothing_that_takes_as_long_as_the_round():
    large = logging(lambda before, x, i, rows: {"large": jnp.tile(rows["row"], 4096) ** 2})
    assert logs_of(large) == set()


def test_nothing_that_reads_a_control(queried):
    gain = queried.run.control("gain", 2.0)
    assert logs_of(logging(lambda before, x, i, rows: {"scaled": rows["first"] * control(gain)})) == set()


def train(reverse):
    def of(x):
        def update(x, i):
            x, rows = body(x, i)
            inner = x * 2
            lax.fori_loop(0, 2, lambda j, s: (log({"s": s}), s + 1)[1], 0)
            log({"first": rows["first"], "mean": rows["row"].mean(), "inner": inner[0, 1]}, step=2 * i)
            return x, rows

        return lax.scan(update, x, jnp.arange(N_ROUNDS), reverse=reverse)

    return of


@pytest.mark.parametrize(("seeds", "reverse"), [(False, True), (True, False)])
def test_rows_answer_in_the_call_and_the_step_stays_as_it_is(queried, seeds, reverse):
    started, asked = threading.Event(), []

    def between(state):
        started.set()
        queried.run.flush(PATIENCE_S)
        time.sleep(PAUSE_S)  # so that the loop does not end before the streams have begun

    f = jax.vmap(train(reverse)) if seeds else train(reverse)
    x = jnp.stack([jnp.eye(SIZE), 2 * jnp.eye(SIZE)]) if seeds else jnp.eye(SIZE)
    steps = chunked(f, every=20, run=queried.run, between=between)

    def ask():
        assert started.wait(PATIENCE_S)
        asked.extend(map(queried.client.stream, ("batch.first", "batch.mean", "on('batch').count()")))
        wait_until(lambda: all(stream.latest is not None for stream in asked), "a record within the call")
        in_step.append(len(steps._rounds._step._compiler._compiled))
        asked.append(queried.client.stream("batch.inner"))
        wait_until(lambda: asked[-1].latest is not None, "a record of what only the step tells")
        queried.client.stop()

    in_step = []
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(ask)
        _, rows = steps(x)
        asking.result()
    first, mean, group, inner = map(queried.new_records, asked)
    assert in_step == [0], "nothing was compiled into the step"
    rows = jax.tree.map(lambda a: np.moveaxis(np.asarray(a), 1, 0) if seeds else np.asarray(a), rows)
    at = lambda r: int(r.step) // 2  # noqa: E731  the step track names the row, whatever the order of the rounds
    assert [np.asarray(r.value).tolist() for r in first] == [rows["first"][at(r)].tolist() for r in first]
    for record in mean:
        np.testing.assert_allclose(record.value, rows["row"][at(record)].mean(-1), rtol=1e-4, atol=1e-7)
    assert {r.value for r in group} == {20}, "a chunk is a group"
    for records in (first, mean, inner):
        steps_seen = [int(r.step) for r in records]
        change = -2 if reverse else 2
        assert steps_seen == list(range(steps_seen[0], steps_seen[0] + change * len(records), change)), "no gap"
    assert [stream.statistics().n_dropped for stream in asked] == [0, 0, 0, 0]
