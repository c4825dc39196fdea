"""The buffer between any two parts: what a record costs, whether pictures of long streams are even and keep spikes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.client.resumable_stream import RecordBuffer
from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns
from sightglass.views.encoding import MAX_POINTS, Backlog
from sightglass.views.options import Options
from sightglass.views.stream_set import StreamSet

N_PART = 4_000  # records of a block
N_LIVE = 10_000_000
N_LONG = 100_000_000
N_SPIKES = 20
SPIKE = 100.0
PAGE_POINTS = 2_000  # what the page asks for


def measure() -> Iterator[tuple[Any, ...]]:
    """Yield the costs, then for each holder of a long stream its evenness, its spikes and its memory."""
    yield from _costs()
    yield from _picture(f"buffer of {MAX_POINTS:,} rows", N_LONG, *_buffer())
    yield from _picture("page and notebook: the server's backlog", N_LIVE, *_backlog())
    yield from _picture("terminal, Matplotlib, plotly: a view", N_LIVE, *_view())


def _parts(n: int) -> Iterator[Columns]:
    """Yield a noisy sine with spikes in its middle tenths, as blocks."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=N_PART)
    spikes = _spikes(n)
    for index in range(0, n, N_PART):
        steps = np.arange(index, index + N_PART)
        values = np.sin(steps * (40 / n)) + 0.1 * noise
        values[np.isin(steps, spikes)] = SPIKE
        yield Columns(index=index, steps=steps, wall_times=steps / 1e3, values=values)


def _spikes(n: int) -> npt.NDArray[np.int64]:
    return (np.arange(N_SPIKES) * 0.9 / N_SPIKES * n).astype(np.int64) + 777


def _costs() -> Iterator[tuple[Any, ...]]:
    n = 1_000_000
    parts = list(_parts(n))
    store, backlog = RecordBuffer(tag="batch.loss", run="r"), Backlog()
    spent = {"client's store": 0.0, "store to the server's backlog": 0.0}
    cursor = 0
    for part in parts:
        began = time.thread_time()
        store.add(part)
        middle = time.thread_time()
        cursor, columns = store.since(cursor)
        backlog.add(columns)
        spent["client's store"] += middle - began
        spent["store to the server's backlog"] += time.thread_time() - middle
    yield "a record into a client's store", spent["client's store"] / n * 1e6, "us", None
    yield "a record from a store to the server's backlog", spent["store to the server's backlog"] / n * 1e6, "us", 0.1


Holder = tuple[Callable[[Columns], object], Callable[[], tuple[npt.NDArray[Any], npt.NDArray[Any]]]]


def _buffer() -> Holder:
    buffer = Buffer(max_rows=MAX_POINTS, max_bytes=2**30)

    def held() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        columns = buffer.since(0)[1]
        return columns.numbers, columns.values

    return buffer.add, held


def _backlog() -> Holder:
    backlog = Backlog()

    def held() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        taken = backlog.take(0, PAGE_POINTS)
        assert taken is not None
        message = taken.message
        return np.frombuffer(message["index"], "<i8"), np.frombuffer(message["y"], "<f8")

    return backlog.add, held


class _Source:
    """Gives each part once."""

    tag, run, ended = "batch.loss", "r", False

    def __init__(self) -> None:
        self.parts: list[Columns] = []

    def since(self, cursor: int, /) -> tuple[int, Columns]:
        part = self.parts.pop() if self.parts else Columns(index=cursor, steps=[], wall_times=[], values=[])
        return part.end, part


def _view() -> Holder:
    source = _Source()
    streams = StreamSet([source], options=Options())
    (buffer,) = streams._buffers

    def add(part: Columns) -> None:
        source.parts.append(part)
        buffer.pull()

    def held() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        streams.pull()
        (line,) = streams.take().series
        return line.x, line.y

    return add, held


def _picture(name: str, n: int, add: Callable[[Columns], object], held: Callable[[], Any]) -> Iterator[tuple[Any, ...]]:
    """Add a long stream; the memory is that after a tenth and at the end, without what holds the parts."""
    taken = []
    tracemalloc.start()
    spent = 0.0
    for part in _parts(n):
        began = time.thread_time()
        add(part)
        spent += time.thread_time() - began
        if part.end in (n // 5, n):
            taken.append(tracemalloc.get_traced_memory()[0] / 2**20)
    tracemalloc.stop()
    x, y = held()
    tenths = np.histogram(x, bins=10, range=(0, n))[0][:-1]  # the last has the exact part
    yield f"{name}, {n:,} records: us a record", spent / n * 1e6, "us", None
    yield "  points of a tenth, most to fewest (the exact part aside)", tenths.max() / max(tenths.min(), 1), "x", 2
    yield f"  spikes of {N_SPIKES} that are lost", N_SPIKES - int((y == SPIKE).sum()), "", 0
    yield "  memory after a fifth", taken[0], "MB", None
    yield "  growth since", taken[1] - taken[0], "MB", 0.5
