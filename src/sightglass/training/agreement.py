"""How the ranks of one program apply commands at the same event: by their launcher's store, without a collective.

Rank 0 *proposes* an event that lies ahead. Each rank looks whether it has passed it. If not, it *confirms*, and from
then on its training waits at that event for the decision. When all ranks have confirmed, rank 0 *decides* yes, and each
applies the commands there. If one has passed the event, rank 0 proposes a later one. If one does not answer, the
commands are refused, and nothing has changed.

Every key is set once, so the store decides who was first. A rank that waits for too long sets the decision to no
itself: that stands for all ranks, unless a yes came before, which then stands for this one, too. So no rank applies
what another one does not, and none waits for a rank that died.

    here/RANK           there is a run on this rank: a token of its process
    ended/RANK          it has ended
    proposal/N          an event, and what to apply there
    vote/N/RANK         whether the rank can still apply it there, and how many events it has had
    decision/N          yes or no
    alive/N/I           rank 0 is alive, while all pause before proposal N

While all ranks pause at one event, none of them passes it: rank 0 decides alone.

All of that happens on a thread of its own, which runs only in programs of several ranks: a store whose host hangs holds
up neither the training nor the clients. Between commands an event costs the training nothing. `AgreedCommands` is the
side of the training thread.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from sightglass.core.errors import warn
from sightglass.core.process.ranks import LauncherStore
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message

from .command_runner import APPLIES, APPLY, CommandRunner
from .commands import HOLD_S, OPEN_S, AgreedCommands, Command, Place, Proposal, pack, unpack
from .evaluation.compiled import Plans

IDLE_S: Final = 0.5  # between two looks at the store while nothing is open: the longest delay of a command
LEAD_S: Final = 1.0  # how far ahead the proposed event should lie: two looks of an idle rank
ABSENT_S: Final = 10.0  # the ranks of one program begin their runs together, on a slow file system within seconds
VOTE_S: Final = 10.0  # a rank whose interpreter is held by C code for longer is not waited for
CLOSE_S: Final = 2.0  # a run that ends does not wait longer for a store that hangs
TRIES_S: Final = 20.0  # for so long rank 0 proposes later events, if ranks have passed those before
DEAD_S: Final = 30.0  # without a sign of rank 0 a pause ends
MAX_LEAD: Final = 2**6  # times `LEAD_S`: ranks that are further apart than a minute never meet
SHOWN: Final = 5  # ranks in a message

YES: Final = b"yes"
NO: Final = b"no"


class RankCommands:
    """What an agreement needs of its run, on a thread of its own.

    Attributes:
        changed: The condition of the run's lock.
    """

    def __init__(self, runner: CommandRunner) -> None:
        self.changed = runner.changed
        self._runner = runner

    def commands(self, event: str | None) -> list[Command]:
        """Take out the commands that wait for this event, or for any."""
        place: Place = "apply" if event == APPLIES else "event"
        with self._runner.lock.turn():
            return self._runner.queue.due(APPLY if event == APPLIES else event, place)

    def put_back(self, commands: Sequence[Command]) -> None:
        """Let commands wait again, before all others."""
        with self._runner.lock.turn():
            self._runner.queue.pending[:0] = commands

    def refuse(self, commands: Sequence[Command], why: str) -> None:
        """Tell the clients that their commands are not applied."""
        for one in commands:
            wall_time = self._runner.clock.wall()
            self._runner.queue.refuse(one, why, event=one.at or "", index=0, step=math.nan, wall_time=wall_time)
        self._runner.calm()

    def waiting_for(self) -> set[str | None]:
        """Return the events that commands wait for; `None` stands for any."""
        with self._runner.lock.turn():
            return {command.at for command in self._runner.queue.pending}

    def plans(self) -> Plans:
        """Return what compiled steps should answer."""
        with self._runner.lock.turn():
            return self._runner.steps.propose()

    def counts(self) -> Mapping[str, int]:
        """Return how many events the training thread has announced, by name."""
        runner = self._runner
        sources = runner.subscriptions.sources
        own = [*runner.threads.own_events]  # at once: the training thread adds to it
        with runner.lock.turn():
            counts = {name: sources[name].n_counted for name in own if name in sources}
        return {**counts, APPLIES: runner.n_applies} if runner.n_applies else counts

    def interval_s(self, event: str) -> float | None:
        """Return the usual seconds between two events of a name; `None` if they are not known."""
        return self._runner.interval_s(event)

    def alert(self) -> None:
        """Let the training thread see each of its events while the agreement is busy."""
        self._runner.calm()

    def paused_at(self) -> tuple[str, int] | None:
        """Return the event at which the training thread is paused by a command, and its number."""
        return self._runner.at if self._runner.queue.paused_by is not None else None

    def resume(self) -> None:
        """End a pause of this rank alone."""
        with self._runner.changed:
            self._runner.queue.paused_by = None
            self._runner.changed.notify_all()


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank answers: whether it has not passed the event, and how many it has had; -1 if it has no such event."""

    can: bool
    n_events: int


class Agreement:
    """The agreement of one rank with the others.

    Attributes:
        shared: What it shares with the training thread.
    """

    def __init__(
        self,
        run: RankCommands,
        *,
        rank: int,
        n_ranks: int,
        store: LauncherStore,
        prefix: str,
        worker: type[Worker] = Worker,
    ) -> None:
        """Begin without proposals.

        Args:
            run: The run of this rank.
            rank: Its number.
            n_ranks: How many ranks there are.
            store: The launcher's store.
            prefix: What the keys of this run begin with, on all ranks.
            worker: Runs the rounds.
        """
        self.shared = AgreedCommands(run.changed)
        self.shared.lose, self.shared.leave = self._lose, self.close
        self._run = run
        self._rank = rank
        self._n_ranks = n_ranks
        self._store = store
        self._prefix = prefix
        self._changed = run.changed
        self._calls = threading.Lock()  # of the store, by the loop and by `close`
        self._closed = False
        self._is_here = False
        self._token = secrets.token_bytes(8)  # a rank that starts again, alone, must not apply what is long over
        self._number = 1
        self._opened_s = 0.0
        self._plans: Plans = {}
        # Of rank 0:
        self._absent = set(range(n_ranks))
        self._votes: dict[int, Vote] = {}
        self._since_s: float | None = None
        self._tried_s: float | None = None
        self._lead = 1
        self._least: dict[str, int] = {}
        self._lacking: set[str] = set()
        # While paused:
        self._n_alive = 0
        self._heard_s: float | None = None
        self._worker = worker("ranks", self.round)
        self.shared.wake = self._worker.wake
        self._worker.wake()

    def round(self, now_s: float) -> float | None:
        """Look at the store; return for how many seconds to rest."""
        with self._calls:
            if self._closed or self.shared.problem:
                return None
            try:
                if not self._is_here and self._put(f"here/{self._rank}", self._token) != self._token:
                    self._lose(f"another process was rank {self._rank} of this program before")
                    return None
                self._is_here = True
                while self._step(now_s):
                    pass
            except Exception as error:  # noqa: BLE001  the launcher has ended, or its host: so has what it is for
                self._lose(message(error))
                return None
            return OPEN_S if self.shared.open is not None or self._tried_s is not None else IDLE_S

    def close(self) -> list[Command]:
        """Leave the other ranks; return the commands that all ranks apply and that this one has not reached."""
        if self._calls.acquire(timeout=CLOSE_S):
            try:
                if not self.shared.problem:
                    while (data := self._get(f"proposal/{self._number}")) is not None:
                        if self._put(f"decision/{self._number}", NO) == YES:
                            self.shared.agreed.append(msgspec.msgpack.decode(data, type=Proposal))
                        self._number += 1
                    self._put(f"ended/{self._rank}", YES)
                self._store.close()
            except Exception:  # noqa: BLE001  the process that keeps the store may have ended first
                pass
            finally:
                self._closed = True
                self._calls.release()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left, self.shared.agreed, self.shared.open = sorted(self.shared.agreed, key=lambda one: one.index), [], None
        self._worker.wake()
        return [unpack(*packed) for one in left for packed in one.commands]

    def _step(self, now_s: float) -> bool:
        """Do the next thing; return whether there may be another one."""
        if self.shared.open is not None:
            return self._settle(now_s)
        data = self._get(f"proposal/{self._number}")
        if data is None and self._rank == 0:
            data = self._propose(now_s)
        if data is None:
            self._watch_pause(now_s)
            return False
        self._vote(msgspec.msgpack.decode(data, type=Proposal), now_s)
        return True

    def _vote(self, proposal: Proposal, now_s: float) -> None:
        """Say whether this rank can apply a proposal, and be bound by it if so."""
        with self._changed:
            self.shared.open, self._opened_s, self.shared.confirmed = proposal, now_s, True
            self._run.alert()  # first, so that only an event that happens just now can still pass unseen
            n_events = self._run.counts().get(proposal.event, -1)
            self.shared.confirmed = 0 <= n_events < proposal.index
        if self._get(f"decision/{self._number}") is None:
            vote = Vote(can=self.shared.confirmed, n_events=n_events)
            self._put(f"vote/{self._number}/{self._rank}", msgspec.msgpack.encode(vote))

    def _settle(self, now_s: float) -> bool:
        """Follow the decision on what is open, if there is one; return whether there was."""
        key = f"decision/{self._number}"
        decision = self._get(key)
        if decision is None and self._rank == 0:
            decision = self._count(now_s)
        if decision is None:
            if self.shared.n_waits * OPEN_S <= HOLD_S and now_s - self._opened_s <= VOTE_S + HOLD_S:
                return False
            decision = self._put(key, NO)
        with self._changed:
            proposal, self.shared.open, self._n_alive, self._heard_s = self.shared.open, None, 0, None
            if proposal is None:  # the training thread has given up meanwhile
                return False
            if decision == YES:
                self.shared.agreed.append(proposal)
                self._plans = proposal.plans or self._plans
            self._number += 1
            self._changed.notify_all()
            self._run.alert()
        if self._rank == 0:
            self._follow_up(proposal, decision == YES, now_s)
        return True

    def _lose(self, why: str) -> None:
        """Go on alone: nothing is agreed on any more, and nothing is waited for.

        If this rank has confirmed what is open, it cannot know what the others do. They lose the store, too, in nearly
        all cases; and a training that waits for a store that does not come back would be worse.
        """
        with self._changed:
            self.shared.problem = f"Ranks no longer agree: {why}"
            confirmed = self.shared.open is not None and self.shared.confirmed
            self.shared.open = None
            self._changed.notify_all()
            if self._run.paused_at():
                self._run.resume()
            self._run.alert()
            self._refuse(self.shared.proposed, self.shared.problem)
            self.shared.proposed = []
        if confirmed:
            others = "Other ranks may have applied a command that this one has not"
            warn(f"Rank {self._rank}: {self.shared.problem}. {others}")

    # Rank 0

    def _propose(self, now_s: float) -> bytes | None:
        """Propose the commands and plans that wait, if there are any; return the proposal that stands."""
        with self._changed:
            wanted, plans, paused = self._run.waiting_for(), self._run.plans(), self._paused_at()
        if plans == self._plans or not any(
            plan.use or plan.prepare for plan in [*plans.values(), *self._plans.values()]
        ):
            plans = {}
        if not (wanted or plans):
            self._since_s = self._tried_s = None
            self.shared.lack = ""
            return None
        if not self._all_here(now_s) and paused is None:  # else this rank would be paused for ever
            return None
        found = paused if paused is not None else self._ahead(wanted, bool(plans))
        if found is None:
            return None
        event, index = found
        with self._changed:
            own, agreed = self._run.commands(event), self.shared.commands()
            # A pause that is agreed on is applied before all ranks agree on its end.
            too_early = paused is None and any(one.kind == "pause" for one in agreed)
            early = [one for one in own if one.kind == "resume" and too_early]
            self._run.put_back(early)
            self.shared.proposed = [one for one in own if one not in early]
        if not (self.shared.proposed or plans):
            return None
        self._tried_s = now_s if self._tried_s is None else self._tried_s
        proposal = Proposal(event=event, index=index, commands=[pack(one) for one in self.shared.proposed], plans=plans)
        data = msgspec.msgpack.encode(proposal)
        if paused is not None:  # nobody passes this event before the next decision
            self._put(f"decision/{self._number}", YES)
        stands = self._put(f"proposal/{self._number}", data)
        if stands != data:  # another rank has ended the pause, because this one was silent
            self._run.put_back(self.shared.proposed)
            self.shared.proposed = []
        self._votes = {}
        return stands

    def _all_here(self, now_s: float) -> bool:
        """Return whether all ranks have a run; refuses what waits for too long."""
        self._since_s = now_s if self._since_s is None else self._since_s
        self._absent = {rank for rank in self._absent if self._get(f"here/{rank}") is None}
        ended = [rank for rank in range(self._n_ranks) if rank not in self._absent and self._get(f"ended/{rank}")]
        self.shared.lack = ""
        if ended:
            self._refuse_all(f"{_ranks(ended)} no run any more")
        elif self._absent and now_s - self._since_s > ABSENT_S:
            self._refuse_all(f"{_ranks(self._absent)} no run of this name. Begin one on every rank")
        return not (self._absent or ended)

    def _ahead(self, wanted: set[str | None], plans: bool) -> tuple[str, int] | None:
        """Choose the event to propose: one that lies ahead of all ranks, as far as that is known."""
        counts = self._run.counts()
        named = [name for name in wanted if name is not None and name in counts]
        names = list(counts) if None in wanted or plans else named
        # The most frequent one comes first, and one that a rank lacks last.
        name = min(names, key=lambda one: (one in self._lacking, -counts[one], one), default=None)
        if name is None:
            return None
        interval_s = self._run.interval_s(name)
        n_ahead = math.ceil(self._lead * LEAD_S / interval_s) if interval_s else self._lead
        # The event that happens just now may pass unseen, so the next one is the first that can be chosen.
        return name, max(counts[name], self._least.get(name, 0)) + 1 + n_ahead

    def _count(self, now_s: float) -> bytes | None:
        """Count the votes, and decide; return the decision that stands, `None` if votes are missing."""
        for rank in range(self._n_ranks):
            if rank not in self._votes:
                data = self._get(f"vote/{self._number}/{rank}")
                if data is None:
                    break  # the next look begins here
                self._votes[rank] = msgspec.msgpack.decode(data, type=Vote)
        missing = len(self._votes) < self._n_ranks
        if missing and now_s - self._opened_s <= VOTE_S:
            return None
        return self._put(f"decision/{self._number}", NO if missing or self._passed() else YES)

    def _passed(self) -> dict[int, Vote]:
        return {rank: vote for rank, vote in self._votes.items() if not vote.can}

    def _follow_up(self, proposal: Proposal, agreed: bool, now_s: float) -> None:
        """Propose again what was not decided, or refuse it."""
        number, own, self.shared.proposed = self._number - 1, self.shared.proposed, []
        missing = [rank for rank in range(self._n_ranks) if rank not in self._votes]
        for rank in self._votes:
            self._store.delete(f"{self._prefix}vote/{number}/{rank}")
        passed, event = self._passed(), proposal.event
        if agreed:
            self._lead, self._least = 1, {}
            self._since_s = self._tried_s = None
        elif not missing and now_s - (self._tried_s or now_s) < TRIES_S:
            if any(vote.n_events < 0 for vote in passed.values()):
                self._lacking.add(event)
            self._least[event] = max(vote.n_events for vote in self._votes.values())
            self._lead = min(2 * self._lead, MAX_LEAD)
            self._run.put_back(own)
        else:
            self._since_s = self._tried_s = None
            lacking = [rank for rank, vote in passed.items() if vote.n_events < 0]
            self._refuse(
                own,
                f"{_ranks(missing)} not answered in time" if missing
                else f"{_ranks(lacking)} no event {event!r}" if lacking
                else f"{_ranks(passed)} passed each event {event!r} that was proposed" if passed
                else "the decision took too long",
            )  # fmt: skip

    def _refuse_all(self, why: str) -> None:
        self.shared.lack = why
        waiting = [one for event in self._run.waiting_for() for one in self._run.commands(event)]
        ends = [one for one in waiting if one.kind == "resume" and self._run.paused_at() is not None]
        self._run.put_back(ends)
        self._refuse([one for one in waiting if one not in ends], why)

    def _refuse(self, commands: Sequence[Command], why: str) -> None:
        if commands:
            self._run.refuse(commands, f"All {self._n_ranks} ranks apply a command at the same event, or none: {why}")

    # A pause

    def _paused_at(self) -> tuple[str, int] | None:
        """Return where the training is paused, and its number; `None` while there is something to apply there."""
        paused = self._run.paused_at()
        return None if paused is None or self.shared.has_due(*paused) else paused

    def _watch_pause(self, now_s: float) -> None:
        """Rank 0 shows that it is alive while all ranks pause; the others end a pause that has lost rank 0."""
        paused = self._paused_at()
        comes = self._rank == 0 and any(one.kind == "pause" for one in self.shared.commands())  # others may be there
        if paused is None and not comes:
            self._heard_s, self._n_alive = None, 0
            return
        self._heard_s = now_s if self._heard_s is None else self._heard_s
        key = f"alive/{self._number}/{{}}"
        if self._rank == 0:
            if now_s - self._heard_s > DEAD_S / 10 or not self._n_alive:
                self._put(key.format(self._n_alive), YES)
                self._heard_s, self._n_alive = now_s, self._n_alive + 1
            return
        for number in itertools.count(self._n_alive):
            if self._get(key.format(number)) is None:
                break
            self._n_alive, self._heard_s = number + 1, now_s
        if paused is not None and (now_s - self._heard_s > DEAD_S or self._get("ended/0") is not None):
            event, index = paused
            resume = Command(id=0, client="", kind="resume")
            data = msgspec.msgpack.encode(Proposal(event=event, index=index, commands=[pack(resume)]))
            if self._put(f"proposal/{self._number}", data) == data:  # else rank 0 has proposed something after all
                self._put(f"decision/{self._number}", YES)

    # The store

    def _put(self, key: str, value: bytes) -> bytes:
        return self._store.put(self._prefix + key, value)

    def _get(self, key: str) -> bytes | None:
        return self._store.get(self._prefix + key)


def _ranks(numbers: Collection[int]) -> str:
    """Name some ranks.

    >>> _ranks({2}), _ranks([0, 3])
    ('rank 2 has', 'ranks 0, 3 have')
    """
    shown = ", ".join(map(str, sorted(numbers)[:SHOWN])) + (" …" if len(numbers) > SHOWN else "")
    return f"rank {shown} has" if len(numbers) == 1 else f"ranks {shown} have"
