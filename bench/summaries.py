"""What `add_scalar` costs, beside PyTorch's `SummaryWriter`: both in one process, in turns.

Flat out, PyTorch's calls mostly wait for the thread that writes its file, which no training does that computes between
two steps: there the processor time of the calling thread counts, after some calls in a row and at each of its steps.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from sightglass.trackers.tensorboard import SummaryWriter

ROUNDS: Final = 12
N_CALLS: Final = 2_000  # of a round, flat out
N_IN_A_ROW: Final = 500
LONG_REST_S: Final = 0.05
N_STEPS: Final = 60  # of a round, of a training that rests after each
N_SCALARS: Final = 10  # of a step
REST_S: Final = 0.005

Claim = tuple[str, float, str, float | None]
Add = Callable[[str, float, int], object]


def measure() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(Path(folder) / "ours") as ours:
        try:
            peer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(Path(folder) / "theirs"))
        except ImportError:
            print("PyTorch's SummaryWriter: not installed")
            return
        for what, work, target in (
            ("flat out", _flat_out, 0.05),
            ("500 in a row, then a rest", _in_a_row, None),
            ("ten at a step, then a rest", _paced, None),
        ):
            seconds = np.array([[work(writer.add_scalar) for writer in (ours, peer)] for _ in range(ROUNDS)])
            (wall, peer_wall), (cpu, peer_cpu) = np.median(seconds, axis=0).T
            yield f"add_scalar, {what}", wall * 1e6, "us", None
            yield "  PyTorch's", peer_wall * 1e6, "us", None
            yield "  ours, share of PyTorch's", wall / peer_wall, "", target
            yield "  processor time of the calling thread, share", cpu / peer_cpu, "", target
        peer.close()


def _flat_out(add: Add, n_calls: int = N_CALLS) -> tuple[float, float]:
    """Return the seconds of a call, and those of its thread's processor time."""
    began_s, began_cpu_s = time.perf_counter(), time.thread_time()
    for i in range(n_calls):
        add("loss", 0.5 * i, i)
    return (time.perf_counter() - began_s) / n_calls, (time.thread_time() - began_cpu_s) / n_calls


def _in_a_row(add: Add) -> tuple[float, float]:
    """Return the same of fewer calls, after all that waits is written."""
    time.sleep(LONG_REST_S)
    return _flat_out(add, N_IN_A_ROW)


def _paced(add: Add) -> tuple[float, float]:
    """Return the median of the same for the calls of a step."""
    took = []
    for _ in range(N_STEPS):
        took.append(_flat_out(add, N_SCALARS))
        time.sleep(REST_S)
    wall, cpu = np.median(np.array(took), axis=0)
    return float(wall), float(cpu)
