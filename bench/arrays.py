"""A 1 MiB array as the result of a query: the training thread pays for the snapshot, and little more."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

import sightglass as sg

N_EVENTS = 300
PAUSE_S = 0.003

CLIENT = """
import sys, sightglass as sg
stream = sg.connect(sys.argv[1]).stream("batch.w")
print("ready", flush=True)
for record in stream:
    pass
told = stream.statistics()
print(told.n_records, told.n_lost, flush=True)
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    array = np.random.default_rng(0).normal(size=2**17)
    run = sg.init("bench-arrays", budget=None)
    run.observe("batch", step=0, w=array)
    with subprocess.Popen([sys.executable, "-c", CLIENT, "bench-arrays"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        copies, events = [], []
        kept: list[np.ndarray] = []
        for step in range(N_EVENTS):
            started = time.perf_counter()
            kept.append(array.copy())  # a fresh copy, as a snapshot is: it pays for new pages
            copies.append(time.perf_counter() - started)
            del kept[:-8]
            started = time.perf_counter()
            run.observe("batch", step=step, w=array)
            events.append(time.perf_counter() - started)
            time.sleep(PAUSE_S)
        time.sleep(1.0)  # what is on its way arrives
        run.close()
        got, lost = map(int, child.stdout.readline().split())
    yield "1 MiB array to a client, x one copy: median", float(np.median(events) / np.median(copies)), "", 2
    yield "  records lost", max(lost, N_EVENTS - got), "", 0
