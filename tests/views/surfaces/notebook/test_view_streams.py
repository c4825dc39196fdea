"""The streams of a view: the settings that pages get, and x."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from sightglass.core.errors import ViewError
from sightglass.views.options import Options
from sightglass.views.surfaces.notebook.view_streams import NotebookStreams


def column(streams, id, name):
    message = streams.streams[id].backlog.take(0, 1000).message
    return np.frombuffer(message[name], np.float64).tolist()


def test_the_view_is_chosen_as_on_every_surface(feed):
    streams = NotebookStreams([feed().put(1.0, 2.0)])
    assert streams.settings["view"] == "line"
    assert streams.settings["title"] == "loss"
    assert [stream["label"] for stream in streams.settings["streams"]] == ["loss"]
    assert NotebookStreams([feed().put({"a": 1.0})]).settings["view"] == "bars"
    assert NotebookStreams([feed().put({"a": 1.0})], view="line").settings["view"] == "line"
    assert NotebookStreams([feed()]).settings["view"] is None


def test_a_stream_that_cannot_share_the_view_is_refused_or_reported_later(feed):
    with pytest.raises(ViewError, match="share a view"):
        NotebookStreams([feed("loss").put(1.0), feed("picture").put(np.zeros((8, 8, 3), np.uint8))])
    late = feed("picture")
    streams = NotebookStreams([feed("loss").put(1.0), late])
    late.put(np.zeros((8, 8, 3), np.uint8))
    assert streams.pull()
    assert [stream["label"] for stream in streams.settings["streams"]] == ["loss"]
    assert "cannot share a view" in streams.settings["notices"][0]


def test_each_run_has_a_colour_and_its_name_in_the_legend(feed):
    streams = NotebookStreams([feed("loss", run).put(1.0) for run in ("one", "two")])
    labels = [stream["label"] for stream in streams.settings["streams"]]
    assert labels == ["one · loss", "two · loss"]
    colors = [stream["color"] for stream in streams.settings["streams"]]
    assert len(set(colors)) == 2


def test_streams_can_be_added_and_removed(feed):
    loss, other = feed("loss").put(1.0), feed("other").put(2.0)
    streams = NotebookStreams([loss])
    streams.add(other, second=True)
    streams.add(other)
    streams.pull()
    assert [stream["second"] for stream in streams.settings["streams"]] == [False, True]
    assert streams.sources == (loss, other)
    streams.remove(loss)
    streams.remove(loss)
    assert streams.pull()
    assert [stream["label"] for stream in streams.settings["streams"]] == ["other"]
    streams.add(loss)
    streams.pull()
    assert list(streams.streams) == ["s2", "s3"], "an id is never reused"


def test_records_are_pulled_once_and_all_stored(feed):
    source = feed().put(1.0, float("nan"), 3.0)
    streams = NotebookStreams([source])
    source.put(4.0)
    before = source.n_pulled
    assert streams.pull()
    assert source.n_pulled == before + 1
    assert not streams.pull()
    np.testing.assert_array_equal(column(streams, "s1", "y"), [1.0, float("nan"), 3.0, 4.0])
    source.ended = True
    assert streams.pull()
    assert streams.settings["ended"]
    assert streams.ended


def test_x_can_be_another_step_track(feed):
    source = feed().put(1.0, 2.0, epoch=7.0).put(3.0)
    streams = NotebookStreams([source], options=Options(x="epoch"))
    assert column(streams, "s1", "step") == [7.0, 7.0]
    assert streams.settings["options"]["x"] == "step"
    assert streams.settings["options"]["xname"] == "epoch"


def test_x_can_be_another_stream_that_lags_behind(feed):
    tokens = feed("tokens").put(100.0, 200.0)
    source = feed().put(5.0, 4.0, 3.0, 2.0)
    streams = NotebookStreams([source], options=Options(x=tokens))
    assert (column(streams, "s1", "step"), column(streams, "s1", "y")) == ([100.0, 200.0], [5.0, 4.0])
    tokens.put(300.0)
    streams.pull()
    assert column(streams, "s1", "step") == [100.0, 200.0, 300.0]
    tokens.ended = True
    streams.pull()
    streams.pull()
    assert column(streams, "s1", "step") == [100.0, 200.0, 300.0], "records without an x are not drawn"


def test_another_stream_as_x_is_matched_within_epochs_that_repeat_their_steps(feed):
    source, tokens = feed(), feed("tokens")
    streams = NotebookStreams([source], options=Options(x=tokens))
    for epoch in range(3):
        for step in range(3):
            source.put(3.0 * epoch + step, step=step)
            if (epoch + step) % 2 == 0:
                tokens.put(100.0 + 10 * epoch + step, step=step)
        streams.pull()
    assert column(streams, "s1", "step") == [100.0, 102.0, 111.0, 120.0, 122.0]
    assert column(streams, "s1", "y") == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_memory_is_bounded(feed, monkeypatch):
    from sightglass.views import encoding

    monkeypatch.setattr(encoding, "MAX_POINTS", 1024)
    streams = NotebookStreams([feed().put(*np.random.default_rng(0).normal(size=5000).tolist())])
    assert streams.streams["s1"].backlog.n == 5000
    assert streams.streams["s1"].backlog.take(0, 10_000).n <= 1024


def test_settings_are_plain_json(feed):
    streams = NotebookStreams([feed("<b>").put(1.0)], options=Options(y_limits=(0.0, 1.0), dark=True, smooth=0.5))
    settings = msgspec.json.decode(msgspec.json.encode(streams.settings))
    assert settings["options"]["ylimits"] == [0.0, 1.0]
    assert settings["options"]["dark"] is True
    assert settings["title"] == "<b>"


def test_lists_of_images_are_grids(feed):
    streams = NotebookStreams([feed().put([(np.zeros((8, 8)), "a", 0.5), (np.ones((8, 8)), "b", 0.1)])])
    [value] = streams.streams["s1"].backlog.take(0, 100).message["values"]
    assert [picture["caption"] for picture in value["images"]] == ["a, 0.5", "b, 0.1"]
    assert streams.settings["view"] == "images"
