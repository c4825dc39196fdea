"""One rank of a program that is told nothing of how its ranks agree; prints what it did as JSON.

Arguments: the port, the ranks that have a run ("0,1"), and how many events this rank announces at most.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

import sightglass as sg


def main(port: str, with_runs: str, n_events: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    has_run = str(rank) in with_runs.split(",")
    run = sg.init("agreeing", budget=None, mode=None if has_run else "disabled")
    lr = run.control("lr", 0.1)
    called: list[int] = []
    run.action("note", lambda: called.append(n))
    rates, n = [], 0
    for n in range(int(n_events)):
        run.observe("batch", step=n, rank=rank)
        if n % 10 == 0:
            run.observe("epoch", step=n)
        rates.append(lr.value)
        if n == 5:
            print("ready", flush=True)
        if run.stopping:
            break
        time.sleep(0.005)
    changes = [(i, rate) for i, rate in enumerate(rates) if i and rate != rates[i - 1]]
    run.close()
    print(json.dumps({"n": n, "changes": changes, "called": called}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
