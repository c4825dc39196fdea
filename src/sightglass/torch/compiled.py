"""Activations inside modules that `torch.compile` compiles.

Theory of operation:

1. What a compiled program returns is seen from outside, see `calls`. What a module inside it returns is not: there a
   forward hook is needed while the program is traced. It adds an operator that takes the tensor and returns nothing, so
   the graph does not break, and queries about the tensor can change without another compilation.
2. A compiled program does not notice a new hook: all programs are discarded (`torch.compiler.reset`, the only public
   way). It does notice that the hook goes. So the first query costs a compilation of all programs, and the end of the
   last one a compilation of those of the module. This is the price, which a controller confirms; nothing else resets
   the compiler.
3. A module is known to be compiled where it, or the module around it, was given to `torch.compile`. If the program
   compiled a function around it, we find out when something was compiled, and the module is never called from Python.
4. Such a hook would be part of the module's copies. While it is there, the module's `__reduce_ex__` leaves it out.
"""

import contextlib
import itertools
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

import torch

from .calls import ACTIVATIONS, ModuleCall, Take, own_call, pass_on, priority, untraced
from .observables import is_compiled, is_inside, modules, plain, wrappers

REDUCE: Final = "__reduce_ex__"
HOOKS: Final = "_forward_hooks"
OWN_HOOKS: Final = (HOOKS, "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PRICE: Final = (
    "An activation inside a compiled program is read by another program: all compiled programs of this process are "
    "compiled again when they are next called, and those of this module once more after the last such query ends. The "
    "training stands still while PyTorch compiles, and the results of its compiled code may differ in the last digits."
)

_places: dict[int, tuple[weakref.WeakMethod[Any], weakref.ref[torch.nn.Module], str]] = {}
_numbers = itertools.count()


@torch.library.custom_op(  # type: ignore[untyped-decorator,unused-ignore]
    "sightglass::look", mutates_args=("place",), schema="(Tensor[] values, str[] paths, Tensor(a!) place) -> ()"
)
def look(values: list[torch.Tensor], paths: list[str], place: torch.Tensor) -> None:
    """Pass the tensors that a module returned to its watcher.

    The operator claims to change `place`, so that the compiler keeps it.
    """
    _pass_on(int(place), joined(dict(zip(paths, values, strict=True))))


@look.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(values: list[torch.Tensor], paths: list[str], place: torch.Tensor) -> None:
    return None


def _pass_on(number: int, output: Any) -> None:
    if number in _places:
        method, module, name = _places[number]
        take, root = method(), module()
        if take is not None and root is not None:
            pass_on(take, ACTIVATIONS, name, output, ModuleCall(priority(root)))


def flat(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of what a module returned, by their paths; the compiler traces this."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, tuple | list):
        pairs: Iterable[tuple[Any, Any]] = enumerate(value)
    elif isinstance(value, dict):
        pairs = value.items()
    else:
        return []
    return [one for key, part in pairs for one in flat(part, f"{path}[{key}]")]


def joined(values: Mapping[str, torch.Tensor]) -> Any:
    """Return what `flat` took apart: a tensor, or tuples and mappings of tensors."""
    if "" in values:
        return values[""]
    inside: dict[str, dict[str, torch.Tensor]] = {}
    for path, value in values.items():
        key, _, rest = path[1:].partition("]")
        inside.setdefault(key, {})[rest] = value
    parts = {key: joined(some) for key, some in inside.items()}
    return tuple(parts.values()) if [*parts] == [str(i) for i in range(len(parts))] else parts


class LookHook:
    """A forward hook that passes on what a module returns, from within a compiled program too.

    Attributes:
        place: The number of the module. It is a tensor, since a compiled program depends on numbers: one program serves
            all blocks of a kind, and PyTorch gives up after a few that differ.
    """

    def __init__(self, take: Take, root: torch.nn.Module, name: str) -> None:
        number = next(_numbers)
        self.place = torch.tensor(number)
        _places[number] = weakref.WeakMethod(take), weakref.ref(root), name
        self._pass_on = untraced(partial(_pass_on, number))

    def __call__(self, module: object, args: object, output: object) -> None:
        """Pass on what the module returned."""
        if not torch.compiler.is_compiling():
            self._pass_on(output)
        elif found := flat(output):
            look([one.detach() for _, one in found], [path for path, _ in found], self.place)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # a hook that does nothing, and needs no package to load


class CleanReduce:
    """The `__reduce_ex__` of a module with a `LookHook`: copies and pickles come without the hook."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = weakref.ref(module)

    def __call__(self, protocol: Any) -> Any:
        """Return what the module's own method does, without our hook."""
        module = self._module()
        reduce: Any = type(module).__reduce_ex__
        made = reduce(module, protocol)
        if not isinstance(made, tuple) or len(made) < 3 or not isinstance(made[2], dict):
            return made
        state = {key: value for key, value in made[2].items() if key != REDUCE}
        if HOOKS in state:
            kept = ((key, hook) for key, hook in state[HOOKS].items() if not isinstance(hook, LookHook))
            state[HOOKS] = OrderedDict(kept)
        return *made[:2], state, *made[3:]


def n_compiled() -> int:
    """Return how many functions `torch.compile` has compiled since the last reset, without loading the compiler."""
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    return 0 if compiler is None else int(getattr(compiler, "FRAME_COUNTER", 1))


class Compiled:
    """The compiled programs that a module runs in, as far as we know.

    Attributes:
        is_found: Whether the module turned out to be called by compiled programs.
    """

    def __init__(self, given: torch.nn.Module, module: torch.nn.Module, take: Take) -> None:
        """Find compiled modules.

        Args:
            given: The module that the program watches, perhaps a wrapper.
            module: The module inside it.
            take: Takes what modules return; a bound method, which is not kept alive.
        """
        self.is_found = False
        self._n_compiled = n_compiled()
        self._called: set[str] = set()
        self._entered: set[str] = set()
        self._is_root = any(is_compiled(one) or own_call(one) is not None for one in wrappers(given))
        self._module = weakref.ref(module)
        self._take = weakref.WeakMethod(take)
        self._hooks: dict[str, tuple[torch.nn.Module, Any, torch.Tensor]] = {}

    @property
    def n_hooks(self) -> int:
        """The number of hooks."""
        return len(self._hooks)

    def saw(self, name: str, compiles: bool) -> None:
        """Take note that a module was called from Python, and whether `torch.compile` compiles what it runs."""
        self._called.add(name)
        if compiles:
            self._entered.add(name)

    def changed(self) -> bool:
        """Return whether something was compiled since the last call: modules may no longer be called from Python."""
        before, self._n_compiled = self._n_compiled, n_compiled()
        if self._n_compiled == before:
            return False
        self._called.clear()
        self._entered.clear()
        return True

    def hides(self) -> bool:
        """Return whether modules may be called where only compiled programs see it."""
        return n_compiled() > 0 and (bool(self._entered) or "" not in self._called)

    def inside(self, names: Collection[str]) -> set[str]:
        """Return those of these modules that run inside a compiled program, and were not called from Python."""
        module = self._module()
        rest = {*names} - self._called
        if self.is_found or module is None:
            return rest
        around = self._around(module)
        return {name for name in rest if any(is_inside(name, outer) for outer in around)}

    def price(self, names: Collection[str]) -> str:
        """Return what it costs to look at what these modules return; empty if nothing."""
        module = self._module()
        if module is None:
            return ""
        inside = self.inside(names)
        if inside - self._hooks.keys():
            return PRICE
        rest = {*names} - inside - self._called - self._around(module)
        if rest and n_compiled():
            named = modules(module)
            if any(name in named and _is_traced_whole(named[name]) for name in rest):
                return PRICE
        return ""

    def use(self, names: Collection[str]) -> None:
        """Set hooks on these modules. The others stay until there are no names: each change is a compilation."""
        module = self._module()
        if not names or module is None:
            self.remove()
            return
        named = modules(module)
        missing = sorted(_alike(names, named, self._around(module)) - self._hooks.keys())
        take = self._take()
        if not missing or take is None:
            return
        for name in missing:
            hook = LookHook(take, module, name)
            self._hooks[name] = named[name], named[name].register_forward_hook(hook), hook.place
            named[name].__dict__[REDUCE] = CleanReduce(named[name])
        if n_compiled():
            torch.compiler.reset()

    def remove(self) -> None:
        """Remove all hooks."""
        for module, handle, place in self._hooks.values():
            handle.remove()
            module.__dict__.pop(REDUCE, None)
            _places.pop(int(place), None)
        self._hooks.clear()

    def _around(self, module: torch.nn.Module) -> set[str]:
        """Return the names of the modules that were given to `torch.compile`."""
        named = module.named_modules(remove_duplicate=False)
        found = {plain(name) for name, one in named if is_compiled(one) or own_call(one) is not None}
        return found | {""} if self._is_root else found


def _alike(names: Collection[str], named: Mapping[str, torch.nn.Module], around: Collection[str]) -> set[str]:
    """Add the same places inside other compiled modules of a class: one program serves them all."""
    found = {*names}
    for outer in around:
        alike = [other for other in around if type(named[other]) is type(named[outer])]
        for name in names:
            if is_inside(name, outer):
                rest = name.removeprefix(f"{outer}.")
                found |= {f"{other}.{rest}".removeprefix(".") for other in alike} & named.keys()
    return found


def _is_traced_whole(module: torch.nn.Module) -> bool:
    """Return whether a compiled program around a module depends on how the module is called, not on `forward` alone."""
    hooked = any(not isinstance(hook, LookHook) for name in OWN_HOOKS for hook in getattr(module, name).values())
    return hooked or type(module).__call__ is not torch.nn.Module.__call__
