"""What the training thread feels while a variant of its step is traced, lowered and compiled in the background.

Steps are timed by the phase in which they end, and compared with the same loop before anybody asked. Apart from that,
the longest that a thread waits for the interpreter's lock in each phase, beside nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np

import sightglass.jax as sgx
from sightglass.jax.ondemand.event_queries import StepQuery
from sightglass.jax.ondemand.variant_compiler import Arguments, VariantCompiler
from sightglass.query.parser import parse

Claim = tuple[str, float, str, float | None]
ALONE_S = 2.0
WATCH_S = 0.0005


def _layers(n: int, width: int) -> tuple[Any, Any]:
    """Return a step of so many layers, and its arguments."""

    def one(p: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            h = x
            for i, w in enumerate(p):
                h = jnp.tanh(h @ w)
                sgx.log({f"act{i}": h})
            return jnp.mean(h**2)

        value, grads = jax.value_and_grad(loss)(p)
        sgx.log({"loss": value, "grads": {f"l{i}": g for i, g in enumerate(grads)}})
        return [a - 0.01 * b for a, b in zip(p, grads, strict=True)]

    return jax.jit(one), ([jnp.ones((width, width)) * 0.01] * n, jnp.ones((width, width)))


def _leaves(n: int) -> tuple[Any, Any]:
    """Return a step on a tree of so many leaves, and its arguments."""

    def one(p: Any, x: Any) -> Any:
        p = [a * 0.99 + 0.01 for a in p]
        h = jax.lax.fori_loop(0, 4, lambda i, x: jnp.tanh(x @ x), x)
        sgx.log({"loss": h.mean(), "grads": {f"l{i}": a for i, a in enumerate(p)}})
        return p

    return jax.jit(one), ([jnp.ones(8)] * n, jnp.ones((256, 256)))


def measure() -> Iterator[Claim]:
    for what, (step, args), target in (
        ("60 layers", _layers(60, 96), 3.0),
        ("1,000 leaves", _leaves(1_000), 3.0),
        ("4 layers, a tenth of a millisecond", _layers(4, 32), None),
    ):
        yield from _beside(what, step, args, target)
    for what, (step, args) in (("60 layers", _layers(60, 96)), ("1,000 leaves", _leaves(1_000))):
        yield from _holds(what, step, args)


def _compiler(step: Any, args: Any, phases: list[str]) -> tuple[VariantCompiler, Callable[[], None]]:
    """Return a compiler and what asks it for a variant; `phases` has its last one at the end."""
    compiler = VariantCompiler(
        step, "batch", receive=print, on_events=lambda events: phases.append("variant"),
        on_done=lambda: phases.append("done"),
    )  # fmt: skip
    query = StepQuery(query=parse("abs(batch.grads.l0).mean()"), functions={})
    abstract = Arguments(step).abstract(args, {})
    return compiler, lambda: compiler.request((frozenset({query.query.key}), 0), (query,), lambda: abstract)


def _steps(step: Any, args: Any, going: Callable[[], bool]) -> np.ndarray[Any, Any]:
    """Train while `going`; return when each step ended and how long it took."""
    params, x = args
    took = []
    while going():
        began = time.perf_counter()
        params = jax.block_until_ready(step(params, x))
        ended = time.perf_counter()
        took.append((ended, ended - began))
    return np.array(took)


def _beside(what: str, step: Any, args: Any, target: float | None) -> Iterator[Claim]:
    ends = time.perf_counter() + 0.5
    _steps(step, args, lambda: time.perf_counter() < ends)
    ends = time.perf_counter() + ALONE_S
    alone = _steps(step, args, lambda: time.perf_counter() < ends)[:, 1]
    phases = ["events"]
    compiler, ask = _compiler(step, args, phases)
    began = time.perf_counter()
    ask()
    busy = _steps(step, args, lambda: phases[-1] != "done")
    compiler.join()
    p50, p99 = np.median(alone), np.percentile(alone, 99)
    yield f"{what}: a step alone", p50 * 1e3, "ms", None
    yield "  p99 alone, / p50", p99 / p50, "x", None
    yield "  p99 while a variant is built, / alone", np.percentile(busy[:, 1], 99) / p99, "x", target
    yield "  the longest, / p50 alone", busy[:, 1].max() / p50, "x", None
    lost = [1 - p50 / np.median(second) for second in _by_second(busy, began)]
    yield "  lost of the slowest second", 100 * max(lost), "%", None if target is None else 5.0
    yield "  built in", busy[-1, 0] - began, "s", None


def _by_second(busy: np.ndarray[Any, Any], began: float) -> list[np.ndarray[Any, Any]]:
    seconds = (busy[:, 0] - began).astype(int)
    return [busy[seconds == s, 1] for s in np.unique(seconds)]


def _holds(what: str, step: Any, args: Any) -> Iterator[Claim]:
    """Measure how long a thread waits for the lock, which is idle otherwise."""
    jax.block_until_ready(step(*args))
    phases: list[str] = ["events"]
    compiler, ask = _compiler(step, args, phases)
    alone = _waits(lambda: time.sleep(ALONE_S))

    def build() -> None:
        ask()
        while phases[-1] != "done":
            time.sleep(0.01)

    waits = _waits(build)
    compiler.join()
    yield f"{what}: the longest wait for the lock", max(waits) * 1e3, "ms", 20
    yield "  waits above 2 ms", sum(wait > 0.002 for wait in waits), "", None
    yield f"  the longest in {ALONE_S:g} s in which nothing is built", max(alone) * 1e3, "ms", None


def _waits(work: Callable[[], None]) -> list[float]:
    """Return how long each wait of a thread for the lock took while something works."""
    waits: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            began = time.perf_counter()
            time.sleep(WATCH_S)
            waits.append(time.perf_counter() - began - WATCH_S)

    thread = threading.Thread(target=watch)
    thread.start()
    work()
    ended.set()
    thread.join()
    return waits
