"""Queries that get nothing: after some events the stream's note says why."""

from __future__ import annotations

import pytest
import torch
from tests.waiting import wait_until
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from sightglass import testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.lstm = nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True)
        self.unused, self.frozen = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.lstm(self.frozen(self.a(x))[:, None])[0][:, 0]


class Loop:
    def __init__(self, desk):
        self.model, self.run = Net(), desk.run
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        sgt.watch(self.model, desk.run, optimizer=self.opt)

    def step(self):
        self.opt.zero_grad()
        self.model(torch.randn(3, 4)).square().mean().backward()
        self.opt.step()
        self.run.observe("batch", loss=0.5)


def noted(loop, stream):
    """Return the note of a stream once there is one; the `io` thread tells it."""
    wait_until(lambda: stream.note, stream.statistics, pause=loop.step)
    return stream.note.partition(" events in a row brought ")[2] or stream.note


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("grads['frozen.weight'].norm()", "nothing of 'frozen.weight': it does not require a gradient."),
        (
            "grads['unused.weight'].norm()",
            "nothing of 'unused.weight': the loss does not depend on it, or nothing was differentiated.",
        ),
        ("activations['unused'].mean()", "nothing of 'unused': it was not called."),
        ("inputs['unused'].mean()", "nothing of 'unused': it was not called."),
        (
            "inputs['lstm[hx]'].mean()",
            "nothing of 'lstm[hx]': its module was not called, or has none of this name; "
            "b.inputs.map(lambda name, x: x.shape) lists them.",
        ),
        ("eval_activations['a'].mean()", "nothing of 'a': it was not called in evaluation mode."),
        (
            "eval_inputs.map(lambda n, x: x.mean())",
            "no eval_inputs: the module was not called in evaluation mode.",
        ),
        (
            "activation_grads['lstm'].norm()",
            "Module 'lstm' returns several tensors: ask for each, such as b.activation_grads['lstm[0]'].",
        ),
    ],
)
def test_a_note_says_why_nothing_comes(desk, query, why):
    loop = Loop(desk)
    with sg.connect(desk.run) as client:
        assert noted(loop, client.stream(f"batch.{query}")) == why


def test_the_note_goes_with_the_reason(desk):
    loop = Loop(desk)
    with sg.connect(desk.run) as client:
        stream = client.stream("batch.grads['frozen.weight'].norm()")
        noted(loop, stream)
        loop.model.frozen.requires_grad_(True)
        loop.step()
        loop.step()
        assert stream.wait(1, timeout_s=60.0)
        assert stream.note == ""


def test_an_unknown_observable_is_answered_with_all_that_describe_lists(desk):
    loop = Loop(desk)
    loop.step()
    answer = desk.ask("batch.grad_norm")
    loop.step()
    assert "Did you mean 'grads'?" in str(answer.last_error)
    known = str(answer.last_error).partition("Known: ")[2].partition(" and ")[0]
    with sg.connect(desk.run) as client:
        offered = client.describe().events["batch"].observables
    assert known.split(", ") == sorted(offered)[:12]


def test_what_only_a_watched_optimizer_offers_is_refused_with_the_way_to_it(desk):
    sgt.watch(torch.nn.Linear(2, 1), desk.run)
    answers = [desk.ask(query) for query in ("batch.updates", "batch.optimizer.lr", "epoch.grads")]
    for _ in range(4):
        desk.run.observe("batch")
        desk.run.observe("epoch")
    said = [str(answer.last_error) for answer in answers]
    assert all("'. sightglass.torch.watch(model, run, optimizer=…) offers it. Known" in one for one in said[:2])
    assert "'. sightglass.torch.watch(model, run) offers it. Known: step." in said[2]


def test_a_function_that_a_dtype_lacks_is_refused_with_the_way_out():
    cast = "on('batch').map(lambda b: b.x.astype('float32').mean())"
    with testing.ask("batch.x.mean()", cast) as asked:
        run = sg.init("t")
        run.observe("batch", x=torch.ones(4).to(torch.float8_e4m3fn))
    assert asked.values(cast) == [1.0]
    with pytest.raises(sg.EvaluationError, match=r"float8_e4m3fn\[4\].*x\.astype\('float32'\)"):
        asked.values("batch.x.mean()")
