"""Files that grow under an open page, whichever program writes them: Charts, Tensors, Media and the Runs table move."""

from __future__ import annotations

import os
import re

import pytest
from playwright.sync_api import expect
from tests.growing import TAGS, Growing

from .looks import chart, color_of, drawn, ink, until

pytestmark = pytest.mark.parametrize("dialect", ["ms", "tb", "sg"])


@pytest.fixture
def file(own_place, dialect):
    """A run with one step, and nothing else."""
    with own_place.recording() as folder:
        return Growing(folder, dialect)


@pytest.fixture
def link(own_place, file):
    return own_place.serve().controller


def show(page, name):
    tag, _, kind = name.partition(":")
    page.get_by_role("list", name="Tags").get_by_role(
        "button", name=re.compile(rf"^{re.escape(tag)}\b.*{kind}")
    ).click()
    expect(page.get_by_role("heading", name=tag, exact=True)).to_be_visible()


def stands_at(page, step):
    expect(page.get_by_role("group", name="Step").get_by_role("spinbutton")).to_have_value(str(step))


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("button", name=name, exact=True))


def test_the_line_of_a_chart_grows(link, open_page, file):
    page = open_page(link, "/charts?tags=^loss$")
    line = chart(page, "loss")
    picture = lambda: line.locator("canvas").first.evaluate("canvas => canvas.toDataURL()")  # noqa: E731
    until(page, lambda: line.locator("canvas").count())
    color = color_of(page, file.name)
    drawn(line, color, n=5)
    while file.parts:
        before = picture()
        file.append()
        until(page, lambda before=before: picture() != before)
    until(page, lambda: ink(line, color).width > 0.5)


def test_the_table_of_a_tensor_goes_to_the_last_step(link, open_page, file):
    page = open_page(link, "/tensors")
    show(page, TAGS[file.name][1])
    stands_at(page, file.step)
    table = page.get_by_role("grid")
    expect(table).to_be_visible()
    while file.parts:
        file.append()
        stands_at(page, file.step)
    expect(table).to_be_visible()


def test_the_picture_is_that_of_the_last_step(link, open_page, file):
    page = open_page(link, "/media")
    tag = TAGS[file.name][2]
    show(page, tag)
    stands_at(page, file.step)
    picture = page.get_by_role("article", name=f"{tag} of {file.name}").get_by_role("img")
    before = until(page, lambda: picture.first.get_attribute("src"))
    file.append()
    stands_at(page, file.step)
    until(page, lambda: picture.first.get_attribute("src") not in (before, ""))


def test_the_table_of_runs_shows_the_last_step(link, open_page, file):
    page = open_page(link, "/runs")
    while file.parts:
        file.append()
        expect(row(page, file.name).get_by_role("gridcell", name=str(file.step), exact=True)).to_be_visible()
    expect(row(page, file.name)).to_contain_text("running" if file.name == "sg" else "writing")


def test_a_tail_that_is_being_written_is_no_problem(link, open_page, file):
    page = open_page(link, "/runs")
    file.append()
    file.tear()
    expect(row(page, file.name).get_by_role("gridcell", name=str(file.step), exact=True)).to_be_visible()
    red = row(page, file.name).locator(".state-problem")
    expect(red).to_have_count(0)
    os.utime(file.path, (1e9, 1e9))
    os.utime(file.path.parent / "run.json", (1e9, 1e9)) if file.name == "sg" else None
    expect(red).to_have_count(1)
