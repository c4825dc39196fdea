"""Whether other processes decide which queries are answered: 20 clients, and one expensive query, beside six.

And what a query takes whose records are large: sending them is charged to it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import sightglass as sg

N_BUSY = 6
N_CLIENTS = 20
STEP_S = 0.005  # of work; on a machine with two cores a step then takes 20 ms
N_EVENTS = 500
N_LEARNED = 500  # the account's credit lasts less, and strides settle
EXPENSIVE_S = 0.004
PAUSE_S = 0.01
LARGE_S = 12.0  # of events; the account's credit lasts for five seconds of them
LARGE = "batch.text.rolling(1000).collect()"  # 10 MB a record
SMALL = "batch.text.rolling(1000).count()"

CLIENT = """
import sys, sightglass as sg
queries = sys.argv[2:]
runs = [sg.connect(sys.argv[1]) for _ in queries]
streams = [run.stream(query) for run, query in zip(runs, queries)]
print("ready", flush=True)
for stream in streams:
    print(sum(record.complete for record in stream), flush=True)
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    seen = []
    for what, n_busy in (("idle", 0), (f"beside {N_BUSY} busy processes", N_BUSY)):
        with _busy(n_busy):
            yield f"{N_CLIENTS} cheap queries, {what}, windows missing", _missing(), "%", 5
            seen.append(_events_per_answer())
            yield f"  one expensive query, {what}, events per answer", seen[-1], "", None
    yield "  the larger one by the smaller one", max(seen) / min(seen), "x", 2
    small, large = _with_texts(SMALL), _with_texts(LARGE)
    yield "records of 10 MB, 100 events/s: of the run's time", 100 * (large[0] - small[0]), "%", 7.5
    yield "  events that the run loses to them", 100 * (1 - large[1] / small[1]), "%", 10


def _missing() -> float:
    """Ask cheap queries from another process; return how many percent of their windows did not come complete."""
    every = range(2, 2 + N_CLIENTS)
    due = arrived = 0
    with sg.init("bench-budget") as run:
        arguments = [sys.executable, "-c", CLIENT, "bench-budget", *(f"batch.loss.mean(every={n})" for n in every)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            _train(run, N_EVENTS)
            run.close()
            for n in every:
                due += N_EVENTS // n
                arrived += int(child.stdout.readline())
    return 100 * (1 - arrived / due)


def _events_per_answer() -> float:
    """Ask an expensive query; return how many events there are for one that is evaluated."""
    with sg.init("bench-expensive") as run, sg.connect(run) as client:
        run.function("expensive", lambda x: _work(EXPENSIVE_S) or x)
        stream = client.stream("expensive(batch.loss)")
        _train(run, N_LEARNED)
        before = stream.statistics().n_events
        _train(run, N_EVENTS)
        return N_EVENTS / (stream.statistics().n_events - before)


def _with_texts(query: str) -> tuple[float, float]:
    """Answer a query on texts; return the processor time of all threads by time, and the events a second."""
    text = "a" * 10_000
    arguments = [sys.executable, "-c", CLIENT, "bench-texts", query]
    with sg.init("bench-texts") as run, subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for seconds in (LARGE_S, LARGE_S):  # the first time, its credit is spent
            n, began_s, began_cpu_s = 0, time.monotonic(), time.process_time()
            while time.monotonic() < began_s + seconds:
                run.observe("batch", text=text)
                time.sleep(PAUSE_S)
                n += 1
            passed_s = time.monotonic() - began_s
            used = (time.process_time() - began_cpu_s) / passed_s
        run.close()
    return used, n / passed_s


def _train(run: sg.Run, n_steps: int) -> None:
    """Train."""
    for step in range(n_steps):
        _work(STEP_S)
        run.observe("batch", step=step, loss=float(step))


def _work(duration_s: float) -> None:
    """Compute for a while, however long that takes."""
    until_s = time.thread_time() + duration_s
    while time.thread_time() < until_s:
        pass


@contextlib.contextmanager
def _busy(n: int) -> Iterator[None]:
    """Let other processes compute meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
