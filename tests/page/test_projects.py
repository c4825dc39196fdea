"""The switch between projects, and where notices stand while a dialog is open."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import chart, go_to, has_url, until
from .test_runs import names


@pytest.fixture(scope="module")
def server(place):
    with place.recording() as folder:
        for project, tag in [("cifar", "accuracy"), ("mnist", "loss")]:
            for lr in (0.1, 0.2):
                with sg.init("same", dir=folder / project, config={"lr": lr}) as run:
                    for step in range(20):
                        run.log({tag: lr * step}, step=step)
        sg.open(run.directory).annotate(baseline=True)
    return place.serve()


@pytest.fixture
def page(open_page, server):
    page = open_page(server.controller, "/runs")
    until(page, lambda: len(names(page)) == 4)
    return page


def test_projects(page, open_page, server):
    one_project_is_shown_everywhere_and_kept_in_the_address(page, open_page, server)
    a_project_without_runs_says_so(page)
    projects_are_filtered_and_grouped_by(page)
    for size in ("wide", "phone"):
        what_was_done_is_undone_while_the_dialog_is_open(open_page, server, size)


def one_project_is_shown_everywhere_and_kept_in_the_address(page, open_page, server):
    assert sorted(names(page)) == ["same cifar lr=0.1", "same cifar lr=0.2", "same mnist lr=0.1", "same mnist lr=0.2"]
    expect(page.get_by_role("columnheader", name="Project")).to_be_visible()
    switch = page.get_by_role("combobox", name="Project")
    assert switch.get_by_role("option").all_inner_texts() == ["All projects", "cifar", "mnist"]
    switch.select_option("cifar")
    until(page, lambda: sorted(names(page)) == ["same lr=0.1", "same lr=0.2"])
    expect(page.get_by_role("columnheader", name="Project")).to_have_count(0)
    has_url(page, "project=cifar")
    page.get_by_role("link", name="Charts").click()
    expect(chart(page, "accuracy")).to_be_visible()
    expect(chart(page, "loss")).to_have_count(0)
    expect(page.get_by_role("button", name="− baseline")).to_have_count(0)
    other = open_page(server.viewer, "/charts?project=mnist")
    expect(chart(other, "loss")).to_be_visible()
    expect(other.get_by_role("button", name="− baseline")).to_be_visible()
    expect(chart(other, "accuracy")).to_have_count(0)


def a_project_without_runs_says_so(page):
    go_to(page, "/charts?project=gone")
    page.get_by_role("button", name="Show all projects").click()
    expect(chart(page, "loss")).to_be_visible()


def projects_are_filtered_and_grouped_by(page):
    go_to(page, "/runs?filter=project=mnist")
    until(page, lambda: sorted(names(page)) == ["same mnist lr=0.1", "same mnist lr=0.2"])
    go_to(page, "/runs?group=project")
    until(page, lambda: {"project=cifar", "project=mnist"} <= set(names(page)))


def what_was_done_is_undone_while_the_dialog_is_open(open_page, server, size):
    page = open_page(server.controller, "/runs", size=size)
    with page.expect_response("**/saved-views"):  # an answer that came late would take away what is saved meanwhile
        page.keyboard.press("v")
    dialog = page.get_by_role("dialog", name="Saved views")
    dialog.get_by_role("textbox").fill(size)
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(dialog.get_by_role("link", name=size)).to_be_visible()
    dialog.get_by_role("button", name=f"Remove {size}").click()
    expect(dialog.get_by_role("link", name=size)).to_have_count(0)
    page.get_by_role("status").filter(has_text="Removed").get_by_role("button", name="Undo").click()
    expect(dialog.get_by_role("link", name=size)).to_be_visible()
    dialog.get_by_role("button", name=f"Remove {size}").click()
    dialog.get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Removed")).to_be_visible()
