"""Figures of Plotly from `run.log`, `run.figure` and a plotter, with the real package."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import plotly.express as px
import plotly.graph_objects as go
import plotly.io
import pytest

import sightglass as sg
from sightglass.core.plotly_json import MEDIA_TYPE, summary_of
from sightglass.core.values import Figure
from sightglass.figures import Plotter
from sightglass.figures.replot import replot

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(50, 2)).astype(np.float32)


def scatter(points):
    figure = go.Figure(go.Scatter(x=points[:, 0], y=points[:, 1], mode="markers", name="points"))
    return figure.update_layout(title="<b>Two</b> columns")


def of_both(points):
    from matplotlib.figure import Figure as Matplotlib

    return {"interactive": scatter(points), "still": Matplotlib(figsize=(2, 1))}


def several(points):
    return [scatter(points), scatter(points[:5])]


def same(data: bytes, figure: go.Figure) -> bool:
    return go.Figure(json.loads(data)).to_dict() == go.Figure(json.loads(figure.to_json())).to_dict()


def recorded(run) -> sg.RecordedRun:
    assert run.directory is not None
    return sg.open(run.directory)


def test_run_log_takes_figures_alone_and_nested(tmp_path: Path) -> None:
    figure = scatter(POINTS)
    with sg.init("r", dir=tmp_path) as run:
        run.log({"a": figure, "b": {"c": figure}, "loss": 1.0}, step=3)
    for tag in ("a", "b/c"):
        value = recorded(run).series(tag).at(3)
        assert isinstance(value, Figure)
        assert value.media_type == MEDIA_TYPE
        assert same(value.data, figure)
    x = go.Figure(json.loads(value.data)).data[0].x
    assert x["dtype"] == "f4"  # as typed bytes, so no digit is lost
    assert np.array_equal(np.frombuffer(plotly_bytes(x), np.float32), POINTS[:, 0])


def plotly_bytes(column) -> bytes:
    return base64.b64decode(column["bdata"])


def test_a_figure_that_has_no_json_costs_only_itself(tmp_path: Path) -> None:
    class Broken(go.Figure):
        def to_json(self, *args, **kwargs):
            raise RuntimeError("no JSON today")

    with sg.init("r", dir=tmp_path) as run:
        run.log({"bad": Broken(), "loss": 1.0}, step=0)
        with pytest.warns(RuntimeWarning, match="no JSON today"):
            run.flush()
    assert recorded(run).series("loss").at(0) == 1.0


def test_sightglass_does_not_import_plotly(tmp_path: Path) -> None:
    program = f"""
        import sys
        import sightglass as sg
        with sg.init("r", dir={str(tmp_path)!r}) as run:
            run.log({{"loss": 1.0, "figure": sg.Figure(b'{{"data": []}}', {MEDIA_TYPE!r})}}, step=0)
        value = sg.open(run.directory).series("figure").at(0)
        assert value._repr_mimebundle_()[{MEDIA_TYPE!r}] == {{"data": []}}
        assert not any(name.startswith("plotly") for name in sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


@pytest.mark.parametrize("renderer", ["process", "thread", "inline"])
def test_a_plotter_takes_figures_of_both_libraries(tmp_path: Path, renderer) -> None:
    with sg.init("r", dir=tmp_path) as run:
        with Plotter(renderer=renderer, save=("pdf", "png"), save_dir=tmp_path / "files") as plotter:
            plotter.plot(of_both, POINTS, step=2)
        run.figure("list", several, POINTS, step=2)
    old = recorded(run)
    assert same(old.series("interactive").at(2).data, scatter(POINTS))
    assert old.series("interactive").at(2).media_type == MEDIA_TYPE
    assert old.series("still").at(2).media_type == "image/png"
    assert same(old.series("list/1").at(2).data, scatter(POINTS[:5]))
    files = {path.name for path in (tmp_path / "files").iterdir()}
    assert files == {
        "interactive_step2.json", "interactive_step2.npz", "still_step2.pdf", "still_step2.png",
    }  # fmt: skip
    opened = plotly.io.read_json(tmp_path / "files" / "interactive_step2.json")
    assert opened.layout.title.text == "<b>Two</b> columns"


def test_a_figure_is_drawn_again_as_json(tmp_path: Path) -> None:
    with Plotter(save_dir=tmp_path, sinks=[]) as plotter:
        plotter.plot(scatter, POINTS, step=1)
    path = replot(tmp_path, "scatter", form="json", out=tmp_path / "again.json")
    assert same(path.read_bytes(), scatter(POINTS))
    with pytest.raises(sg.FigureError, match=r"json.*'scatter'"):
        replot(tmp_path, "scatter", form="pdf", out=tmp_path)


def test_a_notebook_gets_plotlys_own_mime_bundle() -> None:
    value = Figure(scatter(POINTS).to_json().encode(), MEDIA_TYPE)
    bundle = value._repr_mimebundle_()
    assert bundle[MEDIA_TYPE]["data"][0]["name"] == "points"
    assert bundle["text/plain"].startswith(f"Figure({MEDIA_TYPE}, ")
    assert Figure(b"\x89PNG")._repr_mimebundle_()["image/png"] == "iVBORw=="
    assert Figure(b"<svg/>", "image/svg+xml")._repr_mimebundle_()["image/svg+xml"] == "<svg/>"


def test_what_a_figure_says_about_itself() -> None:
    animated = px.scatter(x=[1, 2, 3, 4], y=[1, 2, 3, 4], animation_frame=[0, 0, 1, 1], title="Moves", width=300)
    told = summary_of(animated.to_json().encode())
    assert told is not None
    assert str(told) == "Moves: scatter, 2 frames"
    assert (told.width, told.height) == (300, None)
    many = go.Figure([go.Bar(y=[1], name=f"run {i}") for i in range(9)])
    assert str(summary_of(many.to_json().encode())) == (
        "bar run 0, bar run 1, bar run 2, bar run 3, bar run 4, bar run 5 and 3 more traces"
    )


@pytest.mark.parametrize("data", [b"", b"[]", b'{"data": 1}', b'{"data": [1]}', b"\xff{", b"[" * 10_000, b"{'a': 1}"])
def test_what_is_no_such_json_has_no_summary(data) -> None:
    assert summary_of(data) is None


@pytest.mark.parametrize(
    "layout", [{"title": {"text": ["a"]}}, {"title": 3, "width": "9"}, {"width": -1, "height": 1e9}]
)
def test_odd_layouts_are_not_believed(layout) -> None:
    told = summary_of(json.dumps({"data": [{"type": {}, "name": None}], "layout": layout}).encode())
    assert told is not None
    assert (told.title, told.width, told.height) == ("", None, None)
