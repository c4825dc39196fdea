"""What sliding windows and groups cost an event: the evaluation alone, without the run around it.

Processor time is measured, and queries take turns, so that other work on the machine meets all of them. The last row is
what a loop of plain Python takes for the groups, as a person would write it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

N_EVENTS = 20_000
N_KEYS = 1_000
N_ROUNDS = 15

QUERIES = {
    "batch.loss.mean(every=1000)": None,
    "batch.loss.rolling(1000).mean()": 3.0,
    "batch.loss.rolling(100_000).mean()": None,
    "batch.loss.ema(0.1)": None,
    "batch.loss.mean(by=lambda b: b.key, every=10_000)": 5.0,
}
EVENTS = [{"loss": float(i % 97), "key": i % N_KEYS} for i in range(N_EVENTS)]


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    works: dict[str, Callable[[], Callable[[], None]]] = {query: lambda query=query: _asked(query) for query in QUERIES}
    works["  a dict of [n, sum] in a loop"] = lambda: _by_hand
    seconds: dict[str, list[float]] = {what: [] for what in works}
    for _ in range(N_ROUNDS):
        for what, prepare in works.items():
            work = prepare()
            began_s = time.process_time()
            work()
            seconds[what].append((time.process_time() - began_s) / N_EVENTS)
    for what, taken in seconds.items():
        yield f"{what}, an event", 1e6 * statistics.median(taken), "us", QUERIES.get(what)


def _asked(query: str) -> Callable[[], None]:
    evaluation = Evaluation(parse(query))
    only, number = evaluation.only, evaluation.number

    def work() -> None:
        for i, event in enumerate(EVENTS):
            if only is not None:  # as the run does
                number(only(event), i, (i, float(i), None))
            else:
                evaluation.across_events(evaluation.per_event(event), ordinal=i, step=i, wall_time=float(i))

    return work


def _by_hand() -> None:
    groups: dict[int, list[float]] = {}
    for i, event in enumerate(EVENTS):
        group = groups.get(event["key"])
        if group is None:
            group = groups[event["key"]] = [0, 0.0]
        group[0] += 1
        group[1] += event["loss"]
        if (i + 1) % 10_000 == 0:
            {str(key): total / n for key, (n, total) in groups.items()}
            groups = {}
