"""Tabs of the browser that fail a test for whatever goes wrong in them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page
from tests.waiting import PATIENCE_S

SIZES = {"wide": (1440, 900), "laptop": (1024, 700), "phone": (390, 844)}
Size = Literal["wide", "laptop", "phone"]
Scheme = Literal["light", "dark"]


class Tabs:
    """Opens pages, and notes every error, warning, failed request, dialog, and request to another host."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.problems: list[str] = []
        self.expected: list[str] = []
        self.hosts: set[str] = set()
        self.heard: list[dict[str, Any]] = []  # what the server said on sockets, but for records

    def open(
        self,
        link: str,
        place: str = "",
        *,
        size: Size = "wide",
        scheme: Scheme = "light",
        expects: Sequence[str] = (),
        context: BrowserContext | None = None,
        **options: Any,
    ) -> Page:
        """Open a link.

        Args:
            link: One that a server printed.
            place: What to show: a fragment such as "/charts?smooth=0.5".
            size: Of the window.
            scheme: What the system prefers.
            expects: Patterns of problems that the test brings about.
            context: A window of before, to open another tab in.
            **options: Of a new window.
        """
        self.expected += expects
        base, _, token = link.partition("#")
        self.hosts.add(urlsplit(base).netloc)
        if context is None:
            width, height = SIZES[size]
            context = self.browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=size == "phone", **options
            )
            context.set_default_timeout(PATIENCE_S * 1000)
            self.contexts.append(context)
        page = context.new_page()
        self._watch(page)
        fragment = f"{place}{'&' if '?' in place else '?'}{token}" if place else token
        page.goto(f"{base}#{fragment}")
        return page

    def close(self) -> None:
        """Close all, and fail if anything went wrong that was not expected."""
        for context in self.contexts:
            context.close()
        left = [one for one in self.problems if not any(re.search(pattern, one) for pattern in self.expected)]
        assert not left, "\n".join(left)

    def _watch(self, page: Page) -> None:
        note = self.problems.append
        page.on("console", lambda said: note(_text(said)) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note(f"page error: {error}"))
        page.on("dialog", lambda dialog: (note(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("crash", lambda _: note("the tab crashed"))
        page.on("popup", lambda popup: note(f"a window was opened: {popup.url}"))
        page.on("request", lambda request: self._look_at(request.url))
        page.on("websocket", self._listen)
        page.on("requestfailed", self._failed)
        page.on("response", lambda answer: note(f"{answer.status}: {answer.url}") if answer.status >= 500 else None)

    def _listen(self, socket: Any) -> None:
        self._look_at(socket.url)
        socket.on("framereceived", lambda data: self.heard.append(json.loads(data)) if isinstance(data, str) else None)

    def _look_at(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("blob", "data", "about"):
            return
        if parts.netloc not in self.hosts:
            self.problems.append(f"a request to another host: {url}")
        if "token" in parts.query:
            self.problems.append(f"a token in a query: {url}")

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself ended it, or was closed
            self.problems.append(f"failed request: {request.method} {request.url}: {request.failure}")


def _text(said: Any) -> str:
    return f"{said.type}: {said.text} ({said.location.get('url', '')})"
