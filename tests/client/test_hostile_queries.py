"""Queries that mean harm, or are just wrong: the asker is told, the training goes on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg


class Thing:
    """An object of the program, whose code no query may run."""

    def __init__(self, trapped: list[str]) -> None:
        self.plain = 3.0
        self._trapped = trapped

    @property
    def trap(self) -> float:
        self._trapped.append("a property")
        return 1.0

    def method(self) -> None:
        self._trapped.append("a method")

    def __float__(self) -> float:
        self._trapped.append("a conversion")
        return 1.0


def leave(x: Any) -> None:
    sys.exit(9)


def grow(x: Any) -> list[int]:
    return [0] * 10**18


def lock(x: Any) -> Any:
    return threading.Lock()


def recurse(x: Any) -> Any:
    return recurse(x)


REFUSED_OR_FAILED = {
    # misspelled, or wrong on every event
    "batch.los": "Unknown observable 'los' at event 'batch'. Did you mean 'loss'",
    "batch.x[10 ** 7]": "IndexError",
    "batch.n[3]": "",
    "batch.nested['c']": "Unknown",
    "batch.loss +": "",
    "batch.loss.nope()": "Unknown function 'nope'",
    "mean(": "",
    "": "",
    # built to burn time or memory
    "9 ** 9 ** 8": "",
    "batch.n ** batch.n ** batch.n": "",
    "batch.big ** 999": "",
    "batch.text * 100000": "",
    "batch.x[:, None] - batch.x": "",
    "(batch.x[:, None] * batch.x).sum()": "",
    "batch.x.histogram(bins=1000000000)": "",
    "batch.x.histogram(bins=batch.big)": "",
    "batch.x.topk(10 ** 9)": "",
    "batch.loss.collect(10 ** 12)": "",
    "batch.huge.map(lambda i: i)": "",
    "sum(batch.huge)": "",
    "batch.loss.mean(every=10 ** 400)": "",
    "(" * 500 + "batch.loss" + ")" * 500: "",
    "-" * 5_000 + "batch.loss": "",
    " + ".join(["batch.loss"] * 2_000): "",
    # out of bounds
    "batch.thing.trap": "",
    "batch.thing.method()": "",
    "batch.thing.method": "",
    "batch.thing.__class__": "",
    "batch.thing._hidden": "",
    "batch.os.environ": "",
    "batch.os.getpid()": "",
    "batch.os": "",
    "batch.function": "",
    "batch.kind": "",
    "batch.loss.__class__.__mro__": "",
    "__import__('os').getpid()": "",
    "open('/etc/passwd')": "",
    "eval('1')": "",
    "lambda: 1": "",
    "[b for b in batch.some]": "",
    "batch.x.tofile('stolen')": "",
    "batch.x.ctypes": "",
    "batch.x.data": "",
    "batch.text.format(batch.thing)": "",
    "(batch.loss := 3)": "",
    # unsendable, or never coming back
    "lock(batch.loss)": "",
    "leave(batch.loss)": "SystemExit",
    "recurse(batch.loss)": "RecursionError",
    "grow(batch.loss)": "",
    "batch.deep": "",
}


def nested(n: int) -> list[Any]:
    deep: list[Any] = []
    for _ in range(n):
        deep = [deep]
    return deep


@pytest.fixture
def host() -> Iterator[tuple[sg.Run, list[str]]]:
    """Train on a thread, until the run is stopped; gives the run, and what a query has run of the program's code."""
    trapped: list[str] = []
    run = sg.init("job", budget=None)
    for function in (leave, grow, lock, recurse):
        run.function(function.__name__, function)
    offered = {
        "zero": 0, "n": 9, "x": np.arange(200_000.0), "thing": Thing(trapped), "os": os, "text": "a" * 10**6,
        "deep": nested(100_000), "big": 10**300, "huge": range(10**9), "nested": {"a": {"b": 2.0}},
        "some": [1.0, 2.0], "function": leave, "kind": dict,
    }  # fmt: skip
    over = threading.Event()

    def train() -> None:
        step = 0
        while not (run.stopping or over.is_set()):
            run.observe("batch", step=step, loss=1.0 + step, **offered)
            step += 1
            over.wait(0.001)

    thread = threading.Thread(target=train)
    thread.start()
    yield run, trapped
    over.set()
    thread.join()
    run.close()


@pytest.mark.slow
def test_hostile_queries(host: tuple[sg.Run, list[str]]) -> None:
    made, trapped = host
    with sg.connect(made) as run, sg.connect(made) as other:
        witness = other.stream("batch.loss")
        for text, expected in REFUSED_OR_FAILED.items():
            with pytest.raises(sg.SightglassError) as caught:  # noqa: PT012  opening may raise as well as reading
                for record in run.stream(text):
                    pytest.fail(f"{text} was answered: {record.value!r:.100}")
            assert expected in str(caught.value), text
            assert len(str(caught.value)) < 2_000, text
        with run.stream("batch.thing") as things:
            assert things.wait(1, timeout_s=60)[0].value == {"plain": 3.0}, "no property is read"
        assert trapped == []
        wait_until(lambda: len(run.describe().streams) == 1, "all others are closed")
        n = witness.statistics().n_records
        witness.wait(n + 200, timeout_s=60)
        assert witness.statistics().n_lost == 0
        assert not other.ended
        assert run.stop().applied


def test_a_query_that_fails_now_and_then_continues() -> None:
    def fail(x: int) -> int:
        if x % 3 == 0:
            raise ValueError("on purpose")
        return x

    with sg.init("job", budget=None) as run, sg.connect(run) as client:
        run.function("fail", fail)
        stream = client.stream("fail(batch.n)")
        for step in range(300):
            run.observe("batch", step=step, n=step)
        stream.wait(200, timeout_s=60)
        statistics = stream.statistics()
        assert (statistics.n_records, statistics.n_errors, statistics.n_lost) == (200, 100, 0)
        assert "ValueError: on purpose (at event 'batch', step 297)" in statistics.last_error
        assert [record.value for record in stream.records()] == [step for step in range(300) if step % 3]


def test_an_action_that_exits_or_raises() -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    over = threading.Event()
    run = sg.init("job")
    for name, action in (("leave", sys.exit), ("fail", fail), ("lock", threading.Lock)):
        run.action(name, action, thread="any")

    def train() -> None:
        while not over.is_set():
            run.observe("batch")
            over.wait(0.001)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        with sg.connect(run) as client:
            with pytest.raises(sg.CommandError, match="call 'leave' failed: SystemExit: 3"):
                client.call("leave", 3)
            with pytest.raises(sg.CommandError, match="call 'fail' failed: ValueError: on purpose"):
                client.call("fail")
            assert "lock" in client.call("lock").result
            told = [(entry.name, bool(entry.error)) for entry in client.history]
            assert told == [("leave", True), ("fail", True), ("lock", False)]
    finally:
        over.set()
        thread.join()
        run.close()
