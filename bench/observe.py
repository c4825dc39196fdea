"""What `observe` costs: idle, and with a query asked from the same process. TensorWatch 0.9.1: 1.6 N and 150 N."""

from __future__ import annotations

from collections.abc import Iterator

import sightglass as sg

from .yardstick import n_seconds, seconds_per_call

N_EVENTS = 200_000

QUERIES = {
    "one query, batch.loss": ("batch.loss", 10),
    "one reduced query, batch.loss.mean(every=100)": ("batch.loss.mean(every=100)", None),
    "one array query, abs(batch.grads).mean()": ("abs(batch.grads).mean()", None),
}


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    n = n_seconds()
    with sg.init("bench-observe", budget=None) as run:
        seconds_per_call(run.observe, 100)
        yield "observe, nobody asking", min(seconds_per_call(run.observe, N_EVENTS) for _ in range(5)) / n, "N", 1.6
        for what, (query, target) in QUERIES.items():
            with sg.connect(run) as client:
                stream = client.stream(query)
                best = min(seconds_per_call(run.observe, N_EVENTS // 2) for _ in range(3))
                yield what, best / n, "N", target
                stream.wait(stream.statistics().n_records)
                yield "  records lost", stream.statistics().n_lost + stream.statistics().n_dropped, "", 0
    with sg.init("bench-off", mode="disabled") as off:
        yield "observe, mode='disabled'", min(seconds_per_call(off.observe, N_EVENTS) for _ in range(5)) / n, "N", None
