"""`sightglass.testing`: a test asks the program under test, and gets the answer to every event."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import sightglass as sg
from sightglass import testing
from sightglass.training.run import wiring

pytestmark = pytest.mark.smoke

MEANS = sg.on("batch").map(lambda b: b.loss).mean(every=2)


def train(n: int = 4, **options: object) -> None:
    with sg.init("job", **options) as run:  # type: ignore[arg-type]
        for i in range(n):
            run.observe("batch", loss=float(i))


def test_queries_are_answered_from_the_first_event_on() -> None:
    with testing.ask("batch.loss", MEANS) as asked:
        train(budget=1e-9)
    assert asked.values("batch.loss") == [0.0, 1.0, 2.0, 3.0]
    assert asked.values(MEANS) == [0.5, 2.5]
    assert [record.step for record in asked.records("batch.loss")] == [0, 1, 2, 3]


def test_answers_within_the_block_are_those_to_all_events_so_far() -> None:
    with testing.ask("batch.loss") as asked:
        run = sg.init("job")
        assert asked.values("batch.loss") == []
        for n in range(1, 50):
            run.observe("batch", loss=n)
            assert len(asked.values("batch.loss")) == n
    assert run.ended
    assert asked.values("batch.loss") == [*range(1, 50)]


def test_a_command_is_applied_at_the_next_event() -> None:
    with testing.ask() as asked:
        run = sg.init("job")
        rate = run.control("rate", 0.1)
        asked.run.set("rate", 0.5)
        run.observe("batch")
    assert rate.value == 0.5


def test_nothing_is_left_behind_and_nothing_else_sees_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTGLASS_HUB", "nats://nowhere:1")
    monkeypatch.setenv("SIGHTGLASS_MODE", "disabled")
    before = dict(os.environ)
    with testing.ask("batch.loss") as asked:
        train(record=["batch.loss"], hub="nats://elsewhere:1", dir=tmp_path)
    assert asked.values("batch.loss") == [0.0, 1.0, 2.0, 3.0]
    assert list(tmp_path.iterdir()) == []
    assert os.environ == before
    monkeypatch.delenv("SIGHTGLASS_HUB")
    with sg.init("after", mode="live", budget=0.1, dir=tmp_path) as run:
        assert wiring(run).settings.budget == 0.1


def test_a_query_that_fails_says_so_when_its_answer_is_read() -> None:
    with testing.ask("batch.loss", "batch.grad") as asked:
        run = sg.init("job")
        run.observe("batch", loss=1.0)
        with pytest.raises(sg.EvaluationError, match="'grad'"):
            asked.values("batch.grad")
    with pytest.raises(sg.EvaluationError, match="'grad'"):
        asked.values("batch.grad")
    with pytest.raises(sg.UnknownNameError, match=r"'batch.loss'"):
        asked.values("batch.los")


def test_a_query_that_failed_too_often_says_so_within_the_block() -> None:
    with testing.ask("batch.loss.norm(axis=3)") as asked:
        run = sg.init("job")
        for _ in range(10):
            run.observe("batch", loss=np.ones(2))
        with pytest.raises(sg.EvaluationError):
            asked.values("batch.loss.norm(axis=3)")


def test_a_block_without_a_run_fails_unless_it_failed_already() -> None:
    with pytest.raises(AssertionError, match="begun"), testing.ask("batch.loss"):
        pass
    with pytest.raises(ZeroDivisionError), testing.ask("batch.loss") as failed:
        _ = 1 / 0
    with testing.ask() as asked:
        train()
    assert asked.run.ended
    with pytest.raises(AssertionError, match="begun"):
        _ = failed.run


def test_an_invalid_query_is_raised_by_init() -> None:
    with pytest.raises(sg.QueryError), testing.ask("batch.loss("):
        train()


def test_records_are_numbered() -> None:
    made = testing.records([0.5, 0.25], tag="a", run="b", first_step=10)
    assert [(r.tag, r.run, r.index, r.step, r.value) for r in made] == [("a", "b", 0, 10, 0.5), ("a", "b", 1, 11, 0.25)]
    assert made[1].wall_time - made[0].wall_time == 1.0


def test_no_limit_of_time_leaves_an_event_out() -> None:
    with testing.ask("batch.loss", "batch.w.norm()", "batch.w.sort()") as asked:
        run = sg.init("job", limits=sg.Limits(max_event_s=1e-6), budget=1e-9)
        w = np.random.default_rng(0).random(1_000_000)
        for i in range(3):
            run.observe("batch", loss=i, w=w)
    assert asked.values("batch.loss") == [0, 1, 2]
    assert [len(asked.values(query)) for query in ("batch.w.norm()", "batch.w.sort()")] == [3, 3]
