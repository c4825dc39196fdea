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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from sightglass.core.errors import CommandError, SightglassError
from sightglass.core.process.current_run import Handle
from sightglass.core.process.ranks import rank_and_size
from sightglass.core.values import type_name
from sightglass.query.query import Query
from sightglass.training.controls import BoundControl
from sightglass.training.evaluation.compiled import CompiledStep
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.subscriptions import ObservableFacts
from sightglass.training.run import Run, wiring

from .calls import EVALUATED, NO_CALL, OF_MODULES, OUTPUTS, TRAINING, ModuleCall
from .capture import CapturedObservables, PartMeter, is_recorded, with_works
from .compiled import Compiled
from .hooks import Hooks
from .module_queries import ModuleQueries, Prepared, part_names
from .observables import (
    LazyMapping,
    Parameters,
    buffers,
    held_parameters,
    inner,
    modules,
    optimizers_view,
    parameters,
)
from .optimizer_controls import Bounds, RateScale, controls
from .optimizer_steps import GRADS, UPDATES
from .precompute import Offers, PrecomputedPart, gives_new, is_answer, split


class MuteWatched:
    """What `Watched` becomes in another process, inside an object that is sent there: nothing is watched.

    Attributes:
        event: The event that its observables belong to.
        name: The observable that contains them; empty if there is none.
        n_hooks: How many hooks there are: none.
    """

    def __init__(self, event: str, name: str) -> None:
        self.event = event
        self.name = name
        self.n_hooks = 0

    def close(self) -> None:
        """Do nothing."""


class Watched(CompiledStep, Handle):
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
        self._compiled = Compiled(module, inner(module), self.take)
        self._module = weakref.ref(inner(module))
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._queries: ModuleQueries | None = None
        settled = {"params", "buffers", "rank", *(("optimizer",) if optimizers else ())}
        timed = {*OF_MODULES, GRADS, *((UPDATES,) if optimizers else ())}
        self._offers = Offers(timed=frozenset(timed), settled=frozenset(settled), under=name)
        self._wanted = False
        self._rank = rank_and_size()[0]
        self._observables = self._settled()
        self._controls: list[str] = []
        self._closed = False
        self._scales = [RateScale(optimizer) for optimizer in optimizers]
        self._controlled = partial(controls, scales=self._scales, prefix=self._prefix, bounds=bounds, where=where)
        self._n_controlled = self._n_groups()
        made = [*self._controlled(optimizers)]
        with self._telemetry.lock.turn():
            self._attach(made)

    def _elsewhere(self) -> tuple[Any, ...]:
        return MuteWatched, self.event, self.name

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

    def _n_groups(self) -> int:
        return sum(len(optimizer.param_groups) for optimizer in self._live_optimizers())

    def _add_controls(self) -> None:
        """Add controls for parameter groups that were added since."""
        self._n_controlled = self._n_groups()
        known = self._telemetry.commands.queue.controls
        with suppress(CommandError, ValueError):  # a setting out of its bounds; an optimizer that no longer exists
            for control in self._controlled(self._live_optimizers()):
                if control.name not in known:
                    known[control.name] = control
                    self._controls.append(control.name)

    @property
    def _prefix(self) -> str:
        return f"{self.name}." if self.name else ""

    @property
    def n_hooks(self) -> int:
        """The number of hooks on the module and its optimizers."""
        return 0 if self._queries is None else self._queries.hooks.n_hooks

    # For the run

    def subscriptions_changed(self) -> None:
        """Take note that subscriptions changed: hooks change at the next event."""
        self.wants_event = self._wanted or any(self._reads(subscription) for subscription in self._source.subscriptions)
        self._telemetry.subscriptions.refresh()

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
            for scale in self._scales:
                scale.close()
            source = self._source
            source.providers = tuple(other for other in source.providers if other is not self)
            self._telemetry.steps.remove(self)
            self._telemetry.subscriptions.refresh()

    # For the event

    def price(self, query: Query) -> str:
        """Return what a query costs the run beyond its evaluation: compilations. Empty if nothing."""
        module = self._module()
        if module is None or not self._recompile:
            return ""
        names: set[str] = set()
        for part in split(query, self._offers)[1]:
            if part.kind in OF_MODULES:
                read = {*part_names(part, module)}
                names |= read if part.kind in OUTPUTS else read - self._compiled.inside(read)
        return self._compiled.price(names)

    def note(self, query: Query) -> str:
        """Return why a query has no records; empty if that is not known."""
        queries = self._queries
        return "" if queries is None else queries.note(query)

    def describe(self) -> dict[str, ObservableFacts]:
        """Return the types of the module's observables; computes nothing."""
        module = self._module()
        named = {name: type_name(p) for name, p in parameters(module).items()}
        inside = {
            "params": named,
            "buffers": {name: type_name(one) for name, one in buffers(module).items()},
            GRADS: {name: named[name] for name, p in parameters(module).items() if p.requires_grad},
        }
        optimizers = self._live_optimizers()
        if optimizers:
            held = held_parameters(optimizers, module)
            inside[UPDATES] = {name: type_ for name, type_ in inside[GRADS].items() if name in held}
        children = {name: type(child).__name__ for name, child in modules(module).items() if name}
        inside |= dict.fromkeys(OF_MODULES, children)
        if optimizers:
            view = optimizers_view([optimizer() for optimizer in self._optimizers], module)
            inside["optimizer"] = {key: type_name(value) for key, value in view.items()}
        inside["rank"] = {}
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
        if self._n_groups() != self._n_controlled:
            self._add_controls()
        if self._queries is None:
            return captured
        if self._queries.find_compiled():
            self.wants_event = True
            self._telemetry.subscriptions.refresh()
        captured.parts |= self._queries.hand_over()
        if self._queries.has_changed():
            self._source.describe_next = True
            self._renew()
        if self._queries is not None:
            self._queries.choose(index + 1, self._source.turns.allowed_s)
        return captured

    def take(self, kind: str, named: Iterable[tuple[str, Any]], call: ModuleCall = NO_CALL) -> None:
        """Compute the parts on several tensors of one kind; called by the hooks, on any thread.

        Those of modules are of one call of one module.
        """
        if self._telemetry.closed or is_recorded():  # the lock of a forked child may never be released
            return
        with self._lock:
            if self._queries is None:
                return
            if kind in EVALUATED and call.priority < TRAINING:
                self._compute(self._queries, EVALUATED[kind], named, call)
            self._compute(self._queries, kind, named, call)

    def _compute(self, queries: ModuleQueries, kind: str, named: Iterable[tuple[str, Any]], call: ModuleCall) -> None:
        if call.number is not None and queries.by_number:
            named = [*named, *queries.of_call(kind, named, call.number)]
        clock, of_modules = self._telemetry.clock, kind in OF_MODULES
        cpu_s, now_s = clock.cpu(), clock.monotonic()
        for found, tensors in with_works(queries.by_place, kind, named):
            several = None
            for work in found:
                work.reached = True
                if work.skipped:
                    continue
                if several is None:
                    several = [*tensors]
                if of_modules and not work.wants(*several[0], call):
                    continue
                work.meter.resume(cpu_s)
                work.take(self._observables, several)
                began_s = now_s
                cpu_s, now_s = clock.cpu(), clock.monotonic()
                work.meter.pause(cpu_s, now_s - began_s)

    def due(self, kind: str) -> list[str]:
        """Return the names of a kind's tensors that a query of the next event reads; called by the hooks."""
        names: dict[str, None] = {}
        for work in () if self._queries is None else self._queries.works:
            if work.part.kind == kind and not work.skipped:
                names.update(dict.fromkeys(work.names))
        return [*names]

    def _settled(self) -> dict[str, Any]:
        """Return the observables that can be read at any time; each computes its values at most once."""
        settled: dict[str, Any] = {
            "params": Parameters(lambda: parameters(self._module())),
            "buffers": Parameters(lambda: buffers(self._module())),
            "rank": self._rank,
        }
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
        self._wanted = bool(subscriptions)
        module = self._module()
        if module is None or not subscriptions:
            self._remove_hooks()
        else:
            if self._queries is None:
                self._queries = self._made(module)
            self._queries.use(subscriptions)
            if not self._queries.works:
                self._queries = None  # it keeps the module alive
        self.wants_event = self._queries is not None and not self._queries.hooks.is_made
        self._telemetry.subscriptions.refresh()

    def _made(self, module: torch.nn.Module) -> ModuleQueries:
        hooks = Hooks(
            module,
            self._live_optimizers(),
            take=self.take,
            due=self.due,
            compiled=self._compiled,
        )
        return ModuleQueries(module, hooks, prepare=self._prepare, refuse=self._refuse, recompile=self._recompile)

    def _prepare(self, subscription: Subscription) -> Prepared:
        """Split a query; each watched module of the event takes its own parts out of it."""
        rest, mine = subscription.query, tuple[PrecomputedPart, ...]()
        for other in self._source.providers:
            if isinstance(other, Watched):
                rest, parts = split(rest, other._offers)
                mine = parts if other is self else mine
        functions = subscription.functions
        ready = tuple((part, part.compiled(functions, self.event, meter := PartMeter()), meter) for part in mine)
        return Prepared(query=rest, parts=ready, is_new=gives_new(subscription.query, rest), is_answer=is_answer(rest))

    def _refuse(self, subscriptions: Iterable[Subscription], error: SightglassError) -> None:
        for subscription in subscriptions:
            subscription.errors.refuse(error)
        self._telemetry.wake()

    def _remove_hooks(self) -> None:
        """Remove all hooks, and forget the queries."""
        if self._queries is not None:
            self._queries.remove()
        self._queries = None
        self._wanted = False
