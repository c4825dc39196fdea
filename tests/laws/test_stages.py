"""Random chains of stages: live and recorded give what plain Python gives, also for a client who joins late."""

from __future__ import annotations

import math
import os
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.query.generated_stages import Event, Grown, grow

import sightglass as sg
from sightglass.core.process.clock import EventClock, SystemClock

N_QUERIES = int(os.environ.get("SIGHTGLASS_RANDOM_QUERIES", "60"))  # 1,000 take about a minute
N_AT_ONCE = 20
KEPT = ("batch.x", "batch.step", "batch.w", "epoch.step", "epoch.acc")


class HandClock(EventClock):
    """Times of events, moved by hand."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.now_s = 0.0
        self.monotonic = lambda: self.now_s
        self.offset_s, self.read_s = 0.0, math.inf


def happenings(random: Random) -> list[Event]:
    """Return batches, and marks between them."""
    events: list[Event] = []
    n = {"batch": 0, "epoch": 0, "end": 0}
    at = 1_700_000_000.125
    for _ in range(random.randrange(50)):
        what = random.choice(("batch",) * 5 + ("epoch", "end"))
        step = n[what] if what == "epoch" else 2 * n[what] + 1
        at += random.choice((0.25, 0.25, 0.5, 1.0, 3.25, 7.0))
        # Quarters: their sums are exact in any order.
        events.append(Event(what, n[what], step, random.randrange(-12, 13) / 4, at))
        n[what] += 1
    return events


def announce(run: Any, event: Event) -> None:
    match event.what:
        case "batch":
            run.observe("batch", step=event.step, x=event.x, w=event.w)
        case "epoch":
            run.observe("epoch", acc=event.x)
        case "end":
            run.end_group("batch")


def shown(stream: Any) -> list[Any]:
    return [(one.value, (one.step, one.wall_time), one.n_events, one.complete, one.closed) for one in stream]


def is_same(found: list[Any], wanted: list[Any]) -> bool:
    """Return whether two lists of records are equal: values to the last digits, the rest exactly."""
    rest = [one[1:] for one in found] == [one[1:] for one in wanted]
    return rest and is_close([one[0] for one in found], [one[0] for one in wanted])


def is_close(a: Any, b: Any) -> bool:
    """Return whether two values are equal to the last digits, which an order of sums may change."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(is_close(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) or (isinstance(a, np.ndarray) and a.ndim):
        return len(a) == len(b) and all(map(is_close, a, b))
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (np.isnan(a) and np.isnan(b))


@pytest.mark.parametrize("part", range(-(-N_QUERIES // N_AT_ONCE)))
def test_live_recorded_and_plain_python_agree(part: int, tmp_path: Any) -> None:
    random = Random(part)
    events = happenings(random)
    asked: dict[str, tuple[Grown, int]] = {}
    for i in range(N_AT_ONCE):
        grown = grow(part * N_AT_ONCE + i)
        first = random.choice((0, 0, random.randint(0, len(events))))
        shared = sg.parse(grown.text) in map(sg.parse, KEPT)  # who asks what is asked already gets what came before
        asked.setdefault(grown.text, (grown, 0 if shared else first))
    streams: dict[str, Any] = {}
    with sg.init("stages", dir=tmp_path, record=KEPT, budget=None) as run, sg.connect(run) as client:
        clock = HandClock()
        intake = run._wiring.telemetry.events
        intake.clock, intake._monotonic = clock, clock.monotonic
        for place, event in enumerate([*events, None]):
            for text, (_, first) in asked.items():
                if first == place:
                    streams[text] = client.stream(text)
            if event is not None:
                clock.now_s = event.at
                announce(run, event)
        run.close()
        live = {text: shown(stream) for text, stream in streams.items()}
    for text, (grown, first) in asked.items():
        assert is_same(live[text], grown.answer(events, first)), (text, first, events)
    if not any(event.what == "batch" for event in events) or not any(event.what == "epoch" for event in events):
        return
    with sg.open(run.directory) as old:
        for text, (grown, _) in asked.items():
            found = shown(old.stream(text))
            assert is_same(found, grown.answer(events, 0)), (text, events)


def test_all_kinds_of_stages_are_written() -> None:
    kinds = {kind for seed in range(60) for kind in grow(seed).kinds}
    assert kinds == {"group", "rolling", "scan", "ema", "diff", "join", "arrays", "time"}
