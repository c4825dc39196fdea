"""Twelve tasks of an agent, each by a script of at most eight calls, with the official client over stdio."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from .conftest import BEST, served, training

MAX_CALLS = 8
WORST = 4  # of live runs; half of them are stopped


def best_run_and_why(call):
    found = call("compare_runs", metric="val/accuracy.max", where=["run.state=ended"])["data"]
    best = max(found["runs"], key=lambda row: row["val/accuracy.max"])
    assert best["run"].startswith(f"trial-{BEST:02}")
    assert found["correlations"][0]["key"] == "lr"


def where_nan_began(call):
    [nan] = [one for one in call("diagnose_run", run="trial-05")["data"]["findings"] if one["kind"] == "nan"]
    assert (nan["step"], "train/loss" in nan["query"]) == (40, True)


def why_it_crashed(call):
    [failed] = call("find_runs", where=["run.state=failed"])["data"]["runs"]
    ended = call("diagnose_run", run=failed["run"])["data"]["findings"][0]
    assert "CUDA out of memory" in ended["text"]
    assert any("_train" in line for line in ended["detail"])


def what_differs_between_two(call):
    two = call("compare_runs", metric="train/loss.last", runs=["trial-05", "trial-06"])["data"]["runs"]
    assert [row["config"]["opt.name"] for row in two] == ["adam", "sgd"]


def how_a_loss_went(call):
    rows = call("history", run="trial-01", metrics=["train/loss", "val/accuracy"], points=10)["data"]["rows"]
    assert rows
    assert len(rows) <= 10


def the_same_question_to_many(call):
    names = [f"trial-{number:02}" for number in range(4)]
    answers = call("ask", runs=names, queries=['batch.loss.min(per="run")'])["data"]["answers"]
    values = [answer["values"][0] for answer in answers]
    assert values == sorted(values)


def what_a_layer_looks_like(call):
    answer = call.client("call_tool", "look", {"run": "trial-07", "query": "weights", "slice": "[0]"})
    assert answer.content[0].mime_type == "image/png"


def a_verdict_is_written_down(call):
    noted = call("note", run="trial-04", text="Learns too slowly.", verdict="discard")["data"]
    assert "discard" in noted["labels"]


def lower_the_rate_when_it_explodes(call):
    assert call("wait_for", run="live-0", condition="batch.loss > 10", limit_s=40)["what"] == "fired"
    assert call("command", run="live-0", kind="set", name="lr", value=0.01, reason="the loss explodes")["applied"]
    asked = call("ask", runs=["live-0"], queries=["batch.lr"], n=2, wait_s=20)["data"]["answers"][0]
    assert asked["values"][-1] == 0.01


def is_it_stuck(call):
    about = call("describe_run", run="live-0")["data"]
    assert about["how"].startswith("running")
    assert not [one for one in call("diagnose_run", run="live-0")["data"]["findings"] if one["kind"] == "quiet"]


def what_it_told(call):
    alerts = call("describe_run", run="live-1")["data"]["alerts"]
    assert [(one["title"], one["level"]) for one in alerts] == [("data is late", "warning")]


def stop_the_worst_half(call):
    names = [f"live-{number}" for number in range(WORST)]
    answers = call("ask", runs=names, queries=["batch.loss"], wait_s=20)["data"]["answers"]
    worst = sorted(answers, key=lambda answer: -answer["values"][-1])[: WORST // 2]
    for answer in worst:
        assert call("command", run=answer["run"], kind="stop", reason="it is among the worst half")["applied"]
    assert sorted(answer["run"] for answer in worst) == ["live-2", "live-3"]
    for answer in worst:
        call("wait_for", run=answer["run"], condition="batch.loss < 0", limit_s=40)
    left = call("find_runs", where=["run.state=running"])["data"]["runs"]
    assert sorted(row["run"][:6] for row in left) == ["live-0", "live-1"]


OVER = (
    best_run_and_why, where_nan_began, why_it_crashed, what_differs_between_two, how_a_loss_went,
    the_same_question_to_many, what_a_layer_looks_like, a_verdict_is_written_down,
)  # fmt: skip
LIVE = (lower_the_rate_when_it_explodes, is_it_stuck, what_it_told, stop_the_worst_half)


class Counted:
    """Calls tools, and counts the calls."""

    def __init__(self, call):
        self._call = call
        self.n: Counter[str] = Counter()

    def __call__(self, tool, /, **arguments):
        self.n[tool] += 1
        return self._call(tool, **arguments)

    def client(self, method, name, arguments):
        self.n[name] += 1
        return self._call.client(method, name, arguments)


@pytest.fixture(scope="module")
def agent(sweep):
    with served(sweep, "--allow-notes") as call:
        yield call


@pytest.mark.parametrize("task", OVER)
def test_a_task_about_runs_that_are_over_takes_few_calls(agent, task):
    counted = Counted(agent)
    task(counted)
    assert 0 < counted.n.total() <= MAX_CALLS


@pytest.mark.parametrize("task", LIVE)
def test_a_task_about_live_runs_takes_few_calls(tmp_path, task):
    with ExitStack() as stack:
        runs = [stack.enter_context(training(tmp_path, f"live-{i}", offset=100 * i)) for i in range(WORST)]
        runs[1].alert("data is late", "It waited for 3 s.")
        counted = Counted(stack.enter_context(served(tmp_path, "--allow-commands")))
        task(counted)
        assert 0 < counted.n.total() <= MAX_CALLS
