"""A fleet of 64 live runs at 10 events a second each: how late records arrive, and what a run costs the client.

The runs live in other processes, 8 in each, and say the time with each event. The client reads one stream of all.
Beside it, a client of one of the runs alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

import sightglass as sg

N_RUNS = int(os.environ.get("SIGHTGLASS_BENCH_RUNS", "64"))
N_IN_PROCESS = 8
PACE_S = 0.1
WARM_S, SPAN_S = 3.0, 15.0
PATIENCE_S = 120.0

RUNS = """
import sys, time
import sightglass as sg

names, pace_s = sys.argv[2:], float(sys.argv[1])
runs = [sg.init(name, budget=None) for name in names]
began_s, step = time.monotonic(), 0
while not all(run.stopping for run in runs):
    for i, run in enumerate(runs):  # spread over the time between two events of a run
        time.sleep(max(0.0, began_s + (step + i / len(runs)) * pace_s - time.monotonic()))
        run.observe("batch", step=step, at=time.time())
    step += 1
"""

Claim = tuple[str, float, str, float | None]


def measure() -> Iterator[Claim]:
    names = [f"bench-fleet-{i}" for i in range(N_RUNS)]
    groups = [names[i : i + N_IN_PROCESS] for i in range(0, N_RUNS, N_IN_PROCESS)]
    processes = [subprocess.Popen([sys.executable, "-c", RUNS, str(PACE_S), *group]) for group in groups]
    try:
        with sg.fleet("bench-fleet-*") as fleet:
            fleet.wait(N_RUNS, timeout_s=PATIENCE_S)
            late_s, fleet_s, n_lost = _read(fleet.stream("batch.at"))
        with sg.connect(names[0]) as run:
            _, client_s, _ = _read(run.stream("batch.at"))
        with sg.fleet("bench-fleet-*") as fleet:
            fleet.stop()
    finally:
        for process in processes:
            process.kill()
    at = f"a fleet of {N_RUNS} runs at {1 / PACE_S:.0f} events/s each"
    yield f"{at}: latency p50", 1000 * float(np.quantile(late_s, 0.5)), "ms", None
    yield "  latency p99", 1000 * float(np.quantile(late_s, 0.99)), "ms", 50
    yield "  records that were lost", n_lost, "", 0
    yield "  CPU of the client for each run", 1e3 * fleet_s / SPAN_S / N_RUNS, "ms/s", None
    yield "  CPU of a client of one run", 1e3 * client_s / SPAN_S, "ms/s", None
    yield "  ratio", fleet_s / N_RUNS / client_s, "x", 1.0


def _read(stream: sg.Stream) -> tuple[list[float], float, int]:
    """Return how late records came in a span of time, the CPU time of this process in it, and how many were lost."""
    late_s: list[float] = []
    began_s = cpu_s = 0.0
    warm_s = time.monotonic() + WARM_S
    for record in stream:
        now_s = time.monotonic()
        if now_s < warm_s:
            began_s, cpu_s = now_s, time.process_time()
            continue
        late_s.append(time.time() - record.value)
        if now_s - began_s > SPAN_S:
            break
    return late_s, time.process_time() - cpu_s, stream.n_lost
