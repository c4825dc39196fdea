"""One run on three surfaces at once: frames that fade and a grid of images in a notebook, a line in a native window.

This is figure 2 of "TensorWatch" (arXiv:2001.01215): several visualizations, on several surfaces, of one process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.display import n_blue, virtual_display
from tests.waiting import PATIENCE_S

from .lab import pixels

TRAIN = """
import sys, time
import numpy as np
import sightglass as sg

rng = np.random.default_rng(0)
images = rng.random((16, 8, 8))
with sg.init("figure2", budget=None) as run:
    step = 0
    while not run.stopping:
        grads = {f"dense{i}": rng.normal(size=20) * 0.5 ** (i * 100 / (100 + step)) for i in range(6)}
        losses = rng.random(16)
        run.observe("batch", step=step, loss=1 + np.cos(step / 30), grads=grads, x=images, losses=losses,
                    worst=int(losses.argmax()))
        if step % 20 == 19:
            run.end_group("batch")
        if step == 0:
            print("ready", flush=True)
        step += 1
        time.sleep(0.01)
"""
ASK = """
import sightglass as sg
client = sg.connect("figure2")
norms = client.stream(sg.on("batch").map(lambda b: b.grads.map(lambda name, g: sg.fn.norm(g))))
worst = client.stream(sg.on("batch").map(lambda b: (b.x[b.worst], b.losses.max())).top(9, key=lambda one: one[1]))
"""
FRAMES = 'sg.plot(norms, view="line", frames=True, history=10, title="gradients per layer")'
IMAGES = 'sg.plot(worst, title="largest losses so far")'


@pytest.fixture
def run(lab, tmp_path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "SIGHTGLASS_RUNTIME_DIR": lab.runtime}
    command = [sys.executable, "-c", TRAIN]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "ready\n"
        yield training
        training.kill()


@pytest.fixture
def display() -> Iterator[str]:
    with virtual_display() as name:
        yield name


def test_frames_images_and_a_window_show_one_run_at_the_same_time(open_notebook, lab, run, display):
    pytest.importorskip("tkinter")
    window = [sys.executable, "-m", "sightglass", "watch", "figure2", "batch.loss", "--surface", "window"]
    environment = {**os.environ, "SIGHTGLASS_RUNTIME_DIR": lab.runtime, "DISPLAY": display}
    environment.pop("MPLBACKEND", None)
    notebook = open_notebook([ASK, FRAMES, IMAGES])
    with subprocess.Popen(window, env=environment, stderr=subprocess.PIPE, text=True) as watching:
        try:
            for cell in range(3):
                notebook.finish(cell)
            frames = notebook.view(1).locator("canvas").first
            frames.wait_for()
            before = notebook.until(lambda: (seen := pixels(frames))["n"] > 500 and seen, "frames are drawn")
            notebook.until(lambda: pixels(frames)["sum"] != before["sum"], "the frames move")
            expect(notebook.view(1).locator(".sightglass-view")).to_contain_text("gradients per layer")
            grid = notebook.view(2).locator("canvas, img")
            notebook.until(lambda: grid.count() >= 9, "nine pictures are drawn")
            notebook.until(lambda: watching.poll() is not None or n_blue(display) > 100, "the window draws its line")
            expect(notebook.view(2).locator(".sightglass-view")).to_contain_text("largest losses so far")
            assert watching.poll() is None
            assert run.poll() is None
        finally:
            watching.send_signal(signal.SIGINT)
            _, said = watching.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
