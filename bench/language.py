"""What sliding windows and groups cost an event: the evaluation alone, without the run around it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

N_EVENTS = 20_000
N_KEYS = 1_000
N_ROUNDS = 7

QUERIES = {
    "batch.loss.mean(every=1000)": None,
    "batch.loss.rolling(1000).mean()": 3.0,
    "batch.loss.rolling(100_000).mean()": None,
    "batch.loss.ema(0.1)": None,
    "batch.loss.mean(by=lambda b: b.key, every=10_000)": 5.0,
}


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    seconds: dict[str, list[float]] = {query: [] for query in QUERIES}
    for _ in range(N_ROUNDS):
        for query, taken in seconds.items():
            taken.append(_seconds_per_event(query))
    for query, target in QUERIES.items():
        yield f"{query}, an event", 1e6 * statistics.median(seconds[query]), "us", target


def _seconds_per_event(query: str) -> float:
    evaluation = Evaluation(parse(query))
    events = [{"loss": float(i % 97), "key": i % N_KEYS} for i in range(N_EVENTS)]
    only = evaluation.only
    began_s = time.perf_counter()
    for i, event in enumerate(events):
        if only is not None:  # as the run does
            evaluation.number(only(event), i, (i, float(i), None))
        else:
            evaluation.across_events(evaluation.per_event(event), ordinal=i, step=i, wall_time=float(i))
    return (time.perf_counter() - began_s) / N_EVENTS
