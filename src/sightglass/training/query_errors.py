"""The errors of one query: an error costs its event, and `MAX_ERRORS` in a row suspend the query."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Final

from sightglass.core.errors import (
    EvaluationError,
    PriceError,
    RefusedFunctionError,
    SightglassError,
    UnknownNameError,
    UnsendableError,
)
from sightglass.core.guarded import FAILURES, message

from .steps import NUMBERS

MAX_ERRORS: Final = 3  # one bad event is forgiven; a query that always fails must not cost the run for long


class QueryErrors:
    """The errors of one query.

    Attributes:
        n: How many there were.
        n_in_row: How many there were since the last event without an error.
        last: The last one; it names the event and the step.
        suspended: Whether the query is not evaluated any more; `last` has the reason.
        known: What its event offers: more than one event, which its error lists, may have.
    """

    __slots__ = ("_event", "known", "last", "n", "n_in_row", "suspended")

    def __init__(self, event: str) -> None:
        self._event = event
        self.n = self.n_in_row = 0
        self.last: SightglassError | None = None
        self.suspended = False
        self.known: Collection[str] = ()

    def add(self, error: BaseException, step: object, *, event: str = "") -> None:
        """Count an error; of an event that the query joins, with its name."""
        self.n += 1
        self.n_in_row += 1
        if isinstance(error, UnknownNameError) and error.what == "observable" and not event:
            known = dict.fromkeys((*error.known, *self.known))
            error = UnknownNameError(error.what, error.name, known, where=f"at event {self._event!r}")
        self.last = evaluation_error(error, event or self._event, step)
        # The next event has a value of the same type, and after a snapshot there may be no other event.
        self.suspended = self.n_in_row >= MAX_ERRORS or isinstance(error, UnsendableError | RefusedFunctionError)

    def refuse(self, error: SightglassError) -> None:
        """Suspend the query: it cannot be evaluated here."""
        self.last = error
        self.suspended = True


def evaluation_error(error: BaseException, event: str, step: object) -> SightglassError:
    """Return an error that names the event and the step at which a query failed."""
    at = f"at event {event!r}"
    said = message(error)
    number: float | None = None
    if issubclass(type(step), NUMBERS):
        with contextlib.suppress(*FAILURES):
            shown, number = f"step {step}", float(step)  # type: ignore[arg-type]
            said += f" ({shown})" if at in said else f" ({at}, {shown})"
    for kind in (UnsendableError, RefusedFunctionError):
        if isinstance(error, kind):
            return kind(said)
    if isinstance(error, PriceError):
        return PriceError(said, seconds=error.seconds, n_bytes=error.n_bytes)
    return EvaluationError(said, event=event, step=number)
