"""A view in JupyterLab: from an event to its pixel, at 100 events a second; its memory over an hour of 1,000 a second.

The training runs in the kernel's own process, while a cell is running. The view tells when it has drawn which record,
at the end of the frame after the one in which it must have; so what is printed is what it takes at most.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sightglass.core.columns import Columns
from sightglass.views.surfaces.notebook.open_pages import PACE_S, WINDOW, OpenPages
from sightglass.views.surfaces.notebook.view_streams import NotebookStreams

EVENTS_PER_SECOND, SECONDS = 100, 20
HOUR, PER_TURN = 3_600_000, 200

CELL = f"""
import json, pathlib, threading, time
import sightglass as sg
run = sg.init("bench", dir="runs", budget=None)
client = sg.connect(run)
loss = client.stream("batch.loss")
view = sg.plot(loss)
began = time.monotonic()
for step in range({EVENTS_PER_SECOND * SECONDS}):
    run.observe("batch", step=step, loss=step % 100)
    time.sleep(max(0.0, began + (step + 1) / {EVENTS_PER_SECOND} - time.monotonic()))
time.sleep(1)
pathlib.Path("walls.json").write_text(json.dumps(loss.to_arrays().wall_times.tolist()))
"""
NOTE = """
window.noted = []
document.addEventListener('sightglass:drawn', ({ detail }) => window.noted.push([detail.at, detail.streams.s1 ?? 0]))
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    latencies = event_to_pixel()
    yield "notebook: event to pixel, 100 events/s, median", float(np.median(latencies)), "ms", None
    yield "notebook: event to pixel, 100 events/s, p95", float(np.quantile(latencies, 0.95)), "ms", 300
    early, late = memory()
    yield "notebook: a process with a view after 0.3 M events", early / 2**20, "MB", None
    yield "notebook: a process with a view after 3.6 M events", late / 2**20, "MB", 1.05 * early / 2**20


def event_to_pixel() -> Any:
    """Return for each record how long it took until it was drawn, in ms."""
    from playwright.sync_api import sync_playwright
    from tests.browser import launch
    from tests.notebook.lab import Lab, Notebook

    folder = Path(tempfile.mkdtemp(prefix="sgb", dir="/tmp"))
    (folder / "run").mkdir()
    lab = Lab(folder, str(folder / "run"))
    try:
        lab.write("bench", [CELL])
        with sync_playwright() as playwright:
            browser = launch(playwright)
            context = browser.new_context(viewport={"width": 1300, "height": 1000})
            context.add_init_script(NOTE)
            notebook = Notebook(lab, "bench", context)
            notebook.run(0)
            walls = lab.root / "walls.json"
            while not walls.exists() or not walls.read_text():
                time.sleep(0.2)
            noted = notebook.page.evaluate("() => window.noted")
            notebook.close()
            browser.close()
        return _latencies(np.array(json.loads(walls.read_text())), noted)
    finally:
        lab.close()
        shutil.rmtree(folder, ignore_errors=True)


def _latencies(walls: Any, noted: list[list[float]]) -> Any:
    """Return how long each record took, but for those that were there before anything was drawn."""
    found, behind = [], int(noted[0][1])
    for at, n in noted[1:]:
        found += (at - 1000 * walls[behind : int(n)]).tolist()
        behind = max(behind, int(n))
    assert len(found) > EVENTS_PER_SECOND * SECONDS / 2, f"Expected most records to be drawn, got {len(found)}"
    return np.array(found)


class Source:
    """A stream that makes its records as they are pulled, and keeps none."""

    tag, run, ended = "loss", "bench", False

    def __init__(self) -> None:
        self.n = 0

    def since(self, cursor: int) -> tuple[int, Columns]:
        """Return the next records."""
        self.n = cursor + PER_TURN
        i = np.arange(cursor, self.n)
        return self.n, Columns(index=cursor, steps=i * 1.0, wall_times=i / 1000, values=i * 2654435761 % 1000 / 1000)


def _resident() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def memory() -> tuple[int, int]:
    """Return how many bytes this process holds early and late, with a page that acknowledges."""
    source, pages = Source(), OpenPages()
    streams = NotebookStreams([source])
    pages.receive({"type": "ready", "page": "a"}, now_s=0.0, busy=True)
    early = turn = 0
    while source.n < HOUR:
        turn += 1
        streams.pull()
        pages.turn(streams, now_s=turn * PACE_S * 1.01, busy=True)
        if turn % WINDOW == 0:
            pages.receive({"type": "ack", "page": "a", "n": pages.n_sent}, now_s=turn * PACE_S, busy=True)
        if not early and source.n > HOUR / 12:
            early = _resident()
    late = _resident()
    return early, late
