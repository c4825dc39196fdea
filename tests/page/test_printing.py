"""Printing: all of the page on paper, in light colours, without what can only be clicked."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import sightglass as sg

from .looks import chart

PRINT = "window.print = () => document.documentElement.setAttribute('data-printed', '')"


@pytest.fixture(scope="module")
def server(place):
    with place.recording() as folder:
        for i in range(90):
            with sg.init(f"run-{i:02}", dir=folder, config={f"key{k}": i * k for k in range(5)}) as run:
                for step in range(5):
                    run.log({f"tag/{n:02}": float(step + n) for n in range(30 if i == 89 else 1)}, step=step)
                if i == 89:
                    run.log({f"layer/{n:02}": sg.Tensor(np.arange(6.0)) for n in range(80)}, step=0)
                    run.log(
                        {"rows": sg.Table({"row": list(range(50)), "text": [f"text {n}" for n in range(50)]})}, step=0
                    )
    return place.serve()


@pytest.fixture
def paper(open_page, server):
    """Return a function that prints a place, and returns the tab as it is laid out for paper."""

    def printed(place: str, shows: str = "run-89|tag") -> Page:
        page = open_page(server.viewer, place, scheme="dark")
        page.evaluate(PRINT)
        expect(page.get_by_role("main")).to_contain_text(re.compile(shows))
        page.keyboard.press("Control+p")
        expect(page.locator("html")).to_have_attribute("data-printed", "")
        return page

    return printed


def n_pages(page: Page) -> int:
    """Print into a file, after which the page is for the screen again, and return how many pages it has."""
    pdf = page.pdf(prefer_css_page_size=True)
    expect(page.locator("html")).not_to_have_attribute("data-printing", "")
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf + b"".join(streams(pdf))))


def streams(pdf: bytes) -> list[bytes]:
    """Return what is packed in a PDF; each page draws with one of these."""
    return [_unpacked(part) for part in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)]


def n_heads(page: Page) -> tuple[int, int]:
    """Print into a file, and return on how many pages heads of tables are written, and how many pages there are."""
    page.add_style_tag(content=":is(.rows-head, thead) * { color: rgb(255, 0, 255) !important }")
    pdf = page.pdf(prefer_css_page_size=True)
    found = streams(pdf)
    heads = sum(re.search(rb"(?<!\S)1 0 1 rg", part) is not None for part in found)
    return heads, len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf + b"".join(found)))


def fits(page: Page, table: str = ".run-table-scroll") -> None:
    """Check that a table fits a sheet of paper, which is 960 pixels across."""
    page.set_viewport_size({"width": 960, "height": 700})
    assert page.locator(table).evaluate("box => box.scrollWidth <= box.clientWidth + 1")


def _unpacked(part: bytes) -> bytes:
    try:
        # Not `zlib.decompress`: where the checksum ends with a carriage return, `streams` took that for the line's end.
        return zlib.decompressobj().decompress(part)
    except zlib.error:
        return b""


def test_charts_are_printed(paper):
    all_charts_are_printed_in_columns_and_in_light_colours(paper)


def test_tables_are_printed(paper, open_page, server):
    a_table_goes_over_pages_with_nothing_cut_off(paper)
    a_comparison_of_many_runs_fits_the_paper(paper)
    all_columns_of_the_overview_of_tensors_fit_the_paper(paper)
    the_browser_s_own_way_to_print_lays_the_page_out_too(open_page, server)
    for where, shows in (("/runs", "run-89"), ("/tensors?as=overview", "80 tensors"), ("/media", "text 49")):
        the_head_of_a_long_table_stands_on_every_page(paper, where, shows)


def all_charts_are_printed_in_columns_and_in_light_colours(paper):
    page = paper("/charts")
    charts = page.locator(".chart-print svg")
    expect(charts).to_have_count(30)
    places = charts.evaluate_all("all => all.map(one => one.getBoundingClientRect()).map(({x, y}) => [x, y])")
    assert len({x for x, _ in places}) == 2
    assert len({y for _, y in places}) == 15
    texts = charts.first.locator("text").all_text_contents()
    assert texts[0] == "tag/00"
    assert "run-89" in texts
    assert charts.first.locator("rect").first.get_attribute("fill") == "#fff"
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    expect(page.get_by_role("toolbar")).to_be_hidden()
    assert n_pages(page) >= 4
    expect(chart(page, "tag/00")).to_be_visible()
    expect(page.locator(".chart-print")).to_have_count(0)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def a_table_goes_over_pages_with_nothing_cut_off(paper):
    page = paper("/runs")
    rows = page.locator(".table-row:not(.table-head)")
    expect(rows).to_have_count(90)
    fits(page)
    assert n_pages(page) >= 3


def a_comparison_of_many_runs_fits_the_paper(paper):
    page = paper("/runs?compare=1&runs=*")
    expect(page.get_by_role("columnheader").last).to_be_attached()
    fits(page)


def all_columns_of_the_overview_of_tensors_fit_the_paper(paper):
    page = paper("/tensors?as=overview", "80 tensors")
    fits(page, "main")


def the_browser_s_own_way_to_print_lays_the_page_out_too(open_page, server):
    page = open_page(server.viewer, "/runs")
    expect(page.get_by_role("main")).to_contain_text("run-89")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".table-row:not(.table-head)")).to_have_count(90)
    expect(page.get_by_role("toolbar")).to_be_hidden()


def the_head_of_a_long_table_stands_on_every_page(paper, where, shows):
    page = paper(where, shows)
    heads, pages = n_heads(page)
    assert pages >= 2
    assert heads == pages
