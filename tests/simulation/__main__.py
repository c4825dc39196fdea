"""Replay a seed: `python -m tests.simulation 1234`; search for one that breaks a law: `… --seeds 1000:3000`.

A search runs on two processes, until the seeds or the `--minutes` are over, and prints every seed that fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Any

from .schedule import Schedule
from .world import START_S

CHUNK = 20  # seeds that a process takes at a time


def main() -> int:
    """Replay or search; return whether a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("seed", nargs="?", type=int, help="replay this seed, with its trace")
    parser.add_argument("--seeds", metavar="FIRST:LAST", default="0:1000000000", help="search these seeds")
    parser.add_argument("--minutes", type=float, default=1.0, help="search for so long")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    first, last = map(int, options.seeds.split(":"))
    return search(range(first, last), options.minutes)


def replay(seed: int) -> int:
    """Run a schedule, and print what happened."""
    schedule = Schedule(seed)
    print(schedule.plan)
    violations = schedule.run()
    for at_s, text in schedule.world.trace:
        print(f"{at_s - START_S:10.6f}  {text}")
    print("\n".join(violations) or "No law is broken.")
    return bool(violations)


def failing(seeds: range, **features: Any) -> list[tuple[int, list[str]]]:
    """Return those of some seeds that break a law, with what they break; `features` as of `Schedule`."""
    results = []
    for seed in seeds:
        try:
            violations = Schedule(seed, **features).run()
        except Exception as error:  # noqa: BLE001  it is reported with its seed, and the search goes on
            violations = [f"the simulation failed: {error!r}"]
        if violations:
            results.append((seed, violations))
    return results


def search(seeds: range, minutes: float) -> int:
    """Search on two processes; print what fails, and how many schedules there were in a minute."""
    began_s, n, n_failed = time.monotonic(), 0, 0
    chunks = (seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK))
    with ProcessPoolExecutor(2) as pool:
        while (several := list(islice(chunks, 2))) and time.monotonic() - began_s < 60 * minutes:
            for chunk, found in zip(several, pool.map(failing, several), strict=True):
                n += len(chunk)
                n_failed += len(found)
                for seed, violations in found:
                    print(f"python -m tests.simulation {seed}  # {violations[0]}", flush=True)
    per_minute = n / (time.monotonic() - began_s) * 60
    print(f"{n} schedules, {n_failed} of them break a law; {per_minute:.0f} a minute")
    return n_failed > 0


if __name__ == "__main__":
    sys.exit(main())
