"""The alerts of a run: what its program raises, what the run sees of itself, and how they leave the process."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.alerts.alert import VARIABLE
from sightglass.core.errors import QueryError

SECRET = "swordfish"


@pytest.fixture
def told(posts, monkeypatch):
    """Have alerts sent to a server, and return what it got: pairs of a title and a level."""
    monkeypatch.setenv(VARIABLE, f"json://user:{SECRET}@127.0.0.1:{posts.server_port}/{SECRET}")
    return lambda: [(body["title"].partition(": ")[2], body["type"]) for _, body in posts.got]


def alerts(run):
    return [(entry.name, entry.value, entry.note, entry.step) for entry in run.history if entry.kind == "alert"]


def test_an_alert_enters_the_history_and_is_delivered(told, tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        run.log({"loss": 1.0}, step=7)
        run.alert("loss explodes", "it is 1e9", level="error", step=7)
        assert alerts(run) == [("loss explodes", "it is 1e9", "error", 7)]
        with sg.connect(run) as client:
            assert client.history[0].name == "loss explodes"
            told_of = client.describe().alerts
            assert (told_of.n, told_of.title, told_of.level) == (1, "loss explodes", "error")
        wait_until(told, "the alert")
    assert told() == [("loss explodes", "failure")]
    (kept,) = sg.open(run.directory).history
    assert (kept.kind, kept.name, kept.note, kept.step) == ("alert", "loss explodes", "error", 7)
    assert sg.open(run.directory).describe().alerts == told_of


def test_without_receivers_alerts_enter_the_history(tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        run.alert("hello")
        run.log({"loss": math.nan}, step=0)
        run.flush()
        ((title, text, level, step),) = alerts(run)
        assert (title, text, level) == ("hello", "", "warning")
        assert math.isnan(step)


def test_alerts_of_one_title_keep_their_distance(tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        for i in range(5):
            run.alert("again", str(i), wait_s=1_000)
            run.alert("other", str(i), wait_s=0)
        assert [(name, text) for name, text, *_ in alerts(run)] == [
            ("again", "0"), *(("other", str(i)) for i in range(5))
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"title": ""}, TypeError),
        ({"title": 3}, TypeError),
        ({"title": "t", "text": None}, TypeError),
        ({"title": "t", "level": "urgent"}, ValueError),
        ({"title": "t", "wait_s": -1}, ValueError),
        ({"title": "t", "wait_s": math.nan}, ValueError),
        ({"title": "t", "step": "3"}, TypeError),
        ({"title": "t", "wait_s": "a"}, TypeError),
    ],
)
def test_misuse_raises_at_the_call(tmp_path, arguments, error):
    with sg.init("m", dir=tmp_path) as run, pytest.raises(error):
        run.alert(**arguments)


@pytest.mark.parametrize("mode", ["disabled", "over"])
def test_a_run_that_is_disabled_or_over_tells_nothing(told, tmp_path, mode):
    run = sg.init("m", dir=tmp_path, mode="disabled" if mode == "disabled" else "live")
    if mode == "over":
        run.close()
    run.alert("t")
    run.alert_when("batch.loss > 3")
    run.close()
    assert told() == []


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1.0, "b": 2.0}, {"a": math.nan, "b": 2.0}],
        [{"b": 1}, {"a": np.float32("nan"), "b": 3}],
        [{"b": 1.0}, {"b": 1.0, "a": np.array(math.nan)}],
        [{"a": True}, {"a": math.nan}],
        [{f"m{i}": 1.0 for i in range(50)}, {f"m{i}": 1.0 for i in range(50)} | {"a": math.nan}],
    ],
)
def test_the_first_nan_that_is_logged_is_told_once(told, tmp_path, values):
    with sg.init("m", dir=tmp_path) as run:
        for step, row in enumerate(values):
            run.log(row, step=step)
        run.flush()
        run.log(values[-1], step=9)
        run.flush()
        assert [(name, level, step) for name, _, level, step in alerts(run)] == [("NaN in a", "error", 1)]
    assert told() == [("NaN in a", "failure")]


def test_the_first_nan_that_is_streamed_is_told(told, tmp_path):
    with sg.init("m", dir=tmp_path) as run, sg.connect(run) as client:
        stream = client.stream("batch.loss")
        for step, loss in enumerate([1.0, math.inf, math.nan, math.nan]):
            run.observe("batch", loss=loss, step=step)
        stream.wait(4)
        wait_until(told, "the alert")
        assert [(name, step) for name, _, _, step in alerts(run)] == [("NaN in batch.loss", 2)]


def test_what_is_no_number_is_no_nan(told, tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        run.log({"t": sg.Text("nan"), "x": np.full((3, 3), math.nan), "i": 3, "h": sg.Histogram([1.0, 2.0])}, step=0)
        run.flush()
        assert alerts(run) == []


def test_a_full_disk_is_told_once_each_time(told, tmp_path, monkeypatch):
    full, write = [True], os.writev

    def write_if_there_is_room(file, buffers):
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, buffers)

    monkeypatch.setattr(os, "writev", write_if_there_is_room)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sg.init("m", dir=tmp_path) as run:
            for outage in range(2):
                run.log({"loss": 1.0}, step=outage)
                wait_until(lambda n=outage: len(told()) == n + 1, "the alert")
                full[0] = False
                wait_until(lambda: not run._wiring.recorder.disk_problem, "the next try")
                wait_until(lambda: not run._wiring.alerts._disk_is_full, "the next look")
                full[0] = True
            full[0] = False
    assert told() == [("the disk is full", "failure")] * 2


def test_a_run_that_fails_says_so_before_it_is_gone(told, tmp_path, posts):
    run = sg.init("m", dir=tmp_path)
    run.log({"loss": 1.0}, step=0)
    with pytest.raises(ZeroDivisionError), run:
        print(1 / 0)
    ((title, level),) = told()
    assert title.startswith("failed after")
    assert "division by zero" in title
    assert level == "failure"
    assert "test_of_run.py" in posts.got[0][1]["message"]
    assert sg.open(run.directory).history[-1].name == title


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_run_that_somebody_ends_tells_nothing(told, tmp_path, end):
    with contextlib.suppress(end), sg.init("m", dir=tmp_path):
        raise end
    assert told() == []


def test_a_condition_raises_an_alert(told, tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        run.alert_when("batch.loss > 3", "too high", level="error", wait_s=1_000)
        run.alert_when("batch.loss.mean(every=2) > 100")
        for step in range(6):
            run.observe("batch", loss=float(step), step=step)
        wait_until(told, "the alert")
        ((title, text, level, step),) = alerts(run)
        assert (title, level, step) == ("too high", "error", 4)
        assert "4.0" in text


def test_a_condition_that_is_no_query_raises_at_the_call(tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        with pytest.raises(QueryError):
            run.alert_when("batch.loss >")
        with pytest.raises(ValueError, match="urgent"):
            run.alert_when("batch.loss > 1", level="urgent")


def test_an_address_is_in_no_file_error_or_fact(told, tmp_path, posts, monkeypatch):
    monkeypatch.delenv("SIGHTGLASS_FACTS")
    posts.status = 500
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with sg.init("m", dir=tmp_path, facts=sg.Facts(environment=[VARIABLE])) as run, sg.connect(run) as client:
            run.log({"loss": 1.0})
            run.alert("t")
            wait_until(lambda: client.describe().facts.get("environment"), "the facts")
            wait_until(lambda: "Alerts" in client.describe().failures, "the failure")
            texts = [repr(client.describe()), repr(run._wiring.settings)]
    texts += [str(one.message) for one in said]
    assert any("not delivered: 1" in one for one in texts)
    assert not any(SECRET in one for one in texts)
    files = [path for path in Path(run.directory).rglob("*") if path.is_file()]
    assert files
    assert all(SECRET.encode() not in path.read_bytes() for path in files)


def test_what_is_no_address_is_told_and_costs_no_run(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, SECRET)
    with pytest.warns(RuntimeWarning, match="No alerts") as said:
        run = sg.init("m", dir=tmp_path)
    assert SECRET not in str(said[0].message)
    run.alert("t")
    assert len(alerts(run)) == 1
    run.close()


PROGRAM = """
import sys, sightglass as sg
run = sg.init("m", dir=sys.argv[1])
run.log({"loss": 1.0}, step=0)
if sys.argv[2] == "raise":
    raise ValueError("it is over")
import os, signal
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("end", "title", "level"), [("raise", "ValueError: it is over", "failure"), ("signal", "SIGTERM", "warning")]
)
def test_a_program_that_ends_by_itself_tells_at_its_end(told, tmp_path, end, title, level):
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), end], capture_output=True, timeout=100, check=False)
    ((got, kind),) = told()
    assert title in got
    assert kind == level


def test_a_handler_of_a_signal_may_raise_an_alert_within_another_one(tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        inner = run._wiring.alerts
        remember, inner._remember = inner._remember, lambda entry: None
        with inner._lock:
            run.alert("from the handler")
        inner._remember = remember
        run.alert("from the program")
        assert [name for name, *_ in alerts(run)] == ["from the program"]


def test_a_child_that_is_forked_at_once_can_import(told, tmp_path):
    code = (
        "import os, sys, sightglass as sg\n"
        "run = sg.init('m', dir=sys.argv[1])\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    import requests, smtplib, concurrent.futures.thread\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100,
            check=False,
        )  # fmt: skip
        assert done.stdout == "7\n"


def test_a_receiver_that_cannot_be_used_costs_the_others_nothing(posts, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"exec:{tmp_path}/nothing\njson://127.0.0.1:{posts.server_port}")
    with pytest.warns(RuntimeWarning, match="gets no alerts"):
        run = sg.init("m", dir=tmp_path)
    run.alert("t", step=np.int64(3))
    run.close()
    assert [body["title"] for _, body in posts.got] == ["m: t"]
    assert run.history[0].step == 3


FORKS = """
import os, sys, sightglass as sg
with sg.init("m", dir=sys.argv[1]) as run:
    child = os.fork()
    if not child:
        run.alert("from the child")
        run.close()
        os._exit(0)
    os.waitpid(child, 0)
    run.alert("from the parent")
"""


def test_a_forked_child_tells_nothing(told, tmp_path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)], check=True, timeout=100)
    assert [title for title, _ in told()] == ["from the parent"]


def test_a_program_gets_every_field(tmp_path, monkeypatch):
    monkeypatch.setenv(
        VARIABLE, f'exec:{sys.executable} -c \'import sys; open("{tmp_path}/got", "a").write(sys.stdin.read())\''
    )
    with sg.init("m", dir=tmp_path) as run:
        run.alert("t", "x", step=3)
    got = json.loads((tmp_path / "got").read_text())
    assert (got["title"], got["text"], got["level"], got["run"], got["step"]) == ("t", "x", "warning", "m", 3)
    assert got["run_id"] == run.id
