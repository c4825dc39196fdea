"""What figures cost a training: the call, the step while one is always being drawn, the first one, late ones, memory.

The loop is one of short calls that release the interpreter's lock and use every core, as a training's do; the figure
takes some 170 ms. Beside the renderer in a child stands the one in a thread, in the same process and with the same
work. Where others use the machine, the p99 is theirs; the share of long steps tells what the renderer adds. So a round
in which the loop alone, before or after, has a long tail is taken again, as often as there are rounds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightglass.figures import Plotter

from .row import Row
from .yardstick import n_seconds

MIB = 2**20
N_CALLS = 40
STEPS = (4, 200, "step"), (20, 60, "step of five times that")  # products, steps in a block
N_ROUNDS = 30
N_RESAMPLED = 500
REST_S = 0.1  # a process that has rested is given processors first, so each block begins rested
WARM_STEPS = 20  # and these use that up
LONG = 1.5  # a step this many times the median is a long one: a p99 within the target has at most 1 % of them
N_FIGURES = 500
WARM = 100
DEADLINE_S = 30.0

Claim = Row | tuple[str, float, str, float | None]


BARE = """
import numpy as np
from matplotlib.figure import Figure
figure = Figure(figsize=(2, 1))
figure.subplots().plot(np.arange(3.0))
figure.savefig("bare.png", dpi=150)
figure.savefig("bare.pdf")
"""


class Nowhere:
    """A sink that takes everything."""

    n = 0

    def write(self, records):
        """Count."""
        Nowhere.n += len(records)

    def flush(self, timeout_s):
        """Do nothing."""


def measure() -> Iterator[Claim]:
    yield from _no_override()
    for n_mib, target in ((4, 1.0), (64, 10.0)):
        yield from _submit(n_mib, target)
    yield from _steps()
    with tempfile.TemporaryDirectory() as folder:
        yield from _first(Path(folder))
        yield from _late(Path(folder))
    yield from _memory()


def small(x):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    figure.subplots().plot(np.asarray(x).ravel()[:100])
    return figure


def usual(scores, lines):
    """Draw a heat map of 64 by 64 and four lines of 1,000 points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6))
    left, right = figure.subplots(1, 2)
    left.pcolormesh(scores)
    right.plot(lines.T)
    return figure


def _no_override() -> Iterator[Claim]:
    plotter, data, n = Plotter(), {"plots": {"a": {"x": (np.ones(MIB),)}}}, 100_000
    started = time.perf_counter()
    for step in range(n):
        plotter.submit(data, step)
    took = (time.perf_counter() - started) / n
    yield "submit without an override, x an empty call", took / n_seconds(), "N", 1.0


def _submit(n_mib: int, target: float) -> Iterator[Claim]:
    plotter, array = Plotter(sinks=[Nowhere()]), np.random.default_rng(0).normal(size=n_mib * MIB // 8)
    buffer, took, copies = np.empty_like(array), [], []
    plotter.plot(small, array, step=0)
    plotter.flush()
    for step in range(N_CALLS):
        started = time.perf_counter()
        plotter.plot(small, array, step=step)
        took.append(time.perf_counter() - started)
        plotter.flush()
        started = time.perf_counter()
        np.copyto(buffer, array)
        copies.append(time.perf_counter() - started)
    plotter.close()
    yield f"submit of {n_mib} MiB: p50", float(np.median(took)) * 1e3, "ms", target
    yield "  max", max(took) * 1e3, "ms", None
    yield "  x one copy into warm memory: p50", float(np.median(took) / np.median(copies)), "", 2.0


def _steps() -> Iterator[Row]:
    """Compare blocks of steps that take turns: the loop alone, beside the renderer, and alone again."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(64, 64)), rng.normal(size=(4, 1000)).cumsum(1)
    with _drawing("process") as plotter:
        for n_products, n_steps, what in STEPS:
            blocks = _rounds((None, plotter, None), data, n_products, n_steps, N_ROUNDS)
            alone = float(np.quantile(blocks[:, 0], 0.99) / np.median(blocks[:, 0]))
            p99, interval = _estimate(_p99_ratio, blocks, 1)
            if alone > LONG:  # others make this tail, and hide what the renderer would add to it
                interval = interval[0], float("inf")
            yield Row(f"{what} while a figure is always drawn: p99, x alone", p99, "", 1.5, interval, by_distance=True)
            yield Row("  alone again: p99, x alone", *_noted(_p99_ratio, blocks))
            yield Row("  alone: p99, x its own p50", alone, "")
            n_long, interval = _estimate(_more_long, blocks, 1)
            yield Row("  longer than 1.5 x the p50, more than alone", n_long, "%", 1.0, interval, by_distance=True)
            yield Row("  alone again", *_noted(_more_long, blocks))
    with _drawing("thread") as plotter:
        n_products, n_steps, what = STEPS[0]
        blocks = _rounds((None, plotter), data, n_products, n_steps, 2)
    yield Row("  beside renderer='thread': p99, x alone", _p99_ratio(blocks, 1), "")


@contextlib.contextmanager
def _drawing(kind: Any) -> Iterator[Plotter]:
    with Plotter(renderer=kind, on_full="drop_new", max_jobs=2, sinks=[Nowhere()], on_error="ignore") as plotter:
        plotter.plot(small, np.ones(3), step=0)
        plotter.flush()
        yield plotter


def _rounds(kinds: Sequence[Plotter | None], data: Any, n_products: int, n_steps: int, n_rounds: int) -> Any:
    """Return how long steps take, in rounds of a block of each kind, in any order; the calmest of those taken."""
    rng = np.random.default_rng(2)
    rounds: list[Any] = []
    n_calm = 0
    while n_calm < n_rounds and len(rounds) < 2 * n_rounds:
        blocks = np.empty((len(kinds), n_steps))
        for i in rng.permutation(len(kinds)):
            blocks[i] = _block(kinds[i], data, n_products, n_steps)
        rounds.append(blocks)
        n_calm += _tail_alone(blocks, kinds) <= LONG
    return np.array(sorted(rounds, key=lambda blocks: _tail_alone(blocks, kinds))[:n_rounds])


def _tail_alone(blocks: Any, kinds: Sequence[Plotter | None]) -> float:
    """Return the longest tail of a round's blocks without a renderer, which it cannot have caused."""
    alone = blocks[[i for i, kind in enumerate(kinds) if kind is None]]
    return float(np.max(np.quantile(alone, 0.99, axis=1) / np.median(alone, axis=1)))


def _block(plotter: Plotter | None, data: Any, n_products: int, n_steps: int) -> list[float]:
    """Return how long steps take while figures are drawn without a pause, the calls that submit them left out."""
    matrix, took = np.random.default_rng(1).normal(size=(160, 160)), []
    for step in range(WARM_STEPS + n_steps):
        if plotter is not None and plotter.statistics().n_waiting < 2:
            plotter.plot(usual, *data, step=step)
        started = time.perf_counter()
        for _ in range(n_products):
            matrix = np.tanh(matrix @ matrix * 0.01)
        took.append(time.perf_counter() - started)
    if plotter is not None:
        plotter.flush()
    time.sleep(REST_S)
    return took[WARM_STEPS:]


def _p99_ratio(blocks: Any, kind: int) -> float:
    return float(np.quantile(blocks[:, kind], 0.99) / np.quantile(blocks[:, 0], 0.99))


def _more_long(blocks: Any, kind: int) -> float:
    """Return how many more steps are long than among those of the first kind, in percent."""
    is_long = blocks > LONG * np.median(blocks[:, 0])
    return 100.0 * float(is_long[:, kind].mean() - is_long[:, 0].mean())


def _estimate(of: Callable[[Any, int], float], blocks: Any, kind: int) -> tuple[float, tuple[float, float]]:
    """Return a number and its interval, from rounds drawn again and again."""
    n, rng = len(blocks), np.random.default_rng(0)
    low, high = np.quantile([of(blocks[rng.integers(0, n, n)], kind) for _ in range(N_RESAMPLED)], (0.025, 0.975))
    return of(blocks, kind), (float(low), float(high))


def _noted(of: Callable[[Any, int], float], blocks: Any) -> tuple[float, str, None, tuple[float, float]]:
    """Return what the loop alone differs from itself, as parts of a row."""
    value, interval = _estimate(of, blocks, 2)
    return value, "%" if of is _more_long else "", None, interval


def _first(folder: Path) -> Iterator[Claim]:
    plotter = Plotter(save=True, save_dir=folder, sinks=[Nowhere()])
    started = time.perf_counter()
    plotter.plot(small, np.arange(3.0), step=0)
    called = time.perf_counter() - started
    while not (folder / "small_step0.pdf").exists() and time.perf_counter() - started < DEADLINE_S:
        time.sleep(0.001)
    took = time.perf_counter() - started
    yield "first figure on disk", took, "s", 1.5
    yield "  the call that starts the renderer", called * 1e3, "ms", 20
    plotter.close()
    bare = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(["nice", "-n", "10", sys.executable, "-c", BARE], cwd=folder, check=True)
        bare.append(time.perf_counter() - started)
    yield "  x a process that does nothing else", took / min(bare), "", 2.0


def _late(folder: Path) -> Iterator[Claim]:
    if importlib.util.find_spec("wandb") is None:
        print(f"{'wandb: not installed':<54}")
        return
    os.environ["WANDB_SILENT"] = "true"
    import wandb

    kept: list[int] = []
    with contextlib.redirect_stdout(None), wandb.init(dir=str(folder), mode="offline") as run:
        log = run.log

        def noted(row: Any, *rest: Any, **options: Any) -> Any:
            kept.extend([row["sightglass/step"]] if "small" in row else [])
            return log(row, *rest, **options)

        run.__dict__["log"] = noted
        plotter = Plotter()
        for step in range(100):
            log({"loss": step}, step=step)
            if step % 10 == 0:
                plotter.plot(small, np.arange(3.0), step=step)
        plotter.close()
    yield "late figures of 10 that W&B was not given", 10.0 - len({*kept} & {*range(0, 100, 10)}), "", 0


def _memory() -> Iterator[Claim]:
    if importlib.util.find_spec("psutil") is None:
        print(f"{'psutil: not installed':<54}")
        return
    import psutil

    plotter, sizes = Plotter(sinks=[Nowhere()]), {}
    for step in range(N_FIGURES + 1):
        plotter.plot(small, np.full(20_000, float(step)), step=step)
        if step in (WARM, N_FIGURES):
            plotter.flush()
            processes = [psutil.Process(), *psutil.Process().children()]
            sizes[step] = [process.memory_info().rss for process in processes]
    plotter.close()
    yield f"memory at figure {N_FIGURES}, x at figure {WARM}: here", sizes[N_FIGURES][0] / sizes[WARM][0], "", 1.1
    yield "  in the renderer", max(sizes[N_FIGURES][1:]) / max(sizes[WARM][1:]), "", 1.1
