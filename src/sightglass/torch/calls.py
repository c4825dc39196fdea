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
import sys
import weakref
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final

import torch

from sightglass.core.guarded import FAILURES

from .observables import modules

CALL: Final = "_compiled_call_impl"
IS_KNOWN: Final = hasattr(torch.nn.Module, CALL) and hasattr(torch.nn.Module, "_call_impl")
"""Whether this version of PyTorch calls modules the way that is described above."""

ACTIVATIONS: Final = "activations"
ACTIVATION_GRADS: Final = "activation_grads"
OF_MODULES: Final = frozenset({ACTIVATIONS, ACTIVATION_GRADS})

Take = Callable[[str, Iterable[tuple[str, Any]]], None]
"""Takes an observable and its tensors by name. It does not raise."""


class WatchedCall:
    """Calls a module, and passes on what it returns."""

    __slots__ = ("_module", "_returned", "_untraced", "compiled")

    def __init__(self, module: torch.nn.Module, returned: Callable[[Any, bool], None]) -> None:
        """Take the place of the module's call.

        Args:
            module: The module; it is not kept alive.
            returned: Takes what the module returns, and whether `torch.compile` compiles the code that the module runs.
        """
        self._module = weakref.ref(module)
        self._returned = returned
        self._untraced = untraced(returned)
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
        output = (self.compiled or module._call_impl)(*args, **kwargs)
        if _compiles():
            self._untraced(output, True)
        else:
            self._returned(output, False)
        return output

    def remove(self) -> None:
        """Give the module its own call back."""
        module = self._module()
        if module is None or module.__dict__.get(CALL) is not self:
            return
        if self.compiled is None:
            del module.__dict__[CALL]
        else:
            module.__dict__[CALL] = self.compiled

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
    """The watched calls inside one module."""

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
        self._wanted: dict[str, frozenset[str]] = {}
        self._leaves: dict[str, Any] = {}

    @property
    def n_hooks(self) -> int:
        """The number of calls that are watched."""
        return len(self._calls)

    def use(self, wanted: Collection[tuple[str, str]]) -> None:
        """Watch the calls of these modules, and of no others.

        Args:
            wanted: What to take of which module: observables and names.
        """
        kinds: dict[str, set[str]] = {}
        for kind, name in wanted:
            kinds.setdefault(name, set()).add(kind)
        self._wanted = {name: frozenset(of) for name, of in kinds.items()}
        if kinds.keys() == self._calls.keys():
            return
        for name in self._calls.keys() - kinds.keys():
            self._calls.pop(name).remove()
            self._drop_leaf(name)
        named = modules(self._module)
        for name in kinds.keys() - self._calls.keys():
            self._calls[name] = WatchedCall(named[name], partial(self._returned, name))

    def _returned(self, name: str, output: Any, compiles: bool) -> None:
        self._saw(name, compiles)
        kinds = self._wanted.get(name, frozenset())
        if ACTIVATIONS in kinds:
            self._take(ACTIVATIONS, ((name, output),))
        if ACTIVATION_GRADS in kinds and torch.is_grad_enabled():
            try:
                self._follow(name, output)
            except FAILURES as error:
                self._take(ACTIVATION_GRADS, ((name, error),))

    def _follow(self, name: str, output: Any) -> None:
        """Read the gradient of an output when it is computed."""
        if not isinstance(output, torch.Tensor) or not output.requires_grad:
            return

        def hook(grad: torch.Tensor) -> None:
            self._take(ACTIVATION_GRADS, ((name, grad),))

        hook.__torch_unserializable__ = True  # type: ignore[attr-defined]  # else PyTorch warns where the program saves it
        self._drop_leaf(name)
        handle = output.register_hook(hook)  # type: ignore[no-untyped-call,unused-ignore]
        if output.is_leaf:  # a parameter, for example, which outlives its graph
            self._leaves[name] = handle

    def _drop_leaf(self, name: str) -> None:
        handle = self._leaves.pop(name, None)
        if handle is not None:
            handle.remove()
