"""The recorded events of one name that a query joins, read in their order while its own events pass."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from sightglass.core.columns import Columns
from sightglass.query.joined import Latest
from sightglass.query.query import with_fields

from .plan import LOG
from .rebuilt import events_of, items_of
from .timeline import Boundary, SetBacks


class JoinedEvents:
    """The events of one name.

    Attributes:
        latest: The last one that was passed.
        ahead: The next two, if there are as many: the second shows whether one between them is not recorded.
    """

    def __init__(self, event: str, names: Iterable[str], *, reads_fields: bool = True) -> None:
        """Begin before the first one.

        Args:
            event: Their name.
            names: The observables that are read; "" for events that were recorded whole.
            reads_fields: Whether the query reads the number or the wall time of these events.
        """
        self.latest = Latest()
        self.ahead: deque[Boundary] = deque()
        self._event = event
        self._names = frozenset(names)
        self._reads_fields = reads_fields
        self._turns = SetBacks()
        self._unread: Iterator[Boundary] = iter(())
        self._begun = False

    def add(self, pieces: Iterable[Mapping[str, Columns]], *, since: int) -> None:
        """Add new events: their observables by name, or the events themselves by "", in pieces that hold whole events.

        Args:
            pieces: The events.
            since: The number of the first one that is recorded.
        """
        if since and not self._begun:
            self.latest.lose()  # what comes first has a partner that is not recorded
        self._begun = True
        self._unread = itertools.chain(self._unread, self._boundaries(pieces))
        self._look_ahead()

    def advance(self) -> None:
        """Pass the next event. It is the latest one, unless one that is not recorded may have followed."""
        boundary = self.ahead.popleft()
        self._look_ahead()
        follows = not self.ahead or self._event == LOG or self.ahead[0].ordinal == boundary.ordinal + 1
        if boundary.observables is None or not follows:
            self.latest.lose()
        else:
            self.latest.hold(boundary.observables)

    def _look_ahead(self) -> None:
        self.ahead.extend(itertools.islice(self._unread, 2 - len(self.ahead)))

    def _boundaries(self, pieces: Iterable[Mapping[str, Columns]]) -> Iterator[Boundary]:
        is_whole = "" in self._names
        for item in itertools.chain.from_iterable(items_of(p[""]) if is_whole else events_of(p) for p in pieces):
            observables = item.value
            if self._reads_fields:
                observables = with_fields(observables, index=item.ordinal, wall_time=item.wall_time)
            whole = is_whole or self._names <= observables.keys()
            if whole or self._event != LOG:  # calls of `log` differ in their names: those without them are passed over
                turn = self._turns.pass_to(item.wall_time)
                yield Boundary(item.wall_time, item.ordinal, self._event, turn, observables if whole else None)
