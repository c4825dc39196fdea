"""Commands to a live run: the training uses what the page sets."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import box_of, chart, color_of, drawn, ink, until

AT_AN_EVENT = re.compile(r"(batch|log) \d+")  # a command is applied at the next event, of either kind


@pytest.fixture(scope="module")
def training(place):
    return place.train()


@pytest.fixture(scope="module")
def server(place, training):
    return place.serve()


@pytest.fixture
def page(open_page, server):
    page = open_page(server.controller, "/control", expects=["status of 4"])
    expect(control(page, "lr")).to_be_visible()
    return page


def control(page, name):
    return page.get_by_role("form", name=name, exact=True)


def number(page, name):
    return control(page, name).get_by_role("spinbutton", name=name)


def done(page):
    """Return the history of commands, newest first."""
    return page.get_by_role("list").filter(has_text=re.compile(r"(set|call|pause|resume) "))


def test_controls_are_set(page, training):
    controls_show_their_values_and_bounds(page)
    values_out_of_bounds_are_not_sent(page)
    a_refusal_of_the_run_is_shown_beside_the_control(page)
    the_training_uses_a_number_that_is_set(page, training)
    a_slider_moves_by_keys_and_is_set_when_it_is_meant(page, training)
    switches_choices_and_texts(page, training)
    commands_are_marked_in_every_chart(page, training)


def test_actions_pauses_and_viewers(page, training, open_page, server):
    actions_are_called_and_show_their_result(page, training)
    a_paused_training_waits_until_it_is_resumed(page, training, open_page, server)
    the_stacks_of_the_training_are_shown(page)
    a_viewer_sees_everything_and_changes_nothing(open_page, server)


def controls_show_their_values_and_bounds(page):
    expect(control(page, "lr")).to_contain_text("float, 0 to 1")
    expect(control(page, "patience")).to_contain_text("int, at least 1")
    expect(control(page, "augment").get_by_role("switch")).to_be_visible()
    expect(control(page, "schedule").get_by_role("combobox").locator("option")).to_have_text(["cosine", "linear"])
    expect(control(page, "label").get_by_role("textbox")).to_have_value("first")


def the_training_uses_a_number_that_is_set(page, training):
    number(page, "lr").fill("0.25")
    page.keyboard.press("Enter")
    assert training.hears("set") == ["lr", "0.25"]
    expect(control(page, "lr")).to_contain_text(re.compile(r"now\s*0\.25"))
    expect(done(page).get_by_role("listitem").first).to_contain_text(re.compile(r"set lr 0\.1 → 0\.25"))
    expect(done(page).get_by_role("listitem").first).to_contain_text(AT_AN_EVENT)


def a_slider_moves_by_keys_and_is_set_when_it_is_meant(page, training):
    slider = control(page, "warmup").get_by_role("slider")
    slider.focus()
    page.keyboard.press("End")
    expect(number(page, "warmup")).to_have_value("1000")
    control(page, "warmup").get_by_role("button", name="Back to 100").click()
    expect(number(page, "warmup")).to_have_value("100")
    slider.focus()
    page.keyboard.press("End")
    control(page, "warmup").get_by_role("button", name="Set to").click()
    assert training.hears("set") == ["warmup", "1000"]
    expect(control(page, "warmup").get_by_role("button", name="Set to")).to_be_hidden()


def switches_choices_and_texts(page, training):
    switch = control(page, "augment").get_by_role("switch")
    expect(switch).to_be_checked()
    switch.click()
    assert training.hears("set") == ["augment", "False"]
    expect(switch).not_to_be_checked()
    control(page, "schedule").get_by_role("combobox").select_option("linear")
    assert training.hears("set") == ["schedule", "'linear'"]
    control(page, "label").get_by_role("textbox").fill("<b>second</b>")
    page.keyboard.press("Enter")
    assert training.hears("set") == ["label", "'<b>second</b>'"]
    expect(control(page, "label")).to_contain_text("<b>second</b>")


def values_out_of_bounds_are_not_sent(page):
    asked = []
    page.on("request", lambda request: asked.append(request) if request.url.endswith("/commands") else None)
    for name, value in (("lr", "2"), ("warmup", "1.5"), ("patience", "0")):
        number(page, name).fill(value)
        expect(control(page, name).get_by_role("alert")).to_be_visible()
        expect(control(page, name).get_by_role("button", name="Set to")).to_be_disabled()
        number(page, name).press("Enter")
    assert not asked


def a_refusal_of_the_run_is_shown_beside_the_control(page):
    page.route(
        "**/commands",
        lambda route: route.continue_(post_data=route.request.post_data.replace('"value":7', '"value":-7')),
    )
    number(page, "patience").fill("7")
    page.keyboard.press("Enter")
    expect(control(page, "patience").get_by_role("alert")).to_contain_text(re.compile("-7"))
    expect(control(page, "patience")).to_contain_text(re.compile(r"now\s*5"))
    page.unroute("**/commands")  # a request that is held here would wait as long as the test does


def actions_are_called_and_show_their_result(page, training):
    expect(page.get_by_text("Save the weights.")).to_be_visible()
    page.get_by_role("button", name="Call checkpoint").click()
    assert training.hears("called") == ["checkpoint", "latest", "3"]
    name, keep = (page.get_by_role("textbox", name=f"{argument} of checkpoint") for argument in ("name", "keep"))
    expect(name).to_have_attribute("placeholder", "'latest'")
    name.fill("best")
    keep.fill("5")
    expect(page.get_by_role("button", name="Call checkpoint")).to_be_enabled()  # the page knows of the first reply
    keep.press("Enter")
    assert training.hears("called") == ["checkpoint", "best", "5"]
    expect(page.get_by_role("status").filter(has_text="saved").last).to_be_visible()
    expect(done(page).get_by_role("listitem").first).to_contain_text("call checkpoint")
    page.get_by_role("button", name="Call explode").click()
    expect(page.get_by_role("alert").filter(has_text="no space left for explode")).to_be_visible()
    training.goes_on()  # and the training is none the worse for it
    training.may_complain = True


def a_paused_training_waits_until_it_is_resumed(page, training, open_page, server):
    asking = open_page(server.controller, "/charts")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(asking.get_by_role("list", name="Runs").get_by_role("img", name="Paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    training.goes_on()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    resumed, paused = done(page).get_by_role("listitem").all_inner_texts()[:2]
    assert resumed.startswith("resume")
    assert paused.startswith("pause")
    at = [AT_AN_EVENT.search(text)[0] for text in (resumed, paused)]
    assert at[0] == at[1]  # it took no step meanwhile


def the_stacks_of_the_training_are_shown(page):
    page.get_by_role("button", name="Stacks").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"main thread[\s\S]*training\.py\", line \d+, in train"))
    dialog.get_by_role("button", name="Look again").click()
    expect(dialog).to_contain_text("in train")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def a_viewer_sees_everything_and_changes_nothing(open_page, server):
    page = open_page(server.viewer, "/control", expects=["status of 403"])
    expect(page.get_by_text(re.compile("You opened the read-only link"))).to_be_visible()
    expect(number(page, "lr")).to_be_disabled()
    expect(control(page, "augment").get_by_role("switch")).to_be_disabled()
    for name in ("Stacks", "Pause", "Stop …", "Call checkpoint"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()
    asked = """async () => {
      const headers = { Authorization: `Bearer ${sessionStorage.getItem('sightglass-token')}` }
      const { runs } = await (await fetch('api/v1/runs', { headers })).json()
      const body = JSON.stringify({ kind: 'set', name: 'lr', value: 0.9 })
      const post = (what) => fetch(`api/v1/runs/${runs[0].key}/${what}`, { method: 'POST', headers, body })
      return (await Promise.all(['commands', 'record'].map(post))).map(({ status }) => status)
    }"""
    assert page.evaluate(asked) == [403, 403]
    expect(control(page, "lr")).not_to_contain_text("0.9")


def commands_are_marked_in_every_chart(page, training):
    number(page, "lr").fill("0.75")
    page.keyboard.press("Enter")
    training.hears("set")
    expect(control(page, "lr")).to_contain_text(re.compile(r"now\s*0\.75"))
    effect = page.get_by_role("article", name="batch.loss", exact=True)
    expect(page.get_by_role("heading", name="What lr moves")).to_be_visible()
    expect(effect).to_be_visible()
    expect(page.get_by_text(re.compile(r"lr 0\.25 → 0\.75 at step \d+: mean of \d+ records before it"))).to_be_visible()
    page.get_by_role("link", name="Charts").click()
    color = color_of(page, "training")
    for tag in ("train/loss", "train/lr"):
        panel = chart(page, tag)
        drawn(panel, color)
        until(
            page, lambda panel=panel: any(high is not None and high > 0.97 for _, high, _ in ink(panel, color).columns)
        )
    plot = chart(page, "train/lr").locator(".u-over")

    def reads_the_mark():
        columns = ink(chart(page, "train/lr"), color).columns
        marked = [i for i, (_, high, _) in enumerate(columns) if high is not None and high > 0.97]
        box = box_of(plot)
        page.mouse.move(box["x"] + (marked[-1] - 1) / len(columns) * box["width"], box["y"] + 0.5 * box["height"])
        said = chart(page, "train/lr").inner_text()
        return "→ 0.75" in said

    until(page, reads_the_mark)


def test_stop_is_confirmed_and_ends_the_process(own_place, open_page):
    training = own_place.train("doomed")
    page = open_page(own_place.serve().controller, "/control")
    page.get_by_role("button", name="Stop …").click()
    dialog = page.get_by_role("dialog", name="Stop doomed")
    expect(dialog.get_by_role("button", name="Keep it running")).to_be_visible()
    dialog.get_by_role("button", name="Keep it running").click()
    expect(dialog).to_be_hidden()
    training.goes_on()
    page.get_by_role("button", name="Stop …").click()
    dialog.get_by_role("button", name="Stop it").click()
    training.hears("done")
    assert training.ends() == 0
    expect(page.get_by_role("main")).to_contain_text("This run is over")
    expect(page.get_by_role("button", name="Stop …")).to_be_hidden()
    expect(page.get_by_role("listitem").filter(has_text=re.compile("^stop"))).to_be_visible()


def test_runs_that_cannot_be_reached(own_place, open_page):
    page = a_run_that_recorded_nothing_stays_named_after_its_end(own_place, open_page)
    a_run_out_of_reach_is_not_called_over(own_place, page)


def a_run_that_recorded_nothing_stays_named_after_its_end(own_place, open_page):
    with own_place.recording() as folder:
        with sg.init("other", dir=folder) as run:
            run.log({"loss": 1.0})
        brief = sg.init("brief", dir=folder)
        try:
            brief.observe("batch", loss=1.0)
            page = open_page(own_place.serve().controller, "/control", expects=["status of 404", "status of 409"])
            shown = page.get_by_role("region", name="Control").get_by_role("heading", level=2).first
            expect(shown).to_have_text(re.compile("brief.*running"))
        finally:
            brief.close()
    expect(page.get_by_text("This run stopped and recorded nothing")).to_be_visible()
    expect(shown).to_have_text(re.compile("brief.*ended"))
    page.get_by_role("link", name="Charts").click()
    page.get_by_role("link", name="Control").click()
    expect(shown).to_have_text(re.compile("other.*ended"))
    return page


def a_run_out_of_reach_is_not_called_over(own_place, page):
    with own_place.recording() as folder, sg.init("afar", dir=folder) as run:
        run.log({"loss": 1.0})
    file = run.directory / "run.json"
    told = json.loads(file.read_text()) | {"host": "elsewhere", "ended": None, "state": "running"}
    file.write_text(json.dumps(told))  # as the run of another machine
    option = page.get_by_role("combobox", name="Run").locator("option").filter(has_text="afar")
    expect(option).to_have_text(re.compile("running"))
    page.get_by_role("combobox", name="Run").select_option(option.get_attribute("value"))
    expect(page.get_by_text("This run is running, and out of reach of this server")).to_be_visible()
    expect(page.get_by_text("is over")).to_have_count(0)
