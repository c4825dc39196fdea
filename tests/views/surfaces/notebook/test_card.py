"""The description of a run on its card, its state, and the replies to commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.errors import RunLostError, SightglassError
from sightglass.core.process.threads import UNTIL_WOKEN
from sightglass.views.surfaces.notebook import RunCard
from sightglass.views.surfaces.notebook.card import DESCRIBE_S, MAX_LISTED, MAX_TEXT, info_of, send_command, shown
from sightglass.views.surfaces.notebook.model import cells
from sightglass.views.surfaces.notebook.open_pages import BLIND_S, EVERYBODY, Page


@pytest.fixture
def run():
    with sg.init("card", config={"lr": 0.1}) as run:
        run.control("lr", 0.1, min=0.0, max=1.0)
        run.control("n", 3, min=0, max=10)
        run.control("kind", "a", choices=["a", "b"])
        run.action("save", lambda: "saved")
        run.observe("batch", loss=1.0, step=0)
        yield run


def test_a_card_describes_the_run_as_the_page_does(run):
    info = info_of(sg.connect(run))
    assert (info["name"], info["state"], info["off"], info["live"]) == ("card", "running", "", True)
    assert info["config"] == {"lr": 0.1}
    about = info["description"]
    assert about["events"]["batch"]["n_events"] == 1
    assert about["events"]["batch"]["observables"]["loss"]["type"] == "float"
    assert {name: one["value"] for name, one in about["controls"].items()} == {"lr": 0.1, "n": 3, "kind": "a"}
    assert list(about["actions"]) == ["save"]
    assert info["queries"]["batch"]["loss"] == "batch.loss"
    json.dumps(info, allow_nan=False)


def test_values_come_with_the_step_that_they_are_of(run):
    client = sg.connect(run)

    def loss():
        return info_of(client)["description"]["events"]["batch"]["observables"]["loss"]

    assert (loss()["example"], loss()["step"]) == ("1.0", 0)
    for step in range(1, 1701):
        run.observe("batch", loss=1.0 / step, step=step)
    loss()
    run.observe("batch", loss=np.float32(0.5), step=np.int64(1701))
    assert (loss()["example"], loss()["step"]) == ("0.5", 1701)


def test_a_value_that_is_not_in_the_newest_event_keeps_its_step(run):
    client = sg.connect(run)
    run.log({"loss": 1.0, "accuracy": 0.5}, step=1)
    client.describe()
    run.log({"loss": 2.0}, step=9)
    observables = client.describe().events["log"].observables
    assert (observables["loss"].step, observables["accuracy"].step) == (9, 1)


def test_the_card_of_a_run_that_has_ended_says_so_and_keeps_the_description(run):
    client = sg.connect(run)
    before = info_of(client)
    run.close()
    after = info_of(client, before=before)
    assert (after["state"], after["live"]) == ("ended", False)
    assert "has ended" in after["problem"]
    assert after["description"] == before["description"]
    with pytest.raises(SightglassError):
        info_of(client)


@pytest.mark.parametrize("records", ["", "run.log({'x': 1})\nrun.flush()\n"])
def test_the_card_of_a_run_that_was_killed_is_not_running(records):
    code = f"import sightglass as sg\nrun = sg.init('killed')\n{records}print('', flush=True)\ninput()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        training.stdout.readline()
        client = sg.connect("killed")
        before = info_of(client)
        os.kill(training.pid, signal.SIGKILL)
        training.wait()
        wait_until(lambda: client.lost or client.ended)
    after = info_of(client, before=before)
    assert (before["state"], after["state"]) == ("running", "lost")
    assert "died" in after["problem"]
    assert after["off"] == after["problem"]


class SilentRun:
    """A run that does not answer, and may come back."""

    name, may_command = "silent", True

    def __init__(self, run):
        self.run, self.silent = run, False

    @property
    def ended(self):
        return self.run.ended

    def describe(self):
        if self.silent:
            raise RunLostError("Run 'silent' did not answer within 5 s")
        return self.run.describe()

    def last_commands(self, n):
        return self.run.last_commands(n)

    def set(self, name, value):
        """Take commands, as a live run does."""


def test_a_run_that_does_not_answer_is_lost_until_it_comes_back(run):
    silent = SilentRun(sg.connect(run))
    before = info_of(silent)
    silent.silent = True
    lost = info_of(silent, before=before)
    assert (lost["state"], lost["live"]) == ("lost", True)
    assert lost["off"] == lost["problem"] == "Run 'silent' did not answer within 5 s"
    silent.silent = False
    assert info_of(silent, before=lost)["state"] == "running"


def test_the_card_of_a_recorded_run_takes_no_commands(run):
    run.log({"val/loss": 1.0}, step=1)
    run.flush()
    with sg.open(run.directory) as recorded:
        info = info_of(recorded)
    assert not info["live"]
    assert info["queries"]["log"]["val/loss"] == "log['val/loss']"


def test_what_a_card_is_sent_is_bounded():
    assert shown("x" * 1000) == "x" * (MAX_TEXT - 1) + "…"
    assert len(shown({str(i): [i] * 1000 for i in range(1000)})) == MAX_LISTED
    assert shown([np.zeros((3, 4)), float("nan"), (1, "a")]) == ["float64[3, 4]", "NaN", [1, "a"]]


class Card(RunCard):
    """A card that is driven by hand: its thread never starts, and what it sends is kept."""

    def __init__(self, run):
        super().__init__(run)
        self.sent = []
        self._worker.wake = self._widget._wake = lambda: None
        self._widget.send = lambda content, buffers: self.sent.append(content)

    def receive(self, kind, **more):
        self._widget.receive({"type": kind, "page": "a", **more})


class CountedRun(SilentRun):
    """A run that counts how often it is asked."""

    n = 0

    def describe(self):
        self.n += 1
        return super().describe()


def test_a_page_is_sent_the_description_once_a_second_however_fast_it_draws(run):
    counted = CountedRun(sg.connect(run))
    card = Card(counted)
    assert card.round(100.0) == UNTIL_WOKEN, "no page shows it"
    card.receive("ready")
    counted.n = 0
    for i in range(100):
        card.round(100.0 + i * 0.1)
        run.observe("batch", loss=1.0)
        card.receive("ack", n=len(card.sent))
    assert counted.n == pytest.approx(10 / DESCRIBE_S, abs=1)
    assert [content["n"] for content in card.sent] == list(range(1, len(card.sent) + 1))
    assert card.sent[0]["reset"]
    assert card.sent[-1]["info"]["description"]["events"]["batch"]["n_events"] > 80
    run.close()
    assert card.round(200.0) == pytest.approx(UNTIL_WOKEN)
    assert card.sent[-1]["info"]["state"] == "ended"


def test_a_card_is_shown_during_a_cell_where_pages_are_not_heard(run, monkeypatch):
    card = Card(sg.connect(run))
    monkeypatch.setattr(cells, "busy", True)
    card._widget.show()
    now_s = time.monotonic()
    for i in range(3):
        card.round(now_s + 1.1 * i * BLIND_S)
    assert [(content["to"], content["reset"]) for content in card.sent] == [(EVERYBODY, True)] * 2
    card.receive("ready")
    card.round(now_s + 10)
    assert card.sent[-1]["to"] == "a", "it is heard, and alone gets what is new"


def test_a_page_has_news_until_it_was_sent_the_description(run):
    card = Card(sg.connect(run))
    page = Page(name="a")
    assert card.has_news(page)
    assert card.update(page) is not None
    assert not card.has_news(page)
    assert card.update(page) is None
    assert card.unknown_page().name == EVERYBODY


def test_commands_are_answered_to_the_page_that_sent_them(run):
    card = Card(sg.connect(run))
    replied = threading.Event()
    card._widget.send = lambda content, buffers: (card.sent.append(content), replied.set())
    card.receive("request", request=7, command={"kind": "set", "name": "lr", "value": 2})
    while not replied.wait(0.01):
        run.observe("batch", loss=1.0)
    [reply] = card.sent
    assert (reply["type"], reply["to"], reply["request"]) == ("reply", "a", 7)
    assert "expected at most 1" in reply["error"]


class CommandedRun:
    """A run that remembers the commands it gets."""

    def __init__(self, *, note=""):
        self.commands, self.note = [], note

    def _done(self, *command, timeout_s, **options):
        from sightglass.core.description import Acknowledgement

        self.commands.append((*command, options) if options else command)
        if self.note:
            return Acknowledgement(applied=False, note=self.note)
        return Acknowledgement(applied=True, event="batch", step=1234.0, old=0.1, result=command[-1])

    def set(self, name, value, **options):
        return self._done("set", name, value, **options)

    def call(self):
        """Not used: an argument may have the name of one of its own."""

    def _command(self, kind, name, value, **options):
        return self._done(kind, name, value, **options)

    def pause(self, **options):
        return self._done("pause", **options)

    def resume(self, **options):
        return self._done("resume", **options)

    def stop(self, **options):
        return self._done("stop", **options)


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        ({"kind": "set", "name": "lr", "value": 0.5}, ("set", "lr", 0.5)),
        ({"kind": "set", "name": "lr", "value": 0.5, "at": "epoch"}, ("set", "lr", 0.5, {"at": "epoch"})),
        ({"kind": "call", "name": "save", "at": ""}, ("call", "save", [])),
        (
            {"kind": "call", "name": "save", "keywords": {"at": 4}, "at": "epoch"},
            ("call", "save", {"args": [], "keywords": {"at": 4}}, {"at": "epoch"}),
        ),
        ({"kind": "pause", "at": "epoch"}, ("pause", {"at": "epoch"})),
        ({"kind": "resume", "at": "epoch"}, ("resume",)),
        ({"kind": "stop"}, ("stop",)),
    ],
)
def test_commands_of_pages_are_sent_to_the_run(command, sent):
    run = CommandedRun()
    reply = send_command(run, command)
    assert run.commands == [sent]
    assert (reply["applied"], reply["event"], reply["step"]) == (True, "batch", 1234.0)


def test_a_command_that_waits_says_for_what():
    reply = send_command(CommandedRun(note="waits for 'epoch'"), {"kind": "pause"})
    assert (reply["applied"], reply["note"]) == (False, "waits for 'epoch'")


@pytest.mark.parametrize("kind", ["close", "__class__", "", None, "describe"])
def test_other_commands_are_refused(kind):
    with pytest.raises(SightglassError, match="Expected one of"):
        send_command(CommandedRun(), {"kind": kind})
