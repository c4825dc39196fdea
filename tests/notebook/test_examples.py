"""The notebooks of `examples/notebooks`, executed from the first cell to the last; each shows what it claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"

pytestmark = pytest.mark.slow


def executed(name: str, tmp_path: Path, *, kept: str) -> tuple[dict[str, Any], Any]:
    """Execute a notebook in a kernel of its own.

    Args:
        name: Which.
        tmp_path: Where it runs.
        kept: An expression for what its names hold in the end, as JSON.

    Returns:
        The value of the expression, and the notebook.
    """
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    last_cell = f"import json\nprint(json.dumps({kept}, default=float))"
    notebook.cells.append(nbformat.v4.new_code_cell(last_cell))
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (said,) = notebook.cells[-1].outputs
    return json.loads(said.text), notebook


def n_views(notebook: Any) -> int:
    """Count the widgets that the cells show."""
    return sum(WIDGET in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_have_no_outputs_and_start_with_a_title(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith("# ")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in notebook.metadata


def test_every_notebook_is_tested_here():
    assert NOTEBOOKS == ["a_fit_that_shows_itself", "comparing_runs", "vanishing_gradients"]


def test_vanishing_gradients_are_seen_and_cured(tmp_path):
    kept = """dict(before=before, after=after, loss=[loss_before, loss_after],
                   acts=[[act.kind, act.name] for act in acts], stopped=stopped.applied)"""
    found, notebook = executed("vanishing_gradients", tmp_path, kept=kept)
    layers = [f"dense{i}" for i in range(1, 9)]
    assert list(found["before"]) == layers
    assert found["before"]["dense1"] < found["before"]["dense8"] / 100
    assert sorted(found["before"].values()) == list(found["before"].values()), "it fades layer by layer"
    assert found["after"]["dense1"] > found["after"]["dense8"] / 3
    assert found["loss"][0] > 2.2
    assert found["loss"][1] < 0.6
    assert found["acts"] == [["set", "activation"]]
    assert found["stopped"]
    assert n_views(notebook) == 3


def test_fit_shows_its_curve_and_its_worst_images(tmp_path):
    kept = """dict(errors=[((fit - y) ** 2).mean() for fit in (first_fit, last_fit)],
                   n_fits=len(fits.to_arrays().steps), worst=worst_losses, sampled=sample_losses,
                   shares=right.to_arrays().values.tolist(), notes=[note for _, note, _ in worst.latest.value],
                   shape=worst.latest.value[0][0].shape)"""
    found, notebook = executed("a_fit_that_shows_itself", tmp_path, kept=kept)
    assert found["errors"][1] < 0.05 < found["errors"][0]
    assert found["n_fits"] >= 30
    assert (len(found["worst"]), len(found["sampled"]), found["shape"]) == (12, 12, [8, 8])
    assert found["worst"] == sorted(found["worst"], reverse=True)
    assert found["worst"][-1] > sum(found["sampled"]) / 12
    misread = [note.split(" read as ") for note in found["notes"]]
    assert misread[0][0] != misread[0][1]
    assert found["shares"][-1] > 0.85
    assert n_views(notebook) == 5


def test_runs_are_compared_in_one_chart(tmp_path):
    kept = """dict(means={str(lr): values for lr, values in means.items()}, n_sources=len(chart.sources),
                   names=[run.name for run in recorded.values()], last=best.stream('accuracy').latest.value)"""
    found, notebook = executed("comparing_runs", tmp_path, kept=kept)
    assert sorted(found["names"]) == ["lr 0.001", "lr 0.01", "lr 0.05"]
    assert found["n_sources"] == 4
    means = {float(lr): values for lr, values in found["means"].items()}
    assert all(len(values) == 4 for values in means.values())
    first = [means[lr][0] for lr in (0.001, 0.01, 0.02, 0.05)]
    assert first == sorted(first, reverse=True), "the larger the rate, the faster"
    assert found["last"] > 0.9
    assert n_views(notebook) == 2
