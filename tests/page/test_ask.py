"""Asking a live run: completion, errors, views, panels and their streams, costs, records."""

from __future__ import annotations

import csv
import io
import math
import re

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import box_of, copied, drawn, go_to, has_url, ink, until

BLUE, ORANGE, PURPLE = (63, 143, 196), (220, 107, 74), (154, 116, 201)


@pytest.fixture(scope="module")
def training(place):
    return place.train()


@pytest.fixture(scope="module")
def server(place, training):
    return place.serve()


@pytest.fixture
def page(open_page, server):
    page = open_page(server.controller, expects=["status of 400", "status of 409"])
    clear(page)
    return page


def clear(page):
    """Show the charts without cards of what was asked, once it is known what the run offers."""
    page.keyboard.press("Escape")
    go_to(page, "/charts")
    expect(cards(page)).to_have_count(0)
    box(page).fill("")
    expect(page.get_by_text("Try", exact=True)).to_be_visible()


def box(page):
    return page.get_by_role("region", name="Ask", exact=True).get_by_role("combobox", name="Query")


def cards(page):
    return page.get_by_role("region", name="Asked").get_by_role("article")


def card(page, query):
    return page.get_by_role("region", name="Asked").get_by_role("article", name=query, exact=True)


def ask(page, query):
    """Ask for a stream, and return its panel."""
    box(page).fill(query)
    page.get_by_role("button", name="Ask", exact=True).click()
    panel = card(page, query)
    expect(panel).to_be_visible()
    return panel


def streams(page):
    """Return the queries of the run, as the page Control lists them."""
    return page.get_by_role("listitem").filter(has=page.get_by_role("button", name="Open it here"))


def test_a_query_is_written(page):
    completion_knows_events_observables_keys_and_functions(page)
    an_error_stands_under_its_place(page)
    an_unknown_name_is_refused_in_the_library_s_words(page)
    what_was_meant_is_asked_by_a_button(page)
    equal_questions_are_one_card(page)
    questions_are_asked_from_every_page(page)
    suggestions_are_offered(page)


def test_every_kind_of_data_has_its_view_and_others_can_be_chosen(tabs, page):
    for query, check in VIEWS:
        data_has_its_view_and_the_server_chooses_it(tabs, page, query, check)
    every_offered_view_can_be_chosen(page)
    another_view_is_chosen_and_stays_when_the_page_is_opened_again(page)
    frames_and_their_history(page)


def test_what_is_done_with_a_panel(page, place):
    a_panel_is_seen_large_and_its_query_goes_back_into_the_box(page)
    costs_are_shown_and_numbers_go_on(page)
    a_csv_holds_the_records(page)
    a_panel_is_copied_as_a_program_and_as_a_command(page)
    pinned_panels_stay_when_the_others_are_removed(page)
    recorded_streams_reach_the_disk_and_the_charts(page, place)


def test_several_streams_in_a_panel(page):
    streams_are_added_to_a_panel_have_axes_of_their_own_and_are_removed(page)
    a_line_and_a_histogram_share_axes(page)
    streams_that_cannot_share_a_view_say_why(page)


def test_several_readers(page, open_page, server):
    equal_panels_share_a_stream_that_ends_with_the_last(open_page, server, page)
    a_link_shows_the_same_panels(page, open_page, server)
    a_viewer_queries_and_cannot_record(open_page, server)


# The box


def completion_knows_events_observables_keys_and_functions(page):
    options = page.get_by_role("listbox", name="Completions").get_by_role("option")
    box(page).press_sequentially("bat")
    expect(options.first).to_contain_text("batch")
    page.keyboard.press("Tab")
    expect(box(page)).to_have_value("batch.")
    expect(options.filter(has_text="loss")).to_contain_text("float")
    page.keyboard.type("gra")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(box(page)).to_have_value("batch.grads")
    page.keyboard.type('["')
    expect(options.filter(has_text="dense")).to_contain_text("[8, 5]")
    options.filter(has_text="dense").click()
    expect(box(page)).to_have_value('batch.grads["dense"]')
    box(page).fill("")
    page.keyboard.type("nor")
    norm = options.filter(has_text=re.compile("^norm"))
    expect(norm).to_contain_text(re.compile("norm", re.IGNORECASE))
    assert len(norm.inner_text()) > len("norm(") + 10  # its signature and what it does
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)


def an_error_stands_under_its_place(page):
    box(page).fill("batch.loss.mean(every=)")
    problem = page.get_by_role("alert").filter(has_text="^")
    expect(problem).to_be_visible()
    lines = problem.inner_text().split("\n")
    caret = next(i for i, line in enumerate(lines) if line.strip() == "^")
    shift = lines[caret - 1].index("batch.loss")
    assert lines[caret].index("^") - shift == pytest.approx(len("batch.loss.mean(every="), abs=1)
    expect(box(page)).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(cards(page)).to_have_count(0)
    box(page).fill("batch.loss")
    expect(problem).to_be_hidden()


def an_unknown_name_is_refused_in_the_library_s_words(page):
    panel = ask(page, "batch.lss")
    expect(panel.get_by_role("alert")).to_contain_text("Did you mean 'loss'?")
    panel.get_by_role("button", name="Ask batch.loss").click()
    drawn(card(page, "batch.loss"), BLUE)
    expect(cards(page)).to_have_count(1)


def what_was_meant_is_asked_by_a_button(page):
    clear(page)
    box(page).fill("batch.loss.men()")
    page.get_by_role("button", name="Ask batch.loss.mean()").click()
    expect(card(page, "batch.loss.mean()")).to_be_visible()
    expect(box(page)).to_have_value("")
    panel = ask(page, "loss")  # a name without its event
    expect(panel).to_contain_text("Unknown event 'loss' so far")
    panel.get_by_role("button", name="Ask batch.loss").click()
    drawn(card(page, "batch.loss"), BLUE)


def equal_questions_are_one_card(page):
    clear(page)
    for query in ("batch.loss", "batch.ramp", "batch.loss"):
        ask(page, query)
    expect(cards(page)).to_have_count(2)
    expect(cards(page).first).to_have_accessible_name("batch.loss")


def questions_are_asked_from_every_page(page):
    for fragment in ("/tensors", "/media", "/runs", "/control"):
        go_to(page, fragment)
        ask(page, "batch.ramp")
        has_url(page, "#/charts")


def suggestions_are_offered(page):
    clear(page)
    page.get_by_role("button", name="batch.loss", exact=True).click()
    drawn(card(page, "batch.loss"), BLUE)
    has_url(page, "ask=")


# The views


def has_line(panel):
    drawn(panel, BLUE)


def has_log(panel):
    log = panel.get_by_role("log")
    expect(log).to_contain_text("<img src=x onerror=alert(")
    assert not panel.locator("img").count()


def has_picture(panel):
    picture = panel.get_by_role("img").and_(panel.locator("img")).first
    expect(picture).to_be_visible()
    size = "image => [image.naturalWidth, image.naturalHeight]"
    until(panel.page, lambda: picture.evaluate(size) == [8, 8])  # once it is decoded
    expect(panel).to_contain_text("a digit")


def has_heat(panel):
    canvas = panel.locator("canvas").first
    expect(canvas).to_be_visible()
    tints = """canvas => {
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
      copy.drawImage(canvas, 0, 0)
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height)
      return new Set(Array.from({ length: data.length / 4 }, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size
    }"""
    until(panel.page, lambda: canvas.evaluate(tints) > 8)


def has_words(*words):
    def check(panel):
        for word in words:
            expect(panel).to_contain_text(word)

    return check


def has_canvas_or_svg(panel):
    drawing = panel.locator("canvas, svg:not(.icon):not(.swatch)").first
    expect(drawing).to_be_visible()
    assert box_of(drawing)["height"] > 80


def has_bars(panel):
    bars = panel.get_by_role("list", name="Bars of 5 names").get_by_role("listitem")
    expect(bars).to_have_count(5)
    before = bars.first.inner_text()
    until(panel.page, lambda: bars.first.inner_text() != before)


VIEWS = [
    ("batch.loss", has_line),
    ("batch.loss.mean(every=20)", has_line),
    ("(batch.ramp, batch.loss)", has_line),
    ("(batch.ramp, batch.loss, batch.step)", has_canvas_or_svg),
    ("(batch.ramp, batch.loss, batch.note)", has_line),
    ("batch.vector", has_bars),
    ("batch.loss.histogram(16, every=20)", has_canvas_or_svg),
    ("batch.matrix", has_heat),
    ("batch.grads.map(lambda name, value: norm(value))", has_words("dense", "bias")),
    ("batch.digit", has_picture),
    ("batch.note", has_log),
]


def data_has_its_view_and_the_server_chooses_it(tabs, page, query, check):
    clear(page)
    tabs.heard.clear()
    panel = ask(page, query)
    chosen = until(page, lambda: [one for one in tabs.heard if one["type"] == "view" and one["view"]])[-1]
    expect(panel.get_by_role("combobox", name="View")).to_have_value(chosen["view"])
    offered = (
        panel.get_by_role("combobox", name="View").locator("option").evaluate_all("all => all.map(one => one.value)")
    )
    assert set(chosen["possible"]) <= set(offered)
    check(panel)


def another_view_is_chosen_and_stays_when_the_page_is_opened_again(page):
    clear(page)
    panel = ask(page, "batch.loss")
    drawn(panel, BLUE)
    view = panel.get_by_role("combobox", name="View")
    view.select_option("histogram")
    has_canvas_or_svg(panel)
    view.select_option("log")
    expect(panel.get_by_role("log")).to_be_visible()
    has_url(page, "log")
    page.reload()
    expect(panel.get_by_role("log")).to_contain_text(re.compile(r"\d"))
    expect(view).to_have_value("log")


def every_offered_view_can_be_chosen(page):
    clear(page)
    panel = ask(page, "batch.vector")
    view = panel.get_by_role("combobox", name="View")
    expect(view).to_be_visible()
    offered = view.locator("option").evaluate_all("all => all.map(one => one.value).filter(Boolean)")
    assert len(offered) > 2
    for one in offered:
        view.select_option(one)
        expect(view).to_have_value(one)
        shown = panel.locator("canvas, svg:not(.icon):not(.swatch), table, [role=log], [role=list]").first
        expect(shown).to_be_visible()


def frames_and_their_history(page):
    clear(page)
    panel = ask(page, "batch.vector")
    expect(panel.get_by_role("combobox", name="View")).to_have_value("bars")
    panel.get_by_role("button", name="Options of this panel").click()
    panel.get_by_role("button", name="frames").click()
    history = panel.get_by_role("spinbutton", name="history")
    history.fill("3")
    page.keyboard.press("Enter")
    has_url(page, "frames")
    has_url(page, "history%3D3")
    expect(panel.get_by_role("button", name="frames")).to_have_attribute("aria-pressed", "true")


# Panels and their streams


def streams_are_added_to_a_panel_have_axes_of_their_own_and_are_removed(page):
    clear(page)
    panel = ask(page, "batch.loss")
    drawn(panel, BLUE)
    panel.get_by_role("button", name="Add a stream to this panel").click()
    panel.get_by_role("combobox", name="Query").fill("batch.ramp")
    panel.get_by_role("button", name="Add", exact=True).click()
    both = card(page, "batch.loss + batch.ramp")
    drawn(both, ORANGE)
    first = ink(both, BLUE)
    rows = both.get_by_role("list", name="Streams of this panel").get_by_role("listitem")
    expect(rows).to_have_count(2)
    rows.nth(1).get_by_role("button", name="left axis").click()
    until(page, lambda: ink(both, BLUE).height > 2 * first.height)  # the left axis is its own now
    rows.nth(0).get_by_role("button", name="Remove").click()
    expect(card(page, "batch.ramp")).to_be_visible()


def a_line_and_a_histogram_share_axes(page):
    clear(page)
    panel = ask(page, "batch.loss.histogram(16, every=20)")
    has_canvas_or_svg(panel)
    panel.get_by_role("button", name="Add a stream to this panel").click()
    panel.get_by_role("combobox", name="Query").fill("batch.loss")
    panel.get_by_role("button", name="Add", exact=True).click()
    both = card(page, "batch.loss.histogram(16, every=20) + batch.loss")
    expect(both.get_by_role("combobox", name="View")).to_have_value("line")
    drawn(both, ORANGE)
    faint = tuple(round(255 - 0.17 * (255 - channel)) for channel in BLUE)  # the histogram is a band
    until(page, lambda: ink(both, faint, near=12).n > 200)


def streams_that_cannot_share_a_view_say_why(page):
    clear(page)
    panel = ask(page, "batch.loss")
    drawn(panel, BLUE)
    panel.get_by_role("button", name="Add a stream to this panel").click()
    panel.get_by_role("combobox", name="Query").fill("batch.digit")
    panel.get_by_role("button", name="Add", exact=True).click()
    both = card(page, "batch.loss + batch.digit")
    expect(both.get_by_role("alert").first).to_contain_text(re.compile("image|picture"))


def pinned_panels_stay_when_the_others_are_removed(page):
    clear(page)
    pinned = ask(page, "batch.loss")
    pinned.get_by_role("button", name="Pin this panel, and record it").click()
    expect(pinned.get_by_role("button", name="recorded")).to_have_attribute("aria-pressed", "true")
    pinned.get_by_role("button", name="recorded").click()
    ask(page, "batch.ramp")
    ask(page, "batch.step")
    page.get_by_role("button", name=re.compile("^Remove 2")).click()
    expect(cards(page)).to_have_count(1)
    pinned.get_by_role("button", name="Remove this panel").click()
    expect(cards(page)).to_have_count(0)
    until(page, lambda: "ask=" not in page.url)


def equal_panels_share_a_stream_that_ends_with_the_last(open_page, server, page):
    clear(page)
    query = "batch.loss.max(every=7)"
    act = open_page(server.controller, "/control")
    mine = ask(page, query)
    other = open_page(server.viewer)
    theirs = ask(other, query)
    for panel in (mine, theirs):
        expect(panel).to_contain_text(re.compile(r"all \d+"))
    asked = streams(act).filter(has_text="every=7")
    expect(asked).to_have_count(1)
    expect(asked).to_contain_text(re.compile("queried by (?!.*clients)"))
    mine.get_by_role("button", name="Remove this panel").click()
    before = theirs.inner_text()
    until(other, lambda: theirs.inner_text() != before)
    expect(asked).to_have_count(1)
    other.close()
    expect(asked).to_have_count(0)


def costs_are_shown_and_numbers_go_on(page):
    clear(page)
    panel = ask(page, "batch.loss.mean(every=5)")
    row = panel.get_by_role("list", name="Streams of this panel").get_by_role("listitem")
    expect(row).to_contain_text(re.compile(r"[\d.]+ µs an event"))
    expect(row).to_contain_text(re.compile(r"all [\d,]+"))
    n_records = lambda: int(re.search(r"all ([\d,]+)", row.inner_text())[1].replace(",", ""))  # noqa: E731
    before = n_records()
    until(page, lambda: n_records() > before)


def test_a_late_page_has_the_whole_run_and_says_how_much_of_it(own_place, open_page):
    n = 40_000
    with own_place.recording() as folder, sg.init("late", dir=folder, budget=None) as run, sg.connect(run) as client:
        stream = client.stream("batch.loss")
        for step in range(n):
            run.observe("batch", step=step, loss=5.0 if step == n // 3 else math.sin(step / 3_000))
        page = open_page(own_place.serve().controller)
        panel = ask(page, "batch.loss")

        def tells():
            run.observe("batch", step=n, loss=0.0)
            return re.search(r"every \d+(st|nd|rd|th) of 4\d,\d{3}, extremes kept", panel.inner_text())

        until(page, tells)
        line = drawn(panel, BLUE)
        spike = ink(panel, BLUE, near=110)  # between two columns of pixels it is blended with the ground
        assert spike.span(1 / 3, 0.01)[1] > 0.9
        for tenth in range(10):
            around = line.span((tenth + 0.5) / 10, 0.04)
            assert None not in around
        stream.close()


def recorded_streams_reach_the_disk_and_the_charts(page, place):
    clear(page)
    query = "batch.loss.min(every=10)"
    panel = ask(page, query)
    record = panel.get_by_role("button", name="record", exact=True)
    record.click()
    expect(page.get_by_role("status").filter(has_text="from now on")).to_be_visible()
    expect(panel.get_by_role("button", name="recorded")).to_have_attribute("aria-pressed", "true")
    [directory] = place.runs.glob("training-*")
    until(page, lambda: any("min(every=10)" in tag for tag in sg.open(directory).tags()))
    panel.get_by_role("button", name="recorded").click()
    expect(record).to_have_attribute("aria-pressed", "false")
    panel.get_by_role("button", name="Remove this panel").click()
    page.get_by_role("searchbox", name="Search tags").fill("min")
    tag = page.get_by_role("article").filter(has_text="min(every=10)")
    expect(tag).to_be_visible()
    drawn(tag, BLUE, n=10)


def a_csv_holds_the_records(page):
    clear(page)
    panel = ask(page, "batch.loss")
    drawn(panel, BLUE)
    panel.get_by_role("button", name="Save or copy").click()
    with page.expect_download() as got:
        page.get_by_role("menuitem", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(got.value.path().read_text())))
    assert len(rows) > 10
    assert {(row["run"], row["stream"]) for row in rows} == {("training", "batch.loss")}
    [id] = {row["run_id"] for row in rows}
    assert re.fullmatch("[0-9a-f]{12}", id)
    for row in rows:
        assert float(row["value"]) == pytest.approx(1 + math.sin(float(row["step"]) / 20) / 2, rel=1e-12)


def a_panel_is_copied_as_a_program_and_as_a_command(page):
    clear(page)
    panel = ask(page, "batch.loss.mean(every=10)")
    drawn(panel, BLUE)
    program = copied(page, panel, "Save or copy", "Copy as Python")
    assert 'sg.connect("training").stream("batch.loss.mean(every=10)")' in program
    command = copied(page, panel, "Save or copy", "Copy as command")
    assert command == "sightglass watch training 'batch.loss.mean(every=10)'\n"


def a_viewer_queries_and_cannot_record(open_page, server):
    page = open_page(server.viewer)
    expect(page.get_by_text("viewer", exact=True)).to_be_visible()
    panel = ask(page, "batch.loss")
    drawn(panel, BLUE)
    expect(panel.get_by_role("button", name="record")).to_be_disabled()


def test_recorded_runs_answer_the_same_queries(own_place, open_page):
    with own_place.recording() as folder, sg.init("kept", dir=folder, record=["batch.loss"]) as run:
        for step in range(200):
            run.observe("batch", step=step, loss=step / 2)
    page = open_page(own_place.serve().controller)
    expect(page.get_by_role("combobox", name="Run")).to_contain_text("kept")
    panel = ask(page, "batch.loss")
    line = drawn(panel, BLUE)
    assert line.span(0.9)[0] > line.span(0.1)[1]
    panel = ask(page, "batch.loss.mean(every=50)")
    expect(panel.get_by_role("list", name="Streams of this panel")).to_contain_text("all 4")
    expect(ask(page, "batch.grads").get_by_role("alert")).to_contain_text("batch.loss")  # what was kept


def a_panel_is_seen_large_and_its_query_goes_back_into_the_box(page):
    clear(page)
    panel = ask(page, "batch.loss")
    drawn(panel, BLUE)
    panel.get_by_role("button", name="Show this panel large").click()
    dialog = page.get_by_role("dialog", name="batch.loss")
    drawn(dialog, BLUE, n=200)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    panel.get_by_role("button", name="batch.loss", exact=True).click()
    expect(box(page)).to_have_value("batch.loss")


def a_link_shows_the_same_panels(page, open_page, server):
    clear(page)
    ask(page, "batch.loss")
    ask(page, "batch.matrix")
    has_url(page, "matrix")
    other = open_page(server.viewer, page.url.partition("#")[2])
    for query in ("batch.loss", "batch.matrix"):
        has_canvas_or_svg(card(other, query))


def test_a_pattern_draws_a_line_for_each_live_run_and_later_ones_join(own_place, open_page):
    with own_place.recording() as folder:
        runs = {name: sg.init(name, dir=folder, budget=None) for name in ("sweep-a", "sweep-b", "mnist")}
        server = own_place.serve()
        page = open_page(server.viewer)
        page.get_by_role("combobox", name="Run").select_option(label="Several live runs …")
        names = page.get_by_role("textbox", name="Names of the runs")
        expect(names).to_have_value("*")
        names.fill("sweep-*")
        expect(page.get_by_role("status").filter(has_text="2 live")).to_be_visible()
        panel = ask(page, "batch.loss")
        has_url(page, "ask=sweep-*")
        rows = panel.get_by_role("list", name="Streams of this panel").get_by_role("listitem")

        def draws(within, color):
            def look():
                for i, run in enumerate(runs.values()):
                    run.observe("batch", loss=float(i))
                return ink(within, color).n > 50

            until(page, look)

        draws(panel, BLUE)
        draws(panel, ORANGE)
        expect(rows).to_contain_text(["sweep-*", "sweep-a", "sweep-b"])
        runs["sweep-c"] = sg.init("sweep-c", dir=folder, budget=None)
        draws(panel, PURPLE)
        runs.pop("sweep-a").close()
        ended = re.compile("sweep-a.*ended", re.DOTALL)
        expect(rows).to_contain_text(["2 live · 1 ended", ended, "sweep-b", "sweep-c"])
        draws(panel, BLUE)
        other = open_page(server.controller, page.url.partition("#")[2])
        again = card(other, "batch.loss")
        shown = [re.compile(rf"{name}.*all \d", re.DOTALL) for name in ("sweep-b", "sweep-c")]
        expect(again.get_by_role("listitem")).to_contain_text(["2 live", *shown])
        with sg.connect(runs["sweep-b"]) as client:
            [stream] = client.describe().streams
        assert len(stream.clients) == 1  # the server is the run's one client, however many viewers there are
        the_run_whose_details_are_open_is_asked(page, "sweep-b")
        for run in runs.values():
            run.close()


def the_run_whose_details_are_open_is_asked(page, name):
    go_to(page, "/charts")
    page.get_by_role("navigation", name="Runs").get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("complementary", name=f"Run {name}")).to_be_visible()
    expect(page.get_by_role("combobox", name="Run", exact=True).locator("option:checked")).to_contain_text(name)
