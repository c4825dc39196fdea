"""Many recorded runs: a table of three reducers over 1,000 runs of 100,000 numbers, in one process and in two.

A few runs are recorded, and copied until there are enough. Files are out of the system's cache where a row says "cold".
Beside it, Polars asks the same of a tenth of the runs exported as Parquet, and TensorBoard's reader reads a hundredth
exported as its event files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars
import psutil

import sightglass as sg

N_RUNS = int(os.environ.get("SIGHTGLASS_BENCH_RUNS", "1000"))
N_RECORDED = 4
N_ROWS = 100_000
N_WORKERS = 2
COLUMNS = {
    "lowest": "batch.loss.min(per='run')",
    "at": "batch.loss.argmin(per='run')",
    "median": "batch.loss.quantile(0.5, per='run')",
}
TOTALS = {
    "last": "batch.loss",
    "lowest": "batch.loss.min(per='run')",
    "at": "batch.loss.argmin(per='run')",
    "mean": "batch.loss.mean(per='run')",
    "n": "batch.loss.count(per='run')",
}

Claim = tuple[str, float, str, float | None]


class Folder(NamedTuple):
    """The runs, their folder, and the lowest number of all."""

    runs: sg.RecordedRuns
    path: Path
    lowest: float


def measure() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "runs")
        lowest = _record(path)
        folder = Folder(sg.open(path), path, lowest)
        yield f"{N_RUNS:,} runs of {N_ROWS:,}: a table of 3, cold, in process", _asked(folder), "s", 20
        yield "  the same, warm", _asked(folder, cold=False), "s", None
        yield "  by the runs' totals: last, min, argmin, mean, count", _asked(folder, columns=TOTALS), "s", 1
        with ProcessPoolExecutor(N_WORKERS, max_tasks_per_child=2**31) as pool:
            yield from _workers("processes", folder, pool, lambda: psutil.Process().children())
        from distributed import Client, LocalCluster

        local = LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=None, local_directory=place)
        with local as cluster, Client(cluster) as client, client.get_executor() as executor:
            pids = client.run(os.getpid).values()
            yield from _workers("Dask", folder, executor, lambda: [psutil.Process(pid) for pid in pids])
        yield (
            "  Polars over Parquet, a tenth of the runs, warm, times 10",
            10 * _polars_s(folder.runs, Path(place)),
            "s",
            None,
        )
        took_s = 100 * _tensorboard_s(folder.runs, Path(place))
        yield "  TensorBoard's reader, a hundredth of the runs, warm, times 100", took_s, "s", None


def _record(folder: Path) -> float:
    """Make the runs, and return the lowest number of all."""
    rng = np.random.default_rng(0)
    losses = rng.lognormal(size=(N_RECORDED, N_ROWS))
    for number, values in enumerate(losses):
        with sg.init(f"r{number}", dir=folder, budget=None, config={"lr": number}, record=["batch.loss"]) as run:
            for value in values.tolist():
                run.observe("batch", loss=value)
        run.directory.rename(folder / f"{number:04}")
    for number in range(N_RECORDED, N_RUNS):
        shutil.copytree(folder / f"{number % N_RECORDED:04}", folder / f"{number:04}")
    return float(losses.min())


def _asked(
    folder: Folder, executor: Executor | None = None, *, cold: bool = True, columns: Mapping[str, str] = COLUMNS
) -> float:
    if cold:
        _evict(folder.path)
    started = time.perf_counter()
    table = folder.runs.table(executor=executor, **columns)
    took_s = time.perf_counter() - started
    if len(table) != N_RUNS or min(table.column("lowest")) != folder.lowest or "problem" in table.columns:
        raise AssertionError(f"Expected {N_RUNS} rows whose lowest value is {folder.lowest}, got {table!r}")
    return took_s


def _evict(folder: Path) -> None:
    """Ask the system to drop the files from its cache."""
    for path in folder.glob("*/*.sgr"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _workers(
    name: str, folder: Folder, executor: Executor, workers: Callable[[], list[psutil.Process]]
) -> Iterator[Claim]:
    """Yield how the work is shared: by CPU time, since two processes also meet whatever else the machine does."""
    list(executor.map(_import, range(4 * N_WORKERS)))
    before = {worker.pid: _cpu_s(worker) for worker in workers()}
    took_s = _asked(folder, executor)
    spent = [_cpu_s(worker) - before[worker.pid] for worker in workers() if worker.pid in before]
    spent = sorted(spent)[-N_WORKERS:]
    largest = max(worker.memory_info().rss for worker in workers()) / 1e6
    yield f"  {N_WORKERS} workers of {name}, cold", took_s, "s", None
    yield "    all CPU / the largest worker's CPU", sum(spent) / max(spent), "x", None
    yield "    memory of the largest worker", largest, "MB", 300


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _import(_: int) -> int:
    time.sleep(0.1)  # so that every worker gets one
    import sightglass.client.many.partial  # noqa: F401

    return os.getpid()


def _polars_s(runs: sg.RecordedRuns, place: Path) -> float:
    names = list(runs)[: max(1, N_RUNS // 10)]
    for name in names:
        with runs.borrow(name) as run:
            run.export("parquet", out=place / "parquet" / name)
    started = time.perf_counter()
    for name in names:
        (file,) = (place / "parquet" / name).rglob("*.parquet")
        value = polars.col("value")
        asked = [value.min(), value.arg_min().alias("at"), value.quantile(0.5).alias("median")]
        polars.scan_parquet(file).select(asked).collect()
    return time.perf_counter() - started


def _tensorboard_s(runs: sg.RecordedRuns, place: Path) -> float:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator

    names = list(runs)[: max(1, N_RUNS // 100)]
    for name in names:
        with runs.borrow(name) as run:
            run.export("tensorboard", out=place / "tensorboard" / name)
    started = time.perf_counter()
    for name in names:
        (file,) = (place / "tensorboard" / name).rglob("*tfevents*")
        reader = EventAccumulator(str(file), size_guidance={SCALARS: 0, TENSORS: 0}).Reload()
        tags = reader.Tags()
        (tag,) = {"batch.loss"} & {*tags[SCALARS], *tags[TENSORS]}
        values = [one.value for one in reader.Scalars(tag)] if tag in tags[SCALARS] else reader.Tensors(tag)
        if len(values) != N_ROWS:
            raise AssertionError(f"Expected {N_ROWS} values, got {len(values)}")
        if tag in tags[SCALARS]:
            np.quantile(values, 0.5), np.min(values), np.argmin(values)
    return time.perf_counter() - started
