"""What it costs to tell about a run's program and machine: the CPU time of the `io` thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import sightglass as sg
from sightglass.core.process.clock import SystemClock
from sightglass.training.facts import EVERY_S, MachineMetrics, ProgramFacts
from sightglass.training.recorder import Recorder

ROUNDS = 50


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    began_s = time.perf_counter()
    facts = ProgramFacts(sg.Facts(), changed=lambda: None)
    yield "facts: on the thread that calls init", (time.perf_counter() - began_s) * 1e6, "us", None
    yield "  on the io thread, once", _cpu_s(lambda: facts.tick(0.0)) * 1e3, "ms", 10
    facts.close()
    with TemporaryDirectory() as folder:
        recorder = Recorder(lambda: Path(folder), rank=0, clock=SystemClock())
        metrics = MachineMetrics(
            lambda numbers: recorder.sampled("system", 0, time.time(), numbers), wanted=lambda: True
        )
        metrics.tick(0.0)
        took_s = _cpu_s(lambda: [metrics.tick((i + 1) * EVERY_S) for i in range(ROUNDS)]) / ROUNDS
        recorder.close(10.0)
    yield "machine: sampling and recording it, of a core", took_s / EVERY_S * 100, "%", 0.1


def _cpu_s(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s
