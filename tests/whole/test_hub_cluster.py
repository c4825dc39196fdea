"""A hub of three servers, runs on three machines: a server and runs are killed, and a machine is cut off."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, PORTS, PROGRAM, TRAINING, all_counted, needs_server, wait_until

import sightglass as sg
from sightglass.cli import main
from sightglass.protocol.hub_address import hub_address
from sightglass.protocol.hub_presence import HubDirectory

pytestmark = [needs_server, pytest.mark.slow]
pytest.importorskip("nats")

SERVERS = """
include ./hub.conf
server_name: hub-{n}
listen: {address}:{port}
log_file: {folder}/{n}.log
jetstream: disabled
cluster {{
  name: hub
  listen: {address}:{route}
  authorization {{ user: route, password: secret }}
  routes: {routes}
}}
"""
N_MACHINES = 3
N_RUNS = int(os.environ.get("SIGHTGLASS_CLUSTER_RUNS", "12"))  # more, to measure


class Machines:
    """Network namespaces, each joined to ours by a cable of its own."""

    def __init__(self) -> None:
        n = os.getpid() % 250
        self._names = [f"sgc{os.getpid() % 10_000}{letter}" for letter in "abc"]
        self.addresses = [f"10.214.{n}.{4 * i + 1}" for i in range(N_MACHINES)]
        for name, here in zip(self._names, self.addresses, strict=True):
            there = here[: here.rindex(".") + 1] + str(int(here.rpartition(".")[2]) + 1)
            ip(f"netns add {name}")
            ip(f"link add {name}h type veth peer name {name}p netns {name}")
            ip(f"address add {here}/30 dev {name}h")
            ip(f"link set {name}h up")
            ip(f"-n {name} address add {there}/30 dev {name}p")
            ip(f"-n {name} link set {name}p up")
            ip(f"-n {name} route add default via {here}")

    def on(self, machine: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._names[machine])

    def cut(self, machine: int) -> None:
        """Pull the cable of a machine: packets vanish in silence."""
        ip(f"-n {self._names[machine]} link set {self._names[machine]}p down")

    def heal(self, machine: int) -> None:
        ip(f"-n {self._names[machine]} link set {self._names[machine]}p up")
        ip(f"-n {self._names[machine]} route add default via {self.addresses[machine]}")

    def close(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")


@pytest.fixture
def machines() -> Iterator[Machines]:
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command `ip`")
    with contextlib.ExitStack() as stack:
        try:
            machines = Machines()
            stack.callback(machines.close)
        except OSError as error:
            pytest.skip(str(error))
        yield machines


class Cluster:
    """Three servers with the configuration of one hub, as docs/hub.md says."""

    def __init__(self, path: Path, address: str) -> None:
        assert PROGRAM is not None
        first = random.randint(*PORTS)
        ports, routes = range(first, first + 3), range(first + 3, first + 6)
        folder = path / "hub"
        arguments = ["hub", "--dir", str(folder), "--listen", f"{address}:{first}", "--config-only"]
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


@pytest.fixture
def cluster(machines: Machines, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, machines.addresses[0])
    yield cluster
    cluster.close()


def test_a_cluster_whose_servers_runs_and_machines_fail(
    cluster: Cluster, machines: Machines, start: Any, tmp_path: Path
) -> None:
    controller = cluster.files["controller"]
    names = [f"job-{n:02}" for n in range(N_RUNS)]
    machine = {name: n % N_MACHINES for n, name in enumerate(names)}
    children = {
        name: start(
            TRAINING, name, prefix=machines.on(machine[name]), SIGHTGLASS_HUB=str(cluster.files["run"]), PING_S="1",
            PACE_S="0.02", EVERY="5", SIGHTGLASS_RUNTIME_DIR=str(tmp_path / f"m{machine[name]}"),
        )
        for name in names
    }  # fmt: skip
    for child in children.values():
        child.hears("ready")
    with (
        contextlib.closing(HubDirectory(hub_address(controller))) as directory,
        sg.fleet("job-*", hub=controller) as fleet,
        contextlib.ExitStack() as stack,
    ):
        fleet.wait(len(names), timeout_s=PATIENCE_S)
        runs = [stack.enter_context(sg.connect(name, hub=controller, wait_s=PATIENCE_S)) for name in names]
        streams = {name: run.stream("batch.n") for name, run in zip(names, runs, strict=True)}

        def table_is(names: list[str]) -> None:
            """Wait until exactly these runs are told to live."""
            wait_until(lambda: {run.entry.name for run in directory.runs()} == set(names), directory.runs())

        def is_running(name: str) -> bool:
            try:
                return not fleet[name].lost and fleet[name].describe().state == "running"
            except sg.RunLostError:  # just now
                return False

        def all_go_on(names: list[str]) -> None:
            for name in names:
                children[name].goes_on()
                n = int(children[name].hears("step")[0])
                wait_until(lambda name=name, n=n: streams[name].latest.step > n, name)
                wait_until(lambda name=name: is_running(name), name)

        for stream in streams.values():
            stream.wait(5, timeout_s=PATIENCE_S)
        cluster.kill(0)
        table_is(names)
        all_go_on(names)
        cluster.start(0)
        table_is(names)

        for name in names[:2]:
            children[name].send(signal.SIGKILL)
        names = names[2:]
        table_is(names)

        machines.cut(2)
        here = [name for name in names if machine[name] != 2]
        table_is(here)
        all_go_on(here)
        machines.heal(2)
        table_is(names)
        all_go_on(names)

        report = fleet.stop(timeout_s=PATIENCE_S)
        assert set(report.applied) == set(names), report
        for name in names:
            all_counted(streams[name], children[name])
