"""A watched module: its observables, the queries about them, and its hooks.

Theory of operation:

1. While no query reads its tensors, a watched module is unchanged: no hook, no copy, no work at an event.
2. `precompute` finds the tensors that queries read. At the next event hooks are set on the modules of these tensors, or
   on the optimizer; they are removed at the next event after the last query ends, or when the run ends.
3. The hook computes what a query does with its tensor, on the tensor's device, without a graph. It never waits: the
   run's drain thread reads values from the device.
4. Parameters and the optimizer's state are read at the event itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from sightglass.core.errors import RefusedError, UnknownNameError
from sightglass.core.values import type_name
from sightglass.query.query import Query
from sightglass.training.compiled import VariantPlan
from sightglass.training.controls import BoundControl
from sightglass.training.run import Run, wiring
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import ObservableFacts

from .capture import CapturedObservables, Work, bare, by_place
from .compiled import Compiled
from .distributed import rank
from .hooks import ACTIVATION_GRADS, ACTIVATIONS, OF_MODULES, Hooks
from .observables import (
    LazyMapping,
    Parameters,
    held_parameters,
    inner,
    is_compiled,
    modules,
    optimizers_view,
    parameters,
)
from .optimizer_controls import Bounds, controls
from .optimizer_steps import GRADS, UPDATES
from .precompute import Offers, PrecomputedPart, gives_new, split

NO_PLAN: Final = VariantPlan()
RECOMPILED: Final = (
    "Activations are not available: the module is compiled and would have to be compiled again, "
    "which watch(…, recompile=False) forbids"
)
BACKWARD: Final = (
    "Gradients of activations are not available: the module is compiled, and its backward pass runs no hooks. "
    "Query gradients of parameters, or run the module without torch.compile"
)
SILENT: Final = "Activations are not available: the module is not called, or was compiled before it had hooks"
PATIENCE: Final = 2
"""The number of events without a call of a hook after which the module is taken to be compiled. At the first one, hooks
may have been set after the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A split query: its parts, and the query that is evaluated at the event."""

    query: Query
    parts: tuple[tuple[PrecomputedPart, Callable[..., Any]], ...]
    is_new: bool


class Watched:
    """A module whose tensors are observables of a run. Made by `watch`.

    Attributes:
        event: The event that its observables belong to.
        wants_event: Whether queries changed, so that hooks change at the next event.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        run: Run,
        *,
        event: str,
        optimizers: Sequence[torch.optim.Optimizer],
        name: str,
        recompile: bool,
        bounds: Bounds,
        where: str,
    ) -> None:
        self.event = event
        self.wants_event = False
        self.name = name
        self._telemetry = wiring(run).telemetry
        self._lock = self._telemetry.lock.mutex
        self._recompile = recompile
        self._compiled = Compiled(is_sure=any(map(is_compiled, module.modules())))
        self._module = weakref.ref(inner(module))
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._hooks: Hooks | None = None
        settled = {"params", "rank", *(("optimizer",) if optimizers else ())}
        timed = {*OF_MODULES, GRADS, *((UPDATES,) if optimizers else ())}
        self._offers = Offers(timed=frozenset(timed), settled=frozenset(settled), under=name)
        self._prepared: dict[str, Prepared] = {}
        self._split: set[int] = set()
        self._wanted = False
        self._works: list[Work] = []
        self._by_place: dict[tuple[str, str], list[Work]] = {}
        self._rank = rank()
        self._observables = self._settled()
        self._hook_called = False
        self._n_silent = 0
        self._controls: list[str] = []
        self._closed = False
        made = [*controls(optimizers, prefix=self._prefix, bounds=bounds, where=where)]
        with self._telemetry.lock.turn():
            self._attach(made)

    def _attach(self, made: Iterable[BoundControl]) -> None:
        """Replace an earlier watch of this name, and register the observables and controls."""
        telemetry = self._telemetry
        source = telemetry.subscriptions.source(self.event)
        for other in source.providers:
            if isinstance(other, Watched) and other.name == self.name:
                other.close()
        for control in made:
            if control.name in telemetry.commands.queue.controls:
                taken = telemetry.commands.queue.controls[control.name]
                raise ValueError(
                    f"Expected an unused name for a control, {control.name!r} is declared in {taken.where}"
                )
        for control in made:
            telemetry.commands.queue.controls[control.name] = control
            self._controls.append(control.name)
        source.providers = (*source.providers, self)
        source.describe_next = True
        self._source = source
        telemetry.steps.add(self)
        self.subscriptions_changed()
        telemetry.subscriptions.refresh()

    @property
    def _prefix(self) -> str:
        return f"{self.name}." if self.name else ""

    @property
    def n_hooks(self) -> int:
        """The number of hooks on the module and its optimizers."""
        return 0 if self._hooks is None else self._hooks.n_hooks

    # For the run

    def survey(self) -> bool:
        """Return that the observables are known."""
        return True

    def subscriptions_changed(self) -> None:
        """Take note that subscriptions changed: hooks change at the next event."""
        self.wants_event = self._wanted or any(self._reads(subscription) for subscription in self._source.subscriptions)
        self._telemetry.subscriptions.refresh()

    def propose(self) -> VariantPlan:
        """Return no plan: each process reads its own tensors and waits for no other process."""
        return NO_PLAN

    def adopt(self, plan: VariantPlan) -> None:
        """Do nothing: `propose` returns an empty plan."""

    def flush(self, timeout_s: float) -> None:
        """Do nothing: results are computed when their tensors exist."""

    def close(self) -> None:
        """Remove the hooks, observables and controls. Calling it again does nothing."""
        with self._telemetry.lock.turn():
            if self._closed:
                return
            self._closed = True
            self._remove_hooks()
            self.wants_event = False
            for name in self._controls:
                self._telemetry.commands.queue.controls.pop(name, None)
            source = self._source
            source.providers = tuple(other for other in source.providers if other is not self)
            self._telemetry.steps.remove(self)
            self._telemetry.subscriptions.refresh()

    # For the event

    def describe(self) -> dict[str, ObservableFacts]:
        """Return the types of the module's observables; computes nothing."""
        module = self._module()
        named = {name: type_name(p) for name, p in parameters(module).items()}
        inside = {
            "params": named,
            GRADS: {name: named[name] for name, p in parameters(module).items() if p.requires_grad},
            ACTIVATIONS: {name: type(child).__name__ for name, child in modules(module).items() if name},
            "rank": {},
        }
        inside[ACTIVATION_GRADS] = inside[ACTIVATIONS]
        if any(optimizer() for optimizer in self._optimizers):
            held = held_parameters(self._live_optimizers(), module)
            inside[UPDATES] = {name: type_ for name, type_ in inside[GRADS].items() if name in held}
            view = optimizers_view([optimizer() for optimizer in self._optimizers], module)
            inside["optimizer"] = {key: type_name(value) for key, value in view.items()}
        types = {"rank": "int"}
        facts = {
            kind: ObservableFacts(types.get(kind, f"mapping of {len(fields)}"), fields=fields)
            for kind, fields in inside.items()
        }
        if not self.name:
            return facts
        fields = {kind: one.type for kind, one in facts.items()}
        fields |= {f"{kind}.{path}": type_ for kind, one in facts.items() for path, type_ in one.fields.items()}
        return {self.name: ObservableFacts(f"mapping of {len(facts)}", fields=fields)}

    def provide(self, index: int, observables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the module's observables to an event that somebody asks for, and what was computed ahead of it."""
        if self.wants_event:
            self._renew()
        if not self._wanted:
            return observables
        captured = observables if isinstance(observables, CapturedObservables) else CapturedObservables(observables)
        self._observables = self._settled()
        for name, value in self._observables.items():
            captured.setdefault(name, value)
        self._check_hooks_are_called()
        for work in self._works:
            captured.parts[work.part.key] = work.hand_over()
            work.skipped = all(
                subscription.stride > 1 and (index + 1) % subscription.stride for subscription in work.subscriptions
            )
        return captured

    def take(self, kind: str, name: str, value: object) -> None:
        """Compute the parts on a tensor; called by the hooks, on any thread."""
        self.take_all(kind, ((name, value),))

    def take_all(self, kind: str, named: Iterable[tuple[str, Any]]) -> None:
        """Compute the parts on several tensors of one kind; called by the hooks, on any thread."""
        with self._lock, torch.no_grad():
            self._hook_called = self._hook_called or kind == ACTIVATIONS
            if self._telemetry.closed:
                return
            clock = self._telemetry.clock
            cpu_s, now_s = clock.cpu(), clock.monotonic()
            for name, value in named:
                works = [work for work in self._by_place.get((kind, name), ()) if not work.skipped]
                plain = bare(value) if works else None
                for work in works:
                    work.take(self._observables, name, plain)
                    began_cpu_s, began_s = cpu_s, now_s
                    cpu_s, now_s = clock.cpu(), clock.monotonic()
                    for subscription in work.subscriptions:
                        part = len(work.subscriptions)
                        subscription.cost.ahead((cpu_s - began_cpu_s) / part, (now_s - began_s) / part)

    def due(self, kind: str) -> list[str]:
        """Return the names of a kind's tensors that a query of the next event reads; called by the hooks."""
        return [
            name
            for (of, name), works in self._by_place.items()
            if of == kind and not all(work.skipped for work in works)
        ]

    def _settled(self) -> dict[str, Any]:
        """Return the observables that can be read at any time; each computes its values at most once."""
        settled: dict[str, Any] = {"params": Parameters(self._module), "rank": self._rank}
        if self._optimizers:
            settled["optimizer"] = LazyMapping(
                lambda: optimizers_view([optimizer() for optimizer in self._optimizers], self._module())
            )
        return {self.name: settled} if self.name else settled

    def _live_optimizers(self) -> list[torch.optim.Optimizer]:
        return [one for optimizer in self._optimizers if (one := optimizer()) is not None]

    # Queries

    def _reads(self, subscription: Subscription) -> bool:
        return not subscription.suspended and self._offers.reads(subscription.query)

    def _renew(self) -> None:
        """Change the hooks to those that queries need now; on the thread that observes."""
        subscriptions = [subscription for subscription in self._source.subscriptions if self._reads(subscription)]
        try:
            self._wanted = bool(subscriptions)
            self._use(subscriptions)
        except Exception as error:  # noqa: BLE001  the program's own modules run here, and a query must never hurt the run
            self._remove_hooks()
            self._refuse(subscriptions, RefusedError(f"Cannot watch the module: {type(error).__name__}: {error}"))
        self.wants_event = self._hooks is not None and bool(self._works) and not self._hooks.is_made
        self._telemetry.subscriptions.refresh()

    def _use(self, subscriptions: Iterable[Subscription]) -> None:
        module = self._module()
        if module is None:
            self._remove_hooks()
            return
        if self._hooks is None:
            self._hooks = Hooks(
                module,
                self._live_optimizers(),
                take=self.take,
                take_all=self.take_all,
                due=self.due,
                compiled=self._compiled,
            )
        by_key: dict[str, list[Subscription]] = {}
        copied: set[str] = set()
        for subscription in subscriptions:
            prepared = self._prepare(subscription)
            if prepared.parts and self._check(subscription, prepared, copied):
                by_key.setdefault(subscription.query.key, []).append(subscription)
                if subscription.id not in self._split:
                    subscription.look(prepared.query, is_new=prepared.is_new)
                    self._split.add(subscription.id)
        self._prepared = {
            subscription.query.key: self._prepared[subscription.query.key] for subscription in subscriptions
        }
        self._split &= {subscription.id for subscription in subscriptions}
        self._work(by_key)

    def _work(self, by_key: Mapping[str, list[Subscription]]) -> None:
        assert self._hooks is not None
        old = {work.part.key: work for work in self._works}
        works: dict[str, Work] = {}
        for key, several in by_key.items():
            for part, compute in self._prepared[key].parts:
                names = self._hooks.known(part.kind)[0] if part.name is None else [part.name]
                before = works[part.key].subscriptions if part.key in works else ()
                work = works[part.key] = old.get(part.key) or Work(part, compute, (), ())
                work.subscriptions, work.names = (*before, *several), tuple(names)
        self._works, self._by_place = [*works.values()], by_place(works.values())
        wanted: dict[str, list[str]] = {}
        for kind, name in self._by_place:
            wanted.setdefault(kind, []).append(name)
        self._hook_called, self._n_silent = ACTIVATIONS not in wanted, 0
        self._hooks.use(wanted)
        if not works:
            self._hooks = None

    def _prepare(self, subscription: Subscription) -> Prepared:
        key = subscription.query.key
        if key not in self._prepared:
            rest, mine = subscription.query, tuple[PrecomputedPart, ...]()
            for other in self._source.providers:
                if isinstance(other, Watched):
                    rest, parts = split(rest, other._offers)
                    mine = parts if other is self else mine
            ready = tuple((part, part.compiled(subscription.functions, self.event)) for part in mine)
            self._prepared[key] = Prepared(query=rest, parts=ready, is_new=gives_new(subscription.query, rest))
        return self._prepared[key]

    def _check(self, subscription: Subscription, prepared: Prepared, copied: set[str]) -> bool:
        """Return whether a query's tensors can be read; refuse the query otherwise."""
        assert self._hooks is not None
        for part, _ in prepared.parts:
            if part.kind == UPDATES:
                try:
                    self._hooks.steps.check(part, copied)
                except RefusedError as error:
                    self._refuse([subscription], error)
                    return False
            known = self._hooks.known(part.kind)[1]
            if part.name is not None and part.name not in known:
                what = "module" if part.kind in OF_MODULES else "parameter"
                self._refuse([subscription], UnknownNameError(what, part.name, filter(None, known)))
                return False
            if part.kind == ACTIVATIONS and self._compiled.is_sure and not self._recompile:
                self._refuse([subscription], RefusedError(RECOMPILED))
                return False
            if part.kind == ACTIVATION_GRADS and self._compiled.is_sure:
                self._refuse([subscription], RefusedError(BACKWARD))
                return False
        return True

    def _refuse(self, subscriptions: Iterable[Subscription], error: RefusedError | UnknownNameError) -> None:
        for subscription in subscriptions:
            subscription.refuse(error)
        self._telemetry.wake()

    def _check_hooks_are_called(self) -> None:
        """Find out whether hooks are not called because the module is compiled."""
        if self._hook_called or self._hooks is None or not self._compiled.is_possible:
            return
        self._n_silent += 1
        if self._recompile:
            self._compiled.is_sure = True
            self._compiled.reset()
        elif self._n_silent == PATIENCE:
            self._refuse(
                {a for w in self._works if w.part.kind == ACTIVATIONS for a in w.subscriptions}, RefusedError(SILENT)
            )
            self.wants_event = True
            self._telemetry.subscriptions.refresh()

    def _remove_hooks(self) -> None:
        """Remove all hooks, and forget the queries."""
        if self._hooks is not None:
            self._hooks.remove()
        self._hooks = None
        self._works, self._by_place, self._prepared, self._split = [], {}, {}, set()
        self._wanted = False
