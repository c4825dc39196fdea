"""Every error that sightglass raises, in one tree.

::

    SightglassError
    ├── QueryError             a query that cannot be answered
    │   ├── QuerySyntaxError   … because its text or its lambda cannot be read
    │   ├── RefusedQueryError  … because it asks for what queries may not do
    │   └── EvaluationError    … because it failed on an event
    │       └── AbsentError    … because the event did not bring what is asked; the event is held back
    ├── CommandError               a control or an action that was refused or failed
    ├── UnknownNameError       a name that does not exist (also a LookupError)
    ├── RunNotFoundError       no such run (also a LookupError)
    ├── RunLostError           a run that died, or does not answer any more (also a ConnectionError)
    ├── RefusedError           a request that the run refused
    │   └── UnconfirmedError   … until somebody confirms what it costs
    ├── TransportError         a transport that cannot be opened or used (also an OSError)
    ├── WireError              bytes that are no message of ours (also a ValueError)
    ├── UnsendableError        a value that cannot travel (also a TypeError)
    ├── StorageError              records that could not be written (also an OSError)
    ├── DamagedError           bytes of a file that are not what was written (also a ValueError)
    ├── LogError               a log in a JAX program that cannot be taken as asked (also a ValueError)
    ├── ViewError              streams or values that cannot share a view (also a ValueError)
    ├── FigureError            a figure that could not be drawn, written or handed on
    ├── FigureErrors           … several of them (also an ExceptionGroup)
    └── MissingExtraError      an optional package that is not installed (also an ImportError)
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

MAX_NAMES_SHOWN = 12
MAX_NAMES_COMPARED = 1_000
MAX_NAME_LENGTH = 120
MAX_CARET_CONTEXT = 100


class SightglassError(Exception):
    """The root of all errors raised by sightglass."""


class QueryError(SightglassError):
    """A query that cannot be answered."""


class QuerySyntaxError(QueryError):
    """A query that cannot be read.

    Attributes:
        text: The query's text, or `None` when it came from a lambda.
        column: Where in the text, counted from 0, or `None`.
    """

    def __init__(self, message: str, *, text: str | None = None, column: int | None = None) -> None:
        self.text = text
        self.column = column
        super().__init__(message if text is None or column is None else f"{message}\n{caret(text, column)}")


class RefusedQueryError(QueryError):
    """A query that asks for something queries may not do, such as an enormous intermediate result."""


class EvaluationError(QueryError):
    """A query that failed on an event.

    Attributes:
        event: The event's name, or `None`.
        step: The step at which it failed, or `None`.
    """

    def __init__(self, message: str, *, event: str | None = None, step: float | None = None) -> None:
        self.event = event
        self.step = step
        super().__init__(message)


class AbsentError(EvaluationError):
    """Something that this event did not bring, though others may; the event is held back, as by a condition."""


class CommandError(SightglassError):
    """A control or an action that was refused, or that failed in the run."""


class UnknownNameError(SightglassError, LookupError):
    """A name that does not exist.

    Attributes:
        what: What it should be the name of, such as "observable".
        name: The name that was asked for.
        known: The names that exist.
    """

    def __init__(self, what: str, name: object, known: Iterable[object], *, where: str = "") -> None:
        self.what = what
        self.name = name
        self.known = tuple(known)
        super().__init__(unknown(what, name, self.known, where=where))

    def __str__(self) -> str:
        return str(self.args[0])


class RunNotFoundError(SightglassError, LookupError):
    """No run has this name or id."""


class RunLostError(SightglassError, ConnectionError):
    """A run that died, or that does not answer any more."""


class RefusedError(SightglassError):
    """A request that the run refused; the message says why."""


class UnconfirmedError(RefusedError):
    """A question that has a price for the run, which the message names; `confirm=True` accepts it."""


class TransportError(SightglassError, OSError):
    """A transport that cannot be opened or used."""


class WireError(SightglassError, ValueError):
    """Bytes that are no message of ours, or one that breaks a limit."""


class UnsendableError(SightglassError, TypeError):
    """A value that cannot travel: neither a number, a text, an array nor a container of these."""


class StorageError(SightglassError, OSError):
    """Records that could not be written."""


class DamagedError(SightglassError, ValueError):
    """Bytes of a file that are not what was written, or no record file at all."""


class LogError(SightglassError, ValueError):
    """A log in a JAX program that cannot be taken as asked; the message names the user's line."""


class ViewError(SightglassError, ValueError):
    """Streams or values that cannot share a view."""


class FigureError(SightglassError):
    """A figure that could not be drawn, written or handed on.

    Attributes:
        figure: Its name, or that of the function that should have drawn it.
        step: The step it was for, or `None`.
        kind: The type of what was raised, such as "ValueError".
        traceback: The traceback as text, where it was drawn; empty if there is none.
    """

    def __init__(
        self, message: str, *, figure: str = "", step: float | None = None, kind: str = "", traceback: str = ""
    ) -> None:
        self.figure = figure
        self.step = step
        self.kind = kind
        self.traceback = traceback
        super().__init__(message)

    def __str__(self) -> str:
        told = str(self.args[0])
        return f"{told}\n{self.traceback.rstrip()}" if self.traceback else told


class FigureErrors(ExceptionGroup[FigureError], SightglassError):
    """Everything that went wrong with figures since it was last told."""

    def derive(self, excs: Sequence[FigureError], /) -> FigureErrors:  # type: ignore[override]
        """Return a group with some of the errors."""
        return FigureErrors(self.message, excs)


class MissingExtraError(SightglassError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{purpose} needs {package!r}: pip install 'sightglass[{extra}]'")


def unknown(what: str, name: object, known: Iterable[object], *, where: str = "") -> str:
    """Say that a name is unknown, which one was probably meant, and which are known.

    >>> unknown("observable", "los", ["loss", "grads"], where="at event 'batch'")
    "Unknown observable 'los' at event 'batch'. Did you mean 'loss'? Known: grads, loss."
    """
    every = tuple(known)
    names = sorted(str(k)[:MAX_NAME_LENGTH] for k in every[:MAX_NAMES_COMPARED])
    close = difflib.get_close_matches(str(name)[:MAX_NAME_LENGTH], names, n=1, cutoff=0.5)
    message = f"Unknown {what} {name!r:.{MAX_NAME_LENGTH}}{' ' + where if where else ''}."
    if close:
        message += f" Did you mean {close[0]!r}?"
    if not names:
        return f"{message} Known: none."
    more = f" and {len(every) - MAX_NAMES_SHOWN} more" if len(every) > MAX_NAMES_SHOWN else ""
    return f"{message} Known: {', '.join(names[:MAX_NAMES_SHOWN])}{more}."


def caret(text: str, column: int) -> str:
    r"""Show the line of a text with a caret under the place; a long line is cut around it.

    >>> print(caret("batch.lss", 6))
      batch.lss
            ^
    """
    start = text.rfind("\n", 0, column) + 1
    line = text[start:].partition("\n")[0]
    place = min(column - start, len(line))
    first = max(0, place - MAX_CARET_CONTEXT // 2) if len(line) > MAX_CARET_CONTEXT else 0
    shown = line[first : first + MAX_CARET_CONTEXT]
    before = "…" if first else ""
    after = "…" if first + MAX_CARET_CONTEXT < len(line) else ""
    return f"  {before}{shown}{after}\n  {' ' * len(before)}{''.join(map(_blank, shown[: place - first]))}^"


def _blank(character: str) -> str:
    """Return blanks as wide as a character is in a terminal."""
    if character == "\t":
        return character
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "
