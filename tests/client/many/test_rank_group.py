"""Rank groups: runs of this process as ranks, and processes that die."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.client.many.rank_group import RankGroup
from sightglass.core.errors import QueryError
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.ranks import JOB_VARIABLES, place_of
from sightglass.training.run import Run
from sightglass.training.wiring import Machine, RunSettings, Wiring

TIMEOUT_S = 60.0


@pytest.fixture
def ranks(begin):
    """Return a function that begins the ranks of a group."""

    def start(n, *, size=None, group="gpt", names=None):
        return [
            begin((names or "gpt-{}").format(rank), ranks=sg.Ranks(group=group, rank=rank, size=size or n))
            for rank in range(n)
        ]

    return start


def observe(runs, n, *, event="batch", first=0):
    """Let each rank announce the same number of events, one after the other; return all values in their order."""
    values = []
    for i in range(first, first + n):
        for rank, run in enumerate(runs):
            values.append(float((7 * i + 3 * rank) % 23))
            run.observe(event, loss=values[-1], rank=rank)
    return values


def test_a_reducer_merges_over_ranks_window_by_window(ranks, ask):
    runs = ranks(3)
    group = ask("gpt")
    assert isinstance(group, RankGroup)
    assert repr(group) == "<RankGroup 'gpt', 3 of 3 ranks>"
    calls = ["mean", "sum", "count", "min", "max", "var", "std", "first", "last", "quantile(0.5,", "collect(100,"]
    streams = {call: group.stream(f"batch.loss.{call if call.endswith(',') else call + '('}every=4)") for call in calls}
    alone, whole = sg.init("alone", budget=None), {}
    with sg.connect(alone) as one:
        whole = {
            call: one.stream(f"batch.loss.{call if call.endswith(',') else call + '('}every=12)") for call in calls
        }
        for value in observe(runs, 20):
            alone.observe("batch", loss=value)
        for run in runs:
            run.close()
        alone.close()
        for call, stream in streams.items():
            found, wanted = (each.wait(5, timeout_s=TIMEOUT_S) for each in (stream, whole[call]))
            assert len(found) == len(wanted) == 5
            for record, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(record.value, other.value, rtol=1e-6)
                assert (record.n_events, record.complete, record.closed, record.missing) == (12, True, True, ())
                assert (record.run, record.rank) == ("gpt", None)
            assert list(stream) == found, "the stream ends with its ranks"


def test_each_rank_may_have_its_own_result(ranks, ask, tmp_path):
    runs = ranks(2)
    stream = ask("gpt").stream("batch.rank.max(every=2)", by="rank")
    stream.save(tmp_path / "ranks.sgr")
    observe(runs, 2)
    (record,) = stream.wait(1, timeout_s=TIMEOUT_S)
    assert record.value == {0: 0, 1: 1}
    assert record.value.keys() == set(ask("gpt").ranks)
    wait_until(lambda: (tmp_path / "ranks.sgr").exists() and len(sg.open(tmp_path / "ranks.sgr").series(stream.tag)))
    assert sg.open(tmp_path / "ranks.sgr").series(stream.tag)[0].value == record.value


def test_records_come_with_their_rank_and_so_do_those_of_a_map(ranks, ask):
    runs = ranks(2)
    stream = ask("gpt").stream("batch.rank")
    mapped = stream.map(lambda rank: 10 * rank)
    observe(runs, 2)
    stream.wait(4, timeout_s=TIMEOUT_S)
    assert sorted((record.rank, record.value) for record in mapped.wait(4, timeout_s=TIMEOUT_S)) == [
        (0, 0), (0, 0), (1, 10), (1, 10),
    ]  # fmt: skip
    assert all(record.rank == record.value for record in stream.records())


def test_boundaries_of_the_program_match_whenever_a_client_asks(ranks, ask):
    runs = ranks(2)

    def epoch(n):
        observe(runs, n)
        for run in runs:
            run.end_group("batch")
            run.observe("epoch")

    epoch(3)
    group = ask("gpt")
    observe(runs[:1], 1)  # one rank is ahead where the client asks
    per, groups = group.stream("batch.rank.count(per='epoch')"), group.stream(sg.on("batch").count())
    observe(runs[1:], 1)
    epoch(2)
    epoch(1)
    for stream in (per, groups):
        found = stream.wait(2, timeout_s=TIMEOUT_S)
        assert [(record.value, record.complete) for record in found] == [(5, False), (2, True)]


def test_a_late_rank_holds_a_window_for_a_time_and_is_named(ranks, ask):
    runs = ranks(3)
    stream = ask("gpt").stream("batch.rank.sum(every=1)", hold_s=0.5)
    observe(runs[:2], 1)
    (record,) = stream.wait(1, timeout_s=TIMEOUT_S)
    assert (record.value, record.complete, record.missing) == (1, False, (2,))
    observe(runs, 1)
    runs[2].observe("batch", rank=2)
    assert [(one.value, one.missing) for one in stream.wait(2, timeout_s=TIMEOUT_S)] == [(1, (2,)), (3, ())]
    assert stream.statistics().n_unpaired == 1


def test_the_note_names_who_is_late(ranks, ask):
    runs = ranks(2)
    stream = ask("gpt").stream("batch.rank.sum(every=1)", hold_s=1e6)
    observe(runs[:1], 1)
    wait_until(lambda: stream.latest is None and stream.note == "Rank 1 is late")  # the record is on its way


def test_a_rank_that_starts_later_joins(ranks, begin, ask):
    runs = ranks(1, size=2)
    group = ask("gpt")
    stream = group.stream("batch.rank.sum(every=1)", hold_s=0.1)
    observe(runs, 1)
    assert [one.missing for one in stream.wait(1, timeout_s=TIMEOUT_S)] == [(1,)]
    late = begin("gpt-1", ranks=sg.Ranks(group="gpt", rank=1, size=2))
    wait_until(lambda: len(group.ranks) == 2)
    slow = group.stream("batch.rank.sum(every=1)", hold_s=1e6)
    observe([late], 1)
    observe([*runs, late], 1)
    assert [(one.value, one.missing) for one in slow.wait(2, timeout_s=TIMEOUT_S)][-1] == (1, ())


def test_a_rank_that_joins_is_not_asked_what_was_closed_and_one_refusal_costs_one_stream(ranks, begin, ask):
    (first,) = ranks(1, size=2)
    first.function("only", abs)
    group = ask("gpt")
    group.stream("batch.rank.max(every=1)").close()
    refused, kept = group.stream("only(batch.rank).max(every=1)"), group.stream("batch.rank.sum(every=1)")
    begin("gpt-1", ranks=sg.Ranks(group="gpt", rank=1, size=2))
    asked = wait_until(lambda: group.ranks[1].describe().streams if 1 in group.ranks else ())
    assert [one.tag for one in asked] == ["batch.rank.sum(every=1)"]
    assert "only" in wait_until(lambda: refused.note)
    assert refused.note.startswith("Rank 1 ")
    assert not kept.ended


def test_a_group_that_is_dropped_leaves_its_ranks_and_ends_its_thread(ranks, ask):
    runs = ranks(2)
    beside = ask(runs[1].id)
    group = sg.connect("gpt")
    stream = group.stream("batch.rank.sum(every=1)")
    worker = group._members._worker
    del group
    gc.collect()
    observe(runs, 1)
    assert stream.wait(1, timeout_s=TIMEOUT_S)[0].value == 1
    assert worker.alive
    del stream
    # Collected again and again: what a round of the thread holds for a moment is not garbage then.
    wait_until(lambda: not worker.alive and beside.describe().n_clients == 1, pause=gc.collect)


class FiveMinutesAhead(SystemClock):
    """The clock of a machine that nobody has set."""

    @staticmethod
    def wall() -> float:
        return time.time() + 300.0


def test_spans_of_clocks_five_minutes_apart_belong_together(ranks, ask, tmp_path):
    (here,) = ranks(1, size=2)
    settings = RunSettings(
        name="gpt-1", directory=tmp_path / "ahead", config={}, ranks=sg.Ranks(group="gpt", rank=1, size=2)
    )
    ahead = Run(Wiring(settings, Machine(clock=FiveMinutesAhead())))
    try:
        alone = ask(here.id).stream("batch.rank")
        stream = ask("gpt").stream("batch.rank.count(every='200 ms')", by="rank", hold_s=1e6)

        def of_both() -> list[sg.Record]:
            observe([here, ahead], 1)
            whole = [record for record in stream.records() if record.missing == ()]
            return whole if len(whole) >= 3 else []

        both = wait_until(of_both)
    finally:
        ahead.close()
    assert [sorted(record.value) for record in both[:3]] == [[0, 1]] * 3
    assert both[0].wall_time < alone.wait(1, timeout_s=TIMEOUT_S)[0].wall_time + 150, "the times of this machine"


@pytest.mark.parametrize(("query", "options", "why"), [
    ("batch.loss.ema(0.1)", {}, "ema"), ("batch.loss", {"by": "rank"}, "by='rank' with a"),
    ("batch.loss.mean(every=2).max(every=2)", {}, "only reducer"), ("batch.loss", {"since": "start"}, "several ranks"),
])  # fmt: skip
def test_what_is_not_possible_over_ranks_is_refused(ranks, ask, query, options, why):
    ranks(2)
    with pytest.raises(QueryError, match=why):
        ask("gpt").stream(query, **options)


def test_commands_go_to_rank_0_by_the_present_rule(ranks, ask):
    runs = ranks(2)
    group = ask("gpt")
    assert group.describe().id == runs[0].id
    with pytest.raises(sg.RefusedError, match="2 processes"):
        group.stop()


def test_the_newest_of_two_programs_is_asked(ranks, ask, monkeypatch):
    old = ranks(2)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    new = ranks(2)
    with pytest.warns(UserWarning, match="'gpt'.*2 runs"):
        group = ask("gpt")
    stream = group.stream("batch.rank.count(every=1)")
    observe(old, 1)
    observe(new, 2)
    assert [one.value for one in stream.wait(2, timeout_s=TIMEOUT_S)] == [2, 2]
    assert group.describe().id == new[0].id


def test_a_single_rank_that_the_environment_names_is_a_run(begin, ask, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    begin("ddp")
    assert not isinstance(ask("ddp"), RankGroup)


@pytest.mark.parametrize(("variables", "place"), [
    ({}, ("job", 0, 1)), ({"RANK": "3", "WORLD_SIZE": "8"}, ("job", 3, 8)),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, ("job", 1, 2)),
    ({"PMI_RANK": "1", "PMI_SIZE": "4"}, ("job", 1, 4)), ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, ("job", 5, 6)),
])  # fmt: skip
def test_launchers_say_which_rank_a_process_is(monkeypatch, variables, place):
    for name in ("RANK", "WORLD_SIZE", *JOB_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = place_of("job")
    assert found[:3] == place
    assert bool(found.job) == (found.size > 1)
    assert place_of("job", group="g", rank=1, size=3)[:3] == ("g", 1, 3)


@pytest.mark.parametrize("options", [{"rank": 2, "size": 2}, {"rank": 0}, {"size": 3}, {"rank": -1, "size": 2},
                                     {"rank": "0", "size": 2}])  # fmt: skip
def test_a_rank_out_of_bounds_is_refused(options: dict[str, Any]):
    with pytest.raises(ValueError, match="rank and size"):
        sg.Ranks(**options)


def test_all_pieces_of_an_array_are_reduced_as_one(ranks, ask):
    torch = pytest.importorskip("torch")
    whole = torch.arange(-3.0, 9.0)
    parts = [whole[:7].clone(), whole[7:].clone(), whole[:7].clone()]
    parts[2].sightglass_piece = "copy"  # as of a DTensor, see `core.array_data`
    runs = ranks(3)
    group = ask("gpt")
    wanted = {
        "pieces(batch.w).norm()": whole.norm(), "pieces(batch.w).sum()": whole.sum(), "pieces(batch.w).size": 12,
        "pieces(batch.w).mean()": whole.mean(), "pieces(batch.w).min()": -3.0, "abs(pieces(batch.w)).max()": 8.0,
        "(pieces(batch.w) < 0).sum()": 3, "pieces(batch.w).max()": 8.0,
    }  # fmt: skip
    streams = {query: group.stream(query) for query in wanted}
    by_name = group.stream("on('batch').map(lambda b: b.ws.map(lambda name, w: pieces(w).norm()))")
    histogram = group.stream("on('batch').map(lambda b: pieces(b.w)).histogram(4, every=1)")
    with pytest.raises(QueryError, match="by=None"):
        group.stream("pieces(batch.w).norm()", by="rank")
    every = [*streams.values(), by_name, histogram]

    def observe_pieces() -> None:
        for run, part in zip(runs, parts, strict=True):
            run.observe("batch", w=part, ws={"a": part, "b": 2 * part if part is not parts[2] else part})

    def whole_ones() -> list[list[sg.Record]]:
        found = [[one for one in stream.records() if one.complete] for stream in every]
        return found if all(found) else []

    # On a busy machine, the first events may exceed what queries may take of one.
    *simple, named, histograms = wait_until(
        whole_ones, lambda: [stream.statistics() for stream in every], pause=observe_pieces
    )
    for (query, stream), found in zip(streams.items(), simple, strict=True):
        assert {(one.missing, one.tag) for one in found} == {((), stream.tag)}
        np.testing.assert_allclose([float(one.value) for one in found], float(wanted[query]), rtol=1e-6)
    for one in named:
        np.testing.assert_allclose([one.value["a"], one.value["b"]], [whole.norm(), 2 * whole.norm()], rtol=1e-6)
    for one in histograms:
        assert one.value.counts.sum() == 12
        assert (one.value.edges[0] <= -3, one.value.edges[-1] >= 8) == (True, True)


PROGRAM = """
import sys, sightglass as sg
rank, size = int(sys.argv[1]), int(sys.argv[2])
run = sg.init(f"p{rank}", budget=None, ranks=sg.Ranks(group="procs", rank=rank, size=size))
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        run.observe("batch", rank=rank)
    print("done", flush=True)
run.close()
"""


class Rank:
    """A rank in a process of its own, which announces as many events as it is told."""

    def __init__(self, rank: int, size: int, folder: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(size)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env={**os.environ},
        )  # fmt: skip

    def wait(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def observe(self, n: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def processes(tmp_path):
    """Return a function that starts ranks in processes; all are killed at the end."""
    started = []

    def start(*ranks, size):
        made = [Rank(rank, size, tmp_path) for rank in ranks]
        started.extend(made)
        for one in made:
            one.wait()
        return made

    yield start
    for one in started:
        one.kill()


def test_a_rank_that_is_killed_is_named_and_one_that_replaces_it_joins(processes, ask):
    first, second = processes(0, 1, size=2)
    group = ask("procs")
    stream = group.stream("batch.rank.count(every=10)", hold_s=1e6)
    for one in (first, second):
        one.observe(20)
    assert [(one.value, one.missing) for one in stream.wait(2, timeout_s=TIMEOUT_S)] == [(20, ())] * 2
    second.kill()
    first.observe(10)
    assert [(one.value, one.complete, one.missing) for one in stream.wait(3, timeout_s=TIMEOUT_S)][2:] == [
        (10, False, (1,))
    ]
    assert stream.note == "Rank 1 died"
    (again,) = processes(1, size=2)
    first.kill()
    # A stream that is found again begins where it is.
    wait_until(lambda: len(stream.records()) >= 4, pause=lambda: again.observe(10))
    found = stream.records()[3]
    assert (found.value, found.complete, found.missing) == (10, False, (0,))


def test_a_rank_that_is_restarted_alone_is_left_out_and_said_to_be_and_its_time_spans_match_again(processes, ask):
    first, second = processes(0, 1, size=2)
    group = ask("procs")
    numbered = group.stream("batch.rank.count(every=10)", hold_s=1e6)
    timed = group.stream("batch.rank.count(every='50 ms')", by="rank", hold_s=1e6)
    for one in (first, second):
        one.observe(20)
    assert [one.missing for one in numbered.wait(2, timeout_s=TIMEOUT_S)] == [(), ()]
    second.kill()
    wait_until(lambda: numbered.note == "Rank 1 died")
    (again,) = processes(1, size=2)
    seen = len(timed.records())

    def observe_both() -> None:
        first.observe(1)
        again.observe(1)

    def both_answer() -> bool:
        numbered.records()
        of_both = [one for one in timed.records()[seen:] if set(one.value) == {0, 1}]
        return "Rank 1 was restarted alone" in numbered.note and bool(of_both)

    wait_until(both_answer, lambda: (numbered.note, timed.note), pause=observe_both)
    numbers = numbered.records()
    assert numbered.note.startswith("Rank 1 was restarted alone")
    assert {one.missing for one in numbers[2:]} <= {(1,)}
    first.observe(20)
    found = numbered.wait(4, timeout_s=TIMEOUT_S)
    assert [(one.value, one.complete, one.missing) for one in found[2:4]] == [(10, False, (1,))] * 2
    assert "restarted alone" not in timed.note


def test_stacks_of_all_ranks(ranks, ask):
    ranks(3)
    stacks = ask("gpt").stacks()
    mine = [one for one in stacks.threads if one.main]  # of one process here, which goes on while they are taken
    assert [one.rank for one in mine] == [0, 1, 2]
    for one in mine:
        assert any(frame.function == "test_stacks_of_all_ranks" for frame in one.frames)
    assert not stacks.missing
