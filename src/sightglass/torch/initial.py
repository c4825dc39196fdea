"""The initial values of a watched module: norms and histograms of its parameters, kept when `watch` is called.

Theory of operation:

1. They are the snapshot of an event, so that a client that comes an hour later is answered as from any other snapshot.
   Several watched modules are in one snapshot, by the names that `watch` was given.
2. They are what a query computes of a parameter: by the same functions, of a distributed tensor on this process's
   piece. A device is not waited for; the time of the thread is charged to the budget.
3. Small parameters come first, and what the limits leave out is named in the event's note.
4. A module that is watched again in the same run keeps its first values: by then it is trained.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from sightglass.core.errors import UnreadableError, warn
from sightglass.core.program_values.array_data import plain_array
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.query.functions import FUNCTIONS
from sightglass.training.evaluation.telemetry import Telemetry

from .observables import Shared, is_made, local, once, parameters

INITIAL: Final = "initial"
"""The event."""

STATISTICS: Final = {"norms": "norm", "histograms": "histogram"}
MAX_S: Final = 0.25  # of the thread that calls `watch`: a tenth of what it takes to import PyTorch
MAX_ITEMS: Final = 2**27  # on the host all together, which fill `MAX_S`; on a device each, whose copies take 1 GiB
MAX_KEPT: Final = 4_000  # parameters: a histogram takes 1.1 KB, so at most 5 MB stay in memory
TOO_MANY: Final = f"at most {MAX_S:g} s, {MAX_KEPT:,} parameters and {MAX_ITEMS:,} items are taken"
TAKEN: Final = (
    "Initial values of the module are not kept: the program has an event {!r} of its own. "
    "watch(…, initial=False) says that this is meant"
)


class Initial(NamedTuple):
    """The initial values of one module: the statistics, each by the parameters' names, and what is left out."""

    module: weakref.ref[torch.nn.Module]
    values: Mapping[str, Mapping[str, Any]]
    note: str


_kept: weakref.WeakKeyDictionary[Telemetry, dict[str, Initial]] = weakref.WeakKeyDictionary()
"""The initial values that a run has, by the names that `watch` was given."""


def keep_initial(module: torch.nn.Module, telemetry: Telemetry, name: str) -> None:
    """Keep the initial values of a module in its run, unless it was watched there before."""
    kept = _kept.setdefault(telemetry, {})
    if name in kept and kept[name].module() is module:
        return
    if not kept and INITIAL in telemetry.subscriptions.sources:
        warn(TAKEN.format(INITIAL))
        return
    began_s = telemetry.clock.cpu()
    initial = _initial(module, telemetry.clock.cpu)
    spent_s = telemetry.clock.cpu() - began_s
    with telemetry.lock.mutex:
        kept[name] = initial
        telemetry.budget.provided_s += spent_s
        shown: dict[str, Any] = {}
        shared: dict[str, Any] = {}
        for under, one in kept.items():
            found = {key: Shared(partial(dict, values)) for key, values in one.values.items()}
            shown.update({under: one.values} if under else one.values)
            shared.update({under: found} if under else found)
        note = " ".join(one.note for one in kept.values() if one.note)
        telemetry.events.keep(INITIAL, shared, shown=shown, note=note)


def _initial(module: torch.nn.Module, cpu_s: Callable[[], float]) -> Initial:
    named, until_s, n_items = parameters(module), cpu_s() + MAX_S, 0
    found: dict[int, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    order = sorted(once(named), key=lambda name: named[name].numel())
    for name in order:
        try:
            x = local(named[name])
            n = x.numel() + n_items * x.is_cpu
            if n > MAX_ITEMS or len(found) >= MAX_KEPT or cpu_s() >= until_s:
                raise UnreadableError(TOO_MANY)
            n_items = n if x.is_cpu else n_items
            with torch.no_grad():
                x = plain_array(x, "torch")
                found[id(named[name])] = {key: _number(FUNCTIONS[of].call(x)) for key, of in STATISTICS.items()}
        except FAILURES as error:
            left_out[name] = message(error)
    values = {key: {name: found[id(p)][key] for name, p in named.items() if id(p) in found} for key in STATISTICS}
    notes = [
        f"{len(left_out):,} of {len(order):,} parameters are left out, such as {n!r}: {why}."
        for n, why in left_out.items()
    ][:1]
    if n_unmade := sum(not is_made(p) for p in module.parameters()):
        notes.append(f"{n_unmade:,} parameters had no shape yet.")
    return Initial(weakref.ref(module), values, " ".join(notes))


def _number(value: Any) -> Any:
    """Return a number of Python in place of a tensor on the host."""
    return value.item() if isinstance(value, torch.Tensor) and value.is_cpu else value
