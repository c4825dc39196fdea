"""A folder of 1,000 runs: listed and opened, for the first time in a process and again.

The yardstick is reading the names and the states of all its files.
"""

from __future__ import annotations

import json
import os
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


def bare(folder: Path) -> float:
    started = time.perf_counter()
    for directory, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(directory, name))
    return time.perf_counter() - started


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as name:
        folder = Path(name)
        make(folder)
        told = subprocess.run([sys.executable, "-c", CHILD, name], check=True, capture_output=True, text=True)
        cold_s, warm_s, tags_s = json.loads(told.stdout)
        yield "1,000 runs listed in a fresh process", cold_s, "s", 2.0
        yield "  again", warm_s, "s", 0.3
        yield "  x the states of all files read", warm_s / min(bare(folder) for _ in range(3)), "", None
        yield "1,000 runs opened, for the names of all tags", tags_s, "s", None
