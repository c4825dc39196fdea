"""What a notebook and the page show of every view, in a browser; `drawn.js` notes what canvases are drawn on with."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, Page

import sightglass as sg
from sightglass.core.source import restarts_of

NOTES = Path(__file__).with_name("drawn.js").read_text()
MODULE = resources.files("sightglass.views") / "static" / "views.js"
ORIGIN = "http://notebook.test/"
NOTEBOOK = """<!doctype html><meta charset="utf-8"><body style="margin: 20px"><script type="module">
  import { connect } from './views.js'
  crypto.randomUUID = () => 'golden'
  window.show = (name, options, messages) => {
    const cell = document.body.appendChild(document.createElement('div'))
    Object.assign(cell, { id: name, style: 'width: 640px' })
    let hear
    connect({
      get: (what) => (what === 'options' ? options : name),
      on: (event, heard) => { if (event === 'msg:custom') hear = heard },
      send: () => {},
      widget_manager: { get_model: async () => ({ comm_live: true }) },
    })(cell)
    for (const [content, buffers] of messages)
      hear(content, buffers.map((text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer)))
  }
</script>"""
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
STILL_S = 0.6  # a page that has not changed for so long has drawn everything

Views = Mapping[str, Callable[[], tuple[list[Any], dict[str, Any]]]]
Facts = dict[str, list[str]]


def notebook_facts(browser: Browser, views: Views, theme: str, picture: Path) -> Facts:
    """Return what a notebook shows of each view."""
    with _opened(browser, theme) as page:
        page.route(f"{ORIGIN}**", _serve)
        page.goto(ORIGIN)
        page.wait_for_function("!!window.show")
        for name, make in views.items():
            sources, options = make()
            page.evaluate(
                "([name, options, messages]) => show(name, options, messages)",
                [name, *_messages(sources, options | {"dark": theme == "dark"})],
            )
        return _settled(page, "body > div", list(views), picture)


def _messages(sources: list[Any], options: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the options of a widget, and the messages that a page gets that asks for everything."""
    from sightglass.views.surfaces.notebook import NotebookView

    view, sent = NotebookView(sources, **options), []
    widget = view._widget
    widget.send = lambda content, buffers: sent.append(
        [dict(content), [base64.b64encode(one).decode() for one in buffers]]
    )
    widget.receive({"type": "ready", "page": "golden"})
    n = -1
    while len(sent) > n:
        n = len(sent)
        widget.turn(time.monotonic())
        for content, _ in sent[n:]:
            widget.receive({"type": "ack", "page": "golden", "n": content["n"]})
    return dict(widget._widget.options), sent


def page_facts(browser: Browser, link: str, views: Views, theme: str, picture: Path) -> Facts:
    """Return what the page shows of each view of a recorded run.

    Args:
        browser: The browser.
        link: The link of a server with one run, which `record` wrote.
        views: The views.
        theme: What the system prefers.
        picture: A file for a picture of them all.
    """
    with _opened(browser, theme) as page:
        base, _, token = link.partition("#")
        page.goto(f"{base}#/runs?{token}")
        page.get_by_role("button", name="golden", exact=True).click()
        page.wait_for_function("() => location.hash.includes('run=')")
        key = re.findall(r"run=(\w+)", page.url)[-1]
        panels = [quote(_panel(key, name, *make())) for name, make in views.items()]
        page.evaluate("place => { location.hash = place }", "/ask?" + "&".join(f"ask={panel}" for panel in panels))
        drawn = """n => document.querySelectorAll('.ask-body').length === n
            && [...document.querySelectorAll('.ask-body')].every((one) => one.childElementCount)
            && !document.querySelector('.ask-body .chart-empty')"""
        page.wait_for_function(drawn, arg=len(views))
        found = _settled(page, ".ask-body", list(views), picture)
        for name, place in PAGES.items():
            page.evaluate("place => { location.hash = place }", place.format(run=key))
            page.wait_for_function("() => document.querySelector('#main canvas, #main img, #main [role=log]')")
            shown = picture.with_name(picture.name.replace("all", name.replace(" ", "-")))
            found |= _settled(page, "#main", [name], shown)
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
def _opened(browser: Browser, theme: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 900, "height": 12_000}, color_scheme=theme)
    context.add_init_script(NOTES)
    try:
        yield context.new_page()
    finally:
        context.close()


def _serve(route: Any) -> None:
    if route.request.url.endswith("views.js"):
        route.fulfill(path=str(MODULE), content_type="text/javascript")
    else:
        route.fulfill(body="" if "favicon" in route.request.url else NOTEBOOK, content_type="text/html")


def _settled(page: Page, selector: str, names: list[str], picture: Path) -> Facts:
    """Return the facts of each element once they stay the same."""
    found: Facts = {}
    still_s = time.monotonic() + STILL_S
    deadline_s = time.monotonic() + 60
    while time.monotonic() < still_s:
        assert time.monotonic() < deadline_s, "the page goes on changing"
        page.wait_for_timeout(100)
        before, found = found, page.evaluate(FACTS, [selector, names])
        if found != before:
            still_s = time.monotonic() + STILL_S
    page.screenshot(path=picture, full_page=True)
    return {name: [re.sub(WHEN, "hh:mm:ss", fact) for fact in found[name]] for name in names}
