"""The hooks of a watched module: each exists only while a query needs its tensor.

Hooks change between events, on the thread that observes, so never during a call of the module. A gradient is read right
after the optimizer's step, when it is what the step used: reduced over processes, unscaled, clipped, not yet zeroed.
Without an optimizer it is read when it has been accumulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .compiled import Compiled, forward_hook
from .observables import is_made, local, modules, once, parameters

Take = Callable[[str, str, Any], None]
TakeAll = Callable[[str, Iterable[tuple[str, Any]]], None]

ACTIVATIONS, ACTIVATION_GRADS, GRADS, UPDATES = "activations", "activation_grads", "grads", "updates"
OF_MODULES = frozenset({ACTIVATIONS, ACTIVATION_GRADS})


class Hooks:
    """The hooks on one module and its optimizer.

    Attributes:
        compiled: Whether the module is compiled.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        take: Take,
        take_all: TakeAll,
        compiled: Compiled,
    ) -> None:
        self.compiled = compiled
        self._take = take
        self._take_all = take_all
        self._module = module
        self._optimizer = optimizer
        self._forward: dict[str, Any] = {}
        self._backward: dict[str, Any] = {}
        self._accumulate: dict[str, Any] = {}
        self._step: list[Any] = []
        self._grads: tuple[str, ...] = ()
        self._updates: tuple[str, ...] = ()
        self._before: dict[str, torch.Tensor] = {}

    @property
    def n_hooks(self) -> int:
        """The number of hooks."""
        return len(self._forward) + len(self._backward) + len(self._accumulate) + len(self._step)

    def known(self, kind: str) -> tuple[list[str], Iterable[str]]:
        """Return the names of a kind's tensors without duplicates, and all names that queries may use."""
        if kind in OF_MODULES:
            inside = modules(self._module)
            return [name for name, module in once(inside).items() if not any(True for _ in module.children())], inside
        named = parameters(self._module)
        return [name for name, p in once(named).items() if p.requires_grad], named

    @property
    def is_made(self) -> bool:
        """Whether all parameters have shapes; those of lazy modules get theirs in the first call."""
        return all(map(is_made, self._module.parameters()))

    def use(self, wanted: Mapping[str, Iterable[str]]) -> None:
        """Set hooks for these tensors, and remove all others.

        Args:
            wanted: The names of the tensors, by observable.
        """
        self._set_forward({*wanted.get(ACTIVATIONS, ())})
        self._set_backward({*wanted.get(ACTIVATION_GRADS, ())})
        self._grads, self._updates = (tuple(dict.fromkeys(wanted.get(kind, ()))) for kind in (GRADS, UPDATES))
        if self._optimizer is None:
            self._set_accumulate({*self._grads})
        else:
            self._set_step()

    def remove(self) -> None:
        """Remove all hooks."""
        self.use({})

    def _set_forward(self, names: set[str]) -> None:
        if names == self._forward.keys():
            return
        for name in self._forward.keys() - names:
            self._forward.pop(name).remove()
        named = modules(self._module)
        for name in sorted(names - self._forward.keys()):
            place = self.compiled.place(self._take, name)
            hook = forward_hook(self._take, name, place)
            self._forward[name] = named[name].register_forward_hook(hook)
        self.compiled.changed()

    def _set_backward(self, names: set[str]) -> None:
        for name in self._backward.keys() - names:
            self._backward.pop(name).remove()
        named = modules(self._module)
        for name in sorted(names - self._backward.keys()):
            self._backward[name] = named[name].register_forward_hook(self._flows(name))

    def _flows(self, name: str) -> Callable[[torch.nn.Module, object, object], None]:
        """Return a forward hook that reads the gradient of a module's output.

        It sets a hook on the tensor, which lives as long as its graph. With a full backward hook on the module, the
        program could no longer change the outputs in place.
        """

        def hook(module: torch.nn.Module, args: object, output: object) -> None:
            if not torch.compiler.is_compiling() and isinstance(output, torch.Tensor) and output.requires_grad:
                output.register_hook(  # type: ignore[no-untyped-call,unused-ignore]
                    lambda gradient: self._take(ACTIVATION_GRADS, name, gradient)
                )

        return hook

    def _set_accumulate(self, names: set[str]) -> None:
        for name in self._accumulate.keys() - names:
            self._accumulate.pop(name).remove()
        named = parameters(self._module)
        for name in names - self._accumulate.keys():
            hook = self._accumulated(name)
            self._accumulate[name] = named[name].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call,unused-ignore]

    def _accumulated(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._take(GRADS, name, parameter.grad)

        return hook

    def _set_step(self) -> None:
        for handle in self._step:
            handle.remove()
        self._step, self._before = [], {}
        assert self._optimizer is not None
        if self._updates:
            self._step.append(self._optimizer.register_step_pre_hook(self._remember))
        if self._updates or self._grads:
            self._step.append(self._optimizer.register_step_post_hook(self._made_step))

    def _remember(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        named = parameters(self._module)
        self._before = {name: local(named[name]).clone() for name in self._updates if name in named}

    def _made_step(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        named = parameters(self._module)
        found = [(name, named[name].grad) for name in self._grads if name in named]
        self._take_all(GRADS, [(name, gradient) for name, gradient in found if gradient is not None])
        before, self._before = self._before, {}
        for name, old in before.items():
            with torch.no_grad():
                update = local(named[name]) - old
            self._take(UPDATES, name, update)
