"""Recording with real processes: asked for while a run runs, followed, cut short, gone on with, shared."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import sightglass as sg

from .conftest import wait_until

RECORDED = """
folder = sys.argv[1]
run = sg.init("job", dir=folder, budget=None, record=["batch.loss"])
say("ready", run.directory)
step = 0
while not run.stopping:
    run.observe("batch", step=step, loss=1 / (step + 1), x=np.arange(10.0) + step)
    if step % 10 == 0:
        run.log({"val/loss": step / 2, "kernel": np.full((4, 3), step, np.float32)}, step=step)
    step += 1
    if step % 100 == 0:
        run.end_group("batch")
    time.sleep(0.001)
run.close()
say("done", step)
"""

GOES_ON = """
into, first, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with sg.init("job", files=sg.Files(into=into), record=["batch.loss"]) as run:
    for step in range(first, first + n):
        run.observe("batch", step=step, loss=first + step / 1000)
        run.log({"val": step}, step=step)
"""


def test_a_client_lets_a_query_be_recorded_and_no_more(start, tmp_path):
    child = start(RECORDED, str(tmp_path))
    [directory] = child.hears("ready")
    query = sg.on("batch").map(lambda b: sg.fn.norm(b.x)).mean(every=10)
    with sg.connect("job") as run:
        stream = run.stream(query)
        n_events = lambda: run.describe().events["batch"].n_events  # noqa: E731
        assert run.record(query) == query.tag
        n_before = n_events()
        assert [s.recorded for s in run.describe().streams if s.tag == query.tag] == [True]
        stream.wait(30, timeout_s=60)
        n_known = n_events()
        run.unrecord(query)
        n_after, n = n_events(), len(stream.wait(0))
        with pytest.raises(sg.QueryError, match="recorded query"):
            run.unrecord(query)
        stream.wait(n + 20, timeout_s=60)
        run.stop()
        live = {record.index: record for record in stream}
    child.hears("done")
    with sg.open(directory) as old:
        recorded = list(old.stream(query))
        steps = [int(record.step) for record in recorded]
        assert steps == list(range(steps[0], steps[-1] + 1, 10))
        assert steps[0] < n_before + 20  # the first window that is whole
        assert n_known - 10 <= steps[-1] < n_after
        for record in recorded:
            assert record.value == live[record.index].value
            assert (record.step, record.complete) == (live[record.index].step, live[record.index].complete)
        assert [(act.kind, act.error) for act in old.history] == [("stop", "")]
        assert old.describe().events["batch"].n_events > 300
        assert old.describe().state == "ended"


def test_a_viewer_may_not_record(tmp_path):
    with (
        sg.init("job", dir=tmp_path, listen="tcp://127.0.0.1:0") as run,
        sg.connect(run.viewer_file) as viewer,
        pytest.raises(sg.RefusedError, match="controller's key"),
    ):
        viewer.record("batch.loss")


def test_a_run_is_followed_from_another_process(start, tmp_path):
    child = start(RECORDED, str(tmp_path))
    [directory] = child.hears("ready")
    wait_until(lambda: sg.runs(tmp_path))
    with sg.open(directory, follow=True) as old, sg.connect("job") as run:
        loss = old.stream("batch.loss")
        groups = old.stream(sg.on("batch").map(lambda b: b.loss).count())
        mean = old.stream(sg.on("batch").map(lambda b: b.loss).mean(every=50))
        assert not loss.ended
        assert sg.runs(tmp_path)[0].state == "running"
        loss.wait(500, timeout_s=60)
        mean.wait(5, timeout_s=60)
        run.stop()
        child.hears("done")
        values = [record.value for record in loss]
        assert values == [1 / (step + 1) for step in range(len(values))]
        counts = [record.value for record in groups]
        assert counts[:-1] == [100] * (len(counts) - 1)
        assert sum(counts) == len(values)
        means = [np.mean(values[i : i + 50]) for i in range(0, len(values), 50)]
        assert np.allclose([record.value for record in mean], means)
        kernel = old.series("kernel")
        assert kernel.at(20, "[1, :]").tolist() == [20.0] * 3
    assert child.ends() == 0


@pytest.mark.slow
def test_a_killed_run_opens_up_to_its_last_second(start, tmp_path):
    child = start(RECORDED, str(tmp_path))
    [directory] = child.hears("ready")
    with sg.connect("job", on_lost="raise") as run:
        live = run.stream("batch.loss")
        live.wait(5_000, timeout_s=120)
        with sg.open(directory, follow=True) as growing:
            growing.stream("batch.loss").wait(5_000, timeout_s=60)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(sg.RunLostError):
            list(live)
    wait_until(lambda: sg.runs(tmp_path)[0].state == "died")
    with sg.open(directory) as old:
        arrays = old.stream("batch.loss").to_arrays()
        assert arrays.steps.tolist() == list(range(len(arrays.steps)))
        assert len(arrays.steps) >= 5_000  # of the last second, some may be missing
        assert old.check().intact
        assert "died" in repr(old)


def test_a_continued_run_hides_the_steps_that_it_repeats(start, tmp_path):
    into = tmp_path / "again"
    for first, n in ((0, 100), (100, 100), (150, 100)):
        assert start(GOES_ON, str(into), str(first), str(n)).ends() == 0
    assert len(list(into.glob("*.sgr"))) == 3
    with sg.open(into) as old:
        values = old.stream("batch.loss").to_arrays()
        assert values.steps.tolist() == list(range(250))
        assert np.array_equal(
            values.values, [(0 if s < 100 else 100 if s < 150 else 150) + s / 1000 for s in range(250)]
        )
        assert old.series("val").steps.tolist() == list(range(250))
        means = [record.n_events for record in old.stream("batch.loss.mean(every=50)")]
        assert means == [50] * 5
        assert old.check().intact


def test_ranks_share_a_directory(start, tmp_path):
    into = tmp_path / "shared"
    children = [start(GOES_ON, str(into), str(1000 * rank), "50", RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    assert [child.ends() for child in children] == [0, 0]
    with sg.open(into) as old:
        assert list(old.ranks) == [0, 1]
        assert old.stream("batch.loss").to_arrays().steps.tolist() == list(range(50))
        with old.rank(1) as other:
            assert other.stream("batch.loss").to_arrays().steps.tolist() == list(range(1000, 1050))
        with pytest.raises(sg.UnknownNameError if hasattr(sg, "UnknownNameError") else LookupError, match="rank 7"):
            old.rank(7)


def test_streams_are_saved_with_their_further_steps(tmp_path):
    with sg.init("job", budget=None) as run, sg.connect(run) as client:
        loss = client.stream("batch.loss")
        saving = loss.map(lambda x: x * 2).mean(every=5).save(tmp_path / "mean.sgr")
        plain = loss.save(tmp_path / "loss.sgr")
        with pytest.raises(FileExistsError):
            loss.save(tmp_path / "loss.sgr")
        for step in range(100):
            run.observe("batch", step=step, loss=float(step))
        loss.wait(100, timeout_s=60)
        run.close()
        assert saving.wait(20)
        assert plain.wait(20)
        saving.close()
        plain.close()
        assert (saving.n_records, plain.n_records) == (20, 100)
        made = [(r.tag, r.index, r.step, r.value, r.n_events) for r in loss.map(lambda x: x * 2).mean(every=5)]
    with sg.open(tmp_path / "loss.sgr") as old:
        assert [(r.index, r.value) for r in old.stream("batch.loss")] == [(i, float(i)) for i in range(100)]
        assert len(list(old.stream("batch.loss.mean(every=10)"))) == 10
    with sg.open(tmp_path / "mean.sgr") as old:
        assert [(r.tag, r.index, r.step, r.value, r.n_events) for r in old.series("batch.loss.map.mean")] == made


def test_a_query_that_costs_too_much_is_not_recorded(start, tmp_path):
    costly = """
run = sg.init("job", dir=sys.argv[1], budget=0.01)
x = np.random.default_rng(0).normal(size=3_000_000)
say("ready")
step = 0
while not run.stopping:
    run.observe("batch", step=step, x=x)
    step += 1
    time.sleep(0.0005)
run.close()
say("done")
"""
    child = start(costly, str(tmp_path))
    child.may_complain = True
    child.hears("ready")
    with sg.connect("job") as run:
        query = sg.on("batch").map(lambda b: abs(b.x).std())
        run.record(query)
        told = lambda: [s.recorded for s in run.describe().streams]  # noqa: E731
        wait_until(lambda: True not in told())
        stream = run.stream(query)
        wait_until(lambda: stream.statistics().stride > 1)
        with pytest.raises(sg.RefusedQueryError, match=r"1\.0%"):
            run.record(query)
        run.stop()
    child.hears("done")
