"""Record files being read: one tag out of many, all of a tag, and opening with and without the index.

The yardstick is reading the same bytes into fresh memory and computing their checksums, frame by frame.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sightglass.core.columns import Columns
from sightglass.storage.format import index
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, RandomAccessFile, checksum
from sightglass.storage.format.index import BlockEntries
from sightglass.storage.read.recording import Recording
from sightglass.storage.write.segment import BLOCK_ROWS, SegmentWriter

ROUNDS = 5


def make(path: Path, n_rows: int, n_tags: int) -> None:
    path.parent.mkdir()
    writer = SegmentWriter(path)
    for start in range(0, n_rows // n_tags, BLOCK_ROWS):
        steps = np.arange(start, min(start + BLOCK_ROWS, n_rows // n_tags))
        for tag in range(n_tags):
            columns = Columns(
                index=start, steps=steps, wall_times=1e9 + steps * 0.001, values=np.sin(steps + tag), ordinals=steps
            )
            writer.append(Key(kind="logged", tag=f"tag{tag}"), columns)
        writer.flush()
    writer.close()


def best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def bare(path: Path, entries: BlockEntries, n_rows: int) -> None:
    """Read and verify what a series is made of, and fill as much memory as its columns take."""
    file = RandomAccessFile(path)
    columns = np.empty((4, n_rows))
    for offset, length in entries.rows[["offset", "length"]].tolist():
        checksum(file.read(offset + HEADER_BYTES, length + FOOTER_BYTES))
    columns[:] = 1.0
    file.close()


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as folder:
        for n_millions, n_tags, target_ms in ((10, 10, 100.0), (10, 1, 100.0), (100, 10, 1_500.0)):
            path = Path(folder, f"{n_millions}-{n_tags}", "1000-rank0-0000.sgr")
            make(path, n_millions * 1_000_000, n_tags)
            what = f"one of {n_tags} tags, " if n_tags > 1 else "one tag, "
            yield from _measure(path, f"{what}{n_millions}M rows in all", target_ms)
            path.unlink()


def _measure(path: Path, what: str, target_ms: float) -> Iterator[tuple[str, float, str, float | None]]:
    def scan() -> None:
        index.path_of(path).unlink(missing_ok=True)
        Recording(path).close()

    with Recording(path) as recording:
        series = recording.series("tag0")
        ((_, entries),) = series._view.sources
        read_s = best(series.columns)
        bare_s = best(lambda: bare(path, entries, len(series)))
    yield f"{what}: read", read_s * 1000, "ms", target_ms
    yield "  x its bytes read and checked", read_s / bare_s, "", 6
    yield "  opened by a scan, with the index written", best(scan) * 1000, "ms", None
    yield "  opened by the index", best(lambda: Recording(path).close()) * 1000, "ms", None
