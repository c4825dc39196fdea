"""Real processes: started as scripts, spoken to through their output, and killed when the test is over."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

PREAMBLE = """
import os, signal, sys, threading, time, warnings
warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)  # of Python 3.12, in programs that fork with threads
import numpy as np
import sightglass as sg

def say(*words):
    print(*words, flush=True)

def until(condition, timeout_s=60.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        time.sleep(0.005)

def train(run, offered=lambda step: {}):
    step = 0
    while not run.stopping:
        run.observe("batch", step=step, n=step, **offered(step))
        step += 1
        if step % 50 == 0:
            say("step", step)
        time.sleep(0.002)
    run.close()
    say("made", step)
"""

TRAINING = """
run = sg.init(sys.argv[1], budget=None)
lr = run.control("lr", 0.1, min=0.0, max=1.0)
x = np.arange(200_000.0)
say("ready", run.id)
step = 0
while not run.stopping:
    run.observe("batch", step=step, loss=1 / (step + 1), x=x, lr=lr.value)
    step += 1
    if step % 200 == 0:
        say("step", step)
    time.sleep(0.001)
run.close()
say("done", step)
"""


class Child:
    """A process of a test, and the lines it says."""

    def __init__(self, command: list[str], environment: dict[str, str], cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self.may_complain = False
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._complaints: list[str] = []
        # A process that outlives the child may hold its output open, which must not hold up the end of the tests.
        listening = (self._listen, self._hear_complaints)
        self._readers = [threading.Thread(target=target, daemon=True) for target in listening]
        for reader in self._readers:
            reader.start()

    def hears(self, first: str, timeout_s: float = 60.0) -> list[str]:
        """Wait for a line that begins with a word, and return the other words of it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                line = f"no such line within {timeout_s} s"
                raise AssertionError(f"Expected {first!r}, {line}. Complaints: {self.complaints}") from None
            assert line is not None, f"Expected {first!r}, the process ended first. Complaints: {self.complaints}"
            words = line.split()
            if words[:1] == [first]:
                return words[1:]

    def line(self, timeout_s: float = 60.0) -> list[str]:
        """Wait for the next line, and return its words."""
        line = self._lines.get(timeout=timeout_s)
        assert line is not None, f"Expected a line, the process ended. Complaints: {self.complaints}"
        return line.split()

    def goes_on(self) -> None:
        """Check that the training takes further steps from now on."""
        while not self._lines.empty():
            self._lines.get()
        self.hears("step")
        self.hears("step")

    def send(self, number: int) -> None:
        """Send a signal; after one that stops the process, wait until all its threads stand still."""
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:  # on a busy machine it may take 200 ms, in which the process still answers
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def ends(self, timeout_s: float = 60.0) -> int:
        """Wait for the end; return the exit status."""
        return self.process.wait(timeout_s)

    @property
    def complaints(self) -> str:
        """What came on the standard error output so far; reading it allows it."""
        self.may_complain = True
        if self.process.poll() is not None:
            self._readers[1].join(60)
        return "".join(self._complaints)

    def finish(self) -> None:
        """Kill the process and all that it started."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                break
        self.process.wait(60)
        for reader in self._readers:
            reader.join(60)
        complaints = "".join(self._complaints)
        assert self.may_complain or not complaints, complaints

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _hear_complaints(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self._complaints.extend(lines)


def command(script: str, *arguments: str) -> list[str]:
    """Return what runs a script of a test."""
    return [sys.executable, "-c", PREAMBLE + script, *arguments]


Start = Callable[..., Child]


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """Return a folder that every user can read, at a path short enough for sockets.

    That of `runtime` is private: no run uses one that others can enter.
    """
    path = Path(tempfile.mkdtemp(prefix="sg", dir="/tmp" if os.name == "posix" else None))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a script in a process of its own, with arguments and an environment."""
    children: list[Child] = []

    def start(script: str, *arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> Child:
        children.append(Child([*prefix, *command(script, *arguments)], environment))
        return children[-1]

    yield start
    failures = []
    for child in children:
        try:
            child.finish()
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)


@pytest.fixture
def train(start: Start) -> Callable[..., Child]:
    """Return a function that starts a training under a name and waits until it has begun."""

    def train(name: str = "job", **environment: str) -> Child:
        child = start(TRAINING, name, **environment)
        child.hears("ready")
        return child

    return train


@pytest.fixture
def until() -> Callable[..., Any]:
    """Return `wait_until`."""
    return wait_until


@pytest.fixture
def other_host() -> Iterator[str]:
    """Make a second network namespace, joined to ours by a pair of virtual cables; gives its name.

    Its address is 10.213.n.2 with n = `os.getpid() % 250`, and its end of the cables the name with a b at the end.
    """
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command `ip`")
    name, n = f"sg{os.getpid() % 10_000}", os.getpid() % 250
    commands = [
        f"ip netns add {name}",
        f"ip link add {name}a type veth peer name {name}b netns {name}",
        f"ip address add 10.213.{n}.1/24 dev {name}a",
        f"ip link set {name}a up",
        f"ip -n {name} address add 10.213.{n}.2/24 dev {name}b",
        f"ip -n {name} link set {name}b up",
        f"ip -n {name} link set lo up",
    ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{command}: {done.stderr.strip()}")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
