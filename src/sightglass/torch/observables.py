"""What can be read of a module and its optimizer at any time, by name: mappings that look when they are read.

A tensor is offered without its graph. A tensor that two names share is found by both, and listed once, under the first.
A parameter that a lazy module has not made yet is not there. Of a tensor that is spread over processes, each process
offers its own piece: reading all of it would make the processes wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from sightglass.core.errors import AbsentError
from sightglass.core.values import type_name

COMPILED: Final = "_orig_mod"
WRAPPERS: Final = (COMPILED, "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
NUMBERS: Final = (bool, int, float, str)


def plain(name: str) -> str:
    """Return a name without what `torch.compile` and wrappers of modules put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def inner(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module that `torch.compile` or a wrapper for several devices is around, or the module itself."""
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while True:
        if isinstance(module, parallel):
            module = module.module
        elif is_compiled(module):
            module = dict(module.named_children())[COMPILED]
        else:
            return module


def is_compiled(module: torch.nn.Module) -> bool:
    """Tell whether a module is what `torch.compile` returned for another."""
    return COMPILED in dict(module.named_children())


def is_made(tensor: torch.Tensor) -> bool:
    """Tell whether a parameter has its shape, which a lazy module's has not before the first call."""
    return not isinstance(tensor, torch.nn.UninitializedParameter)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its graph; of one that is spread over processes, this one's piece."""
    tensor = tensor.detach()
    piece = getattr(tensor, "to_local", None)  # torch.distributed.tensor.DTensor, wherever it lives
    return tensor if piece is None else piece()


def parameters(module: torch.nn.Module | None) -> dict[str, torch.nn.Parameter]:
    """Return a module's parameters by all their names, but for those that have no shape yet."""
    if module is None:
        return {}
    named = module.named_parameters(remove_duplicate=False)
    return {plain(name): parameter for name, parameter in named if is_made(parameter)}


def modules(module: torch.nn.Module | None) -> dict[str, torch.nn.Module]:
    """Return the modules within a module by all their names; its own is empty."""
    if module is None:
        return {}
    named = module.named_modules(remove_duplicate=False)
    return {plain(name): child for name, child in named}


def once(named: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what has been listed under another name already."""
    seen: set[int] = set()
    return {name: value for name, value in named.items() if not (id(value) in seen or seen.add(id(value)))}  # type: ignore[func-returns-value]


class Looked(Mapping[str, Any]):
    """A mapping that is made when it is first read."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make
        self._made: Mapping[str, Any] | None = None

    def _items(self) -> Mapping[str, Any]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> Any:
        return self._items()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())


class Parameters(Looked):
    """A module's parameters by their names."""

    def __init__(self, module: Callable[[], torch.nn.Module | None]) -> None:
        super().__init__(lambda: parameters(module()))

    def __getitem__(self, name: str) -> torch.Tensor:
        return local(self._items()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(once(self._items()))

    def __len__(self) -> int:
        return len(once(self._items()))

    def __contains__(self, name: object) -> bool:
        return name in self._items()


def group_names(optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of an optimizer's groups: what they say under "name", else their numbers."""
    said = [group.get("name") for group in optimizer.param_groups]
    named = all(isinstance(name, str) and name for name in said) and len({*said}) == len(said)
    return [str(name) for name in said] if named else [str(i) for i in range(len(said))]


def optimizer_view(optimizer: torch.optim.Optimizer | None, module: torch.nn.Module | None) -> dict[str, Any]:
    """Return an optimizer's settings, groups and state.

    Returns:
        Each setting by its name, such as "lr": the value, or values by group where there are several; "groups", a list
        of their settings; "state", for each parameter by name what the optimizer keeps of it.

    Raises:
        AbsentError: There is no optimizer any more.
    """
    if optimizer is None:
        raise AbsentError("The optimizer is gone")
    groups = [_settings(group) for group in optimizer.param_groups]
    names = group_names(optimizer)
    view: dict[str, Any] = {}
    for key in dict.fromkeys(key for group in groups for key in group):
        values = {name: group[key] for name, group in zip(names, groups, strict=True) if key in group}
        view[key] = next(iter(values.values())) if len(groups) == 1 else values
    return {**view, "groups": groups, "state": Looked(lambda: _state(optimizer, module))}


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in group.items():
        if isinstance(value, torch.Tensor) and value.ndim == 0:
            found[key] = value.detach()
        elif isinstance(value, NUMBERS) or (isinstance(value, tuple) and all(isinstance(v, NUMBERS) for v in value)):
            found[key] = value
    return found


def _state(optimizer: torch.optim.Optimizer, module: torch.nn.Module | None) -> dict[str, dict[str, Any]]:
    named = once(parameters(module))
    return {name: _kept(optimizer.state[p]) for name, p in named.items() if p in optimizer.state}


def _kept(state: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: local(value) if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    return {key: value for key, value in kept.items() if isinstance(value, (*NUMBERS, torch.Tensor))}


def told(value: object) -> str:
    """Say what a parameter is."""
    return type_name(value)
