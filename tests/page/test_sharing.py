"""The page over TLS, opened by a personal link that is then revoked."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from playwright.sync_api import expect


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
    page = open_page(link, "/commands", ignore_https_errors=True, expects=["status of 401", "WebSocket"])
    expect(page.locator("bdi", has_text="ada")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".command-history")).to_contain_text(re.compile(r"pause.*by ada \(", re.DOTALL))
    page.get_by_role("button", name="Resume").click()
    links("revoke", "ada")
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("revoked")
