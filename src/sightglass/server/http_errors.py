"""What is answered when something cannot be: the library's own errors, by type, wording and status.

An error of the library keeps its message. What nobody foresaw is never a 500: it is told on the server's standard
error output, and answered with `InternalError` and 503: the fault is the server's, and asking again is harmless.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any, Final

from sightglass.core import errors

INTERNAL: Final = 503
MAX_SHOWN: Final = 20
"""How many unforeseen errors are told in full; a fault that comes again and again is not to fill the disk."""

STATUS: Final[dict[type[BaseException], int]] = {
    errors.UnknownNameError: 404,
    errors.RunNotFoundError: 404,
    errors.QueryError: 400,
    errors.WireError: 400,
    errors.UnconfirmedError: 409,
    errors.RefusedError: 403,
    errors.CommandError: 409,
    errors.RunLostError: 409,
    errors.ViewError: 409,
    errors.DamagedError: 422,
    errors.UnsendableError: 422,
    errors.MissingExtraError: 422,
    errors.StorageError: 409,
    errors.TransportError: 409,
    errors.SightglassError: 409,
}

_logged: dict[str, int] = {}


class Problem(Exception):
    """A request that is refused by the server itself.

    Attributes:
        status: The HTTP status.
        kind: The type that the answer names, such as "RequestError".
        message: What is wrong, and what to do.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.kind = kind
        self.message = message
        super().__init__(message)


def bad_request(message: str) -> Problem:
    """Return the problem of a request that cannot be read."""
    return Problem(400, "RequestError", message)


def too_large(message: str) -> Problem:
    """Return the problem of a request for too much; the message names the limit."""
    return Problem(413, "TooLargeError", message)


def error_reply(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the status and the answer that tell of an error.

    >>> error_reply(errors.UnknownNameError("tag", "los", ["loss"]))[0]
    404
    """
    if isinstance(error, Problem):
        return error.status, {"type": error.kind, "message": error.message}
    for kind in type(error).__mro__:
        if kind in STATUS:
            reply: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
            if isinstance(error, errors.QuerySyntaxError):
                reply["position"] = error.column
            return STATUS[kind], reply
    log_error(error)
    message = "Something went wrong in the server, not in the run; what it was stands in the server's terminal"
    return INTERNAL, {"type": "InternalError", "message": message}


def log_error(error: BaseException) -> None:
    """Print the traceback of an error that was not expected, once for each line that raises it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    _logged[place] = n = _logged.get(place, 0) + 1
    if n == 1 and len(_logged) <= MAX_SHOWN:
        traceback.print_exception(error, file=sys.stderr)
