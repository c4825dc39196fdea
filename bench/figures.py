"""What figures cost a training: the call, the step while one is always being drawn, the first one, late ones, memory.

The loop is one of short calls that release the interpreter's lock, as a training's are; the figure takes some 170 ms.
Beside the renderer in a child stands the one in a thread, in the same process and with the same work.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sightglass.figures import Plotter

from .yardstick import n_seconds

MIB = 2**20
N_CALLS = 40
N_STEPS = 1_500
N_FIGURES = 500
WARM = 100
DEADLINE_S = 30.0

Claim = tuple[str, float, str, float | None]


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


def _steps() -> Iterator[Claim]:
    rng = np.random.default_rng(0)
    scores, lines = rng.normal(size=(64, 64)), rng.normal(size=(4, 1000)).cumsum(1)
    rounds: dict[str, list[float]] = {}
    for _ in range(3):
        for kind in ("none", "process", "thread"):
            rounds.setdefault(kind, []).extend(_loop(kind, scores, lines))
    alone = np.quantile(rounds["none"], 0.99)
    for kind, target in (("process", 1.5), ("thread", None)):
        yield (
            f"step while a figure is always drawn, {kind}: p99, x alone",
            np.quantile(rounds[kind], 0.99) / alone,
            "",
            target,
        )
        yield "  p50, x alone", float(np.median(rounds[kind]) / np.median(rounds["none"])), "", None


def _loop(kind: str, scores: Any, lines: Any) -> list[float]:
    """Return how long steps take while figures are drawn without a pause, the submitting ones left out."""
    matrix, took = np.random.default_rng(1).normal(size=(160, 160)), []
    options: Any = {"renderer": kind, "on_full": "drop_new", "max_jobs": 2, "sinks": [Nowhere()]}
    plotter = Plotter(**options) if kind != "none" else None
    if plotter is not None:
        plotter.plot(usual, scores, lines, step=0)
        plotter.flush()
    for step in range(N_STEPS):
        if plotter is not None and plotter.statistics().n_waiting < 2:
            plotter.plot(usual, scores, lines, step=step)
        started = time.perf_counter()
        for _ in range(4):
            matrix = np.tanh(matrix @ matrix * 0.01)
        took.append(time.perf_counter() - started)
    if plotter is not None:
        plotter.close()
    return took


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
