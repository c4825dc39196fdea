"""Clients of a run in the same process, on the training thread itself and on another."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.description import Description
from sightglass.query import parser
from sightglass.query.parser import as_query
from sightglass.server.live.shared_stream import canonical

PATIENCE_S = 60.0


def values(stream, n):
    return [record.value for record in stream.wait(n, timeout_s=PATIENCE_S)]


@pytest.fixture
def trained(begin, ask):
    """Return a function that trains on another thread until it is stopped, and a client of that run."""
    over = threading.Event()
    threads = []

    def train(prepare=lambda run: None, **options):
        box, ready = [], threading.Event()

        def work():
            run = begin(**options)
            prepare(run)
            box.append(run)
            ready.set()
            step = 0
            while not (run.stopping or over.is_set()):
                run.observe("batch", step=step, loss=float(step))
                step += 1
                over.wait(0.0005)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        assert ready.wait(PATIENCE_S)
        return box[0], ask(box[0])

    yield train
    over.set()
    for thread in threads:
        thread.join(PATIENCE_S)


def test_queries_and_records_in_one_thread(begin, ask):
    run = begin()
    client = ask(run)
    loss = client.stream("batch.loss")
    mean = client.stream(sg.on("batch").map(lambda b: b.grads["dense"].sum()).mean(every=5))
    for step in range(10):
        run.observe("batch", step=10 * step, loss=float(step), grads={"dense": np.full(3, step)})
    assert values(loss, 10) == [float(i) for i in range(10)]
    assert values(mean, 2) == [6.0, 21.0]
    first = loss.records()[0]
    assert (first.tag, first.run, first.index, first.step) == ("batch.loss", "job", 0, 0)
    assert loss.to_arrays().steps.tolist() == list(range(0, 100, 10))
    assert (client.name, client.id, client.may_command, client.ended) == ("job", run.id, True, False)
    assert repr(client) == f"<RemoteRun 'job' ({run.id})>"


def test_iteration_ends_with_the_run(begin, ask):
    run = begin()
    stream = ask(run).stream(sg.on("batch").map(lambda b: b.loss).sum())
    run.observe("batch", loss=1.0)
    run.end_group("batch")
    run.observe("batch", loss=2.0)
    run.close()
    assert [(r.value, r.closed) for r in stream] == [(1.0, True), (2.0, False)]
    assert stream.ended


def test_a_stream_that_this_client_cannot_take_in_ends_alone_and_is_counted(begin, ask):
    run = begin()
    client = ask(run)
    bad, good = client.stream("batch.bad"), client.stream("batch.good")

    def fail(columns):
        raise MemoryError("no room")

    bad._buffer.add = fail
    with pytest.warns(RuntimeWarning, match="MemoryError: no room"):  # noqa: PT031
        run.observe("batch", good=1.0, bad=2.0)
        with pytest.raises(sg.SightglassError, match="MemoryError: no room"):
            bad.wait(timeout_s=PATIENCE_S)
    run.observe("batch", good=3.0, bad=4.0)
    assert values(good, 2) == [1.0, 3.0]
    statistics = good.statistics()
    assert (statistics.n_failures, statistics.ended, bad.ended) == (1, False, True)


def test_a_failing_query_raises_only_in_its_own_client(begin, ask):
    run = begin()
    client = ask(run)
    wrong, right = client.stream("batch.los"), client.stream("batch.loss")
    for step in range(5):
        run.observe("batch", step=step, loss=1.0)
    with pytest.raises(sg.EvaluationError, match=r"'los'.*'batch'.*'loss'.*step 2"):
        list(wrong)
    assert values(right, 5) == [1.0] * 5


@pytest.mark.parametrize("query", ["batch.", "on('batch').map(lambda b: nothing(b))", "on('batch').fly()"])
def test_an_invalid_query_raises_at_the_call(begin, ask, query):
    with pytest.raises(sg.QueryError):
        ask(begin()).stream(query)


def test_two_streams_of_one_query_both_get_every_record(begin, ask):
    run = begin()
    client = ask(run)
    first = client.stream("batch.loss")
    run.observe("batch", loss=0.0)
    assert values(first, 1) == [0.0]
    second = client.stream("batch.loss")
    run.observe("batch", loss=1.0)
    assert values(second, 2) == [0.0, 1.0]
    assert [record.value for record in first.wait(2, timeout_s=30)] == [0.0, 1.0]
    second.close()
    run.observe("batch", loss=2.0)
    assert [record.value for record in first.wait(3, timeout_s=30)] == [0.0, 1.0, 2.0]


def test_a_late_client_gets_the_newest_records_and_some_of_all_before(begin, ask):
    run = begin(limits=sg.Limits(max_backlog_records=1_000))
    early = ask(run).stream("batch.loss")
    for i in range(1_500):
        run.observe("batch", loss=float(i))
    early.wait(1_500, timeout_s=PATIENCE_S)
    run.flush()
    late = ask(run).stream("batch.loss")
    run.observe("batch", loss=1_500.0)
    run.close()
    indexes = [record.index for record in late]
    assert (indexes[0], indexes[-251:], len(indexes) <= 1_001) == (0, list(range(1_250, 1_501)), True)
    statistics = late.statistics()
    assert (statistics.n_lost, statistics.n_thinned + len(indexes)) == (0, 1_501)


def test_end_group_by_the_client(begin, ask):
    run = begin()
    mine, other = (ask(run).stream(sg.on("batch").map(lambda b: b.loss).sum()) for _ in range(2))
    run.observe("batch", loss=1.0)
    mine.end_group()
    run.observe("batch", loss=2.0)
    run.end_group("batch")
    assert values(mine, 2) == [1.0, 2.0]
    assert values(other, 1) == [3.0]
    assert [r.index for r in mine.records()] == [0, 1]
    with pytest.raises(sg.QueryError, match="reducer"):
        ask(run).stream("batch.loss").end_group()


def test_a_command_from_the_training_thread_does_not_deadlock(begin, ask):
    run = begin()
    lr = run.control("lr", 0.1, max=1.0)
    client = ask(run)
    reply = client.set("lr", 0.5)
    assert not reply.applied
    assert re.search("next event of .*'job'", reply.note)
    assert lr.value == 0.1
    run.observe("batch")
    assert lr.value == 0.5
    with pytest.raises(sg.CommandError, match=r"'lr': .*1\.0, got 5\.0 \(.*test_run\.py:\d+"):
        client.set("lr", 5.0)


def test_on_the_training_thread_the_remark_is_waited_for_however_late_it_is(begin, ask, monkeypatch):
    monkeypatch.setattr(sys.modules[sg.RemoteRun.__module__], "OWN_THREAD_S", 0.0)
    run = begin()
    run.control("lr", 0.1)
    reply = ask(run).set("lr", 0.5)
    assert not reply.applied
    assert re.search("next event of .*'job'", reply.note)


def test_commands_are_acknowledged_with_their_event(trained, not_awaited):
    def prepare(run):
        run.control("lr", 0.1, min=0.0, max=1.0)
        run.action("double", lambda x: 2 * x)
        run.action("fail", lambda: 1 / 0)

    run, client = trained(prepare)
    reply = client.set("lr", 0.5)
    assert (reply.applied, reply.event, reply.old, reply.result) == (True, "batch", 0.1, 0.5)
    assert reply.index == reply.step
    assert client.call("double", 21).result == 42
    with pytest.raises(sg.CommandError, match=r"'fail'.*ZeroDivisionError"):
        client.call("fail")
    with not_awaited():
        waiting = client.set("lr", 0.25, at="epoch", timeout_s=PATIENCE_S)
    assert not waiting.applied
    assert re.search("next event 'epoch' of .*'job'", waiting.note)
    assert [(entry.kind, entry.name, entry.error) for entry in client.history] == [
        ("set", "lr", ""),
        ("call", "double", ""),
        ("call", "fail", "call 'fail' failed: ZeroDivisionError: division by zero"),
    ]
    assert all(f"[{os.getpid()}]" in entry.client for entry in client.history)
    assert client.last_commands(2) == client.history[1:]
    assert client.last_commands(0) == client.last_commands(10) == client.history
    assert len(run.history) == 3
    client.stop()
    assert run.stopping


def test_a_paused_run_replies_and_applies_commands(trained):
    _, client = trained(lambda run: run.control("lr", 0.1))
    client.pause()
    assert client.describe().state == "paused"
    assert client.set("lr", 0.5).applied
    n = client.describe().events["batch"].n_events
    assert client.describe().events["batch"].n_events == n
    client.resume()
    stream = client.stream("batch.loss")
    stream.wait(3, timeout_s=PATIENCE_S)
    client.stop()


def test_a_pause_ends_when_its_client_leaves(trained, ask):
    run, owner = trained()
    stream = ask(run).stream("batch.loss")
    owner.pause()
    n = len(stream.records())
    owner.close()
    assert len(stream.wait(n + 10, timeout_s=PATIENCE_S)) >= n + 10


def test_describe(begin, ask):
    run = begin(config={"lr": 0.001, "model": object})
    run.control("wd", 0.1, min=0.0, max=1.0)
    run.control("opt", "sgd", choices=["sgd", "adam"])

    def save():
        """Save it."""

    run.action("save", save)
    run.function("confusion", save)
    run.observe("batch", loss=0.5, grads={f"layer{i}": np.zeros((2, 2)) for i in range(8)})
    run.observe("init", snapshot=True, params=np.zeros(3))
    client = ask(run)
    client.stream("batch.loss")
    description = client.describe()
    assert isinstance(description, Description)
    assert (description.name, description.id, description.state, description.n_clients) == ("job", run.id, "running", 1)
    assert str(description).splitlines()[1:] == [
        "  running, batch 0",
        "  config  lr=0.001, model=\"<class 'object'>\"",
        "  event 'batch', 1 so far",
        "    loss: float = 0.5",
        "    grads: mapping of 8 (layer0: float64[2, 2], layer1: float64[2, 2], layer2: float64[2, 2], "
        "layer3: float64[2, 2], layer4: float64[2, 2], layer5: float64[2, 2], …)",
        "    step: int = 0",
        "  event 'init', 1 so far, with a snapshot",
        "    params: float64[3]",
        "    step: int = 0",
        "  control wd = 0.1  float  from 0.0 to 1.0",
        "  control opt = 'sgd'  str  one of ['sgd', 'adam']",
        "  action save()  Save it.",
        "  function confusion  Save it.",
        "  stream on('batch').map(lambda batch: batch.loss)  0 records, 1 client",
    ]
    assert str(description).splitlines()[0].startswith(f"run job ({run.id})  running for 00:00:0")


def test_statistics(begin, ask):
    run = begin()
    stream = ask(run).stream("batch.loss")
    run.observe("batch", loss=1.0)
    run.observe("batch", los=1.0)
    stream.wait(1, timeout_s=PATIENCE_S)
    statistics = stream.statistics()
    assert (statistics.n_records, statistics.n_events, statistics.n_errors, statistics.n_lost, statistics.stride) == (
        1,
        2,
        1,
        0,
        1,
    )
    assert statistics.last_error.startswith("Unknown observable 'loss'")
    assert statistics.spent_s > 0


def test_publish(begin, ask):
    run, other = begin(), begin("other")
    best = ask(run).stream("batch.loss").map(lambda x: -x)
    publisher, reader = ask(other), ask(other)
    reader_stream = reader.stream("best.value")
    subscription = publisher.publish("best", best)
    for i in range(3):
        run.observe("batch", loss=float(i))
    assert values(reader_stream, 3) == [0.0, -1.0, -2.0]
    subscription.close()
    other.observe("epoch")
    with pytest.raises(sg.RefusedError, match=r"'epoch'.*observe"):
        publisher.publish("epoch", best)


def test_what_is_published_of_a_long_stream_has_no_silent_holes(begin, ask):
    """A late client gets some of the older records: as events, they would look like all."""
    run, other = begin(limits=sg.Limits(max_backlog_records=64)), begin("other")
    first = ask(run).stream("batch.loss")
    for i in range(1_000):
        run.observe("batch", loss=float(i))
    first.wait(1_000, timeout_s=30)
    late = ask(run).stream("batch.loss")
    assert late.wait(17, timeout_s=30)[0].step == 0
    publisher, reader = ask(other), ask(other)
    published = reader.stream("best.value")
    publisher.publish("best", late)
    first_step = int(published.wait(1, timeout_s=30)[0].step)
    steps = [int(record.step) for record in published.wait(1_000 - first_step, timeout_s=30)]
    assert steps == list(range(first_step, 1_000))


def test_several_runs_in_one_process(begin, ask):
    runs = [begin(name) for name in ("one", "two")]
    streams = [ask(run).stream("batch.loss") for run in runs]
    both, pairs = streams[0].union(streams[1]), streams[0].zip(streams[1])
    for i in range(5):
        for n, run in enumerate(runs):
            run.observe("batch", loss=float(10 * n + i))
    records = both.wait(10, timeout_s=PATIENCE_S)
    for n, name in enumerate(("one", "two")):
        assert [r.value for r in records if r.run == name] == [10.0 * n + i for i in range(5)]
    assert values(pairs, 5) == [(float(i), 10.0 + i) for i in range(5)]
    runs[0].close()
    runs[1].observe("batch", loss=5.0)
    assert values(streams[1], 6)[-1] == 5.0


def test_streams_of_two_runs_of_which_one_was_opened_late(begin, ask):
    runs = [begin(name) for name in ("early", "late")]
    early = ask(runs[0]).stream("batch.loss")
    for step in range(80):
        if step == 40:
            late = ask(runs[1]).stream("batch.loss")
        for run in runs:
            run.observe("batch", step=step, loss=float(step))
    pairs = early.zip(late)
    assert [(r.step, r.value) for r in pairs.wait(40, timeout_s=PATIENCE_S)] == [
        (step, (float(step), float(step))) for step in range(40, 80)
    ]
    for run in runs:
        run.close()
    assert len(list(pairs)) == 40
    assert (pairs.statistics().n_unpaired, pairs.statistics().n_waiting) == (40, 0)


def test_a_text_is_parsed_once_on_each_side(begin, ask, monkeypatch):
    texts, query = [], parser._Reader.query
    monkeypatch.setattr(parser._Reader, "query", lambda self: texts.append(self.text) or query(self))
    text, client = "batch.loss + 29.25", ask(begin())
    assert as_query(text).key == canonical(text)
    client.stream(text)
    client.stream(text)
    assert len(texts) == 1 + 2  # in the client, and for each stream in the run


def test_the_run_stops_evaluating_a_closed_stream(begin, ask):
    run = begin()
    client = ask(run)
    with client.stream("batch.loss"):
        run.observe("batch", loss=1.0)
        assert len(client.describe().streams) == 1
    assert client.describe().streams == []


def test_a_client_of_a_run_that_has_ended(begin, ask):
    run = begin()
    client = ask(run)
    run.close()
    with pytest.raises(sg.RunLostError, match=r"'job' has ended$"):
        client.describe()
    assert client.ended
    with pytest.raises(sg.RunLostError):
        client.stream("batch.loss")


def test_targets_that_are_not_runs(begin):
    with pytest.raises(sg.RunNotFoundError, match="got int"):
        sg.connect(5)
    begin("mnist")
    with pytest.raises(sg.RunNotFoundError, match=r"'mnits'.*'mnist'"):
        sg.connect("mnits")


def test_a_list_of_runs_can_be_read(begin):
    begin("mnist").observe("batch", loss=1.0)
    shown = repr(sg.runs())
    assert "name='mnist'" in shown
    assert "batch" not in shown


def test_a_run_that_has_ended_is_found_by_what_it_recorded(begin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mnist", "mnist", "mnist-large"):
        run = begin(name)
        run.log({"loss": 1.0})
        run.close()
    newest = max(map(str, Path("runs").glob("mnist-2*")))
    with pytest.raises(sg.RunNotFoundError, match=f"'{newest}'"):
        sg.connect("mnist")


def test_a_query_of_the_log_skips_events_without_its_tag(begin, ask):
    run = begin()
    client = ask(run)
    run.log({"loss": 0.0})
    stream = client.stream(sg.on("log").map(lambda e: e["val/loss"]))
    counts = client.stream(sg.on("log").map(lambda e: e["val/loss"]).count(every=5))
    assert re.search("'val/loss' in the log .*'loss'", stream.note)
    for step in range(9):
        run.log({"val": {"loss": float(step)}} if step == 4 else {"loss": 0.0}, step=step, epoch=step // 2)
    assert [(r.step, r.value, r.steps) for r in stream.wait(1, timeout_s=30)] == [(4, 4.0, {"epoch": 2})]
    assert [r.value for r in counts.wait(2, timeout_s=30)] == [0, 1]
    assert stream.statistics().n_errors == 0


def test_the_counts_of_the_run_are_known_after_its_end(begin, ask):
    run = begin()
    stream = ask(run).stream("batch.loss")
    for step in range(5):
        run.observe("batch", **({"loss": 1.0} if step != 2 else {}))
    run.close()
    assert len(list(stream)) == 4
    statistics = stream.statistics()
    assert (statistics.n_events, statistics.n_errors, statistics.n_records) == (5, 1, 4)


# connect without a name, and names that look like paths


def test_without_a_name_the_only_live_run_is_found(begin, ask):
    with pytest.raises(sg.RunNotFoundError, match=r"sightglass\.init"):
        sg.connect()
    first = begin("first")
    assert ask(None).id == first.id
    second = begin("second")
    with pytest.raises(sg.RunNotFoundError, match=rf"2 live runs: 'second' \({second.id}\), 'first' \({first.id}\)"):
        sg.connect()
    first.close()
    with sg.connect(wait_s=15.0) as only:
        assert only.id == second.id


@pytest.mark.parametrize("name", ["sweep/lr=0.1", "../up", "table.json"])
def test_a_name_that_looks_like_a_path_is_safe(begin, ask, name, tmp_path):
    run = begin(name, dir=tmp_path / "runs")
    run.log({"a": 1})
    run.flush()
    assert [path.parent for path in (tmp_path / "runs").iterdir()] == [tmp_path / "runs"]
    assert run.directory.parent == tmp_path / "runs"
    assert ask(name).id == run.id
