"""Real threads, locks and waits, also in a program that gevent patches, before this module is imported or after.

`gevent.monkey.patch_all()` replaces parts of the standard library by others that switch between greenlets. A thread of
a run must be one of the system's: as a greenlet, its first wait would stop the program. So import the modules below
from here: `from sightglass.core.process.unpatched import threading`. Their functions are the originals, and their
classes are copies whose methods see the originals.
"""

from __future__ import annotations

import os as _os
import select as _select
import subprocess as _subprocess
import sys
import threading as _threading
import time as _time
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["is_patched", "select", "subprocess", "threading", "time"]


def is_patched() -> bool:
    """Return whether gevent has replaced the threads of this program by greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _copied(module: ModuleType, *classes: str, **others: ModuleType) -> Any:
    """Return a module of originals.

    Args:
        module: The module, patched or not.
        *classes: Its classes that are used and written in Python.
        **others: Copies of modules that it uses.
    """
    own, monkey = ModuleType(module.__name__), sys.modules.get("gevent.monkey")
    scope = vars(own)
    scope.update(vars(module))
    scope.update(monkey.saved.get(module.__name__, {}) if monkey is not None else {})
    scope.update(others)

    def copies(of: Mapping[str, Any]) -> dict[str, FunctionType]:
        functions = {key: one for key, one in of.items() if isinstance(one, FunctionType)}
        return {key: _with(scope, one) for key, one in functions.items() if one.__globals__ is vars(module)}

    scope.update(copies(scope))
    scope.update({key: type(key, (scope[key],), copies(vars(scope[key]))) for key in classes})
    return own


def _with(scope: dict[str, Any], function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _current_thread() -> Any:
    """Return the thread of a run that this is, or else the program's thread."""
    if _threading.get_ident is threading.get_ident:
        return _threading.current_thread()
    return vars(threading)["_active"].get(threading.get_ident()) or _threading.main_thread()


if TYPE_CHECKING:
    import select
    import subprocess
    import threading
    import time
else:
    select, time = _copied(_select), _copied(_time)
    threading = _copied(_threading, "Condition", "Event", "Thread")
    threading.current_thread, threading.main_thread = _current_thread, _threading.main_thread
    if is_patched():  # what the module has lists greenlets, and switches between them
        threading._active, threading._limbo, threading._active_limbo_lock = {}, {}, threading.RLock()
    subprocess = _copied(_subprocess, "Popen", os=_copied(_os), select=select, threading=threading, time=time)
