"""Runs that began again in their directory: their recorded streams are marked there, and no pair crosses it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.test_stream import ManualStream
from tests.profiles import examples
from tests.waiting import wait_until

import sightglass as sg
from sightglass.client.recorded.timeline import RunStarts
from sightglass.client.streams.stream import Stream

RECORD = ["batch.loss", "batch.lr", "batch.loss.mean(every=10)"]


def train(folder, first, last, *, every=10, record=RECORD):
    """Return the id of a run that counts its steps from `first` to `last`."""
    with sg.init("again", budget=None, files=sg.Files(into=folder), record=record) as run:
        observe(run, first, last, every=every)
        return run.id


def observe(run, first, last, *, every=10):
    for step in range(first, last):
        run.observe("batch", step=step, loss=float(step), lr=step / 2)
        run.log({"dense": float(step)}, step=step)
        if step % every == every - 1:
            run.end_group("batch")
            run.log({"sparse": float(step)}, step=step)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory):
    """Return the directory of a run that died after step 97 and went on at step 65, and the ids of both."""
    folder = tmp_path_factory.mktemp("restarted") / "run"
    return folder, (train(folder, 0, 98), train(folder, 65, 130))


# A query, and the step of the first record that has an event of the second run: it went on with its 65th event.
@pytest.mark.parametrize(("query", "step"), [
    ("batch.loss", 65),
    ("dense", 65),
    ("sparse", 69),
    ("batch.loss.mean(every=10)", 74),
    ("batch.loss * 2", 65),
    ("on('batch').map(lambda b: b.loss * b.lr)", 65),
    ("on('batch').where(lambda b: b.step % 3 == 0).map(lambda b: b.loss)", 66),
    ("on('batch').map(lambda b: b.loss).sum(every=7)", 69),
    ("on('batch').map(lambda b: b.loss).max(every=4).min(every=5)", 79),
    ("on('batch').map(lambda b: b.loss).last()", 69),
    ("on('batch').map(lambda b: b.loss).max(per='log')", 65),
])  # fmt: skip
def test_a_recorded_stream_is_marked_where_the_run_began_again(restarted, query, step):
    folder, (first, second) = restarted
    with sg.open(folder) as old:
        stream = old.stream(query)
        assert (stream.run_id, old.id) == (first, second)
        records = stream.records()
        assert records[0].step < 20
        assert [(records[one.index].step, one.run_id) for one in stream.restarts] == [(step, second)]
        assert (stream.run_id, stream.n_lost, stream.error) == (first, 0, None)
        derived = stream.map(lambda value: value)
        assert [record.step for record in derived.records()] == [record.step for record in records]
        assert derived.restarts == stream.restarts


def test_a_recorded_run_that_never_began_again_has_no_mark(tmp_path):
    id = train(tmp_path / "run", 0, 30)
    with sg.open(tmp_path / "run") as old:
        for query in ("batch.loss", "batch.loss * 2", "on('batch').map(lambda b: b.loss).max(every=4)"):
            stream = old.stream(query)
            assert len(stream.records()) > 5
            assert (stream.restarts, stream.run_id) == ((), id)


def test_each_restart_is_marked_and_the_run_that_is_hidden_is_not(tmp_path):
    ids = [train(tmp_path, first, last) for first, last in ((0, 40), (30, 60), (20, 50), (50, 90))]
    with sg.open(tmp_path) as old:
        for query in ("dense", "batch.loss * 2", "on('batch').map(lambda b: b.loss).sum(every=5)"):
            stream = old.stream(query)
            records = stream.records()
            assert [one.run_id for one in stream.restarts] == ids[2:]
            assert [int(records[one.index].step) // 5 for one in stream.restarts] == [4, 10]
            assert stream.run_id == ids[0]


def test_a_run_of_which_nothing_else_is_left_begins_the_stream(tmp_path):
    _, second = (train(tmp_path, 0, last) for last in (40, 60))
    with sg.open(tmp_path) as old:
        for query in ("dense", "batch.loss * 2"):
            stream = old.stream(query)
            assert len(stream.records()) == 60
            assert (stream.restarts, stream.run_id) == ((), second)


def test_processes_that_nothing_is_known_of_are_told_apart(tmp_path):
    train(tmp_path, 0, 40)
    train(tmp_path, 30, 60)
    for file in tmp_path.glob("run*.json"):
        file.unlink()
    with sg.open(tmp_path) as old:
        dense, sparse = old.stream("dense"), old.stream("sparse")
        assert len(dense.records()) + len(sparse.records()) == 66
        assert [one.index for one in dense.restarts] == [30]
        assert {one.run_id for one in dense.restarts} == {one.run_id for one in sparse.restarts} != {dense.run_id}


# Growth


@pytest.mark.parametrize("query", ["dense", "on('log').map(lambda e: e.dense * 2)"])
def test_the_mark_comes_with_the_records_of_a_run_that_grows(tmp_path, query):
    train(tmp_path, 0, 30)
    with sg.init("again", budget=None, files=sg.Files(into=tmp_path)) as run:
        run.log({"other": 0.0}, step=20)  # its file is there, and nothing of the series
        run.flush()
        with sg.open(tmp_path, follow=True) as old:
            stream = old.stream(query)
            wait_until(lambda: len(stream.records()) >= 10)
            assert stream.restarts == ()
            observe(run, 30, 45)
            run.flush()
            wait_until(lambda: stream.latest.step > 35)
            assert [(stream.records()[one.index].step, one.run_id) for one in stream.restarts] == [(30, run.id)]
            observe(run, 45, 60)
            run.flush()
            wait_until(lambda: stream.latest.step == 59)
            assert len(stream.restarts) == 1


@pytest.mark.parametrize("query", ["dense", "on('log').map(lambda e: e.dense * 2)"])
@pytest.mark.parametrize("step", [0, 15])
def test_a_stream_whose_records_a_later_run_hides_says_so(tmp_path, query, step):
    train(tmp_path, 0, 30)
    with sg.init("again", budget=None, files=sg.Files(into=tmp_path)) as run:
        run.log({"other": 0.0}, step=step)
        run.flush()
        with sg.open(tmp_path, follow=True) as old:
            stream = old.stream(query)
            wait_until(lambda: len(stream.records()) >= 10)
            observe(run, step, 60)
            run.flush()
            wait_until(lambda: stream.ended)
            with pytest.raises(sg.RunLostError, match="started again"):
                stream.wait(1000)
            assert [record.step for record in stream.records()] == list(range(30))
            again = old.stream(query)
            wait_until(lambda: again.latest is not None and again.latest.step == 59)
            assert len(again.restarts) == (step > 0)


def test_a_stream_from_the_start_has_the_restarts_before_and_after_it_was_asked_for(tmp_path, ask):
    first = train(tmp_path, 0, 40)
    with sg.init("again", budget=None, files=sg.Files(into=tmp_path), record=RECORD) as run:
        observe(run, 30, 45)
        client = ask(run)
        loss, mean = (client.stream(query, since="start") for query in RECORD[::2])
        live = client.stream("batch.lr")
        observe(run, 45, 60)
        run.flush()
        wait_until(lambda: loss.latest is not None and loss.latest.step == 59 and mean.latest.step == 59)
        assert (loss.run_id, live.run_id) == (first, run.id)
        assert [(loss.records()[one.index].step, one.run_id) for one in loss.restarts] == [(30, run.id)]
        assert [(mean.records()[one.index].step, one.run_id) for one in mean.restarts] == [(39, run.id)]
        # The live stream is of the second run only, and both have numbers for the same events.
        several = [loss.zip(live), live.zip(loss), live.zip(loss, by="index")]
        run.close()
        for pairs in several:
            assert [record.step for record in pairs] == list(range(30, 60))


# Joins


def test_no_pair_crosses_a_restart(tmp_path):
    with sg.init("again", files=sg.Files(into=tmp_path)) as run:
        for step in range(10):
            run.log({"dense": ("first", step)} | ({"sparse": ("first", step)} if step in (0, 6) else {}), step=step)
    with sg.init("again", files=sg.Files(into=tmp_path)) as run:
        for step in range(5, 12):
            run.log({"dense": ("second", step)} | ({"sparse": ("second", step)} if step == 8 else {}), step=step)
    with sg.open(tmp_path) as old:
        dense, sparse = old.stream("dense"), old.stream("sparse")
        assert [record.value[1] for record in sparse.records()] == [0, 6, 8]  # the second run hides from 8 on
        for by, tolerance, found in (
            ("step", None, [(0, 0), (8, 8)]),
            ("index", None, [(0, 0), (1, 6), (5, 8)]),
            ("step", 1, [(0, 0), (1, 0), (7, 8), (8, 8), (9, 8)]),
        ):
            pairs = old.stream("dense").zip(old.stream("sparse"), by=by, tolerance=tolerance)
            values = [record.value for record in pairs]
            assert [(one[1], other[1]) for one, other in values] == found
            assert all(one[0] == other[0] for one, other in values)
            assert pairs.statistics().n_unpaired == len(dense.records()) - len(found)


def twin(stream: Stream) -> Stream:
    """Return a stream that has the same records, and was live."""
    columns, made = stream.since(0)[1], ManualStream(run_id=stream.run_id, client="one")
    made._buffer.restarts = stream.restarts
    made._buffer.add(columns)
    return made.over()


# Of each process: its first step, how many it has, and of the second series the first and every which step.
processes = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 25), st.integers(0, 5), st.integers(1, 7)), min_size=1, max_size=3
)


@settings(max_examples=examples(40))
@given(processes, st.sampled_from(["step", "index", "wall_time"]), st.sampled_from([None, 0.0, 2.0]), st.booleans())
def test_recorded_streams_are_joined_as_live_ones(made, by, tolerance, swapped):
    tolerance = 2.0 if by == "wall_time" else tolerance
    with tempfile.TemporaryDirectory() as folder:
        for number, (first, n, begins, every) in enumerate(made):
            with sg.init("again", files=sg.Files(into=Path(folder) / "run")) as run:
                for i in range(n):
                    value, step = float(1000 * number + first + i), first + i
                    sparse = i >= begins and not (i - begins) % every
                    run.log({"dense": value} | ({"sparse": value} if sparse else {}), step=step)
        with sg.open(Path(folder) / "run") as old:
            tags = [tag for tag in ("dense", "sparse") if tag in old.tags()]
            streams = [old.stream(tag) for tag in (tags[::-1] if swapped else tags)]
            one, other = streams[0], streams[-1]
            pairs = one.zip(other, by=by, tolerance=tolerance)
            found = [record.value for record in pairs]
            again = twin(one).zip(twin(other), by=by, tolerance=tolerance)
            assert found == [record.value for record in again]
            assert pairs.statistics().n_unpaired == again.statistics().n_unpaired == len(one.records()) - len(found)
            assert all(a // 1000 == b // 1000 for a, b in found)
            if by == "step" and tolerance is None:
                values = [{record.value for record in stream.records()} for stream in (one, other)]
                assert sorted(found) == sorted((value, value) for value in values[0] & values[1])


def test_recorded_and_live_streams_of_one_run_belong_together_and_those_of_two_are_compared(tmp_path, begin, ask):
    train(tmp_path / "a", 0, 40)
    run = begin("again", files=sg.Files(into=tmp_path / "a"))
    loss = ask(run).stream("batch.loss")
    observe(run, 30, 50)
    run.close()
    train(tmp_path / "b", 0, 60)
    with sg.open(tmp_path / "a") as a, sg.open(tmp_path / "b") as b:
        by_index = [record.value for record in a.stream("dense").zip(loss, by="index")]
        assert by_index == [(step, step) for step in range(30, 50)]  # numbers are those of the second run
        assert len(list(b.stream("dense").zip(a.stream("dense"), by="index"))) == 50
        assert len(list(b.stream("dense").zip(a.stream("dense")))) == 50


# Where windows belong


def test_a_window_is_of_the_run_of_its_last_event():
    starts = RunStarts()
    starts.add([(0, "first"), (10, "second"), (20, "third")])
    starts.pass_to(0, 1.0)
    assert starts.begun_by(1.0) == "first"
    starts.pass_to(9, 2.0)
    assert starts.begun_by(2.0) == ""
    starts.pass_to(12, 5.0)
    assert starts.begun_by(2.0) == ""  # a window that the first event of a later period closed
    assert starts.begun_by(5.0) == "second"
    starts.pass_to(25, 3.0)  # the clock was set back: nothing says of which run an earlier time is
    assert starts.begun_by(2.0) == "third"


def test_a_run_without_a_result_begins_nothing():
    starts = RunStarts()
    starts.add([(0, "first"), (3, "second"), (5, "third")])
    for ordinal in range(8):
        starts.pass_to(ordinal, float(ordinal))
    assert (starts.begun_by(2.0), starts.begun_by(7.0), starts.begun_by(7.0)) == ("first", "third", "")


@settings(deadline=None, max_examples=examples(25))
@given(
    before=st.sets(st.integers(0, 9)), restart=st.integers(1, 9), after=st.sets(st.integers(0, 5)),
)  # fmt: skip
def test_groups_end_where_those_ended_that_are_still_visible(before, restart, after):
    """The first process ends groups after some of its steps 0 to 9; the second goes on at one of them."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        for steps, ends in ((range(10), before), (range(restart, restart + 6), {restart + one for one in after})):
            with sg.init("again", budget=None, files=sg.Files(into=folder), record=["batch.loss"]) as run:
                for step in steps:
                    run.observe("batch", step=step, loss=2.0**step)
                    if step in ends:
                        run.end_group("batch")
        ends = {end for end in before if end < restart} | {restart + one for one in after}
        expected, group = [], 0.0
        for step in range(restart + 6):
            group += 2.0**step
            if step in ends:
                expected, group = [*expected, group], 0.0
        with sg.open(folder) as recorded:
            got = [record.value for record in recorded.stream("on('batch').map(lambda b: b.loss).sum()")]
        assert got == [*expected, *([group] if group else [])]
