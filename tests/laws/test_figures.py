"""For all orders of figures: each is refused at the call, or drawn, or has a card under its own name, or is counted.

The queue and the drawing are the real ones; the renderer works in simulated time, in which a function may hang. Only
the pixels are left out.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightglass.core.errors import FigureErrors
from sightglass.figures import Plotter, drawing

pytest.importorskip("matplotlib")
pytest.importorskip("cloudpickle")

from tests.figures.conftest import Caught
from tests.figures.simulated import simulate


def figure():
    from matplotlib.figure import Figure

    return Figure(figsize=(0.2, 0.2))


def one():
    return figure()


def raises():
    raise ValueError("a\ud800")


def leaves():
    raise SystemExit(3)


def hang():
    raise AssertionError("the simulated renderer calls no function that hangs")


def nothing():
    return None


CARD = b"\x89PNG card"


def saved(figure, form, dpi):
    """Stand for the rendering of figures, which takes most of the time."""
    return CARD if figure.get_figwidth() > 1 else b"\x89PNG figure"


FUNCTIONS = [one, one, raises, leaves, hang, nothing]
NAMES = ["a", "b", "a/b", "a_b", "\ud800", "é", "../x"]
POLICIES = ["spill", "drop_oldest", "drop_new", "replace"]

orders = st.tuples(
    st.sampled_from(FUNCTIONS),
    st.sampled_from(NAMES),
    st.integers(0, 2) | st.just(2**80),  # added to the number of the order, so that steps tell orders apart
    st.sampled_from(POLICIES),
    st.sampled_from([0.0, 0.0, 0.0, 0.1, 5.0, 200.0]),  # seconds until the next order
)


@dataclass
class Expected:
    """What was taken, by step."""

    taken: dict[int, tuple[str, object]] = field(default_factory=dict)
    policies: dict[int, str] = field(default_factory=dict)
    n_refused: int = 0


@settings(deadline=None)
@given(
    st.integers(0, 16).flatmap(lambda n: st.lists(orders, min_size=n, max_size=n)),
    st.sampled_from(["close", "late close", "flush and close", "drain and close"]),
    st.sampled_from([1, 1, 2, 8]),
    st.sampled_from([0.01, 2.0, 60.0]),  # how long figures take
)
def test_each_order_is_refused_drawn_carded_or_counted_and_close_returns(some, end, max_jobs, seconds):
    with pytest.MonkeyPatch.context() as patch:
        sink = Caught()
        patch.setattr(drawing, "_saved", saved)
        plotter, renderer = simulate(patch, sinks=[sink], max_jobs=max_jobs, limit_s=120.0)
        renderer.seconds = seconds
        errors, expected = [], Expected()
        for i, (function, name, more, on_full, pause_s) in enumerate(some):
            before_s, step = renderer.clock.now_s, 3 * i + more
            refused = _order(plotter, function, name, step, on_full, errors)
            assert refused == (name == "\ud800" or more > 2)
            assert renderer.clock.now_s == before_s  # no policy waits
            expected.n_refused += refused
            if not refused:
                expected.taken[step] = name, function
                expected.policies[step] = on_full
            renderer.clock.now_s += pause_s
            renderer.end_overdue()
        _end(plotter, end, renderer, errors, n_open=len(expected.taken))
        _check(plotter, sink, expected, errors)


def _order(plotter: Plotter, function, name, step, on_full, errors):
    try:
        plotter.plot(function, step=step, name=name, on_full=on_full)
    except FigureErrors as group:
        errors += group.exceptions
    except ValueError:
        return True
    return False


def _end(plotter, end, renderer, errors, *, n_open):
    before_s = renderer.clock.now_s
    if end == "drain and close":
        plotter._queue.wait(None)
    for wait in ([plotter.flush] if end == "flush and close" else []) + [plotter.close]:
        with contextlib.suppress(FigureErrors):
            try:
                wait(5.0) if end == "late close" else wait()
            except FigureErrors as group:
                errors += group.exceptions
    took_s = renderer.clock.now_s - before_s
    assert took_s <= (6.0 if end == "late close" else (n_open + 1) * 121.0)


def _check(plotter, sink, expected, errors):
    counts = plotter.statistics()
    assert counts.n_events == len(expected.taken)
    failed = {}
    for error in errors:
        failed.setdefault(error.step, []).append(error)
    drawn = {}
    for record in sink.records:
        name, function = expected.taken[record.step]
        assert record.tag == name  # never under another name
        is_card = record.value.data == CARD
        assert is_card == (function in (raises, leaves, nothing)) == (record.step in failed)
        assert record.step not in drawn
        drawn[record.step] = name
    for step, some in failed.items():
        assert [error.figure for error in some] == [expected.taken[step][0]] * len(some)
        assert len(some) == 1
    n_late = sum("still waiting" in str(error) for error in errors)
    silent = expected.taken.keys() - drawn.keys() - failed.keys()
    n_silent = len(silent)
    assert n_late == counts.n_waiting
    assert n_silent == counts.n_dropped
    assert not any(expected.policies[step] == "spill" for step in silent)
    assert counts.n_errors == len(errors) - n_late


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=40), st.integers(1, 4))
def test_the_newest_of_each_name_is_drawn_with_replace(some, max_jobs):
    with pytest.MonkeyPatch.context() as patch:
        sink = Caught()
        patch.setattr(drawing, "_saved", saved)
        plotter, renderer = simulate(patch, sinks=[sink], max_jobs=max_jobs, on_full="replace")
        newest = {}
        for step, (name, goes_on) in enumerate(some):
            plotter.plot(one, step=step, name=name)
            newest[name] = step
            renderer.finish(goes_on)
        assert renderer.clock.now_s == 0
        plotter.close()
        drawn = {}
        for tag, step in sink.names:
            assert step > drawn.get(tag, -1)  # in order
            drawn[tag] = step
        assert drawn == newest
