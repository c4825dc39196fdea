"""Views in Matplotlib: from a new record to the updated picture, drawn whole by Agg, and painted over what stays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sightglass.core.columns import Columns, Record, of_records
from sightglass.core.values import Figure, Histogram, Images
from sightglass.views.frames import encode
from sightglass.views.surfaces.matplotlib import MatplotlibView

N_POINTS = 1_000_000
ROUNDS = 15


class Held:
    """A source of records that are there already, and of those that are put."""

    def __init__(self, values: list[Any]) -> None:
        self.tag, self.run, self.ended, self.records = "loss", "", False, []
        self.put(values)

    def put(self, values: list[Any]) -> None:
        """Take values as records."""
        first = len(self.records)
        self.records += [
            Record(tag=self.tag, index=i, step=float(i), wall_time=float(i), value=value)
            for i, value in enumerate(values, first)
        ]

    def since(self, cursor: int) -> tuple[int, Columns]:
        """Return the records from a number on."""
        new = self.records[cursor:] or self.records[-1:]
        return len(self.records), of_records(new).slice(0 if self.records[cursor:] else 1)


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    source = Held(np.random.default_rng(0).normal(size=N_POINTS).tolist())
    view = MatplotlibView(source, window=False)
    began = time.perf_counter()
    view.update()
    view.figure.canvas.draw()
    yield f"{N_POINTS:,} points, the first picture", 1000 * (time.perf_counter() - began), "ms", None
    yield f"{N_POINTS:,} points, one more, drawn whole", _update_ms(view, source, 0.5), "ms", None
    yield f"{N_POINTS:,} points, one more, only what moves", _update_ms(view, source, 0.5, whole=False), "ms", None
    for name, values, options in _views():
        source = Held(values)
        view = MatplotlibView(source, window=False, **options)
        view.update()
        yield f"{name}, drawn whole", _update_ms(view, source, values[-1]), "ms", None


def _update_ms(view: MatplotlibView, source: Held, value: Any, *, whole: bool = True) -> float:
    """Return the median time from a record to the picture."""
    canvas = view.figure.canvas
    canvas.draw()
    still = canvas.copy_from_bbox(view.figure.bbox)

    def moving() -> None:
        canvas.restore_region(still)
        for artist in view._painter.animated_artists:
            view.figure.draw_artist(artist)

    paint: Callable[[], None] = canvas.draw if whole else moving
    took = []
    for _ in range(ROUNDS):
        source.put([value])
        began = time.perf_counter()
        assert view.update()
        paint()
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)


def _views() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    yield "line, 1,000 points", rng.normal(size=1000).tolist(), {}
    yield "xy, 100,000 points", [(float(x), float(y)) for x, y in rng.normal(size=(100_000, 2)).cumsum(axis=0)], {}
    yield "scatter, 10,000 points", [(float(x), float(y)) for x, y in rng.normal(size=(10_000, 2))], {"view": "scatter"}
    yield "annotated, 50 notes", [(float(x), float(y), "note") for x, y in rng.normal(size=(50, 2))], {}
    yield "line3d, 10,000 points", [tuple(map(float, p)) for p in rng.normal(size=(10_000, 3)).cumsum(axis=0)], {}
    yield "bars, 10,000 names", [{f"layer{i}": float(v) for i, v in enumerate(rng.normal(size=10_000))}], {}
    norms = [{f"layer{i}": float(v) for i, v in enumerate(rng.random(50))} for _ in range(11)]
    yield "frames, 50 names, 10 older", norms, {"view": "line", "frames": True}
    histograms = [Histogram(rng.normal(size=1000)) for _ in range(100)]
    for over in ("latest", "ridge", "heat"):
        yield f"histogram, {over}", histograms, {"over": over}
    yield "heatmap, 1,000 x 1,000", [rng.normal(size=(1000, 1000))], {}
    yield "images, 64 of 28 x 28", [Images(rng.random((64, 28, 28)), tuple(map(str, range(64))))], {}
    picture: Figure = encode(MatplotlibView(Held([1.0, 2.0]), window=False).figure)
    yield "picture", [picture], {}
    yield "log", ["a line of a log"] * 100, {}
    yield "table", [{"a": 1, "b": "x"}] * 100, {}
