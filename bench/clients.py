"""What clients in another process cost, flat out: one, and ten with one question. TensorWatch 0.9.1: 577 N for one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import sightglass as sg

from .yardstick import n_seconds, seconds_per_call

N_EVENTS = 300_000

CLIENT = """
import sys, sightglass as sg
runs = [sg.connect(sys.argv[1]) for _ in range(int(sys.argv[2]))]
streams = [run.stream("batch.loss") for run in runs]
print("ready", flush=True)
for stream in streams:
    for record in stream:
        pass
told = [stream.statistics() for stream in streams]
print(min(t.n_records for t in told), sum(t.n_lost for t in told), flush=True)
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    n = n_seconds()
    one, lost = _flat_out("bench-one", 1)
    yield "one client, flat out, wall time per event", one[0] / n, "N", 60
    yield "  records lost", lost, "", 0
    ten, lost = _flat_out("bench-ten", 10)
    yield "ten clients, one question, CPU of the run, x one", ten[1] / one[1], "", 1.5
    yield "  records lost", lost, "", 0


def _flat_out(name: str, n_clients: int) -> tuple[tuple[float, float], int]:
    """Return seconds per event, wall and CPU, and how many records did not come."""
    run = sg.init(name, budget=None)
    run.observe("batch", step=0, loss=0.0)
    arguments = [sys.executable, "-c", CLIENT, name, str(n_clients)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        cpu = time.process_time()
        wall_each = seconds_per_call(run.observe, N_EVENTS)
        cpu_each = (time.process_time() - cpu) / N_EVENTS
        time.sleep(1.0)  # what is on its way arrives
        run.close()
        got, lost = map(int, child.stdout.readline().split())
    return (wall_each, cpu_each), max(lost, N_EVENTS - got)
