"""What taking logs costs while a program runs: `spool` and metrics plumbed by hand, `tap` and `jax.debug.callback`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
from jax import lax

from sightglass.jax import chunked, log, spool, tap

from .rounds import best_seconds

N_STEPS = 2_000
N_EVENTS = 2_000
N_BIG = 1_000
MIB = 2**20
KEY = jax.random.key

Claim = tuple[str, float, str, float | None]


def measure() -> Iterator[Claim]:
    yield from _spool()
    yield from _chunked()
    yield from _tap()
    for how in ("last", "mean"):
        size = _memory(lambda x, how=how: spool(_big, reduce=how)(x))
        yield f'reduce="{how}" of 1,000 steps of 1 MB: temporary and output', size, "MB", 10
    yield "  stacked, for comparison", _memory(spool(_big)), "MB", None


def _training(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Make a training of an MLP 32-64-10 in a scan; `emit` logs, or hands the metrics on."""
    x, y = jax.random.normal(KEY(0), (64, 32)), jax.random.randint(KEY(1), (64,), 0, 10)

    def loss(w):
        logits = jnp.tanh(x @ w[0]) @ w[1]
        right = jax.nn.log_softmax(logits)[jnp.arange(64), y]
        return -right.mean(), (logits.argmax(-1) == y).mean()

    def body(state, _):
        w, i = state
        (value, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(w)
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in grads))
        w = [w - 0.1 * g for w, g in zip(w, grads, strict=True)]
        return (w, i + 1), emit({"loss": value, "accuracy": accuracy, "norm": norm}, i)

    return lambda w: lax.scan(body, (w, 0), None, length=N_STEPS)


def _logged(metrics, i):
    log(metrics, step=i)


def _spool() -> Iterator[Claim]:
    w = [0.1 * jax.random.normal(KEY(2), (32, 64)), 0.1 * jax.random.normal(KEY(3), (64, 10))]
    ours = jax.jit(spool(_training(_logged))).lower(w).compile()
    theirs = jax.jit(_training(lambda metrics, i: (metrics, dict.fromkeys(metrics, i)))).lower(w).compile()
    works = [lambda f=f: jax.block_until_ready(f(w)) for f in (ours, theirs)]
    took = best_seconds(*works, rounds=25)
    yield "spool: 2,000 steps, x metrics plumbed by hand", took[0] / took[1], "", 1.02
    costs = [_cost(f) for f in (ours, theirs)]
    yield "  operations, x plumbed by hand", costs[0]["flops"] / costs[1]["flops"], "", 1.02
    yield "  bytes accessed, x plumbed by hand", costs[0]["bytes accessed"] / costs[1]["bytes accessed"], "", 1.02


def _chunked() -> Iterator[Claim]:
    """Compare a loop in chunks of some milliseconds with the same in one call; nobody asks."""
    w = [0.1 * jax.random.normal(KEY(2), (32, 64)), 0.1 * jax.random.normal(KEY(3), (64, 10))]
    f = jax.jit(_training(_logged))
    works = [lambda g=g: jax.block_until_ready(g(w)) for g in (chunked(f, every=N_STEPS // 10), f)]
    ours_s, theirs_s = best_seconds(*works, rounds=25)
    yield "chunked: 2,000 steps in 10 chunks, x one call", ours_s / theirs_s, "", 1.02
    yield "  one call", theirs_s * 1e3, "ms", None


def _cost(compiled: Any) -> dict[str, float]:
    return compiled.cost_analysis()


def _tap() -> Iterator[Claim]:
    seen: list[Any] = []

    def loop(emit: Callable[..., Any]) -> Callable[[Any], Any]:
        def body(c, i):
            c = jnp.sin(c)
            emit({"loss": c.sum()}, i)
            return c, None

        return lambda c: lax.scan(body, c, jnp.arange(N_EVENTS))[0]

    def by_hand(metrics, i):
        jax.debug.callback(lambda loss, i: seen.append((loss, i)), metrics["loss"], i)

    ours = tap(loop(_logged), seen.append)
    theirs, bare = jax.jit(loop(by_hand)), jax.jit(loop(lambda metrics, i: None))

    def run(f: Callable[[Any], Any]) -> Callable[[], None]:
        def work() -> None:
            seen.clear()
            jax.block_until_ready(f(jnp.ones(4)))
            jax.effects_barrier()

        return work

    ours_s, theirs_s, bare_s = best_seconds(run(ours), run(theirs), run(bare), rounds=9)
    yield "tap: an event, x a jax.debug.callback", (ours_s - bare_s) / (theirs_s - bare_s), "", 0.3
    yield "  an event", (ours_s - bare_s) / N_EVENTS * 1e6, "us", None
    yield "  a jax.debug.callback", (theirs_s - bare_s) / N_EVENTS * 1e6, "us", None


def _big(x):
    def body(x, i):
        x = jnp.sin(x) + i
        log({"x": x}, step=i)
        return x, None

    return lax.scan(body, x, jnp.arange(N_BIG))[0]


def _memory(f: Callable[..., Any]) -> float:
    """Return how much a compiled program needs next to its argument of 1 MB."""
    found: Any = jax.jit(f).lower(jnp.ones(MIB // 4)).compile().memory_analysis()
    return (found.temp_size_in_bytes + found.output_size_in_bytes) / 1e6
