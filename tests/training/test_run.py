"""`init`: names, directories, modes, misuse; what cannot be opened does not stop the training."""

from __future__ import annotations

import gc
import os
import re
import threading
import weakref

import numpy as np
import pytest

import sightglass as sg
from sightglass.protocol import discovery

pytestmark = pytest.mark.smoke


@pytest.fixture
def begin():
    """Return a function that begins runs; all are closed in the end."""
    begun = []

    def begin(name="job", **options):
        begun.append(sg.init(name, **options))
        return begun[-1]

    yield begin
    for run in begun:
        run.close()


def test_a_run_has_a_name_an_id_and_a_directory_of_its_own(begin, tmp_path):
    first, second = begin("my run/1"), begin("my run/1")
    assert re.fullmatch(r"[0-9a-f]{12}", first.id)
    assert first.id != second.id
    assert re.fullmatch(r"runs/my_run_1-\d{4}-\d\d-\d\d-\d{6}", str(first.directory))
    assert list(tmp_path.iterdir()) == []
    assert repr(first) == f"<Run 'my run/1' ({first.id}), live>"


def test_a_directory_that_is_taken_gets_a_counter(begin, monkeypatch, tmp_path):
    monkeypatch.setattr("sightglass.storage.run_directory.time.strftime", lambda form: "2026-01-02-030405")
    for name in ("job-2026-01-02-030405", "job-2026-01-02-030405-2"):
        (tmp_path / "out" / name).mkdir(parents=True)
    assert str(begin(dir="out").directory) == "out/job-2026-01-02-030405-3"


def test_closing_ends_it_and_may_be_done_twice(begin, runtime):
    with begin() as run:
        assert [entry.id for entry in discovery.entries()] == [run.id]
        assert run.reachable
    run.close()
    assert discovery.entries() == []
    assert [path.name for path in runtime.iterdir()] == [f"{run.id}.closed"]
    assert repr(run) == f"<Run 'job' ({run.id}), ended>"
    run.observe("batch", loss=1.0)
    run.log({"a": 1})
    run.end_group("batch")


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_disabled_makes_every_call_a_no_op(way, monkeypatch, runtime, tmp_path):
    n_threads = threading.active_count()
    if way == "environment":
        monkeypatch.setenv("SIGHTGLASS_MODE", "disabled")
    run = sg.init("job", mode="disabled" if way == "argument" else None)
    lr = run.control("lr", 0.1)
    run.action("save", print)
    run.function("f", print)
    run.observe("batch", loss=1.0)
    run.log({"a": 1})
    run.end_group("batch")
    run.flush()
    run.close()
    assert (lr.value, run.stopping, run.history, run.reachable) == (0.1, False, [], False)
    assert (threading.active_count(), list(runtime.iterdir()), list(tmp_path.iterdir())) == (n_threads, [], [])
    assert repr(run) == f"<Run 'job' ({run.id}), disabled>"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": ""}, TypeError, "name as text, got ''"),
        ({"name": 5}, TypeError, "name as text, got 5"),
        ({"mode": "loud"}, ValueError, "'live' or 'disabled', got 'loud'"),
        ({"budget": 0}, ValueError, "budget above 0 and up to 1, or None, got 0"),
        ({"budget": 2}, ValueError, "budget above 0 and up to 1, or None, got 2"),
        ({"listen": "0.0.0.0:0"}, ValueError, "'tcp://0.0.0.0:0', got '0.0.0.0:0'"),
    ],
)
def test_misuse_of_init_raises(options, error, message):
    with pytest.raises(error) as caught:
        sg.init(**{"name": "job", **options})
    assert message in str(caught.value)
    assert discovery.entries() == []


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda run: run.control("", 0.1), TypeError, "control as text, got ''"),
        (lambda run: run.control("x", 5, max=1), sg.CommandError, r"'x': expected at most 1, got 5 \("),
        (lambda run: run.control("x", []), TypeError, "control 'x', got list"),
        (lambda run: run.action("x", 5), TypeError, "action 'x', got int"),
        (lambda run: run.function("x", 5), TypeError, "function as 'x', got int"),
        (lambda run: run.function("mean", print), ValueError, "function.*'mean'"),
        (lambda run: run.function("_x", print), ValueError, "function, got '_x'"),
        (lambda run: run.function("on", print), ValueError, "function, got 'on'"),
        (lambda run: run.observe(5, loss=1), TypeError, "event as text, got int 5"),
        (lambda run: run.log([1]), TypeError, "got list"),
        (lambda run: run.log({"a": 1}, step="x"), TypeError, "number as 'step', got str 'x'"),
        (lambda run: run.observe("log", a=1), ValueError, "Event 'log' comes from log"),
    ],
)
def test_misuse_raises_at_the_call(begin, misuse, error, message):
    run = begin()
    run.control("lr", 0.1)
    run.action("save", print)
    run.log({"a": 1})
    with pytest.raises(error, match=message):
        misuse(run)


def test_what_is_declared_again_replaces_the_old(begin):
    run = begin()
    called = []
    for value in (1, 2):  # at the same line, as a cell of a notebook that runs again
        lr = run.control("lr", float(value))
        run.action("save", lambda value=value: called.append(value))
        run.function("times", lambda x, value=value: x * value)
    with pytest.warns(RuntimeWarning, match=f"'lr' replaces .*{__file__}:"):
        lr = run.control("lr", 3.0)
    with sg.connect(run) as client:
        for command in (lambda: client._start_command("set", "lr", 5.0), lambda: client._start_command("call", "save")):
            pending = command()
            run.apply()
            pending[1].wait(10.0)
        stream = client.stream("on('batch').map(lambda b: times(b.x))")
        run.observe("batch", x=4)
        assert stream.wait(1)[0].value == 8
    assert (lr.value, called) == (5.0, [2])


def test_a_run_works_without_a_registry(begin, monkeypatch):
    def nowhere():
        raise sg.TransportError("No folder for live runs: none")

    monkeypatch.setattr(discovery, "folder", nowhere)
    with pytest.warns(
        RuntimeWarning,
        match="'job'.*: none$",
    ):
        run = begin()
    assert not run.reachable
    with sg.connect(run) as client:
        stream = client.stream("batch.loss")
        run.observe("batch", loss=1.0)
        assert [r.value for r in stream.wait(1, timeout_s=30)] == [1.0]


def test_a_config_of_any_kind_is_shown(begin):
    run = begin(config={"lr": 0.1, "shape": (1, 2), "model": object, 3: {1}})
    with sg.connect(run) as client:
        assert client.describe().config == {"lr": 0.1, "shape": (1, 2), "model": "<class 'object'>", "3": "{1}"}


def test_commands_are_refused_in_a_program_of_several_processes(begin, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    run = begin()
    run.control("lr", 0.1)
    with sg.connect(run) as client:
        assert not client.may_command
        with pytest.raises(sg.RefusedError, match=r"2 processes .*sg.Ranks\(agree=…\)"):
            client.set("lr", 0.5)


def test_commands_go_to_rank_0(begin, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with (
        sg.connect(begin(ranks=sg.Ranks(agree=bytes))) as client,
        pytest.raises(sg.RefusedError, match=r"rank 0.*rank 1"),
    ):
        client.stop()


def test_commands_with_agree(begin, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    run = begin(ranks=sg.Ranks(agree=bytes))
    lr = run.control("lr", 0.1)
    with sg.connect(run) as client:
        client.set("lr", 0.5)
        run.observe("batch")
    assert lr.value == 0.5


def test_a_run_keeps_no_observables(begin):
    class Thing:
        pass

    run, thing = begin(), Thing()
    run.observe("batch", thing=thing)
    run.observe("batch", thing=thing)
    gone = weakref.ref(thing)
    del thing
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")  # of Python 3.12, and of JAX where another test has loaded it
def test_a_forked_child_is_a_no_op(begin):
    run = begin()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run.observe("batch", loss=1.0)
            run.log({"a": 1})
            run.close()
            status = 0 if run.disabled else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [entry.id for entry in discovery.entries()] == [run.id]


def test_a_snapshot_works_after_an_event_was_seen_without_it(begin):
    run = begin()
    for _ in range(3):
        run.observe("init", x=1)
    run.observe("init", x=2, snapshot=True)
    run.observe("init", x=3, snapshot=True)
    with sg.connect(run) as client:
        assert client.stream("init.x").wait(1, timeout_s=30)[0].value == 3


@pytest.fixture
def no_collection():
    """Collect no garbage: all that the tests hold would count as the time of one event, and the next lose its turn."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def late_values(run, values):
    """Return what a second client sees of a stream if it asks after these values and before -1."""
    with sg.connect(run) as early, sg.connect(run) as late:
        stream = early.stream("batch.x")
        for x in values:
            run.observe("batch", x=x)
        stream.wait(len(values), timeout_s=60)
        copy = late.stream("batch.x")
        run.observe("batch", x=-1)
        run.close()
        return [int(np.max(record.value)) for record in copy]


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(("limit", "expected"), [(20, [*range(10), -1]), (8, [0, *range(5, 10), -1]), (0, [-1])])
def test_a_limit_on_the_records_that_a_late_client_gets(begin, limit, expected):
    assert late_values(begin(budget=None, limits=sg.Limits(max_backlog_records=limit)), range(10)) == expected


@pytest.mark.usefixtures("no_collection")
def test_a_limit_on_the_bytes_that_a_late_client_gets(begin):
    run = begin(budget=None, limits=sg.Limits(max_backlog_bytes=20_000))
    assert late_values(run, [np.full(1_000, x) for x in range(10)]) == [8, 9, -1]


def test_options_are_checked(begin):
    with pytest.raises(ValueError, match=r"max_backlog_bytes.*0.*-1"):
        sg.Limits(max_backlog_bytes=-1)
    with pytest.raises(TypeError, match=r"max_backlog_records, got float 0.5"):
        sg.Limits(max_backlog_records=0.5)
    with pytest.raises(TypeError, match="agree, got int 3"):
        sg.Ranks(agree=3)
    with pytest.raises(TypeError, match="into, got int 3"):
        sg.Files(into=3)
    with pytest.raises(ValueError, match=r"compat='mindspore'.*'tensorboard'"):
        sg.Files(compat="tensorboard")
    with pytest.raises(TypeError, match=r"sg.Ranks\(…\).*<class 'bytes'>"):
        begin(ranks=bytes)
    with pytest.raises(TypeError, match=r"record=\['batch.loss'\]"):
        begin(record="batch.loss")


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda run: run.observe(""), ValueError, "'batch', got ''"),
        (lambda run: run.observe({"x": 1}), TypeError, "event as text, got dict {'x': 1}"),
        (lambda run: run.log("loss", 3.0), TypeError, "such as log({'loss': 0.5}), got log('loss', 3.0)"),
        (lambda run: run.log("loss"), TypeError, "such as log({'loss': 0.5}), got log('loss')"),
        (lambda run: run.log({"loss": 1}, 5), TypeError, "step=… as a keyword"),
        (lambda run: run.finish(), AttributeError, "'finish'. Did you mean close()?"),
        (lambda run: run.event, AttributeError, "'event'. Did you mean observe(…)?"),
        (
            lambda run: run.stream("batch.loss"), AttributeError,
            "'stream'. Did you mean sightglass.connect(run).stream(…)?",
        ),
        (sg.plot, TypeError, "plot(sightglass.connect(run).stream(…))"),
        (lambda run: run.nothing, AttributeError, "attribute 'nothing'"),
    ],
)  # fmt: skip
def test_what_other_libraries_call_it_is_answered_with_its_name_here(begin, misuse, error, message):
    run = begin()
    with pytest.raises(error) as caught:
        misuse(run)
    assert message in str(caught.value)
    assert not hasattr(run, "__array__")
