"""Error replies: the library's own errors by type, message and HTTP status.

An error of the library keeps its message. An unexpected error is printed to the server's standard error output and
answered with `InternalError` and 503, never 500: the fault is the server's, and the client may try again.
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from typing import Any, Final

from sightglass.core import errors

INTERNAL: Final = 503
MAX_LOGGED: Final = 20  # different places that fail; an error that comes again and again must not fill the disk

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

_QUOTED_PATH: Final = re.compile(r"""(['"])/[^'"\n]*/([^'"/\n]+)\1""")
_IN_FOLDER: Final = re.compile(r""" in (['"])/[^'"\n]*/([^'"/\n]+)\1\.""")
_PATH: Final = re.compile(r"""(?<![\w.)\]'"/])/(?:[^/\s'":]+/)+""")

_logged: dict[str, int] = {}


class Problem(Exception):
    """A request that the server itself refuses.

    Attributes:
        status: The HTTP status.
        kind: The error type in the reply, such as "RequestError".
        message: What is wrong and what to do about it.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.kind = kind
        self.message = message
        super().__init__(message)


def bad_request(message: str) -> Problem:
    """Return the problem of a malformed request."""
    return Problem(400, "RequestError", message)


def too_large(message: str) -> Problem:
    """Return the problem of a request that exceeds a limit; the message names the limit."""
    return Problem(413, "TooLargeError", message)


def error_reply(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the JSON body for an error; an unexpected error is logged.

    >>> error_reply(errors.UnknownNameError("tag", "los", ["loss"]))[0]
    404
    """
    if isinstance(error, Problem):
        return error.status, {"type": error.kind, "message": error.message}
    for kind in type(error).__mro__:
        if kind in STATUS:
            reply: dict[str, Any] = {"type": type(error).__name__, "message": shown(error)}
            if isinstance(error, errors.QuerySyntaxError):
                reply["position"] = error.column
            return STATUS[kind], reply
    log_error(error)
    message = "The server failed, not the run. The terminal of the server shows the traceback."
    return INTERNAL, {"type": "InternalError", "message": message}


def without_folders(text: str) -> str:
    """Return a text in which files are named without their folders, which are nobody's business on other machines.

    >>> without_folders("Cannot read '/home/me/my runs/a/1.sgr': /home/me is full")
    "Cannot read '1.sgr': me is full"
    """
    return _PATH.sub("", _QUOTED_PATH.sub(r"\1\2\1", text))


def shown(error: BaseException) -> str:
    """Return the message of an error as clients see it: without folders."""
    # The slashes in a query are divisions, and those in a name are its own.
    is_of_names = isinstance(error, errors.QueryError | errors.UnknownNameError)
    if is_of_names and not isinstance(error, errors.EvaluationError):
        return _IN_FOLDER.sub(r" in \1\2\1.", str(error))
    return without_folders(str(error))


def log_error(error: BaseException) -> None:
    """Print the traceback of an error that was not expected, once for each line that raises it; never raise."""
    with contextlib.suppress(Exception):  # the terminal may be closed, or the error's own text fail
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
        _logged[place] = n = _logged.get(place, 0) + 1
        if n == 1 and len(_logged) <= MAX_LOGGED:
            traceback.print_exception(error, file=sys.stderr)
