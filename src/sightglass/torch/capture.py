"""What is computed of tensors at their moment, and handed to the event that follows.

Rule 1: nothing here raises into the program: an error is kept, and raised where the query is evaluated.
Rule 2: no result shares memory with the program, and none holds a graph.
Rule 3: the last moment before the event counts: a module that is called twice is seen as it was the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from sightglass.core.errors import AbsentError
from sightglass.core.values import Value, is_container, rebuild, snapshot
from sightglass.query.limits import Total
from sightglass.training.subscription import Subscription

from .observables import local
from .precompute import IN_PLACE, PrecomputedPart

Place = tuple[str, str]
"""An observable and the name of one of its tensors."""


@dataclass(slots=True)
class Work:
    """One part of a query, and what it gave since the last event.

    Attributes:
        part: What is computed.
        compute: The part as a function of the observables, the tensor's name and the tensor.
        answers: Who wants it.
        names: The tensors it is computed of, in their order.
        found: What came out, by the tensor's name.
        total: What is held by that.
        error: Why it failed, or `None`.
        rests: Whether it is passed over until the next event.
    """

    part: PrecomputedPart
    compute: Callable[..., Any]
    answers: tuple[Subscription, ...]
    names: tuple[str, ...]
    found: dict[str, Any] = field(default_factory=dict)
    total: Total = field(default_factory=Total)
    error: Exception | None = None
    rests: bool = False

    def take(self, observables: Mapping[str, Any], name: str, value: object) -> None:
        """Compute the part of one tensor."""
        if self.part.name is None and not isinstance(value, torch.Tensor):
            return  # of each tensor; a module that returns several is asked by its name
        try:
            result = self.compute(observables, name, value)
            if self.part.copies:
                self.total.add(result)
                self.total.check()
                result = snapshot(result)
            self.found[name] = result
        except Exception as error:  # noqa: BLE001  a query must never hurt the run
            self.error = error

    def hand_over(self) -> Any:
        """Return what came out, and forget it.

        Returns:
            The result of the tensor that was named, or a mapping of results; an exception where there is none.
        """
        found, error = self.found, self.error
        self.found, self.total, self.error = {}, Total(), None
        if error is not None:
            return error
        if not found:
            return AbsentError(f"Nothing came of {self.part.kind} before this event")
        return found[self.names[0]] if self.part.name is not None else {n: found[n] for n in self.names if n in found}


class Brought(dict[str, Any]):
    """The observables of an event, and under the names of parts what came of these."""

    def __init__(self, observables: Mapping[str, Any]) -> None:
        super().__init__(observables)
        self.parts: dict[str, Any] = {}

    def __missing__(self, name: str) -> Any:
        result = self.parts.get(name, self)
        if isinstance(result, Exception):
            raise result
        if result is not self:
            return result
        if isinstance(name, str) and IN_PLACE in name:
            raise AbsentError("The module was not watched before this event")
        raise KeyError(name)


def bare(value: Value) -> Any:
    """Return what a module gave without graphs; of sparse tensors their values, of spread ones this process's piece."""
    if isinstance(value, torch.Tensor):
        value = local(value)
        return value.coalesce().values() if value.layout is torch.sparse_coo else value
    return rebuild(value, bare) if is_container(value) else value


def by_place(works: Iterable[Work]) -> dict[Place, list[Work]]:
    """Sort work by the tensors that it is about."""
    table: dict[Place, list[Work]] = {}
    for work in works:
        for name in work.names:
            table.setdefault((work.part.kind, name), []).append(work)
    return table
