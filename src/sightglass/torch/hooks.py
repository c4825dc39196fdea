"""The hooks of a watched module: each exists only while a query needs its tensor.

Hooks change between events, on the thread that observes, so never during a call of the module. A gradient is read right
after the step of the optimizer that holds its parameter, when it is what the step used: reduced over processes,
unscaled, clipped, not yet zeroed. If no optimizer holds it, it is read when it has been accumulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from .compiled import Compiled, forward_hook
from .observables import is_made, modules, once, parameters
from .optimizer_steps import GRADS, UPDATES, Due, OptimizerSteps, TakeAll

Take = Callable[[str, str, Any], None]

ACTIVATIONS, ACTIVATION_GRADS = "activations", "activation_grads"
OF_MODULES = frozenset({ACTIVATIONS, ACTIVATION_GRADS})


class Hooks:
    """The hooks on one module and its optimizers.

    Attributes:
        compiled: Whether the module is compiled.
        steps: The hooks on the optimizers.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        take: Take,
        take_all: TakeAll,
        due: Due,
        compiled: Compiled,
    ) -> None:
        self.compiled = compiled
        self._take = take
        self.steps = OptimizerSteps(module, optimizers, take_all, due)
        self._module = module
        self._forward: dict[str, Any] = {}
        self._backward: dict[str, Any] = {}
        self._accumulate: dict[str, Any] = {}

    @property
    def n_hooks(self) -> int:
        """The number of hooks."""
        return len(self._forward) + len(self._backward) + len(self._accumulate) + self.steps.n_hooks

    def known(self, kind: str) -> tuple[list[str], Iterable[str]]:
        """Return the names of a kind's tensors without duplicates, and all names that queries may use."""
        if kind in OF_MODULES:
            inside = modules(self._module)
            return [name for name, module in once(inside).items() if not any(True for _ in module.children())], inside
        named = self.steps.held() if kind == UPDATES else parameters(self._module)
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
        grads, updates = ({*wanted.get(kind, ())} for kind in (GRADS, UPDATES))
        stepped = grads & self.steps.held().keys()
        self._set_accumulate(grads - stepped)
        self.steps.use(stepped, updates)

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
