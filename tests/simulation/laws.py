"""The laws of the house, checked while a schedule runs and after it.

Values: a record that a client is shown, or a file holds, has the value that follows from its step.
Counts: the records that were made are those that were shown, and those that were counted as lost.
Commands: each is applied at most once; one that was acknowledged, exactly once; one that was refused, never.
Ends: a run that was closed is never reported as dead, a dead one never as closed.
Files: they open, hold what `flush` has confirmed, and name every hole.
Bounds: each queue stays within its limit, and what a client used is freed when it is gone.
Failures: nothing fails by an internal error.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from sightglass.core.columns import Record
from sightglass.core.errors import RunLostError, SightglassError
from sightglass.storage.format.block import Key
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording
from sightglass.training import commands
from sightglass.training.evaluation import tail
from sightglass.training.serving import clients as run_clients
from sightglass.training.serving import io_loop
from sightglass.training.serving.client_service import ClientService

from .clients import PUBLISHER, Asked, Client, Visit
from .network import Network
from .program import FAULTY, Program
from .questions import PUBLISHED, QUESTIONS, Question
from .world import World

MAX_QUEUED = 64  # of a usual connection
SETTLE_S = 4.0  # after the end of the run: clients notice it within a second
LEASE_ENDS_S = 3.0  # a tick comes every second, and one is left out after a stall
FRESH_S = 1.2  # records are in the file within a second, and a round may be late


class Laws:
    """The laws, and what they look at."""

    def __init__(
        self,
        world: World,
        network: Network,
        program: Program,
        clients: list[Client],
        *,
        tight: bool,
        thinned: bool,
        errors: bool,
    ) -> None:
        """Begin to watch.

        Args:
            world: Takes the violations.
            network: Has cut connections, and lost messages if it is hostile.
            program: The training.
            clients: The clients.
            tight: Whether the limits of queues are so low that records are dropped.
            thinned: Whether the budget may thin streams.
            errors: Whether calls inside the real code fail.
        """
        self._world = world
        self._network = network
        self._program = program
        self._clients = clients
        self._tight = tight
        self._thinned = thinned
        self._errors = errors
        self._require = world.require

    def watch(self) -> None:
        """Check what must hold at every moment."""
        for client in self._clients:
            for asked in client.asked:
                self._look(asked)
            for visit in client.visits:
                visit.losses.add(visit.real.why_lost())
        if self._program.wiring is not None and self._network.server.alive:
            self._bounds()

    # Values and counts

    def _look(self, asked: Asked) -> None:
        buffer = asked.stream.buffer
        asked.cursor, columns = buffer.since(asked.cursor)
        where = f"{asked.session.real.connection._worker._process.name} {asked.question.query}"
        for record in columns.records(tag=buffer.tag, run=buffer.run):
            self.record(asked.question, record, asked.last, grouped=asked.grouped, where=where)
            asked.last = record

    def record(
        self, question: Question, record: Record, last: Record | None, *, grouped: bool = False, where: str
    ) -> None:
        """Check a record, and that it follows the last one."""
        seed, n_events = self._program.seed, record.n_events
        if record.step != record.step:  # a count of no events
            self._require("an empty group counts 0", record.value == 0, f"{where}: {record}")
            return
        step = int(record.step)
        published = question.event == PUBLISHED
        in_time = published or step < self._program.n[question.event] + 1
        self._require("no record is earlier than its event", in_time, f"{where}: {record}")
        if record.complete or not (self._thinned or self._tight):
            expected = question.answer(seed, step, n_events)
            self._require("values are right", equal(expected, record.value), f"{where}: {record}, not {expected!r}")
        events = question.events(seed, step, n_events)
        if question.every and record.complete:
            whole = n_events == question.every and (step + 1) % question.every == 0
            self._require("windows are aligned to the run", whole, f"{where}: {record}")
        if question.per and record.complete and not grouped:
            ends = [0, *self._program.ends[question.per]]
            whole = step + 1 in ends and events[0] in ends
            self._require("groups end where the run's do", whole, f"{where}: {record}, ends {ends}")
        if last is not None and last.step == last.step and events:
            # After a reconnection, a client that closed groups by itself gets those of the run, which began earlier.
            first = record.step if grouped and record.index > last.index + 1 else events[0]
            self._follows(question, record, last, first, where)

    def _follows(self, question: Question, record: Record, last: Record, first: float, where: str) -> None:
        self._require("indexes grow", record.index > last.index, f"{where}: {record} after {last}")
        self._require("events are in order", first > last.step, f"{where}: {record} after {last}")
        complete = not (self._thinned or self._tight or question.event == PUBLISHED)
        if record.index == last.index + 1 and complete and record.complete:
            missed = [i for i in range(int(last.step) + 1, int(first)) if question.takes(self._program.seed, i)]
            self._require("no event is left out", not missed, f"{where}: {record} after {last}: {missed}")

    def counts(self) -> None:
        """Check that what was made was shown or counted, where the end of a stream says how much was made."""
        # What is lost on the way from the client that publishes is missing at every client that reads it.
        cut_off = any(visit.n_cuts or visit.left for visit in self._clients[PUBLISHER].visits)
        for client in self._clients:
            for asked in client.asked:
                buffer = asked.stream.buffer
                where = f"{client.process.name} {asked.question.query}"
                again = asked.session.real.n_reconnects or (cut_off and asked.question.event == PUBLISHED)
                if not (self._tight or self._network.weather.hostile or self._errors or again):
                    self._require("nothing is lost on a quiet way", not buffer.n_lost, f"{where}: {buffer.n_lost}")
                if buffer.counts.stream:
                    n_made = buffer.counts.n_records + asked.stream.base - asked.pending.result().index
                    n_counted = buffer.n_lost + buffer.n_thinned
                    balance = f"{where}: made {n_made}, shown {buffer.n}, lost or thinned {n_counted}"
                    self._require("made = shown + counted", n_made == buffer.n + n_counted, balance)
                self._held(asked, where)

    def _held(self, asked: Asked, where: str) -> None:
        """Check what somebody who reads the stream only now is shown: real records, in order, the others counted."""
        buffer, last = asked.stream.buffer, None
        held = buffer.records()
        for record in held:
            self.record(asked.question, record, last, grouped=asked.grouped, where=f"{where}, read late")
            last = record
        balance = f"{where}: {buffer.n} came, {len(held)} are held, {buffer.n_forgotten} forgotten"
        self._require("came = held + counted", buffer.n == len(held) + buffer.n_forgotten, balance)

    # Commands

    def commands(self) -> None:
        """Check how often each command was applied."""
        run = self._program.run
        if run is None:
            return
        applied: Counter[tuple[str, int]] = Counter()
        for entry in run.history:
            if entry.kind == "set":
                applied["set", int(entry.value)] += 1
        for number, n in self._program.marks.items():
            applied["call", number] = n
        for client in self._clients:
            for command in client.commands:
                self._command(command.kind, command.number, command.pending, applied, client.process.name)

    def _command(self, kind: str, number: int, pending: Any, applied: Counter[tuple[str, int]], where: str) -> None:
        n = applied[kind, number]
        self._require("a command is applied at most once", n <= 1, f"{where}: {kind} {number}: {n} times")
        if not pending.wait(0):
            return
        try:
            pending.result()
        except SightglassError as error:
            faulty = kind == "call" and number % FAULTY == 0
            unknown = type(error) in (RunLostError, SightglassError)
            self._require(
                "a refused command is not applied", unknown or faulty or not n, f"{where}: {kind} {number}: {error}"
            )
        else:
            self._require("an acknowledged command is applied", n == 1, f"{where}: {kind} {number}")

    # The end

    def ends(self, *, closed: bool, killed: bool) -> None:
        """Check what the clients were told about the end of the run."""
        for client in self._clients:
            session = client.session
            if session is not None:
                self._end_of(session, client.process.name, closed=closed, killed=killed)

    def _end_of(self, session: Visit, name: str, *, closed: bool, killed: bool) -> None:
        ended = session.real.ended
        silent = session.n_cuts or session.frozen or self._network.weather.hostile or self._errors
        held = not any("lease" in lost for lost in session.losses)
        self._require("only a silent client loses its lease", silent or held, f"{name}: {session.losses}")
        self._require("a clean end is not a death", not (closed and "died" in ended), f"{name}: {ended}")
        self._require("a death is not a clean end", not (killed and ended.endswith("has ended")), f"{name}: {ended}")
        if (closed or killed) and session.local and not session.frozen:
            self._require("a client learns of the end", ended, name)
        weather = self._network.weather
        quiet = not (session.n_cuts or session.frozen or weather.hostile or self._tight or self._errors)
        # On a slow way, and from a process that was stopped, the goodbye may not get out in time.
        narrow = weather.max_queued < MAX_QUEUED
        quiet = quiet and not (narrow and (self._program.close_s >= io_loop.FINISH_S or not session.local))
        quiet = quiet and not self._network.server.was_frozen(SETTLE_S)
        if closed and quiet and session.real.connection.id:
            self._require("a clean end is told", ended.endswith("has ended"), f"{name}: {ended!r}")

    # Files

    def files(self, folder: Path, *, faults: bool, lost: bool) -> None:
        """Check the files that the run has left.

        Args:
            folder: Where they are.
            faults: Whether the disk failed at times.
            lost: Whether the machine failed, which loses what was not synced.
        """
        if not any(folder.glob("*.sgr")):
            missing = self._program.flushed and not lost
            self._require("what was flushed is in the file", not missing, f"no file, {self._program.flushed} flushed")
            return
        report = check(folder)
        self._require("files are intact", lost or not report.damages, str(report))
        # What a client published, and what was lost with its connection, is a gap in the event's numbers.
        gaps = [gap for file in report.files for gap in file.gaps if not gap.tag.startswith(PUBLISHED)]
        named = lost or self._errors or not gaps
        self._require("files name their holes", named, str(report))
        with Recording(folder) as recording:
            n_logged = 0
            for key in [*recording.keys()]:
                n_logged += self._series(recording, key)
            if not lost:
                n_flushed = self._program.flushed - self._n_dropped()
                self._require("what was flushed is in the file", n_logged >= n_flushed, f"{n_logged} < {n_flushed}")
            if not (lost or faults or self._errors):
                stalled = self._network.server.was_frozen(FRESH_S)
                fresh_s = -1.0 if stalled else self._network.server.died_s - FRESH_S
                n_old = sum(logged_s < fresh_s for logged_s in self._program.logged_s)
                self._require("records are in the file within a second", n_logged >= n_old, f"{n_logged} < {n_old}")
            if self._program.closed:
                n, n_dropped = self._program.n["log"], self._n_dropped()
                balance = f"made {n}, in the file {n_logged}, lost {n_dropped}"
                self._require("a closed run has written all, or counted", n <= n_logged + n_dropped, balance)
                told = not n_dropped or self._program.storage_error
                self._require("what is lost is told", told, balance)

    def _n_dropped(self) -> int:
        """Return how many records the run says that it has not kept."""
        wiring = self._program.wiring
        return 0 if wiring is None or wiring.recorder is None else wiring.recorder.statistics().n_dropped

    def _series(self, recording: Recording, key: Key) -> int:
        """Check the records of a series; return how many there are if it is the logged one."""
        questions = {question.query: question for question in QUESTIONS}
        keyed = {canonical(question): question for question in QUESTIONS}
        logged = key.kind == "logged" and key.tag == "val/x"
        question = questions["log['val/x']"] if logged else keyed.get(key.query)
        if question is None:
            return 0
        records = list(recording.series(key))
        last: Record | None = None
        for record in records:
            self.record(question, record, None, where=f"file {key.tag}")
            in_order = last is None or record.step > last.step or record.step != record.step
            self._require("events are in order", in_order, f"file {key.tag}: {record} after {last}")
            last = record
        return len(records) if logged else 0

    # Bounds and failures

    def _bounds(self) -> None:
        wiring = self._program.wiring
        assert wiring is not None
        if wiring.io is None or wiring.service is None:
            return
        for peer, outbox in wiring.io._outboxes.items():
            size = sum(entry[1] for entry in outbox.queue)
            self._require("a queue knows its size", outbox.n_bytes == size, f"{peer!r}: {outbox.n_bytes}, not {size}")
            fits = len(outbox.queue) <= io_loop.MAX_OUTBOX_MESSAGES + 1 and size <= io_loop.MAX_OUTBOX_BYTES
            self._require("a queue is bounded", fits, f"{peer!r}: {len(outbox.queue)} messages, {size} bytes")
        held = {id(entry[0]): entry[1:] for outbox in wiring.io._outboxes.values() for entry in outbox.queue}
        n_bytes, n_held = wiring.io._shared.n_bytes, sum(size for size, _ in held.values())
        self._require("a message that waits counts once", n_bytes == n_held, f"{n_bytes}, not {n_held}")
        n_bytes = sum(size for size, is_record in held.values() if is_record)
        self._require("all queues are bounded", n_bytes <= io_loop.MAX_OUTBOXES_BYTES, str(n_bytes))
        n_clients = len(wiring.service.clients)
        self._require("clients are bounded", n_clients <= run_clients.MAX_CLIENTS, str(n_clients))
        n_pending = len(wiring.telemetry.commands.queue.pending)
        self._require("commands are bounded", n_pending <= commands.MAX_PENDING + n_clients, str(n_pending))
        for active in wiring.telemetry.subscriptions.active.values():
            bounded = len(active.rows) <= tail.MAX_UNSENT_ROWS + 200  # looked at every millisecond
            self._require("rows are bounded", bounded, f"{active.query}: {len(active.rows)}")
            bounded = active.tail.n_deferred <= tail.MAX_DEFERRED
            self._require("deferred work is bounded", bounded, f"{active.query}: {active.tail.n_deferred}")
            n_kept = len(wiring.service._subscriptions._backlogs[active.id].records)
            bounded = n_kept <= active._limits.max_backlog_records
            self._require("the backlog is bounded", bounded, f"{active.query}: {n_kept}")
        if not (self._program.closing or self._errors):
            self._freed(wiring.service)

    def _freed(self, service: ClientService) -> None:
        """Check that clients end with their leases, and streams with their clients."""
        now_s, peers = self._world.now_s, service.clients.peers
        for active in list(service._telemetry.subscriptions.active.values()):
            used = any(peer in peers for peer in service._subscriptions._peers.get(active.id, ()))
            kept = used or active in service._recorded
            self._require("a stream that nobody reads is closed", kept, str(active.query))
        for peer in peers:
            late_s = now_s - service.clients[peer].lease_until_s
            in_time = late_s < LEASE_ENDS_S or self._network.server.was_frozen(LEASE_ENDS_S)
            self._require("leases end", in_time, f"{peer!r}: {late_s:.1f} s late")

    def failures(self) -> None:
        """Check that nothing failed by an internal error."""
        wiring = self._program.wiring
        failures = [] if wiring is None or wiring.service is None else wiring.service._failures()
        for each in failures:
            planned = each.last.endswith(": Killed") or self._errors
            self._require("nothing fails inside the run", not each.n or planned, f"{each.where}: {each.last}")
        for client in self._clients:
            for session in client.visits:
                n, connection = session.real.n_failures, session.real.connection
                last = connection._failures.last or connection._worker.supervised.failures.last
                last = last or session.real._reconnector.supervised.failures.last
                planned = session.left or self._errors
                self._require("nothing fails inside a client", not n or planned, f"{client.process.name}: {last}")


def canonical(question: Question) -> str:
    """Return a query as files name it."""
    from sightglass.query.parser import parse

    return parse(question.query).key


def equal(expected: Any, value: Any) -> bool:
    """Return whether two values are the same number, text or array."""
    if isinstance(expected, np.ndarray):
        return isinstance(value, np.ndarray) and value.dtype == expected.dtype and np.array_equal(expected, value)
    if isinstance(expected, float):
        return isinstance(value, float | np.floating) and abs(expected - float(value)) <= 1e-9 * max(1.0, abs(expected))
    return bool(expected == value)
