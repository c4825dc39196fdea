"""Scrolling 100 charts of 10 runs beside a bare page of uPlot's charts; how soon the page answers, and opens a sweep.

Both pages scroll from top to bottom in as many frames, in turns, and make charts of one size as they come into sight.
The main thread's time is what it has of a processor in a frame of the scroll, so what else the machine does counts
little. Chromium's time of tasks would not do: a canvas that is drawn in a task, as the bare page's, is filled with
pixels after it, and one that is drawn in a frame within it. The time to the next paint is the browser's own (Event
Timing): from an input to the frame that shows what it did, in steps of 8 ms.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

import sightglass as sg
from bench.bare_page import UPLOT
from bench.page import DRAWN, N_CHARTS, N_RUNS, launch, new_page, opened, serving
from bench.page_server import begin, write
from bench.row import Row

N_POINTS: Final = 1_000
N_ROUNDS: Final = 3
N_FRAMES: Final = 300
N_MANY: Final = 1_000
N_TURNS: Final = 6
N_SWEEP: Final = 10_000
N_RELOADS: Final = 7
REST_MS: Final = 8_000
RANKED: Final = "#/runs?columns=name&columns=tag.max&sort=-tag.max"
FIRST_NUMBER: Final = (
    "() => /\\d/.test(document.querySelectorAll('.table-row:not(.table-head) .table-cell')[1]?.innerText)"
)

BARE = """<!doctype html>
<link rel="stylesheet" href="uPlot.min.css">
<style>
body { margin: 0; height: 100vh; overflow: hidden }
main { height: 100vh; overflow-y: auto; display: grid; grid-template-columns: repeat(3, WIDTHpx); gap: 12px }
article { height: HEIGHTpx }
</style>
<main></main>
<script src="uPlot.iife.min.js"></script>
<script>
const [n_charts, n_runs, n_points] = [N_CHARTS, N_RUNS, N_POINTS]
const colors = ['#1f77b4', '#d62728', '#2ca02c', '#9467bd', '#8c564b', '#e377c2', '#7f7f7f', '#bcbd22', '#17becf',
                '#111111']
const xs = Array.from({ length: n_points }, (_, i) => i)
const begin = async () => {
  const all = new Float64Array(await (await fetch('points')).arrayBuffer())
  const charts = new Map()
  const seen = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      const known = charts.get(target)
      if (!isIntersecting) { known?.destroy(); charts.delete(target) }
      else if (!known) {
        const of = (r) => (Number(target.dataset.chart) * n_runs + r) * n_points
        const ys = Array.from({ length: n_runs }, (_, r) => all.subarray(of(r), of(r + 1)))
        charts.set(target, new uPlot({
          width: WIDTH, height: HEIGHT, legend: { show: false }, scales: { x: { time: false } },
          series: [{}, ...ys.map((_, r) => ({ stroke: colors[r], width: 1.5, points: { show: false } }))],
        }, [xs, ...ys], target))
      }
    }
  }, { root: document.querySelector('main'), rootMargin: '200px' })
  for (let i = 0; i < n_charts; i++) {
    const article = document.createElement('article')
    article.dataset.chart = i
    document.querySelector('main').append(article)
    seen.observe(article)
  }
}
begin()
</script>
"""

# Notes how long each input took until the next paint, in ms.
NOTE = """
() => {
  window.paints = []
  new PerformanceObserver((list) => {
    for (const { interactionId, duration } of list.getEntries()) {
      if (interactionId) window.paints.push([interactionId, duration])
    }
  }).observe({ type: 'event', durationThreshold: 16 })
}
"""


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="sgb") as name, sync_playwright() as playwright:
        browser = launch(playwright)
        yield from _scrolled(browser, Path(name) / "scroll")
        yield from _answers(browser, Path(name) / "many")
        yield from _opens(browser, Path(name) / "sweep")
        browser.close()


def _scrolled(browser: Browser, folder: Path) -> Iterator[Row]:
    walks = np.random.default_rng(0).normal(size=(N_CHARTS, N_RUNS, N_POINTS)).cumsum(axis=-1)
    for run_number in range(N_RUNS):
        with sg.init(f"run-{run_number}", dir=folder) as run:
            for step, values in enumerate(walks[:, run_number].T.tolist()):
                run.log({f"group{i // 10}/tag{i % 10}": value for i, value in enumerate(values)}, step=step)
    ours, bare = [], []
    with serving(folder) as (link, _):
        page = opened(browser, link, "#/charts")
        page.wait_for_function(DRAWN)
        size = page.locator("article canvas").first.bounding_box()
        assert size is not None
        with _bare(walks, round(size["width"]), round(size["height"])) as address:
            other = new_page(browser)
            other.goto(address)
            other.wait_for_function(DRAWN)
            for turn in range(N_ROUNDS + 1):
                times = [_frame_ms(one) for one in (page, other)]
                if turn > 0:  # the first fetches what is drawn later on
                    ours.append(times[0])
                    bare.append(times[1])
    yield _of("100 charts x 10 runs: main thread in a scroll's frame", ours, "ms")
    yield _of("  bare uPlot's, of the same points", bare, "ms")
    ratios = [mine / its for mine, its in zip(ours, bare, strict=True)]
    yield _of("  as a part of the bare page's", ratios, "x", 1.3, by_distance=True)


def _frame_ms(page: Page) -> float:
    """Scroll from top to bottom; return the time of the main thread for each frame."""
    page.bring_to_front()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _thread_s(session)
    page.evaluate(f"probe.scrollIn({N_FRAMES})")
    spent_s = _thread_s(session) - before
    session.detach()
    return 1000 * spent_s / N_FRAMES


def _thread_s(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))


@contextlib.contextmanager
def _bare(walks: Any, width: int, height: int) -> Iterator[str]:
    """Serve the bare page; gives its address."""
    page = BARE
    for name, value in {
        "WIDTH": width, "HEIGHT": height, "N_CHARTS": N_CHARTS, "N_RUNS": N_RUNS, "N_POINTS": N_POINTS,
    }.items():  # fmt: skip
        page = page.replace(name, str(value))
    known = {"/": ("text/html", page.encode()), "/points": ("application/octet-stream", walks.tobytes())}

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in known:
                return super().do_GET()
            kind, content = known[self.path]
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(UPLOT))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def _answers(browser: Browser, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    rows = np.arange(100)
    for i in range(N_MANY):
        writer = begin(folder, f"job-{i:04d}")
        for tag in range(4):
            write(writer, f"tag{tag}", rows, np.sin(rows + i))
        writer.flush()
        writer.close()
    with serving(folder) as (link, _):
        page = opened(browser, link, "#/charts")
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(3000)
        page.evaluate(NOTE)
        for turn in range(N_TURNS):
            _inputs(page, turn)
        page.wait_for_timeout(500)
        longest: dict[int, float] = {}
        for number, took_ms in json.loads(page.evaluate("JSON.stringify(paints)")):
            longest[number] = max(longest.get(number, 0.0), took_ms)
        took = sorted(longest.values())
        n_inputs = page.evaluate("performance.interactionCount")
        took = [0.0] * max(0, n_inputs - len(took)) + took  # those below the browser's threshold of 16 ms
        yield Row("1,000 runs: interaction to next paint, p95", float(np.quantile(took, 0.95)), "ms", 100)
        yield Row("  the longest", took[-1], "ms")
        yield Row("  interactions", len(took), "")


def _opens(browser: Browser, folder: Path) -> Iterator[Row]:
    """Open the table of a large sweep, ranked by the best value of a series."""
    folder.mkdir()
    rows = np.arange(10)
    for i in range(N_SWEEP):
        writer = begin(folder, f"job-{i:05d}")
        write(writer, "tag", rows, np.sin(rows + i))
        writer.flush()
        writer.close()
    sg.open(folder).table(
        best="tag.max"
    )  # so that the totals of all series are beside the runs, as `sg.init` leaves them
    with serving(folder) as (link, _):
        began_s = time.perf_counter()
        page = opened(browser, link, RANKED)
        page.wait_for_function(FIRST_NUMBER, timeout=300_000)
        first_s = time.perf_counter() - began_s
        page.wait_for_timeout(REST_MS)  # in which the server has read the rest of the totals
        took = []
        for _ in range(N_RELOADS):
            page.reload()
            page.wait_for_function(FIRST_NUMBER)
            took.append(page.evaluate("performance.now()") / 1000)
    yield _of("10,000 runs: the page opens with the table ranked by a series", took, "s", 1.5)
    yield Row("  the first time, with all totals to be read", first_s, "s")


def _inputs(page: Page, turn: int) -> None:
    """Do what people do: show and hide runs, filter, zoom by a key, sort and select in the table."""
    page.get_by_role("checkbox").nth(turn).click()
    page.get_by_role("searchbox", name="Filter runs").click()
    page.keyboard.type(f"job-00{turn}", delay=120)
    page.wait_for_timeout(300)
    for _ in range(7):
        page.keyboard.press("Backspace", delay=30)
    page.keyboard.press("Escape")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    page.get_by_role("checkbox").nth(4 + turn).click()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Charts").click()
    page.wait_for_timeout(300)


def _of(what: str, found: list[float], unit: str, target: float | None = None, *, by_distance: bool = False) -> Row:
    return Row(what, float(np.median(found)), unit, target, (min(found), max(found)), by_distance)
