"""A run that began again in its directory: every surface marks it once, and no line crosses the mark."""

from __future__ import annotations

import numpy as np
import pytest
from tests.views import facts

import sightglass as sg
from sightglass.server.live.shared_stream import StreamReader
from sightglass.views.surfaces.terminal import TerminalView

QUERIES = ["loss", "on('log').map(lambda e: e.loss).mean(every=3)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the directory of a run that went on at step 60, where its loss was higher."""
    folder = tmp_path_factory.mktemp("again") / "run"
    for first, loss in ((0, 0.0), (60, 2.0)):
        with sg.init("again", files=sg.Files(into=folder)) as run:
            for step in range(first, first + 90):
                run.log({"loss": loss + step / 1000}, step=step)
    return folder


@pytest.fixture(params=QUERIES)
def stream(request, folder):
    """Return a recorded stream, read or computed."""
    with sg.open(folder) as old:
        yield old.stream(request.param)


def test_a_terminal(stream):
    shown = str(TerminalView([stream], height=14))
    assert shown.count("restarted") == 1
    assert shown.count("┊") > 5
    rows = [line.split("┤")[-1].split("│")[-1] for line in shown.splitlines()]
    columns = {at for row in rows for at, letter in enumerate(row) if letter == "┊"}
    assert len(columns) == 1


def test_matplotlib(stream):
    pytest.importorskip("matplotlib")
    from sightglass.views.surfaces.matplotlib import MatplotlibView

    view = MatplotlibView([stream], window=False)
    view.update()
    found = facts.of_figure(view.figure)
    assert len([fact for fact in found if fact.endswith(" restarted")]) == 1
    assert_apart(line.get_data() for line in view.figure.axes[0].lines)
    view.close()


def test_plotly(stream):
    pytest.importorskip("plotly")
    from sightglass.views.surfaces.plotly import PlotlyView

    figure = PlotlyView([stream]).figure
    assert [note.text for note in figure.layout.annotations] == ["restarted"]
    assert len(figure.layout.shapes) == 1
    assert_apart((trace.x, trace.y) for trace in figure.data)


def assert_apart(lines):
    """Assert that the points before the restart, near 0, and those after, near 2, are not on one line."""
    n_points = [0, 0]
    for _, y in lines:
        y = np.asarray(y, np.float64)
        low, high = np.flatnonzero(y < 1), np.flatnonzero(y > 1)
        n_points = [n_points[0] + len(low), n_points[1] + len(high)]
        if len(low) and len(high):
            assert np.isnan(y[low[-1] : high[0]]).any()
    assert min(n_points) >= 20


def messages_of(backlog):
    taken = backlog.take(0, 1000)
    return taken.message["restarts"], taken.n


def test_a_notebook(stream):
    from sightglass.views.surfaces.notebook.view_streams import NotebookStreams

    (drawn,) = NotebookStreams([stream]).streams.values()
    first = stream.restarts[0].index
    assert messages_of(drawn.backlog) == ([first], len(stream.records()))


@pytest.mark.parametrize("query", QUERIES)
def test_the_page(folder, query):
    with sg.open(folder) as old:

        class Served:
            """A run as the server has it, with its files open."""

            live = False

            def borrow(self):
                return self

            def __enter__(self):
                self.run, self.retired = old, False
                return self

            def __exit__(self, *exception):
                pass

        reader = StreamReader(Served(), query, confirm=False)
        reader.open()
        reader.pull()
        first, n = messages_of(reader.backlog)
        stream = old.stream(query)
        assert n == len(stream.records())
        assert first == [one.index for one in stream.restarts]
        assert len(first) == 1
        reader.close()
