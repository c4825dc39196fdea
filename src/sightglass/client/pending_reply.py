"""A request that waits for its reply, and the exceptions that a run replies with."""

from __future__ import annotations

from typing import Any

from sightglass.core import errors
from sightglass.core.errors import RefusedError, SightglassError
from sightglass.core.unpatched import threading


class PendingReply:
    """A request that waits for its reply.

    Attributes:
        note: The run's last remark about the request, such as the event it waits for.
    """

    def __init__(self) -> None:
        self.note = ""
        self._done = False
        self._news, self._noted = threading.Event(), threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def resolve(self, value: object = None, error: Exception | None = None) -> None:
        """Set the reply, or the error that the run replied with."""
        self._value, self._error, self._done = value, error, True
        self._news.set()
        self._noted.set()

    def told(self, note: str, *, stuck: bool) -> None:
        """Take in a remark; if no reply is in sight, nobody waits for it any longer."""
        self.note = note
        self._noted.set()
        if stuck:
            self._news.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the reply, as long as it is in sight; return whether it arrived."""
        self._news.wait(timeout_s)
        return self._done

    def wait_note(self, timeout_s: float) -> bool:
        """Wait for the reply or a remark; return whether the reply arrived."""
        self._noted.wait(timeout_s)
        return self._done

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
