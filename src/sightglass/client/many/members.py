"""The runs of a fleet: a thread finds them, connects to each, and waits for none.

About once a second it looks for runs that are new. It greets them, asks each for its description, and lets those join
that are chosen. A run that ends, dies or is not chosen leaves, with the reason. A run that died and is started again
under its name comes back as the same member: its session goes on with the new process. The thread ends when the fleet
is closed, or dropped with its streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, Protocol

from sightglass.client.connection import PendingReply
from sightglass.client.describe import Condition, RunInfo, holds, live_info
from sightglass.client.discover import client_name
from sightglass.client.live_runs import LiveRuns, Reachable, RunRoute
from sightglass.client.many.rank_group import OwnedRounds
from sightglass.client.run import RemoteRun
from sightglass.client.session import Session
from sightglass.client.streams.arrivals import arrivals
from sightglass.core.description import Description, read_struct
from sightglass.core.errors import RefusedError, RunLostError, SightglassError, TransportError
from sightglass.core.process.threads import Worker
from sightglass.core.program_values.guarded import message

# How late a fleet may notice a run that begins. A look at 64 runs takes some milliseconds.
FIND_S: Final = 1.0
# A run replies within milliseconds: the loop looks often while it waits for one.
SOON_S: Final = 0.02
# A run that has not replied after this long is looked at as rarely as new ones are found.
PATIENCE_S: Final = 2.0


class Member:
    """A run that a fleet found.

    Attributes:
        name: Its name in the fleet: the run's, with its id where another run of the fleet had the name before.
        number: Its place among all runs of the fleet, counted as they were found.
        session: The connection to it.
        run: Its client.
        info: What it says about itself; `None` before it has replied.
        excluded: Whether the fleet's condition does not hold for it.
        refused: Why it cannot be in the fleet, though it may live; or empty.
    """

    def __init__(self, name: str, number: int, session: Session) -> None:
        self.name, self.number, self.session = name, number, session
        self.run = RemoteRun(session)
        self.info: RunInfo | None = None
        self.excluded = False
        self.refused = ""
        self.found_s = time.monotonic()
        self._describing: PendingReply | None = None

    @property
    def why_left(self) -> str:
        """Why it is not in the fleet any more; empty while it is, or may join."""
        died = self.session.why_lost() if self.session.died else ""
        return self.refused or self.session.ended or died

    @property
    def joined(self) -> bool:
        """Whether it is in the fleet, or was."""
        return self.info is not None and not (self.excluded or self.refused)

    @property
    def present(self) -> bool:
        """Whether it is in the fleet now."""
        return self.info is not None and not self.why_left

    @property
    def state(self) -> str:
        """What is known of its state without asking it."""
        if not self.why_left:
            return "silent" if self.info is None else "lost" if self.session.why_lost() else self.info.state
        return "died" if "died" in self.why_left else "ended"

    def advance(self, condition: Condition) -> None:
        """Take in what the run has replied; ask for its description, where that is not known."""
        connection = self.session.connection
        if self.why_left or self.session.why_lost():
            return
        if connection.refused:
            self._leave()
        elif connection.welcomed and (self.info is None or self.info.id != connection.id):
            self.session.wait_welcome(0)
            self._describe(condition)

    def _leave(self) -> None:
        try:
            self.session.wait_welcome(0)
        except SightglassError as error:
            self.refused = message(error)
        self.session.close(0)

    def _describe(self, condition: Condition) -> None:
        if self._describing is None:
            self._describing = self.session.connection.start_query("describe")
        if not self._describing.wait(0):
            return
        describing, self._describing = self._describing, None
        try:
            description = read_struct(Description, describing.result())
        except RunLostError:
            return  # asked again by the next connection
        except SightglassError as error:
            self.refused = message(error)
            return
        self.info = replace(live_info(description), name=self.name)
        try:
            self.excluded = not holds(condition, self.info)
        except Exception as error:  # noqa: BLE001  a condition is the user's: it costs the runs for which it fails
            self.refused = f"the fleet's condition failed for it: {message(error)}"
        if self.excluded or self.refused:
            self.session.close(0)


class Follower(Protocol):
    """What follows the members of a fleet."""

    def update(self) -> None:
        """Take in that members have joined or left; called about once a second, and when one joins."""


class Members:
    """The runs of a fleet, those that left included.

    Attributes:
        all: All members, in the order in which they were found.
        follows: Whether runs that begin later join.
        closed: Whether the fleet was closed.
        lock: For what followers share between the fleet's thread and others; reentrant.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        live: LiveRuns,
        condition: Condition = lambda run: True,
        follows: bool = True,
        worker: type[Worker] = Worker,
    ) -> None:
        """Begin to look.

        Args:
            patterns: Names, ids or patterns of names; one of them must match.
            live: Where runs are found; it is closed with the fleet.
            condition: Holds for the runs that are chosen.
            follows: Whether runs that begin later join.
            worker: Runs the rounds.
        """
        self.all: tuple[Member, ...] = ()
        self.follows = follows
        self._patterns, self._condition, self._live = patterns, condition, live
        self._followers: tuple[Follower, ...] = ()
        self._known: set[str] = set()
        self._n_rounds = 0
        self._found_s = -FIND_S
        self.closed = False
        self._rounds = OwnedRounds(self, leave=live.close)
        self._worker = worker("fleet", self._rounds.round)
        self.lock = self._worker.lock
        self._worker.wake()

    @property
    def waiting(self) -> list[str]:
        """The names of the runs that have not replied so far."""
        return [member.name for member in self.all if member.info is None and not member.why_left]

    @property
    def settled(self) -> bool:
        """Whether each run that was found has replied, or left."""
        return self._n_rounds > 0 and not self.waiting

    def settle(self, timeout_s: float) -> None:
        """Wait until each run that lives now has replied, for at most this long."""
        self.wait_until(lambda: self.settled, timeout_s)

    def wait_until(self, condition: Callable[[], object], timeout_s: float) -> bool:
        """Wait until a condition holds that members or records change; return whether it does."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            seen = arrivals.n
            if condition():
                return True
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            arrivals.wait(seen, min(left_s, SOON_S))  # replies to requests notify nobody

    def follow(self, follower: Follower) -> None:
        """Tell a follower of changes from now on."""
        with self._worker.lock:
            self._followers += (follower,)

    def unfollow(self, follower: Follower) -> None:
        """Tell a follower no more."""
        with self._worker.lock:
            self._followers = tuple(other for other in self._followers if other is not follower)

    def close(self, timeout_s: float = 2.0) -> None:
        """Leave all runs."""
        self.closed = True
        self._worker.close(timeout_s)
        for wait_s in (0.0, timeout_s):  # first tell all threads to end: each needs a moment
            for member in self.all:
                member.session.close(wait_s)
        self._live.close()
        arrivals.notify()

    def round(self, now_s: float) -> float | None:
        """Look for runs that are new, and take in what the others replied."""
        if self.closed:
            return None
        if now_s - self._found_s >= FIND_S and (self.follows or not self._n_rounds):
            self._found_s = now_s
            self._find()
        before = [member for member in self.all if member.present]
        for member in self.all:
            member.advance(self._condition)
            self._known.add(member.session.id)
        self._n_rounds += 1
        self.all = tuple(member for member in self.all if not member.excluded)
        for follower in self._followers:
            follower.update()
        if before != [member for member in self.all if member.present] or self._n_rounds == 1:
            arrivals.notify()
        young = any(
            member.info is None and not member.why_left and time.monotonic() - member.found_s < PATIENCE_S
            for member in self.all
        )
        return SOON_S if young else FIND_S

    def _find(self) -> None:
        for one in sorted(self._live.reachable(), key=lambda one: one.entry.started if one.entry else 0.0):
            if one.route.id in self._known or not self._matches(one.route) or self._comes_back(one):
                continue
            try:
                session = Session(one.target, one.route, client=client_name())
            except (TransportError, RefusedError):
                continue  # descriptors or threads are lacking, or the hub refuses the user: later it may be otherwise
            self._known.add(one.route.id)
            taken = {member.name for member in self.all}
            name = f"{one.route.run} ({one.route.id})" if one.route.run in taken else one.route.run
            member = Member(name, len(self._known), session)
            self._rounds.add(member.run)
            self.all += (member,)

    def _matches(self, route: RunRoute) -> bool:
        return any(one in (route.run, route.id) or fnmatchcase(route.run, one) for one in self._patterns)

    def _comes_back(self, found: Reachable) -> bool:
        """Return whether a run replaces one that died, whose session goes on with it by itself, or does so just now."""
        for member in self.all:
            route = member.session.route  # read once: the session's own thread changes it
            if member.refused or member.session.ended:
                continue
            if route.id == found.route.id or found.replaces(route):
                return True
        return False
