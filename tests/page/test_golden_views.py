"""The page shows what it showed, see `tests/views/golden.py`, and a notebook draws every view."""

from __future__ import annotations

import base64
import itertools
from importlib import resources

import pytest
from playwright.sync_api import expect
from tests.views import browser_facts, facts, golden

from sightglass.views.surfaces.notebook import NotebookView

# Places depend on the widths of axes, so on fonts.
WITHIN = 0.04
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


@pytest.mark.slow
@pytest.mark.parametrize("slower", [1, 20])
def test_the_page_shows_the_golden_pictures(browser, own_place, slower):
    with own_place.recording() as folder:
        browser_facts.record(folder, golden.VIEWS)

    def wrong(theme, name, found):
        lost = facts.differences(found, golden.stored("page", name, theme), within=WITHIN)
        return [golden.AGAIN, *lost] if lost else []

    shown = browser_facts.page_facts(browser, own_place.serve().controller, golden.VIEWS, wrong=wrong, slower=slower)
    assert all(found.keys() >= golden.names("page") for found in shown.values())


@pytest.mark.slow
def test_a_notebook_draws_every_view(browser):
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.route(f"{ORIGIN}**", serve)
    page.goto(ORIGIN)
    page.wait_for_function("!!window.show")
    for name, make in golden.VIEWS.items():
        sources, options = make()
        page.evaluate(
            "([name, options, messages]) => show(name, options, messages)", [name, *messages_of(sources, options)]
        )
        cell = page.locator(f'[id="{name}"]')
        shown = cell.locator("canvas, svg:not(.icon):not(.swatch), img, table, [role=log], [role=list]").first
        expect(shown).to_be_visible()
        expect(cell.get_by_text("No records yet")).to_have_count(0)
    page.close()
    assert problems == []


def messages_of(sources, options):
    """Return the options of a widget, and the messages that a page gets that asks for everything."""
    view, sent, clock = NotebookView(sources, **options), [], itertools.count()
    widget = view._widget
    widget.send = lambda content, buffers: sent.append(
        [dict(content), [base64.b64encode(one).decode() for one in buffers]]
    )
    widget.receive({"type": "ready", "page": "golden"})
    n = -1
    while len(sent) > n:
        n = len(sent)
        widget.turn(float(next(clock)))
        for content, _ in sent[n:]:
            widget.receive({"type": "ack", "page": "golden", "n": content["n"]})
    return dict(widget._widget.options), sent


def serve(route):
    if route.request.url.endswith("views.js"):
        route.fulfill(path=str(MODULE), content_type="text/javascript")
    else:
        route.fulfill(body="" if "favicon" in route.request.url else NOTEBOOK, content_type="text/html")
