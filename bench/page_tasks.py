"""Things that people come for, done on the page by a driver that counts what they take.

A sweep of 60 runs and a live run are served, and each task is walked in headless Chromium from the controller's link
on. Clicks, keys, drags, hovers and texts typed count one each. An answer that is wrong ends the measurement. Pictures
of how the tasks end are left in `build/page_tasks`: in light, in dark, on a phone and on a wide screen.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from bench import sweep
from bench.page import launch, serving
from bench.row import Row
from bench.sweep import Sweep

MAX_ACTIONS: Final = 5
LIVE: Final = "live"
GROUP: Final = "lr=0.01 model.act=gelu model.depth=4 opt.name=adam opt.wd=0.01"  # of `sweep.SEEDS`
PICTURES: Final = Path(__file__).parents[1] / "build" / "page_tasks"
Scheme = Literal["light", "dark"]
LOOKS: Final[dict[str, tuple[int, int, Scheme]]] = {
    "light": (1440, 900, "light"),
    "dark": (1440, 900, "dark"),
    "phone": (390, 844, "light"),
    "wide": (2560, 1300, "light"),
}

# The columns of a canvas in which the line reaches highest, as a share of the plot's width.
HIGHEST = """
canvas => {
  const { width, height } = canvas
  const { data } = canvas.getContext('2d').getImageData(0, 0, width, height)
  const over = canvas.parentElement.querySelector('.u-over').getBoundingClientRect()
  const box = canvas.getBoundingClientRect()
  const ratio = width / box.width
  const [left, right] = [over.left - box.left, over.right - box.left].map((x) => Math.round(x * ratio))
  for (let y = 0; y < height; y++)
    for (let x = left + 2; x < right; x++) {
      const i = 4 * (y * width + x)
      const [r, g, b, a] = [data[i], data[i + 1], data[i + 2], data[i + 3]]
      if (a > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 30) return (x - left) / (right - left)
    }
  return null
}
"""


LIVE_RUN: Final = """
import sys, time, sightglass as sg
with sg.init(sys.argv[1], dir=sys.argv[2]) as run:
    for step in range(1_000_000):
        run.observe("batch", step=step, loss=1 / (1 + step))
        run.log({"speed": 100.0}, step=step)
        time.sleep(0.05)
        if run.stopping:
            break
"""


@contextlib.contextmanager
def _live(folder: Path) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", LIVE_RUN, LIVE, str(folder)]) as process:
        try:
            yield
        finally:
            process.kill()


class Driver:
    """A person at a page.

    Attributes:
        page: The page.
        link: Where it was opened.
        n: How many things were done so far.
    """

    def __init__(self, page: Page, link: str) -> None:
        self.page = page
        self.link = link
        self.n = 0

    def click(self, target: Locator) -> None:
        """Click."""
        self.n += 1
        target.click()

    def write(self, target: Locator, text: str, *, enter: bool = False) -> None:
        """Type a text, and press Enter if that is how it is given."""
        self.n += 1
        target.fill(text)
        if enter:
            target.press("Enter")

    def press(self, key: str) -> None:
        """Press a key."""
        self.n += 1
        self.page.keyboard.press(key)

    def choose(self, target: Locator, value: str) -> None:
        """Take an entry of a list: one click to open it, one on the entry."""
        self.n += 2
        target.select_option(value)

    def point(self, target: Locator, share: float, height: float = 0.5) -> None:
        """Hover over a place of a chart's plot."""
        self.n += 1
        target.scroll_into_view_if_needed()
        box = target.locator(".u-over").bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + share * box["width"], box["y"] + height * box["height"])

    def click_plot(self, target: Locator, share: float, height: float = 0.5) -> None:
        """Click on a place of a chart's plot."""
        self.point(target, share, height)
        self.page.mouse.down()
        self.page.mouse.up()

    def drag(self, target: Locator, start: float, end: float) -> None:
        """Drag over a range of a chart's plot."""
        self.n += 1
        target.scroll_into_view_if_needed()
        box = target.locator(".u-over").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + start * box["width"], middle)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + (start + end) / 2 * box["width"], middle, steps=4)
        self.page.mouse.move(box["x"] + end * box["width"], middle, steps=4)
        self.page.mouse.up()

    def go(self, name: str) -> None:
        """Go to a page."""
        self.click(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True))

    def open_list(self) -> None:
        """Open the list of runs where it is not in sight, as on a phone."""
        if not self.page.get_by_role("navigation", name="Runs", exact=True).is_visible():
            self.click(self.page.get_by_role("button", name="List of runs"))

    def close_list(self) -> None:
        """Leave the list of runs where it covers the charts."""
        scrim = self.page.get_by_role("button", name="Close the list of runs")
        if scrim.is_visible():
            self.n += 1
            width, height = (self.page.viewport_size or {}).values()
            scrim.click(position={"x": width - 10, "y": height / 2})  # beside the list

    def button(self, name: str, *, within: Locator | None = None) -> Locator:
        """Return a button by its whole name."""
        return (within or self.page).get_by_role("button", name=name, exact=True)

    def chart(self, tag: str) -> Locator:
        """Return a tag's chart."""
        return self.page.get_by_role("article", name=tag, exact=True).first


@dataclass(frozen=True, slots=True)
class Task:
    """Something that people come for; `walk` checks that it got what it came for."""

    name: str
    walk: Callable[[Driver, Sweep], None]
    continues: bool = False  # where the task before ended


def rank(driver: Driver, sweep: Sweep) -> None:
    driver.go("Runs")
    driver.click(driver.button("Columns"))
    dialog = driver.page.get_by_role("dialog", name="Columns")
    driver.write(dialog.get_by_role("searchbox", name="Search columns"), "accuracy")
    driver.click(driver.button("val/accuracy max", within=dialog))
    driver.press("Escape")
    first = driver.page.get_by_role("row").nth(1)
    expect(first).to_contain_text(sweep.best)
    expect(first).to_contain_text(f"{sweep.best_accuracy:.4f}"[:-1])


def label(driver: Driver, sweep: Sweep) -> None:
    driver.click(driver.page.get_by_role("checkbox", name=f"Select {sweep.best}"))
    box = driver.page.get_by_role("toolbar", name="Selected runs").get_by_role("combobox", name="Add a label")
    driver.write(box, "best", enter=True)
    expect(driver.page.get_by_role("row").nth(1)).to_contain_text(sweep.best)
    expect(driver.page.get_by_role("row").nth(1)).to_contain_text("best")


def correlation(driver: Driver, sweep: Sweep) -> None:
    driver.press("Escape")
    driver.click(driver.button("Views"))
    first = driver.page.get_by_role("article", name="Rank correlation").get_by_role("listitem").first
    expect(first).to_contain_text("lr")
    expect(first).to_contain_text(f"+{sweep.lr_rank:.2f}")


def narrow(driver: Driver, sweep: Sweep) -> None:
    driver.open_list()
    filter = driver.page.get_by_role("searchbox", name="Filter runs")
    driver.write(filter, "val/accuracy.max > 0.8 and opt.name = adam")
    driver.page.keyboard.press("Escape")  # the completions, which cover the list
    expect(driver.page.get_by_role("checkbox", name=re.compile("^Show sweep-"))).to_have_count(sweep.good)


def seeds(driver: Driver, sweep: Sweep) -> None:
    driver.open_list()
    driver.choose(driver.page.get_by_role("combobox", name="Group", exact=True), "!seed")
    driver.close_list()
    chart = driver.chart("val/accuracy")
    driver.point(chart, 0.5)
    values = chart.get_by_role("group", name="Values at the cursor")
    named = " ".join(part.partition("=")[2] for part in GROUP.split())  # the keys stand once, above
    wanted = re.compile(re.escape(named) + r"([\d.]+)n = 4 · ([\d.]+) … ([\d.]+)")
    expect(values).to_contain_text(wanted)
    said = values.text_content() or ""
    found = wanted.search(said)
    assert found, said
    mean, low, high = map(float, found.groups())
    assert low < mean < high, said
    assert abs(mean - sweep.seeds_mean) < 0.02, (said, sweep.seeds_mean)


def spike(driver: Driver, sweep: Sweep) -> None:
    driver.open_list()
    driver.click(driver.button("All"))
    driver.close_list()
    chart = driver.chart("train/loss")
    at = _highest(chart)
    driver.drag(chart, at - 0.04, at + 0.04)
    expect(driver.button("Reset zoom (double click)", within=chart)).to_have_count(1)
    driver.point(chart, _highest(chart))
    values = chart.get_by_role("group", name="Values at the cursor")
    expect(values).to_contain_text(f"step {sweep.spike[1]}")
    expect(values).to_contain_text(sweep.spike[0])


def moment(driver: Driver, sweep: Sweep) -> None:
    chart = driver.chart("train/loss")
    driver.click_plot(chart, _highest(chart), 0.06)
    drawer = driver.page.get_by_role("complementary", name=re.compile("at a moment$"))
    expect(drawer).to_contain_text(f"step {sweep.spike[1]}")
    expect(drawer).to_contain_text(sweep.spike[0])
    for tag in ("train/loss", "train/grad_norm", "val/accuracy"):
        expect(drawer.get_by_role("term").filter(has_text=tag)).to_be_visible()


def _highest(chart: Locator) -> float:
    """Return where the line reaches highest, as a share of the plot's width, once the picture stands still."""
    canvas = chart.locator("canvas").first
    seen = [-1.0, -2.0]
    while len(set(seen[-5:])) > 1:
        chart.page.wait_for_timeout(150)
        found = canvas.evaluate(HIGHEST)
        seen.append(float(len(seen)) if found is None else found)
        assert len(seen) < 200, "the chart does not stand still"
    return seen[-1]


def differences(driver: Driver, sweep: Sweep) -> None:
    driver.go("Runs")
    for name in sweep.two:
        driver.click(driver.page.get_by_role("checkbox", name=f"Select {name}"))
    driver.click(driver.button("Compare", within=driver.page.get_by_role("toolbar", name="Selected runs")))
    for key in sweep.differing:
        expect(driver.page.get_by_role("rowheader", name=key, exact=True).first).to_be_visible()
    expect(driver.page.get_by_role("rowheader", name="seed", exact=True)).to_have_count(0)


def share(driver: Driver, sweep: Sweep) -> None:
    driver.open_list()
    driver.write(driver.page.get_by_role("searchbox", name="Filter runs"), "opt.name = lion")
    driver.page.keyboard.press("Escape")
    driver.close_list()
    driver.click(driver.page.get_by_role("button", name=re.compile("^Copy a link")))
    expect(driver.page.get_by_role("status").filter(has_text="Link copied")).to_be_visible()
    link = driver.page.evaluate("navigator.clipboard.readText()")
    assert "token" not in link, link
    other = driver.page.context.browser.new_page()  # of somebody else, who has a link of their own
    other.goto(driver.link)
    other.goto(link)
    expect(other.get_by_role("article", name="val/accuracy", exact=True)).to_be_visible()
    assert "lion" in other.get_by_role("searchbox", name="Filter runs").input_value(), other.url
    other.close()


def nan(driver: Driver, sweep: Sweep) -> None:
    driver.open_list()
    driver.click(driver.button("All"))
    driver.close_list()
    chart = driver.chart("train/loss")
    expect(chart).to_contain_text("1 NaN or ∞")
    driver.point(chart, sweep.nan[1] / (sweep.n_steps - 1), 0.99)
    values = chart.get_by_role("group", name="Values at the cursor")
    expect(values).to_contain_text(f"step {sweep.nan[1]}")
    expect(values).to_contain_text(sweep.nan[0])
    expect(values).to_contain_text("NaN")


def stop(driver: Driver, sweep: Sweep) -> None:
    driver.go("Control")
    driver.click(driver.button("Stop …"))
    driver.click(driver.button("Stop it", within=driver.page.get_by_role("dialog", name=f"Stop {LIVE}")))
    expect(driver.page.get_by_role("main")).to_contain_text("This run is over")
    expect(driver.page.get_by_role("listitem").filter(has_text=re.compile("^stop"))).to_be_visible()


def answer(driver: Driver, sweep: Sweep) -> None:
    driver.write(driver.page.get_by_role("combobox", name="Query"), "batch.loss.mean(every=2)", enter=True)
    card = driver.page.get_by_role("region", name="Asked").get_by_role("article").first
    expect(card.locator(".stream-row b").first).to_have_text(re.compile(r"\d"))


def crash(driver: Driver, sweep: Sweep) -> None:
    name, why = sweep.crashed
    driver.open_list()
    driver.write(driver.page.get_by_role("searchbox", name="Filter runs"), "state = failed")
    driver.page.keyboard.press("Escape")  # the completions, which cover the list
    listed = driver.page.get_by_role("navigation", name="Runs", exact=True)
    driver.click(listed.get_by_role("button", name=name, exact=True))
    details = driver.page.get_by_role("complementary", name=f"Run {name}")
    expect(details).to_contain_text(re.compile(f"failed at log 89 after .*{why}"))


def stuck(driver: Driver, sweep: Sweep) -> None:
    driver.go("Control")
    driver.click(driver.button("Stacks"))
    expect(driver.page.get_by_role("dialog", name=f"Stacks of {LIVE}")).to_contain_text(f"run {LIVE}: in ")


def repeat(driver: Driver, sweep: Sweep) -> None:
    chart = driver.chart("val/accuracy")
    driver.point(chart, 0.5)
    driver.click(driver.button("Save or copy val/accuracy", within=chart))
    driver.click(driver.page.get_by_role("menuitem", name="Copy as Python"))
    expect(driver.page.get_by_role("status").filter(has_text="Python copied")).to_be_visible()
    program = driver.page.evaluate("navigator.clipboard.readText()")
    drawn: list[Any] = []
    # What the page copies is to run as it is; only the drawing, which goes on in the background, is replaced.
    exec(program.replace("sg.plot(", "keep("), {"keep": lambda *streams, **_: drawn.extend(streams)})  # noqa: S102
    assert {stream.tag for stream in drawn} == {"val/accuracy"}, program


def export(driver: Driver, sweep: Sweep) -> None:
    chart = driver.chart("val/accuracy")
    driver.point(chart, 0.5)
    driver.click(driver.button("Save or copy val/accuracy", within=chart))
    with driver.page.expect_download() as got:
        driver.click(driver.page.get_by_role("menuitem", name="SVG picture"))
    picture = Path(got.value.path()).read_text()
    assert picture.startswith("<svg"), picture[:200]
    assert "val/accuracy" in picture, picture[:200]


TASKS: Final = (
    Task("rank a sweep by its best val/accuracy", rank),
    Task("  label the best run, from there on", label, continues=True),
    Task("  which hyper-parameter it goes with, from there on", correlation, continues=True),
    Task("narrow the sweep by an expression", narrow),
    Task("mean and band over all but the seed", seeds),
    Task("find a spike, its run and its step", spike),
    Task("  all that was recorded then, from there on", moment, continues=True),
    Task("where two configurations differ", differences),
    Task("share what is in sight by a link", share),
    Task("find the run and the step of a NaN", nan),
    Task("an answer of one's own from a live run", answer),
    Task("why a run crashed", crash),
    Task("where a live run is stuck", stuck),
    Task("stop a live run", stop),
    Task("export a chart for a paper", export),
    Task("repeat a chart in Python", repeat),
)


def walked(browser: Browser, link: str, sweep: Sweep, look: str, pictures: Path | None) -> Iterator[tuple[Task, int]]:
    """Walk all tasks, and yield how many actions each took.

    Args:
        browser: Where to.
        link: The controller's link of a server of the sweep and of a run named `LIVE`.
        sweep: What is true of the runs.
        look: One of `LOOKS`.
        pictures: The folder for pictures of how the tasks ended; `None` for none.
    """
    driver: Driver | None = None
    for number, task in enumerate(TASKS, 1):
        if driver is None or not task.continues:
            if driver is not None:
                driver.page.context.close()
            driver = Driver(_opened(browser, link, look), link)
        driver.n = 0
        try:
            task.walk(driver, sweep)
        except Exception as error:
            error.add_note(f"The task was to {task.name.strip()}; {driver.n} actions were taken ({look})")
            if pictures:
                driver.page.screenshot(path=pictures / f"failed-{number:02}-{look}.png")
            raise
        if pictures:
            driver.page.screenshot(path=pictures / f"{number:02}-{look}.png")
        yield task, driver.n
    if driver is not None:
        driver.page.context.close()


def _opened(browser: Browser, link: str, look: str) -> Page:
    width, height, scheme = LOOKS[look]
    options: dict[str, Any] = {"permissions": ["clipboard-read", "clipboard-write"]}
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=look == "phone", **options
    )
    page = context.new_page()
    page.goto(link)
    page.get_by_role("article", name="val/accuracy", exact=True).wait_for()
    return page


def measure() -> Iterator[Row]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sgb") as name, sync_playwright() as playwright:
        browser = launch(playwright)
        for number, look in enumerate(LOOKS):
            folder = Path(name) / str(number)
            made = sweep.make(folder)
            with _live(folder), serving(folder) as (link, _):
                for task, n in walked(browser, link, made, look, PICTURES):
                    what = task.name if look == "light" else f"{task.name} ({look})"
                    yield Row(what, n, "", MAX_ACTIONS)
        browser.close()
