"""What watching a small convolutional network and a small GPT costs a step on the processor: idle, and four queries.

What else programs use for the same numbers is measured beside it, in the same way and without a budget: `torch_rivals`.
`SIGHTGLASS_BENCH_MODELS=GPT` measures one of the two.

How it is measured:

1. One process trains one model, so that data, memory and caches are the same with and without. Steps with and without
   take turns in blocks, ABBA. Before each block `watch` is called or taken back; without it there is no hook, global
   ones included, and the steps announce an event that nobody asks for. The first step of a block is left out: hooks are
   set and removed there. A client in another process asks all the time.
2. Each step counts in multiples of the bare steps of its group of four blocks. Medians are compared: that of the steps
   that were answered and that of the steps that were thinned, each with its share. Intervals are from resampled groups.
3. A row takes steps until its intervals are narrower than its target, or `SIGHTGLASS_BENCH_STEPS` are taken.
4. The budget is filled by the time of the steps without, too, so the run has a fraction of it: what is shown is what a
   run with the default budget pays. Its credit for short bursts is spent beforehand.
5. Memory that is freed is kept. By default, `malloc` gives the system back what a step frees, and has it cleared again
   in the next step: a sixth of the step on this machine, more or less of it from minute to minute.
6. PyTorch works on one thread. "Thread" is the processor time of the thread that trains, "clock" is what passes on the
   wall, and "process" the processor time of all threads, such as the one that sends.
7. What an answered event costs is by how much its step takes longer. Where the time of Sightglass's own code goes is
   sampled by a timer in a run of its own. The rest, which may be negative, is the program's code that runs slower: its
   data left the caches, or other threads used the processor.

There is no accelerator here: that nothing waits for one is not measured.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from bench.row import Row
from bench.sampling import Sampler
from bench.torch_models import MODELS
from bench.torch_rivals import Turn, rivals
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.run import wiring

N_STEPS = int(os.environ.get("SIGHTGLASS_BENCH_STEPS", "2000"))
LEAST_STEP_S = 0.025
BLOCK = 4  # short against whatever else the machine does, long against the step that is left out
N_WARM = 30
N_PROFILED = 200
N_RESAMPLED = 400
RIVALS_TARGET = 100.0  # percent: the least steps are enough for figures that differ by more than those above
N_SETTLING = 6  # groups before the first one that counts: 3 s, in which the budget comes to rest
N_GROUPS = 10  # between two looks at the intervals: 160 steps
CHOSEN = os.environ.get("SIGHTGLASS_BENCH_MODELS", " ".join(MODELS)).split()
BATCHES = (32, 48, 64, 96, 128, 192, 256)
BUDGET = inspect.signature(sg.init).parameters["budget"].default
BARE, ANSWERED, THINNED = range(3)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # of <malloc.h>
CLOCKS = ("clock", "thread", "process")

NORMS = "batch.grads.map(lambda name, g: g.norm())"
QUERIES = (
    ("norms of all gradients", NORMS, 3.0),
    ("histogram of one layer's activations", "batch.activations['{layer}'].histogram(64)", 3.0),
    ("means of all activations", "batch.activations.map(lambda name, a: a.mean())", 3.0),
    ("histograms of all gradients", "batch.grads.map(lambda name, g: g.histogram(64))", 5.0),
)


class Loop:
    """A training loop that can be watched and left alone at any step."""

    def __init__(self, name: str, batch: int) -> None:
        torch.manual_seed(0)
        self.model, self.x, self.y, self.layer = MODELS[name](batch)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.run: sg.Run | None = None
        self.watched: sgt.Watched | None = None
        self.behind: Callable[[torch.Tensor], None] | None = None

    def step(self) -> None:
        """Take a step of training, and announce it; as another event than the one that is asked, if not watched."""
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.opt.step()
        if self.behind is not None:
            self.behind(loss)
        if self.run is not None:
            self.run.observe("bare" if self.watched is None else "batch", loss=loss)

    def watch(self, on: bool) -> None:
        """Watch the model, or leave it alone."""
        if self.watched is not None:
            self.watched.close()
        self.watched = sgt.watch(self.model, self.run, optimizer=self.opt) if on else None

    def timed(self) -> list[float]:
        """Take a step, and return its seconds by `CLOCKS`."""
        before = time.perf_counter(), time.thread_time(), time.process_time()
        self.step()
        after = time.perf_counter(), time.thread_time(), time.process_time()
        return [b - a for a, b in zip(before, after, strict=True)]


@contextmanager
def running(loop: Loop, folder: str, *, budget: float | None) -> Iterator[sg.Run]:
    """Give a loop a run."""
    loop.run = sg.init("bench", dir=folder, budget=budget)
    try:
        yield loop.run
    finally:
        loop.watch(False)
        loop.run.close()
        loop.run = None


ASK = """
import sys, sightglass as sg
with sg.connect(sys.argv[1]) as run:
    for record in run.stream(sys.argv[2]):
        print("got", flush=True) if record.index == 0 else None
"""


@contextmanager
def asked(loop: Loop, run: sg.Run, query: str) -> Iterator[Subscription]:
    """Let a client in another process ask, and take steps until it is answered."""
    client = subprocess.Popen([sys.executable, "-c", ASK, run.id, query], stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        os.set_blocking(client.stdout.fileno(), False)
        loop.watch(True)
        while not client.stdout.read():
            loop.step()
        (subscription,) = wiring(run).telemetry.subscriptions.source("batch").subscriptions
        yield subscription
    finally:
        client.kill()
        client.wait()


class Turns:
    """The seconds of steps with and without, which took turns.

    Attributes:
        kinds: For each group of four blocks, the kind of each step: `BARE`, `ANSWERED` or `THINNED`.
        times_s: For each group, the seconds of each step, by `CLOCKS`.
    """

    def __init__(
        self, loop: Loop, turn: Turn, *, subscription: Subscription | None = None, target: float | None = None
    ) -> None:
        """Take turns until the intervals are narrower than `target`, in percent, or all steps are taken."""
        self._loop, self._turn, self._subscription = loop, turn, subscription
        for _ in range(N_SETTLING):
            self._group()
        groups: list[list[tuple[int, list[float]]]] = []
        is_decided = False
        while len(groups) < N_STEPS // (4 * BLOCK) and not is_decided:
            groups += [self._group() for _ in range(N_GROUPS)]
            self.kinds = np.array([[kind for kind, _ in group] for group in groups])
            self.times_s = np.array([[took_s for _, took_s in group] for group in groups])
            intervals = [self.more(clock)[1] for clock in ("thread", "clock")]
            is_decided = target is not None and all(high - low <= target for low, high in intervals)
        self.n_answered, self.n_thinned = (int((self.kinds == kind).sum()) for kind in (ANSWERED, THINNED))

    def _group(self) -> list[tuple[int, list[float]]]:
        """Take the steps of four blocks, and return the kind and the seconds of each."""
        loop, subscription = self._loop, self._subscription
        group: list[tuple[int, list[float]]] = []
        for on in (True, False, False, True):
            self._turn(on)
            loop.step()
            for _ in range(BLOCK):
                n_thinned = subscription.n_skipped if subscription else 0
                took_s = loop.timed()
                is_thinned = subscription is not None and subscription.n_skipped > n_thinned
                group.append(((THINNED if is_thinned else ANSWERED) if on else BARE, took_s))
        return group

    @property
    def event_s(self) -> float:
        """By how many seconds of its thread a step that is answered takes longer."""
        seconds = self.times_s[:, :, CLOCKS.index("thread")]
        answered, bare = (float(np.median(seconds[self.kinds == kind])) for kind in (ANSWERED, BARE))
        return answered - bare

    def more(self, clock: str) -> tuple[float, tuple[float, float]]:
        """Return what steps with take more than those without, in percent, and its interval."""
        times_s = self.times_s[:, :, CLOCKS.index(clock)]
        bare_s = np.median(np.where(self.kinds == BARE, times_s, np.nan)[:, BLOCK : 3 * BLOCK], axis=1)
        relative, rng = times_s / bare_s[:, None], np.random.default_rng(0)
        n = len(relative)
        drawn = [_more(self.kinds[rows], relative[rows]) for rows in rng.integers(0, n, (N_RESAMPLED, n))]
        low, high = np.quantile(drawn, (0.025, 0.975))
        return _more(self.kinds, relative), (float(low), float(high))


def _more(kinds: np.ndarray, relative: np.ndarray) -> float:
    bare, answered, thinned = (relative[kinds == kind] for kind in (BARE, ANSWERED, THINNED))
    parts = [(len(part), np.median(part)) for part in (answered, thinned) if len(part)]
    return 100.0 * float(sum(n * m for n, m in parts) / sum(n for n, _ in parts) / np.median(bare) - 1.0)


def measure() -> Iterator[Row]:
    """Yield the rows."""
    keep_memory()
    torch.set_num_threads(1)
    for name in CHOSEN:
        yield from of_model(name)


def of_model(name: str) -> Iterator[Row]:
    """Yield the rows of a model."""
    loop = suitable(name)
    n = sum(parameter.numel() for parameter in loop.model.parameters())
    yield Row(f"{name}: parameters", n, "")
    queries = [(what, query.replace("{layer}", loop.layer), target) for what, query, target in QUERIES]
    with tempfile.TemporaryDirectory() as folder:
        yield Row("a step, unwatched", 1e3 * _median_s(loop), "ms")
        with running(loop, folder, budget=BUDGET / 2) as run:
            yield from _rows("unwatched against unwatched: the noise", Turns(loop, lambda on: None, target=1.0))
            loop.watch(True)
            loop.step()
            assert loop.watched is not None
            yield Row("watched, nobody asks: hooks", float(loop.watched.n_hooks), "", 0.0)
            yield from _rows("watched, nobody asks", Turns(loop, loop.watch, target=1.0), 1.0)
        events_s = []
        for what, query, target in queries:
            with running(loop, folder, budget=BUDGET / 2) as run, asked(loop, run, query) as subscription:
                spend_credit(run)
                turns = Turns(loop, loop.watch, subscription=subscription, target=target)
            events_s.append(turns.event_s)
            yield from _rows(f"{what}, budget {100 * BUDGET:g} %", turns, target)
            n_events = turns.n_answered + turns.n_thinned
            yield Row(f"  thinned: {turns.n_thinned:,} of {n_events:,} events", 100 * turns.n_thinned / n_events, "%")
        with rivals(loop, folder) as others:
            for what, turn in others.items():
                turns = Turns(loop, turn, target=RIVALS_TARGET)
                turn(False)
                yield from _rows(what, turns)
        for (what, query, _), event_s in zip(queries, events_s, strict=True):
            yield Row(f"one event of {what}", 1e6 * event_s, "us")
            yield from profile(loop, folder, query, event_s)
        yield Row("load while this was measured", os.getloadavg()[0], "")


def keep_memory() -> None:
    """Have `malloc` keep what is freed, where it is glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_TOP_PAD, 2**26)


def suitable(name: str) -> Loop:
    """Return a loop whose step takes at least `LEAST_STEP_S` here."""
    for batch in BATCHES:
        loop = Loop(name, batch)
        loop.step()
        if _median_s(loop) >= LEAST_STEP_S:
            break
    return loop


def _median_s(loop: Loop) -> float:
    return float(np.median([loop.timed()[1] for _ in range(9)]))


def spend_credit(run: sg.Run) -> None:
    """Take from the budget what it grants short bursts, as if the run had been asked for some minutes."""
    budget = wiring(run).telemetry.budget
    for account in budget._accounts or ():
        account._credit_s = 0.0


def _rows(what: str, turns: Turns, target: float | None = None) -> Iterator[Row]:
    value, interval = turns.more("thread")
    yield Row(f"{what}: thread", value, "%", target, interval)
    value, interval = turns.more("clock")
    yield Row("  by the clock", value, "%", target, interval)
    value, interval = turns.more("process")
    yield Row("  all threads of the process", value, "%", None, interval)


def profile(loop: Loop, folder: str, query: str, event_s: float) -> Iterator[Row]:
    """Yield where the time of an answered event goes, in microseconds of the training thread."""
    with running(loop, folder, budget=None) as run, asked(loop, run, query):
        for _ in range(N_WARM):
            loop.step()
        sampler = Sampler(program=[nn.Module._call_impl.__code__])
        with sampler:
            for _ in range(N_PROFILED):
                loop.step()
    phases = {phase: seconds / N_PROFILED for phase, seconds in sampler.seconds.items()}
    phases["the program, slower"] = event_s - sum(phases.values())
    for phase, seconds in phases.items():
        yield Row(f"  {phase}", 1e6 * seconds, "us")
