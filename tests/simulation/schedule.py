"""One schedule: a run, its clients, a network and a disk, and what goes wrong, all drawn from one seed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from sightglass.client import reconnect
from sightglass.query.costs import CostModel
from sightglass.query.meter import Meter
from sightglass.training.evaluation import tail
from sightglass.training.evaluation.budget import Turns
from sightglass.training.options import Limits
from sightglass.training.serving import clients as run_clients
from sightglass.training.serving import io_loop
from sightglass.training.wiring import Machine

from .clients import Client, join_later
from .disk import Call, Disk, Fault, Loss
from .faults import internal_errors
from .laws import SETTLE_S, Laws
from .network import Network, Weather
from .program import DIRECTORY, Pace, Program
from .questions import QUESTIONS
from .world import Process, World

LIMIT_S = 120.0  # no schedule takes so long, unless something hangs
WATCH_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a schedule is like.

    Attributes:
        n_clients: How many clients there are.
        act_s: The mean time between two acts of a client.
        calm: Whether clients stay, and are neither killed nor frozen.
        cut_s: The mean time between two cuts of connections; 0 for none.
        stall_s: For how long the run's process is stopped once; 0 for never.
        end: How the run ends: "close", "kill" for the process, "crash" for the machine.
        end_s: When it ends, unless it is closed.
        disk_faults: The probability that a call of the file system goes wrong.
        tight: Whether queues are so short that records are dropped.
        errors: The probability that a call inside the real code fails (`faults`).
        tick_s: How long a computation takes.
        lease_s: The lease of clients.
        n_recorded: How many queries are recorded.
        lag_s: By how much the rounds of the first client are late at most; the messages for it pile up meanwhile.
        max_records: How many records a client holds of a stream, and the run for late clients: older ones are thinned.
    """

    pace: Pace
    weather: Weather
    n_clients: int
    act_s: float
    calm: bool
    cut_s: float
    stall_s: float
    end: str
    end_s: float
    disk_faults: float
    tight: bool
    errors: float
    tick_s: float
    lease_s: float
    n_recorded: int
    lag_s: float
    max_records: int


def planned(world: World) -> Plan:
    """Draw a plan."""
    random = world.random
    chance = lambda p: random.random() < p  # noqa: E731
    batch_s = random.choice((0.002, 0.01, 0.03))
    pace = Pace(
        n_batches=random.randint(20, 250), batch_s=batch_s, burst=random.choice((1, 1, 1, 5, 40)),
        device_s=random.choice((0.0, 0.0, 0.01, 0.3)), flush=random.choice((0.0, 0.01, 0.05)),
        budget=0.05 if chance(0.2) else None,
    )  # fmt: skip
    return Plan(
        pace=pace,
        weather=Weather(
            delay_s=random.choice((0.0002, 0.002, 0.05)), max_queued=random.choice((64, 64, 4)),
            hostile=random.choice((0.0, 0.0, 0.0, 0.05)),
        ),
        n_clients=random.randint(1, 5),
        act_s=random.choice((0.03, 0.1, 0.3)),
        calm=chance(0.4),
        cut_s=random.choice((0.0, 0.0, 0.5, 2.0)),
        stall_s=random.choice((0.0, 0.0, 0.0, 0.5, 5.0)),
        end=random.choice(("close", "close", "close", "kill", "crash")),
        end_s=random.uniform(0.1, 1.0) * pace.n_batches * batch_s,
        disk_faults=random.choice((0.0, 0.0, 0.05, 0.3)),
        tight=chance(0.2),
        errors=random.choice((0.0, 0.0, 0.0, 0.002, 0.02)),
        tick_s=random.choice((1e-6, 1e-6, 1e-4)),
        lease_s=random.choice((2.0, 12.0)),
        n_recorded=random.randint(0, 3),
        lag_s=random.choice((0.001, 0.001, 0.001, 0.5)),
        max_records=random.choice((8_192, 8_192, 24)),
    )  # fmt: skip


class Schedule:
    """A schedule.

    Attributes:
        world: Where it happens.
        plan: What it is like.
    """

    def __init__(self, seed: int, **features: Any) -> None:
        """Draw the plan, and compose the run and its clients; `features` replace what was drawn."""
        self.world = world = World(seed)
        self.plan = plan = replace(planned(world), **features)
        world.tick_s = plan.tick_s
        self._server = Process(world, "run")
        self._network = Network(world, self._server, plan.weather)
        self._disk = Disk(now=world.wall, sleep=self._server.sleep)
        self._disk.make_directory(DIRECTORY.parent)
        if plan.disk_faults:
            self._disk.fault = self._fault
        machine = Machine(
            clock=world, worker=self._server.worker, files=self._disk,  # type: ignore[arg-type]
            endpoints=self._network.endpoints,  # type: ignore[arg-type]
        )  # fmt: skip
        record = [question.query for question in world.random.sample(QUESTIONS, plan.n_recorded)]
        self._program = Program(
            self._server,
            machine,
            seed=seed,
            pace=plan.pace,
            record=record,
            limits=Limits(max_backlog_records=plan.max_records),
        )
        numbers = itertools.count(1)
        self._clients = [
            Client(
                self._network, n, numbers=numbers, pause_s=plan.act_s, calm=plan.calm, max_records=plan.max_records,
                lag_s=0.001 if n else plan.lag_s,
            )
            for n in range(plan.n_clients)
        ]  # fmt: skip
        self._laws = Laws(
            world, self._network, self._program, self._clients,
            tight=plan.tight, thinned=plan.pace.budget is not None, errors=plan.errors > 0,
        )  # fmt: skip
        self._left = self._disk

    def run(self) -> list[str]:
        """Let it happen; return the laws that were broken."""
        world, plan = self.world, self.plan
        with surroundings(world), limits(plan), internal_errors(world, plan.errors):
            self._server.at(0.0, self._train)
            join_later(self._clients, plan.pace.n_batches * plan.pace.batch_s / 2)
            world.at(WATCH_S, self._watch)
            if plan.cut_s:
                world.at(world.random.expovariate(1 / plan.cut_s), self._cut)
            if plan.stall_s:
                self._server.at(plan.end_s / 2, lambda: self._server.freeze(plan.stall_s))
            if plan.end != "close":
                self._server.at(plan.end_s, self._kill)
            world.run(LIMIT_S)
            self._judge()
            if self._program.wiring is not None:
                self._program.wiring.abandon()
        return world.violations

    def _train(self) -> None:
        self._program.main()
        self._left = self._disk
        self._laws.watch()
        self.world.at(self.world.random.random(), self._exit)
        self.world.end(SETTLE_S)

    def _exit(self) -> None:
        if self._server.alive:
            self._server.kill()

    def _kill(self) -> None:
        """End the run's process, or its machine."""
        if self._program.closed:
            return
        random = self.world.random
        self._server.kill()
        losses: tuple[Loss, ...] = ("none", "unsynced", "zeros", "random")
        self._left = self._disk.copy() if self.plan.end == "kill" else self._disk.crashed(random.choice(losses), random)
        self.world.end(SETTLE_S)

    def _watch(self) -> None:
        self._laws.watch()
        self.world.at(WATCH_S, self._watch)

    def _cut(self) -> None:
        random = self.world.random
        channels = [channel for channel in self._network.channels if not channel.closed]
        if channels:
            random.choice(channels).cut(random.expovariate(2.0), noticed=random.random() < 0.7)
        self.world.at(random.expovariate(1 / self.plan.cut_s), self._cut)

    def _fault(self, call: Call) -> Fault | None:
        random = self.world.random
        if random.random() > self.plan.disk_faults:
            return None
        match random.randrange(4):
            case 0:
                return Fault(code=random.choice((errno.EIO, errno.ENOSPC, errno.EACCES)))
            case 1:
                return Fault(n_bytes=random.randint(1, 50))
            case 2:
                return Fault(delay_s=random.expovariate(5.0))
            case _:
                return Fault(code=errno.EIO, n_bytes=random.randint(1, 50), applied=True)

    def _judge(self) -> None:
        plan, program, laws = self.plan, self._program, self._laws
        killed = not self._server.alive and not program.closed
        self.world.require("the training goes on", program.closed or killed, f"{program.n['batch']} batches")
        laws.watch()
        laws.counts()
        laws.commands()
        laws.ends(closed=program.closed, killed=killed and not program.closing)
        laws.failures()
        with tempfile.TemporaryDirectory() as folder:
            if program.run is not None:
                self._left.write_out(program.run.directory, Path(folder))
            laws.files(Path(folder), faults=plan.disk_faults > 0, lost=killed and plan.end == "crash")


@contextlib.contextmanager
def surroundings(world: World) -> Iterator[None]:
    """Replace what a program reads of its machine, so that a seed gives one history.

    Evaluations take no time, and have the prices of a usual machine: on a busy one, a cheap query may be refused.
    """
    usual = CostModel()
    usual.calibrated = True
    with (
        warnings.catch_warnings(),
        mock.patch.dict(Meter.__init__.__kwdefaults__, cpu_s=lambda: 0.0, model=usual),
        mock.patch.dict(Turns.__init__.__kwdefaults__, cpu_s=lambda: 0.0),
        mock.patch.object(secrets, "token_hex", lambda n: world.random.randbytes(n).hex()),
        mock.patch.object(secrets, "randbits", world.random.getrandbits),
        mock.patch.object(os, "getpid", return_value=1),
        mock.patch.object(time, "sleep", world.sleep),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def limits(plan: Plan) -> Iterator[None]:
    """Set the limits of a plan, so that they are reached within seconds."""
    values: list[tuple[ModuleType, str, Any]] = [
        (run_clients, "LEASE_S", plan.lease_s), (reconnect, "RESTART_S", 1.0), (reconnect, "MAX_REST_S", 0.5),
        (reconnect, "GREET_S", 1.0),
    ]  # fmt: skip
    if plan.tight:
        values += [
            (io_loop, "MAX_OUTBOX_MESSAGES", 12), (io_loop, "MAX_OUTBOX_BYTES", 5_000),
            (io_loop, "MAX_OUTBOXES_BYTES", 8_000),
            (tail, "MAX_UNSENT_ROWS", 50), (tail, "MAX_DEFERRED", 8),
        ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for module, name, value in values:
            stack.enter_context(mock.patch.object(module, name, value))
        yield
