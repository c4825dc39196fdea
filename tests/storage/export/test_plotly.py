"""Plotly's figures in what others open: a file for each, Parquet, W&B; and where they are left out, it is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

import sightglass as sg
from sightglass.core.errors import UnsendableError
from sightglass.core.plotly_json import MEDIA_TYPE
from sightglass.core.values import Figure
from sightglass.storage.export.export import export
from sightglass.storage.read.recording import Recording
from sightglass.storage.wandb import encode

Z = np.arange(6, dtype=np.float32).reshape(2, 3)


def figure() -> go.Figure:
    return go.Figure([go.Scatter(x=np.array([1, 2**40]), y=[0.5, None]), go.Heatmap(z=Z)], {"title": "Both"})


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    with sg.init("r", dir=tmp_path) as run:
        run.log({"drawn": figure(), "loss": 1.0}, step=7)
    assert run.directory is not None
    return Recording(Path(run.directory))


def test_export_writes_the_json_and_plotly_opens_it(recording: Recording, tmp_path: Path) -> None:
    export(recording, to="files", out=tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("*.json")
    assert path.name == "7.json"
    assert go.Figure(json.loads(path.read_text())).layout.title.text == "Both"


def test_parquet_has_the_json_and_its_type(recording: Recording, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    export(recording, to="parquet", out=tmp_path / "out")
    (path,) = (tmp_path / "out").glob("drawn*")
    [row] = pq.read_table(path).to_pylist()
    assert row["media_types"] == [MEDIA_TYPE]
    assert json.loads(row["files"][0]) == json.loads(figure().to_json())


@pytest.mark.parametrize("form", ["tensorboard", "mindspore"])
def test_files_without_such_figures_say_that_they_are_left_out(recording: Recording, tmp_path: Path, form) -> None:
    exported = export(recording, to=form, out=tmp_path / "out")
    [loss] = [one for one in exported.losses if one.tag == "drawn"]
    assert "support" in loss.why


def test_wandb_gets_a_figure_whose_arrays_are_lists() -> None:
    made = encode(Figure(figure().to_json().encode(), MEDIA_TYPE))
    assert type(made).__name__ == "Plotly"
    written = json.loads(Path(made._path).read_text())
    assert written["data"][0]["x"] == [1, 2**40]
    assert written["data"][0]["y"] == [0.5, None]
    assert written["data"][1]["z"] == Z.tolist()


@pytest.mark.parametrize("data", [b"{", b'{"data": [{"type": "no such trace"}]}', b'{"data": 3}'])
def test_what_is_no_figure_is_not_sent_to_wandb(data: bytes) -> None:
    with pytest.raises(UnsendableError, match="Plotly"):
        encode(Figure(data, MEDIA_TYPE))
