"""The loop that connects a client again: it looks for the run, greets it, and rests longer after each attempt.

If the process of the run died, it waits for a run that begins under its name. It gives up when the run was closed or
refuses the client, when its hub does, and when it is not found in time.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

from sightglass.core.errors import RefusedError, TransportError
from sightglass.core.process.threads import UNTIL_WOKEN, Supervised, Worker

from .connection import POLL_S, Connection
from .live_runs import RunRoute, Target
from .resumable_stream import End

# A program that is started again imports its libraries and compiles before its run begins.
RESTART_S: Final = 30.0
# A run on another machine may have died, or the network is away: most outages are shorter. Sleep does not count.
AWAY_S: Final = 900.0
# A run replies within milliseconds; one that is held up gets another hello after this.
GREET_S: Final = 5.0
# The rest after the first attempt. It doubles up to the longest, and is short again once a connection has lasted.
REST_S: Final = 0.1
MAX_REST_S: Final = 5.0
LASTED_S: Final = 60.0


class Reconnecting(Protocol):
    """What connects again."""

    def why_lost(self) -> str:
        """Return why there is no connection; empty if there is one, or if it shall not be made again."""

    def connect(self, route: RunRoute) -> Connection:
        """Make a connection, and wake the loop when the run has answered.

        Raises:
            TransportError: It cannot be made now.
            RefusedError: The hub refuses this user.
        """

    def resume(self, connection: Connection) -> None:
        """Go on with a connection that the run has accepted."""

    def finish(self, reason: str, end: End) -> None:
        """Give up."""


class Reconnector:
    """Connects again when a connection was lost.

    Attributes:
        died: Whether the process of the run died, and no run has replaced it yet.
        route: The way that led to the run.
    """

    def __init__(
        self, target: Target, route: RunRoute, session: Reconnecting, *, worker: type[Worker] = Worker
    ) -> None:
        """Rest until woken.

        Args:
            target: Finds the run.
            route: The way that led to it.
            session: What connects again.
            worker: Runs the rounds.
        """
        self.died = False
        self._target = target
        self.route = route
        self._session = session
        self._candidate: Connection | None = None
        self._lost_s: float | None = None
        self._connected_s = self._next_s = -math.inf
        self._rest_s = REST_S
        self._closing = False
        self._worker = worker("reconnect", self.round, reset=self._discard)
        self._worker.warns_if_starved = False

    @property
    def supervised(self) -> Supervised:
        """The rounds, and what failed in them."""
        return self._worker.supervised

    def wake(self) -> bool:
        """Connect again, if the connection is lost; return whether a thread could be started for it."""
        self._worker.wake()
        return not self._worker.starved

    def close(self, timeout_s: float) -> None:
        """Stop; wait for at most this long."""
        self._closing = True
        if self._worker.alive:
            self._worker.close(timeout_s)

    def round(self, now_s: float) -> float | None:
        """Make the next attempt, or look at the last one; rest while there is a connection."""
        lost = self._session.why_lost()
        if self._closing:
            self._discard()
            return None
        if not lost:
            return UNTIL_WOKEN
        if self._lost_s is None:
            self._begin(now_s)
        candidate = self._candidate
        if candidate is not None and (candidate.welcomed or candidate.ended or candidate.refused):
            self._take(candidate, lost, now_s)
        elif now_s >= self._next_s:
            self._discard()
            self._try(lost, now_s)
        else:
            return self._next_s - now_s
        return 0.0

    def _begin(self, now_s: float) -> None:
        """Take note that the connection is lost; try again at once, unless it did not last."""
        self._lost_s = now_s
        if now_s - self._connected_s > LASTED_S:
            self._rest_s, self._next_s = REST_S, now_s
        else:
            self._next_s = now_s + self._rest_s

    def _try(self, lost: str, now_s: float) -> None:
        """Look for the run, and greet it."""
        self._next_s = now_s + self._rest_s
        lost_s = now_s - (self._lost_s or now_s)
        try:
            found = self._target.find_again(self.route)
        except TransportError:
            return
        except RefusedError as error:
            self._session.finish(f"{lost}. {error}", "lost")
            return
        self.died = found in ("died", "awaited")
        if found == "ended":
            self._session.finish(f"Run {self.route.run!r} has ended while this client was away", "early")
        elif found == "died" or (found == "awaited" and lost_s >= RESTART_S):
            self._session.finish(lost, "lost")
        elif found == "awaited":
            self._next_s = now_s + POLL_S
        elif found.alive is None and lost_s >= AWAY_S:
            self._session.finish(f"{lost}, and was not found again within {AWAY_S:.0f} s", "lost")
        else:
            self._rest_s = min(2 * self._rest_s, MAX_REST_S)
            self._greet(found, lost, now_s)

    def _greet(self, found: RunRoute, lost: str, now_s: float) -> None:
        """Greet the run; give up if its hub refuses this user."""
        try:
            self._candidate = self._session.connect(found)
            self.route, self._next_s = found, now_s + GREET_S
        except TransportError:  # threads or descriptors are lacking, or the hub is away: later there may be some
            pass
        except RefusedError as error:
            self._session.finish(f"{lost}. {error}", "lost")

    def _take(self, candidate: Connection, lost: str, now_s: float) -> None:
        """Go on with a connection that the run has accepted; give up if it refused."""
        if candidate.welcomed and not candidate.ended:
            self._session.resume(candidate)
            self._candidate, self._lost_s, self._connected_s = None, None, now_s
        elif candidate.refused:
            self._discard()
            self._session.finish(f"{lost}. It refused this client when it connected again", "lost")
        elif candidate.end == "invalid":
            self._session.finish(candidate.ended, "invalid")
        else:
            self._discard()
            self._next_s = now_s + self._rest_s

    def _discard(self) -> None:
        """Give up an attempt."""
        if self._candidate is not None:
            self._candidate.close(0.0)
            self._candidate = None
