"""Sparse tensors: a query gets the numbers of the whole tensor, of which zeros are a part, or is refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sightglass.torch as sgt

WHOLE = {
    "norm({})": lambda g: g.norm(), "sum({})": lambda g: g.sum(), "mean({})": lambda g: g.mean(),
    "min({})": lambda g: g.min(), "mean(abs({}))": lambda g: g.abs().mean(), "norm(abs({}))": lambda g: g.norm(),
    "({} == 0).mean()": lambda g: (g == 0).float().mean(), "{}.shape": lambda g: g.shape, "{}[0]": lambda g: g[0],
    "histogram({}, 4).counts.sum()": lambda g: g.numel(), "{}": lambda g: g,
}  # fmt: skip


class Constant(nn.Module):
    """A module that returns a tensor."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value


def test_gradients_of_an_embedding(desk):
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sgt.watch(model, desk.run, optimizer=optimizer)
    place = "batch.grads['0.weight']"
    flows = {text: desk.ask(text.format(place)) for text in WHOLE}
    norms = desk.ask("batch.grads.map(lambda name, g: norm(g))")
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([[3, 7, 3], [7, 3, 9]])).square().mean().backward()
        optimizer.step()
        desk.run.observe("batch")
    grad = model[0].weight.grad.to_dense()
    for text, wanted in WHOLE.items():
        torch.testing.assert_close(
            torch.as_tensor(desk.one(flows[text])), torch.as_tensor(wanted(grad)), check_dtype=False
        )
    assert desk.one(norms)["0.weight"] == pytest.approx(grad.norm().item())


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch calls some layouts a prototype
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
def test_what_a_module_returns(desk, layout):
    whole = torch.tensor([[0.0, 3.0], [0.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
    value = whole.to_sparse_bsr((2, 2)) if layout == "bsr" else getattr(whole, f"to_sparse_{layout}")()
    model = nn.Sequential(Constant(value))
    sgt.watch(model, desk.run)
    norm, mean = desk.ask("batch.activations['0'].norm()"), desk.ask("batch.activations['0'].mean()")
    for _ in range(2):
        model(whole)
        desk.run.observe("batch")
    assert (desk.one(norm), desk.one(mean)) == (5.0, 0.875)


def test_of_one_that_is_too_large_only_what_is_stored_is_read(desk):
    value = torch.sparse_coo_tensor([[1, 1], [2, 2]], [1.0, 2.0], (10**5, 10**4), check_invariants=True)
    model = nn.Sequential(Constant(value))
    sgt.watch(model, desk.run)
    norm, mean = desk.ask("batch.activations['0'].norm()"), desk.ask("batch.activations.map(lambda name, x: mean(x))")
    for _ in range(5):
        model(torch.zeros(1))
        desk.run.observe("batch")
    assert desk.values(norm) == [3.0] * 4
    assert "3815 MiB at '0'" in str(mean.last_error)
