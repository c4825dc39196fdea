"""Events as attributes of a run: `run.batch.<TAB>` completes the observables, and `run.batch.loss` is a query.

Completion reads only attributes that exist: it evaluates no property. So the events become attributes whenever the run
describes itself: in `describe()`, when its own names are completed, and, in IPython, on connecting. Attributes of the
class stay: write `sightglass.on("stream")` for an event named "stream".
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NoReturn

from sightglass.core.errors import SightglassError, unknown
from sightglass.query.query import Query
from sightglass.query.shorthand import is_plain, query_of

from .describe import Description, EventInfo, ObservableInfo


class EventNamespace:
    """The observables of an event as attributes, or as items where their names are not valid Python names.

    Each is a query, to pass to `run.stream`.
    """

    def __init__(self, event: str, observables: Mapping[str, ObservableInfo]) -> None:
        self._event = event
        self._types = {name: info.type for name, info in observables.items()}
        self.__dict__.update({name: query_of(event, [name]) for name in observables if is_plain(name)})

    def __getitem__(self, name: str) -> Query:
        if name not in self._types:
            raise KeyError(unknown("observable", name, self._types, where=f"at event {self._event!r}"))
        return query_of(self._event, [name])

    def __call__(self, *args: object, **values: object) -> NoReturn:
        """Raise TypeError: a client that calls `log` means the program's own run."""
        raise TypeError(
            f"Only the program announces event {self._event!r}. A client publishes a stream: publish(name, stream)"
        )

    def __dir__(self) -> list[str]:
        return [name for name in self._types if is_plain(name)]

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {type}" for name, type in self._types.items())
        return f"<event {self._event!r}: {types or 'no observables yet'}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._types)


class EventAttributes(ABC):
    """A run whose events become attributes when it describes itself."""

    @abstractmethod
    def describe(self) -> Description:
        """Return the description of the run, and set its events as attributes."""

    def _set_event_attributes(self, events: Mapping[str, EventInfo]) -> None:
        """Set events as attributes, except those whose names are taken."""
        own = self.__dict__
        for name, event in events.items():
            is_taken = hasattr(type(self), name) or (name in own and not isinstance(own[name], EventNamespace))
            if is_plain(name) and not is_taken:
                own[name] = EventNamespace(name, event.observables)

    def _complete_in_ipython(self) -> None:
        """Set the attributes at once if this is IPython, where the next key may be a tab."""
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        if get_ipython and get_ipython() is not None:
            self.__dir__()

    def __dir__(self) -> list[str]:
        try:
            self.describe()
        except SightglassError:
            pass  # the run is gone; the names it had are still completed
        return [*super().__dir__()]
