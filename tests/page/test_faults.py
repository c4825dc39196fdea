"""What goes wrong around the page: it says so, goes on, and never runs what others have written."""

from __future__ import annotations

import json
import re
import signal
import socket

import numpy as np
import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import chart, color_of, drawn, go_to, ink, until
from .places import remove

AWAY = [
    "ERR_CONNECTION_REFUSED",
    "ERR_INTERNET_DISCONNECTED",
    "ERR_CONNECTION_RESET",
    "ERR_EMPTY_RESPONSE",
    "ERR_CONTENT_LENGTH_MISMATCH",  # the server was killed between the head of a reply and its body
    "WebSocket",
    "ERR_FAILED",
]
BLUE = (63, 143, 196)
EVIL = "<img src=x onerror=\"window.evil=1;alert('evil')\"><script>window.evil=1</script>"


def record(place, name, n=50, **more):
    with place.recording() as folder, sg.init(name, dir=folder, config=more.pop("config", None)) as run:
        for step in range(n):
            run.log({"loss": 1 / (step + 1), **more}, step=step)
    return run.directory


def free_port():
    """A port that nobody listens at; links to a port that was asked for stay good."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def connection(page):
    return page.get_by_role("status").filter(has_text=re.compile("^(connected|connecting|reconnecting)$"))


def test_a_killed_run_is_shown_as_dead_with_its_recording_and_its_panel_says_that_it_ended(own_place, open_page):
    training = own_place.train("doomed")
    server = own_place.serve()
    page, asking = open_page(server.controller), open_page(server.controller)
    color = color_of(page, "doomed")
    drawn(chart(page, "train/loss"), color)
    asking.get_by_role("button", name="batch.loss", exact=True).click()
    panel = asking.get_by_role("region", name="Asked").get_by_role("article", name="batch.loss", exact=True)
    drawn(panel, BLUE)
    training.send(signal.SIGKILL)
    training.ends()
    expect(page.get_by_role("list", name="Runs").get_by_role("img", name=re.compile("^Died"))).to_be_visible()
    drawn(chart(page, "train/loss"), color)
    page.get_by_role("link", name="Control").click()
    expect(page.get_by_role("main")).to_contain_text(re.compile("died at .* after"))
    expect(page.get_by_role("button", name="Stop …")).to_be_hidden()
    expect(panel).to_contain_text(re.compile("ended|died|gone|lost"))
    drawn(panel, BLUE)


def test_a_part_of_the_page_that_cannot_be_loaded_says_so_and_comes_by_itself(own_place, open_page):
    record(own_place, "still")
    page = open_page(own_place.serve().controller, expects=AWAY)
    page.route("**/assets/TensorsPage*", lambda route: route.abort())
    page.reload()
    page.get_by_role("link", name="Tensors").click()
    expect(page.get_by_text("The page tries again by itself")).to_be_visible()
    expect(page.get_by_role("heading", name="Loading Tensors")).to_be_visible()
    page.unroute("**/assets/TensorsPage*")
    expect(page.get_by_role("main")).to_contain_text("No tensors")


@pytest.mark.parametrize("path", ["**/api/v1/scalars", "**/api/v1/runs/*/tags*", "**/api/v1/runs", "**/api/v1/**"])
def test_what_no_server_answered_is_asked_again(own_place, open_page, path):
    record(own_place, "still")
    page = open_page(own_place.serve().controller, expects=AWAY)
    page.route(path, lambda route: route.abort())
    page.reload()
    expect(page.get_by_text("The page tries again by itself")).to_be_visible()
    expect(connection(page)).to_have_text("reconnecting")
    page.unroute(path)
    drawn(chart(page, "loss"), color_of(page, "still"))
    expect(connection(page)).to_have_text("connected")
    expect(page.get_by_text("The page tries again by itself")).to_be_hidden()


def test_a_page_recovers_when_the_server_restarts(own_place, open_page):
    training = own_place.train("going")
    server = own_place.serve(port=free_port())
    page = open_page(server.controller, expects=AWAY)
    page.get_by_role("button", name="batch.loss", exact=True).click()
    panel = page.get_by_role("region", name="Asked").get_by_role("article", name="batch.loss", exact=True)
    drawn(panel, BLUE)
    server.finish()
    expect(connection(page)).to_have_text("reconnecting")
    drawn(panel, BLUE)  # what is there stays
    training.hears("step")
    own_place.serve(port=server.port)
    expect(connection(page)).to_have_text("connected")
    before = panel.inner_text()
    until(page, lambda: panel.inner_text() != before)
    expect(chart(page, "train/loss")).to_be_visible()


def test_new_links_shut_the_old_ones_out_and_the_page_says_so(own_place, open_page):
    record(own_place, "kept")
    server = own_place.serve(port=free_port())
    page = open_page(server.controller, expects=[*AWAY, "status of 401"])
    expect(chart(page, "loss")).to_be_visible()
    server.finish()
    expect(connection(page)).to_have_text("reconnecting")
    again = own_place.serve("--new-links", port=server.port)
    assert again.controller != server.controller
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text(re.compile("terminal", re.IGNORECASE))
    page.goto(again.controller)
    expect(chart(page, "loss")).to_be_visible()
    a_page_without_a_token_says_where_the_link_is(again, open_page)


def a_page_without_a_token_says_where_the_link_is(server, open_page):
    page = open_page(f"{server.base}/#", expects=["status of 401"])
    expect(page.get_by_role("heading", name="This page needs its link")).to_be_visible()
    page = open_page(f"{server.base}/#token=wrong", expects=["status of 401"])
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()


def test_a_page_that_was_offline_reconnects_and_fills_the_gap(own_place, open_page):
    own_place.train("going")
    page = open_page(own_place.serve().controller, expects=AWAY)
    page.get_by_role("combobox", name="Query").fill("batch.step")
    page.get_by_role("button", name="Ask", exact=True).click()
    panel = page.get_by_role("region", name="Asked").get_by_role("article", name="batch.step", exact=True)
    drawn(panel, BLUE, n=20)
    drawn(chart(page, "train/loss"), color_of(page, "going"))
    network = page.context.new_cdp_session(page)
    cut(network, offline=True)
    expect(connection(page)).to_have_text("reconnecting")
    last = page.get_by_role("navigation", name="Runs").get_by_role("listitem").inner_text()
    cut(network, offline=False)
    expect(connection(page)).to_have_text("connected")
    until(page, lambda: page.get_by_role("navigation", name="Runs").get_by_role("listitem").inner_text() != last)
    steps = steps_of(page, "train/loss")
    assert steps == list(range(len(steps)))
    whole = lambda line: line.width > 0.9 and all(n for _, _, n in line.columns[2:-2])  # noqa: E731
    until(page, lambda: whole(ink(panel, BLUE)))  # no gap in the panel either


def cut(network, *, offline):
    """Take the network from a tab, its open sockets too, or give it back."""
    network.send("Network.enable")
    rates = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    network.send("Network.emulateNetworkConditions", {"offline": offline, **rates})


def steps_of(page, tag):
    """The steps of what a chart has, by its CSV."""
    chart(page, tag).hover()
    chart(page, tag).get_by_role("button", name=f"Save or copy {tag}").click()
    with page.expect_download() as got:
        page.get_by_role("menuitem", name="CSV").click()
    return [int(line.split(",")[3]) for line in got.value.path().read_text().splitlines()[1:]]


def test_files_that_leave_move_and_break(own_place, open_page):
    # Each line at a height of its own, so that none hides another.
    leaving = record(own_place, "leaving", n=1000, loss=0.2)
    moving = record(own_place, "moving", n=1000, loss=0.4)
    record(own_place, "staying", n=1000, loss=0.6)
    record(own_place, "sound", n=1000, loss=0.8)
    segment = break_files(own_place)
    expects = ["status of 404", "status of 410", "status of 422"]
    page = open_page(own_place.serve().controller, "/charts?runs=*", expects=expects)
    a_directory_deleted_while_shown_is_reported(page, leaving)
    page.keyboard.press("Escape")
    a_directory_that_is_renamed_while_shown_is_found_again(page, moving)
    corrupt_files_are_shown_with_their_problem(page, segment)


def a_directory_deleted_while_shown_is_reported(page, directory):
    expect(chart(page, "loss").get_by_role("img", name="5 lines")).to_be_visible()
    remove(directory)
    expect(page.get_by_role("img", name=re.compile("leaving.* is gone"))).to_be_visible()
    page.get_by_role("button", name="leaving", exact=True).click()
    expect(page.get_by_role("complementary", name="Run leaving").get_by_role("alert").first).to_contain_text("is gone")
    page.mouse.move(2, 2)  # the line of a name that is pointed at stands out
    drawn(chart(page, "loss"), color_of(page, "staying"), n=10)


def a_directory_that_is_renamed_while_shown_is_found_again(page, directory):
    directory.rename(directory.with_name("elsewhere"))
    page.get_by_role("link", name="Runs").click()
    row = page.get_by_role("row").filter(has_text="moving")
    row.get_by_role("button", name="moving", exact=True).click()
    expect(page.get_by_role("complementary")).to_contain_text("elsewhere")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Charts").click()
    drawn(chart(page, "loss"), color_of(page, "moving"), n=10)


def break_files(own_place):
    """Turn a bit of a run's file over, and put a run with no readable file beside it; returns the first file."""
    torn = record(own_place, "flipped", n=2000)
    [segment] = [path for path in torn.iterdir() if path.name != "run.json" and path.stat().st_size > 1000][:1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    broken = own_place.runs / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    (broken / "events.out.tfevents.1.host").write_bytes(b"no record file at all, but long enough to be looked at")
    return segment


def corrupt_files_are_shown_with_their_problem(page, segment):
    page.get_by_role("link", name="Runs").click()
    row = page.get_by_role("row").filter(has_text="broken")
    row.get_by_role("button", name="broken", exact=True).click()
    alert = page.get_by_role("complementary", name="Run broken").get_by_role("alert").first
    expect(alert).to_contain_text("Expected a record file")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Charts").click()
    drawn(chart(page, "loss"), color_of(page, "sound"), n=10)  # the others are none the worse
    page.get_by_role("button", name="flipped", exact=True).click()
    expect(page.get_by_role("complementary", name="Run flipped").get_by_role("alert").first).to_contain_text(
        segment.name
    )


def test_foreign_content_is_never_executed(own_place, open_page):
    config = {EVIL: EVIL, "nested": {"key": EVIL}}
    texts = {
        EVIL: 1.0,
        "note": EVIL,
        "pic": sg.Image(np.zeros((4, 4)), caption=EVIL),
        f"{EVIL}/kernel": sg.Tensor(np.ones((2, 2))),
    }
    directory = record(own_place, "evil", n=3, config=config, **texts)
    facts = json.loads((directory / "run.json").read_text())
    facts["name"] = EVIL
    (directory / "run.json").write_text(json.dumps(facts))
    page = open_page(own_place.serve().controller, expects=["status of 4"])
    expect(page.get_by_role("checkbox", name=f"Show {EVIL}")).to_be_visible()
    expect(page.get_by_role("article", name=EVIL, exact=True)).to_be_visible()
    page.get_by_role("combobox", name="Group").select_option("name")
    places = (
        "/runs", "/tensors", "/media?media=note", "/media?media=pic", "/charts", "/control",
        f"/charts?filter={EVIL}", f"/charts?tags={EVIL}", f"/charts?focus={EVIL}", f"/charts?run={EVIL}",
        f"/charts?ask=a||{EVIL}", f"/tensors?tensor={EVIL}&slice={EVIL}", f"/media?full={EVIL}|0",
    )  # fmt: skip
    for fragment in places:
        go_to(page, fragment)
        expect(page.get_by_role("main")).not_to_be_empty()
        page.wait_for_load_state("networkidle")
    go_to(page, "/runs")
    page.get_by_role("row").filter(has_text="evil").get_by_role("button", name=EVIL).first.click()
    expect(page.get_by_role("complementary")).to_contain_text("<script>")
    assert page.evaluate("window.evil") is None
    assert page.evaluate("document.querySelectorAll('[onerror], main script').length") == 0


NONSENSE = (
    "/nowhere",
    "/charts?zoom=9~1&smooth=x&x=never&yzoom=a:b",
    "/charts?ask=%00|%00|%00",
    "%%%",
    "/tensors?step=NaN&slice=[[[",
)


def test_links_and_messages_that_make_no_sense_do_no_harm(own_place, open_page):
    record(own_place, "kept", kernel=sg.Tensor(np.ones((2, 2))))
    page = open_page(own_place.serve().controller, expects=["status of 4"])
    expect(chart(page, "loss")).to_be_visible()
    for fragment in NONSENSE:
        go_to(page, fragment)
        expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(5)
        expect(page.get_by_role("main")).not_to_be_empty()
    go_to(page, "/charts")
    wrong_messages_do_no_harm(page)


def wrong_messages_do_no_harm(page):
    page.evaluate("""async () => {
      const socket = new WebSocket(location.origin.replace('http', 'ws') + '/api/v1/live')
      await new Promise((opened) => (socket.onopen = opened))
      socket.send('nonsense')
      await new Promise((closed) => (socket.onclose = closed))
    }""")
    page.reload()
    expect(chart(page, "loss")).to_be_visible()
