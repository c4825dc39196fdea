"""Images, figures, sounds, tables and texts: at every step, of several runs side by side, in full size, downloaded."""

from __future__ import annotations

import io
import re
import struct
import zlib

import numpy as np
import pytest
from playwright.sync_api import expect

import sightglass as sg
from sightglass.storage.format.wav import decode_wav

from .looks import box_of, until

STEPS = [0, 100, 200]
HTML = "<img src=x onerror=alert(1)><b>bold</b> <script>alert(2)</script>"
REPORT = f"""# Done

| loss | where |
|---|---:|
| **0.5** | [here](https://example.org/) |

{HTML} [no](javascript:alert(1)) ![picture](https://example.org/x.png)"""
RATE = 8_000
PDF = b"%PDF-1.4 of the test"


def digits(seed, step):
    return np.random.default_rng(seed + step).integers(0, 255, (4, 8, 8), dtype=np.uint8)


def tone(step):
    """A second of a sound that fades."""
    t = np.arange(RATE) / RATE
    return np.rint(2**14 * np.sin(2 * np.pi * (220 + step) * t) * (1 - t)).astype(np.int16)


def worst(seed):
    """A table of 120 predictions."""
    rng = np.random.default_rng(seed)
    labels = [("cat", "dog", HTML)[i % 3] for i in range(120)]
    return {"label": labels, "loss": rng.random(120), "seen": sg.Images(digits(seed, 1).repeat(30, axis=0))}


def png(width, height):
    """A picture as a file, of one colour."""
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))  # noqa: E731
    rows = b"".join(b"\0" + bytes([200, 60, 20]) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("media") as folder:
        for seed, name in enumerate(("first", "second")):
            with sg.init(name, dir=folder) as run:
                for step in STEPS[: 3 - seed]:
                    run.log(
                        {
                            "digits": sg.Images(digits(seed, step)),
                            "one": sg.Image(np.full((40, 60, 3), 128, np.uint8), caption=f"caption {step} {HTML}"),
                            "curve": sg.Figure(png(600, 400), "image/png"),
                            "paper": sg.Figure(PDF, "application/pdf"),
                            "note": f"note {step} {HTML}",
                            "report": REPORT,
                            "worst": sg.Table(worst(seed)),
                            "tone": sg.Audio(tone(step), RATE),
                            "floats": sg.Audio(np.stack([tone(step), -tone(step)], 1) / 2**15, RATE),
                        },
                        step=step,
                    )
    return shelf.server


@pytest.fixture
def page(open_page, server):
    return open_page(server.controller, "/media?project=media")


def show(page, tag):
    page.get_by_role("list", name="Tags").get_by_role("button", name=re.compile(rf"^{tag}\b")).click()
    expect(page.get_by_role("heading", name=tag, exact=True)).to_be_visible()


def run(page, tag, name):
    return page.get_by_role("article", name=f"{tag} of {name}")


PIXELS = """image => {
  if (!image.complete || !image.naturalWidth) return null
  const copy = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext('2d')
  copy.drawImage(image, 0, 0)
  const { data } = copy.getImageData(0, 0, image.naturalWidth, image.naturalHeight)
  return Array.from({ length: data.length / 4 }, (_, i) => data[4 * i])
}"""


def pixels(image):
    return image.evaluate(PIXELS)


def test_pictures_and_figures_of_several_runs(page, open_page, server):
    pictures_of_all_runs_stand_side_by_side_as_they_were_logged(page)
    a_picture_is_seen_in_full_size(page)
    another_step_shows_other_pictures(page)
    pictures_and_figures_are_downloaded_as_recorded(page)
    a_link_shows_the_same_picture(page, open_page, server)


def test_sounds(page):
    for tag in ("tone", "floats"):
        a_sound_is_played_from_where_one_clicks(page, tag)
    another_step_shows_another_sound_which_is_downloaded_as_it_was(page)


def test_texts(page):
    captions_and_texts_are_texts_whatever_stands_in_them(page)
    texts_are_searched_and_downloaded(page)
    texts_are_drawn_as_markdown_of_which_nothing_is_run_or_fetched(page)


def pictures_of_all_runs_stand_side_by_side_as_they_were_logged(page):
    show(page, "digits")
    for seed, name in enumerate(("first", "second")):
        images = run(page, "digits", name).get_by_role("img").and_(page.locator("img"))
        expect(images).to_have_count(4)
        step = STEPS[2 - seed]
        for i in range(4):
            until(
                page,
                lambda i=i, images=images, seed=seed, step=step: (
                    pixels(images.nth(i)) == digits(seed, step)[i].ravel().tolist()
                ),
            )
    boxes = [box_of(run(page, "digits", name)) for name in ("first", "second")]
    assert boxes[0]["y"] == boxes[1]["y"]
    expect(run(page, "digits", "second")).to_contain_text("step 100, the last until then")


def another_step_shows_other_pictures(page):
    show(page, "digits")
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    image = run(page, "digits", "first").locator("img").first
    until(page, lambda: pixels(image) == digits(0, 0)[0].ravel().tolist())
    page.get_by_role("button", name="Play through the steps").click()
    until(page, lambda: pixels(image) == digits(0, 200)[0].ravel().tolist())


def a_picture_is_seen_in_full_size(page):
    show(page, "digits")
    run(page, "digits", "first").get_by_role("button", name=re.compile("^Open .* in full size")).first.click()
    dialog = page.get_by_role("dialog", name="digits of first")
    expect(dialog).to_contain_text("1 of 4")
    expect(dialog).to_contain_text("8 × 8")
    image = dialog.locator("img")
    fit = box_of(image)["width"]
    dialog.get_by_role("button", name="8×").click()
    until(page, lambda: box_of(image)["width"] == 64 != fit)
    dialog.get_by_role("button", name="Next").click()
    expect(dialog).to_contain_text("2 of 4")
    until(page, lambda: pixels(image) == digits(0, 200)[1].ravel().tolist())
    dialog.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    until(page, lambda: pixels(image) == digits(0, 0)[1].ravel().tolist())
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def pictures_and_figures_are_downloaded_as_recorded(page):
    for tag, suffix in (("digits", "PNG"), ("curve", "PNG"), ("paper", "PDF")):
        show(page, tag)
        with page.expect_download() as got:
            run(page, tag, "first").get_by_role("button", name=re.compile(f"^Download .* as {suffix}")).first.click()
        data = got.value.path().read_bytes()
        assert got.value.suggested_filename.endswith(suffix.lower())
        if tag == "paper":
            assert data == PDF
        elif tag == "curve":
            assert data == png(600, 400)
            image = run(page, tag, "first").locator("img")
            until(page, lambda image=image: image.evaluate("image => image.naturalWidth") == 600)
        else:
            image = pytest.importorskip("PIL.Image").open(io.BytesIO(data))
            np.testing.assert_array_equal(np.asarray(image.convert("L")), digits(0, 200)[0])


def a_sound_is_played_from_where_one_clicks(page, tag):
    show(page, tag)
    first = run(page, tag, "first")
    expect(first).to_contain_text("1 s, 8,000 Hz, " + ("mono, int16" if tag == "tone" else "stereo, float64"))
    position = first.get_by_role("slider")
    expect(position).to_have_attribute("aria-valuetext", "0:00.0 of 0:01.0")
    box = box_of(position)
    position.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    expect(position).to_have_attribute("aria-valuetext", "0:00.5 of 0:01.0")
    position.focus()
    page.keyboard.press("ArrowLeft")
    expect(position).to_have_attribute("aria-valuenow", "45")
    first.get_by_role("button", name=f"Play {tag}, step 200").click()
    expect(position).to_have_attribute("aria-valuetext", "0:00.0 of 0:01.0")  # it was played to its end
    expect(first.get_by_role("button", name=f"Play {tag}")).to_be_visible()


def another_step_shows_another_sound_which_is_downloaded_as_it_was(page):
    show(page, "tone")
    first = run(page, "tone", "first")
    outline = first.get_by_role("slider").locator("path").first
    latest = outline.get_attribute("d")
    page.get_by_role("slider", name="Step", exact=True).focus()
    page.keyboard.press("Home")
    expect(first.get_by_role("button", name="Play tone, step 0")).to_be_visible()
    assert outline.get_attribute("d") != latest
    with page.expect_download() as got:
        first.get_by_role("button", name="Download tone, step 0 as WAV").click()
    assert decode_wav(got.value.path().read_bytes()).value.tolist() == tone(0).tolist()


def cells(table, column):
    return table.locator("tbody tr").evaluate_all("(rows, i) => rows.map(row => row.cells[i].innerText)", column)


def test_a_table_is_found_sorted_and_paged(open_page, server):
    page = open_page(server.controller, "/media?project=media", expects=["status of 404"])
    show(page, "worst")
    first = run(page, "worst", "first")
    table = first.get_by_role("region", name="Table worst")
    expect(table.locator("tbody tr")).to_have_count(50)
    expect(first).to_contain_text("120 rows")
    assert cells(table, 0)[:3] == ["cat", "dog", HTML]
    first.get_by_role("button", name="Next").click()
    expect(first).to_contain_text("51 to 100")
    table.get_by_role("button", name="loss").click()
    expect(first).to_contain_text("1 to 50")
    expect(table.get_by_role("columnheader", name="loss")).to_have_attribute("aria-sort", "ascending")
    smallest = np.sort(worst(0)["loss"])[:50]
    until(page, lambda: np.allclose([float(text) for text in cells(table, 1)], smallest, rtol=1e-4))
    table.get_by_role("button", name="loss").click()
    until(page, lambda: np.allclose(float(cells(table, 1)[0]), worst(0)["loss"].max(), rtol=1e-4))
    page.get_by_role("searchbox", name="Find rows").fill("label = dog and loss < 0.5")
    n = sum(loss < 0.5 for loss in worst(0)["loss"][1::3])
    expect(first).to_contain_text(f"{n} of 120 rows")
    assert set(cells(table, 0)) == {"dog"}
    image = table.locator("img").first
    until(page, lambda: image.evaluate("image => image.naturalWidth") == 8)
    page.get_by_role("searchbox", name="Find rows").fill("los < 1")
    expect(first.get_by_role("alert")).to_contain_text("Unknown column 'los'. Did you mean 'loss'?")


def captions_and_texts_are_texts_whatever_stands_in_them(page):
    show(page, "one")
    expect(run(page, "one", "first")).to_contain_text(f"caption 200 {HTML}")
    show(page, "note")
    log = run(page, "note", "first").get_by_role("log")
    for step in STEPS:
        expect(log).to_contain_text(f"note {step} {HTML}")
    assert log.locator("img, b, script").count() == 0


def texts_are_drawn_as_markdown_of_which_nothing_is_run_or_fetched(page):
    fetched = []
    page.on("request", lambda request: fetched.append(request.url))
    show(page, "report")
    log = run(page, "report", "first").get_by_role("log")
    expect(log).to_contain_text("# Done")
    page.get_by_role("button", name="Markdown").click()
    expect(log.get_by_role("heading", name="Done")).to_have_count(3)
    expect(log.get_by_role("table").first.get_by_role("cell").first).to_have_text("0.5")
    links = log.get_by_role("link").evaluate_all("links => [...new Set(links.map(link => link.href))]")
    assert links == ["https://example.org/", "https://example.org/x.png"]
    expect(log).to_contain_text("<b>bold</b> <script>alert(2)</script> [no](javascript:alert(1))")
    expect(log.locator("img, script, b")).to_have_count(0)
    assert not [url for url in fetched if "example.org" in url]
    page.get_by_role("searchbox", name="Search in the texts").fill("# done")
    expect(log.locator("mark").first).to_have_text("# Done")


def texts_are_searched_and_downloaded(page):
    show(page, "note")
    page.get_by_role("searchbox", name="Search in the texts").fill("note 1")
    first = run(page, "note", "first")
    expect(first).to_contain_text("1 of 3")
    expect(first.locator("mark")).to_have_text("note 1")
    expect(first.get_by_role("log")).not_to_contain_text("note 200")
    page.get_by_role("searchbox", name="Search in the texts").fill("")
    with page.expect_download() as got:
        first.get_by_role("button", name="Download the texts").click()
    assert [f"[step {step}] note {step} {HTML}" for step in STEPS] == got.value.path().read_text().splitlines()


def a_link_shows_the_same_picture(page, open_page, server):
    show(page, "digits")
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    until(page, lambda: "when=0" in page.url and "media=digits" in page.url)
    other = open_page(server.viewer, page.url.partition("#")[2])
    image = run(other, "digits", "first").locator("img").first
    until(other, lambda: image.count() and pixels(image) == digits(0, 0)[0].ravel().tolist())
