"""A recorded run pairs two events as the live run did, and never wrongly where one of them is not recorded."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import sightglass as sg
from sightglass.client.recorded.timeline import JoinedEvents
from sightglass.core.columns import of_rows

PAIRS = "on('batch').join('epoch').map(lambda b: (b.x, b.epoch.acc, b.epoch.step, b.epoch.event.index))"
SUMS = "on('batch').join('epoch').map(lambda b: b.x * b.epoch.acc).sum(every=3)"
KEPT = ("batch.x", "epoch.acc")


def shown(stream):
    """Return what records say besides their times."""
    return [(one.value, one.step, one.n_events, one.complete, one.closed) for one in stream]


def train(run, *, first=0, last=10):
    for i in range(first, last):
        run.observe("batch", step=2 * i, x=float(i))
        if i % 4 == 1:
            run.observe("epoch", acc=i / 4)


def test_a_recorded_run_pairs_as_the_live_one(tmp_path):
    with sg.init("joins", dir=tmp_path, record=KEPT, budget=None) as run, sg.connect(run) as client:
        streams = {query: client.stream(query) for query in (PAIRS, SUMS)}
        train(run)
        run.close()
        live = {query: shown(stream) for query, stream in streams.items()}
    with sg.open(run.directory) as old:
        for query, records in live.items():
            stream = old.stream(query)
            assert shown(stream) == records
            assert stream.statistics().n_unpaired == 2
    assert [record[0] for record in live[PAIRS]][:2] == [(2.0, 0.25, 0, 0), (3.0, 0.25, 0, 0)]


WHOLE = [
    "batch.x.sum()",
    "on('batch').where(lambda b: b.step > 4).map(lambda b: b.event.index).max(every=4)",
    "on('batch').join('epoch').join('eval').map(lambda b: (b.x, b.epoch.acc, b.eval.n)).collect(2, per='epoch')",
    "on('batch').join('epoch').where(lambda b: b.epoch.acc > 1).map(lambda b: b.x).rolling(3).mean()",
    "on('batch').join('epoch').map(lambda b: b.x).sum(by=lambda b: b.epoch.acc, every=4)",
    "on('batch').join('epoch').map(lambda b: b.x).sum(when=lambda b: b.epoch.acc > 1)",
    "on('batch').join('epoch').map(lambda b: (b.epoch, b.epoch.event.index))",
    "on('batch').join('epoch').map(lambda b: b.epoch)",
    "on('batch').join('epoch')",
]


def test_events_that_were_recorded_whole_answer_as_the_live_run(tmp_path):
    record = ("on('batch')", "on('epoch')", "on('eval')")
    with sg.init("joins", dir=tmp_path, record=record, budget=None) as run, sg.connect(run) as client:
        streams = {query: client.stream(query) for query in WHOLE}
        train(run, last=5)
        thread = threading.Thread(target=run.observe, args=("eval",), kwargs={"n": 7})
        thread.start()
        thread.join()
        train(run, first=5, last=14)
        run.close()
        live = {query: shown(stream) for query, stream in streams.items()}
    with sg.open(run.directory) as old:
        assert {query: shown(old.stream(query)) for query in WHOLE} == live
    assert all(live.values())


def test_what_was_recorded_late_has_no_partner_before_and_says_that_it_is_incomplete(tmp_path):
    with sg.init("joins", dir=tmp_path, record=("batch.x",), budget=None) as run, sg.connect(run) as client:
        train(run, last=6)  # two epochs
        client.record("epoch.acc")
        train(run, first=6, last=16)
    with sg.open(run.directory) as old:
        assert [record.value[0] for record in old.stream(PAIRS)] == [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
        found = [(one.n_events, one.complete, one.closed) for one in old.stream(SUMS)]
        assert found == [(2, False, True), (3, True, True), (1, False, False)]


def test_the_recorded_query_itself_goes_on_with_its_later_stages(tmp_path):
    query = "on('batch').join('epoch').map(lambda b: b.x * b.epoch.acc)"
    with sg.init("joins", dir=tmp_path, record=(query,), budget=None) as run, sg.connect(run) as client:
        stream = client.stream(SUMS)
        train(run)
        run.close()
        live = shown(stream)
    with sg.open(run.directory) as old:
        assert shown(old.stream(SUMS)) == live


def test_a_query_whose_partner_is_not_recorded_says_what_to_record(tmp_path):
    with sg.init("joins", dir=tmp_path, record=("batch.x",)) as run:
        train(run)
        run.observe("epoch", acc=1.0, snapshot=True)
    with (
        sg.open(run.directory) as old,
        pytest.raises(sg.QueryError, match=r"'epoch': on\("),
    ):
        old.stream(PAIRS)


def test_calls_of_log_without_the_name_are_passed_over(tmp_path):
    query = "on('batch').join('log').map(lambda b: b.log['acc'])"
    with sg.init("joins", dir=tmp_path, record=("batch.x",), budget=None) as run, sg.connect(run) as client:
        stream = client.stream(query)
        for i in range(6):
            run.log({"acc": i} if i % 2 else {"loss": i})
            run.observe("batch", x=i)
        run.close()
        live = shown(stream)
    assert [one[0] for one in live] == [1, 1, 3, 3, 5]
    with sg.open(run.directory) as old:
        assert shown(old.stream(query)) == live


def events(*numbers):
    """Return records of events of these numbers, at these seconds."""
    return {"acc": of_rows([(i, n, float(n), n / 4, None, n) for i, n in enumerate(numbers)])}


def test_an_event_that_is_not_recorded_leaves_a_hole_and_no_wrong_pair():
    joined = JoinedEvents("epoch", ["acc"])
    joined.add([events(0, 1, 4, 5)], since=0)
    held = []
    while joined.ahead:
        joined.advance()
        held.append(joined.latest.observables and joined.latest.observables["acc"])
    assert held == [0.0, None, 1.0, 1.25]


def test_joined_events_are_read_as_they_are_needed():
    n_read = 0

    def pieces():
        nonlocal n_read
        for start in range(0, 1000, 100):
            n_read += 1
            yield events(*range(start, start + 100))

    joined = JoinedEvents("epoch", ["acc"])
    joined.add(pieces(), since=0)
    assert n_read == 1
    while joined.ahead:
        joined.advance()
    assert n_read == 10
    assert np.isclose(joined.latest.observables["acc"], 999 / 4)
