"""What the record files must hold when the run has ended: all that happened, and exactly that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sightglass as sg
from sightglass.core.values import Figure
from sightglass.storage.read.series import Series

from .formula import GROUP, LOG_EVERY, SIZE, STATE_EVERY, losses


def faults(directory: Path, done: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong in a run directory; `done` is what the run says that it did."""
    n = done["n"]
    run = sg.open(directory)
    with run:
        yield from (f"damaged: {file}" for file in run.check().files if not file.intact)
        events = np.arange(n)
        yield from _scalars(run.series("batch.loss"), events, losses(events))
        yield from _scalars(run.series("logged/loss"), events[::LOG_EVERY], losses(events[::LOG_EVERY]))
        ends = np.union1d(events[GROUP - 1 :: GROUP], [n - 1])
        sizes = np.diff(ends, prepend=-1)
        yield from _scalars(run.series("batch.n.mean(every=100)"), ends, ends - (sizes - 1) / 2)
        yield from _tensors(run.series("batch.x"), events)
        yield from _tensors(run.series("logged/x"), events[::STATE_EVERY])
        yield from _figures(run.series("figure"), done["figures"])
        called = [entry.value for entry in run.history if entry.name == "apply" and not entry.error]
        if called != [[number] for number in done["applied"]]:
            yield f"history: {len(called)} commands, {len(done['applied'])} were applied"


def _scalars(series: Series, steps: Any, values: Any) -> Iterator[str]:
    columns = series.columns()
    if not np.array_equal(columns.steps, steps):
        yield f"{series.tag}: expected {len(steps)} records, got {len(columns.steps)}, or other steps"
    elif not np.array_equal(columns.values, values):
        yield f"{series.tag}: {np.count_nonzero(columns.values != values)} values are wrong"


def _tensors(series: Series, steps: Any) -> Iterator[str]:
    n = n_wrong = 0
    for columns in series.parts():
        for step, value in zip(np.asarray(columns.steps).tolist(), columns.values, strict=True):
            n_wrong += n >= len(steps) or step != steps[n] or not np.array_equal(value, np.arange(step, step + SIZE))
            n += 1
    if n_wrong or n != len(steps):
        yield f"{series.tag}: expected {len(steps)} records, got {n}, {n_wrong} of them wrong"


def _figures(series: Series, steps: list[int]) -> Iterator[str]:
    drawn = [(record.step, record.value) for record in series]
    whole = all(isinstance(value, Figure) and len(value.data) > 100 for _, value in drawn)
    if [step for step, _ in drawn] != steps or not whole:
        yield f"figure: expected {len(steps)}, got {len(drawn)}"
