"""The page in a real browser, with a real server, real trainings and real files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.waiting import PATIENCE_S

from .places import Place, Shelf
from .tabs import Tabs

OpenPage = Callable[..., Page]

expect.set_options(timeout=PATIENCE_S * 1000)


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


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Return where recorded runs stand that tests only look at, a project for each file of tests."""
    shelf = Shelf(tmp_path_factory.mktemp("shelf"))
    yield shelf
    shelf.close()


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
