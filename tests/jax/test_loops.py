"""What happens in compiled loops, as clients see it: order, numbers, windows, rates, and records while a call runs."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from sightglass.jax import log
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

from .programs import divided, mesh


def logged(c, i):
    log({"c": c}, event="round")
    return c + i, None


@jax.jit
def scanned(c):
    return lax.scan(logged, c, jnp.arange(5))[0]


def nested(length):
    """Return a function of an outer loop, and an inner one of three rounds in each of its rounds."""

    def inner(c, j):
        log({"d": c}, event="inner")
        return c + 1, None

    def outer(c, i):
        c, _ = lax.scan(inner, c, None, length=3)
        log({"c": c}, event="outer")
        return c, None

    @jax.jit
    def f(x):
        c, _ = lax.scan(outer, x, None, length=length)
        log({"loss": c})
        return c

    return f


@jax.jit
def forever(c):
    return lax.fori_loop(0, c, lambda i, c: logged(c, i)[0], 0)


@jax.jit
def until_ten(c):
    return lax.while_loop(lambda c: c < 10, lambda c: logged(c, c + 1)[0], c)


def by_hand(function, start):
    """Return the values that a call of one of these logs."""
    values, c = [], start
    if function is scanned:
        for i in range(5):
            values.append(c)
            c += i
    elif function is forever:
        c = 0
        for i in range(start):
            values.append(c)
            c += i
    else:
        while c < 10:
            values.append(c)
            c += c + 1
    return values


LOOPS = [scanned, forever, until_ten]
STARTS = [4, 1, 3, 2, 6, 1, 0, 5]


@pytest.mark.parametrize("function", LOOPS)
def test_each_pass_is_an_event_in_order(queried, function):
    step = queried.live(function, 3)
    stream = queried.query(lambda: step(3), "round.c")
    before = queried.telemetry.subscriptions.sources["round"].n_events
    for start in STARTS:
        jax.block_until_ready(step(start))
    records = queried.new_records(stream)
    assert [r.value for r in records] == [v for start in STARTS for v in by_hand(function, start)]
    assert [r.step for r in records] == list(range(before, before + len(records)))
    assert queried.telemetry.subscriptions.sources["round"].n_events == before + len(records)


REDUCED = [
    "on('round').map(lambda b: b.c).sum(every=2)",
    "on('round').map(lambda b: b.c).last(every=3)",
    "on('round').where(lambda b: b.c % 2 == 0).map(lambda b: b.c).mean(every=4)",
    "on('round').map(lambda b: b.c * 2).mean(every=7).max(every=2)",
    "on('round').count(every=4)",
    "on('round').map(lambda b: b.c).sum(when=lambda b: b.c > 5)",
    "on('round').map(lambda b: b.c).collect(every=1000)",
]


@pytest.mark.parametrize("function", LOOPS)
def test_reductions_equal_those_of_all_events_on_the_host(queried, function):
    """Several rates at once, over several calls, with the windows of the run."""
    step = queried.live(function, 3)
    streams = [queried.client.stream(query) for query in REDUCED]
    each = queried.query(lambda: step(3), "round.c")
    for start in STARTS:
        jax.block_until_ready(step(start))
    queried.new_records(each)
    for query, stream in zip(REDUCED, streams, strict=True):
        queried.new_records(stream)
        evaluation, wanted = Evaluation(parse(query)), []
        for r in each.records():  # all began with the same call
            head = evaluation.per_event({"c": int(r.value)})
            wanted += evaluation.across_events(head, ordinal=int(r.step), step=r.step, wall_time=r.wall_time)
        got = [(r.step, np.asarray(r.value).tolist(), r.n_events, r.complete) for r in stream.records()]
        assert got == [(w.step, np.asarray(w.value).tolist(), w.n_events, w.complete) for w in wanted], query
    assert len(streams[0].records()) > 4


def test_a_buffer_that_is_smaller_than_a_window_is_sent_when_it_is_full(queried, monkeypatch):
    monkeypatch.setattr("sightglass.jax.ondemand.loop_buffer.MAX_BUFFERED", 3)
    step = queried.live(scanned, 0)
    stream = queried.query(lambda: step(0), "on('round').map(lambda b: b.c).collect(every=10)")
    for start in range(6):
        jax.block_until_ready(step(start))
    values = [[int(v) for v in record.value] for record in queried.new_records(stream)][1:]
    wanted = [by_hand(scanned, start) + by_hand(scanned, start + 1) for start in range(5)]
    assert len(values) >= 2
    assert all(value in wanted for value in values)


def test_windows_are_aligned_to_the_run_and_complete(queried):
    step = queried.live(scanned, 0)
    mean = queried.query(lambda: step(0), "on('round').map(lambda b: b.c).mean(every=7)")
    for _ in range(7):
        jax.block_until_ready(step(0))
    records = queried.new_records(mean)
    assert len(records) == 5
    assert {(r.complete, r.n_events, (r.step + 1) % 7) for r in records} == {(True, 7, 0)}


@pytest.mark.parametrize("function", LOOPS)
def test_without_a_window_each_call_is_a_group(queried, function):
    step = queried.live(function, 3)
    total, peak = queried.query(
        lambda: step(3), "on('round').map(lambda b: b.c).sum()", "on('round').map(lambda b: b.c).max(every=1).max()"
    )
    for start in (3, 2, 5):
        jax.block_until_ready(step(start))
    assert queried.values(total) == [sum(by_hand(function, start)) for start in (3, 2, 5)]
    assert queried.values(peak) == [max(by_hand(function, start)) for start in (3, 2, 5)]


def test_a_group_of_windows_ends_after_the_last_window_with_any_other_query(queried):
    """The call ends for one rate before it ends for the other."""
    step = queried.live(scanned, 0)
    each, peak = queried.query(lambda: step(0), "round.c", "on('round').map(lambda b: b.c).max(every=5).max()")
    for start in (7, 0, 3):
        jax.block_until_ready(step(start))
    assert queried.values(peak) == [13, 6, 9]
    assert len(queried.new_records(each)) == 15


def test_calls_without_a_query_count(queried):
    step = queried.live(scanned, 0)
    stream = queried.query(lambda: step(0), "round.c")
    last = stream.latest.step
    queried.end(stream)
    for _ in range(3):
        step(0)
    assert queried.idle(step)
    assert queried.client.describe().events["round"].n_events == last + 1 + 15
    again = queried.client.stream("round.c")
    jax.block_until_ready(step(0))
    assert [r.step for r in queried.new_records(again)] == [last + 16 + i for i in range(5)]


def test_records_come_while_the_call_still_runs(queried):
    """A scan that waits in its middle for what the client sees of its first half."""
    seen = threading.Event()
    verdicts = []

    def wait(i):
        if i == 5 and queried.watched is not None:
            verdicts.append(seen.wait(90))
        return np.int32(0)

    def body(c, i):
        log({"c": c}, event="round")
        return c + 1 + io_callback(wait, jax.ShapeDtypeStruct((), np.int32), i, ordered=True), None

    queried.watched = None
    step = queried.live(jax.jit(lambda c: lax.scan(body, c, jnp.arange(10))[0]), 0)
    stream = queried.query(lambda: step(0), "round.c")
    n_before = len(stream.records())
    queried.watched = stream.subscribe(lambda record: seen.set() if record.index >= n_before + 3 else None)
    assert int(step(0)) == 10
    assert verdicts == [True]
    assert queried.values(stream) == list(range(10))
    queried.watched.close()


def test_thinned_records_arrive_at_the_queried_rate_while_the_call_runs(queried):
    calls = []
    step = queried.live(jax.jit(lambda c: lax.scan(logged, c, jnp.zeros(1000, int))[0]), 0)
    mean = queried.query(lambda: step(0), "on('round').map(lambda b: b.c).mean(every=100)")
    live_step = step._step
    (part,) = live_step._compiler.newest(0).buffers
    part._receive = lambda delivery: (calls.append(delivery.n), live_step._receive(delivery))[1]
    jax.block_until_ready(step(7))
    assert len(queried.new_records(mean)) == 10
    assert calls == [100] * 10 + [0]


def test_errors_on_the_host_never_reach_xla(queried):
    def explode(c):
        raise ValueError("no")

    queried.run.function("explode", explode)
    step = queried.live(scanned, 0)
    good = queried.query(lambda: step(0), "round.c")
    assert "no" in queried.refused(lambda: step(0), "on('round').map(lambda b: explode(b.c))")
    queried.new_records(good)
    assert int(step(0)) == 10
    assert queried.values(good) == by_hand(scanned, 0)


def test_events_that_did_not_happen_are_skipped(queried):
    def body(c, i):
        log({"c": c}, event="round")
        lax.cond(i % 2 == 0, lambda: log({"even": i, "both": c}, event="round") and None, lambda: None)
        return c + i, None

    step = queried.live(jax.jit(lambda c: lax.scan(body, c, jnp.arange(5))[0]), 0)
    even, count, pair, each = queried.query(
        lambda: step(0),
        "round.even",
        "on('round').map(lambda b: b.even).count()",
        "on('round').map(lambda b: (b.even, b.c))",
        "round.c",
    )
    jax.block_until_ready(step(0))
    start = queried.new_records(each)[0].step
    assert [(r.value, r.step - start) for r in queried.new_records(even)] == [(0, 0), (2, 2), (4, 4)]
    assert queried.values(count) == [3]
    assert [tuple(map(int, v)) for v in queried.values(pair)] == [(0, 0), (2, 1), (4, 6)]


def test_events_that_did_not_happen_close_no_window(queried):
    def body(c, i):
        log({"c": c}, event="round")
        lax.cond(i == 3, lambda: log({"mark": i * 0}, event="round") and None, lambda: None)
        return c + i, None

    step = queried.live(jax.jit(lambda c: lax.scan(body, c, jnp.arange(5))[0]), 0)
    total = queried.query(lambda: step(0), "on('round').map(lambda b: b.c).count(when=lambda b: b.mark == 0)")
    jax.block_until_ready(step(0))
    assert queried.values(total) == [1]


@pytest.mark.parametrize("n", [1, 2])
def test_events_that_did_not_happen_are_skipped_for_any_number_of_logs(queried, n):
    @jax.jit
    def f(x):
        def branch():
            for i in range(n):
                log({"rare": x + i})

        lax.cond(x > 0, branch, lambda: None)
        log({"x": x})
        return x

    step = queried.live(f, 1)
    rare, count = queried.query(lambda: step(1), "batch.rare", "on('batch').map(lambda b: b.rare).count(every=1)")
    for x in (0, 0, 0, 0, 5, 0):
        step(x)
    assert [np.ravel(v).tolist() for v in queried.values(rare)] == [[5, 6][:n]]
    assert queried.values(count) == [0, 0, 0, 0, 1, 0]
    assert rare.statistics().n_errors == 0


def test_events_of_nested_loops_have_numbers_of_their_own(queried):
    step = queried.live(nested(2), 0)
    events = queried.client.describe().events
    assert {name: (e.n_events, set(e.observables)) for name, e in events.items()} == {
        "batch": (1, {"loss"}),
        "outer": (2, {"c"}),
        "inner": (6, {"d"}),
    }
    loss, c, d, d2 = queried.query(
        lambda: step(0), "batch.loss", "outer.c", "inner.d", "on('inner').map(lambda b: b.d).sum(every=2)"
    )
    n = [stream.latest.step + 1 for stream in (loss, c, d)]
    assert (n[1], n[2]) == (2 * n[0], 6 * n[0])
    jax.block_until_ready(step(0))
    jax.block_until_ready(step(10))
    assert queried.values(loss) == [6, 16]
    assert queried.values(c) == [3, 6, 13, 16]
    assert queried.values(d) == [*range(6), *range(10, 16)]
    assert queried.values(d2) == [1, 5, 9, 21, 25, 29]


def test_the_passes_of_an_outer_loop_delimit_groups_of_an_inner_one(queried):
    step = queried.live(nested(4), 0)
    per_outer, per_call = queried.query(
        lambda: step(0),
        "on('inner').map(lambda b: b.d).sum(per='outer')",
        "on('outer').map(lambda b: b.c).sum(per='batch')",
    )
    for _ in range(5):
        jax.block_until_ready(step(0))
    sums = queried.values(per_outer)
    assert sums == [3, 12, 21, 30] * 5
    assert queried.values(per_call) == [30] * 5


def test_lanes_are_axes_and_not_events(queried):
    def lane(x):
        return lax.scan(logged, x, jnp.arange(3))[0]

    step = queried.live(jax.jit(jax.vmap(lane)), jnp.arange(2))
    stream = queried.query(lambda: step(jnp.arange(2)), "round.c")
    jax.block_until_ready(step(jnp.arange(2)))
    np.testing.assert_array_equal(queried.values(stream), [[0, 1], [0, 1], [1, 2]])


def test_lanes_that_are_done_are_left_out(queried):
    step = queried.live(
        jax.jit(jax.vmap(lambda n: lax.fori_loop(0, n, lambda i, c: (log({"c": c}), c + i)[1], 0))), jnp.arange(2)
    )
    stream = queried.query(lambda: step(jnp.array([1, 3])), "batch_loop.c")
    jax.block_until_ready(step(jnp.array([1, 3])))
    assert [np.asarray(v).tolist() for v in queried.values(stream)] == [[0, 0], [0], [1]]


@pytest.mark.parametrize("wrap", ["grad", "remat", "custom_vjp"])
def test_a_derivative_logs_what_its_primal_does_once(queried, wrap):
    def body(c, i):
        log({"c": c}, event="round")
        return jnp.sin(c) + i, None

    def f(x):
        return lax.scan(body, x, jnp.arange(3.0))[0]

    if wrap == "remat":
        f = jax.checkpoint(f)
    if wrap == "custom_vjp":
        inner, f = f, jax.custom_vjp(f)
        f.defvjp(lambda x: (inner(x), x), lambda x, g: (g * 2,))
    plain = jax.jit(jax.value_and_grad(f))
    step = queried.live(plain, 0.5)
    stream, total = queried.query(lambda: step(0.5), "round.c", "on('round').count()")
    value, slope = step(0.5)
    assert (float(value), float(slope)) == tuple(map(float, plain(0.5)))
    first = np.sin(np.float32(0.5))
    np.testing.assert_allclose(np.ravel(queried.values(stream))[:3], [0.5, first, np.sin(first) + 1], rtol=1e-5)
    assert len(queried.values(total)) == 1


def test_devices_are_stacked(queried):
    spec = jax.sharding.PartitionSpec("x")

    def shard(x):
        log({"m": x.sum()})
        return x * 2

    f = jax.shard_map(shard, mesh=mesh("x"), in_specs=spec, out_specs=spec)
    x = divided(jnp.arange(8.0), "x")
    step = queried.live(jax.jit(f), x)
    stream = queried.query(lambda: step(x), "batch.m")
    assert step(x).sharding == x.sharding
    np.testing.assert_array_equal(queried.values(stream), [[1, 5, 9, 13]])


def test_reversed_and_unrolled_loops_report_events_as_they_happen(queried):
    f = jax.jit(lambda c: lax.scan(logged, c, jnp.arange(7), reverse=True, unroll=3)[0])
    step = queried.live(f, 0)
    stream = queried.query(lambda: step(0), "round.c")
    jax.block_until_ready(step(0))
    assert queried.values(stream) == [0, 6, 11, 15, 18, 20, 21]


def test_a_loop_that_does_not_run_has_no_event_and_its_call_is_no_group(queried):
    step = queried.live(forever, 2)
    each, total = queried.query(lambda: step(2), "round.c", "on('round').map(lambda b: b.c).sum()")
    jax.block_until_ready(step(0))
    jax.block_until_ready(step(3))
    assert queried.values(each) == [0, 0, 1]
    assert queried.values(total) == [1]


def test_steps_in_a_loop_are_its_own(queried):
    def body(c, i):
        log({"c": c}, event="round", step=i * 10, epoch=c)
        return c + 1, None

    step = queried.live(jax.jit(lambda c: lax.scan(body, c, jnp.arange(3))[0]), 0)
    stream = queried.query(lambda: step(0), "round.c")
    jax.block_until_ready(step(5))
    assert [(r.step, r.steps["epoch"]) for r in queried.new_records(stream)] == [(0, 5), (10, 6), (20, 7)]


def test_a_deque_that_is_full_is_counted(queried, monkeypatch):
    """The host holds its own lock: what comes in meanwhile waits, and what has no room is counted."""
    monkeypatch.setattr("sightglass.jax.ondemand.loop_buffer.MAX_WAITING", 3)
    step = queried.live(jax.jit(lambda c: lax.scan(logged, c, jnp.arange(50))[0]), 0)
    stream = queried.query(lambda: step(0), "round.c")
    n_dropped = stream.statistics().n_dropped
    with queried.telemetry.lock.mutex:
        jax.block_until_ready(step(0))
        jax.effects_barrier()
        loop = step._step._loops["round"]
        jax.block_until_ready(step._step._last)
        assert len(loop._waiting) <= 4
    records = queried.new_records(stream)
    assert 0 < len(records) < 50
    assert stream.statistics().n_dropped - n_dropped == 50 - len(records)
