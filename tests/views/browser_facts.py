"""What the page shows of every view, in a browser; `drawn.js` notes what canvases are drawn on with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from playwright.sync_api import Browser, Page
from tests.waiting import PATIENCE_S, wait_until

import sightglass as sg
from sightglass.core.source import restarts_of

NOTES = Path(__file__).with_name("drawn.js").read_text()
# The page's names of options.
WORDS = {"smooth": "smooth={}", "over": "over={}", "log_y": "ylog", "frames": "frames", "history": "history={}"}
# The pages about recorded runs, with what they show of the run that `record` makes.
PAGES = {
    "charts page": "/charts",
    "tensors page": "/tensors?tensor=heatmap_0.value&heat=1&from={run}",
    "histograms page": "/tensors?tensor=histogram_0.value&from={run}",
    "media page": "/media?media=images_0.value",
    "texts page": "/media?media=text_0.value",
}
FACTS = """([selector, names]) =>
  Object.fromEntries([...document.querySelectorAll(selector)].map((one, i) => [names[i], factsOf(one)]))"""
WHEN = r"(\d{4}-\d\d-\d\d )?\d?\d:\d\d:\d\d"
N_STILL, LOOK_MS = 6, 100  # a page that was the same in so many looks has drawn everything

Views = Mapping[str, Callable[[], tuple[list[Any], dict[str, Any]]]]
Facts = dict[str, list[str]]
Wrong = Callable[[str, str, list[str]], Any]
"""Returns what is wrong with the facts of a view in a theme, given both names; something false if nothing is."""


def page_facts(
    browser: Browser, link: str, views: Views, folder: Path | None = None, wrong: Wrong = lambda *facts: None,
    slower: float = 1,
) -> dict[str, Facts]:  # fmt: skip
    """Return what the page shows of each view of a recorded run, by theme.

    Args:
        browser: The browser.
        link: The link of a server with one run, which `record` wrote.
        views: The views.
        folder: Where pictures of them go, if anywhere.
        wrong: Says what the page does not show yet.
        slower: How many times slower the browser is while streams are opened.
    """
    with _opened(browser) as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        base, _, token = link.partition("#")
        page.goto(f"{base}#/runs?{token}")
        page.get_by_role("button", name="golden", exact=True).click()
        page.wait_for_function("() => location.hash.includes('run=')")
        key = re.findall(r"run=(\w+)", page.url)[-1]
        panels = [quote(_panel(key, name, *make())) for name, make in views.items()]
        places = ["/charts?" + "&".join(f"ask={panel}" for panel in panels)]
        places += [place.format(run=key) for place in PAGES.values()]
        found = {theme: _look(page, theme, places, list(views), folder, wrong, slower) for theme in ("light", "dark")}
        assert not errors
        return found


def _look(
    page: Page, theme: Literal["light", "dark"], places: list[str], names: list[str], folder: Path | None, wrong: Wrong,
    slower: float,
) -> Facts:  # fmt: skip
    """Return what is shown at the first place, that of the panels, and at the others."""

    def settled(selector: str, names: list[str], picture: str) -> Facts:
        return _settled(page, selector, names, partial(wrong, theme), folder and folder / picture)

    page.emulate_media(color_scheme=theme)
    page.reload()  # all is drawn anew; there is no stream now that would be cut off
    page.evaluate("place => { location.hash = place }", "/charts")
    runs = page.get_by_role("button", name="List of runs")
    runs.click()  # the cards are as wide as the window
    throttle = page.context.new_cdp_session(page)
    throttle.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.evaluate("place => { location.hash = place }", places[0])
    drawn = """n => document.querySelectorAll('.ask-body').length === n
        && [...document.querySelectorAll('.ask-body')].every((one) => one.childElementCount)
        && !document.querySelector('.ask-body .chart-empty')
        && [...document.querySelectorAll('.stream-row .costs')].every((one) => one.textContent.startsWith('ended'))"""
    page.wait_for_function(drawn, arg=len(names), timeout=1e3 * PATIENCE_S)
    throttle.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    found = settled(".ask-body", names, f"page-all-{theme}.png")
    runs.click()
    for name, place in zip(PAGES, places[1:], strict=True):
        page.evaluate("place => { location.hash = place }", place)
        page.wait_for_function("() => document.querySelector('#main canvas, #main img, #main [role=log]')")
        found |= settled("#main", [name], f"page-{name}-{theme}.png".replace(" ", "-"))
    return found


def record(folder: Path, views: Views) -> None:
    """Record the streams of each view: one event for each stream. Where one begins again, so does the run."""
    streams = {_event(name, i): source for name, make in views.items() for i, source in enumerate(make()[0])}
    starts = {event: [0, *restarts_of(source)] for event, source in streams.items()}
    for process in range(max(map(len, starts.values()))):
        with sg.init(
            "golden",
            budget=None,
            files=sg.Files(into=folder / "golden"),
            record=[f"{event}.value" for event in streams if process < len(starts[event])],
        ) as run:
            for event, source in streams.items():
                begin, end = (
                    [*starts[event], None, None][process : process + 2] if process < len(starts[event]) else (0, 0)
                )
                for one in source.records[begin:end]:
                    run.observe(event, step=int(one.step), value=one.value)


def _panel(key: str, name: str, sources: list[Any], options: dict[str, Any]) -> str:
    words = [options.get("view", ""), *(word.format(options[of]) for of, word in WORDS.items() if of in options)]
    lines = []
    for i, source in enumerate(sources):
        own = [*(words if i == 0 else [""]), *(["second"] if source in options.get("second", ()) else [])]
        lines.append(f"{key if i == 0 else ''}|{','.join(own)}|{_event(name, i)}.value")
    return "\n".join(lines)


def _event(name: str, i: int) -> str:
    return f"{name.replace(' ', '_')}_{i}"


@contextmanager
def _opened(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 900, "height": 12_000})
    context.add_init_script(NOTES)
    try:
        yield context.new_page()
    finally:
        context.close()


def _settled(
    page: Page, selector: str, names: list[str], wrong: Callable[[str, list[str]], Any], picture: Path | None
) -> Facts:
    """Return the facts of each element once they stay the same and are not wrong: charts are drawn one by one."""
    seen: list[Facts] = []

    def look() -> Facts:
        found: Facts = page.evaluate(FACTS, [selector, names])
        return {name: [re.sub(WHEN, "hh:mm:ss", fact) for fact in found[name]] for name in names}

    def faults() -> dict[str, Any]:
        return {name: fault for name in names if (fault := wrong(name, seen[-1][name]))}

    def still() -> bool:
        seen.append(look())
        return seen[-N_STILL:] == [seen[-1]] * N_STILL and not faults()

    what = lambda: faults() or "the page stays as it is"  # noqa: E731
    wait_until(still, what, pause=lambda: page.wait_for_timeout(LOOK_MS))
    if picture:
        page.screenshot(path=picture, full_page=True)
    return seen[-1]
