"""Many runs, two thousand tags: lists stay short in the document, and everything stays at hand."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import chart, color_of, drawn, has_url, until

N_RUNS, N_TAGS = 150, 2000  # more than lists show at once


@pytest.fixture(scope="module")
def server(place):
    with place.recording() as folder:
        for i in range(N_RUNS):
            with sg.init(f"run-{i:03}", dir=folder, config={"seed": i, "lr": (0.1, 0.01)[i % 2]}) as run:
                for step in range(5):
                    run.log({"shared/loss": float(i + step)}, step=step)
                if i >= N_RUNS - 3:
                    run.log({f"group-{j // 100:02}/tag-{j:04}": float(j) for j in range(N_TAGS)}, step=0)
    return place.serve()


@pytest.fixture
def page(open_page, server):
    page = open_page(server.controller)
    expect(page.get_by_role("article").first).to_be_visible()
    return page


def count(page, selector):
    return page.evaluate("selector => document.querySelectorAll(selector).length", selector)


def test_charts_of_thousands_of_tags_and_hundreds_of_runs(page):
    only_visible_elements_exist(page)
    cards_get_their_buttons_when_scrolling_rests(page)
    a_tag_is_found_among_thousands(page)
    all_runs_are_drawn_in_one_chart(page)


def only_visible_elements_exist(page):
    expect(page.get_by_text(f"{N_TAGS + 1} tags")).to_be_visible()
    until(page, lambda: 3 <= count(page, "canvas") <= 60)
    assert count(page, "*") < 6000
    rows = page.get_by_role("list", name="Charts by tag")
    rows.evaluate("rows => rows.scrollTo(0, rows.scrollHeight)")
    expect(chart(page, "shared/loss")).to_be_visible()
    rows.evaluate("rows => rows.scrollTo(0, rows.scrollHeight / 2)")
    until(page, lambda: count(page, "canvas") >= 3)
    assert count(page, "canvas") <= 60
    assert count(page, "*") < 6000


SCROLL = """
async (rows) => {
  for (let i = 0; i < 40; i++) {
    await new Promise(requestAnimationFrame)
    rows.scrollTop += 100
  }
  const cards = [...rows.querySelectorAll('[data-card]')]
  return cards.filter((card) => card.querySelector('.panel-tools button')).length
}
"""


def cards_get_their_buttons_when_scrolling_rests(page):
    rows = page.get_by_role("list", name="Charts by tag")
    expect(rows.get_by_role("button", name="Enlarge").first).to_be_attached()
    assert rows.evaluate(SCROLL) == 0
    cards = page.locator("[data-card]")
    until(page, lambda: cards.count() == page.locator("[data-card]:has(.panel-tools button)").count() > 0)


def a_tag_is_found_among_thousands(page):
    page.get_by_role("searchbox", name="Search tags").fill("tag-1234$")
    expect(chart(page, "group-12/tag-1234")).to_be_visible()
    expect(page.get_by_text(f"1 of {N_TAGS + 1}")).to_be_visible()


def all_runs_are_drawn_in_one_chart(page):
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("searchbox", name="Search tags").fill("^shared/")
    expect(chart(page, "shared/loss").get_by_role("img", name=f"{N_RUNS} lines")).to_be_visible()
    expect(page.get_by_text(f"{N_RUNS} of {N_RUNS} shown")).to_be_visible()
    drawn(chart(page, "shared/loss"), color_of(page, f"run-{N_RUNS - 1}"))
    page.get_by_role("combobox", name="Group").select_option("lr")
    expect(chart(page, "shared/loss").get_by_role("img", name="2 lines")).to_be_visible()


def test_the_table_of_runs_is_scrolled_sorted_and_filtered(page):
    page.get_by_role("link", name="Runs").click()
    table = page.get_by_role("grid", name="Runs")
    expect(table.get_by_role("row").nth(5)).to_be_visible()
    assert count(page, "[role=row]") < 100
    table.evaluate("rows => rows.scrollTo(0, rows.scrollHeight)")
    expect(page.get_by_role("checkbox", name="Show run-000")).to_be_visible()
    page.get_by_role("columnheader", name="seed").get_by_role("button").click()
    has_url(page, "sort=-seed")
    page.get_by_role("searchbox", name="Filter runs").fill("seed<3")
    expect(table.get_by_role("checkbox", name=re.compile("^Show "))).to_have_count(3)
    expect(page.get_by_text(re.compile(f"3 of {N_RUNS}"))).to_be_visible()
    the_charts_begin_with_the_first_of_the_list(page)


def the_charts_begin_with_the_first_of_the_list(page):
    page.get_by_role("searchbox", name="Filter runs").fill("")
    page.get_by_role("columnheader", name="seed").get_by_role("button").click()
    has_url(page, "sort=seed")
    page.get_by_role("link", name="Charts").click()
    page.get_by_role("searchbox", name="Search tags").fill("^shared/")
    expect(chart(page, "shared/loss").get_by_role("img", name="10 lines")).to_be_visible()
    expect(page.get_by_role("checkbox", name="Show run-009")).to_be_checked()
    expect(page.get_by_role("checkbox", name="Show run-010")).not_to_be_checked()


def test_the_views_over_many_runs_begin_with_what_ranks_them(open_page, server):
    page = open_page(server.controller, "/runs?views=1&columns=shared/loss.max&columns=seed&sort=-shared/loss.max")
    card = page.get_by_role("article", name="Rank correlation")
    expect(card.get_by_role("listitem").first).to_contain_text(re.compile(rf"seed.*\+1\.00.*{N_RUNS - 3}", re.DOTALL))
    expect(page.get_by_role("combobox", name="Colour", exact=True)).to_have_value("shared/loss.max")
    page.get_by_role("combobox", name="Colour", exact=True).select_option(label="the runs' own")
    has_url(page, "tint=-")
    card.get_by_role("button", name="lr").click()
    expect(page.get_by_role("application", name="Scatter of shared/loss.max over lr")).to_be_visible()
