"""When a rule tells: laws against a slow judge, and the cases that people mean."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sightglass.rules.judge import RuleInRun
from sightglass.rules.rules import CheckedRule


def rule(*, for_s=0.0, wait_s=0.0, momentary=False):
    return CheckedRule(name="r", key="k", for_s=for_s, wait_s=wait_s, momentary=momentary)


def told(case, seen):
    """Return when a case tells, of pairs of a time and whether the condition holds; `None` is a look without news."""
    return [
        now_s for now_s, holds in seen if (case.is_due(now_s) if holds is None else case.saw(holds, "about", now_s))
    ]


def slow(seen, *, for_s, wait_s):
    """Return the same by looking at all that was seen each time."""
    found, armed = [], True
    for i, (now_s, holds) in enumerate(seen):
        known = [pair for pair in seen[: i + 1] if pair[1] is not None]
        if holds is False:
            armed = True
        if not known or not known[-1][1] or not armed:
            continue
        since_s = known[-1][0]
        for at_s, held in reversed(known):
            if not held:
                break
            since_s = at_s
        if now_s - since_s >= for_s and (not found or now_s - found[-1] >= wait_s):
            found.append(now_s)
            armed = False
    return found


SEEN = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([True, False, None])), max_size=30).map(
    lambda steps: [(sum(step for step, _ in steps[: i + 1]), holds) for i, (_, holds) in enumerate(steps)]
)


@given(SEEN, st.integers(0, 12), st.integers(0, 12))
def test_it_tells_when_a_slow_judge_does(seen, for_s, wait_s):
    assert told(RuleInRun(rule(for_s=for_s, wait_s=wait_s)), seen) == slow(seen, for_s=for_s, wait_s=wait_s)


@given(SEEN, st.integers(0, 12))
def test_what_is_momentary_tells_each_time_that_is_far_enough_from_the_last(seen, wait_s):
    expected = []
    for now_s, holds in seen:
        if holds and (not expected or now_s - expected[-1] >= wait_s):
            expected.append(now_s)
    assert told(RuleInRun(rule(wait_s=wait_s, momentary=True)), seen) == expected


def test_what_holds_is_told_once_until_it_did_not_hold():
    assert told(RuleInRun(rule()), [(0, True), (1, True), (2, None), (3, False), (4, True)]) == [0, 4]


def test_it_holds_long_enough_also_while_no_event_comes():
    assert told(RuleInRun(rule(for_s=5)), [(0, True), (4, None), (5, None), (6, None)]) == [5]


def test_it_counts_evaluations_and_keeps_the_last_value():
    case = RuleInRun(rule())
    for i in range(214):
        case.saw(False, i / 690, float(i))
    assert (case.n_evaluated, round(case.last, 2), case.n_told) == (214, 0.31, 0)
