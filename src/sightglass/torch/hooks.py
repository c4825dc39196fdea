"""The hooks of a watched module: each exists only while a query needs its tensor.

Hooks change between events, on the thread that observes, so never during a call of the module. A gradient is read right
after the step of the optimizer that holds its parameter, when it is what the step used: reduced over processes,
unscaled, clipped, not yet zeroed. If no optimizer holds it, it is read when it has been accumulated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import torch

from sightglass.core.program_values.guarded import FAILURES

from .calls import OF_MODULES, ModuleCalls, Take
from .compiled import Compiled, n_compiled
from .observables import is_made, leaf_modules, modules, once, parameters
from .optimizer_steps import GRADS, UPDATES, Due, OptimizerSteps

Place = tuple[str, str]
"""An observable and the name of one of its tensors."""

WHOLE: Final = ""
"""The name of the watched module itself."""


class Hooks:
    """The hooks on one module and its optimizers.

    Attributes:
        looks_for_calls: Whether calls of the module itself are watched, although no query needs them.
        calls: The calls of modules from Python.
        compiled: The calls inside compiled programs.
        steps: The hooks on the optimizers.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        take: Take,
        due: Due,
        compiled: Compiled,
    ) -> None:
        self.looks_for_calls = False
        self.calls = ModuleCalls(module, take=take, saw=compiled.saw)
        self.compiled = compiled
        self.steps = OptimizerSteps(module, optimizers, take, due)
        self._take = take
        self._module = module
        self._accumulate: dict[str, tuple[torch.nn.Parameter, Any]] = {}

    @property
    def n_hooks(self) -> int:
        """The number of hooks."""
        return self.calls.n_hooks + self.compiled.n_hooks + len(self._accumulate) + self.steps.n_hooks

    def known(self, kind: str) -> tuple[list[str], Collection[str]]:
        """Return the names of a kind's tensors without duplicates, and all names that queries may use."""
        if kind in OF_MODULES:
            return leaf_modules(self._module), modules(self._module)
        named = self.steps.held() if kind == UPDATES else parameters(self._module)
        return [name for name, p in once(named).items() if p.requires_grad], named

    @property
    def is_made(self) -> bool:
        """Whether all parameters have shapes; those of lazy modules get theirs in the first call."""
        return all(map(is_made, self._module.parameters()))

    def use(self, wanted: Iterable[Place]) -> dict[Place, Exception | SystemExit]:
        """Set hooks for these tensors, and remove all others.

        Returns:
            The tensors that cannot be read, each with the error that says why.
        """
        names: dict[str, dict[str, None]] = {}
        for kind, name in wanted:
            names.setdefault(kind, {})[name] = None
        of_modules = [(kind, name) for kind in OF_MODULES for name in names.get(kind, ())]
        inside = self.compiled.inside({name for _, name in of_modules})
        called = [place for place in of_modules if place[1] not in inside]
        self.looks_for_calls = n_compiled() > 0
        if of_modules and self.looks_for_calls:
            called.append(("", WHOLE))  # to find out whether the module is called from Python
        grads, updates = names.get(GRADS, {}), names.get(UPDATES, {})
        stepped = {name: None for name in self.steps.held() if name in grads}
        failed: dict[Place, Exception | SystemExit] = {}
        todo: list[tuple[Iterable[Place], Callable[[], None]]] = [
            (called, lambda: self.calls.use(called)),
            (of_modules, lambda: self.compiled.use([name for kind, name in of_modules if name in inside])),
            (
                [(GRADS, name) for name in stepped] + [(UPDATES, name) for name in updates],
                lambda: self.steps.use(stepped, updates),
            ),
        ]
        for places, change in todo:
            try:
                change()
            except FAILURES as error:
                failed.update(dict.fromkeys(places, error))
        failed.update(self._set_accumulate({name for name in grads if name not in stepped}))
        return failed

    def remove(self) -> None:
        """Remove all hooks."""
        self.use(())

    def _set_accumulate(self, names: set[str]) -> dict[Place, Exception | SystemExit]:
        named = parameters(self._module)
        for name in [
            name for name, (p, _) in self._accumulate.items() if name not in names or named.get(name) is not p
        ]:
            self._accumulate.pop(name)[1].remove()
        failed: dict[Place, Exception | SystemExit] = {}
        for name in names - self._accumulate.keys():
            try:
                handle = named[name].register_post_accumulate_grad_hook(self._accumulated(name))  # type: ignore[no-untyped-call,unused-ignore]
                self._accumulate[name] = named[name], handle
            except FAILURES as error:
                failed[GRADS, name] = error
        return failed

    def _accumulated(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._take(GRADS, ((name, parameter.grad),))

        return hook
