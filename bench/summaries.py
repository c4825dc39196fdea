"""What `add_scalar` costs, beside PyTorch's `SummaryWriter`: both in one process, in turns."""

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
        flat = np.array([[_flat_out(writer.add_scalar) for writer in (ours, peer)] for _ in range(ROUNDS)])
        wall, cpu = np.median(flat, axis=0).T
        yield "add_scalar, flat out", wall[0] * 1e6, "us", None
        yield "  PyTorch's", wall[1] * 1e6, "us", None
        yield "  ours, share of PyTorch's", wall[0] / wall[1], "", 0.05
        yield "  processor time of all threads, share of PyTorch's", cpu[0] / cpu[1], "", 0.05
        paced = np.array([[_paced(writer.add_scalar) for writer in (ours, peer)] for _ in range(ROUNDS)])
        median = np.median(paced, axis=0)
        yield "add_scalar, ten at a step, then a rest", median[0] * 1e6, "us", None
        yield "  PyTorch's", median[1] * 1e6, "us", None
        yield "  ours, share of PyTorch's", median[0] / median[1], "", None
        peer.close()


def _flat_out(add: Add) -> tuple[float, float]:
    """Return the seconds of a call, and of the processor for a call."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for i in range(N_CALLS):
        add("loss", 0.5 * i, i)
    return (time.perf_counter() - began_s) / N_CALLS, (time.process_time() - began_cpu_s) / N_CALLS


def _paced(add: Add) -> float:
    """Return the median seconds of a call."""
    took = []
    for step in range(N_STEPS):
        began_s = time.perf_counter()
        for i in range(N_SCALARS):
            add("loss", 0.5 * i, step)
        took.append((time.perf_counter() - began_s) / N_SCALARS)
        time.sleep(REST_S)
    return float(np.median(took))
