"""Controls for an optimizer's settings, such as its learning rate: bounded, effective from the next step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import torch

from sightglass.training.controls import BoundControl

from .observables import group_names

SETTINGS: Final = ("lr", "weight_decay")
LARGEST: Final = 1.0  # above any usual learning rate or weight decay
ROOM: Final = 10.0  # the default bound, in multiples of the first value, if that is more than `LARGEST`

Bounds = Mapping[str, tuple[float, float]]


class Setting:
    """One setting of one parameter group, as a number."""

    def __init__(self, optimizer: torch.optim.Optimizer, group: int, key: str) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._group = group
        self._key = key
        self._last = 0.0
        self._last = self.value

    @property
    def value(self) -> float:
        """The current value; the last one if the optimizer no longer exists."""
        optimizer = self._optimizer()
        if optimizer is not None:
            self._last = float(optimizer.param_groups[self._group][self._key])
        return self._last

    @value.setter
    def value(self, value: float) -> None:
        optimizer = self._optimizer()
        if optimizer is None:
            raise RuntimeError("The optimizer no longer exists")
        group = optimizer.param_groups[self._group]
        if isinstance(group[self._key], torch.Tensor):  # a captured or compiled step reads this tensor
            group[self._key].fill_(value)
        else:
            group[self._key] = value


def controls(
    optimizers: Sequence[torch.optim.Optimizer], *, prefix: str, bounds: Bounds, where: str
) -> Iterator[BoundControl]:
    """Yield a control for each setting of each group of each optimizer.

    Their names are "optimizer.lr"; with several groups "optimizer.head.lr"; with several optimizers "optimizer.0.lr"
    and "optimizer.0.head.lr".

    Raises:
        CommandError: A setting is out of its bounds.
    """
    for i, optimizer in enumerate(optimizers):
        of = f"{prefix}optimizer.{i}." if len(optimizers) > 1 else f"{prefix}optimizer."
        yield from _controls(optimizer, prefix=of, bounds=bounds, where=where)


def _controls(optimizer: torch.optim.Optimizer, *, prefix: str, bounds: Bounds, where: str) -> Iterator[BoundControl]:
    names = group_names(optimizer)
    for i, (name, group) in enumerate(zip(names, optimizer.param_groups, strict=True)):
        for key in SETTINGS:
            if isinstance(group.get(key), int | float | torch.Tensor):
                setting = Setting(optimizer, i, key)
                low, high = bounds.get(key, (0.0, max(LARGEST, ROOM * setting.value)))
                path = f"{name}.{key}" if len(names) > 1 else key
                yield BoundControl(f"{prefix}{path}", (setting, "value"), min=low, max=high, where=where)


def unwrapped(optimizer: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers of an argument: none, one, or several in a sequence; each once, without wrappers.

    Raises:
        TypeError: One of them is not a `torch.optim.Optimizer` or a wrapper of one.
    """
    several = optimizer if isinstance(optimizer, Sequence) else () if optimizer is None else (optimizer,)
    return tuple(dict.fromkeys(map(_unwrapped, several)))


def _unwrapped(optimizer: object) -> torch.optim.Optimizer:
    """Return the optimizer inside wrappers, such as Lightning's and Accelerate's.

    Raises:
        TypeError: `optimizer` is not a `torch.optim.Optimizer` or a wrapper of one.
    """
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"Expected an optimizer of torch.optim, got {type(optimizer).__name__}")
    return optimizer
