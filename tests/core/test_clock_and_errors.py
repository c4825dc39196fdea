"""Durations, and what errors say."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sightglass.core import errors
from sightglass.core.errors import QuerySyntaxError, UnknownNameError, caret, unknown, unknown_event
from sightglass.core.process.clock import UNITS_S, SystemClock, duration, elapsed


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS_S)), st.sampled_from(["", " ", "  "]))
def test_durations_are_numbers_with_units(n: int, unit: str, space: str) -> None:
    assert duration(f" {n}{space}{unit}") == pytest.approx(n * UNITS_S[unit])


@given(st.integers(1, 10**18 - 1) | st.floats(0.001, 1e9), st.sampled_from(sorted(UNITS_S)))
@example(9, "ms")  # 0.009000000000000001 s
def test_a_duration_in_seconds_is_the_same_duration(n: float, unit: str) -> None:
    try:
        seconds = duration(f"{np.format_float_positional(n, trim='-')} {unit}")
    except ValueError:
        assume(False)
    assert duration(f"{np.format_float_positional(seconds, trim='-')} s") == seconds


@pytest.mark.parametrize(("text", "seconds"), [("5 mins", 300), ("2 hours", 7200), ("0.5 s", 0.5), ("1 days", 86400)])
def test_units_may_be_plural(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "min", "-5 s", "5 weeks", "1e3 s", "0 s", "0.1 ms", "5 s 3", "٣ s", "9" * 400 + " s", "nan s"]
)
def test_texts_that_are_not_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"'5 min', '30 s', '500 ms'.*'2 h'"):
        duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1.0, "00:00:00"), (61.9, "00:01:01"), (86_399.0, "23:59:59"), (2 * 86_400 + 5_400.0, "2 d 01:30:00")],
)
def test_elapsed_counts_days(seconds, text):
    assert elapsed(seconds) == text


def test_the_clock_goes_on() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1.7e9


def test_what_a_process_waited_for_a_processor_is_that_of_its_first_thread() -> None:
    clock = SystemClock()
    before_s = clock.queued()
    assert before_s <= clock.queued(os.getpid()) <= clock.queued()
    assert clock.queued(2**22 + 1) == 0.0  # no such process


def test_an_unknown_name_comes_with_the_closest_name() -> None:
    error = UnknownNameError("observable", "los", ["loss", "grads", "params", "step"], where="at event 'batch'")
    assert str(error) == (
        "Unknown observable 'los' at event 'batch'. Did you mean 'loss'? Known: grads, loss, params, step."
    )
    assert (error.name, error.known) == ("los", ("loss", "grads", "params", "step"))
    assert isinstance(error, LookupError)
    assert "Did you mean 'mean'?" in unknown("function", "avg", ["mean", "var", "any"])
    for name in ("int", "str", "detach", "cpu", "numpy", "tolist", "pow", "transpose", "sinh"):
        assert "Did you mean" not in unknown("function", name, ["sin", "std", "tanh", "clip", "sum", "last", "prod"])
    assert "Did you mean 'lr'?" in unknown("control", "rl", ["lr", "mode"])
    assert "Did you mean" not in unknown("control", "nope", ["lr", "mode"])
    assert "Did you mean 'batch'?" in unknown("event", "b", ["epoch", "batch", "batch_update"])
    assert "Did you mean" not in unknown_event("validation", {"batch": ["eval_activations", "loss"]})
    assert "Did you mean 'accuracy'?" in unknown("observable", "acc", ["loss", "accuracy"])
    assert "Did you mean 'where'?" in unknown("stage", "filter", ["where", "first"])
    assert "Did you mean 'filters'?" in unknown("observable", "filter", ["filters", "loss"])
    assert unknown("run", "zzz", []) == "Unknown run 'zzz'. Known: none."
    assert unknown("run", "zzz", map(str, range(100, 130))).endswith("111 and 18 more.")


def test_messages_stay_short_and_quick() -> None:
    assert len(unknown("key", "x" * 10**6, ["y" * 10**6] * 10**5)) < 5_000


@pytest.mark.parametrize(
    ("text", "column", "shown"),
    [
        ("batch.lss", 6, "  batch.lss\n        ^"),
        ("(a\n + b.c)", 8, "   + b.c)\n       ^"),
        ("λé.x", 3, "  λé.x\n     ^"),
        ("损失.x", 3, "  损失.x\n       ^"),
        ("a", 9, "  a\n   ^"),
        ("\ta.b", 3, "  \ta.b\n  \t  ^"),
    ],
)
def test_the_caret_stands_under_the_place(text: str, column: int, shown: str) -> None:
    assert caret(text, column) == shown
    assert str(QuerySyntaxError("No", text=text, column=column)) == f"No\n{shown}"


def test_a_long_line_is_cut_around_the_place() -> None:
    line, under = caret("x" * 500 + "!" + "y" * 500, 500).split("\n")
    assert len(line) < 110
    assert line[under.index("^")] == "!"


def test_the_tree_of_errors() -> None:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, errors.SightglassError) for kind in classes)
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in classes)


@pytest.mark.parametrize(
    "error",
    [
        errors.RefusedQueryError("No"),
        QuerySyntaxError("No"),
        errors.EvaluationError("No", event="batch", step=3.0),
        errors.WireError("No"),
    ],
)
def test_errors_survive_a_process_boundary(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_work_of_a_thread_and_its_waiting_for_a_processor_fit_into_the_time_that_passed():
    clock = SystemClock()
    began = clock.monotonic(), clock.cpu(), clock.queued()
    while clock.cpu() - began[1] < 0.02:
        pass
    cpu_s, queued_s, wall_s = clock.cpu() - began[1], clock.queued() - began[2], clock.monotonic() - began[0]
    assert queued_s >= 0
    assert cpu_s + queued_s <= wall_s * 1.05 + 0.01
