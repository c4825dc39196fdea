"""Runs that are killed and begin again: streams and fleets go on with them, and their files as if nothing had been."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import sightglass as sg

from .conftest import wait_until

RUN = """
run = sg.init("job", budget=None)
say("ready", run.id)
train(run)
"""


@pytest.mark.slow
def test_a_run_that_is_started_again_goes_on_in_the_same_streams(start):
    first = start(RUN)
    first.hears("ready")
    with sg.connect("job") as run, sg.connect(run.id) as by_id, sg.fleet("jo*") as fleet:
        fleet.wait(1, timeout_s=60)
        stream, other, together = run.stream("batch.n"), by_id.stream("batch.n"), fleet.stream("batch.n")
        n = len(stream.wait(20, timeout_s=60))
        together.wait(20, timeout_s=60)
        first.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError, match="died"):
            list(other)  # this one was asked for by its id
        old = run.id
        wait_until(lambda: stream.note.endswith("; connecting again"), stream.note)
        wait_until(lambda: list(fleet) == [], fleet)
        assert "died" in fleet.left["job"]
        assert fleet.table(n="batch.n", timeout_s=60).column("state") == ["died"]
        n_together = len(together.records())
        second = start(RUN)
        second.hears("ready")
        wait_until(lambda: stream.restarts, "the stream goes on")
        (restart,) = stream.restarts
        wait_until(lambda: stream.latest.index >= restart.index + 20, "records of the second process")
        assert (restart.run_id, run.id == old) == (run.id, False)
        assert "connecting" not in stream.note
        wait_until(lambda: list(fleet) == ["job"] and fleet["job"].id == run.id, fleet)
        wait_until(lambda: len(together.records()) > n_together, "the fleet's stream goes on")
        assert (fleet.left, fleet.joined, len(together.restarts)) == ({}, ["job"], 1)
        assert run.stop().applied
        records = list(stream)
    assert [record.index for record in records] == sorted({record.index for record in records})
    before = [record.value for record in records if record.index < restart.index]
    after = [record.value for record in records if record.index >= restart.index]
    assert before == [before[0] + i for i in range(len(before))]
    assert after == [after[0] + i for i in range(len(after))]
    assert len(before) >= n
    assert after[-1] == int(second.hears("made")[0]) - 1
    assert second.ends() == 0


GOES_ON = """
into, first, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with sg.init("job", files=sg.Files(into=into), record=["batch.loss"]) as run:
    for step in range(first, first + n):
        run.observe("batch", step=step, loss=first + step / 1000)
        run.log({"val": step}, step=step)
    run.flush()
    exec(sys.argv[4])
"""


def test_a_run_that_was_killed_and_goes_on_hides_the_steps_that_it_repeats(start, tmp_path):
    into = tmp_path / "again"
    for first, n, end in ((0, 100, "os.kill(os.getpid(), 9)"), (100, 100, "os.kill(os.getpid(), 9)"), (150, 100, "")):
        assert start(GOES_ON, str(into), str(first), str(n), end).ends() == (-signal.SIGKILL if end else 0)
    assert len(list(into.glob("*.sgr"))) == 3
    with sg.open(into) as old:
        values = old.stream("batch.loss").to_arrays()
        assert values.steps.tolist() == list(range(250))
        begun = [0 if step < 100 else 100 if step < 150 else 150 for step in range(250)]
        assert np.array_equal(values.values, [at + step / 1000 for step, at in enumerate(begun)])
        assert old.series("val").steps.tolist() == list(range(250))
        assert [record.n_events for record in old.stream("batch.loss.mean(every=50)")] == [50] * 5
        assert old.check().intact
