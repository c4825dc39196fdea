"""From `observe` to the hands of a client, beside a bare program that sends with pyzmq from a second thread.

How it is measured:

1. The hosts are processes of their own, busy in pure Python between 1,000 events a second. They take turns in short
   blocks, while the others rest: bare, ours with a stream that a client asks for, ours that nobody asks, and back.
2. Latency is from before the event is announced until the client's program has it. Quantiles are those of the events of
   a round. Ratios are medians over the rounds; their intervals are from rounds drawn again and again. The noise is the
   first bare block of a round against its second.
3. "Costs the thread" is its processor time in `observe`, asked minus not asked. "Work lost" is by how much less often
   the loop between the events turns: it counts all that other threads and the hand-overs between them take, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .latency_ends import RATE
from .row import Row

ROOT = Path(__file__).resolve().parents[1]
N_EVENTS = 500  # of a block: short against whatever else the machine does, and 1 % of two blocks are ten events
N_ROUNDS = 16
N_ASLEEP = 4  # rounds with hosts that sleep between events: what is left without a busy interpreter
N_RESAMPLED = 1_000
BARE, OURS, UNASKED = ("bare", "ours", "unasked")
LIMIT = 1.5  # times the bare program's
LIMIT_ASLEEP = 5.0  # the run is woken by the event, where bare pyzmq sends it in the thread
MAX_US = 15.0

Round = dict[str, dict[str, Any]]
"""What the two blocks of each kind gave: a list of two for each figure."""

Figures = npt.NDArray[np.float64]
"""A figure of each round."""


class Process:
    """A child process that answers a line with a line."""

    def __init__(self, *arguments: str, module: str = "bench.latency_ends") -> None:
        """Start it, and wait until it is ready."""
        command = [sys.executable, "-m", module, *arguments]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
        )
        assert self.answer() == "ready\n", f"{arguments} did not start"

    def ask(self, line: str) -> Any:
        """Say something, and return the answer."""
        self.say(line)
        return self.answered()

    def say(self, line: str) -> None:
        """Say something."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def answered(self) -> Any:
        """Return the answer to what was said."""
        return json.loads(self.answer())

    def answer(self) -> str:
        """Return the next line."""
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def close(self) -> None:
        """Let it end."""
        assert self._child.stdin is not None
        self._child.stdin.close()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._child.wait()


def measure() -> Iterator[Row]:
    """Yield the rows."""
    busy, asleep, n_lost = take_turns(*ends(), n_busy=N_ROUNDS, n_asleep=N_ASLEEP)
    for what, rounds, limit in (("busy in Python", busy, LIMIT), ("asleep", asleep, LIMIT_ASLEEP)):
        for quantile in (0.5, 0.99):
            p = f"p{100 * quantile:g}"
            bare_ms, ours_ms = (1e3 * latencies_s(rounds, kind, quantile) for kind in (BARE, OURS))
            yield row(f"{RATE:,} events/s, host {what}, bare pyzmq: {p}", bare_ms, "ms")
            yield row(f"{RATE:,} events/s, host {what}, ours: {p}", ours_ms, "ms")
            yield row("  x bare", ours_ms / bare_ms, "", limit)._replace(by_distance=True)
            yield row("  noise: bare blocks, x each other", noise(rounds, quantile), "")
    yield Row("  records lost", float(n_lost[OURS]), "", 0)
    yield row(
        "what an event that is asked for costs the thread", cost_us(busy, OURS) - cost_us(busy, UNASKED), "us", MAX_US
    )
    yield row("  by the work that the thread gets done, ours", work_lost_us(busy, OURS), "us")
    yield row("  by the work that the thread gets done, bare pyzmq", work_lost_us(busy, BARE), "us")


def ends() -> tuple[dict[str, Process], dict[str, Process]]:
    """Start the hosts and their clients; return the clients and the hosts."""
    endpoint = f"ipc://{os.environ['SIGHTGLASS_RUNTIME_DIR']}/bare.sock"
    names = {BARE: endpoint, OURS: "bench-latency", UNASKED: "bench-latency-unasked"}
    clients = {BARE: Process("client", BARE, endpoint)}
    hosts = {kind: Process("host", kind, name) for kind, name in names.items()}
    clients[OURS] = Process("client", OURS, names[OURS])
    return clients, hosts


def take_turns(
    clients: dict[str, Process], hosts: dict[str, Process], *, n_busy: int, n_asleep: int
) -> tuple[list[Round], list[Round], dict[str, int]]:
    """Return rounds of busy hosts, rounds of sleeping ones, and how many records each client lost."""
    n_blocks, told = 0, []
    for busy in [True] * n_busy + [False] * n_asleep:
        blocks: Round = {kind: defaultdict(list) for kind in hosts}
        for kind in (*hosts, *reversed(hosts)):
            first, n_blocks = n_blocks * N_EVENTS, n_blocks + 1
            answer = hosts[kind].ask(f"{first} {N_EVENTS} {int(busy)}")
            for name, value in {**answer, "first": first}.items():
                blocks[kind][name].append(value)
        told.append(blocks)
    for host in hosts.values():
        host.close()
    n_lost = dict.fromkeys(clients, 0)
    for kind, client in clients.items():
        delays_s = dict(json.loads(client.answer()))
        for blocks in told:
            taken = [
                [delays_s[step] for step in range(first, first + N_EVENTS) if step in delays_s]
                for first in blocks[kind]["first"]
            ]
            n_lost[kind] += 2 * N_EVENTS - sum(map(len, taken))
            blocks[kind]["delays_s"] = taken
    for process in (*hosts.values(), *clients.values()):
        process.close()
        process.wait()
    return told[:n_busy], told[n_busy:], n_lost


def latencies_s(rounds: list[Round], kind: str, quantile: float) -> Figures:
    """Return a quantile of the latencies of each round."""
    return np.array([np.quantile(np.concatenate(one[kind]["delays_s"]), quantile) for one in rounds])


def noise(rounds: list[Round], quantile: float) -> Figures:
    """Return how a quantile of the first bare block of each round compares with that of the second."""
    blocks = [[np.quantile(delays_s, quantile) for delays_s in one[BARE]["delays_s"]] for one in rounds]
    return np.divide(*np.transpose(blocks))


def cost_us(rounds: list[Round], kind: str) -> Figures:
    """Return the processor time of an event."""
    return 1e6 * np.array([np.mean(one[kind]["cpu_s"]) for one in rounds])


def work_lost_us(rounds: list[Round], kind: str) -> Figures:
    """Return how much of the thread's time an event takes, by the work that is not done."""
    done, usual = (np.array([sum(one[k]["n_turns"]) for one in rounds]) for k in (kind, UNASKED))
    return 1e6 / RATE * (1 - done / usual)


def row(what: str, figures: Figures, unit: str, target: float | None = None) -> Row:
    """Return a row of the median of some figures, one of each round, and its interval."""
    rng = np.random.default_rng(0)
    drawn = np.median(figures[rng.integers(0, len(figures), (N_RESAMPLED, len(figures)))], axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Row(what, float(np.median(figures)), unit, target, (float(low), float(high)))
