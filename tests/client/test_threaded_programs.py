"""Commands reach programs of any shape: events from worker threads, an event loop, or none at all."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import sightglass as sg

PATIENCE_S = 60.0  # a loaded machine; no test waits that long unless it fails


@pytest.fixture
def served(begin):
    """Return a run all of whose events come from four worker threads, until the test ends."""
    run = begin("served")
    over = threading.Event()

    def work(number: int) -> None:
        for n in itertools.count():
            run.observe("request", worker=number, n=n)
            if over.wait(0.001):
                break

    threads = [threading.Thread(target=work, args=(number,), name=f"worker-{number}") for number in range(4)]
    yield run, lambda: [thread.start() for thread in threads]
    over.set()
    for thread in threads:
        thread.join(PATIENCE_S)


def elsewhere(function):
    """Return what a function returns on a thread of its own, as a client in another process would call it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(PATIENCE_S)


def test_a_control_for_any_thread_is_set_by_a_worker(served, ask):
    run, start = served
    limit = run.control("limit", 1, thread="any")
    run.action("name", lambda: threading.current_thread().name, thread="any")
    start()
    client = ask(run)
    reply = elsewhere(lambda: client.set("limit", 5, timeout_s=PATIENCE_S))
    assert (reply.applied, reply.event, reply.result, limit.value) == (True, "request", 5, 5)
    assert elsewhere(lambda: client.call("name", timeout_s=PATIENCE_S)).result.startswith("worker-")
    assert elsewhere(lambda: client.stop(timeout_s=PATIENCE_S)).applied
    assert run.stopping
    assert [(entry.kind, entry.event) for entry in client.history] == [
        ("set", "request"), ("call", "request"), ("stop", "request"),
    ]  # fmt: skip


def test_a_control_of_the_wrong_thread_is_told_at_once(served, ask):
    run, start = served
    limit = run.control("limit", 1)
    client = ask(run)
    start()
    client.stream("request.n").wait(1, timeout_s=PATIENCE_S)
    reply = elsewhere(lambda: client.set("limit", 5, timeout_s=10 * PATIENCE_S))  # `elsewhere` waits a tenth of that
    assert not reply.applied
    assert "'request' comes from thread 'worker-" in reply.note
    assert "control 'limit' with thread='any', or call run.apply()" in reply.note
    run.apply(step=3)  # it has waited all the same
    assert limit.value == 5
    assert [(entry.event, entry.step, entry.result) for entry in client.history] == [("apply", 3, 5)]


def test_an_event_loop_applies_and_awaits(begin, ask):
    run = begin("service")

    async def drain(timeout_s):
        await asyncio.sleep(0)
        return f"drained in {timeout_s} s"

    run.action("drain", drain)
    rate = run.control("rate", 1.0)
    client = ask(run)
    told = []

    async def serve():
        while not run.stopping:
            await asyncio.sleep(0.001)
            await run.apply_async()

    def command():
        told.append(client.set("rate", 2.0, timeout_s=PATIENCE_S))
        told.append(client.call("drain", 5, timeout_s=PATIENCE_S))
        told.append(client.stop(timeout_s=PATIENCE_S))

    thread = threading.Thread(target=command)
    thread.start()
    asyncio.run(asyncio.wait_for(serve(), PATIENCE_S))
    thread.join(PATIENCE_S)
    assert [reply.event for reply in told] == ["apply"] * 3
    assert (rate.value, told[1].result) == (2.0, "drained in 5 s")


def test_apply_does_nothing_after_the_end_and_in_a_disabled_run(begin):
    run = begin()
    run.close()
    run.apply()
    asyncio.run(run.apply_async())
    off = sg.init("off", mode="disabled")
    off.apply()
    asyncio.run(off.apply_async())


# Attributes


class Optimizer:
    """An object of the program."""

    def __init__(self):
        self.lr = 0.1


def test_a_controller_sets_an_attribute_of_an_offered_object(begin, ask):
    run = begin("open", controls="attributes")
    optimizer = Optimizer()
    run.observe("batch", optimizer=optimizer)
    client = ask(run)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(client.set, "batch.optimizer.lr", 0.5, timeout_s=PATIENCE_S)
        while not setting.done():
            run.observe("batch", optimizer=optimizer)
        reply = setting.result()
    assert (reply.applied, reply.event, reply.old, reply.result, optimizer.lr) == (True, "batch", 0.1, 0.5, 0.5)
    assert [(entry.name, entry.old, entry.result) for entry in client.history] == [("batch.optimizer.lr", 0.1, 0.5)]


def test_attributes_are_not_set_unless_the_program_says_so(begin, ask):
    run = begin("shut")
    run.observe("batch", optimizer=Optimizer())
    with pytest.raises(sg.CommandError, match=r"'batch.optimizer.lr'.*controls='attrib"):
        ask(run).set("batch.optimizer.lr", 0.5)
    with pytest.raises(ValueError, match=r"controls='attributes'.*got True"):
        sg.init("x", controls=True)
