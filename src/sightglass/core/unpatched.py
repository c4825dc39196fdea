"""Real threads, locks and waits, also in a program that gevent patches, before this module is imported or after.

`gevent.monkey.patch_all()` replaces parts of the standard library by others that switch between greenlets. A thread of
a run must be one of the system's: as a greenlet, its first wait would stop the program. So import the modules below
from here: `from sightglass.core.unpatched import threading`. Their functions are the originals, and their classes are
copies whose methods see the originals.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import select
    import subprocess
    import threading
    import time

__all__ = ["is_patched", "select", "subprocess", "threading", "time"]

# Of each module, the classes that are used here and written in Python.
_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "os": (),
    "select": (),
    "subprocess": ("Popen",),
    "threading": ("Condition", "Event", "Thread"),
    "time": (),
}


def is_patched() -> bool:
    """Return whether gevent has replaced the threads of this program by greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _copied(name))


def _copied(name: str) -> ModuleType:
    own, module, monkey = ModuleType(name), importlib.import_module(name), sys.modules.get("gevent.monkey")
    scope = vars(own)
    scope.update(vars(module))
    scope.update(monkey.saved.get(name, {}) if monkey is not None else {})

    def copies(of: Mapping[str, Any]) -> dict[str, FunctionType]:
        functions = {key: one for key, one in of.items() if isinstance(one, FunctionType)}
        return {key: _with(scope, one) for key, one in functions.items() if one.__globals__ is vars(module)}

    used = [key for key in _CLASSES if key != name and isinstance(scope.get(key), ModuleType)]
    scope.update({key: globals().get(key) or __getattr__(key) for key in used})
    scope.update(copies(scope))
    scope.update({key: type(key, (scope[key],), copies(vars(scope[key]))) for key in _CLASSES[name]})
    if name == "threading":
        if is_patched():  # those that are there list greenlets, and switch between them
            scope.update(_active={}, _limbo={}, _active_limbo_lock=scope["RLock"]())
        scope.update(current_thread=lambda: _current_thread(scope), main_thread=sys.modules[name].main_thread)
    return own


def _with(scope: dict[str, Any], function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _current_thread(scope: dict[str, Any]) -> Any:
    """Return the thread of a run that this is, or else the program's thread."""
    program = sys.modules["threading"]
    if program.get_ident is scope["get_ident"]:
        return program.current_thread()
    return scope["_active"].get(scope["get_ident"]()) or program.main_thread()
