"""Queries on DTensor: each process computes with its own piece, and waits for no other one."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from sightglass.query.evaluator import evaluator
from sightglass.query.parser import as_query
from sightglass.query.stages import Map
from sightglass.torch.observables import local


@pytest.fixture
def mesh():
    """One process of four, whose collectives come back at once with anything."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield DeviceMesh("cpu", torch.arange(4))
    torch.distributed.destroy_process_group()


def evaluate(query, **observables):
    (stage,) = as_query(query).stages
    assert isinstance(stage, Map)
    return evaluator(stage.fn, event="batch")(observables)


def test_a_query_computes_with_the_piece_of_its_process(mesh):
    piece = torch.arange(6.0).reshape(2, 3)
    spread = DTensor.from_local(piece.clone().requires_grad_(), mesh, [Shard(0)])
    assert spread.shape == (8, 3)
    assert evaluate("batch.w.shape", w=spread) == (2, 3)
    assert float(evaluate("batch.w.norm()", w=spread)) == pytest.approx(math.sqrt(55))
    assert float(evaluate("(abs(batch.w) + 1).max()", w=spread)) == 6.0
    for query in ("batch.w", "batch.w[0]"):
        found = evaluate(query, w=spread)
        assert type(found) is torch.Tensor
        assert not found.requires_grad
        torch.testing.assert_close(found, piece if query == "batch.w" else piece[0])
    assert evaluate("batch.w.histogram(4)", w=spread).counts.sum() == 6
    torch.testing.assert_close(local(spread), piece)
