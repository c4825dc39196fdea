"""Queries on DTensor: each process computes with its own piece, and waits for no other one."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import sightglass as sg
import sightglass.torch as sgt
from sightglass.core.errors import QueryError, UnreadableError
from sightglass.core.program_values.copier import snapshot
from sightglass.query.evaluation import Evaluation
from sightglass.query.evaluator import evaluator
from sightglass.query.parser import as_query
from sightglass.query.pieces import over_pieces
from sightglass.query.stages import Map
from sightglass.torch.observables import local
from sightglass.training.evaluation.aside import Aside, AsideEvaluation
from sightglass.training.run import wiring

if not hasattr(pytest.importorskip("torch.distributed.tensor"), "DTensor"):
    pytest.skip("DTensor is public since PyTorch 2.5", allow_module_level=True)
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


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


@pytest.fixture
def process_of():
    """Return a function that makes this process one of several, whose collectives do nothing, and gives their mesh."""

    def begin(rank, *shape):
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        n = math.prod(shape)
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=n)
        return DeviceMesh("cpu", torch.arange(n).reshape(shape))

    yield begin
    torch.distributed.destroy_process_group()


def test_each_item_counts_once_in_whatever_way_a_tensor_is_spread(process_of):
    whole = torch.arange(24.0).reshape(6, 4)
    layouts = {
        "sharded": ((4,), [Shard(0)], lambda rank: torch.tensor_split(whole, [2, 4, 6])[rank]),
        "copied": ((4,), [Replicate()], lambda rank: whole),
        "both": ((2, 2), [Replicate(), Shard(1)], lambda rank: whole[:, 2 * (rank % 2) : 2 * (rank % 2) + 2]),
    }
    for shape, placements, piece_of in layouts.values():
        pieces = []
        for rank in range(4):
            mesh = process_of(rank, *shape)
            spread = DTensor.from_local(piece_of(rank), mesh, placements, run_check=False)
            pieces.append(evaluate("pieces(batch.w)", w=spread))
        assert sorted(torch.cat(pieces).tolist()) == whole.ravel().tolist()


def test_a_term_of_a_sum_is_not_a_piece(process_of):
    term = DTensor.from_local(torch.ones(3), process_of(0, 2), [Partial()], run_check=False)
    assert float(evaluate("batch.w.sum()", w=term)) == 3.0
    with pytest.raises(UnreadableError, match="one term"):
        evaluate("pieces(batch.w)", w=term)


def test_a_copy_of_a_piece_counts_as_the_piece_does(process_of):
    mesh = process_of(1, 2)
    copy = DTensor.from_local(torch.ones(6), mesh, [Replicate()], run_check=False)
    piece = DTensor.from_local(torch.ones(6), mesh, [Shard(0)])
    for observables, n in (({"w": copy}, 0), ({"w": piece}, 6)):
        assert evaluate("pieces(batch.w).size", w=snapshot(observables["w"])) == n
        assert _sizes_aside("pieces(batch.w).size", observables) == [n]


def _sizes_aside(query, observables):
    """Return what an evaluation off the training thread finds in a copy of an event."""
    evaluation, found = Evaluation(as_query(query), {}), []

    def defer(wait, settle):
        wait()
        settle(None)

    aside = AsideEvaluation(evaluation, Aside(defer), copy_s=0.0, limit_s=60.0)
    assert aside.post(evaluation, observables, lambda head, taken_s, error: found.append(head.value))
    return found


@pytest.mark.parametrize("query", [
    "on('batch').map(lambda b: pieces(b.w[0]).sum())", "on('batch').map(lambda b: pieces(b.w).std())",
    "on('batch').map(lambda b: pieces(b.w)).mean(every=1)", "on('batch').map(lambda b: pieces(b.w).norm()).max()",
    "on('batch').map(lambda b: b.w.map(lambda n, w: pieces(w).max()))", "on('batch').map(lambda b: pieces(b.w))",
    "on('batch').where(lambda b: pieces(b.w).sum() > 1).map(lambda b: b.loss)",
    "on('batch').map(lambda b: (pieces(b.w) - pieces(b.v)).norm())",
])  # fmt: skip
def test_what_cannot_be_made_of_pieces_is_refused(query):
    with pytest.raises(QueryError, match=r"pieces\(x\)"):
        over_pieces(as_query(query))


def test_initial_values_are_those_of_the_own_piece(mesh):
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(DTensor.from_local(torch.full((2, 2), 3.0), mesh, [Shard(0)]))
    with sg.init("t") as run:
        sgt.watch(module, run)
        kept = wiring(run).telemetry.subscriptions.sources["initial"].snapshot
    assert kept is not None
    assert kept[3]["norms"]["w"] == 6.0
    assert kept[3]["histograms"]["w"].counts.sum() == 4
