"""Which messages each page gets, and when: no more than it can draw, and no record is lost."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from sightglass.views.surfaces.notebook.open_pages import (
    BLIND_S,
    EVERYBODY,
    MAX_BLIND,
    MAX_PAGES,
    PACE_S,
    SILENT_S,
    WINDOW,
    OpenPages,
)
from sightglass.views.surfaces.notebook.view_streams import NotebookStreams


class Harness:
    """Open pages, one stream, and a clock."""

    def __init__(self, source):
        self.source = source
        self.streams = NotebookStreams([source])
        self.pages = OpenPages()
        self.now_s, self.busy = 100.0, False

    def receive(self, kind, page="a", **more):
        return self.pages.receive({"type": kind, "page": page, **more}, now_s=self.now_s, busy=self.busy)

    def turn(self, pass_s=PACE_S):
        self.now_s += 1.001 * pass_s  # a little more, whatever rounding does
        self.streams.pull()
        return self.pages.turn(self.streams, now_s=self.now_s, busy=self.busy)

    def put(self, *values):
        self.source.put(*values)
        return self


@pytest.fixture
def harness(feed):
    return Harness(feed().put(1.0, 2.0))


def values(message):
    _, buffers = message
    return [np.frombuffer(msgspec.msgpack.decode(buffer)["y"]).tolist() for buffer in buffers]


def test_a_page_gets_nothing_before_it_announces_itself(harness):
    assert harness.turn() == []
    harness.pages.expect(harness.now_s)
    assert harness.turn(BLIND_S) == [], "no cell is running, so a page can announce itself"


def test_a_page_gets_the_stored_records_and_then_the_new_ones(harness):
    harness.receive("ready")
    [first] = harness.turn()
    assert (first[0]["to"], first[0]["n"], first[0]["reset"]) == ("a", 1, True)
    assert first[0]["settings"]["view"] == "line"
    assert values(first) == [[1.0, 2.0]]
    assert harness.turn() == []
    [second] = harness.put(3.0).turn()
    assert (second[0]["n"], second[0]["reset"]) == (2, False)
    assert "settings" not in second[0]
    assert values(second) == [[3.0]]


def test_at_most_a_window_is_in_flight_and_the_rest_goes_out_as_one_message(harness):
    harness.receive("ready")
    sent = [message for i in range(3 * WINDOW) for message in harness.put(float(i)).turn()]
    assert len(sent) == WINDOW
    assert not harness.pages.behind(harness.streams), "nothing to do before it acknowledges"
    harness.receive("ack", n=WINDOW)
    assert harness.pages.behind(harness.streams)
    [after] = harness.turn()
    assert values(after) == [[float(i) for i in range(WINDOW, 3 * WINDOW)]]


def test_messages_are_at_least_a_pace_apart(harness):
    harness.receive("ready")
    assert len(harness.turn()) == 1
    assert harness.put(3.0).turn(PACE_S / 2) == []
    assert len(harness.turn(PACE_S / 2)) == 1


def test_each_page_has_its_own_cursors(harness):
    harness.receive("ready", "a")
    harness.turn()
    harness.receive("ready", "b")
    [message] = harness.put(3.0).turn()[1:] or harness.turn()
    sent = {message[0]["to"]: values(message)}
    assert sent.get("b", [[1.0, 2.0, 3.0]]) == [[1.0, 2.0, 3.0]]
    assert len(harness.pages) == 2


def test_a_page_that_announces_itself_again_gets_everything_again(harness):
    harness.receive("ready")
    harness.turn()
    harness.receive("ready")
    [again] = harness.turn()
    assert again[0]["reset"]
    assert values(again) == [[1.0, 2.0]]


def test_a_page_that_is_gone_gets_nothing(harness):
    harness.receive("ready")
    harness.turn()
    harness.receive("gone")
    assert harness.put(3.0).turn() == []
    assert len(harness.pages) == 0


def test_a_silent_page_is_forgotten_and_must_announce_itself_again(harness):
    harness.receive("ready")
    for i in range(WINDOW + 1):
        harness.put(float(i)).turn()
    harness.put(9.0).turn(SILENT_S + 1)
    assert len(harness.pages) == 0
    assert harness.receive("ack", n=1) == [({"type": "who", "to": "a"}, [])]


def test_unknown_pages_get_a_small_drawing_while_a_cell_is_running(harness):
    harness.busy = True
    harness.pages.expect(harness.now_s)
    assert harness.turn(BLIND_S / 2) == []
    [blind] = harness.turn(BLIND_S)
    assert (blind[0]["to"], blind[0]["reset"]) == (EVERYBODY, True)
    [again] = harness.put(3.0).turn(BLIND_S)
    assert again[0]["reset"], "each message is complete: a page may have missed the one before"
    assert values(again) == [[1.0, 2.0, 3.0]]


def test_pages_heard_only_between_cells_get_a_few_messages_during_one(harness):
    harness.receive("ready")
    harness.busy = True
    sent = [message for i in range(20) for message in harness.put(float(i)).turn()]
    assert len(sent) == WINDOW + 1
    assert len(harness.put(1.0).turn(BLIND_S)) == 1
    harness.busy = False
    harness.put(2.0)
    assert harness.turn(BLIND_S) == []


def test_pages_heard_during_cells_never_get_more_than_they_acknowledge(harness):
    harness.busy = True
    harness.receive("ready")
    assert harness.pages.concurrent
    sent = [message for i in range(20) for message in harness.put(float(i)).turn(BLIND_S)]
    assert len(sent) == WINDOW


def test_unacknowledged_messages_are_bounded(harness):
    harness.busy = True
    harness.pages.expect(harness.now_s)
    sent = [message for i in range(MAX_BLIND + 10) for message in harness.put(float(i)).turn(BLIND_S)]
    assert len(sent) == MAX_BLIND


def test_pages_are_bounded_and_malformed_messages_are_ignored(harness):
    for i in range(3 * MAX_PAGES):
        harness.now_s += 1
        harness.receive("ready", f"page{i}")
    assert len(harness.pages) == MAX_PAGES
    malformed = [{}, {"type": "ready"}, {"type": "ready", "page": 3}, {"type": "ready", "page": EVERYBODY}]
    for message in [*malformed, *({"type": "ack", "page": "page40", "n": n} for n in ("x", 10**9))]:
        assert harness.pages.receive(message, now_s=0.0, busy=False) == []
    assert len(harness.pages) == MAX_PAGES
