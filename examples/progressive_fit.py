"""Watch the curves of an additive model take shape while it is being fitted, and stop when they are good enough.

A generalised additive model explains y by a sum of unknown curves, one per feature. Backfitting finds them sweep by
sweep: smooth the residuals of all other curves against one feature, then go to the next. That can take long, and the
partial results are worth seeing. You learn how to observe them with one line in the fit, how to follow them from
another process, how a reducer closes with each sweep (`end_group`), and how to stop the fit from outside.

    python examples/progressive_fit.py
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import sightglass as sg

TRUTH = {
    "wave": lambda x: np.sin(2 * np.pi * x),
    "valley": lambda x: 6 * (x - 0.5) ** 2 - 0.5,
    "step": lambda x: np.tanh(12 * (x - 0.6)) + 0.2,
}
N_SAMPLES, N_BINS, MAX_SWEEPS = 4000, 32, 300
MIN_GAIN = 2e-4
GRID = (np.arange(N_BINS) + 0.5) / N_BINS


def make_data(*, seed=0):
    """Draw correlated features, each uniform from 0 to 1, and y = the sum of their curves + noise."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=N_SAMPLES)
    x = {}
    for name in TRUTH:
        mixed = 2.5 * common + rng.normal(size=N_SAMPLES)
        x[name] = mixed.argsort().argsort() / N_SAMPLES
    y = sum(curve(x[name]) for name, curve in TRUTH.items()) + rng.normal(0, 0.3, N_SAMPLES)
    return x, y


def smooth(x, residuals, *, stiffness=20.0):
    """Fit a smooth curve at the points of `GRID`: means in bins, with second differences penalised (Whittaker 1923)."""
    bins = (x * N_BINS).astype(int)
    counts, sums = np.bincount(bins, minlength=N_BINS), np.bincount(bins, residuals, minlength=N_BINS)
    bend = np.diff(np.eye(N_BINS), 2, axis=0)
    curve = np.linalg.solve(np.diag(counts) + stiffness * bend.T @ bend, sums)
    return curve - curve.mean()


def fit(name, directory):
    """Fit by backfitting, until a client stops the run."""
    x, y = make_data()
    shapes = {feature: np.zeros(N_BINS) for feature in x}
    effects = {feature: np.zeros(N_SAMPLES) for feature in x}
    with sg.init(name, dir=directory) as run:
        sys.stdin.readline()  # the first sweep waits until somebody watches
        for sweep in range(MAX_SWEEPS):
            for feature in x:
                others = sum(effect for other, effect in effects.items() if other != feature)
                shapes[feature] = smooth(x[feature], y - y.mean() - others)
                effects[feature] = np.interp(x[feature], GRID, shapes[feature])
                left_over = y - y.mean() - sum(effects.values())
                run.observe("sweep", sweep=sweep, feature=feature, shapes=shapes, r2=1 - left_over.var() / y.var())
                time.sleep(0.05)  # stands for the minutes that a real sweep takes
            run.end_group("sweep")
            if run.stopping:
                break


def watch(run, begin):
    """Follow the fit from its beginning, stop it when a sweep gains little, and return the value after each sweep."""
    partial = run.stream(sg.on("sweep").map(lambda s: {"sweep": s.sweep, "r2": s.r2, "shapes": s.shapes}).last())
    begin()
    seen, stopped = [], False
    for record in partial:
        seen.append(record.value)
        print(f"sweep {record.value['sweep']}: R2 so far {record.value['r2']:.4f}")
        for feature, curve in record.value["shapes"].items():
            print(f"  {feature:>6} {sparkline(curve)}")
        if not stopped and len(seen) > 1 and seen[-1]["r2"] - seen[-2]["r2"] < MIN_GAIN:
            with contextlib.suppress(sg.RunLostError):  # it may just have ended
                run.stop()
            stopped = True
    sg.plot(partial.map(lambda value: value["r2"]), title="R2 after each sweep")
    return seen


def sparkline(curve):
    """Return a curve as one line of text."""
    levels = (curve - curve.min()) / (np.ptp(curve) or 1.0)
    return "".join("▁▂▃▄▅▆▇█"[int(level * 7.99)] for level in levels)


def main():
    name = f"progressive-fit-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen([sys.executable, __file__, "--fit", name, directory], stdin=subprocess.PIPE)
        try:
            seen = watch(sg.connect(name, wait_s=60), process.stdin.close)
            assert process.wait() == 0, "the fit failed"
        finally:
            process.kill()
    assert len(seen) >= 3, "the sweeps were seen one by one"
    assert seen[0]["r2"] < seen[-1]["r2"] > 0.89, "R2 grew to what the noise allows"
    for feature, curve in TRUTH.items():
        error = abs(seen[-1]["shapes"][feature] - (curve(GRID) - curve(GRID).mean())).max()
        print(f"{feature:>6}: at most {error:.2f} from the true curve")
        assert error < 0.2


if __name__ == "__main__":
    fit(*sys.argv[2:]) if sys.argv[1:2] == ["--fit"] else main()
