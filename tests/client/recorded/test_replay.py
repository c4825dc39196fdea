"""Plans: which series answer which query, and the error where none does; replay: the order of groups and records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.client.recorded.plan import list_recorded, plan
from sightglass.client.recorded.replay import Replay, horizon
from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError
from sightglass.query.parser import as_query
from sightglass.storage.format.block import Key

pytestmark = pytest.mark.smoke


def stream(query: str) -> Key:
    query = as_query(query)
    return Key(kind="stream", tag=query.tag, query=query.key)


def logged(tag: str) -> Key:
    return Key(kind="logged", tag=tag)


LOSS, LR, STEP = stream("batch.loss"), stream("batch.lr"), stream("batch.step")
HALF = stream("on('batch').map(lambda b: b.loss / 2)")
POSITIVE = stream("on('batch').where(lambda b: b.loss > 0).map(lambda b: b.loss)")
MEAN = stream("batch.loss.mean(every=10)")
EPOCH, INIT, BATCH = stream("epoch.accuracy"), Key(kind="snapshot", tag="init"), Key(kind="snapshot", tag="batch")
GROUPS = Key(kind="groups", tag="batch")
VAL, EXTRA = logged("val/loss"), logged("extra")


@pytest.mark.parametrize(("query", "recorded", "how", "keys", "n_done", "held"), [
    ("batch.loss", [LOSS], "records", {"": LOSS}, 0, False),
    ("batch.loss.mean(every=10)", [LOSS, MEAN], "records", {"": MEAN}, 0, False),
    ("batch.loss.mean(every=20)", [LOSS, MEAN], "prefix", {"": LOSS}, 1, False),
    ("on('batch').map(lambda b: b.loss).mean(every=10).max(every=2)", [LOSS, MEAN], "prefix", {"": MEAN}, 2, False),
    ("on('batch').where(lambda b: b.loss > 0).map(lambda b: b.loss).count(every=5)", [POSITIVE, LOSS], "prefix",
     {"": POSITIVE}, 2, True),
    ("on('batch').map(lambda b: b.loss * 2)", [LOSS, LR], "event", {"loss": LOSS}, 0, False),
    ("on('batch').map(lambda b: b.loss * b.lr)", [LOSS, LR], "event", {"loss": LOSS, "lr": LR}, 0, False),
    ("on('batch').map(lambda b: b['loss'] * b.step)", [LOSS], "event", {"loss": LOSS}, 0, False),
    ("on('batch').map(lambda b: b.step)", [LOSS, STEP], "records", {"": STEP}, 0, False),
    ("on('batch').map(lambda b: b.loss * b.step)", [LOSS, STEP], "event", {"loss": LOSS, "step": STEP}, 0, False),
    ("on('batch').map(lambda b: b.loss).mean(when=lambda b: b.lr > 1)", [LOSS, LR], "event",
     {"loss": LOSS, "lr": LR}, 0, False),
    ("on('init').map(lambda e: e.params)", [INIT, LOSS], "event", {"": INIT}, 0, False),
    ("on('batch').map(lambda b: b.loss * 2)", [LOSS, BATCH], "event", {"loss": LOSS}, 0, False),
    ("on('batch').map(lambda b: b.grads)", [LOSS, BATCH], "event", {"": BATCH}, 0, False),
    ("on('batch').map(lambda b: b)", [LOSS, BATCH], "event", {"": BATCH}, 0, False),
    ("on('log').map(lambda e: e['val/loss'])", [VAL], "records", {"": VAL}, 0, False),
    ("on('log').map(lambda e: e.extra)", [VAL, EXTRA], "records", {"": EXTRA}, 0, False),
    ("on('log').map(lambda e: e['val/loss']).mean(every=3)", [VAL], "prefix", {"": VAL}, 1, True),
    ("on('log').map(lambda e: e['val/loss'] + e.extra)", [VAL, EXTRA], "event",
     {"val/loss": VAL, "extra": EXTRA}, 0, True),
    ("on('log').map(lambda e: e)", [VAL, EXTRA, LOSS], "event", {"val/loss": VAL, "extra": EXTRA}, 0, True),
    ("on('log').count()", [VAL], "event", {"val/loss": VAL}, 0, True),
])  # fmt: skip
def test_the_series_that_answer(query, recorded, how, keys, n_done, held):
    for order in (recorded, recorded[::-1]):
        found = plan(as_query(query), order)
        assert (found.how, dict(found.keys), found.n_done, found.held) == (how, keys, n_done, held)


@pytest.mark.parametrize(("query", "recorded", "message"), [
    ("on('batch').map(lambda b: b.loss)", [],
     "batch.loss cannot be answered from the recorded series. Nothing was recorded."),
    ("on('batch').map(lambda b: b.loss)", [LR, INIT, VAL],
     "batch.loss cannot be answered from the recorded series. "
     "Recorded: batch.lr. Snapshots: on('init'). Logged: 'val/loss'."),
    ("on('batch').map(lambda b: b.loss * b.lr)", [LOSS],
     "batch.loss * batch.lr cannot be answered from the recorded series. Recorded: batch.loss."),
    ("on('batch').map(lambda b: b.loss)", [HALF, MEAN],
     "batch.loss cannot be answered from the recorded series. "
     "Recorded: batch.loss / 2, batch.loss.mean(every=10)."),
    ("on('batch').map(lambda b: b.loss).mean(when=lambda b: b.lr > 1)", [LOSS],
     "cannot be answered from the recorded series. Recorded: batch.loss."),
    ("on('log').map(lambda e: e['val/los'])", [VAL],
     "cannot be answered from the recorded series. Logged: 'val/loss'."),
    ("batch.loss.mean(per='epoch')", [LOSS],
     "per='epoch' needs a record of each event 'epoch', such as of on('epoch').map(lambda e: e.step). "
     "Recorded: batch.loss."),
    ("batch.loss.mean(per='epoch')", [LOSS, stream("epoch.accuracy.mean(every=2)")],
     "per='epoch' needs a record of each event 'epoch'"),
    ("batch.loss.mean(per='epoch')", [LOSS, stream("on('epoch').where(lambda e: e.a > 1).map(lambda e: e.a)")],
     "per='epoch' needs a record of each event 'epoch'"),
])  # fmt: skip
def test_the_error_lists_the_recorded_series(query, recorded, message):
    with pytest.raises(QueryError) as caught:
        plan(as_query(query), recorded)
    assert message in str(caught.value).replace("\n", " ")


def test_long_lists_are_cut():
    text = list_recorded([logged(f"t{i:03}") for i in range(100)])
    assert text == f"Logged: {', '.join(repr(f't{i:03}') for i in range(12))} and 88 more."


def test_boundaries_are_the_ends_of_groups_and_other_events():
    assert plan(as_query("on('batch').map(lambda b: b.loss).count()"), [LOSS, GROUPS]).boundaries == {"": [GROUPS]}
    assert plan(as_query("on('batch').map(lambda b: b.loss).count()"), [LOSS]).boundaries == {"": []}
    assert plan(as_query("batch.loss.mean(per='epoch')"), [LOSS, EPOCH]).boundaries == {"epoch": [EPOCH]}
    assert plan(as_query("batch.loss.mean(every=2)"), [LOSS, GROUPS]).boundaries == {}
    snapshot = Key(kind="snapshot", tag="epoch")
    assert plan(as_query("batch.loss.mean(per='epoch')"), [LOSS, snapshot]).boundaries == {"epoch": [snapshot]}
    several = [EPOCH, stream("epoch.loss")]
    # Snapshots may be of some epochs only, and each stream may have begun late.
    assert plan(as_query("batch.loss.mean(per='epoch')"), [snapshot, LOSS, *several]).boundaries == {"epoch": several}
    assert plan(as_query("batch.loss.mean(per='log')"), [LOSS, VAL, EXTRA]).boundaries == {"log": [VAL, EXTRA]}
    assert plan(as_query("batch.loss.mean(per='epoch').max(every=2)"),
                [LOSS, stream("batch.loss.mean(per='epoch')")]).boundaries == {}  # fmt: skip


def columns(walls, ordinals=None, values=None):
    walls = np.asarray(walls, float)
    ordinals = np.arange(len(walls)) if ordinals is None else np.asarray(ordinals)
    values = ordinals.astype(float) if values is None else values
    return Columns(index=0, steps=ordinals, wall_times=walls, values=values, ordinals=ordinals)


def counted(query, happenings, walls, n_each=100):
    """Return the counts of batches in the groups that boundaries ended, as they were, and as the replay finds them."""
    event = "epoch" if "per=" in query else ""
    n, batches, boundaries, expected = 0, [], [], []
    for what, wall in zip(happenings, walls, strict=True):
        if what == "batch":
            batches.append(wall)
        else:
            boundaries.append((len(batches) if event == "" else len(boundaries), wall))
            expected.append(len(batches) - n)
            n = len(batches)
    replay = Replay(plan(as_query(query), [LOSS, EPOCH, GROUPS]))
    replay.add_boundaries(event, np.array([m[0] for m in boundaries], np.int64), np.array([m[1] for m in boundaries]))
    found = []
    for start in range(0, len(batches), n_each):
        found += replay.post({"": columns(batches).slice(start, start + n_each)})
    found += replay.catch_up()
    assert all(item.closed for item in found)
    # Before the first event there is no group yet.
    return expected if not expected or expected[0] else expected[1:], [item.value for item in found]


ENDS, EPOCHS = "on('batch').map(lambda b: b.loss).count()", "on('batch').map(lambda b: b.loss).count(per='epoch')"
happenings = st.lists(st.sampled_from(["batch", "batch", "boundary"]), max_size=40).filter(
    lambda all: all[:1] != ["boundary"]
)


@given(happenings, st.sets(st.integers(1, 39), max_size=3), st.integers(1, 500), st.integers(1, 40))
def test_ends_of_groups_stay_in_place_when_the_clock_is_set_back(happenings, set_back, by, n_each):
    walls = np.cumsum([1 - by * (i in set_back) for i in range(len(happenings))]) + 1e9
    expected, found = counted(ENDS, happenings, walls.tolist(), n_each)
    assert found == expected


@given(happenings, st.integers(1, 40))
def test_other_events_end_groups_where_they_happened(happenings, n_each):
    expected, found = counted(EPOCHS, happenings, list(map(float, range(len(happenings)))), n_each)
    assert found == expected


@pytest.mark.parametrize("at", range(10, 30))
@pytest.mark.parametrize("n_each", [1, 7, 100])
def test_other_events_end_groups_where_they_happened_when_the_clock_is_set_back(at, n_each):
    happenings = (["batch"] * 9 + ["boundary"]) * 3
    walls = np.arange(30) - 3600.0 * (np.arange(30) >= at)
    assert counted(EPOCHS, happenings, walls.tolist(), n_each) == ([9, 9, 9], [9, 9, 9])


def test_a_replay_begins_with_the_first_event_that_has_all_observables():
    replay = Replay(plan(as_query("on('batch').map(lambda b: b.loss * b.lr).count(every=4)"), [LOSS, LR]))
    parts = {"loss": columns(np.arange(12.0)), "lr": columns(np.arange(6.0, 12.0), np.arange(6, 12))}
    items = [*replay.post(parts), *replay.finish()]
    assert [(item.value, item.n_events, item.complete, item.closed) for item in items] == [
        (2, 2, False, True), (4, 4, True, True)]  # fmt: skip
    assert (replay.n_errors, replay.last_error) == (0, "")


def test_later_events_that_lack_an_observable_are_counted_and_skipped():
    replay = Replay(plan(as_query("on('batch').map(lambda b: b.loss * b.lr)"), [LOSS, LR]))
    parts = {"loss": columns(np.arange(4.0)), "lr": columns(np.arange(0.0, 4.0, 2), np.arange(0, 4, 2))}
    assert [item.ordinal for item in replay.post(parts)] == [0, 2]
    assert replay.n_errors == 2
    assert replay.last_error == "Unknown observable 'lr' at event 'batch'. Known: loss, step. (step 3)"
    parts = {"loss": columns(np.arange(4.0, 12.0), np.arange(4, 12)), "lr": columns([11.0], [11])}
    assert [item.ordinal for item in replay.post(parts)] == [11]
    assert replay.n_errors == 9


def test_an_error_names_the_step():
    replay = Replay(plan(as_query("on('batch').map(lambda b: b.loss + 1)"), [LOSS]))
    values = ["a", 1.0, "b", "c", "d"]
    with pytest.raises(EvaluationError, match=r"\(step 4\)") as caught:
        list(replay.post({"loss": columns(np.arange(5.0), values=values)}))
    assert (caught.value.event, caught.value.step, replay.n_errors) == ("batch", 4, 4)


@given(st.lists(st.floats(0, 100), max_size=20).map(sorted), st.floats(-1, 101))
def test_the_horizon_cuts_by_time(walls, until):
    known = horizon(columns(walls), until)
    assert known.wall_times.tolist() == [wall for wall in walls if wall <= until]
    assert horizon(columns(walls), math.inf).wall_times.tolist() == walls


def test_the_horizon_lies_behind_records_of_before_the_clock_was_set_back():
    assert len(horizon(columns([100.0, 101.0, 50.0, 51.0, 52.0]), 51.0)) == 4
    assert len(horizon(columns([100.0, 101.0, 50.0, 51.0, 52.0]), -math.inf)) == 0
