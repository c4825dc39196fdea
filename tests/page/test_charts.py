"""The charts: what is drawn where, and everything that can be done with them."""

from __future__ import annotations

import csv
import io
import math
import re
import struct
import xml.etree.ElementTree as ET
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import box_of, chart, color_of, copied, drawn, go_to, has_url, ink, until, violations

N = 200
N_LONG = 50_000
SPIKES = [2_500 + 5_000 * i for i in range(10)]
NOISE = np.random.default_rng(1).normal(size=N)


def begin(folder, name, **config):
    return sg.init(name, dir=folder, config=config)


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("charts") as folder:
        for seed in range(4):
            with begin(folder, f"seed-{seed}", lr=(0.1, 0.01)[seed % 2], seed=seed) as run:
                for i in range(N):
                    run.log({"group/y": (seed % 2) * 10 + (-1) ** (seed // 2) + 0.0 * i}, step=i)
                    if seed < 3 or i < N // 2:
                        run.log({"group/part": 2.0 * seed}, step=i)
        with begin(folder, "up", lr=0.1, seed=0) as run:
            for i in range(N):
                run.log(
                    {"train/loss": float(i), "val/loss": 2.0 * i, "plain": 1.0, "train/power": 10.0 ** (i / 50)}, step=i
                )
        sg.open(run.directory).annotate(baseline=True)
        with begin(folder, "down", lr=0.01, seed=1) as run:
            for i in range(N):
                run.log({"train/loss": float(N - 1 - i), "val/loss": 0.5 * i}, step=i)
        odd = {50: math.nan, 100: math.inf, 150: -math.inf}
        with begin(folder, "odd") as run:
            for i in range(N):
                outlier = 1e6 if i == 77 else NOISE[i]
                run.log({"odd/holes": odd.get(i, 5.0), "odd/noise": NOISE[i], "odd/outlier": outlier}, step=i)
        with begin(folder, "long") as run:
            spikes = set(SPIKES)
            for i in range(N_LONG):
                run.log({"long/spikes": float(i in spikes)}, step=i)
    return shelf.server


@pytest.fixture
def page(open_page, server):
    return open_page(server.controller, "/runs?project=charts", permissions=["clipboard-read", "clipboard-write"])


def show(page, tags=""):
    """Show the charts of some tags, as they are by default: those of before are gone, and no menu is open."""
    page.keyboard.press("Escape")
    page.mouse.move(2, 2)
    go_to(page, "/runs?project=charts")
    expect(page.get_by_role("checkbox", name="Show up", exact=True)).to_be_visible()
    go_to(page, f"/charts?project=charts&tags={quote(tags)}")
    expect(page.get_by_role("article").first).to_be_visible()


def search(page, tags):
    """Type a search for tags."""
    page.get_by_role("searchbox", name="Search tags").fill(tags)


def series_of(response, *, errors=False):
    """Return the series that came with an answer: what was said of it, x and y; None for those that failed."""
    found = []
    for one in msgspec.msgpack.decode(response.body()):
        if errors and "error" in one:
            found.append((one, None, None))
            continue
        x, y = (np.frombuffer(one[name], "<f8") for name in ("x", "y"))
        found.append((one, x, y))
    return found


def scalars_with(page, test):
    """Expect an answer to a request for scalars that asks for something."""
    return page.expect_response(
        lambda answer: (
            answer.url.endswith("/scalars") and any(test(one) for one in answer.request.post_data_json["requests"])
        )
    )


def ys_of(share):
    """Where a line from 0 to 1 stands, in a plot with some air above and below."""
    return pytest.approx((share + 0.06) / 1.12, abs=0.05)


def test_lines_stand_where_their_numbers_are(page):
    lines_stand_where_their_numbers_are_each_in_its_run_s_colour(page)
    every_spike_of_a_long_run_is_seen(page)
    nan_and_infinities_are_marked(page)


def test_smoothing_clipping_and_axes(page):
    smoothing_leaves_the_line_itself_behind(page)
    log_axes(page)
    clipping_leaves_outliers_out(page)
    for button, x in (("Relative", "relative"), ("Wall", "wall")):
        x_is_time(page, button, x)


def test_groups_and_a_baseline(page):
    groups_are_drawn_as_a_mean_with_a_band(page)
    the_cursor_says_of_how_many_runs_a_mean_is_and_where_a_run_ended(page)
    charts_are_divided_by_a_key_and_lines_coloured_by_another(page)
    lines_are_drawn_minus_the_baseline(page)


def test_cursor_and_zoom(page):
    the_cursor_reads_values_and_stands_in_all_charts(page)
    the_linked_cursor_shows_the_values_in_other_charts(page)
    a_drag_zooms_all_charts_and_loads_every_point_there(page)
    a_box_zooms_into_values_too_and_other_charts_follow_sideways(page)


def test_charts_and_sections_are_arranged(page):
    charts_are_grouped_by_prefix_and_groups_open_and_shut(page)
    charts_are_pinned_enlarged_and_resized(page)
    charts_are_made_wider_and_taller_and_moved_with_mouse_and_keys(page)
    sections_are_moved_and_small_ones_share_a_row(page)


def test_downloads(page):
    a_csv_holds_the_numbers_that_were_logged(page)
    a_csv_of_a_long_run_holds_every_point(page)
    pictures_are_downloaded(page)


def test_search_history_and_links(page, open_page, server):
    tags_are_searched_and_empty_states_help(page)
    back_undoes_zoom_and_filters_one_by_one(page)
    back_and_reload_keep_the_view(page)
    a_reload_right_after_a_change_keeps_it(page)
    a_link_shows_the_same_in_another_browser(page, open_page, server)
    the_copied_link_names_the_runs_but_not_the_token(page, server)
    a_chart_is_copied_as_a_program_and_as_a_link(page)
    a_click_on_a_line_shows_all_of_that_moment(page)


def test_charts_of_one_s_own(page):
    a_chart_of_one_s_own_draws_several_tags(page)
    a_chart_of_an_expression_completes_tags_and_shows_errors_at_their_place(page)


def test_another_x_and_settings_of_one_chart(page):
    x_is_a_step_track_or_another_series_and_pairs_are_of_one_step(page)
    a_scatter_draws_each_pair_as_a_point(page)
    settings_of_a_chart_go_over_those_of_the_page_and_are_reset(page)


# What is drawn


def charts_are_grouped_by_prefix_and_groups_open_and_shut(page):
    show(page)
    page.mouse.move(900, 500)
    for name, n in (("group", 2), ("long", 1), ("odd", 3), ("train", 2), ("val", 1), ("other", 1)):
        head = page.get_by_role("button", name=re.compile(rf"^{name}\s*{n}$"))
        until(page, lambda head=head: head.count() or page.mouse.wheel(0, 300))
    expect(head).to_have_attribute("aria-expanded", "true")
    expect(chart(page, "plain")).to_be_visible()
    head.click()
    expect(head).to_have_attribute("aria-expanded", "false")
    expect(chart(page, "plain")).to_be_hidden()
    has_url(page, "shut=other")
    head.click()
    expect(chart(page, "plain")).to_be_visible()


def lines_stand_where_their_numbers_are_each_in_its_run_s_colour(page):
    show(page, "^train/loss$")
    colors = color_of(page, "up"), color_of(page, "down")
    assert colors[0] != colors[1]
    up, down = (drawn(chart(page, "train/loss"), color) for color in colors)
    for share in (0.1, 0.3, 0.7, 0.9):
        assert up.span(share) == (ys_of(share), ys_of(share))
        assert down.span(share) == (ys_of(1 - share), ys_of(1 - share))
    page.get_by_role("checkbox", name="Show down").click()
    until(page, lambda: not ink(chart(page, "train/loss"), colors[1]).n)
    assert ink(chart(page, "train/loss"), colors[0]).n == pytest.approx(up.n, rel=0.1)


def every_spike_of_a_long_run_is_seen(page):
    show(page, "^long/spikes$")
    line = drawn(chart(page, "long/spikes"), color_of(page, "long"))
    for step in SPIKES:
        low, high = line.span(step / (N_LONG - 1), 0.006)
        assert (low, high) == (ys_of(0), ys_of(1))
    n_high = sum(high is not None and high > 0.8 for _, high, _ in line.columns)
    assert n_high <= 4 * len(SPIKES)
    expect(chart(page, "long/spikes")).to_contain_text(re.compile(r"of 50(,000|\.0k|k) points"))


def nan_and_infinities_are_marked(page):
    show(page, "^odd/holes$")
    line = drawn(chart(page, "odd/holes"), color_of(page, "odd"))
    low, high = line.span(0.1, 0.02)
    assert (low, high) == (pytest.approx(0.5, abs=0.05), pytest.approx(0.5, abs=0.05))
    assert line.span(50 / 199, 0.01)[0] < 0.15
    assert line.span(100 / 199, 0.01)[1] > 0.85
    assert line.span(150 / 199, 0.01)[0] < 0.15
    expect(chart(page, "odd/holes")).to_contain_text("3 NaN or ∞")


def smoothing_leaves_the_line_itself_behind(page):
    show(page, "^odd/noise$")
    color = color_of(page, "odd")
    before = drawn(chart(page, "odd/noise"), color)
    page.get_by_role("spinbutton", name="Smoothing weight").fill("0.95")
    page.keyboard.press("Enter")
    after = until(page, lambda: (found := ink(chart(page, "odd/noise"), color)).n < before.n / 1.5 and found)
    assert after.height < before.height / 2
    faint = tuple(round(255 - 0.25 * (255 - channel)) for channel in color)
    assert ink(chart(page, "odd/noise"), faint, near=14).n > 60
    page.get_by_role("slider", name="Smoothing").focus()
    page.keyboard.press("Home")
    until(page, lambda: ink(chart(page, "odd/noise"), color).n == pytest.approx(before.n, rel=0.1))


def log_axes(page):
    show(page, "^train/power$")
    color = color_of(page, "up")
    curve = drawn(chart(page, "train/power"), color)
    assert curve.span(0.5)[1] < 0.2
    page.get_by_role("button", name="log y").click()
    straight = until(page, lambda: (found := drawn(chart(page, "train/power"), color)).span(0.5)[0] > 0.4 and found)
    for share in (0.1, 0.5, 0.9):
        assert straight.span(share)[0] == pytest.approx((share + 0.05) / 1.1, abs=0.05)
    labels = [text.text for text in svg_of(page, "train/power").iter("{http://www.w3.org/2000/svg}text")]
    assert {"1", "10", "100", "1000"} <= {re.sub(r"[,\s]", "", label).replace("1k", "1000") for label in labels}
    page.get_by_role("button", name="log x").click()
    until(page, lambda: drawn(chart(page, "train/power"), color).span(0.5, 0.02)[1] < 0.3)
    has_url(page, "ylog=1")
    has_url(page, "xlog=1")


def clipping_leaves_outliers_out(page):
    show(page, "^odd/outlier$")
    color = color_of(page, "odd")
    assert drawn(chart(page, "odd/outlier"), color).span(0.7, 0.2)[1] < 0.1
    page.get_by_role("button", name="clip").click()
    low, high = until(
        page, lambda: (span := ink(chart(page, "odd/outlier"), color).span(0.7, 0.2)) and span[1] > 0.5 and span
    )
    assert high - low > 0.5


def x_is_time(page, button, x):
    show(page, "^train/loss$")
    drawn(chart(page, "train/loss"), color_of(page, "up"))
    with scalars_with(page, lambda one: one["x"] == x) as answer:
        page.get_by_role("group", name="Horizontal axis").get_by_role("button", name=button).click()
    for series, xs, _ in series_of(answer.value):
        wall = np.frombuffer(series["wall"], "<f8")
        assert np.ptp(xs) == pytest.approx(np.ptp(wall), abs=1e-6)
    until(page, lambda: ink(chart(page, "train/loss"), color_of(page, "up")).n > 50)
    has_url(page, f"x={x}")


def groups_are_drawn_as_a_mean_with_a_band(page):
    show(page, "^group/y$")
    page.get_by_role("combobox", name="Group", exact=True).select_option("lr")
    expect(chart(page, "group/y").get_by_role("img", name="2 lines")).to_be_visible()
    color = color_of(page, "lr=0.1")
    mean = drawn(chart(page, "group/y"), color)
    faint = tuple(round(255 - 0.17 * (255 - channel)) for channel in color)

    def band():
        return ink(chart(page, "group/y"), faint, near=10).span(0.55, 0.01)

    # One run at -1, one at 1: their deviation is the root of 2, and the chart reaches from there to 10 above.
    assert mean.span(0.5) == (ys_of(1.4142 / 12.8284), ys_of(1.4142 / 12.8284))
    assert until(page, band) == (ys_of(0), ys_of(2.8284 / 12.8284))
    around = page.get_by_role("combobox", name="Band around the mean of a group")
    around.select_option("none")
    until(page, lambda: not band())
    around.select_option("range")
    assert until(page, band) == (ys_of(0), ys_of(2 / 12))


def the_cursor_says_of_how_many_runs_a_mean_is_and_where_a_run_ended(page):
    show(page, "^group/part$")
    page.get_by_role("combobox", name="Group", exact=True).select_option("lr")
    expect(chart(page, "group/part").get_by_role("img", name="2 lines")).to_be_visible()
    said = values(page, "group/part")
    hover(page, "group/part", 0.25)
    expect(said).to_contain_text(re.compile(r"0\.01\s*4\s*n = 2"))
    hover(page, "group/part", 0.75)
    expect(said).to_contain_text("1 of 2 runs")
    page.mouse.move(2, 2)
    page.get_by_role("combobox", name="Group", exact=True).select_option("")
    expect(chart(page, "group/part").get_by_role("img", name="4 lines")).to_be_visible()
    hover(page, "group/part", 0.74)
    expect(said).to_contain_text(f"until step {N // 2 - 1}")


def charts_are_divided_by_a_key_and_lines_coloured_by_another(page):
    show(page, "^group/y$")
    page.get_by_role("combobox", name="Facet by").select_option("lr")
    page.get_by_role("combobox", name="Colour by").select_option("seed")
    has_url(page, "facet=lr")
    low, high = chart(page, "group/y · lr=0.1"), chart(page, "group/y · lr=0.01")
    expect(low.get_by_role("img", name="2 lines")).to_be_visible()
    expect(high.get_by_role("img", name="2 lines")).to_be_visible()
    colors = {seed: color_of(page, f"seed-{seed}") for seed in range(4)}
    assert len(set(colors.values())) == 4
    assert color_of(page, "up") == colors[0], "of one seed"
    # Seeds 0 and 2 at 1 and -1, seeds 1 and 3 at 11 and 9: over one axis.
    for within, places in ((low, {0: 2, 2: 0}), (high, {1: 12, 3: 10})):
        for seed, place in places.items():
            assert drawn(within, colors[seed]).span(0.5) == (ys_of(place / 12), ys_of(place / 12))
    key = page.get_by_role("list", name="What colours and dashes mean")
    expect(key).to_contain_text(re.compile(r"seed\s*0\s*1\s*2\s*3"))


def lines_are_drawn_minus_the_baseline(page):
    show(page, "^train/loss$|^group/y$")
    up, down = color_of(page, "up"), color_of(page, "down")
    assert drawn(chart(page, "train/loss"), up).span(0.9)[0] > 0.8
    page.get_by_role("button", name="− baseline").click()
    expect(chart(page, "train/loss")).to_contain_text("minus up")
    until(page, lambda: (now := ink(chart(page, "train/loss"), up)).n and now.height < 0.05)
    assert ink(chart(page, "train/loss"), up).span(0.2)[0] == ys_of(0.5)
    assert ink(chart(page, "train/loss"), down).span(0.25)[0] == ys_of(0.75)
    expect(chart(page, "group/y")).to_contain_text("not in up")
    assert ink(chart(page, "group/y"), color_of(page, "seed-0")).n == 0
    page.get_by_role("checkbox", name="Show up").click()
    expect(chart(page, "train/loss").get_by_role("img", name="1 line")).to_be_visible()
    assert drawn(chart(page, "train/loss"), down).span(0.25)[0] == ys_of(0.75)
    has_url(page, "less=1")
    page.get_by_role("group", name="Horizontal axis").get_by_role("button", name="Wall").click()
    expect(page.get_by_role("button", name="− baseline")).to_have_count(0)


# What is done with them


def hover(page, tag, share, height=0.5):
    box = box_of(chart(page, tag).locator(".u-over"))
    place = box["x"] + share * box["width"], box["y"] + height * box["height"]
    page.mouse.move(*place)
    return place


def drag(page, tag, start, end):
    hover(page, tag, *start)
    page.mouse.down()
    hover(page, tag, (start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    hover(page, tag, *end)
    page.mouse.up()


def values(page, tag):
    return chart(page, tag).get_by_role("group", name="Values at the cursor")


def point_at_losses(page):
    show(page, "loss")
    drawn(chart(page, "train/loss"), color_of(page, "up"))
    drawn(chart(page, "val/loss"), color_of(page, "up"))
    hover(page, "train/loss", 50 / 199, 0.7)
    expect(values(page, "train/loss")).to_contain_text("step 50")


def the_cursor_reads_values_and_stands_in_all_charts(page):
    point_at_losses(page)
    expect(values(page, "train/loss")).to_contain_text(re.compile(r"up\s*50\s*down\s*149"))
    card, table = box_of(chart(page, "train/loss")), box_of(values(page, "train/loss"))
    assert table["x"] >= card["x"] + card["width"] or table["x"] + table["width"] <= card["x"], "beside, not over it"
    other = chart(page, "val/loss")
    expect(other.locator(".plot-dot:visible")).to_have_count(2)
    dot, over = box_of(other.locator(".plot-dot").first), box_of(other.locator(".u-over"))
    assert (dot["x"] + dot["width"] / 2 - over["x"]) / over["width"] == pytest.approx(50 / 199, abs=0.02)
    page.mouse.move(2, 2)
    expect(values(page, "train/loss")).to_be_hidden()
    expect(other.locator(".plot-dot:visible")).to_have_count(0)


def the_linked_cursor_shows_the_values_in_other_charts(page):
    point_at_losses(page)
    linked = chart(page, "val/loss").get_by_role("group", name="Values where another chart is read")
    expect(linked).to_contain_text(re.compile(r"100\s*25"))
    page.mouse.move(2, 2)
    expect(linked).to_be_hidden()


def a_drag_zooms_all_charts_and_loads_every_point_there(page):
    show(page, "^long/spikes$")
    drawn(chart(page, "long/spikes"), color_of(page, "long"))
    with scalars_with(page, lambda one: one["tag"] == "long/spikes" and "from" in one) as answer:
        drag(page, "long/spikes", (0.1, 0.5), (0.15, 0.5))
    [(_, x, y)] = series_of(answer.value)
    assert x[0] <= 5_100
    assert x[-1] >= 7_300
    assert y.max() == 1
    with scalars_with(page, lambda one: "from" in one and one["to"] - one["from"] < 400) as answer:
        drag(page, "long/spikes", (0.4, 0.5), (0.5, 0.5))
    [(series, x, _)] = series_of(answer.value)
    assert not series["thinned"]
    assert len(x) == series["n"] > 100
    assert set(np.diff(x)) == {1.0}
    expect(chart(page, "long/spikes")).not_to_contain_text("points")
    has_url(page, "zoom=")
    box = chart(page, "long/spikes").locator(".u-over")
    box.dblclick()
    until(page, lambda: "zoom=" not in page.url)
    until(
        page, lambda: drawn(chart(page, "long/spikes"), color_of(page, "long")).span(SPIKES[9] / N_LONG, 0.006)[1] > 0.8
    )


def a_box_zooms_into_values_too_and_other_charts_follow_sideways(page):
    show(page, "loss")
    color = color_of(page, "up")
    drawn(chart(page, "train/loss"), color)
    drawn(chart(page, "val/loss"), color)
    drag(page, "train/loss", (0.25, 0.75), (0.75, 0.25))
    has_url(page, "yzoom=train/loss:")
    inside = until(page, lambda: (span := ink(chart(page, "train/loss"), color).span(0.5)) and span)
    assert inside[0] == pytest.approx(0.5, abs=0.06)
    assert drawn(chart(page, "train/loss"), color).span(0.02, 0.02)[0] < 0.12
    assert drawn(chart(page, "val/loss"), color).span(0.02, 0.02)[0] < 0.35
    chart(page, "train/loss").hover()
    chart(page, "train/loss").get_by_role("button", name="Reset zoom").click()
    until(page, lambda: "zoom" not in page.url)


def charts_are_pinned_enlarged_and_resized(page):
    show(page, "loss")
    chart(page, "val/loss").hover()
    chart(page, "val/loss").get_by_role("button", name="Pin to the top").click()
    head = page.get_by_role("button", name=re.compile(r"^Pinned\s*1$"))
    expect(head).to_be_visible()
    first = page.get_by_role("article").first
    expect(first).to_have_attribute("aria-label", "val/loss")
    widths = []
    for size in "SML":
        page.get_by_role("group", name="Size of charts").get_by_role("button", name=size, exact=True).click()
        widths.append(until(page, lambda: (w := box_of(first)["width"]) not in widths and w))
    assert widths == sorted(widths)
    first.hover()
    first.get_by_role("button", name="Enlarge").click()
    dialog = page.get_by_role("dialog", name="val/loss")
    expect(dialog).to_be_visible()
    large = dialog.get_by_role("article", name="val/loss")
    drawn(large, color_of(page, "up"), n=200)
    assert box_of(large)["width"] > widths[-1]
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    first.hover()
    first.get_by_role("button", name="Unpin").click()
    expect(head).to_be_hidden()


def download(page, tag, item):
    chart(page, tag).hover()
    chart(page, tag).get_by_role("button", name=f"Save or copy {tag}").click()
    with page.expect_download() as got:
        page.get_by_role("menuitem", name=item).click()
    return got.value


def svg_of(page, tag):
    return ET.parse(download(page, tag, "SVG").path()).getroot()


def a_csv_holds_the_numbers_that_were_logged(page):
    show(page, "^odd/(noise|holes)$")
    drawn(chart(page, "odd/noise"), color_of(page, "odd"))
    for tag, expected in (
        ("odd/noise", NOISE),
        ("odd/holes", [{50: math.nan, 100: math.inf, 150: -math.inf}.get(i, 5.0) for i in range(N)]),
    ):
        got = download(page, tag, "CSV")
        assert got.suggested_filename == f"{tag.replace('/', '_')}.csv"
        rows = list(csv.DictReader(io.StringIO(got.path().read_text())))
        assert {(row["run"], row["tag"]) for row in rows} == {("odd", tag)}
        assert [int(row["step"]) for row in rows] == list(range(N))
        np.testing.assert_array_equal([float(row["value"]) for row in rows], expected)


def a_csv_of_a_long_run_holds_every_point(page):
    show(page, "^long/spikes$")
    drawn(chart(page, "long/spikes"), color_of(page, "long"))
    rows = list(csv.DictReader(io.StringIO(download(page, "long/spikes", "CSV").path().read_text())))
    assert [int(row["step"]) for row in rows] == list(range(N_LONG))
    assert [i for i, row in enumerate(rows) if float(row["value"])] == SPIKES


def pictures_are_downloaded(page):
    show(page, "^train/loss$")
    color = color_of(page, "up")
    drawn(chart(page, "train/loss"), color)
    svg = svg_of(page, "train/loss")
    assert "#{:02x}{:02x}{:02x}".format(*color) in ET.tostring(svg, "unicode").lower()
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"train/loss", "up", "down", "step"} <= set(texts)
    png = download(page, "train/loss", "PNG")
    data = png.path().read_bytes()
    assert png.suggested_filename == "train_loss.png"
    assert struct.unpack(">II", data[16:24]) > (900, 400)
    pictures = pytest.importorskip("PIL.Image")
    image = np.asarray(pictures.open(io.BytesIO(data)).convert("RGB")).reshape(-1, 3).astype(int)
    assert (np.abs(image - color).max(1) < 40).sum() > 500


def tags_are_searched_and_empty_states_help(page):
    show(page, "^odd/")
    expect(page.get_by_text("3 of 10")).to_be_visible()
    expect(chart(page, "odd/noise")).to_be_visible()
    expect(chart(page, "train/loss")).to_be_hidden()
    search(page, "nothing-like-it")
    expect(page.get_by_role("heading", name="No tag matches")).to_be_visible()
    page.get_by_role("button", name="Clear the search").click()
    expect(chart(page, "group/y")).to_be_visible()
    search(page, "(")
    expect(page.get_by_role("alert")).to_contain_text("Searched as plain text")
    search(page, "")
    page.get_by_role("button", name="None", exact=True).click()
    expect(page.get_by_role("heading", name="No run is visible")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Show all")).click()
    expect(chart(page, "group/y")).to_be_visible()


def a_link_shows_the_same_in_another_browser(page, open_page, server):
    show(page, "loss$")
    color = color_of(page, "up")
    drawn(chart(page, "train/loss"), color)
    page.get_by_role("checkbox", name="Show down").click()
    page.get_by_role("button", name="log y").click()
    page.get_by_role("spinbutton", name="Smoothing weight").fill("0.5")
    page.keyboard.press("Enter")
    page.get_by_role("group", name="Size of charts").get_by_role("button", name="L", exact=True).click()
    chart(page, "val/loss").hover()
    chart(page, "val/loss").get_by_role("button", name="Pin to the top").click()
    drag(page, "train/loss", (0.2, 0.5), (0.6, 0.5))
    has_url(page, "zoom=")
    assert "token" not in page.url
    until(page, lambda: ink(chart(page, "train/loss"), color).n)
    fragment = page.url.partition("#")[2]
    other = open_page(server.viewer, fragment)
    until(other, lambda: ink(chart(other, "train/loss"), color).n)
    assert other.url.partition("#")[2] == fragment
    expect(other.get_by_role("article").first).to_have_attribute("aria-label", "val/loss")
    expect(other.get_by_role("checkbox", name="Show down")).not_to_be_checked()
    expect(other.get_by_role("button", name="log y")).to_have_attribute("aria-pressed", "true")
    page.mouse.move(2, 2)
    mine, theirs = chart(page, "train/loss"), chart(other, "train/loss")
    until(page, lambda: ink(mine, color).columns == ink(theirs, color).columns)


def the_copied_link_names_the_runs_but_not_the_token(page, server):
    show(page, "^group/")
    page.get_by_role("button", name="Copy a link").click()
    expect(page.get_by_role("status").filter(has_text="Link copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "runs=" in copied
    assert "token" not in copied
    assert server.controller.partition("token=")[2] not in copied


def a_chart_is_copied_as_a_program_and_as_a_link(page):
    show(page, "^train/loss$")
    drawn(chart(page, "train/loss"), color_of(page, "up"))
    program = copied(page, chart(page, "train/loss"), "Save or copy train/loss", "Copy as Python")
    sources = []
    # What the page copies is to run as it is; only the drawing, which goes on in the background, is replaced.
    exec(program.replace("sg.plot(", "keep("), {"keep": lambda *given, **_: sources.extend(given)})
    assert {source.tag for source in sources} == {"train/loss"}
    assert all(source.wait() for source in sources)
    link = copied(page, chart(page, "train/loss"), "Save or copy train/loss", "Copy link")
    assert "focus=train" in link
    assert "token" not in link


def a_click_on_a_line_shows_all_of_that_moment(page):
    show(page, "^train/loss$")
    card = chart(page, "train/loss")
    drawn(card, color_of(page, "up"))
    card.locator(".u-over").hover()
    dot = box_of(card.locator(".plot-dot").first)
    page.mouse.click(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    drawer = page.get_by_role("complementary")
    expect(drawer.get_by_role("heading", name="Numbers")).to_be_visible()
    has_url(page, "moment=")
    step = drawer.get_by_text(re.compile("^step "))
    here = step.inner_text()
    assert violations(page) == []
    page.keyboard.press("ArrowRight")
    expect(step).not_to_have_text(here)
    page.keyboard.press("ArrowLeft")
    expect(step).to_have_text(here)
    page.reload()
    expect(step).to_have_text(here)
    others = drawer.get_by_role("combobox", name="Run at this step")
    others.select_option(label="down")
    expect(page.get_by_role("complementary", name="down at a moment")).to_be_visible()
    expect(step).to_have_text(here)
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).to_be_hidden()
    card.get_by_role("img", name=re.compile("^Line chart")).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(drawer.get_by_role("heading", name="Numbers")).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()


def back_undoes_zoom_and_filters_one_by_one(page):
    show(page, "^train/loss$")
    drawn(chart(page, "train/loss"), color_of(page, "up"))
    page.get_by_role("searchbox", name="Filter runs").press_sequentially("up", delay=50)
    expect(page.get_by_role("checkbox", name=re.compile("^Show "))).to_have_count(1)
    drag(page, "train/loss", (0.2, 0.5), (0.6, 0.5))
    reset = page.get_by_role("button", name="Reset zoom (double click)").first
    expect(reset).to_have_count(1)
    page.get_by_role("button", name="log y").click()
    has_url(page, "ylog=1")
    page.go_back()
    expect(reset).to_have_count(0)
    expect(page.get_by_role("searchbox", name="Filter runs")).to_have_value("up")
    page.go_back()
    expect(page.get_by_role("searchbox", name="Filter runs")).to_have_value("")
    page.go_forward()
    expect(page.get_by_role("searchbox", name="Filter runs")).to_have_value("up")


def back_and_reload_keep_the_view(page):
    show(page, "^odd/")
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("columnheader", name="Duration")).to_be_visible()
    page.go_back()
    expect(chart(page, "odd/noise")).to_be_visible()
    page.reload()
    expect(chart(page, "odd/noise")).to_be_visible()
    expect(page.get_by_role("searchbox", name="Search tags")).to_have_value("^odd/")


def a_chart_of_one_s_own_draws_several_tags(page):
    show(page)
    page.get_by_role("button", name="Chart", exact=True).click()
    dialog = page.get_by_role("dialog", name="New chart")
    dialog.get_by_role("textbox", name="Name").fill("both <b>losses</b>")
    dialog.get_by_role("searchbox", name="Search tags to add").fill("loss")
    for tag in ("train/loss", "val/loss"):
        dialog.get_by_role("checkbox", name=tag).click()
    expect(dialog.get_by_role("list", name="Tags of this chart").get_by_role("listitem")).to_have_count(2)
    dialog.get_by_role("button", name="Add", exact=True).click()
    own = page.get_by_role("article", name="both <b>losses</b>")
    expect(own.get_by_role("img", name="4 lines")).to_be_visible()
    drawn(own, color_of(page, "up"))
    has_url(page, "own=")
    page.reload()
    expect(own.get_by_role("img", name="4 lines")).to_be_visible()  # the address keeps it
    own.hover()
    own.get_by_role("button", name=re.compile("^(Edit|Change)")).click()
    page.get_by_role("dialog").get_by_role("button", name="Remove this chart").click()
    expect(own).to_be_hidden()


# Any x, expressions, points


def settings_of(page, name):
    """Open the settings of a chart."""
    within = chart(page, name)
    within.hover()
    menu = within.get_by_role("group", name="This chart alone")
    if not menu.is_visible():
        within.get_by_role("button", name=re.compile("^Settings of")).click()
    return menu


def x_is_a_step_track_or_another_series_and_pairs_are_of_one_step(page):
    show(page, "^train/loss$")
    axis = page.get_by_role("toolbar", name="Charts").get_by_role("combobox", name="Another horizontal axis")
    with scalars_with(page, lambda one: one["x"] == "val/loss") as found:
        axis.fill("val/loss")
        axis.press("Enter")
    for one, x, y in series_of(found.value):
        assert one["n"] == N
        assert (x == (2 * y if y[0] < y[-1] else 0.5 * (N - 1 - y))).all()
    has_url(page, "x=val/loss")
    up = drawn(chart(page, "train/loss"), color_of(page, "up"))
    assert up.span(0.9) == (ys_of(0.9), ys_of(0.9))
    with scalars_with(page, lambda one: one["x"] == "epoch") as found:
        axis.fill("epoch")
        axis.press("Enter")
    errors = [one["error"]["message"] for one, _, _ in series_of(found.value, errors=True)]
    assert all("Expected x as a step track of 'train/loss' or as a series" in error for error in errors)
    expect(chart(page, "train/loss").get_by_role("alert")).to_contain_text("Unknown tag 'epoch'")
    page.get_by_role("group", name="Horizontal axis").get_by_role("button", name="Step").click()
    drawn(chart(page, "train/loss"), color_of(page, "up"))


def a_chart_of_an_expression_completes_tags_and_shows_errors_at_their_place(page):
    show(page)
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog", name="New chart")
    box = dialog.get_by_label("Expression over tags")
    box.press_sequentially("val/loss - train/lo")
    expect(dialog.get_by_role("option", name="train/loss")).to_be_visible()
    box.press("Tab")
    expect(box).to_have_value("val/loss - train/loss")
    with scalars_with(page, lambda one: one["tag"] == "val/loss - train/loss") as found:
        box.press("Enter")
        dialog.get_by_role("textbox", name="Name").fill("gap")
        dialog.get_by_role("button", name="Add", exact=True).click()
    lines = [(x, y) for one, x, y in series_of(found.value, errors=True) if x is not None]
    assert len(lines) == 2  # those of up and down: the others have no such tags
    assert any((y == x).all() for x, y in lines)
    gap = page.get_by_role("article", name="gap")
    drawn(gap, color_of(page, "up"))
    expect(gap.get_by_title("not in")).to_be_visible()
    has_url(page, "own=gap")
    page.reload()
    drawn(gap, color_of(page, "up"))
    gap.hover()
    gap.get_by_role("button", name="Edit gap").click()
    dialog = page.get_by_role("dialog", name="Edit gap")
    dialog.get_by_role("button", name="Take val/loss - train/loss out").click()
    box = dialog.get_by_label("Expression over tags")
    box.fill("val/loss - train/los")
    box.press("Enter")
    dialog.get_by_role("button", name="Save").click()
    expect(gap.get_by_role("alert")).to_contain_text("Unknown tag 'train/los'")
    assert "\n  val/loss - train/los\n             ^" in "\n" + gap.get_by_role("alert").locator("pre").inner_text()


def a_scatter_draws_each_pair_as_a_point(page):
    show(page, "^train/loss$")
    menu = settings_of(page, "train/loss")
    axis = menu.get_by_role("combobox", name="Another horizontal axis")
    axis.fill("train/power")
    axis.press("Enter")
    menu.get_by_role("button", name="points").click()
    has_url(page, "cards=train/loss|x:train/power|points:1")
    expect(chart(page, "train/loss").get_by_role("img", name=re.compile("^Scatter"))).to_be_visible()
    expect(page.get_by_role("toolbar", name="Charts").get_by_role("button", name="Step")).to_have_attribute(
        "aria-pressed", "true"
    )
    found = drawn(chart(page, "train/loss"), color_of(page, "up"))
    assert found.width < 0.9  # gaps between points, where a line would have none


# One chart alone


def a_reload_right_after_a_change_keeps_it(page):
    show(page, "^group/")
    page.evaluate(
        """() => {
          [...document.querySelectorAll('[role=toolbar] button')].find((one) => one.textContent === 'log y').click()
          location.reload()
        }"""
    )
    log_y = page.get_by_role("toolbar", name="Charts").get_by_role("button", name="log y")
    expect(log_y).to_have_attribute("aria-pressed", "true")
    has_url(page, "ylog=1")
    log_y.click()
    until(page, lambda: "ylog" not in page.url)
    page.reload()
    expect(log_y).to_have_attribute("aria-pressed", "false")


def settings_of_a_chart_go_over_those_of_the_page_and_are_reset(page):
    show(page, "train/power|val/loss")
    color = color_of(page, "up")
    before = drawn(chart(page, "train/power"), color).span(0.5)
    other = drawn(chart(page, "val/loss"), color).span(0.5)
    menu = settings_of(page, "train/power")
    menu.get_by_role("button", name="log y").click()
    has_url(page, "cards=train/power|ylog:1")
    page.keyboard.press("Escape")
    page.mouse.move(2, 2)
    until(page, lambda: ink(chart(page, "train/power"), color).span(0.5) == (ys_of(0.5), ys_of(0.5)))
    assert before[0] < 0.2
    assert ink(chart(page, "val/loss"), color).span(0.5) == other
    page.reload()
    until(page, lambda: ink(chart(page, "train/power"), color).span(0.5) == (ys_of(0.5), ys_of(0.5)))
    menu = settings_of(page, "train/power")
    menu.get_by_role("button", name="As the page sets it").click()
    until(page, lambda: "cards=" not in page.url)
    page.mouse.move(2, 2)
    until(page, lambda: ink(chart(page, "train/power"), color).span(0.5) == before)


def names_in_sight(page):
    return [one.get_attribute("aria-label") for one in page.locator(".charts-rows article").all()]


def charts_are_made_wider_and_taller_and_moved_with_mouse_and_keys(page):
    show(page, "^odd/")
    expect(chart(page, "odd/outlier")).to_be_visible()
    page.mouse.move(2, 2)
    width = box_of(chart(page, "odd/holes"))["width"]
    menu = settings_of(page, "odd/holes")
    menu.get_by_role("group", name="Width").get_by_role("button", name="2×").click()
    until(page, lambda: box_of(chart(page, "odd/holes"))["width"] > 1.9 * width)
    page.keyboard.press("Escape")
    menu = settings_of(page, "odd/holes")
    menu.get_by_role("group", name="Height").get_by_role("button", name="2×").click()
    until(page, lambda: box_of(chart(page, "odd/holes"))["height"] > 500)
    has_url(page, "cards=odd/holes|wide:2|tall:2")
    page.reload()
    until(page, lambda: box_of(chart(page, "odd/holes"))["height"] > 500)
    chart(page, "odd/noise").get_by_role("img").focus()
    page.keyboard.press("Alt+ArrowLeft")
    until(page, lambda: names_in_sight(page) == ["odd/noise", "odd/holes", "odd/outlier"])
    expect(page.get_by_role("status").filter(has_text="Chart 1 of 3")).to_be_attached()
    until(page, lambda: page.evaluate("document.activeElement.closest('article')?.ariaLabel") == "odd/noise")
    page.keyboard.press("Alt+ArrowRight")
    until(page, lambda: names_in_sight(page) == ["odd/holes", "odd/noise", "odd/outlier"])
    source = box_of(chart(page, "odd/outlier").locator("h3"))
    target = box_of(chart(page, "odd/noise"))
    page.mouse.move(source["x"] + 5, source["y"] + 5)
    page.mouse.down()
    page.mouse.move(target["x"] + 40, target["y"] + 60, steps=4)
    expect(page.locator("[data-drop]")).to_have_count(1)
    page.mouse.up()
    until(page, lambda: names_in_sight(page) == ["odd/holes", "odd/outlier", "odd/noise"])
    has_url(page, "order=Found|odd/holes|odd/outlier|odd/noise")
    page.reload()
    until(page, lambda: names_in_sight(page) == ["odd/holes", "odd/outlier", "odd/noise"])


def sections_are_moved_and_small_ones_share_a_row(page):
    show(page)
    heads = page.locator(".section-name")
    until(page, lambda: heads.count() > 3)
    first = [one.inner_text().split("\n")[0] for one in heads.all()][:3]
    boxes = [box_of(one) for one in heads.all()[:2]]
    assert boxes[0]["y"] == boxes[1]["y"]
    heads.nth(1).focus()
    page.keyboard.press("Alt+ArrowUp")
    until(page, lambda: heads.nth(0).inner_text().startswith(first[1]))
    expect(heads.nth(0)).to_be_focused()
    has_url(page, f"sections={first[1]}")
    source, target = box_of(heads.nth(2)), box_of(heads.nth(0))
    page.mouse.move(source["x"] + 20, source["y"] + 8)
    page.mouse.down()
    page.mouse.move(target["x"] + 2, target["y"] + 8, steps=4)
    page.mouse.up()
    until(page, lambda: heads.nth(0).inner_text().startswith(first[2]))
    expect(heads.nth(0)).to_have_attribute("aria-expanded", "true")  # a drag is no click
