"""A training that is busy in Python while closed segments are compacted: what that costs it, and the writer's lag."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator

CHILD = """
import json, sys, time
import numpy as np
from pathlib import Path
from sightglass.core.process.clock import SystemClock
from sightglass.core.columns import Columns
from sightglass.storage.write import rotation, writer
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import Rows
from sightglass.storage.write.writer import RecordWriter

keeper = RecordWriter(lambda: Path(sys.argv[1]), clock=SystemClock())
keeper.log(0, 0, 0.0, {"a": 0.0}, None)
keeper.flush(60)
segments = keeper._segments
with keeper._worker.lock:
    place = np.arange(1)
    for n in range(20_000):
        key = Key(kind="logged", tag=f"m{n % 10}")
        columns = Columns(index=n // 10, steps=place + n, wall_times=place + 0.5, values=place * 0.5)
        segments.append(Rows(key=key, columns=columns))
    segments.flush()

def busy(seconds, given_s):
    rounds, until_s = 0, time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        for _ in range(2_000):
            pass
        rounds += 1
        if given_s is not None and time.perf_counter() > given_s[-1] + 0.05:
            given_s.append(time.perf_counter())
            keeper.log(len(given_s), len(given_s), 1.0, {"a": 0.5}, None)
    return rounds

quiet = max(busy(0.5, None) for _ in range(3))
rotation.MANY_SMALL = 100
keeper.log(1, 1, 1.0, {"a": 0.5}, None)
keeper.flush(60)
assert segments.compacting
given, lags = [time.perf_counter()], []
n_before, worst = keeper.statistics().n_records, 0.0
slices = []
while segments.compacting and len(slices) < 200:
    slices.append(busy(0.25, given))
    n_kept = keeper.statistics().n_records - n_before
    waiting = given[1 + n_kept:]
    worst = max(worst, time.perf_counter() - waiting[0] if waiting else 0.0)
print(json.dumps([quiet / (np.median(slices) * 2), worst]))
keeper.close(60)
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as folder:
        told = subprocess.run([sys.executable, "-c", CHILD, folder], check=True, capture_output=True, text=True)
        slower, worst_s = json.loads(told.stdout)
        yield "busy training while segments are compacted, x its time", slower, "", 1.2
        yield "  a record is in the file after, at worst", worst_s, "s", 1.0
