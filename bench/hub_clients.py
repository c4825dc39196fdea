"""Clients of one stream on a hub, in a process of their own: `bench.hub` says when they open and close it.

A line "open N" has the first N of them open the stream, and "close STEP" waits for the record of this step, says what
came and what was counted as lost, and closes it. The wait is bounded: clients that share two cores may be far behind.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import sightglass as sg

from .latency_ends import QUERY, WAIT_S

PATIENCE_S = 30.0


def serve(name: str, hub: str, n: int) -> None:
    """Connect `n` clients, and do what the lines say."""
    with ThreadPoolExecutor(n) as pool:
        clients = list(pool.map(lambda _: sg.connect(name, hub=hub, wait_s=WAIT_S), range(n)))
    streams: list[sg.Stream] = []
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["open", n_open]:
                streams = [client.stream(QUERY) for client in clients[: int(n_open)]]
                print(json.dumps(len(streams)), flush=True)
            case ["close", last]:
                print(json.dumps(counts(streams, int(last))), flush=True)
                for stream in streams:
                    stream.close()


def counts(streams: list[sg.Stream], last: int) -> dict[str, float]:
    """Wait until the record of step `last` has come to each, then count.

    Returns:
        `n`: the records that came; `n_lost`: those that the clients count as lost; `n_due`: those that were announced
        since each one's first; `wait_s`: how long the last of them was waited for.
    """
    began_s = time.monotonic()
    n = n_lost = n_due = 0
    for stream in streams:
        while (stream.latest is None or stream.latest.step < last) and time.monotonic() < began_s + PATIENCE_S:
            time.sleep(0.02)
        told, steps = stream.statistics(), stream.to_arrays().steps
        n, n_lost = n + told.n_records, n_lost + told.n_lost
        n_due += last - int(steps[0]) + 1 if len(steps) else 0
    return {"n": n, "n_lost": n_lost, "n_due": n_due, "wait_s": time.monotonic() - began_s}


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
