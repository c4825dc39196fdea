"""The soak finds what it looks for: growth, wrong values, records that were lost and not counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.soak.clients import Client, read
from bench.soak.formula import EVENTS, REDUCERS, StreamCheck, loss, tensor
from bench.soak.samples import growth
from tests.client.test_stream import ManualStream

from sightglass.core.columns import Record
from sightglass.core.counts import Statistics

pytestmark = pytest.mark.smoke

MINUTES = np.arange(0, 30, 0.05)
NOISE = np.random.default_rng(0).normal(scale=0.2, size=len(MINUTES))


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (50 + NOISE, "flat"),
        (50 + 0.6 * MINUTES + NOISE, "GROWS"),
        (50 + 20 * np.minimum(1, MINUTES / 10) + NOISE, "flat"),  # it grows at first only
        (50 - 0.6 * MINUTES + NOISE, "flat"),
        (50 + 100 * NOISE, "too noisy"),
    ],
)
def test_growth_is_told_from_noise(values, verdict) -> None:
    assert growth(60 * MINUTES, values, bound=0.1).verdict == verdict


def test_what_comes_with_clients_is_not_growth() -> None:
    crowd = 10 + np.arange(len(MINUTES)) // 60  # more and more of them
    assert growth(60 * MINUTES, 20 + 2.0 * crowd + NOISE, bound=0.1).verdict == "GROWS"
    assert growth(60 * MINUTES, 20 + 2.0 * crowd + NOISE, crowd, bound=0.1).verdict == "flat"
    assert growth(60 * MINUTES, 20 + 2.0 * crowd + 0.6 * MINUTES, crowd, bound=0.1).verdict == "GROWS"


def test_growth_is_measured_over_the_last_part() -> None:
    found = growth(60 * MINUTES, 50 + 0.6 * MINUTES, bound=0.1)
    assert found.slope == pytest.approx(0.6)
    assert found.noise == pytest.approx(0, abs=1e-9)
    assert (found.early, found.late) == pytest.approx((50 + 0.6 * 6, 50 + 0.6 * 30), abs=0.1)


def record(index: int, step: int, value: object, **more) -> Record:
    return Record(tag="", index=index, step=step, wall_time=0.0, value=value, **more)


def test_right_records_pass() -> None:
    check = StreamCheck(EVENTS[0])
    for n in range(5):
        check.take(record(n, n + 100, loss(n + 100)))
    assert check.report(Statistics())["n_wrong"] == check.report(Statistics())["n_uncounted"] == 0
    assert check.last_step == 104


@pytest.mark.parametrize("value", [loss(7) + 1e-6, loss(8), None, 1 - loss(7)])
def test_a_wrong_value_is_found(value) -> None:
    check = StreamCheck(EVENTS[0])
    check.take(record(7, 7, value))
    assert check.n_wrong == 1


def test_an_array_of_another_type_is_found() -> None:
    check = StreamCheck(EVENTS[1])
    check.take(record(3, 3, tensor(3).astype(np.float64)))
    assert check.n_wrong == 1


def test_a_gap_must_be_counted_by_the_stream() -> None:
    check = StreamCheck(EVENTS[0])
    for n in (0, 1, 5):
        check.take(record(n, n, loss(n)))
    assert check.report(Statistics(n_lost=3))["n_uncounted"] == 0
    assert check.report(Statistics())["n_uncounted"] == 3


def test_what_arrives_after_the_last_look_is_read_before_it_is_counted(tmp_path) -> None:
    stream = ManualStream().put(loss(0), loss(1))
    client = Client(0, "job", tmp_path, (tmp_path, tmp_path), "", leave_s=math.inf)

    def leave() -> None:
        stream.put(loss(5), skip=3)
        client.leave_s = 0.0

    read(client, [(StreamCheck(EVENTS[0]), stream)], each=leave)
    (report,) = client.report["streams"]
    assert (report["n"], report["n_lost"], report["n_uncounted"]) == (3, 3, 0)


def test_a_record_that_the_index_hides_is_found() -> None:
    check = StreamCheck(EVENTS[0])
    check.take(record(0, 0, loss(0)))
    check.take(record(1, 2, loss(2)))
    assert check.n_wrong == 1


def test_windows_are_checked_by_their_events() -> None:
    check = StreamCheck(REDUCERS[0])
    check.take(record(4, 499, 449.5 + 10, n_events=80, complete=False))
    check.take(record(5, 599, 549.5, n_events=100))
    check.take(record(6, 650, 625.0, n_events=51, closed=False))  # the run ends
    assert check.n_wrong == 0
    check.take(record(7, 799, 749.5, n_events=99))
    assert check.n_wrong == 2  # its value, and its place
