"""Windows of several members, merged on a given clock: late, dead, restarted and new members."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.client.many.window_merger import MemberWindow, MergedWindow, WindowMerger
from sightglass.query.reduce.table import reducer

HOLD_S = 5.0


def merger(n: int = 2, *, name: str = "sum", each: bool = False) -> WindowMerger[int]:
    return WindowMerger(reducer(name, {}), range(n), hold_s=HOLD_S, each=each)


def window(value: Any, **fields: Any) -> MemberWindow:
    return MemberWindow(state=value, **fields)


def told(made: list[MergedWindow[int]]) -> list[tuple[Any, bool, tuple[int, ...]]]:
    return [(one.value, one.complete, one.missing) for one in made]


def test_a_window_comes_out_when_all_have_sent_it() -> None:
    windows = merger(3)
    assert windows.push(2, 0, window(4, step=9, wall_time=3.0, n_events=2), 0.0) == []
    assert windows.push(0, 0, window(1, step=7, wall_time=5.0), 0.1) == []
    assert (windows.n_waiting, windows.awaited) == (1, [1])
    (made,) = windows.push(1, 0, window(2, step=8, wall_time=4.0), 0.2)
    assert (made.value, made.step, made.wall_time, made.n_events) == (7, 9, 5.0, 4)
    assert (made.complete, made.closed, made.missing, windows.n_waiting) == (True, True, (), 0)


def test_windows_come_out_in_order_and_a_later_one_says_that_an_earlier_one_is_missing() -> None:
    windows = merger()
    assert windows.push(0, 0, window(1), 0.0) == windows.push(0, 1, window(2), 0.0) == []
    assert told(windows.push(1, 1, window(5), 0.0)) == [(1, False, (1,)), (7, True, ())]


def test_a_late_member_holds_a_window_for_a_time_and_is_named() -> None:
    windows = merger(3)
    windows.push(0, 0, window(1), 0.0)
    windows.push(2, 0, window(1), 3.0)
    assert windows.take(HOLD_S - 0.1) == []
    assert told(windows.take(HOLD_S)) == [(2, False, (1,))]
    assert told(windows.push(1, 0, window(1), 6.0)) == []
    assert windows.n_late == 1
    for rank in (0, 1):
        assert windows.push(rank, 1, window(1), 7.0) == []
    assert told(windows.push(2, 1, window(1), 7.0)) == [(3, True, ())], "who was late is waited for again"


def test_a_dead_member_is_not_waited_for_and_is_named() -> None:
    windows = merger()
    windows.push(0, 0, window(1), 0.0)
    assert told(windows.leave(1, 0.5)) == [(1, False, (1,))]
    assert told(windows.push(0, 1, window(2), 0.6)) == [(2, False, (1,))]


def test_a_member_whose_run_ended_is_missing_in_no_later_window() -> None:
    windows = merger()
    windows.push(1, 0, window(1, closed=False), 0.0)
    assert windows.leave(1, 0.0, ended=True) == []
    (first,) = windows.push(0, 0, window(1), 0.0)
    assert (first.value, first.complete, first.closed) == (2, True, False)
    assert told(windows.push(0, 1, window(3), 0.0)) == [(3, True, ())]


def test_a_member_that_starts_a_minute_later_joins_the_windows_of_then() -> None:
    windows = merger()
    windows.leave(1, 0.0)
    for key in range(60):
        assert told(windows.push(0, key, window(1), float(key))) == [(1, False, (1,))]
    windows.join(1)
    assert windows.push(0, 60, window(1), 60.0) == []
    assert told(windows.push(1, 60, window(1), 60.1)) == [(2, True, ())]


def test_members_that_restart_together_begin_again_together() -> None:
    windows = merger()
    for rank in (0, 1):
        windows.push(rank, 7, window(1), 0.0)
    windows.push(0, 8, window(1), 0.0)
    windows.restart(0)
    assert windows.push(0, 0, window(2), 1.0) == [], "the other one may still send window 8"
    windows.restart(1)
    assert told(windows.push(1, 0, window(3), 2.0)) == [(1, False, (1,)), (5, True, ())]
    assert windows.n_late == 0


def test_one_that_restarts_alone_is_left_out_and_the_others_go_on() -> None:
    windows = merger(3)
    for rank in range(3):
        windows.push(rank, 7, window(1), 0.0)
    windows.restart(1)
    assert windows.push(1, 0, window(50), 1.0) == []
    assert (windows.restarted, windows.awaited) == ([1], [])
    assert windows.take(1.0 + HOLD_S) == []
    assert (windows.n_waiting, windows.n_late) == (0, 1)
    windows.push(0, 8, window(2), 20.0)
    assert told(windows.push(2, 8, window(3), 20.0)) == [(5, False, (1,))]
    windows.push(1, 1, window(50), 21.0)
    made = []
    for rank in (0, 2):
        windows.restart(rank)
        made += windows.push(rank, 1, window(rank), 22.0)
    assert told(made) == [(52, True, ())], "all of them begin again"
    assert windows.restarted == []


def test_one_that_restarts_is_merged_when_nobody_else_is_left() -> None:
    windows = merger()
    windows.push(0, 7, window(1), 0.0)
    windows.restart(1)
    assert told(windows.push(1, 0, window(2), 0.0)) == [(1, False, (1,))]
    assert told(windows.leave(0, 1.0, ended=True)) == [(2, False, (0,))]


def test_one_that_restarts_twice_is_found_by_one_that_restarts_once() -> None:
    windows = merger()
    windows.restart(0)
    windows.restart(0)
    windows.restart(1)
    windows.push(0, 0, window(1), 0.0)
    assert told(windows.push(1, 0, window(1), 0.0)) == [(2, True, ())]


def test_a_new_member_counts_from_the_last_restart() -> None:
    windows = merger()
    for rank in (0, 1):
        windows.restart(rank)
    windows.join(2)
    for rank in (0, 1):
        windows.push(rank, 0, window(1), 0.0)
    assert told(windows.push(2, 0, window(1), 0.0)) == [(3, True, ())]


def test_a_span_that_comes_twice_is_one() -> None:
    windows = merger()
    windows.push(0, 5, window(1), 0.0)
    windows.push(0, 5, window(2, complete=False), 0.0)
    assert told(windows.push(1, 5, window(4), 0.0)) == [(7, False, ())]


def test_a_window_without_values_gives_no_record_but_a_count() -> None:
    for name, wanted in (("max", []), ("count", [(0, True, ())])):
        windows = merger(name=name)
        empty = reducer(name, {}).start()
        windows.push(0, 0, window(empty, n_values=0), 0.0)
        assert told(windows.push(1, 0, window(empty, n_values=0), 0.0)) == wanted
    windows = merger(name="max")
    windows.push(0, 0, window(reducer("max", {}).start(), n_values=0), 0.0)
    assert told(windows.push(1, 0, window(3.5), 0.0)) == [(3.5, True, ())]


def test_each_member_may_have_its_own_result() -> None:
    windows = merger(3, each=True)
    windows.push(2, 0, window(5), 0.0)
    windows.push(0, 0, window(1), 0.0)
    assert told(windows.take(HOLD_S)) == [({0: 1, 2: 5}, False, (1,))]


def test_what_cannot_be_merged_costs_its_window() -> None:
    windows = merger()
    windows.push(0, 0, window(np.zeros(2)), 0.0)
    assert windows.push(1, 0, window(np.zeros(3)), 0.0) == []
    assert windows.n_errors == 1
    assert "arrays of one shape" in windows.last_error
    windows.push(0, 1, window(1), 0.0)
    assert told(windows.push(1, 1, window(1), 0.0)) == [(2, True, ())]


def test_infinities_merge_without_a_warning() -> None:
    windows = merger(name="var")
    windows.push(0, 0, window((2, np.array([np.inf, 1.0]), np.array([np.nan, 0.0]))), 0.0)
    (made,) = windows.push(1, 0, window((2, np.array([-np.inf, 3.0]), np.array([np.nan, 0.0]))), 0.0)
    np.testing.assert_allclose(made.value, [np.nan, 1.0])


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightglass.client.many.window_merger.MAX_HELD_BYTES", 10_000)
    windows = merger()
    made = [one for key in range(100) for one in windows.push(0, key, window(np.zeros(100)), 0.0)]
    assert [one.missing for one in made] == [(1,)] * len(made)
    assert windows.n_waiting <= 12
    assert len(made) + windows.n_waiting == 100


def test_the_end_brings_what_waits() -> None:
    windows = merger()
    windows.push(0, 0, window(1), 0.0)
    windows.push(0, 1, window(2), 0.0)
    assert told(windows.finish()) == [(1, False, (1,)), (2, False, (1,))]


@settings(max_examples=examples(100), deadline=None)
@given(
    n=st.integers(1, 6), n_windows=st.integers(1, 12), seed=st.integers(0, 2**32),
    faults=st.lists(st.sampled_from(["late", "dies", "skips"]), max_size=3),
)  # fmt: skip
def test_every_value_is_in_one_window_or_its_member_is_named(
    n: int, n_windows: int, seed: int, faults: list[str]
) -> None:
    """Each member sends 10**rank in each window; a digit of the sum tells who is in it."""
    rng = random.Random(seed)
    windows, now_s = merger(n), 0.0
    lists = {rank: list(range(n_windows)) for rank in range(n)}
    dies: dict[int, int] = {}
    for fault in faults:
        rank = rng.randrange(n)
        if fault == "dies":
            dies[rank] = rng.randrange(n_windows)
        if fault == "skips" and lists[rank]:
            lists[rank].pop(rng.randrange(len(lists[rank])))
    made, n_sent, gone = [], 0, set()
    while any(lists[rank] for rank in range(n) if rank not in gone):
        rank = rng.choice([rank for rank in range(n) if lists[rank] and rank not in gone])
        now_s += rng.choice([0.0, 0.01, HOLD_S if "late" in faults else 0.0])
        if dies.get(rank) == lists[rank][0]:
            gone.add(rank)
            made += windows.leave(rank, now_s)
            continue
        made += windows.push(rank, lists[rank].pop(0), window(10**rank), now_s)
        n_sent += 1
    made += windows.finish()
    for one in made:
        digits = {rank for rank in range(n) if one.value // 10**rank % 10}
        assert one.value == sum(10**rank for rank in digits), "nobody is in a window twice"
        assert set(one.missing) == set(range(n)) - digits
        assert one.complete == (not one.missing)
    assert sum(n - len(one.missing) for one in made) + windows.n_late == n_sent
    if not faults:
        assert [one.missing for one in made] == [()] * n_windows
