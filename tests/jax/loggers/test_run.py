"""`RunLogger`: into the newest run, or a given one; what comes too late is told."""

from __future__ import annotations

from itertools import islice

import jax
import jax.numpy as jnp
import pytest

import sightglass as sg
from sightglass.core.errors import LogError, StorageError
from sightglass.jax.loggers import RunLogger

from .programs import losses, train


def test_it_takes_the_newest_run_or_the_one_given(tmp_path):
    with (
        sg.init("old", dir=tmp_path) as old,
        sg.init("new", dir=tmp_path) as new,
        RunLogger() as newest,
        RunLogger(old) as given,
    ):
        newest.tap(train, newest.init())(1.0)
        given.tap(train, given.init())(2.0)
    for run, x in ((new, 1.0), (old, 2.0)):
        with sg.open(run.directory) as kept:
            found = [(record.step, record.value, record.steps) for record in kept.series("loss")]
        assert found == [(step, value, {"epoch": i}) for i, (step, value) in enumerate(losses(x))]


def test_clients_see_it_live(tmp_path):
    with sg.init("job", dir=tmp_path) as run, RunLogger() as logger:
        client = sg.connect(run)
        stream = client.stream(sg.on("log").map(lambda e: e["3/loss"]))
        jax.vmap(lambda seed: logger.tap(train, logger.init(seed))(1.0))(jnp.array([3]))
        logger.flush()
        assert [record.value for record in islice(stream, 3)] == [1.0, 2.0, 3.0]


def test_without_a_run_it_says_so():
    logger = RunLogger()
    with pytest.raises(LogError, match=r"sightglass\.init\(\).*RunLogger\(run\)"):
        logger.init()


def test_logs_after_the_end_of_the_run_are_reported_as_lost(tmp_path):
    run = sg.init("job", dir=tmp_path)
    logger = RunLogger(run)
    state = logger.init()
    run.close()

    def late():
        logger.tap(train, state)(1.0)
        logger.close()

    with (
        pytest.warns(RuntimeWarning, match="has ended"),
        pytest.raises(StorageError, match=r"3 lost.*'job'"),
    ):
        late()


def test_in_a_disabled_run_it_does_nothing(tmp_path):
    with sg.init("job", dir=tmp_path, mode="disabled") as run, RunLogger(run) as logger:
        assert float(logger.tap(train, logger.init())(1.0)) == 3.0
    assert logger.statistics().n_dropped == 0
