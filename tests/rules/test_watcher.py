"""The watcher, with real runs: in this process, and in others that crash, fail and hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core import description
from sightglass.query.condition import as_condition
from sightglass.rules import watcher as watching
from sightglass.rules.journal import Journal
from sightglass.rules.rules import read_rules
from sightglass.rules.watcher import Watcher

TOO_HIGH = '[[rule]]\nname = "too high"\nwhen = "batch.loss > 3"\nlevel = "error"\nwait = ""\n'
NO_STATES = "states = []\n"


class Inbox:
    """A receiver that takes alerts while it is up."""

    kind = "test"

    def __init__(self):
        self.up, self.got = True, []

    def check(self):
        """It can."""

    def send(self, alert, *, now):
        if not self.up:
            raise ConnectionError("down")
        self.got.append(alert)


@pytest.fixture
def inbox():
    return Inbox()


@pytest.fixture
def watch(tmp_path, inbox):
    open_watchers = []

    def start(text):
        (tmp_path / "rules.toml").write_text(text)
        rules = read_rules(tmp_path / "rules.toml")
        watcher = Watcher(rules, sg.fleet(), [inbox], Journal(tmp_path / "journal"))
        open_watchers.append(watcher)
        return watcher

    yield start
    for watcher in open_watchers:
        if not watcher.closed:
            watcher.close()


def got(watcher, inbox, n):
    """Let it watch until so many alerts have arrived, and return their titles, runs and texts."""

    def look():
        watcher.round()
        return len(inbox.got) >= n

    wait_until(look, lambda: f"{n} alerts, got {inbox.got}")
    return [(alert.title, alert.run, alert.text) for alert in inbox.got]


def observe(run, losses):
    for step, loss in enumerate(losses):
        run.observe("batch", loss=loss, step=step)


def test_a_condition_is_watched_in_runs_that_live_now_and_later(watch, inbox, tmp_path):
    with sg.init("first", dir=tmp_path) as first:
        watcher = watch(NO_STATES + TOO_HIGH)
        observe(first, [1.0])
        watcher.round()
        with sg.init("later", dir=tmp_path) as later:
            for run, loss in ((first, 4.0), (later, 5.0)):
                wait_until(lambda one=run: one._telemetry.subscriptions.active, "the question", pause=watcher.round)
                observe(run, [loss, loss, 1.0])
            titles = got(watcher, inbox, 2)
            assert sorted(titles) == [
                ("too high", "first", "batch.loss > 3: the value is 4.0"),
                ("too high", "later", "batch.loss > 3: the value is 5.0"),
            ]
            assert {alert.run_id for alert in inbox.got} == {first.id, later.id}
            observe(first, [6.0])
            assert got(watcher, inbox, 3)[2] == ("too high", "first", "batch.loss > 3: the value is 6.0")
            assert len({alert.id for alert in inbox.got}) == 3
            entries = wait_until(lambda: later.history, "the entry")
            assert [(one.kind, one.name, one.value, one.note, one.step) for one in entries] == [
                ("alert", "too high", "batch.loss > 3: the value is 5.0", "error", 0)
            ]
            assert "too high" in entries[0].client


def test_a_rule_is_for_the_runs_of_its_pattern(watch, inbox, tmp_path):
    with sg.init("sweep-1", dir=tmp_path) as run, sg.init("other", dir=tmp_path) as other:
        watcher = watch(NO_STATES + TOO_HIGH + 'runs = "sweep-*"\n')
        wait_until(lambda: run._telemetry.subscriptions.active, "the question", pause=watcher.round)
        assert not other._telemetry.subscriptions.active
        observe(other, [4.0])
        observe(run, [4.0])
        assert [name for _, name, _ in got(watcher, inbox, 1)] == ["sweep-1"]
        assert [row["run"] for row in watcher.status()["rows"]] == ["sweep-1"]


def test_a_command_follows_where_the_program_allows_it(watch, inbox, tmp_path):
    rules = NO_STATES + "".join(
        TOO_HIGH.replace("too high", name) + f'then = "{then}"\n'
        for name, then in (("set", "lr=0.01"), ("unknown", "wd=1"), ("stop", "stop"))
    )
    with sg.init("m", dir=tmp_path, limits=sg.Limits(alerts_may=["lr", "wd"])) as run:
        lr = run.control("lr", 0.1)
        watcher = watch(rules)

        def observed():
            observe(run, [4.0])
            watcher.round()
            return len(inbox.got) == 3

        wait_until(observed, "the alerts")
        texts = {alert.title: alert.text for alert in inbox.got}
        assert "lr=0.01" in texts["set"]
        wait_until(lambda: lr.value == 0.01, "the command", pause=lambda: observe(run, [4.0]))
        assert "'wd'" in texts["unknown"]
        assert watching.NOT_ALLOWED in texts["stop"]
        assert not run.stopping
        assert next(one.client for one in run.history if one.kind == "set").startswith("alert set")


def test_every_run_of_a_name_is_meant_by_it(watch, inbox, tmp_path):
    watcher = watch(NO_STATES + TOO_HIGH + 'runs = "same"\n')
    for _ in range(2):
        with sg.init("same", dir=tmp_path) as run:
            wait_until(lambda one=run: one._telemetry.subscriptions.active, "the question", pause=watcher.round)
            observe(run, [4.0])
            n = len(inbox.got)
            got(watcher, inbox, n + 1)
    assert len({alert.run_id for alert in inbox.got}) == 2
    assert {row["id"] for row in watcher.status()["rows"]} == {alert.run_id for alert in inbox.got}


def test_a_run_that_refuses_or_has_no_such_event_costs_the_others_nothing(watch, inbox, tmp_path):
    with sg.init("plain", dir=tmp_path) as plain, sg.init("arrays", dir=tmp_path) as arrays:
        watcher = watch(NO_STATES + TOO_HIGH)
        for run in (plain, arrays):
            wait_until(lambda one=run: one._telemetry.subscriptions.active, "the question", pause=watcher.round)
        import numpy as np

        observe(arrays, [np.array([4.0, 5.0])])
        observe(plain, [4.0, 1.0])
        assert [name for _, name, _ in got(watcher, inbox, 1)] == ["plain"]
        rows = wait_until(
            lambda: {row["run"]: row for row in watcher.status()["rows"] if row["run"] == "arrays" and row["problem"]},
            "the problem", pause=watcher.round,
        )  # fmt: skip
        assert rows["arrays"]["state"] == "refused"
        observe(plain, [5.0])
        got(watcher, inbox, 2)


def test_a_watcher_that_begins_again_sends_what_did_not_arrive_and_tells_nothing_twice(watch, inbox, tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        first = watch(NO_STATES + TOO_HIGH)
        inbox.up = False
        wait_until(lambda: run._telemetry.subscriptions.active, "the question", pause=first.round)
        observe(run, [4.0])
        wait_until(lambda: first.status()["waiting"], "the alert", pause=first.round)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first.close()
        inbox.up = True
        with sg.connect(run) as reader:  # for whom the run still holds what it sent
            held = reader.stream(as_condition("batch.loss > 3"))
            second = watch(NO_STATES + TOO_HIGH)
            held.wait(0)
        assert [name for name, *_ in got(second, inbox, 1)] == ["too high"]
        wait_until(lambda: run._telemetry.subscriptions.active, "the question", pause=second.round)
        observe(run, [4.0, 4.0])
        wait_until(lambda: second.status()["rows"][0]["evaluated"] >= 2, "evaluations", pause=second.round)
        assert len(inbox.got) == 1
        observe(run, [1.0, 4.0])
        assert len(got(second, inbox, 2)) == 2
        assert len({alert.id for alert in inbox.got}) == 2


PROGRAM = """
import sys, time, sightglass as sg
run = sg.init(sys.argv[1], dir=sys.argv[2])
run.log({"a": 1.0})
print("ready", flush=True)
sys.stdin.readline()
with run:
    raise ValueError("it is over")
"""


@pytest.fixture
def program(tmp_path):
    started = []

    def start(name):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_run_that_crashes_or_fails_is_told_of_once(watch, inbox, program):
    crashes, fails = program("crashes"), program("fails")
    watcher = watch("")
    wait_until(lambda: len(watcher.status()["rows"]) == 8, "both runs", pause=watcher.round)
    crashes.kill()
    fails.stdin.write("\n")
    fails.stdin.flush()
    told = got(watcher, inbox, 2)
    assert sorted((title, run) for title, run, _ in told) == [("crashed", "crashes"), ("failed", "fails")]
    for _ in range(5):
        watcher.round()
    assert len(inbox.got) == 2
    watcher.close()
    again = watch("")
    again.round()
    assert len(inbox.got) == 2


def test_a_run_that_does_not_answer_is_told_of(watch, inbox, program, monkeypatch):
    monkeypatch.setattr(watching, "SILENT_S", 0.5)
    monkeypatch.setattr(watching, "DESCRIBE_S", 0.05)
    process = program("hangs")
    watcher = watch("")
    wait_until(lambda: watcher.status()["rows"], "the run", pause=watcher.round)
    os.kill(process.pid, signal.SIGSTOP)
    told = got(watcher, inbox, 1)
    os.kill(process.pid, signal.SIGCONT)
    assert told[0][:2] == ("silent", "hangs")

    def heard():
        watcher.round()
        return next(row for row in watcher.status()["rows"] if row["rule"] == "silent")["state"] == "armed"

    wait_until(heard, "that it answers again")


def test_a_run_without_events_is_told_of(watch, inbox, tmp_path, monkeypatch):
    monkeypatch.setattr(description, "QUIET_S", 0.05)
    monkeypatch.setattr(watching, "STUCK_S", 0.05)
    monkeypatch.setattr(watching, "DESCRIBE_S", 0.05)
    with sg.init("m", dir=tmp_path) as run, sg.connect(run) as client:

        def has_interval():
            observe(run, [1.0])
            return client.describe().events["batch"].interval_s is not None

        wait_until(has_interval, "the usual interval")
        watcher = watch("")
        ((title, name, text),) = got(watcher, inbox, 1)
        assert (title, name) == ("stuck", "m")
        assert "sightglass stack m" in text


def test_how_it_goes_is_one_row_for_each_rule_and_run(watch, tmp_path):
    with sg.init("m", dir=tmp_path) as run:
        watcher = watch(TOO_HIGH)
        wait_until(lambda: run._telemetry.subscriptions.active, "the question", pause=watcher.round)
        observe(run, [1.0, 0.31])
        rows = wait_until(
            lambda: [row for row in watcher.status()["rows"] if row["evaluated"] == 2 and row["rule"] == "too high"],
            "evaluations", pause=watcher.round,
        )  # fmt: skip
        assert rows[0]["state"] == "armed"
        assert rows[0]["last"] == "0.31"
        assert [row["rule"] for row in watcher.status()["rows"]] == ["crashed", "stuck", "silent", "failed", "too high"]


def test_runs_on_a_hub_are_watched_and_stopped(hub, inbox, tmp_path):
    (tmp_path / "rules.toml").write_text(NO_STATES + TOO_HIGH + 'then = "stop"\n')
    rules, limits = read_rules(tmp_path / "rules.toml"), sg.Limits(alerts_may=["stop"])
    with sg.init("far", dir=tmp_path, hub=hub.files["P", "node"], limits=limits) as run:
        watcher = Watcher(rules, sg.fleet(hub=hub.files["P", "bob"]), [inbox], Journal(tmp_path / "journal"))

        def told():
            observe(run, [4.0])
            watcher.round()
            return inbox.got

        wait_until(told, "the alert")
        assert inbox.got[0].run == "far"
        wait_until(lambda: run.stopping, "the command", pause=told)
        watcher.close()
