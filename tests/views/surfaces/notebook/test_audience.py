"""Who is sent what, and when: nobody more than they can take, and nothing that somebody needs is left out."""

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


class Hall:
    """An audience, a desk with one stream, and a clock."""

    def __init__(self, source):
        self.source = source
        self.desk = NotebookStreams([source])
        self.audience = OpenPages()
        self.now_s, self.busy = 100.0, False

    def hear(self, kind, page="a", **more):
        return self.audience.hear({"type": kind, "page": page, **more}, now_s=self.now_s, busy=self.busy)

    def turn(self, pass_s=PACE_S):
        self.now_s += 1.001 * pass_s  # a little more, whatever rounding does
        self.desk.pull()
        return self.audience.turn(self.desk, now_s=self.now_s, busy=self.busy)

    def put(self, *values):
        self.source.put(*values)
        return self


@pytest.fixture
def hall(feed):
    return Hall(feed().put(1.0, 2.0))


def values(message):
    _, buffers = message
    return [np.frombuffer(msgspec.msgpack.decode(buffer)["y"]).tolist() for buffer in buffers]


def test_nobody_is_sent_anything_before_they_announce_themselves(hall):
    assert hall.turn() == []
    hall.audience.expect(hall.now_s)
    assert hall.turn(BLIND_S) == [], "no cell is running: what a page says will be heard"


def test_a_page_is_sent_what_is_kept_and_then_what_is_new(hall):
    hall.hear("ready")
    [first] = hall.turn()
    assert (first[0]["to"], first[0]["n"], first[0]["reset"]) == ("a", 1, True)
    assert first[0]["settings"]["view"] == "line"
    assert values(first) == [[1.0, 2.0]]
    assert hall.turn() == []
    [second] = hall.put(3.0).turn()
    assert (second[0]["n"], second[0]["reset"]) == (2, False)
    assert "settings" not in second[0]
    assert values(second) == [[3.0]]


def test_no_more_is_on_the_way_than_the_window_and_what_waits_goes_as_one(hall):
    hall.hear("ready")
    sent = [message for i in range(3 * WINDOW) for message in hall.put(float(i)).turn()]
    assert len(sent) == WINDOW
    assert not hall.audience.behind(hall.desk), "there is nothing to do before it speaks"
    hall.hear("ack", n=WINDOW)
    assert hall.audience.behind(hall.desk)
    [after] = hall.turn()
    assert values(after) == [[float(i) for i in range(WINDOW, 3 * WINDOW)]]


def test_nothing_is_sent_faster_than_the_pace(hall):
    hall.hear("ready")
    assert len(hall.turn()) == 1
    assert hall.put(3.0).turn(PACE_S / 2) == []
    assert len(hall.turn(PACE_S / 2)) == 1


def test_pages_have_places_of_their_own(hall):
    hall.hear("ready", "a")
    hall.turn()
    hall.hear("ready", "b")
    [message] = hall.put(3.0).turn()[1:] or hall.turn()
    sent = {message[0]["to"]: values(message)}
    assert sent.get("b", [[1.0, 2.0, 3.0]]) == [[1.0, 2.0, 3.0]]
    assert len(hall.audience) == 2


def test_who_announces_themself_again_is_sent_all_again(hall):
    hall.hear("ready")
    hall.turn()
    hall.hear("ready")
    [again] = hall.turn()
    assert again[0]["reset"]
    assert values(again) == [[1.0, 2.0]]


def test_who_is_gone_is_sent_nothing(hall):
    hall.hear("ready")
    hall.turn()
    hall.hear("gone")
    assert hall.put(3.0).turn() == []
    assert len(hall.audience) == 0


def test_who_is_silent_is_forgotten_and_asked_to_announce_themself_when_they_speak_again(hall):
    hall.hear("ready")
    for i in range(WINDOW + 1):
        hall.put(float(i)).turn()
    hall.put(9.0).turn(SILENT_S + 1)
    assert len(hall.audience) == 0
    assert hall.hear("ack", n=1) == [({"type": "who", "to": "a"}, [])]


def test_while_a_cell_is_running_strangers_see_a_small_picture(hall):
    hall.busy = True
    hall.audience.expect(hall.now_s)
    assert hall.turn(BLIND_S / 2) == []
    [blind] = hall.turn(BLIND_S)
    assert (blind[0]["to"], blind[0]["reset"]) == (EVERYBODY, True)
    [again] = hall.put(3.0).turn(BLIND_S)
    assert again[0]["reset"], "each is a whole picture: nobody has to have seen the one before"
    assert values(again) == [[1.0, 2.0, 3.0]]


def test_front_ends_that_are_heard_only_between_cells_are_sent_a_little_while_one_is_running(hall):
    hall.hear("ready")
    hall.busy = True
    sent = [message for i in range(20) for message in hall.put(float(i)).turn()]
    assert len(sent) == WINDOW + 1
    assert len(hall.put(1.0).turn(BLIND_S)) == 1
    hall.busy = False
    hall.put(2.0)
    assert hall.turn(BLIND_S) == []


def test_front_ends_with_sub_shells_are_never_sent_more_than_they_acknowledge(hall):
    hall.busy = True
    hall.hear("ready")
    assert hall.audience.concurrent
    sent = [message for i in range(20) for message in hall.put(float(i)).turn(BLIND_S)]
    assert len(sent) == WINDOW


def test_blind_messages_are_bounded(hall):
    hall.busy = True
    hall.audience.expect(hall.now_s)
    sent = [message for i in range(MAX_BLIND + 10) for message in hall.put(float(i)).turn(BLIND_S)]
    assert len(sent) == MAX_BLIND


def test_pages_are_bounded_and_nonsense_is_passed_over(hall):
    for i in range(3 * MAX_PAGES):
        hall.now_s += 1
        hall.hear("ready", f"page{i}")
    assert len(hall.audience) == MAX_PAGES
    nonsense = [{}, {"type": "ready"}, {"type": "ready", "page": 3}, {"type": "ready", "page": EVERYBODY}]
    for message in [*nonsense, *({"type": "ack", "page": "page40", "n": n} for n in ("x", 10**9))]:
        assert hall.audience.hear(message, now_s=0.0, busy=False) == []
    assert len(hall.audience) == MAX_PAGES
