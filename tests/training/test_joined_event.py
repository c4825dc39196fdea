"""A query that joins another event sees the latest one before each of its own, never a wrong one, within the limits."""

from __future__ import annotations

from threading import Thread

import numpy as np

import sightglass as sg
from sightglass.core.columns import COMPLETE
from sightglass.core.errors import EvaluationError
from sightglass.query.meter import MAX_BYTES

JOINED = "on('batch').join('epoch').map(lambda b: (b.x, b.epoch.x))"


def flags(subscription):
    """Return value, number of events, and whether complete, of each row."""
    extras = [(row[3], row[4] or (1, COMPLETE, None)) for row in subscription.rows]
    return [(value, n_events, bool(bits & COMPLETE)) for value, (n_events, bits, _) in extras]


def test_each_event_has_the_latest_of_the_other_and_those_before_the_first_are_left_out_and_counted(bench, values):
    run = bench()
    asked = run.ask(JOINED)
    for x in range(6):
        run.observe("batch", x=x)
        if x in (1, 3):
            run.observe("epoch", x=10 * x)
    assert values(asked) == [(2, 10), (3, 10), (4, 30), (5, 30)]
    assert asked.n_unpaired == 2
    assert asked.n_errors == asked.n_skipped == 0


def test_a_window_of_pairs_is_complete_before_the_first_and_incomplete_where_the_latest_was_not_read(bench):
    run = bench()
    early = run.ask("on('batch').join('epoch').map(lambda b: b.epoch.x).sum(every=2)")
    run.observe("batch")
    run.observe("epoch", x=1)
    run.observe("batch")
    late = run.ask("on('batch').join('epoch').map(lambda b: b.epoch.x + 0).sum(every=2)")
    run.observe("batch")
    run.observe("epoch", x=5)
    run.observe("batch")
    assert flags(early) == [(1, 1, True), (6, 2, True)]
    assert flags(late) == [(5, 1, False)]
    assert late.n_unpaired == 1


def test_who_asks_late_begins_with_the_snapshot_if_it_is_the_latest(bench, values):
    run = bench()
    run.observe("epoch", x=1, snapshot=True)
    asked = run.ask(JOINED)
    run.observe("batch", x=0)
    run.observe("epoch", x=2)
    stale = run.ask("on('batch').join('epoch').map(lambda b: (b.epoch.x, b.x))")
    run.observe("batch", x=1)
    assert values(asked) == [(0, 1), (1, 2)]
    assert values(stale) == []
    assert stale.n_unpaired == 1


def test_what_is_joined_is_a_copy_of_what_the_query_reads(bench, values):
    run = bench()
    asked = run.ask("on('batch').join('epoch').map(lambda b: b.epoch.w.sum() + b.epoch.config.lr)")
    weights, config = np.ones(3), {"lr": 0.5, "unread": np.ones(1000)}
    run.observe("epoch", w=weights, config=config, other=np.ones(1000))
    weights[:], config["lr"] = 7.0, 9.0
    run.observe("batch")
    assert values(asked) == [3.5]
    assert asked.held_bytes < 200


def test_two_events_are_joined_each_with_its_own_latest(bench, values):
    run = bench()
    asked = run.ask("on('batch').join('epoch').join('val/eval').map(lambda b: b.epoch.x + b['val/eval'].x)")
    run.observe("epoch", x=1)
    run.observe("batch")
    run.observe("val/eval", x=10)
    run.observe("batch")
    run.observe("epoch", x=2)
    run.observe("batch")
    assert values(asked) == [11, 12]
    assert asked.n_unpaired == 1


def test_conditions_keys_and_windows_see_the_pair(bench, values):
    run = bench()
    asked = run.ask(
        "on('batch').join('epoch').where(lambda b: b.x > b.epoch.x).map(lambda b: b.x)"
        ".sum(by=lambda b: b.epoch.x, when=lambda b: b.x == b.epoch.x + 4)"
    )
    for x in range(20):
        if x % 5 == 0:
            run.observe("epoch", x=x)
        run.observe("batch", x=x)
    assert values(asked) == [{"0": 10}, {"5": 30}, {"10": 50}, {"15": 70}]


def test_the_joined_event_may_close_the_windows_too(bench, values):
    run = bench()
    asked = run.ask("on('batch').join('epoch').map(lambda b: b.x * b.epoch.x).sum(per='epoch')")
    for epoch in range(3):
        run.observe("epoch", x=epoch)
        for x in range(3):
            run.observe("batch", x=x)
    assert values(asked) == [0, 3]


def test_a_call_of_log_without_the_name_is_passed_over(bench, values):
    run = bench()
    asked = run.ask("on('batch').join('log').map(lambda b: b.log['val/acc'])")
    run.observe("batch")
    run.log({"val/acc": 0.5})
    run.log({"loss": 1.0})
    run.observe("batch")
    assert values(asked) == [0.5]
    assert not asked.n_errors


def test_the_latest_is_the_one_whose_turn_came_last_whichever_thread_it_is_from(bench, values):
    run = bench()
    asked = run.ask(JOINED)
    for x in range(3):
        thread = Thread(target=run.observe, args=("epoch",), kwargs={"x": x})
        thread.start()
        thread.join()
        run.observe("batch", x=x)
    assert values(asked) == [(0, 0), (1, 1), (2, 2)]


def test_a_joined_event_that_fails_is_named_and_never_replaced_by_an_earlier_one(bench, values):
    run = bench()
    asked = run.ask(JOINED)
    run.observe("epoch", x=1)
    run.observe("batch", x=0)
    run.observe("epoch", y=1)
    run.observe("batch", x=1)
    assert values(asked) == [(0, 1)]
    assert asked.n_unpaired == asked.n_errors == 1
    assert "Unknown observable 'x' at event 'epoch'" in str(asked.last_error)
    run.observe("epoch", y=1)
    run.observe("epoch", y=1)
    assert asked.suspended


def test_what_a_query_holds_of_another_event_is_within_the_rule_of_harm(bench, values):
    run = bench(aside=True)
    asked = run.ask("on('batch').join('epoch').map(lambda b: b.epoch.x[0])")
    run.observe("epoch", x=np.zeros(MAX_BYTES // 8 + 1))
    run.observe("batch")
    assert values(asked) == []
    assert asked.held_bytes == 0
    assert asked.n_errors == 1
    assert "64 MiB" in str(asked.last_error)
    run.observe("epoch", x=np.ones(4))
    run.observe("batch")
    assert values(asked) == [1.0]


def test_the_copies_of_all_queries_together_are_within_the_rule_of_harm(bench):
    run = bench(aside=True)
    several = [run.ask(f"on('batch').join('epoch').map(lambda b: b.epoch.x[{i}])") for i in range(8)]
    run.observe("epoch", x=np.zeros(1))
    for joined in run.telemetry.subscriptions.sources["epoch"].joins:
        joined._evaluation.meter.max_bytes = 2**20 + 2**10  # of other values
    run.observe("epoch", x=np.zeros(2**16))  # half of that
    run.observe("batch")
    held = [one.held_bytes for one in several]
    assert sum(held) == 2**20
    assert [bool(one.n_unpaired) for one in several] == [not n_bytes for n_bytes in held]
    for _ in range(3):  # what is held makes room for what comes in its place
        run.observe("epoch", x=np.zeros(2**16))
        run.observe("batch")
    assert [one.held_bytes for one in several] == held


def test_a_joined_event_for_which_there_is_no_time_gives_no_pair(bench, values):
    run = bench(aside=True)
    asked = run.ask(JOINED)
    run.observe("epoch", x=1)
    (joined,) = run.telemetry.subscriptions.sources["epoch"].joins
    run.observe("batch", x=0)
    joined.skip(1, 0.0)
    run.observe("batch", x=1)
    assert values(asked) == [(0, 1)]
    assert asked.n_unpaired == 1


def test_a_thinned_query_copies_as_rarely_as_it_is_evaluated(bench, values):
    run = bench()
    asked = run.ask("on('epoch').join('batch').map(lambda e: e.batch.x)")
    asked.stride = 4
    for x in range(16):
        run.observe("batch", x=x)
        run.observe("epoch")
    assert values(asked) == [0, 4, 8, 12]


def test_events_without_queries_stay_idle_and_a_closed_query_joins_no_more(bench):
    run = bench()
    run.observe("epoch", x=1)
    run.observe("batch", x=1)
    assert {"epoch", "batch"} <= run.telemetry.subscriptions.idle.keys()
    asked = run.ask(JOINED)
    assert not {"epoch", "batch"} & run.telemetry.subscriptions.idle.keys()
    run.telemetry.close_subscription(asked)
    assert {"epoch", "batch"} <= run.telemetry.subscriptions.idle.keys()


def test_a_query_that_joins_an_event_of_a_compiled_step_says_what_to_do(bench):
    run = bench()
    run.telemetry.subscriptions.source("train", "live")
    known, own = run.ask("on('batch').join('train').count()"), run.ask("on('train').join('batch').count()")
    later = run.ask("on('batch').join('unknown').count()")
    run.telemetry.subscriptions.source("unknown", "attached")
    for one in (known, own, later):
        assert one.suspended
        assert isinstance(one.last_error, EvaluationError)
        assert "to observe" in str(one.last_error)


def test_a_client_that_closes_its_own_groups_keeps_its_pairs(bench, values):
    run = bench()
    asked = run.ask("on('batch').join('epoch').map(lambda b: b.epoch.x).sum()")
    run.observe("epoch", x=3)
    run.observe("batch")
    own = asked.fork(99)
    run.telemetry.open(own, replay=False)
    run.observe("batch")
    run.observe("epoch", x=1)
    run.observe("batch")
    own.tail.end_group()
    assert values(own) == [7]


def test_the_note_says_what_a_pair_waits_for():
    with sg.init("joins") as run, sg.connect(run) as client:
        run.observe("batch", x=1)
        first = client.stream("on('batch').join('epoch').count(every=2)")
        assert "event 'epoch'" in first.note
        run.close()
    with sg.init("joins") as run, sg.connect(run) as client:
        run.observe("batch", x=1)
        run.observe("epoch", x=1)
        late = client.stream("on('batch').join('epoch').count(every=2)")
        assert "latest 'epoch'" in late.note
