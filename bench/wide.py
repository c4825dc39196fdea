"""Wide runs: 200,000 tags logged at one step, written, closed, opened, and one of them read.

The same numbers are saved by NumPy, without names, and a tenth of them given to tensorboardX where it is installed.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import sightglass as sg

N_TAGS = 200_000
N_PEERS_TAGS = N_TAGS // 10
N_ROUNDS = 3

Claim = tuple[str, float, str, float | None]


def measure() -> Iterator[Claim]:
    values = {f"model.layers.{i // 9}.weight_{i % 9}/norm": 0.5 * i for i in range(N_TAGS)}
    with tempfile.TemporaryDirectory() as folder:
        rounds = [_round(Path(folder, str(i)), values) for i in range(N_ROUNDS)]
        log_s, close_s, open_s, n_bytes = (float(x) for x in np.median(rounds, axis=0))
        yield f"{N_TAGS:,} tags at one step: log and close", log_s + close_s, "s", 3
        yield "  of it, log", log_s, "s", None
        yield "  bytes for a tag and its number", n_bytes / N_TAGS, "B", None
        yield "  open the run and read one of them", open_s, "s", 1
        yield "  numpy.save of the numbers", _saved_s(Path(folder, "numbers.npy"), values), "s", None
        yield from _peer(Path(folder, "peer"), values)


def _round(folder: Path, values: dict[str, float]) -> tuple[float, float, float, float]:
    run = sg.init("bench-wide", files=sg.Files(into=folder))
    started = time.perf_counter()
    run.log(values, step=0)
    logged = time.perf_counter()
    run.close()
    closed = time.perf_counter()
    tag = list(values)[N_TAGS // 2]
    opening = time.perf_counter()
    with sg.open(folder) as opened:
        found = opened.series(tag)[0].value
    took_s = time.perf_counter() - opening
    if found != values[tag]:
        raise AssertionError(f"Expected {values[tag]} of {tag}, got {found}")
    n_bytes = sum(path.stat().st_size for path in folder.glob("*.sgr"))
    return logged - started, closed - logged, took_s, float(n_bytes)


def _saved_s(path: Path, values: dict[str, float]) -> float:
    started = time.perf_counter()
    np.save(path, np.fromiter(values.values(), np.float64, len(values)))
    return time.perf_counter() - started


def _peer(folder: Path, values: dict[str, float]) -> Iterator[Claim]:
    try:
        writer = importlib.import_module("tensorboardX").SummaryWriter(str(folder))
    except ImportError:
        print("tensorboardX: not installed")
        return
    started = time.perf_counter()
    for tag, value in list(values.items())[:N_PEERS_TAGS]:
        writer.add_scalar(tag, value, 0)
    writer.close()
    yield f"  tensorboardX, {N_PEERS_TAGS:,} of them", time.perf_counter() - started, "s", None
