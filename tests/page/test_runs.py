"""The list and the table of runs: live and recorded ones, ours and others', filtered, grouped, sorted, pinned."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect
from tests.growing import FIXTURES

import sightglass as sg

from ..server.conftest import place_foreign  # noqa: TID252  tests are no package
from .looks import box_of, chart, color_of, drawn, go_to, has_url, ink, until


@pytest.fixture(scope="module")
def training(place):
    return place.train("live")


@pytest.fixture(scope="module")
def server(place, training):
    with place.recording() as folder:
        for i, (lr, name) in enumerate([(0.1, "adam"), (0.01, "adam"), (0.001, "sgd")]):
            with sg.init(f"recorded-{i}", dir=folder, config={"lr": lr, "opt": {"name": name}, "same": 1}) as run:
                for step in range(100 * (i + 1)):
                    run.log({"loss": 1 / (step + 1), "double": 2 * step}, step=step)
        place_foreign(folder)
    return place.serve()


@pytest.fixture
def page(open_page, server):
    return begin(open_page(server.controller, "/runs"))


def begin(page, place="/runs"):
    """Show a place as it is by default; returns the page."""
    page.keyboard.press("Escape")
    go_to(page, "/runs")
    expect(row(page, "recorded-0")).to_be_visible()
    go_to(page, place)
    return page


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("button", name=name, exact=True))


def names(page):
    """The runs in their order."""
    boxes = page.get_by_role("checkbox", name=re.compile("^Show "))
    labels = boxes.evaluate_all("boxes => boxes.map(box => box.getAttribute('aria-label'))")  # at once: rows may leave
    return [label.removeprefix("Show ") for label in labels]


def test_live_and_recorded_runs_and_their_details(page, open_page, server, place):
    live_and_recorded_runs_of_all_kinds_are_distinct(page)
    what_a_run_s_files_have_beyond_what_is_shown_is_named(page)
    details_show_all_of_a_run(page)
    queries_and_their_costs(page, open_page, server)
    a_live_chart_grows_by_itself(page)
    runs_come_and_end_by_themselves(page, place)


def test_columns_are_chosen_sorted_and_saved(page):
    columns_show_differences_and_sort(page)
    columns_of_series_are_chosen_sorted_and_remembered(page)
    a_table_is_sorted_by_several_keys_and_saved(page)
    a_series_is_shown_where_another_is_best(page)


def test_runs_are_found_and_chosen(page):
    an_invalid_filter_and_an_empty_list_explain_themselves(page)
    a_filter_is_completed_and_shows_the_place_of_what_is_wrong(page)
    pinned_runs_stay_on_top_whatever_is_searched(page)
    a_run_keeps_its_colour_while_others_come_and_go(page)
    the_list_beside_the_charts_chooses_the_visible_runs(page)


def test_runs_are_labelled_renamed_and_coloured(page, open_page, server):
    selected_runs_are_labelled_and_put_away_and_back(page)
    a_run_is_renamed_and_has_notes(page, open_page, server)
    the_reader_chooses_a_run_s_colour(page)


def test_runs_are_compared_and_grouped(page):
    runs_are_compared_by_config_facts_and_last_values(page)
    groups_have_means_in_a_table_whose_columns_are_moved(page)


def what_a_run_s_files_have_beyond_what_is_shown_is_named(page):
    begin(page)
    row(page, "tb").get_by_role("button", name="tb", exact=True).click()
    expect(page.get_by_role("complementary", name="Run tb")).to_contain_text("Not showngraph")


def search(page, text):
    page.get_by_role("searchbox", name="Filter runs").fill(text)


def live_and_recorded_runs_of_all_kinds_are_distinct(page):
    begin(page)
    expect(row(page, "live")).to_contain_text("running")
    expect(row(page, "recorded-1")).to_contain_text("ended")
    expect(row(page, "recorded-1")).to_contain_text("199")
    assert page.get_by_role("row").filter(has_text="mindspore").count() == 1
    assert page.get_by_role("row").filter(has_text="tensorboard").count() >= 1
    expect(page).to_have_title(re.compile("1 live"))
    before = row(page, "live").inner_text()
    until(page, lambda: row(page, "live").inner_text() != before)  # it goes on by itself


def columns_show_differences_and_sort(page):
    begin(page)
    for column in ("State", "Started", "Duration", "Last step", "Source", "lr", "opt.name"):
        expect(page.get_by_role("columnheader", name=column, exact=True)).to_be_visible()
    expect(page.get_by_role("columnheader", name="same")).to_have_count(0)
    search(page, "recorded")
    head = page.get_by_role("columnheader", name="lr", exact=True)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["recorded-0", "recorded-1", "recorded-2"]
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert names(page) == ["recorded-2", "recorded-1", "recorded-0"]
    has_url(page, "sort=lr")


def choose(page, *columns):
    page.get_by_role("button", name="Columns", exact=True).click()
    dialog = page.get_by_role("dialog", name="Columns")
    for column in columns:
        dialog.get_by_role("searchbox", name="Search columns").fill(column)
        dialog.get_by_role("button", name=column, exact=True).click()
        expect(dialog.get_by_role("button", name=column, exact=True)).to_have_attribute("aria-pressed", "true")
    dialog.get_by_role("button", name="Close", exact=True).click()


def columns_of_series_are_chosen_sorted_and_remembered(page):
    begin(page)
    search(page, "recorded")
    choose(page, "loss min", "loss argmin")
    heads = [text.rstrip(" ↑↓") for text in page.get_by_role("columnheader").all_inner_texts()]
    assert heads.index("loss.min") < heads.index("loss.argmin") < heads.index("lr") < heads.index("opt.name")
    until(page, lambda: names(page) == ["recorded-2", "recorded-1", "recorded-0"])  # the best first
    expect(row(page, "recorded-2")).to_contain_text("0.0033333")
    expect(row(page, "recorded-2")).to_contain_text("299")
    has_url(page, "columns=loss.min")
    head = page.get_by_role("columnheader", name="loss.min", exact=True).get_by_role("button")
    head.click()
    until(page, lambda: names(page) == ["recorded-0", "recorded-1", "recorded-2"])
    head.click()
    until(page, lambda: names(page) == ["recorded-2", "recorded-1", "recorded-0"])
    go_to(page, "/charts")
    go_to(page, "/runs")
    expect(page.get_by_role("columnheader", name="loss.argmin", exact=True)).to_be_visible()
    page.get_by_role("button", name="Columns", exact=True).click()
    page.get_by_role("button", name="What differs").click()
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_role("columnheader", name="opt.name", exact=True)).to_be_visible()


def a_series_is_shown_where_another_is_best(page):
    begin(page)
    search(page, "recorded")
    page.get_by_role("button", name="Columns", exact=True).click()
    page.get_by_role("searchbox", name="Search columns").fill("s")
    page.get_by_role("button", name="loss min", exact=True).click()
    page.get_by_role("button", name="double at loss.min", exact=True).click()
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_role("columnheader", name="double@loss.min", exact=True)).to_be_visible()
    expect(row(page, "recorded-1")).to_contain_text("398")
    search(page, "recorded double@loss.min > 300")
    until(page, lambda: names(page) == ["recorded-2", "recorded-1"])


def selected_runs_are_labelled_and_put_away_and_back(page):
    begin(page)
    search(page, "recorded")
    page.get_by_role("checkbox", name="Select recorded-0").click()
    page.get_by_role("checkbox", name="Select recorded-2").click(modifiers=["Shift"])
    bar = page.get_by_role("toolbar", name="Selected runs")
    expect(bar).to_contain_text("3 runs selected")
    bar.get_by_role("combobox", name="Add a label").fill("best")
    bar.get_by_role("combobox", name="Add a label").press("Enter")
    expect(row(page, "recorded-1")).to_contain_text("best")
    expect(page.get_by_role("columnheader", name="Labels", exact=True)).to_be_visible()
    bar.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("button", name="Compare 3")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="List", exact=True).click()
    bar.get_by_role("button", name="Select none").click()
    expect(bar).to_have_count(0)
    page.get_by_role("checkbox", name="Select recorded-1").click()
    bar.get_by_role("button", name="Delete").click()
    until(page, lambda: set(names(page)) == {"recorded-0", "recorded-2"})
    search(page, '"best" in labels and deleted = true')
    until(page, lambda: names(page) == ["recorded-1"])
    search(page, "recorded")
    until(page, lambda: set(names(page)) == {"recorded-0", "recorded-2"})
    notices = page.get_by_role("region", name="Notices")
    notices.get_by_role("status").filter(has_text="trash").get_by_role("button", name="Undo").click()
    until(page, lambda: len(names(page)) == 3)
    notices.get_by_role("status").filter(has_text="Labelled best").get_by_role("button", name="Undo").click()
    expect(row(page, "recorded-1")).not_to_contain_text("best")


def a_run_is_renamed_and_has_notes(page, open_page, server):
    begin(page)
    search(page, "recorded")
    row(page, "recorded-1").get_by_role("button", name="recorded-1", exact=True).click()
    details = page.get_by_role("complementary", name="Run recorded-1")
    details.get_by_role("button", name="Rename, or write notes").click()
    details.get_by_role("textbox", name="Name").fill("the recorded one")
    details.get_by_role("textbox", name="Notes").fill("The loss\njumps.")
    details.get_by_role("button", name="Save").click()
    renamed = page.get_by_role("complementary", name="Run the recorded one")
    expect(renamed).to_contain_text("The loss")
    expect(renamed).to_contain_text("Own name")
    viewer = open_page(server.viewer, "/runs")
    row(viewer, "the recorded one").get_by_role("button", name="the recorded one", exact=True).click()
    seen = viewer.get_by_role("complementary", name="Run the recorded one")
    expect(seen).to_contain_text("jumps.")
    expect(seen.get_by_role("combobox", name="Add a label")).to_have_count(0)
    viewer.get_by_role("checkbox", name="Select the recorded one").click()
    bar = viewer.get_by_role("toolbar", name="Selected runs")
    expect(bar.get_by_role("button", name="Show only these")).to_be_visible()
    expect(bar.get_by_role("button", name="Delete")).to_have_count(0)
    page.get_by_role("status").filter(has_text="Saved").get_by_role("button", name="Undo").click()
    expect(row(page, "recorded-1")).to_be_visible()


def a_table_is_sorted_by_several_keys_and_saved(page):
    begin(page)
    search(page, "recorded")
    for key, modifiers in (("opt.name", []), ("lr", ["Shift"]), ("lr", ["Shift"])):
        head = page.get_by_role("columnheader", name=re.compile(f"^{key}"))
        head.get_by_role("button").click(modifiers=modifiers)
    until(page, lambda: names(page) == ["recorded-2", "recorded-1", "recorded-0"])
    has_url(page, "sort=-opt.name|lr")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the table").click()
        page.get_by_role("menuitem", name="CSV").click()
    head, *lines = Path(saved.value.path()).read_text().splitlines()
    names_of = head.replace('"', "").split(",")
    assert names_of[:5] == ["name", "id", "key", "state", "started"]
    assert [line.split(",")[names_of.index("lr")] for line in lines] == ["0.001", "0.01", "0.1"]
    assert lines[0].startswith('"recorded-2"')
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the table").click()
        page.get_by_role("menuitem", name="Parquet").click()
    table = pq.read_table(saved.value.path())
    assert table.column_names == names_of
    assert table.column("lr").to_pylist() == [0.001, 0.01, 0.1]


def an_invalid_filter_and_an_empty_list_explain_themselves(page):
    begin(page)
    search(page, "(")
    expect(page.get_by_role("alert")).to_contain_text("(")
    assert len(names(page)) > 4
    search(page, "nothing-like-it")
    expect(page.get_by_role("heading", name="No run matches")).to_be_visible()
    page.get_by_role("button", name="Clear the filter").click()
    expect(row(page, "recorded-0")).to_be_visible()


def pinned_runs_stay_on_top_whatever_is_searched(page):
    begin(page)
    row(page, "recorded-0").hover()
    row(page, "recorded-0").get_by_role("button", name="Pin recorded-0").click()
    until(page, lambda: names(page)[0] == "recorded-0")
    search(page, "recorded-2")
    until(page, lambda: names(page) == ["recorded-0", "recorded-2"])
    row(page, "recorded-0").get_by_role("button", name="Unpin recorded-0").click()
    until(page, lambda: names(page) == ["recorded-2"])


def details_show_all_of_a_run(page):
    begin(page)
    row(page, "recorded-1").get_by_role("button", name="recorded-1", exact=True).click()
    aside = page.get_by_role("complementary", name="Run recorded-1")
    for text in ("Duration", "Last step", "199", "Directory", "opt.name", "adam", "0.01"):
        expect(aside).to_contain_text(text)
    has_url(page, "run=")
    aside.get_by_role("button", name="adam").click()
    until(page, lambda: set(names(page)) == {"recorded-0", "recorded-1", "live"})
    page.keyboard.press("Escape")
    expect(aside).to_be_hidden()


def queries_and_their_costs(page, open_page, server):
    begin(page)
    asking = open_page(server.controller)
    expect(asking.get_by_role("combobox", name="Run", exact=True)).to_contain_text("live")
    asking.get_by_role("combobox", name="Query").fill("batch.loss.mean(every=10)")
    asking.get_by_role("button", name="Ask", exact=True).click()
    expect(asking.get_by_role("article", name="batch.loss.mean(every=10)")).to_be_visible()
    row(page, "live").get_by_role("button", name="live", exact=True).click()
    aside = page.get_by_role("complementary", name="Run live")
    expect(aside).to_contain_text("Queries")
    expect(aside).to_contain_text(re.compile(r"Command.*training\.py live.*Python *3\."))
    asked = aside.get_by_role("listitem").filter(has_text="mean(every=10)")
    expect(asked).to_contain_text("1 client")
    expect(asked).to_contain_text(re.compile(r"\d\S* s spent"))
    asking.close()  # with the tab goes what only it asked
    expect(asked).to_be_hidden()
    expect(aside).to_contain_text("No client queries")


def runs_come_and_end_by_themselves(page, place):
    begin(page)
    late = place.train("latecomer")
    expect(row(page, "latecomer")).to_contain_text("running")
    late.finish()
    expect(row(page, "latecomer")).to_contain_text("died")


def a_live_chart_grows_by_itself(page):
    begin(page, "/charts?filter=^live$")
    color = color_of(page, "live")
    before = drawn(chart(page, "train/loss"), color)
    until(page, lambda: (now := ink(chart(page, "train/loss"), color)).n and now.columns != before.columns)


def the_list_beside_the_charts_chooses_the_visible_runs(page):
    begin(page, "/charts?filter=recorded")
    drawn(chart(page, "loss"), color_of(page, "recorded-0"), n=20)
    page.get_by_role("button", name="None", exact=True).click()
    expect(page.get_by_role("heading", name="No run is visible")).to_be_visible()
    page.get_by_role("checkbox", name="Show recorded-1").click()
    expect(chart(page, "loss").get_by_role("img", name="1 line")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    expect(chart(page, "loss").get_by_role("img", name="3 lines")).to_be_visible()
    color = color_of(page, "recorded-1")
    drawn(chart(page, "loss"), color, n=20)
    page.get_by_role("button", name="recorded-0", exact=True).hover()
    until(page, lambda: ink(chart(page, "loss"), color).n < 20)  # the line of the name stands out
    page.get_by_role("checkbox", name="Show recorded-0").hover()
    page.get_by_role("button", name="Show only recorded-0").click()
    expect(chart(page, "loss").get_by_role("img", name="1 line")).to_be_visible()
    page.get_by_role("button", name="Newest").click()
    expect(chart(page, "loss").get_by_role("img", name="3 lines")).to_be_visible()
    page.get_by_role("combobox", name="Group").select_option("opt.name")
    group = page.get_by_role("checkbox", name="Show opt.name=adam")
    expect(group).to_be_checked()
    expect(chart(page, "loss").get_by_role("img", name="2 lines")).to_be_visible()
    group.click()
    expect(chart(page, "loss").get_by_role("img", name="1 line")).to_be_visible()
    page.get_by_role("button", name="List of runs").click()
    expect(group).to_be_hidden()


def a_run_keeps_its_colour_while_others_come_and_go(page):
    begin(page, "/charts?filter=recorded")
    before = {name: color_of(page, name) for name in ("recorded-0", "recorded-1", "recorded-2")}
    assert len(set(before.values())) == 3
    search(page, "recorded-2")
    until(page, lambda: names(page) == ["recorded-2"])
    assert color_of(page, "recorded-2") == before["recorded-2"]


def runs_are_compared_by_config_facts_and_last_values(page):
    begin(page)
    search(page, "recorded")
    page.get_by_role("group", name="List or compare").get_by_role("button", name="Compare 3").click()
    table = page.get_by_role("grid", name="Comparison of runs")
    expect(table.get_by_role("row").filter(has_text="opt.name")).to_contain_text(re.compile("sgd.*adam", re.DOTALL))
    expect(table.get_by_role("row").filter(has_text="same")).to_have_count(0)
    last = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name="loss", exact=True))
    expect(last).to_contain_text(re.compile(r"0\.0033.*0\.005.*0\.01", re.DOTALL))
    page.get_by_role("button", name="Only differences").click()
    expect(table.get_by_role("row").filter(has_text="same")).to_be_visible()
    table.get_by_role("button", name="Pin recorded-0").click()
    until(page, lambda: table.get_by_role("columnheader").nth(1).inner_text().strip() == "recorded-0")
    expect(last).to_contain_text(re.compile(r"0\.01.*−.*%", re.DOTALL))
    has_url(page, "compare=1")
    table.get_by_role("button", name="Unpin recorded-0").click()
    page.get_by_role("group", name="Values of series").get_by_role("button", name="Mean").click()
    expect(last).to_contain_text("0.0518")
    table.get_by_role("rowheader", name="loss", exact=True).get_by_role("button").click()
    heads = table.get_by_role("columnheader")
    until(page, lambda: [text.strip() for text in heads.all_inner_texts()[1:]] == [f"recorded-{i}" for i in range(3)])


def the_reader_chooses_a_run_s_colour(page):
    begin(page)
    search(page, "recorded")
    before = color_of(page, "recorded-1")
    row(page, "recorded-1").get_by_role("button", name="recorded-1", exact=True).click()
    colors = page.get_by_role("radiogroup", name="Colour of recorded-1")
    checked = colors.get_by_role("radio").evaluate_all("all => all.findIndex((one) => one.ariaChecked === 'true')")
    other = colors.get_by_role("radio").nth((checked + 3) % 8)
    other.click()
    expect(other).to_be_checked()
    after = until(page, lambda: (now := color_of(page, "recorded-1")) != before and now)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Charts").click()
    drawn(chart(page, "loss"), after, n=10)
    page.reload()
    expect(chart(page, "loss")).to_be_visible()
    assert color_of(page, "recorded-1") == after


def a_filter_is_completed_and_shows_the_place_of_what_is_wrong(page):
    begin(page)
    box = page.get_by_role("searchbox", name="Filter runs")
    box.press_sequentially("(lr < 0.05 or opt.n")
    page.get_by_role("listbox", name="Completions").get_by_role("option", name="opt.name").click()
    box.press_sequentially(" = ")
    box.press("ArrowDown")
    box.press("Enter")
    expect(box).to_have_value('(lr < 0.05 or opt.name = "adam"')
    expect(page.get_by_role("alert")).to_have_text(re.compile(r"^This bracket is not closed"))
    box.press_sequentially(") and not loss.min < 0.004")
    until(page, lambda: {"recorded-0", "recorded-1"} == {name for name in names(page) if name.startswith("recorded")})
    search(page, "lozz < 1")
    expect(page.get_by_role("alert")).to_contain_text("No run has lozz")


def groups_have_means_in_a_table_whose_columns_are_moved(page):
    begin(page, "/runs?filter=recorded&columns=loss.min&columns=lr&stuck=lr&sort=loss.min")
    page.get_by_role("combobox", name="Group", exact=True).select_option("!lr")
    page.get_by_role("button", name="Only groups").click()
    until(page, lambda: names(page) == ["opt.name=sgd", "opt.name=adam"])
    group = page.get_by_role("row").filter(has_text="opt.name=adam")
    expect(group).to_contain_text(re.compile(r"0\.0075 ± 0\.0035\d?\s*"))
    expect(group).to_contain_text("2 values")
    heads = page.get_by_role("columnheader")
    assert [text.split()[0] for text in heads.all_inner_texts()[1:4]] == ["Name", "lr", "loss.min"]
    box = heads.nth(3).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 76, box["y"] + box["height"] / 2)
    page.mouse.up()
    has_url(page, f"widths=loss.min:{round(box['width'] + 80)}")


def test_views_over_the_runs_are_linked(open_page, server):
    page = open_page(server.controller, "/runs?filter=recorded&views=1&columns=loss.min&columns=lr&logs=lr&runs=*")
    until(page, lambda: len(names(page)) == 3)
    scatter = page.get_by_role("application", name="Scatter of loss.min over lr")
    # Said of no runs, too; of three, each has a value.
    expect(page.get_by_role("article", name="Scatter").locator("p")).to_contain_text("Drag to select")
    size = box_of(scatter)
    # Stands still: recorded-0 has the highest lr, and the highest loss.
    scatter.hover(position={"x": size["width"] - 2, "y": 2})
    box = box_of(scatter)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] / 2)
    page.mouse.up()
    expect(page.get_by_role("checkbox", name="Select recorded-0")).to_be_checked()
    expect(page.get_by_role("toolbar", name="Selected runs")).to_contain_text("1 run selected")
    parallel = page.get_by_role("application", name=re.compile("^Parallel coordinates of lr, opt.name, loss.min"))
    box = box_of(parallel)  # the upper half of the axis of opt.name: sgd
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.up()
    expect(page.get_by_role("checkbox", name="Select recorded-2")).to_be_checked()
    expect(page.get_by_role("checkbox", name="Select recorded-0")).not_to_be_checked()
    best = page.get_by_role("application", name="The lowest loss.min so far")
    best.focus()
    page.keyboard.press("ArrowRight")
    said = page.get_by_role("article", name="Best so far").locator("p")
    expect(said).to_contain_text("recorded-0 loss.min 0.01")
    page.keyboard.press("Shift+ArrowRight")
    expect(said).to_contain_text("recorded-1 loss.min 0.005")
    expect(page.get_by_role("toolbar", name="Selected runs")).to_contain_text("3 runs selected")
    page.keyboard.press("Space")
    expect(page.get_by_role("checkbox", name="Select recorded-1")).not_to_be_checked()
    color = color_of(page, "recorded-1")
    page.get_by_role("link", name="Charts").click()
    chip = page.get_by_role("button", name="2 of 3 selected")
    expect(chip).to_be_visible()
    until(page, lambda: ink(chart(page, "loss"), color).n < 20)  # it stands back
    chip.click()
    drawn(chart(page, "loss"), color)
    page.get_by_role("link", name="Runs").click()
    page.get_by_role("button", name="Remove the axis lr").click()
    page.get_by_role("combobox", name="Colour").select_option("opt.name")
    page.get_by_role("button", name="Highest").click()
    has_url(page, "tint=opt.name")
    has_url(page, "best=max")
    has_url(page, "axes=opt.name&axes=loss.min")


def test_a_view_is_saved_by_name_and_restored(page, open_page, server):
    search(page, "recorded lr<0.1")
    page.get_by_role("columnheader", name="lr", exact=True).get_by_role("button").click()
    until(page, lambda: names(page) == ["recorded-1", "recorded-2"])
    page.get_by_role("button", name="Saved views").click()
    dialog = page.get_by_role("dialog", name="Saved views")
    expect(dialog).to_contain_text("None yet")
    dialog.get_by_role("textbox").fill(" small rates ")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(dialog.get_by_role("link", name="small rates")).to_have_attribute("aria-current", "true")
    dialog.get_by_role("button", name="Close").click()
    other = open_page(server.viewer, "/charts")
    other.keyboard.press("v")
    dialog = other.get_by_role("dialog", name="Saved views")
    expect(dialog.get_by_role("textbox")).to_have_count(0)
    dialog.get_by_role("link", name="small rates").click()
    until(other, lambda: names(other) == ["recorded-1", "recorded-2"])
    expect(other.get_by_role("dialog")).to_have_count(0)
    other.go_back()
    expect(chart(other, "loss")).to_be_visible()
    page.keyboard.press("v")
    expect(other.get_by_role("button", name="Rename small rates")).to_have_count(0)
    page.get_by_role("button", name="Rename small rates").click()
    box = page.get_by_role("textbox", name="Another name for small rates")
    box.press("Escape")
    expect(box).to_have_count(0)  # and the dialog is still open
    page.get_by_role("button", name="Rename small rates").click()
    box.fill(" slow ones ")
    box.press("Enter")
    expect(page.get_by_role("link", name="slow ones")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("link", name="small rates")).to_have_count(0)
    page.get_by_role("button", name="Close", exact=True).click()
    page.get_by_role("status").filter(has_text="Renamed").get_by_role("button", name="Undo").click()
    page.keyboard.press("v")
    page.get_by_role("button", name="Remove small rates").click()
    expect(page.get_by_role("link", name="small rates")).to_have_count(0)
    page.get_by_role("button", name="Close", exact=True).click()
    page.get_by_role("status").filter(has_text="Removed").get_by_role("button", name="Undo").click()
    page.keyboard.press("v")
    expect(page.get_by_role("link", name="small rates")).to_be_visible()


def test_without_runs_and_without_what_a_page_shows_it_says_so(own_place, open_page):
    page = open_page(own_place.serve().controller)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("sightglass demo")
    with own_place.recording() as folder, sg.init("own", dir=folder) as run:
        run.log({"accuracy": 0.25}, step=0)
    expect(chart(page, "accuracy")).to_be_visible()  # by itself
    go_to(page, "/media")
    expect(page.get_by_role("heading", name="No images, figures, sounds, tables or texts")).to_be_visible()
    go_to(page, "/tensors")
    expect(page.get_by_role("heading", name="No tensors in the visible runs")).to_be_visible()
    metrics_that_tensorboard_s_hparams_name_are_columns(page, folder)


def metrics_that_tensorboard_s_hparams_name_are_columns(page, folder):
    (folder / "try").mkdir(parents=True)
    shutil.copy(FIXTURES / "torch.out.events", folder / "try" / "events.out.tfevents.1700000000.host")
    (folder / "other").mkdir()
    shutil.copy(FIXTURES / "tensorboardx.out.events", folder / "other" / "events.out.tfevents.1700000000.host")
    go_to(page, "/runs")
    expect(page.get_by_role("columnheader", name="accuracy.last")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="own").get_by_role("gridcell", name="0.25")).to_be_visible()


def test_the_page_of_a_run_says_how_it_is_and_why_it_ended(own_place, open_page):
    with own_place.recording() as folder:
        with pytest.raises(RuntimeError, match="no memory"):
            train_until_it_fails(folder)
        with sg.init("alive", dir=folder, budget=None) as run:
            run.control("lr", 0.25)
            page = open_page(own_place.serve().controller)
            why_a_run_failed_is_on_its_page(page, sg.runs(folder))
            the_page_of_a_live_run_has_its_controls_and_pinned_cards(page, run)


def train_until_it_fails(folder):
    machine = {"cpu_percent": 12.0, "process_memory_gb": 1.25}
    with sg.init("boom", dir=folder, config={"depth": 4}, record=[f"system.{name}" for name in machine]) as run:
        for step in range(200):
            if step in (50, 100):
                run.observe("system", step=step, **{name: 100 / step * value for name, value in machine.items()})
            run.observe("batch", step=step, loss=1.0)
            run.log({"loss": 1.0, "norm": float("nan") if step >= 150 else 2.0}, step=step)
        run.alert("norm is NaN", "It was 2 at step 149.", level="error", step=150)
        raise RuntimeError("no memory")


def why_a_run_failed_is_on_its_page(page, found):
    [info] = [info for info in found if info.name == "boom"]
    assert info.sentence.startswith("failed at batch 199 after ")
    page.get_by_role("navigation", name="Runs").get_by_role("button", name="boom", exact=True).click()
    expect(page.get_by_role("complementary", name="Run boom")).to_contain_text(info.sentence)
    page.get_by_role("button", name="The page of this run").click()
    has_url(page, "#/run?")
    shown = page.get_by_role("region", name="Run boom")
    expect(shown.get_by_role("status").first).to_have_text(info.sentence)
    expect(shown).to_contain_text(re.compile(r"Why it ended.*line \d+, in train_until_it_fails", re.DOTALL))
    expect(shown).to_contain_text("RuntimeError: no memory")
    wrong = shown.get_by_role("list", name="What looks wrong")
    expect(wrong).to_contain_text("The first NaN is in norm, at step 150")
    expect(wrong).to_contain_text("loss has not fallen: it began at 1 and is 1 after 200 records")
    expect(wrong).not_to_contain_text("RuntimeError")  # said above
    expect(shown).to_contain_text("depth")
    expect(shown.get_by_role("row", name="cpu")).to_contain_text("12 %24 %")
    expect(shown.get_by_role("row", name="process memory")).to_contain_text("1.25 GB2.5 GB")
    page.keyboard.press("Escape")
    expect(shown).to_be_visible()
    page.get_by_role("button", name="Alerts: 1 run has new ones").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("norm is NaN.*boom")).click()
    expect(shown).to_contain_text(re.compile(r"norm is NaN\s*It was 2 at step 149\.\s*step 150"))
    expect(page.get_by_role("button", name="Alerts", exact=True)).to_be_visible()


def the_page_of_a_live_run_has_its_controls_and_pinned_cards(page, run):
    run.observe("batch", loss=1.0)
    chosen = page.get_by_role("combobox", name="Run", exact=True)
    chosen.select_option(chosen.locator("option").filter(has_text="alive").get_attribute("value"))
    page.get_by_role("link", name="Control").click()
    page.get_by_role("region", name="Control").get_by_role("button", name="alive", exact=True).click()
    shown = page.get_by_role("region", name="Run alive")
    expect(shown.get_by_role("status").first).to_contain_text(re.compile(r"running, batch \d+"))
    expect(shown).to_contain_text(re.compile(r"lr\s*0\.25"))
    page.get_by_role("combobox", name="Query").fill("batch.loss")
    page.keyboard.press("Enter")
    card = page.get_by_role("region", name="Asked").get_by_role("article", name="batch.loss", exact=True)
    card.get_by_role("button", name="Pin this panel").click()
    page.get_by_role("link", name="Control").click()
    page.get_by_role("region", name="Control").get_by_role("button", name="alive", exact=True).click()
    expect(shown.get_by_role("article", name="batch.loss", exact=True)).to_be_visible()
    with sg.connect(run) as client:
        until(page, lambda: [one.recorded for one in client.describe().streams] == [True])
