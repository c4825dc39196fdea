"""All ranks apply a command at the same event, or none does; and no rank waits for another one for ever."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.training import agreement
from sightglass.training.agreement import Agreement, RankCommands, Vote
from sightglass.training.commands import HOLD_S, OPEN_S, Command, CommandResult, Proposal, pack
from sightglass.training.controls import Action, Control
from sightglass.training.evaluation.compiled import CompiledStep, VariantPlan
from sightglass.training.evaluation.telemetry import Telemetry

from .conftest import FakeClock

TICK_S = OPEN_S
MOST_TICKS = 20_000


class Store:
    """The launcher's store, in memory; `fails` makes it fail for one rank."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.gone = False

    def put(self, key: str, value: bytes) -> bytes:
        self._check()
        return self.values.setdefault(key, value)

    def get(self, key: str) -> bytes | None:
        self._check()
        return self.values.get(key)

    def delete(self, key: str) -> None:
        self._check()
        self.values.pop(key, None)

    def close(self) -> None:
        return

    def _check(self) -> None:
        if self.gone:
            raise ConnectionError("the store is gone")


class Asleep:
    """A worker whose rounds the test runs."""

    def __init__(self, name: str, round: Callable[[float], float | None]) -> None:
        self.round = round

    def wake(self) -> None:
        return


class Killed(BaseException):
    """The process of a rank is gone."""


class Rank:
    """One rank: its run, and a training that takes turns with the test, also where it waits inside an event."""

    def __init__(self, number: int, program: Program, *, n_events: int, has_run: bool = True) -> None:
        self.number = number
        self.n_events = n_events
        self.n = 0
        self.stopped = self.killed = self.ended = False
        self.applied: list[tuple[str, object, str, int]] = []
        self.errors: list[str] = []
        self.values: list[float] = []
        self._program = program
        self._has_run = has_run
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        self._back.acquire()

    @property
    def idle(self) -> bool:
        return self.stopped or self.killed or self.ended

    @property
    def pauses(self) -> bool:
        return self.runner.queue.paused_by is not None

    def look(self) -> None:
        """One round of the agreement's thread."""
        if self.agreement is not None and not self.idle:
            self._round(self._program.clock.monotonic())

    def train(self) -> None:
        """Let the training go on to its next event, or look once where it waits."""
        if not self.idle:
            self._turn.release()
            self._back.acquire()

    def end(self) -> None:
        """Let the training end at its next event."""
        self.n_events = min(self.n_events, self.n)

    def log(self) -> None:
        """Announce an event that the other ranks do not have, at the next turn."""
        self._logs += 1

    def kill(self) -> None:
        self.killed = True
        if self._thread.is_alive():
            self._turn.release()
            self._thread.join()

    def _live(self) -> None:
        self.telemetry = Telemetry(clock=self._program.clock, budget=None)
        self.runner = self.telemetry.commands
        self.lr = Control("lr", 0.1)
        self._logs = 0
        self.runner.queue.controls["lr"] = self.lr
        self.runner.queue.actions["note"] = Action("note", lambda: None)
        self.runner.on_result = self._result
        self.runner.changed.wait = self._wait
        if self._has_run:
            whole = Agreement(
                RankCommands(self.runner), rank=self.number, n_ranks=self._program.n_ranks, store=self._program.store,
                prefix="p/", worker=Asleep,
            )  # fmt: skip
            self._round, self.runner.agreement = whole.round, whole.shared
        self.agreement = self.runner.agreement
        with contextlib.suppress(Killed):
            self._pass()
            while self.n < self.n_events and not self.runner.queue.stopping:
                self.values.append(self.lr.value)
                self.n += 1
                self._observe("batch")
                for _ in range(self._logs):
                    self._observe("log")
                self._logs = 0
                self._pass()
            self.runner.leave(apply=True)
            self.ended = True
        self._back.release()

    def _pass(self) -> None:
        self._back.release()
        self._turn.acquire()
        if self.killed:
            raise Killed

    def _wait(self, timeout_s: float) -> None:
        """Wait in an event: the lock of the run is free meanwhile."""
        state = self.runner.changed._release_save()
        try:
            self._pass()
        finally:
            self.runner.changed._acquire_restore(state)

    def _observe(self, event: str) -> None:
        count = self.telemetry.subscriptions.idle.get(event)
        if count is not None:
            count()
        else:
            self.telemetry.events.observe(event, {})

    def _result(self, result: CommandResult) -> None:
        if result.error:
            self.errors.append(result.error)
        else:
            self.applied.append((result.command.kind, result.command.value, result.event, result.index))


class Program:
    """Some ranks, their store and their time."""

    def __init__(self, n_ranks: int, *, n_events: int = 500, with_runs: Collection[int] = range(99)) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.n_ranks = n_ranks
        self.ranks = [Rank(i, self, n_events=n_events, has_run=i in with_runs) for i in range(n_ranks)]
        self.n_commands = 0

    def ask(self, kind: str, **rest: object) -> None:
        self.n_commands += 1
        self.ranks[0].runner.add(Command(id=self.n_commands, client="c", kind=kind, **rest))

    def tick(self, n: int = 1) -> None:
        for _ in range(n):
            self.clock.pass_(TICK_S)
            for rank in self.ranks:
                rank.look()
            for rank in self.ranks:
                rank.train()

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(MOST_TICKS):
            if is_so():
                return
            self.tick()
        raise AssertionError("it hangs")

    def pause(self) -> None:
        self.ask("pause")
        self.until(lambda: all(rank.pauses for rank in self.ranks))

    def finish(self) -> None:
        self.until(lambda: all(rank.idle for rank in self.ranks))

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()


@pytest.fixture
def begin() -> Iterator[Callable[..., Program]]:
    begun: list[Program] = []

    def program(n_ranks: int, **options: Any) -> Program:
        begun.append(Program(n_ranks, **options))
        begun[-1].tick(5)
        return begun[-1]

    yield program
    for one in begun:
        one.kill()


def same(program: Program) -> list[tuple[str, object, str, int]]:
    """Check that all ranks that are alive applied the same, and return it."""
    first, *others = [rank.applied for rank in program.ranks if not rank.killed and rank.agreement]
    assert others == [first] * len(others)
    return first


def test_commands_are_applied_at_the_same_event_of_ranks_that_are_apart(begin):
    program = begin(3)
    for _ in range(40):
        program.ranks[1].train()
    program.ask("set", name="lr", value=0.2)
    program.until(lambda: bool(program.ranks[0].applied))
    program.ask("call", name="note")
    program.ask("stop")
    program.finish()
    assert [(kind, value) for kind, value, _, _ in same(program)] == [("set", 0.2), ("call", None), ("stop", None)]
    assert {tuple(rank.values) for rank in program.ranks} == {tuple(program.ranks[0].values)}
    assert program.ranks[0].n < 500


def test_between_commands_events_take_the_short_way(begin):
    program = begin(2)
    assert all("batch" in rank.telemetry.subscriptions.idle for rank in program.ranks)
    program.ask("set", name="lr", value=0.2)
    program.until(lambda: all(rank.applied for rank in program.ranks))
    program.tick()
    assert all("batch" in rank.telemetry.subscriptions.idle for rank in program.ranks)


def test_all_ranks_pause_at_one_event_and_resume(begin):
    program = begin(3)
    program.pause()
    assert len({rank.n for rank in program.ranks}) == 1
    program.ask("set", name="lr", value=0.5)
    program.until(lambda: all(rank.lr.value == 0.5 for rank in program.ranks))
    assert all(rank.pauses for rank in program.ranks)
    program.ask("resume")
    program.finish()
    assert [kind for kind, *_ in same(program)] == ["pause", "set", "resume"]
    assert len({index for *_, index in same(program)}) == 1


def test_the_pause_of_a_client_that_is_gone_ends_on_all_ranks(begin):
    program = begin(2)
    program.ask("pause")
    program.until(lambda: program.ranks[1].agreement.busy)
    program.ranks[0].runner.release("c")  # while it is proposed
    program.finish()
    assert [kind for kind, *_ in same(program)] == ["pause", "resume"]


def test_a_pause_lasts_while_rank_0_lives_and_ends_when_it_dies(begin):
    program = begin(3)
    program.pause()
    program.tick(int(3 * agreement.DEAD_S / TICK_S))
    assert all(rank.pauses for rank in program.ranks)
    program.ranks[0].kill()
    program.finish()
    assert [kind for kind, *_ in same(program)] == ["pause", "resume"]


def test_a_pause_waits_for_a_rank_0_that_comes_to_it_late(begin):
    program = begin(2)
    program.ask("pause")
    program.until(lambda: bool(program.ranks[0].agreement.agreed))
    late = program.ranks[0]
    late.train = lambda: None
    program.tick(int(3 * agreement.DEAD_S / TICK_S))
    assert program.ranks[1].pauses
    program.ask("set", name="lr", value=0.5)
    program.tick(100)
    del late.train
    program.until(lambda: all(rank.pauses for rank in program.ranks))
    program.ask("resume")
    program.finish()
    assert [kind for kind, *_ in same(program)] in (["pause", "set", "resume"], ["pause", "resume", "set"])


def test_a_rank_0_that_was_only_stopped_follows_the_others_out_of_the_pause(begin):
    program = begin(2)
    program.pause()
    program.ranks[0].stopped = True
    program.until(lambda: not program.ranks[1].pauses)
    program.ask("set", name="lr", value=0.7)  # it arrived meanwhile
    program.ranks[0].stopped = False
    program.finish()
    assert [kind for kind, *_ in same(program)][:2] == ["pause", "resume"]


@pytest.mark.parametrize("kind", ["stop", "pause"])
def test_a_command_to_a_program_with_a_run_on_rank_0_only_is_refused_and_holds_nothing_up(begin, kind):
    program = begin(2, n_events=3_000, with_runs=[0])
    program.ask(kind)
    while not program.ranks[0].errors:
        before = program.ranks[0].n
        program.tick()
        assert program.ranks[0].n == before + 1
    assert "rank 1 " in program.ranks[0].errors[0]
    program.finish()
    assert program.ranks[0].applied == []


def test_a_rank_whose_run_has_ended_is_named(begin):
    program = begin(2, n_events=3_000)
    program.ranks[1].end()
    program.tick()
    program.ask("set", name="lr", value=0.2)
    program.until(lambda: bool(program.ranks[0].errors))
    assert "rank 1 " in program.ranks[0].errors[0]


def test_an_event_that_only_rank_0_has_is_not_chosen(begin):
    program = begin(2)
    for _ in range(20):
        program.ranks[0].log()
    program.tick()
    program.ask("set", name="lr", value=0.2)
    program.ask("set", name="lr", value=0.3, at="log")
    program.finish()
    assert {(value, event) for _, value, event, _ in same(program)} == {(0.2, "batch")}


def test_a_rank_that_does_not_answer_costs_the_command_and_three_seconds(begin):
    program = begin(3, n_events=2_000)
    program.ranks[2].stopped = True
    program.ask("set", name="lr", value=0.2)
    n_ticks = 0
    while not program.ranks[0].errors:
        program.tick()
        n_ticks += 1
    assert (n_ticks - program.ranks[0].n) * TICK_S < HOLD_S + 1.0
    assert "rank 2 " in program.ranks[0].errors[0]
    program.ranks[2].stopped = False
    program.finish()
    assert same(program) == []


def test_a_store_that_is_gone_ends_a_pause_and_refuses_commands(begin):
    program = begin(2)
    program.pause()
    program.store.gone = True
    program.finish()
    assert all("store" in rank.agreement.problem for rank in program.ranks)


def test_a_rank_that_cannot_know_the_decision_goes_on_and_says_so(begin):
    program = begin(2)
    program.ask("set", name="lr", value=0.2)
    program.until(lambda: program.ranks[1].agreement.busy)
    program.store.gone = True
    with pytest.warns(RuntimeWarning, match="may have applied"):
        program.finish()


def test_a_pause_can_end_after_the_other_ranks_have_ended(begin):
    program = begin(2)
    program.ranks[1].end()
    program.ask("pause")
    program.until(lambda: program.ranks[0].pauses or bool(program.ranks[0].errors))
    program = begin(2, n_events=40)
    program.ranks[0].n_events = 500
    program.ask("pause", at="batch")
    program.until(lambda: program.ranks[0].pauses)
    program.ranks[1].kill()
    program.store.put("p/ended/1", agreement.YES)
    program.ask("set", name="lr", value=0.2)
    program.ask("resume")
    program.finish()
    assert program.ranks[0].lr.value == 0.1


def test_a_rank_that_starts_again_applies_nothing_of_before(begin):
    program = begin(2)
    program.ask("set", name="lr", value=0.2)
    program.until(lambda: all(rank.applied for rank in program.ranks))
    program.ranks[1].kill()
    again = program.ranks[1] = Rank(1, program, n_events=500)
    program.tick(200)
    assert again.applied == []
    program.ask("set", name="lr", value=0.3)
    program.until(lambda: bool(program.ranks[0].errors))
    assert again.applied == []


@pytest.mark.parametrize(("n_ahead", "can"), [(-1, False), (0, False), (1, True)])
def test_a_rank_confirms_only_what_no_event_in_progress_can_pass(begin, n_ahead, can):
    program = begin(2)
    one = program.ranks[1]
    proposal = Proposal(event="batch", index=one.n + n_ahead)
    program.store.put("p/proposal/1", msgspec.msgpack.encode(proposal))
    one.look()
    assert msgspec.msgpack.decode(program.store.get("p/vote/1/1"), type=Vote) == Vote(can=can, n_events=one.n)


def test_a_rank_that_gives_up_follows_a_yes_that_came_just_before(begin, monkeypatch):
    program = begin(2)
    put = program.store.put
    monkeypatch.setattr(
        program.store, "put", lambda key, value: put(key, agreement.YES if value == agreement.NO else value)
    )
    program.ranks[0].stopped = True
    proposal = Proposal(
        event="batch", index=20, commands=[pack(Command(id=1, client="", kind="set", name="lr", value=0.2))]
    )
    put("p/proposal/1", msgspec.msgpack.encode(proposal))
    program.until(lambda: bool(program.ranks[1].applied))
    program.ranks[0].stopped = False
    program.finish()
    assert same(program) == [("set", 0.2, "batch", 20)]


def test_plans_of_compiled_steps_are_adopted_at_the_same_event(begin):
    program = begin(2)
    adopted: dict[int, list[tuple[int, tuple[str, ...]]]] = {0: [], 1: []}

    class Step(CompiledStep):
        event = "batch"

        def __init__(self, rank: Rank) -> None:
            self.rank, self.wanted = rank, ()

        def propose(self) -> VariantPlan:
            return VariantPlan(use=self.wanted)

        def adopt(self, plan: VariantPlan) -> None:
            adopted[self.rank.number].append((self.rank.n, plan.use))

    steps = [Step(rank) for rank in program.ranks]
    for rank, step in zip(program.ranks, steps, strict=True):
        rank.telemetry.steps.add(step)
    for wanted in (("batch.loss",), ()):
        steps[0].wanted = wanted
        program.tick(100)
    assert adopted[0] == adopted[1]
    assert [use for _, use in adopted[0]] == [("batch.loss",), ()]


FAULTS = st.tuples(st.integers(0, 120), st.sampled_from(["kill", "stop", "go", "end"]), st.integers(0, 2))
COMMANDS = st.tuples(st.integers(0, 120), st.sampled_from(["set", "set", "call", "pause", "resume", "stop", "leave"]))
NAMES = {"set": "lr", "call": "note"}
THREE = partial(st.lists, min_size=3, max_size=3)


@given(
    lengths=THREE(st.integers(1, 200)),
    ahead=THREE(st.integers(0, 30)),
    train_every=THREE(st.integers(1, 7)),
    look_every=THREE(st.integers(1, 30)),
    commands=st.lists(COMMANDS, max_size=6),
    faults=st.lists(FAULTS, max_size=3),
)
def test_whatever_happens_all_ranks_apply_the_same_or_none_and_nothing_hangs(
    lengths, ahead, train_every, look_every, commands, faults
):
    program = Program(3)
    try:
        for rank, n_events, n_ahead in zip(program.ranks, lengths, ahead, strict=True):
            rank.n_events = n_events
            for _ in range(n_ahead):
                rank.train()
        play(program, train_every, look_every, commands, faults)
        # A rank that has ended needs no end of a pause.
        whole = [[it for it in rank.applied if it[0] != "resume"] for rank in program.ranks if not rank.killed]
        for one in whole:
            assert [it[:2] for it in one] == [it[:2] for it in whole[0]]
            for (*_, event, index), (*_, other_event, other_index) in zip(one, whole[0], strict=True):
                # At its end a rank applies what was agreed on for events that it did not reach.
                assert (event, index) == (other_event, other_index) or "apply" in (event, other_event)
    finally:
        program.kill()


def play(program, train_every, look_every, commands, faults):
    """Let a program run to its end, with commands and faults at some ticks, and each rank at its own pace."""
    first = program.ranks[0]
    for tick in range(MOST_TICKS):
        for at, kind in commands:
            if at == tick and not first.idle:
                if kind == "leave":
                    first.runner.release("c")
                else:
                    program.ask(kind, name=NAMES.get(kind, ""), value=float(tick) / 1000 if kind == "set" else None)
        for at, what, number in faults:
            if at == tick:
                rank = program.ranks[number]
                match what:
                    case "kill":
                        rank.kill()
                    case "end":
                        rank.end()
                    case _:
                        rank.stopped = what == "stop"
        if tick > 200:
            for rank in program.ranks:
                rank.stopped = False
            if first.pauses and tick % 400 == 0 and not first.idle:
                program.ask("resume")
        program.clock.pass_(TICK_S)
        for rank, trains, looks in zip(program.ranks, train_every, look_every, strict=True):
            if tick % looks == 0:
                rank.look()
            if tick % trains == 0:
                rank.train()
        if all(rank.killed or rank.ended for rank in program.ranks):
            return
    raise AssertionError("it hangs")
