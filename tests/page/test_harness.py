"""The tests can fail: what goes wrong in a page is noticed by what watches it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import chart, color_of, drawn, ink, overflow, until, violations
from .tabs import Tabs


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("harness") as folder, sg.init("line", dir=folder) as run:
        for step in range(50):
            run.log({"y": float(step)}, step=step)
    return shelf.server


@pytest.fixture
def watched(browser, server):
    """Return a page, and what watches it, which is not asked at the end."""
    tabs = Tabs(browser)
    page = tabs.open(server.controller, "/charts?project=harness")
    expect(chart(page, "y")).to_be_visible()
    yield page, tabs
    tabs.problems.clear()
    tabs.close()


WRONG = {
    "console.error('it broke')": "it broke",
    "console.warn('take care')": "take care",
    "setTimeout(() => { throw new Error('thrown') })": "thrown",
    "setTimeout(() => alert('evil'))": "dialog: evil",
    "fetch('api/v1/nothing')": "status of 401",
    "fetch('http://localhost:9/').catch(() => 0)": "Content Security Policy",
    "const s = document.createElement('script'); s.text = '1'; document.body.append(s)": "Content Security Policy",
    "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')": "Content Security Policy",
}


def test_page_errors_and_requests_to_other_hosts_are_noticed(watched):
    page, tabs = watched
    for wrong, noticed in WRONG.items():
        tabs.problems.clear()
        page.evaluate(f"() => {{ {wrong} }}")
        until(page, lambda noticed=noticed: any(noticed in one for one in tabs.problems), noticed)
    tabs.hosts.clear()
    page.evaluate("() => fetch('api/v1/session').catch(() => 0)")
    until(page, lambda: any("another host" in one for one in tabs.problems))
    with pytest.raises(AssertionError, match="another host"):
        tabs.close()


def test_wrong_looks_and_pixels_are_noticed(watched):
    page, _ = watched
    pixels_are_where_they_are(page)
    wrong_looks_are_noticed(page)


def wrong_looks_are_noticed(page):
    assert violations(page) == overflow(page) == []
    page.evaluate("""() => {
      const main = document.querySelector('main')
      main.insertAdjacentHTML('beforeend', '<button style="color: #777; background: #666">faint</button>')
      document.body.style.overflow = 'visible'
      document.body.insertAdjacentHTML('beforeend', '<p style="position: absolute; width: 3000px">wide</p>')
      const narrow = 'width: 20px; overflow: hidden; white-space: nowrap'
      document.body.insertAdjacentHTML('beforeend', `<button style="${narrow}">cut off</button>`)
    }""")
    assert any("color-contrast" in one and "faint" in one for one in violations(page))
    found = overflow(page)
    assert "the page is wider than its window" in found
    assert any("cut off" in one for one in found)


def pixels_are_where_they_are(page):
    color = color_of(page, "line")
    line = drawn(chart(page, "y"), color)
    assert line.span(0.2)[1] < 0.4 < 0.6 < line.span(0.8)[0]
    assert ink(chart(page, "y"), (1, 250, 1)).n == 0
    chart(page, "y").locator("canvas").evaluate("canvas => canvas.getContext('2d').clearRect(0, 0, 5000, 5000)")
    assert ink(chart(page, "y"), color).n == 0
