"""Names to complete: `run.batch.<TAB>` shows what can be asked, and `run.batch.loss` is the question.

Completion looks only at attributes that are there: it evaluates nothing that an object computes when it is asked for
an attribute. So the names become attributes whenever the run describes itself: when it is asked to, when its own
names are completed, and, where somebody sits at IPython, when it is connected to. What a run has itself, such as
`run.stream`, stays: an event of such a name is reached as `sightglass.on("stream")`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sightglass.core.errors import SightglassError, unknown
from sightglass.query.query import Query
from sightglass.query.shorthand import is_plain, query_of

if TYPE_CHECKING:
    from .describe import Description, EventInfo, ObservableInfo


class NamedEvents:
    """Something that describes events, and then has them as attributes."""

    if TYPE_CHECKING:

        def describe(self) -> Description:
            """Return what there is; `_name_events` is called with it."""

    def _name_events(self, events: Mapping[str, EventInfo]) -> None:
        """Make attributes of events, but for those whose name is taken."""
        own = self.__dict__
        for name, event in events.items():
            if is_plain(name) and not hasattr(type(self), name) and isinstance(own.get(name, FREE), EventNames):
                own[name] = EventNames(name, event.observables)

    def _name_for_people(self) -> None:
        """Learn the names at once where somebody sits at IPython."""
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        if get_ipython and get_ipython() is not None:
            self.__dir__()

    def __dir__(self) -> list[str]:
        try:
            self.describe()
        except SightglassError:
            pass  # it is gone: its own names are left
        return [*super().__dir__()]


class EventNames:
    """What an event offers: its observables as attributes, or as items where their names are no Python names.

    Each is a query, to be given to `run.stream`.
    """

    def __init__(self, event: str, observables: Mapping[str, ObservableInfo]) -> None:
        self._event = event
        self._types = {name: one.type for name, one in observables.items()}
        self.__dict__.update({name: query_of(event, [name]) for name in observables if is_plain(name)})

    def __getitem__(self, name: str) -> Query:
        if name not in self._types:
            raise KeyError(unknown("observable", name, self._types, where=f"at event {self._event!r}"))
        return query_of(self._event, [name])

    def __dir__(self) -> list[str]:
        return [name for name in self._types if is_plain(name)]

    def __repr__(self) -> str:
        told = ", ".join(f"{name}: {kind}" for name, kind in self._types.items())
        return f"<event {self._event!r}: {told or 'nothing yet'}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._types)


FREE = EventNames("", {})
