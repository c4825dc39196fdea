"""Names that would read as other names: every place of the page shows what they hide."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import go_to

EVIL = "\u202eevil"  # read from right to left: "live"
SHOWN = "\\u202eevil"
TAG = "lo\u2066ss\x1b"
SHOWN_TAG = "lo\\u2066ss\\x1b"


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("names") as folder, sg.init(EVIL, dir=folder, config={"who\u202e": "a\u202eb"}) as run:
        for step in range(20):
            run.log({TAG: 1 / (step + 1), "kernel": sg.Tensor([[1.0, 2.0]])}, step=step)
    return shelf.server


def hidden(page):
    """Return the texts and tooltips of the page with a character that changes the direction, or a control."""
    return page.evaluate(
        r"""() => {
          const odd = /[\u202a-\u202e\u2066-\u2069\x1b]/, found = []
          for (const one of document.querySelectorAll('*'))
            for (const text of [...[...one.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data),
              one.title, one.getAttribute('aria-label')]) if (text && odd.test(text)) found.push(text)
          return found
        }"""
    )


def test_every_page_shows_what_names_hide(open_page, server):
    page = open_page(server.controller, "/runs?project=names")
    expect(page.locator("bdi").get_by_text(SHOWN).first).to_be_visible()  # apart from the text around it
    for at, shown in (
        ("/charts", SHOWN_TAG),
        ("/tensors", SHOWN),
        ("/media", SHOWN),
        ("/control", SHOWN),
        ("/runs", SHOWN),
    ):
        go_to(page, f"{at}?project=names")
        expect(page.get_by_text(shown).first).to_be_attached()
        assert hidden(page) == [], at
    page.get_by_role("button", name=SHOWN).first.click()
    expect(page.get_by_role("complementary")).to_contain_text("who\\u202e")
    expect(page.get_by_role("complementary")).to_contain_text("a\\u202eb")
    assert hidden(page) == []
