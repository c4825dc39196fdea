"""What layers need to know of the runs of this process: the current one, how to connect, and who must not wait.

The one layer registers a function here; the other one calls it.

A `Handle` stands for something of this process, such as a run, in objects of users that are copied and pickled.
"""

from __future__ import annotations

import contextlib
import secrets
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .unpatched import threading

_finders: list[Callable[[], Any]] = []
_connectors: list[Callable[[Any], Any]] = []


_held_up: dict[str, Callable[[], bool]] = {}
_here = threading.local()


def answers_unless(run: str, held_up: Callable[[], bool] | None) -> None:
    """Register the function that returns whether a run waits for this thread before it answers; `None` removes it."""
    _held_up.pop(run, None)
    if held_up is not None:
        _held_up[run] = held_up


@contextlib.contextmanager
def _within(kind: str, run: str) -> Iterator[None]:
    before = getattr(_here, kind, ())
    setattr(_here, kind, (*before, run))
    try:
        yield
    finally:
        setattr(_here, kind, before)


def awaited(run: str) -> contextlib.AbstractContextManager[None]:
    """Let code of the program run that a run waits for, on this thread."""
    return _within("runs", run)


def check_wait(run: str, what: str, *, for_event: bool = False) -> None:
    """Refuse to wait for a run that waits for this thread.

    Args:
        run: The run's id; runs of other processes may be waited for.
        what: What waits, for the error.
        for_event: Whether the reply comes at the next event of the thread that made the run.

    Raises:
        DeadlockError: The run cannot answer before this code returns.
    """
    held_up = _held_up.get(run)
    waits = (held_up is not None and held_up()) or run in getattr(_here, "runs", ())
    if waits or (for_event and run in getattr(_here, "acting", ())):
        where = "an action" if not waits else "a function, a property or another part of the program"
        from sightglass.core.errors import DeadlockError  # importing sightglass stays light

        raise DeadlockError(
            f"{what} would never return: it is called by {where} that the run itself waits for. "
            "Call it on another thread, and do not wait for that thread"
        )


def acting(run: str) -> contextlib.AbstractContextManager[None]:
    """Let an action run, on the thread that applies commands."""
    return _within("acting", run)


def announce(find: Callable[[], Any]) -> None:
    """Register the function that returns what figures of the current run are sent to; it replaces an earlier one."""
    _finders[:] = [find]


def current() -> Any:
    """Return what figures of the newest live run of this process are sent to, or `None`."""
    return _finders[0]() if _finders else None


def connect_with(connect: Callable[[Any], Any]) -> None:
    """Register the function that connects to a run of this process; it replaces an earlier one."""
    _connectors[:] = [connect]


def connect(run: object) -> Any:
    """Return a client of a run of this process."""
    return _connectors[0](run)


class Handle:
    """Stands for something of this process. A copy of it is the same one, and so is what its pickle becomes here.

    In another process, the pickle becomes what `_elsewhere` says.
    """

    __slots__ = ("__weakref__",)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        key = _keys.setdefault(self, secrets.token_hex(8))
        _pickled[key] = self
        return _received, (key, *self._elsewhere())

    def _elsewhere(self) -> tuple[Any, ...]:
        """Return what makes it in another process: a function and its arguments."""
        return _remade, type(self), dict(vars(self))


_keys: weakref.WeakKeyDictionary[Handle, str] = weakref.WeakKeyDictionary()
_pickled: weakref.WeakValueDictionary[str, Handle] = weakref.WeakValueDictionary()


def _received(key: str, make: Callable[..., Any], *arguments: Any) -> Any:
    here = _pickled.get(key)
    return make(*arguments) if here is None else here


def _remade(kind: type, state: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    vars(made).update(state)
    return made


class Bound:
    """What reads or asks a run, and can be neither copied nor sent to another process."""

    __slots__ = ()

    def _instead(self) -> str:
        """Return what to do instead."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"A {type(self).__name__} cannot be copied, or sent to another process. {self._instead()}")
