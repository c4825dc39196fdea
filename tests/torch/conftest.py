"""What the tests of PyTorch share: a run, and answers that are opened on it without a client between."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.process.clock import SystemClock
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.run import wiring
from sightglass.training.serving.client_subscriptions import StreamBacklog

# Without PyTorch, which `make test TORCH=` goes without, there is nothing to test here.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True)
def seed() -> None:
    import torch

    torch.manual_seed(0)


if TYPE_CHECKING:
    import torch


class Desk:
    """A run, and the answers that were opened on it."""

    def __init__(self, **options: Any) -> None:
        self.run = sg.init("t", **{"budget": None, **options})
        self.telemetry = wiring(self.run).telemetry
        service = wiring(self.run).service
        assert service is not None
        self._held = service._subscriptions._backlogs
        self._backlogs: dict[int, StreamBacklog] = {}
        self._numbers = itertools.count(1000)

    def ask(self, text: str, *, confirmed: bool = False) -> Subscription:
        """Open an answer to a query: `batch.…`, or all of it."""
        query = parse(text, functions=wiring(self.run).functions)
        evaluation = Evaluation(query, wiring(self.run).functions)
        answer = Subscription(
            next(self._numbers),
            query,
            evaluation,
            clock=SystemClock(),
            defer=self.telemetry.deferred.defer,
        )
        answer.may_compile = confirmed
        self._held[answer.id] = self._backlogs[answer.id] = StreamBacklog()
        self.telemetry.open(answer)
        return answer

    def leave(self, *answers: Subscription) -> None:
        """Stop asking, as a run does when the last client has left."""
        for answer in answers:
            self.telemetry.close_subscription(answer)

    def values(self, answer: Subscription) -> list[Any]:
        """Return what the rows of an answer hold; the `io` thread moves them while it is looked."""
        self.telemetry.flush(10.0)

        def all_of_them() -> list[dict[int, Any]]:  # the next look may miss rows that are on their way
            found = self._values(answer)
            return [found] if len(found) >= answer.rows.n_made else []

        (found,) = wait_until(all_of_them, lambda: self._values(answer))
        return list(found.values())

    def _values(self, answer: Subscription) -> dict[int, Any]:
        waiting = {row[0]: row[3] for row in answer.rows.copy()}
        taken = self._backlogs[answer.id].since(0)
        return dict(zip(taken.numbers.tolist(), taken.values, strict=True)) | waiting

    def one(self, answer: Subscription) -> Any:
        """Return the only row's value."""
        (value,) = self.values(answer)
        return value


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.run.close()


def hooks_of(module: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> int:
    """Count all hooks there are on modules, parameters and optimizers; how PyTorch keeps them is a test's business."""
    from sightglass.torch.calls import WatchedCall

    n_calls = sum(isinstance(m.__dict__.get("_compiled_call_impl"), WatchedCall) for m in module.modules())
    places = [place for m in module.modules() for name, place in vars(m).items() if name.endswith("_hooks")]
    places += [p._post_accumulate_grad_hooks or () for p in module.parameters()]
    places += [p._backward_hooks or () for p in module.parameters()]
    places += [place for o in optimizers for name, place in vars(o).items() if name.endswith("_hooks")]
    return n_calls + sum(map(len, places))


@pytest.fixture
def n_hooks():
    return hooks_of
