"""The streams of a view: what pages are told of them, and what x is."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from sightglass.core.errors import ViewError
from sightglass.views.options import Options
from sightglass.views.surfaces.notebook.view_streams import NotebookStreams


def column(desk, id, name):
    message = desk.lines[id].backlog.take(0, 1000).message
    return np.frombuffer(message[name], np.float64).tolist()


def test_the_view_is_chosen_as_everywhere(feed):
    desk = NotebookStreams([feed().put(1.0, 2.0)])
    assert desk.settings["view"] == "line"
    assert desk.settings["title"] == "loss"
    assert [stream["label"] for stream in desk.settings["streams"]] == ["loss"]
    assert NotebookStreams([feed().put({"a": 1.0})]).settings["view"] == "bars"
    assert NotebookStreams([feed().put({"a": 1.0})], view="line").settings["view"] == "line"
    assert NotebookStreams([feed()]).settings["view"] is None


def test_what_cannot_share_a_view_is_refused_at_once_or_told_later(feed):
    with pytest.raises(ViewError, match="cannot share a view"):
        NotebookStreams([feed("loss").put(1.0), feed("picture").put(np.zeros((8, 8, 3), np.uint8))])
    late = feed("picture")
    desk = NotebookStreams([feed("loss").put(1.0), late])
    late.put(np.zeros((8, 8, 3), np.uint8))
    assert desk.pull()
    assert [stream["label"] for stream in desk.settings["streams"]] == ["loss"]
    assert "cannot share a view" in desk.settings["notices"][0]


def test_runs_have_a_colour_each_and_their_names_in_the_legend(feed):
    desk = NotebookStreams([feed("loss", run).put(1.0) for run in ("one", "two")])
    labels = [stream["label"] for stream in desk.settings["streams"]]
    assert labels == ["one · loss", "two · loss"]
    colors = [stream["color"] for stream in desk.settings["streams"]]
    assert len(set(colors)) == 2


def test_streams_come_and_go(feed):
    loss, other = feed("loss").put(1.0), feed("other").put(2.0)
    desk = NotebookStreams([loss])
    desk.add(other, second=True)
    desk.add(other)
    desk.pull()
    assert [stream["second"] for stream in desk.settings["streams"]] == [False, True]
    assert desk.sources == (loss, other)
    desk.remove(loss)
    desk.remove(loss)
    assert desk.pull()
    assert [stream["label"] for stream in desk.settings["streams"]] == ["other"]
    desk.add(loss)
    desk.pull()
    assert list(desk.lines) == ["s2", "s3"], "a number is never used for another stream"


def test_records_are_pulled_once_and_all_of_them_kept(feed):
    source = feed().put(1.0, float("nan"), 3.0)
    desk = NotebookStreams([source])
    source.put(4.0)
    before = source.n_pulled
    assert desk.pull()
    assert source.n_pulled == before + 1
    assert not desk.pull()
    np.testing.assert_array_equal(column(desk, "s1", "y"), [1.0, float("nan"), 3.0, 4.0])
    source.ended = True
    assert desk.pull()
    assert desk.settings["ended"]
    assert desk.ended


def test_x_may_count_another_step_track(feed):
    source = feed().put(1.0, 2.0, epoch=7.0).put(3.0)
    desk = NotebookStreams([source], options=Options(x="epoch"))
    assert column(desk, "s1", "step") == [7.0, 7.0]
    assert desk.settings["options"]["x"] == "step"
    assert desk.settings["options"]["xname"] == "epoch"


def test_x_may_be_another_stream_that_lags_behind(feed):
    tokens = feed("tokens").put(100.0, 200.0)
    source = feed().put(5.0, 4.0, 3.0, 2.0)
    desk = NotebookStreams([source], options=Options(x=tokens))
    assert (column(desk, "s1", "step"), column(desk, "s1", "y")) == ([100.0, 200.0], [5.0, 4.0])
    tokens.put(300.0)
    desk.pull()
    assert column(desk, "s1", "step") == [100.0, 200.0, 300.0]
    tokens.ended = True
    desk.pull()
    desk.pull()
    assert column(desk, "s1", "step") == [100.0, 200.0, 300.0], "nothing is drawn where x is unknown"


def test_memory_is_bounded(feed, monkeypatch):
    from sightglass.views import backlog

    monkeypatch.setattr(backlog, "MAX_POINTS", 1024)
    desk = NotebookStreams([feed().put(*np.random.default_rng(0).normal(size=5000).tolist())])
    assert desk.lines["s1"].backlog.n == 5000
    assert desk.lines["s1"].backlog.n_kept <= 1024


def test_settings_are_plain_json(feed):
    desk = NotebookStreams([feed("<b>").put(1.0)], options=Options(y_limits=(0.0, 1.0), dark=True, smooth=0.5))
    told = msgspec.json.decode(msgspec.json.encode(desk.settings))
    assert told["options"]["ylimits"] == [0.0, 1.0]
    assert told["options"]["dark"] is True
    assert told["title"] == "<b>"


def test_lists_of_pictures_are_grids(feed):
    desk = NotebookStreams([feed().put([(np.zeros((8, 8)), "a", 0.5), (np.ones((8, 8)), "b", 0.1)])])
    [value] = desk.lines["s1"].backlog.take(0, 100).message["values"]
    assert [picture["caption"] for picture in value["images"]] == ["a, 0.5", "b, 0.1"]
    assert desk.settings["view"] == "images"
