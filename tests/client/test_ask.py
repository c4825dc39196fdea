"""`ask`: one answer of live and recorded runs, alone and together, with what it stands for."""

from __future__ import annotations

import threading

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.errors import QueryError


@pytest.fixture
def going(begin):
    """Return a function that begins a run which announces events until the test ends."""
    over, threads = threading.Event(), []

    def start(name, **options):
        run = begin(name, record=["batch.k"], **options)

        def go_on():
            k = 0
            while not over.wait(0.002):
                run.observe("batch", step=k, k=k)
                k += 1

        threads.append(threading.Thread(target=go_on))
        threads[-1].start()
        return run

    yield start
    over.set()
    for thread in threads:
        thread.join()


def test_the_next_values_of_a_live_run(going, ask):
    run = ask(going("asked").id)
    answer = run.ask("batch.k", 3)
    assert list(answer) == [record.value for record in answer.records] == [answer[0], answer[0] + 1, answer[0] + 2]
    assert (len(answer), answer.value, answer[-2:], answer.n_missing) == (3, answer[2], list(answer)[1:], 0)
    assert answer.coverage.startswith("all ")
    means = run.ask("batch.k.mean(every=4)", 2)
    assert means[1] - means[0] == 4
    assert all(record.complete for record in means.records), "not of the window in which it asked"
    assert repr(means) == f"<Answer [{means[0]}, {means[1]}] at step {means.records[1].step}; {means.coverage}>"
    wait_until(lambda: [one.tag for one in run.describe().streams] == ["batch.k"])  # what is recorded


def test_what_does_not_come_is_said(going, ask):
    run = ask(going("asked").id)
    with pytest.raises(TimeoutError, match="Unknown event 'epoch'"):
        run.ask("epoch.k", timeout_s=0.05)
    with pytest.raises(QueryError, match="nope"):
        run.ask("batch.k.nope(")
    some = run.ask("batch.k", 1_000_000, timeout_s=0.5)
    assert 0 < len(some) < 1_000_000
    assert some.coverage.startswith(f"{len(some):,} of 1,000,000 that were asked for: ")


def test_a_fleet_answers_by_run(going):
    names = ["one", "two"]
    for name in names:
        going(name)
    with sg.fleet(names) as fleet:
        answers = fleet.ask("batch.k", 2)
        assert sorted(answers) == names
        assert all(answer[1] == answer[0] + 1 for answer in answers.values())
        stream = fleet.stream("batch.k")
        stream.wait(4)
        assert stream.coverage.startswith("all ")
        with pytest.warns(RuntimeWarning, match="2 of 2 runs"):
            assert fleet.ask("epoch.k", timeout_s=0.05) == {}


def test_recorded_runs_answer_with_their_last_values(tmp_path):
    for name, n in (("one", 10), ("two", 3)):
        with sg.init(name, dir=tmp_path, record=["batch.k"]) as run:
            for k in range(n):
                run.observe("batch", k=k)
            run.log({name: 1.0})
    with sg.open(tmp_path) as runs:
        answers = runs.ask("batch.k", 4)
        assert sorted(map(list, answers.values())) == [[0, 1, 2], [6, 7, 8, 9]]
        assert {answer.coverage for answer in answers.values()} == {
            "all 10", "3 of 4 that were asked for: there are no more; all 3",
        }  # fmt: skip
        with pytest.warns(RuntimeWarning, match="1 of 2 runs"):
            assert [answer.value for answer in runs.ask("one").values()] == [1.0]
        with pytest.raises(QueryError):
            runs.ask("three")


def test_coverage_says_what_the_budget_skipped(begin, ask):
    run = begin("covered", budget=None)
    stream, windows = ask(run.id).stream("batch.k"), ask(run.id).stream("batch.k.count(every=10)")
    (first, second) = run._telemetry.subscriptions.active.values()
    first.stride = second.stride = 4
    for k in range(40):
        run.observe("batch", k=k)
    wait_until(lambda: stream.note == windows.note == "answered on 1 of 4 events: the budget")
    first.stride = 1
    wait_until(lambda: stream.note == "")
    run.close()
    assert (stream.wait(10)[-1].value, stream.coverage, stream.n_missing) == (
        36,
        "10 of 40: 30 skipped by the budget",
        30,
    )
    assert windows.wait(4)
    assert windows.coverage == "all 4; of 10 of 40 events: 30 skipped by the budget"
    assert (windows.reduces, stream.reduces, stream.mean(every=2).reduces, stream.map(abs).reduces) == (
        True, False, True, False,
    )  # fmt: skip
