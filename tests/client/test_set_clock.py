"""Clocks that are set by an hour while a run is asked: no record is lost, paired wrongly, or in the wrong window."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.core.process.clock import SystemClock

N_EACH = 60


def test_clocks_that_are_set_by_an_hour_in_the_run_and_in_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift_s, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + shift_s[0])
    monkeypatch.setattr(SystemClock, "wall", staticmethod(time.time))
    steps = itertools.count()
    with sg.init("job", budget=None, dir=tmp_path, record=["batch.n"]) as run, sg.connect(run) as client:

        def train(by_s: float) -> None:
            shift_s[0] = by_s
            for step in itertools.islice(steps, N_EACH):
                run.observe("batch", step=step, n=step, twice=2 * step)
                time.sleep(0.002)  # events that belong together are closer than those that do not

        train(0.0)
        train(3600.0)  # before anybody asks: the files have both times
        run.flush()
        past = client.stream("batch.n", since="start")
        n, twice = client.stream("batch.n"), client.stream("batch.twice")
        windows = client.stream("batch.n.count(every='20 s')")
        pairs = n.zip(twice, by="wall_time", tolerance=0.0005)
        for by_s in (0.0, 3600.0, -3600.0, 0.0):
            train(by_s)
        run.close()
        made = 6 * N_EACH
        values = [record.value for record in n]
        assert values == list(range(values[0], made))
        assert [record.value for record in past] == list(range(made))
        paired = [record.value for record in pairs]
        assert all(b == 2 * a for a, b in paired)
        both = values[-len(twice.records()) :]  # what a clock shows again, after it was set back, has no partner
        assert len(both) > len(paired) > 0
        assert {a for a, _ in paired} <= set(both)
        assert pairs.statistics().n_unpaired == len(values) - len(paired)
        groups = list(windows)
        assert all(b.step == a.step + b.value for a, b in itertools.pairwise(groups))
        assert groups[-1].step == made - 1
        assert len(groups) >= 4  # one for each time the clock was set
        assert [stream.n_lost for stream in (past, n, twice, windows)] == [0] * 4
