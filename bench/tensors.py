"""Tensors on the page's server: first cells, statistics over the steps, histograms, and a model at a glance.

Cold is a server that was just started, and files whose statistics nobody has asked for; warm is the same request again
to another new server, which finds them beside the run. NumPy's time is that of `np.histogram` on the same arrays.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import sightglass as sg
from bench.page_server import Server, serving

N_LARGE: Final = 10_000_000
N_STEPS, N_VALUES = 100, 1_000_000
N_TENSORS, N_OF_TENSORS = 1_000, 20  # steps of each, of a thousand values
N_ROUNDS: Final = 5

Claim = tuple[str, float, str, float | None]


def measure() -> Iterator[Claim]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="sgb") as name:
        folder = Path(name)
        large = [rng.standard_normal(N_LARGE, np.float32) for _ in range(3)]
        record(folder, "large", [{"w": sg.Tensor(array.reshape(2_500, 4_000))} for array in large])
        record(folder, "steps", [{"w": sg.Tensor(rng.standard_normal(N_VALUES, np.float32))} for _ in range(N_STEPS)])
        small = [
            {f"layer{i // 10}/w{i % 10}": sg.Tensor(rng.standard_normal(1_000, np.float32)) for i in range(N_TENSORS)}
            for _ in range(N_OF_TENSORS)
        ]
        record(folder, "model", small)
        cells, counting, bare, again = [], [], [], []
        for _ in range(N_ROUNDS):
            with serving(folder) as server:
                key = server.key("large")
                window = {"tag": "w", "step": 0, "rows": "0:40", "columns": "0:20", "statistics": "false"}
                cells.append(server.timed(f"/runs/{key}/tensor", **window)[0])
                counting.append(server.timed(f"/runs/{key}/histograms", tag="w")[0])
                again.append(server.timed(f"/runs/{key}/histograms", tag="w", scale="linear")[0])
            began = time.perf_counter()
            for array in large:
                np.histogram(array, 64)
            bare.append(time.perf_counter() - began)
        yield f"first cells of {N_LARGE:,} values, cold", statistics.median(cells), "s", 0.3
        yield f"histograms of 3 x {N_LARGE:,} values, cold", statistics.median(counting), "s", None
        yield "  share of np.histogram's time", statistics.median(np.array(counting) / bare), "", 1.3
        yield "  asked again", statistics.median(again), "s", None
        for what, path, query, targets in (
            (f"statistics of {N_STEPS} steps x {N_VALUES:,} values", "steps/statistics", {"tag": "w"}, (3.0, 0.1)),
            (f"overview of {N_TENSORS:,} tensors, {N_OF_TENSORS} steps each", "model/overview", {}, (None, 1.0)),
        ):
            cold = asked(folder, path, query)
            warm = [asked(folder, path, query) for _ in range(N_ROUNDS)]
            yield f"{what}, cold", cold, "s", targets[0]
            yield "  warm", statistics.median(warm), "s", targets[1]


def record(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Record a run that ended long ago."""
    with sg.init(name, dir=folder, budget=None) as run:
        for step, row in enumerate(rows):
            run.log(row, step=step)
    assert run.directory is not None
    for path in run.directory.glob("*.sgr"):
        os.utime(path, (1e9, 1e9))


def asked(folder: Path, path: str, query: dict[str, Any]) -> float:
    """Return the seconds until everything is read, on a new server whose list of runs was asked for."""
    with serving(folder) as server:
        name, _, endpoint = path.partition("/")
        address = f"/runs/{server.key(name)}/{endpoint}"
        began = time.perf_counter()
        while pending(server, address, query):
            pass
        return time.perf_counter() - began


def pending(server: Server, address: str, query: dict[str, Any]) -> bool:
    return bool(server.get(address, **query)["n_pending"])
