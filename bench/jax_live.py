"""What `live` costs: while nobody asks, while a query is being compiled in the background, and until the first answer.

The step is a small training step, a few layers deep. "Plain" is the same step jitted, without logs and without `live`.
During the compile the yardstick is the same loop without a client: the p99 of its steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np

import sightglass as sg
import sightglass.jax as sgx

from .rounds import best_seconds

N_LAYERS = 4
SMALL, USUAL = (128, 256), (512, 512)
"""Widths and batches: a step of half a millisecond, and one of about ten."""


def _step(log: Callable[..., object]) -> Callable[[Any, Any], Any]:
    def train_step(params: list[Any], x: Any) -> list[Any]:
        def loss_of(params: list[Any]) -> Any:
            h = x
            for w in params:
                h = jnp.tanh(h @ w)
            return jnp.mean((h - x) ** 2)

        loss, grads = jax.value_and_grad(loss_of)(params)
        log({"loss": loss, "grads": dict(enumerate(grads))})
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)

    return train_step


def _arguments(width: int, batch: int) -> tuple[list[Any], Any]:
    keys = jax.random.split(jax.random.key(0), N_LAYERS + 1)
    params = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys[1:]]
    return params, jax.random.normal(keys[0], (batch, width))


def _seconds(step: Callable[..., Any], params: Any, x: Any, seconds: float) -> list[float]:
    """Train for a while, and return how long each step took."""
    took, ends = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        params = jax.block_until_ready(step(params, x))
        took.append(time.perf_counter() - began)
    return took


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    yield from _unasked()
    yield from _compiling("a step of ten milliseconds", *USUAL)
    yield from _compiling("a step of half a millisecond", *SMALL, is_small=True)
    yield from _costly()


def _unasked() -> Iterator[tuple[str, float, str, float | None]]:
    tiny = jax.jit(lambda x: x + 1)
    for what, plain, logged, args in (
        ("a training step", jax.jit(_step(lambda data: None)), jax.jit(_step(sgx.log)), _arguments(*SMALL)),
        ("x + 1, the least there is", tiny, tiny, (jnp.float32(1),)),
    ):
        with sg.init("bench-live", budget=None) as run:
            step = sgx.live(logged, run)
            works = [lambda f=f, args=args: jax.block_until_ready(f(*args)) for f in (step, plain)]
            step(*args)
            live_s, plain_s = best_seconds(*works, rounds=30, n=100)
        yield f"live, nobody asking, {what}", live_s / plain_s, "x", 1.05 if "training" in what else None


def _compiling(
    what: str, width: int, batch: int, *, is_small: bool = False
) -> Iterator[tuple[str, float, str, float | None]]:
    """Measure with a step of some size.

    Python's lock is held for milliseconds at a time while JAX lowers a program: a step shorter than that feels it.
    """
    params, x = _arguments(width, batch)
    other = jax.jit(lambda x: x * 2)
    with sg.init("bench-live", budget=None) as run, sg.connect(run) as client:
        jitted = jax.jit(_step(sgx.log))
        step = sgx.live(jitted, run)
        _seconds(step, params, x, 0.5)
        client.describe()
        other(x)
        alone = _seconds(step, params, x, 4.0)
        began = time.perf_counter()
        stream = client.stream(sg.on("batch").map(lambda b: b.grads.map(lambda name, g: abs(g).mean())))
        busy: list[float] = []
        calls, compiled_s, compiled_at = step._step._channel, None, 0
        while stream.latest is None:
            busy += _seconds(step, params, x, 0.0001)
            if compiled_s is None and step._step._compiler._compiled:
                compiled_s, compiled_at = time.perf_counter() - began, calls.n_counted
        n_traces = other._cache_size() - 1
        reference_s = _compile_seconds(params, x)
        target = None if is_small else 3
        yield (
            f"{what}: p99 during the compile, / alone",
            np.percentile(busy, 99) / np.percentile(alone, 99),
            "x",
            target,
        )
        yield "  longest step during the compile, / p50 alone", max(busy) / np.median(alone), "x", None
        yield "  longest step alone, / its p50", max(alone) / np.median(alone), "x", None
        yield "  steps meanwhile", len(busy), "", None
        yield "the compile beside the training, / in an idle process", compiled_s / reference_s, "x", None
        first = stream.records()[0]
        yield "steps between the compile and the first answer", max(0, first.step - compiled_at + 1), "", 2
        yield "other functions traced again", n_traces, "", 0
        asked = _seconds(step, params, x, 2.0)
        yield "a step that is asked, / alone", np.median(asked) / np.median(alone), "x", None
        hand = jax.jit(_by_hand)
        works = [lambda: jax.block_until_ready(step(params, x)), lambda: jax.device_get(hand(params, x)[1])]
        asked_s, hand_s = best_seconds(*works, rounds=30, n=max(1, round(0.01 / np.median(alone))))
        yield "  / the same computed by hand and read", asked_s / hand_s, "x", None if is_small else 1.1
        stream.close()
        while step._idle.get("batch") is None:
            _seconds(step, params, x, 0.001)
        after = _seconds(step, params, x, 2.0)
        yield "a step that is not asked any more, / alone", np.median(after) / np.median(alone), "x", 1.05
        yield "  the step's own function traced again", jitted._cache_size() - 1, "", 0


def _costly() -> Iterator[tuple[str, float, str, float | None]]:
    """One client asks for what takes a hundred times as long as the step: the budget binds."""

    def costly(x: Any) -> Any:
        sgx.log({"big": lambda: jnp.outer(x, x)})
        return jax.lax.fori_loop(0, 4, lambda i, x: jnp.sin(x @ jnp.ones((700, 700)) / 700), x)

    x = jnp.arange(700.0)
    with sg.init("bench-costly") as run, sg.connect(run) as client:
        step = sgx.live(jax.jit(costly), run)
        _steps(step, x, 1.0)
        alone = np.mean(_steps(step, x, 2.0))
        stream = client.stream("median(batch.big)")
        while not any(times.seconds for times in map(_times, step._step._compiler._compiled.values())):
            _steps(step, x, 0.001)
        first, then = _steps(step, x, 5.0), _steps(step, x, 5.0)
        (times,) = map(_times, step._step._compiler._compiled.values())
        statistics = stream.statistics()
        price_s = times.seconds - step._step._budget._plain[0].seconds
        yield "a costly query: its price, / a step", price_s / alone, "x", None
        yield "  a step in the first five seconds, / alone", np.mean(first) / alone, "x", 1.3
        yield "  a step after that, / alone", np.mean(then) / alone, "x", 1.1
        yield "  calls that were skipped and counted", statistics.n_skipped, "", None
        yield "  seconds charged, / taken", statistics.spent_s / max(1, statistics.n_events) / price_s, "x", None


def _times(compiled: Any) -> Any:
    return compiled.variant.times[1]


def _steps(step: Callable[[Any], Any], x: Any, seconds: float) -> list[float]:
    took, ends = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        x = jax.block_until_ready(step(x))
        took.append(time.perf_counter() - began)
    return took


def _by_hand(params: Any, x: Any) -> Any:
    """Return the results of the step, and the same values as the query has."""
    kept: dict[str, Any] = {}
    out = _step(kept.update)(params, x)
    return out, {name: abs(g).mean() for name, g in kept["grads"].items()}


def _compile_seconds(params: Any, x: Any) -> float:
    """Return how long it takes to trace and compile that by hand."""
    began = time.perf_counter()
    jax.jit(_by_hand).lower(params, x).compile()
    return time.perf_counter() - began
