"""Processes that train one model: another process asks all of them everything, and they train the same."""

from __future__ import annotations

import pytest
from tests.waiting import wait_until

pytest.importorskip("torch")

from . import hogwild

pytestmark = pytest.mark.slow


def test_workers_that_are_asked_everything_train_the_same_and_answer_the_truth():
    with hogwild.begun(with_run=True) as job, hogwild.joined() as fleet:
        streams = {question: fleet.stream(question) for question in hogwild.QUESTIONS}

        def missing():
            return [question for question, stream in streams.items() if not hogwild.is_answered(stream)]

        wait_until(lambda: not missing() or any(stream.error for stream in streams.values()), missing)
        assert {question: stream.error for question, stream in streams.items() if stream.error} == {}
        fleet["hogwild-0"].stop()
        asked = job.result()
        losses = {member.run: list(member) for member in streams["batch.loss"].members}
    n_steps = len(asked.losses) // hogwild.N_WORKERS
    for with_run in (True, False):
        with hogwild.begun(n_steps, with_run=with_run) as job:
            assert job.result().bits() == asked.bits()
    for run, records in losses.items():
        own = asked.losses[int(run.removeprefix("hogwild-")) :: hogwild.N_WORKERS]
        assert [float(record.value) for record in records] == [own[int(record.step)] for record in records]


def test_a_rate_is_set_in_all_workers_and_read_back():
    with hogwild.begun(with_run=True) as job, hogwild.joined() as fleet:
        assert not fleet.set("optimizer.lr", 0.25).failed
        rates = fleet.stream("batch.lr")
        wait_until(lambda: [m.latest and m.latest.value for m in rates.members] == [0.25] * 2, rates)
        fleet["hogwild-0"].stop()
        job.result()
