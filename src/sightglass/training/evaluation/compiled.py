"""Compiled steps of a run: functions that can be queried from inside, and that all ranks must compile alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import msgspec


class VariantPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The queries that all ranks compile into a step.

    Attributes:
        signature: The signature that the plan is for, as all ranks name it.
        use: The queries, as text, that the step answers from the next call on.
        prepare: The queries to compile meanwhile.
    """

    signature: str = ""
    use: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()


NO_PLAN: Final = VariantPlan()

Plans = dict[str, VariantPlan]
"""Plans by the event of their step."""


class CompiledStep(Protocol):
    """Follows the subscriptions of its run, and reports which observables it can offer.

    A class that derives from this compiles nothing into a step, and has handed over each event when it is over.
    """

    event: str

    def survey(self) -> bool:
        """Start to find out what the step offers; return whether that is known, or cannot be known yet."""
        return True

    def subscriptions_changed(self) -> None:
        """React to a subscription that was opened or closed."""

    def propose(self) -> VariantPlan:
        """Return, on rank 0, what all ranks are to compile into the step."""
        return NO_PLAN

    def adopt(self, plan: VariantPlan) -> None:
        """Follow a plan from the next call on."""
        return

    def flush(self, timeout_s: float) -> None:
        """Wait until the step has handed over the events of its last call."""
        return

    def close(self) -> None:
        """Stop: the run has ended."""


class CompiledSteps:
    """The compiled steps of a run. Iteration is safe while another thread adds or removes one."""

    def __init__(self) -> None:
        self._steps: tuple[CompiledStep, ...] = ()

    def __iter__(self) -> Iterator[CompiledStep]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: CompiledStep) -> None:
        """Follow the subscriptions of the run with this step from now on."""
        self._steps = (*self._steps, step)

    def remove(self, step: CompiledStep) -> None:
        """Forget a step, if it is there."""
        self._steps = tuple(other for other in self._steps if other is not step)

    def survey(self) -> bool:
        """Start to find out what the steps offer; return whether all of that is known."""
        known = [step.survey() for step in self._steps]  # all start, even if the first one is not ready
        return all(known)

    def subscriptions_changed(self) -> None:
        """Tell all steps that a subscription was opened or closed."""
        for step in self._steps:
            step.subscriptions_changed()

    def propose(self) -> Plans:
        """Return what each step is to compile on all ranks."""
        return {step.event: step.propose() for step in self._steps}

    def adopt(self, plans: Mapping[str, VariantPlan]) -> None:
        """Let each step follow its plan; a step without one answers no query."""
        for step in self._steps:
            step.adopt(plans.get(step.event, NO_PLAN))

    def flush(self, timeout_s: float) -> None:
        """Wait until the steps have handed over the events of their last calls."""
        for step in self._steps:
            step.flush(timeout_s)

    def close(self) -> None:
        """Stop all steps: the run has ended."""
        for step in self._steps:
            step.close()
