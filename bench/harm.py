"""What one event of a nasty query costs a run, worst first, and whether cheap queries are answered all the same.

The rule: queries take at most 20 ms of the training thread for an event, plus a block of 1 ms, and 64 MiB plus one copy
of the largest observable. Each query is asked alone, of a run in another process, beside a cheap one of another client.

Then cheap questions of many kinds are asked, which have to be answered: see `cheap_questions`.

Each kind of arrays takes some minutes; `HARM=JAX` measures those with this word in their names alone, and
`HARM_QUERIES=sliding` the queries with this one in theirs.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import sightglass as sg

from . import cheap_questions, nasty_columns
from .harmed_run import N_EVENTS, Event, observables
from .nasty_queries import CHEAP, NASTY, Case, query

MAX_EVENT_S: Final = 0.020 + 0.001
MAX_BYTES: Final = 64 * 2**20
MAX_PROCESS_S: Final = 1.5
"""Of all threads, for the few events of a query: the credit of the budget, which is a second, and half as much again
for the loop that talks to clients."""
DEADLINE_S: Final = 60.0  # an event that takes this long is stopped, together with its process
START_S: Final = 120.0  # to import a library and make the observables
SETTLE_S: Final = 10.0  # for what was evaluated to arrive
LATE_S: Final = 0.2  # the run says what it has sent, so this is for windows that are still open
MAX_ASKED_S: Final = 240.0  # a bench that takes longer is not run
N_WORST: Final = 12
BYSTANDER: Final = "b.one + b.step"
MB: Final = 10**6
KINDS: Final = {
    "NumPy 32 MB": ("numpy", 32 * MB),
    "NumPy 160 MB": ("numpy", 160 * MB),
    "PyTorch 32 MB": ("torch", 32 * MB),
    "JAX 32 MB": ("jax", 32 * MB),
    "Columns of tables": ("columns", 200 * MB),  # the bytes of the largest
}

Claim = tuple[str, float, str, float | None]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a query cost a run, and what came of it."""

    name: str
    event_s: float
    process_s: float
    n_bytes: int
    collected_s: float
    outcome: str
    records: list[Any]
    bystander_missed: int

    def excess(self, max_bytes: int) -> float:
        """Return how often the cost exceeds the rule."""
        return max(self.event_s / MAX_EVENT_S, self.n_bytes / max_bytes)


def measure() -> Iterator[Claim]:
    """Yield the rows of each kind of array."""
    only = os.environ.get("HARM", "")
    if only in "Cheap questions":
        yield from cheap_questions.measure()
    for title, (kind, n_bytes) in KINDS.items():
        if only not in title:
            continue
        with tempfile.TemporaryDirectory(prefix="sgh") as folder, Host(kind, n_bytes, folder) as host:
            began_s = time.monotonic()
            asked = os.environ.get("HARM_QUERIES", "")
            nasty = nasty_columns.NASTY if kind == "columns" else NASTY
            costs = [host.ask(name, case) for name, case in nasty.items() if asked in name]
            if kind == "jax":  # until they are compiled, events wait, and are counted if too many do
                costs += [host.ask(text, text) for text in CHEAP]
            cheap = {text: host.ask(text, text) for text in CHEAP if kind != "columns"}
            asked_s = time.monotonic() - began_s
        yield from _rows(title, costs, MAX_BYTES + n_bytes)
        if kind == "columns":
            continue
        event = observables("numpy", n_bytes, shared=kind != "jax")
        wrong = [
            text for text, cost in cheap.items() if not _exact(text, cost, event, 1e-9 if kind == "numpy" else 1e-5)
        ]
        yield f"  cheap queries not answered exactly, of {len(CHEAP)}", len(wrong), "", 0
        for text in wrong:
            yield f"    {text[:36]} [{cheap[text].outcome[:12]}]", cheap[text].event_s * 1e3, "ms", None
        yield "  to ask them all", asked_s, "s", MAX_ASKED_S
        yield "  load meanwhile", os.getloadavg()[0], "", None


def _rows(title: str, costs: list[Cost], max_bytes: int) -> Iterator[Claim]:
    over = [cost for cost in costs if cost.excess(max_bytes) > 1]
    yield f"{title}: nasty queries beyond the rule, of {len(costs)}", len(over), "", 0
    for cost in sorted(costs, key=lambda cost: -cost.excess(max_bytes))[:N_WORST]:
        what = f"  {cost.name[:38]} [{cost.outcome}]"
        if cost.event_s / MAX_EVENT_S >= cost.n_bytes / max_bytes:
            yield what, cost.event_s * 1e3, "ms", MAX_EVENT_S * 1e3
        else:
            yield what, cost.n_bytes / 2**20, "MiB", round(max_bytes / 2**20)
    for outcome, n in Counter(cost.outcome for cost in costs).most_common():
        yield f"  {outcome}", n, "", None
    for cost in sorted(costs, key=lambda cost: -cost.process_s)[:3]:
        yield f"  all threads: {cost.name[:38]}", cost.process_s * 1e3, "ms", MAX_PROCESS_S * 1e3
    collected_s = max(cost.collected_s for cost in costs)
    yield "  besides: Python's collections of the whole heap", collected_s * 1e3, "ms", None
    yield "  records that a bystander did not get", sum(cost.bystander_missed for cost in costs), "", 0


def _exact(text: str, cost: Cost, event: Event, tolerance: float) -> bool:
    """Return whether every event was answered, with NumPy's value."""
    if len(cost.records) != N_EVENTS:
        return False
    for step, value in enumerate(cost.records):
        wanted = CHEAP[text]({**event(step), "step": step})
        try:
            np.testing.assert_allclose(_plain(value), _plain(wanted), rtol=tolerance)
        except AssertionError:
            return False
    return True


def _plain(value: Any) -> Any:
    return list(value.values()) if isinstance(value, dict) else value


class Host:
    """A process with a run, which is started again when a query has to be stopped."""

    def __init__(self, kind: str, n_bytes: int, folder: str) -> None:
        self._arguments = [sys.executable, "-m", "bench.harmed_run", kind, str(n_bytes), folder]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()

    def ask(self, name: str, case: Case) -> Cost:
        """Ask a run that has just begun, and return what its first events cost."""
        if self._process is None:
            environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type="}
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            self._hear(START_S)
        run = self._tell(START_S)["run"]
        with sg.connect(run, timeout_s=START_S) as asker, sg.connect(run, timeout_s=START_S) as bystander:
            beside = bystander.stream(query(BYSTANDER))
            streams, refused = [], False
            for text in case if isinstance(case, list) else [case]:
                try:
                    streams.append(asker.stream(query(text)))
                except sg.SightglassError:
                    refused = True
            began_s, held = self._spent("VmRSS")
            try:
                said = self._tell(DEADLINE_S)
            except (TimeoutError, EOFError) as error:
                spent_s, n_bytes = self._spent("VmHWM")
                spent_s, n_bytes = max(spent_s - began_s, DEADLINE_S), n_bytes - held  # or it waited for a lock
                self._stop()
                outcome = "stopped" if isinstance(error, TimeoutError) else "killed the run"
                return Cost(
                    name=name, event_s=spent_s, process_s=spent_s, n_bytes=n_bytes, collected_s=0.0, outcome=outcome,
                    records=[], bystander_missed=N_EVENTS,
                )  # fmt: skip
            with contextlib.suppress(sg.SightglassError, TimeoutError):
                beside.wait(len(said["events_s"]), timeout_s=SETTLE_S)
            outcome = "refused" if refused else _outcome(streams, said)
            self._tell(START_S)
            return Cost(
                name=name,
                event_s=max(*said["events_s"], said["opening_s"]),
                process_s=said["process_s"],
                n_bytes=said["n_bytes"],
                collected_s=said["collected_s"],
                outcome=outcome,
                records=[record.value for record in streams[0].records()] if streams else [],
                bystander_missed=len(said["events_s"]) - len(beside.records()),
            )

    def _tell(self, timeout_s: float) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return self._hear(timeout_s)

    def _hear(self, timeout_s: float) -> Any:
        """Return what the process says next.

        Raises:
            TimeoutError: It said nothing in time.
            EOFError: It has ended.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise TimeoutError
        line = self._process.stdout.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def _spent(self, memory: str) -> tuple[float, int]:
        """Return the CPU seconds of the training thread so far, and the memory of the process."""
        assert self._process is not None
        of = Path("/proc", str(self._process.pid))
        try:
            spent_s = int((of / "task" / of.name / "schedstat").read_text().split()[0]) / 1e9
            lines = (of / "status").read_text().splitlines()
            return spent_s, next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{memory}:"))
        except (OSError, StopIteration):  # it has ended
            return 0.0, 0

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _outcome(streams: list[sg.Stream], said: dict[str, Any]) -> str:
    """Return what came of the queries: of several, of the worst one."""
    deadline_s, counts = time.monotonic() + SETTLE_S, []
    for stream in streams:
        count = stream.statistics()
        n_missing = len(said["events_s"]) - count.n_records - count.n_skipped - count.n_dropped - count.n_errors
        if n_missing > 0 and stream.error is None:
            with contextlib.suppress(sg.SightglassError, TimeoutError):
                left_s = max(0.0, deadline_s - time.monotonic())
                stream.wait(count.n_records + n_missing, timeout_s=min(LATE_S, left_s))
            count = stream.statistics()
        counts.append(count)
    if any(stream.error is not None for stream in streams) or any(c.n_errors for c in counts):
        return "refused"
    if any(c.n_skipped for c in counts):
        return "thinned"
    if said["drain_s"] > sum(said["events_s"]) / 2:
        return "elsewhere"
    return "answered" if any(c.n_records for c in counts) else "silent"
