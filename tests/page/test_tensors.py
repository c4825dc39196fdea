"""Tensors and histograms: every part of them, at every step, as numbers and as pictures."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.growing import write_kinds

import sightglass as sg

from ..server.conftest import place_foreign  # noqa: TID252  tests are no package
from .looks import box_of, go_to, has_url, until
from .places import remove

STEPS = [0, 10, 100, 1000]
PLACE = "/tensors?project=tensors"
rng = np.random.default_rng(3)
KERNELS = [rng.normal(size=(3, 8, 5)).astype(np.float32) + i for i in range(len(STEPS))]
KERNELS[2][1, 2, 3] = np.nan
KERNELS[2][2, 7, 4] = np.inf
OTHER = rng.normal(size=(3, 8, 5)).astype(np.float32)
BIG = np.arange(10_000_000, dtype=np.float32).reshape(2500, 4000)


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("tensors") as folder:
        with sg.init("other", dir=folder) as run:
            run.log({"kernel": sg.Tensor(OTHER)}, step=100)
        with sg.init("weights", dir=folder) as run:
            for step, kernel in zip(STEPS, KERNELS, strict=True):
                run.log({"kernel": sg.Tensor(kernel)}, step=step)
                run.log({"acts": sg.Histogram(rng.normal(size=500) * (1 + step / 500))}, step=step)
            run.log({"big": sg.Tensor(BIG), "none": sg.Tensor(np.zeros((0, 3)))}, step=0)
        place_foreign(folder)
    return shelf.server


@pytest.fixture
def page(open_page, server):
    rights = ["clipboard-read", "clipboard-write"]
    return open_page(server.controller, PLACE, permissions=rights, expects=["status of 400", "status of 409"])


def begin(page, place=PLACE, tag="kernel"):
    """Show a tensor as it is shown by default; returns the page."""
    page.keyboard.press("Escape")
    go_to(page, "/runs?project=tensors")
    expect(page.get_by_role("grid", name="Runs")).to_be_visible()
    go_to(page, place)
    return show(page, tag)


def show(page, tag):
    page.get_by_role("list", name="Tags").get_by_role("button", name=re.compile(rf"^{tag}\b")).click()
    expect(page.get_by_role("heading", name=tag, exact=True)).to_be_visible()
    return page


def grid(page):
    return page.get_by_role("grid")


def marked(page):
    """The value of the marked cell, with the place that is said of it."""
    return grid(page).get_by_role("gridcell")


def read(page, row, column):
    """Go to a cell by keys, and read it; again if a key came while the page was drawn anew."""
    place = re.compile(rf"row {row}, column {column}: (?!…|True|False)(.+)")  # not those of the mask before

    def there():
        grid(page).focus()
        for key in ("Control+Home", *["ArrowDown"] * row, *["ArrowRight"] * column):
            page.keyboard.press(key)
        # Looked at once: another step may be on its way already.
        return place.match(marked(page).text_content() or "")

    return float(until(page, there)[1].replace("−", "-"))


def whole(page):
    return page.get_by_role("textbox", name="as one text")


def take(page, slice):
    whole(page).fill(slice)
    whole(page).press("Enter")


def close_to(number):
    return pytest.approx(float(number), rel=1e-3, abs=1e-4)


SLICES = {
    "[2]": KERNELS[-1][2],
    "[:, 3, ::-1]": KERNELS[-1][:, 3, ::-1],
    "[1, 2:6:2, -3:]": KERNELS[-1][1, 2:6:2, -3:],
    "[..., 1]": KERNELS[-1][..., 1],
}


def test_tables_and_slices(page):
    the_table_shows_the_recorded_numbers(page)
    for slice, expected in SLICES.items():
        slices_are_numpy_s(page, slice, expected)
    each_dimension_has_a_box(page)
    an_invalid_slice_shows_the_librarys_error(page)
    statistics_of_slice_and_whole(page)
    a_single_number_and_an_empty_tensor(page)
    slices_are_downloaded_and_copied(page)


def test_steps_and_places_worth_seeing(page):
    steps_by_slider_number_and_play(page)
    places_worth_seeing_are_found(page)


def test_colours_and_digits_of_cells(page):
    cells_are_coloured_on_a_symmetric_scale(page)
    number_formats(page)
    a_heat_map_of_the_same_slice_opens_its_cells(page)
    ten_million_cells_scroll_and_are_read(page)


def test_histograms(page):
    all_four_pictures_and_their_options(page)
    counts_add_up(page)
    a_histogram_is_read_by_keys_and_pointer(page)
    a_click_on_a_step_opens_its_table_and_a_drag_zooms(page)


def test_several_tensors_and_runs(page):
    a_tensor_is_compared_with_another_step_run_and_tensor(page)
    several_runs_and_tensors_are_shown_side_by_side(page)
    histograms_of_runs_at_a_step_share_a_chart(page)
    all_tensors_are_shown_at_a_glance(page)
    a_statistic_over_the_steps_is_a_chart_of_ones_own(page)


def test_tensors_of_other_kinds_and_programs(page, odd):
    those_of_other_programs_open_too(page)
    strings_are_a_table_of_texts(page)
    a_complex_tensor_says_that_statistics_and_colours_are_of_magnitudes(page)
    a_key_says_which_colour_is_which_value(page)
    the_kinds_of_one_tag_are_chosen_apart(page)


def test_damaged_steps_and_runs_without_tensors(open_page, shelf):
    a_damaged_step_is_marked_and_a_tensor_says_what_it_was(open_page, shelf)
    the_newest_visible_run_that_has_tensors_is_shown(open_page, shelf)


def the_table_shows_the_recorded_numbers(page):
    begin(page)
    expect(grid(page)).to_have_attribute("aria-rowcount", "8")
    expect(grid(page)).to_have_attribute("aria-colcount", "5")
    assert whole(page).input_value().replace(" ", "") in ("[0,:,:]", "[0,...]")
    for row, column in ((0, 0), (3, 2), (7, 4)):
        assert read(page, row, column) == close_to(KERNELS[-1][0, row, column])


def slices_are_numpy_s(page, slice, expected):
    begin(page)
    take(page, slice)
    expect(grid(page)).to_have_attribute("aria-rowcount", str(expected.shape[0]))
    expect(grid(page)).to_have_attribute("aria-colcount", str(expected.shape[1]))
    statistics = page.get_by_role("region", name="Statistics").get_by_role("row").filter(has_text="slice")
    expect(statistics.get_by_role("cell").first).to_have_attribute("title", re.compile(r"^-?\d"))
    until(page, lambda: float(statistics.get_by_role("cell").first.get_attribute("title")) == close_to(expected.min()))
    assert float(statistics.get_by_role("cell").nth(1).get_attribute("title")) == close_to(expected.max())
    has_url(page, "slice=")


def each_dimension_has_a_box(page):
    begin(page)
    boxes = page.get_by_role("group", name="Slice").get_by_role("textbox")
    expect(boxes).to_have_count(4)
    first = boxes.first
    first.focus()
    page.keyboard.press("ArrowUp")
    expect(first).to_have_value("1")
    until(page, lambda: read(page, 0, 0) == close_to(KERNELS[-1][1, 0, 0]))


def an_invalid_slice_shows_the_librarys_error(page):
    begin(page)
    take(page, "[7]")
    expect(page.get_by_role("alert")).to_contain_text("7")
    expect(whole(page)).to_have_attribute("aria-invalid", "true")
    take(page, "[0]")
    expect(page.get_by_role("alert")).to_be_hidden()


def statistics_of_slice_and_whole(page):
    begin(page)
    region = page.get_by_role("region", name="Statistics")
    for name, values in (("slice", KERNELS[-1][0]), ("whole", KERNELS[-1])):
        cells = region.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name)).get_by_role("cell")
        expect(cells.nth(5)).to_have_text(str(values.size))
        for i, expected in enumerate((values.min(), values.max(), values.mean(), values.std())):
            assert float(cells.nth(i).get_attribute("title")) == pytest.approx(float(expected), rel=1e-4)


def steps_by_slider_number_and_play(page):
    begin(page)
    slider = page.get_by_role("slider", name="Step")
    expect(slider).to_have_attribute("aria-valuetext", "step 1000, 4 of 4")
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "step 0, 1 of 4")
    until(page, lambda: read(page, 0, 0) == close_to(KERNELS[0][0, 0, 0]))
    slider.focus()
    page.keyboard.press("ArrowRight")
    until(page, lambda: read(page, 0, 0) == close_to(KERNELS[1][0, 0, 0]))
    number = page.get_by_role("group", name="Step").get_by_role("spinbutton")
    number.fill("90")
    page.evaluate("location.hash += '&digits=3'")  # The page is drawn again; what is being typed stays.
    expect(page.get_by_role("spinbutton", name="Digits")).to_have_value("3")
    number.press("Enter")
    expect(number).to_have_value("100")
    until(page, lambda: read(page, 0, 0) == close_to(KERNELS[2][0, 0, 0]))
    has_url(page, "step=100")
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Play through the steps").click()
    expect(slider).to_have_attribute("aria-valuetext", "step 1000, 4 of 4")
    expect(page.get_by_role("button", name="Play through the steps")).to_be_visible()


def places_worth_seeing_are_found(page):
    begin(page)
    finds = page.get_by_role("group", name="Find")
    foot = page.get_by_text(re.compile(r"^\[\d+(, \d+)*\]"))
    finds.get_by_role("button", name="max", exact=True).click()
    where = np.unravel_index(KERNELS[-1].argmax(), KERNELS[-1].shape)
    expect(foot.first).to_contain_text(f"[{', '.join(map(str, where))}]")
    finds.get_by_role("button", name="NaN").click()
    expect(page.get_by_role("status").filter(has_text="There is no NaN")).to_be_visible()
    finds.get_by_role("button", name="all steps").click()
    finds.get_by_role("button", name="NaN").click()
    expect(foot.first).to_contain_text("[1, 2, 3]")
    expect(page.get_by_role("slider", name="Step")).to_have_attribute("aria-valuetext", "step 100, 3 of 4")
    expect(marked(page)).to_contain_text(re.compile("row 2, column 3: NaN"))
    finds.get_by_role("button", name="Inf", exact=True).click()
    expect(foot.first).to_contain_text("[2, 7, 4]")


TINTS = """canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
  copy.drawImage(canvas, 0, 0)
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height)
  let [blue, orange] = [0, 0]
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 2] - data[i] > 20) blue++
    if (data[i] - data[i + 2] > 20) orange++
  }
  return [blue, orange]
}"""


def tints(page):
    return grid(page).locator("canvas").evaluate(TINTS)


def cells_are_coloured_on_a_symmetric_scale(page):
    begin(page)
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    blue, orange = until(page, lambda: (found := tints(page)) and min(found) > 1000 and found)
    assert 0.2 < blue / orange < 5  # about as many values are below zero as above
    page.get_by_role("combobox", name="Colours").select_option("none")
    until(page, lambda: max(tints(page)) < 0.3 * min(blue, orange))
    page.get_by_role("combobox", name="Colours").select_option("max")
    until(page, lambda: min(tints(page)) > 500)


def number_formats(page):
    begin(page)
    grid(page).focus()
    page.keyboard.press("Control+Home")
    formats = page.get_by_role("group", name="Number format")
    digits = page.get_by_role("spinbutton", name="Digits")
    formats.get_by_role("button", name="1e−3").click()
    digits.fill("3")
    digits.press("Enter")
    expect(marked(page)).to_contain_text(re.compile(r": −?\d\.\d{3}e"))
    formats.get_by_role("button", name="0.00").click()
    expect(marked(page)).to_contain_text(re.compile(r": −?\d+\.\d{3}$"))


def a_tensor_is_compared_with_another_step_run_and_tensor(page):
    begin(page)
    page.get_by_role("button", name="Compare").click()
    minus = page.get_by_role("group", name="Compare with")
    expect(minus).to_contain_text("step 100")
    until(page, lambda: read(page, 1, 1) == close_to(KERNELS[3][0, 1, 1] - KERNELS[2][0, 1, 1]))
    minus.get_by_role("combobox", name="Step to compare with").select_option("first")
    until(page, lambda: read(page, 1, 1) == close_to(KERNELS[3][0, 1, 1] - KERNELS[0][0, 1, 1]))
    runs = minus.get_by_role("combobox", name="Run to compare with")
    runs.select_option(runs.locator("option").filter(has_text="other").get_attribute("value"))
    expect(runs.locator("option")).to_have_text(["this run", "other", "tensors/ms"])  # no others have such a tensor
    until(page, lambda: read(page, 1, 1) == close_to(KERNELS[3][0, 1, 1] - OTHER[0, 1, 1]))
    page.get_by_role("group", name="Find").get_by_role("button", name="max", exact=True).click()
    where = np.unravel_index((KERNELS[3] - OTHER).argmax(), OTHER.shape)
    foot = page.get_by_text(re.compile(r"^\[\d+(, \d+)*\]")).first
    expect(foot).to_contain_text(f"[{', '.join(map(str, where))}]")
    whole_row = page.get_by_role("region", name="Statistics").get_by_role("row").filter(has_text="whole")
    largest = whole_row.get_by_role("cell").nth(1)
    until(page, lambda: float(largest.get_attribute("title")) == close_to((KERNELS[3] - OTHER).max()))
    take(page, "[0]")
    measure = minus.get_by_role("combobox", name="How to compare")
    measure.select_option("relative difference")
    expected = (KERNELS[3] - OTHER)[0, 1, 1] / abs(OTHER[0, 1, 1])
    until(page, lambda: read(page, 1, 1) == close_to(expected))
    measure.select_option("is close")
    minus.get_by_role("spinbutton", name="atol").fill("1000")
    minus.get_by_role("spinbutton", name="atol").press("Enter")
    expect(marked(page)).to_contain_text("True")  # drawn anew, it may move what is clicked
    page.get_by_role("button", name="not close").click()
    expect(page.get_by_role("status").filter(has_text="There is nothing not close")).to_be_visible()
    page.get_by_role("button", name="Histograms").click()  # of the comparison at all steps
    expect(page.locator(".histograms-box canvas").first).to_be_visible()
    has_url(page, "measure=close&atol=1000")
    page.get_by_role("button", name="Table", exact=True).click()
    runs.select_option("this run")
    has_url(page, "minus=%40previous")
    page.evaluate("location.hash += '&versus=big'")  # of another shape, so that it is not offered
    minus.get_by_role("combobox", name="Step to compare with").select_option("first")
    expect(page.get_by_role("alert")).to_contain_text("Expected two tensors of one shape")
    minus.get_by_role("combobox", name="Tensor to compare with").select_option("kernel")
    expect(page.get_by_role("alert")).to_be_hidden()
    minus.get_by_role("button", name="Stop comparing").click()
    expect(minus).to_be_hidden()


def several_runs_and_tensors_are_shown_side_by_side(page):
    begin(page)
    views = page.get_by_role("group", name="View")
    views.get_by_role("button", name="Statistics").click()
    chart = page.get_by_role("img", name=re.compile(r"Line chart of norm of kernel, 1 line\b"))
    expect(chart).to_be_visible()
    page.get_by_role("combobox", name="Statistic").select_option("max")
    page.get_by_role("button", name="Other runs").click()
    page.get_by_role("searchbox", name="Other tensors").fill("^acts$")
    expect(page.get_by_role("img", name=re.compile(r"Line chart of max of kernel, 4 lines"))).to_be_visible()
    expect(page.get_by_role("list", name="Lines").get_by_role("listitem")).to_have_text(
        ["weights · kernel", "weights · acts", "other · kernel", "tensors/ms · kernel"]
    )
    page.get_by_role("button", name="Download the statistics").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="CSV").click()
    head, *rows = (line.split(",") for line in download.value.path().read_text().splitlines())
    assert head == ["run", "run_id", "tag", "step", "wall_time", "value"]
    largest = {(run, int(step)): float(value) for run, _, tag, step, _, value in rows if tag == '"kernel.max"'}
    finite = [kernel[np.isfinite(kernel)] for kernel in KERNELS]
    assert largest == {
        **{('"weights"', step): kernel.max() for step, kernel in zip(STEPS, finite, strict=True)},
        ('"other"', 100): OTHER.max(),
    }
    views.get_by_role("button", name="Histograms").click()
    expect(page.locator(".histograms-card canvas")).to_have_count(4)
    page.get_by_role("searchbox", name="Other tensors").fill("")
    page.get_by_role("button", name="Other runs").click()
    expect(page.locator(".histograms-card")).to_have_count(0)


def slices_are_downloaded_and_copied(page):
    begin(page)
    take(page, "[1, ::2, 1:]")
    expect(grid(page)).to_have_attribute("aria-rowcount", "4")
    expected = KERNELS[-1][1, ::2, 1:]
    got = {}
    for item in ("CSV", "NumPy (npy)"):
        page.get_by_role("button", name="Download the slice").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=item).click()
        got[item] = download.value.path().read_bytes()
    np.testing.assert_array_equal(np.load(io.BytesIO(got["NumPy (npy)"])), expected)
    rows = [line for line in got["CSV"].decode().splitlines() if not line.startswith("#")]
    np.testing.assert_allclose(np.loadtxt(rows[-4:], delimiter=","), expected, rtol=1e-6)
    page.get_by_role("button", name="Copy the slice").click()
    expect(page.get_by_role("status").filter(has_text=re.compile("[Cc]opied"))).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    np.testing.assert_allclose(np.loadtxt(copied.strip().splitlines(), delimiter="\t"), expected, rtol=1e-6)


def a_heat_map_of_the_same_slice_opens_its_cells(page):
    begin(page)
    page.get_by_role("button", name="Heat map").click()
    heat = page.locator(".heat canvas")
    expect(heat).to_be_visible()
    until(page, lambda: min(heat.evaluate(TINTS)) >= 0 and sum(heat.evaluate(TINTS)) > 10)
    box = box_of(heat)
    page.mouse.click(box["x"] + box["width"] * 0.9 / 5 * 5, box["y"] + box["height"] * 0.95)
    expect(marked(page)).to_contain_text("row 7, column 4")


def ten_million_cells_scroll_and_are_read(page):
    begin(page)
    sizes = []
    page.on(
        "response",
        lambda answer: sizes.append(int(answer.headers.get("content-length", 0))) if "/tensor?" in answer.url else None,
    )
    show(page, "big")
    expect(grid(page)).to_have_attribute("aria-rowcount", "2500")
    expect(grid(page)).to_have_attribute("aria-colcount", "4000")
    grid(page).focus()
    page.keyboard.press("Control+End")
    expect(marked(page)).to_contain_text(
        re.compile(r"row 2499, column 3999: (9999999|9,999,999|1e\+?7|9\.9+e\+?6|1\.0+e\+?7)")
    )
    page.mouse.move(*center(grid(page)))
    page.mouse.wheel(0, -20_000)
    page.mouse.wheel(-50_000, 0)
    page.get_by_role("group", name="Find").get_by_role("button", name="min", exact=True).click()
    expect(marked(page)).to_contain_text("row 0, column 0: 0")
    assert max(sizes) < 2_000_000  # windows, never the whole
    assert page.evaluate("document.querySelectorAll('*').length") < 3000


def center(locator):
    box = box_of(locator)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def a_single_number_and_an_empty_tensor(page):
    begin(page)
    take(page, "[1, 2, 3]")
    number = page.get_by_role("status", name="Value of kernel[1, 2, 3]")
    expect(number).to_have_text(re.compile(r"^−?\d+\.\d{4,}$"))
    assert float(number.inner_text().replace("−", "-")) == close_to(KERNELS[-1][1, 2, 3])
    show(page, "none")
    expect(page.get_by_role("heading", name="No values")).to_be_visible()


def a_damaged_step_is_marked_and_a_tensor_says_what_it_was(open_page, shelf):
    with shelf.project("damaged") as folder:
        place_foreign(folder)
        remove(folder / "tb")
        (file,) = (folder / "ms").iterdir()
        data = bytearray(file.read_bytes())
        data[data.index(np.float32([2, 4, 6]).tobytes())] ^= 1  # in the event of step 2
        file.write_bytes(data)
    place = "/tensors?project=damaged&tensor=mask&minus=unknown@same"
    page = open_page(shelf.server.controller, place, expects=["404"])
    expect(page.get_by_role("alert")).to_contain_text("It cannot be compared: ")
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_text("bool, stored as float32")).to_be_visible()
    bar = page.get_by_role("group", name="Step")
    expect(bar).to_contain_text("2 of 2 (1 … 3) · step 2 is damaged")
    expect(bar.get_by_title(re.compile(r"Step 2 is damaged: \S+_MS, offset \d+"))).to_be_visible()


def those_of_other_programs_open_too(page):
    begin(page)
    picker = page.get_by_role("navigation", name="Run and tensor")
    picker.get_by_role("button", name="weights").click()
    names = picker.get_by_role("list", name="Runs").get_by_role("button").all_inner_texts()
    assert len(names) > 3
    for i in range(len(names)):
        if i:
            picker.get_by_role("button", expanded=False).first.click()
        picker.get_by_role("list", name="Runs").get_by_role("button").nth(i).click()
        shown = (
            page.get_by_role("grid").or_(page.get_by_role("img")).or_(page.get_by_role("heading", name="No tensors"))
        )
        expect(shown.first).to_be_visible()


# Histograms


def histograms(page):
    """Show the histograms of the kernel."""
    begin(page).get_by_role("group", name="View").get_by_role("button", name="Histograms").click()
    expect(picture(page)).to_be_visible()


def picture(page):
    return page.get_by_role("img", name=re.compile("^(Histograms|Percentiles) of"))


SHOT = """canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
  copy.drawImage(canvas, 0, 0)
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height)
  let [sum, inked] = [0, 0]
  for (let i = 0; i < data.length; i += 4) {
    sum = (31 * sum + data[i] + 7 * data[i + 1] + 3 * data[i + 2]) % 1000003
    if (Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 30) inked++
  }
  return [sum, inked]
}"""


def shot(page):
    return picture(page).locator("canvas").evaluate(SHOT)


def all_four_pictures_and_their_options(page):
    histograms(page)
    seen = []

    def looks_different():
        until(page, lambda: (now := shot(page))[1] > 300 and now not in seen)
        seen.append(shot(page))

    looks_different()
    for kind in ("Overlay", "Heat map", "Percentiles", "Offset"):
        page.get_by_role("group", name="Picture").get_by_role("button", name=kind).click()
        if kind != "Offset":
            looks_different()
    for along in ("even", "relative", "wall"):
        page.get_by_role("combobox", name="Axis").select_option(along)
        looks_different()
    page.get_by_role("group", name="Scale of values").get_by_role("button", name="Symlog").click()
    looks_different()
    page.get_by_role("combobox", name="Bins").select_option("16")
    looks_different()
    has_url(page, "bins=16")


def counts_add_up(page):
    histograms(page)
    show(page, "acts")
    page.get_by_role("group", name="View").get_by_role("button", name="Table").click()
    table = page.get_by_role("region", name=re.compile("^Histogram of acts at step 1000"))
    expect(table).to_contain_text("500 values")
    counts = table.get_by_role("row").evaluate_all(
        "rows => rows.slice(1).map(row => Number(row.cells[2].textContent.replace(/\\D/g, '')))"
    )
    assert sum(counts) == 500


def a_histogram_is_read_by_keys_and_pointer(page):
    histograms(page)
    picture(page).focus()
    page.keyboard.press("ArrowRight")
    tip = page.get_by_text(re.compile("step 1,?000"))
    expect(tip.first).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_text(re.compile("step 100")).first).to_be_visible()
    page.keyboard.press("Enter")
    expect(grid(page)).to_be_visible()
    expect(page.get_by_role("slider", name="Step")).to_have_attribute("aria-valuetext", "step 100, 3 of 4")


def a_click_on_a_step_opens_its_table_and_a_drag_zooms(page):
    histograms(page)
    box = box_of(picture(page))
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle)
    page.mouse.move(box["x"] + 0.6 * box["width"], middle)
    page.mouse.up()
    has_url(page, "values=")
    page.get_by_role("button", name="Reset zoom").click()
    until(page, lambda: "values=" not in page.url)
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.9 * box["height"])
    expect(grid(page)).to_be_visible()


def all_tensors_are_shown_at_a_glance(page):
    begin(page)
    page.get_by_role("button", name="Overview").click()
    rows = page.get_by_role("list", name="Tensors of the run").get_by_role("listitem")
    expect(rows).to_have_count(5)  # the heads of the columns, and the tensors
    expect(page.get_by_text("4 tensors")).to_be_visible()
    kernel = rows.filter(has_text="kernel")
    norm = f"{np.linalg.norm(KERNELS[3].astype(np.float64)):.4g}"
    expect(kernel).to_contain_text(norm)
    expect(kernel.get_by_role("img", name=re.compile("^norm from .* last"))).to_be_visible()
    page.get_by_role("spinbutton").fill("100")
    page.keyboard.press("Enter")
    expect(kernel).to_contain_text("0.8%")  # one NaN and one infinity among 120 values
    page.get_by_role("button", name="max", exact=True).click()
    expect(rows.nth(1)).to_contain_text("big")
    has_url(page, "rank=-max")
    kernel.get_by_role("button").click()
    expect(page.get_by_role("heading", name="kernel", exact=True)).to_be_visible()
    expect(grid(page)).to_be_visible()


def a_statistic_over_the_steps_is_a_chart_of_ones_own(page):
    begin(page)
    page.get_by_role("button", name="Statistics", exact=True).click()
    page.get_by_role("button", name="Chart", exact=True).click()
    has_url(page, "own=norm+of+kernel|norm%28kernel%29")
    chart = page.get_by_role("article", name="norm of kernel")
    expect(chart.locator("canvas").first).to_be_visible()
    chart.get_by_role("button", name="Edit norm of kernel").click()
    editor = page.get_by_role("dialog")
    editor.get_by_role("searchbox").fill("n_nan(kernel)")
    editor.get_by_role("checkbox", name="n_nan(kernel)").click()
    editor.get_by_role("button", name="Save").click()
    has_url(page, "norm%28kernel%29|n_nan%28kernel%29")


def histograms_of_runs_at_a_step_share_a_chart(page):
    begin(page)
    page.get_by_role("button", name="Histograms", exact=True).click()
    page.get_by_role("button", name="Other runs").click()
    page.get_by_role("button", name="One chart").click()
    names = page.get_by_role("list", name="Histograms").get_by_role("listitem")
    expect(names).to_have_text(
        [re.compile("^weights"), re.compile("^other step 100$"), re.compile("^tensors/ms step 3$")]
    )
    expect(page.locator(".curve-box canvas").first).to_be_visible()
    has_url(page, "together=1")


def the_newest_visible_run_that_has_tensors_is_shown(open_page, shelf):
    with shelf.project("choice") as folder:
        for name in ("older", "middle", "newest"):
            with sg.init(name, dir=folder) as run:
                run.log({"kernel": sg.Tensor(OTHER)} if name != "newest" else {"loss": 1.0}, step=0)
    page = open_page(shelf.server.controller, "/tensors?project=choice")
    expect(page.get_by_role("heading", name="kernel", exact=True)).to_be_visible()
    expect(page.get_by_role("navigation", name="Run and tensor")).to_contain_text("middle")
    assert "from=" not in page.url
    page = open_page(shelf.server.controller, "/tensors?project=choice&filter=newest")
    expect(page.get_by_role("heading", name="No tensors in the visible runs")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("2 other runs have some")
    page.get_by_role("button", name="older").click()
    expect(page.get_by_role("heading", name="kernel", exact=True)).to_be_visible()
    expect(page.get_by_role("navigation", name="Run and tensor")).to_contain_text("older")
    has_url(page, "from=")
    page = open_page(shelf.server.controller, "/tensors?project=choice&runs=nothing")
    expect(page.get_by_role("heading", name="No run is visible")).to_be_visible()


@pytest.fixture(scope="session")
def odd(shelf):
    """A project of tensors that are not of real numbers, and of a tag with values of several kinds."""
    with shelf.project("odd") as folder:
        with sg.init("odd", dir=folder) as run:
            run.log({"z": sg.Tensor(np.full((2, 3), 3 + 4j)), "kernel": sg.Tensor(OTHER[0])}, step=0)
            run.log({"names": np.array([["cat", "dog-1"], ["NaN", ""]])}, step=0)
        for kinds in (["histogram"], ["histogram", "scalar", "tensor"]):
            write_kinds(folder / "ms", kinds, step=len(kinds))


def show_odd(page, run, tag):
    go_to(page, "/runs?project=odd")
    expect(page.get_by_role("grid", name="Runs")).to_be_visible()
    go_to(page, "/tensors?project=odd")
    expect(page.get_by_role("list", name="Tags")).to_be_visible()  # the page has chosen a run
    page.get_by_role("navigation", name="Run and tensor").locator(".picker-run").click()
    page.get_by_role("list", name="Runs").get_by_role("button", name=re.compile(rf"\b{run}$")).click()
    page.get_by_role("list", name="Tags").get_by_role("button", name=tag).click()


def strings_are_a_table_of_texts(page):
    show_odd(page, "odd", re.compile("^names"))
    expect(page.get_by_role("heading", name="names", exact=True)).to_be_visible()
    expect(page.locator(".tensor-dtype")).to_have_text("str")
    grid(page).focus()
    page.keyboard.press("Control+Home")
    expect(marked(page)).to_have_text("row 0, column 0: cat")
    page.keyboard.press("ArrowRight")
    expect(marked(page)).to_have_text("row 0, column 1: dog-1")
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowLeft")
    expect(marked(page)).to_have_text("row 1, column 0: NaN")
    expect(page.get_by_role("group", name="View")).to_have_count(0)
    expect(page.get_by_role("img", name="Colours of the cells")).to_have_count(0)


def a_complex_tensor_says_that_statistics_and_colours_are_of_magnitudes(page):
    show_odd(page, "odd", re.compile("^z"))
    expect(page.get_by_role("rowheader", name="whole, of |z|")).to_be_visible()
    key = page.get_by_role("img", name="Colours of the cells, by magnitude: from 0 to 5", exact=True)
    expect(key).to_be_visible()


def a_key_says_which_colour_is_which_value(page):
    show_odd(page, "odd", re.compile("^kernel"))
    page.get_by_role("combobox", name="Colours").select_option("max")
    key = page.get_by_role("img", name="Colours of the cells")
    expect(key).to_have_text(re.compile(rf"^−({abs(OTHER[0]).max():.3g})\1$"))
    page.get_by_role("combobox", name="Colours").select_option("none")
    expect(key).to_have_count(0)


def the_kinds_of_one_tag_are_chosen_apart(page):
    show_odd(page, "ms", re.compile("histogram"))
    has_url(page, "tensor=x:histogram")
    expect(page.get_by_role("heading", name="x", exact=True)).to_be_visible()
    expect(page.locator(".histograms").first).to_be_visible()
    page.get_by_role("list", name="Tags").get_by_role("button", name=re.compile("tensor")).click()
    expect(page.get_by_role("heading", name="x", exact=True)).to_be_visible()
    grid(page).focus()
    page.keyboard.press("Control+Home")
    expect(marked(page)).to_have_text("row 0, column 0: 3")
