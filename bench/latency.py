"""From `observe` to the client's hands: 1,000 events a second, the host busy in pure Python between them.

TensorWatch 0.9.1 with an idle host: 0.2 ms and 1.3 ms; with a busy one, at 100 events a second: 0.45 ms and 16 ms.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

import sightglass as sg

N_EVENTS = 5_000
RATE = 1_000

CLIENT = """
import sys, time, sightglass as sg
stream = sg.connect(sys.argv[1]).stream("batch.sent")
print("ready", flush=True)
delays = []
cursor = 0
from sightglass.client.arrivals import arrivals
while True:
    seen, over = arrivals.n, stream.ended
    cursor, columns = stream.since(cursor)
    now = time.time()
    delays += (now - columns.values).tolist()
    if not len(columns):
        if over:
            break
        arrivals.wait(seen, 1)
print(*delays, flush=True)
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    for busy in (True, False):
        delays = _delays(f"bench-latency-{busy}", busy=busy) * 1e3
        host = "busy in Python" if busy else "asleep"
        yield f"latency at 1,000 events/s, host {host}: p50", float(np.quantile(delays, 0.5)), "ms", 2 if busy else None
        yield (
            f"latency at 1,000 events/s, host {host}: p99",
            float(np.quantile(delays, 0.99)),
            "ms",
            15 if busy else None,
        )
        yield "  records lost", N_EVENTS - len(delays), "", 0


def _delays(name: str, *, busy: bool) -> np.ndarray:
    """Return how long each record was under way, in seconds."""
    run = sg.init(name, budget=None)
    run.observe("batch", step=0, sent=time.time())
    with subprocess.Popen([sys.executable, "-c", CLIENT, name], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        started, x = time.perf_counter(), 0
        for step in range(N_EVENTS):
            while time.perf_counter() < started + step / RATE:
                if busy:
                    x += 1
                else:
                    time.sleep(max(0.0, started + step / RATE - time.perf_counter()))
            run.observe("batch", step=step, sent=time.time())
        time.sleep(0.5)  # what is on its way arrives
        run.close()
        return np.array(child.stdout.readline().split(), float)
