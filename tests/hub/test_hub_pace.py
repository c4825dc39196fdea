"""How many messages of clients a process with runs takes in a second."""

from __future__ import annotations

import types

import pytest

from sightglass.hub import link
from sightglass.hub.link import Pace


@pytest.fixture
def paced(monkeypatch):
    monkeypatch.setattr(link, "MAX_RATE", 10)
    clock = types.SimpleNamespace(now_s=5.0)
    return Pace(clock=lambda: clock.now_s), clock


def test_what_comes_beyond_the_pace_waits_until_the_second_is_over(paced):
    pace, clock = paced
    for n in range(9):
        pace.count("ann" if n else "bob")
        assert pace.rest_s() == 0.0
    clock.now_s += 0.25
    pace.count("bob")
    assert pace.rest_s() == 0.75
    assert (pace.n_full, pace.sender) == (1, "ann")
    clock.now_s += 0.75
    assert pace.rest_s() == 0.0
    pace.count("ann")
    assert pace.rest_s() == 0.0
    assert pace.n_full == 1


def test_what_comes_slowly_never_waits(paced):
    pace, clock = paced
    for _ in range(100):
        clock.now_s += 0.125
        pace.count("ann")
        assert pace.rest_s() == 0.0
    assert (pace.n_full, pace.sender) == (0, "")
