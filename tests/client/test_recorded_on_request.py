"""A client lets a run record a query, and no more; a viewer may not, and what costs too much is not recorded."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg


def test_a_client_lets_a_query_be_recorded_and_no_more(begin: Any, ask: Any, tmp_path: Path) -> None:
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    query = sg.on("batch").map(lambda b: sg.fn.norm(b.x)).mean(every=10)
    stream = client.stream(query)

    steps = itertools.count()

    def train(n: int) -> None:
        for step in itertools.islice(steps, n):
            run.observe("batch", step=step, loss=1 / (step + 1), x=np.arange(10.0) + step)

    train(25)
    assert client.record(query) == query.tag
    assert [one.recorded for one in client.describe().streams if one.tag == query.tag] == [True]
    train(40)
    client.unrecord(query)
    with pytest.raises(sg.QueryError, match="Unknown recorded query"):
        client.unrecord(query)
    train(25)
    run.close()
    live = {record.index: record for record in stream}
    with sg.open(run.directory) as old:
        recorded = list(old.stream(query))
        assert [int(record.step) for record in recorded] == [29, 39, 49, 59]  # the windows that end meanwhile
        for record in recorded:
            assert record.value == live[record.index].value
            assert (record.step, record.complete) == (live[record.index].step, live[record.index].complete)
        assert old.describe().events["batch"].n_events == 90
        assert old.describe().state == "ended"


def test_a_viewer_may_not_record(tmp_path: Path) -> None:
    with (
        sg.init("job", dir=tmp_path, listen="tcp://127.0.0.1:0") as run,
        sg.connect(run.viewer_file) as viewer,
        pytest.raises(sg.RefusedError, match="controller's key to record"),
    ):
        viewer.record("batch.loss")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_query_that_costs_too_much_is_not_recorded(begin: Any, ask: Any, tmp_path: Path) -> None:
    run = begin(dir=tmp_path, budget=0.01)
    client = ask(run)
    x = np.random.default_rng(0).normal(size=200_000)
    query = sg.on("batch").map(lambda b: abs(b.x).std())

    def train() -> None:
        run.observe("batch", x=x)

    client.record(query)
    wait_until(lambda: True not in [one.recorded for one in client.describe().streams], "it is stopped", pause=train)
    stream = client.stream(query)
    wait_until(lambda: stream.statistics().stride > 1, "it is thinned", pause=train)
    with pytest.raises(sg.RefusedQueryError, match="costs"):
        client.record(query)
