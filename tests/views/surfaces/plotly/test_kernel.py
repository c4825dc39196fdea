"""The widget in a real kernel, where cells run while it is kept up to date."""

from __future__ import annotations

import nbformat
from nbclient import NotebookClient

CELLS = [
    """
import time
import sightglass as sg

run = sg.init("kernel")
loss = sg.connect(run).stream("batch.loss")
view = sg.plot(loss, surface="plotly")
view
""",
    """
figure, sent = view.figure, []
names = ["_py2js_update", "_py2js_addTraces", "_py2js_deleteTraces"]
figure.observe(lambda change: sent.append(change.new) if change.new else None, names)
step = 0
while step < 300 or len(sent) < 3:
    run.observe("batch", step=step, loss=1 / (step + 1))
    step += 1
    time.sleep(0.005)
live = [len(trace.y) for trace in figure.data]
""",
    """
run.close()
ended = view.wait(60)
print(type(figure).__name__, ended, live[0] > 0, len(figure.data[0].y) == step, len(sent) < step / 2)
""",
    "view",
]


def test_widget_lives_while_cells_run_and_is_shown_once(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, second, third, again = (cell.outputs for cell in notebook.cells)
    assert ["application/vnd.jupyter.widget-view+json" in output.data for output in first] == [True]
    assert second == []
    assert third[0].text.split() == ["FigureWidget", "True", "True", "True", "True"]
    model = again[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert model == first[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]
