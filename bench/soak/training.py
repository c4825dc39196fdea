"""The run of the soak, a process of its own: `python -m bench.soak.training NAME SECONDS REPORT`."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import sightglass as sg

from .formula import GROUP, LOG_EVERY, RATE, RECORDED, STATE_EVERY, loss, observables, tensor

FIGURE_EVERY = 10 * RATE  # a figure takes the child some 0.1 s
# What the run keeps of each stream for late clients: streams of 3 records a second fill it in six minutes, before the
# growth of memory is measured. As many as by default (8,192) take them 45 minutes: a cache that fills, up to 64 MiB in
# all, would look like a leak, and hide one.
BACKLOG_RECORDS = 1_000


def draw(values: Any, step: int) -> Any:
    """Draw a figure, in the child process."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    figure.subplots().plot(values + step)
    return figure


def main(name: str, duration_s: float, report: Path) -> None:
    """Train for some time, and write what was really done."""
    warned: list[str] = []
    warnings.showwarning = lambda message, *rest, **more: warned.append(str(message))  # type: ignore[assignment]
    applied: list[int] = []
    figures: list[int] = []
    limits = sg.Limits(max_backlog_records=BACKLOG_RECORDS)
    run = sg.init(name, budget=None, record=RECORDED, listen="tcp://127.0.0.1:0", limits=limits)
    run.control("knob", 0, min=0, max=10**9)
    run.action("apply", lambda number: applied.append(number) or number)
    run.log({"started": 1.0}, step=0)
    print(run.directory, flush=True)
    began_s, n = time.monotonic(), 0
    while time.monotonic() < began_s + duration_s:
        time.sleep(max(0.0, began_s + n / RATE - time.monotonic()))
        run.observe("batch", step=n, **observables(n))
        if n % LOG_EVERY == 0:
            run.log({"logged/loss": loss(n)}, step=n)
        if n % STATE_EVERY == 0:
            run.observe("state", snapshot=True, step=n, params=tensor(n))
            run.log({"logged/x": sg.Tensor(tensor(n)), "logged/text": f"event {n}"}, step=n)
        if n % FIGURE_EVERY == 0:
            run.figure("figure", draw, tensor(n), n, step=n)
            figures.append(n)
        if n % GROUP == GROUP - 1:
            run.end_group("batch")
        n += 1
    took_s = time.monotonic() - began_s
    run.close()
    done = {"n": n, "seconds": took_s, "applied": applied, "figures": figures, "warned": warned}
    report.write_text(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
