"""Which threads announce the events of a run: commands wait for those of one thread, and may wait in vain.

An idle event is counted without a look at its thread. But the first event of each name is seen, and so are all events
while a command waits; that is all that is needed.
"""

from __future__ import annotations

from typing import Final

from sightglass.core.clock import Clock
from sightglass.core.unpatched import threading

# Longer than most steps take. A client whose command waits for this long is told where the events come from.
SILENT_S: Final = 10.0
MAX_EVENTS: Final = 1_000  # events of other threads to remember, each with the name of one thread


class EventThreads:
    """Notes the thread of each event that is seen. The thread that makes this is the run's own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._own = threading.get_ident()
        self._own_s: float | None = None
        self._own_events: set[str] = set()
        self._others: dict[str, tuple[str, float]] = {}
        self._awaits = False

    def saw(self, event: str) -> bool:
        """Note an event of this thread; return whether this is the run's own thread."""
        if threading.get_ident() == self._own:
            self._own_s = self._clock.monotonic()
            self._own_events.add(event)
            return True
        if event in self._others or len(self._others) < MAX_EVENTS:
            self._others[event] = threading.current_thread().name, self._clock.monotonic()
        return False

    def applies(self, *, awaits: bool = False) -> bool:
        """Note that this thread applies commands by itself; return whether it is the run's own."""
        self._awaits = self._awaits or awaits
        self._own_s = self._clock.monotonic()
        return threading.get_ident() == self._own

    def stuck(self, at: str | None, since_s: float, *, what: str) -> str:
        """Return why a command will hardly be applied; empty if it can be.

        Args:
            at: The event that it waits for; `None` for any.
            since_s: Since when it waits, by the monotonic clock.
            what: The control or the action that it is about; empty for other commands.
        """
        heard = [(seen_s, event, thread) for event, (thread, seen_s) in self._others.items() if at in (None, event)]
        if not heard or at in self._own_events:
            return ""
        seen_s, event, thread = max(heard)
        silent = "so far"
        if at is None and self._own_s is not None:
            silent_s = self._clock.monotonic() - max(self._own_s, since_s)
            if silent_s < SILENT_S or seen_s < since_s:
                return ""
            silent = f"for {silent_s:.0f} s"
        declare = f"declare {what} with thread='any', or " if what else ""
        return (
            f"No event{f' {at!r}' if at else ''} of the thread that called init {silent}: {event!r} comes from thread "
            f"{thread!r}. In the program, {declare}call run.apply() where commands may be applied"
        )

    def unawaited(self, name: str) -> str:
        """Return why the call of an async action will hardly come; empty if it can."""
        if self._awaits:
            return ""
        return f"Action {name!r} is an async function, and the program has not awaited run.apply_async() so far"
