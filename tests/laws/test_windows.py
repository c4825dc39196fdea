"""Windows against a slow reference: cut the list of events into slices, and reduce each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.query.windows import PipelineItem

HELD = object()
PERIOD_S = 10.0


@dataclass(frozen=True)
class Happening:
    """One thing of a run, in order: an event, or a boundary between two events."""

    kind: str = "event"
    x: int = 0
    keep: bool = True
    cut: bool = False
    missed: bool = False
    gap_s: float = 1.0


@dataclass(frozen=True)
class Mark:
    """A point of a reference timeline: an item, or something that may close a window."""

    kind: str
    ordinal: int = 0
    wall_time: float = 0.0
    value: Any = HELD
    n_events: int = 1
    complete: bool = True
    closed: bool = True
    known: bool = True
    begun: bool = False


happenings = st.lists(
    st.builds(
        Happening,
        x=st.integers(-9, 9),
        keep=st.sampled_from([True, True, False]),
        cut=st.sampled_from([False, False, True]),
        gap_s=st.sampled_from([0.0, 1.0, 3.0, 7.0, 25.0]),
    )
    | st.sampled_from([Happening(kind="epoch"), Happening(kind="end_group")]),
    max_size=40,
)
WINDOWS = {
    "every=1": ("every", 1),
    "every=3": ("every", 3),
    "every=4": ("every", 4),
    "every='10 s'": ("tick", PERIOD_S),
    "when=lambda e: e.cut": ("cut", 0),
    "per='epoch'": ("epoch", 0),
    "": ("end_group", 0),
}
REDUCERS: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "count": len, "max": max, "collect": list}


def timeline(run: list[Happening], start: int) -> list[Mark]:
    marks, ordinal, wall_time = [], 0, 1000.0
    for one in run:
        if one.kind != "event":
            if ordinal >= start:
                marks.append(Mark(one.kind))
            continue
        wall_time += one.gap_s
        if ordinal >= start:
            marks.append(Mark("tick", wall_time=wall_time))
            value = one.x if one.keep and not one.missed else HELD
            marks.append(Mark("item", ordinal, wall_time, value, complete=not one.missed, known=not one.missed))
            if one.cut and not one.missed:
                marks.append(Mark("cut"))
        ordinal += 1
    return begun([*marks, Mark("finish")])


def begun(marks: list[Mark]) -> list[Mark]:
    """Mark what comes after the first event that was evaluated, and that event."""
    first = next((i for i, mark in enumerate(marks) if mark.kind == "item" and mark.known), len(marks))
    return [replace(mark, begun=i >= first) for i, mark in enumerate(marks)]


def closings(marks: list[Mark], kind: str, size: float) -> list[int]:
    """Return the places where a window closes."""
    if kind == "every":
        return [i for i, mark in enumerate(marks) if mark.kind == "item" and mark.ordinal % size == size - 1]
    if kind == "tick":
        ticks = [i for i, mark in enumerate(marks) if mark.kind == "tick"]
        period = [marks[i].wall_time // size for i in ticks]
        return [i for n, i in enumerate(ticks) if n and period[n] != period[n - 1]]
    return [i for i, mark in enumerate(marks) if mark.kind == kind]


def reference(marks: list[Mark], window: str, reducer: str) -> list[Mark]:
    kind, size = WINDOWS[window]
    ends = closings(marks, kind, size)
    groups: dict[int, Mark] = {}
    start = 0
    for number, end in enumerate([*ends, len(marks) - 1]):
        items = [mark for mark in marks[start : end + 1] if mark.kind == "item"]
        closed = number < len(ends)
        start = end + 1
        if not items and not closed:
            continue
        aligned = bool(items) and (items[0].ordinal % int(size) if kind == "every" else items[0].ordinal) == 0
        passed = [item for item in items if item.value is not HELD]
        zero = reducer == "count" and marks[end].begun
        groups[end] = Mark(
            "item",
            ordinal=items[0].ordinal // int(size) if kind == "every" else number,
            wall_time=passed[-1].wall_time if passed else 0.0,
            value=REDUCERS[reducer]([item.value for item in passed]) if passed else 0 if zero else HELD,
            n_events=sum(item.n_events for item in passed),
            complete=closed and (number > 0 or aligned) and all(item.complete for item in items),
            closed=closed and all(item.closed for item in items[-1:]),
            known=any(item.known for item in items),
            begun=marks[end].begun,
        )
    after: list[Mark] = []
    for i, mark in enumerate(marks):
        after += [groups[i]] if i in groups else []
        after += [mark] if mark.kind != "item" else []
    return after


def play(query: str, run: list[Happening], start: int = 0, *, quick: bool = False) -> list[PipelineItem]:
    """Answer a query from an event on, in the way that a run does."""
    evaluation, items, ordinal, wall_time = Evaluation(parse(query)), [], 0, 1000.0
    for one in run:
        if one.kind == "event":
            wall_time += one.gap_s
            if ordinal >= start:
                items += post(evaluation, one, ordinal, wall_time, quick)
            ordinal += 1
        elif ordinal >= start:
            items += evaluation.end_group() if one.kind == "end_group" else evaluation.boundary(one.kind)
    return [*items, *evaluation.finish()]


def post(evaluation: Evaluation, one: Happening, ordinal: int, wall_time: float, quick: bool) -> list[PipelineItem]:
    if one.missed:
        return evaluation.miss(ordinal=ordinal, wall_time=wall_time)
    observables = {"x": one.x, "keep": one.keep, "cut": one.cut}
    if quick and evaluation.only is not None:
        return list(evaluation.number(evaluation.only(observables), ordinal, (float(ordinal), wall_time, None)))
    return evaluation.across_events(
        evaluation.per_event(observables), ordinal=ordinal, step=float(ordinal), wall_time=wall_time
    )


def plain(item: PipelineItem | Mark) -> tuple[Any, ...]:
    at = item.wall_time if item.n_events else 0.0
    return (item.ordinal, item.value, item.n_events, item.complete, item.closed, at)


def expected(marks: list[Mark]) -> list[tuple[Any, ...]]:
    return [plain(mark) for mark in marks if mark.kind == "item" and mark.value is not HELD]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("reducer", REDUCERS)
@settings(max_examples=examples(25))
@given(run=happenings, start=st.integers(0, 12))
def test_a_window_holds_the_events_that_a_slow_reference_puts_into_it(
    window: str, reducer: str, run: list[Happening], start: int
) -> None:
    query = f"on('batch').where(lambda e: e.keep).map(lambda e: e.x).{reducer}({window})"
    assert [plain(item) for item in play(query, run, start)] == expected(
        reference(timeline(run, start), window, reducer)
    )


@settings(max_examples=examples(150))
@given(
    run=happenings,
    start=st.integers(0, 12),
    inner=st.sampled_from(sorted(WINDOWS)),
    outer=st.sampled_from(sorted(WINDOWS)),
    reducer=st.sampled_from(sorted(REDUCERS)),
    missed=st.sets(st.integers(0, 39)),
)
def test_reducers_nest(
    run: list[Happening], start: int, inner: str, outer: str, reducer: str, missed: set[int]
) -> None:
    run = [replace(one, missed=i in missed) for i, one in enumerate(run)]
    query = f"on('batch').where(lambda e: e.keep).map(lambda e: e.x).sum({inner}).{reducer}({outer})"
    marks = reference(timeline(run, start), inner, "sum")
    assert [plain(item) for item in play(query, run, start)] == expected(reference(marks, outer, reducer))


@settings(max_examples=examples(60))
@given(run=happenings, start=st.integers(0, 12), window=st.sampled_from(sorted(WINDOWS)))
def test_the_short_way_of_plain_numbers_gives_the_same(run: list[Happening], start: int, window: str) -> None:
    query = f"on('batch').map(lambda e: e.x).sum({window}).max(every=2)"
    assert play(query, run, start, quick=True) == play(query, run, start)


@settings(max_examples=examples(100))
@given(
    run=happenings,
    start=st.integers(0, 20),
    window=st.sampled_from(sorted(WINDOWS)),
    reducer=st.sampled_from(sorted(REDUCERS)),
)
def test_who_comes_late_gets_the_same_from_the_first_complete_group_on(
    run: list[Happening], start: int, window: str, reducer: str
) -> None:
    query = f"on('batch').where(lambda e: e.keep).map(lambda e: e.x).{reducer}({window})"
    late, early = play(query, run, start), play(query, run)
    whole = next((i for i, item in enumerate(late) if item.complete), len(late))
    assert all(item.complete or not item.closed for item in late[whole:])
    told = [plain(item)[1:] for item in late[whole:] if item.closed]
    assert told == [plain(item)[1:] for item in early if item.closed][-len(told) or len(early) :]


@settings(max_examples=examples(60))
@given(run=happenings, start=st.integers(0, 20), n=st.integers(1, 5), m=st.integers(1, 4))
def test_who_comes_late_gets_the_same_groups_of_groups(run: list[Happening], start: int, n: int, m: int) -> None:
    query = f"on('batch').where(lambda e: e.keep).map(lambda e: e.x).sum(every={n}).collect(every={m})"
    late = [item for item in play(query, run, start) if item.complete]
    early = [item for item in play(query, run) if item.complete]
    assert late == [item for item in early if item.ordinal * n * m >= start]


@settings(max_examples=examples(60))
@given(run=happenings, cut=st.integers(0, 40), window=st.sampled_from(sorted(WINDOWS)))
def test_a_copy_goes_on_by_itself(run: list[Happening], cut: int, window: str) -> None:
    evaluation = Evaluation(parse(f"on('batch').map(lambda e: e.x).collect({window})"))
    before = [item for i, one in enumerate(run[:cut]) for item in feed(evaluation, one, i)]
    fork = evaluation.fork(copy.deepcopy)
    mine = [item for i, one in enumerate(run[cut:], cut) for item in feed(evaluation, one, i)]
    theirs = [item for i, one in enumerate(run[cut:], cut) for item in feed(fork, one, i)]
    assert (mine, evaluation.finish()) == (theirs, fork.finish())
    assert len(before) <= len(run)


def feed(evaluation: Evaluation, one: Happening, ordinal: int) -> list[PipelineItem]:
    if one.kind == "event":
        return post(evaluation, one, ordinal, 1000.0 + ordinal * one.gap_s, quick=False)
    return evaluation.end_group() if one.kind == "end_group" else evaluation.boundary(one.kind)


def test_the_closing_event_belongs_to_the_group_with_every_and_when_and_not_with_a_time() -> None:
    run = [Happening(x=1, gap_s=0), Happening(x=2, cut=True, gap_s=0), Happening(x=4, gap_s=20)]
    assert [item.value for item in play("batch.x.sum(every=2)", run)] == [3, 4]
    assert [item.value for item in play("batch.x.sum(when=lambda e: e.cut)", run)] == [3, 4]
    assert [item.value for item in play("batch.x.sum(every='10 s')", run)] == [3, 4]


def test_an_empty_group_keeps_its_number() -> None:
    """Else the groups behind it would be counted wrongly by the next reducer."""
    run = [Happening(x=i, keep=not 2 <= i < 6) for i in range(12)]
    query = "on('batch').where(lambda e: e.keep).map(lambda e: e.x).sum(every=2).collect(every=2)"
    assert [(item.ordinal, item.value) for item in play(query, run)] == [(0, [1]), (1, [13]), (2, [17, 21])]


def test_a_missed_event_makes_its_own_group_incomplete() -> None:
    run = [Happening(x=i, gap_s=5, missed=i == 4) for i in range(8)]  # 1005, 1010 … 1040
    items = play("batch.x.count(every='10 s')", run)
    assert [(item.value, item.complete) for item in items[:-1]] == [(1, True), (2, True), (1, False), (2, True)]


def test_a_group_that_missed_its_very_first_event_is_not_complete() -> None:
    run = [Happening(x=i, missed=i == 0) for i in range(4)]
    assert [(item.value, item.complete) for item in play("batch.x.count(every=2)", run)] == [(1, False), (2, True)]


def test_count_says_zero_and_the_others_say_nothing() -> None:
    run = [Happening(x=i, keep=i not in (2, 3)) for i in range(6)]
    query = "on('batch').where(lambda e: e.keep).map(lambda e: e.x).{}(every=2)"
    assert [item.value for item in play(query.format("count"), run)] == [2, 0, 2]
    assert [item.value for item in play(query.format("sum"), run)] == [1, 9]


def test_nothing_is_left_at_the_end_of_a_group() -> None:
    run = [Happening(x=i) for i in range(4)]
    assert [(item.value, item.closed) for item in play("batch.x.count(every=2)", run)] == [(2, True), (2, True)]
    assert [(item.value, item.closed) for item in play("batch.x.count(every=3)", run)] == [(3, True), (1, False)]
