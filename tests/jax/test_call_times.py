"""The budget binds for compiled steps: what queries take of the device is measured, and thinned on the calls."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.waiting import wait_until

from sightglass.jax import log
from sightglass.jax.ondemand import step_variants
from sightglass.jax.ondemand.call_times import MAX_WAIT_S, N_FIRST, SAMPLE_S, CallTimes, estimate, stride
from sightglass.jax.ondemand.step_variants import StepBudget
from sightglass.jax.program.survey import work
from sightglass.training.evaluation.budget import Account

from .queried_run import QueriedRun


class Program:
    """A program that takes some seconds of a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.took_s = 1.0
        self.n_waited = 0

    def __call__(self) -> Any:
        self.now_s += self.took_s
        return jnp.zeros(())

    def clock_s(self) -> float:
        return self.now_s


def test_the_first_calls_and_then_few_are_measured() -> None:
    times, program = CallTimes(), Program()
    assert times.seconds is None
    for took_s in (3.0, 2.0):
        program.took_s = took_s
        times.measured(program, (), clock_s=program.clock_s)
    assert times.seconds == 2.0
    program.took_s = SAMPLE_S / 4
    for _ in range(3):
        times.measured(program, (), clock_s=program.clock_s)
        assert times.seconds == 2.0
    program.now_s += 1
    times.measured(program, (), clock_s=program.clock_s)
    assert times.seconds == SAMPLE_S / 4
    assert N_FIRST == 2


@pytest.mark.parametrize(
    ("price_s", "plain_s", "want"),
    [(0.0, 1.0, 1), (-1.0, 1.0, 1), (0.05, 1.0, 1), (0.1, 1.0, 2), (0.09, 0.001, 2048), (1.0, 0.0, 1 << 35)],
)
def test_the_stride_is_the_smallest_that_the_budget_allows(price_s: float, plain_s: float, want: int) -> None:
    n = stride(price_s, plain_s, 0.05)
    assert n == want
    assert price_s <= 0.0500001 * (n * max(plain_s, 1e-9) + max(price_s, 0)) or price_s <= 0


class Loop:
    """A training whose calls take a millisecond beside other work, and another one with a query."""

    def __init__(self, *, other_s: float, price_s: float, share: float) -> None:
        self.program = Program()
        clock = SimpleNamespace(monotonic=self.program.clock_s)
        account = SimpleNamespace(share=share)
        lock = SimpleNamespace(mutex=contextlib.nullcontext())
        telemetry: Any = SimpleNamespace(commands=SimpleNamespace(agrees=False), budget=account, clock=clock, lock=lock)
        self.budget = StepBudget(telemetry, "batch")
        self.variant: Any = SimpleNamespace(
            times={1: CallTimes()}, max_every=1, growth=1.0, n_more=0.0, growth_of_rounds=1.0, keys={"q"}
        )
        cost = SimpleNamespace(device_s=0.0)
        query = SimpleNamespace(key="q")
        self.answer: Any = SimpleNamespace(
            first=False, n_seen=1, program_stride=1, recorded=False, cost=cost, query=query
        )
        self.other_s, self.price_s = other_s, price_s

    def run(self, n: int) -> int:
        """Run so many rounds; return how many of their calls were answered."""
        n_answered = 0
        for i in range(n):
            self.program.now_s += self.other_s
            chosen, every = self.budget.choose(self.variant, [self.answer], signature=0, n_calls=i, thins=True)
            self.program.took_s = 0.001 if chosen is None else 0.001 + self.price_s
            if chosen is None:
                self.budget.plain(self.program, (), signature=0)
            else:
                self.budget.queried(chosen, every, self.program, (), signature=0, answers=[self.answer])
            n_answered += chosen is not None
        return n_answered


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("other_s", [0.0, 0.005, 0.02, 0.1])
@pytest.mark.parametrize("price_s", [0.0002, 0.001, 0.004])
def test_queries_of_a_step_take_their_share_of_the_run_s_time_and_not_of_the_step_s(
    share: float, other_s: float, price_s: float
) -> None:
    loop = Loop(other_s=other_s, price_s=price_s, share=share)
    loop.run(100)
    began_s, n = loop.program.now_s, 1_024
    n_answered = loop.run(n)
    wall_s = loop.program.now_s - began_s
    spent = n_answered * price_s / wall_s
    assert spent <= 1.05 * share
    allowed = min(1.0, (other_s + 0.001) * share / (1 - share) / price_s)  # of the calls
    assert n_answered >= 0.9 * n * min(1.0, power_of_two_below(allowed))
    assert loop.answer.program_stride == pytest.approx(n / n_answered, rel=0.1)


def power_of_two_below(x: float) -> float:
    return 2.0 ** math.floor(math.log2(x))


def test_a_pause_now_and_then_does_not_count() -> None:
    loop = Loop(other_s=0.02, price_s=0.001, share=0.05)
    loop.run(100)
    loop.program.now_s += 60.0
    assert loop.run(64) >= 60


def test_an_estimate_does_not_take_dispatch_for_operations() -> None:
    assert estimate(1e6, 4e8, plain_s=0.0005) == pytest.approx(0.4)
    assert estimate(1e6, 4e15, plain_s=0.0005) == pytest.approx(50.0, rel=1e-5)
    assert math.isnan(estimate(math.nan, math.nan, plain_s=1.0))


def costly(x: Any) -> Any:
    log({"big": lambda: lax.fori_loop(0, 200, lambda i, y: jnp.sin(y @ y), jnp.outer(x, x)), "x": x.sum()})
    return jnp.sin(x) + 1


def test_a_costly_query_is_answered_on_few_calls_and_counted() -> None:
    queried, x = QueriedRun(budget=0.05), jnp.arange(100.0)
    with queried.run:
        step = queried.live(jax.jit(costly), x)
        stream = queried.query(lambda: step(x), "batch.big.mean()")
        plain, (both,) = (
            step._step._budget._plain[0],
            [v.variant.times[1] for v in step._step._compiler._compiled.values()],
        )
        for _ in range(N_FIRST):
            step(x)
        price_s, before = both.seconds - plain.seconds, stream.statistics()
        n = stride(price_s, plain.seconds, 0.05)
        assert n > 1
        for _ in range(200):
            jax.block_until_ready(step(x))
        queried.new_records(stream)
        after = stream.statistics()
        assert after.n_skipped - before.n_skipped >= 100
        assert after.n_skipped + after.n_events - before.n_skipped - before.n_events == 200
        assert after.spent_s >= price_s / 2


def test_a_stream_that_the_run_thins_too_meets_the_calls_that_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    queried, x = QueriedRun(budget=0.05), jnp.arange(100.0)
    with queried.run:
        step = queried.live(jax.jit(costly), x)
        wait_until(lambda: queried.idle(step))
        for _ in range(2):
            step(x)  # is counted only
        stream = queried.query(lambda: step(x), "batch.x")
        monkeypatch.setattr(step_variants, "stride", lambda *_: 4)
        monkeypatch.setattr(Account, "strides", lambda self, loads: [4] * len(loads))
        (answer,) = queried.telemetry.subscriptions.active.values()
        wait_until(lambda: (jax.block_until_ready(step(x)), answer.stride == 4)[1], "a review of the budget")
        queried.new_records(stream)
        before = stream.statistics()
        for _ in range(40):
            jax.block_until_ready(step(x))
        assert len(queried.new_records(stream)) == 10
        after = stream.statistics()
        assert after.n_skipped - before.n_skipped == 30


def test_a_price_that_no_thinning_pays_for_is_refused() -> None:
    queried, x = QueriedRun(budget=0.05), jnp.arange(10.0)
    with queried.run:
        step = queried.live(jax.jit(costly), x)
        stream = queried.query(lambda: step(x), "batch.x")
        (compiled,) = step._step._compiler._compiled.values()
        compiled.variant.times[1]._seconds.clear()
        compiled.variant.times[1]._seconds.append(0.05 * MAX_WAIT_S + 100)
        wait_until(lambda: (step(x), stream.ended)[1], "a refusal")
        assert "the budget of 5.0% pays for" in stream.statistics().last_error


def hopeless(x: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        log({"singular": lambda: jnp.linalg.svd(jnp.outer(x, c * x))[1]})
        return c + 1.0, None

    log({"x": x.sum()})
    return lax.scan(body, jnp.float32(0), None, length=1_000_000)[0]


def test_what_would_take_hours_is_refused_before_it_has_run_and_costs_nobody_else_anything() -> None:
    queried, x = QueriedRun(budget=0.05), jnp.arange(5000.0)
    with queried.run:
        step = queried.live(jax.jit(hopeless), x)
        cheap = queried.query(lambda: step(x), "batch.x")
        refused = queried.refused(lambda: step(x), "batch_body.singular.mean(every=1000)")
        assert "the budget of 5.0% pays for" in refused
        assert not cheap.ended
        n = len(cheap.records())
        wait_until(lambda: (jax.block_until_ready(step(x)), len(cheap.records()) > n)[1], "a record")


@pytest.mark.parametrize(
    ("f", "shapes", "want"),
    [
        (lambda a, b: a @ b, ((8, 9), (9, 7)), 2 * 8 * 9 * 7),
        (lambda a: a.sum(), ((8, 9),), 72),
        (lambda a: lax.scan(lambda c, x: (c + x, None), jnp.zeros(9), a)[0], ((8, 9),), 72),
        (lambda a: lax.fori_loop(0, 8, lambda i, a: a.at[i].set(0.0), a), ((8, 9000),), 2 * 8 * 9000),
        (lambda a: lax.cond(a.sum() > 0, lambda: jnp.sin(jnp.sin(a)), lambda: a), ((8, 9),), 3 * 72),
        (lambda a: jnp.linalg.svd(a, compute_uv=False), ((40, 30),), 20 * 40 * 30 * 30),
        (jax.jit(jnp.sin), ((8, 9),), 72),
    ],
)
def test_work_counts_operations(f: Any, shapes: Any, want: float) -> None:
    found = work(jax.make_jaxpr(f)(*(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)))
    assert want <= found <= 1.2 * want + 12


def test_work_of_unknown_length_is_unknown() -> None:
    def f(n: Any) -> Any:
        return lax.cond(n > 0, lambda: lax.fori_loop(0, n, lambda i, c: c + i, 0), lambda: 0)

    assert math.isnan(work(jax.make_jaxpr(f)(3)))


def test_work_without_a_query_is_that_of_the_step() -> None:
    queried, x = QueriedRun(), jnp.ones(100)
    with queried.run:
        step = queried.live(jax.jit(costly), x)
        queried.query(lambda: step(x), "batch.x")
        (compiled,) = step._step._compiler._compiled.values()
        assert 1 <= compiled.variant.growth < 2
