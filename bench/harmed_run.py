"""A run in a process of its own: makes large observables, announces events, and says what each one cost.

It reads lines: one begins a run, the next one its events, and a third one ends it. It says one line of JSON for each.
"""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import sightglass as sg
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.run import wiring

N_EVENTS: Final = 5  # the first ones, where the least is known about what a query costs
PAUSE_S: Final = 0.05  # less than ten times 20 ms: the limit of an event is 20 ms then, not a tenth of the pace
LONG_S: Final = 1.0  # an event this long is bad enough: the others are not waited for
MAX_BYTES: Final = 8 * 2**30  # beyond these, memory is refused to the process: other programs need theirs
N_LAYERS: Final = 99
N_NAMES: Final = 10_000

Event = Callable[[int], dict[str, Any]]


def observables(kind: str, n_bytes: int, *, shared: bool = True) -> Event:
    """Return a function that makes the observables of a step. The first item of `x` is the step.

    Without `shared`, other arrays do not change with `x`, as those of JAX.
    """
    x = np.random.default_rng(0).normal(size=n_bytes // 8)
    quarter = x[: x.size // 4]
    arrays = {
        "x": x, "half": x.astype(np.float16), "complex": x.view(np.complex128), "mask": x > 0,
        "k": (quarter * 1000).astype(np.int64), "denormal": quarter * 1e-310,
        "nan": np.where(quarter > 0, quarter, np.nan),
        "places": np.random.default_rng(1).integers(0, x.size, quarter.size),
    }  # fmt: skip
    own: list[Any] = [1]
    own.append(own)
    plain = {
        "one": 1.5, "few": {f"n{i}": float(i) for i in range(N_LAYERS)}, "own": own,
        "many": {f"n{i}": float(i) for i in range(N_NAMES)}, "words": [f"w{i}" for i in range(N_NAMES)],
        "text": "a" * 20_000_000, "leaves": {key: list(range(125_000)) for key in "ab"},
    }  # fmt: skip
    convert = _convert(kind)
    of = {name: convert(array) for name, array in arrays.items()}
    big = of["x"]
    if not shared:
        of["complex"], big = of["complex"].copy(), big.copy()
    width = x.size // N_LAYERS
    named = {
        "layers": {f"layer{i}": big[width * i : width * (i + 1)] for i in range(N_LAYERS)},
        "arrays": {f"p{i}": big[16 * i : 16 * i + 16] for i in range(N_NAMES)},
    }

    at_step = {step: big.at[0].set(float(step)) for step in range(-1, N_EVENTS)} if kind == "jax" else {}

    def event(step: int) -> dict[str, Any]:
        if at_step:  # made beforehand: their memory is not that of queries
            return {**plain, **of, **named, "x": at_step[step]}
        of["x"][0] = float(step)
        return {**plain, **of, **named}

    return event


def columns() -> Event:
    """Return a function that makes the columns of tables, alone and in a mapping, at their limit and far beyond it."""
    from .nasty_columns import made

    offered = {"one": 1.5, "x": np.zeros(1), **made()}
    return lambda step: offered


def _convert(kind: str) -> Callable[[np.ndarray], Any]:
    if kind == "torch":
        import torch

        return torch.from_numpy
    if kind == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray
    return lambda array: array


def main(kind: str, n_bytes: int, folder: str) -> None:
    """Make runs and events as long as lines come."""
    event = columns() if kind == "columns" else observables(kind, n_bytes)
    event(0)
    gc.collect()
    held = _memory("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (held + MAX_BYTES, held + MAX_BYTES))
    _say(ready=True)
    for _ in sys.stdin:
        with contextlib.suppress(sg.StorageError), sg.init("harm", dir=folder) as run:
            offered = event(-1)
            run.observe("batch", step=-1, **offered)
            run.observe("shot", step=-1, x=offered["x"], one=1.5, snapshot=True)
            openings_s = timed_openings(run)
            _say(run=run.id)
            del offered
            sys.stdin.readline()
            _say(**_measure(run, event), opening_s=max(openings_s, default=0.0))
            sys.stdin.readline()
        _say(closed=True)


def timed_openings(run: sg.Run) -> list[float]:
    """Return a list that grows by the CPU seconds for which the opening of each stream keeps the run's lock.

    The training thread may have to wait for that long, as it works for as long in an event.
    """
    seconds: list[float] = []
    telemetry = wiring(run).telemetry
    opened = telemetry.open

    def opening(subscription: Subscription, *, replay: bool = True) -> None:
        started_s = time.thread_time()
        opened(subscription, replay=replay)
        seconds.append(time.thread_time() - started_s)

    telemetry.open = opening  # type: ignore[method-assign]
    return seconds


def _measure(run: sg.Run, event: Event) -> dict[str, Any]:
    """Announce a few events; return the CPU time and the memory that they took.

    A collection of the whole heap is timed by itself: it takes as long as the program has objects, and comes whenever
    something was allocated.
    """
    collector = Collector()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark of memory begins again
    held, began_s, threads = _memory("VmRSS"), time.process_time(), _threads()
    events_s: list[float] = []
    for step in range(N_EVENTS):
        offered = event(step)
        started_s, collected_s = time.thread_time(), collector.spent_s
        run.observe("batch", step=step, **offered)
        events_s.append(time.thread_time() - started_s - (collector.spent_s - collected_s))
        del offered
        if events_s[-1] > LONG_S:
            break
        time.sleep(PAUSE_S)
    collector.end()
    run.observe("epoch")
    with contextlib.suppress(sg.SightglassError):
        run.flush(10.0)
    return {
        "events_s": events_s,
        "collected_s": collector.spent_s,
        "process_s": time.process_time() - began_s,
        "drain_s": _since(threads, "drain") + _since(threads, "aside"),
        "n_bytes": _memory("VmHWM") - held,
    }


class Collector:
    """Python's collector of garbage: the CPU seconds that its collections of the whole heap took of this thread."""

    def __init__(self) -> None:
        self.spent_s = self._started_s = 0.0
        self._thread = threading.get_ident()
        gc.callbacks.append(self._note)

    def end(self) -> None:
        """Note no more."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2 or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._started_s = time.thread_time()
        else:
            self.spent_s += time.thread_time() - self._started_s


def _since(threads: dict[str, float], name: str) -> float:
    """Return the CPU seconds of the threads with a word in their names, since `_threads` returned theirs."""
    return sum(spent_s - threads.get(each, 0.0) for each, spent_s in _threads().items() if name in each)


def _threads() -> dict[str, float]:
    """Return the CPU seconds of each thread of Python's, by name."""
    spent = {}
    for thread in threading.enumerate():
        with contextlib.suppress(OSError):
            spent[thread.name] = int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9
    return spent


def _memory(what: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))


def _say(**said: object) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
