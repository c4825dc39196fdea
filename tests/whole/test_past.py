"""A client that comes late to a run of another process has its records from the first, and all that follow."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import sightglass as sg

RECORDING = """
run = sg.init("job", budget=None, dir=sys.argv[1], record=["batch.loss"])
say("ready", run.id)
step = 0
while not run.stopping:
    run.observe("batch", step=step, loss=float(step))
    run.log({"half": step / 2}, step=step)
    step += 1
    if step % 500 == 0:
        say("step", step)
    time.sleep(0.0005)
run.close()
say("done", step)
"""


def test_records_from_the_start_while_a_run_trains(start, tmp_path):
    child = start(RECORDING, str(tmp_path))
    child.hears("step")
    with sg.connect("job") as client:
        streams = [
            client.stream(query, since="start")
            for query in ("batch.loss", "batch.loss * 2", "batch.loss.mean(every=100)", "log.half")
        ]
        pairs = streams[0].zip(streams[1])
        seen = [iter(stream) for stream in streams]
        for records in seen:
            assert next(records).index == 0
        for _ in range(3):
            child.hears("step")
        client.stop()
        n = int(child.hears("done")[0])
        found = [[record.value for record in stream] for stream in streams]
        whole = n // 100
        assert found[0] == [float(step) for step in range(n)]
        assert found[1] == [2.0 * step for step in range(n)]
        assert found[2][:whole] == [100.0 * i + 49.5 for i in range(whole)]
        assert len(found[2]) == whole + bool(n % 100)
        assert found[3] == [step / 2 for step in range(n)]
        assert [record.step for record in pairs] == list(range(n))
        assert [stream.note for stream in streams] == [""] * 4
        assert [stream.statistics().n_lost for stream in streams] == [0] * 4


def test_the_records_of_a_killed_run_have_no_gap(start, tmp_path):
    child = start(RECORDING, str(tmp_path))
    child.hears("step")
    with sg.connect("job") as client:
        stream = client.stream("batch.loss", since="start")
        child.hears("step")
        child.hears("step")
        child.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError):
            list(stream)
        steps = stream.to_arrays().steps
        np.testing.assert_array_equal(steps, np.arange(len(steps)))
        assert len(steps) > 500
