"""Gates: a call answers one of n events of its loops. The others cost nothing, are counted, and n is an argument."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.waiting import wait_until

from sightglass.jax import chunked, log
from sightglass.jax.ondemand import loop_buffer, step_variants
from sightglass.jax.ondemand.call_times import every, price_of
from sightglass.jax.ondemand.event_queries import StepQuery
from sightglass.jax.ondemand.loop_buffer import MAX_CALLS, MAX_EVERY, CallbackDelivery, largest_every
from sightglass.jax.ondemand.step_variants import StepBudget
from sightglass.jax.ondemand.variant import Variant
from sightglass.jax.program.survey import equations, work
from sightglass.query.parser import parse

from .programs import divided, mesh
from .queried_run import PATIENCE_S, QueriedRun, same

N = 100


def costly(c: Any) -> Any:
    return jnp.linalg.norm(jnp.sort(jnp.arange(500.0) * c))


@jax.jit
def inner(c: Any) -> Any:
    log({"within": lambda: costly(c + 1)})
    return jnp.sin(c) + 1


def update(c: Any, i: Any) -> Any:
    c = inner(c)
    log({"c": c, "costly": lambda: costly(c)}, step=i)
    return c, 2 * c


@jax.jit
def scanned(c: Any) -> Any:
    return lax.scan(update, c, jnp.arange(N))


@jax.jit
def looped(c: Any) -> Any:
    return lax.while_loop(lambda s: s[1] < N, lambda s: (update(*s)[0], s[1] + 1), (c, 0))


@jax.jit
def over_lanes(c: Any) -> Any:
    """The log stands under vmap, in a loop that does not."""
    lanes = c + jnp.arange(3.0)
    return lax.scan(update_lanes, lanes, jnp.arange(N))


def update_lanes(cs: Any, i: Any) -> Any:
    return jax.vmap(lambda c: update(c, i))(cs)


@jax.jit
def in_lanes(c: Any) -> Any:
    """The loop stands under vmap."""
    return jax.vmap(scanned.__wrapped__)(c + jnp.arange(3.0))


LOOPS = {scanned: "batch_update", looped: "batch_loop", over_lanes: "batch_update_lanes", in_lanes: "batch_update"}


class Gated:
    """A gated variant, and what its calls deliver."""

    def __init__(self, function: Any, *queries: str, gate: bool = True) -> None:
        self.delivered: list[CallbackDelivery] = []
        wanted = [StepQuery(query=parse(text, functions={}), functions={}) for text in queries]
        self.variant = Variant(function, "batch", wanted, self.delivered.append, share=0.0 if gate else None)

    def call(self, n: int, c: Any = 1.0, call: int = 0) -> tuple[Any, dict[int, Any]]:
        """Return the results, and what was answered, by the number of the event in the call."""
        self.delivered.clear()
        results, outputs = self.variant.jitted(np.array([call, n], np.int32), c)
        jax.block_until_ready(outputs)
        answered: dict[int, Any] = {}
        for delivery in self.delivered:
            for i in range(delivery.n):
                answered[len(answered) * delivery.every] = [np.array(output[i]) for output in delivery.outputs]
        return results, answered

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """How many events the last call answered, and how many happened, by event."""
        found: dict[str, tuple[int, int]] = {}
        for delivery in self.delivered:
            event = delivery.buffer.queries.event
            n, n_seen = found.get(event, (0, 0))
            found[event] = n + delivery.n, n_seen + delivery.n_seen
        return found

    @property
    def jaxpr(self) -> Any:
        return jax.make_jaxpr(self.variant.jitted)(np.array([0, 4], np.int32), 1.0)


def around(jaxpr: Any, kind: str) -> list[list[str]]:
    """Return for each equation of a kind what is around it."""
    return [[one.kind for one in path] for eqn, path in equations(jaxpr.eqns) if eqn.primitive.name == kind]


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_what_only_a_query_needs_stands_under_one_condition_in_the_loop(function: Any) -> None:
    """In an inner jit, too, and around a vmap, which would make a select of it."""
    event = LOOPS[function]
    made = Gated(function, f"{event}.costly", f"{event}.within")
    sorts = around(made.jaxpr, "sort")
    assert len(sorts) == 2
    for kinds in sorts:
        assert "branch" in kinds[len(kinds) - kinds[::-1].index("loop") :], kinds
    for kinds in around(made.jaxpr, "sin"):
        assert "branch" not in kinds, kinds
    assert all("branch" not in kinds for kinds in around(Gated(function, f"{event}.c", gate=False).jaxpr, "sin"))


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_the_answers_are_those_of_the_loop_that_answers_all_and_nothing_else_changes(function: Any) -> None:
    event = LOOPS[function]
    queries = f"{event}.costly", f"{event}.c"
    wanted = function(1.0)
    _, all_answers = Gated(function, *queries, gate=False).call(1)
    assert list(all_answers) == list(range(N))
    gated = Gated(function, *queries)
    for n in (1, 2, 4):
        results, answers = gated.call(n)
        assert list(answers) == list(range(0, N, n))
        for place, answer in answers.items():
            jax.tree.map(np.testing.assert_array_equal, answer, all_answers[place])
        jax.tree.map(np.testing.assert_array_equal, results, wanted)
        assert gated.counts == {event: (len(answers), N)}
    assert gated.variant.jitted._cache_size() == 1


def loss(c: Any) -> Any:
    log({"costly": lambda: costly(c.sum())})
    return (jnp.sin(c) ** 2).sum()


@jax.jit
def in_derivatives(c: Any) -> Any:
    def update(c: Any, _: Any) -> Any:
        value, slope = jax.value_and_grad(jax.checkpoint(loss))(c)
        log({"slope": slope.sum()})
        return c - 0.1 * slope, value

    return lax.scan(update, c, None, length=N)


@jax.jit
def nested(c: Any) -> Any:
    def update(c: Any, i: Any) -> Any:
        log({"costly": lambda: costly(c.sum() + i)})
        return c * 1.01, c.sum()

    return lax.scan(lambda c, _: lax.scan(update, c, jnp.arange(N // 2)), c, None, length=2)


@jax.jit
def in_branches(c: Any) -> Any:
    def update(c: Any, i: Any) -> Any:
        log({"c": c.sum()})
        lax.cond(i % 3 == 0, lambda: (log({"costly": costly(c.sum())}), None)[1], lambda: None)
        return lax.cond(i % 5 == 0, lambda: (log({"other": c.sum()}), c + 1)[1], lambda: c), None

    return lax.scan(update, c, jnp.arange(N))[0]


@pytest.mark.parametrize("is_explicit", [False, True])
@pytest.mark.parametrize("function", [in_derivatives, nested, in_branches], ids=lambda f: f.__name__)
def test_derivatives_inner_loops_branches_and_meshes_change_no_answer(function: Any, is_explicit: bool) -> None:
    queries = ["batch_update.costly"]
    if function is in_branches:
        queries += ["batch_update.c", "batch_update.other"]
    c = jnp.linspace(0.1, 0.9, 8)
    with jax.set_mesh(mesh()) if is_explicit else contextlib.nullcontext():
        c = divided(c) if is_explicit else c
        wanted = function(c)
        _, all_answers = Gated(function, *queries, gate=False).call(1, c)
        assert list(all_answers) == list(range(N))
        gated = Gated(function, *queries)
        gated.call(1, c)
        assert gated.variant.max_every == (2 if function is nested else 4)
        for n in (1, gated.variant.max_every):
            results, answers = gated.call(n, c)
            assert list(answers) == list(range(0, N, n))
            jax.tree.map(np.testing.assert_array_equal, list(answers.values()), [all_answers[i] for i in answers])
            same(results, wanted)


def test_a_short_loop_is_not_gated_and_a_long_one_answers_several_events_of_each_call() -> None:
    made = Gated(scanned, "batch_update.costly")
    _, answers = made.call(1 << 20)
    assert len(answers) == N // made.variant.max_every > 16
    endless = Gated(looped, "batch_loop.costly")
    assert list(endless.call(1 << 20)[1]) == [0]
    assert endless.variant.max_every == MAX_EVERY

    @jax.jit
    def layers(c: Any) -> Any:
        return lax.scan(update, c, jnp.arange(12))

    short = Gated(layers, "batch_update.costly")
    assert len(short.call(8)[1]) == 12
    assert short.variant.max_every == 1


def test_a_call_with_a_long_loop_may_answer_four_events_exactly_and_a_shorter_one_sixteen() -> None:
    @jax.jit
    def long(c: Any) -> Any:
        return lax.scan(update, c, jnp.arange(600))

    _, all_answers = Gated(long, "batch_update.costly", gate=False).call(1)
    gated = Gated(long, "batch_update.costly")
    _, answers = gated.call(1 << 20)
    assert list(answers) == [0, 128, 256, 384, 512]
    jax.tree.map(np.testing.assert_array_equal, list(answers.values()), [all_answers[i] for i in answers])
    assert gated.counts == {"batch_update": (5, 600)}
    assert [largest_every(n) for n in (31, 32, 255, 256, None)] == [1, 2, 8, 64, MAX_EVERY]


def test_a_variant_is_traced_once_gated_or_not() -> None:
    n_traced = [0]

    @jax.jit
    def counted(c: Any) -> Any:
        n_traced[0] += 1
        return scanned.__wrapped__(c)

    for gate in (False, True):
        made = Gated(counted, "batch_update.costly", gate=gate).variant
        made.compile(jax.ShapeDtypeStruct((2,), np.int32), [1.0], {})
        assert (made.max_every > 1) == gate
    assert n_traced == [2]


def test_events_of_lanes_are_all_answered() -> None:
    @jax.jit
    def episodes(c: Any) -> Any:
        def one(c: Any, i: Any) -> Any:
            lax.cond((c + i) % 7 < 1, lambda: (log({"at": c}, event="episode"), None)[1], lambda: None)
            return c + 1

        return lax.scan(lambda cs, i: (jax.vmap(lambda c: one(c, i))(cs), None), c + jnp.arange(3.0), jnp.arange(N))[0]

    alone, gated = (Gated(episodes, "episode.at", gate=gate).call(8)[1] for gate in (False, True))
    assert len(alone) == len(gated) > 20
    jax.tree.map(np.testing.assert_array_equal, gated, alone)


def test_other_events_in_a_gated_loop_miss_nothing() -> None:
    """One is stacked for the call, and one has a loop of its own within."""

    @jax.jit
    def f(c: Any) -> Any:
        def within(c: Any, i: Any) -> Any:
            log({"c": c})
            return c + 1, None

        def update(c: Any, i: Any) -> Any:
            log({"costly": lambda: costly(c)})
            log({"all": c * 2}, event="batch")
            return lax.scan(within, c, None, length=3)[0], None

        return lax.scan(update, c, None, length=N)[0]

    made = Gated(f, "batch_update.costly", "batch.all", "batch_within.c")
    _, outputs = made.variant.jitted(np.array([0, 4], np.int32), 1.0)
    jax.block_until_ready(outputs)
    assert made.counts == {"batch_update": (25, N), "batch_within": (300, 300)}
    ((stacked,),) = outputs.once
    np.testing.assert_array_equal(stacked, 2 * (1.0 + 3 * np.arange(N)))


@pytest.fixture
def thinned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let each call with queries answer one of so many events, whatever it takes."""
    n = [1]
    monkeypatch.setattr(StepBudget, "choose", lambda self, variant, answers, **how: (variant, n[0]))
    return n


REDUCED = ("mean(every=10)", "count(every=7)", "mean()", "max(every=30).sum(every=2)")


@pytest.mark.parametrize("function", [scanned, looped], ids=lambda f: f.__name__)
def test_what_is_skipped_is_counted_and_windows_say_so(function: Any, thinned: list[int], tmp_path: Any) -> None:
    event = LOOPS[function]
    queried = QueriedRun(dir=tmp_path)
    try:
        step = queried.live(function, 1.0)
        step._step._compiler._share = 0.05
        each = queried.query(lambda: step(1.0), f"{event}.costly")
        streams = queried.query(lambda: step(1.0), *(f"on('{event}').map(lambda b: b.costly).{r}" for r in REDUCED))
        wait_until(lambda: (step(1.0), set(_keys(step)) == {s.query for s in (each, *streams)})[1], "the variant")
        queried.new_records(each)
        before = [stream.statistics() for stream in (each, *streams)]
        index = queried.telemetry.subscriptions.sources[event].n_events
        whole = [r.value for r in each.records()][-N:]
        thinned[0] = 4
        for _ in range(3):
            jax.block_until_ready(step(1.0))
        records = queried.new_records(each)
        assert [r.value for r in records] == whole[::4] * 3
        assert [r.step for r in records] == list(range(0, N, 4)) * 3
        for stream, old in zip((each, *streams), before, strict=True):
            new = stream.statistics()
            assert new.n_skipped - old.n_skipped == 3 * 75
            assert new.n_events - old.n_events == 3 * 25
        assert queried.telemetry.subscriptions.sources[event].n_events == index + 3 * N
        means, counts, groups, _ = ([r for r in queried.new_records(s) if r.n_events][-9:] for s in streams)
        assert all(record.n_events <= 3 and not record.complete for record in means)
        assert all(record.value == record.n_events <= 2 and not record.complete for record in counts)
        assert [(r.n_events, r.complete) for r in groups[-3:]] == [(25, False)] * 3
        np.testing.assert_allclose([r.value for r in groups[-3:]], np.mean(whole[::4]), rtol=1e-6)
        (compiled,) = [c for c in step._step._compiler._compiled.values() if len(c.variant.keys) == 5]
        assert compiled.variant.jitted._cache_size() == 1
    finally:
        queried.close()


def test_what_there_is_no_room_for_is_counted_apart(
    thinned: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queried = QueriedRun(dir=tmp_path)
    try:
        step = queried.live(looped, 1.0)
        step._step._compiler._share = 0.05
        stream = queried.query(lambda: step(1.0), "batch_loop.costly")
        before, index = stream.statistics(), queried.telemetry.subscriptions.sources["batch_loop"].n_events
        thinned[0] = 4
        for room in (0, 1024):
            monkeypatch.setattr(loop_buffer, "MAX_WAITING", room)
            jax.block_until_ready(step(1.0))
        records, counts = queried.new_records(stream), stream.statistics()
        assert [r.step for r in records] == list(range(0, N, 4))
        assert counts.n_skipped - before.n_skipped == 2 * 75
        assert counts.n_dropped - before.n_dropped == 25
        assert queried.telemetry.subscriptions.sources["batch_loop"].n_events == index + 2 * N
    finally:
        queried.close()


def test_a_call_may_have_any_number_of_events(tmp_path: Any) -> None:
    """As they are delivered: on the device, no number grows with those of a call."""
    queried = QueriedRun(dir=tmp_path)
    try:
        step = queried.live(looped, 1.0)
        stream = queried.query(lambda: step(1.0), "batch_loop.c")
        loop, (buffer,) = step._step._loops["batch_loop"], step._step._compiler.newest(0).buffers
        queried.run.flush(PATIENCE_S)
        n_before, counts, n_long = loop.n_events(), stream.statistics(), 2**30
        loop.begin(MAX_CALLS - 1, None, 1)
        for i in range(5):
            how = {"every": 1 << 18, "n": int(i < 4), "n_seen": n_long, "is_last": i == 4}
            loop.receive(CallbackDelivery(buffer=buffer, call=MAX_CALLS - 1, outputs=[np.ones(1)] * 2, **how))
        records, new = queried.new_records(stream), stream.statistics()
        assert [r.value for r in records] == [1.0] * 4
        assert loop.n_events() - n_before == 5 * n_long
        assert new.n_skipped - counts.n_skipped == 5 * n_long - 4
    finally:
        queried.close()


def test_rows_of_chunks_are_all_read_and_what_only_the_step_tells_is_thinned(thinned: list[int], tmp_path: Any) -> None:
    def train(c: Any) -> Any:
        def update(c: Any, i: Any) -> Any:
            c = inner(c)
            row = 2 * c
            log({"row": row, "costly": lambda: costly(c)}, step=i)
            return c, row

        return lax.scan(update, c, jnp.arange(6_000))

    def between(state: Any) -> None:
        within = step._rounds._step
        wait_until(lambda: within._variants._rows._compiler.newest(0), "the variant that reads rows")
        queried.telemetry.flush(PATIENCE_S)  # the rows of several chunks may come together
        asked = queried.telemetry.subscriptions.active.values()
        wait_until(lambda: not any(one.rows for one in asked), "all rows are sent")  # those that wait are bounded
        if state.n_done == 3_000:
            streams.append(queried.client.stream("batch.costly"))
        if state.n_done > 3_000:
            wait_until(lambda: within._compiler.newest(0), "the variant of the step")

    thinned[0] = 4
    queried = QueriedRun(dir=tmp_path)
    try:
        wanted = jax.jit(jax.vmap(train))(jnp.arange(2.0))
        step = chunked(jax.jit(jax.vmap(train)), run=queried.run, every=100, between=between)
        step._rounds._step._compiler._share = 0.05
        streams = [queried.client.stream("batch.row")]
        results = step(jnp.arange(2.0))
        jax.tree.map(np.testing.assert_array_equal, results, wanted)
        rows, costs = map(queried.new_records, streams)
        assert step._rounds._step._compiler.newest(0).max_every == MAX_EVERY
        answered = [*range(100, 3_100), *range(3_100, 6_000, 4)]
        assert [r.step for r in rows] == answered, [stream.statistics() for stream in streams]
        assert [r.step for r in costs] == answered[-725:]
        np.testing.assert_array_equal([r.value for r in rows], np.asarray(wanted[1])[:, answered].T)
        assert [stream.statistics().n_skipped for stream in streams] == [2175, 2175]
    finally:
        queried.close()


def test_events_that_close_windows_of_other_queries_are_all_answered(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_variants, "every", lambda prices_s, allowed_s, largest: largest)
    monkeypatch.setattr(step_variants, "stride", lambda *_: 1)
    monkeypatch.setattr(StepBudget, "share", 0.05)  # the step's alone: the run itself thins nothing
    queried = QueriedRun(dir=tmp_path)
    try:
        step = queried.live(scanned, 1.0)
        each = queried.query(lambda: step(1.0), "batch_update.costly")
        jax.block_until_ready(step(1.0))
        assert len(queried.new_records(each)) == N // 4
        count = queried.query(lambda: step(1.0), "on('batch').count(per='batch_update')")
        queried.new_records(each)
        jax.block_until_ready(step(1.0))
        assert len(queried.new_records(each)) == len(queried.new_records(count)) == N
    finally:
        queried.close()


def _keys(step: Any) -> frozenset[str]:
    """Return the queries that the last call answered."""
    newest = step._step._compiler.newest(0)
    return newest.keys if newest else frozenset()


def test_a_costly_query_of_a_long_loop_is_gated_and_a_cheap_one_is_not(tmp_path: Any) -> None:
    queried = QueriedRun(dir=tmp_path, budget=0.05)
    try:
        step = queried.live(scanned, 1.0)
        queried.end(queried.query(lambda: step(1.0), "batch_update.costly"))
        assert step._step._compiler.newest(0).max_every == 4

        @jax.jit
        def large(c: Any) -> Any:
            def each(c: Any, _: Any) -> Any:
                log({"first": c[0, 0]})
                return jnp.sin(c @ c), None

            return lax.scan(each, jnp.full((50, 50), c), None, length=N)[0]

        other = queried.live(large, 1.0, event="large")
        queried.query(lambda: other(1.0), "large_each.first")
        assert other._step._compiler.newest(0).max_every == 1
    finally:
        queried.close()


@pytest.mark.parametrize(
    ("prices_s", "allowed_s", "largest", "want"),
    [
        ({1: 1.0}, 1.0, 64, 1),
        ({1: 1.0}, 0.1, 64, 16),
        ({1: 1.0}, 0.001, 64, 64),
        ({1: 1.0}, 0.1, 1, 1),
        ({8: 0.01}, 1.0, 64, 4),  # not at once to 1: little is known of it
        ({8: -0.001}, 1.0, 64, 4),
        ({1: 1.1, 2: 0.6}, 0.2, 64, 16),  # 1.0 for all events, and 0.1 for none
        (
            {1: 1.1, 2: 0.6},
            0.05,
            64,
            16,
        ),  # the rest alone is beyond: calls are skipped, and rounds as the rest is worth
        ({1: 0.1, 64: 0.2}, 1.0, 64, 1),
    ],
)
def test_as_many_events_are_answered_as_the_budget_allows(
    prices_s: dict[int, float], allowed_s: float, largest: int, want: int
) -> None:
    assert every(prices_s, allowed_s, largest) == want


def test_a_price_follows_from_those_of_other_calls() -> None:
    assert price_of({1: 1.1, 2: 0.6}, 2) == 0.6
    assert price_of({1: 1.1, 2: 0.6}, 10) == pytest.approx(0.2)


def test_work_of_a_loop_of_unknown_length_is_counted_for_some_rounds() -> None:
    jaxpr = jax.make_jaxpr(lambda x: lax.while_loop(lambda x: x[0] < 1, jnp.sin, x))(jnp.zeros(100))
    assert 1600 <= work(jaxpr, n_rounds=16) <= 1800


def test_the_number_of_a_call_is_in_the_range_of_its_type() -> None:
    assert len(Gated(scanned, "batch_update.costly").call(4, call=MAX_CALLS - 1)[1]) == 25
