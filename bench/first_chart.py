"""The first chart of a run of 10 million points, beside TensorBoard's of the same points: from the link to its pixels.

Both servers start cold in each round, and their files are in the system's cache. Ours is asked as soon as it answers;
what it reads, it reads then. TensorBoard has its defaults: it draws 1,000 points that it chose at random, and shows
what it has read so far, so it is asked after it has read the file, and the time that this takes is told apart.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from bench.page import launch, memory_mb, new_page, serving
from bench.page_server import begin, write
from bench.row import Row
from sightglass.server.runs.scalar_lines import Overview
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, frame
from sightglass.storage.format.summary import TENSORBOARD_VERSION, encode_version
from sightglass.storage.read.recording import Recording
from sightglass.storage.write.segment import BLOCK_ROWS

N_POINTS, N_SPIKES, SPIKE = 10_000_000, 10, 10.0
N_ROUNDS = 3
BEGAN = 1_700_000_000.25
N_AT_ONCE = 2**14  # events that are encoded together: their bytes stay in the cache
READ_S = 300.0
FLAGS = ["--load_fast=auto", "--host=127.0.0.1"]  # TensorBoard's defaults, named

# What the page waited for, in ms since the navigation began.
TIMES = """
() => {
  const of = (what) => performance.getEntriesByType('resource').find(({ name }) => what.test(name)) ?? {}
  const span = ({ requestStart, responseStart, responseEnd }) => [requestStart, responseStart, responseEnd]
  return { runs: span(of(/v1\\/runs$/)), tags: span(of(/\\/tags$/)), scalars: span(of(/\\/scalars$/)) }
}
"""

PARTS = ("until it asks", "list of runs", "tags", "series: waiting", "series: transfer", "from the reply to the line")


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="sgb") as name, sync_playwright() as playwright:
        ours, theirs = Path(name) / "ours", Path(name) / "theirs"
        make(ours, theirs)
        browser = launch(playwright)
        our_chart(browser, ours)  # the browser and the files are warm from here on
        pairs = [(our_chart(browser, ours), their_chart(browser, theirs)) for _ in range(N_ROUNDS)]
        browser.close()
        yield from rows([mine for mine, _ in pairs], [other for _, other in pairs])
        yield from reading(ours)


def rows(mine: list[dict[str, float]], others: list[dict[str, float]]) -> Iterator[Row]:
    def told(what: str, found: list[float], unit: str, target: float | None = None) -> Row:
        return Row(what, float(np.median(found)), unit, target, (min(found), max(found)), by_distance=True)

    whole_s = [one["line_s"] for one in mine]
    yield told("first chart of 10 M points, from the link on", whole_s, "s")
    yield told("  TensorBoard's, which has read the file before", [one["line_s"] for one in others], "s")
    yield told("  TensorBoard reads the file for", [one["read_s"] for one in others], "s")
    pairs = list(zip(mine, others, strict=True))
    yield told(
        "  ours as a part of TensorBoard's, without its reading", [a["line_s"] / b["line_s"] for a, b in pairs], "", 0.3
    )
    both = [a["line_s"] / (b["line_s"] + b["read_s"]) for a, b in pairs]
    yield told("  with its reading: both servers start cold", both, "", 0.3)
    yield Row("  spikes that are missing in ours, of 10", N_SPIKES - min(one["n_spikes"] for one in mine), "", 0)
    yield Row("  in TensorBoard's", N_SPIKES - max(one["n_spikes"] for one in others), "")
    yield Row("  our server's memory above its start", max(one["memory_mb"] for one in mine), "MB", 200)
    for part in PARTS:
        yield told(f"    of ours: {part}", [one[part] for one in mine], "ms")


def our_chart(browser: Browser, folder: Path) -> dict[str, float]:
    for index in folder.rglob("*.index"):
        index.unlink()  # an earlier server's
    with serving(folder) as (link, pid):
        wait_for(link)
        before_mb = memory_mb(pid)
        page = new_page(browser)
        page.goto(link)
        line_ms = page.evaluate("probe.arrival")
        parts = page.evaluate(TIMES)
        page.wait_for_timeout(500)
        found = {
            "line_s": line_ms / 1000,
            "until it asks": parts["runs"][0],
            "list of runs": parts["runs"][2] - parts["runs"][0],
            "tags": parts["tags"][2] - parts["runs"][2],
            "series: waiting": parts["scalars"][1] - parts["tags"][2],
            "series: transfer": parts["scalars"][2] - parts["scalars"][1],
            "from the reply to the line": line_ms - parts["scalars"][2],
            "n_spikes": min(N_SPIKES, page.evaluate("probe.peaks()")),
            "memory_mb": memory_mb(pid) - before_mb,
        }
        page.context.close()
        return found


def their_chart(browser: Browser, folder: Path) -> dict[str, float]:
    with tensorboard_at(folder) as link:
        began_s = time.perf_counter()
        while not (points := scalars(link)) or points[-1][1] < N_POINTS - 1:
            assert time.perf_counter() < began_s + READ_S, "TensorBoard has not read the file"
            time.sleep(0.1)
        read_s = time.perf_counter() - began_s
        page = new_page(browser)
        page.goto(link)
        line_ms = page.evaluate("probe.arrival")
        page.context.close()
        return {"line_s": line_ms / 1000, "read_s": read_s, "n_spikes": sum(value == SPIKE for *_, value in points)}


@contextlib.contextmanager
def tensorboard_at(folder: Path) -> Iterator[str]:
    """Start TensorBoard; gives its link when it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), f"--port={port}", *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        link = f"http://127.0.0.1:{port}/"
        try:
            wait_for(link)
            yield link
        finally:
            server.terminate()


def wait_for(link: str) -> None:
    """Wait until a server answers."""
    until_s = time.perf_counter() + READ_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(link, timeout=5):
            return
        assert time.perf_counter() < until_s, f"no answer at {link}"
        time.sleep(0.02)


def scalars(link: str) -> list[list[float]]:
    """Return the points that TensorBoard draws: wall time, step and value of each; none as long as it has none."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"{link}data/plugin/scalars/scalars?run=.&tag=loss") as reply,
    ):
        return json.load(reply)
    return []


def reading(folder: Path) -> Iterator[Row]:
    """Yield what the server spends on the columns, in this process."""
    with Recording(folder / "long") as recording:
        series = recording.series("loss")
        began_s = time.perf_counter()
        for _ in series.blocks():
            pass
        read_s = time.perf_counter() - began_s
        yield Row("    of ours: reading the columns, alone", 1000 * read_s, "ms")
        began_s = time.perf_counter()
        Overview(0).extend(series)
        yield Row("    of ours: and thinning them", 1000 * (time.perf_counter() - began_s), "ms")


def make(ours: Path, theirs: Path) -> None:
    """Write the same points as one of our runs and as a file of TensorBoard's."""
    for folder in (ours, theirs):
        folder.mkdir()
    values = 0.1 * np.random.default_rng(0).normal(size=N_POINTS).astype(np.float32).astype(np.float64)
    values[((np.arange(N_SPIKES) + 0.5) * N_POINTS / N_SPIKES).astype(int)] = SPIKE
    writer = begin(ours, "long")
    for start in range(0, N_POINTS, BLOCK_ROWS):
        steps = np.arange(start, min(start + BLOCK_ROWS, N_POINTS))
        write(writer, "loss", steps, values[steps])
    writer.flush()
    writer.close()
    with (theirs / "events.out.tfevents.1700000000.host.1.0").open("wb") as file:
        file.writelines(frame(encode_version(TENSORBOARD_VERSION, BEGAN)))
        edges = sorted({*range(0, N_POINTS, N_AT_ONCE), N_POINTS, *(min(2**bits, N_POINTS) for bits in (7, 14, 21))})
        for start, stop in pairwise(edges):
            file.write(events(np.arange(start, stop), values[start:stop]))


def events(steps: Any, values: Any) -> bytes:
    """Encode scalars as frames of TensorBoard's, all at once; the steps have to take equally many bytes."""
    size = max(1, -(-int(steps[-1]).bit_length() // 7))
    middle = b"*\r\n\x0b\n\x04loss\x15"  # the summary, its value, the tag, and the key of the number
    dtype = np.dtype([("header", "S12"), ("wall_key", "u1"), ("wall", "<f8"), ("step_key", "u1"), ("step", "u1", size),
                      ("middle", f"S{len(middle)}"), ("value", "<f4"), ("crc", "<u4")])  # fmt: skip
    rows = np.zeros(len(steps), dtype)
    length = dtype.itemsize - HEADER_BYTES - FOOTER_BYTES
    rows["header"], rows["middle"] = bytes(frame([bytes(length)])[0]), middle
    rows["wall_key"], rows["step_key"], rows["wall"], rows["value"] = 0x09, 0x10, BEGAN + steps * 0.001, values
    for i in range(size):
        rows["step"][:, i] = (steps >> 7 * i) & 0x7F | (0x80 if i < size - 1 else 0)
    rows["crc"] = masked_crcs(rows.view(np.uint8).reshape(len(rows), -1)[:, HEADER_BYTES:-FOOTER_BYTES])
    return rows.tobytes()


def masked_crcs(payloads: Any) -> Any:
    """Return the masked CRC32C of payloads of one length, byte by byte of all of them."""
    crcs = np.full(len(payloads), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(payloads.T):
        crcs = CRCS[(crcs ^ column) & 0xFF] ^ (crcs >> np.uint32(8))
    crcs = ~crcs
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(0xA282EAD8)


def _crcs() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table


CRCS = _crcs()
