"""A run of half an hour with everything that can happen to it, and whether anything grows: `python -m bench soak`.

300 events a second; 300 clients of ten kinds that join, leave, are killed and stopped; the page's server with tabs,
some of them in a real browser; figures; commands. A client and a tab are stopped for a third of the time, and go on
afterwards. `SOAK_S=180` makes it shorter, with fewer clients in proportion.

Every record that a client, the page or a file holds is checked against a formula of the number of its event. Memory,
threads, descriptors and shared memory of the run, the page's server, the figures' child and a client that stays are
sampled. A measure is flat if a line through the last 60 % of its samples rises by no more than the bound beside it,
which is 0.1 MB a minute, or 2 % of all in the time of these samples; what comes and goes with clients is not growth.
So only growth beyond the bounds of caches is measured: the run keeps 1,000 records of each stream for late clients,
which takes six minutes here, and the page up to 131,072 numbers of each, which takes seven. Short runs are not flat.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightglass.protocol import discovery

from . import page, recording
from .clients import KINDS, PATIENCE_S, Client, Task, deaf, greedy, resident, sleeper, spawn
from .samples import Samples

NAME = "soak"
SECONDS = 1_800.0
CLIENT_EVERY_S = 6.0  # 300 in half an hour
TAB_EVERY_S = 15.0
BROWSER_EVERY_S = 120.0
SAMPLE_S = 3.0
STOP_S = (3.0, 30.0)  # beyond 12 s a client loses its lease, and is told
TICK_S = 0.2
# MB: the page's server holds 200 bytes for each block of the file that is being written, and the writer flushes some 13
# a second here. When there are 65,536, which is 13 MB and takes 84 minutes, the file is compacted, and the index is
# small again.
INDEX_A_MINUTE = 0.16
DEAF_S = 20.0  # 0.1 MB a second are queued for a client that never reads; a longer one would look like growth
FATES = ("leave", "leave", "kill", "stop")
FAR_S = 1e9
KEPT = (".tokens", ".closed")  # the links of the page, and notes of runs that were closed

Row = tuple[str, Any, str, float | None]


def measure() -> Iterator[Row]:
    """Run the soak, and yield what it found."""
    duration_s = float(os.environ.get("SOAK_S", SECONDS))
    shared = set(glob.glob("/dev/shm/*"))
    with tempfile.TemporaryDirectory(prefix="sgs") as folder:
        soak = Soak(Path(folder), duration_s)
        soak.run()
        yield from soak.rows()
    left = [path for path in glob.glob("/dev/shm/*") if path not in shared and "sightglass" in path]
    yield "files left in /dev/shm", len(left), "", 0


@dataclass
class Plan:
    """What happens to a client: when it starts, when it is to leave, and what is done to it meanwhile.

    Attributes:
        sleeps: Whether it is the client, or the tab, that is stopped for long.
    """

    task: Task
    number: int
    start_s: float
    leave_s: float
    fate: str = "leave"
    fate_s: float = FAR_S
    stop_s: float = 0.0
    pid: int = 0
    stopped: bool = False
    status: int | None = None
    hung: bool = False
    sleeps: bool = False


class Soak:
    """One soak."""

    def __init__(self, folder: Path, duration_s: float) -> None:
        self.folder = folder
        self.duration_s = duration_s
        self.plans = list(plans(duration_s))
        self.samples = Samples()
        self.registry: list[str] = []
        self.directory = Path()
        self.done: dict[str, Any] = {}
        self.run_code = 0
        self._sampled_s = 0.0

    def run(self) -> None:
        """Start the run and the page, let clients come and go, and wait until all have ended."""
        for name in ("runs", "clients"):
            (self.folder / name).mkdir()
        try:
            with page.serving(self.folder / "runs", self.folder / "page.log") as served, self._training() as training:
                files = (self.directory / "connection.json", self.directory / "connection-viewer.json")
                began_s = time.monotonic()
                while training.poll() is None:
                    self._turn(began_s, training.pid, *served, files)
                    time.sleep(TICK_S)
                self.run_code = training.returncode
                self._see_off()
        finally:
            for plan in self.plans:
                if plan.pid and plan.status is None:
                    _kill(plan.pid, signal.SIGKILL)
        self.registry = [path.name for path in discovery.folder().iterdir() if path.suffix not in KEPT]
        self.done = json.loads((self.folder / "done.json").read_text()) if self.run_code == 0 else {}

    @contextlib.contextmanager
    def _training(self) -> Iterator[subprocess.Popen[str]]:
        command = [
            sys.executable,
            "-m",
            "bench.soak.training",
            NAME,
            str(self.duration_s),
            str(self.folder / "done.json"),
        ]
        root = str(Path(__file__).parents[2])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        with (self.folder / "training.log").open("w") as log, subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as training:  # fmt: skip
            assert training.stdout is not None
            self.directory = self.folder / training.stdout.readline().strip()
            try:
                yield training
            finally:
                training.kill()

    def _turn(self, began_s: float, training: int, server: int, link: str, files: tuple[Path, Path]) -> None:
        """Start, stop and kill the clients whose time has come, and take a sample if one is due."""
        now_s = time.monotonic() - began_s
        for plan in self.plans:
            if not plan.pid and now_s >= plan.start_s:
                client = Client(plan.number, NAME, self.folder / "clients", files, link, began_s + plan.leave_s)
                plan.pid = spawn(plan.task, client)
            elif plan.pid and plan.status is None:
                self._fate(plan, now_s)
        self._reap()
        if self._sampled_s <= now_s < self.duration_s - SAMPLE_S:  # later, the run is closing
            self._sampled_s = now_s + SAMPLE_S
            live = [plan for plan in self.plans if plan.pid and plan.status is None]
            n_tabs = sum(plan.task in (page.tab, page.browser) for plan in live)
            self.samples.take("the run", training, crowd=len(live) - n_tabs)
            self.samples.take("the page's server", server, crowd=n_tabs)
            self.samples.take("the client that stays", self.plans[0].pid, crowd=0)
            self.samples.take("the figures' child", _child(training), crowd=0)

    def _fate(self, plan: Plan, now_s: float) -> None:
        if plan.stopped and now_s >= plan.fate_s + plan.stop_s:
            _kill(plan.pid, signal.SIGCONT)
            plan.stopped, plan.fate_s = False, FAR_S
        elif not plan.stopped and now_s >= plan.fate_s:
            _kill(plan.pid, signal.SIGKILL if plan.fate == "kill" else signal.SIGSTOP)
            plan.stopped = plan.fate == "stop"
            plan.fate_s = plan.fate_s if plan.stopped else FAR_S
        elif now_s > plan.leave_s + plan.stop_s + PATIENCE_S:
            _end(plan)

    def _reap(self) -> bool:
        """Note which clients have ended; return whether all have."""
        for plan in self.plans:
            if plan.pid and plan.status is None:
                pid, status = os.waitpid(plan.pid, os.WNOHANG)
                plan.status = os.waitstatus_to_exitcode(status) if pid else None
        return all(plan.status is not None for plan in self.plans if plan.pid)

    def _see_off(self) -> None:
        """Wait for the clients that saw the end; those that do not end are hung."""
        for plan in self.plans:
            if plan.stopped:
                _kill(plan.pid, signal.SIGCONT)
        self._await_all()
        for plan in self.plans:
            if plan.pid and plan.status is None:
                _end(plan)
        self._await_all()

    def _await_all(self) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not self._reap() and time.monotonic() < until_s:
            time.sleep(TICK_S)

    # What it found

    def rows(self) -> Iterator[Row]:
        """Yield what happened, what went wrong, and what grew."""
        self.problems: list[str] = []
        n, seconds = self.done.get("n", 0), self.done.get("seconds", 1.0)
        yield f"{seconds:.0f} s, events a second", n / seconds, "", None
        yield from self._clients()
        yield from self._records()
        yield from self._sleepers()
        yield from self._commands()
        wrong = list(recording.faults(self.directory, self.done)) if self.done else ["the run did not end"]
        self.problems += wrong
        yield "files: series that are not complete and exact", len(wrong), "", 0
        yield "  figures drawn", len(self.done.get("figures", ())), "", None
        yield f"entries left in the registry {' '.join(self.registry)}".strip(), len(self.registry), "", 0
        logs = [self.folder / "training.log", self.folder / "page.log"]
        told = self.done.get("warned", []) + [line for log in logs for line in log.read_text().splitlines()]
        yield "warnings of the run, lines on stderr of it and of the page", len(told), "", None
        yield from self.samples.rows(known={"the page's server": INDEX_A_MINUTE})
        for problem in [*self.problems[:20], *dict.fromkeys(told[:10])]:
            yield f"! {problem[:600]}", 0, "", None

    def _clients(self) -> Iterator[Row]:
        begun = [plan for plan in self.plans if plan.pid]
        kinds = Counter(plan.task.__name__ for plan in begun)
        tabs, browsers = kinds.pop("tab", 0), kinds.pop("browser", 0)
        yield f"clients: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}", kinds.total(), "", None
        yield "  killed", sum(plan.fate == "kill" and plan.status == -signal.SIGKILL for plan in begun), "", None
        yield (
            "  killed for memory",
            sum(plan.task is greedy and plan.status == -signal.SIGKILL for plan in begun),
            "",
            None,
        )
        yield "  stopped for 3 to 30 s", sum(plan.fate == "stop" and not plan.sleeps for plan in begun), "", None
        yield "tabs on the socket", tabs, "", None
        there = "in Chromium" if page.browser_path() else "in a browser (there is none here)"
        yield f"  {there}", browsers, "", None
        yield "clients and tabs that hung", sum(plan.hung for plan in begun), "", 0
        failed = [plan for plan in begun if not plan.hung and plan.status not in (0, -signal.SIGKILL)]
        yield "  that failed", len(failed), "", 0
        for plan in begun:
            if plan.hung or plan in failed:
                path = self.folder / "clients" / f"{plan.number}.txt"
                trace = path.read_text().strip().splitlines() if path.exists() else []
                told = [line.strip() for line in (trace[2:8] if plan.hung else trace[-3:])]
                self.problems.append(f"{plan.task.__name__} {plan.number} ended with {plan.status}: {' | '.join(told)}")

    def _reports(self) -> Iterator[tuple[Plan, dict[str, Any]]]:
        for plan in self.plans:
            path = self.folder / "clients" / f"{plan.number}.json"
            if path.exists():
                yield plan, json.loads(path.read_text())

    def _records(self) -> Iterator[Row]:
        counted: Counter[str] = Counter()
        told: Counter[str] = Counter()
        n_events = self.done.get("n", 0)
        for plan, report in self._reports():
            told[report.get("told", "")] += 1
            on_page = plan.task is page.tab
            for stream in report.get("streams", [report]):
                counted["page" if on_page else "client"] += stream.get("n", 0)
                counted["wrong"] += stream.get("n_wrong", 0)
                counted["lost"] += stream.get("n_lost", 0)
                counted["thinned"] += stream.get("n_thinned", 0)
                counted["uncounted"] += stream.get("n_uncounted", 0)
                if stream.get("n_uncounted"):
                    what = f"{stream['query']} lost {stream['n_uncounted']:,} uncounted: {stream['counts']}"
                    self.problems.append(f"{plan.task.__name__} {plan.number}: {what}")
                if stream.get("wrong"):
                    self.problems.append(f"{plan.task.__name__} {plan.number}: {stream['wrong']}")
                late = n_events - 1 - stream.get("last_step", 0)
                if report.get("told") == "ended" and "query" in stream and late >= stream["stride"]:
                    counted["cut"] += 1
                    self.problems.append(f"{plan.task.__name__} {plan.number}: {stream['query']} ended {late} early")
        yield "records checked in clients", counted["client"], "", None
        yield "  over the page's socket", counted["page"], "", None
        yield "  wrong (also: answers of the page, errors in the browser)", counted["wrong"], "", 0
        yield "  lost, and counted as lost", counted["lost"], "", None
        yield "  thinned by the run, and counted", counted["thinned"], "", None
        yield "  lost and not counted", counted["uncounted"], "", 0
        yield "streams that ended before the last record", counted["cut"], "", 0
        # A client that was stopped too long is told by the run, or finds that it heard nothing of it.
        leases = {text: n for text, n in told.items() if "lease" in text or "silent" in text or "read its" in text}
        other = {text: n for text, n in told.items() if text not in ("ended", "left", "") and text not in leases}
        self.problems += [f"{n} clients were told: {text}" for text, n in other.items()]
        yield "clients and tabs that were told the end", told["ended"], "", None
        yield "  told that their lease ended", sum(leases.values()), "", None
        yield "  told anything else", sum(other.values()), "", 0

    def _sleepers(self) -> Iterator[Row]:
        """Yield what became of the client and the tab that were stopped for long."""
        reports = [(plan, report) for plan, report in self._reports() if plan.sleeps]
        asleep_s = max((plan.stop_s for plan, _ in reports), default=0.0)
        n_missing = sum(stream["n_lost"] + stream["n_thinned"] for _, r in reports for stream in r.get("streams", ()))
        yield f"stopped for {asleep_s:.0f} s, a client: records that it missed, counted", n_missing, "", None
        yield "  a tab: sockets that it needed", sum(report.get("n_sockets", 0) for _, report in reports), "", None
        n_on = sum(report.get("told") == "ended" for _, report in reports)
        yield "  of both, those that did not go on until the end", 2 - n_on, "", 0

    def _commands(self) -> Iterator[Row]:
        sent, acknowledged = (self._numbers(name) for name in ("sent", "acknowledged"))
        applied = self.done.get("applied", [])
        yield "commands sent", len(sent), "", None
        yield "  acknowledged", len(acknowledged), "", None
        yield "  acknowledged and not applied", len(set(acknowledged) - set(applied)), "", 0
        yield "  applied twice", len(applied) - len(set(applied)), "", 0
        yield "  applied and never sent", len(set(applied) - set(sent)), "", 0

    def _numbers(self, name: str) -> list[int]:
        path = self.folder / "clients" / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def plans(duration_s: float) -> Iterator[Plan]:
    """Yield the clients and tabs, the same for the same duration."""
    rng = random.Random(0)
    yield Plan(resident, 0, 1.0, FAR_S)
    asleep = {"fate": "stop", "fate_s": duration_s / 4, "stop_s": duration_s / 3, "sleeps": True}
    yield Plan(sleeper, 1, 1.0, FAR_S, **asleep)  # type: ignore[arg-type]
    yield Plan(page.tab, 2, 2.0, FAR_S, **asleep)  # type: ignore[arg-type]
    number = 3
    n_clients = max(12, round(duration_s / CLIENT_EVERY_S))
    last_s = max(duration_s / 2, duration_s - PATIENCE_S)  # so that each finds the run, on a slow machine too
    for i, task in zip(range(n_clients), _kinds(rng), strict=False):
        yield _plan(rng, task, number, 2.0 + (last_s - 2.0) * i / n_clients, duration_s)
        number += 1
    for i in range(max(4, round(duration_s / TAB_EVERY_S))):
        yield _plan(rng, page.tab, number, 4.0 + min(i * TAB_EVERY_S, 0.2 * duration_s * i), duration_s)
        number += 1
    for i in range(max(1, round(duration_s / BROWSER_EVERY_S))) if page.browser_path() else ():
        start_s = 0.1 * duration_s + i * BROWSER_EVERY_S
        yield Plan(page.browser, number, start_s, start_s + min(45.0, duration_s / 3))
        number += 1


def _kinds(rng: random.Random) -> Iterator[Task]:
    """Yield one of each kind, and then as many of each as `KINDS` says, in random order."""
    kinds = list(KINDS)
    while True:
        rng.shuffle(kinds)
        yield from kinds
        kinds = [task for task, n in KINDS.items() for _ in range(n)]


def _plan(rng: random.Random, task: Task, number: int, start_s: float, duration_s: float) -> Plan:
    # After a fifth of the time as many leave as come, so that only leaks grow.
    life_s = rng.uniform(0.1, 1.0) * min(180.0, duration_s / 5) if task is not deaf else DEAF_S
    leave_s = start_s + life_s
    stays = leave_s > duration_s - STOP_S[1] and task is not deaf  # to be told the end
    fate = "leave" if stays or task in (deaf, greedy) else rng.choice(FATES)
    plan = Plan(task, number, start_s, FAR_S if stays else leave_s, fate)
    if fate != "leave":
        plan.fate_s = start_s + rng.uniform(0.2, 0.8) * life_s
        plan.stop_s = rng.uniform(*STOP_S) if fate == "stop" else 0.0
    return plan


def _child(pid: int) -> int:
    """Return the first child of a process: the renderer; or 0, which is no process."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return 0


def _end(plan: Plan) -> None:
    """End a client that hangs; its trace tells where it was."""
    if not plan.hung:
        plan.hung = True
        _kill(plan.pid, signal.SIGABRT)


def _kill(pid: int, number: int) -> None:
    """Send a signal to a client and to what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
