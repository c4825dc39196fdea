"""The page in a real browser, with a real server, real trainings and real files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .browser import find_browser
from .places import Place
from .tabs import Tabs

ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip

OpenPage = Callable[..., Page]

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Start one browser for all tests of this process."""
    with sync_playwright() as playwright:
        path = find_browser(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture
def browser(chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """Return the browser; between tests its event loop is not the running one, so that others may run theirs."""
    browser, loop = chromium
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture
def tabs(browser: Browser) -> Iterator[Tabs]:
    """Return what opens pages; whatever goes wrong in them fails the test."""
    tabs = Tabs(browser)
    yield tabs
    tabs.close()


@pytest.fixture
def open_page(tabs: Tabs) -> OpenPage:
    """Return a function that opens a link."""
    return tabs.open


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a place that the tests of a file share."""
    place = Place(tmp_path_factory.mktemp("place"))
    yield place
    place.close()


@pytest.fixture
def own_place(tmp_path: Path) -> Iterator[Place]:
    """Return a place for a test that breaks things."""
    place = Place(tmp_path / "own")
    yield place
    place.close()
