"""Which answers of a run are kept, and the rows of theirs that whoever keeps them is given."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sightglass.core.columns import Row
from sightglass.core.errors import RefusedError, RefusedQueryError, UnknownNameError
from sightglass.query.query import Query
from sightglass.training.events import Emitter
from sightglass.training.subscription import Subscription


class Recorder(Protocol):
    """What is given records that are to be kept; it neither raises nor waits."""

    def record(self, answer: Subscription, rows: Sequence[Row], since: int, /) -> None:
        """Keep rows of an answer; `since` is the number of the event from which on it is kept."""

    def act(self, done: Mapping[str, Any], /) -> None:
        """Keep that an act was applied."""


class RecordedSubscriptions:
    """The answers that are kept, each with the number of the event since which it is."""

    def __init__(self, emitter: Emitter, recorder: Recorder | None, *, run: str) -> None:
        self._emitter = emitter
        self._recorder = recorder
        self._run = run
        self._since: dict[int, int] = {}

    def __contains__(self, answer: Subscription) -> bool:
        return answer.id in self._since

    def check(self, query: Query, answer: Subscription | None) -> None:
        """Refuse what cannot be kept: anything, where nothing is, and what costs more than the run's budget.

        Raises:
            RefusedError: Nothing is kept here.
            RefusedQueryError: It costs too much.
        """
        if self._recorder is None:
            raise RefusedError(f"Run {self._run!r} keeps nothing")
        if answer is not None and answer.stride > 1:
            raise RefusedQueryError(
                f"{query} costs {self._emitter.cost(answer)}, so it is evaluated on each {answer.stride}th event only; "
                "what is kept is never thinned"
            )

    def add(self, answer: Subscription) -> None:
        """Keep what comes from now on; the caller holds the emitter's lock."""
        channel = self._emitter.demand.channels.get(answer.event)
        self._since.setdefault(answer.id, 0 if channel is None else channel.n_events)
        answer.kept = True

    def discard(self, answer: Subscription, problem: str = "") -> None:
        """Keep an answer no more; a problem is warned of."""
        if self._since.pop(answer.id, None) is not None and problem:
            message = f"Run {self._run!r} does not record {answer.query} any more: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        answer.kept = False

    def find(self, query: Query, answer: Subscription | None) -> Subscription:
        """Return the answer of a query that is kept.

        Raises:
            UnknownNameError: It is not.
        """
        if answer is None or answer not in self:
            known = [str(other.query) for other in self._emitter.demand.answers.values() if other in self]
            raise UnknownNameError("recorded query", str(query), known)
        return answer

    def store(self, answer: Subscription, rows: Sequence[Row]) -> None:
        """Hand rows of an answer to whoever keeps them."""
        if rows and answer in self and self._recorder is not None:
            self._recorder.record(answer, rows, self._since[answer.id])

    def act(self, done: Mapping[str, Any]) -> None:
        """Keep that an act was applied."""
        if self._recorder is not None:
            self._recorder.act(done)

    def lapsed(self, answer: Subscription) -> bool:
        """Tell whether an answer is kept no more because it costs more than the run's budget."""
        return answer in self and not (answer.kept or answer.suspended)
