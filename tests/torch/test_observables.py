"""Names of parameters: those of PyTorch, in its order, without what wrappers add."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sightglass.torch.observables import inner, parameters

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, by PyTorch itself


def test_parameters_are_those_of_pytorch_in_its_order():
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    model = nn.ModuleDict({"a": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), "b": nn.Linear(8, 8)})
    model["tied"] = nn.Linear(8, 8)
    model["tied"].weight = model["b"].weight
    model["scripted"] = torch.jit.trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.zeros(1, 8))
    model["b"].register_parameter("absent", None)
    model["nothing"] = nn.Identity()
    model["nothing"].register_module("absent", None)
    nn.utils.parametrizations.weight_norm(model["tied"], "weight")
    wanted = dict(model.named_parameters(remove_duplicate=False))
    found = parameters(model)
    assert list(found) == list(wanted)
    assert all(found[name] is wanted[name] for name in wanted)


def test_names_are_those_of_the_module_inside_wrappers():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    wanted = list(parameters(model))
    assert list(parameters(inner(torch.compile(model)))) == wanted
    model[0] = torch.compile(model[0])
    assert list(parameters(model)) == wanted
