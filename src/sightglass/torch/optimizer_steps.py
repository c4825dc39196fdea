"""The hooks on the steps of a module's optimizers: gradients as a step used them, and what it changed.

Theory of operation:

1. Each tensor is read around the step of an optimizer that holds its parameter, and around no other. A parameter that
   no given optimizer holds has no update, and its gradient is read where it is accumulated. Of a parameter that several
   optimizers hold, the last step before the event counts.
2. An update needs the parameter as it was before the step. Only parameters that a query of this event asks for are
   copied, into memory that is used again, since new memory takes as long as the rest. Behind the step each copy becomes
   the update in place.
3. A compiled step would have to be compiled again, so its optimizer gets no hook: its gradients are read where they are
   accumulated, and its updates are refused.
4. Nothing here raises into the program: an error takes the place of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from sightglass.core.errors import RefusedError
from sightglass.query.costs import MODEL, ON_DEVICE
from sightglass.query.limits import MAX_RESULT_BYTES

from .calls import Take
from .observables import KnownParameters, held_parameters, is_made, local, parameters
from .precompute import PrecomputedPart

GRADS: Final = "grads"
UPDATES: Final = "updates"
NOT_HELD: Final = (
    "The update of {name!r} is not available: no optimizer that was given to watch holds this parameter. "
    "Give all optimizers of the module: watch(…, optimizer=[…])"
)
NONE_HELD: Final = (
    "Updates are not available: no optimizer that was given to watch holds a parameter of the module. "
    "Give the optimizers that do: watch(…, optimizer=…)"
)
COMPILED_STEP: Final = (
    "Updates are not available: the optimizer's step is compiled, and runs no hooks. "
    "Run the step without torch.compile, or query parameters: b.params"
)
TRACED: Final = ("_dynamo_static_input_type", "guarded")
"""What `torch.compile` sets on the parameters of an optimizer whose step it traces."""

Due = Callable[[str], Collection[str]]
"""Returns the names of an observable's tensors that a query of the next event reads."""

COPY_NS: Final = 0.6  # for each byte: of a copy into memory that was used before, and of a subtraction


class OptimizerSteps:
    """The hooks on the optimizers of one module."""

    def __init__(
        self, module: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], take: Take, due: Due
    ) -> None:
        self._module = module
        self._parameters = KnownParameters(module)
        self._given = optimizers
        self._take = take
        self._due = due
        self._handles: list[Any] = []
        self._before: dict[torch.nn.Parameter, tuple[list[str], Any]] = {}
        self._buffers: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._last_due: dict[tuple[int, str], tuple[dict[str, Any], Any, list[Any]]] = {}  # by `id`: not kept alive

    @property
    def n_hooks(self) -> int:
        """The number of hooks."""
        return len(self._handles)

    @property
    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [optimizer for optimizer in self._given if not is_step_compiled(optimizer)]

    def signature(self) -> tuple[Any, ...]:
        """Return what the names of tensors depend on: the module's structure, what is trained, and who holds it."""
        named = self._parameters.named()
        n_held = [[len(group["params"]) for group in optimizer.param_groups] for optimizer in self._given]
        return self._parameters.version, [*named], [p.requires_grad for p in named.values()], n_held

    def held(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that an optimizer holds whose steps run hooks, by all their names."""
        return held_parameters(self._optimizers, self._module)

    def check(self, part: PrecomputedPart, copied: set[str]) -> None:
        """Refuse an update that no optimizer makes, or whose copies are too large.

        Args:
            part: A part of a query that reads updates.
            copied: The parameters that other queries copy; those of this part are added.

        Raises:
            RefusedError: The part is refused; the message says why.
        """
        held, given = self.held(), held_parameters(self._given, self._module)
        if (part.name in given and part.name not in held) or (part.name is None and given and not held):
            raise RefusedError(COMPILED_STEP)
        if part.name is None and not held and all(map(is_made, self._module.parameters())):
            raise RefusedError(NONE_HELD)
        if part.name is not None and part.name not in held and part.name in parameters(self._module):
            raise RefusedError(NOT_HELD.format(name=part.name))
        names = [name for name, p in held.items() if p.requires_grad] if part.name is None else [part.name]
        check_copies(held, copied | {name for name in names if name in held})
        copied.update(names)

    def copy_s(self, names: Iterable[str]) -> float:
        """Return the price of the updates of these parameters before anything is computed on them, in seconds."""
        held = self.held()
        ns: list[float] = [
            local(held[name]).nbytes * COPY_NS * (1.0 if held[name].is_cpu else ON_DEVICE)
            for name in names
            if name in held
        ]
        return sum(ns) * MODEL.factors["arithmetic"] / 1e9

    def use(self, grads: Collection[str], updates: Collection[str]) -> None:
        """Set the hooks that these gradients and updates need, on the optimizers that hold them; remove all others."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._before, self._last_due = [], {}, {}
        asked = {id(p) for name, p in self.held().items() if name in updates}
        self._buffers = {p: buffer for p, buffer in self._buffers.items() if id(p) in asked}
        if not grads and not updates:
            return
        for optimizer in self._optimizers:
            held = held_parameters([optimizer], self._module).keys()
            if not held.isdisjoint(updates):
                self._handles.append(optimizer.register_step_pre_hook(self._remember))
            if not held.isdisjoint((*grads, *updates)):
                self._handles.append(optimizer.register_step_post_hook(self._made_step))

    def _remember(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._before = {}  # those of a step that failed
        self._take(UPDATES, self._copies(optimizer))

    def _made_step(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._take(GRADS, self._grads(optimizer))
        if self._before:
            self._take(UPDATES, self._changes())
            self._before = {}

    def _grads(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield gradients; the time is charged to the queries of the names that it yields."""
        for parameter, names in self._due_of(optimizer, GRADS):
            grad = parameter.grad
            if grad is not None:
                for name in names:
                    yield name, grad

    def _copies(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, None]]:
        """Copy parameters; the time is charged to the queries of the names that it yields."""
        for parameter, names in self._due_of(optimizer, UPDATES):
            self._before[parameter] = names, self._copied(parameter)
            for name in names:
                yield name, None

    def _copied(self, parameter: torch.nn.Parameter) -> Any:
        """Return a copy of a parameter, or the error that prevented it."""
        try:
            value, buffer = local(parameter), self._buffers.get(parameter)
            if buffer is not None and (buffer.shape, buffer.dtype, buffer.device) == (
                value.shape,
                value.dtype,
                value.device,
            ):
                return buffer.copy_(value)
            self._buffers[parameter] = buffer = value.clone()
        except Exception as error:  # noqa: BLE001  no memory on the device, for example
            return error
        return buffer

    def _changes(self) -> Iterator[tuple[str, Any]]:
        while self._before:
            parameter = next(iter(self._before))
            names, old = self._before.pop(parameter)
            change = _subtracted(parameter, old)
            for name in names:
                yield name, change

    def _due_of(self, optimizer: torch.optim.Optimizer, kind: str) -> Iterable[tuple[torch.nn.Parameter, list[str]]]:
        """Return the parameters of an optimizer that a query of the next event reads, each with its names."""
        names = self._due(kind)
        if not names:
            return ()
        named = self._parameters.named()
        ids = [id(p) for group in optimizer.param_groups for p in group["params"]]
        last = self._last_due.get((id(optimizer), kind))
        if last is not None and last[0] is named and last[1] == (names, ids):
            return last[2]
        found: dict[torch.nn.Parameter, list[str]] = {}
        held = set(ids)
        for name in names:
            parameter = named.get(name)
            if parameter is not None and id(parameter) in held:
                found.setdefault(parameter, []).append(name)
        self._last_due[id(optimizer), kind] = named, (names, ids), [*found.items()]
        return found.items()


def is_step_compiled(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether `torch.compile` has traced the step of an optimizer."""
    name, traced = TRACED
    return any(p.__dict__.get(name) == traced for group in optimizer.param_groups for p in group["params"])


def check_copies(named: Mapping[str, torch.Tensor], asked: Collection[str]) -> None:
    """Refuse updates whose copies, which are alive during the step, are too large.

    A single parameter may always be asked for, however large.

    Raises:
        RefusedError: All copies together are larger than the limit, and than the largest of them.
    """
    sizes = [local(p).nbytes for p in {id(named[n]): named[n] for n in asked}.values()]
    limit = max(MAX_RESULT_BYTES, *sizes, 0)
    if sum(sizes) > limit:
        raise RefusedError(
            f"The updates of {len(sizes)} parameters need a copy of each during the optimizer's step, "
            f"{sum(sizes) / 2**20:.0f} MiB; at most {limit / 2**20:.0f} MiB may be copied for all queries together. "
            'Ask for fewer parameters, such as b.updates["NAME"]'
        )


def _subtracted(parameter: torch.Tensor, old: Any) -> Any:
    """Return what changed, in the memory of the copy, or an error."""
    if isinstance(old, Exception):
        return old
    try:
        return torch.sub(local(parameter), old, out=old)
    except Exception as error:  # noqa: BLE001
        return error
