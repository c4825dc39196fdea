"""The page over TLS, opened by a personal link that is then revoked."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from playwright.sync_api import expect

import sightglass as sg


def test_a_personal_link_over_tls_until_it_is_revoked(own_place, open_page):
    own_place.train("live")
    server = own_place.serve("--tls")
    assert server.base.startswith("https://")

    def links(*arguments):
        command = [sys.executable, "-m", "sightglass", "links", *arguments]
        return subprocess.run(
            command, env={**os.environ, **own_place.environment}, capture_output=True, text=True, check=True
        ).stdout.strip()

    link = links("add", "ada", "--role", "controller", "--base-url", server.base)
    page = open_page(link, "/control", ignore_https_errors=True, expects=["status of 401", "WebSocket"])
    expect(page.locator("bdi", has_text="ada")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".command-history")).to_contain_text(re.compile(r"pause.*by ada \(", re.DOTALL))
    page.get_by_role("button", name="Resume").click()
    links("revoke", "ada")
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("revoked")


def test_a_copied_address_in_a_new_tab_asks_for_the_link_and_shows_the_same(own_place, open_page):
    with own_place.recording() as folder, sg.init("job", dir=folder) as run:
        run.log({"loss": 1.0, "other": 2.0}, step=0)
    server = own_place.serve()
    first = open_page(server.controller, "/charts?tags=loss", expects=["status of 401", "a window was opened"])
    expect(first.get_by_role("article", name="loss")).to_be_visible()
    with first.context.expect_page() as opened:
        first.get_by_role("link", name="Runs").click(modifiers=["Control"])
    expect(opened.value.get_by_role("row").filter(has_text="job")).to_be_visible()
    assert "token" not in opened.value.url
    opened.value.close()
    tab = first.context.new_page()  # of the same window, and still without a token
    tab.goto(f"{server.base}#/charts?tags=loss")
    expect(tab.get_by_role("heading", name="This page needs its link")).to_be_visible()
    box = tab.get_by_role("textbox", name="Your link")
    box.fill(server.base)
    box.press("Enter")
    expect(tab.get_by_role("alert")).to_contain_text("Expected a link with #token=")
    box.fill(server.viewer)
    box.press("Enter")
    expect(tab.get_by_role("article", name="loss")).to_be_visible()
    expect(tab.get_by_role("article", name="other")).to_have_count(0)
    expect(tab.get_by_text("viewer", exact=True)).to_be_visible()
    assert "token" not in tab.url
