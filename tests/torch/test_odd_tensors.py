"""Odd tensors among usual ones: they are answered, or refused in words, and end no question about the others."""

from __future__ import annotations

import pytest
import torch
from tests.waiting import wait_until
from torch import nn

import sightglass as sg
import sightglass.torch as sgt

ODD = {
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(4, 3), 0.1, 0, torch.qint8),
    "jagged": lambda: torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)]),
    "meta": lambda: torch.empty(3, 3, device="meta"),
    "text": lambda: "no tensor",
}
REASONS = {"quantized": "a quantized one", "jagged": "a nested one", "nested": "a nested one", "meta": "device 'meta'"}
REAL = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
VIEWS = {
    "negative": (lambda: torch._neg_view(-REAL), REAL),
    "imaginary": (lambda: torch.complex(REAL, -REAL).conj().imag, REAL),
    "conjugate": (lambda: torch.complex(REAL, -REAL).conj(), torch.complex(REAL, REAL)),
}
PLACE = "b.activations['odd']"
ASKED = ("{}.norm()", "{}.mean()", "abs({}).max()", "{}.histogram(4)", "{}.shape", "{}")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*nested tensors"),  # PyTorch calls them a prototype
    pytest.mark.filterwarnings("ignore:.*[Qq]uant"),
]


class Returns(nn.Module):
    """A module that returns what a function makes."""

    def __init__(self, make) -> None:
        super().__init__()
        self.make = make

    def forward(self):
        return self.make()


def run(desk, model, n=2):
    for _ in range(n):
        for child in model.values():
            child()
        desk.run.observe("batch")


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("asked", ASKED)
def test_a_map_goes_on_without_it(desk, kind, asked):
    model = nn.ModuleDict({"first": Returns(lambda: REAL), "odd": Returns(ODD[kind]), "last": Returns(lambda: REAL)})
    sgt.watch(model, desk.run)
    each = desk.ask(f"batch.activations.map(lambda a: {asked.format('a')})")
    alone = desk.ask(f"on('batch').map(lambda b: {asked.format(PLACE)})")
    run(desk, model)
    assert each.last_error is None
    assert {*desk.one(each)} - {"odd"} == {"first", "last"}
    if kind in REASONS:
        assert "odd" not in desk.one(each)
        assert REASONS[kind] in each.left_out["odd"]
        assert REASONS[kind] in str(alone.last_error)


@pytest.mark.parametrize("kind", VIEWS)
def test_views_that_numpy_cannot_read_are_answered(desk, kind):
    make, whole = VIEWS[kind]
    model = nn.ModuleDict({"view": Returns(make), "plain": Returns(whole.clone)})
    sgt.watch(model, desk.run)
    several = [desk.ask(f"batch.activations.map(lambda a: {text.format('a')})") for text in ASKED if "hist" not in text]
    counts = desk.ask("batch.activations.map(lambda a: a.histogram(4).counts)")
    run(desk, model)
    for answer in several:
        found = desk.one(answer)
        torch.testing.assert_close(torch.as_tensor(found["view"]), torch.as_tensor(found["plain"]))
    if kind == "conjugate":
        assert "real numbers" in str(counts.last_error)
    else:
        assert [*desk.one(counts)["view"]] == [*desk.one(counts)["plain"]]


def test_a_map_fails_where_no_tensor_can_be_computed(desk):
    model = nn.ModuleDict({"a": Returns(ODD["quantized"]), "b": Returns(ODD["quantized"])})
    sgt.watch(model, desk.run)
    each = desk.ask("batch.activations.map(lambda a: a.mean())")
    run(desk, model)
    assert "a quantized one" in str(each.last_error)


def test_parameters_and_mappings_of_the_program(desk):
    model = nn.Linear(2, 2)
    model.odd = nn.Parameter(torch.empty(2, device="meta"))
    sgt.watch(model, desk.run)
    params = desk.ask("batch.params.map(lambda p: p.norm())")
    several = desk.ask("batch.all.map(lambda x: x.mean())")
    kept = desk.ask("batch.all.filter(lambda x: x.mean() > 0).keys()")
    listed = desk.ask("batch.list.map(lambda x: x.mean())")
    values = {"number": REAL, "odd": ODD["quantized"](), "text": "no number"}
    desk.run.observe("batch", all=values, list=[*values.values()])
    assert {*desk.one(params)} == {"weight", "bias"}
    assert {*params.left_out} == {"odd"}
    assert {**desk.one(several)} == {"number": REAL.mean()}
    assert {*several.left_out} == {"odd", "text"}
    assert desk.one(kept) == ["number"]
    assert "a quantized one" in str(listed.last_error)  # the items of a list have no names


def test_the_note_of_a_stream_names_it_until_it_is_gone(desk):
    model = nn.ModuleDict({"usual": Returns(lambda: REAL), "odd": Returns(ODD["quantized"])})
    sgt.watch(model, desk.run)
    with sg.connect(desk.run) as client:
        stream = client.stream("batch.activations.map(lambda a: a.mean())")
        wait_until(lambda: "'odd'" in stream.note, lambda: stream.note, pause=lambda: run(desk, model, 1))
        assert "a quantized one" in stream.note
        model["odd"].make = lambda: REAL
        wait_until(lambda: stream.note == "", lambda: stream.note, pause=lambda: run(desk, model, 1))
