"""All queries of an event together take at most its limit; what does not fit waits, or is evaluated aside."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from sightglass.core.errors import PriceError
from sightglass.query.costs import MODEL
from sightglass.training.evaluation.aside import AsideEvaluation
from sightglass.training.evaluation.budget import PATIENCE, Turns

LARGE = np.ones(4_000_000)
SLOW_S = 0.015


class Stream:
    """What `Turns` knows of a subscription."""

    def __init__(self, price_s: float, *, first: bool = False) -> None:
        self.price_s = price_s
        self.first = self.confirmed = first
        self.suspended = False
        self.n_seen = 1
        self.n_waited = self.n_evaluated = self.n_skipped = 0
        self.allowed: list[tuple[float, float | None]] = []

    def allow(self, left_s: float, *, limit_s: float | None) -> None:
        self.allowed.append((left_s, limit_s))


def take(turns: Turns, clock: Any, *streams: Stream) -> float:
    """Let an event happen; returns the seconds that its queries took."""
    began_s = clock.cpu_s

    def post(one: Stream) -> None:
        one.n_evaluated += 1
        clock.work(one.price_s)

    def skip(one: Stream) -> None:
        one.n_skipped += 1

    turns.take(streams, post=post, skip=skip)  # type: ignore[arg-type]
    clock.pass_(0.05)
    turns.happened(clock.now_s, streams)  # type: ignore[arg-type]
    return clock.cpu_s - began_s


def test_queries_that_do_not_fit_together_take_turns(clock):
    turns = Turns(cpu_s=clock.cpu)
    cheap, streams = Stream(0.001), [Stream(SLOW_S), Stream(SLOW_S)]
    for _ in range(20 * PATIENCE):
        assert take(turns, clock, cheap, *streams) <= 0.02
    assert cheap.n_skipped <= 20
    assert min(one.n_evaluated for one in streams) >= 15
    assert all(one.n_evaluated + one.n_skipped == 20 * PATIENCE for one in (cheap, *streams))


def test_many_cheap_queries_do_not_starve_an_expensive_one(clock):
    turns = Turns(cpu_s=clock.cpu)
    cheap, slow = [Stream(0.001) for _ in range(15)], Stream(SLOW_S)
    for _ in range(10 * PATIENCE):
        assert take(turns, clock, *cheap, slow) <= 0.02 + 1e-9
    assert slow.n_evaluated >= 9
    assert min(one.n_evaluated for one in cheap) >= 0.9 * 10 * PATIENCE


def test_what_is_recorded_or_confirmed_never_waits(clock):
    turns = Turns(cpu_s=clock.cpu)
    recorded, other = Stream(0.03, first=True), Stream(0.005)
    for _ in range(10):
        take(turns, clock, other, recorded)
    assert (recorded.n_evaluated, recorded.n_skipped) == (10, 0)
    assert other.n_evaluated == 10, "a controller raised the limit of the other one only"


def test_the_limit_of_slow_events_is_a_tenth_of_the_usual_time_between_them(clock):
    turns = Turns(cpu_s=clock.cpu)
    assert turns.limit_s is None
    for _ in range(9):
        turns.happened(clock.now_s, ())
        clock.pass_(1.0)
    assert turns.limit_s == pytest.approx(0.1)
    clock.pass_(1_000.0)  # a checkpoint
    turns.happened(clock.now_s, ())
    assert turns.limit_s == pytest.approx(0.1)
    fast = Turns(cpu_s=clock.cpu)
    for _ in range(9):
        fast.happened(clock.now_s, ())
        clock.pass_(0.002)
    assert fast.limit_s == 0.02


@pytest.fixture
def place(bench, monkeypatch):
    monkeypatch.setattr(MODEL, "calibrated", True)
    monkeypatch.setattr(MODEL, "factors", dict.fromkeys(MODEL.factors, 20.0))  # small arrays look expensive
    monkeypatch.setattr(MODEL, "_learned", {})
    monkeypatch.setattr(MODEL, "want", lambda trials: None)  # and nobody looks how expensive they are
    return bench(aside=True)


def test_a_query_that_never_fits_is_refused_with_its_price(place):
    nasty = place.ask(f"on('batch').map(lambda b: [{', '.join(['sin(b.x * 1e300).sum()'] * 60)}])")
    other = place.ask("on('batch').map(lambda b: b.step)")
    for step in range(3):
        place.clock.pass_(0.01)
        place.observe("batch", x=LARGE, step=step)
    assert nasty.suspended
    assert isinstance(nasty.last_error, PriceError)
    assert "at most 20 ms of the run's time" in str(nasty.last_error)
    assert "at event 'batch', step" in str(nasty.last_error)
    assert [row[3] for row in other.rows.take()] == [0, 1, 2]


def test_a_query_that_does_not_fit_is_answered_aside(place):
    stream = place.ask("on('batch').map(lambda b: (b.step, b.x.median()))")
    for step in range(3):
        x = np.full(100_000, float(step))
        place.observe("batch", x=x, step=step)
        x[:] = -1.0  # what the program does next does not show
        place.telemetry.flush(30.0)
        place.clock.pass_(0.01)
    assert [row[3] for row in stream.rows.take()] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert (stream.n_skipped, stream.n_errors) == (0, 0)


def test_what_is_evaluated_aside_does_not_count_against_itself(place, monkeypatch):
    """It holds 48 of the 64 MiB that queries may hold: as much again would not fit."""
    monkeypatch.setattr(MODEL, "new_ns", 0.1)
    monkeypatch.setattr(MODEL, "factors", dict.fromkeys(MODEL.factors, 2.0))
    stream = place.ask("on('batch').map(lambda b: nonzero(b.x)[0].sum())")
    x = np.ones(3_000_000, np.uint8)
    for _ in range(3):
        place.observe("batch", x=x)
        place.telemetry.flush(30.0)
        place.clock.pass_(0.01)
    assert [row[3] for row in stream.rows.take()][-1:] == [3_000_000 * 2_999_999 // 2]
    assert (stream.n_errors, stream.suspended) == (0, False)
    place.telemetry.memory.count()
    assert place.telemetry.memory.n_bytes < 2**23  # the copy, whose memory is used again


def test_events_are_skipped_and_counted_while_one_is_evaluated_aside(place):
    count = place.ask("on('batch').map(lambda b: b.x.median()).count(every=10)")
    x = np.ones(100_000)
    place.observe("batch", x=x)
    place.telemetry.flush(30.0)
    assert place.telemetry.aside.take()
    for _ in range(18):
        place.observe("batch", x=x)
    place.telemetry.aside.free()
    place.observe("batch", x=x)
    place.telemetry.flush(30.0)
    assert count.n_skipped >= 17
    assert [row[3] for row in count.rows.take()] == [1, 1]


def test_new_memory_is_made_on_the_other_thread(place, monkeypatch):
    monkeypatch.setattr(MODEL, "new_ns", 10.0)  # memory is slow
    stream = place.ask("on('batch').map(lambda b: b.x.median())")
    for step in range(3):
        place.observe("batch", x=np.full(100_000, float(step)), step=step)
        place.telemetry.flush(30.0)
        place.clock.pass_(0.01)
    assert [row[3] for row in stream.rows.take()] == [1.0, 2.0]
    assert (stream.n_skipped, stream.n_errors) == (1, 0)
    assert place.telemetry.aside.held_bytes == 800_000


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64", "bfloat16"])
def test_tensors_are_answered_aside_as_they_are_elsewhere(place, dtype, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(MODEL, "factors", dict.fromkeys(MODEL.factors, 5.0))
    x, places = (torch.arange(400_000) % 7).to(getattr(torch, dtype)), torch.tensor([5, 3])
    wanted = [x[:3].tolist(), x.sum().item(), x[places].tolist()]
    dear = " + ".join(["(b.x == b.x).sum()"] * 20)
    stream = place.ask(f"on('batch').map(lambda b: [b.x[:3], b.x.sum(), b.x[b.places], {dear}])")
    n = 0
    while not stream.rows and n < 200:  # the first events may only make the memory, or wait for a processor
        place.observe("batch", x=x, places=places)
        place.telemetry.flush(30.0)
        place.clock.pass_(0.01)
        n += 1
    value = stream.rows.take()[-1][3]
    assert place.telemetry.aside.held_bytes > x.nbytes
    assert [torch.as_tensor(one).tolist() for one in value] == [*wanted, 8_000_000]


def test_arrays_of_jax_are_answered_aside_without_compilation(place, monkeypatch):
    jnp = pytest.importorskip("jax.numpy")
    monkeypatch.setattr(MODEL, "factors", dict.fromkeys(MODEL.factors, 1.0))
    x, dear = jnp.arange(4_000_000) % 7.0, " + ".join(["(b.x == b.x).sum()"] * 4)
    stream = place.ask(f"on('batch').map(lambda b: [b.x[:3], b.x.max(), {dear}])")
    n = 0
    while not stream.rows and n < 20:
        place.observe("batch", x=x)
        place.telemetry.flush(30.0)
        place.clock.pass_(0.01)
        n += 1
    values = [np.asarray(one).tolist() for one in stream.rows.take()[-1][3]]
    assert values == [[0.0, 1.0, 2.0], 6.0, 16_000_000]
    assert isinstance(stream._aside, AsideEvaluation)


PICKS = """
import pathlib, sys, torch, sightglass as sg
from sightglass.query.costs import MODEL
def memory(of):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(of))
MODEL.calibrated = True
x, places = torch.zeros(2_000_000, dtype=torch.float64), torch.randint(2_000_000, (500_000,))
query = "on('batch').map(lambda b: [" + ", ".join(f"b.x[b.places].sum() + {i}" for i in range(40)) + "])"
with sg.init("picks", dir=sys.argv[1], budget=None) as run, sg.connect(run) as client:
    stream = client.stream(query)
    before, n = memory("VmRSS"), 0
    while stream.latest is None and n < 1_000:
        run.observe("batch", x=x, places=places)
        run.flush()
        n += 1
    print(len(stream.latest.value), memory("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process in /proc")
def test_what_tensors_need_aside_is_given_back(tmp_path):
    pytest.importorskip("torch")
    said = subprocess.run(
        [sys.executable, "-c", PICKS, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    n, n_bytes = map(int, said.stdout.split())
    assert n == 40
    assert n_bytes < 80e6  # 16 + 4 for the copy, 4 for each result: 160 more if they were kept


def test_what_was_never_evaluated_waits_if_there_is_no_time_to_find_its_price(clock):
    turns = Turns(cpu_s=clock.cpu)
    slow, new = Stream(0.019), Stream(0.0)
    new.n_seen = 0
    for _ in range(4):
        take(turns, clock, slow, new)
    assert slow.n_evaluated == 4
    assert new.n_evaluated == 0
