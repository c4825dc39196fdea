"""What `spool` adds to tracing and lowering a function, and that it does so once.

The yardstick is tracing the same function without logs by `jax.jit`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
from jax import lax

from sightglass.jax import log, spool

from .rounds import best_seconds

N_EQUATIONS = 1_000
X = jnp.ones(4)

Function = Callable[[Any], Any]


def long(x, n, every=0):
    """Make n equations; log every so many."""
    for i in range(0, n, 2):
        x = jnp.sin(x) * 1.5
        if every and i % every == 0:
            log({f"x{i}": x}, step=i)
    return x


def flat(n_logs: int) -> Function:
    """Make a function without loops."""
    return lambda x: long(x, N_EQUATIONS, N_EQUATIONS // n_logs if n_logs else 0)


def nested(n_logs: int) -> Function:
    """Make a function of which a quarter is in front of a loop, half in its body, and a quarter in a branch there."""
    quarter, every = N_EQUATIONS // 4, N_EQUATIONS // 2 if n_logs else 0

    def body(x, _):
        x = long(x, 2 * quarter, every)
        return lax.cond(x.sum() > 0, lambda x: long(x, quarter, every), lambda x: x, x), None

    return lambda x: lax.scan(body, long(x, quarter), None, length=3)[0]


def gradient(n_logs: int) -> Function:
    """Make a function that takes the gradient of one of a third of the size."""
    every = N_EQUATIONS // 3 // n_logs if n_logs else 0
    return jax.grad(lambda x: long(x, N_EQUATIONS // 3, every).sum())


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    for what, make, n_logs, target in (
        ("1,000 equations, one log", flat, 1, 1.3),
        ("1,000 equations, ten logs", flat, 10, None),
        ("1,000 equations in a jax.jit, ten logs", lambda n: jax.jit(flat(n)), 10, None),
        ("1,000 equations, a scan and a cond, logs in both", nested, 2, None),
        ("a gradient of 333 equations, ten logs", gradient, 10, None),
    ):
        for stage in ("trace", "lower"):
            ours, theirs = best_seconds(_staged(spool, make, n_logs, stage), _staged(_same, make, 0, stage), rounds=15)
            name = f"spool: {stage} {what}" if stage == "trace" else "  lower"
            yield f"{name}, x unlogged" if stage == "lower" else name, ours / theirs, "", target
    n: list[int] = []
    spooled = spool(lambda x: (n.append(1), log({"x": x}), x + 1)[2])
    for i in range(3):
        spooled(X + i)
    yield "spool: how often three calls trace", len(n), "", 1


def _same(f: Function) -> Function:
    return f


def _staged(around: Callable[[Function], Function], make: Callable[[int], Function], n_logs: int, stage: str) -> Any:
    def work() -> None:
        jax.clear_caches()
        getattr(jax.jit(around(make(n_logs))), stage)(X)

    return work
