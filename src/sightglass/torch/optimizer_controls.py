"""Controls for an optimizer's settings, such as its learning rate: bounded, effective from the next step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from sightglass.core.errors import CommandError
from sightglass.training.controls import BoundControl

from .observables import group_names
from .optimizer_steps import is_step_compiled

SETTINGS: Final = ("lr", "weight_decay")
SCHEDULED: Final = (
    "A scheduler changes this rate at each of its steps. Some compute the next rate from this one, such as StepLR and "
    "CosineAnnealingLR; others overwrite it, such as LambdaLR and OneCycleLR. 'lr_scale' lasts: it multiplies all rates"
)
ON_PLATEAU: Final = (
    "ReduceLROnPlateau multiplies this rate, whatever it is by then, when its metric no longer improves; "
    "it does not change 'lr_scale'"
)
LARGEST: Final = 1.0  # above any usual learning rate or weight decay
ROOM: Final = 10.0  # the default bound, in multiples of the first value, if that is more than `LARGEST`

Bounds = Mapping[str, tuple[float, float]]


class Setting:
    """One setting of one parameter group, or of all groups of an optimizer, as a number."""

    def __init__(self, optimizer: torch.optim.Optimizer, key: str, group: int | None = None) -> None:
        """Take the setting of a group; without a group that of all: it reads the first, and sets all."""
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
            self._last = float(optimizer.param_groups[self._group or 0][self._key])
        return self._last

    @value.setter
    def value(self, value: float) -> None:
        groups = alive(self._optimizer).param_groups
        for group in groups if self._group is None else [groups[self._group]]:
            if isinstance(group[self._key], torch.Tensor):  # a captured or compiled step reads this tensor
                group[self._key].fill_(value)
            else:
                group[self._key] = value

    def note(self) -> str:
        """Return what a client that has set it should know."""
        optimizer = self._optimizer()
        if optimizer is None or self._key != "lr":
            return ""
        if any("initial_lr" in group for group in optimizer.param_groups):
            return SCHEDULED
        return ON_PLATEAU if _waits_for_plateau(optimizer) else ""


def _waits_for_plateau(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a `ReduceLROnPlateau` holds an optimizer, on which it leaves no mark, as other schedulers do.

    To look through all objects takes some 20 ms, once for each `set` of a client.
    """
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    holders = gc.get_referrers(optimizer)  # the scheduler, or its `__dict__`
    dicts = [holder for holder in holders if type(holder) is dict and holder.get("optimizer") is optimizer]
    return any(isinstance(one, plateau) for one in (*holders, *(gc.get_referrers(*dicts) if dicts else ())))


class RateScale:
    """A factor on all learning rates of an optimizer, whatever computes them: in force within its steps only.

    Between the steps the rates are the program's, so that a scheduler that computes a rate from the one before, or a
    checkpoint, never sees the factor. The hooks exist while it is not 1.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._factor = 1.0
        self._handles: list[Any] = []
        self._before: list[Any] = []  # the program's rates, within a step

    @property
    def value(self) -> float:
        """The factor."""
        return self._factor

    @value.setter
    def value(self, value: float) -> None:
        optimizer = alive(self._optimizer)
        if value != 1.0 and is_step_compiled(optimizer):
            raise CommandError("The optimizer's step is compiled, and runs no hooks. Set its lr instead")
        self.close()
        self._factor = value
        if value != 1.0:
            self._handles = [
                optimizer.register_step_pre_hook(self._scale),
                optimizer.register_step_post_hook(self._restore),
            ]

    def close(self) -> None:
        """Set the factor to 1."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._factor = [], 1.0

    def note(self) -> str:
        """Return "": no scheduler overwrites it."""
        return ""

    def _scale(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._restore(optimizer, args, kwargs)  # those of a step that failed
        groups = optimizer.param_groups
        self._before = [(group, _kept(group["lr"])) for group in groups if "lr" in group]
        for group, rate in self._before:
            _set_rate(group, rate * self._factor)

    def _restore(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if torch.compiler.is_compiling():
            return
        for group, rate in self._before:
            _set_rate(group, rate)
        self._before = []


def _kept(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate


def _set_rate(group: dict[str, Any], rate: Any) -> None:
    if isinstance(group["lr"], torch.Tensor):  # the tensor stays the one that others hold
        group["lr"].copy_(rate)
    else:
        group["lr"] = rate


def alive(optimizer: weakref.ref[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """Return an optimizer.

    Raises:
        CommandError: It no longer exists.
    """
    found = optimizer()
    if found is None:
        raise CommandError("The optimizer no longer exists")
    return found


def controls(
    optimizers: Sequence[torch.optim.Optimizer],
    scales: Sequence[RateScale],
    *,
    prefix: str,
    bounds: Bounds,
    where: str,
) -> Iterator[BoundControl]:
    """Yield a control for each setting of each group of each optimizer, and for the scale of its rates.

    Their names are "optimizer.lr"; with several groups "optimizer.head.lr", and "optimizer.lr" sets the rate of all;
    with several optimizers "optimizer.0.lr" and "optimizer.0.head.lr".

    Raises:
        CommandError: A setting is out of its bounds.
    """
    for i, (optimizer, scale) in enumerate(zip(optimizers, scales, strict=True)):
        of = f"{prefix}optimizer.{i}." if len(optimizers) > 1 else f"{prefix}optimizer."
        for path, owner in _owners(optimizer, scale):
            key = path.rpartition(".")[2]
            low, high = bounds.get(key, (0.0, max(ROOM if owner is scale else LARGEST, ROOM * owner.value)))
            yield BoundControl(f"{of}{path}", (owner, "value"), min=low, max=high, where=where, note=owner.note)


def _owners(optimizer: torch.optim.Optimizer, scale: RateScale) -> Iterator[tuple[str, Setting | RateScale]]:
    """Yield what can be set of an optimizer, each with its name."""
    names = group_names(optimizer)
    for i, (name, group) in enumerate(zip(names, optimizer.param_groups, strict=True)):
        for key in SETTINGS:
            if isinstance(group.get(key), int | float | torch.Tensor):
                several = len(names) > 1
                yield (f"{name}.{key}" if several else key), Setting(optimizer, key, i if several else None)
    if all(isinstance(group.get("lr"), int | float | torch.Tensor) for group in optimizer.param_groups):
        if len(names) > 1:
            yield "lr", Setting(optimizer, "lr")
        yield "lr_scale", scale


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
