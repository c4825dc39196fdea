"""Compute parts of queries on tensors when they exist, and pass the results to the next event.

Rule 1: nothing here raises into the program: an error is stored, and raised where the query is evaluated.
Rule 2: no result shares memory with the program or holds a graph.
Rule 3: the last call before the event counts: of a module that is called twice, the second output and its gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import torch

from sightglass.core.errors import AbsentError, EvaluationError, PriceError, UnreadableError
from sightglass.core.program_values.array_data import plain_array
from sightglass.core.program_values.copier import snapshot
from sightglass.core.program_values.guarded import FAILURES, message, rebuild
from sightglass.core.values import Value
from sightglass.query.functions.containers import ENDS_ALL
from sightglass.query.limits import MAX_RESULT_BYTES, Total
from sightglass.query.meter import MAX_BYTES, NEARLY, Meter
from sightglass.training.evaluation.budget import PATIENCE
from sightglass.training.evaluation.subscription import Subscription

from .calls import ModuleCall, module_name
from .observables import local
from .precompute import IN_PLACE, PrecomputedPart, Statistic

SPARSE: Final = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
READ: Final = (torch.Tensor, Exception)
"""What a part for each tensor reads; an error is raised."""

HAS_GRAPHS: Final = torch.version.cuda is not None or torch.version.hip is not None

Place = tuple[str, str]
"""An observable and the name of one of its tensors."""


@dataclass(slots=True, eq=False)
class Work:
    """One part of a query, and its results since the last event.

    Attributes:
        part: The part.
        compute: The part as a function of the observables, the tensor's name and the tensor.
        meter: What it may take of an event.
        statistic: What it computes of each tensor, if that needs no evaluator.
        subscriptions: The subscriptions that need it.
        names: The names of its tensors, in their order.
        is_answer: Whether its results are what the queries return, so that numbers may leave their library at once.
        found: The results, by the tensor's name.
        odd: Of a part for each tensor, the errors of those that it cannot compute; the others have results.
        calls: The call that each module's results are of, by the module's name: its priority and its order.
        total: The size of the results.
        error: The error that stopped it, or `None`.
        skipped: Whether it is skipped until the next event.
        waits: Whether it is skipped because others take the time of the event.
        reached: Whether one of its tensors was ever seen.
        n_silent: How many events in a row brought none of its tensors.
    """

    part: PrecomputedPart
    compute: Callable[..., Any]
    meter: PartMeter
    statistic: Statistic | None = None
    subscriptions: tuple[Subscription, ...] = ()
    names: tuple[str, ...] = ()
    is_answer: bool = False
    found: dict[str, Any] = field(default_factory=dict)
    odd: dict[str, Exception] = field(default_factory=dict)
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    total: Total = field(default_factory=Total)
    error: Exception | None = None
    skipped: bool = False
    waits: bool = False
    reached: bool = False
    n_silent: int = 0

    def wants(self, name: str, value: object, call: ModuleCall) -> bool:
        """Return whether what a module took or returned in a call counts; if so, results that it replaces go."""
        module, at = module_name(name), call[:2]
        last = self.calls.setdefault(module, at)
        if at > last or (at == last and not isinstance(value, torch.Tensor)):
            self.calls[module] = at
            if name not in self.found or not isinstance(value, torch.Tensor):  # else this result replaces that one
                for path in [path for path in self.found if module_name(path) == module]:
                    del self.found[path]
        return at >= last

    def take(self, observables: Mapping[str, Any], tensors: Sequence[tuple[str, Any]]) -> None:
        """Compute the part for some of its tensors; an error takes the place of a tensor that cannot be read."""
        if self.error is not None or tensors[0][1] is None:
            return
        if self.part.name is None and not isinstance(tensors[0][1], READ):
            tensors = tensors[1:]  # the tensors of a module that returns several come by their own names
        try:
            self._take_all(observables, tensors, self.statistic)
        except ENDS_ALL as error:
            self.error = error
        except FAILURES:
            for tensor in tensors:  # one by one, and by the evaluator, which takes more kinds of them
                self._take_alone(observables, tensor)

    def _take_alone(self, observables: Mapping[str, Any], tensor: tuple[str, Any]) -> None:
        try:
            self._take_all(observables, [tensor], None)
        except FAILURES as error:
            is_odd = self.part.name is None and not isinstance(error, ENDS_ALL)
            if is_odd and self.total.n_bytes <= MAX_RESULT_BYTES:
                self.odd[tensor[0]] = as_error(error)
            else:
                self.error = as_error(error)

    def _take_all(
        self, observables: Mapping[str, Any], tensors: Sequence[tuple[str, Any]], statistic: Statistic | None
    ) -> None:
        values = [local(value) if isinstance(value, torch.Tensor) else bare(value) for _, value in tensors]
        start = 0
        while start < len(values):
            n = 0 if statistic is None else statistic.n_taken(values, start)
            names = [name for name, _ in tensors[start : start + max(1, n)]]
            if n:
                self._compute(names, values[start : start + n], is_first=not start)
            else:
                with torch.no_grad():
                    self._evaluate(observables, names[0], values[start])
            start += len(names)

    def _compute(self, names: Iterable[str], values: Sequence[torch.Tensor], *, is_first: bool) -> None:
        (self.meter.look if is_first else self.meter.check)(self.part.kind)
        assert self.statistic is not None
        found = self.statistic.numbers(values) if self.is_answer else self.statistic.of_each(values)
        self.found.update(zip(names, found, strict=True))

    def _evaluate(self, observables: Mapping[str, Any], name: str, value: object) -> None:
        if isinstance(value, Exception):
            raise value
        self.meter.check(self.part.kind)
        if isinstance(value, torch.Tensor):
            if value.layout in SPARSE:
                skips_zeros = self.statistic is not None and self.statistic.skips_zeros
                value = _stored(value) if skips_zeros else _dense(value, name)
            value = plain_array(value, "torch")
        result = self.compute(observables, name, value)
        if self.part.copies:
            n_bytes = self.total.n_bytes
            self.total.add(result)
            self.total.check()
            self.meter.copies(self.total.n_bytes - n_bytes)
            result = snapshot(result)
        self.found[name] = result

    def hand_over(self) -> Any:
        """Return the results and clear them.

        Returns:
            The result of the named tensor, or a mapping of the results by name; an exception without one.
        """
        found, error = self.found, self.error
        if self.odd and not found:
            error = error or next(iter(self.odd.values()))
        self.found, self.odd, self.calls, self.total, self.error = {}, {}, {}, Total(), None
        if self.meter.wall_s:
            part = len(self.subscriptions)
            for subscription in self.subscriptions:
                subscription.cost.ahead(self.meter.spent_s / part, self.meter.wall_s / part)
        self.meter.restart()
        self.n_silent = self.n_silent if self.skipped else 0 if found or error else self.n_silent + 1
        if self.waits:
            return PriceError("Other queries took the time of this event", seconds=self.meter.cost_s)
        if error is not None:
            return error
        if not found:
            return AbsentError(f"No {self.part.kind} before this event")
        if self.part.name is not None:
            return found[self.names[0]]
        if (*found,) == self.names:
            return found
        order = {name: i for i, name in enumerate(self.names)}
        for name in found.keys() - order.keys():
            order[name] = order.get(module_name(name), 0)
        return {name: found[name] for name in sorted(found, key=order.__getitem__)}


class CapturedObservables(dict[str, Any]):
    """The observables of an event, and the results of parts under their keys."""

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
    """Return a module's output without graphs; of distributed tensors the local shard."""
    return local(value) if isinstance(value, torch.Tensor) else rebuild(value, bare)


def _dense(value: torch.Tensor, name: str) -> torch.Tensor:
    """Return a sparse tensor, such as the gradient of `nn.Embedding(…, sparse=True)`, as a dense one.

    Raises:
        UnreadableError: That takes too much memory.
    """
    n_bytes = value.numel() * value.itemsize
    if n_bytes > MAX_RESULT_BYTES:
        raise UnreadableError(
            f"Expected a sparse tensor of at most {MAX_RESULT_BYTES >> 20} MiB as a dense one, got "
            f"{n_bytes / 2**20:.0f} MiB at {name!r}. Ask for its norm() or sum(), which read only what is stored"
        )
    return value.to_dense()


def _stored(value: torch.Tensor) -> torch.Tensor:
    """Return what a sparse tensor stores, each item once: all of its items that are not zero."""
    return value.coalesce().values() if value.layout is torch.sparse_coo else value.values()  # type: ignore[no-untyped-call,unused-ignore]


def is_recorded() -> bool:
    """Return whether what PyTorch computes now becomes part of a program: of `torch.jit.trace`, or of a CUDA graph."""
    if torch.jit.is_tracing():
        return True
    return HAS_GRAPHS and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def as_error(failure: BaseException) -> Exception:
    """Return what a query's error is: `SystemExit` of the program's own functions does not end the program here."""
    return failure if isinstance(failure, Exception) else EvaluationError(message(failure))


def by_place(works: Iterable[Work]) -> dict[Place, list[Work]]:
    """Return work by the tensors that it is computed on."""
    table: dict[Place, list[Work]] = {}
    for work in works:
        for name in work.names:
            table.setdefault((work.part.kind, name), []).append(work)
    for (kind, name), several in table.items():
        several += [one for one in _each_of(table, kind, name) if one not in several]
    return table


def works_at(table: Mapping[Place, list[Work]], kind: str, name: str) -> Sequence[Work]:
    """Return the work on a tensor: what `by_place` lists, else, if its module has several, what reads each tensor."""
    return table.get((kind, name)) or _each_of(table, kind, name)


def with_works(
    table: Mapping[Place, list[Work]], kind: str, named: Iterable[tuple[str, Any]]
) -> Iterable[tuple[Sequence[Work], Iterable[tuple[str, Any]]]]:
    """Return tensors with the work on them; tensors in a row that have the same work together."""
    if type(named) is list and len(named) == 1:  # what most modules return
        return ((works_at(table, kind, named[0][0]), named),)
    return groupby(named, lambda tensor: works_at(table, kind, tensor[0]))


def _each_of(table: Mapping[Place, list[Work]], kind: str, name: str) -> list[Work]:
    module = module_name(name)
    return [] if module == name else [work for work in table.get((kind, module), ()) if work.part.name is None]


# What the parts of queries may take of an event: each at most the limit, and all of them together, by turns.
#
# A part is computed tensor by tensor, while the program works in between. So its clock runs only while it is computed.

NEVER: Final = math.inf
FORGET: Final = 0.98  # for each event that a part waits: one that became cheap is found within some tens of events


class PartMeter(Meter):
    """The limit of one part between two events.

    Attributes:
        spent_s: The seconds of the program's threads that it took since the last event.
        wall_s: The seconds that passed meanwhile.
        copy_s: The price of what is done before it is computed.
        cost_s: What it usually takes: the smaller of the last two figures, since the first one may load a library.
        n_waited: How many events in a row it was not computed because others took the time.
    """

    __slots__ = ("_last_s", "_resumed_s", "copy_s", "cost_s", "n_waited", "spent_s", "wall_s")

    def __init__(self) -> None:
        super().__init__(max_bytes=MAX_BYTES, cpu_s=self._elapsed_s)
        self.spent_s = self.wall_s = self.cost_s = self.copy_s = self._last_s = 0.0
        self.n_waited = 0
        self._resumed_s = NEVER

    def _elapsed_s(self) -> float:
        if self._resumed_s == NEVER:
            return self.spent_s
        return self.spent_s + max(0.0, time.thread_time() - self._resumed_s)

    def resume(self, cpu_s: float) -> None:
        """Count the work of this thread, which has run for `cpu_s`."""
        self._resumed_s = cpu_s

    def pause(self, cpu_s: float, passed_s: float) -> None:
        """Stop to count; `passed_s` have passed since `resume`."""
        self.spent_s += cpu_s - self._resumed_s
        self.wall_s += passed_s
        self._resumed_s = NEVER

    def look(self, what: str) -> None:
        """Check the limit as `check` does, right after `resume`: the clock, which takes a microsecond, was read there.

        Raises:
            PriceError: The part has taken more than its limit.
        """
        if self.spent_s > NEARLY * self.limit_s:
            self.check(what)

    def restart(self) -> None:
        """Count for the next event."""
        if self.spent_s:
            self.cost_s, self._last_s = min(self.spent_s, self._last_s), self.spent_s
        self.spent_s = self.wall_s = 0.0
        self.begin()
        self.clock()


def fitting(meters: list[PartMeter], limit_s: float) -> list[bool]:
    """Return which parts are computed for the next event: the cheapest, and first those that have waited for long."""
    if sum(meter.cost_s for meter in meters) <= limit_s:
        return [True] * len(meters)
    fits = [False] * len(meters)
    for i in sorted(range(len(meters)), key=lambda i: (meters[i].n_waited < PATIENCE, meters[i].cost_s)):
        fits[i] = meters[i].limit_s == math.inf or meters[i].cost_s <= limit_s
        limit_s -= meters[i].cost_s if fits[i] else 0.0
        if fits[i]:
            meters[i].n_waited = 0
        else:
            meters[i].n_waited += 1
            meters[i].cost_s *= FORGET
    return fits
