"""Golden pictures: every view, as the terminal and Matplotlib draw it, light and dark.

`python -m tests.views.golden` writes them anew; look at the pictures that it puts into `build/golden` before you
commit. A picture of the terminal is its text. One of Matplotlib is the mean ink of each tile, which fonts and versions
hardly move, and a missing legend, axis or line does.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
from tests.sources import ListSource

from sightglass.core.record import Record
from sightglass.core.values import Figure, Histogram, Images
from sightglass.storage.format.png import encode_png
from sightglass.views.surfaces.terminal import TerminalView

FOLDER = Path(__file__).parent / "golden"
TILES = (18, 32)  # rows and columns: a tile is a quarter of an inch
LEVELS = 16  # of ink, written as one hexadecimal digit

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


def histograms():
    rng = np.random.default_rng(1)
    shapes = [rng.normal(size=400) * (1 + i / 30) + i / 20 for i in range(60)]
    return Recorded(*map(Histogram, shapes), tag="batch.w", every=5)


def pairs():
    return Recorded(*zip(np.cos(STEPS / 15) * STEPS, np.sin(STEPS / 15) * STEPS, strict=True), tag="(batch.x, batch.y)")


def holes():
    return Recorded(*[np.nan if 40 < i < 60 else np.inf if i == 80 else 1 + np.sin(i / 9) for i in range(120)])


def numbers():
    records = [{"dense/kernel": 1 / (i + 1), "dense/bias": -0.3, "out/kernel": 0.7} for i in range(9)]
    return Recorded(*records, tag="norms")


def best():
    return Recorded({"loss": 0.5, "name": "a"}, {"loss": 0.25, "name": "bb"}, tag="best")


def digits():
    y, x = np.mgrid[:12, :12]
    pictures = np.stack([((x - 6) ** 2 + (y - 6) ** 2 < (i + 2) ** 2) * 255 for i in range(6)]).astype(np.uint8)
    return Recorded(Images(pictures, tuple(f"disc {i}, loss {i / 7:.2f}" for i in range(6))), tag="batch.worst")


VIEWS = {
    "line": lambda: ([Recorded(*LOSS), Recorded(*LOSS[::20], tag="batch.loss.mean(every=20)", every=20)], {}),
    "smoothed": lambda: ([Recorded(*LOSS)], {"smooth": 0.98}),
    "second axis": lambda: ([Recorded(*LOSS), (one := Recorded(*(90 - 80 * LOSS), tag="accuracy"))], {"second": [one]}),
    "log": lambda: ([Recorded(*np.abs(LOSS))], {"log_y": True}),
    "odd values": lambda: ([holes()], {}),
    "band": lambda: ([histograms()], {"view": "line"}),
    "xy": lambda: ([pairs()], {}),
    "scatter": lambda: ([pairs()], {"view": "scatter"}),
    "annotated": lambda: ([Recorded((0.0, 1.0, "start"), (2.0, 3.0, "middle"), (5.0, 2.0, "end"))], {}),
    "line3d": lambda: ([Recorded(*zip(np.cos(STEPS / 9), np.sin(STEPS / 9), STEPS, strict=True), tag="p")], {}),
    "bars": lambda: ([numbers()], {}),
    "vector": lambda: ([Recorded([0.5, -1.0, 2.0, 1.5], tag="v")], {}),
    "histogram": lambda: ([histograms()], {"over": "latest"}),
    "ridge": lambda: ([histograms()], {"over": "ridge"}),
    "heat": lambda: ([histograms()], {"over": "heat"}),
    "heatmap": lambda: ([Recorded(np.outer(np.arange(8) - 4, np.arange(12)) / 10, tag="confusion")], {}),
    "images": lambda: ([digits()], {}),
    "picture": lambda: ([Recorded(Figure(encode_png(np.full((40, 60, 3), 90, np.uint8))), tag="figure")], {}),
    "text": lambda: ([Recorded("began", "warmed up", "halved the learning rate", tag="log")], {}),
    "table": lambda: (
        [best()],
        {"view": "table"},
    ),
}


def terminal_picture(name: str) -> str:
    """Return what the terminal shows, without colours; times of day depend on the time zone."""
    sources, options = VIEWS[name]()
    return re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", str(TerminalView(sources, height=14, **options)))


def matplotlib_png(name: str, *, dark: bool, size: tuple[float, float] = (8.0, 4.5)) -> bytes:
    """Return the PNG that Matplotlib draws."""
    from sightglass.views.surfaces.matplotlib import MatplotlibView

    sources, options = VIEWS[name]()
    view = MatplotlibView(sources, window=False, dark=dark, size=size, **options)
    view.update()
    data = io.BytesIO()
    with view._context():
        view.figure.savefig(data, format="png", dpi=64)
    view.close()
    return data.getvalue()


def ink_of(png: bytes) -> np.ndarray:
    """Return the distance of each tile's mean colour from the background, from 0 to `LEVELS` - 1."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png), format="png")[..., :3]
    ink = np.abs(pixels - pixels[0, 0]).max(axis=-1)
    rows, columns = TILES
    ink = ink[: ink.shape[0] // rows * rows, : ink.shape[1] // columns * columns]
    tiles = ink.reshape(rows, ink.shape[0] // rows, columns, -1).mean(axis=(1, 3))
    return np.rint(np.sqrt(tiles) * (LEVELS - 1))  # a thin line counts too


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return how much the ink differs, as a share of all ink: 0 for the same, about 1 for unrelated pictures."""
    return float(np.abs(one - other).sum() / max(np.maximum(one, other).sum(), 1.0))


def stored_ink() -> dict[str, np.ndarray]:
    """Return the stored pictures of Matplotlib by name and theme."""
    stored = json.loads((FOLDER / "matplotlib.json").read_text())
    return {key: np.array([[int(char, 16) for char in row] for row in rows], float) for key, rows in stored.items()}


def main() -> None:
    """Write all golden pictures, and PNGs to look at."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "terminal.txt").write_text("".join(f"=== {name}\n{terminal_picture(name)}\n" for name in VIEWS))
    shown = Path("build/golden")
    shown.mkdir(parents=True, exist_ok=True)
    stored = {}
    for name in VIEWS:
        for theme in ("light", "dark"):
            png = matplotlib_png(name, dark=theme == "dark")
            (shown / f"{name}-{theme}.png".replace(" ", "-")).write_bytes(png)
            rows = ink_of(png).astype(int)
            stored[f"{name}, {theme}"] = ["".join(f"{level:x}" for level in row) for row in rows]
    (FOLDER / "matplotlib.json").write_text(json.dumps(stored, indent=0) + "\n")


if __name__ == "__main__":
    sys.exit(main())
