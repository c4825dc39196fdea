"""Whether other processes decide which queries are answered: 20 clients, and one expensive query, beside six.

And what a query takes whose records are large: sending them is charged to it. And what is left of one client's stream
beside a viewer that asks a lot, with one client or with many. And how many calls of a live JAX step are answered beside
other work, where their queries cost less than the budget allows.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy as np

import sightglass as sg

N_BUSY = 6
N_CLIENTS = 20
STEP_S = 0.005  # of work; on a machine with two cores a step then takes 20 ms
N_EVENTS = 500
N_SHARED = 2_000
NUMBERS = np.arange(1000.0)
N_LEARNED = 500  # the account's credit lasts less, and strides settle
EXPENSIVE_S = 0.004
PAUSE_S = 0.01
N_LIVE = 300
OTHER_S = 0.02
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


VIEWER = """
import sys, time, sightglass as sg
clients = [sg.connect(sys.argv[1], timeout_s=120) for _ in range(int(sys.argv[2]))]
n = int(sys.argv[3])
streams = [one.stream(f"batch.x[{i}] * {j}") for j, one in enumerate(clients) for i in range(n)]
print("ready", flush=True)
time.sleep(1e6)
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    seen = []
    for what, n_busy in (("idle", 0), (f"beside {N_BUSY} busy processes", N_BUSY)):
        with _busy(n_busy):
            yield f"{N_CLIENTS} cheap queries, {what}, windows missing", _missing(), "%", 5
            seen.append(_events_per_answer())
            yield f"  one expensive query, {what}, events per answer", seen[-1], "", None
    yield "  the larger one by the smaller one", max(seen) / min(seen), "x", 2
    for what, counts in (("300 streams", (1, 2, 150)), ("250 clients", (10, 25, 1))):
        yield f"one stream beside a viewer of {what}, records missing", _beside_a_viewer(*counts), "%", 5
    yield "a live JAX step beside 20 ms of other work, calls not answered", _beside_other_work(), "%", 10
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


def _beside_a_viewer(n_processes: int, n_clients: int, n_streams: int) -> float:
    """Ask one stream from here while a viewer asks many; return how many percent of its events it has no records of."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run = stack.enter_context(sg.init("bench-shared", dir=folder, listen="tcp://127.0.0.1:0"))
        stream = stack.enter_context(sg.connect(run)).stream("batch.loss")
        arguments = [sys.executable, "-c", VIEWER, str(run.viewer_file), str(n_clients), str(n_streams)]
        children = [
            stack.enter_context(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
            for _ in range(n_processes)
        ]
        for child in children:
            stack.callback(child.kill)
        asked = threading.Thread(target=lambda: [child.stdout.readline() for child in children if child.stdout])
        asked.start()
        while asked.is_alive():
            _fast(run, 100)
        _fast(run, N_SHARED)  # the account's credit is spent, and strides settle
        before = stream.statistics()
        _fast(run, N_SHARED)
        after = stream.statistics()
        return 100 * (1 - (after.n_events - before.n_events) / N_SHARED)


def _beside_other_work() -> float:
    """Ask for a log in the loop of a step that takes a millisecond; return how many percent of its calls give none."""
    import jax
    import jax.numpy as jnp

    import sightglass.jax as sgx

    @jax.jit
    def epoch(w, x):
        def batch(w, v):
            loss, grads = jax.value_and_grad(lambda w: jnp.tanh(v @ w).var())(w)
            sgx.log({"loss": loss})
            return w - 0.1 * grads, None

        return jax.lax.scan(batch, w, x)[0]

    w, x = jnp.ones((64, 8)), jax.random.normal(jax.random.key(0), (16, 256, 64))
    with sg.init("bench-live") as run, sg.connect(run) as client:
        step = sgx.live(epoch, run, event="epoch")
        step(w, x)
        stream = client.stream("epoch_batch.loss")
        for n in (N_LIVE, N_LIVE):  # the first time, the query is compiled and its price is found
            before = stream.statistics().n_records
            for _ in range(n):
                jax.block_until_ready(step(w, x))
                time.sleep(OTHER_S)
            run.flush(30.0)
            answered = (stream.statistics().n_records - before) / len(x)
    return 100 * max(0.0, 1 - answered / N_LIVE)


def _fast(run: sg.Run, n_steps: int) -> None:
    """Announce events that do little."""
    for step in range(n_steps):
        run.observe("batch", step=step, loss=float(step), x=NUMBERS)
        time.sleep(STEP_S)


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
