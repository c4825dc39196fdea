"""NumPy's times: asked as they are, they stay; where a query computes with them, they are seconds, as datetimes are."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import PriceError, SightglassError, UnreadableError
from sightglass.core.program_values.array_data import seconds_of
from sightglass.query.evaluation import Evaluation
from sightglass.query.meter import MAX_BYTES, Meter

DAY = 86_400.0
TIMES = np.array(["2024-01-01", "2024-01-05", "NaT"], "datetime64[D]")
SPANS = np.array([1, 2], "timedelta64[h]")
FIRST = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC).timestamp()


def ask(text, **meter):
    event = {"t": TIMES, "d": SPANS, "one": TIMES[0], "span": SPANS[0], "when": datetime.date(2024, 1, 1), "step": 0}
    return Evaluation(sg.parse(text), meter=Meter(**meter)).per_event(event).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch.t - batch.t[0]", [0.0, 4 * DAY, np.nan]),
        ("batch.t.diff()", [4 * DAY, np.nan]),
        ("batch.t[:2].max() - batch.one", 4 * DAY),
        ("batch.t[:2].min()", FIRST),
        ("batch.t > batch.t[0]", [False, True, False]),
        ("isnan(batch.t)", [False, False, True]),
        ("batch.t[0] == batch.one", True),
        ("[batch.one, batch.one].max()", FIRST),
        ("batch.d.sum()", 3 * 3600.0),
        ("batch.d / batch.d[0]", [1.0, 2.0]),
        ("maximum(batch.d, 5000)", [5000.0, 7200.0]),
        ("batch.span - 1", 3599.0),
        ("batch.t[0] + batch.d[0]", FIRST + 3600),
    ],
)
def test_a_query_computes_with_times_as_seconds(text, expected):
    np.testing.assert_array_equal(ask(text), expected)


def test_what_is_asked_as_it_is_stays():
    assert ask("batch.t").dtype == TIMES.dtype
    assert ask("batch.t[1]") == TIMES[1]


@pytest.mark.parametrize("unit", ["W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "25s"])
def test_each_unit_is_seconds(unit):
    np.testing.assert_allclose(seconds_of(np.array([0, 3, "NaT"], f"m8[{unit}]"))[:2] / np.float64(3), [
        0, np.timedelta64(1, unit) / np.timedelta64(1, "s") if unit != "25s" else 25.0,
    ])  # fmt: skip
    assert np.isnan(seconds_of(np.array(["NaT"], f"M8[{unit}]"))[0])


def test_times_beyond_what_nanoseconds_hold_are_right():
    assert seconds_of(np.array(["3000-01-01"], "M8[D]"))[0] == 32_503_680_000.0
    assert seconds_of(np.array(["1969-12"], "M8[M]"))[0] == -31 * DAY
    assert seconds_of(np.array(["2024-01-01"], ">M8[s]"))[0] == FIRST


@pytest.mark.parametrize("dtype", ["m8[Y]", "m8[M]", "m8"])
def test_a_span_without_a_length_is_refused(dtype):
    with pytest.raises(UnreadableError, match="timedelta64"):
        seconds_of(np.array([1, 2], dtype))


def test_more_times_than_are_converted_at_once_are_refused():
    times = np.zeros(3_000_000, "M8[s]")
    with pytest.raises(SightglassError, match="fewer rows") as caught:
        Evaluation(sg.parse("batch.t.max()"), meter=Meter(limit_s=1.0, max_bytes=MAX_BYTES)).per_event({"t": times})
    assert isinstance(caught.value, UnreadableError | PriceError)


def test_a_large_array_of_times_has_a_price():
    times = np.arange(1_000_000).astype("M8[s]")
    evaluation = Evaluation(sg.parse("(batch.t - batch.t[0]).sort().max()"), meter=Meter(limit_s=5.0))
    assert evaluation.per_event({"t": times}).value == 999_999.0


def test_times_are_reduced_as_seconds():
    with sg.init("times") as run, sg.connect(run) as client:
        streams = [client.stream(f"batch.t.{name}(every=2)") for name in ("min", "max", "mean", "last")]
        spans = client.stream("batch.d.sum(every=2)")
        for day in ("2024-01-01", "2024-01-03"):
            run.observe("batch", t=np.datetime64(day), d=np.array([1, 2], "m8[m]"))
        run.close()
        found = [next(iter(stream)).value for stream in streams]
        assert found[:3] == [FIRST, FIRST + 2 * DAY, FIRST + DAY]
        np.testing.assert_array_equal(next(iter(spans)).value, [120.0, 240.0])
