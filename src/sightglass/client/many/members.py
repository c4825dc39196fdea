"""The runs of a fleet, or the ranks of one program: a thread finds them, connects to each, and waits for none.

About once a second it looks for runs that are new. It greets them, asks each for its description, and lets those join
that are chosen. A run that ends, dies or is not chosen leaves, with the reason. A run that died and is started again
under its name comes back as the same member: its session goes on with the new process. The thread ends when the fleet
is closed, or dropped with its streams.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from sightglass.client.connection import PendingReply
from sightglass.client.describe import Condition, RunInfo, holds, live_info
from sightglass.client.live_runs import LiveRuns, Reachable
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
        rank: Its rank, if the members are the ranks of one program.
        session: The connection to it.
        run: Its client.
        info: What it says about itself; `None` before it has replied.
        ahead_s: How many seconds its clock is ahead of this one; 0 if they may be equal.
        excluded: Whether the fleet's condition does not hold for it.
        refused: Why it cannot be in the fleet, though it may live; or empty.
    """

    def __init__(self, name: str, number: int, session: Session, *, rank: int | None = None) -> None:
        self.name, self.number, self.rank, self.session = name, number, rank, session
        self.run = RemoteRun(session)
        self.info: RunInfo | None = None
        self.excluded = False
        self.refused = ""
        self.ahead_s = 0.0
        self.found_s = time.monotonic()
        self._describing: PendingReply | None = None
        self._asked_s = 0.0

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
            self._asked_s = time.time()
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
        # The run read its clock at some time between the request and its reply, which a busy run sends late.
        least_s, most_s = description.wall_time - time.time(), description.wall_time - self._asked_s
        self.ahead_s = 0.0 if least_s <= 0 <= most_s else (least_s + most_s) / 2
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
        live: LiveRuns,
        *,
        matches: Callable[[Reachable], bool],
        condition: Condition = lambda run: True,
        follows: bool = True,
        ranked: bool = False,
        options: Mapping[str, Any] | None = None,
        worker: type[Worker] = Worker,
    ) -> None:
        """Begin to look.

        Args:
            live: Where runs are found; it is closed with the fleet.
            matches: Whether a run that lives may be meant.
            condition: Holds for the runs that are chosen.
            follows: Whether runs that begin later join.
            ranked: Whether they are the ranks of one program.
            options: Further options of their sessions.
            worker: Runs the rounds.
        """
        self.all: tuple[Member, ...] = ()
        self.follows = follows
        self._matches, self._condition, self._live = matches, condition, live
        self._ranked, self._options = ranked, options or {}
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

    def joined(self) -> list[Member]:
        """Return the runs that have joined, those that left included."""
        return [member for member in self.all if member.joined]

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
            if one.route.id in self._known or not self._matches(one) or self._comes_back(one):
                continue
            try:
                session = Session(one.target, one.route, **self._options)
            except (TransportError, RefusedError):
                continue  # descriptors or threads are lacking, or the hub refuses the user: later it may be otherwise
            self._known.add(one.route.id)
            rank = one.route.rank if self._ranked else None
            name = one.route.run if rank is None else f"rank {rank}"
            if any(member.name == name for member in self.all):
                name = f"{name} ({one.route.id})"
            member = Member(name, len(self._known), session, rank=rank)
            self._rounds.add(member.run)
            self.all += (member,)

    def _comes_back(self, found: Reachable) -> bool:
        """Return whether a run replaces one that died, whose session goes on with it by itself, or does so just now."""
        for member in self.all:
            route = member.session.route  # read once: the session's own thread changes it
            if member.refused or member.session.ended:
                continue
            if route.id == found.route.id or found.replaces(route):
                return True
        return False


# Rounds on a thread, for an owner that may be dropped without being closed.
#
# The thread holds its owner weakly. Once the owner is garbage collected, it leaves the owner's runs, and ends.

OWNER_REST_S: Final = 1.0  # how late an owner that was dropped may be noticed, and a run of it that is held on its own


class Owner(Protocol):
    """What has rounds on a thread of its own."""

    def round(self, now_s: float) -> float | None:
        """Run a round; see `core.process.threads`."""


class OwnedRounds:
    """The rounds of an owner, and what follows when it is gone.

    A client of a single run that somebody still holds keeps its connection, and the thread, until it is dropped, too.
    """

    def __init__(self, owner: Owner, *, leave: Callable[[], None]) -> None:
        """Prepare the rounds; `leave` is called when the owner is gone, and must not hold it."""
        self._owner = weakref.ref(owner)
        self._leave = leave
        self._runs: list[tuple[weakref.ref[RemoteRun], Session]] = []

    def add(self, run: RemoteRun) -> None:
        """Leave a run, too, when the owner is gone."""
        self._runs.append((weakref.ref(run), run._session))

    def round(self, now_s: float) -> float | None:
        """Run a round of the owner, or leave the runs that nobody holds."""
        owner = self._owner()
        if owner is not None:
            return owner.round(now_s)
        self._leave()
        for run, session in self._runs:
            if run() is None:
                session.close(0.0)
        self._runs = [(run, session) for run, session in self._runs if run() is not None]
        return OWNER_REST_S if self._runs else None
