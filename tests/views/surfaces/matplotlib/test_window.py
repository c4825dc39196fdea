"""A real window, under Tk: in processes of their own, since a display is for a whole process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("_tkinter") is None, reason="this Python has no Tk")

BEGIN = """
import threading
import matplotlib
matplotlib.use("tkagg")
import numpy as np
from matplotlib import pyplot as plt
from sightglass.core.columns import Record
from sightglass.views.surfaces.matplotlib import MatplotlibView
from tests.sources import ListSource
from tests.waiting import wait_until

class Stub(ListSource):
    def __init__(self, *values, tag="loss"):
        self.tag, self.ended, self.records = tag, False, []
        self.put(*values)
    def put(self, *values):
        for value in values:
            i = len(self.records)
            self.records.append(Record(tag=self.tag, index=i, step=float(i), wall_time=0.0, value=value))

def until(true, *, view):
    wait_until(true, pause=lambda: view._run(0.05))

def lines(view):
    return [line for axes in view.figure.axes for line in axes.get_lines()
            if line.get_linestyle() != "None" and len(line.get_xdata())]

def axes_of(view):
    return view.figure.axes[0]

def seen(view):
    return np.asarray(view.figure.canvas.buffer_rgba()).copy()
"""


def in_window(display: str, script: str) -> str:
    environment = {**os.environ, "DISPLAY": display, "PYTHONPATH": str(Path(__file__).parents[4])}
    environment.pop("MPLBACKEND", None)
    command = [sys.executable, "-W", "error", "-c", BEGIN + script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_window_updates_itself_from_its_own_timer_and_starts_no_thread(display):
    text = in_window(
        display,
        """
source = Stub(1.0, 2.0)
view = MatplotlibView(source).start()
until(lambda: lines(view), view=view)
source.put(7.0)
until(lambda: 7.0 in lines(view)[0].get_ydata(), view=view)
print(threading.active_count())
source.ended = True
print(view.wait(30))
view.close()
""",
    )
    assert text.split() == ["1", "True"]


def test_blitting_equals_a_full_repaint(display):
    in_window(
        display,
        """
left, right = Stub(1.0, 9.0, float("nan"), *[5.0] * 100), Stub(2.0, *[3.0] * 100, tag="other")
view = MatplotlibView([left, right], smooth=0.5).start()
until(lambda: view._window._background is not None, view=view)
shapes = []  # Tk may size the window only now
until(lambda: (shapes.append(seen(view).shape), len(shapes) > 4 and len(set(shapes[-4:])) == 1)[1], view=view)
left.put(*[6.0] * 30); right.put(*[3.0] * 32)  # room ahead is left from the first growth on
until(lambda: len(lines(view)[0].get_xdata()) > 130 or len(lines(view)[1].get_xdata()) > 130, view=view)
until(lambda: view._window._background is not None, view=view)
repaint = view._window.repaint
view._window.repaint = lambda *, whole: (kinds.append(whole), repaint(whole=whole))
kinds = []
before = seen(view)
left.put(4.0, 7.0); right.put(2.5)
until(lambda: False in kinds, view=view)  # a busy display may ask for the whole first
assert not kinds[-1], kinds
blitted = seen(view)
assert (blitted != before).any()
view._window.detach()
for artist in view._painter.animated_artists:
    artist.set_animated(False)
view.figure.canvas.draw()
away = abs(blitted.astype(int) - seen(view)).max(axis=-1)
assert (away > 8).sum() == 0, (away > 8).sum()
""",
    )


def test_a_zoom_shows_every_point_and_holds_until_home(display):
    in_window(
        display,
        """
values = np.zeros(100_000)
values[50_000:50_010] = range(10)
source = Stub(*values.tolist())
view = MatplotlibView(source).start()
until(lambda: lines(view), view=view)
axes, toolbar = axes_of(view), view.figure.canvas.toolbar
toolbar.push_current()
axes.set_xlim(49_990, 50_020)
axes.set_ylim(-1, 12)
toolbar.push_current()
until(lambda: view._painter.visible_x is not None and len(lines(view)[0].get_xdata()) < 100, view=view)
assert lines(view)[0].get_ydata().max() == 9
assert (lines(view)[0].get_xdata() == 50_005).any()
source.put(50.0)
until(lambda: view._streams._buffers[0].last.index == 100_000, view=view)
assert axes.get_xlim() == (49_990, 50_020)
toolbar.home()
until(lambda: view._painter.visible_x is None and axes.get_ylim()[1] > 50, view=view)
assert axes.get_xlim()[1] >= 100_000
""",
    )


def test_show_ends_when_the_window_is_closed_not_when_the_streams_end(display):
    text = in_window(
        display,
        """
source = Stub(1.0, 2.0)
view = MatplotlibView(source)
timer = view.figure.canvas.new_timer(50)
def step():
    if not view._painted:
        return
    if not source.ended:
        source.ended = True
    elif view.ended:
        print("ended")
        timer.stop()
        plt.close(view.figure)
timer.add_callback(step)
timer.start()
view.show()
print("closed", view.closed)
""",
    )
    assert text.split() == ["ended", "closed", "True"]


def test_a_window_can_be_resized_and_its_picture_saved(display, tmp_path):
    in_window(
        display,
        f"""
source = Stub(1.0, 2.0, 3.0)
view = MatplotlibView(source).start()
until(lambda: view._window._background is not None, view=view)
view.figure.canvas.manager.window.geometry("500x350")
until(lambda: seen(view).shape[1] == 500, view=view)
until(lambda: view._window._background is not None, view=view)
view.figure.savefig({str(tmp_path / "a.png")!r})
saved = plt.imread({str(tmp_path / "a.png")!r})
blue = np.array([0x3f, 0x8f, 0xc4]) / 255
assert (abs(saved[..., :3] - blue).max(axis=-1) < 0.05).sum() > 50, "what moves is missing in the file"
assert (saved[:30, :, 0] < 0.5).sum() > 50, "the title is missing in the file"
assert (saved[-25:, : saved.shape[1] // 3, 0] < 0.7).sum() > 20, "the caption is missing in the file"
view.close()
""",
    )


def test_several_windows_update_at_the_same_time(display):
    in_window(
        display,
        """
one, two = Stub(1.0, 2.0), Stub({"a": 1.0}, tag="bars")
first, second = MatplotlibView(one).start(), MatplotlibView(two).start()
one.put(3.0); two.put({"a": 5.0})
until(lambda: 3.0 in lines(first)[0].get_ydata() and axes_of(second).patches[0].get_width() == 5, view=second)
""",
    )
