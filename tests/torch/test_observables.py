"""Names of parameters: those of PyTorch, in its order, without what wrappers add."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sightglass.core.errors import RefusedQueryError
from sightglass.core.program_values import guarded
from sightglass.core.program_values.copier import data_of
from sightglass.torch.observables import KnownParameters, inner, local, optimizers_view, parameters

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


def test_optimizers_are_read_whenever_the_machine_has_a_processor_for_it(monkeypatch):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    view = {"optimizer": optimizers_view([optimizer], model), "other": SimpleNamespace(n=1)}
    ticks = itertools.count()
    monkeypatch.setattr(guarded, "monotonic", lambda: float(next(ticks)))  # the process hardly ever has one
    read = data_of(view, "b")
    assert read["optimizer"]["state"]["weight"]["step"].item() == 1
    assert read["other"] == {"n": 1}


def test_names_are_those_of_the_module_inside_wrappers():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    wanted = list(parameters(model))
    assert list(parameters(inner(torch.compile(model)))) == wanted
    model[0] = torch.compile(model[0])
    assert list(parameters(model)) == wanted


def test_known_parameters_follow_the_module():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2)), nn.Identity())
    known = KnownParameters(model)

    def is_right():
        wanted = dict(model.named_parameters(remove_duplicate=False))
        found = known.named()
        return list(found) == list(wanted) and all(found[name] is wanted[name] for name in wanted)

    assert is_right()
    assert known.named() is known.named()
    model[1][0] = nn.Linear(4, 3)  # another head
    assert is_right()
    model[0].bias = None
    assert is_right()
    model[0].weight = nn.Parameter(torch.zeros(4, 4))
    assert is_right()
    model[2].extra = nn.Linear(1, 1)
    assert is_right()
    del model[1]
    assert is_right()


def test_known_parameters_of_lazy_and_scripted_modules():
    model = nn.Sequential(nn.LazyLinear(3), torch.jit.trace(nn.Linear(3, 3), torch.zeros(1, 3)))
    known = KnownParameters(model)
    assert list(known.named()) == ["1.weight", "1.bias"]
    model(torch.zeros(1, 2))
    assert list(known.named()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_memory_that_is_freed_is_refused():
    weight = nn.Parameter(torch.ones(4))
    assert local(weight).sum() == 4
    weight.untyped_storage().resize_(0)
    with pytest.raises(RefusedQueryError, match="freed"):
        local(weight)
    assert local(torch.ones(0)).numel() == 0
