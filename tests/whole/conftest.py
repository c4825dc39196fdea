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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.machines import ALLOWED, NOT_ALLOWED, Machine
from tests.waiting import PATIENCE_S, wait_until

ROOT = str(Path(__file__).parents[2])

PREAMBLE = """
import os, signal, sys, threading, time, warnings
warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)  # of Python 3.12, in programs that fork with threads
warnings.filterwarnings("ignore", "Waiting for .* figures")  # of a busy machine
import numpy as np
import sightglass as sg
from tests.waiting import wait_until as until

def say(*words):
    print(*words, flush=True)

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
            env={**os.environ, "PYTHONPATH": _python_path(), **environment},  # scripts import `tests`
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

    def hears(self, first: str, timeout_s: float = PATIENCE_S) -> list[str]:
        """Wait for a line that begins with a word, and return the other words of it."""
        return self._said(lambda words: words[:1] == [first], f"a line that begins with {first!r}", timeout_s)[1:]

    def line(self) -> list[str]:
        """Wait for the next line that is not empty, and return its words."""
        return self._said(bool, "a line", PATIENCE_S)

    def goes_on(self) -> None:
        """Check that the training takes further steps from now on."""
        while not self._lines.empty():
            assert self._lines.get() is not None, f"The process ended. Complaints: {self.complaints}"
        self.hears("step")
        self.hears("step")

    def send(self, number: int) -> None:
        """Send a signal; after one that stops the process, wait until all its threads stand still."""
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:  # on a busy machine it may take 200 ms, in which the process still answers
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def ends(self) -> int:
        """Wait for the end; return the exit status."""
        wait_until(lambda: self.process.poll() is not None, "the process ends")
        return self.process.returncode

    def rest(self) -> list[str]:
        """Wait for the end; return the lines that nobody heard."""
        self.ends()
        self._readers[0].join(60)
        return [line for line in iter(self._lines.get, None) if line.endswith("\n")]

    def _said(self, is_it: Callable[[list[str]], bool], what: str, timeout_s: float) -> list[str]:
        def heard() -> list[str] | None:
            while not self._lines.empty():
                line = self._lines.get()
                assert line is not None, f"Expected {what}, the process ended first. Complaints: {self.complaints}"
                if is_it(words := line.split()):
                    return words
            return None

        return wait_until(heard, lambda: f"{what}. Complaints: {self.complaints}", timeout_s=timeout_s)

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
        self.ends()
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


def _python_path() -> str:
    return os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))


def command(script: str, *arguments: str, first: str = "") -> list[str]:
    """Return what runs a script of a test; `first`: what comes before it imports anything."""
    return [sys.executable, "-c", first + PREAMBLE + script, *arguments]


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

    def start(script: str, *arguments: str, prefix: tuple[str, ...] = (), first: str = "", **environment: str) -> Child:
        children.append(Child([*prefix, *command(script, *arguments, first=first)], environment))
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
def disk(runtime: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a file system in memory with some options, and gives where it is."""
    made: list[Path] = []

    def make(options: str) -> Path:
        path = runtime / f"disk{len(made)}"
        path.mkdir()
        if os.name != "posix" or os.getuid() != 0 or shutil.which("mount") is None:
            pytest.skip("file systems are mounted by root")
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "permission denied" in done.stderr:
            pytest.skip("file systems cannot be mounted here")
        assert done.returncode == 0, done.stderr
        made.append(path)
        return path

    yield make
    for path in made:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def other_host() -> Iterator[Machine]:
    """Return a second machine, joined to this one by a cable."""
    if not ALLOWED:
        pytest.skip(NOT_ALLOWED)
    machine = Machine()
    yield machine
    machine.close()
