"""Queries that mean harm, or are just wrong: the asker is told, the training goes on."""

from __future__ import annotations

import time

import pytest

import sightglass as sg

HOST = """
class Thing:
    def __init__(self):
        self.plain = 3.0
    @property
    def trap(self):
        say("trapped")
        return 1.0
    def method(self):
        say("trapped")
    def __float__(self):
        say("trapped")
        return 1.0

def leave(x):
    sys.exit(9)

def grow(x):
    return [0] * 10**5 * 10**5

def lock(x):
    return threading.Lock()

def recurse(x):
    return recurse(x)

run = sg.init("job", budget=None)
for function in (leave, grow, lock, recurse):
    run.function(function.__name__, function)
thing = Thing()
x = np.arange(200_000.0)
text = "a" * 10**6
deep = []
for _ in range(100_000):
    deep = [deep]
say("ready")
step = 0
while not run.stopping:
    run.observe("batch", step=step, loss=1.0 + step, zero=0, n=9, x=x, thing=thing, os=os, text=text, deep=deep,
                big=10**300, huge=range(10**9), nested={"a": {"b": 2.0}}, some=[1.0, 2.0], function=leave, kind=dict)
    step += 1
    if step % 100 == 0:
        say("step", step)
    time.sleep(0.001)
deep = None
run.close()
say("done")
"""

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


@pytest.fixture
def host(start):
    child = start(HOST)
    child.hears("ready")
    child.hears("step")
    return child


def test_hostile_queries(host, until):
    with sg.connect("job") as run, sg.connect("job") as other:
        witness = other.stream("batch.loss")
        for text, expected in REFUSED_OR_FAILED.items():
            began_s = time.monotonic()
            with pytest.raises(sg.SightglassError) as caught:  # noqa: PT012  opening may raise as well as reading
                for record in run.stream(text):
                    pytest.fail(f"{text} was answered: {record.value!r:.100}")
            assert expected in str(caught.value), text
            assert len(str(caught.value)) < 2_000, text
            assert time.monotonic() - began_s < 30, text
        with run.stream("batch.thing") as things:
            assert things.wait(1, timeout_s=60)[0].value == {"plain": 3.0}, "no property is read"
        until(lambda: len(run.describe().streams) == 1)
        n = witness.statistics().n_records
        witness.wait(n + 200, timeout_s=60)
        assert witness.statistics().n_lost == 0
        assert not other.ended
        run.stop()
    assert host.hears("done") == []
    assert host.ends() == 0


def test_three_strikes(host):
    with sg.connect("job") as run:
        stream = run.stream("batch.x[10 ** 7]")
        with pytest.raises(sg.EvaluationError, match=r"IndexError: .*'batch', step \d+"):
            list(stream)
        assert stream.statistics().n_records == 0
        host.goes_on()


def test_a_query_that_fails_now_and_then_continues(start):
    child = start(
        """
        def fail(x):
            if x % 3 == 0:
                raise ValueError("on purpose")
            return x
        run = sg.init("job", budget=None)
        run.function("fail", fail)
        say("ready")
        until(lambda: run._telemetry.subscriptions.active)
        for step in range(300):
            run.observe("batch", step=step, n=step)
        until(lambda: run.stopping or run.observe("other"))
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("fail(batch.n)")
        stream.wait(200, timeout_s=60)
        statistics = stream.statistics()
        assert (statistics.n_records, statistics.n_errors, statistics.n_lost) == (200, 100, 0)
        assert "ValueError: on purpose (at event 'batch', step 297)" in statistics.last_error
        run.stop()
        assert [record.value for record in stream] == [step for step in range(300) if step % 3]
    assert child.ends() == 0


def test_an_action_that_exits_or_raises(start):
    child = start(
        """
        def fail():
            raise ValueError("on purpose")
        run = sg.init("job")
        run.action("leave", sys.exit)
        run.action("fail", fail)
        run.action("lock", threading.Lock)
        say("ready")
        while not run.stopping:
            run.observe("batch")
            time.sleep(0.001)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    with sg.connect("job") as run:
        with pytest.raises(sg.CommandError, match=r"'leave'.*SystemExit: 3"):
            run.call("leave", 3)
        with pytest.raises(sg.CommandError, match=r"'fail'.*ValueError: on purpose"):
            run.call("fail")
        assert "lock" in run.call("lock").result
        assert [(entry.name, bool(entry.error)) for entry in run.history] == [
            ("leave", True),
            ("fail", True),
            ("lock", False),
        ]
        run.stop()
    assert child.ends() == 0
