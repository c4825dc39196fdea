"""What a log costs that nobody wants: called outside of JAX, left in a jitted function, hidden by `strip`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
from jax import lax

from sightglass.jax import log, logdict, spool, strip

from .rounds import best_seconds

N_CALLS = 20_000
X = jnp.ones((64, 64))


def empty(data, *, event="log", prefix="", explicit=False, **steps):
    """Take what `log` takes, and do nothing."""


def object_only(data, *, event="log", prefix="", explicit=False, **steps):
    """Take what `log` takes, and make an empty object as large as its result: the least that `log` may cost."""
    return object.__new__(logdict)


def step(w, logging=True):
    """Train for a moment, with three logs, one of them in a loop."""

    def loss(w):
        h = jnp.tanh(w @ w)
        if logging:
            log({"h": h.mean(), "norm": jnp.linalg.norm(h)})
        return jnp.square(h - 1).mean()

    def body(w, i):
        value, grads = jax.value_and_grad(loss)(w)
        if logging:
            log({"loss": value, "grads": grads}, step=i)
        return w - 0.1 * grads, None

    w, _ = lax.scan(body, w, jnp.arange(4))
    if logging:
        log({"w": w, "lazy": lambda: jnp.linalg.svd(w)})
    return w


def bare(w):
    """Do what `step` does, without its logs."""
    return step(w, logging=False)


def text(f: Callable[..., Any]) -> str:
    """Return the compiled program of a function without names and places."""
    found = jax.jit(f).lower(X).compile().as_text() or ""
    found = re.sub(r", metadata=\{[^}]*\}", "", re.sub(r"jit_\w+", "jit", found))
    return re.sub(r"(?ms)^(FileNames|FunctionNames|FileLocations|StackFrames)\n.*?(?=^\n|^%|^ENTRY)", "", found)


def _calls(call: Callable[..., object]) -> Callable[[], None]:
    def work() -> None:
        x = 0.5
        for _ in range(N_CALLS):
            call({"loss": x}, step=3)

    return work


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    n, least, ours = best_seconds(*map(_calls, (empty, object_only, log)), rounds=40)
    yield "log outside of JAX, above an empty call", (ours - n) / N_CALLS * 1e6, "us", 0.1
    yield "  only to make the object that it returns", (least - n) / N_CALLS * 1e6, "us", None
    yield "  an empty call", n / N_CALLS * 1e6, "us", None
    yield "  log outside of JAX, x an empty call", ours / n, "x", None
    without = text(bare)
    yield "compiled program changed by logs that nobody wants", float(text(step) != without), "", 0
    yield "  by logs under strip, within spool", float(text(lambda w: spool(strip(step))(w)[0]) != without), "", 0
    large = [jax.jit(step), jax.jit(bare)]
    small = [jax.jit(lambda x: (log({"x": x}), x + 1)[1]), jax.jit(lambda x: x + 1)]
    for what, fs, a in (("a step", large, X), ("one addition", small, jnp.float32(1))):
        took = best_seconds(*(lambda f=f, a=a: f(a).block_until_ready() for f in fs), rounds=40, n=100)
        yield f"  {what}, x the same without logs", took[0] / took[1], "", 1.05
