"""What lower layers need of higher ones: the current run of this process, and how to connect to a run.

The higher layer registers a function here; the lower one calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_finders: list[Callable[[], Any]] = []
_connectors: list[Callable[[Any], Any]] = []


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
