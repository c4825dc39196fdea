"""The watcher: follows all runs that live now and later, and tells what its rules find.

Rule 1: a run that does not answer, or cannot compute a condition, costs the others nothing; `status` says why.
Rule 2: what a run cannot tell of itself is looked for by its connection and its description: that it crashed, is
stuck (no event for ten times the usual interval, and a minute), or is silent; that its process lives says nothing.
Rule 3: times are the watcher's own, so that clocks of other machines decide nothing.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from sightglass.alerts.alert import MAX_TEXT, Alert
from sightglass.alerts.delivery import AlertDelivery
from sightglass.alerts.receivers import Receiver
from sightglass.client.connection import PendingReply
from sightglass.client.many.fleet import Fleet, final_state
from sightglass.client.many.members import Member
from sightglass.client.many.parts import Part, Parts
from sightglass.client.run import CommandReply, RemoteRun, acknowledged
from sightglass.core.columns import Columns
from sightglass.core.counts import Failures
from sightglass.core.description import Description, read_struct
from sightglass.core.errors import SightglassError
from sightglass.core.process.clock import Clock, SystemClock, spoken
from sightglass.core.process.threads import Worker
from sightglass.core.program_values.guarded import message, text
from sightglass.query.arrays import truth
from sightglass.query.condition import MAX_VALUE, said

from .journal import Journal, Told
from .judge import RuleInRun
from .rules import CheckedRule, State, is_meant

ROUND_S: Final = 1.0
DESCRIBE_S: Final = 10.0  # a run that is stuck is told of after a minute: this is early enough
STUCK_S: Final = 60.0
SILENT_S: Final = 60.0
ENDING_S: Final = 60.0  # by when a run that said goodbye has written how it ended
STATUS_S: Final = 5.0
COMMAND_S: Final = 2.0
NOT_ALLOWED: Final = "not sent: the program does not allow it, see sg.Limits(alerts_may=…)"


class Health:
    """How one run is, by its connection and its description.

    Attributes:
        description: The last one.
        problem: What is wrong, and the sentence about it; `None` if nothing is.
        over: Whether the run has left, and nothing more will be known.
    """

    def __init__(self, now_s: float) -> None:
        self.description: Description | None = None
        self.problem: tuple[State, str] | None = None
        self.over = False
        self._heard_s, self._asked_s, self._left_s = now_s, -DESCRIBE_S, 0.0
        self._reply: PendingReply | None = None

    def look(self, member: Member, now_s: float) -> None:
        """Take in what is known of the run now."""
        self.problem = None
        if member.state == "died":
            self.problem = ("crashed", "Its process is gone, and did not say why.")
        elif member.why_left:
            self._left(member, now_s)
        elif not self._answers(member, now_s):
            why = member.session.why_lost() or "its process does not answer"
            self.problem = ("silent", f"Nothing was heard of it for {spoken(now_s - self._heard_s)}: {why}")
        elif (about := self.description) is not None and about.state == "quiet":
            age_s = min((event.age_s for event in about.events.values() if event.age_s is not None), default=0.0)
            if age_s >= STUCK_S:
                self.problem = ("stuck", f"It is {about.sentence}. `sightglass stack {member.name}` says where it is.")

    def _left(self, member: Member, now_s: float) -> None:
        self._left_s = self._left_s or now_s
        state = final_state(member)
        if state == "failed":
            self.problem = ("failed", "It ended by an error: `sightglass diagnose` says which.")
        self.over = state == "failed" or now_s - self._left_s > ENDING_S

    def _answers(self, member: Member, now_s: float) -> bool:
        """Ask for a description from time to time; return whether the run has answered lately."""
        lost = bool(member.session.why_lost())
        if self._reply is not None and self._reply.wait(0):
            reply, self._reply = self._reply, None
            try:
                self.description, self._heard_s = read_struct(Description, reply.result()), now_s
            except SightglassError:  # the connection was lost meanwhile
                self._asked_s = -DESCRIBE_S
        if lost:
            self._reply = None
        elif self._reply is None and now_s - self._asked_s >= DESCRIBE_S:
            self._asked_s = now_s
            self._reply = member.session.connection.start_query("describe")
        return now_s - self._heard_s < SILENT_S

    @property
    def is_known(self) -> bool:
        """Whether the run has answered, or something is wrong: before that, nothing can be said of it."""
        return self.problem is not None or self.description is not None


class Condition:
    """A rule that is asked of the runs of a fleet."""

    def __init__(self, rule: CheckedRule, fleet: Fleet) -> None:
        assert rule.query is not None
        self.rule = rule
        # A run of a name that another one has is called differently in a fleet.
        self.parts: Parts = fleet.where(lambda run: is_meant(rule, (run.description or run).name)).parts(rule.query)
        self.cursors: dict[Part, int] = {}

    def fresh(self) -> list[tuple[Part, Columns]]:
        """Return the new records of each run."""
        found = []
        self.parts.update()
        for part in list(self.parts.parts):
            part.fill()
            self.cursors[part], columns = part.stream.since(self.cursors.get(part, 0))
            part.stream.forget(self.cursors[part])
            found.append((part, columns))
        return found


class Watcher:
    """Watches runs, and tells.

    Attributes:
        closed: Whether it watches no more.
    """

    def __init__(
        self,
        rules: Sequence[CheckedRule],
        fleet: Fleet,
        receivers: Sequence[Receiver],
        journal: Journal,
        *,
        told: Callable[[Alert], None] = lambda alert: None,
        clock: Clock | None = None,
        worker: type[Worker] = Worker,
    ) -> None:
        """Begin to watch; call `round` about every second.

        Args:
            rules: The rules.
            fleet: The runs; it is closed with the watcher.
            receivers: Where alerts go.
            journal: What was told before; it is closed with the watcher.
            told: Called with each alert.
            clock: The time.
            worker: Runs the delivery.
        """
        self.closed = False
        self._told = told
        self._rules, self._fleet, self._journal = rules, fleet, journal
        self._clock = clock or SystemClock()
        self._delivery = AlertDelivery(receivers, clock=self._clock, worker=worker, delivered=journal.sent)
        for alert in journal.unsent:
            self._delivery.put(alert)
        self._states = {rule.key: rule for rule in rules if rule.query is None}
        self._conditions = [Condition(rule, fleet) for rule in rules if rule.query is not None]
        self._cases: dict[tuple[str, str], RuleInRun] = {}
        self._health: dict[Member, Health] = {}
        self._ids: dict[Member, str] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._sent: list[tuple[Alert, str, CommandReply, float]] = []
        self._failures = Failures("The watcher")
        self._began = self._clock.wall()
        self._status_s = 0.0

    def round(self) -> None:
        """Look at all runs once."""
        now_s = self._clock.monotonic()
        for member in self._fleet.members:
            with self._guarded():
                self._look(member, now_s)
        for condition in self._conditions:
            with self._guarded():
                for part, columns in condition.fresh():
                    self._judge(condition.rule, part, columns, now_s)
        with self._guarded():
            self._answer(now_s)
        if now_s - self._status_s >= STATUS_S:
            self._status_s = now_s
            self._journal.status(self.status())

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Let what fails cost one run or one rule a round, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  a watcher goes on for weeks
            self._failures.add(error, "a run or a rule was not looked at")

    def status(self) -> dict[str, Any]:
        """Return how it goes, as JSON types."""
        problems = {
            (condition.rule.key, part.member): self._refused.get((condition.rule.key, part.member.session.id))
            or part.problem
            for condition in self._conditions
            for part in condition.parts.parts
        }
        rows = []
        for rule in self._rules:
            for member in self._fleet.members:
                if is_meant(rule, member.session.run):
                    case = self._cases.get((rule.key, member.session.id), RuleInRun(rule))
                    last = case.last
                    problem = problems.get((rule.key, member), "")
                    rows.append({
                        "rule": rule.name, "run": member.name, "id": member.session.id,
                        "state": _state(case, problem, member), "evaluated": case.n_evaluated, "last": last,
                        "told": case.n_told, "problem": problem,
                    })  # fmt: skip
        counts = self._delivery.statistics()
        return {
            "began": self._began, "wall_time": self._clock.wall(), "rules": [rule.name for rule in self._rules],
            "runs": len(self._fleet), "rows": rows, "sent": counts.n_records, "waiting": counts.n_waiting,
            "problem": self._journal.problem or (counts.last_error if counts.n_waiting else self._failures.last),
        }  # fmt: skip

    def close(self) -> None:
        """Send what waits, and leave all runs. What could not be sent is sent by the next watcher."""
        self.closed = True
        with self._guarded():
            self._answer(math.inf)
        for condition in self._conditions:
            condition.parts.close()
        self._delivery.close()
        self._journal.status(self.status())
        self._fleet.close()
        self._journal.close()

    def _look(self, member: Member, now_s: float) -> None:
        """Look how a run is."""
        before, now = self._ids.get(member), member.session.id
        if before != now:
            self._ids[member], self._health[member] = now, Health(now_s)
            crashed = self._states.get("crashed")
            if before is not None and crashed is not None:  # only a run that died is replaced under its name
                case = self._case(crashed, before)
                if case.saw(True, "", now_s):
                    about = "Its process is gone; another one has begun under its name."
                    self._tell(case, member, about, step=None, wall_time=self._clock.wall(), id=before)
        health = self._health[member]
        if health.over:
            return
        health.look(member, now_s)
        if not health.is_known:
            return
        state, about = health.problem or ("", "")
        for key, rule in self._states.items():
            case = self._case(rule, now)
            sentence = health.description.sentence if health.description is not None else member.state
            if case.saw(key == state, about if key == state else sentence, now_s):
                self._tell(case, member, about, step=None, wall_time=self._clock.wall())
            self._note_over(case, member)

    def _judge(self, rule: CheckedRule, part: Part, columns: Columns, now_s: float) -> None:
        """Judge what a condition said in one run; one that cannot be judged is not looked at in this process again."""
        key = rule.key, part.member.session.id
        if key not in self._refused:
            try:
                self._evaluate(rule, part.member, columns, now_s)
            except SightglassError as error:  # it is not a boolean
                self._refused[key] = message(error)

    def _evaluate(self, rule: CheckedRule, member: Member, columns: Columns, now_s: float) -> None:
        case = self._case(rule, member.session.id)
        for i, (holds, about) in enumerate(columns.values):
            wall_time = float(columns.wall_times[i]) - member.ahead_s
            if wall_time <= case.since_wall_time:
                continue  # an earlier watcher has seen it, and told: a run sends again what it still holds
            if case.saw(truth(holds), text(about, MAX_VALUE), now_s):
                step = columns.record(i, tag=rule.name, run=member.name).step
                self._tell(case, member, said(rule.when, about), step=step, wall_time=wall_time)
        if member.why_left:  # nothing is pending any more
            case.since_s = None
        elif case.is_due(now_s):
            about = f"{rule.when}, for {spoken(rule.for_s)}; the last value is {case.last}"
            self._tell(case, member, about, step=None, wall_time=self._clock.wall())
        self._note_over(case, member)

    def _case(self, rule: CheckedRule, id: str) -> RuleInRun:
        key = rule.key, id
        if key not in self._cases:
            case = self._cases[key] = RuleInRun(rule)
            if (told := self._journal.told.get(key)) is not None:
                age_s = max(0.0, self._clock.wall() - told.alert.wall_time)
                case.n_told, case.told_s = told.n, self._clock.monotonic() - age_s
                case.is_told = key in self._journal.holding and not rule.momentary
                case.since_s = case.told_s if case.is_told else None
                case.since_wall_time = told.alert.wall_time
        return self._cases[key]

    def _note_over(self, case: RuleInRun, member: Member) -> None:
        if not case.is_told:
            self._journal.over(case.rule.key, member.session.id)

    def _tell(
        self, case: RuleInRun, member: Member, about: str, *, step: object, wall_time: float, id: str = ""
    ) -> None:
        """Note an alert, send it, and do what the rule says."""
        rule, id = case.rule, id or member.session.id
        info = member.info
        alert = Alert.of(
            f"{rule.key}-{id}-{case.n_told}", rule.name, about, level=rule.level, run=member.name, run_id=id,
            host=(info.host if info is not None else "") or socket.gethostname(), wall_time=wall_time, step=step,
            rule=rule.name,
        )  # fmt: skip
        self._journal.tell(Told(rule=rule.key, run=id, n=case.n_told, alert=alert))
        if rule.query is None or member.why_left:
            self._send(alert)
            return
        run = member.run.sent_by(f"alert {rule.name}")
        told = {"text": alert.text, "level": alert.level, "step": alert.step}
        with contextlib.suppress(SightglassError):  # lost just now, or a viewer's key
            run._start_command("alert", alert.title, told, connected_s=0.0)
        if rule.then is None:
            self._send(alert)
        else:
            self._act(rule.then, member, run, alert)

    def _act(self, then: tuple[str, str, object], member: Member, run: RemoteRun, alert: Alert) -> None:
        """Send the command of a rule, where the run allows it; the alert follows with what becomes of it."""
        kind, name, value = then
        about = member.info.description if member.info is not None else None
        allowed = () if about is None else about.alerts_may
        what = f"{name}={value}" if kind == "set" else kind
        if (kind if kind != "set" else name) not in allowed or (kind == "set" and name in ("stop", "pause")):
            self._send(alert, f"{what}: {NOT_ALLOWED}")
            return
        try:
            reply = run._start_command(kind, name, value, hold=kind == "pause", connected_s=0.0)
        except SightglassError as error:
            self._send(alert, f"{what}: {message(error)}")
        else:
            self._sent.append((alert, what, reply, self._clock.monotonic() + COMMAND_S))

    def _answer(self, now_s: float) -> None:
        """Send the alerts whose commands were applied, or take too long."""
        waiting, self._sent = self._sent, []
        for alert, what, reply, until_s in waiting:
            if not reply[1].wait(0) and now_s < until_s:
                self._sent.append((alert, what, reply, until_s))
                continue
            try:
                done = acknowledged(reply, 0.0)
                came = f"applied at step {done.step:,.15g}" if done.applied else f"accepted. {done.note}"
            except SightglassError as error:
                came = message(error)
            self._send(alert, f"{what}: {came}")

    def _send(self, alert: Alert, done: str = "") -> None:
        if done:
            alert = replace(alert, text=f"{alert.text}\n{done}"[-MAX_TEXT:])
        self._delivery.put(alert)
        with contextlib.suppress(OSError):  # where it is printed, the disk may be full
            self._told(alert)


def _state(case: RuleInRun, problem: str, member: Member) -> str:
    if member.why_left:
        return "over"
    return "refused" if problem else "told" if case.is_told else "pending" if case.since_s is not None else "armed"


def watch(watcher: Watcher) -> None:
    """Watch until Ctrl-C."""
    try:
        while True:
            watcher.round()
            time.sleep(ROUND_S)
    finally:
        watcher.close()
