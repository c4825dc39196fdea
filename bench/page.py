"""The page in headless Chromium: many charts, many tabs, what it weighs."""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

import sightglass as sg

N_CHARTS, N_RUNS = 100, 10
N_TABS = 8  # fifty that all draw are more than two cores without a graphics card can open in minutes
ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
]  # fmt: skip

# 1,000 events a second; `level` jumps between 0 and 1 at random times, which are printed.
TRAINING = """
import random, sys, time, sightglass as sg
run, level, flips, flip = sg.init(sys.argv[1], mode="live"), 0.0, [], time.time() + 1
began = time.perf_counter()
for step in range(1_000_000):
    time.sleep(max(0.0, began + step / 1000 - time.perf_counter()))
    if time.time() >= flip:
        level, flip = 1 - level, time.time() + random.uniform(0.5, 0.9)
        flips.append(time.time())
    run.observe("batch", step=step, level=level)
    if run.stopping:
        break
print(*flips, flush=True)
"""

PROBE = Path(__file__).with_name("page_probe.js")
DRAWN = "() => window.probe?.drawn()"


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as folder, sync_playwright() as playwright:
        browser = launch(playwright)
        yield "what the browser loads first, compressed", _weight() / 1000, "kB", 400
        yield from _many_charts(browser, Path(folder) / "many")
        yield from _tabs(browser, Path(folder) / "tabs")
        browser.close()


def launch(playwright: Playwright) -> Browser:
    """Start the browser."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    return playwright.chromium.launch(executable_path=path, headless=True, args=ARGS)


def _weight() -> float:
    """Return the compressed size of the page without what is loaded when used, in bytes."""
    static = Path(str(files("sightglass.server") / "static"))
    index = static / "index.html"
    loaded = [index, *(static / name for name in re.findall(r'(?:src|href)="\./([^"]+)"', index.read_text()))]
    return sum(len(gzip.compress(path.read_bytes())) for path in loaded if path.is_file())


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve a folder; gives the link and the server's process number."""
    command = [sys.executable, "-m", "sightglass", "ui", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().partition(":")[2].strip(), server.pid
        finally:
            server.terminate()


def memory_mb(pid: int) -> float:
    """Return the most memory that a process ever had, in MB; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 / 1e6 if found else 0.0
    return 0.0


def new_page(browser: Browser) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(path=PROBE)
    return page


def opened(browser: Browser, link: str, place: str) -> Page:
    page = new_page(browser)
    base, _, token = link.partition("#")
    page.goto(f"{base}#{token}")
    page.get_by_role("navigation", name="Pages").wait_for()
    page.evaluate("place => { location.hash = place }", place)
    return page


def _many_charts(browser: Browser, folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    rng = np.random.default_rng(0)
    for number in range(N_RUNS):
        with sg.init(f"run-{number}", dir=folder) as run:
            walks = rng.normal(size=(1000, N_CHARTS)).cumsum(axis=0)
            for step, values in enumerate(walks.tolist()):
                run.log({f"group{i // 10}/tag{i % 10}": value for i, value in enumerate(values)}, step=step)
    with serving(folder) as (link, _):
        page = opened(browser, link, "#/charts")
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(1000)
        frames = np.array(page.evaluate("probe.scroll(10)"))
        yield "100 charts x 10 runs, scrolled: mean of a frame", float(frames.mean()), "ms", 33.3
        yield "  95 of 100 frames within", float(np.quantile(frames, 0.95)), "ms", None
        page.context.close()


@contextlib.contextmanager
def training(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Train in a folder, until somebody stops it."""
    folder.mkdir()
    command = [sys.executable, "-c", TRAINING, folder.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as training:
        try:
            yield training
        finally:
            training.kill()


def _tabs(browser: Browser, folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    with training(folder), sg.connect(folder.name, wait_s=10) as run, serving(folder) as (link, pid):
        tabs = [opened(browser, link, "#/charts")]
        ask(tabs[0], "batch.level")
        tabs[0].wait_for_function(DRAWN)
        memory = memory_mb(pid)
        for _ in range(N_TABS - 1):
            tabs.append(opened(browser, link, "#/charts"))
            ask(tabs[-1], "batch.level")
            tabs[-1].wait_for_function(DRAWN)
        yield f"{N_TABS} tabs that ask the same: streams of the run", len(run.describe().streams), "", 1
        yield "  the server's memory more", memory_mb(pid) - memory, "MB", None
        for tab in tabs:
            tab.context.close()
        run.stop()


def ask(page: Page, query: str) -> None:
    box = page.get_by_role("combobox", name="Query")
    box.fill(query)
    box.press("Escape")
    box.press("Enter")
