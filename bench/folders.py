"""A folder of 1,000 runs, ours and those of others: listed and opened, for the first time in a process and again.

The yardstick is reading the names and the states of all its files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sightglass.core.columns import Columns
from sightglass.storage import run_file
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import SegmentWriter

FIXTURES = Path(__file__).parents[1] / "tests" / "storage" / "fixtures"
N_RUNS = 1_000
N_TAGS = 10
N_ROWS = 1_000

CHILD = """
import json, sys, time
import sightglass as sg
sg.open, sg.runs
told = []
for work in (lambda: sg.runs(sys.argv[1]), lambda: sg.runs(sys.argv[1]), lambda: sg.open(sys.argv[1]).tags()):
    started = time.perf_counter()
    work()
    told.append(time.perf_counter() - started)
print(json.dumps(told))
"""


def make(folder: Path) -> None:
    rows = np.arange(N_ROWS)
    for i in range(N_RUNS):
        directory = folder / f"job-{i:04d}"
        directory.mkdir()
        run = run_file.RunFile(name=f"job{i}", id=f"{i:012x}", started=1e9 + i, ended=2e9, state="ended")
        run_file.create(directory, run)
        writer = SegmentWriter(directory / f"{1000 + i}-rank0-0000.sgr")
        for tag in range(N_TAGS):
            key = Key(kind="logged", tag=f"tag{tag}")
            writer.append(key, Columns(index=0, steps=rows, wall_times=1e9 + rows, values=np.sin(rows), ordinals=rows))
        writer.flush()
        writer.close()


def make_foreign(folder: Path) -> None:
    """Copy an event file of PyTorch, and an offline run of W&B, as 500 runs each."""
    for i in range(N_RUNS // 2):
        for fixture, directory, name in (
            ("torch.out.events", f"sweep/{i}", f"events.out.tfevents.17000{i:05}.host.1.0"),
            ("wandb.out/run-made.wandb", f"wandb/offline-run-20240101_{i:06}-r{i}", f"run-r{i}.wandb"),
        ):
            (folder / directory).mkdir(parents=True)
            shutil.copyfile(FIXTURES / fixture, folder / directory / name)


def bare(folder: Path) -> float:
    started = time.perf_counter()
    for directory, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(directory, name))
    return time.perf_counter() - started


def timed(folder: Path) -> tuple[float, float, float]:
    """Return how long it takes in a fresh process to list the runs, to list them again, and to open all."""
    told = subprocess.run([sys.executable, "-c", CHILD, str(folder)], check=True, capture_output=True, text=True)
    cold_s, warm_s, tags_s = json.loads(told.stdout)
    return cold_s, warm_s, tags_s


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as name:
        folder = Path(name)
        make(folder)
        cold_s, warm_s, tags_s = timed(folder)
        yield "1,000 runs listed in a fresh process", cold_s, "s", 2.0
        yield "  again", warm_s, "s", 0.3
        yield "  x the states of all files read", warm_s / min(bare(folder) for _ in range(3)), "", None
        yield "1,000 runs opened, for the names of all tags", tags_s, "s", None
    with tempfile.TemporaryDirectory(prefix="sgb") as name:
        folder = Path(name)
        make_foreign(folder)
        cold_s, warm_s, tags_s = timed(folder)
        yield "1,000 runs of PyTorch and W&B listed in a fresh process", cold_s, "s", None
        yield "  x the states of all files read", warm_s / min(bare(folder) for _ in range(3)), "", None
        yield "  opened, for the names of all tags", tags_s, "s", None
