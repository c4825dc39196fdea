"""The wiring of a run: telemetry, client service, io thread, sockets and files, and the order in which they close.

A run works without a network: what cannot be opened is reported as a warning. In a forked child the run is dead: every
call is a no-op, and the parent's sockets and files stay untouched.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sightglass.core.description import Ending
from sightglass.core.errors import warn
from sightglass.core.process import current_run
from sightglass.core.process.clock import SystemClock, WorkClock
from sightglass.core.process.ranks import launcher_store, place_of, rank_and_size
from sightglass.core.process.threads import Worker
from sightglass.core.program_values.copier import sendable
from sightglass.core.program_values.guarded import message as message_of
from sightglass.core.redact import redact
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.storage.file_system import LOCAL, FileSystem, LocalFileSystem
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import CHANGES, CONSOLE, PRINTED, SYSTEM, RunFile, State

from .agreement import Agreement, RankCommands
from .controls import LentFunction
from .endpoints import Endpoints
from .evaluation.telemetry import Telemetry
from .facts import Console, MachineMetrics, ProgramFacts, holds_last_lines, last_lines
from .options import OFF, Facts, Limits, Ranks
from .recorder import Mirror, MirrorTarget, Recorder
from .serving.alerts import RunAlerts
from .serving.client_service import ClientService
from .serving.io_loop import Chore, Chores, IoLoop

if TYPE_CHECKING:
    from sightglass.alerts.receivers import Receiver

IO_CLOSE_S: Final = 4.0  # more than the last chores and the last messages take
CLOSE_S: Final = 10.0  # without progress: a slow network file system may pause this long, a dead one is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The arguments of `init`, checked.

    Attributes:
        name: The run's name.
        directory: The run directory.
        shared: Whether the directory may exist already.
        repeats: Whether it hides what earlier processes wrote there from its own first step on.
        private: Whether only this user can read the files.
        config: The run's configuration.
        record: Queries to record from the start.
        listen: A TCP endpoint to open.
        hub: A hub to meet clients on, see `protocol.hub_address`.
        budget: The share of the run's time that queries may take.
        limits: How much subscriptions retain for late clients.
        ranks: How the processes of the program belong and act together.
        jax_attach: Whether clients may query the logs of every jitted function: "global" or `None`.
        sets_attributes: Whether clients may set numbers inside offered objects.
        mirror: Where rank 0 passes its records on to.
        at_mirror: Called when a mirror opens what it writes to.
        facts: What to tell about the program.
        receivers: Where alerts go.
        disabled: Whether every call is a no-op.
    """

    name: str
    directory: Path
    shared: bool = False
    repeats: bool = True
    private: bool = False
    config: Mapping[str, Any]
    record: Sequence[Query | str] = ()
    listen: str | None = None
    hub: str | os.PathLike[str] | None = None
    budget: float | None = None
    limits: Limits | None = None
    ranks: Ranks = field(default_factory=Ranks)
    jax_attach: str | None = None
    sets_attributes: bool = False
    mirror: Sequence[MirrorTarget] = ()
    at_mirror: Callable[[], None] = lambda: None
    facts: Facts = OFF
    receivers: Sequence[Receiver] = ()
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a run needs of the machine; a simulation passes its own.

    Attributes:
        clock: The time, and the work of threads.
        worker: Runs the loops.
        files: Where the run directory is.
        endpoints: Opens the listeners.
    """

    clock: WorkClock = field(default_factory=SystemClock)
    worker: type[Worker] = Worker
    files: FileSystem = LOCAL
    endpoints: type[Endpoints] = Endpoints


class Wiring:
    """The parts of a run, for the packages that add events of their own.

    Attributes:
        settings: The arguments of `init`.
        id: The run's id.
        telemetry: Events, subscriptions and commands.
        clock: The clock of the run.
        functions: The functions that queries may call besides the library's own, by name.
        files: The run directory.
        service: Answers the clients; `None` in a disabled run, as are the next three.
        io: The loop that serves the clients.
        recorder: Records the run.
        endpoints: Where clients reach the run.
        alerts: Raises and delivers its alerts.
        state: What `run.json` will say about the end.
        closed: Whether everything is closed.
        abandoned: Whether this is a forked child, whose parent has the run.
        shown: The config as clients see it, without secrets.
    """

    def __init__(self, settings: RunSettings, machine: Machine | None = None) -> None:
        machine = machine or Machine()
        self.settings = settings
        self.id = secrets.token_hex(6)
        self.clock = machine.clock
        self.functions: dict[str, LentFunction] = {}
        self.service: ClientService | None = None
        self.io: IoLoop | None = None
        self.recorder: Recorder | None = None
        self.endpoints: Endpoints | None = None
        self.alerts: RunAlerts | None = None
        self.state: State = "ended"
        self.closed = settings.disabled
        self.abandoned = self._warned_of_late = False
        self._holds_lines = self._renews = False
        self._started = self.clock.wall()
        self.shown = {} if settings.disabled else shown_config(settings.config)
        self._facts: ProgramFacts | None = None
        self._guests: list[Chore] = []
        ranks = settings.ranks
        place = place_of(settings.name, group=ranks.group, rank=ranks.rank, size=ranks.size)
        agree, self._rank, self._place = ranks.agree, place.rank, place
        self._number = next(_n_runs.setdefault(place.group, itertools.count()))
        self._worker = machine.worker
        files = LocalFileSystem(private=True) if settings.private else machine.files
        self.files = RunDirectory(
            settings.directory, shared=settings.shared, about=self._run_file, moved=self._moved, files=files
        )
        if settings.shared and not settings.disabled:
            self.files.warn_of_others()
        self.telemetry = Telemetry(
            clock=self.clock, budget=settings.budget, agree=agree, leads=self._rank == 0,
            worker=machine.worker, max_event_s=(settings.limits or Limits()).max_event_s,
        )  # fmt: skip
        if settings.disabled:
            self.telemetry.close()
            return
        current_run.answers_unless(self.id, lambda: self.telemetry.lock.held)
        self.telemetry.commands.run = self.id
        self.telemetry.commands.queue.sets_attributes = settings.sets_attributes
        several = f", rank {place.rank}" if place.size > 1 else ""
        self.alerts = alerts = RunAlerts(
            settings.receivers, run=f"{settings.name}{several}", id=self.id, leads=self._rank == 0, clock=self.clock,
            worker=machine.worker, remember=self.telemetry.commands.queue.remember,
            latest=self.telemetry.subscriptions.latest, disk_problem=self._disk_problem,
        )  # fmt: skip
        watch = alerts.saw if settings.receivers else None
        self.recorder = self.telemetry.events.recorder = Recorder(
            self.files.open, rank=self._rank, clock=self.clock, worker=machine.worker, files=files,
            mirrors=self._mirrors() if self._rank == 0 else (), watch=watch,
        )  # fmt: skip
        about = {
            "started": self._started, "config": self.shown, "facts": {}, "directory": str(settings.directory),
            "alerts_may": (settings.limits or Limits()).alerts_may,
        }  # fmt: skip
        self.service = ClientService(
            self.telemetry, run=settings.name, id=self.id, clock=self.clock, functions=self.functions, about=about,
            refuse_commands=partial(self.refusal, "Commands"), recorder=self.recorder, limits=settings.limits,
            watch=watch,
        )  # fmt: skip
        if settings.facts != OFF and not settings.facts.console and holds_last_lines():
            self._holds_lines = True
            last_lines.hold()
        self.telemetry.commands.interval_s = self.service.interval_s
        self.join_ranks()
        for query in settings.record:
            self.service.record(as_query(query))
        self.endpoints = machine.endpoints(
            settings.name, self.id, files=self.files, listen=settings.listen, hub=settings.hub,
            start_writer=self.recorder.start, place=place,
        )  # fmt: skip
        self._chores = chores = Chores(self._all_chores(), run=settings.name)
        self.io = IoLoop(
            self.endpoints.listener, self.service, clock=self.clock, worker=machine.worker,
            charge=self.telemetry.budget.sent, chores=chores, rests=lambda: self.telemetry.events.rests,
        )  # fmt: skip
        if not self.io.serves:
            self.endpoints.withdraw()
        self.telemetry.wake = self.io.wake
        self.service.background += [self.io.supervised.failures, self.recorder.supervised.failures, chores.failures]
        self.service.background += alerts.failures
        if self.endpoints.hub is not None:
            self.service.background.append(self.endpoints.hub.failures)

    def ends(self, state: State, ending: Ending) -> None:
        """Note how the run ends, and why."""
        self.state = state
        if self.service is not None:
            self.service.about["ending"] = ending
        if self.alerts is not None:
            self.alerts.ends(state, ending)

    def warn_of_late_values(self) -> None:
        """Warn once that what is logged after the end of the run is lost; not in a forked child, which has no run."""
        if not (self._warned_of_late or self.settings.disabled or self.abandoned):
            self._warned_of_late = True
            warn(f"Run {self.settings.name!r} has ended: what is logged from now on is not recorded")

    def join_ranks(self) -> None:
        """Begin to agree with the other ranks, once there are some and their launcher keeps a store."""
        rank, n_ranks = self._ranks
        commands = self.telemetry.commands
        if n_ranks < 2 or commands.agrees or self.closed or self.telemetry.closed:
            return
        store = None
        with contextlib.suppress(Exception):  # a launcher that is not there yet, or is gone
            store = launcher_store()
        if store is not None:
            restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            prefix = f"sightglass/{restart}/{self._place.group}/{self._number}/"
            commands.agreement = Agreement(
                RankCommands(commands), rank=rank, n_ranks=n_ranks, store=store, prefix=prefix, worker=self._worker
            ).shared

    def refusal(self, what: str, *, planned: bool = True) -> str:
        """Return why this process refuses something that all ranks must do together; empty if it does not.

        Args:
            what: What is refused, in the plural.
            planned: Whether the launcher's store can agree on it.
        """
        self.join_ranks()
        rank, n_ranks = self._ranks
        commands = self.telemetry.commands
        if n_ranks > 1 and not planned and self.settings.ranks.agree is None:
            return (
                f"{what} are refused in a program of {n_ranks} processes unless sg.Ranks(agree=…) supplies a broadcast"
            )
        if n_ranks > 1 and not commands.agrees:
            return (
                f"{what} are refused in a program of {n_ranks} processes until torch.distributed or jax.distributed is "
                "initialised, unless sg.Ranks(agree=…) supplies a broadcast"
            )
        if n_ranks > 1 and rank > 0:
            return f"{what} go to rank 0, whose run passes them to all; this is rank {rank}"
        return "" if commands.agreement is None else commands.agreement.problem

    def lend(self, name: str, function: Callable[..., Any], *, viewers: bool) -> None:
        """Let queries call a function; the caller holds the lock."""
        limits = self.settings.limits or Limits()
        self.functions[name] = LentFunction(
            name, function, viewers=viewers, run=self.id, max_call_s=limits.max_event_s,
            wall_s=self.clock.monotonic, in_event=lambda: self.telemetry.lock.held,
        )  # fmt: skip

    def host(self, guest: Chore) -> None:
        """Have something done from time to time, and for the last time when the run ends, before it takes no more."""
        self._guests.append(guest)
        if self.io is not None:
            self._chores.add(guest)

    def change_config(self, changes: Mapping[str, Any]) -> None:
        """Change entries of the config: clients see it at once, `run.json` has it a moment later."""
        shown = shown_config(changes)
        with self.telemetry.lock.mutex:
            self.shown.update(shown)
        if self.recorder is not None and self.recorder.active and not self._renews:
            self._renews = True
            self.recorder.aside(self._renew)

    def keep(self) -> None:
        """Describe the run on the disk now, even if it records nothing; warn if that cannot be done."""
        if self.recorder is not None and not self.recorder.active:
            try:
                self._renew()
            except OSError as error:
                warn(f"Cannot describe run {self.settings.name!r} on the disk: {message_of(error)}")

    def _renew(self) -> None:
        self._renews = False  # first: what changes from now on is written again
        self.files.renew({})

    def flush(self, timeout_s: float) -> None:
        """Wait until deferred work is settled and records are written.

        Raises:
            StorageError: A record could not be written.
        """
        self.telemetry.flush(timeout_s)
        if self.io is not None and not self.closed:
            self.io.settle(timeout_s)
        if self.recorder is not None:
            self.recorder.flush(timeout_s)

    def close(self) -> None:
        """Emit what is open in windows, tell the clients, write the last records, then note the end in `run.json`.

        Readers that follow the files wait for that note, so it comes last.

        Raises:
            StorageError: A record could not be written.
        """
        guests, self._guests = self._guests, []
        for guest in guests:
            guest.close()
        printed = self._printed()
        self.telemetry.commands.leave(apply=self.state == "ended")
        self.telemetry.close()
        if self.io is not None:
            self.io.close("the run has ended", timeout_s=IO_CLOSE_S)
        try:
            if self.recorder is not None:
                self.recorder.close(CLOSE_S)
        finally:
            problem = ""
            try:
                self.files.end(self._run_file_at_end, {PRINTED: printed} if printed else {})
            except Exception as error:  # noqa: BLE001  a training must not fail at its end for a description of itself
                problem = f"Cannot note the end of run {self.settings.name!r}: {message_of(error)}"
            if self.endpoints is not None:
                self.endpoints.close()
            current_run.answers_unless(self.id, None)
            if self.alerts is not None:
                self.alerts.deliver()
            self.closed = True  # an interrupted close is done again at exit
            if problem:  # last, since it may be an error
                warn(problem)

    def _printed(self) -> str:
        """Return what the program has printed last, if the run has failed; it is held for this run no longer."""
        if not self._holds_lines:
            return ""
        printed = last_lines.text() if self.state in ("failed", "terminated") else ""
        self._holds_lines = False
        last_lines.release()
        return printed

    def abandon(self) -> None:
        """Become a no-op in a forked child, without touching the parent's locks, threads and sockets."""
        current_run.answers_unless(self.id, None)
        self.closed = self.abandoned = True
        if self.recorder is not None:
            self.recorder.abandon()
        self.telemetry.abandon()

    @property
    def _ranks(self) -> tuple[int, int]:
        """The rank of this process and the number of ranks, which may become known after the run has begun."""
        return (self._place.rank, self._place.size) if self._place.declared else rank_and_size()

    def _mirrors(self) -> list[Mirror]:
        settings = self.settings
        return [
            Mirror(target, run=settings.name, config=self.shown, folder=self.files.open, opened=settings.at_mirror)
            for target in settings.mirror
        ]

    def _all_chores(self) -> list[Chore]:
        facts = self.settings.facts
        assert self.alerts is not None
        chores: list[Chore] = [_Joining(self), self.alerts]
        if facts.program or facts.diff or facts.environment:
            self._facts = ProgramFacts(facts, changed=self._facts_changed)
            chores.append(self._facts)
        if facts.system:
            assert self.recorder is not None
            chores.append(MachineMetrics(self._record_metrics, wanted=partial(getattr, self.recorder, "active")))
        if facts.console:
            chores.append(Console(self._record_lines))
        return chores

    def _disk_problem(self) -> str:
        return "" if self.recorder is None else self.recorder.disk_problem

    def _record_lines(self, stream: str, lines: Sequence[str]) -> None:
        wall_time = self.clock.wall()
        if self.recorder is not None and CONSOLE not in self.telemetry.subscriptions.sources:  # the program's own event
            for line in lines:
                self.recorder.sampled(CONSOLE, round(wall_time - self._started), wall_time, {stream: line})

    def _record_metrics(self, numbers: Mapping[str, float]) -> None:
        wall_time = self.clock.wall()
        if self.recorder is not None and SYSTEM not in self.telemetry.subscriptions.sources:  # the program's own event
            self.recorder.sampled(SYSTEM, round(wall_time - self._started), wall_time, numbers)

    def _facts_changed(self) -> None:
        """Show the facts to clients, and write them if `run.json` was written without them."""
        assert self._facts is not None
        assert self.service is not None
        assert self.recorder is not None
        self.service.about["facts"] = self._facts.found
        self.recorder.aside(partial(self.files.renew, {CHANGES: self._facts.diff} if self._facts.diff else {}))

    def _moved(self, path: Path) -> None:
        if self.service is not None:
            self.service.about["directory"] = str(path)

    def _run_file(self, **at_end: Any) -> RunFile:
        """Return the content of `run.json`."""
        return RunFile(
            name=self.settings.name, id=self.id, config=self.shown, started=self._started,
            host=socket.gethostname(), pid=os.getpid(), rank=self._rank, repeats=self.settings.repeats,
            facts={} if self._facts is None else self._facts.found, **at_end,
        )  # fmt: skip

    def _run_file_at_end(self) -> RunFile:
        assert self.service is not None
        with self.telemetry.lock.mutex:
            described = self.service.describe()
        events = {name: event.n_events for name, event in described.events.items()}
        return self._run_file(ended=self.clock.wall(), state=self.state, events=events, described=described)


_n_runs: dict[str, Iterator[int]] = {}  # by the name of the rank group: the runs of all ranks that began as the nth


class _Joining:
    """Looks for the other ranks: programs often call `init` before those are known."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def tick(self, now_s: float) -> None:
        self._wiring.join_ranks()

    def close(self) -> None:
        """Nothing is left to do."""


def shown_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as clients see it: other objects as their repr, no secrets. Warns of what cannot be read."""
    kept = sendable(config, "config")
    if kept.first is not None:
        more = f", nor {kept.n_lost - 1} other values" if kept.n_lost > 1 else ""
        warn(f"Cannot show {kept.first.path}{more}: {kept.first.why}")
    return redact(kept.value if type(kept.value) is dict else {"config": kept.value})  # type: ignore[no-any-return]
