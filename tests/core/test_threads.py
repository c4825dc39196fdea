"""Loops under supervision, and the threads that run them."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.counts import MAX_KINDS, Failures
from sightglass.core.process import threads, unpatched
from sightglass.core.process.threads import (
    BACKOFF_S,
    FORGIVEN_S,
    MAX_BACKOFF_S,
    UNTIL_WOKEN,
    Supervised,
    Worker,
    short_turns,
)
from sightglass.core.program_values.guarded import message

WAIT_S = 30.0


class Mute(RuntimeError):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise self


class Loop:
    """A loop that counts its rounds, and fails when it is told to."""

    def __init__(self, plan: str = "") -> None:
        self.plan = list(plan)
        self.n_rounds = self.n_resets = 0
        self.closing = False

    def round(self, now_s: float) -> float | None:
        self.n_rounds += 1
        match self.plan.pop(0) if self.plan else ".":
            case "x":
                raise Mute
            case "X":
                raise SystemExit(3)
            case "c":
                raise KeyboardInterrupt
        return None if self.closing else UNTIL_WOKEN

    def reset(self) -> None:
        self.n_resets += 1


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@given(st.lists(st.tuples(st.sampled_from("xX."), st.sampled_from([0.0, 1.0, FORGIVEN_S, 61.0])), max_size=40))
def test_a_second_failure_starts_the_loop_over_and_none_ends_it(plan: list[tuple[str, float]]) -> None:
    loop = Loop("".join(kind for kind, _ in plan))
    supervised = Supervised("test", loop.round, reset=loop.reset)
    n_recent, n_resets, now_s, failed_s = 0, 0, 0.0, -1e9
    for kind, pause_s in plan:
        now_s += pause_s
        rest_s = supervised.round(now_s)
        if kind == ".":
            assert rest_s == UNTIL_WOKEN
            continue
        n_recent = n_recent + 1 if now_s - failed_s <= FORGIVEN_S else 1
        failed_s = now_s
        n_resets += n_recent > 1
        assert rest_s == (0.0 if n_recent == 1 else min(MAX_BACKOFF_S, BACKOFF_S * 2 ** (n_recent - 2)))
    assert supervised.n_restarts == loop.n_resets == n_resets
    assert supervised.failures.n == sum(kind != "." for kind, _ in plan)


def test_a_reset_that_fails_is_counted_too() -> None:
    loop = Loop("xx.")

    def fail() -> None:
        raise Mute

    supervised = Supervised("test", loop.round, reset=fail)
    assert [supervised.round(0.0) for _ in range(3)] == [0.0, BACKOFF_S, UNTIL_WOKEN]
    assert supervised.failures.n == 3
    assert supervised.failures.last == "it cannot start over: Mute"


def test_a_loop_that_shall_end_gives_up_after_two_failures() -> None:
    supervised = Supervised("test", Loop("xxxx").round)
    supervised.closing = True
    assert [supervised.round(0.0) for _ in range(2)] == [0.0, None]


def test_each_kind_of_failure_is_warned_of_once_and_all_are_counted() -> None:
    failures = Failures("Here")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(3 * MAX_KINDS):
            failures.add(ValueError(str(n % (2 * MAX_KINDS))), "This is lost")
    assert failures.n == 3 * MAX_KINDS
    assert [str(one.message) for one in caught] == [f"Here: This is lost: ValueError: {n}" for n in range(MAX_KINDS)]


def test_a_warning_that_is_an_error_is_not_another_failure() -> None:
    failures = Failures("Here")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failures.add(ValueError("x"), "This is lost")
    assert (failures.n, failures.last) == (1, "This is lost: ValueError: x")


def test_an_error_is_text_whatever_it_does() -> None:
    assert message(Mute()) == "Mute"
    assert message(ValueError()) == "ValueError"
    assert message(KeyError("a")) == "KeyError: 'a'"


def test_a_worker_rests_until_it_is_woken() -> None:
    loop = Loop()
    worker = Worker("test", loop.round)
    assert worker.flush(WAIT_S)
    assert worker.flush(WAIT_S)
    loop.closing = True
    assert worker.close(WAIT_S)
    n = loop.n_rounds
    assert 3 <= n <= 6
    worker.wake()
    assert not worker.flush(0.01)
    assert loop.n_rounds == n


def test_a_worker_waits_as_it_is_told() -> None:
    loop, woken = Loop(), threading.Event()
    rests: list[float] = []

    def wait(rest_s: float) -> None:
        rests.append(rest_s)
        woken.wait(WAIT_S)
        woken.clear()

    worker = Worker("test", loop.round, wait=wait, wake=woken.set)
    assert worker.flush(WAIT_S)
    loop.closing = True
    assert worker.close(WAIT_S)
    assert set(rests) == {UNTIL_WOKEN}


def test_a_loop_that_fails_rests_even_if_it_is_woken() -> None:
    loop = Loop("x" * 1000)
    worker = Worker("test", loop.round)
    for _ in range(200):
        worker.wake()
    worker.flush(WAIT_S)
    assert loop.n_rounds < 10
    loop.closing = True
    assert worker.close(WAIT_S)


def test_an_interrupt_of_the_main_thread_is_the_users() -> None:
    loop = Loop("c")
    with pytest.raises(KeyboardInterrupt):
        Supervised("test", loop.round).round(0.0)
    loop.plan = ["c"]
    worker = Worker("test", loop.round)  # raised by a function of the program, on another thread
    assert worker.flush(WAIT_S)
    loop.closing = True
    assert worker.close(WAIT_S)
    assert worker.supervised.failures.n == 1


def test_a_failing_loop_still_flushes_and_ends() -> None:
    loop = Loop("xx" * 50)
    worker = Worker("test", loop.round)
    assert not worker.flush(WAIT_S)  # it says so at the second failure, when the loop starts over
    assert worker.supervised.n_restarts == 1
    loop.closing = True
    assert worker.close(WAIT_S)


def test_a_flush_waits_for_the_round_after_one_that_failed() -> None:
    loop = Loop("x")
    worker = Worker("test", loop.round)
    assert worker.flush(WAIT_S)
    assert loop.n_rounds == 2
    loop.closing = True
    assert worker.close(WAIT_S)


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_can_start_the_caller_runs_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpatched.threading.Thread, "start", refuse)
    loop = Loop()
    worker = Worker("test", loop.round)
    worker.wake()
    assert loop.n_rounds == 0
    assert worker.flush(1.0)
    assert loop.n_rounds == 1
    assert not worker.join(0.0)
    assert "can't start new thread" in worker.supervised.failures.last
    loop.closing = True
    assert worker.close(1.0)
    assert loop.n_rounds == 2


def test_a_thread_is_started_later_where_there_was_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(unpatched.threading.Thread, "start", refuse)
        loop = Loop()
        worker = Worker("test", loop.round)
        worker.wake()
    worker._start_at_s = 0.0
    worker.wake()
    assert worker.alive
    loop.closing = True
    assert worker.close(WAIT_S)


def threads_of(call: Callable[[], Any]) -> set[str]:
    before = {thread.name for thread in threading.enumerate()}
    call()
    return {thread.name for thread in threading.enumerate()} - before


class Interpreter:
    """Cuts its switch interval off to whole microseconds, as the real one does, which all threads share."""

    def __init__(self) -> None:
        self.interval_us = 5_000

    def getswitchinterval(self) -> float:
        return 1e-6 * self.interval_us

    def setswitchinterval(self, interval_s: float) -> None:
        self.interval_us = int(interval_s * 1e6)


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Interpreter:
    interpreter = Interpreter()
    monkeypatch.setattr(threads, "sys", interpreter)
    monkeypatch.setattr(threads, "_turns", threads._Turns())
    return interpreter


def test_turns_are_short_until_the_last_has_worked(interpreter: Interpreter) -> None:
    with short_turns():
        with short_turns():
            assert interpreter.interval_us == 200
        assert interpreter.interval_us == 200
    assert interpreter.interval_us == 5_000


@pytest.mark.parametrize("theirs_us", [20_000, 49])
def test_an_interval_that_the_program_sets_stays(interpreter: Interpreter, theirs_us: int) -> None:
    with short_turns():
        interpreter.interval_us = theirs_us
    assert interpreter.interval_us == theirs_us
    with short_turns():
        assert interpreter.interval_us == min(200, theirs_us)
    assert interpreter.interval_us == theirs_us


def test_what_was_there_before_a_short_turn_is_collected_after_it() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    cycle = Cycle()
    old = weakref.ref(cycle)
    with short_turns(), short_turns():
        del cycle
        new = weakref.ref(Cycle())
        gc.collect()
        assert old() is not None
        assert new() is None
    assert not gc.get_freeze_count()
    gc.collect()
    assert old() is None


def test_what_the_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        n_frozen = gc.get_freeze_count()
        _young = [[] for _ in range(1_000)]
        with short_turns():
            assert gc.get_freeze_count() <= n_frozen
        assert gc.get_freeze_count() > n_frozen / 2
    finally:
        gc.unfreeze()


def test_threads_have_names() -> None:
    loop = Loop()
    worker = Worker("named", loop.round)
    assert threads_of(worker.wake) == {"sightglass-named"}
    loop.closing = True
    worker.close(WAIT_S)


def test_a_wait_that_fails_does_not_end_the_loop() -> None:
    loop, woken, n_waits = Loop(), threading.Event(), []

    def wait(rest_s: float) -> None:
        n_waits.append(rest_s)
        if len(n_waits) < 3:
            raise SystemExit(3)
        woken.wait(WAIT_S)
        woken.clear()

    worker = Worker("test", loop.round, wait=wait, wake=woken.set)
    for _ in range(4):
        assert worker.flush(WAIT_S)
    loop.closing = True
    assert worker.close(WAIT_S)
    assert (worker.supervised.failures.n, worker.supervised.failures.last) == (2, "it cannot wait: SystemExit: 3")
