"""How a program ends. SIGTERM, with which Slurm, Kubernetes and `docker stop` end it: its records are written first.

Python runs a handler on the main thread, between two steps of the interpreter: in a long call of a library the program
lives on until that returns, or until it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from sightglass.core.threads import Background
from sightglass.core.unpatched import threading
from sightglass.storage.run_file import State

GRACE_S: Final = 5.0  # `docker stop` kills after 10 s, Kubernetes after 30; the program's own handler needs some of it


def end_state(kind: type[BaseException], error: BaseException | None) -> State:
    """Return how a run ended that an exception ended: Ctrl-C is somebody's decision, `sys.exit()` the program's."""
    if issubclass(kind, KeyboardInterrupt):
        return "terminated"
    if issubclass(kind, GeneratorExit) or (isinstance(error, SystemExit) and not error.code):
        return "ended"
    return "failed"


def uncaught() -> BaseException | None:
    """Return the exception that ends this program, which Python has printed; `None` where an earlier one may be meant.

    At a prompt and in a notebook, it is that of the last line that failed, hours ago perhaps.
    """
    if hasattr(sys, "ps1") or sys.flags.interactive or "IPython" in sys.modules:
        return None
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


class Termination:
    """What this process does when it is sent SIGTERM, before the handler that was there, which by default ends it."""

    def __init__(self, end: Callable[[bool], None]) -> None:
        """Change nothing yet.

        Args:
            end: Called on a thread of its own, since the main one may hold any lock; its argument is whether the
                process dies next.
        """
        self._end = end
        self._before: Any = signal.SIG_DFL
        self._mask = threading.local()

    def install(self) -> None:
        """Handle the signal from now on; not from another thread, nor if it is ignored or handled outside Python."""
        if threading.current_thread() is not threading.main_thread():
            return
        found = signal.getsignal(signal.SIGTERM)
        if found in (self._handle, signal.SIG_IGN, None) or (found is signal.SIG_DFL and _is_caught()):
            return
        self._before = found
        signal.signal(signal.SIGTERM, self._handle)

    def before_fork(self) -> None:
        """Hold the signal back: Python forgets the one that reaches a child before the child's own code runs."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))

    def after_fork(self) -> None:
        """Let the signal through again; does nothing if it was not held back."""
        if "before" in vars(self._mask):
            signal.pthread_sigmask(signal.SIG_SETMASK, vars(self._mask).pop("before"))

    def release(self) -> None:
        """Restore the handler that was there: a forked child has no runs, and dies at once, whatever it waits for."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._before)
        self.after_fork()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A handler that was installed after this one may call it, and decides what follows.
        dies = self._before is signal.SIG_DFL and signal.getsignal(signal.SIGTERM) == self._handle
        try:
            Background("terminate", lambda: self._end(dies)).join(GRACE_S)
        except RuntimeError as error:  # the system starts no more threads
            warnings.warn(f"The last records may be lost: {error}", RuntimeWarning, stacklevel=2)
        if dies:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif callable(self._before):
            self._before(number, frame)


def _is_caught() -> bool:
    """Return whether a library outside Python handles SIGTERM, as that of `jax.distributed` does; on Linux."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
