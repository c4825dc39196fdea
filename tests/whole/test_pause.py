"""Runs that stand still: paused or idle, they answer; and nobody's death holds one up."""

from __future__ import annotations

import signal
import time

import pytest

import sightglass as sg
from sightglass.training.clients import LEASE_S

PAUSER = """
run = sg.connect("job")
assert run.pause(hold=sys.argv[1] == "hold").applied
say("paused")
time.sleep(60)
"""


@pytest.mark.slow
def test_a_pause_ends_with_its_owner(train, start, until):
    """The one test with the real lease."""
    assert LEASE_S < 15
    child = train()
    pauser = start(PAUSER, "owned")
    pauser.hears("paused")
    with sg.connect("job") as run:
        assert run.describe().state == "paused"
        killed_s = time.monotonic()
        pauser.send(signal.SIGKILL)
        until(lambda: run.describe().state == "running")
        assert time.monotonic() - killed_s > 1  # it asks every few seconds, and may have asked long before
        child.goes_on()


def test_a_pause_that_holds_stays(start, until):
    child = start(
        """
        import sightglass.training.clients as clients
        clients.LEASE_S = 0.5
        run = sg.init("job", budget=None)
        say("ready")
        step = 0
        while not run.stopping:
            run.observe("batch", step=step, loss=1.0)
            step += 1
            if step % 100 == 0:
                say("step", step)
            time.sleep(0.001)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    pauser = start(PAUSER, "hold")
    pauser.hears("paused")
    pauser.send(signal.SIGKILL)
    with sg.connect("job") as run:
        until(lambda: run.describe().n_clients == 1)
        assert run.describe().state == "paused"
        assert run.resume().applied
        assert run.describe().state == "running"
        child.goes_on()
        run.stop()
    assert child.ends() == 0


def test_a_paused_run_answers(train, until):
    child = train()
    with sg.connect("job") as run, sg.connect("job") as other:
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=60)
        paused = run.pause()
        assert paused.applied
        assert paused.event == "batch"
        description = other.describe()
        assert description.state == "paused"
        assert description.events["batch"].n_events == paused.index + 1
        assert other.history[-1].kind == "pause"
        n = stream.statistics().n_events
        late = other.stream("batch.loss")  # asked while it stands still: it gets what the first one got
        assert len(late.wait(10, timeout_s=60)) >= 10
        assert stream.statistics().n_events == n
        assert other.set("lr", 0.5).applied
        with pytest.raises(sg.CommandError, match="at most 1"):
            other.set("lr", 2.0)
        assert other.describe().controls["lr"].value == 0.5
        assert other.describe().state == "paused"
        assert [info.state for info in sg.runs(timeout_s=30)] == ["paused"]
        assert other.resume().applied
        child.goes_on()


def test_a_paused_run_can_be_stopped_and_interrupted(train, until):
    for end in ("stop", "interrupt"):
        child = train(end)
        with sg.connect(end) as run:
            stream = run.stream("batch.loss")
            assert run.pause().applied
            if end == "stop":
                assert run.stop().applied
                assert child.ends() == 0
            else:
                child.send(signal.SIGINT)
                assert child.ends() == -signal.SIGINT
                assert "KeyboardInterrupt" in child.complaints
            indexes = [record.index for record in stream]
            assert indexes == list(range(len(indexes)))
            until(lambda: run.ended)


def test_an_idle_run_answers(start, not_awaited):
    child = start(
        """
        run = sg.init("job", config={"lr": 0.1})
        run.control("lr", 0.1)
        say("ready")
        until(lambda: len(run._telemetry.commands.queue.pending) == 2, 60)
        run.observe("batch", loss=1.0)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    with sg.connect("job") as run:
        assert run.describe().config == {"lr": 0.1}
        stream = run.stream("batch.loss")
        assert "the first" in stream.note
        assert stream.statistics().n_events == 0
        with not_awaited():
            waiting = run.set("lr", 0.2, timeout_s=30)
        assert not waiting.applied
        assert "next event" in waiting.note
        assert run.set("lr", 0.3).old == 0.2
        assert [record.value for record in stream] == [1.0]
    assert child.ends() == 0
