"""Views and cards in JupyterLab, while cells are running."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .lab import Notebook, pixels

TRAIN = """
import math, pathlib, threading, time
import numpy as np
import sightglass as sg

run = sg.init(NAME, dir="runs", config={"lr": 0.1}, budget=None)
lr = run.control("lr", 0.1, min=0.0, max=1.0)
augment = run.control("augment", True)

def checkpoint():
    "Save the weights."
    return "saved"

run.action("checkpoint", checkpoint)
step = 0

def train(until=lambda: False):
    global step
    while not (run.stopping or until()):
        run.observe("batch", step=step, loss=1 + math.sin(step / 20) / 2, lr=lr.value, ramp=step % 100,
                    bars={"<b>one</b>": 1.0 + step % 7, "two": 2.0}, note="<img src=x onerror=alert(1)>")
        step += 1
        time.sleep(0.005)

def in_background():
    threading.Thread(target=train, daemon=True).start()
"""
SHOW = "client = sg.connect(run)\nview = sg.plot(client.stream('batch.loss'), client.stream('batch.ramp'))\n"
SERVED = "print(sum(not page.full for page in view._widget.pages._pages.values()))"
COMPLETE = """
from IPython.core.completer import provisionalcompleter
with provisionalcompleter():
    print([one.text for one in get_ipython().Completer.completions('client.batch.', 13)])
"""
STOP = "pathlib.Path('{}').exists"


def training(name: str) -> str:
    return TRAIN.replace("NAME", repr(name))


def drawn(notebook: Notebook) -> int:
    """Return how many records were drawn of the first stream of the view that was drawn of most."""
    return notebook.page.evaluate("() => Math.max(0, ...Object.values(window.drawn).map(streams => streams.s1 ?? 0))")


def grows(notebook: Notebook) -> None:
    """Wait until a view has drawn more than it has by now."""
    before = drawn(notebook)
    notebook.until(lambda: drawn(notebook) > before + 20, "more records are drawn")


def test_a_view_updates_while_its_cell_is_running(open_notebook, lab):
    notebook = open_notebook([training("live"), SHOW + f"train({STOP.format('stop1')})"])
    notebook.run(0)
    notebook.run(1)
    view = notebook.view(1)
    canvas = view.locator("canvas").first
    canvas.wait_for()
    grows(notebook)
    first = notebook.until(lambda: (seen := pixels(canvas))["n"] > 200 and seen, "lines are drawn")
    shown = view.locator(".sightglass-view")
    text = shown.inner_text()
    assert "batch.loss" in text
    grows(notebook)
    notebook.until(lambda: pixels(canvas)["sum"] != first["sum"], "the picture changes")
    notebook.until(lambda: shown.inner_text() != text, "the values change")
    assert notebook.prompt(1) == "[*]:"
    # What pages say arrives while the cell is running: otherwise nothing would be acknowledged.
    (lab.root / "stop1").touch()
    notebook.wait_done(1)


def test_a_view_survives_another_run_of_its_cell_and_a_reload(open_notebook):
    notebook = open_notebook([training("again") + "in_background()", SHOW, SERVED])
    notebook.finish(0)
    notebook.finish(1)
    notebook.view(1).locator("canvas").first.wait_for()
    grows(notebook)
    notebook.finish(1)
    expect(notebook.view(1)).to_have_count(1)
    grows(notebook)
    notebook.command("docmanager:save")
    before = drawn(notebook)
    notebook.open()
    canvas = notebook.view(1).locator("canvas").first
    canvas.wait_for()
    notebook.until(lambda: drawn(notebook) > before, "what came before is there again")
    notebook.until(lambda: pixels(canvas)["n"] > 200, "lines are drawn")
    grows(notebook)

    def served() -> str:
        notebook.finish(2)
        return notebook.said(2).strip()

    notebook.until(lambda: served() == "1", "the page that is no more is sent nothing")


def test_a_view_can_be_shown_twice_and_gets_nothing_while_hidden(open_notebook):
    notebook = open_notebook(
        [training("twice") + "in_background()", SHOW, "print(len(view._widget.pages), view._widget.pages.n_sent)"]
    )
    notebook.finish(0)
    notebook.finish(1)
    notebook.view(1).locator("canvas").first.wait_for()
    notebook.command("notebook:create-output-view")
    views = notebook.page.locator(".sightglass-notebook canvas.chart-canvas, .sightglass-notebook .u-wrap > canvas")
    expect(views).to_have_count(2)
    notebook.until(lambda: all(pixels(views.nth(i))["n"] > 200 for i in range(2)), "both have lines")
    grows(notebook)
    notebook.finish(2)
    assert notebook.said(2).split()[0] == "1", "one page, however many views"
    notebook.page.locator(".jp-LinkedOutputView").first.wait_for()
    notebook.page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].at(-1).close()")
    expect(views).to_have_count(1)
    grows(notebook)
    notebook.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1 }")
    notebook.command("notebook:clear-cell-output")
    expect(views).to_have_count(0)

    def counted() -> list[str]:
        notebook.finish(2)
        return notebook.said(2).split()

    notebook.until(lambda: counted()[0] == "0", "the page said that it looks no more")
    assert counted() == counted(), "nothing is sent to nobody"


def test_streams_and_runs_show_themselves_and_names_are_texts(open_notebook):
    notebook = open_notebook(
        [
            training("<b>bold</b>") + "in_background()\nclient = sg.connect(run)",
            "client.stream('batch.bars')",
            "run",
            "run.log({'x': 1.0}, step=0)\nrun.flush()\nsg.open(run.directory)",
        ]
    )
    notebook.finish(0)
    for place in (1, 2, 3):
        notebook.finish(place)
    bars = notebook.view(1)
    expect(bars.locator(".sightglass-view")).to_contain_text("<b>one</b>")
    card = notebook.card(2)
    expect(card.get_by_role("heading", name="<b>bold</b>")).to_be_visible()
    batch = card.get_by_role("region", name="Event batch")
    expect(batch.get_by_role("button", name="note")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(card.locator(".queries")).to_contain_text("batch.bars")
    # Values are of a step, and of a later one after a while.
    values_of = batch.get_by_text(re.compile(r"values of step \d+"))
    before = values_of.inner_text()
    notebook.until(lambda: values_of.inner_text() != before, "the card keeps up to date")
    recorded = notebook.card(3)
    expect(recorded.get_by_role("heading", name="<b>bold</b>")).to_be_visible()
    expect(recorded.get_by_role("button", name="Stop")).to_be_hidden()
    assert notebook.page.locator("b", has_text="bold").count() == 0


def test_a_card_sends_commands_while_a_cell_is_running(open_notebook):
    notebook = open_notebook([training("card"), "client = sg.connect(run)\nclient", "train()\nprint(lr.value)"])
    notebook.finish(0)
    notebook.finish(1)
    card = notebook.card(1)
    expect(card.locator(".control")).to_have_count(3)  # two controls and an action
    notebook.run(2)
    notebook.until(lambda: notebook.prompt(2) == "[*]:", "the cell is running")
    control = card.get_by_role("form", name="lr")
    expect(control).to_contain_text("0 to 1, in powers of ten")
    control.get_by_role("slider").press("End")
    control.get_by_role("button", name="Set to 1").click()
    expect(control).to_contain_text(re.compile(r"now\s*1"))
    expect(card.get_by_role("status").filter(has_text=re.compile(r"Set lr to 1 at batch \d+"))).to_be_visible()
    number = control.get_by_role("spinbutton")
    number.press("Control+a")
    number.press_sequentially("7")
    expect(control.get_by_role("alert")).to_contain_text("Expected at most 1")
    number.press("Enter")
    control.get_by_role("button", name="Back to 1").click()
    expect(number).to_have_value("1")
    switch = card.get_by_role("switch", name="augment")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")
    card.get_by_role("button", name="Call checkpoint").click()
    expect(card.get_by_role("status").filter(has_text="saved")).to_be_visible()
    card.get_by_text(re.compile(r"Commands \(\d\)")).click()
    expect(card.locator(".command-history li").first).to_contain_text("call checkpoint")
    card.get_by_role("button", name="Pause").click()
    expect(card.locator(".state")).to_have_text("paused")
    card.get_by_role("button", name="Resume").click()
    expect(card.locator(".state")).to_have_text("running")
    card.get_by_role("button", name="Stop").click()
    card.get_by_role("button", name="Keep it running").click()
    assert notebook.prompt(2) == "[*]:"
    card.get_by_role("button", name="Stop").click()
    card.get_by_role("button", name="Stop it").click()
    notebook.wait_done(2)
    assert notebook.said(2).strip() == "1.0"


@pytest.mark.parametrize("end", ["shutdown()", "session.kernel.restart()"])
def test_completion_shows_observables_and_a_kernel_that_is_gone_is_reported(open_notebook, end):
    notebook = open_notebook(
        [
            training("gone") + "in_background()\nclient = sg.connect(run)",
            SHOW,
            "client",
            COMPLETE,
        ]
    )
    for place in (0, 1, 2, 3):
        notebook.finish(place)
    assert "'loss'" in notebook.said(3)
    view, card = notebook.view(1), notebook.card(2)
    view.locator("canvas").first.wait_for()
    grows(notebook)
    expect(card.locator(".state")).to_have_text("running")
    card.get_by_role("slider").first.wait_for(state="attached")
    notebook.page.evaluate(f"() => window.jupyterapp.shell.currentWidget.sessionContext.{end}")
    expect(view.locator(".sightglass-view")).to_contain_text("The kernel is gone")
    expect(card).to_contain_text("The kernel is gone")
    expect(card.locator(".state")).to_have_text("kernel gone")
    # No control takes a command: disabled, or not shown if the ending kernel could still say that the run ended.
    expect(card.get_by_role("slider", disabled=False)).to_have_count(0)
    expect(card.get_by_role("button", name="Stop")).to_be_hidden()
    assert pixels(view.locator("canvas").first)["n"] > 200, "the last picture stays"


FIGURES = """
import sightglass as sg
run = sg.init("figures", budget=None)
client = sg.connect(run)
"""
PUT = """
pictures = client.stream(sg.on("epoch").map(lambda e: e.picture))
view = sg.plot(pictures)
import numpy as np
for step in (0, 10, 20):
    run.observe("epoch", step=step, picture=np.full((40, 40, 3), 10 * step, dtype=np.uint8))
"""


def test_figures_in_views_and_as_the_last_line_of_a_cell(open_notebook):
    notebook = open_notebook([FIGURES, PUT, PLOTLY, KEPT, ANIMATION, KEPT.replace("bars", "moves").replace("10", "11")])
    notebook.finish(0)
    a_slider_goes_back_to_what_was_at_a_step(notebook, 1)
    figures_of_plotly_are_drawn_in_a_view_and_as_the_last_line_of_a_cell(notebook, 2)
    an_animation_plays_in_a_view_and_as_the_last_line_of_a_cell(notebook, 4)


def a_slider_goes_back_to_what_was_at_a_step(notebook, place):
    notebook.finish(place)
    view = notebook.view(place)
    pictures, slider = view.get_by_role("group", name="Pictures"), view.get_by_role("slider", name="Step")
    expect(pictures).to_contain_text("step 20")
    slider.press("Home")
    expect(pictures).to_contain_text("step 0")
    slider.press("ArrowRight")
    expect(pictures).to_contain_text("step 10")
    slider.press("End")
    expect(pictures).to_contain_text("step 20")


PLOTLY = """
import plotly.graph_objects as go
drawn = client.stream(sg.on("log").map(lambda e: e.bars))
view = sg.plot(drawn)
for step in (0, 10):
    run.log({"bars": go.Figure(go.Bar(y=[1, 2, step]), {"title": f"Bars {step}"})}, step=step)
"""
KEPT = "run.flush()\nsg.open(run.directory).series('bars').at(10)"


def figures_of_plotly_are_drawn_in_a_view_and_as_the_last_line_of_a_cell(notebook, place):
    notebook.finish(place)
    notebook.finish(place + 1)
    view = notebook.view(place)
    view.locator(".plotly-figure.is-drawn").wait_for()
    frame = view.frame_locator("iframe")
    expect(frame.locator(".gtitle")).to_have_text("Bars 10")
    assert frame.locator("body").evaluate("() => origin") == "null"
    view.get_by_role("slider", name="Step").press("Home")
    expect(frame.locator(".gtitle")).to_have_text("Bars 0")
    own = notebook.cell(place + 1).locator(".js-plotly-plot .gtitle")
    expect(own).to_have_text("Bars 10")


ANIMATION = """
import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

def animate(ys):
    figure = Figure(figsize=(2, 1))
    (line,) = figure.subplots().plot(ys[0])
    return FuncAnimation(figure, lambda i: line.set_ydata(ys[i]), frames=len(ys), interval=100)

view = sg.plot(client.stream(sg.on("log").map(lambda e: e.moves)))
run.figure("moves", animate, np.random.default_rng(0).normal(size=(4, 20)), step=11)
"""


def an_animation_plays_in_a_view_and_as_the_last_line_of_a_cell(notebook, place):
    notebook.finish(place)
    image = notebook.view(place).locator("img")
    image.wait_for()
    assert image.evaluate("async image => (await image.decode(), image.src.slice(0, 5))") == "blob:"
    first = image.screenshot()
    notebook.until(lambda: image.screenshot() != first, "another frame is shown")
    notebook.finish(place + 1)
    own = notebook.cell(place + 1).locator("img")
    own.wait_for()
    first = own.screenshot()
    notebook.until(lambda: own.screenshot() != first, "another frame is shown")
