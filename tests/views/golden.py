"""Golden pictures: every view, as the terminal, Matplotlib and the page draw it, light and dark.

`python -m tests.views.golden [SURFACE …]` writes them again; look at the pictures that it puts into `build/golden`
before you commit. A picture of the terminal is its text; of the others, the file holds the facts that they show (see
`facts`), those of the dark theme as what differs from the light one.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.sources import ListSource
from tests.views import facts

from sightglass.core.columns import Record, Restart
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Images
from sightglass.storage.format.png import encode_png
from sightglass.views.surfaces.terminal import TerminalView

FOLDER = Path(__file__).parent / "golden"
SHOWN = Path("build/golden")
THEMES = ("light", "dark")
AGAIN = "look at build/golden after `python -m tests.views.golden`, and commit what it wrote if it is right"

STEPS = np.arange(200.0)
LOSS = np.exp(-STEPS / 60) + 0.05 * np.random.default_rng(0).normal(size=200)


class Recorded(ListSource):
    """A stream that has ended."""

    def __init__(self, *values, tag="batch.loss", every=1):
        self.tag, self.run, self.ended = tag, "mnist", True
        self.records = [
            Record(tag=tag, index=i, step=float(i * every), wall_time=1e9 + i, value=value, run="mnist")
            for i, value in enumerate(values)
        ]


def histograms(tag="batch.w", by=1.0):
    rng = np.random.default_rng(1)
    shapes = [rng.normal(size=400) * (1 + i / 30) + by * i / 20 for i in range(60)]
    return Recorded(*map(Histogram, shapes), tag=tag, every=5)


def pairs():
    return Recorded(*zip(np.cos(STEPS / 15) * STEPS, np.sin(STEPS / 15) * STEPS, strict=True), tag="(batch.x, batch.y)")


def holes():
    return Recorded(*[np.nan if 40 < i < 60 else np.inf if i == 80 else 1 + np.sin(i / 9) for i in range(120)])


def tone(pitch):
    t = np.arange(8_000) / 8_000
    return Audio(np.stack([np.sin(220 * pitch * t) * (1 - t), t**2], axis=1)[:, : 1 + pitch % 2], 8_000)


def predictions(step):
    labels = ["cat", "dog", None, "bird", "horse"]
    return Table({"label": labels, "loss": np.arange(5) / 7 + step, "seen": Images(np.full((5, 4, 4), 90, np.uint8))})


def numbers():
    records = [{"dense/kernel": 1 / (i + 1), "dense/bias": -0.3, "out/kernel": 0.7} for i in range(9)]
    return Recorded(*records, tag="norms")


def matrix(tag, corner=0.0):
    values = np.outer(np.arange(8) - 4, np.arange(12)) / 10
    values[0, 0] = corner
    return Recorded(values, tag=tag)


def best():
    return Recorded({"loss": 0.5, "name": "a"}, {"loss": 0.25, "name": "bb"}, tag="best")


def digits():
    y, x = np.mgrid[:12, :12]
    pictures = np.stack([((x - 6) ** 2 + (y - 6) ** 2 < (i + 2) ** 2) * 255 for i in range(6)]).astype(np.uint8)
    return Recorded(Images(pictures, tuple(f"disc {i}, loss {i / 7:.2f}" for i in range(6))), tag="batch.worst")


def restarted():
    """Return a stream whose run began again from a checkpoint, and that connects again now."""
    source = Recorded(*LOSS[:120], *(LOSS[80:] + 0.1))
    for row, record in enumerate(source.records):
        source.records[row] = replace(record, step=float(row if row < 120 else row - 40))
    source.restarts, source.ended = (Restart(index=120, run_id="again"),), False
    source.note = "The run 'mnist' does not answer; connecting again"
    return source


def epochs():
    """Return a stream whose steps begin again in each epoch, the last of which is under way."""
    source = Recorded(*LOSS)
    source.records = [replace(record, step=record.step % 70) for record in source.records]
    return source


VIEWS = {
    "line": lambda: ([Recorded(*LOSS), Recorded(*LOSS[::20], tag="batch.loss.mean(every=20)", every=20)], {}),
    "many": lambda: (
        [Recorded(*(LOSS + i / 5), tag=f"encoder/blocks/{i}/attention/out_proj/kernel") for i in range(12)],
        {},
    ),
    "smoothed": lambda: ([Recorded(*LOSS)], {"smooth": 0.98}),
    "second axis": lambda: ([Recorded(*LOSS), (one := Recorded(*(90 - 80 * LOSS), tag="accuracy"))], {"second": [one]}),
    "log": lambda: ([Recorded(*np.abs(LOSS))], {"log_y": True}),
    "restart": lambda: ([restarted()], {}),
    "epochs": lambda: ([epochs()], {}),
    "odd values": lambda: ([holes()], {}),
    "band": lambda: ([histograms()], {"view": "line"}),
    "xy": lambda: ([pairs()], {}),
    "scatter": lambda: ([pairs()], {"view": "scatter"}),
    "annotated": lambda: ([Recorded((0.0, 1.0, "start"), (2.0, 3.0, "middle"), (5.0, 2.0, "end"))], {}),
    "line3d": lambda: ([Recorded(*zip(np.cos(STEPS / 9), np.sin(STEPS / 9), STEPS, strict=True), tag="p")], {}),
    "bars": lambda: ([numbers()], {}),
    "vector": lambda: ([Recorded([0.5, -1.0, 2.0, 1.5], tag="v")], {}),
    "frames": lambda: ([numbers()], {"view": "line", "frames": True, "history": 3}),
    "histogram": lambda: ([histograms()], {"over": "latest"}),
    "two histograms": lambda: ([histograms(), Recorded(Histogram(LOSS), tag="batch.b")], {"over": "latest"}),
    "two ridges": lambda: ([histograms(), histograms(tag="batch.b", by=-0.5)], {"over": "ridge"}),
    "ridge": lambda: ([histograms()], {"over": "ridge"}),
    "heat": lambda: ([histograms()], {"over": "heat"}),
    "heatmap": lambda: ([matrix("confusion")], {}),
    "two heatmaps": lambda: ([matrix("confusion"), matrix("weights", np.nan)], {}),
    "images": lambda: ([digits()], {}),
    "sounds": lambda: ([Recorded(tone(1), (tone(2), tone(3)), tag="tones")], {}),
    "sheet": lambda: ([Recorded(predictions(0), predictions(1), tag="worst")], {}),
    "picture": lambda: ([Recorded(Figure(encode_png(np.full((40, 60, 3), 90, np.uint8))), tag="figure")], {}),
    "text": lambda: ([Recorded("began", "warmed up", "halved the learning rate", tag="log")], {}),
    "table": lambda: ([best()], {"view": "table"}),
}


def terminal_picture(name: str) -> str:
    """Return what the terminal shows, without colours; times of day depend on the time zone."""
    sources, options = VIEWS[name]()
    return re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", str(TerminalView(sources, height=14, **options)))


def matplotlib_facts(name: str, theme: str) -> list[str]:
    """Return what Matplotlib draws; a picture of it is written, too."""
    from sightglass.views.surfaces.matplotlib import MatplotlibView

    sources, options = VIEWS[name]()
    view = MatplotlibView(sources, window=False, dark=theme == "dark", **options)
    view.save(picture("matplotlib", name, theme))
    return facts.of_figure(view.figure)


def page_pictures() -> dict[str, dict[str, list[str]]]:
    """Return what the page shows of each view, by theme."""
    from playwright.sync_api import sync_playwright
    from tests.browser import launch
    from tests.page.places import Place
    from tests.views import browser_facts

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser, place = launch(playwright), Place(Path(folder))
        with place.recording() as runs:
            browser_facts.record(runs, VIEWS)
        found = browser_facts.page_facts(browser, place.serve().controller, VIEWS, SHOWN)
        place.close()
        browser.close()
    return found


def picture(surface: str, name: str, theme: str, suffix: str = ".png") -> Path:
    """Return the file of a picture to look at."""
    SHOWN.mkdir(parents=True, exist_ok=True)
    return SHOWN / f"{surface}-{name}-{theme}{suffix}".replace(" ", "-")


def names(surface: str) -> set[str]:
    """Return the names of a surface's stored pictures."""
    return set(json.loads((FOLDER / f"{surface}.json").read_text()))


def stored(surface: str, name: str, theme: str) -> list[str]:
    """Return the facts that a picture has to show."""
    light, dark = json.loads((FOLDER / f"{surface}.json").read_text())[name].values()
    if theme == "light":
        return light
    lost, new = ([fact[2:] for fact in dark if fact[0] == sign] for sign in "-+")
    for fact in lost:
        light.remove(fact)
    return light + new


def main() -> None:
    """Write golden pictures."""
    FOLDER.mkdir(exist_ok=True)
    for surface in sys.argv[1:] or ["terminal", "matplotlib", "page"]:
        if surface == "terminal":
            (FOLDER / "terminal.txt").write_text("".join(f"=== {name}\n{terminal_picture(name)}\n" for name in VIEWS))
            continue
        if surface == "matplotlib":
            found = {theme: {name: matplotlib_facts(name, theme) for name in VIEWS} for theme in THEMES}
        else:
            found = page_pictures()
        written = {
            name: {"light": light, "dark": facts.differences(found["dark"][name], light)}
            for name, light in found["light"].items()
        }
        (FOLDER / f"{surface}.json").write_text(json.dumps(written, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
