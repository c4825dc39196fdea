"""A slice of a 1 GiB tensor: how much memory its reader takes above what it takes without (Linux only)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sightglass.core.columns import Columns
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import SegmentWriter

SHAPE = (64, 2048, 2048)
SLICES = ("[3, 0:10, 0:10]", "[:, 7, 9]", "[::-1, 5, ::100]")

CHILD = """
import json, re, sys, time
import numpy as np
import sightglass as sg
series = sg.open(sys.argv[1]).series("weights")
took = []
for index in sys.argv[2:]:
    started = time.perf_counter()
    series.at(0, index)
    took.append(time.perf_counter() - started)
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(json.dumps([int(peak) / 1024, *took]))
"""


def child(folder: str, *indices: str) -> list[float]:
    told = subprocess.run([sys.executable, "-c", CHILD, folder, *indices], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as folder:
        writer = SegmentWriter(Path(folder, "1000-rank0-0000.sgr"))
        tensor = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
        columns = Columns(index=0, steps=np.array([0]), wall_times=np.array([1e9]), values=[tensor])
        writer.append(Key(kind="logged", tag="weights"), columns)
        writer.flush()
        writer.close()
        del tensor, columns
        (base_mib,) = child(folder)
        for index in SLICES:
            mib, first_s, again_s = child(folder, index, index)
            yield f"{index} of 1 GiB: memory above base", mib - base_mib, "MiB", 50.0
            yield "  the first time, with its checksum", first_s * 1000, "ms", None
            yield "  again", again_s * 1000, "ms", None
