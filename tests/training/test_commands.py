"""Commands: they wait, are applied once, by the thread that began the run, and are remembered."""

from __future__ import annotations

import asyncio
import functools
import itertools
import queue
import re
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import CommandError
from sightglass.training import commands
from sightglass.training.command_runner import SILENT_S, in_event_loop
from sightglass.training.commands import MAX_PENDING, NOT_READ, Command, CommandQueue, agreed
from sightglass.training.controls import Action, Control


def command(kind, name="", value=None, *, id=1, client="c", **options):
    return Command(id=id, client=client, kind=kind, name=name, value=value, **options)


@pytest.fixture
def held(bench):
    """Return a bench with a control and two actions, and a list of what became of commands."""
    b = bench()
    results = []
    b.telemetry.commands.on_result = results.append
    b.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1, min=0.0, max=1.0)
    b.telemetry.commands.queue.actions["double"] = Action("double", lambda x: 2 * x)
    b.telemetry.commands.queue.actions["fail"] = Action("fail", lambda: 1 / 0)
    b.telemetry.commands.queue.actions["exit"] = Action("exit", exit)
    return b, results


def test_a_command_is_applied_once_at_the_next_event(held):
    b, results = held
    b.observe("batch", step=5)
    b.telemetry.commands.add(command("set", "lr", 0.5))
    assert b.telemetry.commands.queue.controls["lr"].value == 0.1
    for step in (6, 7):
        b.observe("batch", step=step)
    assert [(d.event, d.index, d.step, d.old, d.result, d.error) for d in results] == [("batch", 1, 6, 0.1, 0.5, "")]
    assert list(b.telemetry.commands.queue.history) == results
    assert b.telemetry.commands.queue.controls["lr"].value == 0.5


def test_at_waits_for_its_event(held):
    b, results = held
    b.telemetry.commands.add(command("set", "lr", 0.5, id=1, at="epoch"))
    b.telemetry.commands.add(command("set", "lr", 0.2, id=2))
    b.observe("batch")
    assert [d.command.id for d in results] == [2]
    b.observe("epoch")
    assert [(d.command.id, d.event) for d in results] == [(2, "batch"), (1, "epoch")]
    b.observe("batch")
    assert "batch" in b.telemetry.subscriptions.idle


def test_actions_return_or_fail_without_hurting_the_run(held):
    b, results = held
    for number, (name, value) in enumerate([("double", [21]), ("fail", []), ("double", [object]), ("exit", [])]):
        b.telemetry.commands.add(command("call", name, value, id=number))
    b.observe("batch")
    assert results[0].result == 42
    assert [d.error.partition(":")[0] for d in results[1:]] == [
        "call 'fail' failed", "call 'double' failed", "call 'exit' failed",
    ]  # fmt: skip
    assert results[1].error == "call 'fail' failed: ZeroDivisionError: division by zero"


def several(a, /, b: int, *rest: float, slow: bool = False, name="x" * 100, **others: object) -> tuple[object, ...]:
    """Return all arguments."""
    return a, b, rest, slow, name[:1], others


@pytest.mark.parametrize(("value", "came"), [
    ([1, 2], (1, 2, (), False, "x", {})),
    ({"args": [1], "keywords": {"b": 2}}, (1, 2, (), False, "x", {})),
    ({"args": [1, 2, 3.5], "keywords": {"slow": True, "name": "y", "more": 4}}, (1, 2, (3.5,), True, "y", {"more": 4})),
    ({"args": [{"keywords": 1}], "keywords": {"b": None}}, ({"keywords": 1}, None, (), False, "x", {})),
])  # fmt: skip
def test_actions_take_arguments_by_position_and_by_name(held, value, came):
    b, results = held
    b.telemetry.commands.queue.actions["several"] = Action("several", several)
    b.telemetry.commands.add(command("call", "several", value))
    b.observe("batch")
    assert (results[0].error, tuple(results[0].result)) == ("", came)


@pytest.mark.parametrize("value", [
    None, [], [1], 1, "ab", {"a": 1}, {"args": [1, 2], "keywords": {"b": 3}}, {"args": [1, 2], "keywords": 3},
    {"args": [], "keywords": {"a": 1, "b": 2}}, {"args": 1, "keywords": {}},
])  # fmt: skip
def test_arguments_that_an_action_does_not_take_are_refused_with_its_signature(held, value):
    b, _ = held
    b.telemetry.commands.queue.actions["several"] = Action("several", several)
    with pytest.raises(CommandError, match="several") as caught:
        b.telemetry.commands.add(command("call", "several", value))
    assert "(a, /, b: int, *rest: float, slow: bool = False, name='xxx" in str(caught.value)
    assert "**others: object)" in str(caught.value)


@pytest.mark.parametrize(("function", "signature", "named"), [
    (lambda: 0, "()", []), (lambda *, a: a, "(*, a)", ["a"]), (lambda a, b=2: a, "(a, b=2)", ["a", "b"]),
    (functools.partial(several, 1, slow=True), "(b: int, *rest: float, slow", ["b", "slow", "name"]),
    (dict, "", []), (Action, "(name: str, function: ", ["name", "function", "thread", "where"]),
    (lambda a, /: a, "(a, /)", []),
])  # fmt: skip
def test_the_signature_of_an_action_is_shown(function, signature, named):
    action = Action("it", function)
    assert action.signature.startswith(signature)
    assert [one.name for one in action.parameters] == named


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (command("set", "rl", 1.0), "Unknown control 'rl'. Did you mean 'lr'? Known: lr."),
        (command("set", "lr", 5.0), "Control 'lr': expected at most 1.0, got 5.0"),
        (command("call", "doubel"), "Unknown action 'doubel'. Did you mean 'double'? Known: double, exit, fail."),
    ],
)
def test_what_cannot_succeed_is_refused_before_it_waits(held, wrong, message):
    b, _ = held
    with pytest.raises(CommandError) as caught:
        b.telemetry.commands.add(wrong)
    assert (str(caught.value), b.telemetry.commands.queue.pending) == (message, [])


def test_a_step_that_cannot_be_read_does_not_stop_a_command(held):
    b, results = held
    b.telemetry.commands.add(command("set", "lr", 0.5))
    b.observe("batch", step=object())
    assert (results[0].step, results[0].result) == (0, 0.5)


def test_commands_that_wait_are_bounded():
    queue = CommandQueue()
    for number in range(MAX_PENDING):
        queue.add(command("stop", id=number, at="never"))
    with pytest.raises(CommandError, match=r"1000 commands.*got more"):
        queue.add(command("stop"))


@given(st.lists(st.sampled_from([None, "a", "b", "c"])), st.sampled_from(["a", "b"]))
def test_due_takes_out_in_order_what_waits_for_this_event(places, event):
    queue = CommandQueue()
    commands = [command("stop", value=np.zeros(2), id=number, at=at) for number, at in enumerate(places)]
    for one in commands:
        queue.add(one)
    due = queue.due(event)
    assert [a.id for a in due] == [a.id for a in commands if a.at in (None, event)]
    assert [a.id for a in queue.pending] == [a.id for a in commands if a.at not in (None, event)]


def test_another_threads_events_do_not_apply_commands(held):
    b, results = held
    b.telemetry.commands.add(command("set", "lr", 0.5))
    thread = threading.Thread(target=lambda: b.observe("batch"))
    thread.start()
    thread.join()
    assert results == []
    b.observe("batch")
    assert len(results) == 1


class Paused:
    """A training on a thread of its own, paused at its event number `at`."""

    def __init__(self, make, n_events: int, prepare=lambda b: None):
        self.results: queue.Queue = queue.Queue()
        self.begun, self.go = threading.Event(), threading.Event()

        def train():
            self.b = make()
            self.b.telemetry.commands.on_result = self.results.put
            self.b.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
            self.begun.set()
            self.go.wait(60)
            for _ in range(n_events):
                if self.b.telemetry.commands.queue.stopping:
                    break
                self.b.observe("batch")

        self.thread = threading.Thread(target=train)
        self.thread.start()
        assert self.begun.wait(60)

    def start(self):
        self.go.set()

    def add(self, *args, **options):
        self.b.telemetry.commands.add(command(*args, **options))
        return self.results.get(timeout=60)

    def ended(self) -> bool:
        self.thread.join(60)
        return not self.thread.is_alive()


@pytest.fixture
def paused(bench):
    training = Paused(bench, 3)
    training.b.telemetry.commands.add(command("pause", client="owner"))
    training.start()
    assert training.results.get(timeout=60).command.kind == "pause"
    yield training
    training.b.telemetry.close()
    assert training.ended()


def test_a_paused_run_applies_commands_and_continues_when_resumed(paused):
    assert paused.add("set", "lr", 0.5).result == 0.5
    assert paused.b.telemetry.subscriptions.sources["batch"].n_events == 1
    paused.add("resume", client="other")
    assert paused.ended()
    assert paused.b.telemetry.subscriptions.sources["batch"].n_events == 3
    assert [d.command.kind for d in paused.b.telemetry.commands.queue.history] == ["pause", "set", "resume"]


def test_stop_lets_a_paused_run_go(paused):
    paused.add("stop")
    assert paused.ended()
    assert paused.b.telemetry.commands.queue.stopping
    assert paused.b.telemetry.subscriptions.sources["batch"].n_events == 1


def test_who_stops_a_program_that_never_looks_at_it_is_told(held):
    b, results = held
    queue = b.telemetry.commands.queue
    b.telemetry.commands.add(command("stop", id=1))
    b.observe("batch")
    assert queue.read_stopping()
    b.telemetry.commands.add(command("stop", id=2))
    b.observe("batch")
    assert [entry.note for entry in results] == [NOT_READ, ""]


def test_a_pause_ends_with_its_owner(paused):
    paused.b.telemetry.commands.release("another client")
    paused.add("set", "lr", 0.2)
    assert paused.b.telemetry.commands.queue.paused_by is not None
    paused.b.telemetry.commands.release("owner")
    assert paused.results.get(timeout=60).command.kind == "resume"
    assert paused.ended()


def test_a_pause_ends_with_the_run(paused):
    paused.b.telemetry.close()
    assert paused.ended()


def test_a_pause_with_hold_outlives_its_owner(bench):
    b = bench()
    b.telemetry.commands.queue.paused_by = command("pause", client="owner", hold=True)
    b.telemetry.commands.release("owner")
    assert (b.telemetry.commands.queue.paused_by.client, b.telemetry.commands.queue.pending) == ("owner", [])


def test_a_pause_that_still_waits_goes_with_its_owner(held):
    b, results = held
    b.telemetry.commands.add(command("pause", client="owner", at="epoch", id=1))
    b.telemetry.commands.add(command("set", "lr", 0.5, client="owner", at="epoch", id=2))
    b.telemetry.commands.release("owner")
    b.observe("epoch")
    assert [d.command.id for d in results] == [2]


class Broadcast:
    """What rank 0 says goes to all, over queues; calls must come in step."""

    def __init__(self, n_ranks: int):
        self._queues = [queue.Queue() for _ in range(n_ranks)]

    def of(self, rank: int):
        def agree(data: bytes) -> bytes:
            if rank == 0:
                for one in self._queues[1:]:
                    one.put(data)
                return data
            return self._queues[rank].get(timeout=60)

        return agree


def test_ranks_apply_the_same_commands_at_the_same_event(bench):
    broadcast = Broadcast(2)
    received = [[], []]
    made, ready = {}, threading.Barrier(3)

    def train(rank: int) -> None:
        b = made[rank] = bench(agree=broadcast.of(rank), leads=rank == 0)
        b.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
        b.telemetry.commands.queue.actions["take"] = Action("take", lambda *values: received[rank].extend(values))
        ready.wait(60)
        ready.wait(60)
        index = 0
        while not b.telemetry.commands.queue.stopping and index < 100_000_000:
            b.observe("batch")
            index += 1

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    results = queue.Queue()
    lead = made[0].telemetry.commands
    lead.on_result = results.put
    ready.wait(60)
    lead.add(command("set", "lr", 0.5, id=1))
    lead.add(command("call", "take", [np.arange(3), 1 + 2j, (1, 2)], id=2))
    lead.add(command("pause", client="owner", id=3))
    assert [results.get(timeout=60).command.id for _ in range(3)] == [1, 2, 3]
    lead.release("owner")
    assert results.get(timeout=60).command.kind == "resume"
    lead.add(command("stop", id=4))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    histories = [[(d.command.kind, d.index) for d in made[rank].telemetry.commands.queue.history] for rank in range(2)]
    assert histories[0] == histories[1]
    assert [kind for kind, _ in histories[0]] == ["set", "call", "pause", "resume", "stop"]
    for taken in received:
        array, *rest = taken
        assert (list(array), rest) == ([0, 1, 2], [1 + 2j, (1, 2)])


def test_what_cannot_be_broadcast_is_refused(bench):
    b = bench(agree=lambda data: data)
    b.telemetry.commands.queue.actions["take"] = Action("take", lambda x: x)
    with pytest.raises(CommandError, match="got object"):
        b.telemetry.commands.add(command("call", "take", [object()]))
    b.observe("batch")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "call"]),
            st.one_of(st.none(), st.floats(allow_nan=False), st.text(), st.binary(), st.lists(st.integers())),
        )
    )
)
def test_agreed_hands_over_what_it_is_given(pairs):
    commands = [command(kind, "x", value, id=number, at="e") for number, (kind, value) in enumerate(pairs)]
    assert agreed(commands, {}, bytes) == (commands, {})


# What a run remembers is bounded


def apply(queue, n, value=None):
    for id in range(n):
        queue.apply(command("call", "get", value, id=id), event="batch", index=id, step=id, wall_time=0.0)
    return [entry.command.id for entry in queue.history]


def test_the_history_is_bounded_in_commands(monkeypatch):
    monkeypatch.setattr(commands, "MAX_HISTORY", 10)
    queue = CommandQueue()
    queue.actions["get"] = Action("get", lambda: 1)
    assert apply(queue, 25) == list(range(15, 25))


def test_the_history_is_bounded_in_bytes():
    queue = CommandQueue()
    queue.actions["get"] = Action("get", lambda *_: {"weights": [np.zeros(2**17), np.zeros(2**17)]})  # 2 MiB
    assert apply(queue, 100) == list(range(93, 100))
    assert apply(queue, 100, value=["x" * 2**22]) == list(range(98, 100))
    queue.actions["get"] = Action("get", lambda: np.zeros(2**22))  # more than there is room for: only this one
    assert apply(queue, 3) == [2]
    queue.actions["get"] = Action("get", lambda: 0)
    assert apply(queue, 5) == list(range(5))


def test_a_result_is_a_copy_of_what_the_action_returned():
    endless = [1]
    endless.append(endless)
    queue = CommandQueue()
    queue.actions["get"] = Action("get", lambda: endless)
    assert apply(queue, 5) == list(range(5))
    endless[0] = 2
    assert queue.history[0].result == [1, "unreadable: it contains itself"]


# Threads


def elsewhere(b, *events: str) -> None:
    """Announce events on a thread of its own, named "worker"."""
    thread = threading.Thread(target=lambda: [b.observe(event) for event in events], name="worker")
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_what_is_declared_for_any_thread_is_applied_at_its_next_event(held):
    b, results = held
    called_on = []
    commands_ = b.telemetry.commands
    commands_.queue.controls["limit"] = Control("limit", 1, thread="any")
    commands_.queue.actions["where"] = Action(
        "where", lambda: called_on.append(threading.current_thread().name), thread="any"
    )
    commands_.add(command("set", "limit", 5, id=1))
    commands_.add(command("set", "lr", 0.5, id=2))
    commands_.add(command("call", "where", [], id=3, at="epoch"))
    commands_.add(command("stop", id=4))
    elsewhere(b, "batch", "epoch", "batch")
    assert [(d.command.id, d.event, d.error) for d in results] == [(1, "batch", ""), (4, "batch", ""), (3, "epoch", "")]
    assert (called_on, commands_.queue.stopping) == (["worker"], True)
    b.observe("batch")
    assert [d.command.id for d in results][3:] == [2]
    elsewhere(b, "batch")
    assert "batch" in b.telemetry.subscriptions.idle  # nothing waits: events cost nothing again


def test_the_own_thread_applies_what_any_thread_may(held):
    b, results = held
    b.telemetry.commands.queue.controls["limit"] = Control("limit", 1, thread="any")
    b.telemetry.commands.add(command("set", "limit", 5))
    b.observe("batch")
    assert [(d.old, d.result) for d in results] == [(1, 5)]


def test_threads_that_announce_at_once_apply_each_command_once(held):
    b, results = held
    n_threads, n_commands = 4, 200
    counter = itertools.count()
    queue_ = b.telemetry.commands.queue
    queue_.actions["count"] = Action("count", counter.__next__, thread="any")
    queue_.controls["limit"] = Control("limit", -1, thread="any")
    over, begin = threading.Event(), threading.Barrier(n_threads + 1)

    def announce() -> None:
        begin.wait(60)
        while not over.is_set():
            b.observe("request")

    threads = [threading.Thread(target=announce) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    begin.wait(60)
    for number in range(n_commands):
        b.telemetry.commands.add(command("call", "count", [], id=2 * number))
        b.telemetry.commands.add(command("set", "limit", number, id=2 * number + 1))
    while queue_.pending:
        b.clock.pass_(0.0)
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(d.command.id for d in results) == list(range(2 * n_commands))
    assert next(counter) == n_commands
    sets = [(d.old, d.result) for d in results if d.command.kind == "set"]
    assert sorted(old for old, _ in sets) == sorted({-1, *range(n_commands)} - {queue_.controls["limit"].value})
    assert len(queue_.history) == 2 * n_commands


def test_a_thread_that_stops_the_run_lets_a_paused_one_go(paused):
    paused.b.telemetry.commands.add(command("stop"))
    elsewhere(paused.b, "other")
    assert paused.results.get(timeout=60).command.kind == "stop"
    assert paused.ended()


def test_ranks_apply_nothing_on_other_threads(bench):
    b = bench(agree=lambda data: data)
    b.telemetry.commands.queue.controls["limit"] = Control("limit", 1, thread="any")
    b.telemetry.commands.add(command("set", "limit", 5))
    b.telemetry.commands.add(command("stop"))
    elsewhere(b, "batch")
    assert (len(b.telemetry.commands.queue.pending), b.telemetry.commands.queue.stopping) == (2, False)
    b.observe("batch")
    assert b.telemetry.commands.queue.controls["limit"].value == 5


@pytest.mark.parametrize("make", [lambda t: Control("x", 1, thread=t), lambda t: Action("x", print, thread=t)])
def test_an_unknown_thread_is_refused(make):
    with pytest.raises(ValueError, match=r"thread='init'.*thread='any'.*'main'"):
        make("main")


# apply


def test_apply_applies_what_waits_on_this_thread(held):
    b, results = held
    b.telemetry.commands.apply(None)
    b.telemetry.commands.add(command("set", "lr", 0.5, id=1))
    b.telemetry.commands.add(command("set", "lr", 0.2, id=2, at="epoch"))
    thread = threading.Thread(target=lambda: b.telemetry.commands.apply(7))
    thread.start()
    thread.join(60)
    assert [(d.command.id, d.event, d.index, d.step, d.result) for d in results] == [(1, "apply", 0, 7, 0.5)]
    b.telemetry.commands.add(command("call", "double", [2], id=3, at="apply"))
    b.telemetry.commands.apply(None)
    assert [(d.command.id, d.event, d.index, d.step) for d in results][1:] == [(3, "apply", 1, 1)]
    assert [d.id for d in b.telemetry.commands.queue.pending] == [2]


def test_ranks_apply_on_the_thread_of_the_run_only(bench):
    b = bench(agree=lambda data: data)
    b.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
    b.telemetry.commands.add(command("set", "lr", 0.5))
    failures = []

    def apply() -> None:
        try:
            b.telemetry.commands.apply(None)
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=apply)
    thread.start()
    thread.join(60)
    assert len(failures) == 1
    assert "all ranks" in failures[0]
    b.telemetry.commands.apply(None)
    assert b.telemetry.commands.queue.controls["lr"].value == 0.5
    with pytest.raises(RuntimeError, match=r"apply\(\).*ranks=…"):
        asyncio.run(b.telemetry.commands.apply_async(None, sleep=asyncio.sleep))


async def slowly(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


def test_async_actions_are_awaited_by_apply_async_alone(held):
    b, results = held
    b.telemetry.commands.queue.actions["slowly"] = Action("slowly", slowly)
    b.telemetry.commands.queue.actions["hidden"] = Action("hidden", lambda: slowly(1))
    b.telemetry.commands.add(command("call", "slowly", [21], id=1))
    b.telemetry.commands.add(command("set", "lr", 0.5, id=2))
    b.telemetry.commands.add(command("call", "hidden", [], id=3))
    b.observe("batch")
    b.telemetry.commands.apply(None)
    assert [d.command.id for d in results] == [2, 3]
    assert results[1].error == "call 'hidden' returned a coroutine. Declare an `async def` function"
    b.telemetry.commands.add(command("call", "hidden", [], id=4))
    asyncio.run(b.telemetry.commands.apply_async(5, sleep=asyncio.sleep))
    assert [(d.command.id, d.result, d.step, d.error) for d in results][2:] == [(1, 42, 5, ""), (4, 2, 5, "")]


def test_apply_async_waits_while_the_run_is_paused_and_others_continue(held):
    b, results = held
    b.telemetry.commands.queue.actions["slowly"] = Action("slowly", slowly)
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            b.telemetry.commands.add(command("call", "slowly", [1], id=2))
        elif len(slept) == 2:
            b.telemetry.commands.add(command("resume", id=3))
        assert len(slept) < 5

    b.telemetry.commands.add(command("pause", id=1))
    asyncio.run(b.telemetry.commands.apply_async(None, sleep=sleep))
    assert ([d.command.id for d in results], len(slept)) == ([1, 2, 3], 2)


def test_a_cancelled_task_leaves_what_it_has_not_begun(held):
    b, results = held
    b.telemetry.commands.queue.actions["hang"] = Action("hang", lambda: asyncio.Event().wait())

    async def main() -> None:
        b.telemetry.commands.add(command("call", "hang", [], id=1))
        b.telemetry.commands.add(command("set", "lr", 0.5, id=2))
        task = asyncio.create_task(b.telemetry.commands.apply_async(None, sleep=asyncio.sleep))
        while b.telemetry.commands.queue.pending[0].id == 1:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [(d.command.id, d.error) for d in results] == [(1, "call 'hang' was cancelled")]
    b.observe("batch")
    assert results[1].result == 0.5


def test_an_event_in_a_loop_that_awaits_commands_never_waits(held):
    b, results = held
    runner = b.telemetry.commands

    async def main() -> None:
        await runner.apply_async(None, sleep=asyncio.sleep)
        for number, (kind, name, value, at) in enumerate([
            ("set", "lr", 0.5, None), ("pause", "", None, None), ("set", "lr", 0.2, "batch"), ("stop", "", None, None),
            ("resume", "", None, None), ("pause", "", None, "batch"),
        ]):  # fmt: skip
            runner.add(command(kind, name, value, id=number, at=at))
        b.observe("batch")
        assert [(d.command.id, d.event) for d in results] == [(2, "batch")]
        await asyncio.wait_for(runner.apply_async(None, sleep=release), 60)

    async def release(seconds: float) -> None:
        b.observe("batch")  # of another task, which goes on
        runner.add(command("resume", id=9))

    asyncio.run(main())
    assert [(d.command.id, d.event) for d in results[1:]] == [
        (0, "apply"), (1, "apply"), (3, "apply"), (4, "apply"), (5, "apply"), (9, "apply"),
    ]  # fmt: skip
    assert not any(d.error for d in results)


def test_a_pause_in_a_loop_that_never_awaits_commands_is_refused(held):
    b, results = held
    runner = b.telemetry.commands

    async def main() -> None:
        for number, (kind, name, value) in enumerate([("pause", "", None), ("set", "lr", 0.5), ("stop", "", None)]):
            runner.add(command(kind, name, value, id=number))
        runner.add(command("pause", id=3, at="epoch"))
        b.observe("batch")
        assert {d.command.id for d in results} == {0, 1, 2}
        b.observe("epoch")

    asyncio.run(main())
    refused = {d.command.id: d.error for d in results if d.error}
    assert set(refused) == {0, 3}
    assert "apply_async" in refused[0]
    assert runner.queue.stopping


def test_commands_are_awaited_lately_as_often_as_the_loop_goes_round(held):
    b, _ = held
    threads = b.telemetry.commands.threads
    assert not threads.awaits_lately
    for every_s, lately_s in ((1.0, 10.0), (60.0, 120.0)):
        for _ in range(2):
            b.clock.pass_(every_s)
            asyncio.run(b.telemetry.commands.apply_async(None, sleep=asyncio.sleep))
        b.clock.pass_(lately_s - 0.1)
        assert threads.awaits_lately
        b.clock.pass_(0.2)
        assert not threads.awaits_lately


def test_the_cells_of_a_notebook_are_no_event_loop_of_the_program(monkeypatch):
    async def found(*, awaits: bool) -> bool:
        return in_event_loop(awaits=awaits)

    assert not in_event_loop(awaits=True)
    assert asyncio.run(found(awaits=False))
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert not asyncio.run(found(awaits=False))
    assert asyncio.run(found(awaits=True))


# Commands that wait in vain


def test_who_asks_is_told_if_all_events_come_from_other_threads(held):
    b, _ = held
    commands_ = b.telemetry.commands
    set_lr, stop = command("set", "lr", 0.5), command("stop")
    assert commands_.stuck(set_lr, b.clock.monotonic()) == ""  # no event at all: the program may just begin
    elsewhere(b, "request")
    told = commands_.stuck(set_lr, b.clock.monotonic())
    assert re.search(r"'request' comes from thread 'worker'.*'lr' with thread='any', or call run\.apply\(\)", told)
    told = commands_.stuck(command("pause"), b.clock.monotonic())
    assert re.search(r"'request' comes from thread 'worker'\. In the program, call run\.apply\(\)", told)
    assert commands_.stuck(stop, b.clock.monotonic()) == ""
    b.observe("batch")
    assert commands_.stuck(set_lr, b.clock.monotonic()) == ""
    told = commands_.stuck(command("set", "lr", 0.5, at="request"), b.clock.monotonic())
    assert re.match("No event 'request' .*'request' comes from thread 'worker'", told)
    assert commands_.stuck(command("set", "lr", 0.5, at="batch"), b.clock.monotonic()) == ""


def test_who_asks_is_told_when_the_own_thread_has_fallen_silent(held):
    b, _ = held
    b.observe("batch")
    commands_, set_lr = b.telemetry.commands, command("set", "lr", 0.5)
    since_s = b.clock.monotonic()
    commands_.add(set_lr)
    b.clock.pass_(SILENT_S)
    assert commands_.stuck(set_lr, since_s) == ""  # nothing happens anywhere: a long step
    elsewhere(b, "request")
    assert "for 10 s: 'request' " in commands_.stuck(set_lr, since_s)
    b.telemetry.commands.apply(None)
    assert commands_.stuck(set_lr, since_s) == ""


def test_a_program_that_applies_by_itself_is_not_thought_silent(held):
    b, _ = held
    elsewhere(b, "request")
    b.telemetry.commands.apply(None)
    assert b.telemetry.commands.stuck(command("set", "lr", 0.5), b.clock.monotonic()) == ""


def test_an_async_action_waits_in_vain_until_the_program_awaits(held):
    b, _ = held
    b.telemetry.commands.queue.actions["slowly"] = Action("slowly", slowly)
    call = command("call", "slowly", [1])
    assert re.match(r"Action 'slowly' .*run\.apply_async\(\)", b.telemetry.commands.stuck(call, 0.0))
    asyncio.run(b.telemetry.commands.apply_async(None, sleep=asyncio.sleep))
    assert b.telemetry.commands.stuck(call, 0.0) == ""
