"""Values on their way to the host, over a lane of this test's: no accelerator is needed."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

from sightglass.core.program_values import copier
from sightglass.core.values import DeviceHistogram, PendingCopy, on_device, to_host
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse


class Slow:
    """A lane whose copies are made when somebody waits for them."""

    def __init__(self):
        self.waiting, self.n_copies, self.inside = [], 0, False

    @contextlib.contextmanager
    def copying(self):
        self.inside = True
        yield
        self.inside = False

    def copy(self, tensor):
        assert self.inside
        host = torch.full_like(tensor, -1)
        self.waiting.append((host, tensor))
        self.n_copies += 1
        return host

    def mark(self):
        return self

    def synchronize(self):
        for host, tensor in self.waiting:
            host.copy_(tensor)
        self.waiting = []


@pytest.fixture
def lane(monkeypatch):
    lane = Slow()
    pick = lambda tensor: lane if isinstance(tensor, torch.Tensor) else None  # noqa: E731
    monkeypatch.setattr(copier, "copy_stream_of", pick)
    return lane


def test_a_copy_arrives_when_it_is_read(lane):
    value = {
        "norms": {f"layer{i}": torch.tensor(float(i)) for i in range(50)},
        "large": torch.arange(10_000.0).reshape(100, 100).T,
        "counts": (torch.tensor([1, 2]), "text", 3),
        "half": torch.tensor([[0.5]], dtype=torch.bfloat16),
        "none": torch.zeros((0, 3)),
    }
    gone = copier.start_copy(value)
    assert on_device(gone)
    assert isinstance(gone["norms"]["layer7"], PendingCopy)
    assert lane.n_copies == 4  # the small ones of each dtype together, and the large one
    assert lane.waiting
    arrived, wanted = to_host(gone), to_host(value)
    assert arrived["norms"] == wanted["norms"]
    for name in ("large", "half", "none"):
        assert np.array_equal(arrived[name], wanted[name])
        assert arrived[name].shape == wanted[name].shape
    assert (arrived["counts"][0].tolist(), arrived["counts"][1:]) == ([1, 2], ("text", 3))


def test_a_histogram_departs_in_its_parts(lane):
    edges = torch.tensor([0.0, 1.0, 2.0])
    one = torch.tensor(0)
    gone = copier.start_copy(
        DeviceHistogram(
            below=torch.tensor([0, 1, 3]), edges=edges, n_finite=one + 3, n_nan=one, n_posinf=one, n_neginf=one
        )
    )
    assert to_host(gone).counts.tolist() == [1, 2]


def test_one_tensor_at_two_places(lane):
    x = torch.tensor([1.0, 2.0])
    first, second = to_host(copier.start_copy((x, x)))
    assert first.tolist() == second.tolist() == [1.0, 2.0]


def test_values_on_the_host_stay():
    value = {"x": torch.ones(3), "y": np.ones(2), "z": 1.0}
    assert copier.start_copy(value) is value


def test_a_query_departs_before_it_is_waited_for(lane, monkeypatch):
    monkeypatch.setattr("sightglass.query.evaluation.on_device", lambda value: not isinstance(value, dict))
    head = Evaluation(parse("on('batch').map(lambda b: b.x * 2)")).per_event({"x": torch.tensor([1.0, 2.0])})
    assert isinstance(head.value, PendingCopy)
    head.read()
    assert head.value.tolist() == [2.0, 4.0]
