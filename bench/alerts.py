"""What it costs to watch runs by rules: the share of a core that a watcher of 50 runs takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from bench.row import Row

N_RUNS: Final = 50
CASES: Final = ((0, 10), (1, 10), (3, 10))
"""How many rules there are, and how many events a second each run has."""
SETTLE_S, MEASURE_S = 15.0, 30.0
MAX_PERCENT: Final = 2.0

PROGRAM: Final = """
import sys, time, sightglass as sg
folder, n, each_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
runs = [sg.init(f"run-{i}", dir=folder) for i in range(n)]
print("ready", flush=True)
due_s, step = time.monotonic(), 0
while True:
    for run in runs:
        run.observe("batch", loss=1 / (step + 1), step=step)
    step, due_s = step + 1, due_s + 1 / each_s
    time.sleep(max(0.0, due_s - time.monotonic()))
"""


def measure() -> Iterator[Row]:
    """Watch runs that nothing is wrong with, which is what a watcher does nearly always."""
    for n_rules, each_s in CASES:
        what = f"alerts: a watcher of {N_RUNS} runs with {each_s} events/s each, {n_rules} rules and the states"
        yield Row(what, _percent(n_rules, each_s), "%", MAX_PERCENT)


def _percent(n_rules: int, each_s: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.toml")
        rules.write_text("\n".join(
            f'[[rule]]\nname = "{i}"\nwhen = "batch.loss > {10 + i}"\nfor = "1 min"' for i in range(n_rules)
        ))  # fmt: skip
        environment = {**os.environ, "SIGHTGLASS_RUNTIME_DIR": folder}
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, folder, str(N_RUNS), str(each_s)], stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        try:
            assert program.stdout is not None
            program.stdout.readline()
            command = [sys.executable, "-m", "sightglass", "alerts", str(rules)]
            watcher = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
            try:
                time.sleep(SETTLE_S)
                process = psutil.Process(watcher.pid)
                began_s, before = time.monotonic(), process.cpu_times()
                time.sleep(MEASURE_S)
                after = process.cpu_times()
                used_s = after.user + after.system - before.user - before.system
                return 100 * float(used_s) / (time.monotonic() - began_s)
            finally:
                watcher.kill()
                watcher.wait()
        finally:
            program.kill()
            program.communicate()
