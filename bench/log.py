"""What `log` costs whoever calls it, and the thread that writes: ten scalars, an array of 4 MiB; what slow runs leave.

The same ten scalars are given to TensorBoard's writers where they are installed, in the same process.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.core.process.clock import SystemClock
from sightglass.storage.format.block import Key
from sightglass.storage.read.segment_reader import SegmentReader
from sightglass.storage.write.rotation import Segments
from sightglass.storage.write.segment import Rows
from sightglass.storage.write.writer import COMPACT_S, RecordWriter

from .yardstick import n_seconds

N_CALLS = 50_000
N_PEERS_CALLS = 2_000
N_TAGS = 10
N_ARRAYS = 60
PAUSE_S = 0.03
TAGS = [f"train/metric_{i}" for i in range(N_TAGS)]
WAIT_S = 120.0

Claim = tuple[str, float, str, float | None]


def measure() -> Iterator[Claim]:
    n = n_seconds()
    with tempfile.TemporaryDirectory() as folder:
        yield from _keeper(Path(folder), n)
        yield from _run(Path(folder), n)
        yield from _array(Path(folder))
        yield from _slow_run(Path(folder) / "slow")
        yield from _peers(Path(folder), n)


def _keeper(folder: Path, n: float) -> Iterator[Claim]:
    keeper = RecordWriter(lambda: folder, clock=SystemClock())
    keeper.log(0, 0, 0.0, dict.fromkeys(TAGS, 0.0), None)
    yield from _calls("keeper, ten scalars", lambda i, values: keeper.log(i, i, 1e9 + i, values, None), n)
    keeper.flush(WAIT_S)
    before, started = keeper.statistics(), time.perf_counter()
    keeper._limit = 10**9  # the thread is not woken: it works alone, and is measured alone
    for i in range(N_CALLS):
        keeper.log(i, i, 1e9 + i, dict.fromkeys(TAGS, 0.5 * i), None)
    started = time.perf_counter()
    keeper.flush(WAIT_S)
    took, after = time.perf_counter() - started, keeper.statistics()
    n_rows = after.n_records - before.n_records
    yield "  writer alone, per scalar", took / n_rows * 1e6, "us", 0.5
    yield "  time for a million scalars", took / n_rows * 1e6, "s", 1
    yield "  bytes for a scalar", (after.n_bytes - before.n_bytes) / n_rows, "B", 17
    yield "  records lost", (N_CALLS * 2 + 1) * N_TAGS - after.n_records, "", 0
    keeper.close(WAIT_S)


def _run(folder: Path, n: float) -> Iterator[Claim]:
    with sg.init("bench-log", dir=folder) as run:
        run.log(dict.fromkeys(TAGS, 0.0), step=0)
        yield from _calls("run.log, ten scalars", lambda i, values: run.log(values, step=i), n)


def _calls(
    what: str, call: Callable[[int, dict[str, float]], object], n: float, *, peer: bool = False
) -> Iterator[Claim]:
    took = np.empty(N_PEERS_CALLS if peer else N_CALLS)
    clock = time.perf_counter
    for i in range(len(took)):
        values = dict.fromkeys(TAGS, 0.5 * i)
        started = clock()
        call(i, values)
        took[i] = clock() - started
    yield f"{what}, flat out: mean", float(took.mean()) * 1e6, "us", None if peer else 8
    yield "  p50", float(np.quantile(took, 0.5)) * 1e6, "us", None
    yield "  p99", float(np.quantile(took, 0.99)) * 1e6, "us", None if peer else 50
    yield "  p50, x an empty call", float(np.median(took)) / n, "N", None


def _array(folder: Path) -> Iterator[Claim]:
    keeper = RecordWriter(lambda: folder, clock=SystemClock())
    array = np.random.default_rng(0).normal(size=2**19)
    buffer = np.empty_like(array)
    took, copies = np.empty(N_ARRAYS), np.empty(N_ARRAYS)
    for i in range(N_ARRAYS):
        started = time.perf_counter()
        keeper.log(i, i, 1e9 + i, {"w": array}, None)
        took[i] = time.perf_counter() - started
        time.sleep(PAUSE_S)
        started = time.perf_counter()
        np.copyto(buffer, array)
        copies[i] = time.perf_counter() - started
    keeper.close(WAIT_S)
    yield "4 MiB array, x one copy into warm memory: median", float(np.median(took) / np.median(copies)), "", 3
    yield "  median", float(np.median(took)) * 1e3, "ms", None


def _slow_run(folder: Path) -> Iterator[Claim]:
    """Write what ten scalars a second leave in some 110 minutes: a block for each, until the file is full."""
    folder.mkdir()
    segments = Segments(lambda: folder, rank=0, clock=SystemClock(), tell=print)
    place = np.arange(1)
    i = 0
    while not segments.compacting:
        segments.open()
        for tag in TAGS:
            values = place * 0.5 + i
            columns = Columns(index=i, steps=place + i, wall_times=values + 1e9, values=values, ordinals=place + i)
            segments.append(Rows(key=Key(kind="logged", tag=tag), columns=columns))
        segments.flush()
        i += 1
    n_rows = (i - 1) * N_TAGS
    (path, _) = sorted(folder.glob("*.sgr"))
    yield "one step a second: bytes for a scalar", path.stat().st_size / n_rows, "B", None
    started = time.perf_counter()
    SegmentReader(path, cache=False).close()
    yield "  time to open the file", (time.perf_counter() - started) * 1e3, "ms", None
    took = []
    while segments.compacting:
        started = time.perf_counter()
        segments.compact(0.0)
        took.append(time.perf_counter() - started)
    yield "  compacted: bytes for a scalar", path.stat().st_size / n_rows, "B", 20
    yield "  compacting it, all", sum(took), "s", COMPACT_S
    yield "  a step of it: p50", float(np.median(took)) * 1e3, "ms", None
    yield "  p99", float(np.quantile(took, 0.99)) * 1e3, "ms", 5
    started = time.perf_counter()
    SegmentReader(path, cache=False).close()
    yield "  time to open the file", (time.perf_counter() - started) * 1e3, "ms", None
    segments.close()


def _peers(folder: Path, n: float) -> Iterator[Claim]:
    for package, module, name in (
        ("tensorboardX", "tensorboardX", "SummaryWriter"),
        ("PyTorch's tensorboard", "torch.utils.tensorboard", "SummaryWriter"),
    ):
        try:
            writer = getattr(importlib.import_module(module), name)(str(folder / package))
        except ImportError:
            print(f"{package + ': not installed':<54}")
            continue

        def log(i: int, values: dict[str, float], *, add: Callable[..., object] = writer.add_scalar) -> None:
            for tag, value in values.items():
                add(tag, value, i)

        yield from _calls(f"{package}, ten scalars", log, n, peer=True)
        started = time.perf_counter()
        writer.flush()
        n_scalars = N_PEERS_CALLS * N_TAGS
        yield "  flush, for a scalar", (time.perf_counter() - started) / n_scalars * 1e6, "us", None
        size = sum(path.stat().st_size for path in (folder / package).rglob("*") if path.is_file())
        yield "  bytes for a scalar", size / n_scalars, "B", None
        writer.close()
