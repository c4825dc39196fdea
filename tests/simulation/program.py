"""The simulated training: a plain program with a real run, whose values follow from the seed (`questions`).

It overwrites its arrays, has values on a slow device that sometimes loses one, logs, ends groups, and obeys `stop`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from sightglass.core.errors import StorageError
from sightglass.training.options import Limits
from sightglass.training.run import Run
from sightglass.training.wiring import Machine, RunSettings, Wiring

from .questions import EPOCH, GROUP, fails, loss, vector
from .world import Condition, Process

DIRECTORY = Path("/runs/job")
LOG_EVERY = 3  # batches
FAULTY = 13  # the action fails for multiples of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the training goes.

    Attributes:
        n_batches: How many batches there are.
        batch_s: The mean time of a batch.
        burst: How many batches come at once.
        device_s: For how long the device computes, at most.
        flush: The probability of a `flush` after a batch.
        budget: See `sightglass.init`.
    """

    n_batches: int
    batch_s: float
    burst: int = 1
    device_s: float = 0.0
    flush: float = 0.0
    budget: float | None = None


class Program:
    """The training.

    Attributes:
        seed: What its values follow from.
        run: The run, once it has begun.
        wiring: Its parts.
        n: How many events there were, by name.
        ends: After how many batches the groups of "end_group" and "epoch" ended.
        logged_s: When `log` was called.
        marks: How often the action was applied, by its argument.
        flushed: How many calls of `log` a `flush` has confirmed.
        storage_error: What the last `flush` or `close` raised about files.
        closing: Whether `close` was called.
        closed: Whether `close` has returned.
        close_s: How long that took.
    """

    def __init__(
        self, process: Process, machine: Machine, *, seed: int, pace: Pace, record: list[str], limits: Limits
    ) -> None:
        """Prepare to run `main`."""
        self.seed = seed
        self.run: Run | None = None
        self.wiring: Wiring | None = None
        self.n: Counter[str] = Counter()
        self.ends: dict[str, list[int]] = {"end_group": [], "epoch": []}
        self.logged_s: list[float] = []
        self.marks: Counter[int] = Counter()
        self.flushed = 0
        self.storage_error = ""
        self.closing = self.closed = False
        self.close_s = 0.0
        self._process = process
        self._machine = machine
        self._pace = pace
        self._record = record
        self._limits = limits
        self._vector = np.zeros(4, np.float32)

    def main(self) -> None:
        """Train from the beginning to the end."""
        settings = RunSettings(
            name="job", directory=DIRECTORY, config={}, budget=self._pace.budget, limits=self._limits,
            record=self._record,
        )  # fmt: skip
        self.wiring = Wiring(settings, self._machine)
        commands = self.wiring.telemetry.commands
        commands.changed = Condition(self._process, commands.lock.mutex)  # `pause` waits in simulated time
        self.run = run = Run(self.wiring)
        run.control("rate", 1.0, min=0.0)
        run.action("mark", self._mark)
        run.observe("init", snapshot=True, weight=loss(self.seed, 0))
        self.n["init"] += 1
        for i in range(self._pace.n_batches):
            self._batch(run, i)
            if run.stopping:
                break
        self.closing = True
        self._say("closes")
        began_s = self._process.world.now_s
        self._careful(run.close)
        self.close_s = self._process.world.now_s - began_s
        self.closed = True
        self._say("is closed")

    def _batch(self, run: Run, i: int) -> None:
        random, pace = self._process.world.random, self._pace
        self._vector[:] = vector(self.seed, i)
        run.observe(
            "batch", step=i, loss=loss(self.seed, i), n=i, text=f"batch {i}", vector=self._vector,
            device=self._on_device(i),
        )  # fmt: skip
        self.n["batch"] += 1
        self._vector[:] = np.nan
        if i % LOG_EVERY == 0:
            n_logged = self.n["log"]
            run.log({"val/x": loss(self.seed, n_logged), "vector": vector(self.seed, n_logged)}, step=n_logged)
            self.n["log"] += 1
            self.logged_s.append(self._process.world.now_s)
        if (i + 1) % GROUP == 0:
            self.ends["end_group"].append(i + 1)
            run.end_group("batch")
        if (i + 1) % EPOCH == 0:
            self.ends["epoch"].append(i + 1)
            run.observe("epoch", accuracy=loss(self.seed, self.n["epoch"]))
            self.n["epoch"] += 1
        if random.random() < pace.flush:
            n_logged = self.n["log"]
            if self._careful(run.flush):
                self.flushed = n_logged
        if i % pace.burst == 0:
            self._process.sleep(random.expovariate(1 / (pace.batch_s * pace.burst)))

    def _on_device(self, i: int) -> Any:
        ready_s = self._process.world.now_s + self._process.world.random.random() * self._pace.device_s
        return OnDevice(self._process, loss(self.seed, i), ready_s, fails=fails(i))

    def _mark(self, number: int) -> int:
        """Count a call; raises for some numbers."""
        self.marks[number] += 1
        if number % FAULTY == 0:
            raise ValueError(f"{number} is a multiple of {FAULTY}")
        return number

    def _careful(self, call: Any) -> bool:
        try:
            call()
        except StorageError as error:
            self.storage_error = str(error)
            self._say(f"got {error}")
            return False
        return True

    def _say(self, text: str) -> None:
        self._process.world.note(f"run {text} after {self.n['batch']} batches")


class OnDevice:
    """A number on a device: reading it waits until it is computed."""

    dtype = np.dtype(np.float64)
    shape = ()
    ndim = 0
    size = 1

    def __init__(self, process: Process, value: float, ready_s: float, *, fails: bool) -> None:
        """Begin to compute."""
        self._process = process
        self._value = value
        self._ready_s = ready_s
        self._fails = fails

    def __array_namespace__(self, *, api_version: str | None = None) -> SimpleNamespace:
        """Look like an array of a library that is not known."""
        return SimpleNamespace()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Wait, and return the value on the host."""
        if self._ready_s > self._process.world.now_s:
            self._process.sleep(self._ready_s - self._process.world.now_s)
        if self._fails:
            raise RuntimeError("the buffer was donated")
        return np.asarray(self._value)

    def copy(self) -> OnDevice:
        """Return a copy that is computed at the same time."""
        return OnDevice(self._process, self._value, self._ready_s, fails=self._fails)
