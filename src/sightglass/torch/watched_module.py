"""A module in a run: what it offers, what is asked of it, and which hooks there are.

Theory of operation:

1. While nobody asks for its tensors, a watched module is as it was: no hook, no copy, nothing at an event.
2. What is asked is known from the queries (`ahead`). At the next event hooks are put on the very modules whose tensors
   are asked, or on the optimizer; when nobody asks any more they are taken off, at the next event again, or when
   the run ends.
3. What a query does with one tensor is computed in the hook, by the library of the tensor and on its device, without a
   graph. Nothing is waited for there: what rests on a device is read by the run's drain thread.
4. Parameters and the optimizer's state are read at the event itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from sightglass.core.errors import RefusedError, UnknownNameError
from sightglass.query.query import Query
from sightglass.training.compiled import VariantPlan
from sightglass.training.run import Run, wiring
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import ObservableFacts

from .capture import Brought, Work, bare, by_place
from .compiled import Compiled
from .distributed import rank
from .hooks import ACTIVATION_GRADS, ACTIVATIONS, GRADS, OF_MODULES, UPDATES, Hooks
from .observables import Looked, Parameters, inner, is_compiled, modules, optimizer_view, parameters, told
from .optimizer_controls import Bounds, controls
from .precompute import Offers, PrecomputedPart, gives_new, split

NO_PLAN: Final = VariantPlan()
RECOMPILED: Final = (
    "Activations cannot be asked: the module is compiled, and would have to be compiled again, "
    "which watch(…, recompile=False) rules out"
)
BACKWARD: Final = (
    "Gradients of activations cannot be asked: the module is compiled, and a compiled program goes back by itself. "
    "Ask for gradients of parameters, or run the module without torch.compile"
)
SILENT: Final = "Activations cannot be asked: the module is not called, or was compiled before it had hooks"
PATIENCE: Final = 2
"""After how many events without a call of a hook the module is taken to be compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A query that is ready: its parts, and the query that is evaluated at the event."""

    query: Query
    parts: tuple[tuple[PrecomputedPart, Callable[..., Any]], ...]
    is_new: bool


class Watched:
    """A module that clients of a run can look into. Made by `watch`.

    Attributes:
        event: The event that its observables belong to.
        wants_event: Whether what is asked has changed, and hooks are to be changed at the next event.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        run: Run,
        *,
        event: str,
        optimizer: torch.optim.Optimizer | None,
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
        self._optimizer = None if optimizer is None else weakref.ref(optimizer)
        self._hooks: Hooks | None = None
        settled = {"params", "rank", *(("optimizer",) if optimizer is not None else ())}
        timed = {*OF_MODULES, GRADS, *((UPDATES,) if optimizer is not None else ())}
        self._offers = Offers(timed=frozenset(timed), settled=frozenset(settled), under=name)
        self._prepared: dict[str, Prepared] = {}
        self._looked: set[int] = set()
        self._wanted = False
        self._works: list[Work] = []
        self._by_place: dict[tuple[str, str], list[Work]] = {}
        self._rank = rank()
        self._observables = self._settled()
        self._heard = False
        self._n_silent = 0
        self._controls: list[str] = []
        self._closed = False
        made = [] if optimizer is None else [*controls(optimizer, prefix=self._prefix, bounds=bounds, where=where)]
        with self._telemetry.lock.turn():
            self._attach(made)

    def _attach(self, made: Iterable[Any]) -> None:
        """Take the place of an earlier watch of this name, and offer what there is."""
        telemetry = self._telemetry
        channel = telemetry.subscriptions.source(self.event)
        for other in channel.providers:
            if isinstance(other, Watched) and other.name == self.name:
                other.close()
        for control in made:
            if control.name in telemetry.commands.queue.controls:
                taken = telemetry.commands.queue.controls[control.name]
                raise ValueError(f"Expected a new name for a control, {control.name!r} is taken in {taken.where}")
        for control in made:
            telemetry.commands.queue.controls[control.name] = control
            self._controls.append(control.name)
        channel.providers = (*channel.providers, self)
        channel.describe_next = True
        self._channel = channel
        telemetry.steps.add(self)
        self.subscriptions_changed()
        telemetry.subscriptions.refresh()

    @property
    def _prefix(self) -> str:
        return f"{self.name}." if self.name else ""

    @property
    def n_hooks(self) -> int:
        """How many hooks there are on the module and its optimizer now."""
        return 0 if self._hooks is None else self._hooks.n_hooks

    # For the run

    def survey(self) -> bool:
        """Return that what the module offers is known."""
        return True

    def subscriptions_changed(self) -> None:
        """See that what is asked has changed: hooks are changed at the next event."""
        self.wants_event = self._wanted or any(self._reads(answer) for answer in self._channel.subscriptions)
        self._telemetry.subscriptions.refresh()

    def propose(self) -> VariantPlan:
        """Return no plan: each process looks into its own tensors, and none waits for another."""
        return NO_PLAN

    def adopt(self, plan: VariantPlan) -> None:
        """Follow no plan."""

    def flush(self, timeout_s: float) -> None:
        """Wait for nothing: what was asked was computed when it was there."""

    def close(self) -> None:
        """Leave the module as it was; nothing is offered any more. Calling it again does nothing."""
        with self._telemetry.lock.turn():
            if self._closed:
                return
            self._closed = True
            self._rest()
            self.wants_event = False
            for name in self._controls:
                self._telemetry.commands.queue.controls.pop(name, None)
            channel = self._channel
            channel.providers = tuple(other for other in channel.providers if other is not self)
            self._telemetry.steps.remove(self)
            self._telemetry.subscriptions.refresh()

    # For the event

    def describe(self) -> dict[str, ObservableFacts]:
        """Say what the module offers; nothing is computed."""
        module = self._module()
        named = {name: told(p) for name, p in parameters(module).items()}
        inside = {
            "params": named,
            GRADS: {name: named[name] for name, p in parameters(module).items() if p.requires_grad},
            ACTIVATIONS: {name: type(child).__name__ for name, child in modules(module).items() if name},
            "rank": {},
        }
        inside[ACTIVATION_GRADS] = inside[ACTIVATIONS]
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is not None:
            inside[UPDATES] = inside[GRADS]
            view = optimizer_view(optimizer, module)
            inside["optimizer"] = {key: told(value) for key, value in view.items()}
        types = {"rank": "int"}
        offered = {
            kind: ObservableFacts(types.get(kind, f"mapping of {len(fields)}"), fields=fields)
            for kind, fields in inside.items()
        }
        if not self.name:
            return offered
        fields = {kind: one.type for kind, one in offered.items()}
        fields |= {f"{kind}.{path}": type_ for kind, one in offered.items() for path, type_ in one.fields.items()}
        return {self.name: ObservableFacts(f"mapping of {len(offered)}", fields=fields)}

    def provide(self, index: int, observables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the module's observables to an event that somebody asks for, and what was computed ahead of it."""
        if self.wants_event:
            self._renew()
        if not self._wanted:
            return observables
        brought = observables if isinstance(observables, Brought) else Brought(observables)
        self._observables = self._settled()
        for name, value in self._observables.items():
            brought.setdefault(name, value)
        self._listen()
        for work in self._works:
            brought.parts[work.part.key] = work.hand_over()
            work.rests = all(answer.stride > 1 and (index + 1) % answer.stride for answer in work.answers)
        return brought

    def take(self, kind: str, name: str, value: object) -> None:
        """Compute what is asked of a tensor, where it is; for the hooks, on whatever thread they run."""
        self.take_all(kind, ((name, value),))

    def take_all(self, kind: str, named: Iterable[tuple[str, Any]]) -> None:
        """Compute what is asked of several tensors of one kind."""
        with self._lock, torch.no_grad():
            self._heard = self._heard or kind == ACTIVATIONS
            if self._telemetry.closed:
                return
            started_s = self._telemetry.clock.monotonic()
            for name, value in named:
                works = [work for work in self._by_place.get((kind, name), ()) if not work.rests]
                plain = bare(value) if works else None
                for work in works:
                    work.take(self._observables, name, plain)
                    ended_s = self._telemetry.clock.monotonic()
                    for answer in work.answers:
                        answer.spent_s += (ended_s - started_s) / len(work.answers)
                    started_s = ended_s

    def _settled(self) -> dict[str, Any]:
        """Return what can be read at any time, as observables; what they look up they look up once."""
        settled: dict[str, Any] = {"params": Parameters(self._module), "rank": self._rank}
        if self._optimizer is not None:
            optimizer = self._optimizer
            settled["optimizer"] = Looked(lambda: optimizer_view(optimizer(), self._module()))
        return {self.name: settled} if self.name else settled

    # What is asked

    def _reads(self, answer: Subscription) -> bool:
        return not answer.suspended and self._offers.reads(answer.query)

    def _renew(self) -> None:
        """Change the hooks to those that are needed now; on the thread that observes."""
        answers = [answer for answer in self._channel.subscriptions if self._reads(answer)]
        try:
            self._wanted = bool(answers)
            self._use(answers)
        except Exception as error:  # noqa: BLE001  modules are the program's own, and a query must never hurt the run
            self._rest()
            self._refuse(answers, RefusedError(f"The module cannot be watched: {type(error).__name__}: {error}"))
        self.wants_event = self._hooks is not None and bool(self._works) and not self._hooks.is_made
        self._telemetry.subscriptions.refresh()

    def _use(self, answers: Iterable[Subscription]) -> None:
        module = self._module()
        if module is None:
            self._rest()
            return
        if self._hooks is None:
            optimizer = None if self._optimizer is None else self._optimizer()
            self._hooks = Hooks(module, optimizer, self.take, self.take_all, self._compiled)
        by_key: dict[str, list[Subscription]] = {}
        for answer in answers:
            prepared = self._prepare(answer)
            if prepared.parts and self._may(answer, prepared):
                by_key.setdefault(answer.query.key, []).append(answer)
                if answer.id not in self._looked:
                    answer.look(prepared.query, is_new=prepared.is_new)
                    self._looked.add(answer.id)
        self._prepared = {answer.query.key: self._prepared[answer.query.key] for answer in answers}
        self._looked &= {answer.id for answer in answers}
        self._work(by_key)

    def _work(self, by_key: Mapping[str, list[Subscription]]) -> None:
        assert self._hooks is not None
        old = {work.part.key: work for work in self._works}
        works: dict[str, Work] = {}
        for key, several in by_key.items():
            for part, compute in self._prepared[key].parts:
                names = self._hooks.known(part.kind)[0] if part.name is None else [part.name]
                before = works[part.key].answers if part.key in works else ()
                work = works[part.key] = old.get(part.key) or Work(part, compute, (), ())
                work.answers, work.names = (*before, *several), tuple(names)
        self._works, self._by_place = [*works.values()], by_place(works.values())
        wanted: dict[str, list[str]] = {}
        for kind, name in self._by_place:
            wanted.setdefault(kind, []).append(name)
        self._heard, self._n_silent = ACTIVATIONS not in wanted, 0
        self._hooks.use(wanted)
        if not works:
            self._hooks = None

    def _prepare(self, answer: Subscription) -> Prepared:
        key = answer.query.key
        if key not in self._prepared:
            rest, mine = answer.query, tuple[PrecomputedPart, ...]()
            for other in self._channel.providers:
                if isinstance(other, Watched):
                    rest, parts = split(rest, other._offers)
                    mine = parts if other is self else mine
            ready = tuple((part, part.compiled(answer.functions, self.event)) for part in mine)
            self._prepared[key] = Prepared(query=rest, parts=ready, is_new=gives_new(answer.query, rest))
        return self._prepared[key]

    def _may(self, answer: Subscription, prepared: Prepared) -> bool:
        """Refuse a query about a tensor that does not exist, or that the program forbids to look at."""
        assert self._hooks is not None
        for part, _ in prepared.parts:
            known = self._hooks.known(part.kind)[1]
            if part.name is not None and part.name not in known:
                what = "module" if part.kind in OF_MODULES else "parameter"
                self._refuse([answer], UnknownNameError(what, part.name, filter(None, known)))
                return False
            if part.kind == ACTIVATIONS and self._compiled.is_sure and not self._recompile:
                self._refuse([answer], RefusedError(RECOMPILED))
                return False
            if part.kind == ACTIVATION_GRADS and self._compiled.is_sure:
                self._refuse([answer], RefusedError(BACKWARD))
                return False
        return True

    def _refuse(self, answers: Iterable[Subscription], error: RefusedError | UnknownNameError) -> None:
        for answer in answers:
            answer.refuse(error)
        self._telemetry.wake()

    def _listen(self) -> None:
        """Find out whether hooks are not heard of because the module is compiled."""
        if self._heard or self._hooks is None or not self._compiled.is_possible:
            return
        self._n_silent += 1
        if self._recompile:
            self._compiled.is_sure = True
            self._compiled.reset()
        elif self._n_silent == PATIENCE:
            self._refuse(
                {a for w in self._works if w.part.kind == ACTIVATIONS for a in w.answers}, RefusedError(SILENT)
            )
            self.wants_event = True
            self._telemetry.subscriptions.refresh()

    def _rest(self) -> None:
        """Leave no hook, and forget what was asked."""
        if self._hooks is not None:
            self._hooks.remove()
        self._hooks = None
        self._works, self._by_place, self._prepared, self._looked = [], {}, {}, set()
        self._wanted = False
