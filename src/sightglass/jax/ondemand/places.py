"""Which event each log of a step belongs to. Only loops and names decide it: no other log changes it.

Rules:

1. A log that names an event belongs to it.
2. Any other log belongs to the innermost loop around it: "batch_update" for a loop whose body is the function `update`,
   in a step whose own event is "batch". Of several loops with one function, the second is "batch_update_2". A function
   without a public name is a "loop", or the "test" of one.
3. A log outside of loops belongs to the step's own event. So does one directly in the rounds that `chunked` counts.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from sightglass.jax.program import compat
from sightglass.jax.program.primitive import IN_LOG, UNNAMED, log_p
from sightglass.jax.program.structure import TEST, kind_of, within


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedProgram:
    """A step's program, in which each log has the name of its event.

    Attributes:
        jaxpr: The program.
        own: The step's own event.
        bodies: The open jaxpr of each loop that logs, by its event. That of the own event is `None`, or the body of the
            outermost loop where each of its rounds counts as a call.
    """

    jaxpr: Any
    own: str
    bodies: dict[str, compat.AnyJaxpr | None]


def placed(jaxpr: compat.AnyJaxpr, own: str, *, counts_rounds: bool = False) -> PlacedProgram:
    """Name the events of a program, which was traced with all its logs in it.

    Args:
        jaxpr: The program.
        own: The step's own event.
        counts_rounds: Whether each round of the outermost loop counts as a call.
    """
    names = _LoopNames(own)
    bodies: dict[str, compat.AnyJaxpr | None] = {own: None}

    def inside(jaxpr: Any, event: str, *, on_devices: bool, in_log: bool) -> Any:
        inner, _ = compat.opened(jaxpr)
        return compat.with_equations(jaxpr, [equation(eqn, event, on_devices, in_log) for eqn in inner.eqns])

    def equation(eqn: Any, event: str, on_devices: bool, in_log: bool) -> Any:
        if eqn.primitive is log_p:
            site = eqn.params["site"]
            if site.event == UNNAMED:
                eqn = eqn.replace(params={**eqn.params, "site": dataclasses.replace(site, event=event)})
            return eqn
        if compat.effect not in eqn.effects:
            if not in_log:
                names.count(eqn)
            return eqn
        in_log = in_log or IN_LOG in compat.name_stack(eqn)
        kind = kind_of(eqn)
        on_devices = on_devices or kind == "devices"

        def placed_within(name: str, jaxpr: Any) -> Any:
            if kind != "loop":
                return inside(jaxpr, event, on_devices=on_devices, in_log=in_log)
            is_round = counts_rounds and bodies[own] is None and name != TEST
            of_loop = own if is_round else names.next(jaxpr, name, in_log=in_log)
            body = inside(jaxpr, event if on_devices else of_loop, on_devices=on_devices, in_log=in_log)
            if not on_devices:
                bodies[of_loop] = compat.opened(body)[0]
            return body

        return compat.with_jaxprs(eqn, placed_within)

    return PlacedProgram(jaxpr=inside(jaxpr, own, on_devices=False, in_log=False), own=own, bodies=bodies)


class _LoopNames:
    """Names loops in the order of the program, whether they log or not, so that a log renames no other loop."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._counts: Counter[str] = Counter()

    def next(self, body: compat.AnyJaxpr, part: str, *, in_log: bool = False) -> str:
        """Return the name of the next loop's event.

        Args:
            body: What it repeats.
            part: As which of its parameters.
            in_log: Whether only a log computes it: it may be missing next time, so these loops have names of their own.
        """
        function, other = compat.function_name(body), "test" if part == TEST else "loop"
        own = f"{self._own}_log" if in_log else self._own
        name = f"{own}_{function if function.isidentifier() and function[0] != '_' else other}"
        self._counts[name] += 1
        return name if self._counts[name] == 1 else f"{name}_{self._counts[name]}"

    def count(self, eqn: compat.Equation) -> None:
        """Count the loops in an equation that logs nothing; those that only a log computes may be missing next time."""
        programs = within(eqn)
        if programs and IN_LOG in compat.name_stack(eqn):
            return
        for inner in programs:
            if inner.kind == "loop":
                self.next(inner.jaxpr, inner.name)
            for each in inner.jaxpr.eqns:
                self.count(each)
