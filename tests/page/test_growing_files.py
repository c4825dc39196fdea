"""Files that grow under an open page, whichever program writes them: Charts, Tensors, Media and the Runs table move."""

from __future__ import annotations

import os
import re
from contextlib import closing

from playwright.sync_api import expect
from tests.growing import TAGS, Growing

from .looks import chart, color_of, drawn, ink, until
from .places import Place

PICTURE = "canvas => canvas.toDataURL()"


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


def test_open_pages_follow_growing_files_of_each_program(tmp_path, open_page):
    for dialect in ("ms", "tb", "sg"):
        with closing(Place(tmp_path / dialect)) as place:
            open_pages_follow_a_growing_file(place, open_page, dialect)


def open_pages_follow_a_growing_file(place, open_page, dialect):
    with place.recording() as folder:
        file = Growing(folder, dialect)
    link = place.serve().controller
    charts = open_page(link, "/charts?tags=^loss$")
    tensors, media, runs = (
        open_page(link, f"/{name}", context=charts.context) for name in ("tensors", "media", "runs")
    )
    _, tensor, picture = TAGS[dialect]
    show(tensors, tensor)
    show(media, picture)
    line = chart(charts, "loss")
    image = media.get_by_role("article", name=f"{picture} of {dialect}").get_by_role("img").first
    color = color_of(charts, dialect)
    drawn(line, color, n=5)
    while len(file.parts) > 1:
        stands_at(tensors, file.step)
        stands_at(media, file.step)
        looked = line.locator("canvas").first.evaluate(PICTURE), until(media, lambda: image.get_attribute("src"))
        file.append()
        if len(file.parts) == 1:
            file.tear()  # what is being written is no problem
        until(charts, lambda looked=looked: line.locator("canvas").first.evaluate(PICTURE) != looked[0])
        stands_at(tensors, file.step)
        expect(tensors.get_by_role("grid")).to_be_visible()
        stands_at(media, file.step)
        until(media, lambda looked=looked: image.get_attribute("src") not in (looked[1], ""))
        expect(row(runs, dialect).get_by_role("gridcell", name=str(file.step), exact=True)).to_be_visible()
    until(charts, lambda: ink(line, color).width > 0.5)
    expect(row(runs, dialect)).to_contain_text("running" if dialect == "sg" else "writing")
    red = row(runs, dialect).locator(".state-problem")
    expect(red).to_have_count(0)
    os.utime(file.path, (1e9, 1e9))
    os.utime(file.path.parent / "run.json", (1e9, 1e9)) if dialect == "sg" else None
    expect(red).to_have_count(1)
    charts.context.close()
