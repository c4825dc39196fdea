"""What a module takes and returns in one pass: the names of its tensors, and which pass an event is about.

The tensors of a module that takes or returns several have paths as names: "lstm[0]", "lstm[1][0]", "attn[mask]".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final

import torch

from sightglass.core.guarded import parts

MAX_PARTS: Final = 1_000  # of one value; more than the layers of a cache have
PATH: Final = re.compile(r"(\[[^\[\]]*\])+$")

TRAINING: Final = 2
"""The priority of a pass in training mode; with gradients, one more."""


def priority(module: torch.nn.Module) -> int:
    """Return the priority of the pass that a watched module is in.

    At an event, the passes of the highest priority since the last event count, and of these the last. So an evaluation
    takes nothing from the training, and the answer is there in a program that only evaluates.
    """
    return TRAINING * bool(module.training) + int(torch.is_grad_enabled())


def tensors_of(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of what a module took or returned, with their names; a tensor alone has the module's name."""
    waiting: list[tuple[str, Any]] = [(name, value)]
    for _ in range(MAX_PARTS):
        if not waiting:
            return
        path, one = waiting.pop()
        if isinstance(one, torch.Tensor):
            yield path, one
        elif level := parts(one):
            waiting += reversed([(f"{path}[{key}]", part) for key, part in islice(level.pairs, MAX_PARTS)])


def module_name(name: str, known: Collection[str] = ()) -> str:
    """Return the name of a tensor's module: "lstm" for "lstm[1][0]", unless a module has the whole name."""
    return name if name in known or not name.endswith("]") else PATH.sub("", name)


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a module was called with: its only argument, else a tuple, or a mapping if some are named."""
    if not kwargs:
        return args[0] if len(args) == 1 else args
    return {**{str(i): one for i, one in enumerate(args)}, **kwargs}
