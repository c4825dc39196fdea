"""The queries that read a watched module: what each needs, and the hooks for it.

Rule 1: A query that cannot be answered ends alone; the others are not touched.
Rule 2: What has a price is done for queries that confirmed it, and for no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from sightglass.core.errors import PriceError, RefusedError, SightglassError, UnconfirmedError, UnknownNameError
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.query.query import Query
from sightglass.training.evaluation.subscription import Subscription

from .calls import ACTIVATION_GRADS, EVALUATED, INPUTS, IS_KNOWN, OF_MODULES, module_name, numbered, without_number
from .capture import PartMeter, Work, by_place, fitting
from .compiled import Compiled, n_compiled
from .hooks import Hooks, Place
from .observables import SELF_CONTAINED, called_modules, is_inside, leaf_modules, modules, parameters
from .optimizer_steps import GRADS, UPDATES
from .precompute import PrecomputedPart, statistic

RECOMPILED: Final = (
    "Activations are not available: the module is compiled and would have to be compiled again, "
    "which watch(…, recompile=False) forbids"
)
BACKWARD: Final = (
    "Gradients of activations are not available: the module is compiled, and its backward pass runs no hooks. "
    "Query gradients of parameters, or run the module without torch.compile"
)
SILENT: Final = "Activations are not available: the module is not called"
UNKNOWN: Final = "Activations are not available: PyTorch {version} calls modules in a way that is not known here"
SCRIPTED: Final = "Module {name!r} is not available: it runs inside a TorchScript module, which calls no hooks"
UNCALLED: Final = (
    "Module {name!r} is not available: the module around it, a {around}, "
    "computes with its parameters and never calls it"
)
INPUTS_INSIDE: Final = (
    "Inputs are not available: the module is compiled. Query what the module before it returns: b.activations"
)
CALLS_INSIDE: Final = (
    "Single calls are not available: the module is compiled. Query the last one, without a number: b.activations"
)
WITHIN: Final = {ACTIVATION_GRADS: BACKWARD, INPUTS: INPUTS_INSIDE, EVALUATED[INPUTS]: INPUTS_INSIDE}
"""Why an observable has nothing of modules inside compiled programs."""
PATIENCE: Final = 2
"""The number of events without a call from Python after which a module is taken to run in compiled programs. At the
first one, hooks may have been set after the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A split query: its parts, and the query that is evaluated at the event.

    Attributes:
        query: The query that is evaluated.
        parts: The parts, each with its function and its limit.
        is_new: Whether the query always computes a new value.
        is_answer: Whether a part is all that it computes.
    """

    query: Query
    parts: tuple[tuple[PrecomputedPart, Callable[..., Any], PartMeter], ...]
    is_new: bool
    is_answer: bool


class ModuleQueries:
    """The queries about one module, and its hooks.

    Attributes:
        hooks: The hooks.
        works: The parts that are computed before the event.
        by_place: The same by the tensors that they are computed on.
        by_number: Whether any of these is of a certain call.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        hooks: Hooks,
        *,
        prepare: Callable[[Subscription], Prepared],
        refuse: Callable[[Iterable[Subscription], SightglassError], None],
        recompile: bool,
    ) -> None:
        self.hooks = hooks
        self.works: list[Work] = []
        self.by_place: dict[Place, list[Work]] = {}
        self.by_number = False
        self._module = module
        self._compiled = hooks.compiled
        self._prepare = prepare
        self._refuse = refuse
        self._recompile = recompile
        self._prepared: dict[str, Prepared] = {}
        self._split: set[Subscription] = set()
        self._n_silent = 0
        self._had_odd = False
        self._signature: tuple[Any, ...] = ()

    def has_changed(self) -> bool:
        """Return whether modules, parameters or parameter groups came or went, so that other tensors are meant."""
        return self.hooks.steps.signature() != self._signature

    def use(self, subscriptions: Iterable[Subscription]) -> None:
        """Answer these subscriptions from now on, and no others; refuse those that cannot be answered."""
        self._signature = self.hooks.steps.signature()
        if not self.works:
            self._compiled.changed()
        by_key: dict[str, list[Subscription]] = {}
        prepared: dict[str, Prepared] = {}
        copied: set[str] = set()
        for subscription in subscriptions:
            key = subscription.query.key
            try:
                ready = prepared[key] = self._prepared.get(key) or self._prepare(subscription)
                self._check(subscription, ready, copied)
                if ready.parts and subscription not in self._split:
                    subscription.look(ready.query, is_new=ready.is_new)
                    self._split.add(subscription)
            except SightglassError as error:
                self._refuse([subscription], error)
            except FAILURES as error:
                self._refuse([subscription], _cannot(error))
            else:
                by_key.setdefault(key, []).append(subscription)
        self._prepared = prepared
        self._split &= {subscription for several in by_key.values() for subscription in several}
        self._set_works(by_key)
        self._set_hooks()

    def remove(self) -> None:
        """Remove all hooks, and forget the queries."""
        self.hooks.remove()
        self.works, self.by_place, self._prepared, self._split = [], {}, {}, set()

    def find_compiled(self) -> bool:
        """Find out whether what queries wait for runs inside compiled programs; call this at each event.

        Returns:
            Whether the hooks have to be renewed.
        """
        if self._compiled.changed():  # begin again: modules may be called in another way from now on
            self._n_silent = 0
            for work in self.works:
                work.reached = False
            return False
        several = self.hooks.calls.several  # their gradients have names of their own: a note says it, see `why_silent`
        waiting = [
            work
            for work in self.works
            if work.part.kind in OF_MODULES and not work.reached and work.part.name not in several
        ]
        if not waiting or not n_compiled():
            self._n_silent = 0
            return False
        if not self.hooks.looks_for_calls:
            return True
        self._n_silent += self._compiled.hides()
        if self._n_silent < PATIENCE:
            return False
        self._n_silent = 0
        if self._compiled.is_found:
            self._refuse({each for work in waiting for each in work.subscriptions}, RefusedError(SILENT))
        self._compiled.is_found = True
        return True

    def hand_over(self) -> dict[str, Any]:
        """Return the results of all parts by their keys, and tell the subscriptions which tensors these leave out."""
        self.hooks.calls.restart()
        odd = any(work.odd for work in self.works)
        if odd or self._had_odd:
            left_out: dict[Subscription, dict[str, str]] = {}
            for work in self.works:
                for subscription in work.subscriptions:
                    left_out.setdefault(subscription, {}).update({name: str(why) for name, why in work.odd.items()})
            for subscription, tensors in left_out.items():
                subscription.left_out_before = tensors
        self._had_odd = odd
        return {work.part.key: work.hand_over() for work in self.works}

    def of_call(self, kind: str, named: Iterable[tuple[str, Any]], number: int) -> list[tuple[str, Any]]:
        """Return those tensors of a module's call that queries read by its number, under these names."""
        places = ((numbered(name, number), value) for name, value in named)
        return [(name, value) for name, value in places if (kind, name) in self.by_place]

    def note(self, query: Query) -> str:
        """Return why a query has no records; empty if that is not known."""
        works = [work for work in self.works if any(one.query.key == query.key for one in work.subscriptions)]
        return why_silent(works, self._module, self.hooks.calls.several)

    def choose(self, index: int, limit_s: float) -> None:
        """Choose the parts that are computed for the event of this number; together they may take `limit_s`."""
        due: list[Work] = []
        for work in self.works:
            several = work.subscriptions
            work.waits = False
            work.skipped = all(one.stride > 1 and index % one.stride for one in several)
            work.meter.limit_s = math.inf if any(one.confirmed for one in several) else limit_s
            if work.meter.copy_s > work.meter.limit_s and not work.skipped:
                work.skipped, work.error = True, too_large(work.meter)
            if not work.skipped:
                due.append(work)
        for work, fits in zip(due, fitting([work.meter for work in due], limit_s), strict=True):
            work.skipped = work.waits = not (fits or any(one.first for one in work.subscriptions))

    def _set_works(self, by_key: Mapping[str, list[Subscription]]) -> None:
        old = {work.part.key: work for work in self.works}
        works: dict[str, Work] = {}
        for key, several in by_key.items():
            prepared = self._prepared[key]
            for part, compute, meter in prepared.parts:
                names = self.hooks.known(part.kind)[0] if part.name is None else [part.name]
                before = works[part.key].subscriptions if part.key in works else ()
                work = works[part.key] = old.get(part.key) or Work(part, compute, meter, statistic(part.tree))
                work.is_answer = prepared.is_answer and (work.is_answer or not before)
                work.subscriptions, work.names = (*before, *several), tuple(names)
                meter.copy_s = self.hooks.steps.copy_s(names) if part.kind == UPDATES else 0.0
        self.works, self.by_place = [*works.values()], by_place(works.values())

    def _set_hooks(self) -> None:
        """Set the hooks; refuse the queries whose tensors cannot be read."""
        known = modules(self._module)
        failed = self.hooks.use([(kind, without_number(name, known)) for kind, name in self.by_place])
        of_calls = (name for kind, name in self.by_place if kind in OF_MODULES)
        self.by_number = any(without_number(name, known) != module_name(name, known) for name in of_calls)
        for work in self.works:
            places = [(work.part.kind, without_number(name, known)) for name in work.names]
            errors = [failed[place] for place in places if place in failed]
            if errors and len(errors) == len(work.names):
                self._refuse(work.subscriptions, _cannot(errors[0]))

    def _check(self, subscription: Subscription, prepared: Prepared, copied: set[str]) -> None:
        """Refuse a query whose tensors cannot be read.

        Raises:
            SightglassError: The query is refused; the message says why.
        """
        for part, _, _ in prepared.parts:
            if part.kind == UPDATES:
                self.hooks.steps.check(part, copied)
            known = self.hooks.known(part.kind)[1]
            of_module = part.kind in OF_MODULES
            name = without_number(part.name, known) if of_module and part.name is not None else part.name
            if name is not None and name not in known:
                raise UnknownNameError("module" if of_module else "parameter", name, filter(None, known))
            if part.kind in OF_MODULES:
                check_module(part, self._module, self._compiled, self._recompile, confirmed=subscription.may_compile)


def too_large(meter: PartMeter) -> PriceError:
    """Return the error of a part that needs copies which take too long."""
    return PriceError(
        f"Expected at most {1e3 * meter.limit_s:.3g} ms of the run's time for an event, got {1e3 * meter.copy_s:.3g} ms"
        ' for the copies that updates need. Ask for fewer parameters, such as b.updates["NAME"]',
        seconds=meter.copy_s,
    )


def part_names(part: PrecomputedPart, module: torch.nn.Module) -> list[str]:
    """Return the names of the modules that a part of a query reads."""
    return leaf_modules(module) if part.name is None else [without_number(part.name, modules(module))]


def check_module(
    part: PrecomputedPart, module: torch.nn.Module, compiled: Compiled, recompile: bool, *, confirmed: bool
) -> None:
    """Refuse a part of a query about what modules return, if it cannot be computed, or has a price.

    Raises:
        UnconfirmedError: It has a price, and `confirmed` is not set.
        RefusedError: It cannot be computed.
    """
    if not IS_KNOWN:
        raise RefusedError(UNKNOWN.format(version=torch.__version__))
    names = part_names(part, module)
    if part.name is not None and names[0] not in called_modules(module):
        raise RefusedError(_uncalled(names[0], module))
    if compiled.inside(names) and part.kind in WITHIN:
        raise RefusedError(WITHIN[part.kind])
    if compiled.inside(names) and part.name is not None and module_name(part.name, names) not in names:
        raise RefusedError(CALLS_INSIDE)
    price = compiled.price(names)
    if price and not recompile:
        raise RefusedError(RECOMPILED)
    if price and not confirmed:
        raise UnconfirmedError(f"{price} Ask again with a controller's key and confirm=True to go on")


def _uncalled(name: str, module: torch.nn.Module) -> str:
    """Say why a module is not called."""
    around = [one for outer, one in modules(module).items() if is_inside(name, outer)]
    if any(isinstance(one, torch.jit.ScriptModule) for one in around):
        return SCRIPTED.format(name=name)
    kind = next(one for one in around if isinstance(one, SELF_CONTAINED))
    return UNCALLED.format(name=name, around=type(kind).__name__)


def _cannot(error: BaseException) -> RefusedError:
    return RefusedError(f"Cannot watch the module: {message(error)}")


# Why queries have no records: after some events that brought none of their tensors, a note says it.

N_SILENT: Final = 8  # more batches than most programs accumulate; a note is no error, so it may be early

NOT_CALLED: Final = "it was not called"
NO_TENSOR: Final = (
    "its module was not called, or has none of this name; b.{kind}.map(lambda name, x: x.shape) lists them"
)
NOT_SO_OFTEN: Final = "its module was not called so often; calls since the event before are numbered from 0 on"
NOT_EVALUATED: Final = "it was not called in evaluation mode"
NO_GRAD: Final = "the loss does not depend on what it returns, or nothing was differentiated"
NO_STEP: Final = "the optimizer made no step"
UNUSED: Final = "the loss does not depend on it, or nothing was differentiated"
FROZEN: Final = "it does not require a gradient"


def why_silent(works: Iterable[Work], module: torch.nn.Module, several: Mapping[str, str]) -> str:
    """Return what a query waits for that reads these parts; empty if tensors came.

    Args:
        works: The parts.
        module: The watched module.
        several: The modules that return several tensors, each with the name of one of them.
    """
    for work in works:
        if work.n_silent < N_SILENT:
            continue
        kind, name = work.part.kind, work.part.name
        if name is None:
            return f"{work.n_silent} events in a row brought no {kind}: {_why_none(kind)}."
        if kind == ACTIVATION_GRADS and name in several:
            return f"Module {name!r} returns several tensors: ask for each, such as b.{kind}[{several[name]!r}]."
        return f"{work.n_silent} events in a row brought nothing of {name!r}: {_why(kind, name, module)}."
    return ""


def _why_none(kind: str) -> str:
    if kind in EVALUATED.values():
        return "the module was not called in evaluation mode"
    if kind == UPDATES:
        return NO_STEP
    return "nothing was differentiated" if kind in (GRADS, ACTIVATION_GRADS) else "no module was called"


def _why(kind: str, name: str, module: torch.nn.Module) -> str:
    if kind in (GRADS, UPDATES):
        parameter = parameters(module).get(name)
        if parameter is not None and not parameter.requires_grad:
            return FROZEN
        return UNUSED if parameter is None or parameter.grad is None else NO_STEP
    if kind == ACTIVATION_GRADS:
        return NO_GRAD
    known = modules(module)
    if without_number(name, known) != module_name(name, known):
        return NOT_SO_OFTEN
    if module_name(name, known) != name:
        return NO_TENSOR.format(kind=kind)
    return NOT_EVALUATED if kind in EVALUATED.values() else NOT_CALLED
