"""A request that waits for its reply, and the exceptions that a run replies with."""

from __future__ import annotations

import threading
from typing import Any

from sightglass.core import errors
from sightglass.core.errors import RefusedError, SightglassError


class PendingReply:
    """A request that waits for its reply.

    Attributes:
        note: The run's last remark about the request, such as the event it waits for.
    """

    def __init__(self) -> None:
        self.note = ""
        self._done = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def resolve(self, value: object = None, error: Exception | None = None) -> None:
        """Set the reply, or the error that the run replied with."""
        self._value, self._error = value, error
        self._done.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the reply; return whether it arrived."""
        return self._done.wait(timeout_s)

    def result(self) -> Any:
        """Return the reply, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._value


def exception_of(name: str, reason: str) -> Exception:
    """Return the exception that the run names, or a `RefusedError` for a name that this version does not have."""
    cls = getattr(errors, name, RefusedError)
    no_message = (errors.UnknownNameError, errors.MissingExtraError, errors.FigureErrors)  # they take something else
    if not (isinstance(cls, type) and issubclass(cls, SightglassError)) or cls in no_message:
        cls = errors.QueryError if "Unknown" in reason else RefusedError
    return cls(reason)
