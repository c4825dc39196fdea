"""Why queries have no records: after some events that brought none of their tensors, a note says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch

from .calls import ACTIVATION_GRADS, EVALUATED
from .capture import Work
from .observables import modules, parameters
from .optimizer_steps import GRADS, UPDATES
from .passes import module_name

N_SILENT: Final = 8  # more batches than most programs accumulate; a note is no error, so it may be early

NOT_CALLED: Final = "it was not called"
NO_TENSOR: Final = (
    "its module was not called, or has none of this name; b.{kind}.map(lambda name, x: x.shape) lists them"
)
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
    if module_name(name, modules(module)) != name:
        return NO_TENSOR.format(kind=kind)
    return NOT_EVALUATED if kind in EVALUATED.values() else NOT_CALLED
