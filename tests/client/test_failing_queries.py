"""A query that fails at every event that it tries ends with its error; one that fails at times goes on."""

from __future__ import annotations

import itertools

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.errors import EvaluationError

N_EVENTS = 60
CONDITIONS = ("k % 2 == 0", "k % 3 == 1", "k > 5", "k == k")
FAILS_ALWAYS = (
    "on('b').map(lambda b: b.k).where(lambda k: {}).map(lambda k: k.nope)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).where(lambda k: k.nope)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).map(lambda k: k.nope).mean(every=3)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).mean(every=6).map(lambda v: v.nope)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).mean(every=6).where(lambda v: v > 0).map(lambda v: v.nope)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).max(every=3).max(every=2).map(lambda v: v.nope)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).rolling(2).mean().map(lambda v: v.nope)",
    "on('b').map(lambda b: b.k).where(lambda k: {}).map(lambda k: 'a').mean(every=3)",
)
FAILS_AT_TIMES = (
    "on('b').map(lambda b: b.k).where(lambda k: [1, 2, 3][k % 4] > 5)",
    "on('b').map(lambda b: b.k).where(lambda k: [1, 2, 3][k % 4] > 5).map(lambda k: k + 1).mean(every=3)",
    "on('b').map(lambda b: b.k).map(lambda k: [1, 2, 3][k % 4]).where(lambda v: v > 5)",
    "on('b').map(lambda b: b.k).max(every=2).where(lambda v: [1, 2, 3][v % 6] > 5)",
)
QUERIES = [query.format(condition) for query, condition in itertools.product(FAILS_ALWAYS, CONDITIONS)]


@pytest.fixture
def run(tmp_path):
    """Return a run that records what the queries read."""
    with sg.init("failing", dir=tmp_path, budget=None, record=["b.k"]) as run:
        yield run


def observe(run):
    for k in range(N_EVENTS):
        run.observe("b", k=k)


def test_what_always_fails_ends_live(run, ask):
    streams = [ask(run.id).stream(query) for query in QUERIES]
    goes_on = [ask(run.id).stream(query) for query in FAILS_AT_TIMES]
    observe(run)
    wait_until(lambda: all(stream.ended for stream in streams), lambda: [s.query for s in streams if not s.ended])
    assert {type(stream.error) for stream in streams} == {EvaluationError}
    assert not any(stream.ended for stream in goes_on)
    assert [stream.statistics().n_errors for stream in goes_on] == [15, 15, 15, 20]


def test_what_always_fails_ends_recorded(run):
    observe(run)
    run.close()
    with sg.open(run.directory) as recorded:
        for query in QUERIES:
            with pytest.raises(EvaluationError):
                list(recorded.stream(query))
        for query in FAILS_AT_TIMES:
            stream = recorded.stream(query)
            assert list(stream) is not None
            assert stream.error is None
