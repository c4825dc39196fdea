"""Notebooks in a real JupyterLab, in a real browser."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from tests.page.browser import find_browser

from .lab import Lab, Notebook

ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip

OpenNotebook = Callable[..., Notebook]

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Return a server for all tests of a file."""
    folder = Path(tempfile.mkdtemp(prefix="sgn", dir="/tmp"))
    (folder / "run").mkdir()
    lab = Lab(folder, str(folder / "run"))
    yield lab
    lab.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Start one browser for all tests of a file."""
    with sync_playwright() as playwright:
        path = find_browser(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture
def context(chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[BrowserContext]:
    """Return a window; between tests the browser's event loop is not the running one, so that others may run theirs."""
    browser, loop = chromium
    asyncio._set_running_loop(loop)
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(30_000)
    yield context
    context.close()
    asyncio._set_running_loop(None)


@pytest.fixture
def open_notebook(lab: Lab, context: BrowserContext) -> Iterator[OpenNotebook]:
    """Return a function that opens a notebook of some cells; whatever goes wrong in it fails the test."""
    opened: list[Notebook] = []

    def open_(cells: Sequence[str]) -> Notebook:
        name = f"test{next(_numbers)}"
        lab.write(name, cells)
        opened.append(Notebook(lab, name, context))
        return opened[-1]

    yield open_
    for notebook in opened:
        notebook.close()


_numbers = itertools.count()
