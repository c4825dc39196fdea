"""From an event to its pixel at 1,000 events a second, beside a bare page that draws the same from a bare websocket.

The values jump between two levels at random times. The page looks at the end of its line in every frame, and notes when
it is at the other level; both clocks are the machine's. The two pages take turns, one chart of the same size each.
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
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from websockets.sync.client import connect

import sightglass as sg
from bench.page import DRAWN, ask, launch, new_page, opened, serving, training
from bench.row import Row

EVENTS_PER_S = 1_000
N_ROUNDS, ROUND_S, SETTLE_S = 3, 13, 2
SOCKET_S = 6.0


def measure() -> Iterator[Row]:
    mine: list[list[float]] = []
    bare: list[list[float]] = []
    with tempfile.TemporaryDirectory(prefix="sgb") as name, sync_playwright() as playwright:
        browser = launch(playwright)
        for n in range(N_ROUNDS):
            delays, size = our_delays(browser, Path(name) / f"live{n}")
            mine.append(delays)
            bare.append(bare_delays(browser, size))
        browser.close()
        on_socket = socket_delays(Path(name) / "socket")
    yield of("event to pixel at 1,000 events/s: p50", mine, 0.5)
    yield of("event to pixel at 1,000 events/s: p95", mine, 0.95)
    yield of("  a bare page's: p50", bare, 0.5)
    yield of("  a bare page's: p95", bare, 0.95)
    ratios = [quantile(one, 0.95) / quantile(other, 0.95) for one, other in zip(mine, bare, strict=True)]
    whole = quantile(np.concatenate(mine), 0.95) / quantile(np.concatenate(bare), 0.95)
    yield Row("  p95 as a part of the bare page's", whole, "x", 1.5, (min(ratios), max(ratios)), by_distance=True)
    yield of("  from an event to the page's socket: p50", [on_socket], 0.5)
    yield of("  from an event to the page's socket: p95", [on_socket], 0.95)
    yield Row("  jumps that were seen", sum(map(len, mine)), "")


def of(what: str, rounds: list[list[float]], q: float) -> Row:
    """Return a quantile of all delays, with that of the rounds."""
    each = [quantile(one, q) for one in rounds]
    return Row(what, quantile(np.concatenate(rounds), q), "ms", None, (min(each), max(each)))


def quantile(delays: Any, q: float) -> float:
    return float(np.quantile(delays, q))


def our_delays(browser: Browser, folder: Path) -> tuple[list[float], tuple[int, int]]:
    """Return the delays in ms, and the size of the chart in pixels."""
    with training(folder) as process, serving(folder) as (link, _):
        sg.connect(folder.name, wait_s=10).close()  # it is there; a client that stays would have a pace of its own
        page = opened(browser, link, "#/charts")
        ask(page, "batch.level")
        seen = watched(page)
        box = page.locator("article canvas").first.bounding_box()
        page.context.close()
        with sg.connect(folder.name) as run:
            run.stop()
        assert process.stdout is not None
        assert box is not None
        flips = 1000 * np.array(process.stdout.readline().split(), float)
    return delays_of(seen, flips), (round(box["width"]), round(box["height"]))


def bare_delays(browser: Browser, size: tuple[int, int]) -> list[float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    link = f"http://127.0.0.1:{port}/"
    with subprocess.Popen([sys.executable, "-m", "bench.bare_page", str(EVENTS_PER_S), str(port)]) as server:
        try:
            while not read(link):
                time.sleep(0.05)
            page = new_page(browser)
            page.goto(f"{link}?width={size[0]}&height={size[1]}")
            seen = watched(page)
            flips = 1000 * np.array(read(f"{link}jumps").split(), float)
            page.context.close()
        finally:
            server.terminate()
    return delays_of(seen, flips)


def read(link: str) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(link, timeout=5) as reply:
        return str(reply.read(), "utf-8")
    return ""


def watched(page: Page) -> list[tuple[float, int]]:
    """Watch the chart for a round, and return its jumps: ms since the epoch, and the level."""
    page.wait_for_function(DRAWN)
    page.wait_for_timeout(1000 * SETTLE_S)
    page.evaluate("probe.watch()")
    page.wait_for_timeout(1000 * ROUND_S)
    found: list[tuple[float, int]] = page.evaluate("jumps")
    return found


def delays_of(seen: list[tuple[float, int]], flips: Any) -> list[float]:
    """Return how long before it was seen the last jump was, in ms."""
    return [float(at - flips[flips <= at][-1]) for at, _ in seen[1:]]


def socket_delays(folder: Path) -> list[float]:
    """Return how old the newest record of each message is when a socket that does nothing else gets it, in ms."""
    with training(folder), serving(folder) as (link, _):
        sg.connect(folder.name, wait_s=10).close()
        base, _, token = link.partition("/#token=")
        with connect(base.replace("http", "ws", 1) + "/api/v1/live", max_size=2**26) as page:
            for message in ({"type": "hello", "token": token}, {"type": "runs"}):
                page.send(json.dumps(message))
            while (told := json.loads(page.recv()))["type"] != "runs" or not told["runs"]:
                page.send(json.dumps({"type": "runs"}))
            page.send(json.dumps({"type": "open", "id": 1, "run": told["runs"][0]["key"], "query": "batch.level"}))
            delays, until_s = [], time.time() + SOCKET_S
            while time.time() < until_s:
                frame = page.recv()
                if isinstance(frame, bytes):
                    walls = np.frombuffer(msgspec.msgpack.decode(frame)["wall"], "<f8")
                    delays += (1000 * (time.time() - walls)).tolist()
                    page.send(json.dumps({"type": "ack", "id": 1, "n": 1}))
    return delays[len(delays) // 4 :]  # the first message has the records of before
