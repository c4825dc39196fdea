"""The initial values of a model: norms and histograms of its parameters, kept when they are named for the first time.

Theory of operation:

1. They are the snapshot of an event, so that a client that comes an hour later is answered as from any other snapshot.
   Several models are in one snapshot, by their names.
2. They are what a query computes of a parameter, by the same functions. The time of the thread is charged to the
   budget.
3. Small parameters come first, and what the limits leave out is named in the event's note.
4. A model that is named again in the same run keeps its first values: by then it is trained.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sightglass.core.errors import UnreadableError, warn
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.query.functions import FUNCTIONS

from .telemetry import Telemetry

INITIAL: Final = "initial"
"""The event."""

STATISTICS: Final = {"norms": "norm", "histograms": "histogram"}
MAX_S: Final = 0.25  # of the thread that names them: a tenth of what it takes to import PyTorch
MAX_ITEMS: Final = 2**27  # on the host all together, which fill `MAX_S`; on a device each, whose copies take 1 GiB
MAX_KEPT: Final = 4_000  # parameters: a histogram takes 1.1 KB, so at most 5 MB stay in memory
TOO_MANY: Final = f"at most {MAX_S:g} s, {MAX_KEPT:,} parameters and {MAX_ITEMS:,} items are taken"
TAKEN: Final = (
    "Initial values of the model are not kept: the program has an event {!r} of its own. "
    "`initial=False` says that this is meant"
)

Read = Callable[[Any], tuple[Any, bool]]
"""Returns the array of a parameter, without waiting for a device, and whether it is on the host."""


class Initial(NamedTuple):
    """The initial values of one model: the statistics, each by the parameters' names, and what is left out."""

    owner: Callable[[], object]
    values: Mapping[str, Mapping[str, Any]]
    note: str


_kept: weakref.WeakKeyDictionary[Telemetry, dict[str, Initial]] = weakref.WeakKeyDictionary()
"""The initial values that a run has, by the names of the models."""


def keep_initial(
    telemetry: Telemetry,
    name: str,
    owner: Callable[[], object],
    parameters: Mapping[str, Any],
    *,
    read: Read,
    listed: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    note: str = "",
) -> None:
    """Keep the initial values of a model in a run, unless those of the same owner are there already.

    Args:
        telemetry: Of the run.
        name: The name of the model, or empty.
        owner: Returns what the values belong to, such as a weak reference to a module.
        parameters: The parameters by all their names.
        read: See `Read`. What it refuses is left out.
        listed: Makes the mapping that queries read of one of all names.
        note: What else to say of the model.
    """
    kept = _kept.setdefault(telemetry, {})
    if name in kept and kept[name].owner() is owner():
        return
    if not kept and INITIAL in telemetry.subscriptions.sources:
        warn(TAKEN.format(INITIAL))
        return
    began_s = telemetry.clock.cpu()
    initial = Initial(owner, *_taken(parameters, read, note, telemetry.clock.cpu))
    spent_s = telemetry.clock.cpu() - began_s
    with telemetry.lock.mutex:
        kept[name] = initial
        telemetry.budget.provided_s += spent_s
        shown: dict[str, Any] = {}
        read_by: dict[str, Any] = {}
        for under, one in kept.items():
            found = {key: listed(values) for key, values in one.values.items()}
            shown.update({under: one.values} if under else one.values)
            read_by.update({under: found} if under else found)
        notes = " ".join(one.note for one in kept.values() if one.note)
        telemetry.events.keep(INITIAL, read_by, shown=shown, note=notes)


def _taken(
    named: Mapping[str, Any], read: Read, note: str, cpu_s: Callable[[], float]
) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the statistics of parameters by their names, and what they lack."""
    until_s, n_items = cpu_s() + MAX_S, 0
    found: dict[int, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    once: dict[int, str] = {}
    for name, parameter in named.items():
        once.setdefault(id(parameter), name)
    order = sorted(once.values(), key=lambda name: _size(named[name]))
    for name in order:
        try:
            x, is_on_host = read(named[name])
            n = _size(x) + n_items * is_on_host
            if n > MAX_ITEMS or len(found) >= MAX_KEPT or cpu_s() >= until_s:
                raise UnreadableError(TOO_MANY)
            n_items = n if is_on_host else n_items
            values = {key: FUNCTIONS[of].call(x) for key, of in STATISTICS.items()}
            found[id(named[name])] = values | ({"norms": values["norms"].item()} if is_on_host else {})
        except FAILURES as error:
            left_out[name] = message(error)
    values = {key: {name: found[id(p)][key] for name, p in named.items() if id(p) in found} for key in STATISTICS}
    notes = [
        f"{len(left_out):,} of {len(order):,} parameters are left out, such as {n!r}: {why}."
        for n, why in left_out.items()
    ][:1]
    return values, " ".join(filter(None, [*notes, note]))


def _size(array: Any) -> int:
    return math.prod(int(n) for n in array.shape)
