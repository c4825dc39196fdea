"""A hub of three servers and runs on three machines, of which a server, runs and a machine fail, each in its turn.

`tests/whole` tries it with a dozen runs, and `python -m bench hub_cluster` measures it with 64.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import sightglass as sg
from sightglass.cli import main
from sightglass.hub.address import hub_address
from sightglass.hub.presence import HubDirectory

from .hub_server import PATIENCE_S, PORTS, PROGRAM, wait_until
from .machines import Machine

SERVERS = """
include ./hub.conf
server_name: hub-{n}
listen: {address}:{port}
log_file: {folder}/{n}.log
cluster {{
  name: hub
  listen: {address}:{route}
  authorization {{ user: route, password: secret }}
  routes: {routes}
}}
"""
N_MACHINES = 3
LONG_S = 10 * PATIENCE_S  # 64 runs on two cores
STEPS_PER_S = 600  # of all runs together: two cores also hold the servers and the client, which takes 1,200 records
TRAINING = """
warnings.filterwarnings("ignore", "The hub", RuntimeWarning)
run = sg.init(sys.argv[1], budget=None, dir=sys.argv[2], record=["batch.n"], limits=sg.Limits(max_event_s=10.0))
say("ready", run.id)
step = 0
while not run.stopping:
    run.observe("batch", step=step, n=step, twice=2 * step)
    step += 1
    if step % 5 == 0:
        say("step", step)
    time.sleep(float(sys.argv[3]))
run.close()
say("made", step)
"""
RECORDED, OTHER = "batch.n", "batch.twice"


class Machines:
    """Machines that are joined to ours, each by a cable of its own; `addresses` are ours at the ends of the cables."""

    def __init__(self) -> None:
        self._machines: list[Machine] = []
        try:
            for _ in range(N_MACHINES):
                self._machines.append(Machine())
        except BaseException:
            self.close()
            raise
        self.addresses = [machine.gateway for machine in self._machines]

    def on(self, machine: int) -> tuple[str, ...]:
        return self._machines[machine].prefix

    def cut(self, machine: int) -> None:
        """Pull the cable of a machine: packets vanish in silence."""
        self._machines[machine].pull()

    def heal(self, machine: int) -> None:
        self._machines[machine].plug()

    def close(self) -> None:
        for machine in self._machines:
            machine.close()


def free_ports(address: str, n: int) -> list[int]:
    """Return ports that nothing listens on, and that the system gives to nobody else while a server is down."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in random.sample(range(*PORTS), 100 * n):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server((address, port)))
                found.append(port)
            if len(found) == n:
                return found
    raise OSError(f"Expected {n} free ports at {address}, got {found}")


class Cluster:
    """Three servers with the configuration of one hub, as docs/hub.md says."""

    def __init__(self, path: Path, address: str) -> None:
        assert PROGRAM is not None
        free = free_ports(address, 6)
        ports, routes = free[:3], free[3:]
        folder = path / "hub"
        arguments = ["hub", "--dir", str(folder), "--listen", f"{address}:{ports[0]}", "--config-only"]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        for n in range(3):
            others = [f"nats://route:secret@{address}:{route}" for route in routes if route != routes[n]]
            text = SERVERS.format(
                n=n, address=address, port=ports[n], route=routes[n], routes=json.dumps(others), folder=folder
            )
            (folder / f"server-{n}.conf").write_text(text)
        self._commands = [[PROGRAM, "-c", str(folder / f"server-{n}.conf")] for n in range(3)]
        self._logs = [folder / f"{n}.log" for n in range(3)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.files = {role: folder / f"{role}.hub" for role in ("run", "controller")}
        for file in self.files.values():
            content = json.loads(file.read_text())
            content["url"] = ",".join(f"tls://{address}:{port}" for port in ports)
            file.write_text(json.dumps(content))
        for n in range(3):
            self.start(n)

    def start(self, n: int) -> None:
        size = self._logs[n].stat().st_size if self._logs[n].exists() else 0
        self._processes[n] = subprocess.Popen(self._commands[n])
        wait_until(
            lambda: self._logs[n].exists() and "Server is ready" in self._logs[n].read_text()[size:], "it listens"
        )

    def kill(self, n: int) -> None:
        process = self._processes.pop(n)
        process.kill()
        process.wait(PATIENCE_S)

    def close(self) -> None:
        for n in list(self._processes):
            self.kill(n)


@dataclass(slots=True)
class Report:
    """What became of the streams, and how long the table of runs was wrong after each fault."""

    right_after_s: dict[str, float] = field(default_factory=dict)
    n_records: int = 0
    n_lost: int = 0
    wrong: list[str] = field(default_factory=list)


class Trial:
    """Runs on a cluster, watched from outside while parts of it fail."""

    def __init__(
        self, cluster: Cluster, machines: Machines, start: Callable[..., Any], folder: Path, n_runs: int
    ) -> None:
        self.report = Report()
        self._cluster, self._machines = cluster, machines
        self._controller = cluster.files["controller"]
        self.names = [f"job-{n:02}" for n in range(n_runs)]
        self.machine = {name: n % N_MACHINES for n, name in enumerate(self.names)}
        self.children = {
            name: start(
                TRAINING, name, str(folder / "runs"), str(n_runs / STEPS_PER_S), prefix=machines.on(self.machine[name]),
                SIGHTGLASS_HUB=str(cluster.files["run"]), SIGHTGLASS_RUNTIME_DIR=str(folder / f"m{self.machine[name]}"),
            )
            for name in self.names
        }  # fmt: skip
        for child in self.children.values():
            child.hears("ready", LONG_S)

    def go(self, *, cut_s: float = 0.0) -> Report:
        """Let one part after another fail, then stop the runs, and look at what came.

        Args:
            cut_s: For how long a machine stays cut off after it was missed; a measurement wants it to be long.
        """
        with (
            contextlib.closing(HubDirectory(hub_address(self._controller))) as self._directory,
            sg.fleet("job-*", hub=self._controller) as fleet,
            contextlib.ExitStack() as stack,
        ):
            fleet.wait(len(self.names), timeout_s=LONG_S)
            runs = {
                name: stack.enter_context(sg.connect(name, hub=self._controller, timeout_s=LONG_S))
                for name in self.names
            }
            self.streams = {
                (name, query): run.stream(query) for name, run in runs.items() for query in (RECORDED, OTHER)
            }
            for stream in self.streams.values():
                stream.wait(5, timeout_s=LONG_S)
            killed, lives = self.names[:2], self.names[2:]
            self._cluster.kill(0)
            self._table_is(self.names, "a server is killed")
            self._all_go_on(self.names)
            self._cluster.start(0)
            self._table_is(self.names, "the server is started again")
            for name in killed:
                self.children[name].send(signal.SIGKILL)
            self._table_is(lives, "two runs are killed")
            self._cut(lives, cut_s)
            self._all_go_on(lives)
            applied = fleet.stop(timeout_s=LONG_S).applied
            self._check(set(applied) == set(lives), f"stopped {sorted(applied)}")
            made = {name: int(self.children[name].hears("made", LONG_S)[0]) for name in lives}
            for name in lives:
                self._came(name, made[name])
        return self.report

    def _cut(self, lives: list[str], cut_s: float) -> None:
        self._machines.cut(2)
        here = [name for name in lives if self.machine[name] != 2]
        self._table_is(here, "a machine is cut off")
        before = {name: self.streams[name, OTHER].latest.index for name in here}
        time.sleep(cut_s)
        for name, index in before.items():
            stream = self.streams[name, OTHER]
            what = f"{name} goes on while another machine is cut off"
            wait_until(lambda stream=stream, index=index: stream.latest.index > index, what, timeout_s=LONG_S)
        self._machines.heal(2)
        self._table_is(lives, "it is healed")

    def _table_is(self, names: list[str], fault: str) -> None:
        """Wait until exactly these runs are told to live, and note how long that took."""
        began_s, expected = time.monotonic(), set(names)
        wait_until(lambda: {run.entry.name for run in self._directory.runs()} == expected, fault, timeout_s=LONG_S)
        self.report.right_after_s[fault] = time.monotonic() - began_s

    def _all_go_on(self, names: list[str]) -> None:
        """Wait until each run has made another record, and each stream has it or a later one."""
        for name in names:
            self.children[name].goes_on()
            n = int(self.children[name].hears("step")[0])
            for query in (RECORDED, OTHER):
                stream = self.streams[name, query]
                wait_until(lambda stream=stream, n=n: stream.latest.step > n, (name, query), timeout_s=LONG_S)

    def _came(self, name: str, made: int) -> None:
        """Check that each recorded record came once, and that each other one came once or is counted as lost."""
        for query, factor in ((RECORDED, 1), (OTHER, 2)):
            stream = self.streams[name, query]
            with contextlib.suppress(sg.RunLostError):
                values = [int(record.value) // factor for record in stream]
            n_lost, n_due = stream.n_lost, made - values[0]
            self.report.n_records += len(values)
            self.report.n_lost += n_lost
            once = values == sorted(set(values)) and len(values) + n_lost == n_due
            self._check(once, f"{name} {query}: {len(values)} came and {n_lost} lost of {n_due}")
            if query == RECORDED:
                self._check(not n_lost, f"{name} {query}: {n_lost} lost, which the run recorded")

    def _check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.report.wrong.append(what)
