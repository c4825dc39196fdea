"""Streams of the states of windows, from runs of this process."""

from __future__ import annotations

from typing import Any

import pytest

import sightglass as sg
from sightglass.core.errors import QueryError
from sightglass.protocol import messages
from sightglass.query.parser import parse
from sightglass.query.reduce.states import LAST, Numbering, WindowState, unpack

TIMEOUT_S = 30.0


def states(stream: Any, n: int) -> list[tuple[Any, ...]]:
    found = [WindowState(*record.value) for record in stream.wait(n, timeout_s=TIMEOUT_S)]
    return [(one.key, one.n_values, unpack(one.state)) for one in found]


def test_a_run_sends_the_state_of_each_window(begin, ask):
    run = begin()
    client = ask(run)
    stream = client._stream_states(parse("batch.loss.mean(every=2)"), Numbering())
    results = client.stream("batch.loss.mean(every=2)")
    for i in range(5):
        run.observe("batch", loss=float(i))
    run.close()
    assert states(stream, 3) == [(0, 2, (2, 1.0)), (1, 2, (2, 5.0)), (2, 1, (1, 4.0))]
    assert [record.value for record in results.wait(3, timeout_s=TIMEOUT_S)] == [0.5, 2.5, 4.0]
    assert [record.closed for record in stream.records()] == [True, True, False]


def test_events_have_the_numbers_that_the_client_says(begin, ask):
    run = begin()
    stream = ask(run)._stream_states(parse("batch.loss.collect(every=2)"), Numbering(3, 8))
    for i in range(2):
        run.observe("batch", loss=float(i))
    assert states(stream, 1) == [(0, 2, [(3, 0.0), (11, 1.0)])]


def test_groups_have_the_numbers_of_the_run_wherever_a_client_joins(begin, ask):
    run = begin()

    def epoch(n):
        for _ in range(n):
            run.observe("batch", loss=1.0)
        run.end_group("batch")
        run.observe("epoch")

    epoch(2)
    epoch(1)
    client = ask(run)
    per = client._stream_states(parse("batch.loss.count(per='epoch')"), Numbering())
    groups = client._stream_states(parse("on('batch').count()"), Numbering())
    epoch(3)
    epoch(0)
    run.observe("batch", loss=1.0)
    run.close()
    assert states(per, 3) == [(2, 3, 3), (3, 0, 0), (LAST, 1, 1)]
    assert states(groups, 3) == [(2, 3, 3), (3, 0, 0), (LAST, 1, 1)]
    assert [record.complete for record in per.records()] == [False, True, False]


def test_clients_that_ask_alike_share_a_subscription_and_results_have_another(begin, ask):
    run = begin()
    first, second = ask(run), ask(run)
    query = parse("batch.loss.max(every=1)")
    streams = [first._stream_states(query, Numbering()), second._stream_states(query, Numbering()), first.stream(query)]
    run.observe("batch", loss=1.5)
    assert [states(stream, 1) for stream in streams[:2]] == [[(0, 1, 1.5)]] * 2
    assert streams[2].wait(1, timeout_s=TIMEOUT_S)[0].value == 1.5
    assert len(first._query("statistics")) == 2


@pytest.mark.parametrize("text", ["batch.loss", "batch.loss.mean(every=2).max(every=2)", "batch.loss.ema(0.1)"])
def test_the_client_and_the_run_refuse_what_does_not_merge(begin, ask, text):
    run = begin()
    client = ask(run)
    with pytest.raises(QueryError, match="Expected a"):
        client._stream_states(parse(text), Numbering())
    with pytest.raises(QueryError, match="Expected a"):
        client._session.request(lambda number: messages.Open(request=number, query=text, states=(0, 1)))


def test_a_client_cannot_close_a_group_that_others_merge(begin, ask):
    run = begin()
    stream = ask(run)._stream_states(parse("on('batch').count()"), Numbering())
    run.observe("batch", loss=1.0)
    with pytest.raises(QueryError, match="close"):
        stream.end_group()


def test_a_number_out_of_bounds_is_a_malformed_message(begin):
    run = begin()
    with sg.connect(run) as client, pytest.raises(sg.RunLostError, match="`int` >= 0"):
        client._session.request(lambda number: messages.Open(request=number, query="batch.loss.sum()", states=(-1, 1)))
