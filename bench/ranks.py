"""Eight ranks of one program asked as one: every merged window beside what one process finds that sees all events.

The ranks are processes. With PyTorch they form a gloo group, which is how Sightglass finds their numbers. One is slow,
and one is killed in the middle. A window is right if its value is that of the events of all ranks that it does not
name as missing: exactly for integers, and to 1e-6 of the value for floats.

Then four ranks train in step, by a small collective each, and are told nothing of how they agree: how long a command
takes, whether all applied it at the same step, and what that costs the steps meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import sightglass as sg
from sightglass.core.values import Histogram
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

ROOT = Path(__file__).resolve().parents[1]
N_RANKS, N_WINDOWS, WINDOW = 8, 1_000, 10
SLOW, KILLED = 5, 6
CALLS = {
    "mean": "batch.loss.mean(", "quantile": "batch.loss.quantile(0.9, ", "histogram": "batch.loss.histogram(32, ",
    "max": "batch.loss.max(", "sum of integers": "batch.n.sum(", "top": "batch.loss.top(3, ",
    "collect": "batch.n.collect(30, ", "last": "batch.loss.last(",
}  # fmt: skip
TIMEOUT_S = 300.0
N_OBEYING, N_COMMANDS, STEP_S = 4, 20, 0.002

Claim = tuple[str, float, str, float | None]


def losses(rank: int, n: int) -> list[float]:
    """Return the numbers of a rank."""
    values: list[float] = np.random.default_rng(rank).normal(size=n).tolist()
    return values


def main(rank: int, size: int, n_windows: int, port: str) -> None:
    """Be a rank: wait for a line, announce all events, wait for another line."""
    if port:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        run = sg.init("ranks", budget=None)
    else:
        run = sg.init("ranks", budget=None, ranks=sg.Ranks(rank=rank, size=size))
    print("ready", flush=True)
    sys.stdin.readline()
    n = n_windows * WINDOW
    for i, loss in enumerate(losses(rank, n)):
        run.observe("batch", step=i, loss=loss, n=7919 * i + rank)
        if rank == SLOW and i % (20 * WINDOW) == 0:
            time.sleep(0.05)
        if rank == KILLED and i == n // 2:
            os.kill(os.getpid(), signal.SIGKILL)
    print("done", flush=True)
    sys.stdin.readline()
    run.close()


def obey(rank: int, size: int, port: str) -> None:
    """Be a rank that trains until it is stopped; print when each step began, and at which ones the control changed."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    run = sg.init("obeying", budget=None)
    lr = run.control("lr", 0.0)
    began_s, rates = [], []
    print("ready", flush=True)
    while not run.stopping:
        began_s.append(time.perf_counter())
        dist.all_reduce(torch.ones(8))
        run.observe("batch", step=len(rates))
        rates.append(lr.value)
        time.sleep(STEP_S)
    changes = [step for step, (old, new) in enumerate(zip([0.0, *rates], rates, strict=False)) if old != new]
    print(json.dumps([began_s, changes]), flush=True)
    run.close()
    dist.destroy_process_group()


def commanded() -> Iterator[Claim]:
    """Command ranks that train, and say how long it took and what it cost them."""
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory())
        port = _free_port()
        ranks = [undo.enter_context(_rank(f"obey({rank}, {N_OBEYING}, {port!r})", folder)) for rank in range(N_OBEYING)]
        for rank in ranks:
            undo.callback(rank.kill)
        _wait(ranks)
        group = undo.enter_context(sg.connect("obeying"))
        spans = []
        for i in range(N_COMMANDS):
            time.sleep(1.0)
            sent_s = time.perf_counter()
            assert group.set("lr", float(i + 1)).applied
            spans.append((sent_s, time.perf_counter()))
        group.stop()
        told = [json.loads(rank.stdout.readline()) for rank in ranks if rank.stdout is not None]
    took_s = [after_s - before_s for before_s, after_s in spans]
    yield (
        f"{N_OBEYING} gloo ranks in step, {N_COMMANDS} commands: median time until applied",
        statistics.median(took_s),
        "s",
        None,
    )
    yield "  the longest", max(took_s), "s", None
    yield (
        "  commands applied at different steps",
        sum(len({*steps}) > 1 for steps in zip(*(c for _, c in told), strict=True)),
        "",
        0,
    )
    steps = np.array(told[0][0])
    during = np.any([(steps[:-1] >= low) & (steps[:-1] <= high) for low, high in spans], axis=0)
    lengths = np.diff(steps)
    idle_s = float(np.median(lengths[~during]))
    yield (
        "  median step while a command is under way, beside the others",
        float(np.median(lengths[during])) / idle_s,
        "x",
        None,
    )
    yield "  the longest step meanwhile", float(lengths[during].max()) / idle_s, "x", None
    yield "  the longest of the others", float(lengths[~during].max()) / idle_s, "x", None


def _rank(call: str, folder: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from bench.ranks import main, obey; {call}"],
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def asked(n_ranks: int, n_windows: int, *, gloo: bool) -> dict[str, list[sg.Record]]:
    """Start the ranks, ask them as one, and return the records of each query."""
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory())
        ranks = [
            _rank(f"main({rank}, {n_ranks}, {n_windows}, {port!r})", folder)
            for port in [_free_port() if gloo else ""]
            for rank in range(n_ranks)
        ]  # fmt: skip
        for rank in ranks:
            undo.callback(rank.communicate)
            undo.callback(rank.kill)
        _wait(ranks)
        group = undo.enter_context(sg.connect("ranks"))
        streams = {name: group.stream(f"{call}every={WINDOW})") for name, call in CALLS.items()}
        for rank in ranks:
            _tell(rank)
        _wait(ranks)
        for i, rank in enumerate(ranks):
            if i != KILLED:
                _tell(rank)
        return {name: stream.wait(n_windows, timeout_s=TIMEOUT_S) for name, stream in streams.items()}


def measure() -> Iterator[Claim]:
    gloo = find_spec("torch") is not None
    began_s = time.perf_counter()
    found = asked(N_RANKS, N_WINDOWS, gloo=gloo)
    took_s = time.perf_counter() - began_s
    yield (
        f"{N_RANKS} {'gloo' if gloo else 'plain'} ranks, {N_WINDOWS:,} windows, one slow, one killed",
        took_s,
        "s",
        None,
    )
    for name, records in found.items():
        yield f"  {name}: windows that lack or differ", N_WINDOWS - n_right(name, records, N_RANKS, N_WINDOWS), "", 0
    records = found["mean"]
    n_complete = sum(record.complete for record in records)
    yield "  windows of all ranks", n_complete, "", None
    yield "  windows that name the killed rank", sum(KILLED in record.missing for record in records), "", None
    yield "  windows that name another one", sum(bool({*record.missing} - {KILLED}) for record in records), "", 0
    if gloo:
        yield from commanded()


def n_right(name: str, records: Sequence[sg.Record], n_ranks: int, n_windows: int) -> int:
    """Return how many windows have the value of all events of the ranks that they do not name."""
    numbers = [losses(rank, n_windows * WINDOW) for rank in range(n_ranks)]
    n, query = 0, parse(f"{CALLS[name]}per='run')")
    for window, record in enumerate(sorted(records, key=lambda record: record.step)):
        here = [rank for rank in range(n_ranks) if rank not in record.missing]
        evaluation = Evaluation(query)
        if record.step != (window + 1) * WINDOW - 1 or record.n_events != WINDOW * len(here):
            continue
        for i in range(window * WINDOW, (window + 1) * WINDOW):
            for rank in here:
                head = evaluation.per_event({"loss": numbers[rank][i], "n": 7919 * i + rank})
                evaluation.across_events(head, ordinal=i * n_ranks + rank, step=float(i), wall_time=0.0)
        n += _same(record.value, evaluation.finish()[0].value)
    return n


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Histogram):
        return np.array_equal(found.counts, wanted.counts) and np.array_equal(found.edges, wanted.edges)
    if isinstance(wanted, int):
        return bool(found == wanted)
    return bool(np.allclose(found, wanted, rtol=1e-6, atol=0))


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _tell(rank: subprocess.Popen[str]) -> None:
    assert rank.stdin is not None
    rank.stdin.write("go\n")
    rank.stdin.flush()


def _wait(ranks: Sequence[subprocess.Popen[str]]) -> None:
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()
