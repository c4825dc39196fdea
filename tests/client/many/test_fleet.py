"""Fleets: runs that join, leave, die and come back; one stream, tables, reductions and commands over all of them."""

from __future__ import annotations

import contextlib
import gc
import inspect
import re
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.views.stream_set import StreamSet

WAIT_S = 60.0


@pytest.fixture
def gather():
    """Return a function that makes fleets; all are closed at the end."""
    made = []

    def gather(*args, **options):
        made.append(sg.fleet(*args, **{"timeout_s": WAIT_S, **options}))
        return made[-1]

    yield gather
    for fleet in made:
        fleet.close()


def collected(condition):
    """Collect garbage, again and again: what a round of a thread holds for a moment is not garbage then."""
    gc.collect()
    return condition


def observe(runs, steps, offset=0.0):
    for step in steps:
        for i, run in enumerate(runs):
            run.observe("batch", step=step, loss=step + 100.0 * i + offset)


def during(runs, command):
    """Return what a command gives on another thread, while these runs observe events on this one."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(command)
        while not sent.done():
            observe(runs, [1_000])
            time.sleep(0.005)
        return sent.result()


def values(stream, run):
    return [record.value for record in stream.records() if record.run == run]


class TestMembers:
    def test_runs_are_chosen_by_patterns_names_and_ids(self, begin, gather):
        a, b, other = begin("sweep-a"), begin("sweep-b"), begin("other")
        assert list(gather("sweep-*")) == ["sweep-a", "sweep-b"]
        assert list(gather(["other", "sweep-b"])) == ["sweep-b", "other"]
        assert list(gather(a.id)) == ["sweep-a"]
        assert list(gather()) == ["sweep-a", "sweep-b", "other"]
        assert gather("sweep-*")["sweep-b"].id == b.id
        assert gather()[other.id].name == "other"

    def test_runs_are_chosen_by_their_configuration(self, begin, gather):
        for i, lr in enumerate([0.01, 0.5, 0.05]):
            begin(f"sweep-{i}", config={"lr": lr})
        begin("sweep-bare")
        fleet = gather("sweep-*", where=lambda run: run.config["lr"] < 0.1)
        assert list(fleet) == ["sweep-0", "sweep-2"]
        assert fleet.left == {}
        assert list(fleet.where(lambda run: run.config.lr < 0.02)) == ["sweep-0"]
        assert list(fleet.where(lambda run: run.config.momentum > 0)) == []

    def test_a_condition_that_fails_costs_its_run(self, begin, gather):
        begin("a", config={"lr": 0.1})
        begin("b", config={"lr": "high"})
        fleet = gather(where=lambda run: run.config.lr < 1)
        assert list(fleet) == ["a"]
        assert "'<' not supported" in fleet.left["b"]

    def test_a_condition_that_fails_for_a_later_run_costs_that_run(self, begin, gather):
        begin("a", config={"lr": 0.1})
        fleet = gather()
        low = fleet.where(lambda run: run.config.lr < 1)
        stream = low.stream("batch.loss")
        begin("b", config={"lr": "high"})
        late = begin("c", config={"lr": 0.2})
        fleet.wait(3, timeout_s=WAIT_S)
        assert list(low) == ["a", "c"]
        assert "'<' not supported" in low.left["b"]
        wait_until(lambda: late._telemetry.subscriptions.active)
        observe([late], [1])
        assert stream.wait(1, timeout_s=WAIT_S)[0].run == "c"
        again = fleet.where(lambda run: run.config.lr < 1)
        assert (list(again), "'<' not supported" in again.left["b"]) == (["a", "c"], True)
        with pytest.raises(TypeError):
            fleet.where(len)
        fleet.close()
        assert [record.run for record in stream] == ["c"]

    def test_a_run_joins_later_and_one_that_ends_leaves(self, begin, gather):
        first = begin("sweep-1")
        fleet = gather("sweep-*")
        second = begin("sweep-2")
        fleet.wait(2, timeout_s=WAIT_S)
        assert list(fleet) == ["sweep-1", "sweep-2"]
        first.close()
        wait_until(lambda: list(fleet) == ["sweep-2"])
        assert fleet.left == {"sweep-1": "Run 'sweep-1' has ended"}
        assert second.name in repr(fleet)
        assert "1 left" in repr(fleet)
        with pytest.raises(sg.UnknownNameError, match="'sweep-1'"):
            fleet["sweep-1"]

    @pytest.mark.parametrize("id", ["", "0" * 12])
    def test_a_run_with_which_a_session_goes_on_between_two_looks_is_not_another_one(self, begin, gather, id):
        """The fleet has not seen it; the session has its id already, or still that of the one that died."""
        run = begin("job")
        fleet = gather("job")
        members = fleet._members
        with members.lock:
            (member,) = members.all
            member.session.id = id or run.id
            members._known.clear()
            members._find()
            assert members.all == (member,)
            member.session.id = run.id

    def test_runs_of_one_name_are_told_apart(self, begin, gather):
        old, new = begin("job"), begin("job")
        fleet = gather("job")
        assert list(fleet) == ["job", f"job ({new.id})"]
        stream = fleet.stream("batch.loss")
        observe([old, new], [1])
        assert {record.run: record.value for record in stream.wait(2, timeout_s=WAIT_S)} == {
            "job": 1.0, f"job ({new.id})": 101.0
        }  # fmt: skip

    def test_runs_of_other_machines_join_by_their_connection_files(self, begin, gather, tmp_path, runtime, monkeypatch):
        def begin_there(name):
            """Begin a run that the registry of this machine, another folder, does not have."""
            monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(runtime))
            run = begin(name, dir=tmp_path / "shared", listen="tcp://127.0.0.1:0", config={"lr": 0.1})
            monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(tmp_path / "here"))
            return run

        far = begin_there("far-0")
        (tmp_path / "shared" / "other.json").write_text("{}")
        here = begin("far-here", dir=tmp_path / "own", config={"lr": 0.3})
        assert list(gather("far-*")) == ["far-here"]
        fleet = gather("far-*", connections=tmp_path / "shared", where=lambda run: run.config.lr < 0.5)
        fleet.wait(2, timeout_s=WAIT_S)
        assert set(fleet) == {"far-0", "far-here"}
        stream = fleet.stream("batch.loss")
        late = begin_there("far-1")
        fleet.wait(3, timeout_s=WAIT_S)
        runs = [far, here, late]
        for run in runs:
            wait_until(lambda run=run: run._telemetry.subscriptions.active)
        observe(runs, range(3))
        stream.wait(9, timeout_s=WAIT_S)
        assert [values(stream, name) for name in ("far-0", "far-here", "far-1")] == [
            [step + 100.0 * i for step in range(3)] for i in range(3)
        ]
        late.close()
        wait_until(lambda: set(fleet) == {"far-0", "far-here"})

    def test_without_follow_no_run_joins_and_streams_end(self, begin, gather):
        run = begin("a")
        fleet = gather(follow=False)
        stream = fleet.stream("batch.loss")
        begin("b")
        observe([run], range(3))
        stream.wait(3, timeout_s=WAIT_S)
        run.close()
        assert [record.value for record in stream] == [0.0, 1.0, 2.0]
        assert fleet.left.keys() == {"a"}

    def test_waiting_for_more_runs_than_there_are_says_so(self, begin, gather):
        begin("a")
        with pytest.raises(TimeoutError, match=r"2 runs.*0 s, got 1"):
            gather().wait(2, timeout_s=0)

    def test_it_wants_names(self):
        with pytest.raises(TypeError, match="got int"):
            sg.fleet([3])
        with pytest.raises(TypeError, match=r"'lr < 0[.]1'"):
            sg.fleet(where="lr < 0.1")


class TestStream:
    def test_records_are_those_of_each_run_in_order(self, begin, ask, gather):
        runs = [begin(f"sweep-{i}") for i in range(3)]
        fleet = gather("sweep-*")
        stream = fleet.stream("batch.loss")
        single = ask("sweep-1").stream("batch.loss")
        observe(runs, range(50))
        late = begin("sweep-late")
        wait_until(lambda: late._telemetry.subscriptions.active)
        observe([late], range(10), offset=0.5)
        records = stream.wait(160, timeout_s=WAIT_S)
        assert [record.index for record in records] == list(range(160))
        for i in range(3):
            assert values(stream, f"sweep-{i}") == [step + 100.0 * i for step in range(50)]
        assert values(stream, "sweep-late") == [step + 0.5 for step in range(10)]
        assert values(stream, "sweep-1") == [record.value for record in single.wait(50, timeout_s=WAIT_S)]
        assert stream.n_lost == 0
        assert stream.query == single.query

    def test_the_records_of_a_run_that_left_stay(self, begin, gather):
        a, b = begin("a"), begin("b")
        fleet = gather()
        stream = fleet.stream("batch.loss")
        observe([a, b], range(2))
        stream.wait(4, timeout_s=WAIT_S)
        a.close()
        wait_until(lambda: list(fleet) == ["b"])
        observe([b], [2])
        stream.wait(5, timeout_s=WAIT_S)
        assert values(stream, "a") == [0.0, 1.0]
        assert values(stream, "b") == [100.0, 101.0, 2.0]
        assert not stream.ended
        fleet.close()
        assert stream.ended
        assert len(list(stream)) == 5

    def test_a_run_that_refuses_does_not_hold_up_the_others(self, begin, gather):
        good, bad = begin("good"), begin("bad")
        for run in (good, bad):
            run.observe("batch", step=0, **({"loss": 1.0} if run is good else {"error": 1.0}))
        stream = gather().stream("batch.loss")
        observe([good], [1, 2])
        stream.wait(2, timeout_s=WAIT_S)
        assert values(stream, "good") == [1.0, 2.0]

    def test_a_query_that_no_run_can_evaluate_raises(self, begin, gather):
        begin("a")
        fleet = gather()
        with pytest.raises(sg.QueryError):
            fleet.stream("batch.loss.nothing(")
        with pytest.raises(sg.SightglassError, match="nope"):
            fleet.stream("on('batch').map(lambda b: nope(b.loss))")

    def test_views_draw_a_line_per_run(self, begin, gather):
        runs = [begin(f"sweep-{i}") for i in range(2)]
        stream = gather("sweep-*").stream("batch.loss")
        drawn = StreamSet(stream)
        assert not drawn.ended
        observe(runs, range(3))
        stream.wait(6, timeout_s=WAIT_S)
        drawn.pull()
        assert [line.label for line in drawn.scene.series] == ["sweep-0 · batch.loss", "sweep-1 · batch.loss"]
        assert [line.y.tolist() for line in drawn.scene.series] == [[0.0, 1.0, 2.0], [100.0, 101.0, 102.0]]
        assert drawn.scene.title == "batch.loss"
        late = begin("sweep-late")
        wait_until(lambda: late._telemetry.subscriptions.active)
        observe([late], [7])
        stream.wait(7, timeout_s=WAIT_S)
        drawn.pull()
        assert [line.label for line in drawn.scene.series][-1] == "sweep-late · batch.loss"
        assert len({line.color for line in drawn.scene.series}) == 3
        drawn.remove(stream)
        drawn.pull()
        assert drawn.sources == ()


class TestValues:
    def test_a_table_has_a_row_for_each_run(self, begin, gather):
        runs = [begin(f"sweep-{i}", config={"lr": 0.1 * i}, record=["batch.loss"]) for i in range(3)]
        fleet = gather("sweep-*")
        observe(runs, range(10))  # recorded, so that the runs hold them
        table = fleet.table(
            best="batch.loss.min(per='run')", mean="batch.loss.mean(per='run')", last="batch.loss", timeout_s=WAIT_S
        )
        assert table.columns == ["run", "state", "config.lr", "best", "mean", "last"]
        assert table.column("run") == ["sweep-0", "sweep-1", "sweep-2"]
        assert table.column("state") == ["running"] * 3
        assert table.column("best") == [0.0, 100.0, 200.0]
        assert table.column("mean") == [4.5, 104.5, 204.5]
        assert table.column("last") == [9.0, 109.0, 209.0]
        assert fleet.table("batch.loss", timeout_s=WAIT_S).column("batch.loss") == [9.0, 109.0, 209.0]
        assert fleet.latest("batch.loss", timeout_s=WAIT_S) == {"sweep-0": 9.0, "sweep-1": 109.0, "sweep-2": 209.0}

    def test_values_are_brought_up_to_date_and_stay(self, begin, gather):
        a, b = begin("a", record=["batch.loss"]), begin("b", record=["batch.loss"])
        fleet = gather()
        observe([a, b], range(3))
        query = "batch.loss.sum(per='run')"
        assert fleet.latest(query, timeout_s=WAIT_S) == {"a": 3.0, "b": 303.0}
        a.close()
        wait_until(lambda: list(fleet) == ["b"])
        observe([b], [3])
        wait_until(lambda: fleet.latest(query, timeout_s=WAIT_S) == {"a": 3.0, "b": 306.0})
        table = fleet.table(total=query, timeout_s=WAIT_S)
        assert table.column("state") == ["ended", "running"]
        assert table.column("total") == [3.0, 306.0]

    def test_a_value_that_is_not_of_all_events_says_so(self, begin, gather):
        run = begin("a")
        fleet = gather()
        observe([run], range(5))
        fleet.table(best="batch.loss.min(per='run')", newest="batch.loss.last(per='run')", timeout_s=0.1)
        wait_until(lambda: run._telemetry.subscriptions.active)
        observe([run], [7])
        table = wait_until(
            lambda: (
                (t := fleet.table(best="batch.loss.min(per='run')", newest="batch.loss.last(per='run')"))[0]["best"]
                and t
            )
        )
        assert table[0]["best"] == table[0]["newest"] == 7.0
        assert table[0]["problem"].startswith("best: from step 7")
        assert "newest" not in table[0]["problem"]

    def test_events_are_counted(self, begin, gather):
        run = begin("a")
        fleet = gather()
        count = "on('batch').where(lambda b: b.loss > 1).count(per='run')"
        assert fleet.latest(count, timeout_s=0.1) == {}
        wait_until(lambda: run._telemetry.subscriptions.active)
        observe([run], range(5))
        wait_until(lambda: fleet.latest(count) == {"a": 3})

    def test_a_reduction_is_that_of_one_run_with_all_events(self, begin, gather):
        groups = [begin(f"sweep-{i}", config={"kind": "ab"[i % 2]}, record=["batch.loss"]) for i in range(4)]
        fleet = gather("sweep-*")
        rng = np.random.default_rng(0)
        numbers = rng.normal(size=(50, 4))
        for step, row in enumerate(numbers):
            for run, number in zip(groups, row.tolist(), strict=True):
                run.observe("batch", step=step, loss=number)
        loss = sg.on("batch").map(lambda b: b.loss)
        wait_until(lambda: fleet.reduce(loss.count(), timeout_s=WAIT_S) == 200)
        whole = numbers.T.ravel()
        assert fleet.reduce(loss.max()) == whole.max()
        assert fleet.reduce(loss.mean(), timeout_s=WAIT_S) == pytest.approx(whole.mean(), rel=1e-9)
        assert fleet.reduce(loss.std()) == pytest.approx(whole.std(), rel=1e-6)
        assert fleet.reduce(loss.first()) == whole[0]
        assert fleet.reduce(loss.last()) == whole[-1]
        by = fleet.reduce(loss.min(), by=lambda run: run.config.kind)
        assert by == {"a": numbers[:, ::2].min(), "b": numbers[:, 1::2].min()}
        with pytest.raises(sg.QueryError, match="order"):
            fleet.reduce(loss.reduce(lambda total, x: total + x, 0.0))

    def test_a_reduction_without_a_value_says_why(self, begin, gather):
        begin("a")
        with pytest.raises(sg.QueryError, match="fleet"):
            gather().reduce(sg.on("batch").map(lambda b: b.loss).max(), timeout_s=0.1)


class TestCommands:
    def test_each_run_is_named_in_the_report(self, begin, gather):
        a, b = begin("a"), begin("b")
        for run in (a, b):
            run.control("lr", 0.1, min=0, max=1)
        bare = begin("bare")
        fleet = gather()
        report = during([a, b, bare], lambda: fleet.set("lr", 0.5))
        assert {name: reply.result for name, reply in report.applied.items()} == {"a": 0.5, "b": 0.5}
        assert report.waiting == {}
        assert "Unknown control 'lr'" in str(report.failed["bare"])
        assert "a: applied at event 'batch'" in str(report)

    def test_commands_reach_the_selection_alone(self, begin, gather):
        runs = [begin(f"sweep-{i}", config={"lr": i}) for i in range(3)]
        calls = []
        for run in runs:
            run.action("save", lambda name=run.name: calls.append(name))
        fleet = gather("sweep-*")
        report = during(runs, lambda: fleet.where(lambda run: run.config.lr > 0).stop())
        assert report.applied.keys() == {"sweep-1", "sweep-2"}
        assert [run.stopping for run in runs] == [False, True, True]
        report = during(runs, lambda: fleet.where(lambda run: run.name == "sweep-0").call("save"))
        assert report.applied.keys() == {"sweep-0"}
        assert calls == ["sweep-0"]

    def test_a_run_without_events_does_not_hide_the_others(self, begin, gather):
        busy, idle = begin("busy"), begin("idle")
        fleet = gather()
        report = during([busy], lambda: fleet.set("nothing", 1, timeout_s=15.0))
        assert report.failed.keys() >= {"busy"}
        assert report.applied == {}
        assert report.failed.keys() | report.waiting.keys() == {"busy", "idle"}
        assert not idle.stopping

    def test_a_run_that_has_not_replied_is_named(self, begin, gather):
        run = begin("a")
        fleet = gather(follow=False)
        fleet._members.round = lambda now_s: None
        fleet._members._worker.wake()
        wait_until(lambda: not fleet._members._worker.alive)
        begin("silent")
        fleet._members._find()  # it is greeted, and nobody takes in what it replies
        report = during([run], fleet.stop)
        assert report.applied.keys() == {"a"}
        assert "'silent' has not replied" in str(report.failed["silent"])


class TestDropping:
    def test_a_fleet_that_is_dropped_leaves_its_runs_and_ends_its_thread(self, begin, ask):
        runs = [begin(f"sweep-{i}") for i in range(2)]
        beside = ask("sweep-0")
        fleet = sg.fleet("sweep-*")
        fleet.wait(2, timeout_s=WAIT_S)
        stream = fleet.where(lambda run: True).stream("batch.loss")
        fleet.table(loss="batch.loss", timeout_s=0.0)
        worker = fleet._members._worker
        del fleet
        gc.collect()
        observe(runs, [1])
        stream.wait(2, timeout_s=WAIT_S)
        late = begin("sweep-2")
        wait_until(lambda: late._telemetry.subscriptions.active)  # a stream that is held goes on, and runs join it
        assert worker.alive
        del stream
        wait_until(lambda: collected(not worker.alive))
        wait_until(lambda: beside.describe().n_clients == 1)

    def test_a_run_that_is_held_outlives_its_fleet(self, begin):
        for name in ("a", "b"):
            begin(name)
        fleet = sg.fleet()
        fleet.wait(2, timeout_s=WAIT_S)
        rounds, worker = fleet._members._rounds, fleet._members._worker
        kept, dropped = fleet["a"], weakref.ref(fleet["b"])
        session = fleet["b"]._session
        del fleet
        wait_until(lambda: collected(dropped() is None))
        wait_until(lambda: session.ended and len(rounds._runs) == 1)
        assert kept.describe().name == "a"
        assert worker.alive
        del kept
        wait_until(lambda: collected(not worker.alive))

    def test_streams_that_were_closed_are_forgotten(self, begin, gather):
        begin("a")
        fleet = gather()
        kept = fleet.stream("batch.loss")
        for _ in range(3):
            fleet.stream("batch.loss").close()
        fleet.stream("batch.loss")
        assert len(fleet._asked) == 2
        fleet.close()
        assert kept.ended


def said(call):
    """Return what a call gives, and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        return call(), [str(one.message) for one in warned]


def test_every_door_to_a_result_of_several_runs_tells_its_coverage_in_the_same_words(gather):
    limits = sg.Limits(max_backlog_records=0)
    with sg.init("early", dir=None, limits=limits) as early, sg.init("late", dir=None, limits=limits) as late:
        observe([early], range(5))  # nobody has asked: these events are gone
        fleet = gather("*")
        fleet.wait(2, timeout_s=WAIT_S)
        lowest = sg.on("batch").map(lambda b: b.loss).min()
        with contextlib.suppress(sg.QueryError):
            fleet.reduce(lowest, timeout_s=0.1)
        observe([early, late], range(5, 8))
        wait_until(lambda: said(lambda: fleet.reduce(lowest, timeout_s=WAIT_S))[0] == 5.0)
        fleet._told.clear()
        result, (reduced,) = said(lambda: fleet.reduce(lowest, timeout_s=WAIT_S))
        assert result == 5.0
        assert reduced.startswith(f"1 of 2 runs do not answer {lowest} in full: early: from step 5")
        assert said(lambda: fleet.reduce(lowest))[1] == []  # it is the same, and was told
        whole = "batch.loss.min(per='run')"
        assert said(lambda: fleet.latest(whole, timeout_s=0.1)) == ({}, [])  # so far, nothing is left out but values
        observe([early, late], [9])
        _, (latest,) = wait_until(lambda: (found := said(lambda: fleet.latest(whole)))[1] and found)
        problem = next(row["problem"] for row in fleet.table(low=whole) if row["run"] == "early")
        assert latest.startswith(f"1 of 2 runs do not answer {whole} in full: early: ")
        assert problem.removeprefix("low: ") in latest


def test_the_note_of_a_fleets_stream_has_the_same_words(gather):
    with sg.init("can", dir=None) as can, sg.init("cannot", dir=None) as cannot:
        fleet = gather("*")
        fleet.wait(2, timeout_s=WAIT_S)
        observe([can], range(3))
        cannot.observe("other", x=1)
        stream = fleet.stream("batch.loss")
        wait_until(lambda: re.match("1 of 2 runs .*batch.loss.* cannot: ", stream.note))


@pytest.mark.parametrize("name", ["where", "stream", "latest", "table", "reduce"])
def test_live_and_recorded_runs_are_asked_in_the_same_way(name):
    live, recorded = (inspect.signature(getattr(runs, name)).parameters for runs in (sg.Fleet, sg.RecordedRuns))
    own = {"confirm", "timeout_s", "executor"}  # what a live run costs and how long it may take; who reads files
    assert [(one.name, one.kind) for one in live.values() if one.name not in own] == [
        (one.name, one.kind) for one in recorded.values() if one.name not in own
    ]


@pytest.mark.parametrize("read", [lambda run: run.config.lr, lambda run: run.config["lr"]])
def test_a_run_whose_configuration_lacks_an_entry_is_left_out_of_both(begin, gather, tmp_path, read):
    runs = [begin("a", dir=tmp_path, config={"lr": 1}, record=["batch.loss"]),
            begin("b", dir=tmp_path, record=["batch.loss"])]  # fmt: skip
    fleet = gather()
    maximum = "batch.loss.max(per='run')"

    def reduced():
        with contextlib.suppress(sg.QueryError):  # there is no value yet
            return fleet.reduce(maximum, by=read)

    reduced()  # from now on it is asked
    observe(runs, range(3))
    with pytest.warns(RuntimeWarning, match="1 of 2 runs.*b: .*lr"):
        wait_until(lambda: reduced() == {1: 2.0})
    assert list(fleet.where(read)) == ["a"]
    fleet.close()
    for run in runs:
        run.close()
    with sg.open(tmp_path) as recorded:
        with pytest.warns(RuntimeWarning, match="1 of 2 runs.*b-.*lr"):
            assert recorded.reduce(maximum, by=read) == {1: 2.0}
        assert [recorded[name].name for name in recorded.where(read)] == ["a"]


def test_a_recorded_run_for_which_a_condition_fails_is_left_out_and_named(begin, tmp_path):
    for name, config in (("a", {"lr": 0.1}), ("b", {"lr": "high"}), ("c", {"lr": None}), ("d", {})):
        run = begin(name, dir=tmp_path, config=config, record=["batch.loss"])
        observe([run], [1])
        run.close()
    with sg.open(tmp_path) as recorded:
        with pytest.warns(RuntimeWarning, match="2 of 4 runs.*'c-"):
            low = recorded.where(lambda run: run.config.lr < 1)
        assert [run.name for run in low.values()] == ["a"]
        with pytest.raises(TypeError):
            recorded.where(len)


def test_recorded_runs_have_the_same_interface(begin, tmp_path):
    for i in range(2):
        run = begin(f"sweep-{i}", dir=tmp_path, record=["batch.loss"])
        observe([run], range(3), offset=10.0 * i)
        run.close()
    with sg.open(tmp_path) as runs:
        assert runs.latest("batch.loss").keys() == set(runs)
        assert sorted(runs.latest("batch.loss").values()) == [2.0, 12.0]
        drawn = StreamSet(runs.stream("batch.loss"))
        drawn.pull()
        assert sorted(line.label for line in drawn.scene.series) == ["sweep-0 · batch.loss", "sweep-1 · batch.loss"]
        assert drawn.ended
