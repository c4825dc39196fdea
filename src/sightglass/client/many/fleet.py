"""Fleets: the live runs that are chosen by name or by what they say about themselves, asked and commanded together."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from sightglass.client.describe import Condition, RunInfo, check_condition, choose, coverage_of, holds
from sightglass.client.discover import runs_on_hub
from sightglass.client.live_runs import LiveRuns, Reachable, RunsHere
from sightglass.client.many.members import Member, Members
from sightglass.client.many.partial import By, grouped, merged
from sightglass.client.many.parts import LatestValues, Part, Parts, Union, checked
from sightglass.client.many.table import (
    RunRow,
    RunsTable,
    TableColumn,
    known_value,
    parse_column,
    row_of,
    texts_of,
)
from sightglass.client.run import ASK_S, COMMAND_S, CommandReply, RemoteRun, acknowledged
from sightglass.client.streams.answer import Answer, answer_of
from sightglass.client.streams.stream import Stream
from sightglass.core.description import Acknowledgement, Description, call_value, read_struct
from sightglass.core.errors import QueryError, RunLostError, SightglassError, UnknownNameError, warn_user
from sightglass.core.process.current_run import Bound
from sightglass.core.program_values.guarded import message
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.storage import run_file

# A run replies within milliseconds; one that does not must not hold up the others.
SETTLE_S: Final = 1.0
MAX_SHOWN: Final = 8  # runs in a `repr`


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """The outcome of a command in each run of a fleet, by the runs' names.

    Attributes:
        applied: The replies of the runs that applied it.
        waiting: Those of the runs that accepted it and wait for an event.
        failed: Why the others did not.
    """

    applied: Mapping[str, Acknowledgement]
    waiting: Mapping[str, Acknowledgement]
    failed: Mapping[str, Exception]

    def __str__(self) -> str:
        lines = [f"{name}: applied at event {reply.event!r}, step {reply.step}" for name, reply in self.applied.items()]
        lines += [f"{name}: accepted, not applied yet. {reply.note}" for name, reply in self.waiting.items()]
        return "\n".join([*lines, *(f"{name}: {message(error)}" for name, error in self.failed.items())])


class Fleet(Bound, Mapping[str, RemoteRun]):
    """Live runs by their names, in the order in which they were found. Made by `sightglass.fleet`.

    Runs that begin later join; a run that ends leaves, and its records stay. Of several runs of one name, the later
    ones have their id behind it. A run that died and is started again under its name comes back.
    """

    def __init__(self, members: Members, *, condition: Condition | None = None) -> None:
        """Wrap the runs, or with a condition those of them for which it holds."""
        self._members = members
        self._condition = condition
        self._unchosen: dict[Member, str] = {}
        self._asked: list[Union] = []
        self._columns: dict[str, LatestValues] = {}
        self._told: dict[str, str] = {}  # the coverage of the last result, by query
        joined = members.joined()
        self._known = dict.fromkeys(joined, True)
        if condition is not None:
            choice = choose(condition, {member: member.info for member in joined if member.info is not None})
            self._known = {member: member in choice.chosen for member in joined}
            self._unchosen = {member: _why(error) for member, error in choice.failed.items()}

    def _instead(self) -> str:
        return "Ask there for a fleet of its own: sg.fleet(…)"

    # Which runs

    def __getitem__(self, name: str) -> RemoteRun:
        for member in self._present():
            if name in (member.name, member.session.id):
                return member.run
        raise UnknownNameError("run", name, list(self), where="in the fleet")

    def __iter__(self) -> Iterator[str]:
        return iter([member.name for member in self._present()])

    def __len__(self) -> int:
        return len(self._present())

    @property
    def joined(self) -> list[str]:
        """The names of all runs that have joined, those that left included."""
        return [member.name for member in self._chosen()]

    @property
    def left(self) -> dict[str, str]:
        """Why runs have left, or could not join, by their names."""
        left = {member.name: member.why_left for member in self._chosen(all=True) if member.why_left}
        return left | {member.name: why for member, why in self._unchosen.items()}

    @property
    def silent(self) -> list[str]:
        """The names of the runs that were found and have not replied so far."""
        return self._members.waiting

    def where(self, condition: Callable[[RunInfo], object]) -> Fleet:
        """Return the runs for which a condition holds, with those that join later.

        Args:
            condition: A function of a `RunInfo`, such as `lambda run: run.config.lr < 0.1`. It is called once for each
                run. A run whose configuration lacks an entry that it reads is not chosen, nor is one for which it
                fails, such as for a text where the others have a number; `left` says why.

        Raises:
            Exception: What the condition raises, if it fails for all runs.
        """
        check_condition(condition)
        mine = self._condition
        return Fleet(self._members, condition=lambda run: (mine is None or holds(mine, run)) and holds(condition, run))

    def wait(self, n: int, *, timeout_s: float) -> None:
        """Wait until `n` runs have joined, those that left again included.

        Raises:
            TimeoutError: Fewer runs joined in time.
        """
        if not self._members.wait_until(lambda: len(self._chosen()) >= n, timeout_s):
            raise TimeoutError(f"Expected {n} runs within {timeout_s} s, got {len(self._chosen())}: {self!r}")

    # What they are asked

    def stream(self, query: Query | str, *, confirm: bool = False) -> Stream:
        """Send a query to all runs, and to those that join later; return one stream, whose records name their run.

        It ends with the fleet: runs may still join. With `follow=False`, it ends when all runs have. A run that does
        not answer, or refuses the query, does not hold up the others; `Stream.note` says why.

        Args:
            query: As in `RemoteRun.stream`.
            confirm: Whether to accept the query's cost to each run.

        Raises:
            QueryError: The query is not valid, or none of the runs that answered can evaluate it.
            UnconfirmedError: As in `RemoteRun.stream`.
        """
        asked = Union(self._members, query, chosen=self._chosen, confirm=confirm)
        asked.settle(SETTLE_S)
        asked.raise_refused()
        self._asked = [*(one for one in self._asked if not one.closed), asked]
        return asked.stream()

    def ask(
        self, query: Query | str, n: int = 1, *, confirm: bool = False, timeout_s: float = ASK_S
    ) -> dict[str, Answer]:
        """Return the next values of a query in each run, by the runs' names; a warning names the runs without one.

        Args:
            query: As in `stream`, as are the errors.
            n: How many values of each run.
            confirm: As in `stream`.
            timeout_s: How long to wait for them.
        """
        stream = self.stream(query, confirm=confirm)
        asked = self._asked[-1]

        def over(part: Part) -> bool:
            part.fill()
            return bool(part.problem) or part.stream.ended or part.buffer.n >= n

        answers: dict[str, Answer] = {}
        problems: dict[str, str] = {}
        with stream:
            self._members.wait_until(lambda: all(map(over, asked.parts)), timeout_s)
            for part in asked.parts:
                try:
                    answers[part.member.name] = answer_of(part.stream, n, 0.0)
                except (TimeoutError, SightglassError) as error:
                    problems[part.member.name] = part.problem or message(error)
        self._warn(query, problems)
        return answers

    def latest(self, query: Query | str, *, timeout_s: float = SETTLE_S) -> dict[str, Any]:
        """Return the newest value of a query in each run, by the runs' names.

        Runs without a value are left out. A warning names those that refuse the query, and those whose value is not of
        all events. The first call sends the query, which stays open. A query that ends in `per="run"` has a value so
        far, of the events since then and of what the run recorded or still holds of it.

        Args:
            query: The query.
            timeout_s: How long a run may take for its first value.

        Raises:
            QueryError: The query is not valid.
        """
        column = self._column(query)
        column.settle(timeout_s)
        self._warn(query, self._problems(column, waiting=False))
        values = {member.name: column.value(member) for member in self._chosen()}
        return {name: value for name, value in values.items() if value is not None}

    def table(self, *unnamed: Query | str, timeout_s: float = SETTLE_S, **queries: Query | str) -> RunsTable:
        """Return a table with a row for each run: its state, its configuration, and the newest value of each query.

        Values are those of `latest`. Runs that left have their rows, too.

        Args:
            *unnamed: Queries whose columns are named by their texts: `table("epoch.accuracy")`; an entry of the
                configuration, "config.lr", or a fact of the run, "run.host".
            timeout_s: How long a run may take for its first value, and to say its state.
            **queries: The columns by name: `acc="epoch.accuracy.last(per='run')"`.

        Returns:
            The table. Where a run does not answer, its cell is `None`, and its "problem" says why; the same column
            says where a value is not of all events.

        Raises:
            QueryError: A query is not valid.
            ValueError: A column has the name of one that every table has.
        """
        asked = {name: parse_column(text, title=name) for name, text in texts_of(unnamed, queries).items()}
        known = {name: column for name, column in asked.items() if column.kind in ("config", "run")}
        columns = {name: self._column(column.written) for name, column in asked.items() if name not in known}
        until_s = time.monotonic() + timeout_s
        for column in columns.values():
            column.settle(max(0.0, until_s - time.monotonic()))
        states = self._states(timeout_s)
        return RunsTable([self._row(member, states[member], columns, known) for member in self._chosen(all=True)])

    def reduce(self, query: Query | str, *, by: By | None = None, timeout_s: float = SETTLE_S) -> Any:
        """Return the result of a query's last reducer over the values of all runs together, so far.

        It is the result of one run with the events of all of them, run after run: those since the first call, and
        what the runs recorded or still hold. A warning names the runs of which it lacks events, and why. What the
        reducer reads is sent to this process.

        Args:
            query: A query that ends in a reducer without a window.
            by: A function of a `RunInfo`, such as `lambda run: run.config.optimizer`: the result is a mapping with a
                result for each of its values. A run whose configuration lacks an entry that it reads is left out.
            timeout_s: How long a run may take for its first value.

        Raises:
            QueryError: The query is not valid, its last reducer does not merge, or no run has a value.
        """
        whole = checked(as_query(query))
        column = self._column(whole)
        column.settle(timeout_s)
        infos = {member.name: member.info for member in self._chosen() if member.info is not None}
        states = {member.name: column.state(member) for member in self._chosen()}
        with_values = [name for name, state in states.items() if state is not None and name in infos]
        groups, lacking = grouped(with_values, infos.__getitem__, by)
        problems = self._problems(column) | lacking
        if not groups:
            why = next(iter(problems.values()), "")
            raise QueryError(f"No run of the fleet has a value of {query} so far. {why}".strip())
        self._warn(query, problems)
        return merged(whole, [(group, states[name]) for name, group in groups.items()], by)

    def parts(self, query: Query | str) -> Parts:
        """Send a query to all runs, and to those that join later; return their streams, one by one, without waiting.

        Raises:
            QueryError: The query is not valid.
        """
        return Parts(self._members, query, chosen=self._chosen)

    @property
    def members(self) -> list[Member]:
        """The runs, those that left included."""
        return self._chosen()

    # What they are told

    def set(self, name: str, value: object, *, at: str | None = None, timeout_s: float = COMMAND_S) -> FleetReport:
        """Set a control in each run. Arguments as in `RemoteRun.set`; a run that fails is named in the report."""
        return self._command("set", name, value, at=at, timeout_s=timeout_s)

    def call(
        self, name: str, /, *args: object, at: str | None = None, timeout_s: float = COMMAND_S, **keywords: object
    ) -> FleetReport:
        """Call an action in each run, as `set` does. Arguments as in `RemoteRun.call`."""
        return self._command("call", name, call_value(args, keywords), at=at, timeout_s=timeout_s)

    def pause(self, *, at: str | None = None, hold: bool = False, timeout_s: float = COMMAND_S) -> FleetReport:
        """Pause each run; unless `hold` is true, they resume when this fleet is closed."""
        return self._command("pause", at=at, hold=hold, timeout_s=timeout_s)

    def resume(self, *, timeout_s: float = COMMAND_S) -> FleetReport:
        """Resume each run that is paused."""
        return self._command("resume", timeout_s=timeout_s)

    def stop(self, *, at: str | None = None, timeout_s: float = COMMAND_S) -> FleetReport:
        """Ask each run to stop."""
        return self._command("stop", at=at, timeout_s=timeout_s)

    def close(self) -> None:
        """End the streams, and leave all runs; a fleet that `where` returned leaves them to the first one."""
        for asked in self._asked:
            asked.close()
        for column in self._columns.values():
            column.close()
        if self._condition is None:
            self._members.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(itertools.islice(self, MAX_SHOWN))
        parts = [f"{len(self)} runs: {names}{', …' if len(self) > MAX_SHOWN else ''}"]
        parts += [f"{len(self.left)} left"] if self.left else []
        parts += [f"{len(self.silent)} silent"] if self.silent else []
        return f"<Fleet of {'; '.join(parts)}>"

    def _chosen(self, *, all: bool = False) -> list[Member]:
        """Return the runs that joined, those that left included; with `all`, those that could not join, too."""
        found = []
        for member in self._members.all:
            if not member.joined:
                found += [member] if all and self._condition is None and not member.excluded else []
                continue
            if member not in self._known:
                try:
                    self._known[member] = self._holds(member)
                except Exception as error:  # noqa: BLE001  it is the user's
                    self._known[member] = False
                    self._unchosen[member] = _why(error)
            found += [member] if self._known[member] else []
        return found

    def _holds(self, member: Member) -> bool:
        return self._condition is None or (member.info is not None and holds(self._condition, member.info))

    def _present(self) -> list[Member]:
        return [member for member in self._chosen() if member.present]

    def _column(self, query: Query | str) -> LatestValues:
        text = query if isinstance(query, str) else str(query)
        if text not in self._columns:
            self._columns[text] = LatestValues(self._members, self._chosen, query)
        return self._columns[text]

    def _problems(self, column: LatestValues, *, waiting: bool = True) -> dict[str, str]:
        """Return why runs do not answer, or not for all events, by their names; `waiting`: also those that may yet."""
        return {
            member.name: problem
            for member in self._chosen(all=True)
            if (problem := column.problem(member)) and (waiting or not column.waits(member))
        }

    def _warn(self, query: Query | str, problems: Mapping[str, str]) -> None:
        """Warn of the coverage of a result, unless the last result of this query had the same."""
        sentence = coverage_of(query, problems, len(self._chosen(all=True)))
        if sentence and self._told.get(str(query)) != sentence:
            warn_user(sentence)
        self._told[str(query)] = sentence

    def _row(
        self, member: Member, state: str, columns: Mapping[str, LatestValues], known: Mapping[str, TableColumn]
    ) -> RunRow:
        info = member.info
        values = {name: column.value(member) for name, column in columns.items()}
        values |= {name: None if info is None else known_value(column, info) for name, column in known.items()}
        problems = {name: problem for name, column in columns.items() if (problem := column.problem(member))}
        if info is None:
            problems = {"": member.why_left or "it has not replied so far"}
        return row_of(member.name, state, {} if info is None else info.config, values, problems)

    def _states(self, timeout_s: float) -> dict[Member, str]:
        """Ask all runs for their states, and return them; "silent" for those that do not reply in time."""
        until_s = time.monotonic() + timeout_s
        members = self._chosen(all=True)
        asked = {
            member: member.session.connection.start_query("describe")
            for member in members
            if member.present and not member.session.why_lost()
        }
        states = {}
        for member in members:
            states[member] = member.state if member not in asked else "silent"
            if member in asked and asked[member].wait(max(0.0, until_s - time.monotonic())):
                try:
                    states[member] = read_struct(Description, asked[member].result()).state
                except SightglassError:  # it has just ended
                    states[member] = member.state
            if member.why_left and states[member] == "ended":
                states[member] = final_state(member)
        return states

    def _command(self, kind: str, name: str = "", value: object = None, **options: Any) -> FleetReport:
        """Send a command to all runs, and then wait for their replies."""
        until_s = time.monotonic() + options.pop("timeout_s")
        sent: dict[str, CommandReply] = {}
        replies: dict[str, Acknowledgement] = {}
        silent = self.silent if self._condition is None else []
        failed: dict[str, Exception] = {name: RunLostError(f"Run {name!r} has not replied so far") for name in silent}
        for member in self._present():
            try:
                member.session.check_wait(for_event=True)
                sent[member.name] = member.run._start_command(kind, name, value, connected_s=0.0, **options)
            except SightglassError as error:
                failed[member.name] = error
        for run, reply in sent.items():
            try:
                replies[run] = acknowledged(reply, max(0.0, until_s - time.monotonic()))
            except SightglassError as error:
                failed[run] = error
        return FleetReport(
            applied={run: reply for run, reply in replies.items() if reply.applied},
            waiting={run: reply for run, reply in replies.items() if not reply.applied},
            failed=failed,
        )


def fleet(
    runs: str | Sequence[str] = "*",
    *,
    where: Callable[[RunInfo], object] | None = None,
    connections: str | os.PathLike[str] | None = None,
    hub: str | os.PathLike[str] | None = None,
    follow: bool = True,
    timeout_s: float = SETTLE_S,
    pace_s: float = 0.0,
) -> Fleet:
    """Connect to all live runs of some names, and to those that begin later.

    Args:
        runs: A run's name or id, or a pattern such as "sweep-*"; or several of them. By default all runs.
        where: A function of a `RunInfo`, such as `lambda run: run.config.lr < 0.1`: only the runs for which it holds.
        connections: A folder of connection files, for runs on other machines.
        hub: A hub, as for `sightglass.init`. If given, only the runs that live there are chosen from.
        follow: Whether runs that begin later join. If not, and on a hub, this takes 4 seconds, so that no run is missed
            that answers late.
        timeout_s: How long to wait for the replies of the runs that live now. One that replies later joins then.
        pace_s: How long the runs may hold records back to send them together, as in `connect`.

    Returns:
        The fleet.

    Raises:
        TransportError: The hub cannot be reached.
    """
    patterns = [runs] if isinstance(runs, str) else list(runs)
    if not all(isinstance(one, str) for one in patterns):
        kinds = ", ".join(type(one).__name__ for one in patterns)
        raise TypeError(f"Expected names or patterns of runs, got {kinds}")
    if where is not None:
        check_condition(where)
    live: LiveRuns = RunsHere(connections) if hub is None else runs_on_hub(hub, all=not follow)

    def matches(one: Reachable) -> bool:
        return any(text in (one.route.run, one.route.id) or fnmatchcase(one.route.run, text) for text in patterns)

    members = Members(
        live, matches=matches, condition=where or (lambda run: True), follows=follow, options={"pace_s": pace_s}
    )
    try:
        members.settle(timeout_s)
        return Fleet(members)
    except BaseException:  # an interrupt
        members.close(0.0)
        raise


def final_state(member: Member) -> str:
    """Return how a run ended, by its files if this process can read them."""
    directory = member.info.directory if member.info is not None else ""
    files = run_file.read_all(Path(directory)) if directory else []
    state = run_file.together(files).state if files else "ended"
    return "ended" if state == "running" else state


def _why(error: Exception) -> str:
    return f"the fleet's condition failed for it: {message(error)}"
