"""A module's parameters, its buffers and its optimizer's state, by name, as mappings that read them on demand.

Tensors come without their graphs. A tensor with two names is found under both, and listed once, under the first. A lazy
module's parameters are absent until they have a shape. Of a distributed tensor each process reads its local shard:
reading all of it would make the processes wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Final

import torch

from sightglass.core.errors import AbsentError, RefusedQueryError
from sightglass.core.program_values.array_data import check_data
from sightglass.core.program_values.guarded import OwnMapping
from sightglass.core.program_values.own_pieces import is_distributed, own_piece

COMPILED: Final = "_orig_mod"
WRAPPERS: Final = (COMPILED, "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
COMMON: Final = frozenset({torch.Tensor, torch.nn.Parameter})
NUMBERS: Final = (bool, int, float, str)
SELF_CONTAINED: Final = (torch.jit.ScriptModule, torch.nn.MultiheadAttention)
"""Modules that compute with their children, and never call them in Python."""
HOLDERS: Final = (torch.nn.ParameterList, torch.nn.ParameterDict)
"""Modules that only hold parameters, and are never called."""


def plain(name: str) -> str:
    """Return a name without the parts that `torch.compile` and module wrappers add."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def wrappers(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield a module, and what is inside it as long as it is a wrapper: of `torch.compile`, or for several devices."""
    while True:
        yield module
        if isinstance(module, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            module = module.module
        elif is_compiled(module):
            module = dict(module.named_children())[COMPILED]
        else:
            return


def inner(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module inside wrappers, or the module itself."""
    *_, innermost = wrappers(module)
    return innermost


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether a module is the result of `torch.compile`."""
    return COMPILED in dict(module.named_children())


def is_made(tensor: torch.Tensor) -> bool:
    """Return whether a parameter or buffer has a shape; that of a lazy module has none before the first call."""
    return not isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its graph; of a distributed tensor, this process's piece.

    Raises:
        RefusedQueryError: The program has freed the tensor's memory, as FSDP does between uses.
        UnreadableError: The tensor has no data, or is a stand-in inside a transformation such as `torch.func.vmap`.
    """
    if type(tensor) not in COMMON:
        kind: type = type(tensor)
        tensor = own_piece(tensor, "torch") if is_distributed(kind) else tensor.detach()
    if tensor.is_meta:
        check_data(tensor, "torch")  # says why
    try:
        is_freed = tensor.layout is torch.strided and tensor.numel() and not tensor.untyped_storage().nbytes()
    except NotImplementedError:
        check_data(tensor, "torch")
        raise
    if is_freed:
        raise RefusedQueryError("The memory of this tensor is freed at the moment")
    return tensor.detach() if tensor.requires_grad else tensor


def parameters(module: torch.nn.Module | None) -> dict[str, torch.nn.Parameter]:
    """Return a module's parameters by all their names, except parameters without a shape."""
    return {} if module is None else KnownParameters(module).named()


def buffers(module: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    """Return a module's buffers, such as the running statistics of a BatchNorm, by all their names."""
    named = () if module is None else module.named_buffers(remove_duplicate=False)
    return {plain(name): buffer for name, buffer in named if is_made(buffer)}


class KnownParameters:
    """A module's parameters by all their names. They are looked up again only where the module has changed.

    Looking them up takes as long as some small operators, and it is done at each step that somebody asks about.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.version = 0  # counts the changes
        self._module = module
        self._named: dict[str, torch.nn.Parameter] = {}
        self._dicts: list[dict[str, Any]] = []
        self._places: tuple[list[dict[str, Any]], list[str], list[Any]] = ([], [], [])

    def named(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters, except those without a shape."""
        if not self._dicts or not self._is_unchanged():
            self._look_up()
        return self._named

    def _is_unchanged(self) -> bool:
        dicts, names, values = self._places
        return sum(map(len, self._dicts)) == len(names) and all(map(is_, map(dict.get, dicts, names), values))

    def _look_up(self) -> None:
        self._named, self._dicts = {}, []
        stack = [("", self._module)]
        while stack:
            prefix, parent = stack.pop()
            self._dicts += (parent._parameters, parent._modules)
            for name, parameter in parent._parameters.items():
                if parameter is not None and is_made(parameter):
                    self._named[prefix + name] = parameter
            for name, child in reversed([*parent._modules.items()]):
                if child is not None:
                    stack.append((prefix if name in WRAPPERS else f"{prefix}{name}.", child))
        if not all(isinstance(one, dict) for one in self._dicts) or not all(map(is_made, self._module.parameters())):
            self._dicts = []  # TorchScript makes new objects at each look; a lazy parameter changes its class
        self.version += bool(self._dicts)
        places = [(one, *item) for one in self._dicts for item in one.items()]
        self._places = tuple(map(list, zip(*places, strict=True))) if places else ([], [], [])  # type: ignore[assignment]


def modules(module: torch.nn.Module | None) -> dict[str, torch.nn.Module]:
    """Return the modules inside a module by all their names; its own name is empty."""
    if module is None:
        return {}
    named = module.named_modules(remove_duplicate=False)
    return {plain(name): child for name, child in named}


def called_modules(module: torch.nn.Module | None) -> dict[str, torch.nn.Module]:
    """Return the modules that are called in Python, by all their names."""
    named = modules(module)
    closed = [name for name, one in named.items() if isinstance(one, SELF_CONTAINED)]
    return {name: one for name, one in named.items() if not any(is_inside(name, outer) for outer in closed)}


def leaf_modules(module: torch.nn.Module | None) -> list[str]:
    """Return the names of the modules that call no others in Python, each once."""
    named = once(called_modules(module))
    return [name for name, one in named.items() if _is_leaf(one)]


def _is_leaf(module: torch.nn.Module) -> bool:
    return isinstance(module, SELF_CONTAINED) or all(isinstance(child, HOLDERS) for child in module.children())


def is_inside(name: str, outer: str) -> bool:
    """Return whether a module is inside another one, by their names."""
    return name != outer and (not outer or name.startswith(f"{outer}."))


def once(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without values that it already lists under another name."""
    seen: set[int] = set()
    return {name: value for name, value in named.items() if not (id(value) in seen or seen.add(id(value)))}  # type: ignore[func-returns-value]


class LazyMapping(OwnMapping):
    """A mapping that is computed when it is first read."""

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


class Shared(LazyMapping):
    """A mapping whose values are found under all their names, and listed once, under the first."""

    def __iter__(self) -> Iterator[str]:
        return iter(once(self._items()))

    def __len__(self) -> int:
        return len(once(self._items()))

    def __contains__(self, name: object) -> bool:
        return name in self._items()


class Parameters(Shared):
    """A module's parameters or buffers by their names, without their graphs."""

    def __getitem__(self, name: str) -> torch.Tensor:
        return local(self._items()[name])


def held_parameters(
    optimizers: Iterable[torch.optim.Optimizer], module: torch.nn.Module | None
) -> dict[str, torch.nn.Parameter]:
    """Return the parameters of a module that an optimizer holds, by all their names."""
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in parameters(module).items() if id(p) in held}


def group_names(optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of an optimizer's parameter groups: their "name", or the index of one without.

    Where two would have one name, all have their indices.
    """
    given = [group.get("name") for group in optimizer.param_groups]
    names = [name if isinstance(name, str) and name else str(i) for i, name in enumerate(given)]
    return names if len({*names}) == len(names) else [str(i) for i in range(len(names))]


def optimizers_view(
    optimizers: Sequence[torch.optim.Optimizer | None], module: torch.nn.Module | None
) -> dict[str, Any]:
    """Return the settings, groups and state of one optimizer, or those of several optimizers by their numbers.

    Returns:
        Of one optimizer, what `_optimizer_view` returns. Of several, that of each under "0", "1" and so on, and each
        setting by its name, such as "lr": its values by optimizer.

    Raises:
        AbsentError: No optimizer exists any longer.
    """
    views = {str(i): _optimizer_view(one, module) for i, one in enumerate(optimizers) if one is not None}
    if not views:
        raise AbsentError("The optimizer no longer exists")
    if len(optimizers) == 1:
        return views["0"]
    keys = dict.fromkeys(key for view in views.values() for key in view if key not in ("groups", "state"))
    return {**views, **{key: {i: view[key] for i, view in views.items() if key in view} for key in keys}}


def _optimizer_view(optimizer: torch.optim.Optimizer, module: torch.nn.Module | None) -> dict[str, Any]:
    """Return an optimizer's settings, groups and state.

    Returns:
        Each setting by its name, such as "lr": the value, or with several groups the values by group; "groups", a list
        of the groups' settings; "state", the optimizer's state of each parameter by name.
    """
    groups = [_settings(group) for group in optimizer.param_groups]
    names = group_names(optimizer)
    view: dict[str, Any] = {}
    for key in dict.fromkeys(key for group in groups for key in group):
        values = {name: group[key] for name, group in zip(names, groups, strict=True) if key in group}
        view[key] = next(iter(values.values())) if len(groups) == 1 else values
    return {**view, "groups": groups, "state": Shared(lambda: _state(optimizer, module))}


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in group.items():
        if isinstance(value, torch.Tensor) and value.ndim == 0:
            found[key] = value.detach()
        elif isinstance(value, NUMBERS) or (isinstance(value, tuple) and all(isinstance(v, NUMBERS) for v in value)):
            found[key] = value
    return found


def _state(optimizer: torch.optim.Optimizer, module: torch.nn.Module | None) -> dict[str, dict[str, Any]]:
    named = {name: p for name, p in parameters(module).items() if p in optimizer.state}
    states = {p: _state_of(optimizer.state[p]) for p in named.values()}
    return {name: states[p] for name, p in named.items()}


def _state_of(state: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: local(value) if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    return {key: value for key, value in values.items() if isinstance(value, (*NUMBERS, torch.Tensor))}
