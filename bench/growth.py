"""Files that grow under an open page: until it is on the screen, and what watching costs the server.

Real frames of each dialect are appended at random times while Chromium shows a chart and a tensor of the run. The tabs
that look at nothing that grows are sockets that say what the page says.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright
from websockets.sync.client import connect

from bench.page import launch, opened, serving
from sightglass.core.columns import Columns
from sightglass.storage import run_file
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version
from sightglass.storage.write.segment import SegmentWriter

N_GROWTHS = 24
PAUSE_S = (0.9, 1.7)  # longer than a growth takes to the screen, and no multiple of any period of the server
N_RUNS, N_TABS = 100, 20
CPU_S = 20.0
BEGAN = 1_700_000_000.25
FOREIGN = {
    "MindSpore": (mindspore, MINDSPORE_VERSION, "events.out.events.summary.1700000000.0.host_MS"),
    "TensorBoard": (tensorboard, TENSORBOARD_VERSION, "events.out.tfevents.1700000000.host.1.0"),
}

Append = Callable[[int], object]

# Note when the picture of the first chart, or the number of the step, is another one: in ms since the epoch.
WATCH = """
() => {
  window.changes = []
  let before = null
  const look = () => {
    requestAnimationFrame(look)
    const canvas = document.querySelector('article canvas')
    let now = document.querySelector('.step-number input')?.value ?? null
    if (canvas?.width) {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
      now = new Uint32Array(data.buffer).reduce((sum, pixel, i) => (sum * 31 + pixel + i) | 0, 0)
    }
    if (before !== null && now !== before) window.changes.push(performance.timeOrigin + performance.now())
    before = now
  }
  look()
}
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as name, sync_playwright() as playwright:
        browser = launch(playwright)
        for dialect in ("sightglass", *FOREIGN):
            yield from growths(browser, Path(name) / dialect, dialect)
        browser.close()
        yield from costs(Path(name) / "many")


def growths(browser: Browser, folder: Path, dialect: str) -> Iterator[tuple[str, float, str, float | None]]:
    append = begin(folder / dialect, dialect)
    append(0)
    rng = random.Random(0)
    with serving(folder) as (link, _):
        places = {"chart": "#/charts?tags=^loss$", "tensor": "#/tensors?tensor=kernel"}
        pages = {what: opened(browser, link, place) for what, place in places.items()}
        for page in pages.values():
            page.wait_for_function("() => document.querySelector('article canvas, .step-number input')")
            page.wait_for_timeout(2_000)
            page.evaluate(WATCH)
        appended = []
        for step in range(1, N_GROWTHS + 1):
            pages["chart"].wait_for_timeout(1000 * rng.uniform(*PAUSE_S))
            appended.append(1000 * time.time())
            append(step)
        pages["chart"].wait_for_timeout(3_000)
        for what, page in pages.items():
            changes = np.array(page.evaluate("changes"))
            delays = [float(after[0] - at) if len(after := changes[changes > at]) else np.inf for at in appended]
            yield f"a {what} of {dialect}'s file grows: p50", float(np.quantile(delays, 0.5)), "ms", None
            yield "  p95", float(np.quantile(delays, 0.95, method="higher")), "ms", 1_000
            page.context.close()


def begin(folder: Path, dialect: str) -> Append:
    """Begin a run, and return what appends a step: a number that jumps, and a tensor."""
    folder.mkdir(parents=True)
    if dialect == "sightglass":
        return own(folder)
    encoder, version, name = FOREIGN[dialect]
    path = folder / name
    path.write_bytes(b"".join(frame(encode_version(version, BEGAN))))

    def append(step: int) -> None:
        values = {"loss": float(step % 2), "kernel": np.full((4, 4), step, np.float32)}
        with path.open("ab") as file:
            file.writelines(frame(encoder.encode_event(values, step=step, wall_time=BEGAN + step)[0]))

    return append


def own(folder: Path) -> Append:
    run_file.create(folder, run_file.RunFile(name="own", id="0" * 12, started=BEGAN, host="elsewhere"))
    writer = SegmentWriter(folder / "1000-rank0-0000.sgr")

    def append(step: int) -> None:
        for tag, values in (("loss", np.array([step % 2.0])), ("kernel", [np.full((4, 4), step, np.float32)])):
            columns = Columns(index=step, steps=np.array([step]), wall_times=np.array([BEGAN + step]),
                              values=values, ordinals=np.array([step]))  # fmt: skip
            writer.append(Key(kind="logged", tag=tag), columns)
        writer.flush()

    return append


def costs(folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    appends = [begin(folder / f"run-{i:03d}", "TensorBoard") for i in range(N_RUNS)]
    for append in appends:
        append(0)
    with serving(folder) as (link, pid):
        base, _, token = link.partition("/#token=")
        tabs = [tab(base, token) for _ in range(N_TABS)]
        time.sleep(5)
        reading = ThreadPoolExecutor(N_TABS)
        for socket in tabs:
            reading.submit(deque, socket, 0)  # reads until the socket is closed
        idle = share(pid, lambda step: None)
        yield f"{N_TABS} tabs that show {N_RUNS} runs, none of which grows: the server", 100 * idle, "% of a core", 3.0
        one = share(pid, appends[0])
        yield "  one of them grows 5 times a second", 100 * one, "% of a core", None
        for socket in tabs:
            socket.close()
        reading.shutdown()


def tab(base: str, token: str) -> Any:
    """Return a socket that was told of all runs, and that shows them."""
    socket = connect(base.replace("http", "ws", 1) + "/api/v1/live", max_size=2**26)
    for message in ({"type": "hello", "token": token}, {"type": "runs"}):
        socket.send(json.dumps(message))
    while (told := json.loads(socket.recv()))["type"] != "runs" or len(told["runs"]) < N_RUNS:
        pass
    socket.send(json.dumps({"type": "watch", "runs": [run["key"] for run in told["runs"]]}))
    return socket


def share(pid: int, append: Append) -> float:
    """Return the share of a core that a process takes while a run grows."""
    ticks, began_s = cpu_s(pid), time.perf_counter()
    for step in range(1, round(CPU_S * 5)):
        append(step)
        time.sleep(max(0.0, began_s + step / 5 - time.perf_counter()))
    return (cpu_s(pid) - ticks) / (time.perf_counter() - began_s)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
