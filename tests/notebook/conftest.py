"""Notebooks in a real JupyterLab, in a real browser."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from tests.waiting import PATIENCE_S

from .lab import Lab, Notebook

OpenNotebook = Callable[..., Notebook]

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Return a server for all tests."""
    folder = Path(tempfile.mkdtemp(prefix="sgn", dir="/tmp"))
    (folder / "run").mkdir()
    lab = Lab(folder, str(folder / "run"))
    yield lab
    lab.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Return a window."""
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(PATIENCE_S * 1000)
    yield context
    context.close()


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
