"""The widget without a notebook: its messages, its MIME bundle, missing extras, the thread."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.errors import MissingExtraError, ViewError
from sightglass.views.surfaces.notebook import NotebookView, bundle_of_run, bundle_of_stream, in_notebook, model
from sightglass.views.surfaces.notebook.model import NotebookCells
from sightglass.views.surfaces.notebook.open_pages import Puller

MIME = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def kernel(monkeypatch):
    """Pretend that this process is a notebook's kernel."""
    shell = SimpleNamespace(kernel=object(), events=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell


def sent_by(view, monkeypatch):
    sent = []
    monkeypatch.setattr(view._widget, "send", lambda content, buffers: sent.append((content, buffers)))
    return sent


def test_a_page_that_announces_itself_gets_new_records(feed, monkeypatch):
    source = feed().put(1.0)
    view = NotebookView(source, height=200)
    sent = sent_by(view, monkeypatch)
    assert view.start() is view
    view._widget.receive({"type": "ready", "page": "a"})
    wait_until(lambda: sent)
    assert sent[0][0]["settings"]["view"] == "line"
    source.put(2.0)
    wait_until(lambda: len(sent) > 1)
    view._widget.receive({"type": "gone", "page": "a"})
    source.ended = True
    assert view.wait(60)
    view.close()
    view.close()
    assert view.ended
    assert repr(view) == "<NotebookView of loss: line>"


def test_a_closed_view_is_still_shown_in_reloaded_pages(feed, monkeypatch):
    view = NotebookView(feed().put(1.0))
    sent = sent_by(view, monkeypatch)
    with view:
        pass
    view._widget.receive({"type": "ready", "page": "a"})
    wait_until(lambda: sent)
    assert sent[0][0]["streams"] == [{"id": "s1", "n": 1}]


def test_invalid_arguments_raise_at_the_call(feed):
    with pytest.raises(ViewError, match="Unknown view"):
        NotebookView(feed(), view="pie")
    with pytest.raises(ViewError, match="height"):
        NotebookView(feed(), height=3)
    with pytest.raises(TypeError, match=r"'smoth'.*'smooth'"):
        NotebookView(feed(), smoth=0.5)


def test_streams_and_runs_display_as_widgets_in_notebooks_only(kernel):
    assert in_notebook()
    with sg.init("shown") as run:
        run.observe("batch", loss=1.0)
        client = sg.connect(run)
        stream = client.stream("batch.loss")
        for shown in (stream, client, run):
            bundle = shown._repr_mimebundle_()
            assert set(bundle) == {"text/plain", MIME}
            assert bundle["text/plain"] == repr(shown)
        assert bundle_of_stream(stream)[MIME] == bundle_of_stream(stream)[MIME], "one view, however often it is shown"
        kernel.kernel = None
        assert set(bundle_of_stream(stream)) == set(bundle_of_run(client)) == {"text/plain"}


def test_without_the_extra_plots_say_what_to_install_and_streams_display_as_text(feed, kernel, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    model._widget_classes.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"'anywidget'.*'sightglass\[notebook\]'"):
            NotebookView(feed())
        assert set(bundle_of_stream(feed())) == {"text/plain"}
    finally:
        model._widget_classes.cache_clear()


def test_optional_packages_are_imported_on_first_use():
    code = (
        "import sightglass.views.surfaces.notebook, sys; print({'anywidget', 'IPython', 'traitlets'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def test_the_module_of_views_is_one_file_without_imports():
    text = model.VIEWS.read_text("utf-8")
    assert re.search(r"export\s*\{(?=[^}]*\bas mount\b)(?=[^}]*\bas connect\b)[^}]*\};?\s*$", text)
    assert not re.search(r"(^|[;\n])\s*import\s*[\w{*\"']", text)
    assert "import.meta" not in text
    assert "innerHTML" not in model.SCRIPT.read_text("utf-8"), "names are set as text"


def test_cells_are_followed():
    callbacks = {}
    shell = SimpleNamespace(events=SimpleNamespace(register=callbacks.__setitem__))
    cells = NotebookCells()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
        cells.watch()
        cells.watch()
    assert cells.busy, "the first call comes from a cell"
    callbacks["post_run_cell"](None)
    assert not cells.busy
    callbacks["pre_run_cell"](None)
    assert (cells.busy, cells.n) == (True, 1)


def test_the_thread_serves_a_view_when_it_is_due_or_woken():
    puller = Puller()
    turns = []

    class Idle:
        def turn(self, now_s):
            turns.append(now_s)
            return None if len(turns) > 2 else 0.01

    view = Idle()
    puller.add(view)
    wait_until(lambda: len(turns) == 3)
    puller.wake(view)
    wait_until(lambda: len(turns) == 4)


@pytest.mark.parametrize("error", [RuntimeError("the comm is closed"), SystemExit(3)])
def test_a_view_whose_turn_fails_stops_no_other_and_gets_its_next_turn(error):
    puller, turns = Puller(), []

    class Bad:
        def turn(self, now_s):
            turns.append("bad")
            raise error

    class Good:
        def turn(self, now_s):
            turns.append("good")
            return 0.01

    puller._views = (Bad(), Good())
    for view in puller._views:
        puller._due[id(view)] = 0.0
    with pytest.warns(RuntimeWarning, match="notebooks"):
        puller.round(0.0)
    assert turns == ["bad", "good"]
    for view in puller._views:
        puller._due[id(view)] = 0.0
    puller.round(0.0)
    assert (turns, puller.failures.n) == (["bad", "good"] * 2, 2)
    assert all(due_s < float("inf") for due_s in puller._due.values())
