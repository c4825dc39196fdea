"""A run on a hub: what it costs the training, what a hundred clients cost, and how late records come.

The hub is the one of `sightglass hub`, with TLS. Hosts and clients are those of `bench.latency`, and take turns in the
same way: a stream over the hub, the same over the Unix socket, and a run on the hub that nobody asks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import sightglass as sg

from .latency import OURS, UNASKED, Process, cost_us, latencies_s, row, take_turns
from .latency_ends import RATE
from .row import Row
from .yardstick import n_seconds, seconds_per_call

HUB = "hub"
N_BUSY, N_ASLEEP = 8, 8
N_IDLE = 100_000
N_CLIENTS, N_PROCESSES = 100, 4
N_ROUNDS = 3
N_EVENTS = 2_000  # two seconds: a hundred clients on two cores then read for ten


def measure() -> Iterator[Row]:
    """Yield the rows."""
    with hub() as folder:
        run, viewer = str(folder / "run.hub"), str(folder / "viewer.hub")
        yield from idle(run)
        yield from one_client(run, viewer)
        yield from many_clients(run, viewer)


@contextlib.contextmanager
def hub() -> Iterator[Path]:
    """Run a hub, and give its folder."""
    folder = Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]) / "hub"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sightglass", "hub", "--dir", str(folder), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"listens" in process.stdout.readline()
        try:
            yield folder
        finally:
            process.terminate()


def idle(run: str) -> Iterator[Row]:
    """Yield what `observe` costs that nobody asks, with a hub and without."""
    n_s, with_s, without_s = [], [], []
    with sg.init("bench-hub-idle", hub=run, budget=None) as joined, sg.init("bench-no-hub", budget=None) as alone:
        sg.connect(joined.name, hub=run.replace("run.hub", "viewer.hub"), wait_s=30).close()
        for _ in range(5):
            n_s.append(n_seconds())
            with_s.append(min(seconds_per_call(joined.observe, N_IDLE) for _ in range(2)))
            without_s.append(min(seconds_per_call(alone.observe, N_IDLE) for _ in range(2)))
    yield Row("observe, on a hub, nobody asking", min(with_s) / min(n_s), "N", 1.6)
    yield row("  x the same without a hub", np.divide(with_s, without_s), "")


def one_client(run: str, viewer: str) -> Iterator[Row]:
    """Yield what a stream over the hub costs the thread beside one over the Unix socket, and how late records come."""
    hosts = {
        HUB: Process("host", HUB, "bench-hub", run),
        OURS: Process("host", OURS, "bench-socket"),
        UNASKED: Process("host", UNASKED, "bench-hub-unasked", run),
    }
    clients = {HUB: Process("client", HUB, "bench-hub", viewer), OURS: Process("client", OURS, "bench-socket")}
    busy, asleep, n_lost = take_turns(clients, hosts, n_busy=N_BUSY, n_asleep=N_ASLEEP)
    for what, rounds, limits in (("busy in Python", busy, (None, None)), ("asleep", asleep, (4.0, 20.0))):
        for quantile, limit in zip((0.5, 0.99), limits, strict=True):
            p = f"p{100 * quantile:g}"
            hub_ms, socket_ms = (1e3 * latencies_s(rounds, kind, quantile) for kind in (HUB, OURS))
            yield row(f"{RATE:,} events/s, host {what}, through the hub: {p}", hub_ms, "ms", limit)
            yield row("  through the Unix socket", socket_ms, "ms")
    yield Row("  records lost", float(n_lost[HUB]), "", 0)
    hub_us, socket_us = (cost_us(busy, kind) - cost_us(busy, UNASKED) for kind in (HUB, OURS))
    yield row("what an event that is asked over the hub costs the thread", hub_us, "us")
    yield row("  x over the Unix socket", hub_us / socket_us, "", 1.1)._replace(by_distance=True)


def many_clients(run: str, viewer: str) -> Iterator[Row]:
    """Yield what a hundred clients of one stream cost the run, beside one."""
    host = Process("host", HUB, "bench-hub-many", run)
    each = N_CLIENTS // N_PROCESSES
    arguments = ("bench-hub-many", viewer, str(each))
    clients = [Process(*arguments, module="bench.hub_clients") for _ in range(N_PROCESSES)]
    cpu_s: dict[int, list[float]] = {1: [], N_CLIENTS: []}
    n_uncounted = n_lost = n_due = first = 0
    wait_s = 0.0
    for _ in range(N_ROUNDS):
        for n in (1, N_CLIENTS):
            asked = clients[:1] if n == 1 else clients
            for client in asked:
                client.ask(f"open {n if n == 1 else each}")
            cpu_s[n].append(host.ask(f"{first} {N_EVENTS} 0")["process_s"])
            host.ask(f"{first + N_EVENTS} 1 0")  # shows what was lost before it
            for client in asked:
                client.say(f"close {first + N_EVENTS}")
            told = [client.answered() for client in asked]
            first += N_EVENTS + 1
            n_due += sum(one["n_due"] for one in told)
            n_lost += sum(one["n_lost"] for one in told)
            n_uncounted += sum(abs(one["n_due"] - one["n"] - one["n_lost"]) for one in told)
            wait_s = max(wait_s, *(one["wait_s"] for one in told))
    for process in (*clients, host):
        process.close()
        process.wait()
    yield row(
        f"{N_CLIENTS} clients of one stream, CPU of the run, x one", np.divide(cpu_s[N_CLIENTS], cpu_s[1]), "", 1.2
    )
    yield Row(f"  records lost and not counted, of {n_due:,}", float(n_uncounted), "", 0)
    yield Row("  lost and counted", float(n_lost), "")
    yield Row("  the clients, on the same cores, were late by at most", wait_s, "s")
