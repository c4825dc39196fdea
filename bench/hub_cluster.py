"""64 runs on three machines, on a hub of three servers, while parts of it fail.

A server is killed and started again, two runs are killed, and a machine is cut off for 20 seconds and healed. The
machines are network namespaces, which need root and the command `ip`. `tests.hub_cluster` has the trial.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hub_cluster import Cluster, Machines, Trial
from tests.whole.conftest import Child, command

from .row import Row

N_RUNS = int(os.environ.get("SIGHTGLASS_CLUSTER_RUNS", "64"))
CUT_S = 20.0
RIGHT_S = 10.0  # as docs/hub.md promises


def measure() -> Iterator[Row]:
    """Yield the rows."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sgc")))
        machines = Machines()
        stack.callback(machines.close)
        cluster = Cluster(folder, machines.addresses[0])
        stack.callback(cluster.close)

        def start(script: str, *arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> Any:
            child = Child([*prefix, *command(script, *arguments)], environment)
            stack.callback(child.finish)
            return child

        trial = Trial(cluster, machines, start, folder, N_RUNS)
        load, began_s = os.getloadavg()[0], time.monotonic()
        report = trial.go(cut_s=CUT_S)
        for what in report.wrong:
            print(f"  wrong: {what}")
        yield Row(f"{N_RUNS} runs, {2 * N_RUNS} streams: not once each, or not counted", len(report.wrong), "", 0)
        yield Row("  records that came", report.n_records, "")
        yield Row("  lost and counted, of those that no run recorded", report.n_lost, "")
        for fault, right_s in report.right_after_s.items():
            yield Row(f"  the table is right after {fault}", right_s, "s", RIGHT_S)
        yield Row("  the trial took", time.monotonic() - began_s, "s")
        yield Row("  load of the machine before and after", load, "")
        yield Row("", os.getloadavg()[0], "")
