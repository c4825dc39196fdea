"""Calls of a module, passed on to a watcher while a query needs what the module returns.

Theory of operation:

1. A `WatchedCall` stands where `Module.compile` puts its compiled call, in `_compiled_call_impl`: PyTorch calls it
   instead of the module, and leaves it out when it copies or pickles the module. So a checkpoint has the same bytes
   with and without a query, loads without this package, and a copy feeds no answer.
2. `torch.compile` does not look there: no program is compiled again because of it, unless the module has call hooks of
   its own. What runs inside a compiled program is not called from Python and does not come this way; see `compiled`.
3. The gradient of an output is read by a hook on the tensor, which lives as long as its graph. With a full backward
   hook on the module, the program could no longer change the output in place.

Hooks on the modules would be part of their copies and checkpoints. A hook on all modules of the process
(`register_module_forward_hook`) would not. But each program that is compiled while there is one is compiled again when
it goes, which raises after a few times under `fullgraph=True`; what `torch.compile` returned warns at each call; and
each call of any module takes longer.
"""

from __future__ import annotations

import inspect
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any, Final, NamedTuple, Protocol

import torch

from sightglass.core.program_values.guarded import FAILURES, parts

from .observables import modules

CALL: Final = "_compiled_call_impl"
IS_KNOWN: Final = hasattr(torch.nn.Module, CALL) and hasattr(torch.nn.Module, "_call_impl")
"""Whether this version of PyTorch calls modules the way that is described above."""

ACTIVATIONS: Final = "activations"
ACTIVATION_GRADS: Final = "activation_grads"
INPUTS: Final = "inputs"
EVALUATED: Final = {ACTIVATIONS: "eval_activations", INPUTS: "eval_inputs"}
"""The observables that take passes in evaluation mode only, by those that take all passes."""
OF_MODULES: Final = (ACTIVATIONS, INPUTS, ACTIVATION_GRADS, *EVALUATED.values())
OUTPUTS: Final = frozenset({ACTIVATIONS, EVALUATED[ACTIVATIONS]})
TAKEN: Final = frozenset({INPUTS, EVALUATED[INPUTS]})


class ModuleCall(NamedTuple):
    """The call of a module that tensors are of. Of several between two events, the greatest counts.

    Attributes:
        priority: That of its pass, see `priority`.
        order: The number of the call among all; a tensor may come later than those of a later call, as gradients do.
        number: The number among those of this module and priority since the last event; `None` if that is not known.
    """

    priority: int = 0
    order: int = 0
    number: int | None = None


NO_CALL: Final = ModuleCall()


class Take(Protocol):
    """Takes an observable, its tensors by name, and the call that they are of. It does not raise."""

    def __call__(self, kind: str, named: Iterable[tuple[str, Any]], call: ModuleCall = NO_CALL, /) -> None:
        """Take them."""


def pass_on(take: Take, kind: str, name: str, value: Any, call: ModuleCall) -> None:
    """Pass on what a module took or returned, and each of its tensors by its own name."""
    named: list[tuple[str, Any]] = [(name, value)]
    if not isinstance(value, torch.Tensor):
        try:
            named += tensors_of(name, value)
        except FAILURES as error:
            named = [(name, error)]
    take(kind, named, call)


class WatchedCall:
    """Calls a module, and passes on what it takes and returns."""

    __slots__ = ("_module", "_passes_on", "_untraced", "compiled")

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        called: Callable[[tuple[Any, ...], dict[str, Any]], None] | None,
        returned: Callable[[Any, bool], None],
    ) -> None:
        """Take the place of the module's call.

        Args:
            module: The module; it is not kept alive.
            called: Takes the arguments of a call before the module does, which may overwrite them; `None` if no query
                reads them.
            returned: Takes what the module returns, and whether `torch.compile` compiles the code that the module runs.
        """
        self._module = weakref.ref(module)
        self._passes_on = called, returned
        self._untraced = called and untraced(called), untraced(returned)
        self.compiled = module.__dict__.get(CALL)  # of `module.compile()`
        module.__dict__[CALL] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        module: Any = self._module()
        if torch.compiler.is_compiling():
            return module._call_impl(*args, **kwargs)
        frame = inspect.currentframe()
        frame = frame and frame.f_back
        if frame is not None and frame.f_code is WRAPPER:
            caller: Any = frame.f_locals.get("self")
            if caller is not module:  # it shares the attributes of the module, as replicas of DataParallel do
                return caller._call_impl(*args, **kwargs)
        compiles = bool(_compiles())
        called, returned = self._untraced if compiles else self._passes_on
        if called is not None:
            called(args, kwargs)
        output = (self.compiled or module._call_impl)(*args, **kwargs)
        returned(output, compiles)
        return output

    def does(self, module: torch.nn.Module | None, *, inputs: bool) -> bool:
        """Return whether it stands in this module, and passes on inputs or not."""
        return module is not None and self._module() is module and (self._passes_on[0] is not None) == inputs

    def remove(self) -> None:
        """Give the module its own call back."""
        module = self._module()
        call = None if module is None else module.__dict__.get(CALL)
        if call is self and self.compiled is None:
            del module.__dict__[CALL]
        elif call is self:
            module.__dict__[CALL] = self.compiled
        while isinstance(call, WatchedCall):  # of another name of the module, or of another watch, around this one
            if call.compiled is self:
                call.compiled = self.compiled
            call = call.compiled

    def __deepcopy__(self, memo: object) -> None:
        """Return `None`, for modules with a way of their own to be copied."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


_compiles = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)
WRAPPER: Final = torch.nn.Module.__call__.__code__  # the only place where PyTorch calls it


def untraced(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that `torch.compile` does not look into, and let it pass over `WatchedCall`.

    The compiler is not loaded for it: that takes seconds, and without it nothing is compiled.
    """
    if "torch._dynamo" not in sys.modules:
        return function
    # `torch.compiler.disable` around the call would break the graph of a program that traces it.
    skip_code = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    if skip_code is not None:
        skip_code(WatchedCall.__call__.__code__)
    disabled: Callable[..., None] = torch.compiler.disable(function)
    return disabled


def own_call(module: torch.nn.Module) -> Any:
    """Return the compiled call that `module.compile()` made, if any."""
    call = module.__dict__.get(CALL)
    return call.compiled if isinstance(call, WatchedCall) else call


class ModuleCalls:
    """The watched calls inside one module.

    Attributes:
        several: The modules that returned several tensors, each with the name of one whose gradient can be read.
    """

    def __init__(self, module: torch.nn.Module, *, take: Take, saw: Callable[[str, bool], None]) -> None:
        """Watch nothing yet.

        Args:
            module: The module.
            take: Takes what is read.
            saw: Takes the name of a module that was called from Python, and whether `torch.compile` compiles what it
                runs.
        """
        self._module = module
        self._take = take
        self._saw = saw
        self._calls: dict[str, WatchedCall] = {}
        self._outputs: set[str] = set()
        self._grads: set[str] = set()
        self._leaves: dict[str, list[Any]] = {}
        self._order = count(1)
        self._n_calls: Counter[tuple[str, int]] = Counter()
        self.several: dict[str, str] = {}

    @property
    def n_hooks(self) -> int:
        """The number of calls that are watched."""
        return len(self._calls)

    def use(self, wanted: Collection[tuple[str, str]]) -> None:
        """Watch the calls of these modules, and of no others.

        Args:
            wanted: What to take of which module: observables and names.
        """
        names = {name for _, name in wanted}
        inputs = {name for kind, name in wanted if kind in TAKEN}
        self._outputs = {name for kind, name in wanted if kind in OUTPUTS}
        self._grads = {name for kind, name in wanted if kind == ACTIVATION_GRADS}
        named = modules(self._module)
        for name in [
            name
            for name, call in self._calls.items()
            if name not in names or not call.does(named.get(name), inputs=name in inputs)
        ]:
            self._calls.pop(name).remove()
            self._drop_leaves(name)
        for name in names - self._calls.keys():
            called = partial(self._called, name) if name in inputs else None
            self._calls[name] = WatchedCall(named[name], called=called, returned=partial(self._returned, name))

    def restart(self) -> None:
        """Number the calls from 0 on: there was an event."""
        self._n_calls.clear()

    def _call(self, name: str) -> ModuleCall:
        at = priority(self._module)
        return ModuleCall(at, next(self._order), self._n_calls[name, at])

    def _called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        pass_on(self._take, INPUTS, name, arguments(args, kwargs), self._call(name))

    def _returned(self, name: str, output: Any, compiles: bool) -> None:
        self._saw(name, compiles)
        call = self._call(name)
        self._n_calls[name, call.priority] += 1
        if name in self._outputs:
            pass_on(self._take, ACTIVATIONS, name, output, call)
        if name in self._grads and torch.is_grad_enabled():
            try:
                self._drop_leaves(name)
                for path, tensor in tensors_of(name, output):
                    self._follow(name, path, tensor, call)
            except FAILURES as error:
                self._take(ACTIVATION_GRADS, ((name, error),), call)

    def _follow(self, name: str, path: str, output: torch.Tensor, call: ModuleCall) -> None:
        """Read the gradient of an output when it is computed."""
        if not output.requires_grad:
            return
        if path != name:
            self.several.setdefault(name, path)

        def hook(grad: torch.Tensor) -> None:
            self._take(ACTIVATION_GRADS, ((path, grad),), call)

        hook.__torch_unserializable__ = True  # type: ignore[attr-defined]  # else PyTorch warns where the program saves it
        handle = output.register_hook(hook)  # type: ignore[no-untyped-call,unused-ignore]
        if output.is_leaf:  # a parameter, for example, which outlives its graph
            self._leaves.setdefault(name, []).append(handle)

    def _drop_leaves(self, name: str) -> None:
        for handle in self._leaves.pop(name, ()):
            handle.remove()


# What a module takes and returns in one pass: the names of its tensors, and which pass an event is about.
#
# The tensors of a module that takes or returns several have paths as names: "lstm[0]", "lstm[1][0]", "attn[mask]".
# Those of a certain call since the last event have its number: "block@0", "lstm@1[0]".

MAX_PARTS: Final = 1_000  # of one value; more than the layers of a cache have
PATH: Final = re.compile(r"(\[[^\[\]]*\])+$")
NUMBER: Final = re.compile(r"@[0-9]+$")

TRAINING: Final = 2
"""The priority of a pass in training mode; with gradients, one more."""


def priority(module: torch.nn.Module) -> int:
    """Return the priority of the pass that a watched module is in.

    At an event, the calls in passes of the highest priority since the last event count, and of these the last. So an
    evaluation takes nothing from the training, and the answer is there in a program that only evaluates.
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


def without_number(name: str, known: Collection[str] = ()) -> str:
    """Return the name of the module of a certain call: "lstm" for "lstm@1[0]", unless a module has the whole name."""
    module = module_name(name, known)
    return module if module in known else NUMBER.sub("", module)


def numbered(name: str, number: int) -> str:
    """Return the name of a tensor of a certain call: "lstm@1[0]" for "lstm[0]"."""
    module = module_name(name)
    return f"{module}@{number}{name[len(module) :]}"


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a module was called with: its only argument, else a tuple, or a mapping if some are named."""
    if not kwargs:
        return args[0] if len(args) == 1 else args
    return {**{str(i): one for i, one in enumerate(args)}, **kwargs}
