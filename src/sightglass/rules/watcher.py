"""The watcher: follows all runs that live now and later, and tells what its rules find.

Rule 1: a run that does not answer, or cannot compute a condition, costs the others nothing; `status` says why.
Rule 2: what a run cannot tell of itself is looked for by its connection and its description: that it crashed, is
stuck (no event for ten times the usual interval, and a minute), or is silent; that its process lives says nothing.
Rule 3: times are the watcher's own, so that clocks of other machines decide nothing.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec.structs import replace

from sightglass.alerts.alert import MAX_TEXT, MAX_TITLE, Alert
from sightglass.alerts.delivery import AlertDelivery
from sightglass.alerts.receivers import Receiver
from sightglass.client.connection import PendingReply
from sightglass.client.many.fleet import Fleet, final_state
from sightglass.client.many.members import Member
from sightglass.client.many.parts import Part, Parts
from sightglass.core.columns import Columns
from sightglass.core.description import Description, read_struct
from sightglass.core.errors import SightglassError
from sightglass.core.process.clock import Clock, SystemClock, spoken
from sightglass.core.process.threads import Worker
from sightglass.core.program_values.guarded import message, text
from sightglass.query.arrays import truth

from .journal import Journal, Told
from .judge import RuleInRun
from .rules import CheckedRule, State

ROUND_S: Final = 1.0
DESCRIBE_S: Final = 10.0  # a run that is stuck is told of after a minute: this is early enough
STUCK_S: Final = 60.0
SILENT_S: Final = 60.0
ENDING_S: Final = 60.0  # by when a run that said goodbye has written how it ended
STATUS_S: Final = 5.0
COMMAND_S: Final = 2.0
MAX_VALUE: Final = 200  # characters
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


class Condition:
    """A rule that is asked of the runs of a fleet."""

    def __init__(self, rule: CheckedRule, fleet: Fleet) -> None:
        assert rule.query is not None
        self.rule = rule
        self.parts: Parts = fleet.where(lambda run: fnmatchcase(run.name, rule.runs)).parts(rule.query)
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
        self._began = self._clock.wall()
        self._status_s = 0.0

    def round(self) -> None:
        """Look at all runs once."""
        now_s = self._clock.monotonic()
        for member in self._fleet.members:
            self._look(member, now_s)
        for condition in self._conditions:
            for part, columns in condition.fresh():
                try:
                    self._evaluate(condition.rule, part, columns, now_s)
                except SightglassError as error:  # the condition is not a boolean
                    part.error = error
                    part.stream.close()
        if now_s - self._status_s >= STATUS_S:
            self._status_s = now_s
            self._journal.status(self.status())

    def status(self) -> dict[str, Any]:
        """Return how it goes, as JSON types."""
        problems = {
            (condition.rule.key, part.member): part.problem
            for condition in self._conditions
            for part in condition.parts.parts
        }
        rows = []
        for rule in self._rules:
            for member in self._fleet.members:
                if fnmatchcase(member.name, rule.runs):
                    case = self._cases.get((rule.key, member.session.id), RuleInRun(rule))
                    last = case.last if isinstance(case.last, str | None) else text(case.last, MAX_VALUE)
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
            "problem": counts.last_error if counts.n_waiting else "",
        }  # fmt: skip

    def close(self) -> None:
        """Send what waits, and leave all runs. What could not be sent is sent by the next watcher."""
        self.closed = True
        for condition in self._conditions:
            condition.parts.close()
        self._delivery.close()
        self._journal.status(self.status())
        self._fleet.close()
        self._journal.close()

    def _look(self, member: Member, now_s: float) -> None:
        """Look how a run is."""
        if self._ids.get(member) != member.session.id:  # another process has begun under its name
            self._ids[member], self._health[member] = member.session.id, Health(now_s)
        health = self._health[member]
        if health.over:
            return
        health.look(member, now_s)
        state, about = health.problem or ("", "")
        for key, rule in self._states.items():
            case = self._case(rule, member)
            sentence = health.description.sentence if health.description is not None else member.state
            if case.saw(key == state, about if key == state else sentence, now_s):
                self._tell(case, member, about, step=None, wall_time=self._clock.wall())
            self._note_over(case, member)

    def _evaluate(self, rule: CheckedRule, part: Part, columns: Columns, now_s: float) -> None:
        """Judge what a condition said in one run."""
        member = part.member
        case = self._case(rule, member)
        for i, (holds, about) in enumerate(columns.values):
            if case.saw(truth(holds), about, now_s):
                record = columns.record(i, tag=rule.name, run=member.name)
                self._tell(
                    case, member, f"{rule.when}: the value is {text(about, MAX_VALUE)}",
                    step=float(record.step), wall_time=record.wall_time - member.ahead_s,
                )  # fmt: skip
        if member.why_left:  # nothing is pending any more
            case.since_s = None
        elif case.is_due(now_s):
            about = f"{rule.when} for {spoken(rule.for_s)}: the value is {text(case.last, MAX_VALUE)}"
            self._tell(case, member, about, step=None, wall_time=self._clock.wall())
        self._note_over(case, member)

    def _case(self, rule: CheckedRule, member: Member) -> RuleInRun:
        key = rule.key, member.session.id
        if key not in self._cases:
            case = self._cases[key] = RuleInRun(rule)
            if (told := self._journal.told.get(key)) is not None:
                age_s = max(0.0, self._clock.wall() - told.alert.wall_time)
                case.n_told, case.told_s = told.n, self._clock.monotonic() - age_s
                case.is_told = key in self._journal.holding and not rule.momentary
                case.since_s = case.told_s if case.is_told else None
        return self._cases[key]

    def _note_over(self, case: RuleInRun, member: Member) -> None:
        if not case.is_told:
            self._journal.over(case.rule.key, member.session.id)

    def _tell(self, case: RuleInRun, member: Member, about: str, *, step: float | None, wall_time: float) -> None:
        """Note an alert, send it, and do what the rule says."""
        rule, id = case.rule, member.session.id
        info = member.info
        alert = Alert(
            id=f"{rule.key}-{id}-{case.n_told}", title=rule.name[:MAX_TITLE], text=about[:MAX_TEXT], level=rule.level,
            run=member.name, run_id=id, host=(info.host if info is not None else "") or socket.gethostname(),
            wall_time=wall_time, step=step, rule=rule.name,
        )  # fmt: skip
        self._journal.tell(Told(rule=rule.key, run=id, n=case.n_told, alert=alert))
        done = self._act(rule, member, alert)
        alert = replace(alert, text=f"{about}\n{done}".strip()[:MAX_TEXT])
        self._delivery.put(alert)
        self._told(alert)

    def _act(self, rule: CheckedRule, member: Member, alert: Alert) -> str:
        """Send the command of a rule where the run allows it, and enter the alert in its history; say what came of it.

        A run that is gone has neither.
        """
        if rule.query is None or member.why_left:
            return ""
        run, done = member.run.sent_by(f"alert {rule.name}"), ""
        told = {"text": alert.text, "level": alert.level, "step": alert.step}
        with contextlib.suppress(SightglassError):  # lost just now, or a viewer's key
            run._start_command("alert", alert.title, told, connected_s=0.0)
        if rule.then is not None:
            kind, name, value = rule.then
            about = self._health[member].description if member in self._health else None
            allowed = () if about is None else about.alerts_may
            what = f"{name}={value}" if kind == "set" else kind
            try:
                if (name or kind) not in allowed:
                    done = f"{what}: {NOT_ALLOWED}"
                else:
                    reply = (
                        run.set(name, value, timeout_s=COMMAND_S) if kind == "set"
                        else run.stop(timeout_s=COMMAND_S) if kind == "stop"
                        else run.pause(hold=True, timeout_s=COMMAND_S)
                    )  # fmt: skip
                    done = f"{what}: applied at step {reply.step:,.15g}" if reply.applied else f"{what}: {reply.note}"
            except SightglassError as error:
                done = f"{what}: {message(error)}"
        return done


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
