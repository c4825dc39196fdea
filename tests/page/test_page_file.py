"""The page as one file: opened from the disk, without a network, it shows what the server's page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import quote

import numpy as np
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Page, expect
from tests.waiting import PATIENCE_S

import sightglass as sg
from sightglass.storage.format.wav import decode_wav

from .looks import chart, color_of, drawn, go_to, until, violations
from .test_runs import names, search

WORDS = "</script><!--<script>alert(1)</script>"
SECRET = "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("sweep") as folder:
        rng = np.random.default_rng(0)
        for seed in range(3):
            config = {"seed": seed, "api_key": SECRET, "words": WORDS}
            with sg.init("sweep", dir=folder, config=config) as run:
                for step in range(5000):
                    spike = 40.0 if step == 3210 else 0.0
                    run.log({"loss": 1 / (step + 1) + rng.random() + 5 * seed + spike, f"{WORDS}/x": step}, step=step)
                for step in range(4):
                    run.log({"digits": sg.Images(rng.random((2, 8, 8)))}, step=step)
        sg.open(run.directory).annotate(notes=WORDS, add_labels=["best"])
    return shelf.server


@pytest.fixture
def open_file(tabs):
    """Return a function that opens a file without a network; whatever goes wrong in it fails the test."""

    def opened(path: Path, place: str = "", **options) -> Page:
        context = tabs.browser.new_context(viewport={"width": 1440, "height": 900}, offline=True, **options)
        context.set_default_timeout(PATIENCE_S * 1000)
        tabs.contexts.append(context)
        page = context.new_page()
        tabs.hosts.add("")  # the file itself
        tabs._watch(page)
        page.goto(path.resolve().as_uri() + place)
        return page

    return opened


def saved_by(page: Page, folder: Path, key: str = "s") -> Path:
    """Save what the page shows as a file."""
    with page.expect_download() as download:
        page.keyboard.press(key)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def read_at(page: Page, tag: str, share: float) -> str:
    """Return what the legend says at a place of a chart."""
    box = chart(page, tag).locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    legend = chart(page, tag).locator(".legend")
    expect(legend).to_contain_text("step")
    return legend.inner_text()


def test_a_file_of_charts_and_runs(open_page, server, open_file, tmp_path):
    a_file_shows_and_does_what_the_page_does(open_page, server, open_file, tmp_path)
    a_file_has_what_its_charts_compute(open_page, server, open_file, tmp_path)
    the_table_of_a_file_sorts_filters_and_has_the_numbers_of_the_page(open_page, server, open_file, tmp_path)
    other_pages_are_not_saved(open_page, server)


def test_a_file_of_media(open_page, server, media, open_file, tabs, tmp_path):
    a_file_has_the_pictures_of_its_view(open_page, server, open_file, tmp_path)
    a_file_plays_sounds_and_has_texts(media, open_file)
    a_table_of_a_file_is_sorted_found_and_paged(media, open_file)
    figures_of_plotly_are_drawn_in_a_file_but_for_those_that_need_webgl(media, open_file, tabs)


def a_file_shows_and_does_what_the_page_does(open_page, server, open_file, tmp_path):
    page = open_page(server.viewer, "/charts?project=sweep&clip=1")
    expect(chart(page, "loss")).to_be_visible()
    file = open_file(saved_by(page, tmp_path))
    expect(chart(file, "loss")).to_be_visible()
    assert "project=sweep&clip=1" in file.url
    drawn(chart(file, "loss"), color_of(file, "sweep seed=1"))
    for share in (0.0, 0.3, 0.999):
        # Both show the value of the nearest point that is kept: at the ends, and where nothing is thinned, the same.
        assert share == 0.3 or read_at(file, "loss", share) == read_at(page, "loss", share)
    expect(file.locator(".file-note")).to_contain_text("3 runs · 6 series, 6 of them thinned, extremes kept")
    expect(file.locator(".file-note")).to_contain_text("from runs by sightglass")
    expect(chart(file, "loss").locator(".panel-notes")).to_contain_text("of 15,000 points, extremes kept")
    box = chart(file, "loss").locator(".u-over").bounding_box()
    assert box is not None
    file.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 20)
    file.mouse.down()
    file.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 20, steps=3)
    file.mouse.up()
    expect(file.get_by_role("button", name=re.compile(r"^step \d+ –"))).to_be_visible()
    file.get_by_role("button", name=re.compile(r"^step \d+ –")).click()
    file.get_by_role("button", name="Relative").click()
    expect(chart(file, "loss")).to_be_visible()
    file.get_by_role("button", name="Theme: system").click()
    file.get_by_role("button", name="Theme: light").click()
    expect(file.locator("html")).to_have_attribute("data-theme", "dark")
    assert not violations(file)
    assert file.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts() == ["Charts", "Runs"]


def a_file_has_what_its_charts_compute(open_page, server, open_file, tmp_path):
    place = (
        "/charts?project=sweep&x="
        + quote("loss + 1")
        + "&own="
        + quote("half|loss / 2")
        + "&cards="
        + quote("own half|x:step")
    )
    page = open_page(server.viewer, place)
    drawn(chart(page, "half"), color_of(page, "sweep seed=1"))
    file = open_file(saved_by(page, tmp_path))
    for tag in ("half", "loss"):
        drawn(chart(file, tag), color_of(file, "sweep seed=1"))
    assert read_at(file, "half", 0.999) == read_at(page, "half", 0.999)
    expect(chart(file, "loss").locator(".panel-notes")).not_to_contain_text("does not have")


def the_table_of_a_file_sorts_filters_and_has_the_numbers_of_the_page(open_page, server, open_file, tmp_path):
    place = "/runs?project=sweep&columns=loss.max&columns=loss.mean&columns=labels&sort=-loss.max"
    page = open_page(server.viewer, place)
    cells = page.locator(".table-row:not(.table-head) .table-cell")
    until(page, lambda: len([text for text in cells.all_inner_texts() if text]) >= 7)
    file = open_file(saved_by(page, tmp_path))
    until(file, lambda: names(file) == names(page) == ["sweep seed=2", "sweep seed=1", "sweep seed=0"])
    assert (
        file.locator(".table-row .table-cell").all_inner_texts()
        == page.locator(".table-row .table-cell").all_inner_texts()
    )
    search(file, "loss.max < 44")
    until(file, lambda: names(file) == ["sweep seed=0"])
    file.get_by_role("button", name="sweep seed=0", exact=True).click()
    expect(file.get_by_role("complementary")).to_contain_text("runs/sweep/sweep-")
    expect(file.get_by_role("complementary").get_by_role("textbox")).to_have_count(0)


def a_file_has_the_pictures_of_its_view(open_page, server, open_file, tmp_path):
    page = open_page(server.viewer, "/media?project=sweep")
    expect(page.locator("main img")).to_have_count(6)
    file = open_file(saved_by(page, tmp_path))
    expect(file.locator("main img")).to_have_count(6)
    sizes = "images => images.map(image => [image.naturalWidth, image.naturalHeight])"
    until(file, lambda: file.locator("main img").evaluate_all(sizes) == [[8, 8]] * 6)
    file.get_by_role("slider").press("ArrowLeft")
    expect(file.locator("main")).to_contain_text("step 2")


@pytest.fixture(scope="session")
def media(tmp_path_factory, shelf):
    """A file of a run with media of each kind, and of a table with more rows than fit."""
    with shelf.recording():
        folder = tmp_path_factory.mktemp("media")
        with sg.init("media", dir=folder) as run:
            for step in range(3):
                pictures = sg.Images(np.full((3, 4, 4), 100, np.uint8))
                table = {"label": [f"row {i}" for i in range(3)], "loss": [3.0, 1.0, 2.0], "seen": pictures}
                run.log(
                    {
                        "tone": sg.Audio(np.sin(np.arange(4_000) / 5).astype(np.float64), 8_000),
                        "note": f"note {step}", "small": sg.Table(table),
                        "large": sg.Table({"n": np.arange(5_000)}),
                        "bars": go.Figure(go.Bar(y=[1, 2, step]), {"title": f"Bars {step}"}),
                        "points": go.Figure(go.Scattergl(x=[1, 2], y=[1, 2]), {"title": "Points"}),
                    },
                    step=step,
                )  # fmt: skip
        return sg.save_page(folder / "page.html", folder, view="#/media")


def show(file: Page, tag: str) -> None:
    file.get_by_role("list", name="Tags").get_by_role("button", name=re.compile(rf"^{tag}\b")).click()
    expect(file.get_by_role("heading", name=tag, exact=True)).to_be_visible()


def a_file_plays_sounds_and_has_texts(media, open_file):
    file = open_file(media.path)
    note = file.locator(".file-note")
    expect(note).to_contain_text("3 tables cut to the first rows · without tensors, queries and commands")
    show(file, "tone")
    file.get_by_role("button", name="Play tone, step 2").click()
    expect(file.get_by_role("slider", name="Position in tone, step 2")).not_to_have_attribute("aria-valuenow", "0")
    with file.expect_download() as got:
        file.get_by_role("button", name="Download tone, step 2 as WAV").click()
    assert len(decode_wav(got.value.path().read_bytes()).value) == 4_000
    show(file, "note")
    expect(file.get_by_role("log")).to_contain_text("note 1")


def a_table_of_a_file_is_sorted_found_and_paged(media, open_file):
    file = open_file(media.path, "#/media?media=small")
    table = file.get_by_role("region", name="Table small")
    table.get_by_role("button", name="loss").click()
    rows = table.locator("tbody tr")
    until(file, lambda: [row.split()[1] for row in rows.all_inner_texts()] == ["1", "2", "0"])
    until(file, lambda: table.locator("img").first.evaluate("image => image.naturalWidth") == 4)
    find = file.get_by_role("searchbox", name="Find rows")
    find.fill("loss > 1.5 and label ~ 2")
    expect(rows).to_have_count(1)
    find.fill("los < 1")
    expect(file.get_by_role("alert")).to_contain_text("Unknown column 'los'")
    find.fill("")
    show(file, "large")
    expect(file.get_by_role("article")).to_contain_text("2,000 of 5,000 rows")
    file.get_by_role("button", name="Next").click()
    expect(file.get_by_role("article")).to_contain_text("51 to 100")


def figures_of_plotly_are_drawn_in_a_file_but_for_those_that_need_webgl(media, open_file, tabs):
    file = open_file(media.path, "#/media?media=bars")
    frame = file.frame_locator('iframe[title="Bars 2: bar"]')
    expect(frame.locator(".gtitle")).to_have_text("Bars 2")
    assert frame.locator("body").evaluate("() => origin") == "null"
    file.get_by_role("slider", name="Step").press("Home")
    expect(file.frame_locator('iframe[title="Bars 0: bar"]').locator(".gtitle")).to_have_text("Bars 0")
    tabs.expected += ["unsafe-eval", "WebGL", "GL Driver"]
    show(file, "points")
    expect(file.locator(".plotly-words")).to_contain_text("Points: scattergl")
    expect(file.locator(".plotly-words")).to_contain_text("open it on the page of a server")


def test_a_file_tells_nothing_that_it_should_not(server, shelf, tmp_path, open_file):
    with shelf.recording() as folder:
        saved = sg.save_page(tmp_path / "a.html", folder / "sweep", view="#/charts?project=sweep")
    text = saved.path.read_text()
    assert str(saved) == f"wrote {saved.path} ({saved.n_bytes / 1e6:.1f} MB): 3 runs, 6 series, 6 of them thinned"
    assert text.count("</script>") == 3
    file = open_file(saved.path)
    expect(chart(file, "loss")).to_be_visible()
    packed = re.search(r'id="sightglass-file">([^<]*)<', text)
    assert packed is not None
    plain = subprocess.run(
        "base64 -d | gunzip", shell=True, input=packed[1].encode(), capture_output=True, check=True
    ).stdout
    assert SECRET.encode() not in plain
    assert str(shelf.folder).encode() not in plain
    assert WORDS.encode() in plain


def other_pages_are_not_saved(open_page, server):
    page = open_page(server.viewer, "/tensors")
    for place in ("/tensors", "/control", "/run"):
        go_to(page, place)
        page.get_by_role("button", name="Saved views").click()
        expect(page.get_by_role("button", name="Save as HTML")).to_be_disabled()
        page.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()
